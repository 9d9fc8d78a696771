//! Programs that report which of their values are not finite.
//!
//! [`check_finite`] adds one output `pred[2 n]` for `n` chosen instructions:
//! elements `2 k` and `2 k + 1` are true if no value of the `k`-th was NaN, and
//! if all were finite. Operations that only move elements are left out: they
//! write neither. Flags of instructions in
//! called computations and branches are handed out with the result, those in
//! loops are carried in the loop's state. Computations that are applied to
//! elements (reducers, comparators), fusions and manual regions are not
//! entered.

use scalify_ir::{
    ArrayShape, Attrs, CompId, DType, InstrId, Instruction, Literal, Module, Opcode, Shape, Span,
};
use serde::{Deserialize, Serialize};

/// What a flag tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    /// No value is NaN.
    Nan,
    /// All values are finite.
    Finite,
}

/// A flag of a chosen instruction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flag {
    /// What is tested.
    pub test: Test,
    /// Its name, with the calls it is in: `while.3/add.5`.
    pub instruction: String,
    /// Opcode.
    pub opcode: String,
    /// Shape.
    pub shape: String,
    /// `file:line`.
    pub source: Option<String>,
    /// It is inside a loop: its flag is over all iterations.
    pub in_loop: bool,
}

/// An instrumented program.
#[derive(Debug)]
pub struct Instrumented {
    /// The program.
    pub module: Module,
    /// What each element of the added output is about, in the order of
    /// execution.
    pub flags: Vec<Flag>,
    /// Position of the added output.
    pub output: usize,
    /// The outputs became a tuple: there was a single array.
    pub wrapped: bool,
    /// Computations that were not entered.
    pub skipped: Vec<String>,
}

/// Deepest nesting of calls entered.
const MAX_DEPTH: usize = 32;
/// Flags at most.
const MAX_FLAGS: usize = 100_000;

struct Work<'c> {
    m: Module,
    choose: &'c dyn Fn(&str) -> bool,
    skipped: Vec<String>,
    count: usize,
}

/// A flag inside a computation: what it is about and the `pred[]` that holds it.
type Local = Vec<(Flag, InstrId)>;

/// Instruments the instructions whose name `choose` accepts. `None` if none is.
pub fn check_finite(m: &Module, choose: &dyn Fn(&str) -> bool) -> Option<Instrumented> {
    let mut w = Work { m: m.clone(), choose, skipped: Vec::new(), count: 0 };
    let entry = m.entry;
    let (flags, mut list) = w.body(entry, "", false, true, 0);
    if flags.is_empty() {
        return None;
    }
    let ids: Vec<InstrId> = flags
        .iter()
        .map(|f| {
            w.put(&mut list, Opcode::Reshape, Attrs::None, &[f.1], Shape::array(DType::Pred, [1]))
        })
        .collect();
    let n = ids.len() as i64;
    let all = if n == 1 {
        ids[0]
    } else {
        let dims = Attrs::Dims([0].into_iter().collect());
        w.put(&mut list, Opcode::Concatenate, dims, &ids, Shape::array(DType::Pred, [n]))
    };
    let root = w.m.comp(entry).root;
    let (mut parts, wrapped) = match w.m.shape(root).clone() {
        Shape::Tuple(t) => {
            let get = |(k, s): (usize, &Shape)| {
                w.put(
                    &mut list,
                    Opcode::GetTupleElement,
                    Attrs::TupleIndex(k as i64),
                    &[root],
                    s.clone(),
                )
            };
            (t.iter().enumerate().map(get).collect::<Vec<_>>(), false)
        }
        _ => (vec![root], true),
    };
    let output = parts.len();
    parts.push(all);
    let shape = Shape::Tuple(parts.iter().map(|&p| w.m.shape(p).clone()).collect());
    let root = w.put(&mut list, Opcode::Tuple, Attrs::None, &parts, shape);
    let c = &mut w.m.comps[entry.0 as usize];
    c.root = root;
    c.instrs = list;
    // Layouts and shardings of the old result.
    w.m.header.entry_layout = None;
    w.m.header.spmd_output_sharding = None;
    let drop: Vec<scalify_ir::Symbol> = (w.m.header.other.iter())
        .map(|o| o.0)
        .filter(|&k| wrapped && w.m.str(k).contains("alias"))
        .collect();
    w.m.header.other.retain(|o| !drop.contains(&o.0));
    w.skipped.sort();
    w.skipped.dedup();
    let module = sorted(w.m);
    Some(Instrumented {
        module,
        flags: flags.into_iter().map(|f| f.0).collect(),
        output,
        wrapped,
        skipped: w.skipped,
    })
}

