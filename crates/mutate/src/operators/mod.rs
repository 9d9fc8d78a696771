//! Mutation operators: typed edits of a module that give a valid module again.
//!
//! **What lives here:** where each operator applies and what it changes.
//!
//! **What may not:** whether the result means something else: an operator
//! marked [`Operator::equal`] never changes the meaning over the reals, any
//! other may or may not (see [`crate::decide`]).

mod collective;
mod constant;
mod control;
mod elementwise;
mod groups;
mod index;
mod layout;
mod rewrite;
mod wiring;

use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::{CompId, InstrId, Module, Severity, ValidateOptions, validate};

/// Where an operator applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The computation.
    pub comp: CompId,
    /// The instruction.
    pub instr: InstrId,
    /// Which of the ways at this instruction.
    pub way: u32,
}

/// A mutated module.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The module.
    pub module: Module,
    /// The instruction that was touched, as in the original.
    pub touched: InstrId,
    /// One line: the instruction and the edit.
    pub text: String,
}

/// A kind of edit.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// Short name.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// The mutant computes the same function over the reals by construction.
    pub equal: bool,
    /// Number of ways at an instruction of a computation.
    ways: fn(&Module, CompId, InstrId) -> u32,
    /// Edits; `None` if it does not work out.
    edit: fn(&mut Edit, Site, &mut Random) -> Option<()>,
}

/// All operators, by family.
pub fn all() -> Vec<Operator> {
    [
        collective::OPERATORS,
        groups::OPERATORS,
        index::OPERATORS,
        layout::OPERATORS,
        elementwise::OPERATORS,
        constant::OPERATORS,
        wiring::OPERATORS,
        control::OPERATORS,
        rewrite::OPERATORS,
    ]
    .concat()
}

/// Computations that run: the entry and what it calls.
fn reachable(m: &Module) -> Vec<CompId> {
    let mut seen = vec![false; m.comps.len()];
    let mut stack = vec![m.entry];
    let mut out = Vec::new();
    while let Some(c) = stack.pop() {
        let Some(s) = seen.get_mut(c.0 as usize) else { continue };
        if std::mem::replace(s, true) {
            continue;
        }
        out.push(c);
        for &i in &m.comp(c).instrs {
            stack.extend(m.instr(i).calls.iter().copied());
        }
    }
    out.sort();
    out
}

/// Instructions that the root depends on, in a module's order of ids.
fn live(m: &Module, c: CompId) -> Vec<InstrId> {
    let c = m.comp(c);
    let mut seen = vec![c.root];
    let mut at = 0;
    let mut mark = vec![false; m.instrs.len()];
    if let Some(s) = mark.get_mut(c.root.0 as usize) {
        *s = true;
    }
    while at < seen.len() {
        for &o in &m.instr(seen[at]).operands {
            if !std::mem::replace(&mut mark[o.0 as usize], true) {
                seen.push(o);
            }
        }
        at += 1;
    }
    c.instrs.iter().copied().filter(|i| mark[i.0 as usize]).collect()
}

/// True without errors of validation.
pub fn valid(m: &Module) -> bool {
    let o = ValidateOptions { max_reports: 8, ..ValidateOptions::default() };
    !validate(m, &o).iter().any(|e| e.severity == Severity::Error)
}

impl Operator {
    /// All sites in the live part of a module. Ids in `m` must be valid.
    pub fn sites(&self, m: &Module) -> Vec<Site> {
        let mut out = Vec::new();
        for comp in reachable(m) {
            for instr in live(m, comp) {
                let n = (self.ways)(m, comp, instr);
                out.extend((0..n).map(|way| Site { comp, instr, way }));
            }
        }
        out
    }

    /// The mutant of a valid module on `devices` devices at a site; `None` if
    /// the edit does not work out there, leaves the module as it is, changes
    /// the entry's signature, or gives an invalid module.
    pub fn apply(&self, m: &Module, site: Site, devices: i64, r: &mut Random) -> Option<Mutant> {
        let mut e = Edit::new(m, site.comp, devices);
        (self.edit)(&mut e, site, r)?;
        let shape = |m: &Module, i: InstrId| m.shape(i).clone();
        let (a, b) = (m.entry_comp(), e.m.entry_comp());
        let same = a.params.len() == b.params.len()
            && a.params.iter().zip(&b.params).all(|(&x, &y)| shape(m, x).same(&shape(&e.m, y)))
            && shape(m, a.root).same(&shape(&e.m, b.root));
        if !same || !valid(&e.m) {
            return None;
        }
        let i = m.instr(site.instr);
        let text = format!("{} %{}: {}", i.opcode, m.str(i.name), e.text);
        Some(Mutant { module: e.m, touched: site.instr, text })
    }
}
