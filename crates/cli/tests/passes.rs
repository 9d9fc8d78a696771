//! `scalify bisect` and `scalify verify --distributed` from outside.

mod common;

use common::{code, err, out, scalify};
use std::path::PathBuf;

const MLP: &str = "tests/passes/mlp";

fn temp(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("scalify-passes-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (file, text) in files {
        std::fs::write(dir.join(file), text).unwrap();
    }
    dir
}

#[test]
fn all_passes_of_a_folder() {
    let o = scalify(&["bisect", MLP]);
    assert_eq!((code(&o), err(&o)), (0, String::new()), "{}", out(&o));
    assert!(out(&o).starts_with("PROVED  module_0000.jit_f: all 9 steps\n"), "{}", out(&o));
    let o = scalify(&["bisect", MLP, "--json", "--from", "algsimp", "--to", "fusion"]);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!((&v["verdict"], &v["command"]), (&"proved".into(), &"bisect".into()));
    let steps = v["modules"][0]["steps"].as_array().unwrap();
    assert!(steps.len() < 9 && steps.last().unwrap()["pass"] == "fusion");
    let o = scalify(&["bisect", MLP, "-q"]);
    assert_eq!(out(&o).lines().count(), 1);
}

/// A function of three lines whose second pass turns a sum into a difference.
fn dump(name: &str) -> PathBuf {
    let text = |op: &str, x: &str| {
        format!(
            "HloModule jit_f\nENTRY main {{\n  x = f32[4] parameter(0)\n  y = f32[4] parameter(1)\n  \
             {x} = f32[4] {op}(x, y)\n  ROOT z = f32[4] multiply({x}, y)\n}}\n"
        )
    };
    let dump =
        |step: &str, op: &str, x: &str| (format!("module_0003.jit_f.{step}.txt"), text(op, x));
    let files = [
        dump("before_optimizations", "add", "a"),
        dump("0000.simplify.after_one.before_two", "add", "b"),
        dump("0001.simplify.after_two.before_three", "subtract", "b"),
        dump("0002.simplify.after_three.before_end", "subtract", "c"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|f| (f.0.as_str(), f.1.as_str())).collect();
    temp(name, &files)
}

#[test]
fn the_wrong_pass_is_named() {
    let dir = dump("wrong");
    let folder = dir.display().to_string();
    let (junit, sarif, cache) = (dir.join("j.xml"), dir.join("s.sarif"), dir.join("cache"));
    let path = |p: &PathBuf| p.display().to_string();
    let o = scalify(&[
        "bisect",
        &folder,
        "--junit",
        &path(&junit),
        "--sarif",
        &path(&sarif),
        "--cache",
        &path(&cache),
    ]);
    assert_eq!(code(&o), 1, "{}{}", out(&o), err(&o));
    let head = "REFUTED  module_0003.jit_f: two of simplify (step 2 of 3)\n";
    assert!(out(&o).starts_with(head), "{}", out(&o));
    assert!(out(&o).contains("1 not looked at") && out(&o).contains("where they differ"));
    assert_eq!(std::fs::read_to_string(&junit).unwrap().matches("<failure").count(), 1);
    let s: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&sarif).unwrap()).unwrap();
    assert_eq!(s["version"], "2.1.0");
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 2);
    let o = scalify(&["bisect", &folder, "--all", "--json", "--cache", &path(&cache)]);
    assert_eq!(code(&o), 1);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let steps = v["modules"][0]["steps"].as_array().unwrap();
    let words: Vec<_> = steps.iter().map(|s| s["verdict"].as_str().unwrap()).collect();
    assert_eq!(words, ["proved", "refuted", "proved"]);
    let cached: Vec<_> = steps.iter().map(|s| s["cached"].as_bool().unwrap()).collect();
    assert_eq!(cached, [true, true, false]);
    assert_eq!(steps[1]["instruction"], "b");
    // After the fault, all is well.
    let o = scalify(&["bisect", &folder, "--from", "two"]);
    assert_eq!(code(&o), 0, "{}", out(&o));
    // Without the refuter it is not known.
    let o = scalify(&["bisect", &folder, "--no-refute"]);
    assert_eq!(code(&o), 3, "{}", out(&o));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn bad_usage_of_bisect() {
    let empty = temp("empty", &[("notes.txt", "")]);
    let cases: &[(&[&str], &str)] = &[
        (&["bisect"], "required"),
        (&["bisect", "/does/not/exist"], "cannot read /does/not/exist"),
        (&["bisect", &empty.display().to_string()], "no passes, expected files as"),
        (&["bisect", MLP, "--module", "jit_g"], "no module `jit_g`, found module_0000.jit_f"),
        (&["bisect", MLP, "--from", "nope"], "--from: module_0000.jit_f has no dump after a pass"),
        (&["bisect", MLP, "--to", "["], "--to: "),
        (&["bisect", MLP, "--from", "cpu_after_optimizations"], "expected at least two dumps"),
    ];
    for (args, expected) in cases {
        let o = scalify(args);
        assert_eq!(code(&o), 2, "{args:?}: {}", out(&o));
        assert!(err(&o).contains(expected), "{args:?}: {}", err(&o));
    }
    std::fs::remove_dir_all(empty).unwrap();
}

