//! Data movement: exact at every grade.

use super::{Lifter, dt_of};
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, InstrId};
use scalify_terms::pieces::Run;
use scalify_terms::{Coef, Dt, LinId, Lins, Val};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";

impl Lifter<'_> {
    pub(super) fn lift_broadcast(&mut self, i: InstrId, x: &Tv) -> Result<Tv, String> {
        let (sizes, _) = self.array(i)?;
        let Attrs::Dims(map) = &self.m.instr(i).attrs else {
            return Err("broadcast without dimensions".to_owned());
        };
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::new();
        for (k, &n) in sizes.iter().enumerate() {
            match map.iter().position(|&d| d as usize == k) {
                Some(p) => {
                    let a = x.dims.get(p).ok_or(REACH)?;
                    if self.st.dim_size(a) != n {
                        return Err("broadcast changes a dimension's size".to_owned());
                    }
                    dims.push(a.clone());
                }
                None => {
                    let mut a = Atoms::new();
                    if n != 1 {
                        a.push(self.st.lins.local(n));
                    }
                    dims.push(a);
                }
            }
        }
        Ok(Tv { val: x.val.clone(), dims })
    }

    pub(super) fn lift_reshape(&mut self, i: InstrId, x: &Tv) -> Result<Tv, String> {
        let (sizes, d) = self.array(i)?;
        let from = self.m.dtype(self.m.instr(i).operands[0]);
        if from != Some(d) {
            return Err("bitcast changes the element type".to_owned());
        }
        if self.m.instr(i).opcode == scalify_ir::Opcode::Bitcast {
            if let Some(t) = self.bitcast_transpose(i, x) {
                return t.ok_or_else(|| REACH.to_owned());
            }
        }
        if sizes.contains(&0) {
            let dims = self.st.fresh_dims(sizes);
            return Ok(Tv { val: x.val.clone(), dims });
        }
        self.st.reshape(x, sizes).ok_or_else(|| REACH.to_owned())
    }

    /// A bitcast between layouts that are not row-major moves elements: it is
    /// transpose, reshape, transpose of the logical arrays.
    /// `None`: both layouts are row-major.
    fn bitcast_transpose(&mut self, i: InstrId, x: &Tv) -> Option<Option<Tv>> {
        let m = self.m;
        let order = |id: InstrId| -> Vec<usize> {
            let Some(a) = m.array(id) else { return Vec::new() };
            // No layout is the row-major one.
            let Some(l) = a.layout.as_ref().filter(|l| l.minor_to_major.len() == a.dims.len())
            else {
                return (0..a.dims.len()).collect();
            };
            l.minor_to_major.iter().rev().map(|&d| d as usize).collect()
        };
        let (src, dst) = (order(m.instr(i).operands[0]), order(i));
        let plain = |v: &[usize]| v.iter().enumerate().all(|(k, &d)| k == d);
        if plain(&src) && plain(&dst) {
            return None;
        }
        Some(self.through_layouts(i, x, &src, &dst))
    }

    fn through_layouts(&mut self, i: InstrId, x: &Tv, src: &[usize], dst: &[usize]) -> Option<Tv> {
        let sizes = self.m.array(i)?.dims.clone();
        let mut major = Tv { val: x.val.clone(), dims: SmallVec::new() };
        for &d in src {
            major.dims.push(x.dims.get(d)?.clone());
        }
        let mut want: SmallVec<[i64; 6]> = SmallVec::new();
        for &d in dst {
            want.push(*sizes.get(d)?);
        }
        if want.contains(&0) {
            let dims = self.st.fresh_dims(&sizes);
            return Some(Tv { val: x.val.clone(), dims });
        }
        let r = self.st.reshape(&major, &want)?;
        let mut dims: SmallVec<[Atoms; 4]> = SmallVec::from_elem(Atoms::new(), sizes.len());
        for (k, &d) in dst.iter().enumerate() {
            dims[d] = r.dims[k].clone();
        }
        Some(Tv { val: r.val, dims })
    }

    /// Dimension `k` read at `start + stride * j`, `j` a fresh axis of `len`.
    pub(super) fn cut_dim(
        &mut self,
        t: &mut Tv,
        k: usize,
        start: i64,
        len: i64,
        stride: i64,
    ) -> Option<()> {
        let n = self.st.dim_size(&t.dims[k]);
        if start == 0 && stride == 1 && len == n {
            return Some(());
        }
        if len == 0 {
            t.dims[k] = self.st.fresh_dims(&[0]).remove(0);
            return Some(());
        }
        // Whole minor blocks keep their atoms.
        if stride == 1 && t.dims[k].len() > 1 {
            let minor: i64 = t.dims[k][1..].iter().map(|&a| self.st.lins.size(a)).product();
            if start % minor == 0 && len % minor == 0 {
                let major = t.dims[k][0];
                let (s, l) = (start / minor, len / minor);
                let mut map = scalify_terms::Subst::new();
                if l == 1 {
                    let c = self.st.lins.constant(s);
                    map.set(major, c);
                    t.dims[k].remove(0);
                } else {
                    let j = self.st.lins.local(l);
                    let form = self.st.lins.shift(Lins::plain(j), s);
                    map.set(major, form);
                    t.dims[k][0] = j;
                }
                t.val = self.st.subst(&t.val, &map)?;
                return Some(());
            }
        }
        let mut dim = Atoms::new();
        let index = if len == 1 {
            self.st.lins.constant(start)
        } else {
            let j = self.st.lins.local(len);
            dim.push(j);
            let c = self.st.lins.constant(start);
            self.st.lins.combine(&[(stride, Lins::plain(j)), (1, c)])?
        };
        self.st.index_dim(t, k, index)?;
        t.dims[k] = dim;
        Some(())
    }

    pub(super) fn lift_slice(&mut self, i: InstrId, x: &Tv) -> Result<Tv, String> {
        let (sizes, _) = self.array(i)?;
        let Attrs::Slice(s) = &self.m.instr(i).attrs else {
            return Err("slice without bounds".to_owned());
        };
        let mut t = x.clone();
        for k in 0..sizes.len() {
            self.cut_dim(&mut t, k, s.start[k], sizes[k], s.stride[k]).ok_or(REACH)?;
        }
        t.val = self.st.norm(t.val);
        Ok(t)
    }

    pub(super) fn lift_reverse(&mut self, i: InstrId, x: &Tv) -> Result<Tv, String> {
        let Attrs::Dims(ds) = &self.m.instr(i).attrs else {
            return Err("reverse without dimensions".to_owned());
        };
        let mut t = x.clone();
        for &d in ds {
            let n = self.st.dim_size(&t.dims[d as usize]);
            if n > 1 {
                let j = self.st.lins.local(n);
                let c = self.st.lins.constant(n - 1);
                let l = self.st.lins.combine(&[(-1, Lins::plain(j)), (1, c)]).ok_or(REACH)?;
                self.st.index_dim(&mut t, d as usize, l).ok_or(REACH)?;
                t.dims[d as usize] = SmallVec::from_elem(j, 1);
            }
        }
        Ok(t)
    }

    /// Values put together along dimension `k`; the other dimensions are
    /// aligned. A `None` part is a scalar fill value.
    pub(super) fn join(
        &mut self,
        dt: Dt,
        parts: &[(i64, Tv)],
        k: usize,
        sizes: &[i64],
    ) -> Result<Tv, String> {
        let total: i64 = parts.iter().map(|p| p.0).sum();
        let mut parts: Vec<(i64, Tv)> = parts.iter().filter(|p| p.0 > 0).cloned().collect();
        if parts.is_empty() {
            let dims = self.st.fresh_dims(sizes);
            return Ok(Tv { val: self.st.zero(dt), dims });
        }
        if parts.len() == 1 {
            return Ok(parts.remove(0).1);
        }
        // Minor atoms that all parts have in common stay outside.
        for p in parts.iter_mut() {
            self.st.fuse_dims(&mut p.1).ok_or(REACH)?;
        }
        let multi = parts.iter().any(|p| p.1.dims[k].len() > 1);
        let minor = if multi {
            parts
                .iter()
                .map(|p| p.1.dims[k].last().map_or(1, |&a| self.st.lins.size(a)))
                .fold(0, scalify_terms::lin::gcd)
        } else {
            1
        };
        if minor > 1 {
            // Reshape dimension k to [n / minor, minor] everywhere.
            let mut split: Vec<(i64, Tv)> = Vec::new();
            for (n, t) in &parts {
                let mut s: SmallVec<[i64; 6]> =
                    t.dims.iter().map(|d| self.st.dim_size(d)).collect();
                s[k] = n / minor;
                s.insert(k + 1, minor);
                split.push((n / minor, self.st.reshape(t, &s).ok_or(REACH)?));
            }
            let mut s: SmallVec<[i64; 6]> = SmallVec::from_slice(sizes);
            s[k] = total / minor;
            s.insert(k + 1, minor);
            let r = self.join(dt, &split, k, &s)?;
            return self.st.reshape(&r, sizes).ok_or_else(|| REACH.to_owned());
        }
        // Parts of which the index is no form in one axis (rows of an image):
        // one part per index of the major axis; of one axis that is read by a
        // table (a cut through interleaved rows), one part per index.
        const MAX_PARTS: usize = 64;
        let mut split: Vec<(i64, Tv)> = Vec::new();
        for (n, t) in &parts {
            let whole = match t.dims[k][..] {
                [] => true,
                [a] => !t.val.r.m.iter().any(|&l| self.by_table(l, a)),
                _ => {
                    let mut probe = t.clone();
                    let q = self.st.lins.local(*n);
                    self.st.index_dim(&mut probe, k, Lins::plain(q)).is_some()
                        && !probe.val.r.m.iter().any(|&l| self.by_table(l, q))
                }
            };
            if whole {
                split.push((*n, t.clone()));
                continue;
            }
            let major = *t.dims[k].first().ok_or(REACH)?;
            let rows = self.st.lins.size(major);
            if rows as usize + split.len() > MAX_PARTS {
                return Err(REACH.to_owned());
            }
            for c in 0..rows {
                let mut map = scalify_terms::Subst::new();
                let at = self.st.lins.constant(c);
                map.set(major, at);
                let val = self.st.subst(&t.val, &map).ok_or(REACH)?;
                let mut dims = t.dims.clone();
                dims[k].remove(0);
                split.push((n / rows, Tv { val, dims }));
            }
        }
        if split.len() > parts.len() {
            return self.join(dt, &split, k, sizes);
        }
        // Align the other dimensions to those of the first part.
        let mut first = parts[0].1.clone();
        first.dims.remove(k);
        let mut runs: Vec<Run> = Vec::new();
        let mut prepared: Vec<(i64, Tv, Option<u32>)> = Vec::new();
        for (n, t) in &parts {
            let mut t = t.clone();
            let axis = if *n == 1 {
                None
            } else {
                let q = self.st.lins.local(*n);
                self.st.index_dim(&mut t, k, Lins::plain(q)).ok_or(REACH)?;
                Some(q)
            };
            t.dims.remove(k);
            prepared.push((*n, t, axis));
        }
        for _ in 0..2 {
            for p in prepared.iter_mut() {
                self.st.align(&mut first, &mut p.1).ok_or("dimension splits clash")?;
            }
        }
        // Equal parts that read one class at equal distances: the number of the
        // part is the major axis.
        // Two parts (the halves of a rotation) stay pieces.
        let equal = prepared.len() > 2 && prepared.iter().all(|p| p.0 == prepared[0].0);
        if let Some(q) = prepared[0].2.filter(|_| equal) {
            let mut vals: Vec<scalify_terms::Val> = Vec::new();
            for (_, t, axis) in &prepared {
                let mut map = scalify_terms::Subst::new();
                if let Some(a) = axis.filter(|&a| a != q) {
                    map.set(a, Lins::plain(q));
                }
                vals.push(self.st.subst(&t.val, &map).ok_or(REACH)?);
            }
            if let Some((val, r)) = self.st.stack(&vals) {
                let mut dims = first.dims.clone();
                dims.insert(k, [r, q].into_iter().collect());
                let mut t = Tv { val, dims };
                self.st.fuse_dims(&mut t).ok_or(REACH)?;
                return Ok(t);
            }
        }
        for (n, t, axis) in prepared {
            runs.push(Run { len: n, val: t.val, axis });
        }
        let j = self.st.lins.local(total);
        let val = self.st.pieces(dt, &runs, Lins::plain(j)).ok_or(REACH)?;
        let mut dims = first.dims;
        dims.insert(k, SmallVec::from_elem(j, 1));
        Ok(Tv { val, dims })
    }

    /// True if the form reads a table at the atom.
    fn by_table(&self, l: LinId, a: scalify_terms::Ax) -> bool {
        let mut hit = false;
        let lins = &self.st.lins;
        lins.for_terms(l, |_, t| hit |= t != a && lins.mentions(Lins::plain(t), a));
        hit
    }

    pub(super) fn lift_concatenate(&mut self, i: InstrId, ts: &[&Tv]) -> Result<Tv, String> {
        let (sizes, d) = self.array(i)?;
        let Attrs::Dims(ds) = &self.m.instr(i).attrs else {
            return Err("concatenate without dimension".to_owned());
        };
        let k = *ds.first().ok_or("concatenate without dimension")? as usize;
        let parts: Vec<(i64, Tv)> =
            ts.iter().map(|t| (self.st.dim_size(&t.dims[k]), (*t).clone())).collect();
        self.join(dt_of(d), &parts, k, sizes)
    }

    /// A start index clamped to `[0, max]`.
    pub(super) fn clamp_start(&mut self, v: &Val, max: i64) -> Option<Val> {
        if let Some((lo, hi)) = self.st.int_range(v) {
            if lo >= 0 && hi <= max {
                return Some(v.clone());
            }
        }
        if let Some(l) = self.st.as_iota(v) {
            if let Some(l) = self.st.lins.tabulate(&[l], |x| Some(x[0].clamp(0, max))) {
                return Some(self.st.iota(l));
            }
        }
        let (z, m) = (self.st.int(0), self.st.int(max));
        let x = self.st.max(Dt::INT, &[v.clone(), z])?;
        self.st.min(Dt::INT, &[x, m])
    }

    pub(super) fn lift_dynamic_slice(&mut self, i: InstrId, ts: &[&Tv]) -> Result<Tv, String> {
        let (sizes, d) = self.array(i)?;
        let mut t = ts[0].clone();
        let starts = self.start_indices(i, &ts[1..], sizes.len())?;
        for k in 0..sizes.len() {
            let n = self.st.dim_size(&t.dims[k]);
            let max = n - sizes[k];
            if max <= 0 {
                continue;
            }
            let s = self.clamp_start(&starts[k], max).ok_or(REACH)?;
            if let Some(c) = self.st.as_int(&s) {
                self.cut_dim(&mut t, k, c, sizes[k], 1).ok_or(REACH)?;
            } else if let Some(l) = self.st.as_iota(&s) {
                self.st.cut(&mut t, k, l, sizes[k]).ok_or(REACH)?;
            } else {
                t = self.one_hot_read(&t, k, &s, sizes[k], dt_of(d))?;
            }
        }
        t.val = self.st.norm(t.val);
        Ok(t)
    }

    /// Scalar start indices, one per dimension (also the old single-vector
    /// form).
    pub(super) fn start_indices(
        &mut self,
        _i: InstrId,
        ts: &[&Tv],
        rank: usize,
    ) -> Result<Vec<Val>, String> {
        if ts.len() == rank && ts.iter().all(|t| t.dims.is_empty()) {
            return Ok(ts.iter().map(|t| t.val.clone()).collect());
        }
        if ts.len() == 1 && ts[0].dims.len() == 1 {
            let mut out = Vec::new();
            for k in 0..rank {
                let mut t = ts[0].clone();
                let c = self.st.lins.constant(k as i64);
                self.st.index_dim(&mut t, 0, c).ok_or(REACH)?;
                out.push(t.val);
            }
            return Ok(out);
        }
        Err("unexpected form of start indices".to_owned())
    }

    /// Dimension `k` read at `start + j`, `start` a form in range.
    pub(super) fn dynamic_cut_at(
        &mut self,
        t: &mut Tv,
        k: usize,
        start: LinId,
        len: i64,
    ) -> Option<()> {
        self.st.cut(t, k, start, len)
    }

    /// `sum_b [b == start + j] x[b]`: a read at an index that is data.
    pub(super) fn one_hot_read(
        &mut self,
        t: &Tv,
        k: usize,
        start: &Val,
        len: i64,
        dt: Dt,
    ) -> Result<Tv, String> {
        let mut t = t.clone();
        let mut dim = Atoms::new();
        let mut idx = start.clone();
        if len > 1 {
            let j = self.st.lins.local(len);
            dim.push(j);
            let v = self.st.iota(Lins::plain(j));
            idx = self.st.add(Dt::INT, &[idx, v]).ok_or(REACH)?;
        }
        t.val = self.read_at(&mut t.clone(), k, &idx, dt)?;
        t.dims[k] = dim;
        Ok(t)
    }

    /// The value with dimension `k` read at the integer value `idx` (known to
    /// be in range).
    pub(super) fn read_at(
        &mut self,
        t: &mut Tv,
        k: usize,
        idx: &Val,
        dt: Dt,
    ) -> Result<Val, String> {
        let n = self.st.dim_size(&t.dims[k]);
        if n == 1 {
            return Ok(t.val.clone());
        }
        if let Some(l) = self.st.as_iota(idx) {
            self.st.index_dim(t, k, l).ok_or(REACH)?;
            return Ok(t.val.clone());
        }
        let b = self.st.lins.local(n);
        self.st.index_dim(t, k, Lins::plain(b)).ok_or(REACH)?;
        if !self.st.ref_mentions(&t.val.r, b) {
            return Ok(t.val.clone());
        }
        if dt == Dt::INT {
            if let Some((c, rest)) = self.slope(&t.val, b) {
                // c*b + rest read at b = idx.
                let s = self.st.coefs.int(c);
                let at = self.st.scale(idx, s).ok_or(REACH)?;
                let mut u = Tv { val: rest, dims: SmallVec::new() };
                u.dims.push(SmallVec::from_elem(b, 1));
                let r = self.read_at(&mut u, 0, idx, dt)?;
                return self.st.add(dt, &[at, r]).ok_or_else(|| REACH.to_owned());
            }
        }
        let minus = self.st.lins.combine(&[(-1, Lins::plain(b))]).ok_or(REACH)?;
        let minus = self.st.iota(minus);
        let diff = self.st.add(Dt::INT, &[idx.clone(), minus]).ok_or(REACH)?;
        let p = self.st.eq0(&diff).ok_or(REACH)?;
        self.select_sum(dt, &p, &t.val, &[b])
    }

    /// An integer as `c*b + rest`, `c` not 0, where `b` counts in its index
    /// part directly.
    pub(super) fn slope(&mut self, v: &Val, b: scalify_terms::Ax) -> Option<(i64, Val)> {
        let c = |s: &Self, l: LinId| -> Option<i64> {
            let (mut c, mut deep) = (0, false);
            s.st.lins.for_terms(l, |k, a| {
                if a == b {
                    c = k;
                } else {
                    deep |= s.st.lins.mentions(Lins::plain(a), b);
                }
            });
            (c != 0 && !deep).then_some(c)
        };
        let mut slope = None;
        if let Some(l) = self.st.as_iota(v) {
            slope = c(self, l);
        } else if v.coef == Coef::ONE && self.st.class(v.r.class).op == scalify_terms::Op::Add {
            let (args, _) = self.st.open(&v.r)?;
            for a in &args {
                let x = self.st.val_of(a);
                if let Some(l) = self.st.as_iota(&x) {
                    slope = c(self, l);
                }
            }
        }
        let c = slope?;
        let l = self.st.lins.combine(&[(-c, Lins::plain(b))])?;
        let minus = self.st.iota(l);
        let rest = self.st.add(Dt::INT, &[v.clone(), minus])?;
        Some((c, rest))
    }

    /// `sum over bound of [p] * x`, for booleans the disjunction.
    pub(super) fn select_sum(
        &mut self,
        dt: Dt,
        p: &Val,
        x: &Val,
        bound: &[scalify_terms::Ax],
    ) -> Result<Val, String> {
        if dt == Dt::BOOL {
            let both = self.st.and(&[p.clone(), x.clone()]);
            let n = self.st.not(&both);
            let all = self.st.and_over(&n, bound).ok_or(REACH)?;
            return Ok(self.st.not(&all));
        }
        if !self.st.rules.reals {
            // A selection is exact, but its sum is not a selection there.
            return Err("reads at data-dependent indices are not lifted bitwise".to_owned());
        }
        let g = self.st.indicator(dt, p);
        let f = self.st.mul(dt, &g, x).ok_or(REACH)?;
        self.st.sum(dt, &f, bound).ok_or_else(|| REACH.to_owned())
    }

    pub(super) fn lift_dynamic_update_slice(
        &mut self,
        i: InstrId,
        ts: &[&Tv],
    ) -> Result<Tv, String> {
        let (sizes, d) = self.array(i)?;
        let dt = dt_of(d);
        let (x, u) = (ts[0], ts[1]);
        let starts = self.start_indices(i, &ts[2..], sizes.len())?;
        let mut part: Vec<(usize, i64, i64, Val)> = Vec::new();
        for k in 0..sizes.len() {
            let (n, w) = (sizes[k], self.st.dim_size(&u.dims[k]));
            if w == n {
                continue;
            }
            if w > n {
                return Err("update is larger than the operand".to_owned());
            }
            let s = self.clamp_start(&starts[k], n - w).ok_or(REACH)?;
            part.push((k, n, w, s));
        }
        self.update(dt, x, u, &part)
    }

    /// `x` with the window given by `part` (dimension, size, width, start)
    /// replaced by `u`.
    fn update(
        &mut self,
        dt: Dt,
        x: &Tv,
        u: &Tv,
        part: &[(usize, i64, i64, Val)],
    ) -> Result<Tv, String> {
        let Some(((k, n, w, s), rest)) = part.split_first() else {
            // All dimensions replaced.
            return Ok(u.clone());
        };
        let (k, n, w) = (*k, *n, *w);
        if let Some(c) = self.st.as_int(s) {
            let mut sizes: SmallVec<[i64; 6]> =
                x.dims.iter().map(|d| self.st.dim_size(d)).collect();
            let mut before = x.clone();
            let mut inside = x.clone();
            let mut after = x.clone();
            self.cut_dim(&mut before, k, 0, c, 1).ok_or(REACH)?;
            self.cut_dim(&mut inside, k, c, w, 1).ok_or(REACH)?;
            self.cut_dim(&mut after, k, c + w, n - c - w, 1).ok_or(REACH)?;
            let inside = self.update(dt, &inside, u, rest)?;
            sizes[k] = n;
            let parts = [(c, before), (w, inside), (n - c - w, after)];
            return self.join(dt, &parts, k, &sizes);
        }
        // A window of whole tiles, or of width 1: compare the tile index.
        let tile = match self.st.as_iota(s) {
            Some(l) if n % w == 0 => match self.st.lins.divide(l, w) {
                Some((hi, lo)) if self.st.lins.as_constant(lo) == Some(0) => Some(hi),
                _ => None,
            },
            _ => None,
        };
        let start_tile = match tile {
            Some(h) => self.st.iota(h),
            None if w == 1 => s.clone(),
            None => return Err("update at a data-dependent position".to_owned()),
        };
        // x as [n/w, w] along k.
        let mut sizes: SmallVec<[i64; 6]> = x.dims.iter().map(|d| self.st.dim_size(d)).collect();
        sizes[k] = n / w;
        sizes.insert(k + 1, w);
        let mut y = self.st.reshape(x, &sizes).ok_or(REACH)?;
        // The operand's window where the update applies.
        let mut v = if rest.is_empty() {
            u.clone()
        } else {
            let mut inside = y.clone();
            let idx = start_tile.clone();
            let t = self.read_at(&mut inside.clone(), k, &idx, dt)?;
            inside.val = t;
            inside.dims.remove(k);
            self.update(dt, &inside, u, rest)?
        };
        let fresh = self.st.fresh_dims(&[n / w]).remove(0);
        let mut vs: SmallVec<[i64; 6]> = v.dims.iter().map(|d| self.st.dim_size(d)).collect();
        vs.insert(k, 1);
        v = self.st.reshape(&v, &vs).ok_or(REACH)?;
        v.dims[k] = fresh;
        for _ in 0..2 {
            self.st.align(&mut y, &mut v).ok_or("dimension splits clash")?;
        }
        let at = self.st.dim_index(&y.dims[k].clone());
        let at = self.st.iota(at);
        let neg = self.st.scale(&start_tile, Coef::NEG).ok_or(REACH)?;
        let diff = self.st.add(Dt::INT, &[at, neg]).ok_or(REACH)?;
        let p = self.st.eq0(&diff).ok_or(REACH)?;
        let val = self.st.select(dt, &p, &v.val, &y.val).ok_or(REACH)?;
        let r = Tv { val, dims: y.dims };
        sizes.remove(k + 1);
        sizes[k] = n;
        self.st.reshape(&r, &sizes).ok_or_else(|| REACH.to_owned())
    }
}
