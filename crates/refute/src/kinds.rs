//! Which kind of fault an edit mends, where that shows only in what stands
//! around it: the same sum that is missing before a division by a count is a
//! wrong normalisation, and before a device cuts its own block a
//! reduce-scatter.

use crate::blocks;
use crate::candidates::{Candidate, Context, Edit};
use crate::edit::number;
use scalify_ir::{Attrs, InstrId, Opcode, ReplicaGroups};

/// Instructions looked at from one place on.
const FAR: usize = 64;

/// Moves elements or changes their type; values stay.
pub(crate) fn moves(op: Opcode) -> bool {
    use Opcode::*;
    matches!(op, Reshape | Transpose | Broadcast | Convert | Copy | Bitcast | Reverse)
}

fn sorted(mut groups: Vec<Vec<i64>>) -> Vec<Vec<i64>> {
    groups.iter_mut().for_each(|g| g.sort_unstable());
    groups.sort();
    groups
}

impl Context<'_> {
    /// What is computed from `x` through instructions that `through` accepts,
    /// `x` first; with it the instructions at which that ends, and the
    /// operand by which each is reached.
    fn reach(
        &self,
        x: InstrId,
        through: impl Fn(InstrId) -> bool,
    ) -> (Vec<InstrId>, Vec<(InstrId, usize)>) {
        let (mut inside, mut ends) = (vec![x], Vec::new());
        let mut k = 0;
        while k < inside.len() && inside.len() < FAR {
            let from = inside[k];
            k += 1;
            for &u in self.users(from) {
                if through(u) {
                    if !inside.contains(&u) {
                        inside.push(u);
                    }
                    continue;
                }
                let at = self.m.instr(u).operands.iter().enumerate();
                ends.extend(at.filter(|o| *o.1 == from).map(|o| (u, o.0)));
            }
        }
        (inside, ends)
    }

    /// Linear in its first operand that is no constant: a sum over devices
    /// may stand before or after.
    fn linear(&self, u: InstrId) -> bool {
        let i = self.m.instr(u);
        let constant = |k: usize| i.operands.get(k).is_some_and(|&o| self.is_constant(o, 4));
        moves(i.opcode)
            || matches!(i.opcode, Opcode::Negate | Opcode::Slice)
            || i.opcode == Opcode::Multiply && (constant(0) || constant(1))
            || i.opcode == Opcode::Divide && constant(1)
    }

    /// A maximum that should be a minimum, or the other way round, of what has
    /// a negative factor: the factor was moved through it.
    pub(crate) fn is_turned(&self, at: InstrId, op: Opcode) -> bool {
        use Opcode::{Dot, Maximum, Minimum, Negate};
        if !matches!((self.m.instr(at).opcode, op), (Maximum, Minimum) | (Minimum, Maximum)) {
            return false;
        }
        let mut seen = vec![at];
        let mut k = 0;
        while k < seen.len() && seen.len() < FAR {
            let i = self.m.instr(seen[k]);
            k += 1;
            if i.opcode == Negate || i.opcode == Opcode::Multiply && self.has_negative(&i.operands)
            {
                return true;
            }
            let through = moves(i.opcode)
                || matches!(i.opcode, Dot | Maximum | Minimum | Opcode::Multiply)
                || i.opcode.is_collective();
            for &o in i.operands.iter().filter(|_| through) {
                if !seen.contains(&o) {
                    seen.push(o);
                }
            }
        }
        false
    }

    fn has_negative(&self, operands: &[InstrId]) -> bool {
        operands.iter().any(|&o| {
            let mut x = self.m.instr(o);
            for _ in 0..8 {
                match x.operands.first() {
                    Some(&y) if moves(x.opcode) => x = self.m.instr(y),
                    _ => break,
                }
            }
            matches!(&x.attrs, Attrs::Constant(l) if number(l).is_some_and(|v| v < 0.0))
        })
    }

    /// Kind of the fault that an inserted all-reduce over `mask` mends.
    pub(crate) fn sum_code(&self, x: &Candidate, mask: u32, mean: bool) -> &'static str {
        let sites: Vec<InstrId> =
            std::iter::once(x.at).chain(x.also.iter().map(|a| a.0)).take(8).collect();
        if self.normalises(&sites) {
            return "wrong-scale";
        }
        let (_, ends) = self.reach(x.at, |u| self.linear(u));
        let cut = ends.iter().any(|&(u, k)| {
            let i = self.m.instr(u);
            let moved = matches!(i.opcode, Opcode::AllGather | Opcode::AllToAll) && k == 0;
            matches!(&i.attrs, Attrs::Collective(a) if moved && self.covers(&a.groups, mask))
        });
        if cut {
            // The value is gathered where it must be summed.
            return "wrong-kind-collective";
        }
        if mean && self.summed_behind(x.at, mask) {
            // The sum behind what is not linear becomes one of copies.
            return "wrong-operand";
        }
        let product = |u: InstrId| {
            let i = self.m.instr(u);
            let vary = |o: &InstrId| self.varies[o.0 as usize] & mask == mask;
            i.opcode == Opcode::Multiply && i.operands.iter().all(vary)
        };
        if ends.iter().any(|e| product(e.0) && self.summed_behind(e.0, mask)) {
            // A sum of products, where the product of the sums is meant.
            return "wrong-operand";
        }
        "missing-all-reduce"
    }

    /// The slice by which a device cuts its own block out of what is computed
    /// from `x` by linear operations.
    pub(crate) fn cut_after(&self, x: InstrId, mask: u32) -> Option<InstrId> {
        let (_, ends) = self.reach(x, |u| self.linear(u));
        let own = |o: &InstrId| self.varies[o.0 as usize] & mask == mask;
        let cuts = |e: &&(InstrId, usize)| {
            let i = self.m.instr(e.0);
            i.opcode == Opcode::DynamicSlice && e.1 == 0 && i.operands[1..].iter().any(own)
        };
        ends.iter().find(cuts).map(|e| e.0)
    }

    /// Mesh axes that only one of the old groups of a collective and those of
    /// `mask` run along, in words.
    pub(crate) fn axes_apart(&self, at: InstrId, mask: u32) -> String {
        let Attrs::Collective(a) = &self.m.instr(at).attrs else { return String::new() };
        if self.m.instr(at).opcode != Opcode::AllReduce {
            return String::new();
        }
        let old: u32 =
            self.masks().into_iter().filter(|&k| self.covers(&a.groups, k)).fold(0, |a, k| a | k);
        let devices: i64 = self.mesh.iter().map(|a| a.1).product();
        if self.template(old).groups.expand(devices).map(sorted)
            != a.groups.expand(devices).map(sorted)
        {
            return String::new();
        }
        match (mask & !old, old & !mask) {
            (0, 0) => String::new(),
            (0, more) => format!(" alone, not over {} too", self.axes(more)),
            (less, 0) if old != 0 => {
                format!(
                    ", not {} alone: the sum over {} is missing",
                    self.axes(old),
                    self.axes(less)
                )
            }
            (_, 0) => String::new(),
            (_, more) => format!(", not over {}", self.axes(more)),
        }
    }

    /// Do `sites` reach both sides of a quotient: sums of the device alone are
    /// divided by each other?
    fn normalises(&self, sites: &[InstrId]) -> bool {
        let mut sides: Vec<(InstrId, usize)> = Vec::new();
        for &s in sites {
            let through = |u: InstrId| {
                let op = self.m.instr(u).opcode;
                // Several of the sums, added up.
                let added =
                    op == Opcode::Add && self.m.instr(u).operands.iter().all(|o| sites.contains(o));
                self.linear(u)
                    || added
                    || matches!(op, Opcode::Reduce | Opcode::Select | Opcode::Maximum)
            };
            let (_, ends) = self.reach(s, through);
            let quotients = ends.iter().filter(|e| self.m.instr(e.0).opcode == Opcode::Divide);
            for &(u, k) in quotients {
                if sides.contains(&(u, 1 - k.min(1))) {
                    return true;
                }
                sides.push((u, k));
            }
        }
        false
    }

    /// Is what is computed from `x` summed over the axes of `mask` later on?
    fn summed_behind(&self, x: InstrId, mask: u32) -> bool {
        let all = |u: InstrId| self.m.instr(u).opcode != Opcode::AllReduce;
        let (_, ends) = self.reach(x, all);
        let sums = |u: InstrId| match &self.m.instr(u).attrs {
            Attrs::Collective(a) => self.covers(&a.groups, mask),
            _ => false,
        };
        if ends.iter().any(|e| sums(e.0)) {
            return true;
        }
        // Out of a loop or a call.
        let inner = self.owner[x.0 as usize] != self.m.entry;
        let reduces = |k: &InstrId| self.m.instr(*k).opcode == Opcode::AllReduce && sums(*k);
        inner && self.m.entry_comp().instrs.iter().any(reduces)
    }

    /// Kind of the fault that an all-reduce at `at` in place of `d` mends.
    pub(crate) fn moved_code(&self, at: InstrId, d: InstrId) -> &'static str {
        let (between, _) = self.reach(at, |u| u != d);
        let on_path: Vec<InstrId> =
            between.into_iter().filter(|&u| u != at && self.leads_to(u, d)).collect();
        let cut = |u: &InstrId| {
            let i = self.m.instr(*u);
            i.opcode == Opcode::DynamicSlice
                && i.operands[1..].iter().any(|o| self.varies[o.0 as usize] != 0)
        };
        if on_path.iter().any(cut) {
            // Each device's rows are other ones, and are summed.
            return "stale-slice";
        }
        if on_path.iter().any(|&u| !self.linear(u)) {
            // A sum of what is not linear in its parts.
            return "wrong-operand";
        }
        "misplaced-all-reduce"
    }

    fn leads_to(&self, x: InstrId, d: InstrId) -> bool {
        let (inside, ends) = self.reach(x, |u| u != d);
        inside.contains(&d) || ends.iter().any(|e| e.0 == d)
    }

    /// Is `x`, the same on all devices, summed over `n` of them?
    pub(crate) fn copies_summed(&self, x: InstrId, factor: f64) -> bool {
        self.masks().into_iter().any(|mask| {
            let n: i64 = (0..self.mesh.len())
                .filter(|j| mask & 1 << j != 0)
                .map(|j| self.mesh[j].1)
                .product();
            (factor * n as f64 - 1.0).abs() < 1e-12
                && self.varies[x.0 as usize] & mask == 0
                && !self.is_reduced(x, 6)
                && self.summed_behind(x, mask)
        })
    }

    /// Does each group hold whole what differs only along the axes of `mask`?
    pub(crate) fn covers(&self, g: &ReplicaGroups, mask: u32) -> bool {
        let devices: i64 = self.mesh.iter().map(|a| a.1).product();
        let (Some(big), Some(small)) =
            (g.expand(devices), self.template(mask).groups.expand(devices))
        else {
            return false;
        };
        small.iter().all(|s| big.iter().any(|b| s.iter().all(|x| b.contains(x))))
    }

    /// One value is the other with its elements moved.
    pub(crate) fn same_elements(&self, x: InstrId, y: InstrId) -> bool {
        let source = |mut x: InstrId| {
            let moved = |op| matches!(op, Opcode::Transpose | Opcode::Reshape | Opcode::Reverse);
            for _ in 0..8 {
                let i = self.m.instr(x);
                if !moved(i.opcode) {
                    break;
                }
                x = i.operands[0];
            }
            x
        };
        x != y && source(x) == source(y)
    }

    /// Is `new` the value `old` with slices of it updated?
    pub(crate) fn written_into(&self, old: InstrId, new: InstrId) -> bool {
        let (mut x, mut written) = (new, false);
        for _ in 0..16 {
            let i = self.m.instr(x);
            let update = matches!(i.opcode, Opcode::DynamicUpdateSlice | Opcode::Scatter);
            let Some(&o) = i.operands.first().filter(|_| update || moves(i.opcode)) else {
                return false;
            };
            written |= update;
            if o == old {
                return written;
            }
            x = o;
        }
        false
    }

    /// Do both stand in one select as its branches?
    pub(crate) fn branches(&self, x: InstrId, y: InstrId) -> bool {
        self.users(x).iter().any(|&u| {
            let i = self.m.instr(u);
            i.opcode == Opcode::Select
                && i.operands[1..].contains(&x)
                && i.operands[1..].contains(&y)
        })
    }

    /// Are both parts of one concatenation?
    pub(crate) fn joined(&self, x: InstrId, y: InstrId) -> bool {
        self.users(x).iter().any(|&u| {
            let i = self.m.instr(u);
            i.opcode == Opcode::Concatenate && i.operands.contains(&y)
        })
    }

    /// A sum over devices of blocks that each puts in its place.
    pub(crate) fn sums_blocks(&self, at: InstrId) -> bool {
        let i = self.m.instr(at);
        let put = |&o: &InstrId| self.m.instr(o).opcode == Opcode::DynamicUpdateSlice;
        i.opcode == Opcode::AllReduce && i.operands.first().is_some_and(put)
    }

    /// The all-gather of `source` that `at` is a slice of or has the elements
    /// of.
    fn gathered(&self, at: InstrId, source: InstrId) -> Option<InstrId> {
        let mut x = at;
        for _ in 0..6 {
            let i = self.m.instr(x);
            let &o = i.operands.first()?;
            if i.opcode == Opcode::AllGather {
                return (o == source).then_some(x);
            }
            if !(moves(i.opcode) || i.opcode == Opcode::Slice) {
                return None;
            }
            x = o;
        }
        None
    }

    /// Is `at` a slice of a gather of the same value over other devices than
    /// those of `mask`?
    pub(crate) fn gathered_otherwise(&self, at: InstrId, source: InstrId, mask: u32) -> bool {
        let other = |x: InstrId| {
            let n: i64 = self.mesh.iter().map(|a| a.1).product();
            matches!(&self.m.instr(x).attrs, Attrs::Collective(a)
                if a.groups.expand(n) != self.template(mask).groups.expand(n))
        };
        self.gathered(at, source).is_some_and(other)
    }

    /// Is `at` such a gather with its elements moved?
    pub(crate) fn gathered_moved(&self, at: InstrId, source: InstrId) -> bool {
        self.gathered(at, source).is_some_and(|g| g != at)
    }

    /// A finer name where the blocks that devices cut out do not make up the
    /// whole: they leave elements out or hold some twice.
    pub(crate) fn split_code(&self, x: &Candidate, code: &'static str) -> &'static str {
        if !matches!(code, "wrong-offset" | "wrong-mask" | "wrong-constant" | "wrong-operation") {
            return code;
        }
        let uneven = |at: InstrId| blocks::uneven(self, at, matches!(x.edit, Edit::Use { .. }));
        if uneven(x.at) { "axis-split" } else { code }
    }
}
