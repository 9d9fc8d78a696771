//! Edits that may mend a distributed program, cheapest and nearest first.
//!
//! Each is a change of one place (a collective, a constant, a layout, an
//! operand, an offset); whether it mends anything is for [`crate::repair`] to
//! find out.

use crate::around::{moves, permutations, unused};
use crate::edit::{groups, number};
use crate::graft::Aligned;
use crate::joined::placings;

use crate::masks::padded;
use crate::varies::varies;
use scalify_ir::attrs::{CollectiveAttrs, Comparison};
use scalify_ir::{Attrs, CompId, DType, InstrId, Module, Opcode, Users};
use scalify_prove::problem::Problem;

/// One edit.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Edit {
    /// Insert an all-reduce over the mesh axes of `mask`; drop `drop`, a later
    /// all-reduce that it replaces; `mean`: divide by the number of devices.
    AllReduce { mask: u32, op: Opcode, mean: bool, drop: Option<InstrId> },
    /// Replace a collective by its operand.
    Drop,
    /// Give a collective the groups of these mesh axes.
    Groups { mask: u32 },
    /// Give a reduction another reducer.
    Reducer { op: Opcode },
    /// This value by an all-gather or reduce-scatter, like the one given, of
    /// its operand along another dimension.
    Redo { source: InstrId, like: InstrId, dim: i64 },
    /// This value by an all-gather of `source` over mesh axes.
    Gather { source: InstrId, mask: u32, dim: i64 },
    /// One of the operands in place of the value.
    Use { operand: usize },
    /// Reshape to permuted sizes, then transpose.
    TransposeAfter { perm: Vec<i64> },
    /// Exchange all uses of two values.
    Exchange { with: InstrId },
    /// Reverse or rotate the pairs of a permute.
    Pairs { pairs: Vec<(i64, i64)> },
    /// Multiply by a number.
    Scale { factor: f64 },
    /// Multiply one operand by a number.
    ScaleOperand { operand: usize, factor: f64 },
    /// Use another constant.
    Constant { value: f64 },
    /// Transpose the operand before.
    TransposeBefore { perm: Vec<i64> },
    /// Another permutation of a transpose.
    Permutation { perm: Vec<i64> },
    /// Reshape, transpose, reshape back.
    Relayout { split: Vec<i64>, perm: Vec<i64> },
    /// Use another value.
    Operand { operand: usize, with: InstrId },
    /// Another elementwise operation.
    Op { op: Opcode },
    /// Another comparison.
    Direction { dir: Comparison },
    /// The coordinate on another mesh axis in place of this one.
    Coordinate { axis: usize },
    /// Add the coordinate on a mesh axis times a stride.
    Offset { axis: usize, stride: i64 },
    /// Use each value of `of`, which starts with the one at hand, in place of
    /// another one: the last in place of the first, or the next one.
    Reorder { of: Vec<InstrId>, reverse: bool },
    /// Add a number to a coordinate.
    Shift { by: i64 },
    /// Add a value of the same shape.
    Add { with: InstrId },
    /// Add an input that nothing uses, repeated along the dimensions that
    /// `dims`, where its own go, leaves out.
    AddSpread { with: InstrId, dims: Vec<i64> },
    /// Swap two operands.
    Swap,
    /// Insert collective-permutes, so many, with the pairs of the one given.
    Permute { like: InstrId, times: usize },
    /// Permute the value, like the permute given, once more before each
    /// further use by an operation of one kind and source line.
    Rotate { like: InstrId },
    /// Multiply by a value, repeated along the dimensions that `dims`, where
    /// its own go, leaves out.
    Times { with: InstrId, dims: Vec<i64> },
    /// The same to one operand only.
    TimesOperand { operand: usize, with: InstrId, dims: Vec<i64> },
    /// A slice that starts elsewhere along a dimension.
    Start { dim: usize, start: i64 },
    /// The block that belongs to the device, in place of one slice for all.
    OwnBlock { axis: usize, dim: usize },
    /// Other dimensions, of the same sizes, for a broadcast, reduction, dot,
    /// iota or sort.
    Along { attrs: Box<Attrs> },
    /// The padding of a dimension at its other end.
    Padding { dim: usize },
    /// What an unevenly split input holds beyond its `size` elements along a
    /// dimension, split over a mesh axis, replaced by a number.
    MaskPadding { axis: usize, dim: usize, size: i64, fill: f64 },
    /// Zeros where an index, before it is clamped, is not in `[0, size)`;
    /// `dims`: where its dimensions go.
    InRange { raw: InstrId, size: i64, dims: Vec<i64> },
    /// The first branch of a select on these devices alone.
    Devices { list: Vec<i64> },
    /// A value that the baseline has, built anew.
    Graft { from: InstrId },
}

