#![allow(dead_code)]
pub mod complex;
mod error;
mod narrow;
mod ops;
pub mod tensor;
