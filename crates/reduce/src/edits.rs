//! Edits of one program. Each gives a program that computes something else (or
//! the same with fewer instructions) and is valid.

use crate::{Run, State};
use scalify_grad::prune;
use scalify_ir::{Attrs, CompId, InstrId, Literal, LiteralData, Module, Opcode, Shape};

/// A name that no instruction of these modules has: `stem` and a number.
pub(crate) fn fresh(ms: &[&Module], stem: &str, from: usize) -> String {
    let taken = |n: &str| {
        let has = |m: &&Module| m.instrs.iter().any(|i| m.str(i.name) == n);
        ms.iter().any(has)
    };
    (from..).map(|k| format!("{stem}{k}")).find(|n| !taken(n)).unwrap_or_default()
}

/// Without what nothing needs; elements of tuples made in place are the values
/// themselves.
fn tidy(mut m: Module) -> Module {
    for c in (0..m.comps.len() as u32).map(CompId) {
        for i in m.comp(c).instrs.clone() {
            let ins = m.instr(i);
            let (Attrs::TupleIndex(k), Some(&t)) = (&ins.attrs, ins.operands.first()) else {
                continue;
            };
            let made = m.instr(t);
            let part = usize::try_from(*k).ok().and_then(|k| made.operands.get(k)).copied();
            if let (Opcode::Tuple, Some(x)) = (made.opcode, part) {
                redirect(&mut m, c, i, x);
            }
        }
    }
    prune(&m)
}

/// Headers speak of the old parameters and results.
fn forget(m: &mut Module) {
    m.header.entry_layout = None;
    m.header.spmd_output_sharding = None;
    m.header.spmd_parameter_shardings.clear();
    m.header.is_scheduled = false;
    m.header.other.clear();
}

/// Array leaves of the result that are instructions of the entry: the operands
/// of the root tuple, or the root.
pub fn outputs(m: &Module) -> Vec<InstrId> {
    let root = m.entry_comp().root;
    match m.instr(root).opcode {
        Opcode::Tuple => m.instr(root).operands.to_vec(),
        _ => vec![root],
    }
}

/// The same program with a result tuple that is made in the entry.
pub fn spread(m: &Module) -> Module {
    let root = m.entry_comp().root;
    let Shape::Tuple(t) = m.shape(root).clone() else { return m.clone() };
    if m.instr(root).opcode == Opcode::Tuple {
        return m.clone();
    }
    let mut n = m.clone();
    let entry = n.entry.0 as usize;
    let mut parts = Vec::new();
    for (k, s) in t.into_iter().enumerate() {
        let name = fresh(&[&n], "part.", n.instrs.len());
        let a = Attrs::TupleIndex(k as i64);
        let p = n.append(&name, Opcode::GetTupleElement, a, &[root], &[], s);
        n.comps[entry].instrs.push(p);
        parts.push(p);
    }
    returning(&n, &parts)
}

/// The program that returns these instructions of its entry; one alone as it is.
pub fn returning(m: &Module, outs: &[InstrId]) -> Module {
    let mut n = m.clone();
    forget(&mut n);
    let entry = n.entry.0 as usize;
    let root = match outs {
        [one] => *one,
        _ => {
            let s = Shape::Tuple(outs.iter().map(|&o| n.shape(o).clone()).collect());
            let name = fresh(&[&n], "outputs.", n.instrs.len());
            let t = n.append(&name, Opcode::Tuple, Attrs::None, outs, &[], s);
            n.comps[entry].instrs.push(t);
            t
        }
    };
    n.comps[entry].root = root;
    tidy(n)
}

fn redirect(m: &mut Module, c: CompId, from: InstrId, to: InstrId) {
    let list = m.comp(c).instrs.clone();
    for i in list.into_iter().filter(|&i| i != to) {
        let ins = &mut m.instrs[i.0 as usize];
        ins.operands.iter_mut().filter(|o| **o == from).for_each(|o| *o = to);
        if let Some(x) = &mut ins.extra {
            x.control_predecessors.retain(|&p| p != from);
        }
    }
    let comp = &mut m.comps[c.0 as usize];
    if comp.root == from {
        comp.root = to;
    }
}

