//! Counts named faults; shared by the tests and `examples/attribution.rs`.

#![allow(clippy::print_stdout)]

use crate::plant::{KINDS, Planted, plant};
use scalify_claim::Claim;
use scalify_corpus::{Case, find, module};
use scalify_diff::bound::{allowance, numbers, roundoff};
use scalify_diff::diff::{Options, diff};
use scalify_diff::flow::{Engine, Flow, Limits, Mode, NodeId};
use scalify_interp::Value;
use scalify_ir::{CompId, Module, Opcode};
use scalify_prove::problem;
use scalify_refute::domain::Profile;
use scalify_refute::evaluate;
use scalify_refute::random::Random;
use std::path::Path;
use std::time::Duration;

/// Counts of faults.
#[derive(Default, Debug)]
pub(crate) struct Planting {
    pub(crate) planted: usize,
    /// Of these, above the bound where they were planted.
    pub(crate) above: usize,
    /// Of these, named.
    pub(crate) named: usize,
    /// Of those above, another was named.
    pub(crate) other: usize,
    /// Below the bound and named.
    pub(crate) below_named: usize,
}

impl Planting {
    pub(crate) fn add(&mut self, o: &Planting) {
        self.planted += o.planted;
        self.above += o.above;
        self.named += o.named;
        self.other += o.other;
        self.below_named += o.below_named;
    }
}

/// The modules of a case: baseline and distributed.
pub(crate) fn pair_modules(dir: &Path) -> anyhow::Result<Vec<(&'static str, Module, Claim)>> {
    let claim = match dir.join("case.json").exists() {
        true => Case::read(dir).and_then(|c| c.claim()).unwrap_or_default(),
        false => Claim::default(),
    };
    let mut out = Vec::new();
    for (form, file) in [
        ("base", "base.hlo.txt"),
        ("base", "before.hlo.txt"),
        ("base", "base.input.hlo.txt"),
        ("dist", "dist.hlo.txt"),
        ("dist", "shardy.post_spmd.hlo.txt"),
    ] {
        let Some(p) = find(dir, file) else { continue };
        let Ok(m) = module(&p) else { continue };
        let c = if form == "base" {
            Claim { assume: claim.assume.clone(), ..Claim::default() }
        } else {
            Claim { outputs: Vec::new(), ..claim.clone() }
        };
        out.push((form, m, c));
    }
    Ok(out)
}

fn small(m: &Module) -> bool {
    let n: f64 = m
        .instrs
        .iter()
        .flat_map(|i| m.shapes[i.shape.0 as usize].leaves())
        .filter_map(|s| s.as_array())
        .map(|a| a.dims.iter().map(|&d| d as f64).product::<f64>())
        .sum();
    n < 3e6
}

