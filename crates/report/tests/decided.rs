//! Snapshots of reports of decided pairs, and checks of the values in them.

mod schema;

use scalify_claim::{Claim, Mesh};
use scalify_ir::Module;
use scalify_prove::problem::{self, Problem};
use scalify_refute::{Decision, Plan, decide};
use scalify_report::sources::Sources;
use scalify_report::text::TextOptions;
use scalify_report::{Subject, json, text};
use serde_json::Value;
use std::path::PathBuf;

struct Case {
    base: Module,
    dist: Module,
    problem: Problem,
    decision: Decision,
}

/// Decides `tests/data/FOLDER` on the mesh tp=4.
fn case(folder: &str, inputs: &[&str], outputs: &[&str], plan: &Plan) -> Case {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let read = |f: &str| scalify_hlo::parse(&std::fs::read_to_string(dir.join(f)).unwrap());
    let (base, dist) = (read("base.hlo").unwrap(), read("dist.hlo").unwrap());
    let mut claim = Claim { mesh: Some(Mesh::parse("tp=4").unwrap()), ..Claim::default() };
    inputs.iter().for_each(|t| claim.add_input(t).unwrap());
    outputs.iter().for_each(|t| claim.add_output(t).unwrap());
    let mut decision = decide(&base, &dist, &claim, &Default::default(), plan);
    decision.outcome.stats.seconds = 0.0;
    let problem = problem::setup(&base, &dist, &claim);
    Case { base, dist, problem, decision }
}

impl Case {
    fn subject(&self) -> Subject<'_> {
        Subject {
            decision: &self.decision,
            problem: &self.problem,
            base: &self.base,
            dist: &self.dist,
            base_file: "base.hlo",
            dist_file: "dist.hlo",
            seed: 1,
            witness: None,
        }
    }

    fn text(&self) -> String {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let sources = Sources::new(vec![dir]);
        text::render(&self.subject(), &mut TextOptions { sources, ..TextOptions::default() })
    }

    /// The JSON report, which fits its schema.
    fn json(&self) -> Value {
        let value = serde_json::from_str(&json::render(&self.subject()).unwrap()).unwrap();
        let schema = include_str!("../../../docs/schema/report-v1.schema.json");
        let schema: Value = serde_json::from_str(schema).unwrap();
        assert_eq!(schema::errors(&schema, &value), Vec::<String>::new());
        value
    }
}

/// The MLP of `tests/data` whose last all-reduce is missing.
fn missing_all_reduce() -> Case {
    case("", &["w1=P(None, 'tp')", "w2=P('tp')"], &["#0=P()"], &Plan::default())
}

