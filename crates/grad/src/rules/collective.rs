//! Exchanges between devices, by the convention of [`crate`].

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, InstrId, Opcode, Shape};

impl Work<'_> {
    /// The collective `op` on `xs` with results of the shapes of `like`.
    fn exchange(
        &mut self,
        op: Opcode,
        attrs: &Attrs,
        xs: &[InstrId],
        like: &[InstrId],
        sum: bool,
    ) -> Res<Vec<InstrId>> {
        let calls = if sum {
            let t = self.e.array(like[0])?.dtype;
            vec![self.e.reducer(Opcode::Add, t)?]
        } else {
            Vec::new()
        };
        let shapes: Vec<Shape> = like.iter().map(|&l| self.e.m.shape(l).clone()).collect();
        let one = shapes.len() == 1;
        let shape = if one { shapes[0].clone() } else { Shape::Tuple(shapes) };
        let n = self.e.raw(op, attrs.clone(), xs, &calls, shape)?;
        if one {
            return Ok(vec![n]);
        }
        (0..like.len()).map(|k| self.e.element(n, k)).collect()
    }

    pub(super) fn collective(
        &mut self,
        out: InstrId,
        op: Opcode,
        xs: &[InstrId],
        leaves: &[InstrId],
        given: &[Option<InstrId>],
        cts: &mut Cotangents,
    ) -> Res<()> {
        let i = self.e.m.instr(out);
        let (mut attrs, f) = (i.attrs.clone(), i.calls.first().copied());
        if xs.len() != leaves.len() || xs.is_empty() {
            return Err(internal(
                format!(
                    "a derivative of {op} with {} operands, {} results",
                    xs.len(),
                    leaves.len()
                ),
                "as many results as operands",
            ));
        }
        let mut seeds = Vec::new();
        for (g, &l) in given.iter().zip(leaves) {
            seeds.push(match g {
                Some(g) => *g,
                None => {
                    let a = self.e.array(l)?;
                    self.e.full(&a, 0.0)?
                }
            });
        }
        let monoid = f.and_then(|f| self.monoid(f));
        let back = match (op, monoid) {
            (Opcode::AllReduce, Some(Opcode::Add)) => {
                self.exchange(op, &attrs, &seeds, xs, true)?
            }
            (Opcode::AllReduce, Some(Opcode::Maximum | Opcode::Minimum)) => {
                // The devices that hold the value share what comes back.
                let mut here = Vec::new();
                for (&x, &l) in xs.iter().zip(leaves) {
                    here.push(self.equal(x, l)?);
                }
                let count = self.exchange(op, &attrs, &here, xs, true)?;
                let all = self.exchange(op, &attrs, &seeds, xs, true)?;
                let mut v = Vec::new();
                for k in 0..xs.len() {
                    let share = self.e.div(all[k], count[k])?;
                    v.push(self.e.mul(share, here[k])?);
                }
                v
            }
            (Opcode::AllGather, _) => {
                self.exchange(Opcode::ReduceScatter, &attrs, &seeds, xs, true)?
            }
            (Opcode::ReduceScatter, Some(Opcode::Add)) => {
                self.exchange(Opcode::AllGather, &attrs, &seeds, xs, false)?
            }
            (Opcode::CollectivePermute, _) => {
                if let Attrs::Collective(c) = &mut attrs {
                    c.pairs.iter_mut().for_each(|p| *p = (p.1, p.0));
                }
                self.exchange(op, &attrs, &seeds, xs, false)?
            }
            (Opcode::AllToAll, _) => self.exchange(op, &attrs, &seeds, xs, false)?,
            _ => {
                return Err(internal(
                    format!("a derivative of {op} by another computation"),
                    "a sum (or, for all-reduce, a maximum or minimum)",
                ));
            }
        };
        for (&x, g) in xs.iter().zip(back) {
            self.accumulate(cts, x, g)?;
        }
        Ok(())
    }
}
