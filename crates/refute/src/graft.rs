//! The baseline's own computation in place of a distributed value.
//!
//! Both programs are walked in step from their outputs. Where they part, the
//! value that the baseline has there is built anew from distributed values
//! that are proved to be baseline values, and takes the place of the one at
//! hand. Whether that mends anything is for [`crate::repair`] to find out.

use crate::candidates::{Candidate, Context, Edit};
use crate::edit::{Editor, filled, number};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::attrs::SliceAttrs;
use scalify_ir::{ArrayShape, Attrs, CompId, DType, InstrId, Module, Opcode, Shape};
use scalify_prove::outcome::{DimRelation, Outcome, Related, Verdict};

/// Most pairs that are walked.
const MAX_PAIRS: usize = 400;
/// Most instructions that are copied for one value.
const MAX_COPIED: usize = 24;
/// Operations that only one of the two programs has, passed in a row.
const MAX_APART: u32 = 3;

/// What the walk found.
#[derive(Clone, Debug, Default)]
pub struct Aligned {
    /// A distributed value and the baseline value that stands in its place.
    pub pairs: Vec<(InstrId, InstrId)>,
    /// Distributed values that hold a baseline value, whole or a block of it.
    anchors: FxHashMap<InstrId, Vec<InstrId>>,
    /// Distributed values among those.
    known: FxHashSet<InstrId>,
    /// Bodies of loops that stand for each other, distributed and baseline.
    loops: Vec<(CompId, CompId)>,
}

/// A program with its calls seen through.
struct View<'a> {
    m: &'a Module,
    owner: Vec<CompId>,
    /// The only call of each computation.
    site: Vec<Option<InstrId>>,
}

impl<'a> View<'a> {
    fn new(m: &'a Module) -> Self {
        let mut owner = vec![m.entry; m.instrs.len()];
        let mut calls: Vec<Vec<InstrId>> = vec![Vec::new(); m.comps.len()];
        for (k, c) in m.comps.iter().enumerate() {
            for &i in &c.instrs {
                owner[i.0 as usize] = CompId(k as u32);
                for f in &m.instr(i).calls {
                    calls[f.0 as usize].push(i);
                }
            }
        }
        let once = |c: &Vec<InstrId>| {
            let [x] = c[..] else { return None };
            matches!(m.instr(x).opcode, Opcode::Call | Opcode::Fusion).then_some(x)
        };
        let site = calls.iter().map(once).collect();
        View { m, owner, site }
    }

    /// The instruction that computes `x`, through calls and tuples.
    fn source(&self, mut x: InstrId) -> InstrId {
        for _ in 0..64 {
            let i = self.m.instr(x);
            x = match (&i.attrs, i.opcode) {
                (_, Opcode::Call | Opcode::Fusion) => match i.calls.first() {
                    Some(&c) => self.m.comp(c).root,
                    None => return x,
                },
                (Attrs::Parameter(k), _) => {
                    let call = self.site[self.owner[x.0 as usize].0 as usize];
                    match call.and_then(|c| self.m.instr(c).operands.get(*k as usize)) {
                        Some(&o) => o,
                        None => return x,
                    }
                }
                (Attrs::TupleIndex(k), Opcode::GetTupleElement) => {
                    let t = self.m.instr(self.source_of_tuple(i.operands[0]));
                    match (t.opcode, t.operands.get(*k as usize)) {
                        (Opcode::Tuple, Some(&o)) => o,
                        _ => return x,
                    }
                }
                _ => return x,
            };
        }
        x
    }

    /// For an element of the result of a loop: the body and what the body
    /// computes for it.
    fn carried(&self, x: InstrId) -> Option<(CompId, InstrId)> {
        let i = self.m.instr(x);
        let (Attrs::TupleIndex(k), Opcode::GetTupleElement) = (&i.attrs, i.opcode) else {
            return None;
        };
        let w = self.m.instr(*i.operands.first()?);
        let body = *w.calls.get(1).filter(|_| w.opcode == Opcode::While)?;
        let root = self.m.instr(self.m.comp(body).root);
        let of = root.operands.get(*k as usize).filter(|_| root.opcode == Opcode::Tuple);
        Some((body, *of?))
    }

