//! The same pair of programs at smaller sizes, so that models of real
//! dimensions can be evaluated.
//!
//! Every dimension of every value gets a class: dimensions that an operation
//! ties to one another are of one class, in both programs and across them
//! (inputs and outputs of a pair). A class is divided by one power of two.
//! Classes stay as they are where a size is also written elsewhere: indexed
//! dimensions of gather and dynamic-slice, windows, dense constants, positions
//! that integer arithmetic compares with other numbers.
//!
//! Floats below `f32` become `f32`: the noise of many layers in `bf16` would
//! hide what is looked for, and both programs change alike.
//!
//! Constants that stand for a size (a mean's divisor) keep their value: both
//! programs have them. A difference at reduced sizes therefore refutes the
//! given pair only together with a repair that is proved at full size and
//! agrees at reduced sizes; see [`crate::decide`].

use crate::edit::Ids;
use crate::edit::{filled, number};
use crate::together::both;
use scalify_interp::Tensor;
use scalify_ir::{
    ArrayShape, Attrs, DType, InstrId, Literal, Module, Opcode, Shape, ShapeId, ValidateOptions,
};
use scalify_prove::problem::Problem;

/// Both programs at reduced sizes, or for one output alone.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// Baseline.
    pub base: Module,
    /// Distributed program.
    pub dist: Module,
    /// Only this output is computed; see [`crate::restrict`].
    pub output: Option<usize>,
    /// Sizes are smaller than given.
    pub smaller: bool,
    /// The given baseline's instructions in it.
    pub base_ids: Ids,
    /// The given distributed program's instructions in it.
    pub dist_ids: Ids,
}

/// Sizes are not divided below this.
const LEAST: i64 = 4;

/// Classes of dimensions of both programs.
struct Classes {
    parent: Vec<u32>,
    fixed: Vec<bool>,
    sizes: Vec<i64>,
    /// Further numbers that the factor of a variable must divide.
    also: Vec<(u32, i64)>,
    /// Products that must shrink alike.
    equal: Vec<(Vec<u32>, Vec<u32>)>,
}

impl Classes {
    fn find(&mut self, mut x: u32) -> u32 {
        while self.parent[x as usize] != x {
            self.parent[x as usize] = self.parent[self.parent[x as usize] as usize];
            x = self.parent[x as usize];
        }
        x
    }

    fn union(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            self.parent[b as usize] = a;
            let f = self.fixed[a as usize] || self.fixed[b as usize];
            self.fixed[a as usize] = f;
        }
    }

    fn fix(&mut self, a: u32) {
        let a = self.find(a);
        self.fixed[a as usize] = true;
    }
}

/// Where the variables of a program's dimensions begin.
struct Vars<'a> {
    m: &'a Module,
    first: Vec<u32>,
}

impl Vars<'_> {
    fn rank(s: &Shape) -> u32 {
        match s {
            Shape::Array(a) => a.dims.len() as u32,
            Shape::Tuple(t) => t.iter().map(Vars::rank).sum(),
            Shape::Buffer(b) => Vars::rank(b),
            Shape::Token | Shape::Opaque => 0,
        }
    }

    /// Variables of a value, leaf by leaf.
    fn of(&self, x: InstrId) -> std::ops::Range<u32> {
        let f = self.first[x.0 as usize];
        f..f + Vars::rank(self.m.shape(x))
    }

    fn dim(&self, x: InstrId, k: i64) -> u32 {
        self.first[x.0 as usize] + k as u32
    }

    /// Variables of one element of a tuple.
    fn element(&self, x: InstrId, k: usize) -> Option<std::ops::Range<u32>> {
        let t = self.m.shape(x).as_tuple()?;
        let skip: u32 = t.iter().take(k).map(Vars::rank).sum();
        let f = self.first[x.0 as usize] + skip;
        Some(f..f + Vars::rank(t.get(k)?))
    }
}

