//! `diff`, `nan-trace`, `instrument` and `gradcheck` from outside. Expected
//! values are worked out by hand.

mod common;

use common::{code, err, out, scalify};
use scalify_ir::DType;
use scalify_tensors::{TensorRef, write_npz};
use std::path::Path;

const BASE: &str = "examples/llama_layer/base.hlo.txt";
const SHARD_MAP: &str = "examples/llama_layer/shard_map.hlo.txt";
const WRONG: &str = "examples/llama_layer/shard_map_wrong.hlo.txt";

#[test]
fn diff_of_a_right_and_a_wrong_program() {
    let o = scalify(&["diff", BASE, SHARD_MAP]);
    assert_eq!(code(&o), 0, "{}", out(&o));
    assert!(out(&o).starts_with("EQUAL up to rounding"));
    let o = scalify(&["diff", BASE, WRONG, "--json"]);
    assert_eq!(code(&o), 1);
    let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    assert_eq!(j["schema"], "scalify-diff/1");
    // The product whose all-reduce is missing: model.py:39.
    let source = j["first"]["source"].as_str().unwrap();
    assert!(source.ends_with("model.py:39"), "{source}");
    assert_eq!(j["outputs"][0]["kind"], "function");
    let o = scalify(&["diff", BASE, "no-such-file"]);
    assert_eq!(code(&o), 2);
}

