//! Module to bytes.

mod annot;
mod attrs;
mod literal;
mod shape;

use crate::{forms, xla};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::{CompId, Computation, InstrId, MetaId, Module, Opcode, Symbol};

/// The bytes of an `HloModuleProto` of this module, in a fixed form: equal
/// modules give equal bytes.
///
/// XLA wants names to be unique in the module: repeated ones get a suffix.
/// `num_partitions` and `replica_count` have no field of their own; they are
/// written as a device assignment. Attributes that the IR keeps as printed
/// and that do not parse are left out.
pub fn write(m: &Module) -> Vec<u8> {
    let mut names = Names::default();
    let comp_names = m.comps.iter().map(|c| names.unique(m.str(c.name))).collect();
    let w = Writer { m, fused: fused(m), comp_names };
    let mut out = Vec::new();
    // Shapes and metadata are shared by many instructions.
    let shapes: Vec<Vec<u8>> = m.shapes.iter().map(|s| shape::shape(s).encode_to_vec()).collect();
    let metas: Vec<Vec<u8>> = (0..m.metadata.len())
        .map(|i| w.metadata(MetaId(i as u32)).unwrap_or_default().encode_to_vec())
        .collect();
    let mut names = Names::default();
    let mut instr = Vec::new();
    let mut body = Vec::new();
    put(&w.head(), &mut out);
    for (i, c) in m.comps.iter().enumerate() {
        body.clear();
        put(&w.comp(CompId(i as u32), c), &mut body);
        for &id in &c.instrs {
            instr.clear();
            let i = m.instr(id);
            let mut p = w.instr(id);
            p.name = names.unique(m.str(i.name));
            put(&p, &mut instr);
            append(&mut instr, 3, &shapes[i.shape.0 as usize]);
            if let Some(meta) = i.metadata {
                append(&mut instr, 7, &metas[meta.0 as usize]);
            }
            append(&mut body, 2, &instr);
        }
        append(&mut out, 3, &body);
    }
    out
}

/// Appends the fields of a message.
fn put(p: &impl Message, out: &mut Vec<u8>) {
    // A vector grows: encoding into it cannot fail.
    let _ = p.encode(out);
}

/// Appends a message as field `number`.
fn append(out: &mut Vec<u8>, number: u32, message: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(message.len() as u64, out);
    out.extend_from_slice(message);
}

/// Marks the computations that a fusion calls.
fn fused(m: &Module) -> Vec<bool> {
    let mut out = vec![false; m.comps.len()];
    for i in m.instrs.iter().filter(|i| i.opcode == Opcode::Fusion) {
        for c in &i.calls {
            out[c.0 as usize] = true;
        }
    }
    out
}

/// Instructions are numbered through the whole module.
fn instr_id(id: InstrId) -> i64 {
    i64::from(id.0) + 1
}

fn comp_id(id: CompId) -> i64 {
    i64::from(id.0) + 1
}

fn count(v: u32) -> i32 {
    i32::try_from(v).unwrap_or(i32::MAX)
}

/// Names given so far, and how often each was asked for.
#[derive(Default)]
struct Names<'a> {
    asked: FxHashMap<&'a str, u32>,
    made: FxHashSet<String>,
}

impl<'a> Names<'a> {
    /// `name`, or `name.n` if it is taken.
    fn unique(&mut self, name: &'a str) -> String {
        let mut n = *self.asked.entry(name).and_modify(|n| *n += 1).or_insert(0);
        if n == 0 && !self.made.contains(name) {
            return name.to_owned();
        }
        loop {
            n = n.max(1);
            let new = format!("{name}.{n}");
            if !self.asked.contains_key(new.as_str()) && self.made.insert(new.clone()) {
                self.asked.insert(name, n);
                return new;
            }
            n += 1;
        }
    }
}

struct Writer<'a> {
    m: &'a Module,
    /// Computations that a fusion calls.
    fused: Vec<bool>,
    /// Names of the computations as written.
    comp_names: Vec<String>,
}

