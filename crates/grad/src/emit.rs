//! Makes instructions, several computations at a time, and takes out what is
//! not used.

use crate::GradError;
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_ir::{
    ArrayShape, Attrs, CompId, CompareKind, Comparison, Computation, DType, InstrId, Instruction,
    Literal, MetaId, Module, Opcode, PadDim, Shape, SliceAttrs, Span, Symbol, infer_op,
};

/// Result of making an instruction.
pub(crate) type Res<T> = Result<T, GradError>;

/// A computation that is not finished.
struct Open {
    name: Symbol,
    instrs: Vec<InstrId>,
    params: Vec<InstrId>,
    used: FxHashSet<Symbol>,
}

/// A module under construction.
pub(crate) struct Emit {
    pub(crate) m: Module,
    open: Vec<Open>,
    names: FxHashSet<Symbol>,
    reducers: FxHashMap<(Opcode, DType), CompId>,
    constants: FxHashMap<(usize, DType, u64), InstrId>,
    /// Metadata of new instructions.
    pub(crate) metadata: Option<MetaId>,
    limit: usize,
}

pub(crate) fn internal(message: impl Into<String>, expected: impl Into<String>) -> GradError {
    GradError {
        instr: None,
        opcode: None,
        span: Span::default(),
        message: message.into(),
        expected: expected.into(),
    }
}

/// Without layouts.
pub(crate) fn plain(s: &Shape) -> Shape {
    match s {
        Shape::Array(a) => Shape::Array(ArrayShape { layout: None, ..a.clone() }),
        Shape::Tuple(t) => Shape::Tuple(t.iter().map(plain).collect()),
        Shape::Buffer(b) => Shape::Buffer(Box::new(plain(b))),
        other => other.clone(),
    }
}

impl Emit {
    /// An empty module with the strings, source tables and header of `m`.
    pub(crate) fn new(m: &Module, limit: usize) -> Emit {
        let mut n = m.clone();
        n.instrs.clear();
        n.comps.clear();
        n.header.entry_layout = None;
        n.header.spmd_output_sharding = None;
        n.header.is_scheduled = false;
        n.header.other.clear();
        Emit {
            m: n,
            open: Vec::new(),
            names: FxHashSet::default(),
            reducers: FxHashMap::default(),
            constants: FxHashMap::default(),
            metadata: None,
            limit,
        }
    }

    /// Begins a computation inside the one under construction.
    pub(crate) fn begin(&mut self, name: &str) {
        let mut s = self.m.strings.intern(name);
        let mut k = self.m.comps.len();
        while !self.names.insert(s) {
            s = self.m.strings.intern(&format!("{name}.{k}"));
            k += 1;
        }
        self.open.push(Open {
            name: s,
            instrs: Vec::new(),
            params: Vec::new(),
            used: FxHashSet::default(),
        });
    }

    /// Computations under construction.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Ends it.
    pub(crate) fn end(&mut self, root: InstrId) -> Res<CompId> {
        let depth = self.open.len();
        self.constants.retain(|k, _| k.0 < depth);
        let mut o = self.open.pop().ok_or_else(|| internal("no computation is open", "one"))?;
        o.params.sort_by_key(|p| match self.m.instr(*p).attrs {
            Attrs::Parameter(n) => n,
            _ => u32::MAX,
        });
        let id = CompId(self.m.comps.len() as u32);
        self.m.comps.push(Computation {
            name: o.name,
            instrs: o.instrs,
            params: o.params,
            root,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        });
        Ok(id)
    }

    /// Appends an instruction; its name is made unique.
    pub(crate) fn push(&mut self, mut i: Instruction) -> Res<InstrId> {
        if self.m.instrs.len() >= self.limit {
            return Err(internal(
                format!("more than {} instructions", self.limit),
                "a smaller program",
            ));
        }
        let id = InstrId(self.m.instrs.len() as u32);
        let Some(o) = self.open.last_mut() else {
            return Err(internal("no computation is open", "one"));
        };
        let mut k = id.0;
        while !o.used.insert(i.name) {
            i.name = self.m.strings.intern(&format!("{}.{k}", i.opcode.name()));
            k += 1;
        }
        if i.opcode == Opcode::Parameter {
            o.params.push(id);
        }
        o.instrs.push(id);
        self.m.instrs.push(i);
        Ok(id)
    }

