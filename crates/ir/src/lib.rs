//! The computation-graph IR that every other crate of Scalify shares.
//!
//! **What lives here:** opcodes, element types, shapes, literals, device
//! groups, shardings, source locations, the module container, shape
//! inference and validation.
//!
//! **What may not:** any file format (see `scalify-hlo`), any evaluation
//! (`scalify-interp`) and any reasoning about equality (`scalify-terms`,
//! `scalify-prove`). This crate depends on none of them.

pub mod absorb;
pub mod attrs;
pub mod build;
pub mod devices;
pub mod dtype;
pub mod groups;
pub mod infer;
pub mod literal;
pub mod module;
pub mod opcode;
pub mod same;
pub mod shape;
pub mod sharding;
pub mod source;
pub mod symbol;
pub mod trips;
pub mod users;
pub mod validate;

pub use absorb::Absorbed;
pub use attrs::*;
pub use build::{ComputationBuilder, ModuleBuilder};
pub use devices::{device_groups, device_pairs, group_mode};
pub use dtype::{DType, DTypeClass};
pub use groups::{DeviceGroups, GroupMode, IotaTile, MeshGroups, ReplicaGroups};
pub use infer::{InferError, infer, infer_op};
pub use literal::{Literal, LiteralData};
pub use module::*;
pub use opcode::Opcode;
pub use shape::{ArrayShape, Layout, Shape, Tile};
pub use sharding::{OpSharding, ShardingKind, TileAssignment};
pub use source::{FileLocation, MetaId, OpMetadata, SourceTables, Span, StackFrame};
pub use symbol::{Interner, Symbol};
pub use users::Users;
pub use validate::{Invalid, Severity, ValidateOptions, validate};
