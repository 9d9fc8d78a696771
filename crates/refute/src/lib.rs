//! From a problem that is not proved to a counterexample.
//!
//! [`search::Refuter`] draws inputs ([`domain`]), runs both programs on them
//! ([`evaluate`], on the reference interpreter) and tells a difference from
//! rounding ([`compare`]).
//!
//! **What may not live here:** file formats, rendering, laws of the prover.

mod along;
pub mod apply;
mod around;
mod blocks;
pub mod candidates;
mod carry;
pub mod collectives;
pub mod compare;
pub mod cut;
pub mod decide;
pub mod domain;
pub mod edit;
pub mod evaluate;
pub mod flat;
pub mod graft;
pub mod joined;
mod kinds;
mod masks;
pub mod observe;
mod parted;
pub mod place;
pub mod random;
pub mod repair;
pub mod restrict;
mod rounding;
pub mod search;
pub mod shrink;
mod together;
mod varies;
pub mod words;

pub use decide::{Decision, Plan, decide};
pub use repair::Repair;
pub use search::{Counterexample, Difference, Evidence, Options, Precision, Refuter, Search};

use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_prove::problem;

/// Looks for inputs on which `dist` differs from `base` under `claim`.
pub fn refute(base: &Module, dist: &Module, claim: &Claim, options: Options) -> Search {
    let p = problem::setup(base, dist, claim);
    match Refuter::new(base, dist, &p, claim, options) {
        Ok(r) => r.search(),
        Err(e) => Search::Unable(e),
    }
}
