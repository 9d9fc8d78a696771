//! Collectives: operations over the device axes.

use super::{Lifter, Lv, dt_of};
use crate::devices::GroupDigits;
use crate::lift::reduce::Monoid;
use crate::tv::{Atoms, Tv, TvOps};
use scalify_ir::{Attrs, CollectiveAttrs, DType, DeviceGroups, GroupMode, InstrId, Opcode};
use scalify_terms::{Ax, Coef, Dt, Lins, Subst, Val};
use smallvec::SmallVec;

const REACH: &str = "index arithmetic is out of reach";

/// How the ids in the groups of this collective are meant.
pub(crate) fn mode(op: Opcode, c: &CollectiveAttrs) -> GroupMode {
    let grouped = !matches!(
        op,
        Opcode::AllToAll
            | Opcode::CollectivePermute
            | Opcode::CollectivePermuteStart
            | Opcode::CollectiveBroadcast
            | Opcode::RaggedAllToAll
    );
    match (c.channel_id.is_some(), c.use_global_device_ids) {
        (false, _) => GroupMode::CrossReplica,
        (true, _) if !grouped => GroupMode::CrossPartition,
        (true, true) => GroupMode::FlattenedId,
        (true, false) => GroupMode::CrossReplicaAndPartition,
    }
}

/// Groups as flattened device ids `replica * partitions + partition`.
pub(crate) fn flattened(
    c: &CollectiveAttrs,
    mode: GroupMode,
    replicas: i64,
    partitions: i64,
) -> Option<DeviceGroups> {
    let (r, p) = (replicas, partitions);
    let ids = match mode {
        GroupMode::CrossReplica | GroupMode::CrossReplicaAndPartition => r,
        GroupMode::CrossPartition => p,
        GroupMode::FlattenedId => r * p,
    };
    let groups = c.groups.expand(ids)?;
    if groups.iter().flatten().any(|&d| d < 0 || d >= ids) {
        return None;
    }
    Some(match mode {
        GroupMode::FlattenedId => groups,
        GroupMode::CrossReplica => (0..p)
            .flat_map(|q| {
                groups.iter().map(move |g| g.iter().map(|&x| x * p + q).collect::<Vec<_>>())
            })
            .collect(),
        GroupMode::CrossPartition => (0..r)
            .flat_map(|q| {
                groups.iter().map(move |g| g.iter().map(|&x| q * p + x).collect::<Vec<_>>())
            })
            .collect(),
        GroupMode::CrossReplicaAndPartition => groups
            .iter()
            .map(|g| g.iter().flat_map(|&x| (0..p).map(move |q| x * p + q)).collect())
            .collect(),
    })
}

