//! Edits that mask: the padding of uneven shards, indices out of range, what
//! a select takes on which device.

use crate::blocks::{DEPTH, on_device};
use crate::candidates::{Context, Edit};
use crate::edit::{Editor, filled};
use crate::kinds::moves;
use scalify_ir::attrs::Comparison;
use scalify_ir::{ArrayShape, Attrs, CompId, DType, InstrId, Module, Opcode, Shape};
use scalify_prove::problem::Problem;

/// Entry parameters of which a dimension is split unevenly along one mesh
/// axis: parameter, axis, dimension, elements of the whole.
pub(crate) fn padded(
    m: &Module,
    mesh: &[(String, i64)],
    p: &Problem,
) -> Vec<(InstrId, usize, usize, i64)> {
    let mut out = Vec::new();
    for (k, x) in m.entry_comp().params.iter().enumerate() {
        let Some(leaf) = p.dist_inputs.iter().position(|l| l.param == k) else { continue };
        let (Some(local), Some(pair)) = (m.array(*x), p.pairs.get(leaf)) else { continue };
        let (Some(q), Some(b)) = (&pair.placement, pair.base) else { continue };
        let Some(Shape::Array(g)) = p.base_inputs.get(b).map(|l| &l.shape) else { continue };
        for (d, t) in q.dims.iter().enumerate() {
            let (Some(&g), Some(&l)) = (g.dims.get(d), local.dims.get(d)) else { continue };
            if t.tiles < 2 || !t.sections.is_empty() || i64::from(t.tiles) * l == g {
                continue;
            }
            let mut stride: i64 = mesh.iter().map(|a| a.1).product();
            for (axis, (_, n)) in mesh.iter().enumerate() {
                stride /= n;
                let own = |dev: i64| dev / stride % n == i64::from(t.tile(dev as u32));
                if *n == i64::from(t.tiles) && (0..p.devices).all(own) {
                    out.push((*x, axis, d, g));
                    break;
                }
            }
        }
    }
    out
}

