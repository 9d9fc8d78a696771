//! Slices and elements at indices.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{
    ArrayShape, Attrs, Comparison, DType, GatherAttrs, InstrId, Literal, Opcode, ScatterAttrs,
};

impl Work<'_> {
    pub(super) fn indexed(
        &mut self,
        out: InstrId,
        op: Opcode,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let attrs = self.e.m.instr(out).attrs.clone();
        let few = || internal(format!("operands of {op}"), "those of the opcode");
        let x = *xs.first().ok_or_else(few)?;
        match (op, &attrs) {
            (Opcode::DynamicSlice, _) => {
                let a = self.e.array(x)?;
                let zero = self.e.full(&a, 0.0)?;
                let all: Vec<InstrId> = [zero, ct].iter().chain(&xs[1..]).copied().collect();
                let g = self.e.op(Opcode::DynamicUpdateSlice, Attrs::None, &all, &[], None)?;
                self.accumulate(cts, x, g)
            }
            (Opcode::DynamicUpdateSlice, _) => {
                let u = *xs.get(1).ok_or_else(few)?;
                let a = self.e.array(u)?;
                if self.is_active(x) {
                    let zero = self.e.full(&a, 0.0)?;
                    let all: Vec<InstrId> = [ct, zero].iter().chain(&xs[2..]).copied().collect();
                    let g = self.e.op(op, Attrs::None, &all, &[], None)?;
                    self.accumulate(cts, x, g)?;
                }
                if self.is_active(u) {
                    let all: Vec<InstrId> = [ct].iter().chain(&xs[2..]).copied().collect();
                    let sizes = Attrs::DynamicSlice(a.dims.clone());
                    let g = self.e.op(Opcode::DynamicSlice, sizes, &all, &[], None)?;
                    self.accumulate(cts, u, g)?;
                }
                Ok(())
            }
            (Opcode::Gather, Attrs::Gather(g)) => {
                let idx = *xs.get(1).ok_or_else(few)?;
                let a = self.e.array(x)?;
                let most: Vec<i64> = g
                    .start_index_map
                    .iter()
                    .map(|&k| a.dims[k as usize] - g.slice_sizes[k as usize])
                    .collect();
                let idx = if self.o.clamp_indices {
                    let (lo, hi) = self.bounds(idx, g.index_vector_dim, &most)?;
                    self.e.op(Opcode::Clamp, Attrs::None, &[lo, idx, hi], &[], None)?
                } else {
                    idx
                };
                let s = ScatterAttrs {
                    update_window_dims: g.offset_dims.clone(),
                    inserted_window_dims: g.collapsed_slice_dims.clone(),
                    scatter_dims_to_operand_dims: g.start_index_map.clone(),
                    input_batching_dims: g.operand_batching_dims.clone(),
                    scatter_indices_batching_dims: g.start_indices_batching_dims.clone(),
                    index_vector_dim: g.index_vector_dim,
                    indices_are_sorted: false,
                    unique_indices: false,
                };
                let zero = self.e.full(&a, 0.0)?;
                let f = self.e.reducer(Opcode::Add, a.dtype)?;
                let attrs = Attrs::Scatter(Box::new(s));
                let g = self.e.op(Opcode::Scatter, attrs, &[zero, idx, ct], &[f], None)?;
                self.accumulate(cts, x, g)
            }
            (Opcode::Scatter, Attrs::Scatter(s)) => self.scatter(out, s, xs, ct, cts),
            _ => Err(few()),
        }
    }

    fn scatter(
        &mut self,
        out: InstrId,
        s: &ScatterAttrs,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let &[x, idx, u] = xs else {
            return Err(internal("a derivative of a scatter of several operands", "one operand"));
        };
        let f = *self
            .e
            .m
            .instr(out)
            .calls
            .first()
            .ok_or_else(|| internal("a scatter without computation", "one"))?;
        let sum = self.monoid(f) == Some(Opcode::Add);
        let c = self.e.m.comp(f);
        let set = c.params.get(1) == Some(&c.root);
        if !(sum || set && s.unique_indices) {
            return Err(internal(
                "a derivative of a scatter by another computation",
                "a sum, or an overwriting scatter with unique_indices",
            ));
        }
        if self.is_active(x) {
            let g = if sum {
                ct
            } else {
                let a = self.e.array(u)?;
                let zero = self.e.full(&a, 0.0)?;
                let attrs = self.e.m.instr(out).attrs.clone();
                self.e.op(Opcode::Scatter, attrs, &[ct, idx, zero], &[f], None)?
            };
            self.accumulate(cts, x, g)?;
        }
        if !self.is_active(u) {
            return Ok(());
        }
        let (d, a) = (self.e.dims(x), self.e.array(u)?);
        let mut window = s.update_window_dims.iter().map(|&k| a.dims[k as usize]);
        let sizes: Vec<i64> = (0..d.len() as i64)
            .map(|k| {
                if s.inserted_window_dims.contains(&k) || s.input_batching_dims.contains(&k) {
                    1
                } else {
                    window.next().unwrap_or(1)
                }
            })
            .collect();
        let g = GatherAttrs {
            offset_dims: s.update_window_dims.clone(),
            collapsed_slice_dims: s.inserted_window_dims.clone(),
            start_index_map: s.scatter_dims_to_operand_dims.clone(),
            operand_batching_dims: s.input_batching_dims.clone(),
            start_indices_batching_dims: s.scatter_indices_batching_dims.clone(),
            index_vector_dim: s.index_vector_dim,
            slice_sizes: sizes.iter().copied().collect(),
            indices_are_sorted: false,
        };
        let mut got =
            self.e.op(Opcode::Gather, Attrs::Gather(Box::new(g)), &[ct, idx], &[], None)?;
        if self.o.clamp_indices {
            // What is written outside is not written at all.
            let most: Vec<i64> = s
                .scatter_dims_to_operand_dims
                .iter()
                .map(|&k| d[k as usize] - sizes[k as usize])
                .collect();
            let (lo, hi) = self.bounds(idx, s.index_vector_dim, &most)?;
            let p = self.e.compare(Comparison::Ge, idx, lo)?;
            let q = self.e.compare(Comparison::Le, idx, hi)?;
            let mut inside = self.e.bin(Opcode::And, p, q)?;
            if (s.index_vector_dim as usize) < self.e.dims(idx).len() {
                let yes = self.e.scalar(DType::Pred, 1.0)?;
                let f = self.e.reducer(Opcode::And, DType::Pred)?;
                let dims = Attrs::Dims([s.index_vector_dim].into_iter().collect());
                inside = self.e.op(Opcode::Reduce, dims, &[inside, yes], &[f], None)?;
            }
            let map: Vec<i64> =
                (0..a.dims.len() as i64).filter(|k| !s.update_window_dims.contains(k)).collect();
            let wide = self.e.broadcast(inside, &a.dims, &map)?;
            let zero = self.e.full(&a, 0.0)?;
            got = self.e.select(wide, got, zero)?;
        }
        self.accumulate(cts, u, got)
    }

    /// Zeros and the largest indices, in the shape of `idx`.
    fn bounds(&mut self, idx: InstrId, dim: i64, most: &[i64]) -> Res<(InstrId, InstrId)> {
        let a = self.e.array(idx)?;
        let top = a.dtype.int_range().map_or(i128::from(i64::MAX), |r| r.1);
        let cap = |m: &i64| i128::from(*m).min(top).max(0) as i64;
        let lo = self.e.full(&a, 0.0)?;
        let hi = match most {
            [m] => self.e.full(&a, cap(m) as f64)?,
            _ => {
                let bytes: Vec<u8> = most.iter().flat_map(|m| cap(m).to_le_bytes()).collect();
                let s = ArrayShape::new(DType::S64, [most.len() as i64]);
                let l = Literal::dense(s, bytes);
                let shape = l.shape.clone();
                let attrs = Attrs::Constant(Box::new(l));
                let c = self.e.raw(Opcode::Constant, attrs, &[], &[], shape)?;
                let c = self.e.convert(c, a.dtype)?;
                self.e.broadcast(c, &a.dims, &[dim])?
            }
        };
        Ok((lo, hi))
    }
}
