//! Candidates applied: the edited module.

use crate::candidates::{Candidate, Context, Edit};
use crate::edit::{Editor, filled, groups};
use scalify_ir::attrs::CollectiveAttrs;
use scalify_ir::{ArrayShape, Attrs, CompId, DType, InstrId, Module, Opcode, Shape};

impl Context<'_> {
    /// The edited module, if it is valid.
    pub fn apply(&self, x: &Candidate) -> Option<Module> {
        let mut e = Editor::new(self.m);
        self.one(&mut e, x.at, &x.edit)?;
        for (at, edit) in &x.also {
            self.one(&mut e, *at, edit)?;
        }
        e.finish()
    }

    fn one(&self, e: &mut Editor, at: InstrId, edit: &Edit) -> Option<()> {
        let m = self.m;
        let c = e.now(self.owner[at.0 as usize]);
        let i = &m.instr(at);
        match edit {
            Edit::AllReduce { mask, op, mean, drop } => {
                let mut r =
                    e.all_reduce(self.owner[at.0 as usize], at, *op, self.template(*mask))?;
                let c = e.now(self.owner[at.0 as usize]);
                let sum = r;
                let mut made = vec![r];
                if *mean {
                    let n: i64 = (0..self.mesh.len())
                        .filter(|j| mask & 1 << j != 0)
                        .map(|j| self.mesh[j].1)
                        .product();
                    r = e.scaled(c, sum, 1.0 / n as f64)?;
                    made.push(r);
                }
                e.redirect(c, at, r, &made);
                if let Some(d) = drop {
                    let o = e.m.instr(*d).operands.first().copied()?;
                    e.redirect(c, *d, o, &[]);
                }
            }
            Edit::Drop => {
                let o = *i.operands.first()?;
                e.redirect(c, at, o, &[]);
            }
            Edit::Groups { mask } => {
                let new = groups(&self.mesh, *mask);
                let Attrs::Collective(a) = &mut e.m.instrs[at.0 as usize].attrs else {
                    return None;
                };
                // Without a channel, ids are those of replicas.
                let mode = a.channel_id.is_none() && !self.replica_mode;
                if a.groups == new && !mode {
                    return None;
                }
                a.groups = new;
                if mode {
                    a.channel_id = Some(1);
                    a.use_global_device_ids = true;
                }
            }
            Edit::Reducer { op } => {
                let old = *i.calls.first()?;
                let (f, r) = (m.comp(old), m.instr(m.comp(old).root));
                let whole = r.operands.len() < 2 || r.operands[0] != r.operands[1];
                if r.opcode == *op && whole && f.params.len() == 2 {
                    return None;
                }
                let f = e.reducer(*op, m.dtype(at)?)?;
                e.m.instrs[at.0 as usize].calls = [f].into_iter().collect();
            }
            Edit::Redo { source, like, dim } => {
                let Attrs::Collective(a) = &m.instr(*like).attrs else { return None };
                let a = CollectiveAttrs { dimension: Some(*dim), ..(**a).clone() };
                let want = m.shape(at).clone();
                let calls = e.m.instr(*like).calls.clone();
                let g = e.insert(
                    c,
                    Some(*like),
                    m.instr(*like).opcode,
                    Attrs::Collective(Box::new(a)),
                    &[*source],
                    &calls,
                    Some(want.clone()),
                )?;
                if !e.m.shape(g).same(&want) {
                    return None;
                }
                e.redirect(c, at, g, &[g]);
            }
            Edit::Gather { source, mask, dim } => {
                let a = CollectiveAttrs { dimension: Some(*dim), ..self.template(*mask) };
                let want = m.shape(at).clone();
                let g = e.insert(
                    c,
                    Some(*source),
                    Opcode::AllGather,
                    Attrs::Collective(Box::new(a)),
                    &[*source],
                    &[],
                    Some(want.clone()),
                )?;
                if !e.m.shape(g).same(&want) {
                    return None;
                }
                e.redirect(c, at, g, &[g]);
                e.sort(c)?;
            }
            Edit::Use { operand } => {
                let o = *i.operands.get(*operand)?;
                e.redirect(c, at, o, &[]);
            }
            Edit::TransposeAfter { perm } => {
                let o = *i.operands.first()?;
                let a = m.array(at)?.clone();
                let mid = perm.iter().map(|&p| a.dims[p as usize]);
                let mid = Shape::Array(ArrayShape::new(a.dtype, mid));
                let r = e.insert(c, Some(o), Opcode::Reshape, Attrs::None, &[o], &[], Some(mid))?;
                // Dimension d of the result is where perm has d.
                let inverse = (0..perm.len() as i64)
                    .map(|d| perm.iter().position(|&p| p == d).map(|k| k as i64))
                    .collect::<Option<scalify_ir::shape::Dims>>()?;
                let t =
                    e.insert(c, Some(r), Opcode::Transpose, Attrs::Dims(inverse), &[r], &[], None)?;
                e.redirect(c, at, t, &[r, t]);
                e.sort(c)?;
            }
            Edit::Exchange { with } => {
                let (at, with) = (at, *with);
                for k in m.comp(self.owner[at.0 as usize]).instrs.iter() {
                    for o in &mut e.m.instrs[k.0 as usize].operands {
                        *o = if *o == at {
                            with
                        } else if *o == with {
                            at
                        } else {
                            *o
                        };
                    }
                }
                e.sort(c)?;
            }
            Edit::Pairs { pairs } => {
                let Attrs::Collective(a) = &mut e.m.instrs[at.0 as usize].attrs else {
                    return None;
                };
                if a.pairs == *pairs {
                    return None;
                }
                a.pairs.clone_from(pairs);
            }
            Edit::Scale { factor } => {
                let s = e.scaled(c, at, *factor)?;
                let b = e.m.instr(s).operands[1];
                e.redirect(c, at, s, &[s, b]);
            }
            Edit::ScaleOperand { operand, factor } => {
                let o = *i.operands.get(*operand)?;
                let s = e.scaled(c, o, *factor)?;
                e.m.instrs[at.0 as usize].operands[*operand] = s;
            }
            Edit::Constant { value } => {
                let a = m.array(at)?.clone();
                let l = filled(&a, *value)?;
                if m.literal(at) == Some(&l) {
                    return None;
                }
                e.m.instrs[at.0 as usize].attrs = Attrs::Constant(Box::new(l));
            }
            Edit::TransposeBefore { perm } => {
                let o = *i.operands.first()?;
                let a = Attrs::Dims(perm.iter().copied().collect());
                let t = e.insert(c, Some(o), Opcode::Transpose, a, &[o], &[], None)?;
                e.m.instrs[at.0 as usize].operands[0] = t;
            }
            Edit::Permutation { perm } => {
                e.m.instrs[at.0 as usize].attrs = Attrs::Dims(perm.iter().copied().collect());
            }
            Edit::Relayout { split, perm } => {
                let a = m.array(at)?.clone();
                let s = |d: &[i64]| Some(Shape::Array(ArrayShape::new(a.dtype, d.iter().copied())));
                let r =
                    e.insert(c, Some(at), Opcode::Reshape, Attrs::None, &[at], &[], s(split))?;
                let p = Attrs::Dims(perm.iter().copied().collect());
                let t = e.insert(c, Some(r), Opcode::Transpose, p, &[r], &[], None)?;
                let b =
                    e.insert(c, Some(t), Opcode::Reshape, Attrs::None, &[t], &[], s(&a.dims))?;
                e.redirect(c, at, b, &[r]);
            }
            Edit::Operand { operand, with } => {
                *e.m.instrs[at.0 as usize].operands.get_mut(*operand)? = *with;
                e.sort(c)?;
            }
            Edit::Op { op } => e.m.instrs[at.0 as usize].opcode = *op,
            Edit::Direction { dir } => {
                let Attrs::Compare { direction, .. } = &mut e.m.instrs[at.0 as usize].attrs else {
                    return None;
                };
                *direction = *dir;
            }
            Edit::Coordinate { axis } => {
                let k = self.coordinate(e, c, at, *axis, m.dtype(at)?)?;
                e.redirect(c, at, k, &[]);
            }
            Edit::Offset { axis, stride } => {
                let a = m.array(at)?.clone();
                let k = self.coordinate(e, c, at, *axis, a.dtype)?;
                let s = e.constant(c, a.dtype, *stride as f64)?;
                let p = e.insert(c, Some(k), Opcode::Multiply, Attrs::None, &[k, s], &[], None)?;
                let b = e.spread(c, p, p, &a)?;
                let r = e.insert(c, Some(b), Opcode::Add, Attrs::None, &[at, b], &[], None)?;
                e.redirect(c, at, r, &[r]);
            }
            Edit::Add { with } => {
                let r = e.insert(c, Some(at), Opcode::Add, Attrs::None, &[at, *with], &[], None)?;
                e.redirect(c, at, r, &[r]);
                e.sort(c)?;
            }
            Edit::Swap => e.m.instrs[at.0 as usize].operands.swap(0, 1),
            Edit::Permute { like, times } => {
                let (mut p, mut made) = (at, Vec::new());
                for _ in 0..*times {
                    let a = m.instr(*like).attrs.clone();
                    p = e.insert(c, Some(p), Opcode::CollectivePermute, a, &[p], &[], None)?;
                    made.push(p);
                }
                e.redirect(c, at, p, &made);
            }
            Edit::Reorder { of, reverse } => {
                let n = of.len();
                let to = |k: usize| if *reverse { of[n - 1 - k] } else { of[(k + 1) % n] };
                for &u in &m.comp(self.owner[at.0 as usize]).instrs {
                    for (new, old) in
                        e.m.instrs[u.0 as usize].operands.iter_mut().zip(&m.instr(u).operands)
                    {
                        if let Some(k) = of.iter().position(|x| x == old) {
                            *new = to(k);
                        }
                    }
                }
                if let Some(k) = of.iter().position(|&x| x == e.m.comp(c).root) {
                    e.m.comps[c.0 as usize].root = to(k);
                }
                e.sort(c)?;
            }
            Edit::Shift { by } => {
                let a = m.array(at)?.clone();
                let k = e.constant(c, a.dtype, *by as f64)?;
                let r = e.insert(c, Some(at), Opcode::Add, Attrs::None, &[at, k], &[], None)?;
                e.redirect(c, at, r, &[r]);
                e.sort(c)?;
            }
            Edit::Rotate { like } => {
                let mut turned = vec![at];
                for (u, turns) in self.later_uses(at) {
                    while turned.len() <= turns {
                        let a = m.instr(*like).attrs.clone();
                        let last = *turned.last()?;
                        let op = Opcode::CollectivePermute;
                        turned.push(e.insert(c, Some(last), op, a, &[last], &[], None)?);
                    }
                    for o in &mut e.m.instrs[u.0 as usize].operands {
                        if *o == at {
                            *o = turned[turns];
                        }
                    }
                }
            }
            Edit::Start { dim, start } => {
                let Attrs::Slice(s) = &mut e.m.instrs[at.0 as usize].attrs else { return None };
                s.limit[*dim] += start - s.start[*dim];
                s.start[*dim] = *start;
            }
            Edit::OwnBlock { axis, dim } => {
                let (o, a) = (*i.operands.first()?, m.array(at)?.clone());
                let k = self.coordinate(e, c, o, *axis, DType::S32)?;
                let size = e.constant(c, DType::S32, a.dims[*dim] as f64)?;
                let p =
                    e.insert(c, Some(k), Opcode::Multiply, Attrs::None, &[k, size], &[], None)?;
                let zero = e.constant(c, DType::S32, 0.0)?;
                let mut operands = vec![o];
                operands.extend((0..a.dims.len()).map(|d| if d == *dim { p } else { zero }));
                let sizes = Attrs::DynamicSlice(a.dims.clone());
                let r = e.insert(c, Some(p), Opcode::DynamicSlice, sizes, &operands, &[], None)?;
                e.redirect(c, at, r, &[r]);
                e.sort(c)?;
            }
            Edit::Along { attrs } => e.m.instrs[at.0 as usize].attrs = (**attrs).clone(),
            Edit::Padding { dim } => {
                let Attrs::Pad(p) = &mut e.m.instrs[at.0 as usize].attrs else { return None };
                let p = p.get_mut(*dim)?;
                std::mem::swap(&mut p.low, &mut p.high);
            }
            Edit::MaskPadding { axis, dim, size, fill } => {
                self.mask_padding(e, at, (*axis, *dim), *size, *fill)?;
            }
            Edit::InRange { raw, size, dims } => self.in_range(e, at, *raw, *size, dims)?,
            Edit::Devices { list } => self.on_devices(e, at, list)?,
            Edit::Graft { from } => self.graft(e, at, *from)?,
            Edit::AddSpread { with, dims } => {
                let r = self.times(e, c, at, *with, dims)?;
                e.m.instrs[r.0.0 as usize].opcode = Opcode::Add;
                e.redirect(c, at, r.0, &r.1);
                e.sort(c)?;
            }
            Edit::Times { with, dims } => {
                let r = self.times(e, c, at, *with, dims)?;
                e.redirect(c, at, r.0, &r.1);
                e.sort(c)?;
            }
            Edit::TimesOperand { operand, with, dims } => {
                let o = *i.operands.get(*operand)?;
                let r = self.times(e, c, o, *with, dims)?;
                e.m.instrs[at.0 as usize].operands[*operand] = r.0;
                e.sort(c)?;
            }
        }
        Some(())
    }

    /// `x` times `with`, repeated along the dimensions that `dims` leaves out;
    /// and the instructions made.
    fn times(
        &self,
        e: &mut Editor,
        c: CompId,
        x: InstrId,
        with: InstrId,
        dims: &[i64],
    ) -> Option<(InstrId, Vec<InstrId>)> {
        let mut f = with;
        let mut made = Vec::new();
        if !e.m.shape(f).same(self.m.shape(x)) || dims.windows(2).any(|w| w[0] > w[1]) {
            // Broadcast takes increasing dimensions.
            let mut order: Vec<i64> = (0..dims.len() as i64).collect();
            order.sort_by_key(|&k| dims[k as usize]);
            if order.windows(2).any(|w| w[0] > w[1]) {
                let p = Attrs::Dims(order.iter().copied().collect());
                f = e.insert(c, Some(f), Opcode::Transpose, p, &[f], &[], None)?;
                made.push(f);
            }
            let to = Attrs::Dims(order.iter().map(|&k| dims[k as usize]).collect());
            let s = Some(self.m.shape(x).clone());
            f = e.insert(c, Some(f), Opcode::Broadcast, to, &[f], &[], s)?;
            made.push(f);
        }
        let r = e.insert(c, Some(x), Opcode::Multiply, Attrs::None, &[x, f], &[], None)?;
        made.push(r);
        Some((r, made))
    }

    /// The coordinate of the device on a mesh axis, after `after`.
    pub(crate) fn coordinate(
        &self,
        e: &mut Editor,
        c: CompId,
        after: InstrId,
        axis: usize,
        dtype: DType,
    ) -> Option<InstrId> {
        let stride: i64 = self.mesh[axis + 1..].iter().map(|a| a.1).product();
        let op = if self.replica_mode { Opcode::ReplicaId } else { Opcode::PartitionId };
        let u = Some(Shape::Array(ArrayShape::new(DType::U32, [])));
        let id = e.insert(c, Some(after), op, Attrs::None, &[], &[], u)?;
        let s = e.constant(c, DType::U32, stride as f64)?;
        let n = e.constant(c, DType::U32, self.mesh[axis].1 as f64)?;
        let q = e.insert(c, Some(id), Opcode::Divide, Attrs::None, &[id, s], &[], None)?;
        let r = e.insert(c, Some(q), Opcode::Remainder, Attrs::None, &[q, n], &[], None)?;
        if dtype == DType::U32 {
            return Some(r);
        }
        let shape = Some(Shape::Array(ArrayShape::new(dtype, [])));
        e.insert(c, Some(r), Opcode::Convert, Attrs::None, &[r], &[], shape)
    }
}
