//! Taking the contents of one module into another.
//!
//! **What lives here:** copies of computations, instructions, strings and
//! source tables with their references moved. **What may not:** any decision
//! about how programs belong together.

use crate::{
    Attrs, CompId, Computation, FileLocation, InstrId, Instruction, MetaId, Module, OpMetadata,
    OpSharding, ShardingKind, StackFrame, Symbol,
};

/// What [`Module::absorb`] took in.
#[derive(Clone, Debug)]
pub struct Absorbed {
    /// Id of the copy of the first instruction.
    pub first: u32,
    /// The entry computation, with copied instructions. It stands in no list
    /// yet.
    pub entry: Computation,
}

impl Absorbed {
    /// The copy of an instruction.
    pub fn instr(&self, i: InstrId) -> InstrId {
        InstrId(self.first + i.0)
    }
}

/// Strings and tables of one module as those of another.
struct Map<'m> {
    from: &'m Module,
    /// Symbol of each symbol; `None` until it is asked for.
    symbols: Vec<Option<Symbol>>,
    metadata: u32,
}

impl Module {
    /// Appends copies of all instructions of `other`, with their source
    /// locations, and of all computations but the entry, which is returned.
    /// Header and entry of this module stay as they are.
    pub fn absorb(&mut self, other: &Module) -> Absorbed {
        let (first, comps) = (self.instrs.len() as u32, self.comps.len() as u32);
        let instr = |i: InstrId| InstrId(first + i.0);
        // The entry is called by none.
        let comp = |c: CompId| CompId(comps + c.0 - u32::from(c > other.entry));
        let mut map = Map {
            from: other,
            symbols: vec![None; other.strings.len()],
            metadata: self.metadata.len() as u32,
        };
        map.tables(self);
        let shapes: Vec<_> = other.shapes.iter().map(|s| self.shape_id(s.clone())).collect();
        self.instrs.reserve(other.instrs.len());
        for i in &other.instrs {
            let new = Instruction {
                name: map.symbol(self, i.name),
                opcode: i.opcode,
                shape: shapes[i.shape.0 as usize],
                operands: i.operands.iter().map(|&o| instr(o)).collect(),
                calls: i.calls.iter().map(|&c| comp(c)).collect(),
                attrs: map.attrs(self, &i.attrs),
                extra: i.extra.as_ref().map(|e| {
                    let mut e = e.clone();
                    e.sharding = e.sharding.map(|s| map.sharding(s));
                    for p in &mut e.control_predecessors {
                        *p = instr(*p);
                    }
                    for (k, v) in e.frontend.iter_mut().chain(&mut e.other) {
                        (*k, *v) = (map.symbol(self, *k), map.symbol(self, *v));
                    }
                    if let Some(b) = &mut e.backend_config {
                        b.text = map.symbol(self, b.text);
                    }
                    e
                }),
                metadata: i.metadata.map(|m| map.meta(m)),
                span: i.span,
            };
            self.instrs.push(new);
        }
        let mut copy = |to: &mut Module, c: &Computation| Computation {
            name: map.symbol(to, c.name),
            instrs: c.instrs.iter().map(|&i| instr(i)).collect(),
            params: c.params.iter().map(|&i| instr(i)).collect(),
            root: instr(c.root),
            execution_thread: c.execution_thread.map(|t| map.symbol(to, t)),
            other: c.other.iter().map(|&(k, v)| (map.symbol(to, k), map.symbol(to, v))).collect(),
            span: c.span,
        };
        for (k, c) in other.comps.iter().enumerate() {
            if k != other.entry.0 as usize {
                let new = copy(self, c);
                self.comps.push(new);
            }
        }
        let entry = copy(self, other.entry_comp());
        Absorbed { first, entry }
    }
}

impl Module {
    /// Drops the instructions that stand in no computation; ids change, names
    /// do not. No instruction of a computation may refer to one of them.
    pub fn drop_loose(&mut self) {
        let mut ids: Vec<Option<InstrId>> = vec![None; self.instrs.len()];
        for i in self.comps.iter().flat_map(|c| &c.instrs) {
            ids[i.0 as usize] = Some(*i);
        }
        for (next, id) in (0..).zip(ids.iter_mut().flatten()) {
            *id = InstrId(next);
        }
        let mut at = 0;
        self.instrs.retain(|_| {
            at += 1;
            ids[at - 1].is_some()
        });
        let new = |i: &mut InstrId| {
            if let Some(id) = ids.get(i.0 as usize).copied().flatten() {
                *i = id;
            }
        };
        for i in &mut self.instrs {
            i.operands.iter_mut().for_each(new);
            if let Some(e) = &mut i.extra {
                e.control_predecessors.iter_mut().for_each(new);
            }
        }
        for c in &mut self.comps {
            c.instrs.iter_mut().chain(&mut c.params).for_each(new);
            new(&mut c.root);
        }
    }
}