const BASE: &str = "HloModule base
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,6] parameter(1)
  v = f32[6,5] parameter(2)
  d = f32[4,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[4,6] tanh(d)
  ROOT y = f32[4,5] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";
const FIRST: &str = "HloModule first
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,6] parameter(1)
  d = f32[4,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT h = f32[4,6] tanh(d)
}
";
const SECOND: &str = "HloModule second
ENTRY main {
  h = f32[4,6] parameter(0)
  v = f32[6,5] parameter(1)
  ROOT y = f32[4,5] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";

#[test]
fn stages_of_a_pipeline() {
    let wrong = SECOND
        .replace("dot(h, v)", "dot(k, v)")
        .replace("  ROOT", "  k = f32[4,6] negate(h)\n  ROOT");
    let lost = SECOND
        .replace("h = f32[4,6] parameter(0)", "t = token[] after-all()\n  r = (f32[4,6], u32[], token[]) recv(t), channel_id=3\n  rd = (f32[4,6], token[]) recv-done(r), channel_id=3\n  h = f32[4,6] get-tuple-element(rd), index=0")
        .replace("parameter(1)", "parameter(0)");
    let spec = "[link]\n\"1:h\" = \"0:#0\"\n";
    let dir = temp(
        "stages",
        &[
            ("base.hlo", BASE),
            ("s0.hlo", FIRST),
            ("s1.hlo", SECOND),
            ("wrong.hlo", &wrong),
            ("lost.hlo", &lost),
            ("spec.toml", spec),
        ],
    );
    let file = |n: &str| dir.join(n).display().to_string();
    let (base, s0, s1) = (file("base.hlo"), file("s0.hlo"), file("s1.hlo"));
    let verify = |stages: &[&str], more: &[&str]| {
        let mut args = vec!["verify", base.as_str()];
        for s in stages {
            args.extend(["--distributed", s]);
        }
        args.extend(more);
        scalify(&args)
    };
    let o = verify(&[&s0, &s1], &[]);
    assert_eq!((code(&o), err(&o)), (0, String::new()), "{}", out(&o));
    assert!(out(&o).contains("inputs of the next by position"), "{}", out(&o));
    for more in [&["--link", "1:h=0:#0"][..], &["--spec", &file("spec.toml")]] {
        let o = verify(&[&s0, &s1], more);
        assert!(code(&o) == 0 && !out(&o).contains("by position"), "{}{}", out(&o), err(&o));
    }
    let o = verify(&[&s0, &file("wrong.hlo")], &[]);
    assert_eq!(code(&o), 1, "{}", out(&o));
    assert!(out(&o).contains("stage1."), "{}", out(&o));
    // Two stages name one weight: it is that of the baseline in both.
    let twice = |v: &str| {
        format!(
            "HloModule m\nENTRY main {{\n  x = f32[4,4] parameter(0)\n  w = f32[4,4] parameter(1)\n{v}  \
             d = f32[4,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n  \
             h = f32[4,4] tanh(d)\n  ROOT y = f32[4,4] dot(h, {}), lhs_contracting_dims={{1}}, \
             rhs_contracting_dims={{0}}\n}}\n",
            if v.is_empty() { "w" } else { "v" }
        )
    };
    std::fs::write(dir.join("tied.hlo"), twice("")).unwrap();
    std::fs::write(dir.join("apart.hlo"), twice("  v = f32[4,4] parameter(2)\n")).unwrap();
    let first = FIRST.replace("4,6", "4,4").replace("8,6", "4,4").replace("4,8", "4,4");
    let second = SECOND.replace("4,6", "4,4").replace("6,5", "4,4").replace("4,5", "4,4");
    std::fs::write(dir.join("t0.hlo"), first).unwrap();
    std::fs::write(dir.join("t1.hlo"), second.replace("v =", "w =").replace("(h, v)", "(h, w)"))
        .unwrap();
    for (base, more, expected) in [
        ("tied.hlo", &[][..], 0),
        // The names may count anew in each stage: there are as many inputs.
        ("apart.hlo", &["--link", "1:h=0:#0"], 0),
        ("apart.hlo", &["--link", "1:h=0:#0", "--pair", "v=stage1.w"], 0),
        ("apart.hlo", &["--link", "1:h=0:#0", "--pair", "w=stage1.w"], 1),
        // All shapes are the same: without a link nothing is refuted.
        ("apart.hlo", &["--pair", "w=stage1.w"], 3),
    ] {
        let (base, t0, t1) = (file(base), file("t0.hlo"), file("t1.hlo"));
        let args = ["verify", &base, "--distributed", &t0, "--distributed", &t1];
        let o = scalify(&[&args[..], more].concat());
        assert_eq!(code(&o), expected, "{base}: {}{}", out(&o), err(&o));
    }
    // Errors point to the line.
    let o = verify(&[&s0, &file("lost.hlo")], &[]);
    assert_eq!(code(&o), 2, "{}", out(&o));
    assert!(err(&o).contains("nothing is sent on channel 3"), "{}", err(&o));
    assert!(err(&o).contains("lost.hlo:4:"), "{}", err(&o));
    let o = verify(&[&s1, &s0], &[]);
    assert!(code(&o) == 2 && err(&o).contains("--link"), "{}", err(&o));
    let o = verify(&[&s0, &s1], &["--link", "x"]);
    assert!(code(&o) == 2 && err(&o).contains("--link: expected"), "{}", err(&o));
    let o = scalify(&["verify", &base]);
    assert!(code(&o) == 2 && err(&o).contains("required"), "{}", err(&o));
    std::fs::remove_dir_all(dir).unwrap();
}
