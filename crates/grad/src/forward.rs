//! The forward walk: operations are copied, calls are entered, and what depends
//! on a chosen input is put on the tape.

use crate::activity::{Tree, flat_op, smooth};
use crate::control::{Branches, Loop};
use crate::emit::{Emit, Res, internal, plain, prune};
use crate::update::{Output, adam};
use crate::{GradError, Options};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::{
    Attrs, CompId, Comparison, InstrId, Instruction, Module, Opcode, Shape, Span, Symbol,
};

/// Deepest nesting of calls.
pub(crate) const MAX_DEPTH: usize = 100;

/// A value: instructions of the new module per array leaf. Tokens are leaves.
pub(crate) type Val = Tree<InstrId>;

/// Something whose derivative may be asked for.
pub(crate) enum Step {
    /// One operation; `leaves` are the array leaves of its result.
    Op { at: InstrId, out: InstrId, leaves: Vec<InstrId> },
    /// A loop.
    Loop(InstrId, Box<Loop>),
    /// A conditional.
    Branch(InstrId, Box<Branches>),
}

pub(crate) type Tape = Vec<Step>;

/// Cotangents by instruction.
pub(crate) type Cotangents = FxHashMap<InstrId, InstrId>;

/// The differentiation of one module.
pub(crate) struct Work<'a> {
    pub(crate) src: &'a Module,
    pub(crate) e: Emit,
    pub(crate) o: Options,
    active: Vec<bool>,
    copied: FxHashMap<CompId, CompId>,
    /// What stands for an instruction.
    replaced: FxHashMap<InstrId, InstrId>,
    /// Source instructions without derivative.
    constants: FxHashSet<InstrId>,
    /// Each of those is a further parameter; used, or zeros in its place.
    opened: Option<bool>,
    added: usize,
    /// Source instruction being treated.
    pub(crate) at: Option<InstrId>,
    depth: usize,
}

pub(crate) fn opened(
    m: &Module,
    loss: usize,
    at: &[InstrId],
    used: bool,
    options: &Options,
) -> Result<Module, GradError> {
    let mut w = Work {
        src: m,
        e: Emit::new(m, options.max_instructions),
        o: *options,
        active: Vec::new(),
        copied: FxHashMap::default(),
        replaced: FxHashMap::default(),
        constants: at.iter().copied().collect(),
        opened: Some(used),
        added: 0,
        at: None,
        depth: 0,
    };
    let entry = w.whole(loss, &[], &[Output::Loss], &[])?;
    w.e.m.entry = entry;
    Ok(prune(&w.e.m))
}

pub(crate) fn reference(
    m: &Module,
    loss: usize,
    wrt: &[usize],
    outputs: &[Output],
    replaced: &[(InstrId, usize)],
    constants: &[InstrId],
    options: &Options,
) -> Result<Module, GradError> {
    let mut w = Work {
        src: m,
        e: Emit::new(m, options.max_instructions),
        o: *options,
        active: Vec::new(),
        copied: FxHashMap::default(),
        replaced: FxHashMap::default(),
        constants: constants.iter().copied().collect(),
        opened: None,
        added: 0,
        at: None,
        depth: 0,
    };
    let made = w.whole(loss, wrt, outputs, replaced);
    let at = w.at;
    match made {
        Ok(entry) => {
            w.e.m.entry = entry;
            Ok(prune(&w.e.m))
        }
        Err(mut e) => {
            if let (Some(i), None) = (at, &e.instr) {
                e.instr = Some(m.name_of(i).to_owned());
                e.opcode = Some(m.instr(i).opcode);
                e.span = m.instr(i).span;
            }
            Err(e)
        }
    }
}