/// An edit at an instruction.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Where.
    pub at: InstrId,
    /// What.
    pub edit: Edit,
    /// Lower is tried earlier.
    pub cost: f64,
    /// The same edit at other instructions of the same source line.
    pub also: Vec<(InstrId, Edit)>,
}

/// What candidates are made from.
pub struct Context<'a> {
    /// The distributed program.
    pub m: &'a Module,
    /// Computation of each instruction.
    pub owner: Vec<CompId>,
    /// Place of each instruction in its computation.
    position: Vec<u32>,
    /// Users of each value.
    users: Users,
    /// True for computations that run per device.
    pub local: Vec<bool>,
    /// Mesh axes, major first.
    pub mesh: Vec<(String, i64)>,
    /// Ids of groups are replicas.
    pub replica_mode: bool,
    /// Scalar constants of the baseline.
    pub constants: Vec<(DType, f64)>,
    /// The baseline.
    pub base: &'a Module,
    /// Dimensions along which the baseline slices, with where slices start.
    pub(crate) cuts: Vec<(usize, i64)>,
    /// Mesh axes (bit k: axis k) along which each value may differ.
    pub varies: Vec<u32>,
    /// Unevenly split inputs: parameter, mesh axis, dimension, elements.
    pub padded: Vec<(InstrId, usize, usize, i64)>,
    /// Collectives, of all computations.
    pub collectives: Vec<InstrId>,
    /// Float parameters that nothing uses.
    pub unused: Vec<InstrId>,
    /// Where the programs part; `None`: not looked for.
    pub aligned: Option<Aligned>,
}

