//! What is claimed of two programs: the device mesh, how inputs and outputs
//! are laid out over it, which values correspond, and what may be assumed.
//!
//! **What lives here:** [`Mesh`], [`PartitionSpec`], [`Placement`], the
//! sharding attributes of Shardy and of HLO's named form, [`Claim`] with its
//! command-line strings and spec files.
//!
//! **What may not:** instructions and terms. A placement says which block of
//! an array a device holds; whether a program computes that block is the
//! business of `scalify-prove`.

mod arg;
mod cursor;
mod file;
mod mesh;
mod named;
mod placement;
mod port;
mod shardy;
mod spec;

pub use arg::{Assume, Claim, Selector};
pub use cursor::ParseError;
pub use file::{FileFormat, SpecFileError, parse_spec_file};
pub use mesh::{MAX_DEVICES, Mesh};
pub use named::{AxisRef, AxisSharding, DimSharding, NamedMesh, parse_named_sharding};
pub use placement::{DimPlacement, Placement, PlacementCache, PlacementError};
pub use port::Port;
pub use shardy::{MeshRef, SdySharding, parse_manual_axes, parse_sdy_meshes, parse_sdy_shardings};
pub use spec::PartitionSpec;
