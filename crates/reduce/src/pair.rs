//! Edits of two programs alike.
//!
//! The prover says which values are equal and how those of the second program
//! are laid out. Where a value of each is equal, both become a parameter with
//! that layout; results are replaced by operands of the same operation, where the
//! others are proved equal or are made by the same operations too. So what
//! differs is what differed.

use crate::edits::{
    fresh, inlined, outputs, parameters, returning, subsets, unused, without_parameters,
};
use crate::{Run, State};
use scalify_claim::{Claim, Mesh, PartitionSpec, Selector};
use scalify_ir::{Attrs, InstrId, Module, Opcode};
use scalify_prove::outcome::{DimRelation, Outcome, Related, Relation, Standing};
use std::time::Duration;

/// Time of the prover, to find equal values.
const PROVE: Duration = Duration::from_secs(20);

struct Known {
    outcome: Outcome,
    related: Vec<Related>,
}

fn known(s: &State) -> Option<Known> {
    let [a, b] = &s.modules[..] else { return None };
    let o = scalify_prove::Options { time_limit: Some(PROVE), ..Default::default() };
    let (outcome, related) = scalify_prove::verify_related(a, b, &s.claim, &o);
    Some(Known { outcome, related })
}

/// The layout of a value whose blocks the devices hold, if it is one.
fn spec(
    r: &Relation,
    base: &Module,
    dist: &Module,
    d: InstrId,
    mesh: &[(String, i64)],
) -> Option<PartitionSpec> {
    if !r.partial.is_empty() || !r.bijection.is_empty() {
        return None;
    }
    let (g, l) = (base.array(r.base)?, dist.array(d)?);
    if g.dtype != l.dtype || g.dims.len() != l.dims.len() || g.dims.len() != r.dims.len() {
        return None;
    }
    let mut dims = Vec::new();
    for (k, x) in r.dims.iter().enumerate() {
        let axes = match x {
            DimRelation::Replicated => Vec::new(),
            DimRelation::Sharded(a) => a.clone(),
            DimRelation::Other(_) => return None,
        };
        let mut n = 1i64;
        for a in &axes {
            n = n.checked_mul(mesh.iter().find(|m| m.0 == *a)?.1)?;
        }
        if l.dims[k].checked_mul(n)? != g.dims[k] {
            return None;
        }
        dims.push(axes);
    }
    Some(PartitionSpec { dims })
}

/// Values of both entries that are equal: (baseline, distributed, layout), in
/// the order of the second program.
fn equal(s: &State, k: &Known) -> Vec<(InstrId, InstrId, PartitionSpec)> {
    let [a, b] = &s.modules[..] else { return Vec::new() };
    let (ea, eb) = (a.entry_comp(), b.entry_comp());
    let mut inside = vec![false; a.instrs.len()];
    ea.instrs.iter().for_each(|i| inside[i.0 as usize] = true);
    let mut own = vec![false; b.instrs.len()];
    eb.instrs.iter().for_each(|i| own[i.0 as usize] = true);
    let mut out = Vec::new();
    for r in k.related.iter().filter(|r| r.standing == Standing::Related) {
        if own.get(r.dist.0 as usize) != Some(&true) {
            continue;
        }
        let hit = r.to.iter().find_map(|t| {
            let here = inside.get(t.base.0 as usize) == Some(&true);
            here.then(|| spec(t, a, b, r.dist, &k.outcome.mesh).map(|q| (t.base, r.dist, q)))?
        });
        out.extend(hit);
    }
    out
}