impl Lifter<'_> {
    pub(super) fn replicas_partitions(&self) -> (i64, i64) {
        let n = self.dev.count;
        let r = self.m.header.replica_count.max(1);
        if r > 1 && n % r == 0 {
            (r, n / r)
        } else if self.replica_mode {
            (n, 1)
        } else {
            (1, n)
        }
    }

    /// Digits of the groups of a collective.
    pub(crate) fn group_digits(&mut self, i: InstrId) -> Result<GroupDigits, String> {
        let m = self.m;
        let Attrs::Collective(c) = &m.instr(i).attrs else {
            return Err("collective without groups".to_owned());
        };
        let mode = mode(m.instr(i).opcode, c);
        let (r, p) = self.replicas_partitions();
        let key = (c.groups.clone(), mode as i64);
        if let Some(g) = self.groups.get(&key) {
            return g.clone().ok_or_else(|| GROUPS.to_owned());
        }
        let g = flattened(c, mode, r, p).and_then(|g| self.dev.group(&g));
        self.groups.insert(key, g.clone());
        g.ok_or_else(|| GROUPS.to_owned())
    }

    /// Fresh atoms in place of the group's device digits: (digit atom, fresh
    /// atom), major first.
    fn fresh_digits(&mut self, g: &GroupDigits) -> SmallVec<[(Ax, Ax); 4]> {
        g.digits
            .iter()
            .map(|&k| {
                let (a, n) = self.dev.digits[k];
                (a, self.st.lins.local(n))
            })
            .collect()
    }

    /// Reduction over the group.
    fn reduce_group(
        &mut self,
        op: Monoid,
        d: DType,
        x: &Val,
        g: &GroupDigits,
    ) -> Result<Val, String> {
        let fresh = self.fresh_digits(g);
        let mut map = Subst::new();
        for &(a, f) in &fresh {
            map.set(a, Lins::plain(f));
        }
        let y = self.st.subst(x, &map).ok_or(REACH)?;
        let bound: SmallVec<[Ax; 4]> = fresh.iter().map(|f| f.1).collect();
        if op == Monoid::Mul && dt_of(d) != Dt::BOOL {
            return Err("product over devices is not lifted".to_owned());
        }
        self.reduce_over(op, d, &y, &bound)
    }

    pub(super) fn lift_collective(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        use Opcode::*;
        let m = self.m;
        let ins = m.instr(i);
        let (r, p) = self.replicas_partitions();
        match ins.opcode {
            PartitionId | ReplicaId => {
                let id = self.dev.id(&mut self.st.lins);
                let (hi, lo) = self.st.lins.divide(id, p).ok_or("device ids do not split")?;
                let _ = r;
                let l = if ins.opcode == PartitionId { lo } else { hi };
                return Ok(Lv::T(Tv::scalar(self.st.iota(l))));
            }
            AllReduceDone => return v.first().cloned().ok_or_else(|| "no operand".to_owned()),
            AllGatherDone | CollectivePermuteDone => {
                return match v.first() {
                    Some(Lv::Tuple(t)) if t.len() >= 2 => Ok(t[1].clone()),
                    _ => Err("malformed done operation".to_owned()),
                };
            }
            _ => {}
        }
        let Attrs::Collective(c) = &ins.attrs else {
            return Err("collective without attributes".to_owned());
        };
        let mut out: Vec<Lv> = Vec::new();
        match ins.opcode {
            AllReduce | AllReduceStart | ReduceScatter => {
                let g = self.group_digits(i)?;
                let body = *ins.calls.first().ok_or("no reducer")?;
                let op = self.monoid(body).ok_or("the reducer is no known monoid")?;
                for (k, x) in v.iter().enumerate() {
                    let t = x.tensor().ok_or("operand is no array")?;
                    let d = m.dtype(ins.operands[k]).ok_or("operand is no array")?;
                    let val = self.reduce_group(op, d, &t.val, &g)?;
                    let mut t = Tv { val, dims: t.dims.clone() };
                    if ins.opcode == ReduceScatter {
                        let dim = c.dimension.ok_or("no scatter dimension")? as usize;
                        let digits = self.split_group(&mut t, dim, &g)?;
                        let mut map = Subst::new();
                        for (at, &k) in digits.iter().zip(&g.digits) {
                            let d = Lins::plain(self.dev.digits[k].0);
                            self.st.digits_of(at, d, &mut map).ok_or(REACH)?;
                        }
                        t.val = self.st.subst(&t.val, &map).ok_or(REACH)?;
                    }
                    out.push(Lv::T(t));
                }
            }
            AllGather | AllGatherStart => {
                let g = self.group_digits(i)?;
                let dim = c.dimension.ok_or("no gather dimension")? as usize;
                for x in v {
                    let t = x.tensor().ok_or("operand is no array")?;
                    let fresh = self.fresh_digits(&g);
                    let mut map = Subst::new();
                    for &(a, f) in &fresh {
                        map.set(a, Lins::plain(f));
                    }
                    let val = self.st.subst(&t.val, &map).ok_or(REACH)?;
                    let mut dims = t.dims.clone();
                    let mut d: Atoms = fresh.iter().map(|f| f.1).collect();
                    d.extend(dims.get(dim).ok_or("gather dimension out of range")?.iter().copied());
                    dims[dim] = d;
                    let mut t = Tv { val, dims };
                    self.st.fuse_dims(&mut t).ok_or(REACH)?;
                    out.push(Lv::T(t));
                }
                if ins.opcode == AllGatherStart {
                    let res = if out.len() == 1 {
                        out.remove(0)
                    } else {
                        Lv::Tuple(out.into_iter().collect())
                    };
                    let ops = if v.len() == 1 {
                        v[0].clone()
                    } else {
                        Lv::Tuple(v.iter().cloned().collect())
                    };
                    return Ok(Lv::Tuple([ops, res].into_iter().collect()));
                }
            }
            AllToAll => {
                let g = self.group_digits(i)?;
                match c.dimension {
                    Some(dim) if v.len() == 1 => {
                        let t = v[0].tensor().ok_or("operand is no array")?;
                        out.push(Lv::T(self.all_to_all(t, dim as usize, &g)?));
                    }
                    _ => return self.all_to_all_tuple(i, v, &g),
                }
            }
            CollectivePermute | CollectivePermuteStart => {
                for (k, x) in v.iter().enumerate() {
                    let t = x.tensor().ok_or("operand is no array")?;
                    let d = m.dtype(ins.operands[k]).ok_or("operand is no array")?;
                    out.push(Lv::T(self.permute(t, d, i)?));
                }
                if ins.opcode == CollectivePermuteStart {
                    let res = out.remove(0);
                    return Ok(Lv::Tuple([v[0].clone(), res].into_iter().collect()));
                }
            }
            CollectiveBroadcast => {
                let src = self.sources(i)?;
                for (k, x) in v.iter().enumerate() {
                    let t = x.tensor().ok_or("operand is no array")?;
                    let d = m.dtype(ins.operands[k]).ok_or("operand is no array")?;
                    out.push(Lv::T(self.from_source(t, d, &src)?));
                }
            }
            other => return Err(format!("{other} is not lifted")),
        }
        let tuple = m.shape(i).as_tuple().is_some();
        if tuple || out.len() != 1 {
            return Ok(Lv::Tuple(out.into_iter().collect()));
        }
        Ok(out.remove(0))
    }

    /// Splits the major part of a dimension into one atom list per group
    /// digit; the dimension keeps the rest.
    fn split_group(
        &mut self,
        t: &mut Tv,
        dim: usize,
        g: &GroupDigits,
    ) -> Result<Vec<Atoms>, String> {
        let mut sizes: SmallVec<[i64; 8]> = t.dims.iter().map(|d| self.st.dim_size(d)).collect();
        let n = *sizes.get(dim).ok_or("dimension out of range")?;
        if n % g.size != 0 {
            return Err("the dimension does not split over the group".to_owned());
        }
        sizes[dim] = n / g.size;
        for &k in g.digits.iter().rev() {
            sizes.insert(dim, self.dev.digits[k].1);
        }
        *t = self.st.reshape(t, &sizes).ok_or(REACH)?;
        let parts: Vec<Atoms> = t.dims.drain(dim..dim + g.digits.len()).collect();
        Ok(parts)
    }

    fn all_to_all(&mut self, t: &Tv, dim: usize, g: &GroupDigits) -> Result<Tv, String> {
        let mut t = t.clone();
        let parts = self.split_group(&mut t, dim, g)?;
        let fresh = self.fresh_digits(g);
        let mut map = Subst::new();
        // Receiver reads block `own position` of each sender.
        for (at, &k) in parts.iter().zip(&g.digits) {
            let d = Lins::plain(self.dev.digits[k].0);
            self.st.digits_of(at, d, &mut map).ok_or(REACH)?;
        }
        for &(a, f) in &fresh {
            map.set(a, Lins::plain(f));
        }
        t.val = self.st.subst(&t.val, &map).ok_or(REACH)?;
        let mut d: Atoms = fresh.iter().map(|f| f.1).collect();
        d.extend(t.dims[dim].iter().copied());
        t.dims[dim] = d;
        self.st.fuse_dims(&mut t).ok_or(REACH)?;
        Ok(t)
    }

    /// Operand `k` goes to the group's position `k`; result `j` comes from
    /// position `j`.
    fn all_to_all_tuple(&mut self, i: InstrId, v: &[Lv], g: &GroupDigits) -> Result<Lv, String> {
        if v.len() as i64 != g.size {
            return Err("as many operands as devices in a group were expected".to_owned());
        }
        let d = self.m.dtype(self.m.instr(i).operands[0]).ok_or("operand is no array")?;
        let mut parts: Vec<(i64, Tv)> = Vec::new();
        let mut sizes: SmallVec<[i64; 6]> = SmallVec::new();
        for x in v {
            let t = x.tensor().ok_or("operand is no array")?;
            let mut t = t.clone();
            sizes = t.dims.iter().map(|d| self.st.dim_size(d)).collect();
            t.dims.insert(0, Atoms::new());
            parts.push((1, t));
        }
        sizes.insert(0, g.size);
        let stacked = self.join(dt_of(d), &parts, 0, &sizes)?;
        let mut out: Vec<Lv> = Vec::new();
        for j in 0..g.size {
            let mut t = stacked.clone();
            // Position digits of the receiver, as placeholders.
            let mut pos = scalify_terms::Lin::constant(0);
            let mut stride = 1;
            let mut later = Subst::new();
            for &k in g.digits.iter().rev() {
                let (a, n) = self.dev.digits[k];
                let h = self.st.lins.local(n);
                pos.push(stride, h);
                later.set(h, Lins::plain(a));
                let c = self.st.lins.constant(j / stride % n);
                later.set(a, c);
                stride *= n;
            }
            let pos = self.st.lins.make(pos);
            self.st.index_dim(&mut t, 0, pos).ok_or(REACH)?;
            t.dims.remove(0);
            t.val = self.st.subst(&t.val, &later).ok_or(REACH)?;
            out.push(Lv::T(t));
        }
        Ok(Lv::Tuple(out.into_iter().collect()))
    }

    fn permute(&mut self, t: &Tv, d: DType, i: InstrId) -> Result<Tv, String> {
        let src = self.sources(i)?;
        self.from_source(t, d, &src)
    }

    /// The device that each device's value comes from, -1 if none (zeros).
    pub(super) fn sources(&self, i: InstrId) -> Result<Vec<i64>, String> {
        let m = self.m;
        let Attrs::Collective(c) = &m.instr(i).attrs else { return Err("no pairs".to_owned()) };
        let (r, p) = self.replicas_partitions();
        let mut src = vec![-1i64; self.dev.count as usize];
        if m.instr(i).opcode == Opcode::CollectiveBroadcast {
            let groups = flattened(c, mode(Opcode::CollectiveBroadcast, c), r, p).ok_or(GROUPS)?;
            for g in &groups {
                for &d in g {
                    *src.get_mut(d as usize).ok_or(GROUPS)? = g[0];
                }
            }
            return Ok(src);
        }
        let cross_partition = mode(m.instr(i).opcode, c) == GroupMode::CrossPartition;
        let (outer, ids) = if cross_partition { (r, p) } else { (p, r) };
        for q in 0..outer {
            let flat = |x: i64| if cross_partition { q * p + x } else { x * p + q };
            for &(s, e) in &c.pairs {
                if s < 0 || e < 0 || s >= ids || e >= ids {
                    return Err("a source or target is no device".to_owned());
                }
                let at = &mut src[flat(e) as usize];
                if *at != -1 {
                    return Err("a target occurs twice".to_owned());
                }
                *at = flat(s);
            }
        }
        Ok(src)
    }

    /// Each device's value is that of device `src[device]`, zero where -1.
    fn from_source(&mut self, t: &Tv, d: DType, src: &[i64]) -> Result<Tv, String> {
        let n = self.dev.digits.len();
        let mut map = Subst::new();
        let mut stride = self.dev.count;
        for k in 0..n {
            let (a, size) = self.dev.digits[k];
            stride /= size;
            let tab: Vec<i64> = src
                .iter()
                .enumerate()
                .map(|(dev, &s)| (if s < 0 { dev as i64 } else { s }) / stride % size)
                .collect();
            let l = self.dev.table(&mut self.st.lins, &tab);
            map.set(a, l);
        }
        let mut val = self.st.subst(&t.val, &map).ok_or(REACH)?;
        if src.iter().any(|&s| s < 0) {
            let tab: Vec<i64> = src.iter().map(|&s| i64::from(s >= 0)).collect();
            let l = self.dev.table(&mut self.st.lins, &tab);
            let p = match self.st.lins.as_constant(l) {
                Some(c) => self.st.bool(c != 0),
                None => {
                    let x = self.st.lins.shift(l, -1);
                    let x = self.st.iota(x);
                    self.st.eq0(&x).ok_or(REACH)?
                }
            };
            let dt = dt_of(d);
            let zero = if dt == Dt::INT {
                self.st.int(0)
            } else {
                Val { coef: Coef::ZERO, ..self.st.one(dt) }
            };
            val = self.st.select(dt, &p, &val, &zero).ok_or(REACH)?;
        }
        Ok(Tv { val, dims: t.dims.clone() })
    }
}

pub(super) const GROUPS: &str = "the device groups are not all along the same axes";