impl Work<'_> {
    fn whole(
        &mut self,
        loss: usize,
        wrt: &[usize],
        outputs: &[Output],
        replaced: &[(InstrId, usize)],
    ) -> Res<CompId> {
        let src = self.src;
        let entry = src.entry_comp();
        let name = src.str(entry.name).to_owned();
        self.e.begin(&name);
        let mut args = Vec::new();
        let mut inputs = Vec::new();
        for &p in &entry.params {
            self.at = Some(p);
            let i = src.instr(p);
            let shape = plain(src.shape(p));
            let id = self.e.parameter(shape)?;
            let new = &mut self.e.m.instrs[id.0 as usize];
            (new.name, new.metadata, new.span) = (i.name, i.metadata, i.span);
            new.extra.clone_from(&i.extra);
            if let Some(x) = &mut new.extra {
                x.control_predecessors.clear();
            }
            let v = self.taken_apart(id)?;
            v.leaves(&mut inputs);
            args.push(v);
        }
        self.at = None;
        for &k in wrt {
            let leaf = *inputs.get(k).ok_or_else(|| {
                internal(format!("input {k} of {}", inputs.len()), "an input that exists")
            })?;
            let t = self.e.m.dtype(leaf);
            if !t.is_some_and(|t| t.is_float()) {
                let found = self.e.m.shape(leaf).to_string();
                return Err(internal(format!("input {k} is {found}"), "an array of floats"));
            }
            self.set_active(leaf);
        }
        let mut tape = Tape::new();
        let out = self.computation(src.entry, args.clone(), &mut tape)?;
        self.at = None;
        let leaves = out.flat();
        let l = *leaves.get(loss).ok_or_else(|| {
            internal(format!("output {loss} of {}", leaves.len()), "an output that exists")
        })?;
        let s = self.e.array(l)?;
        if !s.dtype.is_float() || !s.dims.is_empty() {
            return Err(internal(format!("output {loss} is {s}"), "a float scalar"));
        }
        let mut cts = Cotangents::default();
        let one = self.e.full(&s, 1.0)?;
        self.accumulate(&mut cts, l, one)?;
        self.backward(&tape, &mut cts)?;
        self.at = None;
        self.e.metadata = None;
        let mut gradients = Vec::new();
        for &k in wrt {
            gradients.push(match cts.get(&inputs[k]) {
                Some(&g) => g,
                None => {
                    let a = self.e.array(inputs[k])?;
                    self.e.full(&a, 0.0)?
                }
            });
        }
        // The program again, now with the derivatives in it.
        let mut own = Vec::new();
        if outputs.iter().any(|o| matches!(o, Output::Own(_))) {
            for &(i, k) in replaced {
                let g = *gradients
                    .get(k)
                    .ok_or_else(|| internal(format!("gradient {k}"), "one that exists"))?;
                self.replaced.insert(i, g);
            }
            self.active.clear();
            own = self.computation(src.entry, args, &mut Tape::new())?.flat();
            self.at = None;
        }
        let missing = || internal("an output that names no input or output", "one that exists");
        let mut result = Vec::new();
        for o in outputs {
            result.push(match *o {
                Output::Loss => l,
                Output::Gradient(k) => *gradients.get(k).ok_or_else(missing)?,
                Output::Step { k, rate } => {
                    let g = *gradients.get(k).ok_or_else(missing)?;
                    let d = self.e.scaled(g, rate)?;
                    self.e.sub(inputs[wrt[k]], d)?
                }
                Output::Adam { k, first, second, by, part } => {
                    let g = *gradients.get(k).ok_or_else(missing)?;
                    let m = *inputs.get(first).ok_or_else(missing)?;
                    let v = *inputs.get(second).ok_or_else(missing)?;
                    adam(&mut self.e, inputs[wrt[k]], g, (m, v), &by, part)?
                }
                Output::Own(k) => *own.get(k).ok_or_else(missing)?,
            });
        }
        let root = self.e.tuple(&result)?;
        self.e.end(root)
    }

    pub(crate) fn is_active(&self, x: InstrId) -> bool {
        self.active.get(x.0 as usize).copied().unwrap_or(false)
    }

    pub(crate) fn set_active(&mut self, x: InstrId) {
        let k = x.0 as usize;
        if self.active.len() <= k {
            self.active.resize(k + 1, false);
        }
        self.active[k] = true;
    }

    /// Adds to a cotangent.
    pub(crate) fn accumulate(&mut self, cts: &mut Cotangents, x: InstrId, ct: InstrId) -> Res<()> {
        if !self.is_active(x) {
            return Ok(());
        }
        let (a, mut b) = (self.e.array(x)?, self.e.array(ct)?);
        let mut ct = ct;
        if a.dtype != b.dtype && a.dtype.is_float() && b.dtype.is_float() {
            // Operations on several float types.
            ct = self.e.convert(ct, a.dtype)?;
            b = self.e.array(ct)?;
        }
        if !a.same(&b) {
            return Err(internal(format!("a cotangent is {b}"), a.to_string()));
        }
        let sum = match cts.get(&x) {
            Some(&y) => self.e.add(y, ct)?,
            None => ct,
        };
        cts.insert(x, sum);
        Ok(())
    }

    /// The leaves of an instruction's value, through get-tuple-elements.
    pub(crate) fn taken_apart(&mut self, x: InstrId) -> Res<Val> {
        match self.e.m.shape(x).clone() {
            Shape::Tuple(t) => {
                let mut v = Vec::new();
                for k in 0..t.len() {
                    let e = self.e.element(x, k)?;
                    v.push(self.taken_apart(e)?);
                }
                Ok(Tree::Tuple(v))
            }
            _ => Ok(Tree::Leaf(x)),
        }
    }

    /// One instruction for a value.
    pub(crate) fn put_together(&mut self, v: &Val) -> Res<InstrId> {
        match v {
            Tree::Leaf(x) => Ok(*x),
            Tree::Tuple(t) => {
                let xs = t.iter().map(|t| self.put_together(t)).collect::<Res<Vec<_>>>()?;
                self.e.tuple(&xs)
            }
        }
    }

    /// The same computation in the new module.
    pub(crate) fn copied(&mut self, c: CompId) -> Res<CompId> {
        if let Some(&n) = self.copied.get(&c) {
            return Ok(n);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(internal("calls are nested too deeply", "fewer levels"));
        }
        let src = self.src;
        let comp = src.comp(c);
        let mut calls: FxHashMap<CompId, CompId> = FxHashMap::default();
        for &i in &comp.instrs {
            for &f in &src.instr(i).calls {
                let n = self.copied(f)?;
                calls.insert(f, n);
            }
        }
        self.e.begin(src.str(comp.name));
        let mut ids: FxHashMap<InstrId, InstrId> = FxHashMap::default();
        for &i in &comp.instrs {
            let mut n: Instruction = src.instr(i).clone();
            let find = |o: &InstrId| ids.get(o).copied();
            let operands: Option<_> = n.operands.iter().map(find).collect();
            n.operands = operands.ok_or_else(|| internal("an operand after its user", "order"))?;
            n.calls = n.calls.iter().filter_map(|f| calls.get(f).copied()).collect();
            let shape = plain(src.shape(i));
            n.shape = self.e.m.shape_id(shape);
            if let Some(x) = &mut n.extra {
                x.control_predecessors.clear();
            }
            let id = self.e.push(n)?;
            ids.insert(i, id);
        }
        let root = ids.get(&comp.root).copied();
        let n = self.e.end(root.ok_or_else(|| internal("a root elsewhere", "one here"))?)?;
        self.copied.insert(c, n);
        self.depth -= 1;
        Ok(n)
    }

    /// Walks a computation.
    pub(crate) fn computation(&mut self, c: CompId, args: Vec<Val>, tape: &mut Tape) -> Res<Val> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(internal("calls are nested too deeply", "fewer levels"));
        }
        let src = self.src;
        let comp = src.comp(c);
        let mut env: FxHashMap<InstrId, Val> = FxHashMap::default();
        // Only what the root needs: the rest may have no derivative.
        let mut needed: FxHashMap<InstrId, ()> = FxHashMap::default();
        needed.insert(comp.root, ());
        for &id in comp.instrs.iter().rev() {
            if needed.contains_key(&id) {
                needed.extend(src.instr(id).operands.iter().map(|&o| (o, ())));
            }
        }
        let before = (self.at, self.e.metadata);
        for &id in comp.instrs.iter().filter(|i| needed.contains_key(i)) {
            let i = src.instr(id);
            self.at = Some(id);
            self.e.metadata = i.metadata.or(before.1);
            let operands = i
                .operands
                .iter()
                .map(|o| env.get(o).cloned())
                .collect::<Option<Vec<Val>>>()
                .ok_or_else(|| internal("an operand after its user", "operands first"))?;
            let v = match &i.attrs {
                _ if self.opened.is_some() && self.constants.contains(&id) => self.open(id)?,
                _ if self.replaced.contains_key(&id) => {
                    let g = self.replaced[&id];
                    let (a, b) = (self.e.array(g)?, plain(src.shape(id)));
                    if !b.as_array().is_some_and(|b| b.same(&a)) {
                        return Err(internal(format!("a gradient of shape {a}"), b.to_string()));
                    }
                    Tree::Leaf(g)
                }
                Attrs::Parameter(n) => args
                    .get(*n as usize)
                    .cloned()
                    .ok_or_else(|| internal("a parameter without argument", "one"))?,
                _ => self.instruction(id, i, operands, tape)?,
            };
            env.insert(id, v);
        }
        (self.at, self.e.metadata) = before;
        self.depth -= 1;
        env.remove(&comp.root).ok_or_else(|| internal("a root elsewhere", "one here"))
    }

    /// A further parameter for an instruction.
    fn open(&mut self, id: InstrId) -> Res<Val> {
        if self.e.depth() != 1 {
            return Err(internal("a value in a loop", "one outside of loops"));
        }
        let shape = plain(self.src.shape(id));
        let a = shape.as_array().cloned().ok_or_else(|| internal("a tuple", "an array"))?;
        let p = self.e.parameter(shape)?;
        let name = self.e.m.strings.intern(&format!("shift_{}_v", self.added));
        self.e.m.instrs[p.0 as usize].name = name;
        self.added += 1;
        Ok(Tree::Leaf(if self.opened == Some(true) { p } else { self.e.full(&a, 0.0)? }))
    }

    fn instruction(
        &mut self,
        id: InstrId,
        i: &Instruction,
        mut operands: Vec<Val>,
        tape: &mut Tape,
    ) -> Res<Val> {
        use Opcode::*;
        match (i.opcode, &i.attrs) {
            (Tuple, _) => Ok(Tree::Tuple(operands)),
            (GetTupleElement, Attrs::TupleIndex(k)) => match operands.pop() {
                Some(Tree::Tuple(t)) => t
                    .get(*k as usize)
                    .cloned()
                    .ok_or_else(|| internal(format!("element {k}"), "one that exists")),
                _ => Err(internal("an element of something else", "a tuple")),
            },
            (Call | Fusion | AsyncStart, _) if i.calls.len() == 1 => {
                self.computation(i.calls[0], operands, tape)
            }
            (
                OptimizationBarrier
                | AsyncUpdate
                | AsyncDone
                | Domain
                | AddDependency
                | CopyStart
                | CopyDone
                | AllReduceDone
                | AllGatherDone
                | CollectivePermuteDone,
                _,
            ) if !operands.is_empty() => Ok(operands.swap_remove(0)),
            (While, _) if i.calls.len() == 2 && operands.len() == 1 => {
                let init = operands.swap_remove(0);
                self.forward_loop(id, i, init, tape)
            }
            (Conditional, _) if operands.len() == i.calls.len() + 1 => {
                self.forward_branches(id, i, operands, tape)
            }
            (BatchNormTraining | BatchNormInference, Attrs::BatchNorm { epsilon, feature }) => {
                self.batch_norm(id, i.opcode, &operands, *epsilon, *feature, tape)
            }
            (CustomCall, Attrs::CustomCall(c)) => {
                let t = self.src.str(c.target);
                if t == "Sharding" && operands.len() == 1 {
                    return Ok(operands.swap_remove(0));
                }
                self.plain_op(id, i, &operands, tape)
            }
            _ => self.plain_op(id, i, &operands, tape),
        }
    }

    /// Copies an operation and puts it on the tape.
    fn plain_op(
        &mut self,
        id: InstrId,
        i: &Instruction,
        operands: &[Val],
        tape: &mut Tape,
    ) -> Res<Val> {
        let xs = operands.iter().map(|v| self.put_together(v)).collect::<Res<Vec<_>>>()?;
        let calls = i.calls.iter().map(|&c| self.copied(c)).collect::<Res<Vec<_>>>()?;
        let mut shape = plain(self.src.shape(id));
        let opcode = match i.opcode {
            // The two halves of an exchange are one here.
            Opcode::AllReduceStart => Opcode::AllReduce,
            Opcode::AllGatherStart => Opcode::AllGather,
            Opcode::CollectivePermuteStart => Opcode::CollectivePermute,
            o => o,
        };
        if opcode != i.opcode && opcode != Opcode::AllReduce {
            // (operands, results, ..)
            if let Some(s) = shape.as_tuple().and_then(|t| t.get(1)) {
                shape = s.clone();
            }
        }
        let name: Symbol = i.name;
        let shape = self.e.m.shape_id(shape);
        let mut extra = i.extra.clone();
        if let Some(x) = &mut extra {
            x.control_predecessors.clear();
        }
        let out = self.e.push(Instruction {
            name,
            opcode,
            shape,
            operands: xs.into(),
            calls: calls.into(),
            attrs: i.attrs.clone(),
            extra,
            metadata: self.e.metadata,
            span: Span::default(),
        })?;
        let v = self.taken_apart(out)?;
        let mut ins = Vec::new();
        operands.iter().for_each(|t| t.leaves(&mut ins));
        self.record(id, out, &v, &ins, tape);
        Ok(v)
    }

    /// Puts an operation on the tape if a derivative may go through it.
    fn record(&mut self, at: InstrId, out: InstrId, v: &Val, ins: &[InstrId], tape: &mut Tape) {
        let op = self.e.m.instr(out).opcode;
        if flat_op(op) || self.constants.contains(&at) || !ins.iter().any(|&x| self.is_active(x)) {
            return;
        }
        let leaves = v.flat();
        for &l in &leaves {
            if self.e.m.dtype(l).is_some_and(smooth) {
                self.set_active(l);
            }
        }
        tape.push(Step::Op { at, out, leaves });
    }

    /// An operation of the new module, on the tape if it must be.
    pub(crate) fn taped(
        &mut self,
        at: InstrId,
        tape: &mut Tape,
        opcode: Opcode,
        attrs: Attrs,
        xs: &[InstrId],
        calls: &[CompId],
        declared: Option<Shape>,
    ) -> Res<InstrId> {
        let out = self.e.op(opcode, attrs, xs, calls, declared)?;
        self.record(at, out, &Tree::Leaf(out), xs, tape);
        Ok(out)
    }

    /// Batch normalisation by its definition.
    fn batch_norm(
        &mut self,
        at: InstrId,
        op: Opcode,
        operands: &[Val],
        epsilon: f32,
        feature: i64,
        tape: &mut Tape,
    ) -> Res<Val> {
        let xs: Vec<InstrId> = operands.iter().flat_map(Tree::flat).collect();
        let (&[x, scale, offset], rest) = xs
            .split_first_chunk::<3>()
            .ok_or_else(|| internal("too few operands", "operand, scale, offset"))?;
        let a = self.e.array(x)?;
        let dims = a.dims.to_vec();
        let others: Vec<i64> = (0..dims.len() as i64).filter(|&d| d != feature).collect();
        let n: i64 = others.iter().map(|&d| dims[d as usize]).product();
        let t = self.e.array(scale)?.dtype;
        macro_rules! op {
            ($o:ident, $($x:expr),+) => {
                self.taped(at, tape, Opcode::$o, Attrs::None, &[$($x),+], &[], None)?
            };
        }
        let spread = |w: &mut Self, tape: &mut Tape, v: InstrId| -> Res<InstrId> {
            let s = Shape::array(t, dims.iter().copied());
            let attrs = Attrs::Dims([feature].into_iter().collect());
            w.taped(at, tape, Opcode::Broadcast, attrs, &[v], &[], Some(s))
        };
        let (mean, var) = match (op, rest) {
            (Opcode::BatchNormInference, &[m, v]) => (m, v),
            (Opcode::BatchNormTraining, _) => {
                let zero = self.e.scalar(t, 0.0)?;
                let f = self.e.reducer(Opcode::Add, t)?;
                let count = self.e.array(scale)?;
                let count = self.e.full(&count, n.max(1) as f64)?;
                let over = || Attrs::Dims(others.iter().copied().collect());
                let s = self.taped(at, tape, Opcode::Reduce, over(), &[x, zero], &[f], None)?;
                let mean = op!(Divide, s, count);
                let wide = spread(self, tape, mean)?;
                let c = op!(Subtract, x, wide);
                let c2 = op!(Multiply, c, c);
                let s = self.taped(at, tape, Opcode::Reduce, over(), &[c2, zero], &[f], None)?;
                (mean, op!(Divide, s, count))
            }
            _ => return Err(internal("too few operands", "mean and variance")),
        };
        let e = self.e.array(var)?;
        let e = self.e.full(&e, f64::from(epsilon))?;
        let v = op!(Add, var, e);
        let r = op!(Rsqrt, v);
        let (wm, wr) = (spread(self, tape, mean)?, spread(self, tape, r)?);
        let (ws, wo) = (spread(self, tape, scale)?, spread(self, tape, offset)?);
        let c = op!(Subtract, x, wm);
        let c = op!(Multiply, c, wr);
        let c = op!(Multiply, c, ws);
        let y = op!(Add, c, wo);
        Ok(match op {
            Opcode::BatchNormTraining => {
                Tree::Tuple(vec![Tree::Leaf(y), Tree::Leaf(mean), Tree::Leaf(var)])
            }
            _ => Tree::Leaf(y),
        })
    }

    /// Reads the tape backwards.
    pub(crate) fn backward(&mut self, tape: &[Step], cts: &mut Cotangents) -> Res<()> {
        for step in tape.iter().rev() {
            match step {
                Step::Op { at, out, leaves } => {
                    let given: Vec<Option<InstrId>> =
                        leaves.iter().map(|l| cts.remove(l)).collect();
                    if given.iter().all(Option::is_none) {
                        continue;
                    }
                    self.at = Some(*at);
                    self.e.metadata = self.src.instr(*at).metadata;
                    let from = self.e.m.instrs.len();
                    self.rule(*out, leaves, &given, cts)?;
                    debug_assert!(self.e.m.instrs.len() >= from);
                }
                Step::Loop(at, l) => {
                    self.at = Some(*at);
                    self.e.metadata = self.src.instr(*at).metadata;
                    self.backward_loop(l, cts)?;
                }
                Step::Branch(at, b) => {
                    self.at = Some(*at);
                    self.e.metadata = self.src.instr(*at).metadata;
                    self.backward_branches(b, cts)?;
                }
            }
        }
        Ok(())
    }

    /// `x == y` as a number of type of `x`.
    pub(crate) fn equal(&mut self, x: InstrId, y: InstrId) -> Res<InstrId> {
        let t = self.e.array(x)?.dtype;
        let p = self.e.compare(Comparison::Eq, x, y)?;
        self.e.convert(p, t)
    }
}
