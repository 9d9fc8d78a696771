//! A program as the sequence of operations it executes: calls and fusions
//! entered, loops and conditionals followed, tuples taken apart.
//!
//! A *node* is one execution of an instruction; a *slot* is one array that a
//! node makes. Nodes can be executed again on other operands, alone or in
//! groups ([`Engine`]).

use rustc_hash::FxHashMap;
use scalify_interp::{Accumulate, RunError, RunOptions, Stepper, Tensor, Value};
use scalify_ir::{Attrs, CompId, InstrId, Module, Opcode, Shape};
use std::time::Duration;
use thiserror::Error;

/// An array of a node; index into [`Flow::slots`].
pub type Slot = u32;
/// Index into [`Flow::nodes`].
pub type NodeId = u32;
/// A value of a slot, per device.
pub type PerDevice = Vec<Tensor>;

/// Why a program has no flow.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FlowError {
    /// An instruction failed.
    #[error("{0}")]
    Run(#[from] RunError),
    /// More operations, or bytes of values, than allowed.
    #[error("{0}")]
    Limit(String),
}

/// A value as made of slots.
#[derive(Clone, PartialEq, Debug)]
pub enum Sym {
    /// An array.
    Slot(Slot),
    /// A tuple.
    Tuple(Vec<Sym>),
    /// Carries no data.
    Token,
}

/// One execution of an instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// The instruction.
    pub instr: InstrId,
    /// How many times it was executed before.
    pub visit: u32,
    /// Index into [`Flow::paths`].
    pub path: u32,
    /// Operands; empty for parameters of the entry.
    pub operands: Vec<Sym>,
    /// Its arrays are the slots `slots.0 .. slots.1`.
    pub slots: (Slot, Slot),
}

/// Where a computation was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Path of the caller; the entry's is 0, its own parent.
    pub parent: u32,
    /// The calling instruction; `None` for the entry.
    pub call: Option<InstrId>,
    /// Iteration, for loops.
    pub iteration: Option<u32>,
}

/// Limits of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes.
    pub nodes: usize,
    /// Bytes of all slots over all devices.
    pub bytes: u64,
    /// Wall time of one operation.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { nodes: 200_000, bytes: 4 << 30, time: Duration::from_secs(60) }
    }
}

/// The operations of a run and the values they made.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Operations in the order of execution.
    pub nodes: Vec<Node>,
    /// Node of each slot.
    pub slots: Vec<NodeId>,
    /// Value of each slot on each device.
    pub values: Vec<PerDevice>,
    /// Call paths.
    pub paths: Vec<Path>,
    /// Array leaves of the result.
    pub outputs: Vec<Slot>,
    /// Slots of the entry's parameters, in order of their array leaves.
    pub inputs: Vec<Slot>,
    /// Times each instruction was executed.
    pub visits: Vec<u32>,
    /// Users of each slot.
    pub users: Vec<Vec<NodeId>>,
    /// Slots of instructions that only pass a value on, by visit.
    pub alias: FxHashMap<(InstrId, u32), Slot>,
    /// Nodes by instruction and visit.
    pub index: FxHashMap<(InstrId, u32), NodeId>,
}

/// Array leaves of a symbolic value.
pub fn leaves(s: &Sym, out: &mut Vec<Slot>) {
    match s {
        Sym::Slot(x) => out.push(*x),
        Sym::Tuple(t) => t.iter().for_each(|s| leaves(s, out)),
        Sym::Token => {}
    }
}

impl Node {
    /// Slots it reads.
    pub fn reads(&self) -> Vec<Slot> {
        let mut v = Vec::new();
        self.operands.iter().for_each(|s| leaves(s, &mut v));
        v
    }
}

impl Flow {
    /// The slot of an array-valued instruction at a visit.
    pub fn find(&self, instr: InstrId, visit: u32) -> Option<Slot> {
        if let Some(&s) = self.alias.get(&(instr, visit)) {
            return Some(s);
        }
        let k = self.index.get(&(instr, visit))?;
        let n = self.nodes.get(*k as usize)?;
        (n.slots.1 == n.slots.0 + 1).then_some(n.slots.0)
    }

    /// The node that makes a slot.
    pub fn node_of(&self, s: Slot) -> &Node {
        &self.nodes[self.slots[s as usize] as usize]
    }