impl<'a> Context<'a> {
    /// Collects what candidates need.
    pub fn new(m: &'a Module, base: &'a Module, p: &Problem) -> Self {
        let mut owner = vec![m.entry; m.instrs.len()];
        let mut position = vec![0u32; m.instrs.len()];
        for (k, c) in m.comps.iter().enumerate() {
            for (n, i) in c.instrs.iter().enumerate() {
                owner[i.0 as usize] = CompId(k as u32);
                position[i.0 as usize] = n as u32;
            }
        }
        // Per-device code: everything, unless manual regions say what is.
        let region = |c: usize| {
            let n = m.str(m.comps[c].name);
            n.contains("manual_computation_body") || n.contains("shmap_body")
        };
        let any = (0..m.comps.len()).any(region)
            && m.instrs.iter().any(|i| {
                matches!(&i.attrs, Attrs::CustomCall(c) if {
                    let t = m.str(c.target);
                    t.contains("GlobalToLocalShape") || t.contains("FullToShard")
                        || t.contains("LocalToGlobalShape") || t.contains("ShardToFull")
                })
            });
        let mut local = vec![!any; m.comps.len()];
        if any {
            // Callees come before callers.
            for c in (0..m.comps.len()).rev() {
                local[c] |= region(c);
                if local[c] {
                    for &i in &m.comps[c].instrs {
                        for f in &m.instr(i).calls {
                            local[f.0 as usize] = true;
                        }
                    }
                }
            }
        }
        let mut mesh = p.mesh.clone();
        if mesh.iter().map(|a| a.1).product::<i64>() != p.devices || mesh.is_empty() {
            mesh = vec![("devices".to_owned(), p.devices)];
        }
        let varies = varies(m, &mesh, p);
        let replica_mode = p.replica_mode;
        let mut constants: Vec<(DType, f64)> = Vec::new();
        for i in &base.instrs {
            if let Attrs::Constant(l) = &i.attrs {
                if let (Some(v), Some(d)) = (number(l), l.shape.dtype()) {
                    if !constants.contains(&(d, v)) && constants.len() < 64 && v.is_finite() {
                        constants.push((d, v));
                    }
                }
            }
        }
        let mut cuts: Vec<(usize, i64)> = Vec::new();
        for i in &base.instrs {
            if let Attrs::Slice(s) = &i.attrs {
                for x in s.start.iter().copied().enumerate() {
                    if cuts.len() < 64 && !cuts.contains(&x) {
                        cuts.push(x);
                    }
                }
            }
        }
        let padded = padded(m, &mesh, p);
        let unused = unused(m);
        let all = (0..m.instrs.len() as u32).map(InstrId);
        let collectives = all.filter(|&x| m.instr(x).opcode.is_collective()).collect();
        Context {
            m,
            owner,
            position,
            users: Users::new(m),
            local,
            mesh,
            replica_mode,
            constants,
            base,
            cuts,
            varies,
            padded,
            collectives,
            unused,
            aligned: None,
        }
    }

    /// Users of a value, in order.
    pub(crate) fn users(&self, x: InstrId) -> &[InstrId] {
        self.users.of(x)
    }

    /// Where an instruction stands in its computation.
    pub(crate) fn position(&self, x: InstrId) -> usize {
        self.position[x.0 as usize] as usize
    }

    /// Mesh axes that have more than one device, as masks: each, then all,
    /// then pairs.
    pub(crate) fn masks(&self) -> Vec<u32> {
        let live: Vec<u32> =
            (0..self.mesh.len() as u32).filter(|&k| self.mesh[k as usize].1 > 1).collect();
        let mut out: Vec<u32> = live.iter().map(|k| 1 << k).collect();
        if live.len() > 1 {
            out.push(live.iter().map(|k| 1 << k).sum());
        }
        if live.len() > 2 {
            for (i, a) in live.iter().enumerate() {
                for b in &live[i + 1..] {
                    out.push(1 << a | 1 << b);
                }
            }
        }
        out
    }

    /// Names of the axes of a mask.
    pub fn axes(&self, mask: u32) -> String {
        let n: Vec<&str> = (0..self.mesh.len())
            .filter(|k| mask & 1 << k != 0)
            .map(|k| self.mesh[k].0.as_str())
            .collect();
        n.join(", ")
    }

    pub(crate) fn template(&self, mask: u32) -> CollectiveAttrs {
        CollectiveAttrs {
            groups: groups(&self.mesh, mask),
            channel_id: (!self.replica_mode).then_some(1),
            use_global_device_ids: !self.replica_mode,
            ..CollectiveAttrs::default()
        }
    }

    fn sizes(&self) -> Vec<i64> {
        let mut s: Vec<i64> = self.mesh.iter().map(|a| a.1).filter(|&n| n > 1).collect();
        let all: i64 = s.iter().product();
        s.push(all);
        s.sort_unstable();
        s.dedup();
        s.retain(|&n| n > 1);
        s
    }

