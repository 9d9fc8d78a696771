//! Which instruction is to blame where there is no proof.
//!
//! Every value that a failing output is computed from gets a *kind*: exact
//! (the blocks of a baseline value), scaled (a multiple of one), partial (one
//! after a reduction over mesh axes), displaced (the elements of one in
//! another layout), or none of these. The frontier is where kinds end. From
//! there the fault is looked for: a partial operand lacks its collective; a
//! scaled one its normalisation; a displaced one was moved wrongly upstream;
//! and if all operands are exact, the value is compared with its counterpart
//! in the baseline and the first difference between the two computations is
//! followed down.

use crate::decide::Attempt;
use crate::lift::{Lifted, Path};
use crate::outcome::*;
use crate::outputs::ratio;
use crate::problem::Problem;
use crate::relate;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_claim::Claim;
use scalify_ir::{InstrId, Module, Opcode};
use scalify_terms::{ClassId, Coef, Dt, Lins, Subst, Val};
use smallvec::SmallVec;

/// Most frontier items that are reported.
const MAX_ITEMS: usize = 16;
/// Most values whose kind is worked out.
const MAX_KINDS: usize = 4000;
/// Deepest comparison with the baseline.
const MAX_DESCENT: usize = 400;

/// Frames of an instruction, inherited from its call site if it has none,
/// then those of the call sites.
pub(crate) fn frames(m: &Module, paths: &[Path], i: InstrId, path: u32) -> Vec<Frame> {
    let mut out: Vec<Frame> = Vec::new();
    let mut add = |i: InstrId| {
        for f in m.frames(i) {
            let f = Frame {
                file: f.file.to_owned(),
                function: f.function.to_owned(),
                line: f.line,
                column: f.column,
                end_column: f.end_column,
            };
            if !out.contains(&f) {
                out.push(f);
            }
        }
    };
    add(i);
    let mut p = path;
    for _ in 0..128 {
        let Some(q) = paths.get(p as usize) else { break };
        if let Some(c) = q.call {
            add(c);
        }
        p = q.parent;
    }
    out
}

/// Relation of a value to the baseline, for blaming.
#[derive(Clone, PartialEq, Debug)]
enum Kind {
    /// Blocks of a baseline value, or a view of it of another rank.
    Exact(u32),
    /// The elements of a baseline value of comparable shape, moved.
    Displaced(u32),
    /// A multiple of a baseline value.
    Scaled(u32, Coef),
    /// A baseline value (times the factor) once reduced over these digits.
    Partial(u32, Vec<usize>, &'static str, Coef),
    /// Computed from constants and device ids.
    Closed,
    /// None of these.
    Unrelated,
}

struct Blamer<'a> {
    a: &'a mut Attempt,
    base: &'a Module,
    dist: &'a Module,
    /// Baseline records of each class.
    by_class: HashMap<ClassId, Vec<u32>, FxBuildHasher>,
    users: Users,
    kinds: HashMap<u32, Kind, FxBuildHasher>,
    budget: usize,
}

/// Records that read each record.
struct Users {
    /// Of each record: where its users end.
    ends: Vec<u32>,
    all: Vec<u32>,
}

impl Users {
    fn new(records: &[Lifted]) -> Users {
        let n = records.len();
        let mut ends = vec![0u32; n];
        let edges = || {
            let of = |(k, r): (usize, &'_ Lifted)| (k as u32, r.operands.clone());
            let all = records.iter().enumerate().map(of);
            all.flat_map(|(k, o)| o.into_iter().map(move |o| (k, o as usize)))
        };
        for (_, o) in edges().filter(|e| e.1 < n) {
            ends[o] += 1;
        }
        let mut sum = 0;
        for e in &mut ends {
            sum += std::mem::replace(e, sum);
        }
        let mut all = vec![0; sum as usize];
        for (k, o) in edges().filter(|e| e.1 < n) {
            all[ends[o] as usize] = k;
            ends[o] += 1;
        }
        Users { ends, all }
    }

    fn of(&self, r: u32) -> &[u32] {
        let r = r as usize;
        let Some(&end) = self.ends.get(r) else { return &[] };
        let start = if r == 0 { 0 } else { self.ends[r - 1] };
        &self.all[start as usize..end as usize]
    }
}

/// A verdict about one instruction.
struct Fault {
    rec: u32,
    code: &'static str,
    reason: String,
    expected: Option<String>,
    counterpart: Option<u32>,
}

fn is_movement(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Reshape
            | Broadcast
            | Transpose
            | Copy
            | Bitcast
            | OptimizationBarrier
            | GetTupleElement
            | Slice
            | DynamicSlice
            | Reverse
            | Concatenate
            | Pad
            | AllGather
            | AllToAll
            | CollectivePermute
            | Gather
            | DynamicUpdateSlice
            | CustomCall
            | AllGatherStart
            | AllGatherDone
            | CollectivePermuteStart
            | CollectivePermuteDone
    )
}