/// Plants `n` faults of each kind and counts how many `diff` names; against
/// the module itself, or against `base`.
pub(crate) fn faults(
    m: &Module,
    base: Option<&Module>,
    claim: &Claim,
    n: usize,
    seed: u64,
    label: &str,
    verbose: bool,
) -> Vec<(&'static str, Planting)> {
    let mut out = Vec::new();
    if !small(m) {
        return out;
    }
    let p = problem::setup(m, m, claim);
    if !p.errors.is_empty() || p.devices > 32 {
        return out;
    }
    let Ok(x) = scalify_diff::diff::draw(m, &p, claim, Profile::Normal, seed) else { return out };
    let Some(args) = scalify_diff::diff::base_arguments(m, &p, &x) else { return out };
    let t = if p.base_spmd { evaluate::topology(m, &p, p.devices as usize) } else { (1, 1) };
    let limits = Limits { time: Duration::from_secs(20), ..Limits::default() };
    let Ok(mut e) = Engine::new(m, t, limits) else { return out };
    let Ok(f) = e.flow(&args, limits) else { return out };
    let hash = label.bytes().fold(seed, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut r = Random::new(hash);
    let comp_of = |i: scalify_ir::InstrId| {
        m.comps.iter().position(|c| c.instrs.contains(&i)).map(|k| CompId(k as u32))
    };
    for kind in KINDS {
        let mut count = Planting::default();
        for _ in 0..40 * n {
            if count.planted >= n {
                break;
            }
            let k = r.int(0, f.nodes.len() as i64 - 1) as usize;
            let node = &f.nodes[k];
            if m.instr(node.instr).opcode == Opcode::Parameter {
                continue;
            }
            let Some(comp) = comp_of(node.instr) else { continue };
            let Some(fault) = plant(m, comp, node.instr, kind, &mut r) else { continue };
            let Some(above) = above(m, &mut e, &f, node.instr, &fault, &args, t) else { continue };
            let o = Options { samples: 0, compare: Duration::from_secs(60), ..Options::default() };
            let d = match base {
                Some(base) => diff(base, &fault.m, claim, None, &o),
                None => diff(m, &fault.m, claim, Some(x.clone()), &o),
            };
            let Ok(d) = d else { continue };
            count.planted += 1;
            let named = d
                .first
                .as_ref()
                .map(|b| fault.m.name_of(d.b.nodes[b.node as usize].instr).to_owned());
            let right = named.as_ref().is_some_and(|n| fault.names.contains(n));
            if above {
                count.above += 1;
                count.named += usize::from(right);
                count.other += usize::from(!right && named.is_some());
            } else {
                count.below_named += usize::from(named.is_some());
            }
            if verbose && !right && (above || named.is_some()) {
                let row = d.first.as_ref().and_then(|b| b.row).map(|k| &d.rows[k]);
                println!(
                    "{label}: {} at {} above {above}: named {named:?} ({:?} {:?}), planted {:?}",
                    fault.what,
                    m.name_of(node.instr),
                    row.map(|r| (r.kind, r.pair.basis, r.ratio)),
                    row.map(|r| &r.worst),
                    fault.names
                );
            }
        }
        out.push((kind, count));
    }
    out
}

/// Is the fault above what rounding allows the operation, at some execution?
fn above(
    m: &Module,
    e: &mut Engine<'_>,
    f: &Flow,
    instr: scalify_ir::InstrId,
    fault: &Planted,
    args: &[Vec<Value>],
    topology: (usize, usize),
) -> Option<bool> {
    let limits = Limits { time: Duration::from_secs(20), ..Limits::default() };
    let mut g = Engine::new(&fault.m, topology, limits).ok()?;
    let h = g.flow(args, limits).ok()?;
    // The first execution: what comes before it is the same in both.
    let old = *f.index.get(&(instr, 0))?;
    let new = *h.index.get(&(fault.result, 0))?;
    let node = &f.nodes[old as usize];
    let devices = e.devices;
    let ops: Vec<Vec<Value>> = operands(f, old, devices)?;
    let wide = e.step(node.instr, ops.clone(), Mode::Wide).ok()?;
    let own = f.values.get(node.slots.0 as usize..node.slots.1 as usize)?;
    let allowed = allowance(e, node, &ops, &wide, 1.0).ok()?;
    let (s, _) = h.nodes[new as usize].slots;
    let got = h.values.get(s as usize)?;
    let d = m.dtype(node.instr)?;
    for k in 0..devices {
        let x = numbers(wide.first()?.get(k)?);
        let y = numbers(own.first()?.get(k)?);
        let z = numbers(got.get(k)?);
        for i in 0..x.len() {
            let limit =
                2.0 * allowed[0][k][i] + 4.0 * (y[i] - x[i]).abs() + 2.0 * roundoff(d) * x[i].abs();
            if (z[i] - x[i]).abs() > limit {
                return Some(true);
            }
        }
    }
    Some(false)
}

fn operands(f: &Flow, node: NodeId, devices: usize) -> Option<Vec<Vec<Value>>> {
    use scalify_diff::flow::Sym;
    fn one(f: &Flow, s: &Sym, n: usize) -> Vec<Value> {
        match s {
            Sym::Slot(x) => f.values[*x as usize].iter().cloned().map(Value::Tensor).collect(),
            Sym::Token => vec![Value::Token; n],
            Sym::Tuple(t) => {
                let p: Vec<Vec<Value>> = t.iter().map(|s| one(f, s, n)).collect();
                (0..n).map(|d| Value::Tuple(p.iter().map(|p| p[d].clone()).collect())).collect()
            }
        }
    }
    Some(f.nodes.get(node as usize)?.operands.iter().map(|s| one(f, s, devices)).collect())
}
