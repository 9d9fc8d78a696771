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

use crate::bound::{self, roundoff};
use crate::flow::{Engine, FlowError, Mode, Node, NodeId, PerDevice, Slot};
use crate::pairing::{Basis, Pair, Pairs, Runs};
use crate::segment::{Known, Noise, Segment, all_numbers, evaluate, segment, spread};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_interp::Tensor;
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
    /// Root mean square of its part that is no rounding (both sides in `f64`),
    /// over that of the reference.
    pub apart: f64,
    /// What it is.
    pub kind: Kind,
    /// The operation of the second program that introduces it, if it is not
    /// rounding.
    pub blamed: Option<NodeId>,
}

/// Both sides of a pair, executed on the first program's values; numbers per
/// device of the second program.
pub struct Compared {
    /// The first program's value in `f64`.
    pub expected: Vec<Vec<f64>>,
    /// What rounding may do.
    pub bounds: Vec<Vec<f64>>,
    /// The second program's value in its types.
    pub actual: Vec<Vec<f64>>,
    /// The same in `f64`.
    pub wide: Vec<Vec<f64>>,
    /// Coarsest unit roundoff of the first program here.
    pub coarsest: f64,
    width: usize,
    sb: Segment,
    given_b: Known,
}

impl Compared {
    /// Largest error of `actual` over the bound.
    pub fn ratio(&self, actual: &[Vec<f64>]) -> f64 {
        let mut top = 0f64;
        for ((x, y), limits) in self.expected.iter().zip(actual).zip(&self.bounds) {
            for ((x, y), limit) in x.iter().zip(y).zip(limits) {
                top = top.max(over(distance(*x, *y), *limit));
            }
        }
        top
    }
}