/// Movement that says nothing of its own: shape bookkeeping.
fn is_plumbing(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Reshape | Broadcast | Transpose | Copy | Bitcast | OptimizationBarrier | GetTupleElement
    )
}

fn is_reduction(op: Opcode) -> bool {
    matches!(op, Opcode::AllReduce | Opcode::AllReduceStart | Opcode::ReduceScatter)
}

impl Blamer<'_> {
    fn op(&self, r: u32) -> Opcode {
        self.dist.instr(self.a.dist[r as usize].instr).opcode
    }

    fn base_op(&self, r: u32) -> Opcode {
        self.base.instr(self.a.base[r as usize].instr).opcode
    }

    /// Operand records. An element of a tuple that a border made counts as
    /// made by the matching operand of the border.
    fn operands(&self, r: u32) -> SmallVec<[u32; 3]> {
        let direct = self.direct_operands(r);
        let Some(rec) = self.a.dist.get(r as usize) else { return direct };
        let ins = self.dist.instr(rec.instr);
        if let (Opcode::GetTupleElement, scalify_ir::Attrs::TupleIndex(k), [o]) =
            (ins.opcode, &ins.attrs, &direct[..])
        {
            let inner = self.direct_operands(*o);
            let border = self.op(*o) == Opcode::CustomCall;
            if border
                && self.dist.shape(self.a.dist[*o as usize].instr).leaves().len() == inner.len()
            {
                if let Some(&x) = inner.get(*k as usize) {
                    return SmallVec::from_elem(x, 1);
                }
            }
        }
        direct
    }

    fn direct_operands(&self, r: u32) -> SmallVec<[u32; 3]> {
        self.a
            .dist
            .get(r as usize)
            .map(|x| {
                x.operands.iter().copied().filter(|&o| (o as usize) < self.a.dist.len()).collect()
            })
            .unwrap_or_default()
    }

    fn base_operands(&self, r: u32) -> SmallVec<[u32; 3]> {
        self.a
            .base
            .get(r as usize)
            .map(|x| {
                x.operands.iter().copied().filter(|&o| (o as usize) < self.a.base.len()).collect()
            })
            .unwrap_or_default()
    }

    /// True if the instruction, or a helper's call site of it, has a source
    /// line of its own; borders of manual regions and leaves have none.
    fn blameable(&self, r: u32) -> bool {
        let rec = &self.a.dist[r as usize];
        let ins = self.dist.instr(rec.instr);
        if matches!(
            ins.opcode,
            Opcode::Constant | Opcode::Parameter | Opcode::CustomCall | Opcode::Iota
        ) || (ins.opcode == Opcode::GetTupleElement
            && ins.operands.first().is_some_and(|&o| {
                matches!(
                    self.dist.instr(o).opcode,
                    Opcode::CustomCall | Opcode::Call | Opcode::Parameter
                )
            }))
        {
            return false;
        }
        if !self.dist.frames(rec.instr).is_empty() {
            return true;
        }
        let mut p = rec.path;
        while let Some(q) = self.a.dist_paths.get(p as usize) {
            let Some(c) = q.call else { return false };
            let callee = self.dist.instr(c).calls.first().map(|&c| self.dist.comp(c).name);
            let border = callee.is_some_and(|n| {
                let n = self.dist.str(n);
                n.contains("manual_computation") || n.contains("shmap_body")
            });
            if border {
                return false;
            }
            if !self.dist.frames(c).is_empty() {
                return true;
            }
            p = q.parent;
        }
        false
    }

    /// The record itself, else the nearest user that can be blamed.
    fn blameable_near(&self, r: u32, path: &[u32]) -> u32 {
        if self.blameable(r) {
            return r;
        }
        if let Some(&x) = path.iter().rev().find(|&&x| self.blameable(x)) {
            return x;
        }
        let mut queue = std::collections::VecDeque::from([r]);
        let mut seen = 0;
        while let Some(x) = queue.pop_front() {
            if self.blameable(x) {
                return x;
            }
            seen += 1;
            if seen > 200 {
                break;
            }
            queue.extend(self.users.of(x).iter().copied());
        }
        r
    }

    fn kind(&mut self, r: u32) -> Kind {
        if let Some(k) = self.kinds.get(&r) {
            return k.clone();
        }
        let k = self.work_out(r);
        self.kinds.insert(r, k.clone());
        k
    }

    fn work_out(&mut self, r: u32) -> Kind {
        let rec = &self.a.dist[r as usize];
        if rec.lost {
            return Kind::Unrelated;
        }
        let Some(t) = rec.tv.clone() else {
            // A tuple is what its operands are.
            let ops = self.operands(r);
            for o in ops {
                let k = self.kind(o);
                if k == Kind::Unrelated {
                    return k;
                }
            }
            return Kind::Closed;
        };
        let (closed, di) = (rec.closed, rec.instr);
        let cands = self.by_class.get(&t.val.r.class).cloned().unwrap_or_default();
        let mut displaced = None;
        let mut view = None;
        let mut scaled = None;
        let mut cands = cands;
        cands.sort_by_key(|&b| self.base_op(b) != self.op(r));
        for &b in cands.iter().take(48) {
            let Some(bt) = &self.a.base[b as usize].tv else { continue };
            let bi = self.a.base[b as usize].instr;
            if bt.val.coef != t.val.coef {
                scaled = scaled.or(Some((b, bt.val.coef)));
                continue;
            }
            if !relate::comparable(self.base, self.dist, di, bi) {
                view = view.or(Some(b));
                continue;
            }
            if relate::plain(self.a, self.base, self.dist, r, b).is_some() {
                return Kind::Exact(b);
            }
            displaced = displaced.or(Some(b));
        }
        let index = t.val.dt == Dt::BOOL || t.val.dt == Dt::INT;
        if let (Some(b), false) = (displaced, index) {
            return Kind::Displaced(b);
        }
        if displaced.is_some() {
            return Kind::Closed;
        }
        if let Some(b) = view {
            return Kind::Exact(b);
        }
        if closed {
            return Kind::Closed;
        }
        if let Some((b, c)) = scaled {
            if let Some(k) = self.a.st.coefs.inv(c).and_then(|i| self.a.st.coefs.mul(t.val.coef, i))
            {
                return Kind::Scaled(b, k);
            }
        }
        if self.budget == 0 || t.val.dt == Dt::BOOL || t.val.dt == Dt::INT {
            return Kind::Unrelated;
        }
        // A first look follows no value behind a fault.
        let behind = |o: &u32| self.kinds.get(o) == Some(&Kind::Unrelated);
        if self.a.lost && self.direct_operands(r).iter().any(behind) {
            return Kind::Unrelated;
        }
        self.budget -= 1;
        self.partial(&t.val).unwrap_or(Kind::Unrelated)
    }

    /// Reductions over mesh axes that make it a baseline value.
    fn partial(&mut self, v: &Val) -> Option<Kind> {
        let digits: Vec<usize> = (0..self.a.dev.digits.len())
            .filter(|&k| self.a.st.ref_mentions(&v.r, self.a.dev.digits[k].0))
            .collect();
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        for mask in 1u32..1 << digits.len() {
            let set: Vec<usize> =
                (0..digits.len()).filter(|&i| mask >> i & 1 == 1).map(|i| digits[i]).collect();
            let mut map = Subst::new();
            let mut bound: SmallVec<[u32; 4]> = SmallVec::new();
            for &k in &set {
                let (x, n) = self.a.dev.digits[k];
                let y = self.a.st.lins.local(n);
                map.set(x, Lins::plain(y));
                bound.push(y);
            }
            let w = self.a.st.subst(v, &map)?;
            let sum = self.sum_terms(&w, &bound);
            let max = self.a.st.max_over(v.dt, &w, &bound);
            for (s, name) in [(sum, "add"), (max, "maximum")] {
                let Some(s) = s else { continue };
                let Some(&b) = self.by_class.get(&s.r.class).and_then(|c| c.first()) else {
                    continue;
                };
                let c = self.a.base[b as usize].tv.as_ref()?.val.coef;
                let k = self.a.st.coefs.inv(c).and_then(|i| self.a.st.coefs.mul(s.coef, i))?;
                return Some(Kind::Partial(b, set, name, k));
            }
        }
        None
    }

    /// The sum over bound atoms, additions term by term.
    fn sum_terms(&mut self, w: &Val, bound: &[u32]) -> Option<Val> {
        let st = &mut self.a.st;
        if st.class(w.r.class).op != scalify_terms::Op::Add {
            return st.sum(w.dt, w, bound);
        }
        let whole = st.sum(w.dt, w, bound)?;
        if self.by_class.contains_key(&whole.r.class) {
            return Some(whole);
        }
        let st = &mut self.a.st;
        let (args, _) = st.open(&w.r)?;
        let mut parts = Vec::new();
        for x in &args {
            let mut map = Subst::new();
            let mut fresh: SmallVec<[u32; 4]> = SmallVec::new();
            for &b in bound {
                let n = st.lins.size(b);
                let y = st.lins.local(n);
                map.set(b, Lins::plain(y));
                fresh.push(y);
            }
            let v = st.val_of(x);
            let v = st.subst(&v, &map)?;
            let v = st.scale(&v, w.coef)?;
            parts.push(st.sum(w.dt, &v, &fresh)?);
        }
        st.add(w.dt, &parts)
    }

    fn axes(&self, digits: &[usize]) -> String {
        self.a.dev.names(digits).join(", ")
    }

    fn name(&self, r: u32) -> String {
        format!("%{}", self.dist.name_of(self.a.dist[r as usize].instr))
    }

    fn base_name(&self, r: u32) -> String {
        format!("%{}", self.base.name_of(self.a.base[r as usize].instr))
    }

    /// What a record holds of a baseline value, elsewhere than it should be.
    fn displaced(&self, rec: u32, b: u32) -> String {
        let count = |m: &Module, i: InstrId| -> Option<i64> {
            m.array(i)?.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
        };
        let own = self.a.dist.get(rec as usize).and_then(|r| count(self.dist, r.instr));
        let all = count(self.base, self.a.base[b as usize].instr);
        let devices = self.a.dev.count.max(1);
        let few = own.zip(all).is_some_and(|(x, n)| x.saturating_mul(devices) < n);
        let of = self.base_name(b);
        if few {
            format!("holds some of the elements of the baseline's {of}, on all devices together")
        } else {
            format!("holds the elements of the baseline's {of} in another order")
        }
    }

    /// Walks up from a displaced value along movements of the same elements
    /// to the first value that is displaced.
    fn trace_displaced(&mut self, r: u32) -> u32 {
        let mut chain = vec![r];
        let mut at = r;
        for _ in 0..MAX_DESCENT {
            if !is_movement(self.op(at)) && !is_reduction(self.op(at)) {
                // Computed from something displaced?
                let next = self
                    .operands(at)
                    .into_iter()
                    .find(|&o| matches!(self.kind(o), Kind::Displaced(_)));
                match next {
                    Some(n) if !chain.contains(&n) => {
                        chain.clear();
                        chain.push(n);
                        at = n;
                        continue;
                    }
                    _ => break,
                }
            }
            let class = self.a.dist[at as usize].tv.as_ref().map(|t| t.val.r.class);
            let next = self
                .operands(at)
                .into_iter()
                .find(|&o| self.a.dist[o as usize].tv.as_ref().map(|t| t.val.r.class) == class);
            let Some(n) = next else { break };
            chain.push(n);
            at = n;
        }
        // From the source on: the first displaced value after an exact one.
        let mut best = chain[0];
        for &c in &chain {
            match self.kind(c) {
                Kind::Displaced(_) => {
                    if self.blameable(c) || !self.blameable(best) {
                        best = c;
                    }
                }
                Kind::Exact(b) => {
                    let bi = self.a.base[b as usize].instr;
                    let di = self.a.dist[c as usize].instr;
                    if relate::comparable(self.base, self.dist, di, bi) {
                        break;
                    }
                }
                _ => {}
            }
        }
        // A value computed in a permuted order may be meant so; then the
        // movements after it did not put it back.
        if !is_movement(self.op(best)) {
            let back = chain.iter().find(|&&c| {
                matches!(self.op(c), Opcode::Reshape | Opcode::Transpose) && self.blameable(c)
            });
            if let Some(&c) = back {
                return c;
            }
        }
        self.blameable_near(best, &[])
    }

    /// The nearest reduction over devices below a value that is not exact.
    fn reduction_below(&mut self, r: u32) -> Option<u32> {
        let mut seen = vec![r];
        let mut queue = std::collections::VecDeque::from([r]);
        while let Some(x) = queue.pop_front() {
            if seen.len() > 400 {
                return None;
            }
            for u in self.users.of(x).to_vec() {
                if seen.contains(&u) {
                    continue;
                }
                if is_reduction(self.op(u)) && self.kind(u) == Kind::Unrelated {
                    return Some(u);
                }
                seen.push(u);
                queue.push_back(u);
            }
        }
        None
    }

    /// Does the distributed value hold the blocks of this baseline value?
    fn matched(&mut self, d: u32, b: u32) -> bool {
        let (x, y) = (&self.a.dist[d as usize], &self.a.base[b as usize]);
        let (Some(t), Some(u)) = (&x.tv, &y.tv) else { return false };
        if t.val.r.class != u.val.r.class || t.val.coef != u.val.coef {
            return false;
        }
        let (di, bi) = (x.instr, y.instr);
        !relate::comparable(self.base, self.dist, di, bi)
            || relate::plain(self.a, self.base, self.dist, d, b).is_some()
    }

    fn strip(&self, mut r: u32) -> (u32, Vec<u32>) {
        let mut chain = Vec::new();
        for _ in 0..MAX_DESCENT {
            let ops = self.operands(r);
            let class = |s: &Self, r: u32| s.a.dist[r as usize].tv.as_ref().map(|t| t.val.r.class);
            let border = self.op(r) == Opcode::CustomCall
                && ops.len() == 1
                && class(self, r).is_some()
                && class(self, r) == class(self, ops[0]);
            if (!is_plumbing(self.op(r)) && !border) || ops.len() != 1 {
                break;
            }
            chain.push(r);
            r = ops[0];
        }
        (r, chain)
    }

    fn strip_base(&self, mut r: u32) -> u32 {
        for _ in 0..MAX_DESCENT {
            let ops = self.base_operands(r);
            if !is_plumbing(self.base_op(r)) || ops.len() != 1 {
                break;
            }
            r = ops[0];
        }
        r
    }

    /// The first difference between the computation of `d` and of `b`.
    fn descend(&mut self, d: u32, b: u32) -> (u32, Option<u32>) {
        let (mut d, mut b) = (d, b);
        let mut path: Vec<u32> = Vec::new();
        for _ in 0..MAX_DESCENT {
            let (dc, chain) = self.strip(d);
            path.push(d);
            path.extend(chain.iter().copied());
            path.push(dc);
            let bc = self.strip_base(b);
            if self.matched(dc, bc) {
                // Moved wrongly on the way.
                let kind = self.kind(d);
                if matches!(kind, Kind::Displaced(_)) {
                    return (self.trace_displaced(d), Some(b));
                }
                return (self.blameable_near(chain.last().copied().unwrap_or(d), &path), Some(b));
            }
            let (od, ob) = (self.op(dc), self.base_op(bc));
            if od == ob || (od == Opcode::Subtract && ob == Opcode::Add) {
                let (xs, ys) = (self.operands(dc), self.base_operands(bc));
                if xs.is_empty() || xs.len() != ys.len() {
                    return (self.blameable_near(dc, &path), Some(bc));
                }
                let commutes = matches!(
                    od,
                    Opcode::Add | Opcode::Multiply | Opcode::Maximum | Opcode::Minimum
                ) && xs.len() == 2;
                let bad = |s: &mut Self, ys: &[u32]| -> Vec<(u32, u32)> {
                    xs.iter()
                        .copied()
                        .zip(ys.iter().copied())
                        .filter(|&(x, y)| !s.matched(x, y))
                        .collect()
                };
                let mut wrong = bad(self, &ys);
                if commutes && wrong.len() == 2 {
                    let swapped = bad(self, &[ys[1], ys[0]]);
                    if swapped.len() < wrong.len() {
                        wrong = swapped;
                    }
                }
                // Prefer an operand whose kind is wrong or new.
                let pick = wrong
                    .iter()
                    .copied()
                    .find(|&(x, _)| !matches!(self.kind(x), Kind::Partial(..)));
                match pick.or(wrong.first().copied()) {
                    Some((x, y)) => {
                        d = x;
                        b = y;
                        continue;
                    }
                    None => return (self.blameable_near(dc, &path), Some(bc)),
                }
            }
            if is_reduction(od) || (od.is_collective() && !self.operands(dc).is_empty()) {
                let x = self.operands(dc)[0];
                let (xc, _) = self.strip(x);
                if self.op(xc) == ob {
                    let (f, c) = self.descend_operands(xc, bc);
                    return match f {
                        Some(f) => (f, c),
                        None => (dc, Some(bc)),
                    };
                }
                return (dc, Some(bc));
            }
            let same_class = {
                let t = self.a.dist[dc as usize].tv.as_ref().map(|t| t.val.r.class);
                t.is_some() && t == self.a.base[bc as usize].tv.as_ref().map(|t| t.val.r.class)
            };
            if same_class {
                return (self.trace_displaced(d), Some(bc));
            }
            // The value that is used instead of the expected one.
            let at = if chain.is_empty() { dc } else { chain[0] };
            return (self.blameable_near(at, &path), Some(bc));
        }
        (d, Some(b))
    }

    fn descend_operands(&mut self, d: u32, b: u32) -> (Option<u32>, Option<u32>) {
        let (xs, ys) = (self.operands(d), self.base_operands(b));
        if xs.len() == ys.len() {
            for (x, y) in xs.into_iter().zip(ys) {
                if !self.matched(x, y) {
                    let (f, c) = self.descend(x, y);
                    return (Some(f), c);
                }
            }
        }
        (None, None)
    }

    /// The baseline value that a frontier value stands for: same opcode, most
    /// operands in common, comparable shape.
    fn counterpart(&mut self, r: u32) -> Option<u32> {
        let op = self.op(r);
        let classes: Vec<Option<ClassId>> = self
            .operands(r)
            .iter()
            .map(|&o| self.a.dist[o as usize].tv.as_ref().map(|t| t.val.r.class))
            .collect();
        let di = self.a.dist[r as usize].instr;
        // Baseline users of the operands' classes.
        let mut best: Option<(i64, u32)> = None;
        for b in 0..self.a.base.len() as u32 {
            if self.base_op(b) != op {
                continue;
            }
            let ys = self.base_operands(b);
            if ys.len() != classes.len() {
                continue;
            }
            let mut score = 0i64;
            for (c, &y) in classes.iter().zip(&ys) {
                let u = self.a.base[y as usize].tv.as_ref().map(|t| t.val.r.class);
                if c.is_some() && *c == u {
                    score += 4;
                }
            }
            if score == 0 {
                // The other way round.
                for (c, &y) in classes.iter().rev().zip(&ys) {
                    let u = self.a.base[y as usize].tv.as_ref().map(|t| t.val.r.class);
                    if c.is_some() && *c == u {
                        score += 3;
                    }
                }
            }
            let bi = self.a.base[b as usize].instr;
            if relate::comparable(self.base, self.dist, di, bi) {
                score += 2;
            }
            if self.base.op_name(bi).is_some() && self.base.op_name(bi) == self.dist.op_name(di) {
                score += 1;
            }
            if score >= 4 && best.is_none_or(|(s, _)| score > s) {
                best = Some((score, b));
            }
        }
        best.map(|b| b.1)
    }

    /// The fault behind a frontier value or failing output.
    fn fault(&mut self, r: u32) -> Fault {
        let op = self.op(r);
        if let Some(f) = self.a.dist[r as usize].failed.clone() {
            if op == Opcode::CustomCall {
                // A border of a manual region: the value that crosses it.
                for o in self.operands(r) {
                    if matches!(
                        self.kind(o),
                        Kind::Partial(..) | Kind::Scaled(..) | Kind::Unrelated
                    ) {
                        let inner = self.fault(o);
                        return Fault { reason: format!("{}; {f}", inner.reason), ..inner };
                    }
                }
            }
            return Fault {
                rec: r,
                code: "not-lifted",
                reason: f.to_string(),
                expected: None,
                counterpart: None,
            };
        }
        match self.kind(r) {
            Kind::Displaced(b) => {
                let rec = self.trace_displaced(r);
                return Fault {
                    rec,
                    code: "wrong-layout",
                    reason: self.displaced(rec, b),
                    expected: Some("a block of it, in whole tiles along the mesh axes".to_owned()),
                    counterpart: Some(b),
                };
            }
            Kind::Partial(b, d, m, _) => {
                // Where the partial value comes from.
                let mut at = r;
                for _ in 0..MAX_DESCENT {
                    let pointwise =
                        self.op(at).is_binary_elementwise() || self.op(at).is_unary_elementwise();
                    let (x, _) = self.strip(at);
                    at = x;
                    if !pointwise {
                        break;
                    }
                    let next = self
                        .operands(at)
                        .into_iter()
                        .find(|&o| matches!(self.kind(o), Kind::Partial(..)));
                    match next {
                        Some(n) => at = n,
                        None => break,
                    }
                }
                let rec = self.blameable_near(at, &[]);
                return Fault {
                    rec,
                    code: "missing-all-reduce",
                    reason: format!(
                        "is a partial value over {} ({m}); its reduction is the baseline's {}",
                        self.axes(&d),
                        self.base_name(b)
                    ),
                    expected: Some(format!("an all-reduce ({m}) over {}", self.axes(&d))),
                    counterpart: Some(b),
                };
            }
            Kind::Scaled(b, k) => return self.scaled_fault(r, b, k),
            _ => {}
        }
        let ops = self.operands(r);
        let kinds: Vec<(u32, Kind)> = ops.iter().map(|&o| (o, self.kind(o))).collect();
        for (o, k) in &kinds {
            if let Kind::Displaced(b) = k {
                let rec = self.trace_displaced(*o);
                return Fault {
                    rec,
                    code: "wrong-layout",
                    reason: format!(
                        "{} {}, and {} uses it",
                        self.name(rec),
                        self.displaced(rec, *b),
                        self.name(r)
                    ),
                    expected: None,
                    counterpart: Some(*b),
                };
            }
        }
        let mut local_max = false;
        for (o, k) in &kinds {
            if let Kind::Partial(b, d, "maximum", _) = k {
                let (p, _) = self.strip(*o);
                let mut near: Vec<u32> = self.users.of(p).to_vec();
                for x in near.clone() {
                    near.extend(self.users.of(x).iter().copied());
                }
                if near.iter().any(|&u| self.op(u).is_collective()) {
                    local_max = true;
                    continue;
                }
                return Fault {
                    rec: self.blameable_near(p, &[]),
                    code: "missing-all-reduce",
                    reason: format!(
                        "{} is the maximum of each device's part along {}, but {} uses it as if it were the baseline's {}",
                        self.name(p),
                        self.axes(d),
                        self.name(r),
                        self.base_name(*b)
                    ),
                    expected: Some(format!("an all-reduce (maximum) over {}", self.axes(d))),
                    counterpart: Some(*b),
                };
            }
        }
        let partials = kinds.iter().filter(|k| matches!(k.1, Kind::Partial(..))).count();
        for (o, k) in &kinds {
            if let Kind::Partial(b, d, m, _) = k {
                let linear = matches!(op, Opcode::Add | Opcode::Subtract) && *m == "add";
                if *m == "add" && partials < kinds.len().max(2) {
                    let (p, _) = self.strip(*o);
                    let rec = if linear { p } else { r };
                    return Fault {
                        rec,
                        code: "missing-all-reduce",
                        reason: format!(
                            "{} is a partial sum over {}, but {} uses it as if it were the baseline's {}",
                            self.name(p),
                            self.axes(d),
                            self.name(r),
                            self.base_name(*b)
                        ),
                        expected: Some(format!("an all-reduce over {} before", self.axes(d))),
                        counterpart: Some(*b),
                    };
                }
            }
        }
        for (o, k) in &kinds {
            if let Kind::Scaled(b, c) = k {
                let others_exact = kinds.iter().any(|x| x.0 != *o && matches!(x.1, Kind::Exact(_)));
                if others_exact && matches!(op, Opcode::Add | Opcode::Subtract) {
                    return self.scaled_fault(*o, *b, *c);
                }
            }
        }
        if let Some(b) = self.counterpart(r) {
            let (mut f, c) = {
                let (x, c) = self.descend_operands(r, b);
                (x.unwrap_or(r), c.or(Some(b)))
            };
            if local_max {
                // A local shift of a softmax is fine; look where the pieces
                // are put together.
                if let Some(x) = self.reduction_below(r) {
                    f = x;
                }
            }
            let reason = if f == r {
                format!(
                    "no baseline value equals it; the baseline's {} is nearest",
                    self.base_name(b)
                )
            } else {
                match c {
                    Some(c) => format!(
                        "differs from the baseline's {}, and {} is computed from it",
                        self.base_name(c),
                        self.name(r)
                    ),
                    None => format!("{} is computed from it", self.name(r)),
                }
            };
            return Fault { rec: f, code: "differs", reason, expected: None, counterpart: c };
        }
        Fault {
            rec: r,
            code: "unrelated",
            reason: format!("no baseline value equals this {op}"),
            expected: None,
            counterpart: None,
        }
    }

    fn scaled_fault(&mut self, r: u32, b: u32, k: Coef) -> Fault {
        // Where the factor comes in: the first scaled value whose operands
        // are not; a collective on the way is where it should have gone out.
        let mut at = r;
        let mut collective = None;
        for _ in 0..MAX_DESCENT {
            if self.op(at).is_collective() && collective.is_none() {
                collective = Some(at);
            }
            let next = self
                .operands(at)
                .into_iter()
                .find(|&o| matches!(self.kind(o), Kind::Scaled(..) | Kind::Partial(..)));
            match next {
                Some(n) => at = n,
                None => break,
            }
        }
        let rec = self.blameable_near(collective.unwrap_or(at), &[]);
        let text = ratio(&mut self.a.st, k, Coef::ONE);
        let mesh: Vec<String> = self
            .a
            .dev
            .mesh
            .iter()
            .filter(|m| text == m.1.to_string() || text == format!("1/{}", m.1))
            .map(|m| format!("{} = {}", m.0, m.1))
            .collect();
        let hint = if mesh.is_empty() {
            String::new()
        } else {
            format!(" (mesh axis {})", mesh.join(", "))
        };
        Fault {
            rec,
            code: "wrong-scale",
            reason: format!(
                "{} is {text} times the baseline's {}{hint}",
                self.name(r),
                self.base_name(b)
            ),
            expected: None,
            counterpart: Some(b),
        }
    }
}

