//! Edits that may mend a distributed program, cheapest and nearest first.
//!
//! Each is a change of one place (a collective, a constant, a layout, an
//! operand, an offset); whether it mends anything is for [`crate::repair`] to
//! find out.

use crate::edit::{Editor, filled, groups, number};
use scalify_ir::attrs::{CollectiveAttrs, Comparison};
use scalify_ir::{ArrayShape, Attrs, CompId, DType, InstrId, Module, Opcode, Shape};

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
    /// Add a value of the same shape.
    Add { with: InstrId },
    /// Swap two operands.
    Swap,
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
    /// True for computations that run per device.
    pub local: Vec<bool>,
    /// Mesh axes, major first.
    pub mesh: Vec<(String, i64)>,
    /// Ids of groups are replicas.
    pub replica_mode: bool,
    /// Scalar constants of the baseline.
    pub constants: Vec<(DType, f64)>,
}

impl<'a> Context<'a> {
    /// Collects what candidates need.
    pub fn new(
        m: &'a Module,
        base: &Module,
        mesh: &[(String, i64)],
        devices: i64,
        replica_mode: bool,
    ) -> Self {
        let mut owner = vec![m.entry; m.instrs.len()];
        for (k, c) in m.comps.iter().enumerate() {
            for i in &c.instrs {
                owner[i.0 as usize] = CompId(k as u32);
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
        let mut mesh = mesh.to_vec();
        if mesh.iter().map(|a| a.1).product::<i64>() != devices || mesh.is_empty() {
            mesh = vec![("devices".to_owned(), devices)];
        }
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
        Context { m, owner, local, mesh, replica_mode, constants }
    }

    /// Mesh axes that have more than one device, as masks: each, then all,
    /// then pairs.
    fn masks(&self) -> Vec<u32> {
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

    fn template(&self, mask: u32) -> CollectiveAttrs {
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
                    | Edit::Constant { .. }
                    | Edit::Gather { .. }
            )
        };
        one(&x.edit) && x.also.iter().all(|(_, e)| one(e))
    }

    /// All candidates within `reach` of the suspects, sorted by cost.
    pub fn candidates(&self, suspects: &[(InstrId, f64)], reach: f64) -> Vec<Candidate> {
        let dist = self.distances(suspects);
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
            if !a.pairs.is_empty() {
                let back: Vec<(i64, i64)> = a.pairs.iter().map(|p| (p.1, p.0)).collect();
                push(near(0.6), Edit::Pairs { pairs: back });
                let n: i64 = self.mesh.iter().map(|a| a.1).product();
                for step in [1, n - 1, 2] {
                    let ring = (0..n).map(|k| (k, (k + step) % n)).collect();
                    push(near(1.2), Edit::Pairs { pairs: ring });
                }
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
                let far = dist_in(list, o, y) as f64;
                push(2.0 + (far / 64.0).min(1.5), Edit::Operand { operand: k, with: y });
            }
        }
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
            let reduced = m.comp(c).instrs.iter().skip(pos).take(64).any(|&u| {
                matches!(m.instr(u).opcode, Opcode::AllReduce | Opcode::ReduceScatter)
                    && m.instr(u).operands.contains(&at)
            });
            let moved = if wrapped(at) { 0.6 } else { 0.0 }
                + if reduced { 1.0 } else { 0.0 }
                + if self.is_reduced(at, 4) { 1.6 } else { 0.0 };
            let drops = self.later_reductions(c, at);
            for mask in self.masks() {
                let sum = |mean: bool, drop: Option<InstrId>| Edit::AllReduce {
                    mask,
                    op: Opcode::Add,
                    mean,
                    drop,
                };
                push(0.2 + moved, sum(false, None));
                push(0.7 + moved, sum(true, None));
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
            if matches!(i.opcode, Opcode::Add | Opcode::Subtract) {
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
                    to.extend([(1.2, v + 1.0), (1.2, v - 1.0)]);
                }
                for &(t, x) in &self.constants {
                    if t == a.dtype && x != v {
                        to.push((if a.dims.is_empty() { 1.4 } else { 2.0 }, x));
                    }
                }
                for (cost, x) in to {
                    if x != v && x.is_finite() {
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
                            push(1.4, Edit::Gather { source: s, mask, dim });
                        });
                    }
                }
            }
        }
    }

    /// Mesh axes and dimension along which a gather of `s` has the sizes `a`.
    fn gathers(&self, a: &ArrayShape, s: InstrId, f: &mut dyn FnMut(u32, i64)) {
        let Some(x) = self.m.array(s) else { return };
        if x.dims.len() != a.dims.len() || x.dtype != a.dtype {
            return;
        }
        let differ: Vec<usize> = (0..x.dims.len()).filter(|&k| x.dims[k] != a.dims[k]).collect();
        let [k] = differ[..] else { return };
        for mask in self.masks() {
            let n: i64 = (0..self.mesh.len())
                .filter(|j| mask & 1 << j != 0)
                .map(|j| self.mesh[j].1)
                .product();
            if a.dims[k] == x.dims[k] * n {
                f(mask, k as i64);
            }
        }
    }

    /// Values that a gather or scatter along another dimension would have.
    fn redo(
        &self,
        c: CompId,
        pos: usize,
        at: InstrId,
        dimension: Option<i64>,
        d: f64,
        out: &mut Vec<Candidate>,
    ) {
        let m = self.m;
        let source = m.instr(at).operands[0];
        let (Some(x), Some(g), Some(k)) = (m.array(source), m.array(at), dimension) else { return };
        let Some((&big, &small)) = x.dims.get(k as usize).zip(g.dims.get(k as usize)) else {
            return;
        };
        let gather = m.instr(at).opcode == Opcode::AllGather;
        let n = if gather { small / big.max(1) } else { big / small.max(1) };
        let mut moved = vec![at];
        for &u in m.comp(c).instrs.iter().skip(pos).take(40) {
            let Some(s) = m.array(u) else { continue };
            let op = m.instr(u).opcode;
            let moves = matches!(op, Opcode::Reshape | Opcode::Transpose | Opcode::Bitcast)
                && m.instr(u).operands.iter().all(|o| moved.contains(o));
            if moves {
                moved.push(u);
            }
            if !(u == at || moves) || s.dims.len() != x.dims.len() || s.dtype != x.dtype {
                continue;
            }
            for k in 0..x.dims.len() {
                let fits = (0..x.dims.len()).all(|j| {
                    let f = if j == k { n } else { 1 };
                    if gather { s.dims[j] == x.dims[j] * f } else { s.dims[j] * f == x.dims[j] }
                });
                if fits && (u != at || Some(k as i64) != dimension) {
                    out.push(Candidate {
                        at: u,
                        edit: Edit::Redo { source, like: at, dim: k as i64 },
                        cost: 0.7 + d.min(2.5),
                        also: Vec::new(),
                    });
                }
            }
        }
    }

    /// Joins equal edits at instructions of one source line, and at all
    /// collectives of one kind: a loop that was unrolled, or a helper that is
    /// called often, has its fault many times.
    fn join(&self, out: &mut Vec<Candidate>) {
        type Key = (u32, Opcode, String);
        let mut groups: rustc_hash::FxHashMap<Key, Vec<usize>> = Default::default();
        let mut lines: rustc_hash::FxHashMap<InstrId, u32> = Default::default();
        for (k, c) in out.iter().enumerate() {
            let i = self.m.instr(c.at);
            let line = *lines
                .entry(c.at)
                .or_insert_with(|| self.m.frames(c.at).first().map_or(0, |f| f.line));
            let what = match &c.edit {
                Edit::Operand { .. } | Edit::Add { .. } | Edit::Exchange { .. } => continue,
                Edit::AllReduce { drop: Some(_), .. } => continue,
                Edit::Redo { dim, .. } => format!("redo {dim}"),
                Edit::Gather { mask, dim, .. } => format!("gather {mask} {dim}"),
                e => format!("{e:?}"),
            };
            if i.opcode.is_collective() {
                groups.entry((u32::MAX, i.opcode, what.clone())).or_default().push(k);
            }
            if line > 0 {
                groups.entry((line, i.opcode, what)).or_default().push(k);
            }
        }
        let mut keys: Vec<(Key, Vec<usize>)> = groups.into_iter().collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for (_, list) in keys {
            let mut sites: Vec<usize> = Vec::new();
            let mut taken: rustc_hash::FxHashSet<InstrId> = Default::default();
            for k in list {
                if taken.insert(out[k].at) {
                    sites.push(k);
                }
            }
            if !(2..=64).contains(&sites.len()) {
                continue;
            }
            if self.m.instr(out[sites[0]].at).opcode.is_collective() {
                if seen.contains(&sites) {
                    continue;
                }
                seen.push(sites.clone());
            }
            sites.sort_by(|&a, &b| out[a].cost.total_cmp(&out[b].cost));
            let mut c = out[sites[0]].clone();
            c.cost += 0.3;
            c.also = sites[1..].iter().map(|&j| (out[j].at, out[j].edit.clone())).collect();
            out.push(c);
        }
    }

    /// Values of the shape of `o` that `at`, at position `pos`, may use; the
    /// nearest first.
    fn alternatives(&self, list: &[InstrId], pos: usize, at: InstrId, o: InstrId) -> Vec<InstrId> {
        let shape = self.m.shape(o);
        let end = (pos + 200).min(list.len());
        let start = pos.saturating_sub(2000);
        let fits = |y: InstrId| {
            y != o
                && y != at
                && self.m.shape(y).same(shape)
                && !matches!(self.m.instr(y).opcode, Opcode::Constant | Opcode::Iota)
        };
        let here = list.iter().position(|&x| x == o).unwrap_or(pos);
        let mut v: Vec<(usize, InstrId)> = list[start..end]
            .iter()
            .enumerate()
            .filter(|(_, y)| fits(**y))
            .map(|(k, y)| ((k + start).abs_diff(here), *y))
            .collect();
        v.sort();
        v.truncate(24);
        v.into_iter().map(|x| x.1).collect()
    }

    /// All-reduces that use `x` through a few instructions.
    fn later_reductions(&self, c: CompId, x: InstrId) -> Vec<InstrId> {
        let mut reach = vec![x];
        let mut out = Vec::new();
        for &u in &self.m.comp(c).instrs {
            let i = self.m.instr(u);
            if u != x && i.operands.iter().any(|o| reach.contains(o)) {
                if i.opcode == Opcode::AllReduce {
                    out.push(u);
                } else if reach.len() < 24 {
                    reach.push(u);
                }
            }
            if out.len() >= 2 {
                break;
            }
        }
        out
    }

    /// Data movement of constants only.
    fn is_constant(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        match i.opcode {
            Opcode::Constant | Opcode::Iota => true,
            Opcode::Broadcast | Opcode::Reshape | Opcode::Convert | Opcode::Transpose => {
                depth > 0 && i.operands.iter().all(|&o| self.is_constant(o, depth - 1))
            }
            _ => false,
        }
    }

    /// True of an all-reduce, and of what is computed from one by elementwise
    /// operations: it is whole already.
    fn is_reduced(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        let through = i.opcode.is_unary_elementwise()
            || i.opcode.is_binary_elementwise()
            || matches!(i.opcode, Opcode::Reshape | Opcode::Broadcast | Opcode::Convert);
        i.opcode == Opcode::AllReduce
            || through && depth > 0 && i.operands.iter().any(|&o| self.is_reduced(o, depth - 1))
    }

    /// An integer computed from the device id by constants.
    fn is_coordinate(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        match i.opcode {
            Opcode::PartitionId | Opcode::ReplicaId => true,
            Opcode::Remainder | Opcode::Divide | Opcode::Convert if depth > 0 => {
                self.is_coordinate(i.operands[0], depth - 1)
                    && i.operands.get(1).is_none_or(|&o| self.m.instr(o).opcode == Opcode::Constant)
            }
            _ => false,
        }
    }

    /// Local sizes that an offset may count in: of dimensions of the values
    /// in the same computation that the device mesh splits, roughly all.
    fn strides(&self, c: CompId, at: InstrId) -> Vec<i64> {
        let mut out: Vec<i64> = Vec::new();
        let mut add = |m: &Module, x: InstrId| {
            for s in m.array(x).map(|a| a.dims.to_vec()).unwrap_or_default() {
                if s > 1 && !out.contains(&s) && out.len() < 8 {
                    out.push(s);
                }
            }
        };
        add(self.m, at);
        for &u in &self.m.comp(c).instrs {
            let i = self.m.instr(u);
            if i.operands.contains(&at) || i.opcode == Opcode::Parameter {
                i.operands.iter().for_each(|&o| add(self.m, o));
                add(self.m, u);
            }
        }
        out
    }

    /// The edited module, if it is valid.
    pub fn apply(&self, x: &Candidate) -> Option<Module> {
        let mut e = Editor::new(self.m);
        self.one(&mut e, x.at, &x.edit)?;
        for (at, edit) in &x.also {
            self.one(&mut e, *at, edit)?;
        }
        e.finish()
    }

    fn one(&self, e: &mut Editor, at: InstrId, edit: &Edit) -> Option<()> {
        let m = self.m;
        let c = e.now(self.owner[at.0 as usize]);
        let i = &m.instr(at);
        match edit {
            Edit::AllReduce { mask, op, mean, drop } => {
                let mut r =
                    e.all_reduce(self.owner[at.0 as usize], at, *op, self.template(*mask))?;
                let c = e.now(self.owner[at.0 as usize]);
                let sum = r;
                let mut made = vec![r];
                if *mean {
                    let n: i64 = (0..self.mesh.len())
                        .filter(|j| mask & 1 << j != 0)
                        .map(|j| self.mesh[j].1)
                        .product();
                    r = e.scaled(c, sum, 1.0 / n as f64)?;
                    made.push(r);
                }
                e.redirect(c, at, r, &made);
                if let Some(d) = drop {
                    let o = e.m.instr(*d).operands.first().copied()?;
                    e.redirect(c, *d, o, &[]);
                }
            }
            Edit::Drop => {
                let o = *i.operands.first()?;
                e.redirect(c, at, o, &[]);
            }
            Edit::Groups { mask } => {
                let new = groups(&self.mesh, *mask);
                let Attrs::Collective(a) = &mut e.m.instrs[at.0 as usize].attrs else {
                    return None;
                };
                if a.groups == new {
                    return None;
                }
                a.groups = new;
            }
            Edit::Reducer { op } => {
                let old = *i.calls.first()?;
                if m.instr(m.comp(old).root).opcode == *op {
                    return None;
                }
                let f = e.reducer(*op, m.dtype(at)?)?;
                e.m.instrs[at.0 as usize].calls = [f].into_iter().collect();
            }
            Edit::Redo { source, like, dim } => {
                let Attrs::Collective(a) = &m.instr(*like).attrs else { return None };
                let a = CollectiveAttrs { dimension: Some(*dim), ..(**a).clone() };
                let want = m.shape(at).clone();
                let calls = e.m.instr(*like).calls.clone();
                let g = e.insert(
                    c,
                    Some(*like),
                    m.instr(*like).opcode,
                    Attrs::Collective(Box::new(a)),
                    &[*source],
                    &calls,
                    Some(want.clone()),
                )?;
                if !e.m.shape(g).same(&want) {
                    return None;
                }
                e.redirect(c, at, g, &[g]);
            }
            Edit::Gather { source, mask, dim } => {
                let a = CollectiveAttrs { dimension: Some(*dim), ..self.template(*mask) };
                let want = m.shape(at).clone();
                let g = e.insert(
                    c,
                    Some(*source),
                    Opcode::AllGather,
                    Attrs::Collective(Box::new(a)),
                    &[*source],
                    &[],
                    Some(want.clone()),
                )?;
                if !e.m.shape(g).same(&want) {
                    return None;
                }
                e.redirect(c, at, g, &[g]);
                e.sort(c)?;
            }
            Edit::Use { operand } => {
                let o = *i.operands.get(*operand)?;
                e.redirect(c, at, o, &[]);
            }
            Edit::TransposeAfter { perm } => {
                let o = *i.operands.first()?;
                let a = m.array(at)?.clone();
                let mid = perm.iter().map(|&p| a.dims[p as usize]);
                let mid = Shape::Array(ArrayShape::new(a.dtype, mid));
                let r = e.insert(c, Some(o), Opcode::Reshape, Attrs::None, &[o], &[], Some(mid))?;
                // Dimension d of the result is where perm has d.
                let inverse = (0..perm.len() as i64)
                    .map(|d| perm.iter().position(|&p| p == d).map(|k| k as i64))
                    .collect::<Option<scalify_ir::shape::Dims>>()?;
                let t =
                    e.insert(c, Some(r), Opcode::Transpose, Attrs::Dims(inverse), &[r], &[], None)?;
                e.redirect(c, at, t, &[r, t]);
                e.sort(c)?;
            }
            Edit::Exchange { with } => {
                let (at, with) = (at, *with);
                for k in m.comp(self.owner[at.0 as usize]).instrs.iter() {
                    for o in &mut e.m.instrs[k.0 as usize].operands {
                        *o = if *o == at {
                            with
                        } else if *o == with {
                            at
                        } else {
                            *o
                        };
                    }
                }
                e.sort(c)?;
            }
            Edit::Pairs { pairs } => {
                let Attrs::Collective(a) = &mut e.m.instrs[at.0 as usize].attrs else {
                    return None;
                };
                if a.pairs == *pairs {
                    return None;
                }
                a.pairs.clone_from(pairs);
            }
            Edit::Scale { factor } => {
                let s = e.scaled(c, at, *factor)?;
                let b = e.m.instr(s).operands[1];
                e.redirect(c, at, s, &[s, b]);
            }
            Edit::ScaleOperand { operand, factor } => {
                let o = *i.operands.get(*operand)?;
                let s = e.scaled(c, o, *factor)?;
                e.m.instrs[at.0 as usize].operands[*operand] = s;
            }
            Edit::Constant { value } => {
                let a = m.array(at)?.clone();
                let l = filled(&a, *value)?;
                if m.literal(at) == Some(&l) {
                    return None;
                }
                e.m.instrs[at.0 as usize].attrs = Attrs::Constant(Box::new(l));
            }
            Edit::TransposeBefore { perm } => {
                let o = *i.operands.first()?;
                let a = Attrs::Dims(perm.iter().copied().collect());
                let t = e.insert(c, Some(o), Opcode::Transpose, a, &[o], &[], None)?;
                e.m.instrs[at.0 as usize].operands[0] = t;
            }
            Edit::Permutation { perm } => {
                e.m.instrs[at.0 as usize].attrs = Attrs::Dims(perm.iter().copied().collect());
            }
            Edit::Relayout { split, perm } => {
                let a = m.array(at)?.clone();
                let s = |d: &[i64]| Some(Shape::Array(ArrayShape::new(a.dtype, d.iter().copied())));
                let r =
                    e.insert(c, Some(at), Opcode::Reshape, Attrs::None, &[at], &[], s(split))?;
                let p = Attrs::Dims(perm.iter().copied().collect());
                let t = e.insert(c, Some(r), Opcode::Transpose, p, &[r], &[], None)?;
                let b =
                    e.insert(c, Some(t), Opcode::Reshape, Attrs::None, &[t], &[], s(&a.dims))?;
                e.redirect(c, at, b, &[r]);
            }
            Edit::Operand { operand, with } => {
                *e.m.instrs[at.0 as usize].operands.get_mut(*operand)? = *with;
                e.sort(c)?;
            }
            Edit::Op { op } => e.m.instrs[at.0 as usize].opcode = *op,
            Edit::Direction { dir } => {
                let Attrs::Compare { direction, .. } = &mut e.m.instrs[at.0 as usize].attrs else {
                    return None;
                };
                *direction = *dir;
            }
            Edit::Coordinate { axis } => {
                let k = self.coordinate(e, c, at, *axis, m.dtype(at)?)?;
                e.redirect(c, at, k, &[]);
            }
            Edit::Offset { axis, stride } => {
                let a = m.array(at)?.clone();
                let k = self.coordinate(e, c, at, *axis, a.dtype)?;
                let s = e.constant(c, a.dtype, *stride as f64)?;
                let p = e.insert(c, Some(k), Opcode::Multiply, Attrs::None, &[k, s], &[], None)?;
                let b = e.spread(c, p, p, &a)?;
                let r = e.insert(c, Some(b), Opcode::Add, Attrs::None, &[at, b], &[], None)?;
                e.redirect(c, at, r, &[r]);
            }
            Edit::Add { with } => {
                let r = e.insert(c, Some(at), Opcode::Add, Attrs::None, &[at, *with], &[], None)?;
                e.redirect(c, at, r, &[r]);
                e.sort(c)?;
            }
            Edit::Swap => e.m.instrs[at.0 as usize].operands.swap(0, 1),
        }
        Some(())
    }

    /// The coordinate of the device on a mesh axis, after `after`.
    fn coordinate(
        &self,
        e: &mut Editor,
        c: CompId,
        after: InstrId,
        axis: usize,
        dtype: DType,
    ) -> Option<InstrId> {
        let stride: i64 = self.mesh[axis + 1..].iter().map(|a| a.1).product();
        let op = if self.replica_mode { Opcode::ReplicaId } else { Opcode::PartitionId };
        let u = Some(Shape::Array(ArrayShape::new(DType::U32, [])));
        let id = e.insert(c, Some(after), op, Attrs::None, &[], &[], u)?;
        let s = e.constant(c, DType::U32, stride as f64)?;
        let n = e.constant(c, DType::U32, self.mesh[axis].1 as f64)?;
        let q = e.insert(c, Some(id), Opcode::Divide, Attrs::None, &[id, s], &[], None)?;
        let r = e.insert(c, Some(q), Opcode::Remainder, Attrs::None, &[q, n], &[], None)?;
        if dtype == DType::U32 {
            return Some(r);
        }
        let shape = Some(Shape::Array(ArrayShape::new(dtype, [])));
        e.insert(c, Some(r), Opcode::Convert, Attrs::None, &[r], &[], shape)
    }

    /// The instruction to show for an edit: of a constant, the nearest use.
    pub fn place(&self, x: &Candidate, distances: &[f64]) -> InstrId {
        let mut at = x.at;
        for _ in 0..4 {
            let op = self.m.instr(at).opcode;
            if !matches!(
                op,
                Opcode::Constant | Opcode::Broadcast | Opcode::Convert | Opcode::Reshape
            ) || self.m.instr(x.at).opcode != Opcode::Constant
            {
                break;
            }
            let users = (0..self.m.instrs.len() as u32).map(InstrId);
            let users = users.filter(|&u| self.m.instr(u).operands.contains(&at));
            let best =
                users.min_by(|a, b| distances[a.0 as usize].total_cmp(&distances[b.0 as usize]));
            match best {
                Some(u) => at = u,
                None => break,
            }
        }
        at
    }

    /// Where the changed value is used next: the nearest user, through
    /// instructions of the same source line or of none, that has another
    /// line. What is missing is missing between the two.
    pub fn next_use(&self, at: InstrId) -> Option<InstrId> {
        let line = |i: InstrId| {
            let f = self.m.frames(i);
            f.first().filter(|f| f.line > 0).map(|f| (f.file.to_owned(), f.line))
        };
        let here = line(at);
        let list = &self.m.comp(self.owner[at.0 as usize]).instrs;
        let from = list.iter().position(|&x| x == at)?;
        let mut reach: rustc_hash::FxHashMap<InstrId, u32> = [(at, 0)].into_iter().collect();
        let mut best: Option<(u32, InstrId)> = None;
        for &u in list.iter().skip(from + 1).take(2000) {
            let i = self.m.instr(u);
            let Some(d) = i.operands.iter().filter_map(|o| reach.get(o)).min().copied() else {
                continue;
            };
            match line(u) {
                Some(l) if Some(&l) != here.as_ref() => {
                    if best.is_none_or(|b| d < b.0) {
                        best = Some((d, u));
                    }
                }
                _ if d < 6 => {
                    reach.insert(u, d + 1);
                }
                _ => {}
            }
        }
        best.map(|b| b.1)
    }

    /// Is something put between a value and its uses?
    pub fn inserts(x: &Candidate) -> bool {
        matches!(
            x.edit,
            Edit::AllReduce { drop: None, .. }
                | Edit::Scale { .. }
                | Edit::Offset { .. }
                | Edit::Relayout { .. }
                | Edit::Add { .. }
        )
    }

    /// Kind of the fault that an edit mends.
    pub fn code(&self, x: &Candidate) -> &'static str {
        let opcode = self.m.instr(x.at).opcode;
        match &x.edit {
            Edit::AllReduce { drop: Some(_), .. } => "misplaced-all-reduce",
            Edit::AllReduce { .. } => "missing-all-reduce",
            Edit::Drop => "duplicate-collective",
            Edit::Groups { .. } => "wrong-group",
            Edit::Reducer { .. } => "wrong-reducer",
            Edit::Redo { .. } => "wrong-dimension",
            Edit::Gather { .. } => "missing-all-gather",
            Edit::Use { .. } => "extra-operation",
            Edit::Exchange { .. } => "wrong-operand",
            Edit::TransposeAfter { .. } => "wrong-layout",
            Edit::Pairs { .. } => "wrong-permute",
            Edit::Scale { .. } => "wrong-scale",
            Edit::ScaleOperand { .. } => "duplicated-operand",
            Edit::Constant { .. } => self.constant_code(x.at),
            Edit::TransposeBefore { .. } | Edit::Permutation { .. } | Edit::Relayout { .. } => {
                "wrong-layout"
            }
            Edit::Operand { .. } if opcode == Opcode::DynamicUpdateSlice => "stale-slice",
            Edit::Operand { .. } | Edit::Swap => "wrong-operand",
            Edit::Op { .. } => "wrong-operation",
            Edit::Direction { .. } => "wrong-mask",
            Edit::Coordinate { .. } => "wrong-mesh-axis",
            Edit::Offset { .. } => "wrong-offset",
            Edit::Add { .. } => "missing-operand",
        }
    }

    /// What a constant is to its nearest arithmetic use.
    fn constant_code(&self, at: InstrId) -> &'static str {
        let mut reach = vec![at];
        for &u in &self.m.comp(self.owner[at.0 as usize]).instrs {
            let i = self.m.instr(u);
            if u == at || !i.operands.iter().any(|o| reach.contains(o)) {
                continue;
            }
            let float = self.m.dtype(u).is_some_and(|d| d.is_float());
            match i.opcode {
                Opcode::Broadcast | Opcode::Reshape | Opcode::Convert if reach.len() < 8 => {
                    reach.push(u);
                }
                Opcode::Multiply | Opcode::Divide if float => return "wrong-scale",
                Opcode::Add | Opcode::Subtract if !float => return "wrong-offset",
                Opcode::DynamicSlice | Opcode::DynamicUpdateSlice => return "wrong-offset",
                Opcode::Compare => return "wrong-mask",
                _ => return "wrong-constant",
            }
        }
        "wrong-constant"
    }

    /// Name of an instruction with its source line.
    pub fn name(&self, i: InstrId) -> String {
        let n = self.m.name_of(i);
        match self.m.frames(i).first() {
            Some(f) if f.line > 0 => {
                format!("%{n} ({}:{})", f.file.rsplit('/').next().unwrap_or(""), f.line)
            }
            _ => format!("%{n}"),
        }
    }

    /// The edit in words, to be read after "with".
    pub fn text(&self, x: &Candidate) -> String {
        let m = self.m;
        let name = |i: InstrId| self.name(i);
        let mut at = name(x.at);
        if !x.also.is_empty() {
            at += &format!(" and {} more of this line", x.also.len());
        }
        match &x.edit {
            Edit::AllReduce { mask, op, mean, drop } => {
                let kind = match op {
                    Opcode::Add if *mean => " (mean)".to_owned(),
                    Opcode::Add => String::new(),
                    op => format!(" ({op})"),
                };
                let mut t = format!("all-reduce{kind} over {} after {at}", self.axes(*mask));
                if let Some(d) = drop {
                    t += &format!(" in place of {}", name(*d));
                }
                t
            }
            Edit::Drop => format!("{} {at} left out", m.instr(x.at).opcode),
            Edit::Groups { mask } => format!("{at} over {}", self.axes(*mask)),
            Edit::Reducer { op } => format!("{op} as the reducer of {at}"),
            Edit::Redo { like, dim, .. } => {
                format!("{} along dimension {dim} in place of {at}", name(*like))
            }
            Edit::Gather { source, mask, dim } => format!(
                "all-gather of {} over {} along dimension {dim} in place of {at}",
                name(*source),
                self.axes(*mask)
            ),
            Edit::Use { operand } => {
                let o = m.instr(x.at).operands.get(*operand).copied().unwrap_or(x.at);
                format!("{} in place of {at}", name(o))
            }
            Edit::TransposeAfter { perm } => {
                format!("sizes permuted by {perm:?} and transposed back in {at}")
            }
            Edit::Exchange { with } => format!("{at} and {} exchanged", name(*with)),
            Edit::Pairs { pairs } => {
                let p: Vec<String> =
                    pairs.iter().take(8).map(|p| format!("{{{},{}}}", p.0, p.1)).collect();
                format!("pairs {} in {at}", p.join(","))
            }
            Edit::Scale { factor } => format!("{at} multiplied by {}", fraction(*factor)),
            Edit::ScaleOperand { operand, factor } => {
                format!("operand {operand} of {at} multiplied by {}", fraction(*factor))
            }
            Edit::Constant { value } => {
                let old = m.literal(x.at).and_then(number).unwrap_or(f64::NAN);
                format!("{value} in place of {old} in {at}")
            }
            Edit::TransposeBefore { perm } => {
                format!("transpose {perm:?} of the operand before {at}")
            }
            Edit::Permutation { perm } => format!("dimensions {perm:?} in {at}"),
            Edit::Relayout { split, perm } => {
                format!("reshape to {split:?} and transpose {perm:?} after {at}")
            }
            Edit::Operand { operand, with } => {
                format!("{} as operand {operand} of {at}", name(*with))
            }
            Edit::Op { op } => format!("{op} in place of {at}"),
            Edit::Direction { dir } => format!("direction {dir:?} in {at}").to_lowercase(),
            Edit::Coordinate { axis } => {
                format!("the coordinate on {} in place of {at}", self.mesh[*axis].0)
            }
            Edit::Offset { axis, stride } => {
                format!("{stride} times the coordinate on {} added to {at}", self.mesh[*axis].0)
            }
            Edit::Add { with } => format!("{} added to {at}", name(*with)),
            Edit::Swap => format!("the operands of {at} swapped"),
        }
    }
}

