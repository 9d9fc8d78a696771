//! Contractions, reductions, convolutions and gathers.

use super::{Lifter, Lv, dt_of};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, CompId, DType, InstrId, Opcode};
use scalify_terms::{Ax, Coef, Dt, Lins, Val};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";

/// A reduction that the terms know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Monoid {
    /// Sum (disjunction of booleans).
    Add,
    /// Product (conjunction of booleans).
    Mul,
    /// Largest.
    Max,
    /// Smallest.
    Min,
}

impl Lifter<'_> {
    /// The monoid of a reducer of two scalars.
    pub(super) fn monoid(&self, c: CompId) -> Option<Monoid> {
        let m = self.m;
        let comp = m.comp(c);
        if comp.params.len() != 2 {
            return None;
        }
        // Partitioner annotations inside reducers are identities.
        let strip = |mut i: InstrId| -> InstrId {
            for _ in 0..16 {
                let ins = m.instr(i);
                let note = match &ins.attrs {
                    Attrs::CustomCall(c) => {
                        matches!(m.str(c.target), "Sharding" | "xla.sdy.ShardingConstraint")
                    }
                    _ => ins.opcode == Opcode::Copy,
                };
                match ins.operands.first() {
                    Some(&o) if note => i = o,
                    _ => break,
                }
            }
            i
        };
        let root = m.instr(strip(comp.root));
        let op = match root.opcode {
            Opcode::Add | Opcode::Or => Monoid::Add,
            Opcode::Multiply | Opcode::And => Monoid::Mul,
            Opcode::Maximum => Monoid::Max,
            Opcode::Minimum => Monoid::Min,
            _ => return None,
        };
        let d = m.dtype(comp.root)?;
        if matches!(root.opcode, Opcode::Or | Opcode::And) && d != DType::Pred {
            return None;
        }
        let (a, b) = (strip(*root.operands.first()?), strip(*root.operands.get(1)?));
        let p = &comp.params;
        ((a == p[0] && b == p[1]) || (a == p[1] && b == p[0])).then_some(op)
    }

    /// `x` reduced over the atoms. `None` if a law gives up.
    pub(super) fn reduce_over(
        &mut self,
        op: Monoid,
        d: DType,
        x: &Val,
        bound: &[Ax],
    ) -> Result<Val, String> {
        let dt = dt_of(d);
        let give_up = || REACH.to_owned();
        if dt == Dt::BOOL {
            return match op {
                Monoid::Mul | Monoid::Min => self.st.and_over(x, bound).ok_or_else(give_up),
                Monoid::Add | Monoid::Max => {
                    let n = self.st.not(x);
                    let a = self.st.and_over(&n, bound).ok_or_else(give_up)?;
                    Ok(self.st.not(&a))
                }
            };
        }
        let v = match op {
            Monoid::Add => {
                let v = self.st.sum(dt, x, bound).ok_or_else(give_up)?;
                if dt == Dt::INT { self.checked(v, d)? } else { v }
            }
            Monoid::Max => self.st.max_over(dt, x, bound).ok_or_else(give_up)?,
            Monoid::Min => self.st.min_over(dt, x, bound).ok_or_else(give_up)?,
            Monoid::Mul => return Err("products over an axis are not lifted".to_owned()),
        };
        Ok(v)
    }

    /// An integer sum that provably fits its type.
    pub(super) fn checked(&mut self, v: Val, d: DType) -> Result<Val, String> {
        match (self.st.int_range(&v), d.int_range()) {
            (Some((lo, hi)), Some((a, b))) if i128::from(lo) >= a && i128::from(hi) <= b => Ok(v),
            _ => Err(format!("the sum may overflow {d}")),
        }
    }

    /// Two values combined.
    pub(super) fn combine(
        &mut self,
        op: Monoid,
        d: DType,
        a: &Val,
        b: &Val,
    ) -> Result<Val, String> {
        let dt = dt_of(d);
        let pair = [a.clone(), b.clone()];
        if dt == Dt::BOOL {
            return Ok(match op {
                Monoid::Mul | Monoid::Min => self.st.and(&pair),
                _ => self.st.or(&pair),
            });
        }
        let v = match op {
            Monoid::Add => self.st.add(dt, &pair),
            Monoid::Mul => self.st.multiply(dt, a, b),
            Monoid::Max => self.st.max(dt, &pair),
            Monoid::Min => self.st.min(dt, &pair),
        };
        let v = v.ok_or_else(|| REACH.to_owned())?;
        if dt == Dt::INT { self.checked(v, d) } else { Ok(v) }
    }

    /// True if `v` is neutral for the monoid in this type.
    pub(super) fn is_identity(&mut self, op: Monoid, d: DType, v: &Val) -> bool {
        let dt = dt_of(d);
        if dt == Dt::BOOL {
            let unit = matches!(op, Monoid::Mul | Monoid::Min);
            return self.st.as_bool(v) == Some(unit);
        }
        match op {
            Monoid::Add => {
                use scalify_terms::{Op, arith::NEG_ZERO};
                self.st.is_zero(v) || self.st.class(v.r.class).op == Op::Const(NEG_ZERO)
            }
            Monoid::Mul => self.st.as_const(v) == Some(Coef::ONE),
            Monoid::Max | Monoid::Min => {
                let want_neg = op == Monoid::Max;
                if dt == Dt::INT {
                    let (lo, hi) = d.int_range().unwrap_or((0, 0));
                    let unit = if want_neg { lo } else { hi };
                    return self.st.as_int(v).map(i128::from) == Some(unit);
                }
                let c = self.st.class(v.r.class).op;
                let neg = self.st.coefs.sign(v.coef) > 0;
                c == scalify_terms::Op::Const(scalify_terms::arith::NEG_INF) && neg == want_neg
            }
        }
    }

    pub(super) fn lift_reduce(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let Attrs::Dims(ds) = &ins.attrs else { return Err("reduce without dimensions".into()) };
        let body = *ins.calls.first().ok_or("reduce without reducer")?;
        let op = if v.len() == 2 { self.monoid(body) } else { None };
        let Some(op) = op.filter(|&o| o != Monoid::Mul || m.dtype(i) == Some(DType::Pred)) else {
            if let Ok(t) = self.lift_arg_reduce(i, v) {
                return Ok(t);
            }
            return self.lift_batched(i, v);
        };
        let (_, d) = self.array(i)?;
        let x = v[0].tensor().ok_or("operand is no array")?;
        let init = v[1].tensor().ok_or("initial value is no array")?.val.clone();
        let mut bound: SmallVec<[Ax; 8]> = SmallVec::new();
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::new();
        for (k, a) in x.dims.iter().enumerate() {
            if ds.contains(&(k as i64)) {
                bound.extend(a.iter().copied());
            } else {
                dims.push(a.clone());
            }
        }
        if bound.iter().any(|&a| self.st.lins.size(a) == 0) {
            return Ok(Lv::T(Tv { val: init, dims }));
        }
        let mut r = match self.reduce_over(op, d, &x.val, &bound) {
            // A sum that may wrap is a function of the whole operand.
            Err(_) if dt_of(d) == Dt::INT => return self.lift_batched(i, v),
            r => r?,
        };
        if !self.is_identity(op, d, &init) {
            r = self.combine(op, d, &init, &r)?;
        }
        Ok(Lv::T(Tv { val: r, dims }))
    }

    /// `((x - mean) / sqrt(var + eps) * scale + offset, mean, var)` with the
    /// mean and the variance `E[x^2] - E[x]^2` of each feature.
    pub(super) fn lift_batch_norm(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        const NO: &str = "the normalisation is not lifted";
        let (Attrs::BatchNorm { epsilon, feature }, [x, scale, offset]) =
            (&self.m.instr(i).attrs, v)
        else {
            return Err(NO.to_owned());
        };
        let d = self.array(self.m.instr(i).operands[0])?.1;
        if !self.st.rules.reals || !d.is_float() {
            return Err(NO.to_owned());
        }
        let dt = dt_of(d);
        let f = usize::try_from(*feature).map_err(|_| NO.to_owned())?;
        let mut x = self.st.freshen(x.tensor().ok_or(NO)?).ok_or(REACH)?;
        if f >= x.dims.len() {
            return Err(NO.to_owned());
        }
        let mut per = Vec::new();
        for t in [scale, offset] {
            let mut t = self.st.freshen(t.tensor().ok_or(NO)?).ok_or(REACH)?;
            self.st.refine(&mut x, f, &mut t, 0).ok_or(NO)?;
            per.push(t);
        }
        // The first may have been refined less than the second.
        for t in per.iter_mut() {
            self.st.refine(&mut x, f, t, 0).ok_or(NO)?;
            let mut map = SmallVec::new();
            self.st.pair_atoms(&t.dims[0], &x.dims[f], &mut map).ok_or(NO)?;
            self.st.rename(t, &map).ok_or(NO)?;
        }
        let mut bound: SmallVec<[Ax; 8]> = SmallVec::new();
        for (k, a) in x.dims.iter().enumerate() {
            if k != f {
                bound.extend(a.iter().copied());
            }
        }
        let n: i64 = bound.iter().map(|&a| self.st.lins.size(a)).product();
        if n < 1 {
            return Err(NO.to_owned());
        }
        let n = self.st.coefs.int(n);
        let part = self.st.coefs.inv(n).ok_or(NO)?;
        let st = &mut *self.st;
        let mean_of = |st: &mut scalify_terms::Store, v: &Val| -> Option<Val> {
            let s = st.sum(dt, v, &bound)?;
            st.scale(&s, part)
        };
        let mut all = || -> Option<[Val; 3]> {
            let mean = mean_of(st, &x.val)?;
            let square = st.multiply(dt, &x.val, &x.val)?;
            let square = mean_of(st, &square)?;
            let less = st.multiply(dt, &mean, &mean)?;
            let less = st.scale(&less, Coef::NEG)?;
            let var = st.add(dt, &[square, less])?;
            let eps = st.coefs.float(f64::from(*epsilon))?;
            let eps = st.constant(dt, eps);
            let root = st.add(dt, &[var.clone(), eps])?;
            let root = st.sqrt(dt, &root)?;
            let inverse = st.prod(dt, &[(root, -1)])?;
            let less = st.scale(&mean, Coef::NEG)?;
            let y = st.add(dt, &[x.val.clone(), less])?;
            let y = st.multiply(dt, &y, &inverse)?;
            let y = st.multiply(dt, &y, &per[0].val)?;
            let y = st.add(dt, &[y, per[1].val.clone()])?;
            Some([y, mean, var])
        };
        let [y, mean, var] = all().ok_or(REACH)?;
        let feature = x.dims[f].clone();
        let stat = |val| Lv::T(Tv { val, dims: SmallVec::from_elem(feature.clone(), 1) });
        let out = [Lv::T(Tv { val: y, dims: x.dims.clone() }), stat(mean), stat(var)];
        Ok(Lv::Tuple(out.into_iter().collect()))
    }

    /// Both operands in the type the products are summed in.
    pub(super) fn accumulate_type(
        &self,
        i: InstrId,
        ops: [InstrId; 2],
    ) -> Result<(DType, DType), String> {
        let out = self.array(i)?.1;
        let mut acc = out;
        for o in ops {
            let d = self.array(o)?.1;
            if d.is_float() && acc.is_float() && d.bits() > acc.bits() {
                acc = d;
            }
        }
        Ok((acc, out))
    }

    /// An operand as a multiplication in the named way sees it.
    pub(super) fn rounded(&mut self, how: &str, d: DType, v: &Val) -> Val {
        let s = self.st.sym(&format!("operand-rounding:{how}"));
        self.st.ew(s, dt_of(d), false, std::slice::from_ref(v))
    }

    pub(super) fn lift_dot(&mut self, i: InstrId, a: &Tv, b: &Tv) -> Result<Tv, String> {
        let ins = self.m.instr(i);
        let Attrs::Dot(dn) = &ins.attrs else { return Err("dot without dimensions".into()) };
        if dn.sparsity.is_some() {
            return Err("sparse dot".to_owned());
        }
        let (acc, out) = self.accumulate_type(i, [ins.operands[0], ins.operands[1]])?;
        let mut a = a.clone();
        let mut b = self.st.freshen(b).ok_or(REACH)?;
        for (t, o) in [(&mut a, ins.operands[0]), (&mut b, ins.operands[1])] {
            let d = self.array(o)?.1;
            t.val = self.convert(d, acc, &t.val.clone())?;
            if let Some(a) = dn.algorithm.map(|a| self.m.str(a)).filter(|a| !is_plain(a, d, acc)) {
                t.val = self.rounded(a, acc, &t.val.clone());
            }
        }
        if !self.st.rules.reals {
            // What the hardware makes of an operand depends on the precision.
            let of = |k: usize| dn.precision.get(k).map_or("default", |&p| self.m.str(p));
            let (p, q) = (of(0), of(1));
            for (t, p) in [(&mut a, p), (&mut b, q)] {
                if !p.eq_ignore_ascii_case("default") {
                    t.val = self.rounded(p, acc, &t.val.clone());
                }
            }
        }
        let pairs: SmallVec<[(usize, usize); 4]> = dn
            .lhs_batch
            .iter()
            .zip(&dn.rhs_batch)
            .chain(dn.lhs_contracting.iter().zip(&dn.rhs_contracting))
            .map(|(&l, &r)| (l as usize, r as usize))
            .collect();
        let mut map: SmallVec<[(Ax, Ax); 8]> = SmallVec::new();
        for &(l, r) in &pairs {
            self.st.refine(&mut a, l, &mut b, r).ok_or("dimension splits clash")?;
        }
        for &(l, r) in &pairs {
            self.st.pair_atoms(&b.dims[r], &a.dims[l], &mut map).ok_or(REACH)?;
        }
        self.st.rename(&mut b, &map).ok_or(REACH)?;
        let bound: SmallVec<[Ax; 8]> =
            dn.lhs_contracting.iter().flat_map(|&l| a.dims[l as usize].iter().copied()).collect();
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::new();
        for &l in &dn.lhs_batch {
            dims.push(a.dims[l as usize].clone());
        }
        for (k, d) in a.dims.iter().enumerate() {
            let k = k as i64;
            if !dn.lhs_batch.contains(&k) && !dn.lhs_contracting.contains(&k) {
                dims.push(d.clone());
            }
        }
        for (k, d) in b.dims.iter().enumerate() {
            let k = k as i64;
            if !dn.rhs_batch.contains(&k) && !dn.rhs_contracting.contains(&k) {
                dims.push(d.clone());
            }
        }
        let val = self.st.dot(dt_of(acc), &a.val, &b.val, &bound).ok_or(REACH)?;
        let val = if acc.is_int() { self.checked(val, acc)? } else { val };
        let val = self.convert(acc, out, &val)?;
        let mut t = Tv { val, dims };
        self.st.fuse_dims(&mut t).ok_or(REACH)?;
        Ok(t)
    }

    pub(super) fn lift_gather(&mut self, i: InstrId, x: &Tv, idx: &Tv) -> Result<Tv, String> {
        let (out_sizes, d) = self.array(i)?;
        let dt = dt_of(d);
        let Attrs::Gather(g) = &self.m.instr(i).attrs else {
            return Err("gather without dimensions".to_owned());
        };
        let mut x = self.st.freshen(x).ok_or(REACH)?;
        let mut idx = idx.clone();
        let ivd = g.index_vector_dim as usize;
        let has_vector = ivd < idx.dims.len();
        // Batch dimensions of the result come from the indices, in order.
        let batch: Vec<usize> = (0..idx.dims.len()).filter(|&k| k != ivd).collect();
        // Operand batching dims share atoms with the indices' batching dims.
        for (&o, &b) in g.operand_batching_dims.iter().zip(&g.start_indices_batching_dims) {
            self.st
                .refine(&mut idx, b as usize, &mut x, o as usize)
                .ok_or("dimension splits clash")?;
            let mut map: SmallVec<[(Ax, Ax); 8]> = SmallVec::new();
            self.st
                .pair_atoms(&x.dims[o as usize], &idx.dims[b as usize], &mut map)
                .ok_or(REACH)?;
            self.st.rename(&mut x, &map).ok_or(REACH)?;
        }
        let component = |s: &mut Self, idx: &Tv, c: usize| -> Result<Val, String> {
            let mut t = idx.clone();
            if has_vector && !t.dims[ivd].is_empty() {
                let l = s.st.lins.constant(c as i64);
                s.st.index_dim(&mut t, ivd, l).ok_or(REACH)?;
            }
            Ok(t.val)
        };
        // Offset dimensions of the result, in order of the operand's
        // dimensions that are neither collapsed nor batching.
        let mut offsets: Vec<Atoms> = Vec::new();
        for k in 0..x.dims.len() {
            let kk = k as i64;
            let n = self.st.dim_size(&x.dims[k]);
            let w = g.slice_sizes[k];
            if g.operand_batching_dims.contains(&kk) {
                continue;
            }
            let collapsed = g.collapsed_slice_dims.contains(&kk);
            let at = g.start_index_map.iter().position(|&d| d == kk);
            let start = match at {
                Some(c) => {
                    let v = component(self, &idx, c)?;
                    Some(self.clamp_start(&v, n - w).ok_or(REACH)?)
                }
                None => None,
            };
            let zero = start.as_ref().is_none_or(|s| self.st.as_int(s) == Some(0));
            if zero && w == n {
                if !collapsed {
                    offsets.push(x.dims[k].clone());
                }
                continue;
            }
            let start = match start {
                Some(s) => s,
                None => self.st.int(0),
            };
            let j = self.st.fresh_dims(&[w]).remove(0);
            let mut v = start;
            if let Some(&a) = j.first() {
                let a = self.st.iota(Lins::plain(a));
                v = self.st.add(Dt::INT, &[v, a]).ok_or(REACH)?;
            }
            let val = self.read_at(&mut x.clone(), k, &v, dt)?;
            x.val = val;
            x.dims[k] = Atoms::new();
            if !collapsed {
                offsets.push(j);
            }
        }
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::new();
        let (mut b, mut o) = (batch.iter(), offsets.into_iter());
        for k in 0..out_sizes.len() {
            let a = if g.offset_dims.contains(&(k as i64)) {
                o.next()
            } else {
                b.next().map(|&k| idx.dims[k].clone())
            };
            dims.push(a.ok_or("gather dimensions do not add up")?);
        }
        let t = Tv { val: x.val, dims };
        // A dimension of the operand and one of the indices may share atoms
        // only through batching; anything else is freshly named already.
        Ok(t)
    }
}

/// True if the algorithm of a dot rounds no operand of type `d` and sums in
/// `acc`: `dot_f32_f32_f32` of `f32` and the like.
fn is_plain(algorithm: &str, d: DType, acc: DType) -> bool {
    algorithm == "dot_unset" || algorithm == format!("dot_{d}_{d}_{acc}")
}
