//! What can go wrong with a file of tensors.

/// Why a file could not be read or written.
#[derive(thiserror::Error, Debug)]
pub enum TensorError {
    /// The operating system refused.
    #[error("cannot {action} {name}: {source}")]
    Io {
        /// File, with the member of an archive.
        name: String,
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The contents are not what the format says.
    #[error("{name}: at byte {offset}: {message}, expected {expected}")]
    Format {
        /// File, with the member of an archive.
        name: String,
        /// Offset from the beginning of the file (of the member, for a
        /// deflated member).
        offset: u64,
        /// What is wrong.
        message: String,
        /// What would be right.
        expected: String,
    },
    /// The request cannot be met.
    #[error("{name}: {message}, expected {expected}")]
    Request {
        /// File, with the member of an archive.
        name: String,
        /// What is wrong.
        message: String,
        /// What would be right.
        expected: String,
    },
}

impl TensorError {
    pub(crate) fn io(
        name: impl Into<String>,
        action: &'static str,
    ) -> impl FnOnce(std::io::Error) -> TensorError {
        let name = name.into();
        move |source| TensorError::Io { name, action, source }
    }

    pub(crate) fn format(
        name: &str,
        offset: u64,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> TensorError {
        TensorError::Format {
            name: name.into(),
            offset,
            message: message.into(),
            expected: expected.into(),
        }
    }

    pub(crate) fn request(
        name: &str,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> TensorError {
        TensorError::Request {
            name: name.into(),
            message: message.into(),
            expected: expected.into(),
        }
    }
}