    /// As [`View::source`], one level: tuples of tuples are left alone.
    fn source_of_tuple(&self, x: InstrId) -> InstrId {
        let i = self.m.instr(x);
        match (i.opcode, i.calls.first()) {
            (Opcode::Call | Opcode::Fusion, Some(&c)) => self.m.comp(c).root,
            _ => x,
        }
    }
}

fn commutes(op: Opcode) -> bool {
    use Opcode::*;
    matches!(op, Add | Multiply | Maximum | Minimum | And | Or | Xor)
}

impl Aligned {
    /// Walks both programs from the outputs that are not proved.
    pub fn new(base: &Module, dist: &Module, outcome: &Outcome, related: &[Related]) -> Self {
        let mut a = Aligned::default();
        for r in related {
            for t in &r.to {
                let block = |d: &DimRelation| !matches!(d, DimRelation::Other(_));
                let rank = base.array(t.base).map_or(0, |a| a.dims.len());
                if t.partial.is_empty()
                    && t.bijection.is_empty()
                    && t.dims.len() == rank
                    && t.dims.iter().all(block)
                {
                    a.anchors.entry(t.base).or_default().push(r.dist);
                    a.known.insert(r.dist);
                }
            }
        }
        let (bv, dv) = (View::new(base), View::new(dist));
        let mut seen = FxHashSet::default();
        let open = outcome.outputs.iter().filter(|o| o.verdict != Verdict::Proved);
        let mut work: Vec<(InstrId, InstrId, u32)> = open.map(|o| (o.dist, o.base, 0)).collect();
        for f in &outcome.frontier {
            work.extend(f.counterpart.map(|b| (f.instr, b, 0)));
        }
        work.reverse();
        while let Some((d, b, apart)) = work.pop() {
            let (d, b) = (dv.source(d), bv.source(b));
            let here = a.anchors.get(&b).is_some_and(|v| v.contains(&d));
            if a.pairs.len() >= MAX_PAIRS || here || !seen.insert((d, b)) {
                continue;
            }
            let (x, y) = (dist.instr(d), base.instr(b));
            if let (Some(s), Some(t)) = (dist.array(d), base.array(b)) {
                if s.dtype == t.dtype && s.dims.len() == t.dims.len() {
                    a.pairs.push((d, b));
                }
            }
            if let (Some(p), Some(q)) = (dv.carried(d), bv.carried(b)) {
                if !a.loops.contains(&(p.0, q.0)) {
                    a.loops.push((p.0, q.0));
                }
                work.push((p.1, q.1, 0));
            }
            if a.known.contains(&d) {
                // Another baseline value: a wrong operand.
                continue;
            }
            if x.opcode == y.opcode && x.operands.len() == y.operands.len() {
                let mut to: Vec<InstrId> = y.operands.to_vec();
                if let ([p, q], [r, s]) = (&x.operands[..], &y.operands[..]) {
                    let op = |m: &Module, v: &View<'_>, i: InstrId| m.instr(v.source(i)).opcode;
                    let (p, q) = ((dist, &dv, *p), (dist, &dv, *q));
                    let (r, s) = ((base, &bv, *r), (base, &bv, *s));
                    let like = |u: (&Module, &View<'_>, InstrId),
                                w: (&Module, &View<'_>, InstrId)| {
                        let known = a.anchors.get(&bv.source(w.2));
                        2 * u8::from(known.is_some_and(|v| v.contains(&dv.source(u.2))))
                            + u8::from(op(u.0, u.1, u.2) == op(w.0, w.1, w.2))
                    };
                    if commutes(x.opcode) && like(p, s) + like(q, r) > like(p, r) + like(q, s) {
                        to.reverse();
                    }
                }
                work.extend(x.operands.iter().zip(to).map(|(&o, b)| (o, b, 0)));
            } else if apart < MAX_APART {
                work.extend(y.operands.iter().map(|&o| (d, o, apart + 1)));
                work.extend(x.operands.iter().map(|&o| (o, b, apart + 1)));
            }
        }
        a
    }

    /// Does a distributed value hold this baseline value?
    pub(crate) fn same(&self, d: InstrId, b: InstrId) -> bool {
        self.anchors.get(&b).is_some_and(|v| v.contains(&d))
    }

    /// Does a distributed value hold a baseline value, constants aside?
    pub(crate) fn has(&self, base: &Module, b: InstrId) -> bool {
        self.anchors.contains_key(&b) || base.instr(b).opcode == Opcode::Constant
    }

    /// Does a distributed value hold a baseline value, or a block of one?
    pub(crate) fn holds(&self, d: InstrId) -> bool {
        self.known.contains(&d)
    }

    /// Instructions that a copy of `b` takes, at most [`MAX_COPIED`].
    fn copies(&self, base: &View<'_>, b: InstrId, top: bool) -> usize {
        let b = base.source(b);
        if !top && self.anchors.contains_key(&b) {
            return 0;
        }
        let mut n = 1;
        for &o in &base.m.instr(b).operands {
            if n >= MAX_COPIED {
                break;
            }
            n += self.copies(base, o, false);
        }
        n
    }

    /// Opcodes of what computes a value from known ones, constants aside.
    fn opcodes(&self, v: &View<'_>, x: InstrId, base: bool, top: bool, out: &mut Vec<Opcode>) {
        let x = v.source(x);
        let known = if base { self.anchors.contains_key(&x) } else { self.known.contains(&x) };
        if (!top || !base) && known || out.len() > 64 {
            return;
        }
        let i = v.m.instr(x);
        if !matches!(i.opcode, Opcode::Constant | Opcode::Broadcast | Opcode::Parameter)
            && !i.opcode.is_collective()
        {
            out.push(i.opcode);
        }
        for &o in &i.operands {
            self.opcodes(v, o, base, false, out);
        }
    }
}

/// A copy in the making.
struct Copying<'a, 'b> {
    e: &'a mut Editor,
    a: &'a Aligned,
    base: &'a View<'b>,
    /// Computation of each distributed instruction, before the edit.
    owner: &'a [CompId],
    at: InstrId,
    made: Vec<InstrId>,
    done: FxHashMap<(InstrId, Option<Vec<i64>>), InstrId>,
}

impl Copying<'_, '_> {
    fn insert(
        &mut self,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        declared: Option<Shape>,
    ) -> Option<InstrId> {
        if self.made.len() >= MAX_COPIED {
            return None;
        }
        let c = self.e.now(self.owner[self.at.0 as usize]);
        let x = self.e.insert(c, None, opcode, attrs, operands, calls, declared)?;
        self.e.m.instrs[x.0 as usize].metadata = self.e.m.instr(self.at).metadata;
        self.made.push(x);
        Some(x)
    }

