//! A module made ready for drawing.

use crate::fold::folded;
use crate::mesh::Meshes;
use crate::tree::Tree;
use scalify_claim::Mesh;
use scalify_ir::{InstrId, Module};

/// Most instructions of a page or picture, all modules together.
pub const MAX_INSTRUCTIONS: usize = 2_000_000;

/// A module, its hierarchy and its layout.
pub struct Graph<'a> {
    /// The module.
    pub module: &'a Module,
    /// What the page calls it, e.g. the file name.
    pub name: String,
    /// Per instruction: shown as a tag of its users.
    pub folded: Vec<bool>,
    /// The hierarchy.
    pub tree: Tree,
    pub(crate) meshes: Meshes,
}

/// Too many instructions for a page.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}: {found} instructions, expected at most {MAX_INSTRUCTIONS} to draw")]
pub struct TooBig {
    /// Which module.
    pub name: String,
    /// Instructions it has.
    pub found: usize,
}

impl<'a> Graph<'a> {
    /// Folds, orders, groups and lays out a module in linear time (up to
    /// sorting). `mesh` overrides what the module declares.
    ///
    /// # Errors
    /// More than [`MAX_INSTRUCTIONS`] instructions.
    pub fn new(module: &'a Module, name: &str, mesh: Option<Mesh>) -> Result<Self, TooBig> {
        let found = module.instrs.len();
        if found > MAX_INSTRUCTIONS {
            return Err(TooBig { name: name.into(), found });
        }
        let folded = folded(module);
        let tree = Tree::new(module, &folded);
        Ok(Graph { module, name: name.into(), folded, tree, meshes: Meshes::new(module, mesh) })
    }

    /// The instruction of a name; of several, that of the entry computation.
    pub fn find(&self, name: &str) -> Option<InstrId> {
        let name = name.trim_start_matches('%');
        let m = self.module;
        let sym = m.strings.lookup(name)?;
        let hit = |i: &InstrId| m.instrs.get(i.0 as usize).is_some_and(|x| x.name == sym);
        let entry = m.comps.get(m.entry.0 as usize).map_or(&[][..], |c| &c.instrs);
        entry
            .iter()
            .copied()
            .find(hit)
            .or_else(|| (0..m.instrs.len() as u32).map(InstrId).find(|i| hit(i)))
    }

    /// Instructions at most `hops` operand or user steps away, `at` first,
    /// no more than `limit`.
    pub fn around(&self, at: InstrId, hops: usize, limit: usize) -> Vec<InstrId> {
        let m = self.module;
        let mut users: Vec<Vec<InstrId>> = vec![Vec::new(); m.instrs.len()];
        for (k, i) in m.instrs.iter().enumerate() {
            for o in &i.operands {
                if let Some(u) = users.get_mut(o.0 as usize) {
                    u.push(InstrId(k as u32));
                }
            }
        }
        let mut seen = vec![false; m.instrs.len()];
        let mut out = vec![at];
        let Some(s) = seen.get_mut(at.0 as usize) else { return Vec::new() };
        *s = true;
        let (mut from, mut step) = (0, 0);
        while step < hops && from < out.len() && out.len() < limit {
            let ring: Vec<InstrId> = out[from..].to_vec();
            from = out.len();
            for i in ring {
                let next = m.instr(i).operands.iter().chain(&users[i.0 as usize]);
                for &n in next {
                    if !seen[n.0 as usize] && out.len() < limit {
                        seen[n.0 as usize] = true;
                        out.push(n);
                    }
                }
            }
            step += 1;
        }
        out
    }
}
