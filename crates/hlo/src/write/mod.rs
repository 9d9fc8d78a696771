//! Text of a module, in the form XLA prints and reads.

mod attrs;
mod literal;
mod shape;
mod sharding;

use crate::escape::escape_into;
use scalify_ir::{
    Attrs, CompId, Computation, InstrId, Instruction, MetaId, Module, Opcode, Symbol,
};
use std::fmt::Write;

/// What [`write()`] prints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteOptions {
    /// `metadata={..}` and the source tables.
    pub metadata: bool,
    /// Layouts of shapes.
    pub layouts: bool,
    /// Operand shapes before operand names.
    pub operand_shapes: bool,
    /// Constants with more elements are printed as `{...}`, which loses
    /// their value.
    pub max_constant_elements: Option<usize>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            metadata: true,
            layouts: true,
            operand_shapes: false,
            max_constant_elements: None,
        }
    }
}

/// HLO text of a module that XLA's parser accepts. Names that are no HLO
/// names are changed to one.
pub fn write(m: &Module, opts: &WriteOptions) -> String {
    let mut w = Writer {
        m,
        opts,
        out: String::with_capacity(m.instrs.len() * 128 + 256),
        shapes: m.shapes.iter().map(|s| shape::text(s, opts.layouts)).collect(),
        metadata: vec![String::new(); if opts.metadata { m.metadata.len() } else { 0 }],
    };
    w.module();
    w.out
}

struct Writer<'a> {
    m: &'a Module,
    opts: &'a WriteOptions,
    out: String,
    /// Text of each shape.
    shapes: Vec<String>,
    /// Text of each metadata, empty until it is needed.
    metadata: Vec<String>,
}

fn is_name(s: &str) -> bool {
    let ok = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    let start = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    s.bytes().next().is_some_and(start) && s.bytes().all(ok)
}

