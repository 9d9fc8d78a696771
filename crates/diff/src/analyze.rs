//! Errors of every paired operation.
//!
//! For a pair (`a`, `b`) the *segment* of `b` is what computes it from paired
//! values; that of `a` computes it from the counterparts of those. Both are fed
//! with the first program's values there. With `x` the segment of `a` in `f64`:
//!
//! - *introduced*: the segment of `b`, in its own types, against `x`;
//! - *local*: the operation of `b` alone, in its own types, against itself in
//!   `f64`, on the second program's operands;
//! - *accumulated*: the second program's value against the first program's in
//!   `f64`.
//!
//! An introduced error is rounding if it is within `bound`: what the roundings
//! of both segments may do ([`crate::bound`]), types coarser than the first
//! program's counted as its own. Segments of several operations are evaluated
//! with these roundings put in with random signs.

use crate::bound::{self, allowance, numbers, roundoff};
use crate::flow::{Engine, FlowError, Mode, Node, NodeId, PerDevice, Slot, Sym};
use crate::pairing::{Basis, Pair, Pairs, Runs};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_interp::{Tensor, Value};
use scalify_ir::{ArrayShape, Opcode};
use scalify_refute::random::Random;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Operations of a segment at most.
const MAX_SEGMENT: usize = 400;
/// Random signs tried.
const DRAWS: u64 = 4;

/// An error over the elements of a value on all devices.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Error {
    /// Largest magnitude; infinite where one side alone is not finite.
    #[serde(serialize_with = "crate::diff::number")]
    pub max: f64,
    /// The same over the root mean square of the reference.
    #[serde(serialize_with = "crate::diff::number")]
    pub relative: f64,
}

/// Where an introduced error is worst.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Worst {
    /// Device of the second program.
    pub device: usize,
    /// Index there.
    pub index: Vec<i64>,
    /// Reference.
    #[serde(serialize_with = "crate::diff::number")]
    pub expected: f64,
    /// Value of the second program.
    #[serde(serialize_with = "crate::diff::number")]
    pub actual: f64,
    /// What rounding may do there.
    #[serde(serialize_with = "crate::diff::number")]
    pub bound: f64,
}

/// What an introduced error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Within the bound.
    Rounding,
    /// The same function over the reals, rounded more coarsely than allowed.
    Precision,
    /// Another function.
    Function,
}

/// A compared pair.
#[derive(Clone, Debug)]
pub struct Row {
    /// The pair.
    pub pair: Pair,
    /// Error of the operation alone.
    pub local: Error,
    /// Error it introduces.
    pub introduced: Error,
    /// Error of its value.
    pub accumulated: Error,
    /// Introduced error over its bound, at most.
    pub ratio: f64,
    /// Where.
    pub worst: Worst,
    /// What it is.
    pub kind: Kind,
    /// The operation of the second program that introduces it, if it is not
    /// rounding.
    pub blamed: Option<NodeId>,
}

/// Values of some slots.
type Known = FxHashMap<Slot, PerDevice>;

/// Both programs, ready to execute parts.
pub struct Analyzer<'r, 'm> {
    /// The runs.
    pub runs: &'r Runs<'r>,
    /// Engine of the first program.
    pub ea: &'r mut Engine<'m>,
    /// Engine of the second program.
    pub eb: &'r mut Engine<'m>,
    /// The pairs.
    pub pairs: &'r Pairs,
    /// Seed of the signs.
    pub seed: u64,
}

/// Nodes between a slot and values that are given, in the order of execution.
struct Segment {
    nodes: Vec<NodeId>,
    cut: Vec<Slot>,
}

fn segment(
    nodes: &[Node],
    made_by: &[NodeId],
    target: Slot,
    max: usize,
    stop: &dyn Fn(Slot) -> bool,
) -> Option<Segment> {
    let mut seen: FxHashSet<NodeId> = FxHashSet::default();
    let mut cut: FxHashSet<Slot> = FxHashSet::default();
    let mut stack = vec![made_by[target as usize]];
    while let Some(n) = stack.pop() {
        if !seen.insert(n) {
            continue;
        }
        if seen.len() > max {
            return None;
        }
        for s in nodes[n as usize].reads() {
            if stop(s) {
                cut.insert(s);
            } else {
                stack.push(made_by[s as usize]);
            }
        }
    }
    let mut nodes: Vec<NodeId> = seen.into_iter().collect();
    nodes.sort_unstable();
    let mut cut: Vec<Slot> = cut.into_iter().collect();
    cut.sort_unstable();
    Some(Segment { nodes, cut })
}