/// The frontier, the likely fault first.
pub(crate) fn frontier(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    p: &Problem,
    claim: &Claim,
) -> Vec<FrontierItem> {
    let _ = (p, claim);
    let n = a.dist.len();
    // Values that failing outputs are computed from through values that are
    // not exact by term.
    let mut seen = vec![false; n];
    let mut order: Vec<u32> = Vec::new();
    for o in a.outputs.iter().filter(|o| !o.proved) {
        let mut stack = vec![o.dist_rec];
        while let Some(r) = stack.pop() {
            let Some(rec) = a.dist.get(r as usize) else { continue };
            if seen[r as usize] || (rec.known(&a.dist) && r != o.dist_rec) {
                continue;
            }
            seen[r as usize] = true;
            order.push(r);
            stack.extend(rec.operands.iter().copied());
        }
    }
    order.sort_unstable();
    let mut by_class: HashMap<ClassId, Vec<u32>, FxBuildHasher> =
        HashMap::with_capacity_and_hasher(a.base.len(), FxBuildHasher);
    for (k, r) in a.base.iter().enumerate() {
        if let Some(t) = &r.tv {
            by_class.entry(t.val.r.class).or_default().push(k as u32);
        }
    }
    let users = Users::new(&a.dist);
    let mut bl =
        Blamer { a, base, dist, by_class, users, kinds: HashMap::default(), budget: MAX_KINDS };
    let mut faults: Vec<(u32, Fault)> = Vec::new();
    // Where kinds end; index arithmetic and masks only if nothing else does.
    for index in [false, true] {
        if !faults.is_empty() {
            break;
        }
        for &r in order.iter().take(MAX_KINDS) {
            if faults.len() >= MAX_ITEMS {
                break;
            }
            let rec = &bl.a.dist[r as usize];
            if rec.lost || rec.tv.is_none() && rec.failed.is_none() {
                continue;
            }
            let is_index = |t: &Option<crate::tv::Tv>| {
                t.as_ref().is_some_and(|t| t.val.dt == Dt::BOOL || t.val.dt == Dt::INT)
            };
            if is_index(&rec.tv) != index && rec.failed.is_none() {
                continue;
            }
            let failed = rec.failed.is_some();
            if !failed && bl.kind(r) != Kind::Unrelated {
                continue;
            }
            let ready = bl.operands(r).into_iter().all(|o| {
                (!index && is_index(&bl.a.dist[o as usize].tv)) || bl.kind(o) != Kind::Unrelated
            });
            if ready {
                let f = bl.fault(r);
                faults.push((r, f));
            }
        }
    }
    // Failing outputs whose own kind says it.
    if faults.is_empty() {
        for k in 0..bl.a.outputs.len() {
            if bl.a.outputs[k].proved || faults.len() >= MAX_ITEMS {
                continue;
            }
            let r = bl.a.outputs[k].dist_rec;
            if (r as usize) < n {
                let f = bl.output_fault(r, k);
                faults.push((r, f));
            }
        }
    }
    let reach = reached(bl.a, faults.iter().map(|f| f.0));
    let mut items: Vec<FrontierItem> = Vec::new();
    for ((_, f), reaches) in faults.into_iter().zip(reach) {
        let rec = bl.a.dist[f.rec as usize].clone();
        if items.iter().any(|i| i.instr == rec.instr && i.code == f.code) {
            continue;
        }
        let mut operands = Vec::new();
        for &o in &rec.operands {
            let Some(x) = bl.a.dist.get(o as usize) else { continue };
            let i = x.instr;
            let mut rel = relate::relation(bl.a, base, dist, o);
            if rel.is_none() {
                if let Kind::Partial(b, d, m, _) = bl.kind(o) {
                    let bi = bl.a.base[b as usize].instr;
                    let axes = bl.a.dev.names(&d);
                    rel = Some(Relation {
                        base: bi,
                        dims: Vec::new(),
                        partial: axes.iter().map(|x| (x.clone(), m)).collect(),
                        bijection: Vec::new(),
                        text: format!(
                            "%{} partial ({m}) over {}",
                            base.name_of(bi),
                            axes.join(", ")
                        ),
                    });
                }
            }
            operands.push((i, rel));
        }
        items.push(FrontierItem {
            instr: rec.instr,
            code: f.code,
            reason: f.reason,
            expected: f.expected,
            frames: frames(dist, &bl.a.dist_paths, rec.instr, rec.path),
            operands,
            counterpart: f.counterpart.map(|b| bl.a.base[b as usize].instr),
            reaches,
        });
    }
    items
}

