//! The store of index-notation terms that the prover reasons in.
//!
//! A *class* is a function from index tuples to values, written as one node
//! over other classes in index notation. A *reference* reads a class at a
//! linear index form per axis; layouts, shardings, slices and permutations
//! are nothing but the way a class is indexed. Both programs are lifted into
//! one store, so two values are equal when they read the same class at the
//! same forms.
//!
//! **What lives here:** coefficients, index arithmetic, hash-consing modulo
//! renaming of axes, normal forms and rewrite rules with their side
//! conditions, and an evaluator of terms used only to test the rules.
//!
//! **What may not:** HLO, devices and meshes, file formats, reports.

pub mod argmax;
pub mod arith;
pub mod coef;
pub mod eval;
pub(crate) mod given;
pub mod guards;
pub(crate) mod infinite;
pub mod lin;
pub mod logic;
pub mod make;
pub mod order;
pub mod pieces;
pub mod print;
pub mod range;
pub mod series;
pub mod special;
pub mod store;
pub mod tables;
pub mod variants;

pub use coef::{Coef, Coefs};
pub use infinite::Nature;
pub use lin::{AtomKind, Ax, Lin, LinId, Lins, Subst, UNBOUNDED};
pub use store::{Arg, Class, ClassId, Dt, Op, Ref, Rules, Store, Sym, Val};
