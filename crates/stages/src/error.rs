//! Errors of joining.

use scalify_ir::{InstrId, Module, Span};

/// Why stages do not make one program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stage {stage}: {message}")]
pub struct StageError {
    /// Which stage, from 0.
    pub stage: usize,
    /// Where it stands in the stage's file; empty if unknown.
    pub span: Span,
    /// What is wrong, with the instruction.
    pub message: String,
    /// What was expected.
    pub expected: String,
}

impl StageError {
    pub(crate) fn new(
        stage: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> StageError {
        StageError {
            stage,
            span: Span::default(),
            message: message.into(),
            expected: expected.into(),
        }
    }

    /// About an instruction.
    pub(crate) fn at(
        stage: usize,
        m: &Module,
        i: InstrId,
        message: impl AsRef<str>,
        expected: impl Into<String>,
    ) -> StageError {
        StageError {
            stage,
            span: m.instr(i).span,
            message: format!("%{}: {}", m.name_of(i), message.as_ref()),
            expected: expected.into(),
        }
    }
}
