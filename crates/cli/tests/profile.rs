//! `profile` and the page of `diff` from outside. Expected values are worked
//! out by hand, or are what `tests/traces/record.py` did.

mod common;

use common::{code, err, out, scalify};
use std::path::{Path, PathBuf};
use std::process::Output;

const MLP: &str = "tests/traces/mlp.hlo.txt";
const TRACE: &str = "tests/traces/mlp.trace.json.gz";

fn temp(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("scalify-profile-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}

fn json(o: &Output) -> serde_json::Value {
    serde_json::from_str(&out(o)).unwrap()
}

#[test]
fn cost_without_a_trace() {
    let o = scalify(&["profile", "examples/llama_layer/shard_map.hlo.txt", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let d = json(&o);
    assert_eq!(d["schema"], "scalify-profile/1");
    assert!(d["trace"].is_null());
    // The mesh stands in the module; the layer has two all-reduces over tp.
    let c = &d["collectives"][0];
    assert_eq!((c["kind"].as_str(), c["over"].as_str()), (Some("all-reduce"), Some("tp")));
    assert_eq!(c["executions"], 2.0);
    let t = out(&scalify(&["profile", "examples/llama_layer/shard_map.hlo.txt"]));
    assert!(t.contains("instructions with most work") && t.contains("all-reduce  tp"), "{t}");
}

#[test]
fn a_trace_in_three_formats() {
    for t in ["mlp.trace.json.gz", "mlp.perfetto_trace.json.gz", "mlp.xplane.pb.gz"] {
        let o = scalify(&["profile", MLP, "--trace", &format!("tests/traces/{t}"), "--json"]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        let d = json(&o);
        assert!(d["trace"]["attributed"].as_f64().unwrap() >= 0.95);
        assert_eq!(d["trace"]["runs"], 2.0);
        // Scopes that `record.py` names.
        let scopes: Vec<&str> =
            d["scopes"].as_array().unwrap().iter().filter_map(|s| s["key"].as_str()).collect();
        assert!(scopes.iter().any(|s| s.contains("hidden")), "{scopes:?}");
        assert!(scopes.iter().any(|s| s.contains("update")), "{scopes:?}");
    }
}

#[test]
fn pages_load_nothing() {
    let (page, diff) = (temp("p.html"), temp("d.html"));
    let o = scalify(&[
        "profile",
        MLP,
        "--trace",
        TRACE,
        "--peak-flops",
        "100G",
        "--peak-bytes",
        "20G",
        "--html",
        page.to_str().unwrap(),
        "--quiet",
    ]);
    assert_eq!((code(&o), out(&o)), (0, String::new()), "{}", err(&o));
    let o = scalify(&[
        "diff",
        "examples/llama_layer/base.hlo.txt",
        "examples/llama_layer/shard_map_wrong.hlo.txt",
        "--html",
        diff.to_str().unwrap(),
        "--quiet",
    ]);
    assert_eq!(code(&o), 1, "{}", err(&o));
    let read = |p: &Path| std::fs::read_to_string(p).unwrap();
    for p in [&page, &diff] {
        let t = read(p);
        assert!(t.starts_with("<!doctype html>") && t.ends_with("</html>\n"));
        for bad in ["<script", "http://", "https://", "NaN", "inf\""] {
            assert!(!t.contains(bad), "{bad} in {}", p.display());
        }
    }
    let t = read(&page);
    // Ridge of the given peaks: 100 / 20.
    assert!(t.contains("aria-label=\"roofline\"") && t.contains("The ridge is at 5 FLOP per byte"));
    let t = read(&diff);
    // The product whose all-reduce is missing is named first.
    let answer = t.split("class=\"answer\">").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(answer.starts_with("The first operation at fault is %"), "{answer}");
    assert!(
        answer.contains("model.py:39") && answer.contains("computes something else"),
        "{answer}"
    );
    assert!(t.contains("Error along the program") && t.contains("Worst elements"));
}

#[test]
fn two_traces() {
    let other = temp("numbers.json");
    std::fs::write(
        &other,
        r#"{"schema":"scalify-diff/1","outputs":[{"kind":"precision","max":0.02}],"operations":[]}"#,
    )
    .unwrap();
    let args = [
        "profile",
        "tests/traces/attention.hlo.txt",
        "--trace",
        "tests/traces/attention.trace.json.gz",
        "--module2",
        "tests/traces/attention_bf16.hlo.txt",
        "--trace2",
        "tests/traces/attention_bf16.trace.json.gz",
        "--numbers",
        other.to_str().unwrap(),
    ];
    let o = scalify(&args);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert!(
        out(&o).contains("the outputs are rounded more coarsely (largest error 0.02)"),
        "{}",
        out(&o)
    );
    let d = json(&scalify(&[&args[..], &["--json"]].concat()));
    let c = &d["comparison"];
    let sum: f64 = c["rows"]
        .as_array()
        .unwrap()
        .iter()
        .chain(c["new"].as_array().unwrap())
        .map(|r| r["after"].as_f64().or(r["seconds"].as_f64()).unwrap())
        .sum();
    assert!((sum / c["after"].as_f64().unwrap() - 1.0).abs() < 1e-6);
}

#[test]
fn its_report_colours_a_graph() {
    let (report, page) = (temp("r.json"), temp("v.html"));
    let o = scalify(&["profile", MLP, "--trace", TRACE, "--json"]);
    std::fs::write(&report, out(&o)).unwrap();
    let o = scalify(&[
        "view",
        MLP,
        "--numbers",
        report.to_str().unwrap(),
        "-o",
        page.to_str().unwrap(),
    ]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    // The page packs its data; that the fields colour it is seen in
    // `scripts/check_view.py`.
    let with = std::fs::metadata(&page).unwrap().len();
    let o = scalify(&["view", MLP, "-o", page.to_str().unwrap()]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert!(with > std::fs::metadata(&page).unwrap().len() + 500);
}

#[test]
fn bad_input_is_said() {
    let bad = temp("bad.json");
    std::fs::write(&bad, "{\"traceEvents\": [\n{\"ph\": \"X\", \"ts\": {}}]}").unwrap();
    let bad = bad.to_str().unwrap();
    for (args, part) in [
        (vec!["--trace", bad], "line 2, column"),
        (vec!["--trace", "no-such-file"], "cannot read no-such-file"),
        (vec!["--trace", "docs/schema"], "no trace, expected"),
        (vec!["--trace", MLP], "expected a Chrome trace"),
        (vec!["--peak-flops", "1T"], "--peak-bytes"),
        (vec!["--peak-flops", "fast", "--peak-bytes", "1T"], "expected a positive number"),
        (vec!["--trace2", TRACE], "--trace"),
        (vec!["--mesh", "tp"], "--mesh"),
        (
            vec![
                "--trace",
                TRACE,
                "--trace2",
                TRACE,
                "--numbers",
                "docs/schema/profile-v1.schema.json",
            ],
            "expected a report of `scalify diff --json`",
        ),
    ] {
        let o = scalify(&[&["profile", MLP][..], &args].concat());
        assert_eq!(code(&o), 2, "{args:?}");
        assert!(err(&o).contains(part), "{args:?}: {}", err(&o));
    }
    // A trace of something else is read, and says so.
    let o = scalify(&["profile", MLP, "--trace", "tests/traces/conv.trace.json.gz"]);
    assert!(out(&o).contains("no event is of a module jit_mlp_step"), "{}", out(&o));
}
