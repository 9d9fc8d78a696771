//! Calls, loops and branches.

use super::{Env, Lifter, Lv, MAX_DEPTH, Path, dt_of};
use crate::tv::{Tv, TvOps};
use scalify_ir::{Attrs, CompId, InstrId, Opcode};
use scalify_terms::Val;

/// Most iterations a loop is unrolled.
const MAX_TRIPS: usize = 1 << 16;

impl Lifter<'_> {
    /// Inlines; `None` if the instruction must be treated as a whole.
    pub(super) fn lift_control(
        &mut self,
        i: InstrId,
        vals: &[Lv],
        recs: &[u32],
        path: u32,
    ) -> Option<(Lv, u32)> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        let m = self.m;
        let ins = m.instr(i);
        let args = || -> Env { vals.iter().cloned().zip(recs.iter().copied()).collect() };
        match ins.opcode {
            Opcode::Call | Opcode::Fusion => {
                let c = *ins.calls.first()?;
                self.inline(i, c, args(), path)
            }
            Opcode::AsyncStart => {
                let c = *ins.calls.first()?;
                let (v, rec) = self.inline(i, c, args(), path)?;
                let ops = Lv::Tuple(vals.iter().cloned().collect());
                Some((Lv::Tuple([ops, v, Lv::Token].into_iter().collect()), rec))
            }
            Opcode::While => self.unroll(i, vals, recs, path),
            Opcode::Conditional => self.branch(i, vals, recs, path),
            _ => None,
        }
    }

    pub(super) fn inline(
        &mut self,
        i: InstrId,
        c: CompId,
        args: Env,
        path: u32,
    ) -> Option<(Lv, u32)> {
        if self.m.comp(c).params.len() != args.len() {
            return None;
        }
        self.paths.push(Path { parent: path, call: Some(i) });
        let p = self.paths.len() as u32 - 1;
        self.depth += 1;
        let r = self.comp(c, args, p);
        self.depth -= 1;
        Some(r)
    }

    fn unroll(&mut self, i: InstrId, vals: &[Lv], recs: &[u32], path: u32) -> Option<(Lv, u32)> {
        let ins = self.m.instr(i);
        let (cond, body) = (*ins.calls.first()?, *ins.calls.get(1)?);
        let mut state = vals.first()?.clone();
        let mut rec = *recs.first()?;
        for _ in 0..MAX_TRIPS {
            let (p, _) = self.inline(i, cond, vec![(state.clone(), rec)], path)?;
            if self.stop.is_some() {
                return None;
            }
            // All devices go on or all stop.
            let on = match &p {
                Lv::Each(ts) => {
                    let first = self.st.as_bool(&ts.first()?.val)?;
                    ts.iter().all(|t| self.st.as_bool(&t.val) == Some(first)).then_some(first)
                }
                p => self.st.as_bool(&p.tensor()?.val),
            };
            match on {
                Some(false) => return Some((state, rec)),
                Some(true) => {}
                None => return self.by_induction(i, &state, rec, path),
            }
            (state, rec) = self.inline(i, body, vec![(state, rec)], path)?;
        }
        None
    }

    fn has_collective(&self, c: CompId, depth: u32) -> bool {
        let m = self.m;
        depth == 0
            || m.comp(c).instrs.iter().any(|&i| {
                let ins = m.instr(i);
                ins.opcode.is_collective()
                    || matches!(ins.opcode, Opcode::Send | Opcode::Recv)
                    || ins.calls.iter().any(|&c| self.has_collective(c, depth - 1))
            })
    }

    fn branch(&mut self, i: InstrId, vals: &[Lv], recs: &[u32], path: u32) -> Option<(Lv, u32)> {
        let m = self.m;
        let ins = m.instr(i);
        let n = ins.calls.len();
        if n == 0 || vals.len() != n + 1 {
            return None;
        }
        let pred = m.dtype(ins.operands[0])? == scalify_ir::DType::Pred;
        let arg = |k: usize| vec![(vals[k + 1].clone(), recs[k + 1])];
        let known = |s: &Self, p: &Val| -> Option<usize> {
            if pred {
                s.st.as_bool(p).map(|b| usize::from(!b))
            } else {
                let x = s.st.as_int(p)?;
                Some(usize::try_from(x).ok().filter(|&x| x < n).unwrap_or(n - 1))
            }
        };
        let ps: Vec<Val> = match &vals[0] {
            Lv::Each(ts) => ts.iter().map(|t| t.val.clone()).collect(),
            x => vec![x.tensor()?.val.clone()],
        };
        let which: Vec<Option<usize>> = ps.iter().map(|p| known(self, p)).collect();
        if let Some(k) = which[0].filter(|&k| which.iter().all(|&w| w == Some(k))) {
            return self.inline(i, ins.calls[k], arg(k), path);
        }
        // Both branches, then a selection: sound only where no device waits
        // for another inside a branch, or where all take the same.
        let digits: Vec<_> = self.dev.digits.iter().map(|d| d.0).collect();
        let same = ps.len() == 1 && !self.st.ref_mentions_any(&ps[0].r, &digits);
        if !same && ins.calls.iter().any(|&c| self.has_collective(c, 32)) {
            return None;
        }
        let mut results: Vec<Lv> = Vec::new();
        for k in 0..n {
            results.push(self.inline(i, ins.calls[k], arg(k), path)?.0);
        }
        let shape = m.shape(i).clone();
        let operands = recs.iter().copied().collect();
        if self.each && (ps.len() > 1 || results.iter().any(Lv::differs)) {
            // Each device takes its own branch.
            let mut all = Vec::new();
            for d in 0..self.dev.count as usize {
                let own: Vec<Lv> = results.iter().map(|r| r.on(d)).collect();
                let at = if ps.len() > 1 { d } else { 0 };
                all.push(match which[at] {
                    Some(k) => own.get(k)?.clone(),
                    None => self.choose(&ps[at], pred, own, &shape)?,
                });
            }
            let v = Lv::together(&all)?;
            return Some(self.record(i, path, operands, v, None));
        }
        let acc = self.choose(&ps[0], pred, results, &shape)?;
        Some(self.record(i, path, operands, acc, None))
    }

    /// The result that a predicate or index selects.
    fn choose(
        &mut self,
        p: &Val,
        pred: bool,
        mut results: Vec<Lv>,
        shape: &scalify_ir::Shape,
    ) -> Option<Lv> {
        let mut acc = results.pop()?;
        for k in (0..results.len()).rev() {
            let q = if pred {
                p.clone()
            } else {
                let c = self.st.int(-(k as i64));
                let d = self.st.add(scalify_terms::Dt::INT, &[p.clone(), c])?;
                self.st.eq0(&d)?
            };
            acc = self.select_lv(&q, &results[k], &acc, shape)?;
        }
        Some(acc)
    }

    fn select_lv(&mut self, p: &Val, a: &Lv, b: &Lv, s: &scalify_ir::Shape) -> Option<Lv> {
        use scalify_ir::Shape;
        match (a, b, s) {
            (Lv::T(x), Lv::T(y), Shape::Array(arr)) => {
                let (mut x, mut y) = (x.clone(), y.clone());
                for _ in 0..2 {
                    self.st.align(&mut x, &mut y)?;
                }
                let val = self.st.select(dt_of(arr.dtype), p, &x.val, &y.val)?;
                Some(Lv::T(Tv { val, dims: x.dims }))
            }
            (Lv::Tuple(x), Lv::Tuple(y), Shape::Tuple(t)) if x.len() == y.len() => {
                let mut out = Vec::new();
                for k in 0..x.len() {
                    out.push(self.select_lv(p, &x[k], &y[k], t.get(k)?)?);
                }
                Some(Lv::Tuple(out.into_iter().collect()))
            }
            (Lv::Token, Lv::Token, _) => Some(Lv::Token),
            _ => None,
        }
    }

    pub(super) fn lift_async_end(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let first = v.first().ok_or("no operand")?;
        if self.m.instr(i).opcode == Opcode::AsyncUpdate {
            return Ok(first.clone());
        }
        match first {
            Lv::Tuple(t) if t.len() >= 2 => Ok(t[1].clone()),
            _ => Err("malformed async operation".to_owned()),
        }
    }

    pub(super) fn lift_custom_call(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let Attrs::CustomCall(c) = &m.instr(i).attrs else {
            return Err("custom-call without target".to_owned());
        };
        let target = m.str(c.target);
        if let Some(r) = self.lift_border(i, target, v) {
            return r;
        }
        if target == "TopK" {
            return self.lift_first_of_order(i, v);
        }
        // Where a buffer is kept, not what is in it.
        if let ("AwsNeuronTransferWithStaticRing", [x]) = (target, &m.instr(i).operands[..]) {
            if m.shape(*x).same(m.shape(i)) {
                return v.first().cloned().ok_or_else(|| "no operand".to_owned());
            }
        }
        if c.has_side_effect && m.instr(i).operands.is_empty() {
            return Err(format!("custom-call {target} has an effect that is not known"));
        }
        if let Some(n) = m.frontend_attr(i, "num_batch_dims").and_then(|t| t.parse().ok()) {
            if !c.has_side_effect {
                return self.lift_leading_batch(i, v, n);
            }
        }
        self.lift_opaque(i, v)
    }
}
