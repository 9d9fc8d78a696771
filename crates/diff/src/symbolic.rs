//! Gradients against derivatives that are worked out in the IR.
//!
//! [`plan`] differentiates the loss (`scalify-grad`) and finds out, on two draws
//! of the inputs, what each output is: a gradient, a parameter after a step, a
//! result of AdamW, or what the program itself makes of gradients that it holds.
//! From that it makes a *reference*: a module whose outputs are computed from
//! the derivatives. [`Plan::prove`] proves the given outputs equal to it, and
//! [`Plan::compare`] evaluates both.

use crate::diff::{DiffError, number};
use crate::gradcheck::Pairing;
use scalify_claim::{Claim, Selector};
use scalify_grad::{Adam, AdamPart, Output, Ties};
use scalify_interp::{Accumulate, RunOptions, Tensor, Value, run};
use scalify_ir::{Attrs, InstrId, Instruction, LiteralData, Module, Opcode, Shape, ShardingKind};
use scalify_prove::outcome::{Grade, Verdict};
use scalify_prove::problem::{Problem, output_shapes};
use scalify_refute::evaluate::{self, Inputs, RunLimits};
use serde::{Serialize, Serializer};
use std::time::{Duration, Instant};

/// How optimizers move parameters, where it is declared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// `p - rate g`.
    Sgd(f64),
    /// AdamW.
    Adam(Adam),
}

/// What an output is taken to be.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The gradient of its input.
    Gradient,
    /// The input after a step of this size along the gradient.
    Step(f64),
    /// A result of AdamW as declared.
    Adam(&'static str),
    /// What the program makes of the gradients in these instructions of its
    /// entry. How it does so is not judged, only compared between programs.
    Own(Vec<String>),
}

/// An output and the input whose gradient it is about.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Name of the input.
    pub name: String,
    /// Input leaf.
    pub input: usize,
    /// Output leaf of the given program.
    pub output: usize,
    /// What it is.
    pub what: What,
}

/// A reference and what it is compared with.
#[derive(Debug)]
pub struct Plan {
    /// Outputs that can be checked.
    pub targets: Vec<Target>,
    /// Outputs that cannot, and why.
    pub open: Vec<(usize, String)>,
    /// The derivatives alone: `(loss, gradients of wrt..)`.
    pub derivative: Module,
    /// Inputs differentiated by.
    pub wrt: Vec<usize>,
    outputs: Vec<Output>,
    /// What else a target may be, if it is not proved as it is.
    other: Vec<Option<What>>,
    replaced: Vec<(InstrId, usize)>,
    /// Maxima that are taken to be constant: what comes back through them
    /// cancels, on both draws.
    constants: Vec<InstrId>,
    loss: usize,
}

/// What is known of one target.
#[derive(Clone, Debug, Serialize)]
pub struct Proof {
    /// Name of the input.
    pub name: String,
    /// Input leaf.
    pub input: usize,
    /// Output leaf.
    pub output: usize,
    /// What the output is taken to be.
    pub what: What,
    /// The answer.
    #[serde(serialize_with = "verdict")]
    pub verdict: Verdict,
    /// Strength of a proof.
    #[serde(serialize_with = "grade")]
    pub grade: Option<Grade>,
    /// Why there is none; where a refutation differs.
    pub reason: Option<String>,
    /// What a proof rests on, in sentences.
    pub assumptions: Vec<String>,
    /// Maxima through which no derivative passes, because it cancels on all
    /// inputs tried; empty if that is proved too.
    pub cancels: Vec<String>,
}

fn verdict<S: Serializer>(v: &Verdict, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(match v {
        Verdict::Proved => "proved",
        Verdict::Refuted => "refuted",
        Verdict::Unknown => "unknown",
    })
}

fn grade<S: Serializer>(g: &Option<Grade>, s: S) -> Result<S::Ok, S::Error> {
    match g {
        None => s.serialize_none(),
        Some(Grade::Exact) => s.serialize_str("exact"),
        Some(Grade::Reassociated) => s.serialize_str("reassociated"),
        Some(Grade::UnderAssumptions) => s.serialize_str("under assumptions"),
    }
}

/// A target evaluated.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Position among the targets.
    pub target: usize,
    /// Largest difference from the reference over the reference's largest
    /// change (element of the gradient, the step, ..).
    #[serde(serialize_with = "number")]
    pub off: f64,
}

/// Differences above this are wrong, in `f64`, relative to the largest element.
pub const WRONG: f64 = 1e-4;
/// Differences below this are rounding of constants.
const SAME: f64 = 2e-6;

fn bad(e: impl ToString) -> DiffError {
    DiffError::Problem(e.to_string())
}

