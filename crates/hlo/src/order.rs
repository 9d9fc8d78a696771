//! Order of instructions and computations; called computations by name.

use crate::cursor::R;
use crate::reader::Reader;
use scalify_ir::{CompId, Computation, InstrId, Opcode, Symbol};

impl Reader<'_> {
    /// Instructions with operands before users, else in the given order.
    pub(crate) fn ordered(&self, instrs: &[InstrId]) -> R<Vec<InstrId>> {
        let Some(base) = instrs.iter().map(|i| i.0).min() else { return Ok(Vec::new()) };
        let top = instrs.iter().map(|i| i.0).max().unwrap_or(base);
        // 0 new, 1 open, 2 done.
        let mut state = vec![0u8; (top - base) as usize + 1];
        let mut out = Vec::with_capacity(instrs.len());
        let mut stack: Vec<(InstrId, usize)> = Vec::new();
        for &i in instrs {
            if state[(i.0 - base) as usize] != 0 {
                continue;
            }
            state[(i.0 - base) as usize] = 1;
            stack.push((i, 0));
            while let Some((at, k)) = stack.last_mut() {
                let ins = self.m.instr(*at);
                let control = ins.extra.as_ref().map_or(&[][..], |e| &e.control_predecessors);
                let next = match ins.operands.get(*k) {
                    Some(&o) => Some(o),
                    None => control.get(*k - ins.operands.len()).copied(),
                };
                *k += 1;
                let Some(o) = next else {
                    state[(at.0 - base) as usize] = 2;
                    out.push(*at);
                    stack.pop();
                    continue;
                };
                match state.get((o.0.wrapping_sub(base)) as usize) {
                    Some(0) => {
                        state[(o.0 - base) as usize] = 1;
                        stack.push((o, 0));
                    }
                    Some(1) => {
                        let s = ins.span;
                        let what = format!(
                            "instruction `{}` depends on itself, through `{}`",
                            self.m.name_of(*at),
                            self.m.name_of(o)
                        );
                        return self.c.fail(s.start as usize, s.end as usize, what);
                    }
                    _ => {}
                }
            }
        }
        Ok(out)
    }

    /// Turns names of called computations into ids, callees before callers.
    pub(crate) fn link_computations(&mut self) -> R<()> {
        let uses = std::mem::take(&mut self.comp_uses);
        let mut in_order = true;
        for (user, slot, at) in uses {
            let call = self.m.instrs[user.0 as usize].calls[slot as usize];
            let id = self.comp_names.get(call.0 as usize).copied().flatten();
            let Some(id) = id else {
                let name = self.m.str(Symbol(call.0));
                let at = at as usize;
                let percent = self.c.at(at) == Some(b'%');
                let what = format!("no computation `{name}` in this module");
                return self.c.fail(at, at + name.len() + percent as usize, what);
            };
            self.m.instrs[user.0 as usize].calls[slot as usize] = id;
            in_order &= self.m.comp(id).span.end <= at;
        }
        self.inherit_async_calls();
        if !in_order {
            self.order_computations()?;
        }
        Ok(())
    }

    fn order_computations(&mut self) -> R<()> {
        let n = self.m.comps.len();
        let callees: Vec<Vec<CompId>> = (self.m.comps.iter())
            .map(|c| {
                let mut v: Vec<CompId> =
                    c.instrs.iter().flat_map(|&i| self.m.instr(i).calls.iter().copied()).collect();
                v.sort_unstable();
                v.dedup();
                v
            })
            .collect();
        let mut state = vec![0u8; n];
        let mut order = Vec::with_capacity(n);
        let mut stack: Vec<(usize, usize)> = Vec::new();
        for first in 0..n {
            if state[first] != 0 {
                continue;
            }
            state[first] = 1;
            stack.push((first, 0));
            while let Some((at, k)) = stack.last_mut() {
                let next = callees[*at].get(*k).map(|c| c.0 as usize);
                *k += 1;
                match next {
                    None => {
                        state[*at] = 2;
                        order.push(*at);
                        stack.pop();
                    }
                    Some(c) if state[c] == 0 => {
                        state[c] = 1;
                        stack.push((c, 0));
                    }
                    Some(c) if state[c] == 1 => {
                        let s = self.m.comps[*at].span;
                        let what = format!(
                            "computation `{}` calls itself, through `{}`",
                            self.m.str(self.m.comps[*at].name),
                            self.m.str(self.m.comps[c].name)
                        );
                        return self.c.fail(s.start as usize, s.end as usize, what);
                    }
                    Some(_) => {}
                }
            }
        }
        let mut new = vec![CompId(0); n];
        for (i, &old) in order.iter().enumerate() {
            new[old] = CompId(i as u32);
        }
        let mut comps: Vec<Option<Computation>> =
            std::mem::take(&mut self.m.comps).into_iter().map(Some).collect();
        self.m.comps = order.iter().filter_map(|&i| comps[i].take()).collect();
        for i in &mut self.m.instrs {
            for c in &mut i.calls {
                *c = new[c.0 as usize];
            }
        }
        self.m.entry = new[self.m.entry.0 as usize];
        Ok(())
    }

    /// async-update and -done run what their async-start runs.
    fn inherit_async_calls(&mut self) {
        for comp in &self.m.comps {
            for &i in &comp.instrs {
                let ins = self.m.instr(i);
                let done = matches!(ins.opcode, Opcode::AsyncUpdate | Opcode::AsyncDone);
                if let (true, true, Some(&o)) = (done, ins.calls.is_empty(), ins.operands.first()) {
                    self.m.instrs[i.0 as usize].calls = self.m.instrs[o.0 as usize].calls.clone();
                }
            }
        }
    }
}
