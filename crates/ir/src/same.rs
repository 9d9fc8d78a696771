//! Structural comparison of two modules.
//!
//! **What lives here:** the answer to "do these two say the same", for
//! readers of different formats and for round trips. **What may not:** any
//! reasoning about what programs compute.

use crate::groups::ReplicaGroups;
use crate::{
    ArrayShape, Attrs, CompId, Extra, InstrId, Literal, LiteralData, MetaId, Module, OpSharding,
    Shape, ShardingKind, Symbol,
};

/// What [`difference`] looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compare {
    /// Names of instructions and computations.
    pub names: bool,
    /// Metadata and source tables.
    pub sources: bool,
    /// Header attributes besides entry layout and frontend attributes, and
    /// attributes kept as `other`.
    pub rest: bool,
}

impl Compare {
    /// Everything.
    pub const ALL: Compare = Compare { names: true, sources: true, rest: true };
    /// What a program means: no names, no source lines.
    pub const MEANING: Compare = Compare { names: false, sources: false, rest: false };
}

/// The first difference between two modules, in words; `None` if they are
/// the same. Layouts are compared where both sides have one. The order of
/// computations and of instructions does not count: they are matched from
/// the roots, and what no root reaches in its order.
pub fn difference(a: &Module, b: &Module, what: Compare) -> Option<String> {
    let mut d = Diff {
        a,
        b,
        what,
        comps: vec![None; a.comps.len()],
        instrs: vec![None; a.instrs.len()],
        taken: vec![false; b.instrs.len()],
    };
    d.module().err()
}

struct Diff<'m> {
    a: &'m Module,
    b: &'m Module,
    what: Compare,
    /// Counterpart of each computation of `a`.
    comps: Vec<Option<CompId>>,
    /// Counterpart of each instruction of `a`.
    instrs: Vec<Option<InstrId>>,
    /// Instructions of `b` that are a counterpart.
    taken: Vec<bool>,
}

type Same = Result<(), String>;

fn check(equal: bool, what: impl FnOnce() -> String) -> Same {
    if equal { Ok(()) } else { Err(what()) }
}

