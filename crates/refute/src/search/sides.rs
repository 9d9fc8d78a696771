//! Values of outputs, to be looked at.

use super::{Counterexample, Layouts, Refuter};
use crate::compare::{self, numbers};
use crate::domain::Profile;
use crate::evaluate::Inputs;
use crate::observe::Side;
use crate::place;
use crate::random::Random;
use scalify_interp::Accumulate;
use scalify_ir::ArrayShape;

/// Values of outputs, over all devices, that are kept to be looked at.
const MANY_VALUES: f64 = 4e6;

impl Refuter<'_> {
    /// All outputs of both programs on one normal draw, split as in `c`; on
    /// the draw of `c` if they do not differ there.
    pub(crate) fn sides(&self, c: &Counterexample) -> Option<Vec<Side>> {
        let size = |a: &ArrayShape| a.dims.iter().map(|&d| d as f64).product::<f64>();
        let all: f64 = self.outputs.iter().map(|o| size(&o.0)).sum();
        if all * self.p.devices as f64 > MANY_VALUES {
            return None;
        }
        let x = self.draw(Profile::Normal, &mut Random::new(self.options.seed ^ 0x0b5e))?;
        let s = self.sides_on(&x, c)?;
        if s.iter().any(Side::differs) { Some(s) } else { self.sides_on(&c.drawn, c) }
    }

    fn sides_on(&self, x: &Inputs, c: &Counterexample) -> Option<Vec<Side>> {
        let l = Layouts { inputs: c.placements.clone() };
        let wide = self.run_base(x, Accumulate::F64).ok()?;
        let got = self.run_dist(&l, x, &wide, Accumulate::F64).ok()?;
        let mut out = Vec::new();
        for (k, (shape, placements)) in self.outputs.iter().enumerate() {
            let q = placements.first().filter(|q| !q.is_replicated());
            let w = compare::width(shape.dtype);
            let mut s = Side { output: k, expected: Vec::new(), actual: Vec::new() };
            for d in 0..self.p.devices as usize {
                let e = numbers(self.expected(&wide, d, k)?);
                let a = numbers(got.get(d)?.get(k)?);
                let at = place::positions(&shape.dims, q, d as u32)?;
                let each =
                    || at.iter().flat_map(|x| (0..w).map(move |c| (x.0 * w + c, x.1 * w + c)));
                s.expected.push(each().map(|x| e.get(x.1).copied()).collect::<Option<_>>()?);
                s.actual.push(each().map(|x| a.get(x.0).copied()).collect::<Option<_>>()?);
            }
            out.push(s);
        }
        Some(out)
    }
}