/// What the entry reaches, callees before callers, as readers of the text
/// expect; nothing else.
fn sorted(mut m: Module) -> Module {
    let n = m.comps.len();
    let mut order: Vec<usize> = Vec::with_capacity(n);
    let mut seen = vec![false; n];
    let mut stack = vec![(m.entry.0 as usize, false)];
    let mut placed = vec![false; n];
    while let Some((c, done)) = stack.pop() {
        if done {
            if !std::mem::replace(&mut placed[c], true) {
                order.push(c);
            }
            continue;
        }
        if std::mem::replace(&mut seen[c], true) {
            continue;
        }
        stack.push((c, true));
        for &i in &m.comps[c].instrs {
            stack.extend(m.instr(i).calls.iter().map(|d| (d.0 as usize, false)));
        }
    }
    let mut comps: Vec<Option<scalify_ir::Computation>> = m.comps.drain(..).map(Some).collect();
    m.comps = order.iter().filter_map(|&c| comps[c].take()).collect();
    let mut comp_at = vec![0u32; n];
    for (k, &c) in order.iter().enumerate() {
        comp_at[c] = k as u32;
    }
    m.entry = CompId(comp_at[m.entry.0 as usize]);
    let mut instr_at = vec![0u32; m.instrs.len()];
    let mut kept = Vec::with_capacity(m.instrs.len());
    for c in &mut m.comps {
        for i in &mut c.instrs {
            instr_at[i.0 as usize] = kept.len() as u32;
            kept.push(m.instrs[i.0 as usize].clone());
            i.0 = instr_at[i.0 as usize];
        }
        for i in c.params.iter_mut().chain([&mut c.root]) {
            i.0 = instr_at[i.0 as usize];
        }
    }
    for i in &mut kept {
        i.operands.iter_mut().for_each(|o| o.0 = instr_at[o.0 as usize]);
        i.calls.iter_mut().for_each(|c| c.0 = comp_at[c.0 as usize]);
    }
    m.instrs = kept;
    m
}

