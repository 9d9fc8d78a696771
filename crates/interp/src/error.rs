//! Errors of a run.

use scalify_ir::Opcode;
use thiserror::Error;

/// Why a run ended without a result. `instr` is the instruction's name
/// (without `%`) in the module.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RunError {
    /// The interpreter does not know this operation or this form of it.
    #[error("{instr}: unsupported {opcode}: {what}")]
    Unsupported {
        /// Instruction.
        instr: String,
        /// Its opcode.
        opcode: Opcode,
        /// What exactly is not supported.
        what: String,
    },
    /// The instruction is not well formed (operand counts, shapes, attributes).
    #[error("{instr}: invalid {opcode}: {what}")]
    Invalid {
        /// Instruction.
        instr: String,
        /// Its opcode.
        opcode: Opcode,
        /// What was expected and what was found.
        what: String,
    },
    /// The constant's value is not in the file (`constant({...})`).
    #[error("{instr}: the value of this constant was elided in the text")]
    Elided {
        /// Instruction.
        instr: String,
    },
    /// Devices of one group do not meet at a collective.
    #[error("{instr}: {opcode} inside control flow that only some devices of a group execute")]
    Deadlock {
        /// Instruction.
        instr: String,
        /// Its opcode.
        opcode: Opcode,
    },
    /// Inputs do not fit the computation.
    #[error("inputs: {0}")]
    Inputs(String),
    /// A limit of [`crate::RunOptions`] was reached.
    #[error("{limit} limit reached at {instr}")]
    Limit {
        /// Which.
        limit: Limit,
        /// Instruction that was about to run.
        instr: String,
    },
}

/// A limit of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Limit {
    Memory,
    Time,
    Steps,
    /// Depth of nested computations.
    Depth,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::Memory => "memory",
            Limit::Time => "time",
            Limit::Steps => "step",
            Limit::Depth => "call depth",
        })
    }
}

/// Why a kernel gave up; the machine adds the instruction.
#[derive(Clone, Debug)]
pub(crate) enum Fail {
    Unsupported(String),
    Invalid(String),
    Limit(Limit),
    Done(Box<RunError>),
}

pub(crate) type Res<T> = Result<T, Fail>;

pub(crate) fn invalid<T>(what: impl Into<String>) -> Res<T> {
    Err(Fail::Invalid(what.into()))
}

pub(crate) fn unsupported<T>(what: impl Into<String>) -> Res<T> {
    Err(Fail::Unsupported(what.into()))
}
