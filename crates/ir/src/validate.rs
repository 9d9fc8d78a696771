//! Checks a whole module and reports what is wrong with it.
//!
//! A module without reports satisfies:
//!
//! **Structure**
//! 1. Ids (instructions, computations, shapes, symbols) are in range.
//! 2. Every instruction belongs to exactly one computation, and names are
//!    unique within it.
//! 3. Operands belong to the same computation and stand before their users;
//!    control predecessors belong to the same computation.
//! 4. Callees stand before callers: the call graph has no cycle.
//! 5. Parameters are numbered 0..n, each once, and listed in that order.
//! 6. The root belongs to its computation; the entry exists.
//!
//! **Values**
//!
//! 7. Sizes are 0 or more, or unbounded; ranks are at most 64; element counts
//!    fit 63 bits; layouts order each dimension once.
//! 8. A constant's bytes match its shape.
//! 9. Each instruction has legal operands, attributes and callee signatures,
//!    and its shape is the inferred one (see [`crate::infer`]) up to layout
//!    and dynamic flags.
//!
//! **Devices**
//!
//! 10. Replica groups are not empty, of equal size (all-reduce excepted), and
//!     name each of 0..n once; n is the number of devices where the header
//!     tells it. `use_global_device_ids` comes with a channel id and groups.
//! 11. A collective-permute names no source and no target twice.
//!
//! **Pairs**
//!
//! 12. The done (or update) form of an asynchronous instruction takes its
//!     start (or update) form; asynchronous computations are one operation on
//!     their parameters.
//! 13. The entry layout agrees with the entry's parameters and result (a
//!     warning).
//!
//! Not checked: shardings, aliasing, memory spaces, tiles, threads, schedules.

use crate::attrs::Attrs;
use crate::devices;
use crate::infer::{self, InferError};
use crate::literal::{Literal, LiteralData};
use crate::module::{CompId, Computation, InstrId, Module};
use crate::shape::{ArrayShape, Shape};
use crate::source::Span;
use crate::{GroupMode, Opcode, ReplicaGroups};

/// What [`validate`] admits.
#[derive(Clone, Debug)]
pub struct ValidateOptions {
    /// Stops after this many reports.
    pub max_reports: usize,
    /// Operands may differ from each other and results from the inferred shape
    /// in float precision, as inside of a bf16 propagation pipeline.
    pub mixed_precision: bool,
}

impl Default for ValidateOptions {
    fn default() -> Self {
        ValidateOptions { max_reports: 64, mixed_precision: false }
    }
}

/// How much a broken invariant matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The module has no meaning.
    Error,
    /// The module has a meaning, the header contradicts it. Seen where a body
    /// was cut out of a larger module.
    Warning,
}

/// One broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// Error or warning.
    pub severity: Severity,
    /// The instruction at fault, if it is one.
    pub instr: Option<InstrId>,
    /// The computation it is in, or at fault itself.
    pub comp: Option<CompId>,
    /// Where that stands in the file.
    pub span: Span,
    /// What was found.
    pub message: String,
    /// What would have been legal.
    pub expected: String,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; expected {}", self.message, self.expected)
    }
}

/// Checks the invariants listed at the head of this file. Empty if all hold.
/// Linear in the size of the module.
pub fn validate(m: &Module, options: &ValidateOptions) -> Vec<Invalid> {
    let mut v = Validator {
        m,
        options,
        out: Vec::new(),
        owner: vec![NONE; m.instrs.len()],
        named: vec![NONE; m.strings.len()],
        last_groups: None,
    };
    v.run();
    v.out
}

const NONE: u32 = u32::MAX;

struct Validator<'a> {
    m: &'a Module,
    options: &'a ValidateOptions,
    out: Vec<Invalid>,
    /// Computation of each instruction met so far.
    owner: Vec<u32>,
    /// Last computation that used a symbol as an instruction name.
    named: Vec<u32>,
    /// Groups that passed last: neighbours often share them.
    last_groups: Option<(GroupMode, bool, &'a ReplicaGroups)>,
}

impl<'a> Validator<'a> {
    fn full(&self) -> bool {
        self.out.len() >= self.options.max_reports
    }