fn all_numbers(v: &PerDevice) -> Vec<Vec<f64>> {
    let mut out: Vec<Vec<f64>> = Vec::with_capacity(v.len());
    for (k, t) in v.iter().enumerate() {
        match v[..k].iter().position(|u| u.data.same(&t.data)) {
            Some(j) => out.push(out[j].clone()),
            None => out.push(numbers(t)),
        }
    }
    out
}

/// What a node's operations may add, put in with random signs.
struct Noise<'n> {
    random: &'n mut Random,
    coarsest: f64,
    /// Allowances by node, worked out once.
    cache: &'n mut FxHashMap<NodeId, Vec<Vec<Vec<f64>>>>,
}

fn disturbed(t: &Tensor, by: &[f64], r: &mut Random) -> Tensor {
    let mut v = numbers(t);
    // An infinity has no roundings.
    for (x, e) in v.iter_mut().zip(by).filter(|(x, e)| x.is_finite() && e.is_finite()) {
        *x += if r.bits() & 1 == 0 { *e } else { -*e };
    }
    let dims = t.dims.iter().copied();
    let new = if t.dtype.is_float() {
        Tensor::from_vec(t.dtype, dims, v)
    } else if t.dtype.is_complex() {
        let c: Vec<scalify_interp::complex::Complex<f64>> = v
            .chunks_exact(2)
            .map(|c| scalify_interp::complex::Complex { re: c[0], im: c[1] })
            .collect();
        Tensor::from_vec(t.dtype, dims, c)
    } else {
        None
    };
    new.unwrap_or_else(|| t.clone())
}

/// Executes a segment. `mode` per node.
fn evaluate(
    e: &mut Engine<'_>,
    flow: &crate::flow::Flow,
    s: &Segment,
    given: &Known,
    mode: &dyn Fn(NodeId) -> Mode,
    mut noise: Option<Noise<'_>>,
) -> Result<Known, FlowError> {
    let mut known: Known = FxHashMap::default();
    for &k in &s.nodes {
        let node = &flow.nodes[k as usize];
        if e.is_input(node) {
            for x in node.slots.0..node.slots.1 {
                let v = given.get(&x).unwrap_or(&flow.values[x as usize]);
                known.insert(x, v.clone());
            }
            continue;
        }
        let get = |x: Slot| {
            given.get(&x).or_else(|| known.get(&x)).or_else(|| flow.values.get(x as usize)).cloned()
        };
        let mut out = e.node(node, mode(k), &get)?;
        if let Some(n) = &mut noise {
            let by = match n.cache.get(&k) {
                Some(b) => b.clone(),
                None => {
                    let ops = operands(node, e.devices, &get)?;
                    let b = allowance(e, node, &ops, &out, n.coarsest)?;
                    n.cache.insert(k, b.clone());
                    b
                }
            };
            for (per, by) in out.iter_mut().zip(&by) {
                // Devices that share a value share its roundings.
                let mut new: Vec<Tensor> = Vec::with_capacity(per.len());
                for d in 0..per.len() {
                    match per[..d].iter().position(|t| t.data.same(&per[d].data)) {
                        Some(j) => new.push(new[j].clone()),
                        None => new.push(disturbed(&per[d], &by[d], n.random)),
                    }
                }
                *per = new;
            }
        }
        for (x, v) in (node.slots.0..node.slots.1).zip(out) {
            known.insert(x, v);
        }
    }
    Ok(known)
}

fn operands(
    node: &Node,
    devices: usize,
    get: &dyn Fn(Slot) -> Option<PerDevice>,
) -> Result<Vec<Vec<Value>>, FlowError> {
    fn one(s: &Sym, n: usize, get: &dyn Fn(Slot) -> Option<PerDevice>) -> Option<Vec<Value>> {
        match s {
            Sym::Slot(x) => Some(get(*x)?.into_iter().map(Value::Tensor).collect()),
            Sym::Token => Some(vec![Value::Token; n]),
            Sym::Tuple(t) => {
                let p: Vec<Vec<Value>> = t.iter().map(|s| one(s, n, get)).collect::<Option<_>>()?;
                let at = |d: usize| Value::Tuple(p.iter().map(|p| p[d].clone()).collect());
                Some((0..n).map(at).collect())
            }
        }
    }
    let v: Option<Vec<_>> = node.operands.iter().map(|s| one(s, devices, get)).collect();
    v.ok_or_else(|| FlowError::Limit("an operand is not known".into()))
}