    /// Distances from the suspects along operands, users and calls.
    pub fn distances(&self, suspects: &[(InstrId, f64)]) -> Vec<f64> {
        let n = self.m.instrs.len();
        let mut next: Vec<Vec<u32>> = vec![Vec::new(); n];
        for (k, i) in self.m.instrs.iter().enumerate() {
            let mut link = |a: u32, b: u32| {
                next[a as usize].push(b);
                next[b as usize].push(a);
            };
            for o in &i.operands {
                link(k as u32, o.0);
            }
            for c in &i.calls {
                let c = self.m.comp(*c);
                link(k as u32, c.root.0);
                for (p, o) in c.params.iter().zip(&i.operands) {
                    link(p.0, o.0);
                }
            }
        }
        let mut out = vec![f64::INFINITY; n];
        let mut queue: std::collections::VecDeque<u32> = Default::default();
        for &(s, d) in suspects {
            if d < out[s.0 as usize] {
                out[s.0 as usize] = d;
                queue.push_back(s.0);
            }
        }
        while let Some(x) = queue.pop_front() {
            let d = out[x as usize] + 0.5;
            for &y in &next[x as usize] {
                if d < out[y as usize] {
                    out[y as usize] = d;
                    queue.push_back(y);
                }
            }
        }
        out
    }

    /// Does the edit mean the same at other sizes?
    pub fn free_of_sizes(x: &Candidate) -> bool {
        let one = |e: &Edit| {
            !matches!(
                e,
                Edit::Relayout { .. }
                    | Edit::Offset { .. }
                    | Edit::Shift { .. }
                    | Edit::Constant { .. }
                    | Edit::Gather { .. }
                    | Edit::Graft { .. }
                    | Edit::OwnBlock { .. }
                    | Edit::Start { .. }
                    | Edit::MaskPadding { .. }
                    | Edit::InRange { .. }
                    | Edit::Devices { .. }
            )
        };
        one(&x.edit) && x.also.iter().all(|(_, e)| one(e))
    }

    /// All candidates within `reach` of the suspects, sorted by cost; `dist`:
    /// [`Context::distances`] from those.
    pub fn candidates(&self, dist: &[f64], reach: f64) -> Vec<Candidate> {
        let mut out = Vec::new();
        for (c, comp) in self.m.comps.iter().enumerate() {
            // Reducers and comparators are not edited in place.
            let small = comp.params.len() >= 2
                && comp.instrs.len() <= 4
                && comp.params.iter().all(|&p| self.m.array(p).is_some_and(|a| a.dims.is_empty()));
            if small {
                continue;
            }
            for (pos, &at) in comp.instrs.iter().enumerate() {
                let d = dist[at.0 as usize];
                if d <= reach && d.is_finite() {
                    self.at(CompId(c as u32), pos, at, d, &mut out);
                }
            }
        }
        self.join(&mut out);
        if let Some(a) = &self.aligned {
            self.grafts(a, dist, &mut out);
        }
        for comp in self.m.comps.iter().filter(|c| c.instrs.len() <= 20_000) {
            self.rescales(&comp.instrs, dist, reach, &mut out);
        }
        for (c, comp) in self.m.comps.iter().enumerate() {
            if self.local[c] && comp.instrs.len() <= 20_000 {
                self.turns(&comp.instrs, dist, reach, &mut out);
            }
        }
        out.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        out
    }

