//! What a verification leaves behind: questions about its relations, and
//! further distributed programs against the same baseline.

use crate::decide::Attempt;
use crate::lift::Lifted;
use crate::lift::known::Known;
use crate::outcome::{Grade, Related};
use crate::problem::Problem;
use crate::{Options, problem, relate};
use rustc_hash::FxHashMap;
use scalify_claim::{Claim, Placement};
use scalify_ir::{InstrId, Module};

/// The terms of a verified pair; see [`crate::verify_then`].
pub struct Kept<'a> {
    base: &'a Module,
    dist: &'a Module,
    /// What the baseline was lifted under.
    p: Problem,
    attempt: Option<Attempt>,
    /// Records of `dist`, once others were lifted.
    known: Vec<Lifted>,
    /// Of each distributed instruction: its one record.
    records: Vec<Option<u32>>,
    /// The same of the baseline's.
    base_records: Vec<Option<u32>>,
    /// Without an attempt: what lemmas prove to be blocks of the baseline's.
    blocks: FxHashMap<InstrId, (InstrId, Placement)>,
}

impl<'a> Kept<'a> {
    pub(crate) fn new(base: &'a Module, dist: &'a Module, p: Problem, attempt: Attempt) -> Self {
        let records = once(dist, &attempt.dist);
        let base_records = once(base, &attempt.base);
        let (known, blocks) = (Vec::new(), FxHashMap::default());
        Kept { base, dist, p, attempt: Some(attempt), known, records, base_records, blocks }
    }

    /// After lemmas: no terms of the whole programs, but the values before
    /// which they were cut.
    pub(crate) fn blocks(
        base: &'a Module,
        dist: &'a Module,
        p: Problem,
        blocks: FxHashMap<InstrId, (InstrId, Placement)>,
    ) -> Self {
        Kept {
            base,
            dist,
            p,
            attempt: None,
            known: Vec::new(),
            records: Vec::new(),
            base_records: Vec::new(),
            blocks,
        }
    }

    /// What was verified, as it was set up.
    pub fn problem(&self) -> &Problem {
        &self.p
    }

    /// How every distributed instruction stands to the baseline, in program
    /// order. Empty after [`Kept::proves`] and after lemmas.
    pub fn related(&mut self) -> Vec<Related> {
        match &mut self.attempt {
            Some(a) => relate::all(a, self.base, self.dist),
            None => Vec::new(),
        }
    }

    /// The baseline value of which a distributed instruction is the device's
    /// block, and how the blocks lie. `None` if it is not related in this way,
    /// if one of the two was lifted more than once, and after
    /// [`Kept::proves`]. In the body of a loop the relation may be one of
    /// every turn.
    pub fn block_of(&mut self, d: InstrId) -> Option<(InstrId, Placement)> {
        if let Some(x) = self.blocks.get(&d) {
            return Some(x.clone());
        }
        let rec = self.records.get(d.0 as usize).copied().flatten()?;
        let (b, q) = relate::block_of(self.attempt.as_mut()?, self.base, self.dist, rec)?;
        self.base_records.get(b.0 as usize).copied().flatten()?;
        Some((b, q))
    }

    /// True if a distributed instruction, lifted once, has the term of a
    /// baseline value; after lemmas, if it is one's block.
    pub fn is_related(&self, d: InstrId) -> bool {
        if self.blocks.contains_key(&d) {
            return true;
        }
        let rec = self.records.get(d.0 as usize).copied().flatten();
        let (Some(r), Some(a)) = (rec, &self.attempt) else { return false };
        a.dist.get(r as usize).is_some_and(|r| r.base.is_some() && r.tv.is_some())
    }

    /// Grade of the proof, by the means of the verification's last attempt,
    /// that `dist` computes the same baseline; `None` says nothing. The grade
    /// may be weaker than needed: assumptions made for earlier programs count.
    /// Nothing is proved where the baseline would be lifted otherwise beside
    /// `dist` (other devices, mesh or inputs), or by exact laws alone, which
    /// only [`crate::verify`] knows to choose.
    pub fn proves(&mut self, dist: &Module, claim: &Claim, options: &Options<'_>) -> Option<Grade> {
        let a = self.attempt.take()?;
        let p = problem::setup(self.base, dist, claim);
        if a.stop.is_some() || a.is_exact() || !p.errors.is_empty() || !p.lifts_alike(&self.p) {
            return None;
        }
        let mut a = a;
        if !self.records.is_empty() {
            // The first time.
            self.records.clear();
            self.known = std::mem::take(&mut a.dist);
        }
        // Parameters that lie otherwise are other values.
        let lie = |p: &Problem| p.pairs.iter().map(|q| q.placement.clone()).collect::<Vec<_>>();
        let known = Known::of(dist, self.dist, &self.known).filter(|_| lie(&p) == lie(&self.p));
        let a = a.again(self.base, dist, claim, &p, options, known);
        let grade = a.grade(claim, &p);
        self.attempt = Some(a);
        grade
    }
}

/// The record of each instruction that has exactly one.
fn once(m: &Module, records: &[crate::lift::Lifted]) -> Vec<Option<u32>> {
    let mut count = vec![0u32; m.instrs.len()];
    let mut out = vec![None; m.instrs.len()];
    for (k, r) in records.iter().enumerate() {
        let i = r.instr.0 as usize;
        if let (Some(c), Some(o)) = (count.get_mut(i), out.get_mut(i)) {
            *c += 1;
            *o = (*c == 1).then_some(k as u32);
        }
    }
    out
}
