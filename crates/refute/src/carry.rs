//! Edits of one program as edits of a smaller one made of it.

use crate::candidates::{Candidate, Edit};
use crate::edit::Ids;
use scalify_ir::InstrId;

impl Candidate {
    /// The candidate in the smaller program; `None` if an instruction that it
    /// names is not there.
    pub(crate) fn within(&self, ids: &Ids) -> Option<Candidate> {
        let mut also = Vec::with_capacity(self.also.len());
        for (x, e) in &self.also {
            // Places that are left out take no part.
            if let Some(y) = ids.small(*x) {
                also.push((y, e.within(ids)?));
            }
        }
        Some(Candidate {
            at: ids.small(self.at)?,
            edit: self.edit.within(ids)?,
            cost: self.cost,
            also,
        })
    }
}

impl Edit {
    fn within(&self, ids: &Ids) -> Option<Edit> {
        let mut e = self.clone();
        for x in e.named() {
            *x = ids.small(*x)?;
        }
        Some(e)
    }

    /// The instructions that it names.
    fn named(&mut self) -> Vec<&mut InstrId> {
        match self {
            Edit::AllReduce { drop, .. } => drop.iter_mut().collect(),
            Edit::Redo { source, like, .. } => vec![source, like],
            Edit::Reorder { of, .. } => of.iter_mut().collect(),
            Edit::Gather { source: x, .. }
            | Edit::Exchange { with: x }
            | Edit::Operand { with: x, .. }
            | Edit::Add { with: x }
            | Edit::AddSpread { with: x, .. }
            | Edit::Permute { like: x, .. }
            | Edit::Rotate { like: x }
            | Edit::Times { with: x, .. }
            | Edit::TimesOperand { with: x, .. }
            | Edit::InRange { raw: x, .. } => vec![x],
            // The baseline's instruction.
            Edit::Graft { .. }
            | Edit::Drop
            | Edit::Groups { .. }
            | Edit::Reducer { .. }
            | Edit::Use { .. }
            | Edit::TransposeAfter { .. }
            | Edit::Pairs { .. }
            | Edit::Scale { .. }
            | Edit::ScaleOperand { .. }
            | Edit::Constant { .. }
            | Edit::TransposeBefore { .. }
            | Edit::Permutation { .. }
            | Edit::Relayout { .. }
            | Edit::Op { .. }
            | Edit::Direction { .. }
            | Edit::Coordinate { .. }
            | Edit::Offset { .. }
            | Edit::Shift { .. }
            | Edit::Swap
            | Edit::Start { .. }
            | Edit::OwnBlock { .. }
            | Edit::Along { .. }
            | Edit::Padding { .. }
            | Edit::MaskPadding { .. }
            | Edit::Devices { .. } => Vec::new(),
        }
    }
}