    #[cold]
    fn report(&mut self, instr: Option<InstrId>, comp: Option<CompId>, e: InferError) {
        if self.full() {
            return;
        }
        let span = match (instr, comp) {
            (Some(i), _) => self.m.instrs.get(i.0 as usize).map(|i| i.span),
            (_, Some(c)) => self.m.comps.get(c.0 as usize).map(|c| c.span),
            _ => None,
        };
        self.out.push(Invalid {
            severity: Severity::Error,
            instr,
            comp,
            span: span.unwrap_or_default(),
            message: e.message.into_owned(),
            expected: e.expected.into_owned(),
        });
    }

    #[cold]
    fn at_comp(&mut self, c: CompId, message: String, expected: &'static str) {
        self.report(None, Some(c), InferError::new(message, expected));
    }

    #[cold]
    fn at_instr(&mut self, c: CompId, i: InstrId, message: String, expected: &'static str) {
        self.report(Some(i), Some(c), InferError::new(message, expected));
    }

    fn run(&mut self) {
        let m = self.m;
        let bad_shapes: Vec<(usize, InferError)> = m
            .shapes
            .iter()
            .enumerate()
            .filter_map(|(i, s)| check_shape(s).err().map(|e| (i, e)))
            .collect();
        if m.comps.get(m.entry.0 as usize).is_none() {
            let message = format!("entry computation id {}", m.entry.0);
            self.report(None, None, InferError::new(message, "a computation of the module"));
        }
        for (k, comp) in m.comps.iter().enumerate() {
            let c = CompId(k as u32);
            // Rules on shapes index freely, so they run on sound structure only.
            let before = self.out.len();
            self.structure(c, comp);
            if self.out.len() == before {
                for &id in &comp.instrs {
                    if self.full() {
                        return;
                    }
                    let shape = m.instr(id).shape.0 as usize;
                    match bad_shapes.binary_search_by_key(&shape, |b| b.0) {
                        Ok(k) => self.report(Some(id), Some(c), bad_shapes[k].1.clone()),
                        Err(_) => self.instruction(c, id),
                    }
                }
            }
            if self.full() {
                return;
            }
        }
        if let Some(i) = self.owner.iter().position(|&o| o == NONE) {
            let message = format!("instruction id {i} is in no computation");
            let e = InferError::new(message, "each instruction in exactly one computation");
            self.report(Some(InstrId(i as u32)), None, e);
        }
        self.entry_layout();
    }

    fn structure(&mut self, c: CompId, comp: &Computation) {
        let m = self.m;
        if comp.name.0 as usize >= m.strings.len() {
            self.at_comp(c, format!("symbol id {}", comp.name.0), "a string of the module");
        }
        let mut params = 0usize;
        for &id in &comp.instrs {
            if self.full() {
                return;
            }
            let k = id.0 as usize;
            let Some(i) = m.instrs.get(k) else {
                self.at_comp(c, format!("instruction id {k}"), "an instruction of the module");
                return;
            };
            if self.owner[k] != NONE {
                let message = format!("{} is listed again", self.name(id));
                self.at_instr(c, id, message, "each instruction in exactly one computation");
                continue;
            }
            self.owner[k] = c.0;
            if m.shapes.get(i.shape.0 as usize).is_none() {
                let message = format!("shape id {}", i.shape.0);
                self.at_instr(c, id, message, "a shape of the module");
            }
            match self.named.get_mut(i.name.0 as usize) {
                None => {
                    let message = format!("symbol id {}", i.name.0);
                    self.at_instr(c, id, message, "a string of the module");
                }
                Some(last) => {
                    let again = *last == c.0;
                    *last = c.0;
                    if again {
                        let message = format!("the name {} occurs again", self.name(id));
                        self.at_instr(c, id, message, "unique names within a computation");
                    }
                }
            }
            for &o in &i.operands {
                // Owners are set in list order: a later operand has none yet.
                if self.owner.get(o.0 as usize) != Some(&c.0) || o == id {
                    let message = format!("operand {} of {}", self.name(o), self.name(id));
                    self.at_instr(
                        c,
                        id,
                        message,
                        "an instruction of the same computation that stands before its user",
                    );
                }
            }
            for &f in &i.calls {
                if f.0 >= c.0 {
                    let message = format!("{} calls computation id {}", self.name(id), f.0);
                    self.at_instr(c, id, message, "a computation that stands before its caller");
                }
            }
            if i.opcode == Opcode::Parameter {
                params += 1;
                let listed = match i.attrs {
                    Attrs::Parameter(n) => comp.params.get(n as usize) == Some(&id),
                    _ => false,
                };
                if !listed {
                    let message = format!("{} is not the parameter of its number", self.name(id));
                    self.at_instr(c, id, message, "parameters numbered 0..n, each once");
                }
            }
        }
        let here = |v: &Self, i: InstrId| v.owner.get(i.0 as usize) == Some(&c.0);
        let listed =
            comp.params.iter().all(|&p| here(self, p) && m.instr(p).opcode == Opcode::Parameter);
        if !listed || params != comp.params.len() {
            let message = format!("{params} parameters, {} listed", comp.params.len());
            self.at_comp(c, message, "parameters numbered 0..n, each once");
        }
        if !here(self, comp.root) {
            self.at_comp(c, format!("root {}", self.name(comp.root)), "a root in the computation");
        }
        for &id in &comp.instrs {
            let Some(x) = m.instrs.get(id.0 as usize).and_then(|i| i.extra.as_deref()) else {
                continue;
            };
            for &p in &x.control_predecessors {
                if !here(self, p) || p == id {
                    let message = format!("control predecessor {}", self.name(p));
                    self.at_instr(c, id, message, "another instruction of the same computation");
                }
            }
        }
    }

