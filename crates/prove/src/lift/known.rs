//! Records of a program lifted before, for an edit of it.
//!
//! Up to the first instruction that an edit changes, a program is lifted as
//! before: same instructions, same operands, same terms.

use super::{Lifted, Lifter, Lv};
use scalify_ir::{CompId, InstrId, Module};

/// A program that was lifted in the same store against the same baseline.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) m: &'a Module,
    pub(crate) records: &'a [Lifted],
}

/// Deepest nesting of computations that are compared.
const MAX_DEPTH: u32 = 8;

impl Lifter<'_> {
    /// The value of the next record, if all before it are as before and it is
    /// too. The first difference ends this.
    pub(super) fn as_before(&mut self, i: InstrId, path: u32, operands: &[u32]) -> Option<Lv> {
        self.compare_known(i, path, operands);
        let known = self.known?;
        let r = known.records.get(self.lifted.len())?;
        let v = match (&r.tv, &r.each) {
            (Some(t), _) => Lv::T(t.clone()),
            (None, Some(ts)) => Lv::Each(ts.clone()),
            // A tuple: made anew from its parts.
            (None, None) => return None,
        };
        let r = r.clone();
        self.lifted.push(r);
        Some(v)
    }

    /// Whether the next record is as before; the first one that is not ends
    /// what is known. Every record of a program has to pass here.
    pub(super) fn compare_known(&mut self, i: InstrId, path: u32, operands: &[u32]) {
        let Some(known) = self.known else { return };
        let same = known.records.get(self.lifted.len()).is_some_and(|r| {
            r.instr == i
                && r.path == path
                && r.operands[..] == *operands
                && !r.lost
                && same_instr(self.m, known.m, i, MAX_DEPTH)
        });
        if !same {
            self.known = None;
        }
    }
}

/// True if an instruction is the same in both programs, with what it calls.
fn same_instr(a: &Module, b: &Module, i: InstrId, depth: u32) -> bool {
    let (Some(x), Some(y)) = (a.instrs.get(i.0 as usize), b.instrs.get(i.0 as usize)) else {
        return false;
    };
    x.opcode == y.opcode
        && x.operands == y.operands
        && a.shape(i) == b.shape(i)
        && x.attrs == y.attrs
        && x.extra == y.extra
        && x.calls.len() == y.calls.len()
        && x.calls.iter().zip(&y.calls).all(|(&c, &d)| same_comp(a, b, c, d, depth))
}

fn same_comp(a: &Module, b: &Module, c: CompId, d: CompId, depth: u32) -> bool {
    let (x, y) = (a.comp(c), b.comp(d));
    depth > 0
        && x.root == y.root
        && x.params == y.params
        && x.instrs == y.instrs
        && x.instrs.iter().all(|&i| same_instr(a, b, i, depth - 1))
}
