//! Modules, computations, instructions.

use crate::attrs::{Attrs, Extra};
use crate::shape::{ArrayShape, Shape};
use crate::source::{MetaId, OpMetadata, ResolvedFrame, SourceTables, Span};
use crate::symbol::{Interner, Symbol};
use crate::{DType, Literal, OpSharding, Opcode};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

/// Index into [`Module::instrs`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InstrId(pub u32);

/// Index into [`Module::comps`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CompId(pub u32);

/// Index into [`Module::shapes`]. Equal shapes (layouts included) have equal
/// ids within a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShapeId(pub u32);

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Name without `%`.
    pub name: Symbol,
    /// What it does.
    pub opcode: Opcode,
    /// Result shape.
    pub shape: ShapeId,
    /// Operands, in order. Each stands in the same computation, before this
    /// instruction in [`Computation::instrs`] (readers sort).
    pub operands: SmallVec<[InstrId; 3]>,
    /// Called computations: `to_apply` / `calls` (one), while `[condition,
    /// body]`, conditional branches in order, select-and-scatter `[select,
    /// scatter]`, fusion and async `[called]`, all-reduce etc. `[reducer]`.
    pub calls: SmallVec<[CompId; 1]>,
    /// Attributes of the opcode.
    pub attrs: Attrs,
    /// Attributes of few instructions.
    pub extra: Option<Box<Extra>>,
    /// Recorded origin.
    pub metadata: Option<MetaId>,
    /// Where it stands in the file.
    pub span: Span,
}

/// One computation.
#[derive(Clone, Debug)]
pub struct Computation {
    /// Name without `%`.
    pub name: Symbol,
    /// Instructions, operands before users.
    pub instrs: Vec<InstrId>,
    /// Parameters by number.
    pub params: Vec<InstrId>,
    /// Result.
    pub root: InstrId,
    /// `execution_thread` if printed.
    pub execution_thread: Option<Symbol>,
    /// Further attributes after the body, as printed.
    pub other: Vec<(Symbol, Symbol)>,
    /// Where it stands in the file.
    pub span: Span,
}

/// A whole module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Module name.
    pub name: Symbol,
    /// All strings.
    pub strings: Interner,
    /// All shapes, interned.
    pub shapes: Vec<Shape>,
    /// All instructions of all computations.
    pub instrs: Vec<Instruction>,
    /// All computations; callees come before callers.
    pub comps: Vec<Computation>,
    /// Entry computation.
    pub entry: CompId,
    /// Interned metadata.
    pub metadata: Vec<OpMetadata>,
    /// Tables that `stack_frame_id` points into.
    pub source: SourceTables,
    /// Header attributes.
    pub header: Header,
    shape_ids: HashMap<Shape, ShapeId, FxBuildHasher>,
}

/// Attributes of the `HloModule` line.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Header {
    /// `is_scheduled`.
    pub is_scheduled: bool,
    /// `replica_count`, 1 if not printed.
    pub replica_count: i64,
    /// `num_partitions`; `None` if not printed.
    pub num_partitions: Option<i64>,
    /// `entry_computation_layout`: parameters and result, with layouts.
    pub entry_layout: Option<(Vec<Shape>, Shape)>,
    /// `frontend_attributes`.
    pub frontend: Vec<(Symbol, Symbol)>,
    /// SPMD output/parameter shardings recorded in protos
    /// (`spmd_output_sharding`, `spmd_parameters_shardings`).
    pub spmd_output_sharding: Option<OpSharding>,
    /// See `spmd_output_sharding`.
    pub spmd_parameter_shardings: Vec<OpSharding>,
    /// Everything else (`input_output_alias`, `buffer_donor`, ...), as printed.
    pub other: Vec<(Symbol, Symbol)>,
}

impl Module {
    /// An empty module; the entry must be set before use.
    pub fn new(name: &str) -> Self {
        let mut strings = Interner::default();
        let name = strings.intern(name);
        Module {
            name,
            strings,
            shapes: Vec::new(),
            instrs: Vec::new(),
            comps: Vec::new(),
            entry: CompId(0),
            metadata: Vec::new(),
            source: SourceTables::default(),
            header: Header { replica_count: 1, ..Header::default() },
            shape_ids: HashMap::default(),
        }
    }

    /// Interns a shape.
    pub fn shape_id(&mut self, s: Shape) -> ShapeId {
        if let Some(&id) = self.shape_ids.get(&s) {
            return id;
        }
        let id = ShapeId(self.shapes.len() as u32);
        self.shapes.push(s.clone());
        self.shape_ids.insert(s, id);
        id
    }

