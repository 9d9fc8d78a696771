//! Records of a program lifted before, for an edit of it.
//!
//! Up to the first instruction that an edit changes, a program is lifted as
//! before: same instructions, same operands, same terms.

use super::{Lifted, Lifter, Lv};
use scalify_ir::{CompId, InstrId, Module, Opcode, Symbol};

/// A program that was lifted in the same store against the same baseline.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) m: &'a Module,
    pub(crate) records: &'a [Lifted],
}

impl<'a> Known<'a> {
    /// `None` if instructions of `dist` cannot be compared with those of `m`:
    /// other symbols or attributes of the module.
    pub(crate) fn of(dist: &Module, m: &'a Module, records: &'a [Lifted]) -> Option<Known<'a>> {
        let same = dist.header == m.header
            && dist.strings.len() >= m.strings.len()
            && (0..m.strings.len() as u32).map(Symbol).all(|x| dist.str(x) == m.str(x));
        same.then_some(Known { m, records })
    }
}

/// Deepest nesting of computations that are compared.
const MAX_DEPTH: u32 = 8;

impl Lifter<'_> {
    /// Ends the use of earlier records at what keeps none of its own and is
    /// another, and where values stand for those of any turn.
    pub(super) fn goes_on(&mut self, i: InstrId) {
        let Some(known) = self.known else { return };
        let other = match self.m.instr(i).opcode {
            Opcode::While | Opcode::Conditional | Opcode::AsyncStart => true,
            Opcode::GetTupleElement | Opcode::Parameter => {
                !same_instr(self.m, known.m, i, MAX_DEPTH)
            }
            _ => false,
        };
        if other {
            self.known = None;
        }
    }

    /// The value of the next record, if all before it are as before and it is
    /// too. The first difference ends this.
    pub(super) fn as_before(&mut self, i: InstrId, path: u32, operands: &[u32]) -> Option<Lv> {
        let known = self.known?;
        let same = known.records.get(self.lifted.len()).filter(|r| {
            r.instr == i
                && r.path == path
                && r.operands[..] == *operands
                && !r.lost
                && same_instr(self.m, known.m, i, MAX_DEPTH)
        });
        let Some(r) = same else {
            self.known = None;
            return None;
        };
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
