//! Files of named tensors.
//!
//! **What lives here:** reading and writing of npy, npz (members stored or
//! deflated), safetensors and raw bytes; element types of `ml_dtypes`;
//! reading in blocks; saving all or nothing.
//!
//! **What may not:** arithmetic on elements, comparison (`scalify-numbers`),
//! programs.
//!
//! [`Tensor::read`] copies any range of elements, [`Tensor::map`] maps one (on
//! Linux; twice as fast where little is computed), so that a comparison needs
//! memory for its blocks only. A file that someone truncates while it is mapped
//! is an error, not the end of the process.
//!
//! ```
//! use scalify_ir::DType;
//! use scalify_tensors::{TensorRef, read_archive, write_npz};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("x.npz");
//! let bytes: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let x = TensorRef { dtype: DType::F32, dims: &[3], bytes: &bytes };
//! write_npz(&path, [("layer/x", x)])?;
//! let all = read_archive(&path)?;
//! assert_eq!(all[0].0, "layer/x");
//! assert_eq!(all[0].1.bytes()?, bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archive;
mod error;
mod map;
mod npy;
mod safe;
mod source;
mod tensor;
mod types;
mod write;

pub use archive::{Archive, Entry, read_archive, read_archive_with};
pub use error::TensorError;
pub use map::Window;
pub use tensor::{Tensor, TensorRef};
pub use types::{Stored, ml_dtypes_name};
pub use write::{
    save_atomically, write_archive, write_npy, write_npz, write_npz_deflated, write_safetensors,
};