/// Largest differences of two disturbed evaluations from the undisturbed one.
fn spread(base: &[Vec<f64>], runs: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
    base.iter()
        .enumerate()
        .map(|(d, x)| {
            x.iter()
                .enumerate()
                .map(|(i, x)| {
                    runs.iter().fold(0f64, |m, r| {
                        let y = r.get(d).and_then(|r| r.get(i)).copied().unwrap_or(f64::NAN);
                        let e = (y - x).abs();
                        if y == *x || y.is_nan() && x.is_nan() {
                            m
                        } else if e.is_nan() {
                            f64::INFINITY
                        } else {
                            m.max(e)
                        }
                    })
                })
                .collect()
        })
        .collect()
}

impl Analyzer<'_, '_> {
    /// Rows of all pairs, until the time is up; whether it was.
    pub fn rows(&mut self, time: Duration) -> (Vec<Row>, bool) {
        let start = Instant::now();
        let mut rows = Vec::new();
        for b in 0..self.pairs.of.len() as u32 {
            let Some(p) = self.pairs.of[b as usize].clone() else { continue };
            if p.basis == Basis::Input {
                continue;
            }
            if start.elapsed() > time {
                return (rows, true);
            }
            // What cannot be executed alone has no row.
            if let Ok(Some(r)) = self.row(&p) {
                rows.push(r);
            }
        }
        (rows, false)
    }

    fn node_b(&self, b: Slot) -> (NodeId, &Node) {
        let k = self.runs.fb.slots[b as usize];
        (k, &self.runs.fb.nodes[k as usize])
    }

