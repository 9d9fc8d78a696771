//! Lifts HLO instructions into terms.
//!
//! A program is walked in order, calls inlined and loops with a constant trip
//! count unrolled; every instruction becomes a [`Tv`]. What cannot be lifted
//! becomes a value nothing is known of (never equal to anything else), with
//! the reason. No lifting looks at the other program.
//!
//! To add an opcode: one arm in [`Lifter::lift_instr`], the semantics in the
//! file of its family.

mod argmax;
mod collective;
mod comp_key;
mod control;
mod convolution;
mod each;
mod elementwise;
mod induction;
pub(crate) mod known;
mod literal;
mod movement;
mod opaque;
mod pad;
mod reduce;
pub(crate) mod regions;
mod scatter;
mod window;

use crate::devices::{Devices, GroupDigits};
use crate::tv::{Tv, TvOps};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_ir::{Attrs, CompId, DType, InstrId, Module, Opcode, ReplicaGroups};
use scalify_terms::{Dt, Lins, Store, Val};
use smallvec::SmallVec;
use std::rc::Rc;

pub(crate) use regions::RegionInfo;

/// A lifted value.
#[derive(Clone, Debug)]
pub enum Lv {
    /// An array.
    T(Tv),
    /// An array on each device (only where devices are lifted one by one).
    Each(Rc<[Tv]>),
    /// A tuple.
    Tuple(Rc<[Lv]>),
    /// A token or a value that carries no data.
    Token,
}

impl Lv {
    /// The array, if it is one.
    pub fn tensor(&self) -> Option<&Tv> {
        match self {
            Lv::T(t) => Some(t),
            _ => None,
        }
    }

    /// Array leaves in order.
    pub fn leaves(&self) -> Vec<Lv> {
        match self {
            Lv::Tuple(t) => t.iter().flat_map(Lv::leaves).collect(),
            other => vec![other.clone()],
        }
    }
}

/// Record of one lifted instruction (once per unrolled iteration and call).
#[derive(Clone, Debug)]
pub struct Lifted {
    /// The instruction.
    pub instr: InstrId,
    /// Call path: index into [`Lifter::paths`].
    pub path: u32,
    /// Positions in [`Lifter::lifted`] of the operands (tuple elements are
    /// traced to the instruction that made them where that is cheap).
    pub operands: SmallVec<[u32; 3]>,
    /// Its value, if an array.
    pub tv: Option<Tv>,
    /// Its values per device, if they are told apart.
    pub each: Option<Rc<[Tv]>>,
    /// Baseline record it equals (index into the baseline's records).
    pub base: Option<u32>,
    /// Why it could not be lifted.
    pub failed: Option<Rc<str>>,
    /// Computed from constants, iotas and device ids alone.
    pub closed: bool,
    /// Not lifted, as its operands are far from any baseline value.
    pub lost: bool,
}

impl Lifted {
    /// Equals a baseline value, or needs no counterpart: it is computed from
    /// constants and device ids alone, or is a tuple of such values.
    pub fn known(&self, all: &[Lifted]) -> bool {
        self.base.is_some()
            || self.closed
            || (self.tv.is_none()
                && self.each.is_none()
                && self.failed.is_none()
                && !self.lost
                && self.operands.iter().all(|&o| all.get(o as usize).is_none_or(|r| r.known(all))))
    }
}

/// A call path: the path of the caller and the calling instruction.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Caller's path; `u32::MAX` at the top.
    pub parent: u32,
    /// The call.
    pub call: Option<InstrId>,
}

/// A budget that ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Time.
    Time,
    /// Number of terms.
    Nodes,
    /// Unrolled instructions.
    Steps,
    /// Interrupted by the user.
    Interrupted,
}

/// Checks budgets now and then.
pub trait Budget {
    /// `Some` if work must stop.
    fn check(&mut self, store: &Store, steps: usize) -> Option<Stop>;
}

/// Decides what happens with each lifted value (relates it to the baseline).
pub(crate) trait Watcher {
    /// May replace the value by an equal one.
    fn value(
        &mut self,
        st: &mut Store,
        m: &Module,
        rec: &mut Lifted,
        all: &[Lifted],
        dev: &Devices,
    );

    /// True if a value of these operands needs no lifting.
    fn gives_up(&mut self, _operands: &[u32], _all: &[Lifted]) -> bool {
        false
    }
}

