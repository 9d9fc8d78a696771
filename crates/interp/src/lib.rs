//! Reference interpreter of HLO modules.
//!
//! **What lives here:** the meaning of every opcode as executable code, and a
//! machine that runs one program on N simulated devices in lock-step, all
//! collectives included. It is the prover's independent witness.
//!
//! **What may not:** any code shared with a prover crate, any file format.
//! It depends on `scalify-ir` alone.
//!
//! # Numbers
//! - Integers wrap. `x / 0` is all ones, `x % 0` is `x`, `MIN / -1` is `MIN`;
//!   shifts by the width or more give 0 or the sign.
//! - Floats below `f32` are computed in `f32` and rounded once per operation;
//!   conversions round once, to nearest even; a float becomes an integer by
//!   truncation with saturation, NaN becomes 0.
//! - `dot` and `convolution` sum in `f32` (`f64` for `f64`); `reduce` rounds
//!   every combination to the element type, in a tree that keeps the order of
//!   the elements. All-reduce combines in the order of the group.
//! - [`Accumulate::F64`] evaluates all floats in `f64` without rounding to
//!   their types.
//!
//! # Limits
//! Memory, time, steps and call depth are bounded by [`RunOptions`]; a bad
//! module gives a [`RunError`], never a panic.

pub mod complex;
mod error;
mod narrow;
mod ops;
mod run;
pub mod tensor;

pub use error::{Limit, RunError};
pub use run::{Accumulate, RunOptions, Stepper, Trace, run};
pub use tensor::{Data, Tensor, Value};