    fn dims(&self, x: InstrId) -> Option<Vec<i64>> {
        self.e.m.array(x).map(|a| a.dims.to_vec())
    }

    /// A value that holds `b`, of these sizes if given.
    fn value(&mut self, b: InstrId, want: Option<Vec<i64>>, top: bool) -> Option<InstrId> {
        let b = self.base.source(b);
        let home = self.owner[self.at.0 as usize];
        let fits = |y: &&InstrId| {
            let a = self.e.m.array(**y);
            self.owner.get(y.0 as usize) == Some(&home)
                && !(top && **y == self.at)
                && a.is_some_and(|a| want.as_ref().is_none_or(|w| a.dims[..] == w[..]))
        };
        if let Some(&y) = self.a.anchors.get(&b).and_then(|v| v.iter().find(fits)) {
            return Some(y);
        }
        if let Some(y) = self.in_loop(b, home, want.as_deref()) {
            return Some(y);
        }
        let key = (b, want.clone());
        if let Some(&x) = self.done.get(&key) {
            return Some(x);
        }
        let x = self.copy(b, want)?;
        self.done.insert(key, x);
        Some(x)
    }

    /// What a loop carries as the baseline's loop carries `b`.
    fn in_loop(&self, b: InstrId, home: CompId, want: Option<&[i64]>) -> Option<InstrId> {
        let i = self.base.m.instr(b);
        let (Attrs::TupleIndex(k), Some(&p)) = (&i.attrs, i.operands.first()) else { return None };
        let body = self.base.owner.get(p.0 as usize)?;
        if self.base.m.instr(p).opcode != Opcode::Parameter
            || !self.a.loops.contains(&(home, *body))
        {
            return None;
        }
        let now = &self.e.m;
        let list = &now.comp(self.e.now(home)).instrs;
        list.iter().copied().find(|&y| {
            let j = now.instr(y);
            let from = j.operands.first().map(|&o| now.instr(o).opcode);
            let (Some(a), Some(c)) = (now.array(y), self.base.m.array(b)) else { return false };
            j.attrs == Attrs::TupleIndex(*k)
                && from == Some(Opcode::Parameter)
                && a.dtype == c.dtype
                && want.is_none_or(|w| a.dims[..] == *w)
        })
    }

