//! Constant values.

use crate::{ArrayShape, Shape};
use std::sync::Arc;

/// A constant: its shape and, if the file carried them, its elements.
#[derive(Clone, PartialEq, Debug)]
pub struct Literal {
    /// Shape of the constant.
    pub shape: Shape,
    /// Its value.
    pub data: LiteralData,
}

/// Storage of a literal's value.
#[derive(Clone, PartialEq, Debug)]
pub enum LiteralData {
    /// Row-major elements, little endian, [`crate::DType::literal_bytes`]
    /// bytes each (a sub-byte element takes one byte, sign-extended for
    /// signed integers, zero-extended else); complex is (real, imaginary).
    Dense(Arc<[u8]>),
    /// Printed as `{...}`: the value is not known.
    Elided,
    /// Elements of a tuple constant.
    Tuple(Vec<Literal>),
}

impl Literal {
    /// A dense array literal. `bytes` must hold exactly the array's elements.
    pub fn dense(shape: ArrayShape, bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        debug_assert_eq!(
            Some(bytes.len() as i64),
            shape.elements().map(|n| n * shape.dtype.literal_bytes() as i64)
        );
        Literal { shape: Shape::Array(shape), data: LiteralData::Dense(bytes) }
    }

    /// Bytes of a dense literal.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.data {
            LiteralData::Dense(b) => Some(b),
            _ => None,
        }
    }
}
