//! How a computation is executed: when values die, and which elementwise
//! instructions run together as one region.
//!
//! A region runs at the place of its last member. No instruction between its
//! members uses one of them, so that place is right for all. A `broadcast`
//! that only regions use is never computed by itself: they read its operand.

use super::exec::elementwise;
use crate::ops::fuse::{Step, Steps};
use crate::tensor::count;
use rustc_hash::FxHashMap;
use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode, Shape};

/// Members of a region at most.
const MAX_MEMBERS: usize = 256;

/// What happens at the place of an instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Role {
    /// It is executed.
    Single,
    /// Nothing: it belongs to a region, or is read through.
    Skip,
    /// The region of this number is executed.
    Region(usize),
}

/// Instructions that run together.
pub(super) struct Region {
    /// Members, by step number of [`Step::Apply`].
    pub(super) members: Vec<InstrId>,
    /// Local indices of the values it reads.
    pub(super) externals: Vec<u32>,
    /// Local indices and instructions of its results, in the order of
    /// `steps.results`.
    pub(super) results: Vec<(u32, InstrId)>,
    pub(super) steps: Steps,
}

/// The plan of a computation.
pub(super) struct Plan {
    /// Per position: local indices of values used there last.
    pub(super) dead: Vec<Vec<u32>>,
    pub(super) roles: Vec<Role>,
    pub(super) regions: Vec<Region>,
}

impl Plan {
    /// `fuse` forms regions. `local` gives each instruction's position.
    pub(super) fn new(m: &Module, local: &[u32], comp: CompId, fuse: bool) -> Plan {
        let c = m.comp(comp);
        let n = c.instrs.len();
        let at = |i: InstrId| local.get(i.0 as usize).map_or(usize::MAX, |&l| l as usize);
        let root = at(c.root);
        let mut roles = vec![Role::Single; n];
        let mut regions = Vec::new();
        // Where an instruction's operands are read.
        let mut place: Vec<usize> = (0..n).collect();
        if fuse {
            let groups = Groups::form(m, &c.instrs, &at);
            groups.plan(m, &c.instrs, &at, root, &mut roles, &mut regions, &mut place);
        }
        let mut last: Vec<usize> = (0..n).collect();
        for (k, &id) in c.instrs.iter().enumerate() {
            for &o in m.instrs.get(id.0 as usize).into_iter().flat_map(|i| &i.operands) {
                if let Some(slot) = last.get_mut(at(o)) {
                    *slot = (*slot).max(place[k]);
                }
            }
        }
        // A result exists only from its region's place on.
        for (k, r) in roles.iter().enumerate() {
            if let Role::Region(r) = r {
                for &(o, _) in &regions[*r].results {
                    last[o as usize] = last[o as usize].max(k);
                }
            }
        }
        let mut dead = vec![Vec::new(); n];
        for (i, &k) in last.iter().enumerate() {
            if i != root {
                dead[k].push(i as u32);
            }
        }
        Plan { dead, roles, regions }
    }
}

/// A set of instructions that may still grow.
struct Group {
    members: Vec<usize>,
    len: usize,
    open: bool,
}

struct Groups {
    /// Group of each position.
    of: Vec<Option<usize>>,
    groups: Vec<Group>,
}

fn dims(m: &Module, id: InstrId) -> Option<&[i64]> {
    match m.shapes.get(m.instrs.get(id.0 as usize)?.shape.0 as usize)? {
        Shape::Array(a) => Some(&a.dims),
        _ => None,
    }
}

/// Is operand `j` of this opcode one scalar for all elements if it is scalar?
fn whole(op: Opcode, j: usize) -> bool {
    matches!((op, j), (Opcode::Select, 0) | (Opcode::Clamp, 0 | 2))
}