    fn copy(&mut self, b: InstrId, want: Option<Vec<i64>>) -> Option<InstrId> {
        let m = self.base.m;
        let i = m.instr(b);
        let a = m.array(b)?;
        let shape = |d: DType, s: &[i64]| Some(Shape::Array(ArrayShape::new(d, s.iter().copied())));
        let op = i.opcode;
        match (&i.attrs, op) {
            (Attrs::Constant(l), _) => {
                let s = want.unwrap_or_else(|| a.dims.to_vec());
                let l = if s[..] == a.dims[..] {
                    (**l).clone()
                } else {
                    filled(&ArrayShape::new(a.dtype, s.iter().copied()), number(l)?)?
                };
                self.insert(op, Attrs::Constant(Box::new(l)), &[], &[], shape(a.dtype, &s))
            }
            (Attrs::Iota(k), _) => {
                let s = want.unwrap_or_else(|| a.dims.to_vec());
                let same = s.get(*k as usize) == a.dims.get(*k as usize);
                same.then(|| self.insert(op, Attrs::Iota(*k), &[], &[], shape(a.dtype, &s)))?
            }
            (Attrs::Dims(d), Opcode::Broadcast) => {
                let from = want.as_ref().map(|w| d.iter().map(|&k| w[k as usize]).collect());
                let x = self.value(i.operands[0], from, false)?;
                let mut s = want.unwrap_or_else(|| a.dims.to_vec());
                for (&k, n) in d.iter().zip(self.dims(x)?) {
                    s[k as usize] = n;
                }
                self.insert(op, i.attrs.clone(), &[x], &[], shape(a.dtype, &s))
            }
            (Attrs::Dims(d), Opcode::Transpose) => {
                let from = want.map(|w| {
                    let mut s = w.clone();
                    d.iter().zip(&w).for_each(|(&k, &n)| s[k as usize] = n);
                    s
                });
                let x = self.value(i.operands[0], from, false)?;
                self.insert(op, i.attrs.clone(), &[x], &[], None)
            }
            (_, Opcode::Reshape | Opcode::Bitcast) => {
                let x = self.value(i.operands[0], None, false)?;
                let s = want.unwrap_or_else(|| a.dims.to_vec());
                let same = self.dims(x)?.iter().product::<i64>() == s.iter().product::<i64>();
                let to = shape(a.dtype, &s);
                same.then(|| self.insert(Opcode::Reshape, Attrs::None, &[x], &[], to))?
            }
            (Attrs::Slice(s), _) => {
                let x = self.value(i.operands[0], None, false)?;
                let (from, to) = (m.array(i.operands[0])?.dims.clone(), self.dims(x)?);
                let mut s: SliceAttrs = (**s).clone();
                for k in 0..from.len() {
                    let whole = s.start[k] == 0 && s.limit[k] == from[k] && s.stride[k] == 1;
                    if whole {
                        s.limit[k] = to[k];
                    } else if from[k] != to[k] {
                        return None;
                    }
                }
                self.insert(op, Attrs::Slice(Box::new(s)), &[x], &[], None)
            }
            _ if op.is_unary_elementwise()
                || op.is_binary_elementwise()
                || matches!(
                    op,
                    Opcode::Select | Opcode::Clamp | Opcode::Compare | Opcode::Convert
                ) =>
            {
                let mut size = want;
                let mut args = Vec::new();
                for &o in &i.operands {
                    let scalar = m.array(o)?.dims.is_empty() && !a.dims.is_empty();
                    let x =
                        self.value(o, if scalar { Some(Vec::new()) } else { size.clone() }, false)?;
                    if !scalar && size.is_none() {
                        size = self.dims(x);
                    }
                    args.push(x);
                }
                self.insert(op, i.attrs.clone(), &args, &[], shape(a.dtype, &size?))
            }
            (Attrs::Dims(_), Opcode::Reduce) | (Attrs::Window(_), Opcode::ReduceWindow)
                if i.operands.len() == 2 =>
            {
                let f = m.comp(*i.calls.first()?);
                let r = m.instr(f.root);
                if f.params.len() != 2 || r.operands[..] != f.params[..] {
                    return None;
                }
                let x = self.value(i.operands[0], None, false)?;
                let init = self.value(i.operands[1], Some(Vec::new()), false)?;
                let f = self.e.reducer(r.opcode, a.dtype)?;
                self.insert(op, i.attrs.clone(), &[x, init], &[f], None)
            }
            (_, Opcode::Dot | Opcode::Concatenate | Opcode::Reverse | Opcode::Pad) => {
                let mut args = Vec::new();
                for (k, &o) in i.operands.iter().enumerate() {
                    let scalar = op == Opcode::Pad && k == 1;
                    args.push(self.value(o, scalar.then(Vec::new), false)?);
                }
                let to = (op == Opcode::Dot).then(|| shape(a.dtype, &a.dims)).flatten();
                let sized = args.iter().zip(&i.operands).all(|(&x, &o)| {
                    m.array(o).is_some_and(|o| self.dims(x).as_deref() == Some(&o.dims[..]))
                });
                self.insert(op, i.attrs.clone(), &args, &[], if sized { to } else { None })
            }
            (_, Opcode::Gather | Opcode::DynamicSlice | Opcode::DynamicUpdateSlice) => {
                let mut args = Vec::new();
                for &o in &i.operands {
                    let s = m.array(o)?.dims.to_vec();
                    args.push(self.value(o, Some(s), false)?);
                }
                self.insert(op, i.attrs.clone(), &args, &[], None)
            }
            _ => None,
        }
    }
}

impl Context<'_> {
    /// Baseline values in place of distributed ones, those that take the
    /// fewest instructions first.
    pub(crate) fn grafts(&self, a: &Aligned, dist: &[f64], out: &mut Vec<Candidate>) {
        let v = View::new(self.base);
        for &(at, from) in &a.pairs {
            let n = a.copies(&v, from, true);
            let d = dist[at.0 as usize].min(3.0);
            if n <= MAX_COPIED && self.local[self.owner[at.0 as usize].0 as usize] {
                let cost = 3.4 + 0.05 * n as f64 + 0.3 * d;
                out.push(Candidate { at, edit: Edit::Graft { from }, cost, also: Vec::new() });
            }
        }
    }

