//! A program with its calls put in line, so that a cut can go through what a
//! call computes.

use crate::edit::Editor;
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode};

/// Deepest nesting of calls that are put in line.
const MAX_DEPTH: usize = 32;

/// The program with computations that are called once, from the entry by
/// `call`, in place of their calls, and elements of tuples read directly.
/// Instructions keep their ids. `None` if there is nothing to do. Of a valid
/// program it is valid; that is left to be checked with what is made of it.
pub fn flat(m: &Module) -> Option<Module> {
    let mut sites = vec![0usize; m.comps.len()];
    for c in m.comps.iter().flat_map(|c| &c.instrs).flat_map(|&i| &m.instr(i).calls) {
        *sites.get_mut(c.0 as usize)? += 1;
    }
    let mut f = Flat {
        m,
        sites,
        same: FxHashMap::default(),
        list: Vec::new(),
        gone: Vec::new(),
        inlined: vec![false; m.comps.len()],
    };
    f.body(m.entry, 0);
    if f.gone.is_empty() {
        return None;
    }
    let Flat { same, list, gone, inlined, .. } = f;
    let mut e = Editor::new(m);
    for &x in &list {
        for o in &mut e.m.instrs[x.0 as usize].operands {
            if let Some(&n) = same.get(o) {
                *o = n;
            }
        }
    }
    let entry = m.entry.0 as usize;
    let root = m.entry_comp().root;
    e.m.comps[entry].root = same.get(&root).copied().unwrap_or(root);
    e.m.comps[entry].instrs = gone.iter().copied().chain(list).collect();
    let dead: FxHashSet<InstrId> = gone.into_iter().collect();
    e.remove(|x| dead.contains(&x))?;
    // Computations without callers go.
    let mut next = 0;
    let now: Vec<CompId> = inlined
        .iter()
        .map(|&gone| {
            let id = CompId(next);
            next += u32::from(!gone);
            id
        })
        .collect();
    for i in &mut e.m.instrs {
        for c in &mut i.calls {
            *c = *now.get(c.0 as usize)?;
        }
    }
    e.m.entry = now[entry];
    let mut gone = inlined.iter();
    e.m.comps.retain(|_| gone.next() != Some(&true));
    Some(e.m)
}

struct Flat<'a> {
    m: &'a Module,
    /// Uses of each computation.
    sites: Vec<usize>,
    /// What instructions that are not needed are equal to.
    same: FxHashMap<InstrId, InstrId>,
    list: Vec<InstrId>,
    gone: Vec<InstrId>,
    inlined: Vec<bool>,
}

impl Flat<'_> {
    fn now(&self, x: InstrId) -> InstrId {
        self.same.get(&x).copied().unwrap_or(x)
    }

    /// What an element of a tuple in line is.
    fn element(&self, x: InstrId) -> Option<InstrId> {
        let i = self.m.instr(x);
        let Attrs::TupleIndex(k) = i.attrs else { return None };
        let t = self.m.instr(self.now(*i.operands.first()?));
        if i.opcode != Opcode::GetTupleElement || t.opcode != Opcode::Tuple {
            return None;
        }
        t.operands.get(usize::try_from(k).ok()?).copied()
    }

    fn body(&mut self, c: CompId, depth: usize) {
        let m = self.m;
        for &x in &m.comp(c).instrs {
            let i = m.instr(x);
            let element = self.element(x);
            if let Some(e) = element {
                let e = self.now(e);
                self.same.insert(x, e);
                self.gone.push(x);
                continue;
            }
            match i.calls[..] {
                [f] if i.opcode == Opcode::Call
                    && self.sites[f.0 as usize] == 1
                    && depth < MAX_DEPTH
                    && m.comp(f).params.len() == i.operands.len() =>
                {
                    for (&p, &o) in m.comp(f).params.iter().zip(&i.operands) {
                        let o = self.now(o);
                        self.same.insert(p, o);
                        self.gone.push(p);
                    }
                    self.body(f, depth + 1);
                    let root = self.now(m.comp(f).root);
                    self.same.insert(x, root);
                    self.gone.push(x);
                    self.inlined[f.0 as usize] = true;
                }
                _ if self.same.contains_key(&x) => {}
                _ => self.list.push(x),
            }
        }
    }
}