/// Both programs, ready to execute parts.
pub struct Analyzer<'r, 'm, 'n> {
    /// The runs.
    pub runs: &'r Runs<'r>,
    /// Engine of the first program.
    pub ea: &'r mut Engine<'m>,
    /// Engine of the second program.
    pub eb: &'r mut Engine<'n>,
    /// The pairs.
    pub pairs: &'r Pairs,
    /// Seed of the signs.
    pub seed: u64,
}
impl Analyzer<'_, '_, '_> {
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

    /// Nodes of the second program that lead from paired values to `b`.
    pub fn between(&self, b: Slot) -> Option<Vec<NodeId>> {
        self.segment_b(b).map(|s| s.nodes)
    }

    fn segment_b(&self, b: Slot) -> Option<Segment> {
        let (of, f) = (&self.pairs.of, self.runs.fb);
        let stop = |s: Slot| of[s as usize].is_some();
        segment(&f.nodes, &f.slots, b, 4 * MAX_SEGMENT, &stop)
    }

    /// The first program's values where a segment of the second one begins,
    /// as both hold them; `None` if they do not fit.
    fn given(&self, sb: &Segment) -> Option<(Known, Known)> {
        let r = self.runs;
        let (mut given_a, mut given_b): (Known, Known) = Default::default();
        for &s in &sb.cut {
            let Some(q) = &self.pairs.of[s as usize] else { continue };
            let own = &r.fb.values[s as usize][0];
            let shape = ArrayShape::new(own.dtype, own.dims.iter().copied());
            let mut a = r.fa.values[q.a as usize].clone();
            if roundoff(own.dtype) > roundoff(a[0].dtype) {
                // A coarser type here: both start from what it holds.
                a = a.iter().map(|t| coarse(t, own)).collect();
            }
            given_b.insert(s, q.carry(&a, &shape, self.eb.devices)?);
            given_a.insert(q.a, a);
        }
        Some((given_a, given_b))
    }

    /// What computes `a` in the first program, from values that are given or,
    /// if that is too much, from any that are paired.
    fn segment_a(&self, a: Slot, given: &Known) -> Option<Segment> {
        if given.contains_key(&a) {
            return Some(Segment { nodes: Vec::new(), cut: vec![a] });
        }
        let f = self.runs.fa;
        let from = |s: Slot| given.contains_key(&s);
        segment(&f.nodes, &f.slots, a, MAX_SEGMENT, &from).or_else(|| {
            let paired: FxHashSet<Slot> = self.pairs.of.iter().flatten().map(|p| p.a).collect();
            let near = |s: Slot| from(s) || s != a && paired.contains(&s);
            segment(&f.nodes, &f.slots, a, MAX_SEGMENT, &near)
        })
    }

    /// Executes both sides of a pair; `None` if it cannot be compared.
    ///
    /// # Errors
    /// As of the interpreter.
    pub fn compare(&mut self, p: &Pair) -> Result<Option<Compared>, FlowError> {
        let r = self.runs;
        let Some(sb) = self.segment_b(p.b) else { return Ok(None) };
        let Some((given_a, given_b)) = self.given(&sb) else { return Ok(None) };
        let Some(sa) = self.segment_a(p.a, &given_a) else { return Ok(None) };
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

        let width = scalify_refute::compare::width(r.fb.values[p.b as usize][0].dtype);
        let (fa, fb) = (factor(&sa), factor(&sb));
        let u = if exact { 0.0 } else { coarsest };
        let mut expected: Vec<Vec<f64>> = Vec::new();
        let mut bounds: Vec<Vec<f64>> = Vec::new();
        for d in 0..self.eb.devices {
            let need = (
                p.pick(&xa, d, width),
                p.pick(&own, d, width),
                if na.iter().all(Vec::is_empty) { Some(Vec::new()) } else { p.pick(&na, d, width) },
            );
            let (Some(x), Some(own), Some(na)) = need else { return Ok(None) };
            if x.len() != yb[d].len() {
                return Ok(None);
            }
            let limit = |(i, x): (usize, &f64)| {
                let size = if x.is_finite() { x.abs() } else { 0.0 };
                let na = na.get(i).copied().unwrap_or(0.0);
                fa * na + fb * nb[d][i] + 4.0 * own[i] + 2.0 * u * size
            };
            bounds.push(x.iter().enumerate().map(limit).collect());
            expected.push(x);
        }
        Ok(Some(Compared { expected, bounds, actual: yb, wide: xb, coarsest, sb, given_b, width }))
    }

    /// The second program's value of a pair, in its types, from the first
    /// program's values; per device. `None` if it cannot be executed so.
    ///
    /// # Errors
    /// As of the interpreter.
    pub fn actual(&mut self, p: &Pair) -> Result<Option<Vec<Vec<f64>>>, FlowError> {
        let Some(sb) = self.segment_b(p.b) else { return Ok(None) };
        let Some((_, given)) = self.given(&sb) else { return Ok(None) };
        let y = evaluate(self.eb, self.runs.fb, &sb, &given, &|_| Mode::Plain, None)?;
        Ok(y.get(&p.b).map(all_numbers))
    }

    /// One pair; `None` if it cannot be compared.
    fn row(&mut self, p: &Pair) -> Result<Option<Row>, FlowError> {
        let Some(c) = self.compare(p)? else { return Ok(None) };
        let dims = self.runs.fb.values[p.b as usize][0].dims.clone();
        let (mut top, mut ratio) = (0f64, 0f64);
        let (mut square, mut count) = (0f64, 0usize);
        let mut worst = Worst::default();
        let mut function = false;
        let mut real = 0f64;
        for (device, x) in c.expected.iter().enumerate() {
            let (y, w, limits) = (&c.actual[device], &c.wide[device], &c.bounds[device]);
            for i in 0..x.len() {
                if x[i].is_finite() {
                    square += x[i] * x[i];
                    real += (w[i] - x[i]) * (w[i] - x[i]);
                    count += 1;
                }
                let e = distance(x[i], y[i]);
                let q = over(e, limits[i]);
                top = top.max(e);
                if q > ratio || worst.index.is_empty() && q > 0.0 && ratio == 0.0 {
                    ratio = q;
                    worst = Worst {
                        device,
                        index: unflatten(i / c.width, &dims),
                        expected: x[i],
                        actual: y[i],
                        bound: limits[i],
                    };
                }
                function |= over(distance(x[i], w[i]), limits[i]) > 1.0;
            }
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

        let apart = if square > 0.0 && real.is_finite() { (real / square).sqrt() } else { 0.0 };
        let kind = match (ratio > 1.0, function) {
            (false, _) => Kind::Rounding,
            (true, true) => Kind::Function,
            (true, false) => Kind::Precision,
        };
        let blamed = match kind {
            Kind::Rounding => None,
            Kind::Precision => Some(self.coarse_operation(p, &c)?),
            Kind::Function => Some(self.node_b(p.b).0),
        };
        let local = self.local(p.b)?;
        let accumulated = self.accumulated(p, c.width).unwrap_or(f64::NAN);
        Ok(Some(Row {
            pair: p.clone(),
            local: Error { max: local, relative: relative(local) },
            introduced: Error { max: top, relative: relative(top) },
            accumulated: Error { max: accumulated, relative: relative(accumulated) },
            ratio,
            worst,
            apart,
            kind,
            blamed,
        }))
    }

    /// The operation of a segment whose own rounding does most beyond what
    /// `coarsest` allows it.
    fn coarse_operation(&mut self, p: &Pair, c: &Compared) -> Result<NodeId, FlowError> {
        let (s, given, coarsest, x) = (&c.sb, &c.given_b, c.coarsest, &c.wide);
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

    /// A constant between paired values and `p`, of those that `candidate`
    /// accepts, that explains the whole difference in `f64`: times one number
    /// it gives what is expected. Where several do, one that becomes a number
    /// of few digits, as constants are; never one that is such a number and
    /// would become another.
    ///
    /// # Errors
    /// As of the interpreter.
    pub fn odd_factor(
        &mut self,
        p: &Pair,
        candidate: &dyn Fn(NodeId) -> bool,
    ) -> Result<Option<NodeId>, FlowError> {
        let mut any = None;
        let Some(c) = self.compare(p)? else { return Ok(None) };
        let f = self.runs.fb;
        // The difference from what is expected, everywhere.
        let far = |y: &[Vec<f64>]| -> Vec<f64> {
            let y = y.iter().flatten();
            y.zip(c.expected.iter().flatten()).map(|(y, x)| y - x).collect()
        };
        let size = |v: &[f64]| scalify_refute::compare::rms(v.iter().copied());
        let zero = far(&c.wide);
        if zero.iter().any(|x| !x.is_finite()) || size(&zero) == 0.0 {
            return Ok(None);
        }
        let mut tried: FxHashSet<scalify_ir::InstrId> = FxHashSet::default();
        for &k in &c.sb.nodes {
            let node = &f.nodes[k as usize];
            let constant = self.eb.module.instr(node.instr).opcode == Opcode::Constant;
            if !constant || !candidate(k) || !tried.insert(node.instr) {
                continue;
            }
            let at = |e: &mut Engine<'_>, by: f64| -> Result<Vec<f64>, FlowError> {
                let mut given = c.given_b.clone();
                for n in c.sb.nodes.iter().map(|&n| &f.nodes[n as usize]) {
                    let values = f.values.get(n.slots.0 as usize);
                    let Some(v) = values.filter(|_| n.instr == node.instr) else { continue };
                    given.insert(n.slots.0, v.iter().map(|t| times(t, by)).collect());
                }
                let y = evaluate(e, f, &c.sb, &given, &|_| Mode::Wide, None)?;
                Ok(y.get(&p.b).map(|y| far(&all_numbers(y))).unwrap_or_default())
            };
            let (mut by, mut last, step) = (1.0, zero.clone(), 1e-4);
            for _ in 0..4 {
                let next = at(self.eb, by * (1.0 + step))?;
                if next.len() != last.len() {
                    break;
                }
                let slope: Vec<f64> =
                    next.iter().zip(&last).map(|(n, l)| (n - l) / (by * step)).collect();
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let square = dot(&slope, &slope);
                if !square.is_finite() || square == 0.0 {
                    break;
                }
                by -= dot(&slope, &last) / square;
                let now = at(self.eb, by)?;
                let better = now.len() == zero.len() && size(&now) <= 0.3 * size(&last);
                last = now;
                // What paired values were rounded by stays.
                let left = size(&last) / size(&zero);
                let within = last
                    .iter()
                    .zip(c.bounds.iter().flatten())
                    .all(|(e, limit)| over(e.abs(), *limit) <= 1.0);
                if left <= 1e-4 || left <= 0.05 && within {
                    let near = (2.0 * left * (by - 1.0f64).abs()).clamp(1e-6, 1e-4);
                    let v = f.values.get(node.slots.0 as usize).and_then(|v| v.first());
                    let v = v.map(crate::bound::numbers).unwrap_or_default();
                    if v.iter().all(|x| few_digits(x * by, near)) {
                        return Ok(Some(k));
                    }
                    if any.is_none() && !v.iter().all(|x| few_digits(*x, 1e-6)) {
                        any = Some(k);
                    }
                    break;
                }
                if !better {
                    break;
                }
            }
        }
        Ok(any)
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

/// Relatively `tolerance` from a number of at most eight binary or three decimal
/// digits.
fn few_digits(x: f64, tolerance: f64) -> bool {
    if x == 0.0 || !x.is_finite() {
        return true;
    }
    let near = |y: f64| (x - y).abs() <= tolerance * x.abs();
    let binary = 2f64.powf(7.0 - x.abs().log2().floor());
    let decimal = 10f64.powf(2.0 - x.abs().log10().floor());
    [binary, decimal].iter().any(|s| near((x * s).round() / s))
}

/// Every element times a number.
fn times(t: &Tensor, by: f64) -> Tensor {
    let v = t.to_f64().iter().map(|x| x * by).collect();
    Tensor::from_vec(t.dtype, t.dims.iter().copied(), v).unwrap_or_else(|| t.clone())
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

pub(crate) fn over(e: f64, limit: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::few_digits;

    #[test]
    fn numbers_people_write() {
        for x in [1.0, 0.125, -3.0, 1e-5, 0.9, 0.999, 1e30, 0.1f32 as f64, 255.0, 0.0] {
            assert!(few_digits(x, 1e-6), "{x}");
        }
        for x in [1.0001, 0.12513, std::f64::consts::PI, 1.0 / 3.0, 4.0016] {
            assert!(!few_digits(x, 1e-6), "{x}");
        }
    }
}
