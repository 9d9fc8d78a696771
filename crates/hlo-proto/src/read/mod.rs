//! Bytes to module.

mod annot;
mod attrs;
mod comp;
mod header;
mod literal;
mod shape;

use crate::error::{Flaw, Part, ProtoError, bad};
use crate::kind;
use crate::wire::fields;
use crate::xla;
use prost::Message;
use rustc_hash::FxHashMap;
use scalify_ir::{CompId, MetaId, Module, OpMetadata, ShapeId, Symbol};

/// Reads a module from the bytes of an `HloModuleProto`, `HloProto` or
/// `HloSnapshot`, recognised from content.
///
/// # Errors
/// If the bytes are none of these, or the module is not well made: missing or
/// duplicate ids, cycles, sizes that disagree, unknown opcodes or element
/// types. The error names the instruction, the computation and the field.
pub fn read(bytes: &[u8]) -> Result<Module, ProtoError> {
    let Some((_, module)) = kind::recognise(bytes) else {
        let what = match bytes.len() {
            0 => "the input is empty".to_owned(),
            n => format!("no computation with instructions found in {n} bytes"),
        };
        return Err(ProtoError::NotHlo(what));
    };
    let mut comps = Vec::new();
    let mut rest = Vec::new();
    let mut split = || -> Part<()> {
        for f in fields(module) {
            let f = f?;
            if f.number == 3 {
                comps.push(f.value.bytes("computations")?);
            } else {
                rest.extend_from_slice(f.raw);
            }
        }
        Ok(())
    };
    split().map_err(|e| e.at("module"))?;
    let head =
        xla::HloModuleProto::decode(rest.as_slice()).map_err(|e| Flaw::from(e).at("module"))?;
    let comps = comp::outline(&comps)?;
    let order: Vec<usize> = (0..comps.len()).collect();
    // Compilers write callees first; only other orders need a second look.
    match attempt(&head, &comps, &order) {
        Err(Stop::Order) => {
            let order = comp::callees_first(&comps)?;
            attempt(&head, &comps, &order).map_err(|s| match s {
                Stop::Error(e) => e,
                Stop::Order => Flaw::new("called_computation_ids", "cycle of calls").at("module"),
            })
        }
        Err(Stop::Error(e)) => Err(e),
        Ok(m) => Ok(m),
    }
}

/// Why an attempt ended.
enum Stop {
    /// A called computation comes later.
    Order,
    /// A fault of the input.
    Error(ProtoError),
}

impl From<ProtoError> for Stop {
    fn from(e: ProtoError) -> Self {
        Stop::Error(e)
    }
}

fn attempt(
    head: &xla::HloModuleProto,
    comps: &[comp::Outline<'_>],
    order: &[usize],
) -> Result<Module, Stop> {
    let mut r = Reader {
        m: Module::new(&head.name),
        head,
        shapes: FxHashMap::default(),
        metas: FxHashMap::default(),
        meta_ids: FxHashMap::default(),
        comp_ids: FxHashMap::default(),
        pending: comps.iter().map(|c| (c.id, ())).collect(),
        scratch: None,
        clean: true,
        rest: Vec::new(),
        local: FxHashMap::default(),
        text_bytes: head.name.len() as u64,
    };
    r.m.instrs.reserve_exact(comps.iter().map(comp::Outline::len).sum());
    r.tables().map_err(|e| e.at("module"))?;
    for &i in order {
        r.computation(&comps[i])?;
    }
    r.header().map_err(|e| e.at("module"))?;
    Ok(r.m)
}

/// State of reading one module.
struct Reader<'a> {
    m: Module,
    /// The module without its computations.
    head: &'a xla::HloModuleProto,
    /// Shapes by their bytes.
    shapes: FxHashMap<&'a [u8], ShapeId>,
    /// Metadata by its bytes.
    metas: FxHashMap<&'a [u8], Option<MetaId>>,
    /// Metadata by content.
    meta_ids: FxHashMap<OpMetadata, MetaId>,
    /// Computations read so far, by id.
    comp_ids: FxHashMap<i64, CompId>,
    /// Ids of all computations.
    pending: FxHashMap<i64, ()>,
    /// Attributes of the current instruction; boxed, as it is moved about.
    scratch: Option<Box<xla::HloInstructionProto>>,
    /// `scratch` holds only defaults.
    clean: bool,
    /// Encoded attributes of the current instruction.
    rest: Vec<u8>,
    /// Instructions of the current computation by id.
    local: FxHashMap<i64, u32>,
    /// Bytes handed to the interner at most.
    text_bytes: u64,
}

impl Reader<'_> {
    /// Interns a string of the file.
    fn sym(&mut self, s: &str) -> Symbol {
        self.m.strings.intern(s)
    }

    /// Interns a string unless it is empty.
    fn opt_sym(&mut self, s: &str) -> Option<Symbol> {
        (!s.is_empty()).then(|| self.m.strings.intern(s))
    }

    /// Interns metadata; `None` if it is empty.
    fn meta(&mut self, p: &xla::OpMetadata) -> Part<Option<MetaId>> {
        let count = |v: i32, field| match u32::try_from(v) {
            Ok(v) => Ok(v),
            Err(_) => bad(field, format!("{v} is negative")),
        };
        let mut rest = Vec::new();
        if !p.deduplicated_name.is_empty() {
            rest.push(crate::forms::quoted("deduplicated_name", &p.deduplicated_name));
        }
        if !p.scheduling_name.is_empty() {
            rest.push(crate::forms::quoted("scheduling_name", &p.scheduling_name));
        }
        let m = OpMetadata {
            op_type: self.opt_sym(&p.op_type),
            op_name: self.opt_sym(&p.op_name),
            source_file: self.opt_sym(&p.source_file),
            source_line: count(p.source_line, "metadata.source_line")?,
            source_end_line: count(p.source_end_line, "metadata.source_end_line")?,
            source_column: count(p.source_column, "metadata.source_column")?,
            source_end_column: count(p.source_end_column, "metadata.source_end_column")?,
            stack_frame_id: count(p.stack_frame_id, "metadata.stack_frame_id")?,
            rest: self.opt_sym(&rest.join(" ")),
        };
        if m == OpMetadata::default() {
            return Ok(None);
        }
        if let Some(&id) = self.meta_ids.get(&m) {
            return Ok(Some(id));
        }
        let id = MetaId(self.m.metadata.len() as u32);
        self.m.metadata.push(m.clone());
        self.meta_ids.insert(m, id);
        Ok(Some(id))
    }
}

/// Pairs of a map field.
fn frontend(m: &mut Module, p: &xla::FrontendAttributes) -> Vec<(Symbol, Symbol)> {
    p.map.iter().map(|(k, v)| (m.strings.intern(k), m.strings.intern(v))).collect()
}
