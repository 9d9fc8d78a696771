//! Where things come from: positions in the input file, and the user's source
//! lines that a compiler recorded.

use crate::Symbol;

/// Byte range in the file that was read; (0, 0) if none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Index into [`crate::Module::metadata`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MetaId(pub u32);

/// `metadata={...}` of an instruction. Interned: many instructions share one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpMetadata {
    /// Framework operation type.
    pub op_type: Option<Symbol>,
    /// Framework operation name or scope path.
    pub op_name: Option<Symbol>,
    /// Inline source file (older dumps).
    pub source_file: Option<Symbol>,
    /// Inline line, 0 if unstated.
    pub source_line: u32,
    /// Inline end line, 0 if unstated.
    pub source_end_line: u32,
    /// Inline column, 0 if unstated.
    pub source_column: u32,
    /// Inline end column, 0 if unstated.
    pub source_end_column: u32,
    /// 1-based index into [`SourceTables::frames`], 0 if unstated.
    pub stack_frame_id: u32,
    /// Fields without meaning to us, as printed (`key=value`, space separated).
    pub rest: Option<Symbol>,
}

/// A row of `FileLocations`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FileLocation {
    /// 1-based index into [`SourceTables::files`].
    pub file: u32,
    /// 1-based index into [`SourceTables::functions`].
    pub function: u32,
    /// Line, end line, column, end column; 0 if unstated.
    pub line: u32,
    /// Last line.
    pub end_line: u32,
    /// Column.
    pub column: u32,
    /// End column.
    pub end_column: u32,
}

/// A row of `StackFrames`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct StackFrame {
    /// 1-based index into [`SourceTables::locations`].
    pub location: u32,
    /// 1-based index of the calling frame in [`SourceTables::frames`];
    /// 0 if none. Stored as in the proto: HLO text prints this plus one.
    pub parent: u32,
}

/// The module's tables of source locations. All ids in them are 1-based.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SourceTables {
    /// File names.
    pub files: Vec<Symbol>,
    /// Function names.
    pub functions: Vec<Symbol>,
    /// Locations.
    pub locations: Vec<FileLocation>,
    /// Frames.
    pub frames: Vec<StackFrame>,
}

/// One resolved frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ResolvedFrame<'a> {
    /// File path as the compiler recorded it.
    pub file: &'a str,
    /// Function name, empty if unknown.
    pub function: &'a str,
    /// Line, 0 if unknown.
    pub line: u32,
    /// Last line, 0 if unknown.
    pub end_line: u32,
    /// Column, 0 if unknown.
    pub column: u32,
    /// End column, 0 if unknown.
    pub end_column: u32,
}
