//! `diff`, `nan-trace`, `instrument` and `gradcheck` from outside. Expected
//! values are worked out by hand.

use scalify_ir::DType;
use scalify_tensors::{TensorRef, write_npz};
use std::path::Path;
use std::process::{Command, Output};

const BASE: &str = "examples/llama_layer/base.hlo.txt";
const SHARD_MAP: &str = "examples/llama_layer/shard_map.hlo.txt";
const WRONG: &str = "examples/llama_layer/shard_map_wrong.hlo.txt";

fn scalify(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scalify"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("the program starts")
}

fn out(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

fn code(o: &Output) -> i32 {
    o.status.code().unwrap_or(-1)
}

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
    assert_eq!(code(&o), 0, "{}", String::from_utf8_lossy(&o.stderr));
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

#[test]
fn gradients_of_a_distributed_step() {
    let (base, dist) = (
        "tests/corpus/hand/megatron_sp_train/base.hlo.txt.gz",
        "tests/corpus/hand/megatron_sp_train/dist.hlo.txt.gz",
    );
    let o = scalify(&["gradcheck", base, dist]);
    assert_eq!(code(&o), 0, "{}", out(&o));
    // The gain's gradient lacks its all-reduce.
    let o = scalify(&[
        "gradcheck",
        "tests/corpus/hand/bug__megatron_sp_train__norm_grad/dist.hlo.txt.gz",
        "--json",
    ]);
    assert_eq!(code(&o), 1);
    let j: serde_json::Value = serde_json::from_str(&out(&o)).unwrap();
    let verdicts: Vec<&str> = j["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["fail", "pass", "pass"]);
}