/// Number of elements, if the instruction can be a member: elementwise, all
/// shapes as they should be.
fn fusable(m: &Module, id: InstrId) -> Option<usize> {
    let i = m.instrs.get(id.0 as usize)?;
    let own = dims(m, id)?;
    let n = count(own).filter(|&n| n > 1)?;
    let arity = match i.opcode {
        Opcode::Copy | Opcode::Bitcast => return None,
        Opcode::Select | Opcode::Clamp => 3,
        op if op.is_binary_elementwise() => 2,
        op if elementwise(op) => 1,
        _ => return None,
    };
    let fits = i.operands.len() == arity
        && i.operands.iter().enumerate().all(|(j, &o)| {
            dims(m, o).is_some_and(|d| d == own || d.is_empty() && whole(i.opcode, j))
        });
    fits.then_some(n)
}

impl Groups {
    fn form(m: &Module, instrs: &[InstrId], at: &impl Fn(InstrId) -> usize) -> Groups {
        let mut g = Groups { of: vec![None; instrs.len()], groups: Vec::new() };
        for (k, &id) in instrs.iter().enumerate() {
            let Some(i) = m.instrs.get(id.0 as usize) else { continue };
            // Groups of operands in the order of their use.
            let mut join: Vec<usize> = Vec::new();
            let len = match i.opcode {
                Opcode::Reshape => dims(m, id).and_then(count).filter(|&n| n > 1),
                _ => fusable(m, id),
            };
            for (j, &o) in i.operands.iter().enumerate() {
                let Some(q) = g.of.get(at(o)).copied().flatten() else { continue };
                let grow = g.groups[q].open
                    && len == Some(g.groups[q].len)
                    && !(whole(i.opcode, j) && dims(m, o).is_some_and(<[i64]>::is_empty));
                if !grow {
                    g.groups[q].open = false;
                } else if !join.contains(&q) {
                    join.push(q);
                }
            }
            let Some(len) = len else { continue };
            let total: usize = join.iter().map(|&q| g.groups[q].members.len()).sum();
            if total >= MAX_MEMBERS {
                for q in join.drain(..) {
                    g.groups[q].open = false;
                }
            }
            let Some(&q) = join.first() else {
                // A reshape of a finished value costs nothing by itself.
                if i.opcode != Opcode::Reshape {
                    g.of[k] = Some(g.groups.len());
                    g.groups.push(Group { members: vec![k], len, open: true });
                }
                continue;
            };
            for &p in &join[1..] {
                let moved = std::mem::take(&mut g.groups[p].members);
                g.groups[p].open = false;
                for &x in &moved {
                    g.of[x] = Some(q);
                }
                g.groups[q].members.extend(moved);
            }
            g.of[k] = Some(q);
            g.groups[q].members.push(k);
        }
        for g in &mut g.groups {
            g.members.sort_unstable();
        }
        g
    }

    #[allow(clippy::too_many_arguments)]
    fn plan(
        mut self,
        m: &Module,
        instrs: &[InstrId],
        at: &impl Fn(InstrId) -> usize,
        root: usize,
        roles: &mut [Role],
        regions: &mut Vec<Region>,
        place: &mut [usize],
    ) {
        let ops = |k: usize| {
            m.instrs.get(instrs[k].0 as usize).into_iter().flat_map(|i| i.operands.iter().copied())
        };
        let broadcast = |k: usize| {
            let i = instrs.get(k).and_then(|i| m.instrs.get(i.0 as usize))?;
            let map = match (i.opcode, &i.attrs) {
                (Opcode::Broadcast, Attrs::Dims(d)) => d.to_vec(),
                (Opcode::Broadcast, Attrs::None) => Vec::new(),
                _ => return None,
            };
            let [o] = i.operands[..] else { return None };
            let d = dims(m, instrs[k])?;
            count(d).filter(|&n| n > 1)?;
            Some((at(o), map, d.to_vec()))
        };
        // A single instruction is worth a region if it reads a broadcast.
        for g in &mut self.groups {
            if let [k] = g.members[..]
                && !ops(k).any(|o| broadcast(at(o)).is_some())
            {
                self.of[k] = None;
                g.members.clear();
            }
        }
        // Used outside of its group, or as the result.
        let mut outside = vec![false; instrs.len()];
        if let Some(r) = outside.get_mut(root) {
            *r = true;
        }
        for k in 0..instrs.len() {
            for o in ops(k) {
                if let Some(out) = outside.get_mut(at(o)) {
                    let own = self.of[at(o)].is_some() && self.of[at(o)] == self.of[k];
                    let through = self.of[k].is_some() && broadcast(at(o)).is_some();
                    *out |= !own && !through;
                }
            }
        }
        for g in &self.groups {
            let Some(&end) = g.members.last() else { continue };
            let r = self.region(m, instrs, at, g, &outside, &broadcast);
            for &k in &g.members {
                roles[k] = Role::Skip;
                place[k] = end;
                for o in ops(k).map(at) {
                    let Some((_, map, _)) = broadcast(o) else { continue };
                    if !outside[o] {
                        roles[o] = Role::Skip;
                    }
                    if !outside[o] || map.is_empty() {
                        place[o] = place[o].max(end);
                    }
                }
            }
            roles[end] = Role::Region(regions.len());
            regions.push(r);
        }
    }