fn fraction(f: f64) -> String {
    if f < 1.0 && (1.0 / f).fract() == 0.0 { format!("1/{}", 1.0 / f) } else { f.to_string() }
}

fn dist_in(list: &[InstrId], a: InstrId, b: InstrId) -> usize {
    let p = |x: InstrId| list.iter().position(|&y| y == x).unwrap_or(0);
    p(a).abs_diff(p(b))
}

/// Permutations of up to four dimensions, the identity left out.
fn permutations(n: usize) -> Vec<Vec<i64>> {
    fn go(left: &mut Vec<i64>, cur: &mut Vec<i64>, out: &mut Vec<Vec<i64>>) {
        if left.is_empty() {
            out.push(cur.clone());
        }
        for k in 0..left.len() {
            let x = left.remove(k);
            cur.push(x);
            go(left, cur, out);
            cur.pop();
            left.insert(k, x);
        }
    }
    if !(2..=4).contains(&n) {
        // Too many: neighbours swapped only.
        return (0..n.saturating_sub(1))
            .map(|k| {
                let mut p: Vec<i64> = (0..n as i64).collect();
                p.swap(k, k + 1);
                p
            })
            .collect();
    }
    let mut out = Vec::new();
    go(&mut (0..n as i64).collect(), &mut Vec::new(), &mut out);
    out.remove(0);
    out
}

/// Does the permutation move elements, sizes of 1 aside?
fn moves(dims: &[i64], perm: &[i64]) -> bool {
    let kept: Vec<i64> = perm.iter().copied().filter(|&p| dims[p as usize] != 1).collect();
    kept.windows(2).any(|w| w[0] > w[1])
}
