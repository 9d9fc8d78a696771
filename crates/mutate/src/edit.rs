//! Edits of a module that keep it well formed: insertion, redirection of uses,
//! replacement of an instruction by another of the same shape.

use scalify_ir::{
    ArrayShape, Attrs, CompId, Computation, DType, InstrId, Instruction, Literal, Module, Opcode,
    Shape, Span, infer_op,
};

/// A copy of a module under change, and where it is changed.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The copy.
    pub m: Module,
    /// The computation that is changed.
    pub comp: CompId,
    /// Number of devices of the problem.
    pub devices: i64,
    /// What was done, for reports.
    pub text: String,
}

impl Edit {
    /// A copy of `m`, to be changed in `comp`.
    pub fn new(m: &Module, comp: CompId, devices: i64) -> Self {
        Edit { m: m.clone(), comp, devices, text: String::new() }
    }

    fn comp_mut(&mut self) -> &mut Computation {
        &mut self.m.comps[self.comp.0 as usize]
    }

    /// The instruction, to change.
    pub fn instr_mut(&mut self, id: InstrId) -> &mut Instruction {
        &mut self.m.instrs[id.0 as usize]
    }

    /// Position of an instruction in its computation.
    fn position(&self, id: InstrId) -> Option<usize> {
        self.m.comp(self.comp).instrs.iter().position(|&i| i == id)
    }

    /// Operands of an instruction.
    pub fn operands(&self, id: InstrId) -> Vec<InstrId> {
        self.m.instr(id).operands.to_vec()
    }

    /// Adds an instruction of a given shape before `at`.
    pub fn put(
        &mut self,
        at: InstrId,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
        shape: Shape,
    ) -> Option<InstrId> {
        let p = self.position(at)?;
        let name = format!("mutant.{}", self.m.instrs.len());
        let id = self.m.append(&name, opcode, attrs, operands, calls, shape);
        self.m.instrs[id.0 as usize].metadata = self.m.instr(at).metadata;
        self.comp_mut().instrs.insert(p, id);
        Some(id)
    }

    /// Adds an instruction before `at`, with the inferred shape.
    pub fn add(
        &mut self,
        at: InstrId,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
    ) -> Option<InstrId> {
        let shape = infer_op(&self.m, opcode, &attrs, operands, calls, None).ok()??;
        self.put(at, opcode, attrs, operands, calls, shape)
    }

    /// The instruction after `id` in its computation, moving `id` before a
    /// harmless end if there is none.
    fn after(&self, id: InstrId) -> Option<InstrId> {
        let p = self.position(id)?;
        self.m.comp(self.comp).instrs.get(p + 1).copied()
    }

    /// Runs `f` with an anchor such that what `f` puts before the anchor
    /// stands right after `id`; all other uses of `id` (and the root) then
    /// read the result of `f`.
    pub fn behind(
        &mut self,
        id: InstrId,
        f: impl FnOnce(&mut Edit, InstrId) -> Option<InstrId>,
    ) -> Option<InstrId> {
        let before = self.m.instrs.len();
        let anchor = match self.after(id) {
            Some(a) => a,
            None => {
                // Last of its computation: stand before it, then move it up.
                id
            }
        };
        let new = f(self, anchor)?;
        if anchor == id {
            let fresh = self.m.instrs.len() - before;
            let v = &mut self.comp_mut().instrs;
            let last = v.pop()?;
            let at = v.len().checked_sub(fresh)?;
            v.insert(at, last);
        }
        self.redirect(id, new, before);
        Some(new)
    }

    /// Uses of `old` by instructions older than `limit` read `new`.
    pub fn redirect(&mut self, old: InstrId, new: InstrId, limit: usize) {
        let ids = self.m.comp(self.comp).instrs.clone();
        for i in ids {
            if (i.0 as usize) < limit && i != new {
                for o in &mut self.m.instrs[i.0 as usize].operands {
                    if *o == old {
                        *o = new;
                    }
                }
            }
        }
        let c = self.comp_mut();
        if c.root == old {
            c.root = new;
        }
    }

    /// All uses of `old` read `new`, which stands before them.
    pub fn bypass(&mut self, old: InstrId, new: InstrId) {
        let n = self.m.instrs.len();
        self.redirect(old, new, n);
    }

    /// Gives `id` another meaning. If its shape changes but not its number of
    /// elements, a reshape restores the shape for the users.
    pub fn redo(
        &mut self,
        id: InstrId,
        opcode: Opcode,
        attrs: Attrs,
        operands: &[InstrId],
        calls: &[CompId],
    ) -> Option<()> {
        let old = self.m.shape(id).clone();
        let new = infer_op(&self.m, opcode, &attrs, operands, calls, Some(&old)).ok()?;
        let new = new.unwrap_or_else(|| old.clone());
        let same = new.same(&old);
        let sid = self.m.shape_id(new.clone());
        let i = self.instr_mut(id);
        i.opcode = opcode;
        i.attrs = attrs;
        i.operands = operands.into();
        i.calls = calls.into();
        if same {
            return Some(());
        }
        let (a, b) = (old.as_array()?.clone(), new.as_array()?.clone());
        if a.dtype != b.dtype || a.elements() != b.elements() {
            return None;
        }
        self.instr_mut(id).shape = sid;
        self.behind(id, |e, at| e.put(at, Opcode::Reshape, Attrs::None, &[id], &[], old))?;
        Some(())
    }

