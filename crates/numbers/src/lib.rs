//! Comparison of tensors.
//!
//! **What lives here:** error metrics of a pair of tensors in one streamed
//! pass, criteria of closeness, comparison of files of tensors, reports, and
//! judging a report again under other tolerances (definitions in
//! `docs/NUMBERS.md`).
//!
//! **What may not:** file formats (`scalify-tensors`), programs.

mod ahead;
mod bytes;
pub mod compare;
pub mod criteria;
mod decode;
mod engine;
mod filter;
mod hist;
mod kernel;
mod metrics;
mod near;
pub mod num;
mod pick;
pub mod recheck;
pub mod report;
mod select;
mod simd;
mod top;

pub use engine::{Bound, Options, measure};
pub use hist::{Cell, Histogram};
pub use metrics::{Element, Metrics, Percentiles, Side, Top, Ulp, Value};
