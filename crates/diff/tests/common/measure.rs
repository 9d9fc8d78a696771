//! Counts named faults; shared by the tests and `examples/attribution.rs`.

#![allow(clippy::print_stdout)]

use crate::plant::{KINDS, Planted, plant};
use scalify_claim::Claim;
use scalify_corpus::{Case, find, module};
use scalify_diff::analyze::{Analyzer, Compared};
use scalify_diff::diff::{Options, Prepared, diff, prepare};
use scalify_diff::flow::{Engine, Limits, NodeId, Slot};
use scalify_diff::pairing::{Pair, Pairs, Runs};
use scalify_diff::values::fixed;
use scalify_ir::{CompId, InstrId, Module, Opcode};
use scalify_refute::random::Random;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// Counts of faults.
#[derive(Default, Debug)]
pub(crate) struct Planting {
    pub(crate) planted: usize,
    /// Of these, above the bound of a pair.
    pub(crate) above: usize,
    /// Of these, changes of the function that change no output over the
    /// reals; they count for nothing else.
    pub(crate) inert: usize,
    /// Of the others above, named.
    pub(crate) named: usize,
    /// Of those above, another was named.
    pub(crate) other: usize,
    /// Below the bound and named.
    pub(crate) below_named: usize,
    /// Below the bound and another named.
    pub(crate) below_other: usize,
}

