//! `scalify compare` and `scalify recheck` from outside: exit codes, formats,
//! errors. The npz files are numpy's (see `crates/tensors/tests/data`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tensors/tests/data");
    dir.join(name).display().to_string()
}

fn scalify(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scalify")).args(args).output().expect("the program starts")
}

fn code(o: &Output) -> i32 {
    o.status.code().unwrap_or(-1)
}

fn temp(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("scalify-compare-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}

#[test]
fn exit_codes() {
    let (odd, one) = (data("odd.npz"), data("one.npy"));
    let equal = scalify(&["compare", &odd, &odd, "--equal-nan"]);
    assert_eq!(code(&equal), 0, "{}", String::from_utf8_lossy(&equal.stderr));
    assert!(equal.stdout.starts_with(b"EQUAL  7 of 7 tensors equal"));
    let other = scalify(&["compare", &odd, &one]);
    assert_eq!(code(&other), 1);
    assert!(String::from_utf8_lossy(&other.stdout).contains("not in the actual file"));
    // The criterion lacks its third file.
    assert_eq!(code(&scalify(&["compare", &one, &one, "--criterion", "bound"])), 3);
    for bad in [
        &["compare", &one, "/no/such/file"][..],
        &["compare", &one, &one, "--rtol", "-1"],
        &["compare", &one, &one, "--set", "x"],
        &["compare", &one, &one, "--axis", "2"],
        &["compare", &one, &one, "--report", "x.doc"],
        &["compare", &one, &one, "--raw", "f32[9]"],
        &["recheck", &one],
        // One byte per element, and nobody says which type.
        &["compare", &data("stored.npz"), &data("stored.npz")],
    ] {
        let o = scalify(bad);
        assert_eq!(code(&o), 2, "{bad:?}");
        assert!(o.stdout.is_empty() && !o.stderr.is_empty());
    }
}

#[test]
fn reports_are_files_and_can_be_judged_again() {
    let (a, b) = (temp("a.bin"), temp("b.bin"));
    std::fs::write(&a, [1.0f32, 2.0].map(f32::to_le_bytes).concat()).unwrap();
    std::fs::write(&b, [1.0f32, 2.5].map(f32::to_le_bytes).concat()).unwrap();
    let (json, xml) = (temp("r.json").display().to_string(), temp("r.xml").display().to_string());
    let [a, b] = [a, b].map(|p| p.display().to_string());
    let o =
        scalify(&["compare", &a, &b, "--raw", "f32[2]", "--report", &json, "--report", &xml, "-q"]);
    assert_eq!((code(&o), o.stdout.len()), (1, 0), "{}", String::from_utf8_lossy(&o.stderr));
    assert!(std::fs::read_to_string(&xml).unwrap().contains("failures=\"1\""));
    let r: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(r["tensors"][0]["metrics"]["max_abs"], 0.5);
    for (rtol, want) in [("1e-3", 1), ("0.3", 0), ("0.25", 0), ("0.2", 3), ("0.1", 1)] {
        let o = scalify(&["recheck", &json, "--rtol", rtol, "--atol", "0"]);
        assert_eq!(code(&o), want, "{rtol}: {}", String::from_utf8_lossy(&o.stdout));
    }
}