    /// One pair; `None` if it cannot be compared.
    fn row(&mut self, p: &Pair) -> Result<Option<Row>, FlowError> {
        let r = self.runs;
        let of = &self.pairs.of;
        let stop = |s: Slot| of[s as usize].is_some();
        let Some(sb) = segment(&r.fb.nodes, &r.fb.slots, p.b, 4 * MAX_SEGMENT, &stop) else {
            return Ok(None);
        };
        // Values on the cut, in both programs.
        let (mut given_a, mut given_b): (Known, Known) = Default::default();
        for &s in &sb.cut {
            let Some(q) = &of[s as usize] else { continue };
            let own = &r.fb.values[s as usize][0];
            let shape = ArrayShape::new(own.dtype, own.dims.iter().copied());
            let mut a = r.fa.values[q.a as usize].clone();
            if roundoff(own.dtype) > roundoff(a[0].dtype) {
                // A coarser type here: both start from what it holds.
                a = a.iter().map(|t| coarse(t, own)).collect();
            }
            let Some(v) = q.carry(&a, &shape, self.eb.devices) else { return Ok(None) };
            given_b.insert(s, v);
            given_a.insert(q.a, a);
        }
        let from = |s: Slot| given_a.contains_key(&s);
        let sa = if given_a.contains_key(&p.a) {
            Segment { nodes: Vec::new(), cut: vec![p.a] }
        } else {
            let whole = segment(&r.fa.nodes, &r.fa.slots, p.a, MAX_SEGMENT, &from);
            match whole {
                Some(s) => s,
                None => {
                    let paired: FxHashSet<Slot> = of.iter().flatten().map(|p| p.a).collect();
                    let near = |s: Slot| from(s) || s != p.a && paired.contains(&s);
                    match segment(&r.fa.nodes, &r.fa.slots, p.a, MAX_SEGMENT, &near) {
                        Some(s) => s,
                        None => return Ok(None),
                    }
                }
            }
        };
        let type_a = r.fa.values[p.a as usize][0].dtype;
        let mut coarsest = p.coarsest.max(roundoff(type_a));
        for &n in &sa.nodes {
            let node = &r.fa.nodes[n as usize];
            for s in node.slots.0..node.slots.1 {
                coarsest = coarsest.max(roundoff(r.fa.values[s as usize][0].dtype));
            }
        }
        let exact = coarsest == 0.0;
        let coarsest = if exact { 1.0 } else { coarsest };
        let mut random = Random::new(self.seed ^ u64::from(p.b).wrapping_mul(0x9E37_79B9));

        // The first program's segment.
        let pick = |k: &Known, s: Slot, given: &Known, f: &crate::flow::Flow| -> PerDevice {
            k.get(&s).or_else(|| given.get(&s)).unwrap_or(&f.values[s as usize]).clone()
        };
        let wide = |_: NodeId| Mode::Wide;
        let plain = |_: NodeId| Mode::Plain;
        let mut cache = FxHashMap::default();
        let xa = evaluate(self.ea, r.fa, &sa, &given_a, &wide, None)?;
        let xa = all_numbers(&pick(&xa, p.a, &given_a, r.fa));
        let pa = evaluate(self.ea, r.fa, &sa, &given_a, &plain, None)?;
        let pa = all_numbers(&pick(&pa, p.a, &given_a, r.fa));
        let own = spread(&xa, &[pa]);
        let mut na = vec![Vec::new(); xa.len()];
        if !sa.nodes.is_empty() {
            let mut runs = Vec::new();
            for _ in 0..if sa.nodes.len() > 1 { DRAWS } else { 1 } {
                let n = Noise { random: &mut random, coarsest, cache: &mut cache };
                let y = evaluate(self.ea, r.fa, &sa, &given_a, &wide, Some(n))?;
                runs.push(all_numbers(&pick(&y, p.a, &given_a, r.fa)));
            }
            na = spread(&xa, &runs);
        }

        // The second program's.
        let mut cache = FxHashMap::default();
        let xb = evaluate(self.eb, r.fb, &sb, &given_b, &wide, None)?;
        let xb = all_numbers(&pick(&xb, p.b, &given_b, r.fb));
        let yb = evaluate(self.eb, r.fb, &sb, &given_b, &plain, None)?;
        let yb = all_numbers(&pick(&yb, p.b, &given_b, r.fb));
        let mut runs = Vec::new();
        for _ in 0..if sb.nodes.len() > 1 { DRAWS } else { 1 } {
            let n = Noise { random: &mut random, coarsest, cache: &mut cache };
            let y = evaluate(self.eb, r.fb, &sb, &given_b, &wide, Some(n))?;
            runs.push(all_numbers(&pick(&y, p.b, &given_b, r.fb)));
        }
        let nb = spread(&xb, &runs);

        let tb = &r.fb.values[p.b as usize][0];
        let width = scalify_refute::compare::width(tb.dtype);
        let (fa, fb) = (factor(&sa), factor(&sb));
        let (mut top, mut ratio) = (0f64, 0f64);
        let (mut square, mut count) = (0f64, 0usize);
        let mut worst = Worst::default();
        let mut function = false;
        let mut expected: Vec<Vec<f64>> = Vec::new();
        let mut bounds: Vec<Vec<f64>> = Vec::new();
        for d in 0..self.eb.devices {
            let need = (
                p.pick(&xa, d, width),
                p.pick(&own, d, width),
                if na.iter().all(Vec::is_empty) { Some(Vec::new()) } else { p.pick(&na, d, width) },
            );
            let (Some(x), Some(own), Some(na)) = need else { return Ok(None) };
            let (y, w, nb) = (&yb[d], &xb[d], &nb[d]);
            if x.len() != y.len() {
                return Ok(None);
            }
            let mut limits = Vec::with_capacity(x.len());
            for i in 0..x.len() {
                let u = if exact { 0.0 } else { coarsest };
                let size = if x[i].is_finite() { x[i].abs() } else { 0.0 };
                let limit = fa * na.get(i).copied().unwrap_or(0.0)
                    + fb * nb[i]
                    + 4.0 * own[i]
                    + 2.0 * u * size;
                limits.push(limit);
                if x[i].is_finite() {
                    square += x[i] * x[i];
                    count += 1;
                }
                let e = distance(x[i], y[i]);
                let q = over(e, limit);
                top = top.max(e);
                if q > ratio || worst.index.is_empty() && q > 0.0 && ratio == 0.0 {
                    ratio = q;
                    worst = Worst {
                        device: d,
                        index: unflatten(i / width, &tb.dims),
                        expected: x[i],
                        actual: y[i],
                        bound: limit,
                    };
                }
                function |= over(distance(x[i], w[i]), limit) > 1.0;
            }
            expected.push(x);
            bounds.push(limits);
        }
        let rms = if count > 0 { (square / count as f64).sqrt() } else { 0.0 };
        let relative = |e: f64| {
            if rms > 0.0 {
                e / rms
            } else if e > 0.0 {
                f64::INFINITY
            } else {
                0.0
            }
        };

        let kind = match (ratio > 1.0, function) {
            (false, _) => Kind::Rounding,
            (true, true) => Kind::Function,
            (true, false) => Kind::Precision,
        };
        let blamed = match kind {
            Kind::Rounding => None,
            Kind::Precision => Some(self.coarse_operation(p, &sb, &given_b, coarsest, &xb)?),
            Kind::Function => Some(self.node_b(p.b).0),
        };
        let local = self.local(p.b)?;
        let accumulated = self.accumulated(p, width).unwrap_or(f64::NAN);
        Ok(Some(Row {
            pair: p.clone(),
            local: Error { max: local, relative: relative(local) },
            introduced: Error { max: top, relative: relative(top) },
            accumulated: Error { max: accumulated, relative: relative(accumulated) },
            ratio,
            worst,
            kind,
            blamed,
        }))
    }