    fn name(&self, id: InstrId) -> String {
        let i = self.m.instrs.get(id.0 as usize);
        match i.filter(|i| (i.name.0 as usize) < self.m.strings.len()) {
            Some(i) => format!("%{}", self.m.str(i.name)),
            None => format!("id {}", id.0),
        }
    }

    fn instruction(&mut self, c: CompId, id: InstrId) {
        let m = self.m;
        if let Err(e) = infer::check(m, id, self.options.mixed_precision) {
            self.report(Some(id), Some(c), e);
            return;
        }
        let i = m.instr(id);
        let result = match &i.attrs {
            Attrs::Constant(l) => check_literal(l),
            Attrs::Collective(a) => self.collective(id, a),
            _ => check_pair(m, id),
        };
        if let Err(e) = result {
            self.report(Some(id), Some(c), e);
        }
    }

    fn collective(&mut self, id: InstrId, a: &'a crate::CollectiveAttrs) -> Result<(), InferError> {
        let i = self.m.instr(id);
        let mode = devices::group_mode(i.opcode, a)?;
        if matches!(i.opcode, Opcode::CollectivePermute | Opcode::CollectivePermuteStart) {
            let times = infer::collective::permute_slices(self.m, &i.operands);
            return devices::check_pairs(self.m, mode, &a.pairs, times);
        }
        let uniform = !matches!(
            i.opcode,
            Opcode::AllReduce | Opcode::AllReduceStart | Opcode::CollectiveBroadcast
        );
        if self.last_groups != Some((mode, uniform, &a.groups)) {
            devices::check_groups(self.m, mode, &a.groups, uniform)?;
            self.last_groups = Some((mode, uniform, &a.groups));
        }
        Ok(())
    }

    fn entry_layout(&mut self) {
        let m = self.m;
        let Some((params, result)) = &m.header.entry_layout else { return };
        let Some(comp) = m.comps.get(m.entry.0 as usize) else { return };
        if self.out.iter().any(|e| e.comp == Some(m.entry)) {
            return;
        }
        let before = self.out.len();
        if params.len() != comp.params.len() {
            let message =
                format!("entry layout of {} parameters for {}", params.len(), comp.params.len());
            self.at_comp(m.entry, message, "as many as the entry computation has");
        } else {
            let pairs = params.iter().zip(comp.params.iter().copied());
            let mut wrong = pairs
                .chain(std::iter::once((result, comp.root)))
                .filter(|(s, id)| !infer::compatible(s, m.shape(*id), false));
            if let Some((s, id)) = wrong.next() {
                let message = format!(
                    "entry layout {s} for {} of {} (and {} more differ)",
                    self.name(id),
                    m.shape(id),
                    wrong.count()
                );
                self.at_instr(m.entry, id, message, "the shapes of the entry computation");
            }
        }
        for e in &mut self.out[before..] {
            e.severity = Severity::Warning;
        }
    }
}

fn check_shape(s: &Shape) -> Result<(), InferError> {
    match s {
        Shape::Array(a) => check_array(a),
        Shape::Tuple(t) => t.iter().try_for_each(check_shape),
        Shape::Buffer(b) => check_shape(b),
        Shape::Token | Shape::Opaque => Ok(()),
    }
}

