//! Small edits of a module: insert an instruction, redirect its users, make a
//! reducer. Results are checked with `scalify_ir::validate`.

use rustc_hash::FxHashSet;
use scalify_interp::Tensor;
use scalify_ir::attrs::CollectiveAttrs;
use scalify_ir::infer::infer_op;
use scalify_ir::source::Span;
use scalify_ir::{
    ArrayShape, Attrs, CompId, Computation, DType, InstrId, Literal, Module, Opcode, ReplicaGroups,
    Shape,
};

/// The module, if it is valid.
pub(crate) fn valid(m: Module) -> Option<Module> {
    let v = scalify_ir::validate(&m, &scalify_ir::ValidateOptions::default());
    v.iter().all(|i| i.severity != scalify_ir::validate::Severity::Error).then_some(m)
}

/// The instructions of a program in a smaller one made of it.
#[derive(Clone, Debug, Default)]
pub struct Ids(Option<(Vec<Option<InstrId>>, Vec<InstrId>)>);

impl Ids {
    /// What an instruction is in the smaller program.
    pub fn small(&self, x: InstrId) -> Option<InstrId> {
        match &self.0 {
            Some((small, _)) => small.get(x.0 as usize).copied().flatten(),
            None => Some(x),
        }
    }

    /// What an instruction of the smaller program is in the given one; `None`
    /// if it was made for the smaller one.
    pub fn given(&self, x: InstrId) -> Option<InstrId> {
        match &self.0 {
            Some((_, old)) => old.get(x.0 as usize).copied(),
            None => Some(x),
        }
    }

    /// The same in a still smaller program.
    #[must_use]
    pub fn then(&self, next: &Ids) -> Ids {
        let (Some((small, old)), Some((_, left))) = (&self.0, &next.0) else {
            return if self.0.is_some() { self.clone() } else { next.clone() };
        };
        // Made for the program in between: no instruction of the given one.
        let made = InstrId(u32::MAX);
        Ids(Some((
            small.iter().map(|x| x.and_then(|x| next.small(x))).collect(),
            left.iter().map(|x| old.get(x.0 as usize).copied().unwrap_or(made)).collect(),
        )))
    }
}

/// A module under edit.
#[derive(Clone, Debug)]
pub struct Editor {
    /// The module.
    pub m: Module,
    made: usize,
    shift: u32,
}

impl Editor {
    /// Starts from a copy.
    pub fn new(m: &Module) -> Editor {
        Editor::of(m.clone())
    }

    /// Edits the module itself.
    pub fn of(m: Module) -> Editor {
        // An edited module has names of ours already.
        let edited = m.instrs.iter().any(|i| m.str(i.name).starts_with("repair."));
        Editor { made: if edited { m.instrs.len() } else { 0 }, m, shift: 0 }
    }

    /// The id that a computation of the original module has now.
    pub fn now(&self, c: CompId) -> CompId {
        CompId(c.0 + self.shift)
    }

    /// Orders a computation again, operands before users; `None` if there is
    /// a cycle.
    pub fn sort(&mut self, comp: CompId) -> Option<()> {
        let list = &self.m.comps[comp.0 as usize].instrs;
        let mut state = vec![0u8; self.m.instrs.len()];
        let mut out = Vec::with_capacity(list.len());
        for &root in list {
            let mut stack = vec![(root, 0usize)];
            while let Some((x, k)) = stack.pop() {
                if k == 0 {
                    if state[x.0 as usize] == 2 {
                        continue;
                    }
                    state[x.0 as usize] = 1;
                }
                match self.m.instr(x).operands.get(k) {
                    Some(&o) => {
                        stack.push((x, k + 1));
                        match state[o.0 as usize] {
                            0 => stack.push((o, 0)),
                            1 => return None,
                            _ => {}
                        }
                    }
                    None => {
                        state[x.0 as usize] = 2;
                        out.push(x);
                    }
                }
            }
        }
        self.m.comps[comp.0 as usize].instrs = out;
        Some(())
    }