fn squeeze(s: &str) -> String {
    s.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Equal, layouts included where both have one.
fn shapes(a: &Shape, b: &Shape) -> bool {
    match (a, b) {
        (Shape::Array(x), Shape::Array(y)) => x.same(y) && layouts(x, y),
        (Shape::Tuple(x), Shape::Tuple(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| shapes(x, y))
        }
        (Shape::Buffer(x), Shape::Buffer(y)) => shapes(x, y),
        _ => a.same(b),
    }
}

fn layouts(a: &ArrayShape, b: &ArrayShape) -> bool {
    match (&a.layout, &b.layout) {
        (Some(x), Some(y)) => x == y,
        _ => true,
    }
}

fn literals(a: &Literal, b: &Literal) -> bool {
    a.shape.same(&b.shape)
        && match (&a.data, &b.data) {
            (LiteralData::Tuple(x), LiteralData::Tuple(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| literals(x, y))
            }
            (x, y) => x == y,
        }
}

impl Diff<'_> {
    fn text(&self, a: Option<Symbol>, b: Option<Symbol>) -> bool {
        a.map(|s| self.a.str(s)) == b.map(|s| self.b.str(s))
    }

    fn pairs(&self, a: &[(Symbol, Symbol)], b: &[(Symbol, Symbol)]) -> bool {
        a.len() == b.len()
            && a.iter()
                .zip(b)
                .all(|(x, y)| self.text(Some(x.0), Some(y.0)) && self.text(Some(x.1), Some(y.1)))
    }

    fn other(&self, a: &[(Symbol, Symbol)], b: &[(Symbol, Symbol)]) -> bool {
        let of = |m: &Module, v: &[(Symbol, Symbol)]| {
            let mut v: Vec<_> =
                v.iter().map(|p| (m.str(p.0).to_owned(), squeeze(m.str(p.1)))).collect();
            v.sort();
            v
        };
        of(self.a, a) == of(self.b, b)
    }

    fn meta(&self, a: Option<MetaId>, b: Option<MetaId>) -> bool {
        let (Some(x), Some(y)) = (a, b) else { return a.is_none() && b.is_none() };
        let (x, y) = (&self.a.metadata[x.0 as usize], &self.b.metadata[y.0 as usize]);
        let lines = |m: &crate::OpMetadata| {
            let at = [m.source_line, m.source_end_line, m.source_column, m.source_end_column];
            (at, m.stack_frame_id)
        };
        self.text(x.op_type, y.op_type)
            && self.text(x.op_name, y.op_name)
            && self.text(x.source_file, y.source_file)
            && self.text(x.rest, y.rest)
            && lines(x) == lines(y)
    }

    fn sharding(&self, a: &OpSharding, b: &OpSharding) -> bool {
        let kinds = match (&a.kind, &b.kind) {
            (ShardingKind::Tuple(x), ShardingKind::Tuple(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| self.sharding(x, y))
            }
            (ShardingKind::Named(x), ShardingKind::Named(y)) => squeeze(x) == squeeze(y),
            (x, y) => x == y,
        };
        let metas = |x: &[MetaId], y: &[MetaId]| {
            x.len() == y.len() && x.iter().zip(y).all(|(&x, &y)| self.meta(Some(x), Some(y)))
        };
        kinds
            && a.shard_group == b.shard_group
            && (!self.what.sources || metas(&a.metadata, &b.metadata))
    }

    fn shardings(&self, a: &Option<OpSharding>, b: &Option<OpSharding>) -> bool {
        match (a, b) {
            (Some(x), Some(y)) => self.sharding(x, y),
            (x, y) => x.is_none() && y.is_none(),
        }
    }

    fn module(&mut self) -> Same {
        let (a, b) = (self.a, self.b);
        if self.what.names {
            check(a.str(a.name) == b.str(b.name), || {
                format!("module name: `{}`, `{}`", a.str(a.name), b.str(b.name))
            })?;
        }
        check(a.comps.len() == b.comps.len(), || {
            format!("computations: {}, {}", a.comps.len(), b.comps.len())
        })?;
        let mut todo = vec![(a.entry, b.entry)];
        let mut rest = 0..a.comps.len() as u32;
        let mut used = vec![false; b.comps.len()];
        loop {
            while let Some((x, y)) = todo.pop() {
                match self.comps[x.0 as usize] {
                    Some(z) => check(z == y, || {
                        let name = |m: &Module, c: CompId| m.str(m.comp(c).name).to_owned();
                        let (z, y) = (name(b, z), name(b, y));
                        format!("computation `{}` is both `{z}` and `{y}`", name(a, x))
                    })?,
                    None => {
                        self.comps[x.0 as usize] = Some(y);
                        used[y.0 as usize] = true;
                        self.comp(x, y, &mut todo)?;
                    }
                }
            }
            // Computations that nothing calls.
            let Some(x) = rest.find(|&i| self.comps[i as usize].is_none()) else { break };
            let Some(y) = used.iter().position(|u| !u) else { break };
            todo.push((CompId(x), CompId(y as u32)));
        }
        if self.what.sources {
            let (x, y) = (&a.source, &b.source);
            let texts = |m: &Module, v: &[Symbol]| -> Vec<String> {
                v.iter().map(|s| m.str(*s).to_owned()).collect()
            };
            check(texts(a, &x.files) == texts(b, &y.files), || "file names".to_owned())?;
            check(texts(a, &x.functions) == texts(b, &y.functions), || "functions".to_owned())?;
            check(x.locations == y.locations, || "file locations".to_owned())?;
            check(x.frames == y.frames, || "stack frames".to_owned())?;
        }
        self.header()
    }

    fn header(&self) -> Same {
        let (x, y) = (&self.a.header, &self.b.header);
        if let (Some((p, r)), Some((q, s))) = (&x.entry_layout, &y.entry_layout) {
            let same = p.len() == q.len() && p.iter().zip(q).all(|(p, q)| shapes(p, q));
            check(same && shapes(r, s), || "entry_computation_layout".to_owned())?;
        }
        check(self.pairs(&x.frontend, &y.frontend), || "frontend attributes".to_owned())?;
        if !self.what.rest {
            return Ok(());
        }
        check(x.is_scheduled == y.is_scheduled, || "is_scheduled".to_owned())?;
        check(x.replica_count == y.replica_count, || "replica_count".to_owned())?;
        check(x.num_partitions == y.num_partitions, || "num_partitions".to_owned())?;
        let out = self.shardings(&x.spmd_output_sharding, &y.spmd_output_sharding);
        check(out, || "spmd_output_sharding".to_owned())?;
        let (p, q) = (&x.spmd_parameter_shardings, &y.spmd_parameter_shardings);
        let same = p.len() == q.len() && p.iter().zip(q).all(|(p, q)| self.sharding(p, q));
        check(same, || "spmd_parameters_shardings".to_owned())?;
        check(self.other(&x.other, &y.other), || "other header attributes".to_owned())
    }

    fn comp(&mut self, x: CompId, y: CompId, todo: &mut Vec<(CompId, CompId)>) -> Same {
        let (x, y) = (self.a.comp(x), self.b.comp(y));
        let name = self.a.str(x.name);
        let place = |what: &str| format!("computation `{name}`: {what}");
        if self.what.names {
            check(name == self.b.str(y.name), || {
                place(&format!("is called `{}`", self.b.str(y.name)))
            })?;
        }
        check(x.instrs.len() == y.instrs.len(), || {
            place(&format!("instructions: {}, {}", x.instrs.len(), y.instrs.len()))
        })?;
        check(x.params.len() == y.params.len(), || place("parameters"))?;
        check(self.text(x.execution_thread, y.execution_thread), || place("execution thread"))?;
        let mut pairs: Vec<(InstrId, InstrId)> = vec![(x.root, y.root)];
        pairs.extend(x.params.iter().copied().zip(y.params.iter().copied()));
        let mut left = (x.instrs.iter().rev(), y.instrs.iter().rev());
        loop {
            while let Some((i, j)) = pairs.pop() {
                let at = |e: String| {
                    format!("computation `{name}`: instruction `{}`: {e}", self.a.name_of(i))
                };
                match self.instrs[i.0 as usize] {
                    Some(k) if k == j => continue,
                    Some(k) => {
                        let (j, k) = (self.b.name_of(j), self.b.name_of(k));
                        return Err(at(format!("is both `{k}` and `{j}`")));
                    }
                    None if self.taken[j.0 as usize] => {
                        return Err(at(format!("`{}` has two counterparts", self.b.name_of(j))));
                    }
                    None => {}
                }
                self.instr(i, j).map_err(at)?;
                self.instrs[i.0 as usize] = Some(j);
                self.taken[j.0 as usize] = true;
                let (p, q) = (self.a.instr(i), self.b.instr(j));
                pairs.extend(p.operands.iter().copied().zip(q.operands.iter().copied()));
                todo.extend(p.calls.iter().copied().zip(q.calls.iter().copied()));
            }
            // What no root reaches, last first.
            let i = left.0.find(|i| self.instrs[i.0 as usize].is_none());
            let j = left.1.find(|j| !self.taken[j.0 as usize]);
            match (i, j) {
                (Some(&i), Some(&j)) => pairs.push((i, j)),
                _ => break,
            }
        }
        for &i in &x.instrs {
            self.control(i).map_err(|e| place(&format!("`{}`: {e}", self.a.name_of(i))))?;
        }
        Ok(())
    }

    fn control(&self, i: InstrId) -> Same {
        let Some(j) = self.instrs[i.0 as usize] else { return Ok(()) };
        let of = |m: &Module, i: InstrId| match &m.instr(i).extra {
            Some(e) => e.control_predecessors.clone(),
            None => Vec::new(),
        };
        let there: Vec<_> = of(self.a, i).iter().map(|p| self.instrs[p.0 as usize]).collect();
        let here: Vec<_> = of(self.b, j).into_iter().map(Some).collect();
        check(there == here, || "control predecessors".to_owned())
    }

    fn instr(&self, i: InstrId, j: InstrId) -> Same {
        let (x, y) = (self.a.instr(i), self.b.instr(j));
        if self.what.names {
            let (n, m) = (self.a.str(x.name), self.b.str(y.name));
            check(n == m, || format!("is called `{m}`"))?;
        }
        check(x.opcode == y.opcode, || format!("opcode: {}, {}", x.opcode, y.opcode))?;
        let (s, t) = (self.a.shape(i), self.b.shape(j));
        check(shapes(s, t), || format!("shape: {s:?}, {t:?}"))?;
        check(x.operands.len() == y.operands.len(), || "number of operands".to_owned())?;
        check(x.calls.len() == y.calls.len(), || "number of called computations".to_owned())?;
        check(self.attrs(&x.attrs, &y.attrs), || {
            format!("attributes: {:?}, {:?}", x.attrs, y.attrs)
        })?;
        let none = Extra::default();
        let e = x.extra.as_deref().unwrap_or(&none);
        let f = y.extra.as_deref().unwrap_or(&none);
        self.extra(e, f)?;
        check(!self.what.sources || self.meta(x.metadata, y.metadata), || {
            let of = |m: &Module, i: Option<MetaId>| i.map(|i| m.metadata[i.0 as usize].clone());
            format!("metadata: {:?}, {:?}", of(self.a, x.metadata), of(self.b, y.metadata))
        })
    }

    fn extra(&self, e: &Extra, f: &Extra) -> Same {
        check(self.shardings(&e.sharding, &f.sharding), || {
            format!("sharding: {:?}, {:?}", e.sharding, f.sharding)
        })?;
        check(self.pairs(&e.frontend, &f.frontend), || "frontend attributes".to_owned())?;
        let config = match (&e.backend_config, &f.backend_config) {
            (Some(p), Some(q)) => self.text(Some(p.text), Some(q.text)) && p.quoted == q.quoted,
            (p, q) => p.is_none() && q.is_none(),
        };
        check(config, || "backend_config".to_owned())?;
        check(e.parameter_replication == f.parameter_replication, || {
            "parameter_replication".to_owned()
        })?;
        check(!self.what.rest || self.other(&e.other, &f.other), || "other attributes".to_owned())
    }

    fn attrs(&self, a: &Attrs, b: &Attrs) -> bool {
        match (a, b) {
            (Attrs::Constant(x), Attrs::Constant(y)) => literals(x, y),
            (Attrs::CustomCall(x), Attrs::CustomCall(y)) => {
                let strip = |c: &crate::CustomCallAttrs| {
                    let mut c = c.clone();
                    c.operand_layouts.clear();
                    c
                };
                let (mut p, mut q) = (Attrs::CustomCall(Box::new(strip(x))), b.clone());
                if let Attrs::CustomCall(c) = &mut q {
                    c.operand_layouts.clear();
                }
                let (v, w) = (&x.operand_layouts, &y.operand_layouts);
                self.symbols(&mut p, &mut q)
                    && p == q
                    && v.len() == w.len()
                    && v.iter().zip(w).all(|(s, t)| shapes(s, t))
            }
            _ => {
                let (mut p, mut q) = (a.clone(), b.clone());
                self.symbols(&mut p, &mut q) && p == q
            }
        }
    }

    /// Takes the symbols out of both and compares their texts.
    fn symbols(&self, a: &mut Attrs, b: &mut Attrs) -> bool {
        let texts = |m: &Module, v: Vec<Option<Symbol>>| -> Vec<Option<String>> {
            v.into_iter().map(|s| s.map(|s| squeeze(m.str(s)))).collect()
        };
        texts(self.a, take_symbols(a)) == texts(self.b, take_symbols(b))
    }
}

