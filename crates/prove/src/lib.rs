//! Prover of Scalify (stub: result data model only).

pub mod outcome;