    /// The operation of a segment whose own rounding does most beyond what
    /// `coarsest` allows it.
    fn coarse_operation(
        &mut self,
        p: &Pair,
        s: &Segment,
        given: &Known,
        coarsest: f64,
        x: &[Vec<f64>],
    ) -> Result<NodeId, FlowError> {
        let last = self.node_b(p.b).0;
        if s.nodes.len() < 2 {
            return Ok(last);
        }
        let r = self.runs;
        let mut best = (0f64, last);
        for &k in &s.nodes {
            let node = &r.fb.nodes[k as usize];
            let op = self.eb.module.instr(node.instr).opcode;
            let type_ = r.fb.values.get(node.slots.0 as usize).and_then(|v| v.first());
            let fine = type_.is_none_or(|t| roundoff(t.dtype) <= coarsest);
            if bound::moves(op) || op == Opcode::Parameter {
                continue;
            }
            let mode = |n: NodeId| if n == k { Mode::Plain } else { Mode::Wide };
            let y = evaluate(self.eb, r.fb, s, given, &mode, None)?;
            let Some(y) = y.get(&p.b) else { continue };
            let e = spread(x, &[all_numbers(y)]);
            let e = e.iter().flatten().fold(0f64, |m, e| m.max(*e));
            // A type that the first program has too may round like it.
            let e = if fine { e * 1e-3 } else { e };
            if e > best.0 {
                best = (e, k);
            }
        }
        Ok(best.1)
    }

    /// Largest error of the node of a slot on its own operands.
    fn local(&mut self, b: Slot) -> Result<f64, FlowError> {
        let r = self.runs;
        let node = self.node_b(b).1.clone();
        if self.eb.is_input(&node) {
            return Ok(0.0);
        }
        let out = self.eb.node(&node, Mode::Wide, &|s| r.fb.values.get(s as usize).cloned())?;
        let Some(x) = out.get((b - node.slots.0) as usize) else { return Ok(0.0) };
        let (x, y) = (all_numbers(x), all_numbers(&r.fb.values[b as usize]));
        Ok(x.iter()
            .flatten()
            .zip(y.iter().flatten())
            .fold(0f64, |m, (x, y)| m.max(distance(*x, *y))))
    }

    fn accumulated(&self, p: &Pair, width: usize) -> Option<f64> {
        let r = self.runs;
        let x = all_numbers(r.wa.get(p.a as usize)?);
        let y = all_numbers(&r.fb.values[p.b as usize]);
        let mut m = 0f64;
        for (d, y) in y.iter().enumerate() {
            let x = p.pick(&x, d, width)?;
            m = x.iter().zip(y).fold(m, |m, (x, y)| m.max(distance(*x, *y)));
        }
        Some(m)
    }
}

/// Several operations: signs may have cancelled.
fn factor(s: &Segment) -> f64 {
    if s.nodes.len() > 1 { 2.0 } else { 1.0 }
}

/// `t` rounded to the coarser type of `like`, as its own type.
fn coarse(t: &Tensor, like: &Tensor) -> Tensor {
    let dims = || t.dims.iter().copied();
    let small = Tensor::from_vec(like.dtype, dims(), t.to_f64()).map(|t| t.narrowed());
    small
        .and_then(|s| Tensor::from_vec(t.dtype, dims(), s.to_f64()))
        .map_or_else(|| t.clone(), |t| t.narrowed())
}

/// Magnitude of a difference; 0 for equal values and NaN on both sides,
/// infinite where one side alone is not finite.
pub fn distance(x: f64, y: f64) -> f64 {
    if x == y || x.is_nan() && y.is_nan() {
        return 0.0;
    }
    let e = (x - y).abs();
    if e.is_nan() { f64::INFINITY } else { e }
}

fn over(e: f64, limit: f64) -> f64 {
    if e == 0.0 || limit.is_infinite() || limit.is_nan() {
        0.0
    } else if limit == 0.0 {
        f64::INFINITY
    } else {
        e / limit
    }
}

/// The index of a flat position.
pub fn unflatten(mut k: usize, dims: &[i64]) -> Vec<i64> {
    let mut out = vec![0; dims.len()];
    for d in (0..dims.len()).rev() {
        let n = dims[d].max(1) as usize;
        out[d] = (k % n) as i64;
        k /= n;
    }
    out
}