/// Both programs at reduced sizes; `None` if nothing can be reduced or the
/// result is not valid.
pub fn shrink(base: &Module, dist: &Module, p: &Problem) -> Option<Reduced> {
    let mut c =
        Classes { parent: vec![], fixed: vec![], sizes: vec![], also: vec![], equal: vec![] };
    let bv = variables(base, &mut c);
    let dv = variables(dist, &mut c);
    constrain(&bv, &mut c)?;
    constrain(&dv, &mut c)?;
    // Across: inputs by pair, outputs by position.
    let (bl, dl) = (inputs(&bv), inputs(&dv));
    for pair in &p.pairs {
        let (a, b) = (bl.get(pair.base?)?.clone(), dl.get(pair.dist)?.clone());
        if a.len() != b.len() {
            return None;
        }
        a.zip(b).for_each(|(a, b)| c.union(a, b));
    }
    let (a, b) = (bv.of(base.entry_comp().root), dv.of(dist.entry_comp().root));
    if a.len() != b.len() {
        return None;
    }
    a.zip(b).for_each(|(a, b)| c.union(a, b));
    let e = exponents(&mut c);
    if e.iter().all(|&e| e == 0) {
        return None;
    }
    let by: Vec<u32> = (0..c.parent.len() as u32).map(|x| e[c.find(x) as usize]).collect();
    let (b, d) = both(|| rebuild(&bv, &by), || rebuild(&dv, &by));
    let (base, dist) = (b?, d?);
    let (base_ids, dist_ids) = Default::default();
    Some(Reduced { base, dist, output: None, smaller: true, base_ids, dist_ids })
}

/// Variables of each input leaf.
fn inputs(v: &Vars<'_>) -> Vec<std::ops::Range<u32>> {
    let mut out = Vec::new();
    for &q in &v.m.entry_comp().params {
        let mut f = v.first[q.0 as usize];
        for s in v.m.shape(q).leaves() {
            let r = Vars::rank(s);
            out.push(f..f + r);
            f += r;
        }
    }
    out
}

fn variables<'a>(m: &'a Module, c: &mut Classes) -> Vars<'a> {
    let mut first = Vec::with_capacity(m.instrs.len());
    for i in &m.instrs {
        first.push(c.parent.len() as u32);
        for s in m.shapes[i.shape.0 as usize].leaves() {
            for &d in s.as_array().map_or(&[][..], |a| &a.dims) {
                c.parent.push(c.parent.len() as u32);
                c.fixed.push(d < 2);
                c.sizes.push(d);
            }
        }
    }
    // A size of one is its own class, never divided.
    Vars { m, first }
}

/// Where one class is split into as many parts in several places, the parts
/// are of one class.
fn unify_parts(c: &mut Classes) {
    let equal = std::mem::take(&mut c.equal);
    for _ in 0..8 {
        let mut seen: rustc_hash::FxHashMap<(u32, usize), Vec<u32>> = Default::default();
        let mut changed = false;
        for (a, b) in &equal {
            let (one, many) = match (&a[..], &b[..]) {
                ([x], m) | (m, [x]) => (*x, m),
                _ => continue,
            };
            let key = (c.find(one), many.len());
            let parts: Vec<u32> = many.iter().map(|&x| c.find(x)).collect();
            match seen.get(&key) {
                Some(p) => {
                    for (&x, &y) in p.clone().iter().zip(&parts) {
                        if c.find(x) != c.find(y) {
                            c.union(x, y);
                            changed = true;
                        }
                    }
                }
                None => {
                    seen.insert(key, parts);
                }
            }
        }
        if !changed {
            break;
        }
    }
    c.equal = equal;
}

/// The largest exponents of two, per class root, that all ties admit.
fn exponents(c: &mut Classes) -> Vec<u32> {
    unify_parts(c);
    let n = c.parent.len();
    let mut e = vec![u32::MAX; n];
    for x in 0..n as u32 {
        let r = c.find(x) as usize;
        let s = c.sizes[x as usize];
        let most = if c.fixed[r] || s < 2 {
            0
        } else {
            let mut k = s.trailing_zeros();
            while k > 0 && s >> k < LEAST.min(s) {
                k -= 1;
            }
            k
        };
        // Sizes of one tie nothing.
        if s >= 2 || c.fixed[r] && c.sizes[r] >= 2 {
            e[r] = e[r].min(most);
        }
    }
    for k in 0..c.also.len() {
        let (x, s) = c.also[k];
        let r = c.find(x) as usize;
        if s != 0 {
            e[r] = e[r].min(s.trailing_zeros());
        }
    }
    for x in &mut e {
        if *x == u32::MAX {
            *x = 0;
        }
    }
    let equal = std::mem::take(&mut c.equal);
    let sides: Vec<(Vec<u32>, Vec<u32>)> = equal
        .iter()
        .map(|(a, b)| {
            let f = |v: &Vec<u32>, c: &mut Classes| v.iter().map(|&x| c.find(x)).collect();
            (f(a, c), f(b, c))
        })
        .collect();
    // Lower the larger side until all products agree; ends at zero.
    loop {
        let mut changed = false;
        for (a, b) in &sides {
            loop {
                let sum = |v: &Vec<u32>| v.iter().map(|&x| e[x as usize]).sum::<u32>();
                let (x, y) = (sum(a), sum(b));
                if x == y {
                    break;
                }
                let side = if x > y { a } else { b };
                let Some(&top) = side.iter().rev().max_by_key(|&&r| e[r as usize]) else { break };
                e[top as usize] -= 1;
                changed = true;
            }
        }
        if !changed {
            return e;
        }
    }
}