fn floats(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn refuted() {
    let c = missing_all_reduce();
    insta::assert_snapshot!("refuted_text", c.text());
    insta::assert_snapshot!("refuted_json", json::render(&c.subject()).unwrap());
    // The values are those of the function: y = max(x w1, 0) w2, and the sum
    // over the device's 8 of 32 hidden units.
    let v = c.json();
    assert_eq!(v["verdict"], "refuted");
    assert_eq!(v["kind"], "missing-all-reduce");
    let d = &v["counterexample"]["outputs"][0];
    let input = |k: usize| floats(&v["counterexample"]["inputs"][k]["values"]);
    let (x, w1, w2) = (input(0), input(1), input(2));
    let at = |k: usize| d["index"][k].as_u64().unwrap() as usize;
    let device = d["device"].as_u64().unwrap() as usize;
    let unit = |h: usize| {
        let z: f64 = (0..16).map(|k| x[at(0) * 16 + k] * w1[k * 32 + h]).sum();
        z.max(0.0) * w2[h * 16 + at(1)]
    };
    let whole: f64 = (0..32).map(unit).sum();
    let part: f64 = (8 * device..8 * device + 8).map(unit).sum();
    let close = |a: &Value, b: f64| (a.as_f64().unwrap() - b).abs() <= 1e-12 * b.abs().max(1.0);
    assert!(close(&d["expected"], whole) && close(&d["actual"], part), "{whole} {part} {d}");
    assert!((whole - part).abs() > d["bound"].as_f64().unwrap());
    assert_eq!(d["compared"], 4 * 8 * 16);
}

#[test]
fn not_a_number() {
    let c = case("nan", &["x=P('tp')"], &["#0=P('tp')"], &Plan::default());
    insta::assert_snapshot!("not_a_number_text", c.text());
    let v = c.json();
    let d = &v["counterexample"]["outputs"][0];
    let row = d["index"][0].as_u64().unwrap() as usize;
    let column = d["index"][1].as_u64().unwrap() as usize;
    // sqrt(x)^2 is |x| but for negative x.
    let x = floats(&v["counterexample"]["inputs"][0]["values"])[2 * row + column];
    assert!(x < 0.0);
    assert_eq!(d["expected"].as_f64(), Some(-x));
    assert_eq!(d["actual"], "NaN");
    assert_eq!(d["device"], row);
    assert_eq!(d["local_index"], serde_json::json!([0, column]));
    assert_eq!(d["spec"], "P('tp')");
}

#[test]
fn precision() {
    let c = case("precision", &["x=P(None, 'tp')", "w=P('tp')"], &["#0=P()"], &Plan::default());
    let v = c.json();
    assert_eq!(v["verdict"], "unknown");
    assert_eq!(v["counterexample"], Value::Null);
    let p = &v["evidence"]["precision"];
    // A bf16 has 8 significant bits: relative errors near 2^-9, against those
    // of f32 near 2^-24.
    let relative = p["rms_error"].as_f64().unwrap() / p["rms"].as_f64().unwrap();
    assert!(relative > 1e-4 && relative < 1e-2, "{p}");
    assert!(p["baseline_rms_error"].as_f64().unwrap() < 1e-5 * p["rms"].as_f64().unwrap());
    let text = c.text();
    assert!(text.starts_with("UNKNOWN (precision)  dist.hlo vs base.hlo on mesh tp=4\n"), "{text}");
    assert!(text.contains("Same values over the reals on all 8 inputs tried"), "{text}");
}

#[test]
fn not_evaluated() {
    let c = case("random", &["x=P('tp')"], &["#0=P('tp')"], &Plan::default());
    insta::assert_snapshot!("not_evaluated_text", c.text());
    let v = c.json();
    assert_eq!(v["verdict"], "unknown");
    assert!(v["not_evaluated"].as_str().unwrap().contains("noise"), "{v}");
}

#[test]
fn cross_checked() {
    let right = |cross_check| {
        let plan = Plan { cross_check, ..Plan::default() };
        let mut c = case("nan", &["x=P('tp')"], &["#0=P('tp')"], &Plan::default());
        let claim = Claim::default();
        c.dist = c.base.clone();
        c.problem = problem::setup(&c.base, &c.dist, &claim);
        c.decision = decide(&c.base, &c.dist, &claim, &Default::default(), &plan);
        (c.text(), c.json())
    };
    let (text, v) = right(true);
    assert!(text.contains("Evaluation agrees on all 8 inputs tried"), "{text}");
    assert_eq!(v["evidence"]["samples"], 8);
    assert_eq!(v["evidence"]["worst"], 0.0);
    let (text, v) = right(false);
    assert!(!text.contains("valuat"), "{text}");
    assert_eq!(v["evidence"], Value::Null);
}

#[test]
fn the_saved_witness_is_named() {
    let c = missing_all_reduce();
    assert!(c.text().contains("`--witness DIR` saves"));
    let s = Subject { witness: Some("out/w"), ..c.subject() };
    let t = text::render(&s, &mut TextOptions::default());
    assert!(t.contains("scalify replay out/w") && t.contains("python out/w/replay.py"), "{t}");
    assert!(!t.contains("--witness"));
}
