//! The JSON report. Its fields are described in `docs/JSON.md` and
//! `docs/schema/report-v1.schema.json`; a change that can break a reader
//! raises [`SCHEMA_VERSION`], a new field [`SCHEMA_MINOR`].

mod example;

use crate::Subject;
use crate::names;
use scalify_ir::{InstrId, Module};
use scalify_prove::outcome::{self as o, DimRelation, Side};
use serde::Serialize;

/// Version of the schema.
pub const SCHEMA_VERSION: u32 = 1;
/// Raised when fields are added; begins at 0 with each version.
pub const SCHEMA_MINOR: u32 = 2;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    schema_minor: u32,
    tool: Tool,
    verdict: &'static str,
    grade: Option<&'static str>,
    kind: Option<&'static str>,
    base: Program<'a>,
    dist: Program<'a>,
    mesh: Vec<Axis<'a>>,
    assumptions: Vec<Assumption<'a>>,
    regrouped: Vec<Regrouped<'a>>,
    outputs: Vec<Output<'a>>,
    frontier: Vec<Item<'a>>,
    counterexample: Option<example::Counterexample<'a>>,
    repairs: Vec<example::Repair<'a>>,
    evidence: Option<example::Evidence>,
    not_evaluated: Option<&'a str>,
    witness: Option<&'a str>,
    relations: Option<Vec<Related<'a>>>,
    notes: &'a [String],
    exhausted: Option<&'static str>,
    stats: Stats,
}

#[derive(Serialize)]
struct Tool {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Program<'a> {
    file: &'a str,
    module: &'a str,
}

#[derive(Serialize)]
struct Axis<'a> {
    axis: &'a str,
    size: i64,
}

#[derive(Serialize)]
struct Frame {
    file: String,
    line: Option<u32>,
    column: Option<u32>,
    end_column: Option<u32>,
    function: Option<String>,
}

#[derive(Serialize)]
struct Assumption<'a> {
    kind: &'static str,
    text: &'a str,
    program: Option<&'static str>,
    instruction: Option<&'a str>,
    source: Option<Frame>,
}

#[derive(Serialize)]
struct Regrouped<'a> {
    instruction: &'a str,
    dtype: String,
    text: &'a str,
    source: Option<Frame>,
}

#[derive(Serialize)]
struct Relation<'a> {
    base: &'a str,
    base_shape: String,
    dims: Vec<Dim<'a>>,
    partial: Vec<Partial<'a>>,
    layout: Vec<Step<'a>>,
    text: String,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Dim<'a> {
    Replicated,
    Sharded { axes: &'a [String] },
    Other { text: &'a str },
}

#[derive(Serialize)]
struct Partial<'a> {
    axis: &'a str,
    monoid: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Step<'a> {
    Reshape(&'a [i64]),
    Transpose(&'a [usize]),
}

#[derive(Serialize)]
struct Output<'a> {
    index: usize,
    name: &'a str,
    verdict: &'static str,
    base: &'a str,
    dist: &'a str,
    shape: String,
    relation: Option<Relation<'a>>,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Item<'a> {
    rank: usize,
    instruction: &'a str,
    opcode: &'static str,
    shape: String,
    code: &'static str,
    reason: &'a str,
    expected: Option<&'a str>,
    source: Option<Frame>,
    frames: Vec<Frame>,
    operands: Vec<Operand<'a>>,
    counterpart: Option<Counterpart<'a>>,
    reaches: &'a [usize],
}

#[derive(Serialize)]
struct Operand<'a> {
    instruction: &'a str,
    opcode: &'static str,
    shape: String,
    relation: Option<Relation<'a>>,
}

#[derive(Serialize)]
struct Related<'a> {
    instruction: &'a str,
    standing: &'static str,
    to: Vec<Relation<'a>>,
}

#[derive(Serialize)]
struct Counterpart<'a> {
    instruction: &'a str,
    opcode: &'static str,
    shape: String,
    source: Option<Frame>,
}

#[derive(Serialize)]
struct Stats {
    base_instructions: usize,
    dist_instructions: usize,
    classes: usize,
    frontier_events: usize,
    seconds: f64,
    devices: u32,
    parts: usize,
    lemmas: usize,
}

fn frame(f: &o::Frame) -> Frame {
    let some = |v: u32| (v != 0).then_some(v);
    Frame {
        file: f.file.clone(),
        line: some(f.line),
        // Columns count from 0: a 0 is known only by an end after it.
        column: (f.column != 0 || f.end_column != 0).then_some(f.column),
        end_column: some(f.end_column),
        function: (!f.function.is_empty()).then(|| f.function.clone()),
    }
}

fn source(m: &Module, id: InstrId) -> Option<Frame> {
    names::frames(m, id).first().map(frame)
}