fn constrain(v: &Vars<'_>, c: &mut Classes) -> Option<()> {
    let m = v.m;
    for comp in &m.comps {
        for &id in &comp.instrs {
            one(v, c, id)?;
        }
    }
    positions(v, c);
    Some(())
}

/// Ties all dimensions of two values.
fn tie(c: &mut Classes, a: std::ops::Range<u32>, b: std::ops::Range<u32>) -> Option<()> {
    if a.len() != b.len() {
        return None;
    }
    for (x, y) in a.zip(b) {
        c.union(x, y);
    }
    Some(())
}

fn one(v: &Vars<'_>, c: &mut Classes, id: InstrId) -> Option<()> {
    let m = v.m;
    let i = m.instr(id);
    let ops = &i.operands;
    let dims = |x: InstrId| m.array(x).map(|a| a.dims.clone());
    let fix_all = |c: &mut Classes| {
        for k in v.of(id) {
            c.fix(k);
        }
        for &o in ops {
            for k in v.of(o) {
                c.fix(k);
            }
        }
    };
    match (i.opcode, &i.attrs) {
        (Opcode::Parameter | Opcode::Iota | Opcode::PartitionId | Opcode::ReplicaId, _) => {}
        (Opcode::Constant, Attrs::Constant(l)) => {
            let scalar = v.of(id).is_empty();
            if !scalar && number(l).is_none() {
                v.of(id).for_each(|k| c.fix(k));
            }
        }
        (Opcode::Broadcast, Attrs::Dims(map)) => {
            for (k, &d) in map.iter().enumerate() {
                c.union(v.dim(ops[0], k as i64), v.dim(id, d));
            }
        }
        (Opcode::Transpose, Attrs::Dims(p)) => {
            for (k, &d) in p.iter().enumerate() {
                c.union(v.dim(id, k as i64), v.dim(ops[0], d));
            }
        }
        (Opcode::Reshape | Opcode::Bitcast, _) => {
            let (a, b) = (dims(ops[0])?, dims(id)?);
            let live = |d: &[i64], x: InstrId| -> Vec<(u32, i64)> {
                (0..d.len()).filter(|&k| d[k] != 1).map(|k| (v.dim(x, k as i64), d[k])).collect()
            };
            let (a, b) = (live(&a, ops[0]), live(&b, id));
            let (mut x, mut y) = (0, 0);
            while x < a.len() || y < b.len() {
                let (mut left, mut right) = (vec![], vec![]);
                let (mut l, mut r) = (1i64, 1i64);
                loop {
                    if l <= r && x < a.len() {
                        l = l.checked_mul(a[x].1)?;
                        left.push(a[x].0);
                        x += 1;
                    } else if y < b.len() {
                        r = r.checked_mul(b[y].1)?;
                        right.push(b[y].0);
                        y += 1;
                    } else {
                        fix_all(c);
                        return Some(());
                    }
                    if l == r && !left.is_empty() && !right.is_empty() {
                        break;
                    }
                }
                match (&left[..], &right[..]) {
                    ([p], [q]) => c.union(*p, *q),
                    _ => c.equal.push((left, right)),
                }
            }
        }
        (Opcode::Reduce, Attrs::Dims(gone)) => {
            let n = ops.len() / 2;
            let rank = dims(ops[0])?.len() as i64;
            let kept: Vec<i64> = (0..rank).filter(|k| !gone.contains(k)).collect();
            for j in 0..n {
                tie(c, v.of(ops[0]), v.of(ops[j]))?;
                let out = if n == 1 && m.shape(id).as_tuple().is_none() {
                    v.of(id)
                } else {
                    v.element(id, j)?
                };
                for (k, &d) in kept.iter().enumerate() {
                    c.union(out.start + k as u32, v.dim(ops[j], d));
                }
            }
        }
        (Opcode::Dot, Attrs::Dot(d)) if ops.len() == 2 => {
            let (l, r) = (ops[0], ops[1]);
            for (a, b) in d.lhs_batch.iter().zip(&d.rhs_batch) {
                c.union(v.dim(l, *a), v.dim(r, *b));
            }
            for (a, b) in d.lhs_contracting.iter().zip(&d.rhs_contracting) {
                c.union(v.dim(l, *a), v.dim(r, *b));
            }
            let mut out = 0;
            for &a in &d.lhs_batch {
                c.union(v.dim(id, out), v.dim(l, a));
                out += 1;
            }
            for (x, batch, con) in
                [(l, &d.lhs_batch, &d.lhs_contracting), (r, &d.rhs_batch, &d.rhs_contracting)]
            {
                for k in 0..dims(x)?.len() as i64 {
                    if !batch.contains(&k) && !con.contains(&k) {
                        c.union(v.dim(id, out), v.dim(x, k));
                        out += 1;
                    }
                }
            }
        }
        (Opcode::Slice, Attrs::Slice(s)) => {
            for k in 0..dims(id)?.len() {
                let (a, b) = (v.dim(ops[0], k as i64), v.dim(id, k as i64));
                if s.stride[k] != 1 && s.limit[k] - s.start[k] > 1 {
                    c.fix(a);
                    c.fix(b);
                    continue;
                }
                let n = dims(ops[0])?[k];
                if dims(id)?[k] == 1 && n != 1 {
                    // One position of many: the first and the last stay that.
                    if s.start[k] != 0 && s.start[k] != n - 1 {
                        c.fix(a);
                    }
                    continue;
                }
                c.union(a, b);
                c.also.push((a, s.start[k]));
                c.also.push((a, s.limit[k]));
            }
        }
        (Opcode::Concatenate, _) => {
            for &o in ops {
                tie(c, v.of(id), v.of(o))?;
            }
        }
        (Opcode::Gather, Attrs::Gather(g)) => {
            let (od, xd) = (dims(ops[0])?, dims(ops[1])?);
            let mut offset = g.offset_dims.iter();
            for k in 0..od.len() as i64 {
                let gone =
                    g.collapsed_slice_dims.contains(&k) || g.operand_batching_dims.contains(&k);
                let whole = g.slice_sizes.get(k as usize) == Some(&od[k as usize]);
                if gone {
                    c.fix(v.dim(ops[0], k));
                    continue;
                }
                let o = *offset.next()?;
                if whole && !g.start_index_map.contains(&k) {
                    c.union(v.dim(ops[0], k), v.dim(id, o));
                } else {
                    c.fix(v.dim(ops[0], k));
                    c.fix(v.dim(id, o));
                }
            }
            let mut batch = (0..xd.len() as i64).filter(|&k| k != g.index_vector_dim);
            for k in 0..dims(id)?.len() as i64 {
                if !g.offset_dims.contains(&k) {
                    c.union(v.dim(id, k), v.dim(ops[1], batch.next()?));
                }
            }
            if (g.index_vector_dim as usize) < xd.len() {
                c.fix(v.dim(ops[1], g.index_vector_dim));
            }
        }
        (Opcode::DynamicSlice, _) | (Opcode::DynamicUpdateSlice, _) => {
            let small = if i.opcode == Opcode::DynamicSlice { id } else { *ops.get(1)? };
            let (b, s) = (dims(ops[0])?, dims(small)?);
            for k in 0..b.len() {
                let (x, y) = (v.dim(ops[0], k as i64), v.dim(small, k as i64));
                if b[k] == s[k] {
                    c.union(x, y);
                } else {
                    c.fix(x);
                    c.fix(y);
                }
            }
            if i.opcode == Opcode::DynamicUpdateSlice {
                tie(c, v.of(id), v.of(ops[0]))?;
            }
        }
        (Opcode::Tuple, _) => {
            for (k, &o) in ops.iter().enumerate() {
                tie(c, v.element(id, k)?, v.of(o))?;
            }
        }
        (Opcode::GetTupleElement, Attrs::TupleIndex(k)) => {
            tie(c, v.of(id), v.element(ops[0], usize::try_from(*k).ok()?)?)?;
        }
        (Opcode::Call | Opcode::Fusion, _) => {
            let f = m.comp(*i.calls.first()?);
            tie(c, v.of(id), v.of(f.root))?;
            for (&p, &o) in f.params.iter().zip(ops) {
                tie(c, v.of(p), v.of(o))?;
            }
        }
        (Opcode::While, _) => {
            for &f in &i.calls {
                let f = m.comp(f);
                for &p in &f.params {
                    tie(c, v.of(p), v.of(ops[0]))?;
                }
            }
            tie(c, v.of(id), v.of(ops[0]))?;
            tie(c, v.of(id), v.of(m.comp(*i.calls.get(1)?).root))?;
        }
        (Opcode::Conditional, _) => {
            for (k, &f) in i.calls.iter().enumerate() {
                let f = m.comp(f);
                tie(c, v.of(id), v.of(f.root))?;
                tie(c, v.of(*f.params.first()?), v.of(*ops.get(k + 1)?))?;
            }
        }
        (Opcode::CustomCall, Attrs::CustomCall(x)) => {
            let t = m.str(x.target);
            let moves = t.starts_with("xla.sdy.") || t.starts_with("SPMD") || t == "Sharding";
            let all: u32 = ops.iter().map(|&o| v.of(o).len() as u32).sum();
            if moves && all == v.of(id).len() as u32 {
                let mut at = v.of(id).start;
                for &o in ops {
                    for k in v.of(o) {
                        c.union(k, at);
                        at += 1;
                    }
                }
            } else {
                fix_all(c);
            }
        }
        (
            Opcode::AllReduce
            | Opcode::AllGather
            | Opcode::ReduceScatter
            | Opcode::AllToAll
            | Opcode::CollectivePermute
            | Opcode::CollectiveBroadcast
            | Opcode::OptimizationBarrier
            | Opcode::Sort
            | Opcode::Reverse
            | Opcode::Copy,
            _,
        ) => {
            if m.shape(id).as_tuple().is_some() && ops.len() > 1 {
                for (k, &o) in ops.iter().enumerate() {
                    tie(c, v.element(id, k)?, v.of(o))?;
                }
            } else if v.of(id).len() == v.of(ops[0]).len() {
                tie(c, v.of(id), v.of(ops[0]))?;
            } else {
                fix_all(c);
            }
        }
        (op, _) => {
            let elementwise = op.is_unary_elementwise()
                || op.is_binary_elementwise()
                || matches!(
                    op,
                    Opcode::Select
                        | Opcode::Clamp
                        | Opcode::Compare
                        | Opcode::Convert
                        | Opcode::ReducePrecision
                        | Opcode::BitcastConvert
                );
            let fits = ops.iter().all(|&o| v.of(o).is_empty() || v.of(o).len() == v.of(id).len());
            if elementwise && fits {
                for &o in ops {
                    if !v.of(o).is_empty() {
                        tie(c, v.of(id), v.of(o))?;
                    }
                }
            } else {
                fix_all(c);
            }
        }
    }
    Some(())
}