impl Work<'_> {
    fn put(
        &mut self,
        list: &mut Vec<InstrId>,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        shape: Shape,
    ) -> InstrId {
        let name = format!("check_finite.{}", self.m.instrs.len());
        let id = self.m.append(&name, opcode, attrs, operands, &[], shape);
        list.push(id);
        id
    }

    fn yes(&mut self, list: &mut Vec<InstrId>) -> InstrId {
        let l = Literal::dense(ArrayShape::new(DType::Pred, []), vec![1]);
        let shape = l.shape.clone();
        self.put(list, Opcode::Constant, Attrs::Constant(Box::new(l)), &[], shape)
    }

    fn and(&mut self, list: &mut Vec<InstrId>, a: InstrId, b: InstrId) -> InstrId {
        self.put(list, Opcode::And, Attrs::None, &[a, b], Shape::array(DType::Pred, []))
    }

    /// `(x, y) -> and(x, y)`.
    fn reducer(&mut self) -> CompId {
        let mut list = Vec::new();
        let s = || Shape::array(DType::Pred, []);
        let x = self.put(&mut list, Opcode::Parameter, Attrs::Parameter(0), &[], s());
        let y = self.put(&mut list, Opcode::Parameter, Attrs::Parameter(1), &[], s());
        let r = self.and(&mut list, x, y);
        self.add("check_finite_and", list, vec![x, y], r)
    }

    fn add(
        &mut self,
        name: &str,
        instrs: Vec<InstrId>,
        params: Vec<InstrId>,
        root: InstrId,
    ) -> CompId {
        let id = CompId(self.m.comps.len() as u32);
        let name = self.m.strings.intern(&format!("{name}.{}", id.0));
        self.m.comps.push(scalify_ir::Computation {
            name,
            instrs,
            params,
            root,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        });
        id
    }

    /// One test of one array of floats, per element.
    fn elements(&mut self, list: &mut Vec<InstrId>, x: InstrId, t: Test, dims: &[i64]) -> InstrId {
        let bools = Shape::array(DType::Pred, dims.to_vec());
        match t {
            Test::Finite => self.put(list, Opcode::IsFinite, Attrs::None, &[x], bools),
            Test::Nan => {
                let direction = scalify_ir::Comparison::Eq;
                let attrs = Attrs::Compare { direction, kind: None };
                self.put(list, Opcode::Compare, attrs, &[x, x], bools)
            }
        }
    }

    /// Does an array of floats pass a test: `pred[]`.
    fn passes(&mut self, list: &mut Vec<InstrId>, x: InstrId, t: Test) -> Option<InstrId> {
        let a = self.m.array(x)?.clone();
        let dims: Vec<i64> = a.dims.to_vec();
        let bools = Shape::array(DType::Pred, dims.clone());
        let one = if let Some(p) = a.dtype.complex_part() {
            let part = Shape::array(p, dims.clone());
            let re = self.put(list, Opcode::Real, Attrs::None, &[x], part.clone());
            let im = self.put(list, Opcode::Imag, Attrs::None, &[x], part);
            let re = self.elements(list, re, t, &dims);
            let im = self.elements(list, im, t, &dims);
            self.put(list, Opcode::And, Attrs::None, &[re, im], bools)
        } else if a.dtype.is_float() {
            // Narrow floats are widened: not every back end tests them.
            let narrow = a.dtype.bits() < 16;
            let x = if narrow {
                let s = Shape::array(DType::F32, dims.clone());
                self.put(list, Opcode::Convert, Attrs::None, &[x], s)
            } else {
                x
            };
            self.elements(list, x, t, &dims)
        } else {
            return None;
        };
        if dims.is_empty() {
            return Some(one);
        }
        let init = self.yes(list);
        let f = self.reducer();
        let attrs = Attrs::Dims((0..dims.len() as i64).collect());
        let r = self.put(list, Opcode::Reduce, attrs, &[one, init], Shape::array(DType::Pred, []));
        self.m.instrs[r.0 as usize].calls = [f].into_iter().collect();
        Some(r)
    }

    fn flag(&mut self, i: InstrId, test: Test, path: &str, in_loop: bool) -> Flag {
        let f = self.m.frames(i);
        Flag {
            test,
            instruction: format!("{path}{}", self.m.name_of(i)),
            opcode: self.m.instr(i).opcode.name().to_owned(),
            shape: match self.m.array(i) {
                Some(a) => ArrayShape::new(a.dtype, a.dims.iter().copied()).to_string(),
                None => self.m.shape(i).to_string(),
            },
            source: f.first().map(|f| format!("{}:{}", f.file, f.line)),
            in_loop,
        }
    }

    /// Checks of a computation's instructions, put behind each: the flags and
    /// the new list of instructions.
    fn body(
        &mut self,
        comp: CompId,
        path: &str,
        in_loop: bool,
        entry: bool,
        depth: usize,
    ) -> (Local, Vec<InstrId>) {
        let old = self.m.comp(comp).instrs.clone();
        let mut list = Vec::with_capacity(2 * old.len());
        let mut flags: Local = Vec::new();
        for i in old {
            let ins = self.m.instr(i).clone();
            let deep = depth < MAX_DEPTH && self.count < MAX_FLAGS;
            let path_in = || format!("{path}{}/", self.m.name_of(i));
            let inner = match ins.opcode {
                Opcode::Call if deep && !self.manual(&ins) => {
                    let p = path_in();
                    self.call(i, &ins, &p, in_loop, depth, &mut list)
                }
                Opcode::Conditional if deep => {
                    let p = path_in();
                    self.conditional(i, &ins, &p, in_loop, depth, &mut list)
                }
                Opcode::While if deep => {
                    let p = path_in();
                    self.loop_(i, &ins, &p, depth, &mut list)
                }
                op => {
                    if matches!(op, Opcode::Call | Opcode::Conditional | Opcode::While) {
                        let name = self.m.name_of(i).to_owned();
                        self.skipped.push(name);
                    }
                    None
                }
            };
            match inner {
                Some(f) => flags.extend(f),
                None => list.push(i),
            }
            let skip = match ins.opcode {
                Opcode::Parameter => !entry,
                Opcode::Constant
                | Opcode::Tuple
                | Opcode::GetTupleElement
                | Opcode::Call
                | Opcode::While
                | Opcode::Conditional
                | Opcode::OptimizationBarrier => true,
                op => crate::bound::moves(op),
            } || self.count >= MAX_FLAGS;
            if skip || !(self.choose)(self.m.str(ins.name)) {
                continue;
            }
            for t in [Test::Nan, Test::Finite] {
                if let Some(ok) = self.passes(&mut list, i, t) {
                    let f = self.flag(i, t, path, in_loop);
                    flags.push((f, ok));
                    self.count += 1;
                }
            }
        }
        (flags, list)
    }

    fn manual(&self, ins: &Instruction) -> bool {
        ins.calls.first().is_some_and(|&c| {
            let n = self.m.str(self.m.comp(c).name);
            n.contains("manual_computation") || n.contains("shmap_body")
        })
    }

    /// A copy of a computation, its instructions copied too.
    fn copy(&mut self, comp: CompId) -> CompId {
        let c = self.m.comp(comp).clone();
        let mut new = rustc_hash::FxHashMap::default();
        let mut instrs = Vec::with_capacity(c.instrs.len());
        for &i in &c.instrs {
            let id = InstrId(self.m.instrs.len() as u32);
            let mut ins = self.m.instr(i).clone();
            for o in &mut ins.operands {
                *o = new.get(o).copied().unwrap_or(*o);
            }
            let name = format!("{}.finite_copy{}", self.m.str(ins.name), id.0);
            // Flags name the original.
            ins.name = self.m.strings.intern(&name);
            self.m.instrs.push(ins);
            new.insert(i, id);
            instrs.push(id);
        }
        let get = |i: &InstrId| new.get(i).copied().unwrap_or(*i);
        let (params, root) = (c.params.iter().map(get).collect(), get(&c.root));
        let name = self.m.str(c.name).to_owned();
        self.add(&name, instrs, params, root)
    }

    /// Names of copies as they were.
    fn original(flags: &mut Local) {
        for (f, _) in flags {
            f.instruction = f
                .instruction
                .split('/')
                .map(|s| match s.rsplit_once(".finite_copy") {
                    Some((a, b)) if b.bytes().all(|c| c.is_ascii_digit()) && !b.is_empty() => a,
                    _ => s,
                })
                .collect::<Vec<_>>()
                .join("/");
        }
    }

    /// A copy of `comp` that returns `(result, flag, ..)`.
    fn reporting(
        &mut self,
        comp: CompId,
        path: &str,
        in_loop: bool,
        depth: usize,
    ) -> (CompId, Vec<Flag>) {
        let c = self.copy(comp);
        let (mut flags, mut list) = self.body(c, path, in_loop, false, depth + 1);
        Self::original(&mut flags);
        let root = self.m.comp(c).root;
        let mut parts = vec![root];
        parts.extend(flags.iter().map(|f| f.1));
        let shape = Shape::Tuple(parts.iter().map(|&p| self.m.shape(p).clone()).collect());
        let root = self.put(&mut list, Opcode::Tuple, Attrs::None, &parts, shape);
        let comp = &mut self.m.comps[c.0 as usize];
        comp.instrs = list;
        comp.root = root;
        (c, flags.into_iter().map(|f| f.0).collect())
    }

    /// `whole` returns `(result, flag, ..)`: `i` becomes its first element.
    fn take(
        &mut self,
        list: &mut Vec<InstrId>,
        i: InstrId,
        whole: InstrId,
        flags: Vec<Flag>,
    ) -> Local {
        let ins = &mut self.m.instrs[i.0 as usize];
        ins.opcode = Opcode::GetTupleElement;
        ins.attrs = Attrs::TupleIndex(0);
        ins.operands = [whole].into_iter().collect();
        ins.calls = Default::default();
        ins.extra = None;
        list.push(i);
        let mut out = Vec::with_capacity(flags.len());
        for (k, f) in flags.into_iter().enumerate() {
            let s = Shape::array(DType::Pred, []);
            let attrs = Attrs::TupleIndex(k as i64 + 1);
            out.push((f, self.put(list, Opcode::GetTupleElement, attrs, &[whole], s)));
        }
        out
    }

    fn call(
        &mut self,
        i: InstrId,
        ins: &Instruction,
        path: &str,
        in_loop: bool,
        depth: usize,
        list: &mut Vec<InstrId>,
    ) -> Option<Local> {
        let &[comp] = &ins.calls[..] else { return None };
        let (c, flags) = self.reporting(comp, path, in_loop, depth);
        if flags.is_empty() {
            return None;
        }
        let shape = self.m.shape(self.m.comp(c).root).clone();
        let new = self.put(list, Opcode::Call, ins.attrs.clone(), &ins.operands, shape);
        self.m.instrs[new.0 as usize].calls = [c].into_iter().collect();
        Some(self.take(list, i, new, flags))
    }

    fn conditional(
        &mut self,
        i: InstrId,
        ins: &Instruction,
        path: &str,
        in_loop: bool,
        depth: usize,
        list: &mut Vec<InstrId>,
    ) -> Option<Local> {
        let branches: Vec<(CompId, Vec<Flag>)> =
            ins.calls.iter().map(|&c| self.reporting(c, path, in_loop, depth)).collect();
        let total: usize = branches.iter().map(|b| b.1.len()).sum();
        if total == 0 {
            return None;
        }
        // Every branch returns the flags of all; those of others are true.
        let mut before = 0;
        let mut shape = None;
        for (c, flags) in &branches {
            let root = self.m.comp(*c).root;
            let parts = self.m.instr(root).operands.to_vec();
            let mut rows = self.m.comp(*c).instrs.clone();
            rows.pop();
            let mut new = vec![parts[0]];
            for _ in 0..before {
                new.push(self.yes(&mut rows));
            }
            new.extend(&parts[1..]);
            for _ in before + flags.len()..total {
                new.push(self.yes(&mut rows));
            }
            before += flags.len();
            let s = Shape::Tuple(new.iter().map(|&p| self.m.shape(p).clone()).collect());
            shape = Some(s.clone());
            let root = self.put(&mut rows, Opcode::Tuple, Attrs::None, &new, s);
            let comp = &mut self.m.comps[c.0 as usize];
            comp.instrs = rows;
            comp.root = root;
        }
        let new = self.put(list, Opcode::Conditional, ins.attrs.clone(), &ins.operands, shape?);
        self.m.instrs[new.0 as usize].calls = branches.iter().map(|b| b.0).collect();
        let flags = branches.into_iter().flat_map(|b| b.1).collect();
        Some(self.take(list, i, new, flags))
    }

    fn loop_(
        &mut self,
        i: InstrId,
        ins: &Instruction,
        path: &str,
        depth: usize,
        list: &mut Vec<InstrId>,
    ) -> Option<Local> {
        let (&[cond, body], &[init]) = (&ins.calls[..], &ins.operands[..]) else { return None };
        let (b, flags) = self.reporting(body, path, true, depth);
        if flags.is_empty() {
            return None;
        }
        let state = self.m.shape(i).clone();
        let bools = std::iter::repeat_n(Shape::array(DType::Pred, []), flags.len());
        let wide = Shape::Tuple(std::iter::once(state.clone()).chain(bools).collect());
        let old = self.widen(b, &wide, &state)?;
        // Flags hold over all iterations.
        let root = self.m.comp(b).root;
        let parts = self.m.instr(root).operands.to_vec();
        let mut rows = self.m.comp(b).instrs.clone();
        rows.pop();
        let mut new = vec![parts[0]];
        for (k, &now) in parts[1..].iter().enumerate() {
            let s = Shape::array(DType::Pred, []);
            let attrs = Attrs::TupleIndex(k as i64 + 1);
            let before = self.put(&mut rows, Opcode::GetTupleElement, attrs, &[old], s);
            new.push(self.and(&mut rows, before, now));
        }
        let root = self.put(&mut rows, Opcode::Tuple, Attrs::None, &new, wide.clone());
        let comp = &mut self.m.comps[b.0 as usize];
        comp.instrs = rows;
        comp.root = root;
        let c = self.copy(cond);
        self.widen(c, &wide, &state)?;
        let mut first = vec![init];
        for _ in 0..flags.len() {
            first.push(self.yes(list));
        }
        let start = self.put(list, Opcode::Tuple, Attrs::None, &first, wide.clone());
        let new = self.put(list, Opcode::While, ins.attrs.clone(), &[start], wide);
        self.m.instrs[new.0 as usize].calls = [c, b].into_iter().collect();
        Some(self.take(list, i, new, flags))
    }

    /// Gives a computation of one parameter the parameter `(old, flag, ..)`;
    /// the new parameter.
    fn widen(&mut self, comp: CompId, wide: &Shape, state: &Shape) -> Option<InstrId> {
        let &[p] = &self.m.comp(comp).params[..] else { return None };
        let mut new = Vec::new();
        let attrs = Attrs::Parameter(0);
        let q = self.put(&mut new, Opcode::Parameter, attrs, &[], wide.clone());
        let id = self.m.shape_id(state.clone());
        let ins = &mut self.m.instrs[p.0 as usize];
        ins.opcode = Opcode::GetTupleElement;
        ins.attrs = Attrs::TupleIndex(0);
        ins.operands = [q].into_iter().collect();
        ins.shape = id;
        ins.extra = None;
        let c = &mut self.m.comps[comp.0 as usize];
        new.extend(c.instrs.iter().copied().filter(|&i| i != p));
        new.insert(1, p);
        c.instrs = new;
        c.params = vec![q];
        Some(q)
    }
}

/// The first flag of a test that is false on some device: its position and the
/// device. `values[device]` are the elements of the added output. What comes
/// before it in the order of execution passed, so (outside loops) it is the
/// writer.
pub fn first(flags: &[Flag], values: &[Vec<bool>], test: Test) -> Option<(usize, usize)> {
    let fails = |v: &Vec<bool>| flags.iter().zip(v).position(|(f, ok)| f.test == test && !ok);
    values.iter().enumerate().filter_map(|(d, v)| fails(v).map(|k| (k, d))).min()
}
