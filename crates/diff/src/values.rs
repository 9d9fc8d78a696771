//! Pairs of values that are the same numbers.
//!
//! In `f64` two ways to compute one value differ by far less than anything
//! else does, so that a value of the second program that no relation explains
//! is looked up among those of the first: whole, or one block of equal size on
//! each device. *Equal* values agree to [`EQUAL`] in all elements, *near* ones to
//! [`NEAR`] on average.

use crate::bound::{numbers, roundoff};
use crate::flow::{Flow, PerDevice, Slot};
use crate::pairing::{Basis, Pair, Places, Runs};
use scalify_interp::Tensor;
use scalify_ir::{InstrId, Module, Opcode};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Relative distance of elements of equal values.
pub const EQUAL: f64 = 1e-9;
/// Relative distance of near ones at most.
pub const NEAR: f64 = 0.3;
/// Relative distance of near ones that need nothing else to speak for them.
const CLEAR: f64 = 0.02;
/// Blocks of a value at most.
const MAX_BLOCKS: i64 = 64;
/// Elements of a value of the first program at most.
const MAX_ELEMENTS: usize = 1 << 20;
/// Candidates of one value that are looked at on all devices.
const MAX_CANDIDATES: usize = 12;
/// Elements looked at in all, over all candidates.
const MAX_WORK: usize = 1 << 30;

/// A value of the first program.
struct Known {
    slot: Slot,
    op: Opcode,
    data: Vec<f64>,
    /// Made of constants alone.
    fixed: bool,
}

/// Slots that are made of constants alone.
pub fn fixed(m: &Module, f: &Flow) -> Vec<bool> {
    let mut out: Vec<bool> = Vec::with_capacity(f.slots.len());
    for n in &f.nodes {
        use Opcode::*;
        let op = m.instr(n.instr).opcode;
        let free = matches!(op, Constant | Iota);
        let pure = !op.is_collective()
            && !matches!(op, Parameter | PartitionId | ReplicaId | Rng | RngBitGenerator)
            && !n.operands.is_empty();
        let all = free || pure && n.reads().iter().all(|&s| out[s as usize]);
        out.resize(n.slots.1 as usize, all);
    }
    out
}

/// Dimensions without those of size 1.
fn squeezed(dims: &[i64]) -> Vec<i64> {
    dims.iter().copied().filter(|&d| d != 1).collect()
}

/// Positions in a value of `global` dimensions of the elements of each block
/// of `local` ones; `None` if it is not made of such blocks.
fn blocks(global: &[i64], local: &[i64]) -> Option<Vec<Vec<u32>>> {
    let count = |d: &[i64]| d.iter().product::<i64>();
    let (n, all) = (count(local), count(global));
    if global.len() != local.len() {
        // The same elements in another shape.
        return (n == all).then(|| vec![(0..n as u32).collect()]);
    }
    let mut parts = 1i64;
    for (&g, &l) in global.iter().zip(local) {
        if l <= 0 || g % l != 0 {
            return None;
        }
        parts = parts.checked_mul(g / l)?;
    }
    if parts > MAX_BLOCKS {
        return None;
    }
    let mut out = Vec::with_capacity(parts as usize);
    for b in 0..parts {
        let mut at = vec![0i64; local.len()];
        let mut rest = b;
        for d in (0..local.len()).rev() {
            let k = global[d] / local[d];
            at[d] = rest % k * local[d];
            rest /= k;
        }
        let mut v = Vec::with_capacity(n as usize);
        for e in 0..n {
            let (mut rest, mut flat, mut stride) = (e, 0i64, 1i64);
            for d in (0..local.len()).rev() {
                flat += (at[d] + rest % local[d]) * stride;
                rest /= local[d];
                stride *= global[d];
            }
            v.push(flat as u32);
        }
        out.push(v);
    }
    Some(out)
}

/// A magnitude that nine tenths of the elements exceed: what differences of small
/// elements are held against, whatever large ones (masks) are.
fn typical(y: &[f64]) -> f64 {
    let mut v: Vec<f64> = y.iter().map(|x| x.abs()).filter(|x| *x > 0.0).collect();
    if v.is_empty() {
        return 0.0;
    }
    let k = v.len() / 10;
    *v.select_nth_unstable_by(k, f64::total_cmp).1
}