    /// Name of a node, with the loops and calls it is in where it is executed
    /// more than once: `while.3[2]/add.5`.
    pub fn name(&self, m: &Module, n: NodeId) -> String {
        let node = &self.nodes[n as usize];
        let mut out = m.name_of(node.instr).to_owned();
        if self.visits.get(node.instr.0 as usize).is_none_or(|&v| v < 2) {
            return out;
        }
        let mut p = node.path;
        for _ in 0..64 {
            let Some(path) = self.paths.get(p as usize) else { break };
            let Some(call) = path.call else { break };
            let it = path.iteration.map(|i| format!("[{i}]")).unwrap_or_default();
            out = format!("{}{it}/{out}", m.name_of(call));
            p = path.parent;
        }
        out
    }

    /// `file:line` of a node: its own innermost frame, else that of the
    /// nearest call site that has one.
    pub fn source(&self, m: &Module, n: NodeId) -> Option<String> {
        let node = &self.nodes[n as usize];
        let one = |i: InstrId| {
            let f = m.frames(i);
            f.first().map(|f| format!("{}:{}", f.file, f.line))
        };
        let mut found = one(node.instr);
        let mut p = node.path;
        for _ in 0..64 {
            if found.is_some() {
                break;
            }
            let path = self.paths.get(p as usize)?;
            found = path.call.and_then(one);
            path.call?;
            p = path.parent;
        }
        found
    }
}

/// Executes nodes of one program, in its own types and in `f64`.
pub struct Engine<'m> {
    /// The program.
    pub module: &'m Module,
    plain: Stepper<'m>,
    wide: Stepper<'m>,
    /// Devices.
    pub devices: usize,
}

/// What floats are computed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Their own types.
    Plain,
    /// `f64`.
    Wide,
}

impl<'m> Engine<'m> {
    /// An engine for a module on `topology` (replicas, partitions).
    ///
    /// # Errors
    /// If the module is not valid.
    pub fn new(
        module: &'m Module,
        topology: (usize, usize),
        limits: Limits,
    ) -> Result<Self, FlowError> {
        let options = |accumulate| RunOptions {
            replicas: topology.0,
            partitions: topology.1,
            accumulate,
            time_limit: Some(limits.time),
            memory_limit: limits.bytes,
            ..RunOptions::default()
        };
        Ok(Engine {
            module,
            plain: Stepper::new(module, &options(Accumulate::Plain))?,
            wide: Stepper::new(module, &options(Accumulate::F64))?,
            devices: topology.0 * topology.1,
        })
    }

    /// Executes an instruction on operands; the arrays it makes.
    ///
    /// # Errors
    /// As of the interpreter.
    pub fn step(
        &mut self,
        instr: InstrId,
        operands: Vec<Vec<Value>>,
        mode: Mode,
    ) -> Result<Vec<PerDevice>, FlowError> {
        let s = if mode == Mode::Wide { &mut self.wide } else { &mut self.plain };
        let v = s.step(instr, operands)?;
        Ok(arrays(&v))
    }

    /// Executes a node on the slots that `get` gives.
    ///
    /// # Errors
    /// As of the interpreter, or if `get` has no value.
    pub fn node(
        &mut self,
        node: &Node,
        mode: Mode,
        get: &dyn Fn(Slot) -> Option<PerDevice>,
    ) -> Result<Vec<PerDevice>, FlowError> {
        let n = self.devices;
        let ops: Option<Vec<Vec<Value>>> =
            node.operands.iter().map(|s| assemble(s, n, get)).collect();
        let ops = ops.ok_or_else(|| FlowError::Limit("an operand is not known".into()))?;
        self.step(node.instr, ops, mode)
    }