impl Planting {
    pub(crate) fn add(&mut self, o: &Planting) {
        self.planted += o.planted;
        self.above += o.above;
        self.named += o.named;
        self.inert += o.inert;
        self.other += o.other;
        self.below_named += o.below_named;
        self.below_other += o.below_other;
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

/// Plants `n` faults of each kind in `m` and counts how many `diff` names,
/// against the module itself or against `base`. A fault is *above the bound* if,
/// at a pair of values of the two programs without it, what it makes of the
/// first program's values is further from the expected value than the bound
/// there.
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
    let base = base.unwrap_or(m);
    if !small(m) || !small(base) {
        return out;
    }
    let o = Options { seed, samples: 0, compare: Duration::from_secs(60), ..Options::default() };
    let Ok(right) = prepare(base, m, claim, None, &o) else { return out };
    if right.problem.devices > 32 {
        return out;
    }
    let inputs = right.inputs.clone();
    let mut oracle = Oracle::new(right);
    let hash = label.bytes().fold(seed, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut r = Random::new(hash);
    let comp_of =
        |i: InstrId| m.comps.iter().position(|c| c.instrs.contains(&i)).map(|k| CompId(k as u32));
    for kind in KINDS {
        let mut count = Planting::default();
        for _ in 0..40 * n {
            if count.planted >= n {
                break;
            }
            let k = r.int(0, oracle.p.fb.nodes.len() as i64 - 1) as usize;
            let instr = oracle.p.fb.nodes[k].instr;
            if m.instr(instr).opcode == Opcode::Parameter {
                continue;
            }
            let Some(comp) = comp_of(instr) else { continue };
            let Some(fault) = plant(m, comp, instr, kind, &mut r) else { continue };
            let Some((above, at)) = oracle.above(instr, &fault) else { continue };
            let Ok(d) = diff(base, &fault.m, claim, Some(inputs.clone()), &o) else { continue };
            count.planted += 1;
            let named = d
                .first
                .as_ref()
                .map(|b| fault.m.name_of(d.b.nodes[b.node as usize].instr).to_owned());
            let inert = above && matches!(kind, "ulp" | "constant") && {
                let p = prepare(base, &fault.m, claim, Some(inputs.clone()), &o);
                p.is_ok_and(|p| !p.apart)
            };
            let right = named.as_ref().is_some_and(|n| fault.names.contains(n));
            if inert {
                count.inert += 1;
            } else if above {
                count.above += 1;
                count.named += usize::from(right);
                count.other += usize::from(!right && named.is_some());
            } else {
                count.below_named += usize::from(right);
                count.below_other += usize::from(!right && named.is_some());
            }
            if verbose && !right && (above || named.is_some()) {
                let row = d.first.as_ref().and_then(|b| b.row).map(|k| &d.rows[k]);
                println!(
                    "{label}: {} at {} above {above} inert {inert} ({at}): named {named:?} ({:?} {:?}), planted {:?}",
                    fault.what,
                    m.name_of(instr),
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

/// The programs without faults: what is above the bound rests on their pairs.
struct Oracle<'m> {
    p: Prepared<'m>,
    /// Pairs compared so far, by slot.
    compared: HashMap<Slot, Option<Compared>>,
    limits: Limits,
}

impl<'m> Oracle<'m> {
    fn new(p: Prepared<'m>) -> Self {
        let limits = Limits { time: Duration::from_secs(20), ..Limits::default() };
        Oracle { p, compared: HashMap::new(), limits }
    }

    /// Is a fault at `instr` above the bound of a pair, and of which; `None`
    /// if it cannot be executed.
    fn above(&mut self, instr: InstrId, fault: &Planted) -> Option<(bool, String)> {
        let mut engine = Engine::new(&fault.m, self.p.topology_b, self.limits).ok()?;
        let flow = engine.flow(&self.p.args_b, self.limits).ok()?;
        let Prepared { a, b: dist, ea, eb, fa, fb, wa, wb, pairs, .. } = &mut self.p;
        let (a, dist, fa, fb): (&Module, &Module, &_, &_) = (a, dist, fa, fb);
        // The same pairs in the program with the fault.
        let place = |b: Slot| -> Option<Slot> {
            let node = &fb.nodes[fb.slots[b as usize] as usize];
            let i = if node.instr == instr { fault.result } else { node.instr };
            let k = *flow.index.get(&(i, node.visit))?;
            Some(flow.nodes[k as usize].slots.0 + (b - node.slots.0))
        };
        let mut of = vec![None; flow.slots.len()];
        // Constants, and what is made of them alone, are judged by the first
        // values that depend on an input.
        let made = fixed(dist, fb);
        let mut open_slots: HashSet<Slot> = HashSet::new();
        for n in &fb.nodes {
            let mut reads = n.reads().into_iter();
            if n.instr == instr || reads.any(|s| open_slots.contains(&s)) {
                open_slots.extend((n.slots.0..n.slots.1).filter(|&s| made[s as usize]));
            }
        }
        let open = |b: Slot| open_slots.contains(&b);
        for q in pairs.of.iter().flatten().filter(|q| !open(q.b)) {
            let b = place(q.b)?;
            *of.get_mut(b as usize)? = Some(Pair { b, ..q.clone() });
        }
        let moved = Pairs { of, versions: pairs.versions };
        // The first pairs that the instruction leads to.
        let mut reached: BTreeSet<Slot> = BTreeSet::new();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let nodes = 0..fb.nodes.len() as NodeId;
        let mut queue: Vec<NodeId> =
            nodes.filter(|&k| fb.nodes[k as usize].instr == instr).collect();
        while let Some(k) = queue.pop() {
            if !seen.insert(k) {
                continue;
            }
            let (first, end) = fb.nodes[k as usize].slots;
            for b in first..end {
                match pairs.of[b as usize] {
                    Some(_) if !open(b) => {
                        reached.insert(b);
                    }
                    _ => queue.extend(&fb.users[b as usize]),
                }
            }
        }
        for b in reached {
            let q = pairs.of[b as usize].as_ref()?;
            let known = self.compared.entry(b).or_insert_with(|| {
                let runs = Runs { ma: a, fa, wa, mb: dist, fb, wb };
                let mut z = Analyzer { runs: &runs, ea, eb, pairs, seed: 1 };
                z.compare(q).ok().flatten()
            });
            let Some(c) = known else { continue };
            let runs = Runs { ma: a, fa, wa, mb: &fault.m, fb: &flow, wb: &[] };
            let mut z = Analyzer { runs: &runs, ea, eb: &mut engine, pairs: &moved, seed: 1 };
            let q = moved.of[place(b)? as usize].as_ref()?;
            let Ok(Some(y)) = z.actual(q) else { continue };
            let ratio = c.ratio(&y);
            if ratio > 1.0 {
                let n = z.between(q.b).map_or(0, |n| n.len());
                let name = fb.name(dist, fb.slots[b as usize]);
                return Some((true, format!("{name} {:?} {ratio:.2} {n} ops", q.basis)));
            }
        }
        Some((false, String::new()))
    }
}
