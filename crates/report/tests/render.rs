//! Snapshots of reports of hand-made outcomes. The programs are a two-layer
//! MLP and its tensor-parallel body without the final all-reduce.

use scalify_ir::{DType, InstrId, Module};
use scalify_prove::outcome::*;
use scalify_prove::problem::Problem;
use scalify_refute::Decision;
use scalify_report::sources::Sources;
use scalify_report::text::TextOptions;
use scalify_report::{Subject, json, text};
use std::path::PathBuf;

struct Pair {
    base: Module,
    dist: Module,
}

fn pair() -> Pair {
    let read = |t: &str| scalify_hlo::parse(t).unwrap();
    Pair { base: read(include_str!("data/base.hlo")), dist: read(include_str!("data/dist.hlo")) }
}

fn id(m: &Module, name: &str) -> InstrId {
    let hit = (0..m.instrs.len()).find(|i| m.name_of(InstrId(*i as u32)) == name);
    InstrId(hit.unwrap() as u32)
}

fn frames(m: &Module, name: &str) -> Vec<Frame> {
    m.frames(id(m, name))
        .into_iter()
        .map(|f| Frame {
            file: f.file.into(),
            function: f.function.into(),
            line: f.line,
            column: f.column,
            end_column: f.end_column,
        })
        .collect()
}

fn sharded(p: &Pair, base: &str, dim: usize, text: &str) -> Relation {
    let mut dims = vec![DimRelation::Replicated; 2];
    dims[dim] = DimRelation::Sharded(vec!["tp".into()]);
    let base = id(&p.base, base);
    Relation { base, dims, partial: vec![], bijection: vec![], text: text.into() }
}

fn replicated(p: &Pair) -> Relation {
    Relation {
        base: id(&p.base, "dot.2"),
        dims: vec![DimRelation::Replicated; 2],
        partial: vec![],
        bijection: vec![],
        text: String::new(),
    }
}

fn outcome(verdict: Verdict, grade: Option<Grade>) -> Outcome {
    Outcome {
        verdict,
        grade,
        assumptions: vec![],
        regrouped: vec![],
        outputs: vec![],
        frontier: vec![],
        mesh: vec![("tp".into(), 4)],
        notes: vec![
            "mesh and input shardings taken from the annotations of the distributed program".into(),
        ],
        exhausted: None,
        stats: Stats {
            base_instructions: 8,
            dist_instructions: 9,
            classes: 17,
            frontier_events: 0,
            seconds: 0.0125,
            devices: 4,
            parts: 0,
            lemmas: 0,
        },
    }
}

fn proved(p: &Pair) -> Outcome {
    let mut o = outcome(Verdict::Proved, Some(Grade::UnderAssumptions));
    let steps = vec![
        LayoutStep::Reshape(vec![2, 4, 16]),
        LayoutStep::Transpose(vec![1, 0, 2]),
        LayoutStep::Reshape(vec![8, 16]),
    ];
    let relation = Relation { bijection: steps, ..replicated(p) };
    o.outputs.push(OutputResult {
        index: 0,
        name: "y".into(),
        base: id(&p.base, "dot.2"),
        dist: id(&p.dist, "dot.5"),
        verdict: Verdict::Proved,
        relation: Some(relation),
        reason: None,
    });
    o.assumptions.push(Assumption {
        kind: AssumptionKind::Finite,
        text: "x is finite".into(),
        at: Some((Side::Dist, id(&p.dist, "dot.5"))),
    });
    o.assumptions.push(Assumption {
        kind: AssumptionKind::IntRange,
        text: "tokens in [0, 31999]".into(),
        at: None,
    });
    o.regrouped.push(Regrouped {
        instr: id(&p.dist, "dot.5"),
        dtype: DType::F32,
        text: "sum of 32 taken as 4 sums of 8".into(),
    });
    o
}

fn unknown(p: &Pair) -> Outcome {
    let mut o = outcome(Verdict::Unknown, None);
    let base_id = id(&p.base, "dot.2");
    o.outputs.push(OutputResult {
        index: 0,
        name: "y".into(),
        base: base_id,
        dist: id(&p.dist, "dot.5"),
        verdict: Verdict::Unknown,
        relation: None,
        reason: Some("partial add over tp where the baseline value is whole".into()),
    });
    o.frontier.push(FrontierItem {
        instr: id(&p.dist, "dot.5"),
        code: "missing-all-reduce",
        reason: "partial sums over `tp` are used as if they were complete".into(),
        expected: Some("an all-reduce (add) over tp".into()),
        frames: frames(&p.dist, "dot.5"),
        operands: vec![
            (
                id(&p.dist, "max.7"),
                Some(sharded(p, "max.1", 1, "f32[8,8] = max.1 sharded dim 1 over tp")),
            ),
            (id(&p.dist, "w2"), None),
        ],
        counterpart: Some(base_id),
        reaches: vec![0],
    });
    o.frontier.push(FrontierItem {
        instr: id(&p.dist, "max.7"),
        code: "unrelated",
        reason: "no baseline value found".into(),
        expected: None,
        frames: vec![],
        operands: vec![],
        counterpart: None,
        reaches: vec![0],
    });
    o.exhausted = Some("time");
    o
}