/// Lifts one module.
pub(crate) struct Lifter<'a> {
    pub(crate) m: &'a Module,
    pub(crate) st: &'a mut Store,
    pub(crate) dev: Devices,
    pub(crate) paths: Vec<Path>,
    pub(crate) lifted: Vec<Lifted>,
    pub(crate) watcher: &'a mut dyn Watcher,
    pub(crate) budget: &'a mut dyn Budget,
    pub(crate) stop: Option<Stop>,
    pub(crate) region: RegionInfo,
    /// Ids in groups without channel are device ids (one partition).
    pub(crate) replica_mode: bool,
    /// Devices are lifted one by one: values depend on no device digit.
    pub(crate) each: bool,
    /// What a program of which this is an edit was lifted to.
    pub(crate) known: Option<known::Known<'a>>,
    /// First tag for [`Store::at`].
    pub(crate) tag: u32,
    /// Position of each instruction in its computation.
    pos: Vec<u32>,
    groups: HashMap<(ReplicaGroups, i64), Option<GroupDigits>, FxBuildHasher>,
    placements: regions::Placements,
    pub(crate) consts: &'a mut literal::ConstTable,
    comp_keys: HashMap<CompId, Rc<str>, FxBuildHasher>,
    depth: u32,
}

pub(crate) use literal::ConstTable;

/// Values of a computation being lifted: the value and its record.
type Env = Vec<(Lv, u32)>;

const NO_RECORD: u32 = u32::MAX;
/// Deepest nesting of calls.
const MAX_DEPTH: u32 = 96;

impl<'a> Lifter<'a> {
    pub(crate) fn new(
        m: &'a Module,
        st: &'a mut Store,
        dev: Devices,
        watcher: &'a mut dyn Watcher,
        budget: &'a mut dyn Budget,
        consts: &'a mut literal::ConstTable,
        region: RegionInfo,
        tag: u32,
    ) -> Self {
        let mut pos = vec![0; m.instrs.len()];
        for c in &m.comps {
            for (k, i) in c.instrs.iter().enumerate() {
                pos[i.0 as usize] = k as u32;
            }
        }
        Lifter {
            m,
            st,
            dev,
            paths: vec![Path { parent: u32::MAX, call: None }],
            lifted: Vec::with_capacity(m.instrs.len()),
            watcher,
            budget,
            stop: None,
            region,
            replica_mode: false,
            each: false,
            known: None,
            tag,
            pos,
            groups: HashMap::default(),
            placements: regions::Placements::default(),
            consts,
            comp_keys: HashMap::default(),
            depth: 0,
        }
    }

    /// Lifts the entry computation with these parameter values; the value of
    /// the root and its record.
    pub(crate) fn run(&mut self, params: Vec<Lv>) -> (Lv, u32) {
        let entry = self.m.entry;
        let args = params.into_iter().map(|p| (p, NO_RECORD)).collect::<Vec<_>>();
        self.comp(entry, args, 0)
    }

    /// Lifts a computation.
    fn comp(&mut self, id: CompId, args: Env, path: u32) -> (Lv, u32) {
        let m = self.m;
        let c = m.comp(id);
        let mut env: Env = Vec::with_capacity(c.instrs.len());
        for &i in &c.instrs {
            if self.stop.is_some() {
                env.push((Lv::Token, NO_RECORD));
                continue;
            }
            if self.lifted.len() & 255 == 0 {
                self.stop = self.budget.check(self.st, self.lifted.len());
            }
            let v = self.step(i, &env, &args, path);
            env.push(v);
        }
        if self.stop.is_some() {
            let shape = m.shape(c.root).clone();
            return (self.unknown_of(&shape), NO_RECORD);
        }
        env[self.pos[c.root.0 as usize] as usize].clone()
    }