    /// Appends an instruction of a given shape, unchecked.
    pub(crate) fn raw(
        &mut self,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        shape: Shape,
    ) -> Res<InstrId> {
        let name = self.m.strings.intern(&format!("{}.{}", opcode.name(), self.m.instrs.len()));
        let shape = self.m.shape_id(shape);
        self.push(Instruction {
            name,
            opcode,
            shape,
            operands: operands.into(),
            calls: calls.into(),
            attrs,
            extra: None,
            metadata: self.metadata,
            span: Span::default(),
        })
    }

    /// Appends an instruction with the shape that follows.
    pub(crate) fn op(
        &mut self,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        declared: Option<Shape>,
    ) -> Res<InstrId> {
        let s =
            infer_op(&self.m, opcode, &attrs, operands, calls, declared.as_ref()).map_err(|e| {
                internal(format!("derivative needs {opcode}: {}", e.message), e.expected)
            })?;
        match s.or(declared) {
            Some(s) => self.raw(opcode, attrs, operands, calls, plain(&s)),
            None => Err(internal(format!("no shape for {opcode}"), "one")),
        }
    }

    pub(crate) fn array(&self, x: InstrId) -> Res<ArrayShape> {
        let a = self.m.array(x).ok_or_else(|| internal("a value that is no array", "an array"))?;
        Ok(ArrayShape { layout: None, ..a.clone() })
    }

    pub(crate) fn dims(&self, x: InstrId) -> Vec<i64> {
        self.m.shape(x).dims().to_vec()
    }

    pub(crate) fn parameter(&mut self, shape: Shape) -> Res<InstrId> {
        let n = self.open.last().map_or(0, |o| o.params.len()) as u32;
        self.raw(Opcode::Parameter, Attrs::Parameter(n), &[], &[], shape)
    }

    pub(crate) fn un(&mut self, op: Opcode, x: InstrId) -> Res<InstrId> {
        self.op(op, Attrs::None, &[x], &[], None)
    }

    pub(crate) fn bin(&mut self, op: Opcode, x: InstrId, y: InstrId) -> Res<InstrId> {
        self.op(op, Attrs::None, &[x, y], &[], None)
    }

    pub(crate) fn add(&mut self, x: InstrId, y: InstrId) -> Res<InstrId> {
        self.bin(Opcode::Add, x, y)
    }

    pub(crate) fn sub(&mut self, x: InstrId, y: InstrId) -> Res<InstrId> {
        self.bin(Opcode::Subtract, x, y)
    }

    pub(crate) fn mul(&mut self, x: InstrId, y: InstrId) -> Res<InstrId> {
        self.bin(Opcode::Multiply, x, y)
    }

    pub(crate) fn div(&mut self, x: InstrId, y: InstrId) -> Res<InstrId> {
        self.bin(Opcode::Divide, x, y)
    }

    pub(crate) fn neg(&mut self, x: InstrId) -> Res<InstrId> {
        self.un(Opcode::Negate, x)
    }

    pub(crate) fn compare(&mut self, d: Comparison, x: InstrId, y: InstrId) -> Res<InstrId> {
        let kind: Option<CompareKind> = None;
        self.op(Opcode::Compare, Attrs::Compare { direction: d, kind }, &[x, y], &[], None)
    }

    pub(crate) fn select(&mut self, p: InstrId, x: InstrId, y: InstrId) -> Res<InstrId> {
        self.op(Opcode::Select, Attrs::None, &[p, x, y], &[], None)
    }

    pub(crate) fn convert(&mut self, x: InstrId, t: DType) -> Res<InstrId> {
        let a = self.array(x)?;
        if a.dtype == t {
            return Ok(x);
        }
        self.op(Opcode::Convert, Attrs::None, &[x], &[], Some(Shape::array(t, a.dims)))
    }

    pub(crate) fn reshape(&mut self, x: InstrId, dims: &[i64]) -> Res<InstrId> {
        let a = self.array(x)?;
        if a.dims[..] == *dims {
            return Ok(x);
        }
        let s = Shape::array(a.dtype, dims.iter().copied());
        self.op(Opcode::Reshape, Attrs::None, &[x], &[], Some(s))
    }

    pub(crate) fn transpose(&mut self, x: InstrId, perm: &[i64]) -> Res<InstrId> {
        if perm.iter().enumerate().all(|(k, &p)| k as i64 == p) {
            return Ok(x);
        }
        self.op(Opcode::Transpose, Attrs::Dims(perm.into()), &[x], &[], None)
    }