    /// Runs the program on `args[device]`.
    ///
    /// # Errors
    /// As of the interpreter, and limits.
    pub fn flow(&mut self, args: &[Vec<Value>], limits: Limits) -> Result<Flow, FlowError> {
        let module = self.module;
        let mut b = Builder {
            e: self,
            limits,
            bytes: 0,
            depth: 0,
            f: Flow {
                nodes: Vec::new(),
                slots: Vec::new(),
                values: Vec::new(),
                paths: vec![Path { parent: 0, call: None, iteration: None }],
                outputs: Vec::new(),
                inputs: Vec::new(),
                visits: vec![0; module.instrs.len()],
                users: Vec::new(),
                alias: FxHashMap::default(),
                index: FxHashMap::default(),
            },
        };
        let params = &module.entry_comp().params;
        let mut syms = Vec::new();
        for (k, &p) in params.iter().enumerate() {
            let per: Vec<Value> =
                args.iter().map(|a| a.get(k).cloned().unwrap_or(Value::Token)).collect();
            let s = b.record(p, 0, Vec::new(), &per)?;
            leaves(&s, &mut b.f.inputs);
            syms.push(s);
        }
        let out = b.comp(module.entry, syms, 0)?;
        let mut f = b.f;
        leaves(&out, &mut f.outputs);
        let mut users = vec![Vec::new(); f.slots.len()];
        for (k, n) in f.nodes.iter().enumerate() {
            for s in n.reads() {
                let u: &mut Vec<NodeId> = &mut users[s as usize];
                if u.last() != Some(&(k as u32)) {
                    u.push(k as u32);
                }
            }
        }
        f.users = users;
        f.index = f.nodes.iter().enumerate().map(|(k, n)| ((n.instr, n.visit), k as u32)).collect();
        Ok(f)
    }

    /// The slots of all nodes again, in another mode, along the path that
    /// `flow` took; inputs are those of `values`.
    ///
    /// # Errors
    /// As of the interpreter.
    pub fn again(
        &mut self,
        flow: &Flow,
        inputs: &[PerDevice],
        mode: Mode,
    ) -> Result<Vec<PerDevice>, FlowError> {
        self.again_with(flow, inputs, mode, &mut |_, v| v)
    }

    /// [`Engine::again`], with what nodes other than inputs make passed
    /// through `change`.
    ///
    /// # Errors
    /// As of the interpreter.
    pub fn again_with(
        &mut self,
        flow: &Flow,
        inputs: &[PerDevice],
        mode: Mode,
        change: &mut dyn FnMut(&Node, Vec<PerDevice>) -> Vec<PerDevice>,
    ) -> Result<Vec<PerDevice>, FlowError> {
        let mut values: Vec<PerDevice> = Vec::with_capacity(flow.values.len());
        for n in &flow.nodes {
            let out = if self.is_input(n) {
                let (a, b) = n.slots;
                inputs[a as usize..b as usize].to_vec()
            } else {
                let v = self.node(n, mode, &|s| values.get(s as usize).cloned())?;
                change(n, v)
            };
            values.extend(out);
        }
        Ok(values)
    }

    /// True for parameters of the entry.
    pub fn is_input(&self, n: &Node) -> bool {
        self.module.instr(n.instr).opcode == Opcode::Parameter
    }
}

/// Arrays in a value per device: per leaf, per device.
fn arrays(v: &[Value]) -> Vec<PerDevice> {
    fn collect(v: &Value, out: &mut Vec<Tensor>) {
        match v {
            Value::Tensor(t) => out.push(t.clone()),
            Value::Tuple(t) => t.iter().for_each(|v| collect(v, out)),
            Value::Token => {}
        }
    }
    let per: Vec<Vec<Tensor>> = v
        .iter()
        .map(|v| {
            let mut out = Vec::new();
            collect(v, &mut out);
            out
        })
        .collect();
    let n = per.first().map_or(0, Vec::len);
    (0..n).map(|k| per.iter().filter_map(|p| p.get(k).cloned()).collect()).collect()
}

/// A symbolic value on all devices.
pub(crate) fn assemble(
    s: &Sym,
    n: usize,
    get: &dyn Fn(Slot) -> Option<PerDevice>,
) -> Option<Vec<Value>> {
    match s {
        Sym::Slot(x) => {
            let v = get(*x)?;
            (v.len() == n).then(|| v.into_iter().map(Value::Tensor).collect())
        }
        Sym::Token => Some(vec![Value::Token; n]),
        Sym::Tuple(t) => {
            let parts: Vec<Vec<Value>> =
                t.iter().map(|s| assemble(s, n, get)).collect::<Option<_>>()?;
            Some(
                (0..n)
                    .map(|d| Value::Tuple(parts.iter().map(|p| p[d].clone()).collect()))
                    .collect(),
            )
        }
    }
}

