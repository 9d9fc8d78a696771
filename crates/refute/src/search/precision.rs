//! Programs that agree over the reals and round differently.

use super::{Precision, Refuter};
use crate::compare::{numbers, rms};
use crate::domain::Profile;
use crate::evaluate::{Inputs, Results};
use crate::place;
use crate::random::Random;
use scalify_interp::{Accumulate, Tensor};
use scalify_ir::{Module, Opcode};

impl Refuter<'_> {
    /// Rounding of both programs on one draw, where they agree over the reals.
    pub(super) fn precision(&self, x: &Inputs) -> Option<Precision> {
        let l = self.layouts.first()?;
        let bw = self.run_base(x, Accumulate::F64).ok()?;
        let bp = self.run_base(x, Accumulate::Plain).ok()?;
        let dw = self.run_dist(l, x, &bw, Accumulate::F64).ok()?;
        let dp = self.run_dist(l, x, &bp, Accumulate::Plain).ok()?;
        for (k, (shape, _)) in self.outputs.iter().enumerate() {
            if !shape.dtype.is_float() {
                continue;
            }
            let error = |w: &Results, p: &Results| {
                let one = |(a, b): (&Vec<Tensor>, &Vec<Tensor>)| -> Option<Vec<f64>> {
                    let (a, b) = (numbers(a.get(k)?), numbers(b.get(k)?));
                    Some(a.iter().zip(&b).map(|(x, y)| x - y).collect())
                };
                let all: Option<Vec<Vec<f64>>> = w.iter().zip(p.iter()).map(one).collect();
                all.map(|v| rms(v.into_iter().flatten()))
            };
            let (base, dist) = (error(&bw, &bp)?, error(&dw, &dp)?);
            let scale = rms(numbers(bw.first()?.get(k)?).into_iter());
            let own = shape.dtype.mantissa_bits().unwrap_or(23).min(52) as i32;
            let floor = scale * 0.5f64.powi(own + 1);
            // Regrouping a sum costs a rounding or two; where the types of
            // sums differ a smaller ratio tells.
            let ratio = if coarser_sums(self.base, self.dist) { 1.2 } else { 8.0 };
            if dist > ratio * base.max(floor) {
                return Some(Precision { output: k, dist, base, scale });
            }
        }
        None
    }

    /// How far apart outputs are in the programs' own types, of their size,
    /// if by more than a thousand roundings of the output's type.
    pub(crate) fn rounded_apart(&self) -> Option<f64> {
        let x = self.draw(Profile::Normal, &mut Random::new(self.options.seed ^ 0x0b5e))?;
        let l = self.layouts.first()?;
        let base = self.run_base(&x, Accumulate::Plain).ok()?;
        let dist = self.run_dist(l, &x, &base, Accumulate::Plain).ok()?;
        let mut most: Option<f64> = None;
        for (k, (shape, placements)) in self.outputs.iter().enumerate() {
            let Some(bits) = shape.dtype.mantissa_bits().filter(|_| shape.dtype.is_float()) else {
                continue;
            };
            let q = placements.first().filter(|q| !q.is_replicated());
            for d in 0..self.p.devices as usize {
                let e = numbers(self.expected(&base, d, k)?);
                let a = numbers(dist.get(d)?.get(k)?);
                let scale = rms(e.iter().copied());
                for (l, g) in place::positions(&shape.dims, q, d as u32)? {
                    let by = (a.get(l)? - e.get(g)?).abs() / scale;
                    if by > 1e3 * 0.5f64.powi(bits as i32 + 1) && most.is_none_or(|m| by > m) {
                        most = Some(by);
                    }
                }
            }
        }
        most.filter(|m| m.is_finite())
    }
}

/// True if `dist` sums in a float type below `f32` in which `base` does not.
fn coarser_sums(base: &Module, dist: &Module) -> bool {
    let types = |m: &Module| -> Vec<scalify_ir::DType> {
        let sum = |o: Opcode| {
            matches!(
                o,
                Opcode::Add
                    | Opcode::Dot
                    | Opcode::Convolution
                    | Opcode::Reduce
                    | Opcode::AllReduce
                    | Opcode::AllReduceStart
                    | Opcode::ReduceScatter
            )
        };
        // Reducers run inside the instruction that calls them.
        let mut t: Vec<scalify_ir::DType> = (m.instrs.iter())
            .filter(|i| sum(i.opcode) && !i.operands.iter().all(|&o| scalar_parameter(m, o)))
            .filter_map(|i| m.shapes[i.shape.0 as usize].dtype())
            .filter(|d| d.is_float() && d.mantissa_bits().is_some_and(|b| b < 23))
            .collect();
        t.sort_unstable_by_key(|d| d.name());
        t.dedup();
        t
    };
    let b = types(base);
    types(dist).iter().any(|t| !b.contains(t))
}

fn scalar_parameter(m: &Module, x: scalify_ir::InstrId) -> bool {
    m.instr(x).opcode == Opcode::Parameter && m.array(x).is_some_and(|a| a.dims.is_empty())
}