/// Largest difference over the largest element; infinite if sizes differ.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() || a.is_empty() {
        return f64::INFINITY;
    }
    let scale = b.iter().fold(0.0f64, |s, v| s.max(v.abs()));
    let off = a.iter().zip(b).fold(0.0f64, |s, (a, b)| {
        let d = (a - b).abs();
        if d.is_nan() { f64::INFINITY } else { s.max(d) }
    });
    if off == 0.0 { 0.0 } else { off / scale }
}

/// The size of the step `x - y` along `g`, if it is one.
fn step(x: &[f64], y: &[f64], g: &[f64]) -> Option<f64> {
    if x.len() != y.len() || x.len() != g.len() {
        return None;
    }
    let d: Vec<f64> = x.iter().zip(y).map(|(x, y)| x - y).collect();
    let gg: f64 = g.iter().map(|g| g * g).sum();
    let s = d.iter().zip(g).map(|(d, g)| d * g).sum::<f64>() / gg;
    let fit: Vec<f64> = g.iter().map(|g| s * g).collect();
    (s.is_finite() && s > 0.0 && distance(&d, &fit) < SAME).then_some(s)
}

fn values(v: &[Tensor]) -> Vec<Vec<f64>> {
    v.iter().map(Tensor::to_f64).collect()
}

/// Inputs on which the outputs are finite, if it is enough to take absolute
/// values of those that the loss does not depend on (second moments).
///
/// # Errors
/// Programs that cannot be run.
pub fn steady(
    m: &Module,
    p: &Problem,
    x: &Inputs,
    loss: usize,
    limits: RunLimits,
) -> Result<Inputs, DiffError> {
    let finite = |x: &Inputs| -> Result<bool, DiffError> {
        Ok(evaluated(m, p, x, limits)?.iter().flatten().all(|v| v.is_finite()))
    };
    let root = entry_outputs(m).and_then(|r| r.get(loss).copied());
    let Some(root) = root.filter(|_| !p.base_spmd) else { return Ok(x.clone()) };
    if finite(x)? {
        return Ok(x.clone());
    }
    let used = |k: usize| {
        let at = p.dist_inputs.get(k).and_then(|l| m.entry_comp().params.get(l.param));
        at.is_none_or(|&q| !reached(m, &[(q, 0)], root).is_empty())
    };
    let mut y = x.clone();
    for (_, v) in y.values.iter_mut().enumerate().filter(|v| !used(v.0)) {
        for t in v.iter_mut().filter(|t| t.dtype.is_float()) {
            let new = t.to_f64().iter().map(|v| v.abs()).collect();
            if let Some(n) = Tensor::from_vec(t.dtype, t.dims.iter().copied(), new) {
                *t = n;
            }
        }
    }
    Ok(if finite(&y)? { y } else { x.clone() })
}

/// Evaluates a program on whole arrays, in `f64`, on device 0.
fn evaluated(
    m: &Module,
    p: &Problem,
    x: &Inputs,
    limits: RunLimits,
) -> Result<Vec<Vec<f64>>, DiffError> {
    let none = vec![None; p.dist_inputs.len()];
    let r = evaluate::dist(m, p, &none, x, Accumulate::F64, limits)
        .map_err(|e| DiffError::Run("given", e.into()))?;
    Ok(values(r.first().map(Vec::as_slice).unwrap_or_default()))
}

/// Options of [`plan`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Declared optimizer.
    pub rule: Option<Rule>,
    /// Outputs are known to be gradients.
    pub gradients: bool,
    /// Limits of a run.
    pub limits: RunLimits,
    /// Of differentiation.
    pub derive: scalify_grad::Options,
}

/// Instructions of the entry that hold a gradient on both draws: (instruction,
/// position in `wrt`).
fn holders(
    m: &Module,
    p: &Problem,
    x: &[&Inputs; 2],
    wrt: &[usize],
    gradients: &[Vec<Vec<f64>>; 2],
    limits: RunLimits,
) -> Result<Vec<(InstrId, usize)>, DiffError> {
    let shapes: Vec<Option<&Shape>> =
        wrt.iter().map(|&i| p.dist_inputs.get(i).map(|l| &l.shape)).collect();
    let entry = m.entry_comp();
    let mut at = vec![false; m.instrs.len()];
    for &i in &entry.instrs {
        let op = m.instr(i).opcode;
        at[i.0 as usize] = !matches!(op, Opcode::Parameter | Opcode::Constant | Opcode::Broadcast);
    }
    let mut both: Vec<Vec<(InstrId, usize)>> = Vec::new();
    for (x, g) in x.iter().zip(gradients) {
        let args = evaluate::base_arguments(m, p, x).ok_or_else(|| bad("inputs do not fit"))?;
        let mut found = Vec::new();
        let mut see = |_: usize, i: InstrId, v: &Value| {
            let Value::Tensor(t) = v else { return };
            if at.get(i.0 as usize) != Some(&true) || !t.dtype.is_float() {
                return;
            }
            for (k, g) in g.iter().enumerate() {
                let zero = g.iter().all(|g| *g == 0.0);
                let fits = shapes[k].is_some_and(|s| s.same(m.shape(i)));
                if !zero && fits && distance(&t.to_f64(), g) < SAME {
                    found.push((i, k));
                }
            }
        };
        let o = RunOptions {
            memory_limit: limits.memory,
            time_limit: Some(limits.time),
            accumulate: Accumulate::F64,
            trace: Some(&mut see),
            ..RunOptions::default()
        };
        run(m, None, &args, o).map_err(|e| DiffError::Run("first", e.into()))?;
        both.push(found);
    }
    let second = both.pop().unwrap_or_default();
    let mut out = both.pop().unwrap_or_default();
    out.retain(|f| second.contains(f));
    Ok(out)
}