struct Builder<'e, 'm> {
    e: &'e mut Engine<'m>,
    limits: Limits,
    bytes: u64,
    depth: usize,
    f: Flow,
}

/// Deepest nesting of calls.
const MAX_DEPTH: usize = 100;

impl Builder<'_, '_> {
    fn record(
        &mut self,
        instr: InstrId,
        path: u32,
        operands: Vec<Sym>,
        v: &[Value],
    ) -> Result<Sym, FlowError> {
        let first = self.f.slots.len() as u32;
        let node = self.f.nodes.len() as u32;
        let mut next = first;
        let sym = v.first().map_or(Sym::Token, |v| symbol(v, &mut next));
        for a in arrays(v) {
            let mut last: Option<&Tensor> = None;
            for t in &a {
                if !last.is_some_and(|l| l.data.same(&t.data)) {
                    self.bytes += (t.len() * t.dtype.literal_bytes()) as u64;
                }
                last = Some(t);
            }
            self.f.slots.push(node);
            self.f.values.push(a);
        }
        let visit = &mut self.f.visits[instr.0 as usize];
        *visit += 1;
        let visit = *visit - 1;
        self.f.nodes.push(Node { instr, visit, path, operands, slots: (first, next) });
        if self.f.nodes.len() > self.limits.nodes {
            return Err(FlowError::Limit(format!("more than {} operations", self.limits.nodes)));
        }
        if self.bytes > self.limits.bytes {
            return Err(FlowError::Limit(format!(
                "the values of all operations take more than {} MB",
                self.limits.bytes >> 20
            )));
        }
        Ok(sym)
    }

    fn path(&mut self, parent: u32, call: InstrId, iteration: Option<u32>) -> u32 {
        self.f.paths.push(Path { parent, call: Some(call), iteration });
        self.f.paths.len() as u32 - 1
    }

    fn comp(&mut self, id: CompId, args: Vec<Sym>, path: u32) -> Result<Sym, FlowError> {
        if self.depth >= MAX_DEPTH {
            return Err(FlowError::Limit("calls are nested too deeply".into()));
        }
        self.depth += 1;
        let m = self.e.module;
        let c = m.comp(id);
        let mut env: FxHashMap<InstrId, Sym> = FxHashMap::default();
        for &i in &c.instrs {
            let ins = m.instr(i);
            let mut ops = Vec::with_capacity(ins.operands.len());
            for o in &ins.operands {
                ops.push(env.get(o).cloned().ok_or_else(|| {
                    FlowError::Limit(format!("{}: operand not computed before it", m.name_of(i)))
                })?);
            }
            let v = if ins.opcode == Opcode::Parameter {
                match ins.attrs {
                    Attrs::Parameter(k) => args.get(k as usize).cloned(),
                    _ => None,
                }
                .unwrap_or(Sym::Token)
            } else {
                self.instruction(i, ops, path)?
            };
            env.insert(i, v);
        }
        self.depth -= 1;
        env.remove(&c.root).ok_or_else(|| FlowError::Limit("a computation has no root".into()))
    }