/// Values of the entry become parameters with these names (or like them, where
/// they are taken), after the others.
pub fn parameters(m: &Module, cut: &[(InstrId, String)]) -> Module {
    let mut n = m.clone();
    forget(&mut n);
    let entry = n.entry;
    for (x, name) in cut {
        let k = n.comp(entry).params.len() as u32;
        let s = n.shape(*x).clone();
        let taken = n.instrs.iter().any(|i| n.str(i.name) == name);
        let name = if taken { fresh(&[&n], &format!("{name}_"), 0) } else { name.clone() };
        let p = n.append(&name, Opcode::Parameter, Attrs::Parameter(k), &[], &[], s);
        let c = &mut n.comps[entry.0 as usize];
        c.params.push(p);
        c.instrs.insert(0, p);
        redirect(&mut n, entry, *x, p);
    }
    tidy(n)
}

/// `by` stands for `x` of computation `c`; of the same shape, before it.
pub fn replaced(m: &Module, c: CompId, x: InstrId, by: InstrId) -> Module {
    let mut n = m.clone();
    redirect(&mut n, c, x, by);
    tidy(n)
}

/// A filled constant stands for `x`; `None` for what is no array of numbers.
pub fn filled(m: &Module, c: CompId, x: InstrId, one: bool) -> Option<Module> {
    let a = m.array(x)?.clone();
    if a.dynamic != 0 || a.elements().is_none() {
        return None;
    }
    let scalar = scalify_ir::ArrayShape::new(a.dtype, []);
    let l = scalify_refute::edit::filled(&scalar, f64::from(u8::from(one)))?;
    let mut n = m.clone();
    let name = fresh(&[&n], "fill.", n.instrs.len());
    let s = l.shape.clone();
    let k = n.append(&name, Opcode::Constant, Attrs::Constant(Box::new(l)), &[], &[], s);
    let comp = &mut n.comps[c.0 as usize];
    comp.instrs.insert(0, k);
    let by = if a.dims.is_empty() {
        k
    } else {
        let name = fresh(&[&n], "filled.", n.instrs.len());
        let s = Shape::array(a.dtype, a.dims.iter().copied());
        let b = n.append(&name, Opcode::Broadcast, Attrs::Dims(Default::default()), &[k], &[], s);
        n.comps[c.0 as usize].instrs.insert(1, b);
        b
    };
    redirect(&mut n, c, x, by);
    Some(tidy(n))
}

/// A dense constant becomes one filled with its first element.
pub fn uniform(m: &Module, x: InstrId) -> Option<Module> {
    let l = m.literal(x)?;
    let a = l.shape.as_array()?;
    let (LiteralData::Dense(b), w) = (&l.data, a.dtype.literal_bytes()) else { return None };
    let first = b.get(..w)?;
    if a.dims.is_empty() || b.chunks(w).all(|c| c == first) {
        return None;
    }
    let bytes: Vec<u8> = first.iter().copied().cycle().take(b.len()).collect();
    let new = Literal::dense(a.clone(), bytes);
    let mut n = m.clone();
    n.instrs[x.0 as usize].attrs = Attrs::Constant(Box::new(new));
    Some(n)
}

/// A call or fusion of computation `c` gives way to the body that it calls.
pub fn inlined(m: &Module, c: CompId, call: InstrId) -> Option<Module> {
    let i = m.instr(call).clone();
    if !matches!(i.opcode, Opcode::Call | Opcode::Fusion) || i.calls.len() != 1 {
        return None;
    }
    let body = m.comp(*i.calls.first()?).clone();
    let mut n = m.clone();
    let mut ids: Vec<(InstrId, InstrId)> = Vec::new();
    let find = |ids: &[(InstrId, InstrId)], x: InstrId| ids.iter().find(|p| p.0 == x).map(|p| p.1);
    let mut list = Vec::new();
    for &b in &body.instrs {
        let src = m.instr(b);
        if let Attrs::Parameter(k) = src.attrs {
            ids.push((b, *i.operands.get(k as usize)?));
            continue;
        }
        let mut new = src.clone();
        let id = InstrId(n.instrs.len() as u32);
        let name = fresh(&[&n], &format!("{}.", src.opcode.name()), n.instrs.len());
        new.name = n.strings.intern(&name);
        for o in &mut new.operands {
            *o = find(&ids, *o)?;
        }
        if let Some(x) = &mut new.extra {
            x.control_predecessors.clear();
        }
        new.metadata = new.metadata.or(i.metadata);
        n.instrs.push(new);
        ids.push((b, id));
        list.push(id);
    }
    let root = find(&ids, body.root)?;
    let comp = &mut n.comps[c.0 as usize];
    let at = comp.instrs.iter().position(|&x| x == call)?;
    comp.instrs.splice(at..at, list);
    redirect(&mut n, c, call, root);
    Some(tidy(n))
}