    /// The edited module, if it is valid.
    pub fn finish(self) -> Option<Module> {
        valid(self.m)
    }

    /// Adds an instruction to `comp` right after `after` (at the front if
    /// `None`). Its origin is that of `after`.
    pub fn insert(
        &mut self,
        comp: CompId,
        after: Option<InstrId>,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        declared: Option<Shape>,
    ) -> Option<InstrId> {
        let shape = match infer_op(&self.m, opcode, &attrs, operands, calls, declared.as_ref()) {
            Ok(Some(s)) => s,
            Ok(None) => declared?,
            Err(_) => return None,
        };
        let name = format!("repair.{}", self.made);
        self.made += 1;
        let metadata = after.and_then(|a| self.m.instr(a).metadata);
        let id = self.m.append(&name, opcode, attrs, operands, calls, shape);
        self.m.instrs[id.0 as usize].metadata = metadata;
        let list = &mut self.m.comps[comp.0 as usize].instrs;
        let mut at = match after {
            Some(a) => list.iter().position(|&x| x == a)? + 1,
            None => 0,
        };
        // Operands stand before their users.
        let mut open: FxHashSet<InstrId> = operands.iter().copied().collect();
        let mut last = None;
        for (k, x) in list.iter().enumerate().rev() {
            if open.is_empty() {
                break;
            }
            if open.remove(x) {
                last = last.or(Some(k));
            }
        }
        if !open.is_empty() {
            return None;
        }
        at = at.max(last.map_or(0, |k| k + 1));
        list.insert(at, id);
        Some(id)
    }

    /// Makes all users of `from` in `comp`, the result included, use `to`.
    pub fn redirect(&mut self, comp: CompId, from: InstrId, to: InstrId, except: &[InstrId]) {
        let ids = self.m.comps[comp.0 as usize].instrs.clone();
        for id in ids {
            if id == to || except.contains(&id) {
                continue;
            }
            for o in &mut self.m.instrs[id.0 as usize].operands {
                if *o == from {
                    *o = to;
                }
            }
        }
        let c = &mut self.m.comps[comp.0 as usize];
        if c.root == from {
            c.root = to;
        }
    }

    /// Takes the instructions that `dead` says out of the entry; nothing else
    /// may read them. What is left of them are numbers in a computation that is
    /// not called, so that ids stay.
    pub fn remove(&mut self, dead: impl Fn(InstrId) -> bool) -> Option<()> {
        let scalar = ArrayShape::new(DType::F32, []);
        let zero = filled(&scalar, 0.0)?;
        let shape = self.m.shape_id(Shape::Array(scalar));
        let entry = self.m.entry.0 as usize;
        let list = std::mem::take(&mut self.m.comps[entry].instrs);
        let (gone, left): (Vec<_>, Vec<_>) = list.into_iter().partition(|&x| dead(x));
        self.m.comps[entry].instrs = left;
        for &x in &gone {
            let i = &mut self.m.instrs[x.0 as usize];
            (i.opcode, i.attrs, i.shape) =
                (Opcode::Constant, Attrs::Constant(Box::new(zero.clone())), shape);
            i.operands.clear();
            i.calls.clear();
        }
        let Some(&root) = gone.first() else { return Some(()) };
        let name = self.m.strings.intern("removed");
        let comps = &mut self.m.comps;
        match comps.iter_mut().find(|c| c.name == name && c.params.is_empty()) {
            Some(c) => c.instrs.extend(gone),
            None => comps.push(Computation {
                name,
                instrs: gone,
                params: Vec::new(),
                root,
                execution_thread: None,
                other: Vec::new(),
                span: Span::default(),
            }),
        }
        Some(())
    }

