//! Which values an input may take: declared ranges, and for integers that
//! nothing is declared of, the range in which every index they form is valid.
//! Integers that nothing but arithmetic uses may be negative.
//!
//! A difference outside that range (a `take` that fills NaN against a masked
//! lookup that gives 0) is a missing precondition, no counterexample.

use rustc_hash::FxHashMap;
use scalify_claim::Claim;
use scalify_interp::Tensor;
use scalify_ir::{ArrayShape, Attrs, CompId, DType, InstrId, Module, Opcode, Shape};
use scalify_prove::problem::Problem;

use crate::random::Random;

/// Values of one baseline input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// Any finite float.
    Float,
    /// `pred`.
    Bool,
    /// Integers of the inclusive range.
    Int(i64, i64),
    /// Complex numbers.
    Complex,
}

/// The domain of every leaf of the baseline's inputs.
pub fn domains(base: &Module, p: &Problem, claim: &Claim) -> Vec<Domain> {
    let mut least: FxHashMap<usize, i64> = FxHashMap::default();
    index_extents(base, &mut |leaf, n| {
        let e = least.entry(leaf).or_insert(n);
        *e = (*e).min(n);
    });
    p.base_inputs
        .iter()
        .map(|l| {
            let Shape::Array(a) = &l.shape else { return Domain::Float };
            if a.dtype.is_complex() {
                return Domain::Complex;
            }
            if a.dtype.is_float() {
                return Domain::Float;
            }
            let Some((lo, hi)) = a.dtype.int_range() else { return Domain::Bool };
            let names: Vec<&str> = l.names.iter().map(String::as_str).collect();
            let mut range = None;
            for x in &claim.assume {
                let other = p.pairs.iter().find(|q| q.base == Some(l.index));
                let hit = x.selector.matches(l.index, &names)
                    || other.is_some_and(|q| {
                        let d = &p.dist_inputs[q.dist];
                        let n: Vec<&str> = d.names.iter().map(String::as_str).collect();
                        matches!(x.selector, scalify_claim::Selector::Name(_))
                            && x.selector.matches(d.index, &n)
                    });
                if hit {
                    range = Some((x.lo, x.hi));
                }
            }
            let (a, b) = range.unwrap_or_else(|| match least.get(&l.index) {
                Some(&n) => (0, (n - 1).max(0)),
                None if arithmetic(base, l.index) => (-9, 9),
                None => (0, 3),
            });
            let cut = |x: i64| i128::from(x).clamp(lo, hi) as i64;
            Domain::Int(cut(a), cut(b))
        })
        .collect()
}

/// Whether arithmetic and data movement of the entry alone use what is computed
/// from a leaf of the inputs. No index, count, order or state
/// of a generator, which may not be meant to be negative, depends on it, and
/// nothing is called with it.
fn arithmetic(m: &Module, leaf: usize) -> bool {
    let mut from = None;
    let mut left = leaf;
    for &p in &m.entry_comp().params {
        let n = m.shape(p).leaves().len();
        if left < n {
            from = Some((p, n));
            break;
        }
        left -= n;
    }
    // Part of a tuple is not told apart from the rest.
    let Some((p, 1)) = from else { return false };
    let plain = |op: Opcode| {
        use Opcode::*;
        let arithmetic = matches!(
            op,
            Abs | Negate
                | Sign
                | Not
                | Add
                | Subtract
                | Multiply
                | Divide
                | Remainder
                | Maximum
                | Minimum
                | And
                | Or
                | Xor
                | ShiftLeft
                | ShiftRightArithmetic
                | ShiftRightLogical
                | Compare
                | Select
                | Clamp
                | Convert
                | Dot
        );
        let moves = matches!(
            op,
            Reshape
                | Transpose
                | Broadcast
                | Slice
                | Concatenate
                | Reverse
                | Copy
                | Bitcast
                | Tuple
        );
        arithmetic || moves
    };
    let mut reached = vec![false; m.instrs.len()];
    reached[p.0 as usize] = true;
    // Instructions of a computation come after their operands.
    m.entry_comp().instrs.iter().all(|&x| {
        let i = m.instr(x);
        let hit = i.operands.iter().any(|o| reached[o.0 as usize]);
        reached[x.0 as usize] |= hit;
        !hit || plain(i.opcode) && i.calls.is_empty()
    })
}