/// Renders a report of an outcome without evaluation.
fn report<T>(p: &Pair, o: &Outcome, f: impl FnOnce(&Subject<'_>) -> T) -> T {
    let decision = Decision::of(o.clone());
    let (base, dist) = (&p.base, &p.dist);
    f(&Subject {
        decision: &decision,
        problem: &Problem::default(),
        base,
        dist,
        base_file: "base.hlo",
        dist_file: "dist.hlo",
        seed: 1,
        witness: None,
    })
}

fn plain(p: &Pair, o: &Outcome, root: Option<&str>) -> String {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let sources = Sources::new(root.map(|r| dir.join(r)).into_iter().collect());
    report(p, o, |s| text::render(s, &mut TextOptions { sources, ..TextOptions::default() }))
}

#[test]
fn proved_text() {
    let p = pair();
    insta::assert_snapshot!(plain(&p, &proved(&p), None));
}

#[test]
fn unknown_text_with_source() {
    let p = pair();
    insta::assert_snapshot!(plain(&p, &unknown(&p), Some("data")));
}

#[test]
fn unknown_text_without_source() {
    let p = pair();
    insta::assert_snapshot!(plain(&p, &unknown(&p), None));
}

#[test]
fn refuted_quiet_text() {
    let p = pair();
    let mut o = unknown(&p);
    o.verdict = Verdict::Refuted;
    o.exhausted = None;
    let mut options = TextOptions { quiet: true, ..TextOptions::default() };
    insta::assert_snapshot!(report(&p, &o, |s| text::render(s, &mut options)));
}

#[test]
fn many_outputs_collapse_by_layout() {
    let p = pair();
    let mut o = proved(&p);
    let one = o.outputs[0].clone();
    o.outputs.clear();
    for index in 0..253 {
        let mut r = OutputResult { index, name: format!("cache[{index}]"), ..one.clone() };
        if index % 2 == 1 {
            r.relation = Some(sharded(&p, "dot.2", 1, ""));
        }
        if index == 7 {
            r.verdict = Verdict::Unknown;
            r.relation = None;
            r.reason = Some("not related".into());
        }
        o.outputs.push(r);
    }
    o.verdict = Verdict::Unknown;
    o.grade = None;
    insta::assert_snapshot!(plain(&p, &o, None));
    let mut options = TextOptions { all: true, ..TextOptions::default() };
    let all = report(&p, &o, |s| text::render(s, &mut options));
    assert_eq!(all.matches(" cache[").count(), 253);
}

#[test]
fn colours_only_on_request_and_control_characters_are_escaped() {
    let p = pair();
    let mut o = unknown(&p);
    o.outputs[0].name = "y\x1b[31m\u{7}".into();
    o.notes.push("a\rb".into());
    o.frontier[0].reason = "evil \x1b[2J".into();
    let t = plain(&p, &o, None);
    assert!(!t.contains('\x1b') && !t.contains('\r') && !t.contains('\u{7}'), "{t:?}");
    assert!(t.contains(r"y\u{1b}[31m"));
    let mut options = TextOptions { color: true, ..TextOptions::default() };
    let t = report(&p, &o, |s| text::render(s, &mut options));
    assert!(t.contains("\x1b[1;33mUNKNOWN\x1b[0m"));
    assert!(!t.contains("\x1b[2J"));
}

#[test]
fn ids_of_another_module_do_not_panic() {
    let p = pair();
    let mut o = unknown(&p);
    o.frontier[0].instr = InstrId(9999);
    o.frontier[0].operands[0].0 = InstrId(u32::MAX);
    o.outputs[0].dist = InstrId(77777);
    assert!(plain(&p, &o, None).contains("? ?"));
    assert!(report(&p, &o, json::render).unwrap().contains("\"instruction\": \"?\""));
}

#[test]
fn json_proved() {
    let p = pair();
    insta::assert_snapshot!(report(&p, &proved(&p), json::render).unwrap());
}

#[test]
fn json_unknown() {
    let p = pair();
    insta::assert_snapshot!(report(&p, &unknown(&p), json::render).unwrap());
}

mod schema;

#[test]
fn json_fits_the_schema() {
    let p = pair();
    let schema = include_str!("../../../docs/schema/report-v1.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let mut partial = unknown(&p);
    partial.frontier[0].operands[1].1 = Some(Relation {
        dims: vec![DimRelation::Other("halo of 1".into()), DimRelation::Replicated],
        partial: vec![("tp".into(), "add")],
        ..replicated(&p)
    });
    for o in [proved(&p), unknown(&p), partial] {
        let text = report(&p, &o, json::render).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(schema::errors(&schema, &value), Vec::<String>::new());
    }
    // The checker itself must be able to fail.
    let bad = serde_json::json!({"schema_version": 1, "verdict": "maybe"});
    assert!(schema::errors(&schema, &bad).len() > 5);
}