/// Integer constants above 1 of a loop's condition become 1: one iteration,
/// where the counter begins at 0.
pub fn shortened(m: &Module, w: InstrId) -> Option<Module> {
    let cond = *m.instr(w).calls.first()?;
    if m.instr(w).opcode != Opcode::While {
        return None;
    }
    let mut n = m.clone();
    let mut changed = false;
    for &i in &m.comp(cond).instrs {
        let Some(l) = m.literal(i) else { continue };
        let Some(a) = l.shape.as_array().filter(|a| a.dtype.is_int() && a.dims.is_empty()) else {
            continue;
        };
        let one = scalify_refute::edit::filled(a, 1.0)?;
        let above = scalify_refute::edit::number(l).is_some_and(|v| v > 1.0);
        if above {
            n.instrs[i.0 as usize].attrs = Attrs::Constant(Box::new(one));
            changed = true;
        }
    }
    changed.then_some(n)
}

/// Parameters without use, by position.
pub fn unused(m: &Module) -> Vec<usize> {
    let entry = m.entry_comp();
    let used = |p: InstrId| {
        entry.root == p
            || entry.instrs.iter().any(|&i| {
                let ins = m.instr(i);
                ins.operands.contains(&p)
                    || ins.extra.as_ref().is_some_and(|x| x.control_predecessors.contains(&p))
            })
    };
    entry.params.iter().enumerate().filter(|p| !used(*p.1)).map(|p| p.0).collect()
}

/// Without these parameters, which must be unused.
pub fn without_parameters(m: &Module, gone: &[usize]) -> Module {
    let mut n = m.clone();
    forget(&mut n);
    let entry = n.entry.0 as usize;
    let drop: Vec<InstrId> =
        gone.iter().filter_map(|&k| n.comps[entry].params.get(k).copied()).collect();
    let c = &mut n.comps[entry];
    c.params.retain(|p| !drop.contains(p));
    c.instrs.retain(|p| !drop.contains(p));
    let params = c.params.clone();
    for (k, p) in params.into_iter().enumerate() {
        n.instrs[p.0 as usize].attrs = Attrs::Parameter(k as u32);
    }
    tidy(n)
}

/// Computations in which values may be replaced: those that run once per call,
/// not per element.
fn bodies(m: &Module) -> Vec<CompId> {
    let mut applied = vec![false; m.comps.len()];
    for i in &m.instrs {
        use Opcode::*;
        if !matches!(i.opcode, Call | Fusion | While | Conditional | AsyncStart) {
            for c in &i.calls {
                applied[c.0 as usize] = true;
            }
        }
    }
    (0..m.comps.len() as u32).map(CompId).filter(|c| !applied[c.0 as usize]).collect()
}

/// Asynchronous halves belong together, and so do parameters and signatures.
fn fixed(o: Opcode) -> bool {
    use Opcode::*;
    matches!(
        o,
        Parameter
            | AsyncStart
            | AsyncUpdate
            | AsyncDone
            | AllReduceStart
            | AllReduceDone
            | AllGatherStart
            | AllGatherDone
            | CollectivePermuteStart
            | CollectivePermuteDone
            | CopyStart
            | CopyDone
            | Send
            | SendDone
            | Recv
            | RecvDone
    )
}

/// All edits of single instructions, the last instruction first: (what, program).
pub fn single(m: &Module, from: usize) -> impl Iterator<Item = (usize, String, Module)> + '_ {
    let mut places: Vec<(CompId, InstrId)> = Vec::new();
    for c in bodies(m).into_iter().rev() {
        places.extend(m.comp(c).instrs.iter().rev().map(|&i| (c, i)));
    }
    places.into_iter().enumerate().skip(from).flat_map(move |(k, (c, i))| {
        let ins = m.instr(i);
        let name = m.name_of(i).to_owned();
        let mut out: Vec<(usize, String, Module)> = Vec::new();
        if fixed(ins.opcode) {
            return out;
        }
        let users_async = m
            .comp(c)
            .instrs
            .iter()
            .any(|&u| fixed(m.instr(u).opcode) && m.instr(u).operands.contains(&i));
        let same = |o: &&InstrId| m.shape(**o).same(m.shape(i));
        if !users_async {
            for &o in ins.operands.iter().filter(same) {
                out.push((
                    k,
                    format!("%{name} by its operand %{}", m.name_of(o)),
                    replaced(m, c, i, o),
                ));
            }
        }
        let constant = matches!(ins.opcode, Opcode::Constant | Opcode::Broadcast | Opcode::Iota);
        if c == m.entry && m.array(i).is_some() && ins.opcode != Opcode::Constant {
            let p = fresh(&[m], "cut_", 0);
            out.push((k, format!("%{name} by a parameter"), parameters(m, &[(i, p)])));
        }
        if !constant && !users_async {
            for one in [false, true] {
                let what = format!("%{name} by {}", u8::from(one));
                out.extend(filled(m, c, i, one).map(|n| (k, what, n)));
            }
        }
        out.extend(inlined(m, c, i).map(|n| (k, format!("%{name} inlined"), n)));
        out.extend(shortened(m, i).map(|n| (k, format!("%{name} shortened"), n)));
        out.extend(uniform(m, i).map(|n| (k, format!("%{name} made uniform"), n)));
        out
    })
}