/// Calls `f(leaf, extent)` for every dimension that an integer entry input
/// may index, or may be compared with the positions of.
fn index_extents(m: &Module, f: &mut dyn FnMut(usize, i64)) {
    // Per instruction: the leaves whose integers reach it.
    let mut reach: Vec<Vec<u32>> = vec![Vec::new(); m.instrs.len()];
    let mut leaf = 0u32;
    for &p in &m.entry_comp().params {
        let n = m.shape(p).leaves().len() as u32;
        let int = m.shape(p).leaves().iter().any(|s| s.dtype().is_some_and(DType::is_int));
        if int {
            reach[p.0 as usize].extend(leaf..leaf + n);
        }
        leaf += n;
    }
    // Callees come before callers: a few sweeps carry values through calls.
    for _ in 0..4 {
        let mut changed = false;
        for c in (0..m.comps.len()).rev() {
            changed |= sweep(m, CompId(c as u32), &mut reach);
        }
        if !changed {
            break;
        }
    }
    let dims = |x: InstrId| m.array(x).map(|a| a.dims.clone()).unwrap_or_default();
    for i in &m.instrs {
        let from = |x: usize| i.operands.get(x).map(|o| &reach[o.0 as usize][..]);
        let mut hit = |leaves: Option<&[u32]>, n: i64| {
            for &l in leaves.unwrap_or_default() {
                f(l as usize, n.max(1));
            }
        };
        match (&i.attrs, i.opcode) {
            (Attrs::Gather(g), Opcode::Gather) => {
                let d = dims(i.operands[0]);
                for &k in &g.start_index_map {
                    if let (Some(n), Some(w)) = (d.get(k as usize), g.slice_sizes.get(k as usize)) {
                        hit(from(1), n - w + 1);
                    }
                }
            }
            (Attrs::Scatter(s), Opcode::Scatter) => {
                let n = i.operands.len().saturating_sub(1) / 2;
                let d = i.operands.first().map(|&x| dims(x)).unwrap_or_default();
                for &k in &s.scatter_dims_to_operand_dims {
                    if let Some(e) = d.get(k as usize) {
                        hit(from(n), *e);
                    }
                }
            }
            (Attrs::DynamicSlice(w), Opcode::DynamicSlice) => {
                let d = dims(i.operands[0]);
                for k in 0..d.len().min(w.len()) {
                    hit(from(k + 1), d[k] - w[k] + 1);
                }
            }
            (_, Opcode::DynamicUpdateSlice) if i.operands.len() >= 2 => {
                let (d, w) = (dims(i.operands[0]), dims(i.operands[1]));
                for k in 0..d.len().min(w.len()) {
                    hit(from(k + 2), d[k] - w[k] + 1);
                }
            }
            (_, Opcode::Compare) if i.operands.len() == 2 => {
                for (a, b) in [(0, 1), (1, 0)] {
                    if let Some(n) = iota_extent(m, i.operands[b], 6) {
                        hit(from(a), n);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Size of the dimension that an iota, seen through data movement, counts.
fn iota_extent(m: &Module, x: InstrId, depth: u32) -> Option<i64> {
    let i = m.instr(x);
    match (&i.attrs, i.opcode) {
        (Attrs::Iota(d), Opcode::Iota) => m.array(x)?.dims.get(*d as usize).copied(),
        (_, Opcode::Broadcast | Opcode::Reshape | Opcode::Transpose | Opcode::Convert)
            if depth > 0 =>
        {
            iota_extent(m, *i.operands.first()?, depth - 1)
        }
        _ => None,
    }
}

/// Carries reaching leaves through one computation; true if any set grew.
fn sweep(m: &Module, c: CompId, reach: &mut [Vec<u32>]) -> bool {
    let mut changed = false;
    fn add(reach: &mut [Vec<u32>], to: InstrId, from: &[u32]) -> bool {
        let set = &mut reach[to.0 as usize];
        let n = set.len();
        for x in from {
            if !set.contains(x) && set.len() < 64 {
                set.push(*x);
            }
        }
        set.len() > n
    }
    for &id in &m.comp(c).instrs {
        let i = m.instr(id);
        // A gathered or sliced array of integers is one of those integers;
        // counts and flags are not.
        let skip = matches!(i.opcode, Opcode::Compare | Opcode::Constant | Opcode::Iota);
        let float = m.dtype(id).is_some_and(|d| !d.is_int());
        for k in 0..i.operands.len() {
            let set = reach[i.operands[k].0 as usize].clone();
            if set.is_empty() {
                continue;
            }
            if !(skip || float) {
                changed |= add(reach, id, &set);
            }
            for &callee in &i.calls {
                let params = &m.comp(callee).params;
                let to = match i.opcode {
                    Opcode::Conditional if k == 0 => None,
                    Opcode::Conditional | Opcode::While => params.first(),
                    _ => params.get(k),
                };
                if let Some(&to) = to {
                    changed |= add(reach, to, &set);
                }
            }
        }
        for &callee in &i.calls {
            let root = m.comp(callee).root;
            let set = reach[root.0 as usize].clone();
            if !set.is_empty() && !skip && !float {
                changed |= add(reach, id, &set);
            }
        }
    }
    changed
}

/// How inputs are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Small multiples of 1/4, signed, none zero: sums and products of few
    /// are exact, and a counterexample is easy to read.
    Simple,
    /// Standard normal.
    Normal,
    /// Uniform in [1/2, 3/2).
    Positive,
    /// Normal, scaled by 2^-8: shows additive constants.
    Small,
    /// Normal, scaled by 8.
    Large,
    /// Mixed: each input positive or signed, at a scale of its own.
    Mixed,
    /// Normal; integers at the ends of their range half of the time.
    Ends,
}

/// Floats drawn one by one, of one tensor; more are the same again. A prime, so
/// that no row, block or shard of a large tensor is the next one's.
pub(crate) const PERIOD: usize = 65_521;

/// A tensor of this domain.
pub fn draw(a: &ArrayShape, d: Domain, profile: Profile, r: &mut Random) -> Option<Tensor> {
    let n = usize::try_from(a.dims.iter().product::<i64>()).ok()?;
    let (positive, scale) = match profile {
        Profile::Simple | Profile::Normal | Profile::Ends => (false, 1.0),
        Profile::Positive => (true, 1.0),
        Profile::Small => (false, 1.0 / 256.0),
        Profile::Large => (false, 8.0),
        Profile::Mixed => {
            (r.bits().is_multiple_of(2), [1.0 / 64.0, 0.25, 1.0, 2.0][r.int(0, 3) as usize])
        }
    };
    let float = |r: &mut Random| match profile {
        Profile::Simple => {
            let k = r.int(1, 8) as f64 / 4.0;
            if r.bits().is_multiple_of(2) { k } else { -k }
        }
        _ if positive => scale * (0.5 + r.unit()),
        _ => scale * r.normal(),
    };
    match d {
        Domain::Float => {
            let mut v = Vec::with_capacity(n);
            v.extend((0..n.min(PERIOD)).map(|_| float(r)));
            while v.len() < n {
                v.extend_from_within(..(n - v.len()).min(PERIOD));
            }
            from_f64(a, v)
        }
        Domain::Bool => {
            let v = (0..n).map(|_| (r.bits() % 2) as u8).collect::<Vec<_>>();
            Tensor::from_bytes(&plain(a), &v)
        }
        Domain::Int(lo, hi) => {
            // Distinct values where there are enough: repeated ids hide
            // which of them was taken.
            let w = a.dtype.literal_bytes();
            let mut v = Vec::with_capacity(n * w);
            let mut one = |x: i64| v.extend_from_slice(&x.to_le_bytes()[..w.min(8)]);
            match profile {
                Profile::Large => (0..n).for_each(|_| one(hi)),
                Profile::Small => (0..n).for_each(|_| one(lo)),
                Profile::Ends => (0..n).for_each(|_| match r.int(0, 7) {
                    0 | 1 => one(lo),
                    2 | 3 => one(hi),
                    _ => one(r.int(lo, hi)),
                }),
                _ => (0..n).for_each(|_| one(r.int(lo, hi))),
            }
            Tensor::from_bytes(&plain(a), &v)
        }
        Domain::Complex => {
            let mut v = Vec::with_capacity(n * a.dtype.literal_bytes());
            for _ in 0..2 * n {
                let x = float(r);
                if a.dtype == DType::C64 {
                    v.extend_from_slice(&(x as f32).to_le_bytes());
                } else {
                    v.extend_from_slice(&x.to_le_bytes());
                }
            }
            Tensor::from_bytes(&plain(a), &v)
        }
    }
}

fn plain(a: &ArrayShape) -> ArrayShape {
    ArrayShape::new(a.dtype, a.dims.iter().copied())
}

/// Floats rounded to the element type.
pub(crate) fn from_f64(a: &ArrayShape, v: Vec<f64>) -> Option<Tensor> {
    let wide = Tensor::from_vec(a.dtype, a.dims.iter().copied(), v)?;
    Tensor::from_bytes(&plain(a), &wide.to_bytes())
}
