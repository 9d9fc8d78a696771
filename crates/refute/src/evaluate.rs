//! Runs both programs of a problem on the same inputs.

use crate::place;
use scalify_claim::Placement;
use scalify_interp::{Accumulate, RunError, RunOptions, Tensor, Value, run};
use scalify_ir::{Module, Shape};
use scalify_prove::problem::Problem;
use std::sync::Arc;
use std::time::Duration;

/// Limits of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Bytes of values.
    pub memory: u64,
    /// Wall time.
    pub time: Duration,
}

/// Array leaves of a result.
pub fn leaves(v: &Value) -> Vec<Tensor> {
    match v {
        Value::Tensor(t) => vec![t.clone()],
        Value::Tuple(v) => v.iter().flat_map(leaves).collect(),
        Value::Token => Vec::new(),
    }
}

/// Arguments of an entry computation from the array leaves of its inputs.
fn arguments(m: &Module, mut leaves: impl Iterator<Item = Option<Tensor>>) -> Option<Vec<Value>> {
    fn build(s: &Shape, it: &mut dyn Iterator<Item = Option<Tensor>>) -> Option<Value> {
        match s {
            Shape::Array(_) => it.next()?.map(Value::Tensor),
            Shape::Tuple(t) => {
                t.iter().map(|s| build(s, it)).collect::<Option<_>>().map(Value::Tuple)
            }
            Shape::Buffer(b) => build(b, it),
            Shape::Token | Shape::Opaque => {
                it.next()?;
                Some(Value::Token)
            }
        }
    }
    m.entry_comp().params.iter().map(|&p| build(m.shape(p), &mut leaves)).collect()
}

/// Number of replicas and partitions of a program on `devices` devices.
pub fn topology(m: &Module, p: &Problem, devices: usize) -> (usize, usize) {
    let replicas = usize::try_from(m.header.replica_count).unwrap_or(1).max(1);
    if p.replica_mode {
        (devices, 1)
    } else if devices.is_multiple_of(replicas) {
        (replicas, devices / replicas)
    } else {
        (1, devices)
    }
}

/// Inputs of a problem: per baseline leaf the global array, or, if both
/// programs take the devices' own values, one array per device.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// `[leaf][device]`; one entry per leaf unless the inputs are local.
    pub values: Vec<Vec<Tensor>>,
}

/// Per device the array leaves of the result.
pub type Results = Arc<Vec<Vec<Tensor>>>;

fn execute(
    m: &Module,
    args: Vec<Vec<Value>>,
    topology: (usize, usize),
    accumulate: Accumulate,
    limits: RunLimits,
    steps: Option<u64>,
) -> Result<Results, RunError> {
    let options = RunOptions {
        replicas: topology.0,
        partitions: topology.1,
        memory_limit: limits.memory,
        time_limit: Some(limits.time),
        step_limit: steps,
        accumulate,
        ..Default::default()
    };
    let out = run(m, None, &args, options)?;
    Ok(Arc::new(out.iter().map(leaves).collect()))
}

fn no_fit() -> RunError {
    RunError::Inputs("an input does not fit its parameter".into())
}

/// Runs the baseline: on one device, or on all if it is a program for many.
///
/// # Errors
/// As [`run`].
pub fn base(
    m: &Module,
    p: &Problem,
    x: &Inputs,
    accumulate: Accumulate,
    limits: RunLimits,
) -> Result<Results, RunError> {
    let args = base_arguments(m, p, x).ok_or_else(no_fit)?;
    let t = if p.base_spmd { topology(m, p, args.len()) } else { (1, 1) };
    execute(m, args, t, accumulate, limits, None)
}

/// Arguments of the baseline: of its one device, or of each.
pub fn base_arguments(m: &Module, p: &Problem, x: &Inputs) -> Option<Vec<Vec<Value>>> {
    let n = if p.base_spmd { p.devices as usize } else { 1 };
    let own = |(k, v): (usize, &Vec<Tensor>), d| v.get(p.holder(k, d)).or(v.first()).cloned();
    (0..n).map(|d| arguments(m, x.values.iter().enumerate().map(|kv| own(kv, d)))).collect()
}

/// Arguments of the distributed program, per device: the blocks that
/// `placements` (one per distributed input) say.
pub fn dist_arguments(
    m: &Module,
    p: &Problem,
    placements: &[Option<Placement>],
    x: &Inputs,
) -> Option<Vec<Vec<Value>>> {
    // Devices with the same block share it.
    let n = p.devices as usize;
    let mut per_leaf: Vec<Vec<Option<Tensor>>> = Vec::new();
    for (k, pair) in p.pairs.iter().enumerate() {
        let Some(v) = pair.base.and_then(|b| x.values.get(b)) else {
            per_leaf.push(vec![None; n]);
            continue;
        };
        let q = placements.get(k).and_then(Option::as_ref);
        let mut seen: Vec<(Vec<u32>, Tensor)> = Vec::new();
        let mut out = Vec::with_capacity(n);
        for d in 0..n {
            let own = pair.base.map_or(d, |b| p.holder(b, d));
            let t = v.get(own).or(v.first())?;
            let key: Vec<u32> = match q {
                Some(q) => q.dims.iter().map(|x| x.tile(d as u32)).collect(),
                None => Vec::new(),
            };
            let key = if v.len() > 1 { [key, vec![own as u32]].concat() } else { key };
            if let Some(hit) = seen.iter().find(|s| s.0 == key) {
                out.push(Some(hit.1.clone()));
                continue;
            }
            let b = place::block(t, q, d as u32)?;
            seen.push((key, b.clone()));
            out.push(Some(b));
        }
        per_leaf.push(out);
    }
    (0..n).map(|d| arguments(m, per_leaf.iter().map(|v| v[d].clone()))).collect()
}

/// Runs the distributed program.
///
/// # Errors
/// As [`run`].
pub fn dist(
    m: &Module,
    p: &Problem,
    placements: &[Option<Placement>],
    x: &Inputs,
    accumulate: Accumulate,
    limits: RunLimits,
) -> Result<Results, RunError> {
    dist_within(m, p, placements, x, accumulate, limits, None)
}

/// As [`dist`], in so many steps of the interpreter.
///
/// # Errors
/// As [`run`].
pub fn dist_within(
    m: &Module,
    p: &Problem,
    placements: &[Option<Placement>],
    x: &Inputs,
    accumulate: Accumulate,
    limits: RunLimits,
    steps: Option<u64>,
) -> Result<Results, RunError> {
    let args = dist_arguments(m, p, placements, x).ok_or_else(no_fit)?;
    execute(m, args, topology(m, p, p.devices as usize), accumulate, limits, steps)
}

/// As [`dist`], in `f64`; shows every value: device, instruction, value.
///
/// # Errors
/// As [`run`].
pub fn dist_traced(
    m: &Module,
    p: &Problem,
    placements: &[Option<Placement>],
    x: &Inputs,
    limits: RunLimits,
    see: &mut dyn FnMut(usize, scalify_ir::InstrId, &Value),
) -> Result<(), RunError> {
    let args = dist_arguments(m, p, placements, x).ok_or_else(no_fit)?;
    let (replicas, partitions) = topology(m, p, p.devices as usize);
    let options = RunOptions {
        replicas,
        partitions,
        memory_limit: limits.memory,
        time_limit: Some(limits.time),
        accumulate: Accumulate::F64,
        trace: Some(see),
        ..Default::default()
    };
    run(m, None, &args, options).map(|_| ())
}