    fn instruction(&mut self, i: InstrId, ops: Vec<Sym>, path: u32) -> Result<Sym, FlowError> {
        use Opcode::*;
        let m = self.e.module;
        let ins = m.instr(i);
        let element = |s: Option<&Sym>, k: usize| match s {
            Some(Sym::Tuple(t)) => t.get(k).cloned(),
            _ => None,
        };
        let direct = match ins.opcode {
            Tuple => Some(Sym::Tuple(ops.clone())),
            GetTupleElement => match ins.attrs {
                Attrs::TupleIndex(k) => {
                    usize::try_from(k).ok().and_then(|k| element(ops.first(), k))
                }
                _ => None,
            },
            Copy | OptimizationBarrier | Domain | AddDependency | AsyncUpdate | AllReduceDone => {
                ops.first().cloned()
            }
            AfterAll => Some(Sym::Token),
            AllGatherDone | CollectivePermuteDone | AsyncDone => element(ops.first(), 1),
            CopyStart => ops.first().map(|v| Sym::Tuple(vec![v.clone(), v.clone(), Sym::Token])),
            CopyDone => element(ops.first(), 0),
            _ => None,
        };
        if let Some(s) = direct {
            let visit = &mut self.f.visits[i.0 as usize];
            *visit += 1;
            if let Sym::Slot(x) = s {
                self.f.alias.insert((i, *visit - 1), x);
            }
            return Ok(s);
        }
        match ins.opcode {
            Call | Fusion | AsyncStart => {
                if let Some(&c) = ins.calls.first() {
                    let p = self.path(path, i, None);
                    let r = self.comp(c, ops.clone(), p)?;
                    return Ok(match ins.opcode {
                        AsyncStart => Sym::Tuple(vec![Sym::Tuple(ops), r]),
                        _ => r,
                    });
                }
            }
            While => {
                if let Some(s) = self.loop_(i, &ops, path)? {
                    return Ok(s);
                }
            }
            Conditional => {
                if let Some(k) = ops.first().and_then(|s| self.uniform(s)) {
                    let n = ins.calls.len();
                    let pred = match ops.first() {
                        Some(Sym::Slot(s)) => self.f.values[*s as usize]
                            .first()
                            .is_some_and(|t| t.dtype == scalify_ir::DType::Pred),
                        _ => false,
                    };
                    let b = if pred {
                        usize::from(k == 0)
                    } else {
                        usize::try_from(k).ok().filter(|&k| k < n).unwrap_or(n.saturating_sub(1))
                    };
                    if let (Some(&c), Some(arg)) = (ins.calls.get(b), ops.get(b + 1)) {
                        let p = self.path(path, i, None);
                        return self.comp(c, vec![arg.clone()], p);
                    }
                }
            }
            _ => {}
        }
        self.whole(i, ops, path)
    }

    /// The instruction as one operation.
    fn whole(&mut self, i: InstrId, ops: Vec<Sym>, path: u32) -> Result<Sym, FlowError> {
        let n = self.e.devices;
        let values = &self.f.values;
        let get = |s: Slot| values.get(s as usize).cloned();
        let args: Option<Vec<Vec<Value>>> = ops.iter().map(|s| assemble(s, n, &get)).collect();
        let args = args.ok_or_else(|| FlowError::Limit("an operand is not known".into()))?;
        let v = self.e.plain.step(i, args)?;
        self.record(i, path, ops, &v)
    }

    /// An integer or truth value that is the same on all devices.
    fn uniform(&self, s: &Sym) -> Option<i64> {
        let Sym::Slot(s) = s else { return None };
        let per = self.f.values.get(*s as usize)?;
        let mut all = per.iter().map(|t| t.to_i64().and_then(|v| v.first().copied()));
        let first = all.next()??;
        all.all(|x| x == Some(first)).then_some(first)
    }

    /// A loop, iteration by iteration; `None` if devices leave it at different
    /// times.
    fn loop_(&mut self, i: InstrId, ops: &[Sym], path: u32) -> Result<Option<Sym>, FlowError> {
        let ins = self.e.module.instr(i);
        let (&[cond, body], [init]) = (&ins.calls[..], ops) else { return Ok(None) };
        let (nodes, slots, paths) = (self.f.nodes.len(), self.f.slots.len(), self.f.paths.len());
        let (visits, bytes) = (self.f.visits.clone(), self.bytes);
        let mut state = init.clone();
        for k in 0.. {
            let p = self.path(path, i, Some(k));
            let go = self.comp(cond, vec![state.clone()], p)?;
            match self.uniform(&go) {
                Some(0) => return Ok(Some(state)),
                Some(_) => state = self.comp(body, vec![state], p)?,
                None => {
                    self.f.nodes.truncate(nodes);
                    self.f.slots.truncate(slots);
                    self.f.values.truncate(slots);
                    self.f.paths.truncate(paths);
                    self.f.visits = visits;
                    self.bytes = bytes;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }
}

/// A value's symbol with fresh slots.
fn symbol(v: &Value, next: &mut Slot) -> Sym {
    match v {
        Value::Tensor(_) => {
            *next += 1;
            Sym::Slot(*next - 1)
        }
        Value::Tuple(t) => Sym::Tuple(t.iter().map(|v| symbol(v, next)).collect()),
        Value::Token => Sym::Token,
    }
}

/// Array leaves of a shape.
pub fn array_leaves(s: &Shape) -> usize {
    s.leaves().iter().filter(|s| s.as_array().is_some()).count()
}
