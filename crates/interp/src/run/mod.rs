//! The machine: runs a computation on all devices in lock-step.

mod collective;
mod control;
mod custom;
mod exec;
mod lift;
mod multi;
mod plan;
mod region;
mod scan;
mod sharding;
mod single;

pub use single::Stepper;

use crate::error::{Fail, Limit, RunError};
use crate::tensor::{Data, Tensor, Value, count};
use multi::Multi;
use plan::{Plan, Role};
use rustc_hash::FxHashMap;
use scalify_ir::{CompId, InstrId, Module, Opcode, Shape};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What floats are computed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Accumulate {
    /// Each operation rounds to its element type; types below `f32` are
    /// computed in `f32`, dots accumulate in `f32` (`f64` for `f64`).
    #[default]
    Plain,
    /// Every float is held in `f64` (complex in `c128`) and never rounded to
    /// its element type. Integers and `pred` keep their meaning; a
    /// `bitcast-convert` of a float sees it rounded.
    F64,
}

/// Sees every value: (device, instruction, value).
pub type Trace<'t> = &'t mut dyn FnMut(usize, InstrId, &Value);

/// Options of [`run`].
pub struct RunOptions<'t> {
    /// Number of replicas.
    pub replicas: usize,
    /// Number of partitions. Device `d` is partition `d % partitions` of
    /// replica `d / partitions`.
    pub partitions: usize,
    /// Bytes that values may take at one time (an estimate: buffers shared by
    /// several values may count more than once).
    pub memory_limit: u64,
    /// Wall time; ten minutes by default, since a program may loop forever.
    pub time_limit: Option<Duration>,
    /// Instructions executed, each counted once for all devices.
    pub step_limit: Option<u64>,
    /// What floats are computed in.
    pub accumulate: Accumulate,
    /// With [`Accumulate::F64`]: a seed by which every result of float
    /// arithmetic moves by at most a unit in its last place, at random. How
    /// far results of several seeds lie apart estimates what rounding does to
    /// them (Monte Carlo arithmetic, Parker 1997).
    pub jitter: Option<u64>,
    /// Called after every instruction, per device in order.
    pub trace: Option<Trace<'t>>,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        RunOptions {
            replicas: 1,
            partitions: 1,
            memory_limit: 8 << 30,
            time_limit: Some(Duration::from_secs(600)),
            step_limit: None,
            accumulate: Accumulate::Plain,
            jitter: None,
            trace: None,
        }
    }
}

/// Depth of nested computations.
const MAX_DEPTH: usize = 200;

/// Runs `comp` (the entry if `None`) on `replicas * partitions` devices.
/// `inputs[d]` are the arguments of device `d`; arguments that several
/// devices share (same storage) are computed with once.
///
/// # Errors
/// [`RunError`]; the module is not assumed to be valid.
pub fn run(
    module: &Module,
    comp: Option<CompId>,
    inputs: &[Vec<Value>],
    options: RunOptions<'_>,
) -> Result<Vec<Value>, RunError> {
    let devices = options.replicas.saturating_mul(options.partitions);
    let comp = comp.unwrap_or(module.entry);
    let bad = |s: String| Err(RunError::Inputs(s));
    if devices == 0 || inputs.len() != devices {
        return bad(format!("{} argument lists for {devices} devices", inputs.len()));
    }
    let Some(c) = module.comps.get(comp.0 as usize) else {
        return bad(format!("no computation {}", comp.0));
    };
    let wide = options.accumulate == Accumulate::F64;
    for (d, list) in inputs.iter().enumerate() {
        if list.len() != c.params.len() {
            return bad(format!(
                "device {d}: {} arguments for {} parameters",
                list.len(),
                c.params.len()
            ));
        }
        for (k, (v, &p)) in list.iter().zip(&c.params).enumerate() {
            let Some(i) = module.instrs.get(p.0 as usize) else {
                return bad(format!("parameter {k} has no instruction"));
            };
            let shape = module.shapes.get(i.shape.0 as usize);
            if !shape.is_some_and(|s| fits(v, s)) {
                return bad(format!("device {d}: argument {k} has not the shape of its parameter"));
            }
        }
    }
    check_ids(module)?;
    let mut m = Machine {
        module,
        local: positions(module),
        plans: FxHashMap::default(),
        constants: FxHashMap::default(),
        replicas: options.replicas,
        partitions: options.partitions,
        wide,
        deadline: options.time_limit.and_then(|t| Instant::now().checked_add(t)),
        memory_limit: options.memory_limit,
        step_limit: options.step_limit.unwrap_or(u64::MAX),
        steps: 0,
        live: 0,
        depth: 0,
        rng_state: 0,
        jitter: options.jitter.filter(|_| wide),
        trace: options.trace,
    };
    let args = (0..c.params.len())
        .map(|k| {
            let per: Vec<Value> = inputs.iter().map(|l| l[k].clone()).collect();
            let m = Multi::from_vec(per);
            if wide { m.map(&|v| v.map_tensors(&Tensor::widened)) } else { m }
        })
        .collect();
    let active: Active = (0..devices).collect();
    let out = m.computation(comp, args, &active)?;
    Ok((0..devices).map(|d| out.get(d).clone()).collect())
}