    /// Gives `id` other attributes; see [`Edit::redo`].
    pub fn reattr(&mut self, id: InstrId, attrs: Attrs) -> Option<()> {
        let i = self.m.instr(id);
        let (op, o, c) = (i.opcode, i.operands.to_vec(), i.calls.to_vec());
        self.redo(id, op, attrs, &o, &c)
    }

    /// Replaces operand `k` of `id` by a value of the same shape.
    pub fn set_operand(&mut self, id: InstrId, k: usize, new: InstrId) -> Option<()> {
        let old = *self.m.instr(id).operands.get(k)?;
        if old == new || !self.m.shape(old).same(self.m.shape(new)) {
            return None;
        }
        self.instr_mut(id).operands[k] = new;
        Some(())
    }

    /// A constant before `at`.
    pub fn constant(&mut self, at: InstrId, l: Literal) -> Option<InstrId> {
        let shape = l.shape.clone();
        self.put(at, Opcode::Constant, Attrs::Constant(Box::new(l)), &[], &[], shape)
    }

    /// A scalar constant before `at`.
    pub fn scalar(&mut self, at: InstrId, t: DType, v: f64) -> Option<InstrId> {
        let bytes = encode(t, v)?;
        self.constant(at, Literal::dense(ArrayShape::new(t, []), bytes))
    }

    /// A scalar constant broadcast to the shape of `like`, before `at`.
    pub fn filled(&mut self, at: InstrId, like: InstrId, v: f64) -> Option<InstrId> {
        let a = self.m.array(like)?.clone();
        let c = self.scalar(at, a.dtype, v)?;
        if a.dims.is_empty() {
            return Some(c);
        }
        let shape = Shape::Array(ArrayShape { layout: None, ..a });
        self.put(at, Opcode::Broadcast, Attrs::Dims(Default::default()), &[c], &[], shape)
    }

    /// `x` converted to `t`, before `at`.
    pub fn convert(&mut self, at: InstrId, x: InstrId, t: DType) -> Option<InstrId> {
        let a = self.m.array(x)?.clone();
        let shape = Shape::Array(ArrayShape { dtype: t, layout: None, ..a });
        self.put(at, Opcode::Convert, Attrs::None, &[x], &[], shape)
    }

    /// Adds a computation `(x, y) -> op(x, y)` on scalars before all others.
    /// Ids of computations held elsewhere become stale.
    pub fn reducer(&mut self, op: Opcode, t: DType) -> Option<CompId> {
        for i in &mut self.m.instrs {
            for c in &mut i.calls {
                c.0 += 1;
            }
        }
        self.m.entry.0 += 1;
        self.comp.0 += 1;
        let shape = self.m.shape_id(Shape::array(t, []));
        let base = self.m.instrs.len() as u32;
        let all = [
            (Opcode::Parameter, Attrs::Parameter(0), vec![]),
            (Opcode::Parameter, Attrs::Parameter(1), vec![]),
            (op, Attrs::None, vec![InstrId(base), InstrId(base + 1)]),
        ];
        for (k, (opcode, attrs, operands)) in all.into_iter().enumerate() {
            let name = self.m.strings.intern(&format!("mutant.{}", base + k as u32));
            self.m.instrs.push(Instruction {
                name,
                opcode,
                shape,
                operands: operands.into(),
                calls: Default::default(),
                attrs,
                extra: None,
                metadata: None,
                span: Span::default(),
            });
        }
        let ids: Vec<InstrId> = (base..base + 3).map(InstrId).collect();
        let name = self.m.strings.intern(&format!("mutant_reducer.{base}"));
        let c = Computation {
            name,
            params: ids[..2].to_vec(),
            root: ids[2],
            instrs: ids,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        };
        self.m.comps.insert(0, c);
        Some(CompId(0))
    }
}

/// Little-endian bytes of one element of a type, rounded; `None` for types
/// without an encoder here.
pub fn encode(t: DType, v: f64) -> Option<Vec<u8>> {
    Some(match t {
        DType::F64 => v.to_le_bytes().to_vec(),
        DType::F32 => (v as f32).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(v).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f64(v).to_le_bytes().to_vec(),
        DType::Pred => vec![u8::from(v != 0.0)],
        _ if t.is_int() => {
            let (lo, hi) = t.int_range()?;
            let x = (v as i128).clamp(lo, hi);
            x.to_le_bytes().into_iter().take(t.literal_bytes()).collect()
        }
        _ => return None,
    })
}

/// The value of one element; `None` for types without a decoder here.
pub fn decode(t: DType, b: &[u8]) -> Option<f64> {
    Some(match t {
        DType::F64 => f64::from_le_bytes(b.try_into().ok()?),
        DType::F32 => f32::from_le_bytes(b.try_into().ok()?) as f64,
        DType::F16 => half::f16::from_le_bytes(b.try_into().ok()?).to_f64(),
        DType::Bf16 => half::bf16::from_le_bytes(b.try_into().ok()?).to_f64(),
        DType::Pred => f64::from(b[0]),
        _ if t.is_int() => {
            let mut w = [0u8; 16];
            w[..b.len()].copy_from_slice(b);
            let up = 128 - 8 * b.len() as u32;
            let x = i128::from_le_bytes(w);
            (if t.is_signed() { x << up >> up } else { x }) as f64
        }
        _ => return None,
    })
}
