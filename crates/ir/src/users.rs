//! Which instructions use a value.

use crate::module::{InstrId, Module};

/// The users of every value of a module, in the order in which they stand;
/// an instruction that takes a value twice is one user.
#[derive(Clone, Debug)]
pub struct Users {
    /// Of each instruction: where its users start in `list`; one more.
    first: Vec<u32>,
    list: Vec<InstrId>,
}

impl Users {
    /// Looks through all computations once; linear in the operands.
    pub fn new(m: &Module) -> Users {
        let mut first = vec![0u32; m.instrs.len() + 1];
        let mut last = vec![u32::MAX; m.instrs.len()];
        let mut each = |f: &mut dyn FnMut(usize, InstrId)| {
            last.fill(u32::MAX);
            for &u in m.comps.iter().flat_map(|c| &c.instrs) {
                for o in m.instr(u).operands.iter().map(|o| o.0 as usize) {
                    if std::mem::replace(&mut last[o], u.0) != u.0 {
                        f(o, u);
                    }
                }
            }
        };
        each(&mut |o, _| first[o + 1] += 1);
        for k in 1..first.len() {
            first[k] += first[k - 1];
        }
        let mut next = first.clone();
        let mut list = vec![InstrId(0); first[m.instrs.len()] as usize];
        each(&mut |o, u| {
            list[next[o] as usize] = u;
            next[o] += 1;
        });
        Users { first, list }
    }

    /// Users of a value.
    pub fn of(&self, x: InstrId) -> &[InstrId] {
        let k = x.0 as usize;
        match (self.first.get(k), self.first.get(k + 1)) {
            (Some(&a), Some(&b)) => &self.list[a as usize..b as usize],
            _ => &[],
        }
    }
}