    /// Dimension `i` of `x` becomes dimension `map[i]`.
    pub(crate) fn broadcast(&mut self, x: InstrId, dims: &[i64], map: &[i64]) -> Res<InstrId> {
        let a = self.array(x)?;
        if a.dims[..] == *dims {
            return Ok(x);
        }
        let s = Shape::array(a.dtype, dims.iter().copied());
        self.op(Opcode::Broadcast, Attrs::Dims(map.into()), &[x], &[], Some(s))
    }

    /// A scalar constant.
    pub(crate) fn scalar(&mut self, t: DType, v: f64) -> Res<InstrId> {
        let key = (self.open.len(), t, v.to_bits());
        if let Some(&x) = self.constants.get(&key) {
            return Ok(x);
        }
        let bytes: Option<Vec<u8>> = match t {
            DType::F64 => Some(v.to_le_bytes().to_vec()),
            DType::F32 => Some((v as f32).to_le_bytes().to_vec()),
            DType::S32 => Some((v as i32).to_le_bytes().to_vec()),
            DType::S64 => Some((v as i64).to_le_bytes().to_vec()),
            DType::U32 => Some((v as u32).to_le_bytes().to_vec()),
            DType::U64 => Some((v as u64).to_le_bytes().to_vec()),
            DType::Pred => Some(vec![u8::from(v != 0.0)]),
            _ => None,
        };
        let x = match bytes {
            Some(b) => {
                let l = Literal::dense(ArrayShape::new(t, []), b);
                let s = l.shape.clone();
                self.raw(Opcode::Constant, Attrs::Constant(Box::new(l)), &[], &[], s)?
            }
            None => {
                let wide = if t.is_float() { DType::F32 } else { DType::S32 };
                let c = self.scalar(wide, v)?;
                self.convert(c, t)?
            }
        };
        self.constants.insert(key, x);
        Ok(x)
    }

    /// An array filled with a number.
    pub(crate) fn full(&mut self, like: &ArrayShape, v: f64) -> Res<InstrId> {
        let c = self.scalar(like.dtype, v)?;
        self.broadcast(c, &like.dims.clone(), &[])
    }

    /// `c x` for a number `c`.
    pub(crate) fn scaled(&mut self, x: InstrId, c: f64) -> Res<InstrId> {
        let a = self.array(x)?;
        let c = self.full(&a, c)?;
        self.mul(x, c)
    }

    /// `x + c` for a number `c`.
    pub(crate) fn plus(&mut self, x: InstrId, c: f64) -> Res<InstrId> {
        let a = self.array(x)?;
        let c = self.full(&a, c)?;
        self.add(x, c)
    }

    /// Computation `(x, y) -> op(x, y)` on scalars.
    pub(crate) fn reducer(&mut self, op: Opcode, t: DType) -> Res<CompId> {
        if let Some(&c) = self.reducers.get(&(op, t)) {
            return Ok(c);
        }
        self.begin(&format!("{}_{}", op.name().replace('-', "_"), t.name()));
        let x = self.parameter(Shape::array(t, []))?;
        let y = self.parameter(Shape::array(t, []))?;
        let r = self.bin(op, x, y)?;
        let c = self.end(r)?;
        self.reducers.insert((op, t), c);
        Ok(c)
    }

    /// Sum over dimensions.
    pub(crate) fn sum(&mut self, x: InstrId, dims: &[i64]) -> Res<InstrId> {
        if dims.is_empty() {
            return Ok(x);
        }
        let t = self.array(x)?.dtype;
        let zero = self.scalar(t, 0.0)?;
        let f = self.reducer(Opcode::Add, t)?;
        self.op(Opcode::Reduce, Attrs::Dims(dims.into()), &[x, zero], &[f], None)
    }

    /// (low, high, interior) per dimension, filled with zeros.
    pub(crate) fn pad(&mut self, x: InstrId, p: &[(i64, i64, i64)]) -> Res<InstrId> {
        if p.iter().all(|&p| p == (0, 0, 0)) {
            return Ok(x);
        }
        let t = self.array(x)?.dtype;
        let zero = self.scalar(t, 0.0)?;
        let dim = |&(low, high, interior): &(i64, i64, i64)| PadDim { low, high, interior };
        self.op(Opcode::Pad, Attrs::Pad(p.iter().map(dim).collect()), &[x, zero], &[], None)
    }