/// All symbols of the attributes, each replaced by a fixed one.
fn take_symbols(a: &mut Attrs) -> Vec<Option<Symbol>> {
    fn one(s: &mut Symbol) -> Option<Symbol> {
        Some(std::mem::replace(s, Symbol(0)))
    }
    let mut out = Vec::new();
    match a {
        Attrs::Dot(d) => {
            out.extend(d.precision.iter_mut().map(one));
            out.extend([d.algorithm.take(), d.sparsity.take()]);
        }
        Attrs::Conv(c) => out.extend(c.precision.iter_mut().map(one)),
        Attrs::Collective(c) => {
            out.push(c.rest.take());
            if let ReplicaGroups::Mesh(m) = &mut c.groups {
                out.extend(m.axes.iter_mut().map(|a| one(&mut a.0)));
            }
        }
        Attrs::Fusion { kind } => out.push(one(kind)),
        Attrs::CustomCall(c) => {
            out.push(one(&mut c.target));
            let rest = [&mut c.opaque, &mut c.api_version, &mut c.schedule, &mut c.aliasing];
            out.extend(rest.into_iter().map(Option::take));
            out.push(c.rest.take());
        }
        Attrs::Async { thread, .. } => out.push(thread.take()),
        Attrs::FeedConfig(s) | Attrs::Domain(s) => out.push(one(s)),
        _ => {}
    }
    out
}
