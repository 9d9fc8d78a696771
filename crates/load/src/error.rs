//! Why loading or saving fails.

use crate::Unsupported;
use scalify_hlo::ParseError;
use scalify_hlo_proto::ProtoError;
use thiserror::Error;

/// Why a file could not be loaded or saved.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The operating system refuses.
    #[error("{name}: cannot {action}: {source}")]
    Io {
        /// The file.
        name: String,
        /// What was tried, e.g. `open`.
        action: &'static str,
        /// Its reason.
        source: std::io::Error,
    },
    /// The compressed data is damaged.
    #[error("{name}: damaged {kind} data: {source}")]
    Damaged {
        /// The file.
        name: String,
        /// `gzip` or `zstd`.
        kind: &'static str,
        /// What the decoder says.
        source: std::io::Error,
    },
    /// More bytes than the limit.
    #[error("{name}: more than {limit} bytes once decompressed, which is the limit")]
    TooLarge {
        /// The file.
        name: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A format that is not read here.
    #[error("{name}: {found}")]
    Unsupported {
        /// The file.
        name: String,
        /// What it is.
        found: Unsupported,
    },
    /// HLO text that is not UTF-8.
    #[error("{name}:{line}: HLO text must be UTF-8")]
    NotUtf8 {
        /// The file.
        name: String,
        /// Line, from 1.
        line: usize,
    },
    /// HLO text with a fault.
    #[error("{name}:{source}")]
    Text {
        /// The file.
        name: String,
        /// The fault.
        source: Box<ParseError>,
        /// The decompressed text, for [`ParseError::render`].
        text: String,
    },
    /// A proto with a fault.
    #[error("{name}: {source}")]
    Proto {
        /// The file.
        name: String,
        /// The fault.
        source: ProtoError,
    },
}
