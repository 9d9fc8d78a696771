//! Computations: ids, order, operands.

use super::{Reader, Stop};
use crate::error::{Flaw, Part, ProtoError, bad, short};
use crate::wire::{Value, fields};
use crate::xla;
use prost::Message;
use rustc_hash::FxHashMap;
use scalify_ir::{
    Attrs, CompId, Computation, Extra, InstrId, Instruction, MetaId, Opcode, ShapeId, Span,
};
use smallvec::SmallVec;

/// A computation with its instructions still encoded.
pub(super) struct Outline<'a> {
    pub(super) id: i64,
    pub(super) name: &'a str,
    root_id: Option<i64>,
    thread: &'a str,
    instrs: Vec<&'a [u8]>,
}

impl Outline<'_> {
    /// Number of instructions.
    pub(super) fn len(&self) -> usize {
        self.instrs.len()
    }
}

/// Fields of an instruction that almost all have.
struct Raw<'a> {
    id: i64,
    name: &'a str,
    opcode: Opcode,
    shape: &'a [u8],
    metadata: &'a [u8],
    /// Ids, then (after [`Reader::order`]) places in the file.
    operands: SmallVec<[i64; 3]>,
    called: SmallVec<[i64; 1]>,
    /// It has other fields.
    more: bool,
    bytes: &'a [u8],
}

/// Field numbers of `HloInstructionProto` that [`Raw`] holds.
mod number {
    pub(super) const NAME: u32 = 1;
    pub(super) const OPCODE: u32 = 2;
    pub(super) const SHAPE: u32 = 3;
    pub(super) const METADATA: u32 = 7;
    pub(super) const LITERAL: u32 = 8;
    pub(super) const ID: u32 = 35;
    pub(super) const OPERANDS: u32 = 36;
    pub(super) const CALLED: u32 = 38;
    pub(super) const SHARDING: u32 = 40;

    /// The field is in [`super::Raw`].
    pub(super) fn is_raw(n: u32) -> bool {
        matches!(n, NAME | OPCODE | SHAPE | METADATA | ID | OPERANDS | CALLED)
    }
}

/// Reads everything but the instructions of every computation.
pub(super) fn outline<'a>(comps: &[&'a [u8]]) -> Result<Vec<Outline<'a>>, ProtoError> {
    let mut out: Vec<Outline<'a>> = Vec::with_capacity(comps.len());
    let mut seen = FxHashMap::default();
    for (i, bytes) in comps.iter().enumerate() {
        let c = outline_one(bytes).map_err(|e| e.at(format!("computation number {i}")))?;
        if let Some(other) = seen.insert(c.id, i) {
            let what = format!("{} is also that of computation `{}`", c.id, out[other].name);
            return Err(Flaw::new("id", what).at(format!("computation `{}`", c.name)));
        }
        out.push(c);
    }
    Ok(out)
}

fn outline_one(bytes: &[u8]) -> Part<Outline<'_>> {
    let mut c = Outline { id: 0, name: "", root_id: None, thread: "", instrs: Vec::new() };
    for f in fields(bytes) {
        let f = f?;
        match f.number {
            1 => c.name = f.value.str("name")?,
            2 => c.instrs.push(f.value.bytes("instructions")?),
            5 => c.id = f.value.int("id")?,
            6 => c.root_id = Some(f.value.int("root_id")?),
            8 => c.thread = f.value.str("execution_thread")?,
            _ => {}
        }
    }
    Ok(c)
}