    fn step(&mut self, i: InstrId, env: &Env, args: &Env, path: u32) -> (Lv, u32) {
        let m = self.m;
        let ins = m.instr(i);
        self.goes_on(i);
        let pos = &self.pos;
        let get = |o: InstrId| -> &(Lv, u32) { &env[pos[o.0 as usize] as usize] };
        // Pure plumbing keeps no record of its own.
        match ins.opcode {
            Opcode::GetTupleElement => {
                let (v, rec) = get(ins.operands[0]);
                if let (Lv::Tuple(t), Attrs::TupleIndex(k)) = (v, &ins.attrs) {
                    if let Some(x) = t.get(*k as usize) {
                        let x = x.clone();
                        let made_by = self
                            .lifted
                            .get(*rec as usize)
                            .filter(|r| m.instr(r.instr).opcode == Opcode::Tuple);
                        if let Some(r) = made_by.and_then(|r| r.operands.get(*k as usize)) {
                            return (x, *r);
                        }
                        return self.record(i, path, SmallVec::from_elem(*rec, 1), x, None);
                    }
                }
            }
            Opcode::Parameter => {
                if let Attrs::Parameter(k) = ins.attrs {
                    if let Some((v, rec)) = args.get(k as usize) {
                        if *rec != NO_RECORD {
                            return (v.clone(), *rec);
                        }
                        let v = v.clone();
                        return self.record(i, path, SmallVec::new(), v, None);
                    }
                }
            }
            _ => {}
        }
        let operands: SmallVec<[u32; 3]> = ins.operands.iter().map(|&o| get(o).1).collect();
        // Results of a call, parts of a tuple and values at a border of a region
        // may depend on other operands alone.
        let parts = match ins.opcode {
            Opcode::Call | Opcode::Fusion | Opcode::Tuple => true,
            Opcode::CustomCall => m.shape(i).as_tuple().is_some(),
            _ => false,
        };
        if self.watcher.gives_up(&operands, &self.lifted) && !parts {
            return self.record_lost(i, path, operands);
        }
        let vals: SmallVec<[Lv; 4]> = ins.operands.iter().map(|&o| get(o).0.clone()).collect();
        self.st.at = self.tag + self.lifted.len() as u32;
        // Calls record what is inside them.
        if matches!(
            ins.opcode,
            Opcode::Call
                | Opcode::Fusion
                | Opcode::While
                | Opcode::AsyncStart
                | Opcode::Conditional
        ) {
            if let Some(r) = self.lift_control(i, &vals, &operands, path) {
                return r;
            }
        }
        if let Some(v) = self.as_before(i, path, &operands) {
            return (v, self.lifted.len() as u32 - 1);
        }
        let lifted = if self.each { self.lift_each(i, &vals) } else { self.lift_whole(i, &vals) };
        match lifted {
            Ok(v) => self.record(i, path, operands, v, None),
            Err(why) => {
                let mut v = self.unknown_of(m.shape(i));
                if self.each {
                    v = self.spread(&v).unwrap_or(Lv::Token);
                }
                self.record(i, path, operands, v, Some(why))
            }
        }
    }

    /// The instruction in terms; what the terms cannot look into may still be
    /// a function of its whole operands.
    fn lift_whole(&mut self, i: InstrId, vals: &[Lv]) -> Result<Lv, String> {
        use Opcode::*;
        match self.lift_instr(i, vals) {
            // Terms do not tell the zeros apart, so neither would the whole.
            Err(why) if why == elementwise::ZERO_DIVISOR => Err(why),
            Err(why) => {
                let ok = matches!(
                    self.m.instr(i).opcode,
                    Gather
                        | Scatter
                        | DynamicSlice
                        | DynamicUpdateSlice
                        | Convolution
                        | Reduce
                        | Dot
                        | Pad
                        | Concatenate
                        | Reshape
                        | Slice
                        | Sort
                        | ReduceWindow
                );
                if ok { self.lift_opaque(i, vals).map_err(|_| why) } else { Err(why) }
            }
            ok => ok,
        }
    }

    fn record(
        &mut self,
        instr: InstrId,
        path: u32,
        operands: SmallVec<[u32; 3]>,
        v: Lv,
        failed: Option<String>,
    ) -> (Lv, u32) {
        let id = self.lifted.len() as u32;
        let v = self.round_coefficient(instr, v);
        let (tv, each, other) = match v {
            Lv::T(t) => (Some(t), None, Lv::Token),
            Lv::Each(ts) => (None, Some(ts), Lv::Token),
            other => (None, None, other),
        };
        let had = tv.is_some() || each.is_some();
        let mut rec = Lifted {
            instr,
            path,
            operands,
            tv,
            each,
            base: None,
            failed: failed.map(Rc::from),
            closed: false,
            lost: false,
        };
        rec.closed = rec.failed.is_none()
            && match self.m.instr(instr).opcode {
                Opcode::Parameter => false,
                Opcode::Constant | Opcode::Iota | Opcode::PartitionId | Opcode::ReplicaId => true,
                _ => {
                    !rec.operands.is_empty()
                        && rec
                            .operands
                            .iter()
                            .all(|&o| self.lifted.get(o as usize).is_some_and(|r| r.closed))
                }
            };
        if had {
            self.watcher.value(self.st, self.m, &mut rec, &self.lifted, &self.dev);
        }
        let v = match (&rec.tv, &rec.each) {
            (Some(t), _) => Lv::T(t.clone()),
            (None, Some(ts)) => Lv::Each(ts.clone()),
            (None, None) => other,
        };
        self.lifted.push(rec);
        (v, id)
    }