impl Writer<'_> {
    fn module(&mut self) {
        self.out.push_str("HloModule ");
        self.name(self.m.name, None);
        let h = &self.m.header;
        if h.is_scheduled {
            self.out.push_str(", is_scheduled=true");
        }
        for &(name, value) in &h.other {
            let _ = write!(self.out, ", {}={}", self.m.str(name), self.m.str(value));
        }
        if let Some((params, result)) = &h.entry_layout {
            self.out.push_str(", entry_computation_layout={(");
            for (i, p) in params.iter().enumerate() {
                comma(&mut self.out, i);
                self.out.push_str(&shape::text(p, self.opts.layouts));
            }
            let _ = write!(self.out, ")->{}}}", shape::text(result, self.opts.layouts));
        }
        if !h.frontend.is_empty() {
            self.out.push_str(", frontend_attributes=");
            self.frontend(&h.frontend);
        }
        if h.replica_count > 1 {
            let _ = write!(self.out, ", replica_count={}", h.replica_count);
        }
        if let Some(n) = h.num_partitions {
            let _ = write!(self.out, ", num_partitions={n}");
        }
        self.out.push_str("\n\n");
        if self.opts.metadata {
            self.source_tables();
        }
        let hidden = self.hidden();
        for (i, c) in self.m.comps.iter().enumerate() {
            if !hidden.get(i).is_some_and(|h| *h) {
                self.computation(CompId(i as u32), c);
            }
        }
    }

    /// Computations that the `xxx-start` sugar stands for.
    fn hidden(&self) -> Vec<bool> {
        let mut hidden = vec![false; self.m.comps.len()];
        for i in &self.m.instrs {
            if let Some(&c) = i.calls.first().filter(|_| self.sugar(i).is_some()) {
                hidden[c.0 as usize] = true;
            }
        }
        hidden
    }

    /// The wrapped instruction if `i` can be printed as `xxx-start`.
    fn sugar(&self, i: &Instruction) -> Option<&Instruction> {
        let Attrs::Async { sugar: Some(op), .. } = i.attrs else { return None };
        if i.opcode != Opcode::AsyncStart {
            return None;
        }
        let c = self.m.comps.get(i.calls.first()?.0 as usize)?;
        let root = self.m.instrs.get(c.root.0 as usize)?;
        let plain = root.opcode == op
            && root.operands[..] == c.params[..]
            && c.instrs.len() == c.params.len() + 1
            && root.extra.is_none();
        plain.then_some(root)
    }

    fn source_tables(&mut self) {
        let s = &self.m.source;
        if s.files.is_empty() && s.locations.is_empty() && s.frames.is_empty() {
            return;
        }
        for (title, rows) in [("FileNames", &s.files), ("FunctionNames", &s.functions)] {
            let _ = writeln!(self.out, "{title}");
            for (i, row) in rows.iter().enumerate() {
                let _ = write!(self.out, "{} ", i + 1);
                self.quoted(*row);
                self.out.push('\n');
            }
            self.out.push('\n');
        }
        self.out.push_str("FileLocations\n");
        for (i, l) in s.locations.iter().enumerate() {
            let _ = writeln!(
                self.out,
                "{} {{file_name_id={} function_name_id={} line={} end_line={} column={} end_column={}}}",
                i + 1,
                l.file,
                l.function,
                l.line,
                l.end_line,
                l.column,
                l.end_column
            );
        }
        self.out.push_str("\nStackFrames\n");
        for (i, f) in s.frames.iter().enumerate() {
            // Text counts parents from 1 for "none".
            let parent = u64::from(f.parent) + 1;
            let _ = writeln!(
                self.out,
                "{} {{file_location_id={} parent_frame_id={parent}}}",
                i + 1,
                f.location
            );
        }
        self.out.push_str("\n\n");
    }

    fn computation(&mut self, id: CompId, c: &Computation) {
        if id == self.m.entry {
            self.out.push_str("ENTRY ");
        }
        self.out.push('%');
        self.name(c.name, Some(id.0));
        self.out.push_str(" (");
        for (k, &p) in c.params.iter().enumerate() {
            comma(&mut self.out, k);
            self.instr_name(p);
            self.out.push_str(": ");
            self.out.push_str(&shape::text(self.m.shape(p), false));
        }
        let result = shape::text(self.m.shape(c.root), false);
        let _ = writeln!(self.out, ") -> {result} {{");
        for &i in &c.instrs {
            self.out.push_str(if i == c.root { "  ROOT %" } else { "  %" });
            self.instr_name(i);
            self.out.push_str(" = ");
            self.instruction(self.m.instr(i));
            self.out.push('\n');
        }
        self.out.push('}');
        if let Some(t) = c.execution_thread {
            self.out.push_str(", execution_thread=");
            self.quoted(t);
        }
        self.out.push_str("\n\n");
    }

    fn instruction(&mut self, i: &Instruction) {
        if let Some(s) = self.shapes.get(i.shape.0 as usize) {
            self.out.push_str(s);
        }
        self.out.push(' ');
        let root = self.sugar(i).cloned();
        match (&root, &i.attrs) {
            (Some(r), _) => {
                let _ = write!(self.out, "{}-start", r.opcode);
            }
            (None, Attrs::Async { sugar: Some(op), .. }) if i.opcode != Opcode::AsyncStart => {
                if self.start_is_sugar(i) {
                    let end = if i.opcode == Opcode::AsyncUpdate { "update" } else { "done" };
                    let _ = write!(self.out, "{op}-{end}");
                } else {
                    self.out.push_str(i.opcode.name());
                }
            }
            _ => self.out.push_str(i.opcode.name()),
        }
        self.out.push('(');
        match &i.attrs {
            Attrs::Parameter(n) => {
                let _ = write!(self.out, "{n}");
            }
            Attrs::Constant(l) => {
                literal::write(&mut self.out, l, self.opts.max_constant_elements);
            }
            _ => {
                for (k, &o) in i.operands.iter().enumerate() {
                    comma(&mut self.out, k);
                    if self.opts.operand_shapes {
                        let s = self.m.instr(o).shape.0 as usize;
                        self.out.push_str(self.shapes.get(s).map_or("", |s| s));
                        self.out.push(' ');
                    }
                    self.out.push('%');
                    self.instr_name(o);
                }
            }
        }
        self.out.push(')');
        if let Some(r) = &root {
            self.attributes(r);
        }
        self.attributes(i);
        self.common(i);
    }

    /// True if the start that this update or done belongs to is printed as
    /// sugar.
    fn start_is_sugar(&self, i: &Instruction) -> bool {
        let mut at = i;
        for _ in 0..self.m.instrs.len() {
            let Some(&o) = at.operands.first() else { return false };
            at = self.m.instr(o);
            if at.opcode == Opcode::AsyncStart {
                return self.sugar(at).is_some();
            }
        }
        false
    }

    fn common(&mut self, i: &Instruction) {
        if let Some(e) = &i.extra {
            if let Some(s) = &e.sharding {
                self.out.push_str(", sharding=");
                self.sharding(s);
            }
            if !e.parameter_replication.is_empty() {
                self.out.push_str(", parameter_replication={");
                for (k, b) in e.parameter_replication.iter().enumerate() {
                    if k > 0 {
                        self.out.push(',');
                    }
                    let _ = write!(self.out, "{b}");
                }
                self.out.push('}');
            }
            if !e.frontend.is_empty() {
                self.out.push_str(", frontend_attributes=");
                self.frontend(&e.frontend);
            }
            if !e.control_predecessors.is_empty() {
                self.out.push_str(", control-predecessors={");
                for (k, &p) in e.control_predecessors.iter().enumerate() {
                    if k > 0 {
                        self.out.push_str(", ");
                    }
                    self.out.push('%');
                    self.instr_name(p);
                }
                self.out.push('}');
            }
            for &(name, value) in &e.other {
                let _ = write!(self.out, ", {}={}", self.m.str(name), self.m.str(value));
            }
        }
        if let Some(id) = i.metadata.filter(|_| self.opts.metadata) {
            self.out.push_str(", metadata=");
            self.meta(id);
        }
        if let Some(c) = i.extra.as_ref().and_then(|e| e.backend_config.as_ref()) {
            self.out.push_str(", backend_config=");
            if c.quoted || !is_dict(self.m.str(c.text)) {
                self.quoted(c.text);
            } else {
                self.out.push_str(self.m.str(c.text));
            }
        }
    }

    fn meta(&mut self, id: MetaId) {
        let i = id.0 as usize;
        let Some(meta) = self.m.metadata.get(i) else {
            self.out.push_str("{}");
            return;
        };
        if self.metadata.get(i).is_some_and(|s| !s.is_empty()) {
            self.out.push_str(&self.metadata[i]);
            return;
        }
        let start = self.out.len();
        self.out.push('{');
        let texts = [
            ("op_type", meta.op_type),
            ("op_name", meta.op_name),
            ("source_file", meta.source_file),
        ];
        for (name, value) in texts {
            if let Some(v) = value {
                let _ = write!(self.out, "{name}=");
                self.quoted(v);
                self.out.push(' ');
            }
        }
        let numbers = [
            ("source_line", meta.source_line),
            ("source_end_line", meta.source_end_line),
            ("source_column", meta.source_column),
            ("source_end_column", meta.source_end_column),
            ("stack_frame_id", meta.stack_frame_id),
        ];
        for (name, value) in numbers.iter().filter(|n| n.1 != 0) {
            let _ = write!(self.out, "{name}={value} ");
        }
        if let Some(r) = meta.rest {
            self.out.push_str(self.m.str(r));
        }
        if self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('}');
        if let Some(slot) = self.metadata.get_mut(i) {
            slot.push_str(&self.out[start..]);
        }
    }

    fn frontend(&mut self, list: &[(Symbol, Symbol)]) {
        self.out.push('{');
        for (k, &(name, value)) in list.iter().enumerate() {
            if k > 0 {
                self.out.push(',');
            }
            let _ = write!(self.out, "{}=", self.m.str(name));
            if is_dict(self.m.str(value)) {
                self.out.push_str(self.m.str(value));
            } else {
                self.quoted(value);
            }
        }
        self.out.push('}');
    }

    fn quoted(&mut self, s: Symbol) {
        self.out.push('"');
        escape_into(&mut self.out, self.m.str(s));
        self.out.push('"');
    }

    fn instr_name(&mut self, i: InstrId) {
        self.name(self.m.instr(i).name, Some(i.0));
    }

    fn comp_name(&mut self, c: CompId) {
        self.out.push('%');
        self.name(self.m.comp(c).name, Some(c.0));
    }

    /// A name, made legal (and unique by `id`) if it is not.
    fn name(&mut self, s: Symbol, id: Option<u32>) {
        let text = self.m.str(s);
        if is_name(text) {
            self.out.push_str(text);
            return;
        }
        self.out.push('_');
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        self.out.extend(text.chars().map(|c| if legal(c) { c } else { '_' }));
        if let Some(id) = id {
            let _ = write!(self.out, ".{id}");
        }
    }
}