/// Both become a parameter of this layout.
fn cut(s: &State, k: &Known, at: &[(InstrId, InstrId, PartitionSpec)]) -> State {
    let [a, b] = &s.modules[..] else { return s.clone() };
    let mut claim = s.claim.clone();
    if claim.mesh.is_none() && !k.outcome.mesh.is_empty() {
        claim.mesh = Mesh::new(k.outcome.mesh.clone()).ok();
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut seen: Vec<(InstrId, InstrId)> = Vec::new();
    let mut next = 0;
    for (x, y, q) in at {
        let free = |m: &Module, i: InstrId| m.instr(i).opcode != Opcode::Parameter;
        let taken = seen.iter().any(|p| p.0 == *x || p.1 == *y);
        if taken || !free(a, *x) || !free(b, *y) {
            continue;
        }
        seen.push((*x, *y));
        let name = fresh(&[a, b], "cut_", next);
        next = name["cut_".len()..].parse::<usize>().map_or(next, |k| k + 1);
        left.push((*x, name.clone()));
        right.push((*y, name.clone()));
        // A name may have been in use before.
        claim.inputs.retain(|i| i.0 != Selector::Name(name.clone()));
        if q.dims.iter().any(|d| !d.is_empty()) {
            claim.inputs.push((Selector::Name(name), q.clone()));
        }
    }
    let modules = vec![parameters(a, &left), parameters(b, &right)];
    dropped(&State { modules, claim })
}

/// Without the parameters that neither program uses.
fn dropped(s: &State) -> State {
    let [a, b] = &s.modules[..] else { return s.clone() };
    let p = scalify_prove::problem::setup(a, b, &s.claim);
    let flat = |m: &Module, n: usize| m.entry_comp().params.len() == n;
    if !flat(a, p.base_inputs.len()) || !flat(b, p.dist_inputs.len()) || !p.errors.is_empty() {
        return s.clone();
    }
    let (ua, ub) = (unused(a), unused(b));
    let (mut ga, mut gb) = (Vec::new(), Vec::new());
    for q in &p.pairs {
        if let Some(x) = q.base.filter(|x| ua.contains(x) && ub.contains(&q.dist)) {
            ga.push(x);
            gb.push(q.dist);
        }
    }
    let lone = |x: &usize| !p.pairs.iter().any(|q| q.base == Some(*x));
    ga.extend(ua.iter().filter(|x| lone(x)));
    if ga.is_empty() && gb.is_empty() {
        return s.clone();
    }
    let claim = renumbered(&s.claim, &ga, &gb);
    State { modules: vec![without_parameters(a, &ga), without_parameters(b, &gb)], claim }
}

/// Positions after inputs are gone.
fn renumbered(c: &Claim, base: &[usize], dist: &[usize]) -> Claim {
    let moved = |s: &Selector, gone: &[usize]| match s {
        Selector::Index(k) if gone.contains(k) => None,
        Selector::Index(k) => Some(Selector::Index(k - gone.iter().filter(|g| *g < k).count())),
        Selector::Name(_) => Some(s.clone()),
    };
    let mut n = c.clone();
    n.inputs = c.inputs.iter().filter_map(|(s, q)| Some((moved(s, dist)?, q.clone()))).collect();
    n.pairs =
        c.pairs.iter().filter_map(|(a, b)| Some((moved(a, base)?, moved(b, dist)?))).collect();
    n.assume = c
        .assume
        .iter()
        .filter_map(|a| {
            Some(scalify_claim::Assume { selector: moved(&a.selector, base)?, ..a.clone() })
        })
        .collect();
    n
}

/// Both with these outputs, counted.
fn with_outputs(s: &State, keep: &[usize]) -> Option<State> {
    let [a, b] = &s.modules[..] else { return None };
    let (x, y) = (outputs(a), outputs(b));
    let pick = |v: &[InstrId]| keep.iter().map(|&k| v.get(k).copied()).collect::<Option<Vec<_>>>();
    let mut claim = s.claim.clone();
    claim.outputs = s
        .claim
        .outputs
        .iter()
        .filter_map(|(q, p)| match q {
            Selector::Index(k) => {
                let at = keep.iter().position(|x| x == k)?;
                Some((Selector::Index(at), p.clone()))
            }
            Selector::Name(_) => Some((q.clone(), p.clone())),
        })
        .collect();
    let modules = vec![returning(a, &pick(&x)?), returning(b, &pick(&y)?)];
    Some(dropped(&State { modules, claim }))
}

/// Both return these values instead; layouts of outputs are left open.
fn with_result(s: &State, x: InstrId, y: InstrId) -> Option<State> {
    let [a, b] = &s.modules[..] else { return None };
    let mut claim = s.claim.clone();
    claim.outputs.clear();
    Some(dropped(&State { modules: vec![returning(a, &[x]), returning(b, &[y])], claim }))
}

/// One round over a pair.
pub(crate) fn pass(r: &mut Run<'_>) {
    // Calls in the way of edits.
    for side in 0..2 {
        loop {
            let m = r.state.modules[side].clone();
            let hit = m.entry_comp().instrs.iter().any(|&i| {
                let Some(n) = inlined(&m, m.entry, i) else { return false };
                let mut s = r.state.clone();
                s.modules[side] = n;
                r.offer(s, "a call inlined")
            });
            if !hit {
                break;
            }
        }
    }
    without_border(r);
    let count = |s: &State| outputs(&s.modules[0]).len();
    'outputs: loop {
        if count(&r.state) != outputs(&r.state.modules[1]).len() {
            break;
        }
        for keep in subsets(count(&r.state)) {
            if with_outputs(&r.state, &keep).is_some_and(|s| r.offer(s, "fewer outputs")) {
                continue 'outputs;
            }
        }
        break;
    }
    // Where the proof ends.
    if let Some(k) = known(&r.state) {
        let all = equal(&r.state, &k);
        for f in &k.outcome.frontier {
            let Some(base) = f.counterpart else { continue };
            let s = &r.state;
            let inside = |m: &Module, i: InstrId| m.entry_comp().instrs.contains(&i);
            if !inside(&s.modules[0], base) || !inside(&s.modules[1], f.instr) {
                continue;
            }
            // The same operation on equal values.
            let (x, y) = (s.modules[0].instr(base), s.modules[1].instr(f.instr));
            let is = |o: (&InstrId, &InstrId)| all.iter().any(|e| e.0 == *o.0 && e.1 == *o.1);
            let alike = x.opcode == y.opcode && x.operands.len() == y.operands.len();
            if !alike || !x.operands.iter().zip(&y.operands).all(is) {
                continue;
            }
            let Some(short) = with_result(s, base, f.instr) else { continue };
            if r.offer(short, "the first values that differ") {
                break;
            }
        }
    }
    peel(r);
    // All equal values as late as possible, then one by one.
    let mut size = usize::MAX;
    while size > 0 && !r.stopped {
        let Some(k) = known(&r.state) else { break };
        let mut all = equal(&r.state, &k);
        all.retain(|e| r.state.modules[1].instr(e.1).opcode != Opcode::Parameter);
        all.reverse();
        size = size.min(all.len());
        let mut start = 0;
        let mut hit = false;
        while size > 0 && start < all.len() && !r.stopped {
            let end = (start + size).min(all.len());
            let s = cut(&r.state, &k, &all[start..end]);
            if r.offer(s, "equal values by parameters") {
                hit = true;
                break;
            }
            start = end;
        }
        if !hit {
            size /= 2;
        }
    }
    let s = dropped(&r.state);
    r.offer(s, "unused parameters");
    sizes(r);
}