    /// The module with nothing but the instructions of the entry that `keep`
    /// says, the parameters, and what those call; not checked. Instructions
    /// are numbered anew.
    pub fn compact(self, keep: impl Fn(InstrId) -> bool) -> Option<(Module, Ids)> {
        let mut m = self.m;
        let entry = m.entry.0 as usize;
        let params: FxHashSet<InstrId> = m.comps.get(entry)?.params.iter().copied().collect();
        m.comps[entry].instrs.retain(|&x| keep(x) || params.contains(&x));
        let mut called = vec![false; m.comps.len()];
        let mut work = vec![entry];
        while let Some(c) = work.pop() {
            if !std::mem::replace(called.get_mut(c)?, true) {
                let list = m.comps[c].instrs.iter();
                work.extend(list.flat_map(|&x| &m.instr(x).calls).map(|c| c.0 as usize));
            }
        }
        let mut live = vec![false; m.instrs.len()];
        for c in m.comps.iter().zip(&called).filter(|c| *c.1) {
            c.0.instrs.iter().for_each(|x| live[x.0 as usize] = true);
        }
        let mut old = Vec::new();
        let mut small = vec![None; m.instrs.len()];
        for (k, slot) in small.iter_mut().enumerate().filter(|(k, _)| live[*k]) {
            *slot = Some(InstrId(u32::try_from(old.len()).ok()?));
            old.push(InstrId(k as u32));
        }
        let mut count = 0;
        let comps: Vec<CompId> = called
            .iter()
            .map(|&c| {
                count += u32::from(c);
                CompId(count.saturating_sub(1))
            })
            .collect();
        let now = |x: InstrId| small.get(x.0 as usize).copied().flatten();
        let mut keep = live.iter();
        m.instrs.retain(|_| keep.next() == Some(&true));
        for i in &mut m.instrs {
            for o in &mut i.operands {
                *o = now(*o)?;
            }
            for c in &mut i.calls {
                *c = comps[c.0 as usize];
            }
        }
        let mut keep = called.iter();
        m.comps.retain(|_| keep.next() == Some(&true));
        for c in &mut m.comps {
            for x in c.instrs.iter_mut().chain(&mut c.params).chain([&mut c.root]) {
                *x = now(*x)?;
            }
        }
        m.entry = comps[entry];
        Some((m, Ids(Some((small, old)))))
    }

    /// A scalar or filled constant.
    pub fn constant(&mut self, comp: CompId, dtype: DType, value: f64) -> Option<InstrId> {
        let l = filled(&ArrayShape::new(dtype, []), value)?;
        let shape = l.shape.clone();
        self.insert(
            comp,
            None,
            Opcode::Constant,
            Attrs::Constant(Box::new(l)),
            &[],
            &[],
            Some(shape),
        )
    }

    /// `x` times a number, after `x`.
    pub fn scaled(&mut self, comp: CompId, x: InstrId, factor: f64) -> Option<InstrId> {
        let a = self.m.array(x)?.clone();
        let c = self.constant(comp, a.dtype, factor)?;
        let b = self.spread(comp, x, c, &a)?;
        self.insert(comp, Some(b), Opcode::Multiply, Attrs::None, &[x, b], &[], None)
    }

    /// A scalar broadcast to the sizes of `a`.
    pub fn spread(
        &mut self,
        comp: CompId,
        after: InstrId,
        c: InstrId,
        a: &ArrayShape,
    ) -> Option<InstrId> {
        if a.dims.is_empty() {
            return Some(c);
        }
        let d = self.m.dtype(c)?;
        let shape = Shape::Array(ArrayShape::new(d, a.dims.iter().copied()));
        let dims = Attrs::Dims(Default::default());
        self.insert(comp, Some(after), Opcode::Broadcast, dims, &[c], &[], Some(shape))
    }