/// Position of each instruction in its computation.
fn positions(module: &Module) -> Vec<u32> {
    let mut local = vec![u32::MAX; module.instrs.len()];
    for c in &module.comps {
        for (k, id) in c.instrs.iter().enumerate() {
            if let Some(l) = local.get_mut(id.0 as usize) {
                *l = k as u32;
            }
        }
    }
    local
}

/// Every id in the module points at something: later code indexes by them.
fn check_ids(m: &Module) -> Result<(), RunError> {
    let (n, comps) = (m.instrs.len(), m.comps.len());
    let instr = |i: &InstrId| (i.0 as usize) < n;
    for i in &m.instrs {
        let ok = (i.shape.0 as usize) < m.shapes.len()
            && i.operands.iter().all(instr)
            && i.calls.iter().all(|c| (c.0 as usize) < comps);
        if !ok {
            return Err(RunError::Invalid {
                instr: m.str(i.name).to_string(),
                opcode: i.opcode,
                what: "an id points at nothing".into(),
            });
        }
    }
    let whole =
        |c: &scalify_ir::Computation| c.instrs.iter().chain(&c.params).chain([&c.root]).all(instr);
    match m.comps.iter().find(|c| !whole(c)) {
        Some(c) => {
            Err(RunError::Inputs(format!("computation {} names no instruction", m.str(c.name))))
        }
        None => Ok(()),
    }
}

/// Value of this shape? Layouts do not matter.
fn fits(v: &Value, s: &Shape) -> bool {
    match (v, s) {
        (Value::Tensor(t), Shape::Array(a)) => {
            t.dtype == a.dtype && t.dims == a.dims && count(&t.dims) == Some(t.len())
        }
        (Value::Tuple(v), Shape::Tuple(s)) => {
            v.len() == s.len() && v.iter().zip(s).all(|(v, s)| fits(v, s))
        }
        (Value::Token, Shape::Token | Shape::Opaque) => true,
        (v, Shape::Buffer(s)) => fits(v, s),
        _ => false,
    }
}

/// The devices that execute a computation, ascending.
type Active = Rc<[usize]>;

struct Machine<'m, 't> {
    module: &'m Module,
    /// Position of each instruction in its computation.
    local: Vec<u32>,
    plans: FxHashMap<CompId, Rc<Plan>>,
    constants: FxHashMap<InstrId, Value>,
    replicas: usize,
    partitions: usize,
    wide: bool,
    deadline: Option<Instant>,
    memory_limit: u64,
    step_limit: u64,
    steps: u64,
    live: u64,
    depth: usize,
    /// State of rng-get-and-update-state, and seed of rng.
    rng_state: u128,
    /// State of the generator of [`RunOptions::jitter`].
    jitter: Option<u64>,
    trace: Option<Trace<'t>>,
}

/// True if results of the operation are rounded, not only moved.
fn rounds(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Add | Subtract
            | Multiply
            | Divide
            | Remainder
            | Power
            | Atan2
            | Exponential
            | ExponentialMinusOne
            | Log
            | LogPlusOne
            | Logistic
            | Tanh
            | Tan
            | Sine
            | Cosine
            | Sqrt
            | Rsqrt
            | Cbrt
            | Erf
            | Dot
            | Convolution
            | Reduce
            | ReduceWindow
            | AllReduce
            | ReduceScatter
            | Fft
            | Cholesky
            | TriangularSolve
    )
}

/// `v` with every element moved by at most a unit in the last place;
/// `state`: of a splitmix64 generator.
fn jittered(v: &Value, state: u64) -> Value {
    v.map_tensors(&|t| {
        let Data::F64(x) = &t.data else { return t.clone() };
        let mut state = state;
        let mut step = |x: &f64| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            match (z ^ (z >> 31)) % 3 {
                _ if *x == 0.0 || !x.is_finite() => *x,
                0 => x.next_down(),
                1 => x.next_up(),
                _ => *x,
            }
        };
        Tensor { data: Data::from_vec(x.iter().map(&mut step).collect::<Vec<_>>()), ..t.clone() }
    })
}

/// Checks the deadline.
fn tick(deadline: Option<Instant>) -> impl FnMut() -> Result<(), Fail> {
    let mut calls = 0u32;
    move || {
        calls = calls.wrapping_add(1);
        match deadline {
            Some(d) if calls.is_multiple_of(16) && Instant::now() > d => {
                Err(Fail::Limit(Limit::Time))
            }
            _ => Ok(()),
        }
    }
}

