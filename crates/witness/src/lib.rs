//! Witnesses: a folder with two programs, inputs on which they differ, and
//! a script that shows the difference in XLA.
//!
//! | file | content |
//! |---|---|
//! | `base.hlo.txt`, `dist.hlo.txt` | the programs |
//! | `*.xla.hlo.txt` | the same for XLA: a per-device program marked manual |
//! | `inputs.npz` | the baseline's inputs, by name |
//! | `spec.json` | what was declared, as a spec file |
//! | `witness.json` | devices, placements, the outputs that differ |
//! | `replay.py` | runs both in XLA; needs jaxlib, numpy, ml_dtypes |
//!
//! **What may not live here:** search, rendering of reports.

mod load;
mod manual;
mod record;
mod save;

pub use load::{Loaded, load};
pub use record::{DimRecord, Form, InputRecord, OutputRecord, ProgramRecord, Record};
pub use save::{replaces, save, spec_file};

use scalify_claim::Claim;
use scalify_ir::Module;
use scalify_prove::problem::Problem;
use scalify_refute::Counterexample;
use scalify_tensors::TensorError;

/// What a witness is made of.
#[derive(Clone, Copy, Debug)]
pub struct Witness<'a> {
    /// The single-device program.
    pub base: &'a Module,
    /// The distributed program.
    pub dist: &'a Module,
    /// Where `base` was read from, for the record.
    pub base_file: &'a str,
    /// Where `dist` was read from.
    pub dist_file: &'a str,
    /// What was declared.
    pub claim: &'a Claim,
    /// Pairing and placements.
    pub problem: &'a Problem,
    /// Inputs and differences.
    pub example: &'a Counterexample,
    /// Seed of the inputs.
    pub seed: u64,
}

/// Why a witness cannot be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// The operating system refuses.
    #[error("cannot {action} {name}: {source}")]
    Io {
        /// File or folder.
        name: String,
        /// What was tried.
        action: &'static str,
        /// Its reason.
        source: std::io::Error,
    },
    /// The folder holds something else.
    #[error("{0} exists and is no witness; expected a new folder")]
    Taken(String),
    /// A program of the folder is malformed.
    #[error("{name}:{source}")]
    Program {
        /// The file.
        name: String,
        /// The fault.
        source: Box<scalify_hlo::ParseError>,
    },
    /// The inputs cannot be read or written.
    #[error(transparent)]
    Tensors(#[from] TensorError),
    /// Content that does not fit together.
    #[error("{name}: {message}")]
    Content {
        /// The file.
        name: String,
        /// What is wrong, and what was expected.
        message: String,
    },
}
