//! Reductions over dimensions.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, InstrId, Opcode, WindowDim};

impl Work<'_> {
    pub(super) fn reduce(
        &mut self,
        out: InstrId,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let i = self.e.m.instr(out);
        let (Attrs::Dims(dims), &[x, init], Some(&f)) = (i.attrs.clone(), xs, i.calls.first())
        else {
            return Err(internal("a derivative of a reduction of several operands", "one operand"));
        };
        let d = self.e.dims(x);
        let left: Vec<i64> = (0..d.len() as i64).filter(|k| !dims.contains(k)).collect();
        let all: Vec<i64> = (0..left.len() as i64).collect();
        let monoid = self.monoid(f);
        match monoid {
            Some(Opcode::Add) => {
                let g = self.e.broadcast(ct, &d, &left)?;
                self.accumulate(cts, x, g)?;
                if self.is_active(init) {
                    let g = self.e.sum(ct, &all)?;
                    self.accumulate(cts, init, g)?;
                }
                Ok(())
            }
            Some(Opcode::Maximum | Opcode::Minimum) => {
                self.constant_init(init)?;
                let wide = self.e.broadcast(out, &d, &left)?;
                let here = self.equal(x, wide)?;
                let count = self.e.sum(here, &dims)?;
                let share = self.e.div(ct, count)?;
                let share = self.e.broadcast(share, &d, &left)?;
                let g = self.e.mul(share, here)?;
                self.accumulate(cts, x, g)
            }
            Some(Opcode::Multiply) => {
                self.constant_init(init)?;
                let g = self.product(x, init, &dims, &left, ct)?;
                self.accumulate(cts, x, g)
            }
            _ => Err(internal(
                "a derivative of a reduction by another computation",
                "a sum, product, maximum or minimum",
            )),
        }
    }

    pub(super) fn constant_init(&self, init: InstrId) -> Res<()> {
        if self.is_active(init) {
            return Err(internal("a derivative with respect to an initial value", "a constant"));
        }
        Ok(())
    }

    /// Derivative of a product: those of all other factors, also where one is 0.
    fn product(
        &mut self,
        x: InstrId,
        init: InstrId,
        dims: &[i64],
        left: &[i64],
        ct: InstrId,
    ) -> Res<InstrId> {
        let a = self.e.array(x)?;
        let d = a.dims.to_vec();
        let perm: Vec<i64> = left.iter().chain(dims).copied().collect();
        let n: i64 = dims.iter().map(|&k| d[k as usize]).product();
        let kept: Vec<i64> = left.iter().map(|&k| d[k as usize]).collect();
        let permuted: Vec<i64> = perm.iter().map(|&k| d[k as usize]).collect();
        let flat: Vec<i64> = kept.iter().copied().chain([n]).collect();
        let t = self.e.transpose(x, &perm)?;
        let t = self.e.reshape(t, &flat)?;
        let one = self.e.scalar(a.dtype, 1.0)?;
        let f = self.e.reducer(Opcode::Multiply, a.dtype)?;
        let mut parts = Vec::new();
        for (low, high) in [(n, -1), (-1, n)] {
            let mut w = vec![WindowDim::default(); kept.len()];
            w.push(WindowDim { size: n, pad_low: low, pad_high: high, ..WindowDim::default() });
            let r = self.e.op(Opcode::ReduceWindow, Attrs::Window(w), &[t, one], &[f], None)?;
            parts.push(r);
        }
        let others = self.e.mul(parts[0], parts[1])?;
        let i = self.e.broadcast(init, &kept, &[])?;
        let c = self.e.mul(ct, i)?;
        let map: Vec<i64> = (0..kept.len() as i64).collect();
        let c = self.e.broadcast(c, &flat, &map)?;
        let g = self.e.mul(c, others)?;
        let g = self.e.reshape(g, &permuted)?;
        let mut back = vec![0i64; perm.len()];
        for (k, &p) in perm.iter().enumerate() {
            back[p as usize] = k as i64;
        }
        self.e.transpose(g, &back)
    }
}
