//! Matrix products.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, DotAttrs, InstrId, Opcode, Shape};

impl Work<'_> {
    pub(super) fn dot(
        &mut self,
        out: InstrId,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let (Attrs::Dot(d), &[x, y]) = (self.e.m.instr(out).attrs.clone(), xs) else {
            return Err(internal("attributes of dot", "those of the opcode"));
        };
        if d.sparsity.is_some() {
            return Err(internal("a derivative of a sparse dot", "dense operands"));
        }
        let swapped = DotAttrs {
            lhs_batch: d.rhs_batch.clone(),
            rhs_batch: d.lhs_batch.clone(),
            lhs_contracting: d.rhs_contracting.clone(),
            rhs_contracting: d.lhs_contracting.clone(),
            ..(*d).clone()
        };
        self.dot_side(x, y, ct, &d, false, cts)?;
        self.dot_side(y, x, ct, &swapped, true, cts)
    }

    /// Cotangent of `x`, the left operand by `d`; with `flip` the result has the
    /// free dimensions of `y` first.
    fn dot_side(
        &mut self,
        x: InstrId,
        y: InstrId,
        ct: InstrId,
        d: &DotAttrs,
        flip: bool,
        cts: &mut Cotangents,
    ) -> Res<()> {
        if !self.is_active(x) {
            return Ok(());
        }
        let (nx, ny) = (self.e.dims(x).len() as i64, self.e.dims(y).len() as i64);
        let free = |n: i64, b: &[i64], c: &[i64]| -> Vec<i64> {
            (0..n).filter(|k| !b.contains(k) && !c.contains(k)).collect()
        };
        let xf = free(nx, &d.lhs_batch, &d.lhs_contracting);
        let yf = free(ny, &d.rhs_batch, &d.rhs_contracting);
        let nb = d.lhs_batch.len();
        // Where the free dimensions of y stand in the cotangent.
        let at = if flip { nb } else { nb + xf.len() } as i64;
        let t = self.e.array(x)?.dtype;
        let wide = self.e.array(ct)?.dtype;
        let y = self.e.convert(y, wide)?;
        let attrs = DotAttrs {
            lhs_batch: (0..nb as i64).collect(),
            rhs_batch: d.rhs_batch.clone(),
            lhs_contracting: (at..at + yf.len() as i64).collect(),
            rhs_contracting: yf.iter().copied().collect(),
            ..DotAttrs::default()
        };
        // Result: batch, free of x, contracted dimensions of y in its order.
        let mut yc: Vec<(i64, i64)> =
            d.rhs_contracting.iter().copied().zip(d.lhs_contracting.iter().copied()).collect();
        yc.sort_unstable();
        let of: Vec<i64> =
            d.lhs_batch.iter().chain(&xf).copied().chain(yc.iter().map(|c| c.1)).collect();
        let sizes = self.e.dims(x);
        let dims: Vec<i64> =
            of.iter().map(|&k| sizes.get(k as usize).copied().unwrap_or(0)).collect();
        let shape = Shape::array(wide, dims);
        let g = self.e.op(Opcode::Dot, Attrs::Dot(Box::new(attrs)), &[ct, y], &[], Some(shape))?;
        let perm: Option<Vec<i64>> =
            (0..nx).map(|k| of.iter().position(|&o| o == k).map(|p| p as i64)).collect();
        let perm = perm.ok_or_else(|| internal("dimension numbers of dot", "all dimensions"))?;
        let g = self.e.transpose(g, &perm)?;
        let g = self.e.convert(g, t)?;
        self.accumulate(cts, x, g)
    }
}