/// A trace made by another program of the same names stands for one of a
/// device that computes something else.
#[test]
fn diff_of_a_trace() {
    let dir = std::env::temp_dir().join(format!("scalify-traced-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = |n: &str| dir.join(n).display().to_string();
    let program = |op: &str| {
        format!(
            "HloModule t
ENTRY %e (a: f32[3]) -> f32[3] {{
  %a = f32[3] parameter(0)
  %l = f32[3] tanh(%a)
  %m = f32[3] {op}(%l, %a)
  ROOT %n = f32[3] exponential(%m)
}}
"
        )
    };
    let (right, wrong) = (file("right.hlo"), file("wrong.hlo"));
    std::fs::write(&right, program("multiply")).unwrap();
    std::fs::write(&wrong, program("subtract")).unwrap();
    for f in [&right, &wrong] {
        let o = scalify(&["run", f, "--random", "1", "--trace", &format!("{f}.npz")]);
        assert_eq!(code(&o), 0, "{}", err(&o));
    }
    let o = scalify(&["diff", &right, &right, "--trace", &format!("{right}.npz")]);
    assert_eq!(code(&o), 0, "{}{}", out(&o), err(&o));
    assert!(out(&o).starts_with("EQUAL up to rounding  3 operations"), "{}", out(&o));
    // Only the operation itself is named, not what uses its value.
    let o = scalify(&["diff", &right, &right, "--trace", &format!("{wrong}.npz"), "--json"]);
    assert_eq!(code(&o), 1, "{}{}", out(&o), err(&o));
    let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    let rows = j["rows"].as_array().unwrap();
    let over = |r: &serde_json::Value| r["ratio"].as_f64().is_none_or(|x| x > 1.0);
    let at: Vec<&str> =
        rows.iter().filter(|r| over(r)).map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(at, ["m"]);
    assert_eq!(rows[j["first"].as_u64().unwrap() as usize]["name"], "m");
    // A distributed program, all devices.
    let o = scalify(&["run", SHARD_MAP, "--random", "1", "--trace", &file("d.npz")]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let o = scalify(&["diff", BASE, SHARD_MAP, "--trace", &file("d.npz")]);
    assert_eq!(code(&o), 0, "{}{}", out(&o), err(&o));
    // Nothing in it belongs to the program.
    let o = scalify(&["diff", BASE, SHARD_MAP, "--trace", &format!("{right}.npz")]);
    assert_eq!(code(&o), 2);
    std::fs::remove_dir_all(dir).unwrap();
}

const LOG: &str = "HloModule t
ENTRY %e (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  %l = f32[4] log(%a)
  ROOT %m = f32[4] multiply(%l, %l)
}
";

#[test]
fn the_first_nan() {
    let dir = std::env::temp_dir().join(format!("scalify-numeric-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |n: &str| dir.join(n).display().to_string();
    std::fs::write(path("m.hlo.txt"), LOG).unwrap();
    let bytes: Vec<u8> = [2f32, 3.0, 0.5, -1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let a = TensorRef { dtype: DType::F32, dims: &[4], bytes: &bytes };
    write_npz(path("a.npz"), [("a", a)]).unwrap();

    let o = scalify(&["nan-trace", &path("m.hlo.txt"), "--inputs", &path("a.npz"), "--json"]);
    assert_eq!(code(&o), 1);
    let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    assert_eq!(j["writers"][0]["operation"], "l");
    assert_eq!(j["writers"][0]["index"], serde_json::json!([3]));
    assert_eq!(j["writers"][0]["value"], "NaN");
    assert_eq!(j["writers"][0]["operands"][0]["value"], -1.0);

    let (text, flags) = (path("i.hlo.txt"), path("o.npz"));
    let o = scalify(&["instrument", &path("m.hlo.txt"), "--check-finite", "-o", &text]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let o = scalify(&["run", &text, "--inputs", &path("a.npz"), "--outputs", &flags]);
    assert_eq!(code(&o), 0);
    let o = scalify(&["instrument", &format!("{text}.json"), "--read", &flags]);
    assert_eq!(code(&o), 1);
    assert!(out(&o).starts_with("%l, log f32[4], is the first with NaN"), "{}", out(&o));
    let o =
        scalify(&["instrument", &path("m.hlo.txt"), "--check-finite", "--only", "x*", "-o", &text]);
    assert_eq!(code(&o), 2);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Rows of a CSV by column.
fn csv_rows(text: &str) -> Vec<std::collections::HashMap<String, String>> {
    let mut r = csv::Reader::from_reader(text.as_bytes());
    r.deserialize().map(Result::unwrap).collect()
}

/// Test cases and failures of a JUnit report.
fn cases(xml: &str) -> (usize, usize) {
    (xml.matches("<testcase ").count(), xml.matches("<failure ").count())
}

/// Values of JSON lines, strict.
fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// `sum(x^2)` with a gradient that is right (`2 x`) for one and wrong (`3 x`)
/// for the other parameter.
const JOINT: &str = "HloModule t
%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}
ENTRY %e (x: f32[3], y: f32[2]) -> (f32[], f32[3], f32[2]) {
  %x = f32[3] parameter(0)
  %y = f32[2] parameter(1)
  %zero = f32[] constant(0)
  %xx = f32[3] multiply(%x, %x)
  %yy = f32[2] multiply(%y, %y)
  %sx = f32[] reduce(%xx, %zero), dimensions={0}, to_apply=%add
  %sy = f32[] reduce(%yy, %zero), dimensions={0}, to_apply=%add
  %loss = f32[] add(%sx, %sy)
  %gx = f32[3] add(%x, %x)
  %y2 = f32[2] add(%y, %y)
  %gy = f32[2] add(%y2, %y)
  ROOT %t = (f32[], f32[3], f32[2]) tuple(%loss, %gx, %gy)
}
";

#[test]
fn reports_for_machines() {
    let dir = std::env::temp_dir().join(format!("scalify-reports-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |n: &str| dir.join(n).display().to_string();
    let read = |n: &str| std::fs::read_to_string(dir.join(n)).unwrap();
    std::fs::write(path("m.hlo.txt"), LOG).unwrap();
    std::fs::write(path("j.hlo.txt"), JOINT).unwrap();
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (good, bad) = (bytes(&[2.0, 3.0, 0.5, 1.0]), bytes(&[2.0, 3.0, 0.5, -1.0]));
    for (name, b) in [("good.npz", &good), ("bad.npz", &bad)] {
        let t = TensorRef { dtype: DType::F32, dims: &[4], bytes: b };
        write_npz(path(name), [("a", t)]).unwrap();
    }
    let ends = ["csv", "xml", "jsonl", "json", "txt"];
    // Runs a command that writes all formats and checks that JSON is strict.
    let all = |args: &[&str], want: i32| {
        let files: Vec<String> = ends.iter().map(|e| path(&format!("r.{e}"))).collect();
        let mut args = args.to_vec();
        files.iter().for_each(|f| args.extend(["--report", f]));
        let o = scalify(&args);
        assert_eq!(code(&o), want, "{args:?} {}", err(&o));
        assert_eq!(out(&o), read("r.txt"));
        serde_json::from_str::<serde_json::Value>(&read("r.json")).unwrap();
        (csv_rows(&read("r.csv")), cases(&read("r.xml")), lines(&read("r.jsonl")))
    };

    let program = path("m.hlo.txt");
    let (rows, xml, json) = all(&["nan-trace", &program, "--inputs", &path("bad.npz")], 1);
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["operation"][..], &rows[0]["value"][..]), ("l", "NaN"));
    assert_eq!((&rows[1]["kind"][..], &rows[1]["operation"][..]), ("output", "0"));
    assert_eq!((xml, json.len()), ((2, 2), 3));
    let (_, xml, _) = all(&["nan-trace", &program, "--inputs", &path("good.npz")], 0);
    assert_eq!(xml, (1, 0));

    let (text, flags) = (path("i.hlo.txt"), path("o.npz"));
    assert_eq!(code(&scalify(&["instrument", &program, "--check-finite", "-o", &text])), 0);
    scalify(&["run", &text, "--inputs", &path("bad.npz"), "--outputs", &flags]);
    let (rows, xml, json) = all(&["instrument", &format!("{text}.json"), "--read", &flags], 1);
    let of = |k: &str| rows.iter().map(|r| r[k].clone()).collect::<Vec<_>>();
    assert_eq!(of("instruction"), ["a", "l", "m"]);
    assert_eq!(
        (of("nan"), of("finite")),
        (
            vec!["false".to_owned(), "true".into(), "true".into()],
            vec!["true".to_owned(), "false".into(), "false".into()],
        )
    );
    assert_eq!((xml, json.len()), ((3, 2), 4));

    // One of four elements differs.
    let o = scalify(&["compare", &path("good.npz"), &path("bad.npz"), "--report", &path("c.json")]);
    assert_eq!(code(&o), 1);
    let (rows, xml, json) = all(&["recheck", &path("c.json"), "--all"], 1);
    assert_eq!((&rows[0]["least"][..], &rows[0]["most"][..]), ("1", "1"));
    assert_eq!((xml, json.len()), ((1, 1), 2));
    let (rows, xml, _) = all(&["recheck", &path("c.json"), "--all", "--atol", "9"], 0);
    assert_eq!((rows[0]["verdict"].as_str(), xml), ("equal", (1, 0)));

    let joint = path("j.hlo.txt");
    let (rows, xml, json) = all(&["gradcheck", &joint, "--outputs", "gradient"], 1);
    let got: Vec<(&str, &str, &str)> =
        rows.iter().map(|r| (&r["way"][..], &r["name"][..], &r["verdict"][..])).collect();
    assert_eq!(
        got,
        [
            ("differences", "x", "pass"),
            ("differences", "y", "fail"),
            ("derivative", "x", "proved"),
            ("derivative", "y", "refuted"),
        ]
    );
    assert_eq!((xml, json.len()), ((4, 2), 5));
    let o = scalify(&["gradcheck", &joint, "--report", &path("r.doc")]);
    assert_eq!(code(&o), 2);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// `sum(tanh(W x) sin(x) / exp(x))`, with `x` where its gradient should be;
/// `OP` is put on `W x`.
const ANALYTIC: &str = "HloModule t
%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}
ENTRY %e (x: f32[3]) -> (f32[], f32[3]) {
  %x = f32[3] parameter(0)
  %w = f32[3,3] constant({ { 0.5, -0.25, 1 }, { 2, 0.125, -1 }, { 0.75, 1.5, -0.5 } })
  %wx = f32[3] dot(%w, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %y = f32[3] OP(%wx)
  %t = f32[3] tanh(%y)
  %s = f32[3] sine(%x)
  %ts = f32[3] multiply(%t, %s)
  %e = f32[3] exponential(%x)
  %q = f32[3] divide(%ts, %e)
  %zero = f32[] constant(0)
  %loss = f32[] reduce(%q, %zero), dimensions={0}, to_apply=%add
  ROOT %r = (f32[], f32[3]) tuple(%loss, %x)
}
";

#[test]
fn derivatives_without_step_noise() {
    let dir = std::env::temp_dir().join(format!("scalify-step-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |n: &str| dir.join(n).display().to_string();
    let x = [0.625f32, -1.25, 0.375];
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    write_npz(path("x.npz"), [("x", TensorRef { dtype: DType::F32, dims: &[3], bytes: &bytes })])
        .unwrap();
    let w = [[0.5, -0.25, 1.0], [2.0, 0.125, -1.0], [0.75, 1.5, -0.5]];
    let x = x.map(f64::from);
    let y = w.map(|r: [f64; 3]| r.iter().zip(x).map(|(w, x)| w * x).sum::<f64>());
    // By the rules of differentiation; `sign` is that of a negation of `W x`.
    let gradient = |sign: f64, k: usize| {
        let through: f64 = (0..3)
            .map(|j| (1.0 - y[j].tanh().powi(2)) * sign * w[j][k] * x[j].sin() * (-x[j]).exp())
            .sum();
        through + sign * y[k].tanh() * (x[k].cos() - x[k].sin()) * (-x[k]).exp()
    };
    for (op, sign) in [("copy", Some(1.0)), ("negate", Some(-1.0)), ("abs", None)] {
        let file = path(&format!("{op}.hlo.txt"));
        std::fs::write(&file, ANALYTIC.replace("OP", op)).unwrap();
        let inputs = path("x.npz");
        let args = ["gradcheck", &file, "--numeric", "--outputs", "gradient", "--inputs", &inputs];
        let o = scalify(&[&args[..], &["--json", "--elements", "8"]].concat());
        assert_eq!(code(&o), 1, "{}", err(&o));
        let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
        let checks = j["numeric"]["parameters"][0]["checks"].as_array().unwrap();
        assert!(checks.len() >= 3);
        for c in checks {
            let Some(sign) = sign else {
                assert_eq!(c["method"], "differences");
                continue;
            };
            assert_eq!(c["method"], "complex-step");
            if let Some(k) = c["element"].as_u64() {
                let (got, want) = (c["measured"].as_f64().unwrap(), gradient(sign, k as usize));
                assert!((got - want).abs() <= 1e-14 * want.abs().max(1.0), "{op} {k} {got} {want}");
            }
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

const HAND: &str = "tests/corpus/hand";

/// What `gradcheck` says about the gradients of `dist` (or of `base` itself),
/// with the ranges of integer inputs that the case declares.
fn gradcheck(case: &str, dist: Option<&str>) -> (i32, serde_json::Value) {
    let file = |c: &str, f: &str| format!("{HAND}/{c}/{f}.hlo.txt.gz");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(HAND).join(case).join("case.json")).unwrap();
    let j: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut args = vec!["gradcheck".to_owned(), file(case, "base")];
    args.extend(dist.map(|d| file(d, "dist")));
    for (k, i) in j["inputs"].as_array().unwrap().iter().enumerate() {
        if let Some(r) = i["range"].as_array() {
            args.extend(["--assume".to_owned(), format!("#{k} in [{}, {}]", r[0], r[1])]);
        }
    }
    args.push("--json".to_owned());
    let o = scalify(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let j = serde_json::from_str(&out(&o));
    (code(&o), j.unwrap_or_else(|_| panic!("{case}: {}", err(&o))))
}

/// (output, verdict) of each parameter.
fn verdicts(j: &serde_json::Value) -> Vec<(u64, String)> {
    let all = j["parameters"].as_array().unwrap().iter();
    all.map(|p| (p["output"].as_u64().unwrap(), p["verdict"].as_str().unwrap().to_owned()))
        .collect()
}

/// Training cases: programs that return a loss and something per parameter.
fn training_cases() -> Vec<(String, serde_json::Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(HAND);
    let mut v = Vec::new();
    for e in std::fs::read_dir(root).unwrap() {
        let dir = e.unwrap();
        let Ok(text) = std::fs::read_to_string(dir.path().join("case.json")) else { continue };
        let j: serde_json::Value = serde_json::from_str(&text).unwrap();
        if j["outputs"][0]["name"] == "loss" && j["outputs"].as_array().unwrap().len() > 1 {
            v.push((dir.file_name().into_string().unwrap(), j));
        }
    }
    v.sort_by(|a, b| a.0.cmp(&b.0));
    v
}

#[test]
fn gradients_of_all_training_cases() {
    let all = training_cases();
    let right: Vec<_> = all.iter().filter(|c| c.1["expected"] == "equivalent").collect();
    assert_eq!(right.len(), 16);
    for (name, j) in &right {
        let outputs = j["outputs"].as_array().unwrap().len() - 1;
        for dist in [None, Some(name.as_str())] {
            let (exit, j) = gradcheck(name, dist);
            let numeric = verdicts(&j["numeric"]);
            assert!(numeric.iter().all(|v| v.1 == "pass"), "{name} {dist:?}: {numeric:?}");
            let symbolic = verdicts(&j["symbolic"]);
            assert!(symbolic.iter().all(|v| v.1 == "proved"), "{name} {dist:?}: {symbolic:?}");
            assert_eq!(symbolic.len(), outputs, "{name}");
            // That a softmax does not depend on its shift is proved too.
            let proofs = j["symbolic"]["parameters"].as_array().unwrap();
            assert!(proofs.iter().all(|p| p["cancels"] == serde_json::json!([])), "{name}");
            assert_eq!(exit, 0, "{name} {dist:?}");
        }
    }
}

#[test]
fn wrong_gradients_of_all_training_cases() {
    let wrong: Vec<_> =
        training_cases().into_iter().filter(|c| c.1["expected"] == "different").collect();
    assert_eq!(wrong.len(), 25);
    for (name, j) in &wrong {
        let parent = name.split("__").nth(1).unwrap();
        // The outputs that XLA computes differently, apart from the loss.
        let errors: Vec<u64> = j["numeric"]["outputs"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .filter(|(k, o)| {
                let (e, m) = (o["max_abs_err"].as_f64(), o["baseline_max_abs"].as_f64());
                *k > 0 && e.unwrap_or(f64::NAN) > 1e-3 * m.unwrap_or(1.0)
            })
            .map(|o| o.0 as u64)
            .collect();
        let (exit, j) = gradcheck(parent, Some(name));
        assert_eq!(exit, 1, "{name}");
        let numeric = verdicts(&j["numeric"]);
        let symbolic = verdicts(&j["symbolic"]);
        for (of, bad) in [(&numeric, "fail"), (&symbolic, "refuted")] {
            for e in &errors {
                assert!(of.contains(&(*e, bad.to_owned())), "{name} #{e}: {of:?}");
            }
        }
        // Both ways say the same, or the proof says nothing.
        for (output, v) in &symbolic {
            let n = numeric.iter().find(|n| n.0 == *output).map(|n| n.1.as_str());
            match v.as_str() {
                "proved" => assert_eq!(n, Some("pass"), "{name} #{output}"),
                "refuted" => assert_eq!(n, Some("fail"), "{name} #{output}"),
                _ => {}
            }
        }
    }
}

#[test]
fn gradients_of_a_declared_optimizer() {
    let step = "adamw:lr=0.01,b1=0.9,b2=0.95,eps=1e-8,wd=0.1,t=3";
    let base = format!("{HAND}/dp_adamw/base.hlo.txt.gz");
    // 1 - 0.9^3 = 0.271, 1 - 0.95^3 = 0.142625, as in the program.
    let o = scalify(&["gradcheck", &base, "--step", step, "--json"]);
    let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    assert_eq!(verdicts(&j["numeric"]).iter().filter(|v| v.1 == "pass").count(), 12, "{j}");
    assert_eq!(verdicts(&j["symbolic"]).iter().filter(|v| v.1 == "proved").count(), 12, "{j}");
    assert_eq!(code(&o), 0);
    // Another decay of the weights: parameters are wrong, moments are right.
    let o = scalify(&["gradcheck", &base, "--step", &step.replace("wd=0.1", "wd=0.2"), "--json"]);
    assert_eq!(code(&o), 1);
    let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    for (output, v) in verdicts(&j["symbolic"]) {
        assert_eq!(v, if output <= 4 { "refuted" } else { "proved" }, "#{output}");
    }
    let o = scalify(&["gradcheck", &base, "--step", "adamw:lr=x"]);
    assert_eq!(code(&o), 2);
}

#[test]
fn reduction_of_a_refuted_pair_and_of_one_program() {
    let dir = std::env::temp_dir().join(format!("scalify-reduce-{}", std::process::id()));
    let path = |n: &str| dir.join(n).display().to_string();
    let o = scalify(&["reduce", BASE, WRONG, "-q", "-o", &path("pair")]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let text = out(&o);
    let last = text.lines().last().unwrap();
    assert_eq!(last, path("pair/witness"));
    let left: usize = text.split(' ').next().unwrap().parse().unwrap();
    assert!(left <= 12, "{text}");
    assert_eq!(code(&scalify(&["replay", last])), 1);
    // A command: the program still has a hyperbolic tangent.
    std::fs::write(path("m.hlo.txt"), LOG.replace("log(%a)", "tanh(%a)")).unwrap();
    let test = ["reduce", &path("m.hlo.txt"), "--test", "grep -q tanh", "-q", "-o", &path("one")];
    let o = scalify(&test);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(out(&o).lines().last().unwrap(), path("one"));
    let left = std::fs::read_to_string(path("one/module.hlo.txt")).unwrap();
    assert!(left.contains("ROOT %l = f32[4] tanh(%a)"), "{left}");
    // What does not fail is not reduced.
    let o = scalify(&["reduce", BASE, SHARD_MAP, "-q", "-o", &path("none")]);
    assert_eq!(code(&o), 3);
    assert!(!dir.join("none").exists());
    std::fs::remove_dir_all(&dir).unwrap();
}
