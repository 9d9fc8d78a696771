//! The counterexample, evidence and repairs in JSON.

use super::{Frame, source};
use crate::{Subject, names, values};
use scalify_claim::{Mesh, Placement};
use scalify_interp::Tensor;
use scalify_refute as r;
use serde::{Serialize, Serializer};

/// Inputs up to this many numbers are written whole.
const MAX_VALUES: usize = 4096;

/// A number that may be one that JSON does not have: those are the strings
/// `NaN`, `Infinity` and `-Infinity`.
#[derive(Clone, Copy)]
pub(super) struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_finite() => s.serialize_f64(x),
            x if x.is_nan() => s.serialize_str("NaN"),
            x if x > 0.0 => s.serialize_str("Infinity"),
            _ => s.serialize_str("-Infinity"),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Counterexample<'a> {
    reduced: bool,
    seed: u64,
    draw: &'static str,
    inputs: Vec<Input<'a>>,
    layouts: Vec<Layout<'a>>,
    outputs: Vec<Difference<'a>>,
}

#[derive(Serialize)]
struct Input<'a> {
    index: usize,
    name: &'a str,
    shape: String,
    /// Row-major; null if there are too many.
    values: Option<Values>,
    min: Option<Number>,
    max: Option<Number>,
    mean: Number,
    nan: usize,
    infinite: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Values {
    Int(Vec<i64>),
    Float(Vec<Number>),
}

#[derive(Serialize)]
struct Layout<'a> {
    input: usize,
    name: &'a str,
    base: Option<usize>,
    spec: Option<String>,
    tiles: Vec<u32>,
    inferred: bool,
}

#[derive(Serialize)]
struct Difference<'a> {
    output: usize,
    name: &'a str,
    dtype: Option<String>,
    device: u32,
    devices: &'a [u32],
    index: &'a [i64],
    local_index: &'a [i64],
    expected: Number,
    actual: Number,
    own_expected: Number,
    own_actual: Number,
    bound: Number,
    differing: usize,
    compared: usize,
    spec: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Evidence {
    samples: usize,
    worst: Number,
    precision: Option<Precision>,
}

#[derive(Serialize)]
struct Precision {
    output: usize,
    rms_error: Number,
    baseline_rms_error: Number,
    rms: Number,
}

#[derive(Serialize)]
pub(super) struct Repair<'a> {
    code: &'static str,
    instruction: &'a str,
    source: Option<Frame>,
    text: &'a str,
    sentence: String,
    grade: Option<&'static str>,
}

fn values_of(t: &Tensor) -> Option<Values> {
    if t.len() > MAX_VALUES {
        return None;
    }
    Some(match t.to_i64() {
        Some(v) => Values::Int(v),
        None => Values::Float(r::compare::numbers(t).into_iter().map(Number).collect()),
    })
}

fn input<'a>(c: &'a r::Counterexample, index: usize, v: &[Tensor]) -> Option<Input<'a>> {
    let t = v.first()?;
    let s = values::summary(t);
    Some(Input {
        index,
        name: c.names.get(index).map_or("", String::as_str),
        shape: scalify_ir::ArrayShape::new(t.dtype, t.dims.iter().copied()).to_string(),
        values: if v.len() == 1 { values_of(t) } else { None },
        min: s.range.map(|r| Number(r.0)),
        max: s.range.map(|r| Number(r.1)),
        mean: Number(s.mean),
        nan: s.nan,
        infinite: s.inf,
    })
}

pub(super) fn counterexample<'a>(s: &Subject<'a>) -> Option<Counterexample<'a>> {
    let c = s.decision.counterexample.as_deref()?;
    let mesh = Mesh::new(s.decision.outcome.mesh.clone()).ok();
    let spec = |q: &Placement| Some(q.to_spec(mesh.as_ref()?)?.to_string());
    let layouts = s.problem.pairs.iter().enumerate().map(|(k, pair)| {
        let q = c.placements.get(k).and_then(Option::as_ref);
        Layout {
            input: pair.dist,
            name: s.problem.dist_inputs.get(pair.dist).map_or("", |l| l.name()),
            base: pair.base,
            spec: q.and_then(spec),
            tiles: q.map_or(Vec::new(), |q| q.dims.iter().map(|d| d.tiles).collect()),
            inferred: pair.inferred,
        }
    });
    let outputs = c.outputs.iter().map(|d| Difference {
        output: d.output,
        name: s
            .decision
            .outcome
            .outputs
            .iter()
            .find(|o| o.index == d.output)
            .map_or("", |o| o.name.as_str()),
        dtype: crate::output_type(
            s.decision.reduced.as_ref().map_or(s.base, |r| &r.base),
            d.output,
        )
        .map(|t| t.to_string()),
        device: d.device,
        devices: &d.devices,
        index: &d.index,
        local_index: &d.local,
        expected: Number(d.expected),
        actual: Number(d.actual),
        own_expected: Number(d.plain.0),
        own_actual: Number(d.plain.1),
        bound: Number(d.bound),
        differing: d.count.0,
        compared: d.count.1,
        spec: d.placement.as_ref().and_then(spec),
    });
    let inputs = c.inputs.values.iter().enumerate();
    Some(Counterexample {
        reduced: s.decision.reduced.as_ref().is_some_and(|r| r.smaller),
        seed: s.seed,
        draw: crate::draw(c),
        inputs: inputs.filter_map(|(k, v)| input(c, k, v)).collect(),
        layouts: layouts.collect(),
        outputs: outputs.collect(),
    })
}

pub(super) fn evidence(s: &Subject<'_>) -> Option<Evidence> {
    let e = s.decision.evidence.as_ref()?;
    Some(Evidence {
        samples: e.samples,
        worst: Number(e.worst),
        precision: e.precision.as_ref().map(|p| Precision {
            output: p.output,
            rms_error: Number(p.dist),
            baseline_rms_error: Number(p.base),
            rms: Number(p.scale),
        }),
    })
}

pub(super) fn repairs<'a>(s: &Subject<'a>) -> Vec<Repair<'a>> {
    let one = |x: &'a r::Repair| Repair {
        code: x.code,
        instruction: names::name(s.dist, x.at),
        source: source(s.dist, x.at),
        text: &x.text,
        sentence: crate::repair_sentence(s, x),
        grade: x.grade.map(names::grade),
    };
    s.decision.repairs.iter().map(one).collect()
}

/// Code of the kind of fault: of the first frontier item, to which repairs
/// were promoted, else of the likeliest repair; null if unknown.
pub(super) fn kind(s: &Subject<'_>) -> Option<&'static str> {
    let repair = s.decision.repairs.first().map(|r| r.code);
    let item = s.decision.outcome.frontier.first().map(|f| f.code);
    item.filter(|c| *c != "unrelated").or(repair).filter(|c| *c != "unrelated")
}