    fn at(&self, c: CompId, pos: usize, at: InstrId, d: f64, out: &mut Vec<Candidate>) {
        let m = self.m;
        let i = m.instr(at);
        let local = self.local[c.0 as usize];
        let mut push = |cost: f64, edit: Edit| {
            out.push(Candidate { at, edit, cost: cost + d, also: Vec::new() })
        };
        let array = m.array(at).cloned();
        let near = |x: f64| x - d + d.min(2.5);
        if let Attrs::Collective(a) = &i.attrs {
            // Collectives are few and often to blame: tried wherever they are.
            let arity = i.operands.len() == 1;
            if arity && m.shape(i.operands[0]).same(m.shape(at)) {
                push(near(0.5), Edit::Drop);
            }
            if i.opcode != Opcode::CollectivePermute {
                for mask in self.masks() {
                    push(near(0.6), Edit::Groups { mask });
                }
            }
            if matches!(i.opcode, Opcode::AllReduce | Opcode::ReduceScatter) {
                for op in [Opcode::Add, Opcode::Maximum, Opcode::Minimum] {
                    push(near(0.8), Edit::Reducer { op });
                }
            }
            if i.opcode == Opcode::CollectivePermute {
                self.permutes(&a.pairs, &mut |cost, pairs| push(near(cost), Edit::Pairs { pairs }));
            }
            if matches!(i.opcode, Opcode::AllGather | Opcode::ReduceScatter) && arity {
                self.redo(c, pos, at, a.dimension, d, out);
            }
        }
        let mut push = |cost: f64, edit: Edit| {
            out.push(Candidate { at, edit, cost: cost + d, also: Vec::new() })
        };
        // Another value of the same shape.
        let list = &m.comp(c).instrs;
        let structural = matches!(i.opcode, Opcode::While | Opcode::Conditional | Opcode::Call);
        for (k, &o) in i.operands.iter().enumerate().take(16) {
            let skip = structural
                || m.shape(o).as_tuple().is_some()
                || m.instr(o).opcode == Opcode::Constant;
            if skip {
                continue;
            }
            for &y in self.alternatives(list, pos, at, o).iter() {
                let far = self.position(o).abs_diff(self.position(y)) as f64;
                push(2.0 + (far / 64.0).min(1.5), Edit::Operand { operand: k, with: y });
            }
        }
        self.masked(c, at, &mut |cost, edit| push(cost, edit));
        self.along(at, &mut |cost, edit| push(cost, edit));
        let Some(a) = array else { return };
        let float = a.dtype.is_float();
        let int = a.dtype.is_int();
        let plain = !matches!(
            i.opcode,
            Opcode::Constant | Opcode::Iota | Opcode::GetTupleElement | Opcode::Parameter
        );
        let wrapped = |x: InstrId| {
            matches!(
                m.instr(x).opcode,
                Opcode::AllReduce | Opcode::Reshape | Opcode::Broadcast | Opcode::Constant
            )
        };
        if local && float && !self.is_constant(at, 4) {
            // Data movement of a value is as good a place as the value.
            // What is reduced next is more likely reduced wrongly.
            let reduced =
                self.users(at).iter().take_while(|&&u| self.position(u) < pos + 64).any(|&u| {
                    matches!(m.instr(u).opcode, Opcode::AllReduce | Opcode::ReduceScatter)
                });
            let moved = if wrapped(at) { 0.6 } else { 0.0 }
                + if reduced { 1.0 } else { 0.0 }
                + if self.is_reduced(at, 4) { 1.6 } else { 0.0 };
            let ring = |x: &InstrId| m.instr(*x).opcode == Opcode::CollectivePermute;
            let rings = self.collectives.iter().any(ring);
            let mut drops = self.later_reductions(at);
            drops.extend(self.other_collectives(at));
            // A sum of copies, or of what is whole, counts it once per device;
            // so does a sum that is summed over the same devices again.
            let whole = self.aligned.as_ref().is_some_and(|a| a.holds(at));
            for mask in self.masks() {
                if mask & !self.varies[at.0 as usize] != 0 {
                    continue;
                }
                let twice = whole || self.summed_later(at, mask);
                let moved = moved + if twice { 1.2 } else { 0.0 };
                let sum = |mean: bool, drop: Option<InstrId>| Edit::AllReduce {
                    mask,
                    op: Opcode::Add,
                    mean,
                    drop,
                };
                push(0.2 + moved, sum(false, None));
                // A ring that sums by itself sums means too, whatever its fault.
                push(if rings { 1.5 } else { 0.7 } + moved, sum(true, None));
                for &x in &drops {
                    push(1.5 + moved, sum(false, Some(x)));
                }
                let max = Edit::AllReduce { mask, op: Opcode::Maximum, mean: false, drop: None };
                push(1.6 + moved, max);
            }
        }
        if float && plain {
            for n in self.sizes() {
                let n = n as f64;
                for f in [1.0 / n, n] {
                    push(1.3, Edit::Scale { factor: f });
                }
            }
            for &(t, v) in self.constants.iter().take(24) {
                if t == a.dtype && v.abs() > 1.5 && v.abs() < 1e4 {
                    push(2.6, Edit::Scale { factor: 1.0 / v });
                    push(2.8, Edit::Scale { factor: v });
                }
            }
            for &(t, v) in self.constants.iter().take(24) {
                if t == a.dtype && v.abs() > 1e-3 && v.abs() < 1.0 {
                    push(2.9, Edit::Scale { factor: v });
                }
            }
            if matches!(i.opcode, Opcode::Add | Opcode::Subtract) {
                for &(t, v) in self.constants.iter().take(24) {
                    if t == a.dtype && v.abs() > 1e-3 && v.abs() < 1e3 && v.abs() != 1.0 {
                        for k in 0..2 {
                            push(2.7, Edit::ScaleOperand { operand: k, factor: v });
                        }
                    }
                }
                for n in self.sizes() {
                    for k in 0..2 {
                        push(1.0, Edit::ScaleOperand { operand: k, factor: 1.0 / n as f64 });
                    }
                }
            }
        }
        if let (Attrs::Constant(l), true) = (&i.attrs, float || int) {
            if let Some(v) = number(l) {
                let mut to: Vec<(f64, f64)> = Vec::new();
                for n in self.sizes() {
                    let n = n as f64;
                    to.extend([(0.6, v * n), (0.6, v / n)]);
                    if float {
                        to.extend([(0.9, v * n.sqrt()), (0.9, v / n.sqrt())]);
                    }
                }
                if int {
                    // A loop takes a step too many or too few.
                    let cost = if self.is_condition(c) { 0.4 } else { 1.2 };
                    to.extend([(cost, v + 1.0), (cost, v - 1.0)]);
                }
                for &(t, x) in &self.constants {
                    if t == a.dtype && x != v {
                        to.push((if a.dims.is_empty() { 1.4 } else { 2.0 }, x));
                    }
                }
                if float && self.fills(list, at) {
                    to.extend([f64::NEG_INFINITY, 0.0, f64::INFINITY].map(|x| (1.0, x)));
                }
                for (cost, x) in to {
                    if x != v && !x.is_nan() && (x.is_finite() || cost == 1.0) {
                        push(cost, Edit::Constant { value: x });
                    }
                }
            }
        }
        match i.opcode {
            Opcode::Reshape => {
                if let Some(x) = m.array(i.operands[0]) {
                    for perm in permutations(x.dims.len()) {
                        if moves(&x.dims, &perm) {
                            push(0.8, Edit::TransposeBefore { perm });
                        }
                    }
                    for perm in permutations(a.dims.len()) {
                        if moves(&a.dims, &perm) {
                            push(0.8, Edit::TransposeAfter { perm });
                        }
                    }
                }
            }
            Opcode::Reduce | Opcode::ReduceWindow | Opcode::Scatter => {
                let pair = i.calls.first().map(|&f| m.comp(f).params.len());
                if pair == Some(2) {
                    for op in [Opcode::Add, Opcode::Maximum, Opcode::Minimum] {
                        push(1.5, Edit::Reducer { op });
                    }
                }
            }
            Opcode::Slice => {
                for (dim, start) in self.starts(list, at) {
                    push(1.1, Edit::Start { dim, start });
                }
                let from = m.array(i.operands[0]).map(|x| x.dims.clone()).unwrap_or_default();
                for (axis, n) in self.mesh.iter().enumerate().filter(|x| local && x.1.1 > 1) {
                    for dim in (0..from.len()).filter(|&k| a.dims[k] * n.1 == from[k]) {
                        push(0.9, Edit::OwnBlock { axis, dim });
                    }
                }
            }
            Opcode::Pad => {
                if let Attrs::Pad(p) = &i.attrs {
                    for dim in (0..p.len()).filter(|&k| p[k].low != p[k].high) {
                        push(0.9, Edit::Padding { dim });
                    }
                }
            }
            Opcode::Transpose => {
                if let (Attrs::Dims(old), Some(x)) = (&i.attrs, m.array(i.operands[0])) {
                    for perm in permutations(x.dims.len()) {
                        let same = perm.iter().zip(&a.dims).all(|(&p, &s)| x.dims[p as usize] == s);
                        if same && perm[..] != old[..] {
                            push(0.6, Edit::Permutation { perm });
                        }
                    }
                }
            }
            Opcode::Remainder | Opcode::Divide | Opcode::Convert if int && a.dims.is_empty() => {
                if self.is_coordinate(at, 6) {
                    for (axis, x) in self.mesh.iter().enumerate() {
                        if x.1 > 1 {
                            push(near(0.8), Edit::Coordinate { axis });
                        }
                    }
                    match i.opcode {
                        Opcode::Remainder => push(0.9, Edit::Op { op: Opcode::Divide }),
                        Opcode::Divide => push(0.9, Edit::Op { op: Opcode::Remainder }),
                        _ => {}
                    }
                }
            }
            Opcode::Compare => {
                if let Attrs::Compare { direction, .. } = &i.attrs {
                    for dir in [
                        Comparison::Le,
                        Comparison::Lt,
                        Comparison::Ge,
                        Comparison::Gt,
                        Comparison::Eq,
                        Comparison::Ne,
                    ] {
                        if dir != *direction {
                            push(1.2, Edit::Direction { dir });
                        }
                    }
                }
            }
            _ => {}
        }
        // Dimensions of one size exchanged.
        if float && plain && a.dims.len() <= 5 {
            for x in 0..a.dims.len() {
                for y in x + 1..a.dims.len() {
                    if a.dims[x] == a.dims[y] && a.dims[x] > 1 {
                        let mut perm: Vec<i64> = (0..a.dims.len() as i64).collect();
                        perm.swap(x, y);
                        push(2.1, Edit::Relayout { split: a.dims.to_vec(), perm });
                    }
                }
            }
        }
        // A value that another one of its shape travels with.
        if local && float && !self.is_constant(at, 4) {
            let mut seen: Vec<&[(i64, i64)]> = Vec::new();
            let mut again = None;
            let ring = |y: &&InstrId| {
                m.instr(**y).opcode == Opcode::CollectivePermute && self.owner[y.0 as usize] == c
            };
            for &y in self.collectives.iter().filter(ring) {
                if let Attrs::Collective(p) = &m.instr(y).attrs {
                    if !seen.contains(&&p.pairs[..]) && seen.len() < 3 {
                        seen.push(&p.pairs);
                        push(1.7, Edit::Permute { like: y, times: 1 });
                        let again = again.get_or_insert_with(|| {
                            let few = list.len() <= 4096;
                            few && self.later_uses(at).iter().any(|u| u.1 > 0)
                        });
                        if *again {
                            push(1.8, Edit::Rotate { like: y });
                        }
                    }
                }
            }
        }
        // Blocks of a dimension in another order.
        if float && plain && a.dims.len() <= 4 {
            for n in self.sizes() {
                for (k, &s) in a.dims.iter().enumerate() {
                    if s % n == 0 && s / n > 1 {
                        for (x, y) in [(n, s / n), (s / n, n)] {
                            let mut split: Vec<i64> = a.dims.to_vec();
                            split.splice(k..=k, [x, y]);
                            let mut perm: Vec<i64> = (0..split.len() as i64).collect();
                            perm.swap(k, k + 1);
                            push(2.2, Edit::Relayout { split, perm });
                        }
                    }
                }
            }
        }
        if int && (local || a.dims.is_empty()) {
            for (axis, x) in self.mesh.iter().enumerate() {
                if x.1 < 2 || !local {
                    continue;
                }
                let mut strides: Vec<i64> = vec![1];
                for s in self.strides(c, at) {
                    for s in [s, -s] {
                        if !strides.contains(&s) {
                            strides.push(s);
                        }
                    }
                }
                for stride in strides {
                    push(1.8, Edit::Offset { axis, stride });
                }
            }
        }
        if local && int && plain && a.dims.is_empty() {
            if self.is_coordinate(at, 6) {
                for by in [1, -1] {
                    push(1.6, Edit::Shift { by });
                }
            }
            for by in self.shifts(at) {
                push(1.9, Edit::Shift { by });
            }
        }
        let swap = matches!(
            i.opcode,
            Opcode::Subtract | Opcode::Divide | Opcode::Power | Opcode::Dot | Opcode::Remainder
        );
        if swap && i.operands.len() == 2 && m.shape(i.operands[0]).same(m.shape(i.operands[1])) {
            push(1.5, Edit::Swap);
        }
        let twins: &[&[Opcode]] = &[
            &[
                Opcode::Add,
                Opcode::Subtract,
                Opcode::Multiply,
                Opcode::Divide,
                Opcode::Maximum,
                Opcode::Minimum,
            ],
            &[
                Opcode::Exponential,
                Opcode::Tanh,
                Opcode::Logistic,
                Opcode::ExponentialMinusOne,
                Opcode::Log,
                Opcode::Sqrt,
                Opcode::Rsqrt,
                Opcode::Negate,
                Opcode::Sine,
                Opcode::Cosine,
            ],
            &[Opcode::And, Opcode::Or, Opcode::Xor],
        ];
        for t in twins {
            if t.contains(&i.opcode) && (float || i.opcode == Opcode::And || i.opcode == Opcode::Or)
            {
                for &op in t.iter().filter(|&&o| o != i.opcode) {
                    push(2.0, Edit::Op { op });
                }
            }
        }
        if float && plain {
            for y in self.alternatives(list, pos, at, at).into_iter().take(12) {
                push(3.2, Edit::Add { with: y });
                push(2.4, Edit::Exchange { with: y });
                let same = (0..a.dims.len() as i64).collect();
                push(3.3, Edit::Times { with: y, dims: same });
            }
            for &y in self.unused.iter().filter(|&&y| self.owner[y.0 as usize] == c) {
                let Some(b) = m.array(y).filter(|b| b.dtype == a.dtype) else { continue };
                for dims in placings(&b.dims, &a.dims, 2) {
                    push(1.2, Edit::Times { with: y, dims: dims.clone() });
                    push(1.1, Edit::AddSpread { with: y, dims });
                }
            }
            for (y, dims) in self.factors(list, pos, at) {
                if i.opcode == Opcode::Add {
                    for operand in 0..2 {
                        let dims = dims.clone();
                        push(1.9, Edit::TimesOperand { operand, with: y, dims });
                    }
                }
                push(2.6, Edit::Times { with: y, dims });
            }
            for (k, &o) in i.operands.iter().enumerate() {
                if m.shape(o).same(m.shape(at)) && i.operands.len() <= 3 {
                    push(1.6, Edit::Use { operand: k });
                }
            }
            // A value that repeats a smaller one may have to gather it.
            if local {
                for &o in &i.operands {
                    let mut from = vec![o];
                    from.extend(m.instr(o).operands.iter().copied());
                    for s in from {
                        self.gathers(&a, s, &mut |mask, dim| {
                            let other = self.gathered_otherwise(at, s, mask);
                            push(
                                if other { 0.8 } else { 1.4 },
                                Edit::Gather { source: s, mask, dim },
                            );
                        });
                    }
                }
            }
        }
    }
}