fn relation<'a>(base: &'a Module, r: &'a o::Relation) -> Relation<'a> {
    Relation {
        base: names::name(base, r.base),
        base_shape: names::shape(base, r.base),
        dims: r
            .dims
            .iter()
            .map(|d| match d {
                DimRelation::Replicated => Dim::Replicated,
                DimRelation::Sharded(axes) => Dim::Sharded { axes },
                DimRelation::Other(text) => Dim::Other { text },
            })
            .collect(),
        partial: r.partial.iter().map(|p| Partial { axis: &p.0, monoid: p.1 }).collect(),
        layout: r
            .bijection
            .iter()
            .map(|s| match s {
                o::LayoutStep::Reshape(d) => Step::Reshape(d),
                o::LayoutStep::Transpose(p) => Step::Transpose(p),
            })
            .collect(),
        text: if r.text.is_empty() { names::layout(r) } else { r.text.clone() },
    }
}

fn item<'a>(s: &Subject<'a>, rank: usize, f: &'a o::FrontierItem) -> Item<'a> {
    Item {
        rank: rank + 1,
        instruction: names::name(s.dist, f.instr),
        opcode: names::opcode(s.dist, f.instr),
        shape: names::shape(s.dist, f.instr),
        code: f.code,
        reason: &f.reason,
        expected: f.expected.as_deref(),
        source: f.frames.first().map(frame),
        frames: f.frames.iter().map(frame).collect(),
        operands: f
            .operands
            .iter()
            .map(|(id, r)| Operand {
                instruction: names::name(s.dist, *id),
                opcode: names::opcode(s.dist, *id),
                shape: names::shape(s.dist, *id),
                relation: r.as_ref().map(|r| relation(s.base, r)),
            })
            .collect(),
        counterpart: f.counterpart.map(|id| Counterpart {
            instruction: names::name(s.base, id),
            opcode: names::opcode(s.base, id),
            shape: names::shape(s.base, id),
            source: source(s.base, id),
        }),
        reaches: &f.reaches,
    }
}

/// The report as pretty-printed JSON with a final newline.
///
/// # Errors
/// None in practice; an error of the JSON writer is passed on.
pub fn render(s: &Subject<'_>) -> Result<String, serde_json::Error> {
    render_with(s, None)
}

/// [`render`] with how every distributed instruction stands to the baseline.
///
/// # Errors
/// As [`render`].
pub fn render_with(
    s: &Subject<'_>,
    relations: Option<&[o::Related]>,
) -> Result<String, serde_json::Error> {
    let out = &s.decision.outcome;
    let module = |m: Side| if m == Side::Base { s.base } else { s.dist };
    let report = Report {
        schema_version: SCHEMA_VERSION,
        schema_minor: SCHEMA_MINOR,
        tool: Tool { name: "scalify", version: env!("CARGO_PKG_VERSION") },
        verdict: names::verdict(out.verdict),
        grade: out.grade.map(names::grade),
        kind: example::kind(s),
        base: Program { file: s.base_file, module: s.base.str(s.base.name) },
        dist: Program { file: s.dist_file, module: s.dist.str(s.dist.name) },
        mesh: out.mesh.iter().map(|(axis, size)| Axis { axis, size: *size }).collect(),
        assumptions: out
            .assumptions
            .iter()
            .map(|a| Assumption {
                kind: names::assumption(a.kind),
                text: &a.text,
                program: a.at.map(|at| names::side(at.0)),
                instruction: a.at.map(|at| names::name(module(at.0), at.1)),
                source: a.at.and_then(|at| source(module(at.0), at.1)),
            })
            .collect(),
        regrouped: out
            .regrouped
            .iter()
            .map(|r| Regrouped {
                instruction: names::name(s.dist, r.instr),
                dtype: r.dtype.to_string(),
                text: &r.text,
                source: source(s.dist, r.instr),
            })
            .collect(),
        outputs: out
            .outputs
            .iter()
            .map(|r| Output {
                index: r.index,
                name: &r.name,
                verdict: names::verdict(r.verdict),
                base: names::name(s.base, r.base),
                dist: names::name(s.dist, r.dist),
                shape: names::shape(s.dist, r.dist),
                relation: r.relation.as_ref().map(|r| relation(s.base, r)),
                reason: r.reason.as_deref(),
            })
            .collect(),
        frontier: out.frontier.iter().enumerate().map(|(i, f)| item(s, i, f)).collect(),
        counterexample: example::counterexample(s),
        repairs: example::repairs(s),
        evidence: example::evidence(s),
        not_evaluated: s.decision.unable.as_deref(),
        witness: s.witness,
        relations: relations.map(|all| {
            all.iter()
                .map(|r| Related {
                    instruction: names::name(s.dist, r.dist),
                    standing: match r.standing {
                        o::Standing::Related => "related",
                        o::Standing::Free => "free",
                        o::Standing::Unrelated => "unrelated",
                    },
                    to: r.to.iter().map(|t| relation(s.base, t)).collect(),
                })
                .collect()
        }),
        notes: &out.notes,
        exhausted: out.exhausted,
        stats: Stats {
            base_instructions: out.stats.base_instructions,
            dist_instructions: out.stats.dist_instructions,
            classes: out.stats.classes,
            frontier_events: out.stats.frontier_events,
            seconds: out.stats.seconds,
            devices: out.stats.devices,
            parts: out.stats.parts,
            lemmas: out.stats.lemmas,
        },
    };
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    Ok(text)
}