    /// Adds an instruction without metadata. It belongs to no computation
    /// until its id stands in one.
    pub fn append(
        &mut self,
        name: &str,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        shape: Shape,
    ) -> InstrId {
        let id = InstrId(self.instrs.len() as u32);
        let name = self.strings.intern(name);
        let shape = self.shape_id(shape);
        self.instrs.push(Instruction {
            name,
            opcode,
            shape,
            operands: operands.into(),
            calls: calls.into(),
            attrs,
            extra: None,
            metadata: None,
            span: Span::default(),
        });
        id
    }

    /// The instruction with this id.
    pub fn instr(&self, id: InstrId) -> &Instruction {
        &self.instrs[id.0 as usize]
    }

    /// The computation with this id.
    pub fn comp(&self, id: CompId) -> &Computation {
        &self.comps[id.0 as usize]
    }

    /// The entry computation.
    pub fn entry_comp(&self) -> &Computation {
        self.comp(self.entry)
    }

    /// Result shape of an instruction.
    pub fn shape(&self, id: InstrId) -> &Shape {
        &self.shapes[self.instr(id).shape.0 as usize]
    }

    /// Array shape of an instruction, if it is an array.
    pub fn array(&self, id: InstrId) -> Option<&ArrayShape> {
        self.shape(id).as_array()
    }

    /// Element type of an array instruction.
    pub fn dtype(&self, id: InstrId) -> Option<DType> {
        self.shape(id).dtype()
    }

    /// Text of a symbol.
    pub fn str(&self, s: Symbol) -> &str {
        self.strings.get(s)
    }

    /// Name of an instruction, without `%`.
    pub fn name_of(&self, id: InstrId) -> &str {
        self.str(self.instr(id).name)
    }

    /// Literal of a constant.
    pub fn literal(&self, id: InstrId) -> Option<&Literal> {
        match &self.instr(id).attrs {
            Attrs::Constant(l) => Some(l),
            _ => None,
        }
    }

    /// Sharding annotation of an instruction.
    pub fn sharding(&self, id: InstrId) -> Option<&OpSharding> {
        self.instr(id).extra.as_ref()?.sharding.as_ref()
    }

    /// A frontend attribute of an instruction.
    pub fn frontend_attr(&self, id: InstrId, key: &str) -> Option<&str> {
        let extra = self.instr(id).extra.as_ref()?;
        let hit = extra.frontend.iter().find(|(k, _)| self.str(*k) == key)?;
        Some(self.str(hit.1))
    }

    /// A frontend attribute of the module.
    pub fn header_attr(&self, key: &str) -> Option<&str> {
        let hit = self.header.frontend.iter().find(|(k, _)| self.str(*k) == key)?;
        Some(self.str(hit.1))
    }

    /// Metadata of an instruction.
    pub fn meta(&self, id: InstrId) -> Option<&OpMetadata> {
        self.instr(id).metadata.map(|m| &self.metadata[m.0 as usize])
    }

    /// `op_name` of an instruction.
    pub fn op_name(&self, id: InstrId) -> Option<&str> {
        self.meta(id)?.op_name.map(|s| self.str(s))
    }

    /// Source frames of an instruction, innermost first; empty if it carries
    /// none. Bad indices and cycles end the chain. Of a file name, the first
    /// line: some writers put a whole stack into it.
    pub fn frames(&self, id: InstrId) -> Vec<ResolvedFrame<'_>> {
        let Some(m) = self.meta(id) else { return Vec::new() };
        let mut out = Vec::new();
        let mut at = m.stack_frame_id;
        while at != 0 && out.len() < 256 {
            let Some(f) = self.source.frames.get(at as usize - 1) else { break };
            let loc = (f.location as usize).checked_sub(1);
            let Some(l) = loc.and_then(|i| self.source.locations.get(i)) else { break };
            let text = |v: &[Symbol], i: u32| {
                (i as usize).checked_sub(1).and_then(|i| v.get(i)).map_or("", |s| self.str(*s))
            };
            out.push(ResolvedFrame {
                file: first_line(text(&self.source.files, l.file)),
                function: text(&self.source.functions, l.function),
                line: l.line,
                end_line: l.end_line,
                column: l.column,
                end_column: l.end_column,
            });
            at = f.parent;
        }
        if out.is_empty() {
            if let Some(file) = m.source_file {
                out.push(ResolvedFrame {
                    file: first_line(self.str(file)),
                    function: "",
                    line: m.source_line,
                    end_line: m.source_end_line,
                    column: m.source_column,
                    end_column: m.source_end_column,
                });
            }
        }
        out
    }
}

fn first_line(s: &str) -> &str {
    s.lines().next().unwrap_or("").trim_end()
}