/// Fixes dimensions whose positions meet other numbers: an iota in integer
/// arithmetic with a constant above one or with the device id.
fn positions(v: &Vars<'_>, c: &mut Classes) {
    let m = v.m;
    // Bit 1: a number of the program's text or the device; bit 2: a position.
    let mut kind = vec![0u8; m.instrs.len()];
    let mut iotas: Vec<(InstrId, u32)> = Vec::new();
    let mut of: Vec<Vec<u32>> = vec![Vec::new(); m.instrs.len()];
    for comp in &m.comps {
        for &id in &comp.instrs {
            let i = m.instr(id);
            let k = id.0 as usize;
            if !m.dtype(id).is_some_and(|d| d.is_int()) && i.opcode != Opcode::Compare {
                continue;
            }
            match (i.opcode, &i.attrs) {
                (Opcode::PartitionId | Opcode::ReplicaId, _) => kind[k] = 1,
                (Opcode::Constant, Attrs::Constant(l)) => {
                    if !number(l).is_some_and(|x| x.abs() <= 1.0) {
                        kind[k] = 1;
                    }
                }
                (Opcode::Iota, Attrs::Iota(d)) => {
                    kind[k] = 2;
                    of[k].push(iotas.len() as u32);
                    iotas.push((id, v.dim(id, *d)));
                }
                _ => {
                    for o in &i.operands {
                        kind[k] |= kind[o.0 as usize];
                        let from = of[o.0 as usize].clone();
                        for x in from {
                            if !of[k].contains(&x) && of[k].len() < 8 {
                                of[k].push(x);
                            }
                        }
                    }
                    if kind[k] == 3 {
                        for x in &of[k] {
                            c.fix(iotas[*x as usize].1);
                        }
                    }
                }
            }
        }
    }
    // Two positions that meet are of one class: one cannot shrink alone.
    for comp in &m.comps {
        for &id in &comp.instrs {
            let all = &of[id.0 as usize];
            if let Some((&a, rest)) = all.split_first() {
                for &b in rest {
                    c.union(iotas[a as usize].1, iotas[b as usize].1);
                }
            }
        }
    }
}