/// The failing outputs that are computed from each of the records, through
/// values that are not exact by term.
fn reached(a: &Attempt, records: impl Iterator<Item = u32>) -> Vec<Vec<usize>> {
    // Bit k: the k-th of the records takes part.
    let mut mask = vec![0u64; a.dist.len()];
    let mut count = 0;
    for (k, r) in records.take(64).enumerate() {
        if let Some(m) = mask.get_mut(r as usize) {
            *m |= 1 << k;
        }
        count = k + 1;
    }
    // What a record passes on to its users.
    let mut pass = vec![0u64; a.dist.len()];
    for (k, r) in a.dist.iter().enumerate() {
        for &o in &r.operands {
            mask[k] |= pass.get(o as usize).copied().unwrap_or(0);
        }
        if mask[k] != 0 && !r.known(&a.dist) {
            pass[k] = mask[k];
        }
    }
    let mut out = vec![Vec::new(); count];
    for (k, o) in a.outputs.iter().enumerate().filter(|(_, o)| !o.proved) {
        let m = mask.get(o.dist_rec as usize).copied().unwrap_or(0);
        for (j, v) in out.iter_mut().enumerate() {
            if m >> j & 1 == 1 {
                v.push(k);
            }
        }
    }
    out
}

impl Blamer<'_> {
    /// A failing output that is of some kind: compare with what it should be.
    fn output_fault(&mut self, r: u32, k: usize) -> Fault {
        let b = self.a.outputs[k].base_rec;
        let same = {
            let d = self.a.outputs[k].dist.as_ref().map(|t| t.val.r.class);
            d.is_some() && d == self.a.outputs[k].base.as_ref().map(|t| t.val.r.class)
        };
        let kind = self.kind(r);
        if (b as usize) < self.a.base.len()
            && !same
            && matches!(kind, Kind::Exact(_) | Kind::Displaced(_))
        {
            // Another baseline value in its place.
            let (f, c) = self.descend(r, b);
            return Fault {
                rec: f,
                code: "differs",
                reason: format!(
                    "{} equals another baseline value than the output's {}",
                    self.name(f),
                    self.base_name(c.unwrap_or(b))
                ),
                expected: None,
                counterpart: c,
            };
        }
        let f = self.fault(r);
        if f.code == "unrelated" || f.code == "differs" {
            let rec = self.trace_displaced(r);
            return Fault { rec, ..f };
        }
        f
    }
}