/// Whether an entry instruction depends on each of the replaced ones.
fn reached(m: &Module, replaced: &[(InstrId, usize)], from: InstrId) -> Vec<usize> {
    let mut seen = vec![false; m.instrs.len()];
    let mut todo = vec![from];
    let mut out = Vec::new();
    while let Some(i) = todo.pop() {
        if std::mem::replace(&mut seen[i.0 as usize], true) {
            continue;
        }
        let here: Vec<usize> = replaced.iter().filter(|r| r.0 == i).map(|r| r.1).collect();
        if here.is_empty() {
            todo.extend(&m.instr(i).operands);
        }
        out.extend(here);
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// A number written in the program that is this one, else the nearest `f32`.
fn written(m: &Module, s: f64) -> f64 {
    let near = m.instrs.iter().filter_map(|i| match &i.attrs {
        Attrs::Constant(l) if l.shape.dims().is_empty() => match &l.data {
            LiteralData::Dense(_) => Tensor::from_literal(l)?.to_f64().first().copied(),
            _ => None,
        },
        _ => None,
    });
    let near = near.filter(|c| (c - s).abs() <= SAME * s.abs());
    near.min_by(|a, b| (a - s).abs().total_cmp(&(b - s).abs())).unwrap_or(f64::from(s as f32))
}

/// Works out what the outputs of `g` are, given the loss of `m` (its output
/// `loss`) and inputs to try. `pairs` as by [`crate::gradcheck::pairing`].
///
/// # Errors
/// Programs that cannot be differentiated or run.
pub fn plan(
    m: &Module,
    p: &Problem,
    g: &Module,
    pg: &Problem,
    x: &[&Inputs; 2],
    loss: usize,
    pairs: &[Pairing],
    o: &Options,
) -> Result<Plan, DiffError> {
    let mut wrt: Vec<usize> = pairs.iter().flat_map(|p| p.1.iter().copied()).collect();
    wrt.sort_unstable();
    wrt.dedup();
    let derivative = scalify_grad::gradient(m, loss, &wrt, &o.derive).map_err(bad)?;
    let mut gradients: [Vec<Vec<f64>>; 2] = Default::default();
    let mut outs: [Vec<Vec<f64>>; 2] = Default::default();
    // What outputs are is read off the program that has the loss, if it has
    // the same outputs: the other one may be wrong.
    let shapes = |m: &Module| -> Vec<Vec<i64>> {
        output_shapes(m).iter().map(|s| s.dims().to_vec()).collect()
    };
    let own = shapes(m) == shapes(g);
    for k in 0..2 {
        gradients[k] = evaluated(&derivative, p, x[k], o.limits)?.split_off(1);
        outs[k] =
            if own { evaluated(m, p, x[k], o.limits)? } else { evaluated(g, pg, x[k], o.limits)? };
    }
    let constants = cancelling(m, p, x, loss, &wrt, &gradients, o)?;
    let at = |i: usize| wrt.iter().position(|&w| w == i);
    let input = |k: usize, i: usize| -> Vec<f64> {
        x[k].values.get(i).and_then(|v| v.first()).map(Tensor::to_f64).unwrap_or_default()
    };
    let none = Vec::new();
    let name = |i: usize| p.dist_inputs.get(i).map_or("", |l| l.name()).to_owned();
    let mut plan = Plan {
        targets: Vec::new(),
        open: Vec::new(),
        derivative,
        wrt: wrt.clone(),
        outputs: Vec::new(),
        other: Vec::new(),
        replaced: Vec::new(),
        constants,
        loss,
    };
    if let Some(Rule::Adam(by)) = &o.rule {
        adam(&mut plan, p, pairs, by, &gradients[0], &outs[0], &input)?;
        return Ok(plan);
    }
    // (output, input, role) that fit.
    let mut fits: Vec<Option<(usize, What)>> = Vec::new();
    let mut sizes = Vec::new();
    for (out, inputs) in pairs {
        let y = |k: usize| outs[k].get(*out).unwrap_or(&none);
        let mut fit = None;
        for &i in inputs {
            let Some(w) = at(i) else { continue };
            if gradients[0][w].iter().all(|g| *g == 0.0) {
                continue;
            }
            if (0..2).all(|k| distance(y(k), &gradients[k][w]) < SAME) {
                fit = Some((i, What::Gradient));
            } else {
                let s = |k: usize| step(&input(k, i), y(k), &gradients[k][w]);
                if let (Some(a), Some(b)) = (s(0), s(1)) {
                    // A size that depends on the inputs is the program's own.
                    if (a - b).abs() <= 1e3 * SAME * a {
                        sizes.push(a);
                        fit = Some((i, What::Step(a)));
                    }
                }
            }
            if fit.is_some() {
                break;
            }
        }
        fits.push(fit);
    }
    sizes.sort_by(f64::total_cmp);
    let rate = match o.rule {
        Some(Rule::Sgd(r)) => Some(r),
        _ => sizes.get(sizes.len() / 2).map(|&s| written(m, s)),
    };
    let steps = fits.iter().flatten().filter(|f| matches!(f.1, What::Step(_))).count();
    let most = fits.iter().flatten().count() - steps;
    let declared = matches!(o.rule, Some(Rule::Sgd(_)));
    let held = if own && !p.base_spmd && !o.gradients && !declared {
        holders(m, p, x, &wrt, &gradients, o.limits)?
    } else {
        Vec::new()
    };
    let roots = entry_outputs(m);
    for ((out, inputs), fit) in pairs.iter().zip(fits) {
        let first = inputs[0];
        let zero = |i: usize| at(i).is_none_or(|w| gradients[0][w].iter().all(|g| *g == 0.0));
        let mut other = None;
        if let Some((i, What::Step(_))) = &fit {
            let from = roots.as_ref().and_then(|r| r.get(*out));
            let used = from.map(|&r| reached(m, &held, r)).unwrap_or_default();
            other = at(*i).filter(|w| used.contains(w)).map(|w| What::Own(named(m, &held, w)));
        }
        let (i, what) = match (fit, rate) {
            (_, _) if o.gradients => (first, What::Gradient),
            (Some((i, What::Gradient)), _) if !declared => (i, What::Gradient),
            (Some((i, _)), Some(r)) => (i, What::Step(r)),
            (None, Some(r)) if declared && !zero(first) => (first, What::Step(r)),
            _ => {
                let from = roots.as_ref().and_then(|r| r.get(*out));
                let used = from.map(|&r| reached(m, &held, r)).unwrap_or_default();
                let mine = inputs.iter().find(|&&i| at(i).is_some_and(|w| used.contains(&w)));
                let about = mine.copied().or(used.first().map(|&w| wrt[w]));
                match about {
                    Some(i) => {
                        let w = at(i).unwrap_or(usize::MAX);
                        (i, What::Own(named(m, &held, w)))
                    }
                    // What most others are, this one is taken to be.
                    None if zero(first) => {
                        let e = "no gradient is in it".to_owned();
                        plan.open.push((*out, e));
                        continue;
                    }
                    None if steps > most => (first, What::Step(rate.unwrap_or(1.0))),
                    None if most > 0 || inputs.len() == 1 => (first, What::Gradient),
                    None => {
                        plan.open.push((*out, "it is neither a gradient nor a step".to_owned()));
                        continue;
                    }
                }
            }
        };
        let Some(k) = at(i) else { continue };
        plan.outputs.push(match &what {
            What::Step(rate) => Output::Step { k, rate: *rate },
            What::Own(_) => Output::Own(*out),
            _ => Output::Gradient(k),
        });
        plan.targets.push(Target { name: name(i), input: i, output: *out, what });
        plan.other.push(other);
    }
    plan.replaced = held;
    Ok(plan)
}

/// Maxima over dimensions whose derivative cancels, as in a softmax: without it
/// the gradients are the same on both draws.
fn cancelling(
    m: &Module,
    p: &Problem,
    x: &[&Inputs; 2],
    loss: usize,
    wrt: &[usize],
    gradients: &[Vec<Vec<f64>>; 2],
    o: &Options,
) -> Result<Vec<InstrId>, DiffError> {
    let is_max = |i: &Instruction| {
        let root = i.calls.first().map(|&c| m.instr(m.comp(c).root).opcode);
        i.opcode == Opcode::Reduce && root == Some(Opcode::Maximum)
    };
    let all: Vec<InstrId> = (0..m.instrs.len() as u32)
        .map(InstrId)
        .filter(|&i| is_max(m.instr(i)) && m.dtype(i).is_some_and(|t| t.is_float()))
        .collect();
    let outputs: Vec<Output> = (0..wrt.len()).map(Output::Gradient).collect();
    let same = |c: &[InstrId]| -> Result<bool, DiffError> {
        let d = scalify_grad::reference(m, loss, wrt, &outputs, &[], c, &o.derive).map_err(bad)?;
        for k in 0..2 {
            let g = evaluated(&d, p, x[k], o.limits)?;
            let off = |(a, b): (&Vec<f64>, &Vec<f64>)| {
                distance(a, b) > 1e-9 && a.iter().chain(b).any(|v| *v != 0.0)
            };
            if g.iter().zip(&gradients[k]).any(off) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    if all.is_empty() || same(&all)? {
        return Ok(all);
    }
    // One by one; programs with very many are left as they are.
    let mut kept = Vec::new();
    for &i in all.iter().take(MAX_TRIED) {
        kept.push(i);
        if !same(&kept)? {
            kept.pop();
        }
    }
    Ok(kept)
}

/// Maxima tried one by one.
const MAX_TRIED: usize = 32;

/// Names of the instructions that hold gradient `w`.
fn named(m: &Module, held: &[(InstrId, usize)], w: usize) -> Vec<String> {
    held.iter().filter(|h| h.1 == w).map(|h| m.name_of(h.0).to_owned()).collect()
}

/// Instructions that are the outputs, one per array leaf, if the entry returns
/// a flat tuple or an array.
fn entry_outputs(m: &Module) -> Option<Vec<InstrId>> {
    let root = m.entry_comp().root;
    let i = m.instr(root);
    match m.shape(root) {
        Shape::Array(_) => Some(vec![root]),
        Shape::Tuple(t) if i.opcode == Opcode::Tuple => {
            t.iter().all(|s| s.as_array().is_some()).then(|| i.operands.to_vec())
        }
        _ => None,
    }
}

/// Outputs of AdamW: which moments and which result each is.
fn adam(
    plan: &mut Plan,
    p: &Problem,
    pairs: &[Pairing],
    by: &Adam,
    gradients: &[Vec<f64>],
    outs: &[Vec<f64>],
    input: &dyn Fn(usize, usize) -> Vec<f64>,
) -> Result<(), DiffError> {
    let dims = |i: usize| p.dist_inputs.get(i).map(|l| l.shape.dims().to_vec());
    let parameters: Vec<usize> = plan
        .wrt
        .iter()
        .enumerate()
        .filter(|(k, _)| gradients[*k].iter().any(|g| *g != 0.0))
        .map(|w| *w.1)
        .collect();
    // Moments follow their parameters in blocks, in the order of the inputs.
    let blocks = |n: usize| -> Vec<(usize, usize, usize)> {
        parameters
            .iter()
            .map(|&i| (i, i + n, i + 2 * n))
            .filter(|&(i, a, b)| dims(i) == dims(a) && dims(i) == dims(b))
            .filter(|m| !parameters.contains(&m.1) && !parameters.contains(&m.2))
            .collect()
    };
    let most = p.dist_inputs.len() / 2;
    let moments = (1..=most).map(blocks).max_by_key(Vec::len).unwrap_or_default();
    if moments.is_empty() {
        return Err(bad(
            "no input has two others of its shape at equal distances: expected parameters, first moments and second moments in blocks",
        ));
    }
    let mut candidates = Vec::new();
    for &(i, first, second) in &moments {
        let Some(k) = plan.wrt.iter().position(|&w| w == i) else { continue };
        let (x, g) = (input(0, i), &gradients[k]);
        let (m, v) = (input(0, first), input(0, second));
        if m.len() != g.len() || v.len() != g.len() {
            continue;
        }
        let m: Vec<f64> = m.iter().zip(g).map(|(m, g)| by.b1 * m + (1.0 - by.b1) * g).collect();
        let v: Vec<f64> = v.iter().zip(g).map(|(v, g)| by.b2 * v + (1.0 - by.b2) * g * g).collect();
        let (c1, c2) = (1.0 - by.b1.powf(by.step), 1.0 - by.b2.powf(by.step));
        let q: Vec<f64> = (0..g.len())
            .map(|j| {
                let d = m[j] / c1 / ((v[j] / c2).sqrt() + by.eps);
                x[j] - by.rate * (d + by.decay * x[j])
            })
            .collect();
        for (part, want) in [(AdamPart::Parameter, q), (AdamPart::First, m), (AdamPart::Second, v)]
        {
            candidates.push((i, k, first, second, part, want));
        }
    }
    let mut left: Vec<usize> = pairs.iter().map(|p| p.0).collect();
    let mut taken = vec![None; candidates.len()];
    for (c, t) in candidates.iter().zip(&mut taken) {
        let near = left.iter().position(|&o| outs.get(o).is_some_and(|y| distance(y, &c.5) < 1e-3));
        *t = near.map(|k| left.remove(k));
    }
    // The rest in the order in which they stand.
    for part in [AdamPart::Parameter, AdamPart::First, AdamPart::Second] {
        for (c, t) in candidates.iter().zip(&mut taken) {
            if t.is_some() || c.4 != part {
                continue;
            }
            let fits = left.iter().position(|&o| outs.get(o).is_some_and(|y| y.len() == c.5.len()));
            *t = fits.map(|k| left.remove(k));
        }
    }
    for (c, t) in candidates.iter().zip(taken) {
        let Some(output) = t else { continue };
        let what = match c.4 {
            AdamPart::Parameter => "parameter",
            AdamPart::First => "first moment",
            AdamPart::Second => "second moment",
        };
        plan.outputs.push(Output::Adam { k: c.1, first: c.2, second: c.3, by: *by, part: c.4 });
        let name = p.dist_inputs.get(c.0).map_or("", |l| l.name()).to_owned();
        plan.targets.push(Target { name, input: c.0, output, what: What::Adam(what) });
        plan.other.push(None);
    }
    for o in left {
        plan.open.push((o, "it is no result of AdamW".to_owned()));
    }
    Ok(())
}

impl Plan {
    /// The module whose outputs are the targets, from the derivatives.
    ///
    /// # Errors
    /// As for differentiation.
    pub fn reference(&self, m: &Module, o: &scalify_grad::Options) -> Result<Module, DiffError> {
        let r = &self.replaced;
        let c = &self.constants;
        scalify_grad::reference(m, self.loss, &self.wrt, &self.outputs, r, c, o).map_err(bad)
    }

    /// With one target.
    fn only(&self, k: usize) -> Plan {
        Plan {
            targets: vec![self.targets[k].clone()],
            open: Vec::new(),
            derivative: self.derivative.clone(),
            wrt: self.wrt.clone(),
            outputs: vec![self.outputs[k]],
            other: vec![self.other[k].clone()],
            replaced: self.replaced.clone(),
            constants: self.constants.clone(),
            loss: self.loss,
        }
    }

    /// With steps taken to be what the program makes of its own gradients.
    fn instead(&self) -> Option<Plan> {
        let mut p = Plan {
            targets: self.targets.clone(),
            open: self.open.clone(),
            derivative: self.derivative.clone(),
            wrt: self.wrt.clone(),
            outputs: self.outputs.clone(),
            other: vec![None; self.targets.len()],
            replaced: self.replaced.clone(),
            constants: self.constants.clone(),
            loss: self.loss,
        };
        for (k, o) in self.other.iter().enumerate() {
            if let Some(w) = o {
                p.outputs[k] = Output::Own(p.targets[k].output);
                p.targets[k].what = w.clone();
            }
        }
        self.other.iter().any(Option::is_some).then_some(p)
    }

    fn selected(&self) -> Vec<usize> {
        self.targets.iter().map(|t| t.output).collect()
    }

    /// Evaluates reference and given program on `x`.
    ///
    /// # Errors
    /// Programs that cannot be run.
    pub fn compare(
        &self,
        m: &Module,
        p: &Problem,
        g: &Module,
        pg: &Problem,
        x: &Inputs,
        o: &Options,
    ) -> Result<Vec<Compared>, DiffError> {
        let r = evaluated(&self.reference(m, &o.derive)?, p, x, o.limits)?;
        let y = evaluated(g, pg, x, o.limits)?;
        let mut out = Vec::new();
        for (k, (t, r)) in self.targets.iter().zip(&r).enumerate() {
            let y = y.get(t.output).map(Vec::as_slice).unwrap_or_default();
            // A step is small against the parameter: what counts is the change.
            let x = x.values.get(t.input).and_then(|v| v.first()).map(Tensor::to_f64);
            let moves = !matches!(t.what, What::Gradient)
                && !matches!(t.what, What::Adam(w) if w != "parameter");
            let off = match x {
                Some(x) if moves && x.len() == r.len() && x.len() == y.len() => {
                    let d = |v: &[f64]| v.iter().zip(&x).map(|(v, x)| v - x).collect::<Vec<_>>();
                    distance(&d(y), &d(r))
                }
                _ => distance(y, r),
            };
            out.push(Compared { target: k, off });
        }
        Ok(out)
    }

    /// Proves the given outputs equal to the reference.
    ///
    /// # Errors
    /// Programs that cannot be differentiated.
    pub fn prove(
        &self,
        m: &Module,
        p: &Problem,
        g: &Module,
        claim: &Claim,
        prover: &scalify_prove::Options<'_>,
        search: &scalify_refute::Options,
        o: &Options,
    ) -> Result<Vec<Proof>, DiffError> {
        let start = Instant::now();
        let left = |limit: Option<Duration>| limit.map(|t| t.saturating_sub(start.elapsed()));
        let mut proofs = self.tried(m, p, g, claim, prover, search, o)?;
        let open = |q: &Proof| q.verdict == Verdict::Unknown;
        if self.targets.len() > 1 && proofs.iter().any(open) {
            // One by one: others that are wrong do not stand in the way.
            for k in 0..proofs.len() {
                let time = left(prover.time_limit);
                if !open(&proofs[k]) || time.is_some_and(|t| t.is_zero()) {
                    continue;
                }
                let prover = scalify_prove::Options { time_limit: time, ..*prover };
                let one = self.only(k).tried(m, p, g, claim, &prover, search, o)?;
                if let Some(one) = one.into_iter().next().filter(|q| !open(q)) {
                    proofs[k] = one;
                }
            }
        }
        if self.constants.is_empty() || proofs.iter().all(|p| p.verdict != Verdict::Proved) {
            return Ok(proofs);
        }
        // The loss does not depend on the values of these maxima: it is the same
        // for any value and for 0.
        let made = |used| scalify_grad::opened(m, self.loss, &self.constants, used, &o.derive);
        let assume = Claim { assume: claim.assume.clone(), ..Claim::default() };
        let r = match (made(false), made(true)) {
            (Ok(a), Ok(b)) => Some(scalify_prove::verify(&a, &b, &assume, prover)),
            _ => None,
        };
        let r = r.filter(|r| r.verdict == Verdict::Proved);
        for p in proofs.iter_mut().filter(|p| p.verdict == Verdict::Proved) {
            if let Some(r) = &r {
                p.grade = p.grade.max(r.grade);
                let more = sentences(r).into_iter().filter(|t| !p.assumptions.contains(t));
                let more: Vec<String> = more.collect();
                p.assumptions.extend(more);
            } else {
                let name = |i: &InstrId| m.name_of(*i).to_owned();
                p.cancels = self.constants.iter().map(name).collect();
                p.grade = Some(Grade::UnderAssumptions);
            }
        }
        Ok(proofs)
    }

    fn tried(
        &self,
        m: &Module,
        p: &Problem,
        g: &Module,
        claim: &Claim,
        prover: &scalify_prove::Options<'_>,
        search: &scalify_refute::Options,
        o: &Options,
    ) -> Result<Vec<Proof>, DiffError> {
        let given = select_outputs(g, &self.selected())?;
        let whole = claim.clone();
        let claim = select_claim(claim, &self.selected());
        let plan = scalify_refute::Plan {
            search: *search,
            repair: std::time::Duration::ZERO,
            ..Default::default()
        };
        let mut proofs: Vec<Proof> = Vec::new();
        let mut ways = vec![o.derive];
        let has = |op: Opcode| m.instrs.iter().any(|i| i.opcode == op);
        if has(Opcode::Maximum) || has(Opcode::Minimum) {
            ways.push(scalify_grad::Options { ties: Ties::Zero, ..o.derive });
        }
        if has(Opcode::Gather) {
            ways.push(scalify_grad::Options { clamp_indices: false, ..o.derive });
        }
        for way in &ways {
            let reference = self.reference(m, way)?;
            let d = scalify_refute::decide(&reference, &given, &claim, prover, &plan);
            // Where the loss is not finite it has no derivative.
            let defined = d.counterexample.as_ref().is_none_or(|c| {
                let l = evaluated(&self.derivative, p, &c.inputs, o.limits).ok();
                l.and_then(|l| l.first()?.first().copied()).is_some_and(f64::is_finite)
            });
            for (k, t) in self.targets.iter().enumerate() {
                let r = d.outcome.outputs.get(k);
                let v = r.map_or(Verdict::Unknown, |r| r.verdict);
                let v = if v == Verdict::Refuted && !defined { Verdict::Unknown } else { v };
                let mut reason = r.and_then(|r| r.reason.clone());
                if v == Verdict::Unknown {
                    if let Some(f) = d.outcome.frontier.iter().find(|f| f.reaches.contains(&k)) {
                        reason = Some(format!("at %{}: {}", given.name_of(f.instr), f.reason));
                    }
                    reason = reason.or_else(|| d.outcome.notes.last().cloned());
                }
                let hit = d.counterexample.iter().flat_map(|c| &c.outputs).find(|x| x.output == k);
                if let (Verdict::Refuted, Some(x)) = (v, hit) {
                    reason = Some(format!(
                        "element {:?} is {:.6e}, by the derivative {:.6e}",
                        x.index, x.actual, x.expected
                    ));
                }
                let new = Proof {
                    name: t.name.clone(),
                    input: t.input,
                    output: t.output,
                    what: t.what.clone(),
                    verdict: v,
                    grade: d.outcome.grade.filter(|_| v == Verdict::Proved),
                    reason: if v == Verdict::Proved { None } else { reason },
                    assumptions: match v {
                        Verdict::Proved => sentences(&d.outcome),
                        _ => Vec::new(),
                    },
                    cancels: Vec::new(),
                };
                match proofs.get_mut(k) {
                    None => proofs.push(new),
                    // One convention proves it; all must refute it.
                    Some(old) if old.verdict == Verdict::Proved => {}
                    Some(old) if v == Verdict::Proved => *old = new,
                    Some(old) if old.verdict == Verdict::Refuted && v == Verdict::Unknown => {
                        *old = new;
                    }
                    Some(_) => {}
                }
            }
            if proofs.iter().all(|p| p.verdict == Verdict::Proved) {
                return Ok(proofs);
            }
        }
        if let Some(other) = self.instead() {
            let second = other.tried(m, p, g, &whole, prover, search, o)?;
            for (a, b) in proofs.iter_mut().zip(second) {
                if a.verdict != Verdict::Proved && b.verdict == Verdict::Proved {
                    *a = b;
                }
            }
        }
        Ok(proofs)
    }
}

fn sentences(o: &scalify_prove::outcome::Outcome) -> Vec<String> {
    let mut v: Vec<String> = Vec::new();
    for a in &o.assumptions {
        if !v.contains(&a.text) {
            v.push(a.text.clone());
        }
    }
    v
}

/// The same program with only these outputs (array leaves).
///
/// # Errors
/// Outputs that do not exist.
pub fn select_outputs(m: &Module, keep: &[usize]) -> Result<Module, DiffError> {
    let mut n = m.clone();
    let entry = n.entry;
    let old = n.comp(entry).root;
    let shape = n.shape(old).clone();
    let mut list = n.comp(entry).instrs.clone();
    fn paths(s: &Shape, at: &mut Vec<usize>, out: &mut Vec<Vec<usize>>) {
        match s {
            Shape::Tuple(t) => {
                for (k, s) in t.iter().enumerate() {
                    at.push(k);
                    paths(s, at, out);
                    at.pop();
                }
            }
            _ => out.push(at.clone()),
        }
    }
    let mut all = Vec::new();
    paths(&shape, &mut Vec::new(), &mut all);
    let push = |n: &mut Module, list: &mut Vec<InstrId>, op, attrs, xs: &[InstrId], s: Shape| {
        let id = n.append(&format!("selected.{}", n.instrs.len()), op, attrs, xs, &[], s);
        list.push(id);
        id
    };
    let mut parts = Vec::new();
    for &k in keep {
        let path = all.get(k).ok_or_else(|| bad(format!("no output {k}")))?;
        let mut x = old;
        for &e in path {
            let i = n.instr(x);
            x = match (i.opcode, i.operands.get(e)) {
                (Opcode::Tuple, Some(&o)) => o,
                _ => {
                    let s = n.shape(x).as_tuple().and_then(|t| t.get(e)).cloned();
                    let s = s.ok_or_else(|| bad("a result of another shape"))?;
                    let a = Attrs::TupleIndex(e as i64);
                    push(&mut n, &mut list, Opcode::GetTupleElement, a, &[x], s)
                }
            };
        }
        parts.push(x);
    }
    let s = Shape::Tuple(parts.iter().map(|&x| n.shape(x).clone()).collect());
    let root = push(&mut n, &mut list, Opcode::Tuple, Attrs::None, &parts, s);
    // Layouts of the outputs that are kept.
    let picked = |s: &scalify_ir::OpSharding| -> Option<scalify_ir::OpSharding> {
        let ShardingKind::Tuple(t) = &s.kind else { return None };
        let t: Option<Vec<_>> = keep.iter().map(|&k| t.get(k).cloned()).collect();
        Some(scalify_ir::OpSharding { kind: ShardingKind::Tuple(t?), ..s.clone() })
    };
    if let Some(s) = n.sharding(old).and_then(&picked) {
        let x = scalify_ir::attrs::Extra { sharding: Some(s), ..Default::default() };
        n.instrs[root.0 as usize].extra = Some(Box::new(x));
    }
    n.header.spmd_output_sharding = n.header.spmd_output_sharding.as_ref().and_then(picked);
    n.header.entry_layout = None;
    n.header.other.clear();
    let c = &mut n.comps[entry.0 as usize];
    (c.root, c.instrs) = (root, list);
    Ok(scalify_grad::prune(&n))
}

fn select_claim(claim: &Claim, keep: &[usize]) -> Claim {
    let mut c = claim.clone();
    c.outputs.clear();
    for (s, spec) in &claim.outputs {
        match s {
            Selector::Index(k) => {
                for (new, _) in keep.iter().enumerate().filter(|o| o.1 == k) {
                    c.outputs.push((Selector::Index(new), spec.clone()));
                }
            }
            Selector::Name(_) => c.outputs.push((s.clone(), spec.clone())),
        }
    }
    c
}