/// How far `y` is from the elements `at` of `x`: the root mean square of
/// `(x - y) / (|y| + size)`; 0 if no element is further than [`EQUAL`].
fn distance(x: &[f64], at: &[u32], y: &[f64], size: f64) -> f64 {
    let (mut sum, mut top) = (0f64, 0f64);
    for (&k, &y) in at.iter().zip(y) {
        let x = x.get(k as usize).copied().unwrap_or(f64::NAN);
        if x == y || x.is_nan() && y.is_nan() {
            continue;
        }
        let d = (x - y) / (y.abs() + size);
        if !d.is_finite() {
            return f64::INFINITY;
        }
        sum += d * d;
        top = top.max(d.abs());
    }
    if top <= EQUAL { 0.0 } else { (sum / y.len().max(1) as f64).sqrt().max(2.0 * EQUAL) }
}

/// Nothing to recognise: one number all over.
fn plain(v: &[Vec<f64>]) -> bool {
    let first = v.iter().flatten().next();
    v.iter().flatten().all(|x| Some(x) == first)
}

/// Are all operands of the operation that makes `b`, but constants, counterparts
/// of the operands of the same operation that makes `a`?
fn supported(r: &Runs<'_>, of: &[Option<Pair>], made: &[bool], b: usize, a: Slot) -> bool {
    let (x, y) = (r.fa.node_of(a), r.fb.node_of(b as u32));
    let (i, j) = (r.ma.instr(x.instr), r.mb.instr(y.instr));
    let (reads, own) = (x.reads(), y.reads());
    if i.opcode != j.opcode || reads.len() != own.len() {
        return false;
    }
    let count = |r: &[PerDevice], s: Slot| r[s as usize].first().map_or(0, Tensor::len);
    // As many terms: not a part of a sum, a maximum or a product.
    let whole = |s: Slot, t: Slot| {
        i.calls.is_empty()
            || count(r.wa, s) * count(r.wb, b as u32) == count(r.wb, t) * count(r.wa, a)
    };
    let sizes = |m: &Module, i: InstrId| crate::bound::terms(m, i, 1);
    if i.opcode == Opcode::Dot && sizes(r.ma, x.instr) != sizes(r.mb, y.instr) {
        return false;
    }
    let pair = |s: Slot| of[s as usize].as_ref().map(|p| p.a);
    let fits = |order: &mut dyn Iterator<Item = Slot>| {
        let mut any = false;
        let all = own.iter().zip(order).all(|(&t, s)| {
            any |= !made[t as usize];
            made[t as usize] || pair(t) == Some(s) && whole(s, t)
        });
        all && any
    };
    fits(&mut reads.iter().copied()) || own.len() == 2 && fits(&mut reads.iter().rev().copied())
}

/// A value that `b` is near to, laid out as an operand of what makes `b` is: the
/// operand's counterpart itself, or what the same operation makes of it.
fn in_place(r: &Runs<'_>, of: &[Option<Pair>], b: usize, y: &[Vec<f64>]) -> Option<(Pair, f64)> {
    let mut best: Option<(Pair, f64)> = None;
    let node = r.fb.node_of(b as u32);
    let op = r.mb.instr(node.instr).opcode;
    let all: Vec<u32> = (0..y.first().map_or(0, Vec::len) as u32).collect();
    for s in node.reads() {
        let Some(p) = of[s as usize].as_ref() else { continue };
        let dims = &r.wa[p.a as usize].first()?.dims;
        let made = r.fa.users[p.a as usize].iter().filter_map(|&u| {
            let n = r.fa.nodes.get(u as usize)?;
            let t = r.wa.get(n.slots.0 as usize)?.first()?;
            let same = r.ma.instr(n.instr).opcode == op && t.dims == *dims && t.dtype.is_float();
            same.then_some(n.slots.0)
        });
        for a in made.chain([p.a]) {
            let x: Vec<Vec<f64>> = r.wa[a as usize].iter().map(numbers).collect();
            let far = y.iter().enumerate().map(|(d, y)| match p.pick(&x, d, 1) {
                Some(x) if x.len() == y.len() => distance(&x, &all, y, typical(y)),
                _ => f64::INFINITY,
            });
            let far = far.fold(0f64, f64::max);
            if far <= NEAR && best.as_ref().is_none_or(|(_, e)| far < *e) {
                let coarsest = roundoff(r.fa.values[a as usize][0].dtype);
                let places = p.places.clone();
                let basis = Basis::Value;
                best = Some((Pair { a, b: b as u32, places, basis, coarsest }, far));
            }
        }
    }
    best
}

/// Blocks of one value on all devices.
struct Found {
    slot: Slot,
    op: Opcode,
    /// Per device.
    block: Vec<usize>,
    distance: f64,
}

