//! Which compiler pass changes what a program computes: the dumps of a module
//! (`scalify_load::DumpModule`) are taken in order and each is decided against
//! the one before it.
//!
//! **What lives here:** steps between dumps and the claim of each, the cache of
//! their results, reports about them.
//!
//! **What may not:** names of dump files (`scalify-load`), decisions about a
//! pair (`scalify-refute`), reports about one pair (`scalify-report`).

mod cache;
mod elided;
mod phase;
pub mod report;
mod select;
mod steps;

pub use select::{SelectError, Selection};
pub use steps::{Options, Step, Steps, run};