/// An order of the computations in which callees precede callers.
pub(super) fn callees_first(comps: &[Outline<'_>]) -> Result<Vec<usize>, ProtoError> {
    let index: FxHashMap<i64, usize> = comps.iter().enumerate().map(|(i, c)| (c.id, i)).collect();
    let mut calls: Vec<Vec<i64>> = Vec::with_capacity(comps.len());
    for c in comps {
        let mut ids: SmallVec<[i64; 16]> = SmallVec::new();
        for bytes in &c.instrs {
            for f in fields(bytes).map_while(Result::ok).filter(|f| f.number == number::CALLED) {
                // Faults are reported when the instruction is read.
                let _ = f.value.ints("called_computation_ids", &mut ids);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        calls.push(ids.iter().filter_map(|id| index.get(id).map(|&i| i as i64)).collect());
    }
    post_order(comps.len(), |i| &calls[i]).map_err(|i| {
        let what = "this computation calls itself, directly or through others";
        Flaw::new("called_computation_ids", what).at(format!("computation `{}`", comps[i].name))
    })
}

/// Post-order of a graph of nodes `0..n` from all nodes in turn; `Err` names a node on a
/// cycle.
fn post_order<'g>(n: usize, next: impl Fn(usize) -> &'g [i64]) -> Result<Vec<usize>, usize> {
    const NEW: u8 = 0;
    const OPEN: u8 = 1;
    const DONE: u8 = 2;
    let mut state = vec![NEW; n];
    let mut out = Vec::with_capacity(n);
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for start in 0..n {
        if state[start] == NEW {
            state[start] = OPEN;
            stack.push((start, 0));
        }
        while let Some((node, child)) = stack.last_mut() {
            match next(*node).get(*child) {
                Some(&c) => {
                    let c = c as usize;
                    *child += 1;
                    match state[c] {
                        NEW => {
                            state[c] = OPEN;
                            stack.push((c, 0));
                        }
                        OPEN => return Err(c),
                        _ => {}
                    }
                }
                None => {
                    state[*node] = DONE;
                    out.push(*node);
                    stack.pop();
                }
            }
        }
    }
    Ok(out)
}

fn raw(bytes: &[u8]) -> Part<Raw<'_>> {
    let mut r = Raw {
        id: 0,
        name: "",
        opcode: Opcode::Abs,
        shape: &[],
        metadata: &[],
        operands: SmallVec::new(),
        called: SmallVec::new(),
        more: false,
        bytes,
    };
    let mut opcode = "";
    for f in fields(bytes) {
        let f = f?;
        match f.number {
            number::NAME => r.name = f.value.str("name")?,
            number::OPCODE => opcode = f.value.str("opcode")?,
            number::SHAPE => r.shape = f.value.bytes("shape")?,
            number::METADATA => r.metadata = f.value.bytes("metadata")?,
            number::ID => r.id = f.value.int("id")?,
            number::OPERANDS => f.value.ints("operand_ids", &mut r.operands)?,
            number::CALLED => f.value.ints("called_computation_ids", &mut r.called)?,
            // XLA writes many empty messages, which say nothing, save for a
            // few whose presence counts.
            number::SHARDING => r.more = true,
            _ => r.more |= !matches!(f.value, Value::Len([])),
        }
    }
    match Opcode::from_name(opcode) {
        Some(o) => r.opcode = o,
        None if opcode.is_empty() => return bad("opcode", "missing"),
        None => return bad("opcode", format!("unknown opcode `{opcode}`")),
    }
    Ok(r)
}

impl<'a> Reader<'a> {
    /// Reads a computation whose callees are read.
    pub(super) fn computation(&mut self, c: &Outline<'a>) -> Result<(), Stop> {
        let place = || format!("computation `{}`", c.name);
        let of = |name: &str| format!("instruction `{name}` of computation `{}`", c.name);
        let mut raws = Vec::with_capacity(c.instrs.len());
        self.local.clear();
        self.local.reserve(c.instrs.len());
        self.text_bytes += (c.name.len() + c.thread.len()) as u64;
        for (i, bytes) in c.instrs.iter().enumerate() {
            let r = raw(bytes).map_err(|e| e.at(describe(bytes, i, c.name)))?;
            if self.local.insert(r.id, i as u32).is_some() {
                let what = format!("{} is used twice in the computation", r.id);
                return Err(Flaw::new("id", what).at(of(r.name)).into());
            }
            raws.push(r);
        }
        let order = match self.order(c, &mut raws) {
            Ok(o) => o,
            Err((i, e)) => return Err(e.at(of(raws[i].name)).into()),
        };
        let base = self.m.instrs.len();
        if u32::try_from(base + raws.len()).is_err() {
            return Err(Flaw::new("instructions", "more than 2^32").at(place()).into());
        }
        if order.iter().enumerate().any(|(at, &i)| at as u32 != i) {
            let mut place = vec![0i64; raws.len()];
            for (at, &i) in order.iter().enumerate() {
                place[i as usize] = at as i64;
                self.local.insert(raws[i as usize].id, at as u32);
            }
            for o in raws.iter_mut().flat_map(|r| &mut r.operands) {
                *o = place[*o as usize];
            }
        }
        // From here `local` and the operands are places in the order.
        let mut params: Vec<(i64, InstrId)> = Vec::new();
        for &i in &order {
            let r = &raws[i as usize];
            let id = InstrId(self.m.instrs.len() as u32);
            match self.instruction(r, base as u32) {
                Ok(()) => {}
                Err(None) => return Err(Stop::Order),
                Err(Some(e)) => return Err(e.at(of(r.name)).into()),
            }
            if let Attrs::Parameter(n) = self.m.instr(id).attrs {
                params.push((i64::from(n), id));
            }
        }
        params.sort_unstable();
        if let Some((want, p)) = params.iter().enumerate().find(|(i, p)| *i as i64 != p.0) {
            let what = format!("{} where {want} is expected", p.0);
            return Err(Flaw::new("parameter_number", what).at(of(self.m.name_of(p.1))).into());
        }
        let root = match (c.root_id, raws.len()) {
            (_, 0) => {
                return Err(Flaw::new("instructions", "none").at(place()).into());
            }
            (None, _) => self.local.get(&0),
            (Some(id), _) => self.local.get(&id),
        };
        let Some(&root) = root else {
            let what = format!("no instruction has id {}", c.root_id.unwrap_or(0));
            return Err(Flaw::new("root_id", what).at(place()).into());
        };
        let id = CompId(self.m.comps.len() as u32);
        let thread = if c.thread == "main" { "" } else { c.thread };
        let comp = Computation {
            name: self.sym(c.name),
            instrs: (0..raws.len()).map(|i| InstrId((base + i) as u32)).collect(),
            params: params.into_iter().map(|p| p.1).collect(),
            root: InstrId(base as u32 + root),
            execution_thread: self.opt_sym(thread),
            other: Vec::new(),
            span: Span::default(),
        };
        self.m.comps.push(comp);
        self.comp_ids.insert(c.id, id);
        Ok(())
    }

    /// Order in which operands precede users: that of the schedule, else
    /// that of the file, else a post-order. Turns the ids of operands into
    /// places in the file.
    fn order(&self, c: &Outline<'_>, raws: &mut [Raw<'_>]) -> Result<Vec<u32>, (usize, Flaw)> {
        let n = raws.len();
        let mut sorted = true;
        for (i, r) in raws.iter_mut().enumerate() {
            for id in &mut r.operands {
                match self.local.get(id) {
                    Some(&o) => {
                        sorted &= (o as usize) < i;
                        *id = i64::from(o);
                    }
                    None => {
                        let what = format!("no instruction of the computation has id {id}");
                        return Err((i, Flaw::new("operand_ids", what)));
                    }
                }
            }
        }
        let sequence = self.head.schedule.as_ref().and_then(|s| s.sequences.get(&c.id));
        if let Some(order) = sequence.and_then(|s| self.scheduled(&s.instruction_ids, raws)) {
            return Ok(order);
        }
        if sorted {
            return Ok((0..n as u32).collect());
        }
        match post_order(n, |i| &raws[i].operands) {
            Ok(o) => Ok(o.into_iter().map(|i| i as u32).collect()),
            Err(i) => Err((i, Flaw::new("operand_ids", "the instruction depends on itself"))),
        }
    }

    /// The order of a schedule; `None` if it is not an order of the
    /// instructions with operands first.
    fn scheduled(&self, ids: &[i64], raws: &[Raw<'_>]) -> Option<Vec<u32>> {
        if ids.len() != raws.len() {
            return None;
        }
        let mut done = vec![false; raws.len()];
        let mut out = Vec::with_capacity(ids.len());
        for id in ids {
            let i = *self.local.get(id)? as usize;
            let ready = raws[i].operands.iter().all(|&o| done[o as usize]);
            if done[i] || !ready {
                return None;
            }
            done[i] = true;
            out.push(i as u32);
        }
        Some(out)
    }

    /// Adds an instruction; `Err(None)` if a callee is not read yet.
    fn instruction(&mut self, r: &Raw<'a>, base: u32) -> Result<(), Option<Flaw>> {
        let shape = self.shape(r.shape)?;
        let metadata = self.metadata(r.metadata)?;
        let mut calls: SmallVec<[CompId; 1]> = SmallVec::new();
        for id in &r.called {
            match self.comp_ids.get(id) {
                Some(&c) => calls.push(c),
                None if self.pending.contains_key(id) => return Err(None),
                None => {
                    let what = format!("no computation has id {id}");
                    return Err(Some(Flaw::new("called_computation_ids", what)));
                }
            }
        }
        // The proto lists the body of a loop first.
        if r.opcode == Opcode::While && calls.len() == 2 {
            calls.swap(0, 1);
        }
        self.text_bytes += r.name.len() as u64;
        self.attributes(r)?;
        self.check_text()?;
        let p = self.scratch.take().unwrap_or_default();
        let operands: SmallVec<[InstrId; 3]> =
            r.operands.iter().map(|&o| InstrId(base + o as u32)).collect();
        let attrs = self.attrs(r.opcode, shape, &operands, &p);
        let extra = match r.more {
            true => self.extra(&p).and_then(|e| self.control(&p, base, e)),
            false => Ok(None),
        };
        self.scratch = Some(p);
        let instr = Instruction {
            name: self.sym(r.name),
            opcode: r.opcode,
            shape,
            operands,
            calls,
            attrs: attrs?,
            extra: extra?,
            metadata,
            span: Span::default(),
        };
        self.m.instrs.push(instr);
        Ok(())
    }

    /// Decodes the attributes of `r` into `scratch`.
    fn attributes(&mut self, r: &Raw<'_>) -> Part<()> {
        let scratch = self.scratch.get_or_insert_default();
        if !self.clean {
            scratch.clear();
            self.clean = true;
        }
        if !r.more {
            return Ok(());
        }
        self.rest.clear();
        for f in fields(r.bytes) {
            let f = f?;
            if !number::is_raw(f.number) {
                self.rest.extend_from_slice(f.raw);
                if f.number != number::LITERAL {
                    self.text_bytes += f.raw.len() as u64;
                }
            }
        }
        self.clean = false;
        Ok(scratch.merge(self.rest.as_slice())?)
    }

    fn control(
        &mut self,
        p: &xla::HloInstructionProto,
        base: u32,
        extra: Option<Box<Extra>>,
    ) -> Part<Option<Box<Extra>>> {
        if p.control_predecessor_ids.is_empty() {
            return Ok(extra);
        }
        let mut extra = extra.unwrap_or_default();
        for id in &p.control_predecessor_ids {
            match self.local.get(id) {
                Some(&i) => extra.control_predecessors.push(InstrId(base + i)),
                None => {
                    let what = format!("no instruction of the computation has id {id}");
                    return bad("control_predecessor_ids", what);
                }
            }
        }
        Ok(Some(extra))
    }

    fn shape(&mut self, bytes: &'a [u8]) -> Part<ShapeId> {
        if let Some(&id) = self.shapes.get(bytes) {
            return Ok(id);
        }
        let p = xla::ShapeProto::decode(bytes).map_err(|e| Flaw::new("shape", short(&e)))?;
        let s = super::shape::shape(&p)?;
        let id = self.m.shape_id(s);
        self.shapes.insert(bytes, id);
        Ok(id)
    }

    fn metadata(&mut self, bytes: &'a [u8]) -> Part<Option<MetaId>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if let Some(&id) = self.metas.get(bytes) {
            return Ok(id);
        }
        let p = xla::OpMetadata::decode(bytes).map_err(|e| Flaw::new("metadata", short(&e)))?;
        self.text_bytes += bytes.len() as u64;
        let id = self.meta(&p)?;
        self.metas.insert(bytes, id);
        Ok(id)
    }
}

/// Names an instruction that cannot be read.
fn describe(bytes: &[u8], i: usize, comp: &str) -> String {
    let name = fields(bytes)
        .map_while(Result::ok)
        .find(|f| f.number == number::NAME)
        .and_then(|f| f.value.str("name").ok());
    match name {
        Some(n) => format!("instruction `{n}` of computation `{comp}`"),
        None => format!("instruction number {i} of computation `{comp}`"),
    }
}