    /// A computation `(x, y) -> op(x, y)` on scalars: one that is there, or a
    /// new one before all others.
    pub fn reducer(&mut self, op: Opcode, dtype: DType) -> Option<CompId> {
        let scalar = |m: &Module, x: InstrId| {
            m.array(x).is_some_and(|a| a.dtype == dtype && a.dims.is_empty())
        };
        for (k, c) in self.m.comps.iter().enumerate() {
            let r = self.m.instr(c.root);
            if r.opcode == op && c.params.len() == 2 && r.operands[..] == c.params[..] {
                if c.instrs.len() == 3 && scalar(&self.m, c.root) && scalar(&self.m, c.params[0]) {
                    return Some(CompId(k as u32));
                }
            }
        }
        for i in &mut self.m.instrs {
            for c in &mut i.calls {
                c.0 += 1;
            }
        }
        self.m.entry.0 += 1;
        self.shift += 1;
        let name = self.m.strings.intern(&format!("repair_{}_{}", op.name(), dtype.name()));
        let none = InstrId(0);
        let c = Computation {
            name,
            instrs: Vec::new(),
            params: Vec::new(),
            root: none,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        };
        self.m.comps.insert(0, c);
        let id = CompId(0);
        let s = Shape::Array(ArrayShape::new(dtype, []));
        let mut p = Vec::new();
        for k in 0..2 {
            let after = p.last().copied();
            let x = self.insert(
                id,
                after,
                Opcode::Parameter,
                Attrs::Parameter(k),
                &[],
                &[],
                Some(s.clone()),
            )?;
            p.push(x);
        }
        let r = self.insert(id, Some(p[1]), op, Attrs::None, &p, &[], None)?;
        let c = &mut self.m.comps[0];
        c.params = p;
        c.root = r;
        Some(id)
    }

    /// An all-reduce after `x`, which stands in `comp` of the original module.
    pub fn all_reduce(
        &mut self,
        comp: CompId,
        x: InstrId,
        op: Opcode,
        attrs: CollectiveAttrs,
    ) -> Option<InstrId> {
        let f = self.reducer(op, self.m.dtype(x)?)?;
        let a = Attrs::Collective(Box::new(attrs));
        self.insert(self.now(comp), Some(x), Opcode::AllReduce, a, &[x], &[f], None)
    }
}

/// An array filled with one number, rounded to the element type.
pub fn filled(a: &ArrayShape, value: f64) -> Option<Literal> {
    let n = usize::try_from(a.dims.iter().product::<i64>()).ok().filter(|&n| n <= 1 << 22)?;
    let plain = ArrayShape::new(a.dtype, a.dims.iter().copied());
    let bytes = if a.dtype.is_float() {
        let t = Tensor::from_vec(a.dtype, plain.dims.iter().copied(), vec![value; n])?;
        t.to_bytes()
    } else if a.dtype.int_range().is_some() {
        let v = value as i64;
        if v as f64 != value {
            return None;
        }
        let (lo, hi) = a.dtype.int_range()?;
        if i128::from(v) < lo || i128::from(v) > hi {
            return None;
        }
        let w = a.dtype.literal_bytes();
        (0..n).flat_map(|_| v.to_le_bytes()[..w.min(8)].to_vec()).collect()
    } else {
        return None;
    };
    Some(Literal {
        shape: Shape::Array(a.clone()),
        data: scalify_ir::LiteralData::Dense(bytes.into()),
    })
}

/// The one number that a literal is filled with.
pub fn number(l: &Literal) -> Option<f64> {
    let t = Tensor::from_literal(l)?;
    if t.dtype.is_complex() || t.is_empty() {
        return None;
    }
    let v = t.to_f64();
    v.iter().all(|x| *x == v[0]).then_some(v[0])
}

/// Groups of the devices that differ only in the mesh axes of `mask` (bit k:
/// axis k; ids row-major).
pub fn groups(mesh: &[(String, i64)], mask: u32) -> ReplicaGroups {
    let n: i64 = mesh.iter().map(|a| a.1).product();
    let mut out: Vec<(i64, Vec<i64>)> = Vec::new();
    for d in 0..n {
        let mut key = 0;
        let mut stride = 1;
        for (k, (_, s)) in mesh.iter().enumerate().rev() {
            if mask & 1 << k == 0 {
                key += d / stride % s * stride;
            }
            stride *= s;
        }
        match out.iter_mut().find(|g| g.0 == key) {
            Some(g) => g.1.push(d),
            None => out.push((key, vec![d])),
        }
    }
    ReplicaGroups::List(out.into_iter().map(|g| g.1).collect())
}