/// Subsets of outputs: halves first, then all but one.
pub(crate) fn subsets(n: usize) -> Vec<Vec<usize>> {
    let mut out = Vec::new();
    if n < 2 {
        return out;
    }
    for k in 0..n.min(64) {
        out.push(vec![k]);
    }
    out.push((0..n / 2).collect());
    out.push((n / 2..n).collect());
    for k in 0..n.min(64) {
        out.push((0..n).filter(|&j| j != k).collect());
    }
    out
}

/// One round over a single program.
pub(crate) fn pass(r: &mut Run<'_>) {
    let with = |r: &Run<'_>, m: Module| State { modules: vec![m], claim: r.state.claim.clone() };
    // Outputs.
    'outputs: loop {
        let m = r.state.modules[0].clone();
        let outs = outputs(&m);
        for s in subsets(outs.len()) {
            let keep: Vec<InstrId> = s.iter().map(|&k| outs[k]).collect();
            if r.offer(with(r, returning(&m, &keep)), "fewer outputs") {
                continue 'outputs;
            }
        }
        break;
    }
    // Earlier values as the result, in large strides first.
    let mut stride = r.state.modules[0].entry_comp().instrs.len() / 2;
    while stride > 0 && !r.stopped {
        let m = r.state.modules[0].clone();
        let list = &m.entry_comp().instrs;
        let at = (1..)
            .map(|k| k * stride)
            .take_while(|&k| k < list.len())
            .map(|k| list[list.len() - 1 - k])
            .filter(|&i| m.array(i).is_some() && m.instr(i).opcode != Opcode::Parameter);
        let hit = at.take(64).any(|i| {
            let n = returning(&m, &[i]);
            r.offer(with(r, n), "an earlier value as the result")
        });
        if !hit {
            stride /= 2;
        }
    }
    // Many values by parameters at once.
    let mut chunk = r.state.modules[0].entry_comp().instrs.len() / 2;
    while chunk > 1 && !r.stopped {
        let mut start = 0;
        loop {
            let m = r.state.modules[0].clone();
            let list: Vec<InstrId> = m
                .entry_comp()
                .instrs
                .iter()
                .copied()
                .filter(|&i| {
                    let op = m.instr(i).opcode;
                    m.array(i).is_some() && !fixed(op) && op != Opcode::Constant
                })
                .collect();
            if start >= list.len() {
                break;
            }
            let end = (start + chunk).min(list.len());
            // Only what is used after the chunk needs a parameter; the others go.
            let mut cut: Vec<(InstrId, String)> = Vec::new();
            let mut next = 0;
            for &i in &list[start..end] {
                let name = fresh(&[&m], "cut_", next);
                next = name["cut_".len()..].parse::<usize>().map_or(next, |k| k + 1);
                cut.push((i, name));
            }
            let n = parameters(&m, &cut);
            let n = without_parameters(&n, &unused(&n));
            if !r.offer(with(r, n), "values by parameters") {
                start = end;
            }
            if r.stopped {
                break;
            }
        }
        chunk /= 2;
    }
    // One by one.
    let mut from = 0;
    'singles: loop {
        let m = r.state.modules[0].clone();
        for (k, what, n) in single(&m, from) {
            if r.offer(with(r, n), &what) {
                from = k.saturating_sub(1);
                continue 'singles;
            }
            if r.stopped {
                return;
            }
        }
        break;
    }
    let m = &r.state.modules[0];
    let gone = unused(m);
    if !gone.is_empty() {
        let all = without_parameters(m, &gone);
        if !r.offer(with(r, all), "unused parameters") {
            for k in gone.into_iter().rev() {
                let n = without_parameters(&r.state.modules[0], &[k]);
                r.offer(with(r, n), "an unused parameter");
            }
        }
    }
}