impl Context<'_> {
    /// Masks that may be missing or wrong at `at`.
    pub(crate) fn masked(&self, c: CompId, at: InstrId, push: &mut dyn FnMut(f64, Edit)) {
        if !self.local[c.0 as usize] {
            return;
        }
        let i = self.m.instr(at);
        match i.opcode {
            Opcode::Parameter => {
                let float = self.m.dtype(at).is_some_and(|d| d.is_float());
                for &(_, axis, dim, size) in self.padded.iter().filter(|x| x.0 == at && float) {
                    for fill in [0.0, f64::NEG_INFINITY, f64::INFINITY] {
                        push(0.6, Edit::MaskPadding { axis, dim, size, fill });
                    }
                }
            }
            Opcode::Gather => {
                if let Some((raw, size, dims)) = self.unchecked(at) {
                    push(0.9, Edit::InRange { raw, size, dims });
                }
            }
            Opcode::Select => {
                for list in self.device_lists(at) {
                    push(0.6, Edit::Devices { list });
                }
            }
            _ => {}
        }
    }

    /// The index of a gather along one dimension before it was clamped, the
    /// size of that dimension, and the dimensions of the result that the index
    /// runs along.
    fn unchecked(&self, at: InstrId) -> Option<(InstrId, i64, Vec<i64>)> {
        let i = self.m.instr(at);
        let Attrs::Gather(g) = &i.attrs else { return None };
        let [k] = g.start_index_map[..] else { return None };
        let size = *self.m.array(i.operands[0])?.dims.get(k as usize)?;
        let mut x = i.operands[1];
        for _ in 0..8 {
            let y = self.m.instr(x);
            let constant = |k: usize| y.operands.get(k).is_some_and(|&o| self.is_constant(o, 4));
            x = match y.opcode {
                Opcode::Reshape | Opcode::Convert | Opcode::Copy => y.operands[0],
                Opcode::Clamp => y.operands[1],
                Opcode::Minimum | Opcode::Maximum if constant(1) => y.operands[0],
                Opcode::Minimum | Opcode::Maximum if constant(0) => y.operands[1],
                _ => break,
            };
        }
        let out = self.m.array(at)?;
        let dims: Vec<i64> =
            (0..out.dims.len() as i64).filter(|d| !g.offset_dims.contains(d)).collect();
        let a = self.m.array(x)?;
        let fits = a.dims.len() == dims.len()
            && a.dims.iter().zip(&dims).all(|(n, &d)| *n == out.dims[d as usize]);
        // An index that is the same everywhere is in range everywhere.
        (fits && a.dtype.is_int() && self.varies[x.0 as usize] != 0).then_some((x, size, dims))
    }

    /// Devices on which a select by device may take its first branch: those
    /// to which a collective-permute there sends something.
    fn device_lists(&self, at: InstrId) -> Vec<Vec<i64>> {
        let i = self.m.instr(at);
        let devices: i64 = self.mesh.iter().map(|a| a.1).product();
        let mut p = i.operands[0];
        while moves(self.m.instr(p).opcode) && self.m.array(p).is_some_and(|a| !a.dims.is_empty()) {
            p = self.m.instr(p).operands[0];
        }
        let now: Option<Vec<i64>> = (devices <= 64)
            .then(|| {
                let on = |d| on_device(self, p, d, DEPTH);
                let all: Option<Vec<i64>> = (0..devices).map(on).collect();
                all.map(|v| (0..devices).filter(|&d| v[d as usize] != 0).collect())
            })
            .flatten();
        let Some(now) = now else { return Vec::new() };
        let targets = |x: InstrId| match &self.m.instr(x).attrs {
            Attrs::Collective(a) if self.m.instr(x).opcode == Opcode::CollectivePermute => {
                let mut t: Vec<i64> = a.pairs.iter().map(|p| p.1).collect();
                t.sort_unstable();
                Some(t)
            }
            _ => None,
        };
        let mut out: Vec<Vec<i64>> = Vec::new();
        out.extend(targets(i.operands[1]));
        if let Some(t) = targets(i.operands[2]) {
            out.push((0..devices).filter(|d| !t.contains(d)).collect());
        }
        out.retain(|l| *l != now && !l.is_empty() && l.len() < devices as usize);
        out.dedup();
        out
    }

    /// Is a constant, as it is or repeated, a branch of a select?
    pub(crate) fn fills(&self, list: &[InstrId], at: InstrId) -> bool {
        let branch = |x: InstrId| {
            let uses = |u: &&InstrId| {
                let i = self.m.instr(**u);
                i.opcode == Opcode::Select && i.operands[1..].contains(&x)
            };
            list.iter().any(|u| uses(&u))
        };
        let spread = |u: &&InstrId| {
            self.m.instr(**u).opcode == Opcode::Broadcast && self.m.instr(**u).operands[0] == at
        };
        list.len() <= 4096 && (branch(at) || list.iter().filter(spread).any(|&b| branch(b)))
    }

    /// Numbers that may be missing in a start of a slice or update: sizes of
    /// what is cut, local and whole.
    pub(crate) fn shifts(&self, at: InstrId) -> Vec<i64> {
        let mut out: Vec<i64> = Vec::new();
        let list = &self.m.comp(self.owner[at.0 as usize]).instrs;
        if list.len() > 4096 {
            return out;
        }
        for &u in list {
            let i = self.m.instr(u);
            let first = match i.opcode {
                Opcode::DynamicSlice => 1,
                Opcode::DynamicUpdateSlice => 2,
                _ => continue,
            };
            if !i.operands.iter().skip(first).any(|&o| o == at) {
                continue;
            }
            let mut target = i.operands[0];
            for _ in 0..8 {
                // Other parts that are written into the same value.
                let t = self.m.instr(target);
                let sizes = (t.operands.get(1).filter(|_| t.opcode == Opcode::DynamicUpdateSlice))
                    .and_then(|&o| self.m.array(o));
                for &s in sizes.iter().flat_map(|a| a.dims.iter()) {
                    for n in std::iter::once(1).chain(self.mesh.iter().map(|a| a.1)) {
                        for by in [s * n, -s * n] {
                            if !out.contains(&by) && out.len() < 12 {
                                out.push(by);
                            }
                        }
                    }
                }
                match t.operands.first() {
                    Some(&o) if t.opcode == Opcode::DynamicUpdateSlice => target = o,
                    _ => break,
                }
            }
        }
        out
    }

    /// Small positive integer constants of the program.
    pub(crate) fn small_integers(&self) -> Vec<i64> {
        let mut out = Vec::new();
        for (k, i) in self.m.instrs.iter().enumerate() {
            let (Attrs::Constant(l), true) = (&i.attrs, out.len() < 8) else { continue };
            let int = self
                .m
                .array(InstrId(k as u32))
                .is_some_and(|a| a.dims.is_empty() && a.dtype.is_int());
            if let Some(v) = crate::edit::number(l).filter(|v| int && (0.0..1e6).contains(v)) {
                if !out.contains(&(v as i64)) {
                    out.push(v as i64);
                }
            }
        }
        out
    }

    /// Applies [`Edit::MaskPadding`]; `place`: mesh axis and dimension.
    pub(crate) fn mask_padding(
        &self,
        e: &mut Editor,
        at: InstrId,
        place: (usize, usize),
        size: i64,
        fill: f64,
    ) -> Option<()> {
        let c = e.now(self.owner[at.0 as usize]);
        let a = self.m.array(at)?.clone();
        let int = ArrayShape::new(DType::S32, a.dims.iter().copied());
        let k = self.coordinate(e, c, at, place.0, DType::S32)?;
        let n = e.constant(c, DType::S32, a.dims[place.1] as f64)?;
        let start = e.insert(c, Some(k), Opcode::Multiply, Attrs::None, &[k, n], &[], None)?;
        let start = e.spread(c, start, start, &int)?;
        let shape = Some(Shape::Array(int.clone()));
        let own = Attrs::Iota(place.1 as i64);
        let own = e.insert(c, Some(at), Opcode::Iota, own, &[], &[], shape)?;
        let index = e.insert(c, Some(own), Opcode::Add, Attrs::None, &[own, start], &[], None)?;
        let whole = e.constant(c, DType::S32, size as f64)?;
        let whole = e.spread(c, whole, whole, &int)?;
        let lt = Attrs::Compare { direction: Comparison::Lt, kind: None };
        let inside = e.insert(c, Some(index), Opcode::Compare, lt, &[index, whole], &[], None)?;
        self.fill(e, c, at, inside, &a, fill)?;
        e.sort(c)
    }

    /// `fill` where `inside` does not hold, in place of `at`.
    fn fill(
        &self,
        e: &mut Editor,
        c: CompId,
        at: InstrId,
        inside: InstrId,
        a: &ArrayShape,
        fill: f64,
    ) -> Option<()> {
        let l = filled(&ArrayShape::new(a.dtype, []), fill)?;
        let shape = l.shape.clone();
        let l = Attrs::Constant(Box::new(l));
        let f = e.insert(c, None, Opcode::Constant, l, &[], &[], Some(shape))?;
        let f = e.spread(c, f, f, a)?;
        let r = e.insert(c, Some(at), Opcode::Select, Attrs::None, &[inside, at, f], &[], None)?;
        e.redirect(c, at, r, &[r]);
        Some(())
    }

    /// Applies [`Edit::InRange`].
    pub(crate) fn in_range(
        &self,
        e: &mut Editor,
        at: InstrId,
        raw: InstrId,
        size: i64,
        dims: &[i64],
    ) -> Option<()> {
        let c = e.now(self.owner[at.0 as usize]);
        let (a, r) = (self.m.array(at)?.clone(), self.m.array(raw)?.clone());
        let mut sides = Vec::new();
        for (n, direction) in [(0, Comparison::Ge), (size, Comparison::Lt)] {
            let n = e.constant(c, r.dtype, n as f64)?;
            let n = e.spread(c, n, n, &r)?;
            let cmp = Attrs::Compare { direction, kind: None };
            sides.push(e.insert(c, Some(raw), Opcode::Compare, cmp, &[raw, n], &[], None)?);
        }
        let both = e.insert(c, Some(raw), Opcode::And, Attrs::None, &sides, &[], None)?;
        let shape = Some(Shape::Array(ArrayShape::new(DType::Pred, a.dims.iter().copied())));
        let to = Attrs::Dims(dims.iter().copied().collect());
        let inside = e.insert(c, Some(both), Opcode::Broadcast, to, &[both], &[], shape)?;
        self.fill(e, c, at, inside, &a, 0.0)?;
        e.sort(c)
    }

    /// Applies [`Edit::Devices`].
    pub(crate) fn on_devices(&self, e: &mut Editor, at: InstrId, list: &[i64]) -> Option<()> {
        let c = e.now(self.owner[at.0 as usize]);
        let op = if self.replica_mode { Opcode::ReplicaId } else { Opcode::PartitionId };
        let u = Some(Shape::Array(ArrayShape::new(DType::U32, [])));
        let id = e.insert(c, None, op, Attrs::None, &[], &[], u)?;
        let mut any: Option<InstrId> = None;
        for &d in list {
            let k = e.constant(c, DType::U32, d as f64)?;
            let eq = Attrs::Compare { direction: Comparison::Eq, kind: None };
            let is = e.insert(c, Some(id), Opcode::Compare, eq, &[id, k], &[], None)?;
            any = Some(match any {
                Some(x) => e.insert(c, Some(is), Opcode::Or, Attrs::None, &[x, is], &[], None)?,
                None => is,
            });
        }
        let any = any?;
        let a = self.m.array(*self.m.instr(at).operands.first()?)?.clone();
        let p = e.spread(c, any, any, &a)?;
        e.m.instrs[at.0 as usize].operands[0] = p;
        e.sort(c)
    }
}