/// Values of the first program by dimensions without those of size 1.
pub struct Values {
    by_dims: BTreeMap<Vec<i64>, Vec<Known>>,
    work: usize,
}

impl Values {
    /// All values of the first program that can be recognised.
    pub fn new(r: &Runs<'_>) -> Self {
        let mut by_dims: BTreeMap<Vec<i64>, Vec<Known>> = BTreeMap::new();
        let made = fixed(r.ma, r.fa);
        for (s, v) in r.wa.iter().enumerate() {
            let [t] = &v[..] else { continue };
            if !t.dtype.is_float() || t.is_empty() || t.len() > MAX_ELEMENTS {
                continue;
            }
            let op = r.ma.instr(r.fa.node_of(s as u32).instr).opcode;
            let data = numbers(t);
            let fixed = made[s];
            if !fixed && t.len() > 1 && plain(std::slice::from_ref(&data)) {
                continue;
            }
            let known = Known { slot: s as u32, op, data, fixed };
            by_dims.entry(squeezed(&t.dims)).or_default().push(known);
        }
        Values { by_dims, work: 0 }
    }

    /// The value of the first program that `y` (per device, of dimensions
    /// `dims`) is or, if `near`, almost is.
    fn find(
        &mut self,
        dims: &[i64],
        y: &[Vec<f64>],
        op: Opcode,
        fixed: bool,
        near: bool,
    ) -> Vec<(Found, Vec<Vec<u32>>)> {
        let limit = if near { NEAR } else { EQUAL };
        let local = squeezed(dims);
        let mut out: Vec<(Found, Vec<Vec<u32>>)> = Vec::new();
        let Some(y0) = y.first() else { return out };
        let sizes: Vec<f64> = y.iter().map(|y| typical(y)).collect();
        // A few elements decide most comparisons.
        let n = y0.len();
        let largest = (0..n).max_by(|&i, &j| y0[i].abs().total_cmp(&y0[j].abs())).unwrap_or(0);
        let probes = [largest, 0, n / 3, n / 2, n - 1];
        for (global, list) in &self.by_dims {
            let Some(blocks) = blocks(global, &local) else { continue };
            for a in list.iter().filter(|a| a.fixed == fixed) {
                let mut best: Option<(usize, f64)> = None;
                for (k, b) in blocks.iter().enumerate() {
                    self.work += probes.len();
                    let close = probes.iter().all(|&p| {
                        let (x, y) = (a.data[b[p] as usize], y0[p]);
                        x == y || (x - y).abs() <= 3.0 * limit * (y.abs() + sizes[0])
                    });
                    if !close {
                        continue;
                    }
                    self.work += n;
                    let d = distance(&a.data, b, y0, sizes[0]);
                    if d <= limit && best.is_none_or(|(_, e)| d < e) {
                        best = Some((k, d));
                    }
                }
                if let Some((k, d)) = best {
                    let f = Found { slot: a.slot, op: a.op, block: vec![k], distance: d };
                    out.push((f, blocks.clone()));
                }
            }
        }
        out.sort_by(|x, y| x.0.distance.total_cmp(&y.0.distance));
        out.truncate(MAX_CANDIDATES);
        let by_slot = |s: u32| self.by_dims.values().flatten().find(|k| k.slot == s);
        out.retain_mut(|(f, blocks)| {
            let Some(a) = by_slot(f.slot) else { return false };
            for (d, y) in y.iter().enumerate().skip(1) {
                let all = blocks.iter().map(|b| distance(&a.data, b, y, sizes[d])).enumerate();
                let Some((k, e)) = all.min_by(|x, y| x.1.total_cmp(&y.1)) else { return false };
                if e > limit {
                    return false;
                }
                f.block.push(k);
                f.distance = f.distance.max(e);
            }
            true
        });
        // The nearest first; of equally near ones the same operation, the first.
        out.sort_by(|(x, _), (y, _)| {
            let same = (x.op != op).cmp(&(y.op != op));
            x.distance.total_cmp(&y.distance).then(same).then(x.slot.cmp(&y.slot))
        });
        out
    }

