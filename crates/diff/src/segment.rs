//! What computes a value from given ones: the operations between, executed
//! again in their own types, in `f64`, or with roundings put in.

use crate::bound::{allowance, numbers};
use crate::flow::{Engine, Flow, FlowError, Mode, Node, NodeId, PerDevice, Slot, Sym};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_interp::{Tensor, Value};
use scalify_refute::random::Random;

/// Values of some slots.
pub(crate) type Known = FxHashMap<Slot, PerDevice>;
/// Nodes between a slot and values that are given, in the order of execution.
pub(crate) struct Segment {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) cut: Vec<Slot>,
}

pub(crate) fn segment(
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

pub(crate) fn all_numbers(v: &PerDevice) -> Vec<Vec<f64>> {
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
pub(crate) struct Noise<'n> {
    pub(crate) random: &'n mut Random,
    pub(crate) coarsest: f64,
    /// Allowances by node, worked out once.
    pub(crate) cache: &'n mut FxHashMap<NodeId, Vec<Vec<Vec<f64>>>>,
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
pub(crate) fn evaluate(
    e: &mut Engine<'_>,
    flow: &Flow,
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

pub(crate) fn operands(
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
pub(crate) fn spread(base: &[Vec<f64>], runs: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
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