    /// Keeps the place of a value that is not lifted.
    fn record_lost(
        &mut self,
        instr: InstrId,
        path: u32,
        operands: SmallVec<[u32; 3]>,
    ) -> (Lv, u32) {
        let id = self.lifted.len() as u32;
        self.lifted.push(Lifted {
            instr,
            path,
            operands,
            tv: None,
            each: None,
            base: None,
            failed: None,
            closed: false,
            lost: true,
        });
        (Lv::Token, id)
    }

    /// Compilers fold constants in their type: a coefficient that is the
    /// `f32` rounding of one met before is read as that; logged.
    fn round_coefficient(&mut self, i: InstrId, v: Lv) -> Lv {
        if !self.st.rules.finite || self.m.dtype(i) != Some(DType::F32) {
            return v;
        }
        let literal = self.m.instr(i).opcode == Opcode::Constant;
        let mut one = |t: &Tv| -> Option<Tv> {
            let c = if literal {
                self.st.coefs.literal(t.val.coef)
            } else {
                self.st.coefs.near(t.val.coef)
            };
            if c == t.val.coef {
                return None;
            }
            self.st.assume("a constant stands for the number it is rounded from");
            Some(Tv { val: Val { coef: c, ..t.val.clone() }, dims: t.dims.clone() })
        };
        match &v {
            Lv::T(t) => one(t).map_or(v, Lv::T),
            Lv::Each(ts) => {
                Lv::Each(ts.iter().map(|t| one(t).unwrap_or_else(|| t.clone())).collect())
            }
            _ => v,
        }
    }

    fn array(&self, i: InstrId) -> Result<(&'a [i64], DType), String> {
        match self.m.array(i) {
            Some(a) if a.dynamic == 0 && a.dims.iter().all(|&d| d >= 0) => Ok((&a.dims, a.dtype)),
            Some(_) => Err("has dynamic dimensions".to_owned()),
            None => Err("is no array".to_owned()),
        }
    }

    /// A value nothing is known of, that may differ on every device.
    pub(crate) fn unknown_of(&mut self, s: &scalify_ir::Shape) -> Lv {
        use scalify_ir::Shape;
        match s {
            Shape::Array(a) => {
                let sizes: SmallVec<[i64; 6]> = a.dims.iter().map(|&d| d.max(0)).collect();
                let dims = self.st.fresh_dims(&sizes);
                let mut atoms: SmallVec<[_; 8]> = dims.iter().flatten().copied().collect();
                atoms.extend(self.dev.digits.iter().map(|d| d.0));
                let sizes: SmallVec<[i64; 8]> =
                    atoms.iter().map(|&a| self.st.lins.size(a)).collect();
                let m: SmallVec<[_; 8]> = atoms.iter().map(|&a| Lins::plain(a)).collect();
                let id = self.consts.unknown();
                let val = self.st.param(id, dt_of(a.dtype), &sizes, &m);
                Lv::T(Tv { val, dims })
            }
            Shape::Tuple(t) => Lv::Tuple(t.iter().map(|x| self.unknown_of(x)).collect()),
            Shape::Buffer(b) => self.unknown_of(b),
            _ => Lv::Token,
        }
    }

    /// A tensor without known contents over given dims (for opaque leaves).
    fn no(&self, what: &str) -> String {
        what.to_owned()
    }

