//! What can be wrong with a proto.

use thiserror::Error;

/// Why bytes could not be read as an HLO module.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ProtoError {
    /// The bytes are none of the messages that hold a module.
    #[error("not an HloModuleProto, HloProto or HloSnapshot: {0}")]
    NotHlo(String),
    /// The bytes do not form a protobuf message.
    #[error("{place}: {what}")]
    Wire {
        /// The message, e.g. ``instruction `add.1` of computation `main` ``.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A field has a value that it must not have.
    #[error("{place}: field `{field}`: {what}")]
    Field {
        /// The message, e.g. ``instruction `add.1` of computation `main` ``.
        place: String,
        /// Name of the field in the proto.
        field: &'static str,
        /// What is wrong.
        what: String,
    },
}

/// A fault whose place is not yet known.
#[derive(Debug)]
pub(crate) struct Flaw {
    /// Field, or empty for a fault of the encoding.
    pub(crate) field: &'static str,
    /// What is wrong.
    pub(crate) what: String,
}

/// Result of a part of the reader.
pub(crate) type Part<T> = Result<T, Flaw>;

impl Flaw {
    /// A fault of `field`.
    pub(crate) fn new(field: &'static str, what: impl Into<String>) -> Self {
        Flaw { field, what: what.into() }
    }

    /// The same fault, blamed on `field`.
    pub(crate) fn of(self, field: &'static str) -> Self {
        Flaw { field, ..self }
    }

    /// Adds where it happened.
    pub(crate) fn at(self, place: impl Into<String>) -> ProtoError {
        let place = place.into();
        match self.field {
            "" => ProtoError::Wire { place, what: self.what },
            field => ProtoError::Field { place, field, what: self.what },
        }
    }
}

/// A fault of `field`.
pub(crate) fn bad<T>(field: &'static str, what: impl Into<String>) -> Part<T> {
    Err(Flaw::new(field, what))
}

impl From<prost::DecodeError> for Flaw {
    fn from(e: prost::DecodeError) -> Self {
        Flaw::new("", short(&e))
    }
}

/// What a decoder says, with the repeats of a nested path left out.
pub(crate) fn short(e: &prost::DecodeError) -> String {
    let text = e.to_string();
    let mut parts: Vec<&str> = text.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}