fn check_array(a: &ArrayShape) -> Result<(), InferError> {
    let bad = |expected: &'static str| Err(InferError::new(format!("shape {a}"), expected));
    if a.dims.iter().any(|&d| d < 0 && d != Shape::UNBOUNDED) {
        return bad("sizes of 0 or more");
    }
    if a.rank() > 64 || (a.rank() < 64 && a.dynamic >> a.rank() != 0) {
        return bad("at most 64 dimensions, dynamic flags only on those");
    }
    // An empty array still needs strides.
    let fits = a.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(1)));
    if fits.and_then(|n| n.checked_mul(16)).is_none() {
        return bad("fewer than 2^59 elements");
    }
    if let Some(l) = &a.layout {
        let order = &l.minor_to_major;
        if order.len() != a.rank() || !infer::distinct(order, a.rank()) {
            let message = format!("layout {order:?} of {a}");
            return Err(InferError::new(message, "a layout that orders each dimension once"));
        }
    }
    Ok(())
}

fn check_literal(l: &Literal) -> Result<(), InferError> {
    match (&l.data, &l.shape) {
        (LiteralData::Elided, _) => Ok(()),
        (LiteralData::Dense(b), Shape::Array(a)) => {
            let n = a.elements().and_then(|n| n.checked_mul(a.dtype.literal_bytes() as i64));
            if n == Some(b.len() as i64) {
                return Ok(());
            }
            let want = n.map_or_else(|| "a bounded shape".into(), |n| format!("{n} bytes for {a}"));
            Err(InferError::new(format!("a constant of {} bytes", b.len()), want))
        }
        (LiteralData::Tuple(v), Shape::Tuple(t)) if v.len() == t.len() => {
            for (l, s) in v.iter().zip(t) {
                if !infer::compatible(&l.shape, s, false) {
                    let message = format!("an element of shape {}", l.shape);
                    return Err(InferError::new(message, s.to_string()));
                }
                check_literal(l)?;
            }
            Ok(())
        }
        (_, s) => Err(InferError::new("a constant of another form", format!("a value of {s}"))),
    }
}

/// Start, update and done forms belong together.
fn check_pair(m: &Module, id: InstrId) -> Result<(), InferError> {
    use Opcode::*;
    let i = m.instr(id);
    let starts: &[Opcode] = match i.opcode {
        AllGatherDone => &[AllGatherStart],
        AllReduceDone => &[AllReduceStart],
        AsyncDone | AsyncUpdate => &[AsyncStart, AsyncUpdate],
        CollectivePermuteDone => &[CollectivePermuteStart],
        CopyDone => &[CopyStart],
        RecvDone => &[Recv, GetTupleElement],
        SendDone => &[Send, GetTupleElement],
        AsyncStart => return check_async_body(m, id),
        _ => return Ok(()),
    };
    let Some(&o) = i.operands.first() else { return Ok(()) };
    let op = m.instr(o);
    if !starts.contains(&op.opcode) {
        let names: Vec<_> = starts.iter().map(|s| s.name()).collect();
        let message = format!("{} of {}", i.opcode, op.opcode);
        return Err(InferError::new(message, names.join(" or ")));
    }
    if i.opcode == AsyncDone || i.opcode == AsyncUpdate {
        let same =
            i.calls.is_empty() || i.calls == op.calls || same_wrapped(m, &i.calls, &op.calls);
        if !same {
            return Err(InferError::new(
                format!("{} of another computation", i.opcode),
                "the computation of its operand",
            ));
        }
    }
    Ok(())
}

/// Distinct computations may wrap the same operation.
fn same_wrapped(m: &Module, a: &[CompId], b: &[CompId]) -> bool {
    let op = |c: &[CompId]| {
        let root = m.comps.get(c.first()?.0 as usize)?.root;
        Some(m.instrs.get(root.0 as usize)?.opcode)
    };
    a.len() == b.len() && op(a) == op(b)
}

fn check_async_body(m: &Module, id: InstrId) -> Result<(), InferError> {
    let comp = m.instr(id).calls.first().and_then(|c| m.comps.get(c.0 as usize));
    let Some(comp) = comp else { return Ok(()) };
    let parameter =
        |i: &InstrId| m.instrs.get(i.0 as usize).is_some_and(|i| i.opcode == Opcode::Parameter);
    if comp.instrs.iter().all(|i| *i == comp.root || parameter(i)) {
        return Ok(());
    }
    let message =
        format!("asynchronous computation {} of several operations", infer::text(m, comp.name));
    Err(InferError::new(message, "one operation on the parameters"))
}
