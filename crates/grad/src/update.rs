//! Reference modules: outputs made of the derivatives, e.g. optimizer steps.

use crate::emit::{Emit, Res, internal};
use scalify_ir::{InstrId, Opcode};

/// Constants of AdamW.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adam {
    /// Size of the step.
    pub rate: f64,
    /// Decay of the first moment.
    pub b1: f64,
    /// Decay of the second moment.
    pub b2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub decay: f64,
    /// Number of the step, from 1, for the correction of both moments.
    pub step: f64,
}

/// Which result of AdamW.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdamPart {
    /// The parameter after the step.
    Parameter,
    /// The first moment.
    First,
    /// The second moment.
    Second,
}

/// An output of a reference module. `k` counts the inputs differentiated by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Output {
    /// The differentiated output itself.
    Loss,
    /// Derivative by input `k`.
    Gradient(usize),
    /// Input `k` after a step `p - rate g`.
    Step {
        /// Which input.
        k: usize,
        /// Size of the step.
        rate: f64,
    },
    /// A result of AdamW on input `k` with moments at these input leaves.
    Adam {
        /// Which input.
        k: usize,
        /// Input leaf of the first moment.
        first: usize,
        /// Input leaf of the second moment.
        second: usize,
        /// Constants.
        by: Adam,
        /// Which result.
        part: AdamPart,
    },
    /// Output leaf of the program, with the derivatives in the place of the
    /// instructions that were named.
    Own(usize),
}

/// Results of AdamW on a parameter, its gradient and moments.
pub(crate) fn adam(
    e: &mut Emit,
    p: InstrId,
    g: InstrId,
    (first, second): (InstrId, InstrId),
    by: &Adam,
    part: AdamPart,
) -> Res<InstrId> {
    for x in [g, first, second] {
        let (a, b) = (e.array(p)?, e.array(x)?);
        if !a.same(&b) {
            return Err(internal(format!("a moment of shape {b}"), a.to_string()));
        }
    }
    let mixed = |e: &mut Emit, old: InstrId, new: InstrId, b: f64| {
        let (x, y) = (e.scaled(old, b)?, e.scaled(new, 1.0 - b)?);
        e.add(x, y)
    };
    let m = mixed(e, first, g, by.b1)?;
    if part == AdamPart::First {
        return Ok(m);
    }
    let gg = e.mul(g, g)?;
    let v = mixed(e, second, gg, by.b2)?;
    if part == AdamPart::Second {
        return Ok(v);
    }
    let a = e.array(p)?;
    let c = e.full(&a, 1.0 - by.b1.powf(by.step))?;
    let m = e.div(m, c)?;
    let c = e.full(&a, 1.0 - by.b2.powf(by.step))?;
    let v = e.div(v, c)?;
    let r = e.un(Opcode::Sqrt, v)?;
    let r = e.plus(r, by.eps)?;
    let d = e.div(m, r)?;
    let w = e.scaled(p, by.decay)?;
    let d = e.add(d, w)?;
    let d = e.scaled(d, by.rate)?;
    e.sub(p, d)
}