impl Writer<'_> {
    fn text(&self, s: Symbol) -> String {
        self.m.str(s).to_owned()
    }

    fn opt_text(&self, s: Option<Symbol>) -> String {
        s.map(|s| self.text(s)).unwrap_or_default()
    }

    fn head(&self) -> xla::HloModuleProto {
        let m = self.m;
        let h = &m.header;
        let other = |key: &str| h.other.iter().find(|p| m.str(p.0) == key).map(|p| m.str(p.1));
        let entry = m.comps.get(m.entry.0 as usize);
        xla::HloModuleProto {
            name: self.text(m.name),
            entry_computation_name: self
                .comp_names
                .get(m.entry.0 as usize)
                .cloned()
                .unwrap_or_default(),
            entry_computation_id: comp_id(m.entry),
            host_program_shape: match (&h.entry_layout, entry) {
                (Some((params, result)), _) => Some(xla::ProgramShapeProto {
                    parameters: params.iter().map(shape::shape).collect(),
                    result: Some(shape::shape(result)),
                    parameter_names: entry.map(|c| self.param_names(c)).unwrap_or_default(),
                }),
                (None, Some(c)) => Some(self.program_shape(c)),
                (None, None) => None,
            },
            schedule: h.is_scheduled.then(|| self.schedule()),
            input_output_alias: other("input_output_alias").and_then(forms::parse_alias),
            buffer_donor: other("buffer_donor").and_then(forms::parse_donor),
            is_dynamic: other("is_dynamic") == Some("true"),
            use_auto_spmd_partitioning: other("use_auto_spmd_partitioning") == Some("true"),
            spmd_output_sharding: h.spmd_output_sharding.as_ref().map(|s| self.sharding(s)),
            spmd_parameters_shardings: h
                .spmd_parameter_shardings
                .iter()
                .map(|s| self.sharding(s))
                .collect(),
            device_assignment: self.device_assignment(),
            stack_frame_index: self.source(),
            frontend_attributes: self.frontend(&h.frontend),
            ..Default::default()
        }
    }

    fn device_assignment(&self) -> Option<xla::DeviceAssignmentProto> {
        let h = &self.m.header;
        let partitions = match h.num_partitions {
            Some(n) => n,
            None if h.replica_count > 1 => 1,
            None => return None,
        };
        let computation_count = i32::try_from(partitions).ok().filter(|n| *n > 0)?;
        let replica_count = i32::try_from(h.replica_count.max(1)).ok()?;
        let all = i64::from(replica_count) * i64::from(computation_count);
        let one = |c: i64| xla::device_assignment_proto::ComputationDevice {
            replica_device_ids: (0..i64::from(replica_count))
                .map(|r| r * i64::from(computation_count) + c)
                .collect(),
        };
        let list = if all <= 1 << 20 { computation_count } else { 0 };
        Some(xla::DeviceAssignmentProto {
            replica_count,
            computation_count,
            computation_devices: (0..i64::from(list)).map(one).collect(),
        })
    }

    /// Sequences of the computations that no fusion calls.
    fn schedule(&self) -> xla::HloScheduleProto {
        let sequences =
            self.m.comps.iter().enumerate().filter(|(i, _)| !self.fused[*i]).map(|(i, c)| {
                let instruction_ids = c.instrs.iter().map(|&i| instr_id(i)).collect();
                let s = xla::hlo_schedule_proto::InstructionSequence { instruction_ids };
                (comp_id(CompId(i as u32)), s)
            });
        xla::HloScheduleProto { sequences: sequences.collect() }
    }

    fn source(&self) -> Option<xla::StackFrameIndexProto> {
        let s = &self.m.source;
        if s.files.is_empty() && s.functions.is_empty() && s.frames.is_empty() {
            return None;
        }
        let location = |l: &scalify_ir::FileLocation| xla::stack_frame_index_proto::FileLocation {
            file_name_id: count(l.file),
            function_name_id: count(l.function),
            line: count(l.line),
            column: count(l.column),
            end_line: count(l.end_line),
            end_column: count(l.end_column),
        };
        let frame = |f: &scalify_ir::StackFrame| xla::stack_frame_index_proto::StackFrame {
            file_location_id: count(f.location),
            parent_frame_id: count(f.parent),
        };
        Some(xla::StackFrameIndexProto {
            file_names: s.files.iter().map(|&f| self.text(f)).collect(),
            function_names: s.functions.iter().map(|&f| self.text(f)).collect(),
            file_locations: s.locations.iter().map(location).collect(),
            stack_frames: s.frames.iter().map(frame).collect(),
        })
    }

    fn frontend(&self, pairs: &[(Symbol, Symbol)]) -> Option<xla::FrontendAttributes> {
        let map = pairs.iter().map(|p| (self.text(p.0), self.text(p.1))).collect();
        (!pairs.is_empty()).then_some(xla::FrontendAttributes { map })
    }

    fn param_names(&self, c: &Computation) -> Vec<String> {
        c.params.iter().map(|&p| self.m.name_of(p).to_owned()).collect()
    }

    fn program_shape(&self, c: &Computation) -> xla::ProgramShapeProto {
        xla::ProgramShapeProto {
            parameters: c.params.iter().map(|&p| shape::shape(self.m.shape(p))).collect(),
            result: Some(shape::shape(self.m.shape(c.root))),
            parameter_names: self.param_names(c),
        }
    }

    /// A computation without its instructions.
    fn comp(&self, id: CompId, c: &Computation) -> xla::HloComputationProto {
        xla::HloComputationProto {
            name: self.comp_names[id.0 as usize].clone(),
            instructions: Vec::new(),
            program_shape: Some(self.program_shape(c)),
            id: comp_id(id),
            root_id: instr_id(c.root),
            is_fusion_computation: self.fused[id.0 as usize],
            execution_thread: self.opt_text(c.execution_thread),
        }
    }

    fn metadata(&self, id: MetaId) -> Option<xla::OpMetadata> {
        let m = self.m.metadata.get(id.0 as usize)?;
        let mut p = xla::OpMetadata {
            op_type: self.opt_text(m.op_type),
            op_name: self.opt_text(m.op_name),
            source_file: self.opt_text(m.source_file),
            source_line: count(m.source_line),
            source_end_line: count(m.source_end_line),
            source_column: count(m.source_column),
            source_end_column: count(m.source_end_column),
            stack_frame_id: count(m.stack_frame_id),
            ..Default::default()
        };
        for (k, v) in m.rest.map(|r| forms::parse_quoted(self.m.str(r))).unwrap_or_default() {
            match k.as_str() {
                "deduplicated_name" => p.deduplicated_name = v,
                "scheduling_name" => p.scheduling_name = v,
                _ => {}
            }
        }
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_become_unique() {
        let mut n = super::Names::default();
        let got: Vec<String> =
            ["a", "a", "a.1", "a", "b", "a.3", "a"].map(|s| n.unique(s)).into_iter().collect();
        assert_eq!(got, ["a", "a.1", "a.1.1", "a.2", "b", "a.3", "a.4"]);
    }
}