/// Bytes a value of this shape takes, saturating.
fn bytes(s: &Shape, wide: bool) -> u64 {
    match s {
        Shape::Array(a) => {
            let n = count(&a.dims).map_or(u64::MAX, |n| n as u64);
            let each = match a.dtype.bits() {
                _ if wide && a.dtype.is_float() => 8,
                _ if wide && a.dtype.is_complex() => 16,
                b => b.div_ceil(8) as u64,
            };
            n.saturating_mul(each)
        }
        Shape::Tuple(t) => t.iter().fold(0u64, |n, s| n.saturating_add(bytes(s, wide))),
        Shape::Buffer(b) => bytes(b, wide),
        Shape::Token | Shape::Opaque => 0,
    }
}

/// Results of these share storage with their operands or belong to a nested
/// computation that counted them.
fn aliases(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Parameter
            | Tuple
            | GetTupleElement
            | Copy
            | Reshape
            | Bitcast
            | OptimizationBarrier
            | Domain
            | AddDependency
            | AsyncDone
            | AsyncUpdate
            | AllGatherDone
            | AllReduceDone
            | CollectivePermuteDone
            | CopyStart
            | CopyDone
            | CustomCall
            | AfterAll
    )
}

fn name(m: &Module, id: InstrId) -> String {
    match m.instrs.get(id.0 as usize) {
        Some(i) => m.str(i.name).to_string(),
        None => format!("#{}", id.0),
    }
}

/// A kernel's failure as an error of instruction `id`.
fn failure(m: &Module, id: InstrId, f: Fail) -> RunError {
    let instr = name(m, id);
    let opcode = m.instrs.get(id.0 as usize).map_or(Opcode::Domain, |i| i.opcode);
    match f {
        Fail::Unsupported(what) => RunError::Unsupported { instr, opcode, what },
        Fail::Invalid(what) => RunError::Invalid { instr, opcode, what },
        Fail::Limit(limit) => RunError::Limit { limit, instr },
        Fail::Done(e) => *e,
    }
}