impl Map<'_> {
    fn symbol(&mut self, to: &mut Module, s: Symbol) -> Symbol {
        if let Some(Some(known)) = self.symbols.get(s.0 as usize) {
            return *known;
        }
        let new = to.strings.intern(self.from.str(s));
        if let Some(slot) = self.symbols.get_mut(s.0 as usize) {
            *slot = Some(new);
        }
        new
    }

    fn some(&mut self, to: &mut Module, s: Option<Symbol>) -> Option<Symbol> {
        s.map(|s| self.symbol(to, s))
    }

    fn meta(&self, m: MetaId) -> MetaId {
        MetaId(self.metadata + m.0)
    }

    /// Source tables and metadata. Ids in the tables count from 1; 0 is none.
    fn tables(&mut self, to: &mut Module) {
        let from = self.from;
        let (files, functions) = (to.source.files.len() as u32, to.source.functions.len() as u32);
        let (locations, frames) = (to.source.locations.len() as u32, to.source.frames.len() as u32);
        let moved = |id: u32, by: u32| if id == 0 { 0 } else { id.saturating_add(by) };
        for &f in &from.source.files {
            let f = self.symbol(to, f);
            to.source.files.push(f);
        }
        for &f in &from.source.functions {
            let f = self.symbol(to, f);
            to.source.functions.push(f);
        }
        to.source.locations.extend(from.source.locations.iter().map(|l| FileLocation {
            file: moved(l.file, files),
            function: moved(l.function, functions),
            ..*l
        }));
        to.source.frames.extend(from.source.frames.iter().map(|f| StackFrame {
            location: moved(f.location, locations),
            parent: moved(f.parent, frames),
        }));
        for m in &from.metadata {
            let new = OpMetadata {
                op_type: self.some(to, m.op_type),
                op_name: self.some(to, m.op_name),
                source_file: self.some(to, m.source_file),
                stack_frame_id: moved(m.stack_frame_id, frames),
                rest: self.some(to, m.rest),
                ..*m
            };
            to.metadata.push(new);
        }
    }

    fn sharding(&self, mut s: OpSharding) -> OpSharding {
        for m in &mut s.metadata {
            *m = self.meta(*m);
        }
        if let ShardingKind::Tuple(t) = s.kind {
            s.kind = ShardingKind::Tuple(t.into_iter().map(|s| self.sharding(s)).collect());
        }
        s
    }

    fn attrs(&mut self, to: &mut Module, a: &Attrs) -> Attrs {
        let mut a = a.clone();
        match &mut a {
            Attrs::None
            | Attrs::Parameter(_)
            | Attrs::Constant(_)
            | Attrs::Iota(_)
            | Attrs::TupleIndex(_)
            | Attrs::Dims(_)
            | Attrs::Dim(_)
            | Attrs::Sort { .. }
            | Attrs::Slice(_)
            | Attrs::Pad(_)
            | Attrs::DynamicSlice(_)
            | Attrs::Gather(_)
            | Attrs::Scatter(_)
            | Attrs::Compare { .. }
            | Attrs::Window(_)
            | Attrs::BatchNorm { .. }
            | Attrs::Fft { .. }
            | Attrs::TriangularSolve { .. }
            | Attrs::Cholesky { .. }
            | Attrs::TopK { .. }
            | Attrs::ReducePrecision { .. }
            | Attrs::Rng(_)
            | Attrs::RngBits(_)
            | Attrs::RngDelta(_)
            | Attrs::Channel { .. }
            | Attrs::Scan(_) => {}
            Attrs::Dot(d) => {
                for p in &mut d.precision {
                    *p = self.symbol(to, *p);
                }
                d.algorithm = self.some(to, d.algorithm);
                d.sparsity = self.some(to, d.sparsity);
            }
            Attrs::Conv(c) => {
                for p in &mut c.precision {
                    *p = self.symbol(to, *p);
                }
            }
            Attrs::Collective(c) => c.rest = self.some(to, c.rest),
            Attrs::Fusion { kind } => *kind = self.symbol(to, *kind),
            Attrs::CustomCall(c) => {
                c.target = self.symbol(to, c.target);
                c.opaque = self.some(to, c.opaque);
                c.api_version = self.some(to, c.api_version);
                c.schedule = self.some(to, c.schedule);
                c.aliasing = self.some(to, c.aliasing);
                c.rest = self.some(to, c.rest);
            }
            Attrs::Async { thread, .. } => *thread = self.some(to, *thread),
            Attrs::FeedConfig(s) | Attrs::Domain(s) => *s = self.symbol(to, *s),
        }
        a
    }
}
