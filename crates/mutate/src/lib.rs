//! Mutation testing of the prover: typed edits of proved pairs, the truth
//! about each mutant from the interpreter, and the prover's verdict.
//!
//! A mutant whose values differ must not be PROVED; one whose values agree
//! must not be REFUTED. See `docs/MUTATION.md`.
//!
//! **What lives here:** the operators ([`operators`]), the decision whether a
//! mutant differs ([`decide`]), the campaign ([`campaign`]) and its table.
//!
//! **What may not:** anything that the prover uses to reach its verdict.

pub mod campaign;
pub mod cases;
pub mod decide;
pub mod draw;
pub mod edit;
pub mod operators;
pub mod random;
pub mod table;