/// `f32` for floats below it.
fn wider(d: DType) -> DType {
    if d.is_float() && d.mantissa_bits().is_some_and(|b| b < 23) { DType::F32 } else { d }
}

/// The module with each dimension divided by the power of two of its variable.
fn rebuild(v: &Vars<'_>, by: &[u32]) -> Option<Module> {
    let mut m = v.m.clone();
    m.header.entry_layout = None;
    let exponent = |x: u32| by[x as usize];
    for k in 0..m.instrs.len() {
        let mut at = v.first[k];
        let old = &v.m.instrs[k];
        let attrs = matches!(
            old.attrs,
            Attrs::Constant(_) | Attrs::Slice(_) | Attrs::DynamicSlice(_) | Attrs::Gather(_)
        );
        let shape = &v.m.shapes[old.shape.0 as usize];
        // Most values stay or are of few shapes.
        if let (false, Shape::Array(a)) = (attrs, shape) {
            let stays = |(d, x): (&i64, u32)| *d < 2 || by[x as usize] == 0;
            if wider(a.dtype) == a.dtype && a.dims.iter().zip(at..).all(stays) {
                continue;
            }
        }
        fn make(s: &Shape, at: &mut u32, f: &mut dyn FnMut(u32, i64) -> i64) -> Shape {
            match s {
                Shape::Array(a) => {
                    let mut dims = a.dims.clone();
                    for d in &mut dims {
                        *d = f(*at, *d);
                        *at += 1;
                    }
                    let mut n = ArrayShape::new(wider(a.dtype), dims);
                    n.dynamic = a.dynamic;
                    Shape::Array(n)
                }
                Shape::Tuple(t) => Shape::Tuple(t.iter().map(|s| make(s, at, f)).collect()),
                Shape::Buffer(b) => Shape::Buffer(Box::new(make(b, at, f))),
                s => s.clone(),
            }
        }
        let new = make(shape, &mut at, &mut |x, d| if d < 2 { d } else { d >> exponent(x) });
        let id: ShapeId = m.shape_id(new.clone());
        let i = &mut m.instrs[k];
        i.shape = id;
        let down = |x: InstrId, d: usize, n: i64| n >> exponent(v.dim(x, d as i64));
        match &mut i.attrs {
            Attrs::Constant(l) => {
                if let (Shape::Array(a), None) = (&new, number(l)) {
                    if l.shape.dtype() != Some(a.dtype) {
                        let v = Tensor::from_literal(l)?.to_f64();
                        let t = Tensor::from_vec(a.dtype, a.dims.iter().copied(), v)?;
                        **l = Literal::dense(a.clone(), t.to_bytes());
                    }
                } else if let (Shape::Array(a), Some(x)) = (&new, number(l)) {
                    **l = if a.dtype.is_float() || a.dtype.is_int() {
                        filled(a, x)?
                    } else {
                        let w = a.dtype.literal_bytes();
                        let one = l.bytes()?.get(..w)?.to_vec();
                        let n = usize::try_from(a.dims.iter().product::<i64>()).ok()?;
                        Literal::dense(a.clone(), one.repeat(n))
                    };
                }
            }
            Attrs::Slice(s) => {
                let o = old.operands[0];
                for d in 0..s.start.len() {
                    if s.limit[d] - s.start[d] == 1 {
                        let n = v.m.array(o)?.dims[d];
                        if s.start[d] != 0 {
                            s.start[d] = down(o, d, n) - 1;
                        }
                        s.limit[d] = s.start[d] + 1;
                        continue;
                    }
                    s.start[d] = down(o, d, s.start[d]);
                    s.limit[d] = down(o, d, s.limit[d]);
                }
            }
            Attrs::DynamicSlice(w) => {
                for d in 0..w.len() {
                    w[d] = down(old.operands[0], d, w[d]);
                }
            }
            Attrs::Gather(g) => {
                for d in 0..g.slice_sizes.len() {
                    if g.slice_sizes[d] > 1 {
                        g.slice_sizes[d] = down(old.operands[0], d, g.slice_sizes[d]);
                    }
                }
            }
            _ => {}
        }
    }
    let bad = scalify_ir::validate(&m, &ValidateOptions::default());
    bad.iter().all(|i| i.severity != scalify_ir::Severity::Error).then_some(m)
}