    /// Is something else as near as the first of `found`, and another value?
    fn ambiguous(&self, found: &[(Found, Vec<Vec<u32>>)], op: Opcode) -> bool {
        let by_slot = |s: u32| self.by_dims.values().flatten().find(|k| k.slot == s);
        let same = |x: &Found, y: &Found, b: &[Vec<u32>], c: &[Vec<u32>]| {
            let (Some(u), Some(v)) = (by_slot(x.slot), by_slot(y.slot)) else { return false };
            x.block.iter().zip(&y.block).all(|(&i, &j)| {
                let w: Vec<f64> = c[j].iter().map(|&k| v.data[k as usize]).collect();
                distance(&u.data, &b[i], &w, typical(&w)) <= EQUAL
            })
        };
        let Some(((f, b), rest)) = found.split_first() else { return false };
        rest.iter().any(|(g, c)| {
            g.distance < 3.0 * f.distance && !same(f, g, b, c) && (g.op == op || f.op != op)
        })
    }

    /// Pairs the values of the second program that are in no pair: equal
    /// ones, and near ones if `near`.
    pub fn pair(&mut self, r: &Runs<'_>, of: &mut [Option<Pair>], near: bool) {
        let made = fixed(r.mb, r.fb);
        for b in 0..of.len() {
            if of[b].is_some() || self.work > MAX_WORK {
                continue;
            }
            let v = &r.wb[b];
            let Some(t) = v.first().filter(|t| t.dtype.is_float() && !t.is_empty()) else {
                continue;
            };
            let op = r.mb.instr(r.fb.node_of(b as u32).instr).opcode;
            if matches!(op, Opcode::Constant | Opcode::Parameter) {
                continue;
            }
            let y: Vec<Vec<f64>> = v.iter().map(numbers).collect();
            let all = plain(&y);
            if all && (t.len() > 1 && !made[b] || y[0].first() == Some(&0.0)) {
                continue;
            }
            let found = self.find(&t.dims, &y, op, made[b], near && !(all && made[b]));
            let nearest = found.first().map_or(f64::INFINITY, |x| x.0.distance);
            if nearest > EQUAL && !made[b] {
                let limit = if near { 3.0 * nearest } else { EQUAL };
                if let Some((p, _)) = in_place(r, of, b, &y).filter(|x| x.1 <= limit) {
                    of[b] = Some(p);
                    continue;
                }
            }
            // What is summed over devices has operands without counterparts.
            let certain = nearest <= EQUAL
                || nearest <= CLEAR
                    && op.is_collective()
                    && t.len() > 1
                    && !self.ambiguous(&found, op);
            let chosen = found.iter().find(|(f, _)| {
                certain || f.distance <= 3.0 * nearest && supported(r, of, &made, b, f.slot)
            });
            let Some((f, blocks)) = chosen else { continue };
            if t.len() == 1 && !made[b] && f.op != op && f.distance <= EQUAL {
                continue;
            }
            let coarsest = roundoff(r.fa.values[f.slot as usize][0].dtype);
            let places: Option<Places> = (blocks.len() > 1).then(|| {
                let one = |&k: &usize| blocks[k].iter().map(|&e| (0u32, e)).collect();
                Rc::new(f.block.iter().map(one).collect())
            });
            of[b] = Some(Pair { a: f.slot, b: b as u32, places, basis: Basis::Value, coarsest });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_row_major() {
        // A 2 x 4 array in blocks of 2 x 2, and of 1 x 4.
        assert_eq!(blocks(&[2, 4], &[2, 2]), Some(vec![vec![0, 1, 4, 5], vec![2, 3, 6, 7]]));
        assert_eq!(blocks(&[2, 4], &[1, 4]), Some(vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]));
        // The same elements in another shape; no whole number of blocks.
        assert_eq!(blocks(&[2, 2], &[4]), Some(vec![vec![0, 1, 2, 3]]));
        assert_eq!(blocks(&[4], &[3]), None);
        assert_eq!(blocks(&[1 << 20], &[1]), None);
    }

    #[test]
    fn masks_do_not_hide_what_differs() {
        let mask = [-1e30; 8];
        let with = |x: f64| [&mask[..], &[x, 1.0, 2.0]].concat();
        let (x, y) = (with(0.5), with(0.25));
        let at: Vec<u32> = (0..11).collect();
        assert!(distance(&x, &at, &y, typical(&y)) > EQUAL);
        assert_eq!(distance(&x, &at, &x, typical(&x)), 0.0);
        // Rounding in f64 is no difference.
        let z: Vec<f64> = x.iter().map(|v| v * (1.0 + 4e-16)).collect();
        assert_eq!(distance(&z, &at, &x, typical(&x)), 0.0);
        assert!(distance(&[f64::NAN], &[0], &[1.0], 1.0).is_infinite());
        assert!(distance(&[], &[0], &[1.0], 1.0).is_infinite());
    }
}