    /// Applies [`Edit::Graft`].
    pub(crate) fn graft(&self, e: &mut Editor, at: InstrId, from: InstrId) -> Option<()> {
        let a = self.aligned.as_ref()?;
        let base = View::new(self.base);
        let want = self.m.array(at)?.dims.to_vec();
        let mut c = Copying {
            e,
            a,
            base: &base,
            owner: &self.owner,
            at,
            made: Vec::new(),
            done: FxHashMap::default(),
        };
        let r = c.value(from, Some(want), true)?;
        let made = c.made;
        if !e.m.shape(r).same(self.m.shape(at)) {
            return None;
        }
        let home = e.now(self.owner[at.0 as usize]);
        e.redirect(home, at, r, &made);
        e.sort(home)
    }

    /// What sets a distributed value apart from the baseline value that
    /// stands in its place.
    pub(crate) fn apart(&self, at: InstrId, from: InstrId) -> &'static str {
        let Some(a) = self.aligned.as_ref() else { return "wrong-operation" };
        let (bv, dv) = (View::new(self.base), View::new(self.m));
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        a.opcodes(&dv, at, false, true, &mut mine);
        a.opcodes(&bv, from, true, true, &mut theirs);
        let mut extra: Vec<Opcode> = Vec::new();
        for op in &mine {
            match theirs.iter().position(|o| o == op) {
                Some(k) => {
                    theirs.swap_remove(k);
                }
                None => extra.push(*op),
            }
        }
        let missing = theirs;
        let both: Vec<Opcode> = extra.iter().chain(&missing).copied().collect();
        if both.is_empty() {
            return self.same_operations(a, &dv, &bv, at, from);
        }
        let moved = |o: &Opcode| matches!(o, Opcode::Reshape | Opcode::Bitcast | Opcode::Copy);
        if both.iter().all(moved) && mine.iter().any(is_indexed) {
            // The same slice or update of a value of other sizes.
            return "wrong-offset";
        }
        if self.spread_apart(&dv, at, &bv, from) {
            return "wrong-dimension";
        }
        let chosen = both.iter().any(|o| matches!(o, Opcode::Select | Opcode::Compare));
        if chosen && !positional(&dv, at) && !positional(&bv, from) {
            // Cases of values are no mask of positions.
            return match (extra.is_empty(), missing.is_empty()) {
                (true, _) => "missing-operation",
                (_, true) => "extra-operation",
                _ => "wrong-operation",
            };
        }
        let id = |o: &Opcode| matches!(o, Opcode::PartitionId | Opcode::ReplicaId);
        if both.iter().any(id) {
            let mask = self.m.dtype(at) == Some(DType::Pred);
            return if mask { "wrong-mask" } else { "wrong-offset" };
        }
        of_opcodes(&both).unwrap_or(match (extra.is_empty(), missing.is_empty()) {
            (true, _) => "missing-operation",
            (_, true) => "extra-operation",
            _ => "wrong-operation",
        })
    }

    /// Do the two values repeat something along other dimensions?
    fn spread_apart(&self, dv: &View<'_>, at: InstrId, bv: &View<'_>, from: InstrId) -> bool {
        let spread = |v: &View<'_>, x: InstrId| {
            let (mut list, mut out) = (vec![x], Vec::new());
            for k in 0..64 {
                let Some(&x) = list.get(k) else { break };
                let i = v.m.instr(v.source(x));
                if let (Attrs::Dims(d), Opcode::Broadcast) = (&i.attrs, i.opcode) {
                    let rank = v.m.array(v.source(x)).map_or(0, |a| a.dims.len());
                    let dims: Vec<i64> = d.iter().copied().collect();
                    if !d.is_empty() && !out.contains(&(rank, dims.clone())) {
                        out.push((rank, dims));
                    }
                }
                list.extend(i.operands.iter().copied());
            }
            out.sort();
            out
        };
        let (d, b) = (spread(dv, at), spread(bv, from));
        d.len() == b.len() && d != b && d.iter().zip(&b).all(|(x, y)| x.0 == y.0)
    }

    /// Two dense constants with the same elements in another order.
    fn permuted(&self, d: InstrId, b: InstrId) -> bool {
        let elements = |m: &Module, x: InstrId| {
            let t = scalify_interp::Tensor::from_literal(m.literal(x)?)?;
            let mut v = t.to_f64();
            v.sort_by(f64::total_cmp);
            Some(v)
        };
        let (x, y) = (elements(self.m, d), elements(self.base, b));
        x.is_some() && x == y
    }

    /// The first difference between two values computed by the same operations.
    fn same_operations(
        &self,
        a: &Aligned,
        dv: &View<'_>,
        bv: &View<'_>,
        at: InstrId,
        from: InstrId,
    ) -> &'static str {
        let mut work = vec![(at, from)];
        let mut n = 0;
        // Windows that differ, wherever they stand.
        let windows = |v: &View<'_>, x: InstrId| {
            let mut list = vec![x];
            for k in 0..64 {
                let Some(&x) = list.get(k) else { break };
                let i = v.m.instr(v.source(x));
                if let Attrs::Window(w) = &i.attrs {
                    return Some(w.clone());
                }
                list.extend(i.operands.iter().copied());
            }
            None
        };
        let window = (windows(dv, at) != windows(bv, from)).then_some("wrong-dimension");
        while let Some((d, b)) = work.pop() {
            let (d, b) = (dv.source(d), bv.source(b));
            n += 1;
            if n > 200 || a.anchors.get(&b).is_some_and(|v| v.contains(&d)) {
                continue;
            }
            let (x, y) = (self.m.instr(d), self.base.instr(b));
            if x.opcode != y.opcode {
                let both = [x.opcode, y.opcode];
                let along = |o: &Opcode| matches!(o, Opcode::Reduce | Opcode::ReduceWindow);
                if both.contains(&Opcode::Transpose) && both.iter().any(along) {
                    // Moved behind a transpose with its dimensions unchanged.
                    return "wrong-dimension";
                }
                let own = both.iter().find_map(|&o| of_opcodes(&[o]));
                return window.unwrap_or(own.unwrap_or("wrong-operand"));
            }
            let reducer =
                |m: &Module, c: Option<&CompId>| c.map(|&c| m.instr(m.comp(c).root).opcode);
            if reducer(self.m, x.calls.first()) != reducer(self.base, y.calls.first()) {
                return "wrong-reducer";
            }
            if x.attrs != y.attrs {
                return match x.opcode {
                    Opcode::Constant if self.permuted(d, b) => "wrong-layout",
                    Opcode::Constant => self.constant_code(d),
                    Opcode::Transpose => "wrong-layout",
                    Opcode::Slice | Opcode::DynamicSlice | Opcode::Pad | Opcode::Gather => {
                        "wrong-offset"
                    }
                    Opcode::Compare => "wrong-mask",
                    _ => "wrong-dimension",
                };
            }
            work.extend(x.operands.iter().copied().zip(y.operands.iter().copied()));
        }
        "wrong-operand"
    }
}