impl<'m> Machine<'m, '_> {
    fn name(&self, id: InstrId) -> String {
        name(self.module, id)
    }

    /// A kernel's failure as an error of instruction `id`.
    fn fail(&self, id: InstrId, f: Fail) -> RunError {
        failure(self.module, id, f)
    }

    fn plan(&mut self, comp: CompId) -> Rc<Plan> {
        if let Some(p) = self.plans.get(&comp) {
            return p.clone();
        }
        let p = Rc::new(Plan::new(self.module, &self.local, comp, self.trace.is_none()));
        self.plans.insert(comp, p.clone());
        p
    }

    /// Executes a computation on the devices of `active`; values are aligned
    /// with it.
    fn computation(
        &mut self,
        comp: CompId,
        args: Vec<Multi>,
        active: &Active,
    ) -> Result<Multi, RunError> {
        let module: &'m Module = self.module;
        let Some(c) = module.comps.get(comp.0 as usize) else {
            return Err(RunError::Inputs(format!("no computation {}", comp.0)));
        };
        if self.depth >= MAX_DEPTH {
            return Err(RunError::Limit { limit: Limit::Depth, instr: self.name(c.root) });
        }
        self.depth += 1;
        let plan = self.plan(comp);
        let before = self.live;
        let mut args: Vec<Option<Multi>> = args.into_iter().map(Some).collect();
        let mut slots: Vec<Option<Multi>> = (0..c.instrs.len()).map(|_| None).collect();
        let mut sizes = vec![0u64; c.instrs.len()];
        for (k, &id) in c.instrs.iter().enumerate() {
            let v = match plan.roles[k] {
                Role::Single => {
                    Some(self.instruction(id, k, &plan, &mut slots, &mut args, &mut sizes, active)?)
                }
                Role::Skip => None,
                Role::Region(r) => {
                    self.region(&plan, r, k, &mut slots, &mut sizes, active)?;
                    None
                }
            };
            for &d in &plan.dead[k] {
                // A value nobody uses dies at once, after the trace saw it.
                slots[d as usize] = None;
                self.live = self.live.saturating_sub(std::mem::take(&mut sizes[d as usize]));
            }
            if v.is_some() && !plan.dead[k].contains(&(k as u32)) {
                slots[k] = v;
            }
        }
        self.depth -= 1;
        self.live = before;
        let root = self.local.get(c.root.0 as usize).map_or(usize::MAX, |&l| l as usize);
        match slots.get_mut(root).and_then(Option::take) {
            Some(v) => Ok(v),
            None => Err(self.fail(c.root, Fail::Invalid("root is not in its computation".into()))),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn instruction(
        &mut self,
        id: InstrId,
        k: usize,
        plan: &Plan,
        slots: &mut [Option<Multi>],
        args: &mut [Option<Multi>],
        sizes: &mut [u64],
        active: &Active,
    ) -> Result<Multi, RunError> {
        let module: &'m Module = self.module;
        let Some(ins) = module.instrs.get(id.0 as usize) else {
            return Err(self.fail(id, Fail::Invalid("no such instruction".into())));
        };
        let Some(shape) = module.shapes.get(ins.shape.0 as usize) else {
            return Err(self.fail(id, Fail::Invalid("no such shape".into())));
        };
        self.steps += 1;
        if self.steps > self.step_limit {
            return Err(self.fail(id, Fail::Limit(Limit::Steps)));
        }
        if self.steps.is_multiple_of(64) && self.deadline.is_some_and(|d| Instant::now() > d) {
            return Err(self.fail(id, Fail::Limit(Limit::Time)));
        }
        // An element of a tuple that lives on, without a copy of the tuple.
        if let (Opcode::GetTupleElement, scalify_ir::Attrs::TupleIndex(i), [o]) =
            (ins.opcode, &ins.attrs, &ins.operands[..])
        {
            let l = self.local.get(o.0 as usize).copied().unwrap_or(u32::MAX);
            let of = slots.get(l as usize).and_then(Option::as_ref);
            let v = of.filter(|_| !plan.dead[k].contains(&l)).and_then(|m| m.element(*i));
            if let Some(v) = v.filter(|v| v.all(|x| fits(x, shape))) {
                self.traced(id, &v, active);
                return Ok(v);
            }
        }
        let mut operands = Vec::with_capacity(ins.operands.len());
        for (j, o) in ins.operands.iter().enumerate() {
            let l = self.local.get(o.0 as usize).copied().unwrap_or(u32::MAX);
            let dies = plan.dead[k].contains(&l) && !ins.operands[j + 1..].contains(o);
            let slot = slots.get_mut(l as usize).filter(|_| (l as usize) < k);
            let v = slot.and_then(|s| if dies { s.take() } else { s.clone() });
            match v {
                Some(v) => operands.push(v),
                None => {
                    let e = format!("operand {j} is not computed before it");
                    return Err(self.fail(id, Fail::Invalid(e)));
                }
            }
        }
        if !aliases(ins.opcode) {
            let copies = if operands.iter().all(Multi::is_same) { 1 } else { active.len() as u64 };
            let need = bytes(shape, self.wide).saturating_mul(copies);
            if self.live.saturating_add(need) > self.memory_limit {
                return Err(self.fail(id, Fail::Limit(Limit::Memory)));
            }
            self.live += need;
            sizes[k] = need;
        }
        let v = if ins.opcode == Opcode::Parameter {
            let n = match ins.attrs {
                scalify_ir::Attrs::Parameter(n) => n as usize,
                _ => usize::MAX,
            };
            match args.get_mut(n).and_then(Option::take) {
                Some(v) => Ok(v),
                None => Err(Fail::Invalid("no such argument".into())),
            }
        } else {
            self.step(id, operands, active)
        };
        let v = match &mut self.jitter {
            Some(state) if rounds(ins.opcode) => {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let state = *state;
                v.map(|v| v.map(&|v| jittered(v, state)))
            }
            _ => v,
        };
        let v = v.map_err(|f| self.fail(id, f))?;
        if !v.all(|x| fits(x, shape)) && !exec::loose(ins.opcode) {
            let e = format!("computed {} where {shape} is declared", describe(v.get(0)));
            return Err(self.fail(id, Fail::Invalid(e)));
        }
        self.traced(id, &v, active);
        Ok(v)
    }

    fn traced(&mut self, id: InstrId, v: &Multi, active: &Active) {
        if let Some(trace) = &mut self.trace {
            for (i, &d) in active.iter().enumerate() {
                trace(d, id, v.get(i));
            }
        }
    }
}

/// Shape of a value, for messages.
pub(crate) fn describe(v: &Value) -> String {
    match v {
        Value::Tensor(t) => {
            let d: Vec<String> = t.dims.iter().map(i64::to_string).collect();
            format!("{}[{}]", t.dtype, d.join(","))
        }
        Value::Tuple(v) => {
            format!("({})", v.iter().map(describe).collect::<Vec<_>>().join(", "))
        }
        Value::Token => "token[]".into(),
    }
}

/// The scalar in a tensor, as an integer.
fn scalar(v: &Value) -> Option<i64> {
    let t = v.as_tensor().filter(|t| t.len() == 1)?;
    t.to_i64()?.first().copied()
}

/// A `u32` scalar.
fn u32_scalar(x: u32) -> Value {
    Value::Tensor(Tensor::raw(scalify_ir::DType::U32, &[], Data::from_vec(vec![x])))
}