/// Separator before item `i` of a list, with XLA's index comments.
fn comma(out: &mut String, i: usize) {
    if i > 0 {
        out.push_str(", ");
        if i.is_multiple_of(5) {
            let _ = write!(out, "/*index={i}*/");
        }
    }
}

/// True if `s` reads back as one brace group.
fn is_dict(s: &str) -> bool {
    s.starts_with('{') && crate::cursor::Cursor::new(s).braces_end(0) == Some(s.len())
}

/// Text of parts of single instructions, for viewers.
pub struct InstructionText<'a>(Writer<'a>);

impl<'a> InstructionText<'a> {
    /// For the instructions of `m`.
    pub fn new(m: &'a Module) -> Self {
        const OPTIONS: WriteOptions = WriteOptions {
            metadata: false,
            layouts: true,
            operand_shapes: false,
            max_constant_elements: None,
        };
        InstructionText(Writer {
            m,
            opts: &OPTIONS,
            out: String::new(),
            shapes: Vec::new(),
            metadata: Vec::new(),
        })
    }

    /// Attributes as they stand after the operands, without metadata:
    /// `dimensions={1}, to_apply=%add`. Empty if there are none.
    pub fn attributes(&mut self, id: InstrId) -> &str {
        let w = &mut self.0;
        w.out.clear();
        let m = w.m;
        if let Some(i) = m.instrs.get(id.0 as usize) {
            w.attributes(i);
            w.common(i);
        }
        w.out.trim_start_matches(", ")
    }

    /// The first `max` elements of an array literal, row-major, and whether
    /// there are more; `None` if the value is not known or is a tuple.
    pub fn elements(&mut self, l: &scalify_ir::Literal, max: usize) -> Option<(&str, bool)> {
        let w = &mut self.0;
        w.out.clear();
        let more = literal::flat(&mut w.out, l, max)?;
        Some((&w.out, more))
    }
}