    fn region(
        &self,
        m: &Module,
        instrs: &[InstrId],
        at: &impl Fn(InstrId) -> usize,
        g: &Group,
        outside: &[bool],
        broadcast: &impl Fn(usize) -> Option<(usize, Vec<i64>, Vec<i64>)>,
    ) -> Region {
        let mut r = Region {
            members: Vec::new(),
            externals: Vec::new(),
            results: Vec::new(),
            steps: Steps { steps: Vec::new(), results: Vec::new(), len: g.len },
        };
        // Step of each value: of members, and of what is read from outside
        // (whole or not).
        let mut step: FxHashMap<(usize, bool), usize> = FxHashMap::default();
        let external = |r: &mut Region, k: usize| -> usize {
            r.externals.iter().position(|&e| e as usize == k).unwrap_or_else(|| {
                r.externals.push(k as u32);
                r.externals.len() - 1
            })
        };
        for &k in &g.members {
            let Some(i) = m.instrs.get(instrs[k].0 as usize) else { continue };
            let mut operands = Vec::new();
            for (j, &o) in i.operands.iter().enumerate() {
                let scalar = whole(i.opcode, j) && dims(m, o).is_some_and(<[i64]>::is_empty);
                let key = (at(o), scalar);
                let s = match step.get(&key) {
                    Some(&s) => s,
                    None => {
                        let seen = match broadcast(at(o)) {
                            // One that is computed anyway is read, unless it
                            // is one element everywhere.
                            Some((from, map, d)) if !outside[at(o)] || map.is_empty() => {
                                Step::Broadcast(external(&mut r, from), map, d)
                            }
                            _ if scalar => Step::Whole(external(&mut r, at(o))),
                            _ => Step::Load(external(&mut r, at(o))),
                        };
                        r.steps.steps.push(seen);
                        step.insert(key, r.steps.steps.len() - 1);
                        r.steps.steps.len() - 1
                    }
                };
                operands.push((s, false));
            }
            r.steps.steps.push(Step::Apply(r.members.len(), operands));
            step.insert((k, false), r.steps.steps.len() - 1);
            r.members.push(instrs[k]);
            if outside[k]
                && let Some(t) = m.shapes.get(i.shape.0 as usize).and_then(Shape::as_array)
            {
                r.results.push((k as u32, instrs[k]));
                r.steps.results.push((r.steps.steps.len() - 1, t.dtype));
            }
        }
        // Last uses, so that kernels may write in place.
        let mut seen: Vec<bool> = vec![false; r.steps.steps.len()];
        for &(s, _) in &r.steps.results {
            seen[s] = true;
        }
        for s in r.steps.steps.iter_mut().rev() {
            if let Step::Apply(_, operands) = s {
                for (o, last) in operands.iter_mut().rev() {
                    *last = !std::mem::replace(&mut seen[*o], true);
                }
            }
        }
        r
    }
}
