//! Instructions the terms cannot look into: functions of their whole operands,
//! equal where the function and the operands are equal. Dimensions along
//! which the function acts independently stay open.

use super::{Lifter, Lv, dt_of};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, CompId, InstrId, Literal, LiteralData, Opcode, Shape};
use scalify_terms::{Ax, LinId, Lins, Val};
use smallvec::SmallVec;
use std::fmt::Write;

const REACH: &str = "index arithmetic is out of reach";

/// Which dimensions of operands and results are batch dimensions: pairs of
/// lists, in corresponding order.
struct Batch {
    operands: Vec<Vec<usize>>,
    results: Vec<Vec<usize>>,
}

impl Lifter<'_> {
    /// Text of an instruction's attributes without names of this module.
    pub(super) fn attr_key(&mut self, i: InstrId) -> String {
        let m = self.m;
        let ins = m.instr(i);
        let mut s = match &ins.attrs {
            Attrs::Fusion { .. } | Attrs::None | Attrs::Async { .. } => String::new(),
            Attrs::Dot(d) => format!(
                "{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}",
                d.algorithm.map(|x| m.str(x)),
                d.lhs_batch,
                d.rhs_batch,
                d.lhs_contracting,
                d.rhs_contracting,
                d.lhs_ragged,
                d.rhs_group,
                d.sparsity.map(|x| m.str(x))
            ),
            Attrs::Conv(c) => {
                let mut c = (**c).clone();
                c.precision.clear();
                format!("{c:?}")
            }
            Attrs::Collective(c) => format!(
                "{:?}{:?}{:?}{:?}{}",
                c.groups.expand(self.dev.count),
                c.dimension,
                c.pairs,
                c.channel_id.is_some(),
                c.use_global_device_ids
            ),
            Attrs::CustomCall(c) => {
                let t = |x: Option<scalify_ir::Symbol>| x.map_or("", |x| m.str(x));
                format!(
                    "{}|{}|{}|{}",
                    m.str(c.target),
                    t(c.opaque),
                    t(c.rest),
                    ins.extra
                        .as_ref()
                        .and_then(|e| e.backend_config.as_ref())
                        .map_or("", |b| m.str(b.text))
                )
            }
            // An unknown value equals no other.
            Attrs::Constant(l) if !is_known(l) => format!("unknown {}", self.consts.unknown()),
            Attrs::FeedConfig(x) | Attrs::Domain(x) => m.str(*x).to_owned(),
            other => format!("{other:?}"),
        };
        for &c in &ins.calls {
            let k = self.comp_key(c);
            s.push_str(&k);
        }
        s
    }

    /// Text of the attributes of an instruction with batch dimensions: only
    /// what says how the function acts on a slice without them.
    fn batch_key(&mut self, i: InstrId, batch: &Batch) -> String {
        let m = self.m;
        let ins = m.instr(i);
        let b = batch.operands.first().cloned().unwrap_or_default();
        let mut s = match &ins.attrs {
            Attrs::Sort { stable, .. } => format!("{stable}"),
            Attrs::Dims(_) => String::new(),
            Attrs::Window(w) => {
                let w: Vec<_> = w.iter().enumerate().filter(|x| !b.contains(&x.0)).collect();
                format!("{:?}", w.iter().map(|x| x.1).collect::<Vec<_>>())
            }
            _ => return self.attr_key(i),
        };
        for &c in &ins.calls {
            let k = self.comp_key(c);
            s.push_str(&k);
        }
        s
    }

    /// An instruction as a function of its whole operands.
    pub(super) fn lift_opaque(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let op = m.instr(i).opcode;
        // Effects and state are no functions of the operands; collectives and
        // device ids inside would make the result depend on the device.
        let pure = !matches!(
            op,
            Opcode::Infeed
                | Opcode::Outfeed
                | Opcode::Send
                | Opcode::SendDone
                | Opcode::Recv
                | Opcode::RecvDone
                | Opcode::Rng
                | Opcode::RngGetAndUpdateState
                | Opcode::RaggedAllToAll
                | Opcode::StochasticConvert
        );
        if !pure || m.instr(i).calls.iter().any(|&c| self.depends_on_device(c, 32)) {
            return Err(format!("{op} is not lifted"));
        }
        let flat: Vec<Lv> = v.iter().flat_map(Lv::leaves).collect();
        let n = flat.iter().filter(|x| matches!(x, Lv::T(_))).count();
        let none = Batch { operands: vec![Vec::new(); n], results: Vec::new() };
        self.opaque_with(i, &flat, &none)
    }

    /// The attributes of `topk` that a custom-call `TopK` stands for: its
    /// comparator is the total order of `f32`, or the order of integers.
    fn top_k(&self, i: InstrId) -> Option<Attrs> {
        let m = self.m;
        let ins = m.instr(i);
        let Attrs::CustomCall(c) = &ins.attrs else { return None };
        if m.str(c.target) != "TopK" || ins.operands.len() != 1 {
            return None;
        }
        let leaf = m.shape(i).leaves().first().and_then(|s| s.as_array().cloned())?;
        let k = *leaf.dims.last()?;
        let comp = m.comp(*ins.calls.first()?);
        let root = m.instr(comp.root);
        let Attrs::Compare { direction, .. } = &root.attrs else { return None };
        let largest = match direction {
            scalify_ir::Comparison::Gt => true,
            scalify_ir::Comparison::Lt => false,
            _ => return None,
        };
        let (p, q) = (*comp.params.first()?, *comp.params.get(1)?);
        let ordered = |v: InstrId, p: InstrId| match m.dtype(p) {
            Some(d) if d.is_int() => v == p,
            Some(scalify_ir::DType::F32) => self.order_key(v) == Some(p),
            _ => false,
        };
        (ordered(root.operands[0], p) && ordered(root.operands[1], q))
            .then_some(Attrs::TopK { k, largest })
    }

    pub(super) fn depends_on_device(&self, c: CompId, depth: u32) -> bool {
        let m = self.m;
        depth == 0
            || m.comp(c).instrs.iter().any(|&i| {
                let ins = m.instr(i);
                ins.opcode.is_collective()
                    || matches!(
                        ins.opcode,
                        Opcode::PartitionId
                            | Opcode::ReplicaId
                            | Opcode::Rng
                            | Opcode::RngGetAndUpdateState
                            | Opcode::Infeed
                            | Opcode::Recv
                            | Opcode::Send
                    )
                    || ins.calls.iter().any(|&c| self.depends_on_device(c, depth - 1))
            })
    }

    fn opaque_with(&mut self, i: InstrId, v: &[Lv], batch: &Batch) -> Result<Lv, String> {
        let batched = batch.operands.first().is_some_and(|b| !b.is_empty());
        let attrs = if batched { self.batch_key(i, batch) } else { self.attr_key(i) };
        let head = format!("{}|{attrs}|", self.m.instr(i).opcode);
        let shape = self.m.shape(i).clone();
        self.opaque_as(head, &shape, v, batch)
    }

    /// `topk` is the first `k` of a stable sort of the values along the last
    /// dimension, with their positions, in the order of `comp_key::order_text`.
    fn lift_top_k(&mut self, i: InstrId, v: &[Lv], k: i64, largest: bool) -> Result<Lv, String> {
        let operand = *self.m.instr(i).operands.first().ok_or("no operand")?;
        let (dims, dtype) = self.array(operand)?;
        let leaves = self.m.shape(i).leaves().len();
        let [Lv::T(x)] = v else { return self.lift_batched(i, v) };
        let last = dims.len().checked_sub(1).ok_or("a scalar has no first elements")?;
        let n = dims[last];
        if leaves != 2 || !(0..=n).contains(&k) || n > i64::from(i32::MAX) {
            return self.lift_batched(i, v);
        }
        let fresh = self.st.fresh_dims(dims);
        let at = self.st.dim_index(&fresh[last]);
        let iota = Tv { val: self.st.iota(at), dims: fresh };
        let batch: Vec<usize> = (0..last).collect();
        let sort = Attrs::Sort { dim: last as i64, stable: true };
        let attrs = if last > 0 { "true".to_owned() } else { format!("{sort:?}") };
        let order = super::comp_key::order_text(dtype, largest);
        let head = format!("{}|{attrs}{order}|", Opcode::Sort);
        let shape = Shape::Tuple(
            [dtype, scalify_ir::DType::S32].map(|d| Shape::array(d, dims.iter().copied())).to_vec(),
        );
        let batch = Batch { operands: vec![batch.clone(); 2], results: vec![batch; 2] };
        let sorted = self.opaque_as(head, &shape, &[Lv::T(x.clone()), Lv::T(iota)], &batch)?;
        let mut out = Vec::new();
        for part in sorted.leaves() {
            let mut t = part.tensor().ok_or("no array")?.clone();
            self.cut_dim(&mut t, last, 0, k, 1).ok_or(REACH)?;
            t.val = self.st.norm(t.val);
            out.push(Lv::T(t));
        }
        Ok(Lv::Tuple(out.into()))
    }

    fn opaque_as(
        &mut self,
        head: String,
        shape: &Shape,
        v: &[Lv],
        batch: &Batch,
    ) -> Result<Lv, String> {
        let mut ts: Vec<Tv> = Vec::new();
        for x in v {
            if let Lv::T(t) = x {
                ts.push(self.st.freshen(t).ok_or(REACH)?);
            }
        }
        // Batch dimensions share atoms.
        let rank = batch.operands.first().map_or(0, Vec::len);
        if rank > 0 {
            for _ in 0..2 {
                for k in 1..ts.len() {
                    let (a, b) = ts.split_at_mut(k);
                    let (first, t) = (&mut a[0], &mut b[0]);
                    for q in 0..rank {
                        let (x, y) = (batch.operands[0][q], batch.operands[k][q]);
                        self.st.refine(first, x, t, y).ok_or("dimension splits clash")?;
                    }
                }
            }
            for k in 1..ts.len() {
                let mut map: SmallVec<[(Ax, Ax); 8]> = SmallVec::new();
                for q in 0..rank {
                    let (x, y) = (batch.operands[0][q], batch.operands[k][q]);
                    self.st.pair_atoms(&ts[k].dims[y], &ts[0].dims[x], &mut map).ok_or(REACH)?;
                }
                self.st.rename(&mut ts[k], &map).ok_or(REACH)?;
            }
        }
        // Captured dimensions in order, split no further than the term needs.
        for t in ts.iter_mut() {
            self.st.fuse_dims(t).ok_or(REACH)?;
        }
        let mut captured: SmallVec<[Ax; 8]> = SmallVec::new();
        let mut key = head;
        for (k, t) in ts.iter_mut().enumerate() {
            let b = batch.operands.get(k).cloned().unwrap_or_default();
            let _ = write!(key, "[");
            for d in 0..t.dims.len() {
                if b.contains(&d) {
                    continue;
                }
                let sizes: Vec<String> =
                    t.dims[d].iter().map(|&a| self.st.lins.size(a).to_string()).collect();
                let _ = write!(key, "{},", sizes.join("*"));
                captured.extend(t.dims[d].iter().copied());
            }
            let _ = write!(key, "]{}", t.val.dt.0);
        }
        let args: Vec<Val> = ts.iter().map(|t| t.val.clone()).collect();
        let batch_atoms: Vec<Atoms> = batch
            .operands
            .first()
            .map(|b| b.iter().map(|&d| ts[0].dims[d].clone()).collect())
            .unwrap_or_default();
        let leaves = shape.leaves();
        let mut out: Vec<Lv> = Vec::new();
        for (n, s) in leaves.iter().enumerate() {
            let Shape::Array(a) = s else {
                out.push(Lv::Token);
                continue;
            };
            let b = batch.results.get(n).cloned().unwrap_or_default();
            let mut own: SmallVec<[(i64, LinId); 4]> = SmallVec::new();
            let mut dims: SmallVec<[Atoms; 4]> = SmallVec::new();
            for (d, &size) in a.dims.iter().enumerate() {
                if let Some(q) = b.iter().position(|&x| x == d) {
                    dims.push(batch_atoms[q].clone());
                } else if size == 1 {
                    dims.push(Atoms::new());
                } else {
                    let x = self.st.lins.local(size);
                    own.push((size, Lins::plain(x)));
                    dims.push(SmallVec::from_elem(x, 1));
                }
            }
            let sizes: Vec<i64> =
                (0..a.dims.len()).filter(|d| !b.contains(d)).map(|d| a.dims[d]).collect();
            let f = self.st.sym(&format!("{key}#{n}:{}{sizes:?}", a.dtype));
            if let Some((lo, hi)) = a.dtype.int_range() {
                if let (Ok(lo), Ok(hi)) = (i64::try_from(lo), i64::try_from(hi)) {
                    self.st.set_sym_range(f, lo, hi);
                }
            }
            let val = self.st.opaque(f, dt_of(a.dtype), &args, &captured, &own);
            out.push(Lv::T(Tv { val, dims }));
        }
        Ok(rebuild(shape, &mut out.into_iter()))
    }

    /// `topk` and custom-calls that mean it.
    pub(super) fn lift_first_of_order(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let attrs = match &self.m.instr(i).attrs {
            a @ Attrs::TopK { .. } => Some(a.clone()),
            _ => self.top_k(i),
        };
        match attrs {
            Some(Attrs::TopK { k, largest }) => self.lift_top_k(i, v, k, largest),
            _ => self.lift_batched(i, v),
        }
    }

    /// Instructions that act along some dimensions and independently along
    /// the others.
    pub(super) fn lift_batched(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let flat: Vec<Lv> = v.iter().flat_map(Lv::leaves).collect();
        let ranks: Option<Vec<usize>> =
            flat.iter().map(|x| x.tensor().map(|t| t.dims.len())).collect();
        let ranks = ranks.ok_or("operand is no array")?;
        if ins.calls.iter().any(|&c| self.depends_on_device(c, 32)) {
            return Err(format!("{} is not lifted", ins.opcode));
        }
        let rank = *ranks.first().ok_or("no operands")?;
        let results = m.shape(i).leaves().len();
        let all_but = |ds: &[i64]| -> Vec<usize> {
            (0..rank).filter(|&d| !ds.contains(&(d as i64))).collect()
        };
        let batch = match (ins.opcode, &ins.attrs) {
            (Opcode::Sort, Attrs::Sort { dim, .. }) => {
                let b = all_but(&[*dim]);
                Batch { operands: vec![b.clone(); flat.len()], results: vec![b; results] }
            }
            (Opcode::TopK, _) => {
                let b = all_but(&[rank as i64 - 1]);
                Batch { operands: vec![b.clone(); flat.len()], results: vec![b; results] }
            }
            (Opcode::CustomCall, _) => {
                let b = all_but(&[rank as i64 - 1]);
                Batch { operands: vec![b.clone(); flat.len()], results: vec![b; results] }
            }
            (Opcode::Reduce, Attrs::Dims(ds)) => {
                // Operands, then scalar initial values.
                let n = flat.len() / 2;
                if ranks[..n].iter().any(|&r| r != rank) || ranks[n..].iter().any(|&r| r != 0) {
                    return self.lift_opaque(i, v);
                }
                let b = all_but(ds);
                return self.reduce_opaque(i, &flat, n, &b, results);
            }
            (Opcode::ReduceWindow, Attrs::Window(w)) => {
                let n = flat.len() / 2;
                let trivial = |w: &scalify_ir::WindowDim| *w == scalify_ir::WindowDim::default();
                let b: Vec<usize> = (0..rank).filter(|&d| trivial(&w[d])).collect();
                if ranks[..n].iter().any(|&r| r != rank) {
                    return self.lift_opaque(i, v);
                }
                return self.reduce_opaque(i, &flat, n, &b, results);
            }
            (Opcode::Cholesky | Opcode::TriangularSolve, _) => {
                let b: Vec<usize> = (0..rank.saturating_sub(2)).collect();
                Batch { operands: vec![b.clone(); flat.len()], results: vec![b; results] }
            }
            (Opcode::Fft, Attrs::Fft { length, .. }) => {
                let b: Vec<usize> = (0..rank.saturating_sub(length.len())).collect();
                Batch { operands: vec![b.clone(); flat.len()], results: vec![b; results] }
            }
            _ => return self.lift_opaque(i, v),
        };
        if batch.operands.iter().zip(&ranks).any(|(b, &r)| b.iter().any(|&d| d >= r)) {
            return self.lift_opaque(i, v);
        }
        self.opaque_batched(i, &flat, &batch)
    }

    /// A call that acts independently along the first `n` dimensions of all its
    /// operands and results, as it declares; a partitioner splits it there.
    pub(super) fn lift_leading_batch(
        &mut self,
        i: InstrId,
        v: &[Lv],
        n: usize,
    ) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let flat: Vec<Lv> = v.iter().flat_map(Lv::leaves).collect();
        let shapes: Vec<&Shape> = ins.operands.iter().map(|&o| m.shape(o)).collect();
        let all = shapes.iter().flat_map(|s| s.leaves()).chain(m.shape(i).leaves());
        let leading: Option<Vec<&[i64]>> =
            all.map(|s| s.as_array().and_then(|a| a.dims.get(..n))).collect();
        let fits = leading.is_some_and(|l| l.windows(2).all(|p| p[0] == p[1]));
        if n == 0 || !fits || flat.is_empty() || flat.iter().any(|x| x.tensor().is_none()) {
            return self.lift_opaque(i, v);
        }
        if ins.calls.iter().any(|&c| self.depends_on_device(c, 32)) {
            return Err(format!("{} is not lifted", ins.opcode));
        }
        let b: Vec<usize> = (0..n).collect();
        let results = m.shape(i).leaves().len();
        let batch = Batch { operands: vec![b.clone(); flat.len()], results: vec![b; results] };
        self.opaque_batched(i, &flat, &batch)
    }

    /// Reductions: the scalar initial values have no batch dimensions, so
    /// they are broadcast over those of the operands.
    fn reduce_opaque(
        &mut self,
        i: InstrId,
        flat: &[Lv],
        n: usize,
        b: &[usize],
        results: usize,
    ) -> Result<Lv, String> {
        let Some(first) = flat[0].tensor().cloned() else { return Err("no array".to_owned()) };
        let mut ops: Vec<Lv> = flat[..n].to_vec();
        for x in &flat[n..] {
            let t = x.tensor().ok_or("no array")?;
            let sizes: SmallVec<[i64; 6]> =
                b.iter().map(|&d| self.st.dim_size(&first.dims[d])).collect();
            let dims = self.st.fresh_dims(&sizes);
            ops.push(Lv::T(Tv { val: t.val.clone(), dims }));
        }
        let scalar: Vec<usize> = (0..b.len()).collect();
        let mut operands = vec![b.to_vec(); n];
        operands.extend(std::iter::repeat_n(scalar.clone(), flat.len() - n));
        // Results of reduce keep the batch dimensions only; those of
        // reduce-window have all dimensions.
        let window = self.m.instr(i).opcode == Opcode::ReduceWindow;
        let res = if window { b.to_vec() } else { scalar };
        let batch = Batch { operands, results: vec![res; results] };
        self.opaque_batched(i, &ops, &batch)
    }

    /// Like [`Self::opaque_with`], with the dimension numbers of the batch
    /// taken out of the key (they are the same function of a slice).
    fn opaque_batched(&mut self, i: InstrId, v: &[Lv], batch: &Batch) -> Result<Lv, String> {
        self.opaque_with(i, v, batch)
    }
}

fn is_known(l: &Literal) -> bool {
    match &l.data {
        LiteralData::Elided => false,
        LiteralData::Tuple(t) => t.iter().all(is_known),
        LiteralData::Dense(_) => true,
    }
}

/// A value of the shape from its leaves.
pub(super) fn rebuild(s: &Shape, leaves: &mut impl Iterator<Item = Lv>) -> Lv {
    match s {
        Shape::Tuple(t) => Lv::Tuple(t.iter().map(|x| rebuild(x, leaves)).collect()),
        _ => leaves.next().unwrap_or(Lv::Token),
    }
}