    fn lift_instr(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        use Opcode::*;
        let m = self.m;
        let ins = m.instr(i);
        let op = ins.opcode;
        let t = |k: usize| -> Result<&Tv, String> {
            v.get(k).and_then(Lv::tensor).ok_or_else(|| format!("operand {k} is no array"))
        };
        let gave_up = || format!("index arithmetic of {op} is out of reach");
        Ok(match op {
            Parameter => return Err(self.no("parameter without a value")),
            Constant => self.lift_constant(i)?,
            Iota => Lv::T(self.lift_iota(i)?),
            Tuple => Lv::Tuple(v.iter().cloned().collect()),
            GetTupleElement => return Err(self.no("tuple element out of range")),
            AfterAll => Lv::Token,
            AddDependency | OptimizationBarrier | Domain | Copy => v[0].clone(),
            CopyStart => Lv::Tuple([v[0].clone(), v[0].clone(), Lv::Token].into_iter().collect()),
            CopyDone => match &v[0] {
                Lv::Tuple(x) if !x.is_empty() => x[0].clone(),
                _ => return Err(self.no("malformed copy-done")),
            },
            Broadcast => Lv::T(self.lift_broadcast(i, t(0)?)?),
            Reshape | Bitcast => Lv::T(self.lift_reshape(i, t(0)?)?),
            Transpose => {
                let Attrs::Dims(d) = &ins.attrs else { return Err(gave_up()) };
                let x = t(0)?;
                let dims = d.iter().map(|&k| x.dims[k as usize].clone()).collect();
                Lv::T(Tv { val: x.val.clone(), dims })
            }
            Reverse => Lv::T(self.lift_reverse(i, t(0)?)?),
            Slice => Lv::T(self.lift_slice(i, t(0)?)?),
            Pad => Lv::T(self.lift_pad(i, t(0)?, t(1)?)?),
            Concatenate => {
                let ts: Result<Vec<&Tv>, String> = (0..v.len()).map(t).collect();
                Lv::T(self.lift_concatenate(i, &ts?)?)
            }
            DynamicSlice => {
                let ts: Result<Vec<&Tv>, String> = (0..v.len()).map(t).collect();
                Lv::T(self.lift_dynamic_slice(i, &ts?)?)
            }
            DynamicUpdateSlice => {
                let ts: Result<Vec<&Tv>, String> = (0..v.len()).map(t).collect();
                Lv::T(self.lift_dynamic_update_slice(i, &ts?)?)
            }
            Gather => Lv::T(self.lift_gather(i, t(0)?, t(1)?)?),
            Scatter => self.lift_scatter(i, v)?,
            Dot => Lv::T(self.lift_dot(i, t(0)?, t(1)?)?),
            Convolution => Lv::T(self.lift_convolution(i, t(0)?, t(1)?)?),
            Reduce => self.lift_reduce(i, v)?,
            ReduceWindow => match self.lift_running_sum(i, v) {
                Ok(t) => Lv::T(t),
                Err(_) => match self.lift_windowed(i, v) {
                    Ok(t) => Lv::T(t),
                    Err(_) => self.lift_batched(i, v)?,
                },
            },
            BatchNormTraining => match self.lift_batch_norm(i, v) {
                Ok(x) => x,
                Err(_) => self.lift_opaque(i, v)?,
            },
            TopK => self.lift_first_of_order(i, v)?,
            Sort | Cholesky | TriangularSolve | Fft => self.lift_batched(i, v)?,
            GetDimensionSize => {
                let (dims, _) = self.array(ins.operands[0])?;
                let Attrs::Dim(d) = ins.attrs else { return Err(gave_up()) };
                let n = *dims.get(d as usize).ok_or_else(gave_up)?;
                Lv::T(Tv::scalar(self.st.int(n)))
            }
            AllReduce
            | AllGather
            | ReduceScatter
            | AllToAll
            | CollectivePermute
            | CollectiveBroadcast
            | AllReduceStart
            | AllGatherStart
            | CollectivePermuteStart
            | AllReduceDone
            | AllGatherDone
            | CollectivePermuteDone
            | PartitionId
            | ReplicaId => self.lift_collective(i, v)?,
            AsyncDone | AsyncUpdate => self.lift_async_end(i, v)?,
            CustomCall => self.lift_custom_call(i, v)?,
            Call | Fusion | While | Conditional | AsyncStart => {
                return Err(format!("{op} could not be inlined"));
            }
            Map => self.lift_map(i, v)?,
            _ if op.is_unary_elementwise() || op.is_binary_elementwise() => {
                self.lift_elementwise(i, v)?
            }
            Select | Clamp => self.lift_elementwise(i, v)?,
            _ => self.lift_opaque(i, v)?,
        })
    }

    /// Depends on device digits only.
    fn device_only(&self, v: &Val) -> bool {
        let mut axes = SmallVec::new();
        for &l in &v.r.m {
            self.st.lins.base_axes(l, &mut axes);
        }
        axes.iter().all(|&a| self.dev.is_device(a))
    }
}

/// Element kind of a dtype: all integers are mathematical integers, `pred` is
/// boolean, every other type is its own kind.
pub(crate) fn dt_of(d: DType) -> Dt {
    if d == DType::Pred {
        Dt::BOOL
    } else if d.is_int() {
        Dt::INT
    } else {
        Dt(Dt::FIRST + d as u8)
    }
}