/// Is a select here made by positions, devices or given truth values?
fn positional(v: &View<'_>, x: InstrId) -> bool {
    let mut list = vec![x];
    for k in 0..128 {
        let Some(&x) = list.get(k) else { break };
        let i = v.m.instr(v.source(x));
        let given = i.opcode == Opcode::Parameter && v.m.dtype(v.source(x)) == Some(DType::Pred);
        let by = matches!(i.opcode, Opcode::Iota | Opcode::PartitionId | Opcode::ReplicaId);
        let fill = match &i.attrs {
            Attrs::Constant(l) => number(l).is_some_and(f64::is_infinite),
            _ => false,
        };
        if given || by || fill {
            return true;
        }
        list.extend(i.operands.iter().filter(|o| !list.contains(o)).copied().collect::<Vec<_>>());
    }
    false
}

/// Takes elements from a place or puts them there.
fn is_indexed(o: &Opcode) -> bool {
    use Opcode::*;
    matches!(o, Slice | DynamicSlice | DynamicUpdateSlice | Gather | Scatter)
}

/// Kind of a fault by the operations that one side has and the other has not.
pub(crate) fn of_opcodes(ops: &[Opcode]) -> Option<&'static str> {
    use Opcode::*;
    let all = |f: fn(&Opcode) -> bool| ops.iter().all(f);
    let any = |f: fn(&Opcode) -> bool| ops.iter().any(f);
    let joins = any(|o| matches!(o, Concatenate));
    if all(|o| matches!(o, Transpose | Reshape | Bitcast | Reverse | Copy))
        || joins && all(|o| matches!(o, Transpose | Reshape | Reverse | Concatenate | Slice))
    {
        return Some("wrong-layout");
    }
    let scales = any(|o| matches!(o, Multiply | Divide));
    if scales
        && all(|o| matches!(o, Multiply | Divide | Convert | Sqrt | Add | Reduce | Reshape | Slice))
    {
        return Some("wrong-scale");
    }
    let place =
        |o: &Opcode| matches!(o, Slice | DynamicSlice | DynamicUpdateSlice | Pad | Clamp | Iota);
    if ops.iter().any(place)
        && ops.iter().all(|o| place(o) || matches!(o, Add | Subtract | Reshape))
    {
        return Some("wrong-offset");
    }
    any(|o| matches!(o, Select | Compare)).then_some("wrong-mask")
}
