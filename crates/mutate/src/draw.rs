//! Random inputs for a pair, and the blocks of arrays that devices hold.

use crate::edit::encode;
use crate::random::Random;
use scalify_claim::{Claim, Placement, Selector};
use scalify_interp::{Tensor, Value};
use scalify_ir::{ArrayShape, DType, Module, Shape};
use scalify_prove::problem::{Leaf, Problem};

/// Kinds of draws, in the order in which they are made.
pub const KINDS: [&str; 6] = ["normal", "edges", "positive", "large", "small", "whole"];

/// Inputs of both programs.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Arguments of the baseline.
    pub base: Vec<Value>,
    /// Arguments per device.
    pub dist: Vec<Vec<Value>>,
}

/// The elements of `data` (row-major over `dims`, `w` entries each) that
/// `device` holds; `None` if the placement does not divide the sizes.
pub fn block<T: Copy>(
    data: &[T],
    dims: &[i64],
    w: usize,
    q: &Placement,
    device: u32,
) -> Option<Vec<T>> {
    if q.dims.len() != dims.len() {
        return None;
    }
    let mut local = Vec::new();
    let mut from = Vec::new();
    for (d, p) in dims.iter().zip(&q.dims) {
        if d % i64::from(p.tiles.max(1)) != 0 {
            return None;
        }
        let n = d / i64::from(p.tiles.max(1));
        from.push(n * i64::from(p.tile(device)));
        local.push(n);
    }
    let n: i64 = local.iter().product();
    let mut out = Vec::with_capacity(n as usize * w);
    for k in 0..n {
        let (mut at, mut rest, mut step) = (0, k, 1);
        for i in (0..dims.len()).rev() {
            at += (from[i] + rest % local[i]) * step;
            rest /= local[i];
            step *= dims[i];
        }
        let at = at as usize * w;
        out.extend_from_slice(data.get(at..at + w)?);
    }
    Some(out)
}

/// The declared inclusive range of an integer input of the baseline.
fn range(p: &Problem, claim: &Claim, leaf: &Leaf) -> Option<(i64, i64)> {
    let names: Vec<&str> = leaf.names.iter().map(String::as_str).collect();
    let other = p.pairs.iter().find(|q| q.base == Some(leaf.index));
    let other = other.and_then(|q| p.dist_inputs.get(q.dist));
    let mut out = None;
    for a in &claim.assume {
        let there = other.is_some_and(|o| {
            let n: Vec<&str> = o.names.iter().map(String::as_str).collect();
            matches!(a.selector, Selector::Name(_)) && a.selector.matches(o.index, &n)
        });
        if a.selector.matches(leaf.index, &names) || there {
            out = Some((a.lo, a.hi));
        }
    }
    out
}

fn element(t: DType, range: Option<(i64, i64)>, kind: usize, scale: f64, r: &mut Random) -> f64 {
    if t.is_float() {
        return match kind {
            2 => 0.1 + 1.9 * r.unit(),
            3 => 30.0 * r.normal(),
            4 => 1e-3 * r.normal(),
            5 => r.below(7) as f64 - 3.0,
            _ => scale * r.normal(),
        };
    }
    if t == DType::Pred {
        return r.below(2) as f64;
    }
    // Undeclared integers may have any value; small ones are likely indices.
    let whole = t.int_range().unwrap_or((0, 1));
    let (lo, hi) = match range {
        Some((lo, hi)) => (i128::from(lo), i128::from(hi)),
        None if kind == 1 || t.bits() > 32 => whole,
        None => (whole.0.max(-1), whole.1.min(9)),
    };
    let span = (hi - lo + 1).max(1) as u128;
    let any = lo + (u128::from(r.bits()) % span) as i128;
    let v = match kind {
        1 => [lo, hi, lo + i128::from(lo < hi), any][r.below(4)],
        _ => any,
    };
    v as f64
}

fn bytes(
    a: &ArrayShape,
    range: Option<(i64, i64)>,
    kind: usize,
    r: &mut Random,
) -> Option<Vec<u8>> {
    let n = a.elements()?;
    let scale = if kind == 1 { 10f64.powf(2.0 * r.unit() - 1.0) } else { 1.0 };
    let mut out = Vec::new();
    for _ in 0..n {
        if a.dtype.is_complex() {
            let part = a.dtype.complex_part()?;
            for _ in 0..2 {
                out.extend(encode(part, element(part, None, kind, scale, r))?);
            }
        } else {
            out.extend(encode(a.dtype, element(a.dtype, range, kind, scale, r))?);
        }
    }
    Some(out)
}

/// Puts leaves back into the tuples of the entry's parameters.
fn arguments(m: &Module, leaves: Vec<Value>) -> Vec<Value> {
    fn one(s: &Shape, it: &mut impl Iterator<Item = Value>) -> Value {
        match s {
            Shape::Tuple(t) => Value::Tuple(t.iter().map(|s| one(s, it)).collect()),
            _ => it.next().unwrap_or(Value::Token),
        }
    }
    let mut it = leaves.into_iter();
    m.entry_comp().params.iter().map(|&p| one(m.shape(p), &mut it)).collect()
}

/// Draws inputs of kind `kind` (an index into [`KINDS`]).
///
/// # Errors
/// A sentence part if an input has a type without an encoder, no counterpart
/// or an uneven placement.
pub fn draw(
    base: &Module,
    dist: &Module,
    p: &Problem,
    claim: &Claim,
    kind: usize,
    r: &mut Random,
) -> Result<Inputs, String> {
    let mut data: Vec<Vec<u8>> = Vec::new();
    let mut values = Vec::new();
    for l in &p.base_inputs {
        let Shape::Array(a) = &l.shape else {
            data.push(Vec::new());
            values.push(Value::Token);
            continue;
        };
        let b = bytes(a, range(p, claim, l), kind, r)
            .ok_or_else(|| format!("no values for {}", l.shape))?;
        let t = Tensor::from_bytes(a, &b).ok_or("no tensor")?;
        data.push(b);
        values.push(Value::Tensor(t));
    }
    let mut dist_in = Vec::new();
    for d in 0..p.devices as u32 {
        let mut leaves = Vec::new();
        for q in &p.pairs {
            let at = q.base.ok_or("an input without counterpart")?;
            let (Shape::Array(g), Shape::Array(l)) =
                (&p.base_inputs[at].shape, &p.dist_inputs[q.dist].shape)
            else {
                leaves.push(Value::Token);
                continue;
            };
            let v = match &q.placement {
                None => values[at].clone(),
                Some(q) => {
                    let w = g.dtype.literal_bytes();
                    let b = block(&data[at], &g.dims, w, q, d).ok_or("an uneven placement")?;
                    Value::Tensor(Tensor::from_bytes(l, &b).ok_or("a block of another size")?)
                }
            };
            leaves.push(v);
        }
        dist_in.push(arguments(dist, leaves));
    }
    Ok(Inputs { base: arguments(base, values), dist: dist_in })
}