/// Results by operands, where all other operands are equal.
fn peel(r: &mut Run<'_>) {
    'next: while !r.stopped {
        let [a, b] = &r.state.modules[..] else { return };
        let (x, y) = (outputs(a), outputs(b));
        let (&[x], &[y]) = (&x[..], &y[..]) else { return };
        let local = inside_border(b, y).and_then(|l| with_result(&r.state, x, l));
        if local.is_some_and(|s| r.offer(s, "each device's own result")) {
            continue 'next;
        }
        let [a, b] = &r.state.modules[..] else { return };
        // A sum over devices completes the operation before it.
        let y = match (a.instr(x).opcode, b.instr(y).opcode, b.instr(y).operands.first()) {
            (Opcode::AllReduce, ..) => y,
            (_, Opcode::AllReduce, Some(&o)) if b.instr(y).operands.len() == 1 => o,
            _ => y,
        };
        let (i, j) = (a.instr(x), b.instr(y));
        if i.opcode != j.opcode || i.operands.len() != j.operands.len() || i.operands.is_empty() {
            return;
        }
        let Some(k) = known(&r.state) else { return };
        let all = equal(&r.state, &k);
        let is = |p: InstrId, q: InstrId| all.iter().any(|e| e.0 == p && e.1 == q);
        let open: Vec<usize> =
            (0..i.operands.len()).filter(|&n| !is(i.operands[n], j.operands[n])).collect();
        // Several may differ, if they are made alike: any one of them.
        let ops = |n: usize| {
            let (p, q) = (a.instr(i.operands[n]), b.instr(j.operands[n]));
            p.opcode == q.opcode && p.opcode != Opcode::Parameter
        };
        let alike = open.len() == 1 || open.iter().all(|&n| ops(n));
        let tries: Vec<State> = open
            .iter()
            .filter(|_| alike)
            .filter_map(|&n| with_result(&r.state, i.operands[n], j.operands[n]))
            .collect();
        for s in tries {
            if r.offer(s, "an operand that differs as the result") {
                continue 'next;
            }
        }
        return;
    }
}

/// Both return what each device has, where a manual region ends.
fn without_border(r: &mut Run<'_>) {
    let [a, b] = &r.state.modules[..] else { return };
    let (x, y) = (outputs(a), outputs(b));
    if y.len() < 2 || x.len() != y.len() {
        return;
    }
    let local: Vec<InstrId> = y.iter().map(|&y| inside_border(b, y).unwrap_or(y)).collect();
    if local == y {
        return;
    }
    let mut claim = r.state.claim.clone();
    claim.outputs.clear();
    let s = State { modules: vec![a.clone(), returning(b, &local)], claim };
    r.offer(s, "each device's own results");
}

/// The devices' value that a result of a manual region is put together from.
fn inside_border(m: &Module, y: InstrId) -> Option<InstrId> {
    let i = m.instr(y);
    let (call, k) = match (i.opcode, &i.attrs) {
        (Opcode::GetTupleElement, Attrs::TupleIndex(k)) => {
            (m.instr(*i.operands.first()?), usize::try_from(*k).ok()?)
        }
        _ => (i, 0),
    };
    let Attrs::CustomCall(c) = &call.attrs else { return None };
    let border = m.str(c.target) == "xla.sdy.LocalToGlobalShape";
    border.then(|| call.operands.get(k).copied())?
}

/// Smaller dimensions.
fn sizes(r: &mut Run<'_>) {
    while !r.stopped {
        let [a, b] = &r.state.modules[..] else { return };
        let p = scalify_prove::problem::setup(a, b, &r.state.claim);
        let Some(small) = scalify_refute::shrink::shrink(a, b, &p) else { return };
        let s = State { modules: vec![small.base, small.dist], claim: r.state.claim.clone() };
        if !r.offer(s, "smaller dimensions") {
            return;
        }
    }
}
