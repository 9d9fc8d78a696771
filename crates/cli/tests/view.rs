//! `scalify view` from outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn view(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scalify"))
        .arg("view")
        .args(args)
        .current_dir(root())
        .output()
        .expect("the program starts")
}

const BASE: &str = "examples/llama_layer/base.hlo.txt";
const WRONG: &str = "examples/llama_layer/shard_map_wrong.hlo.txt";

/// An empty folder of its own.
fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("scalify-view-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn bad_input_is_an_error_with_its_place() {
    let dir = folder("bad");
    let bad = dir.join("bad.json");
    std::fs::write(&bad, "{\"a\": 1,\n oops").unwrap();
    let hlo = dir.join("bad.hlo");
    std::fs::write(&hlo, "HloModule m\nENTRY e {\n  ROOT a = f32[2] add(b, b)\n}\n").unwrap();
    let (bad, hlo, empty) = (bad.to_str().unwrap(), hlo.to_str().unwrap(), dir.to_str().unwrap());
    for (args, expected) in [
        (vec![BASE], "nothing to write"),
        (vec!["no_such_file", "-o", "-"], "no_such_file"),
        (vec![hlo, "-o", "-"], "bad.hlo:3:"),
        (vec![BASE, "--numbers", bad, "-o", "-"], "line 2"),
        (vec![BASE, WRONG, "--report", bad, "-o", "-"], "line 2"),
        (vec![empty, "-o", "-"], "no passes"),
        (vec![BASE, "--around", "nothing", "--svg", "-"], "no instruction `nothing`"),
        (vec![BASE, "--mesh", "tp", "-o", "-"], "--mesh"),
        (vec![BASE, "-o", "/no/such/folder/x.html"], "cannot write"),
    ] {
        let o = view(&args);
        let err = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
fn relations_name_the_fault() {
    let o = Command::new(env!("CARGO_BIN_EXE_scalify"))
        .args(["verify", BASE, WRONG, "--json", "--relations", "--no-refute"])
        .current_dir(root())
        .output()
        .unwrap();
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let all = v["relations"].as_array().unwrap();
    let of = |name: &str| all.iter().find(|r| r["instruction"] == name).unwrap();
    // The sum over tp of the attention's product is the baseline's product.
    assert_eq!(of("psum.5")["standing"], "related");
    assert_eq!(of("psum.5")["to"][0]["base"], "dot_general.14");
    // The product that lacks its sum, and what reads it, is nothing the
    // baseline has.
    assert_eq!(of("dot_general.17")["standing"], "unrelated");
    assert_eq!(of("dot_general.17")["to"].as_array().unwrap().len(), 0);
    assert_eq!(of("add.15")["standing"], "unrelated");
}

#[test]
fn several_modules_in_one_text_are_passes() {
    let dir = std::env::temp_dir().join(format!("scalify-several-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |n: &str| dir.join(n).display().to_string();
    let one = |name: &str, op: &str| {
        format!(
            "HloModule {name}\n\nENTRY e {{\n  p = f32[4] parameter(0)\n  ROOT r = f32[4] {op}(p)\n}}\n"
        )
    };
    let text = format!("//==== before\n{}\n//==== after\n{}", one("m", "abs"), one("m", "negate"));
    std::fs::write(path("good.txt"), &text).unwrap();
    let view = |f: &str| {
        std::process::Command::new(env!("CARGO_BIN_EXE_scalify"))
            .args(["view", &path(f), "-o", &path("page.html")])
            .output()
            .unwrap()
    };
    let o = view("good.txt");
    assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
    // A fault in the second module is at its line of the file.
    std::fs::write(path("bad.txt"), text.replace("negate(p)", "negate(q)")).unwrap();
    let o = view("bad.txt");
    assert_eq!(o.status.code(), Some(2));
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(said.contains("bad.txt:14:"), "{said}");
}