    /// (start, limit, stride) per dimension.
    pub(crate) fn slice(&mut self, x: InstrId, r: &[(i64, i64, i64)]) -> Res<InstrId> {
        let d = self.dims(x);
        if r.iter().zip(&d).all(|(&r, &d)| r == (0, d, 1)) {
            return Ok(x);
        }
        let s = SliceAttrs {
            start: r.iter().map(|r| r.0).collect(),
            limit: r.iter().map(|r| r.1).collect(),
            stride: r.iter().map(|r| r.2).collect(),
        };
        self.op(Opcode::Slice, Attrs::Slice(Box::new(s)), &[x], &[], None)
    }

    pub(crate) fn iota(&mut self, t: DType, dims: &[i64], dim: i64) -> Res<InstrId> {
        let s = Shape::array(t, dims.iter().copied());
        self.op(Opcode::Iota, Attrs::Iota(dim), &[], &[], Some(s))
    }

    pub(crate) fn tuple(&mut self, xs: &[InstrId]) -> Res<InstrId> {
        let s = Shape::Tuple(xs.iter().map(|&x| self.m.shape(x).clone()).collect());
        self.raw(Opcode::Tuple, Attrs::None, xs, &[], s)
    }

    pub(crate) fn element(&mut self, x: InstrId, k: usize) -> Res<InstrId> {
        self.op(Opcode::GetTupleElement, Attrs::TupleIndex(k as i64), &[x], &[], None)
    }
}

/// The module without instructions and computations that nothing needs; side
/// effects and parameters stay. Ids change, names do not.
pub fn prune(m: &Module) -> Module {
    let mut live = vec![false; m.instrs.len()];
    let mut called = vec![false; m.comps.len()];
    let mut todo = vec![m.entry];
    if let Some(c) = called.get_mut(m.entry.0 as usize) {
        *c = true;
    }
    while let Some(c) = todo.pop() {
        let comp = m.comp(c);
        for &p in comp.params.iter().chain([&comp.root]) {
            live[p.0 as usize] = true;
        }
        for &i in comp.instrs.iter().rev() {
            let ins = m.instr(i);
            live[i.0 as usize] |= side_effect(m, ins);
            if !live[i.0 as usize] {
                continue;
            }
            let before = ins.extra.iter().flat_map(|e| &e.control_predecessors);
            for &o in ins.operands.iter().chain(before) {
                live[o.0 as usize] = true;
            }
            for &f in &ins.calls {
                if !std::mem::replace(&mut called[f.0 as usize], true) {
                    todo.push(f);
                }
            }
        }
    }
    let mut out = m.clone();
    out.instrs.clear();
    out.comps.clear();
    let mut ids = vec![InstrId(0); m.instrs.len()];
    let mut comps = vec![CompId(0); m.comps.len()];
    for (k, c) in m.comps.iter().enumerate() {
        if !called[k] {
            continue;
        }
        let mut list = Vec::new();
        for &i in c.instrs.iter().filter(|i| live[i.0 as usize]) {
            let id = InstrId(out.instrs.len() as u32);
            ids[i.0 as usize] = id;
            list.push(id);
            out.instrs.push(m.instr(i).clone());
        }
        for &i in &list {
            let ins = &mut out.instrs[i.0 as usize];
            ins.operands.iter_mut().for_each(|o| *o = ids[o.0 as usize]);
            ins.calls.iter_mut().for_each(|f| *f = comps[f.0 as usize]);
            if let Some(e) = &mut ins.extra {
                e.control_predecessors.iter_mut().for_each(|o| *o = ids[o.0 as usize]);
            }
        }
        comps[k] = CompId(out.comps.len() as u32);
        out.comps.push(Computation {
            instrs: list,
            params: c.params.iter().map(|p| ids[p.0 as usize]).collect(),
            root: ids[c.root.0 as usize],
            ..c.clone()
        });
    }
    out.entry = comps[m.entry.0 as usize];
    out
}

fn side_effect(m: &Module, i: &Instruction) -> bool {
    use Opcode::*;
    match (&i.attrs, i.opcode) {
        // Borders of manual regions are marked, but only change shapes.
        (Attrs::CustomCall(c), _) => c.has_side_effect && !m.str(c.target).starts_with("xla.sdy."),
        (_, Send | SendDone | Recv | RecvDone | Infeed | Outfeed) => true,
        _ => false,
    }
}
