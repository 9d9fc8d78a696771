//! Reverse-mode differentiation of HLO modules, in the IR.
//!
//! [`gradient`] makes, from a module, another one with the same parameters that
//! returns a scalar output of it and the derivatives of that output with respect
//! to chosen inputs. It is valid HLO: it can be printed, run and proved.
//!
//! # How
//! The entry is walked once: calls, fusions and tuples are resolved, and every
//! operation that depends on a chosen input is put on a tape ([`forward`]). The
//! tape is then read backwards; [`rules`] says, per opcode, what an operation's
//! cotangent adds to those of its operands. Loops of known trip count save what
//! changes in stacked buffers and are run again from the last iteration to the
//! first ([`control`]).
//!
//! # Conventions
//! - Integers, `pred` and what is constant almost everywhere (`sign`, `floor`,
//!   `compare`, conversion to integers) have no gradient.
//! - Where a maximum is attained more than once, see [`Ties`]. `clamp` has the
//!   gradient of its operand strictly between the bounds, `abs` has 0 at 0.
//! - A program on several devices: the derivative of *the sum over devices of
//!   the output* with respect to each device's own input. So the transpose of a
//!   sum over devices is the same sum, all-gather and reduce-scatter are each
//!   other's, a permutation's is its inverse. This is what JAX computes inside
//!   `shard_map` without replication tracking. Every device must return the
//!   output and run the same operations.
//! - Indices of a gather are clamped as the gather does it
//!   ([`Options::clamp_indices`]).
//!
//! **What may not live here:** evaluation, proofs, file formats. It depends on
//! `scalify-ir` alone.

mod activity;
pub mod control;
mod emit;
pub mod forward;
pub mod rules;
pub mod update;

pub use emit::prune;
pub use update::{Adam, AdamPart, Output};

use scalify_ir::{InstrId, Module, Opcode, Span};

/// Which gradient an operand of a maximum or minimum gets where both are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ties {
    /// Equal shares, as `jax.numpy.maximum` and `max` have it.
    #[default]
    Split,
    /// None, as `jax.nn.relu` has it. Reductions share all the same.
    Zero,
}

/// Options of [`gradient`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// See [`Ties`].
    pub ties: Ties,
    /// Clamp the indices of gathers before they are used to scatter. Without it
    /// the result is the derivative only where all indices are in range.
    pub clamp_indices: bool,
    /// Instructions of the result at most.
    pub max_instructions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { ties: Ties::Split, clamp_indices: true, max_instructions: 2_000_000 }
    }
}

/// Why a module cannot be differentiated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{message}, expected {expected}", place(.instr, .opcode))]
pub struct GradError {
    /// Name of the instruction, if it is about one.
    pub instr: Option<String>,
    /// Its opcode.
    pub opcode: Option<Opcode>,
    /// Where it stands in the file.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What would have been right.
    pub expected: String,
}

fn place(instr: &Option<String>, opcode: &Option<Opcode>) -> String {
    match (instr, opcode) {
        (Some(n), Some(o)) => format!("%{n} ({o}): "),
        (Some(n), None) => format!("%{n}: "),
        _ => String::new(),
    }
}

/// The module `(inputs of m) -> (output `loss`, d loss / d input, ..)`.
///
/// `loss` is an array leaf of the result and must be a float scalar; `wrt` are
/// array leaves of the parameters, of float type. A gradient has the type and
/// shape of its input. `m` must be valid (`scalify_ir::validate`).
///
/// # Errors
/// Leaves that do not exist or are no floats, operations without a rule that the
/// gradient would pass through, loops whose trip count is not known.
pub fn gradient(
    m: &Module,
    loss: usize,
    wrt: &[usize],
    options: &Options,
) -> Result<Module, GradError> {
    let outputs: Vec<Output> =
        std::iter::once(Output::Loss).chain((0..wrt.len()).map(Output::Gradient)).collect();
    reference(m, loss, wrt, &outputs, &[], &[], options)
}

/// As [`gradient`], with outputs of one's choice. `replaced` names instructions
/// of the entry of `m` and the input (counted in `wrt`) whose derivative stands
/// in their place where [`Output::Own`] is computed. `constants` names
/// instructions, of any computation, through which no derivative passes.
///
/// # Errors
/// Those of [`gradient`]; outputs whose parts do not fit together.
pub fn reference(
    m: &Module,
    loss: usize,
    wrt: &[usize],
    outputs: &[Output],
    replaced: &[(InstrId, usize)],
    constants: &[InstrId],
    options: &Options,
) -> Result<Module, GradError> {
    forward::reference(m, loss, wrt, outputs, replaced, constants, options)
}

/// The module `(inputs of m, t..) -> (output `loss`)` in which further parameters
/// `t` stand for the instructions `at`, once per time they are reached; without
/// `used`, zeros stand for them and the parameters are unused. If both compute
/// the same, the loss does not depend on these values, and no derivative passes
/// through them.
///
/// # Errors
/// Those of [`gradient`]; instructions in loops.
pub fn opened(
    m: &Module,
    loss: usize,
    at: &[InstrId],
    used: bool,
    options: &Options,
) -> Result<Module, GradError> {
    forward::opened(m, loss, at, used, options)
}
