//! One value per device: all devices are lifted in step, device ids are
//! numbers, and collectives move or combine the devices' terms.
//!
//! Programs whose devices do different work (rings, pipelines, branches on the
//! device id) have no common term in the device digits, but each device's
//! term alone is an ordinary one.

use super::collective::{GROUPS, flattened, mode};
use super::reduce::Monoid;
use super::{Lifter, Lv, dt_of};
use crate::tv::{Tv, TvOps};
use scalify_claim::Placement;
use scalify_ir::{Attrs, DType, DeviceGroups, InstrId, Opcode};
use scalify_terms::{Dt, Subst};
use smallvec::SmallVec;
use std::rc::Rc;

const REACH: &str = "index arithmetic is out of reach";

impl Lv {
    /// True if a leaf is told apart by device.
    pub(crate) fn differs(&self) -> bool {
        match self {
            Lv::Each(_) => true,
            Lv::Tuple(t) => t.iter().any(Lv::differs),
            _ => false,
        }
    }

    /// The value on one device.
    pub(crate) fn on(&self, d: usize) -> Lv {
        match self {
            Lv::Each(ts) => ts.get(d).map_or(Lv::Token, |t| Lv::T(t.clone())),
            Lv::Tuple(t) if self.differs() => Lv::Tuple(t.iter().map(|x| x.on(d)).collect()),
            other => other.clone(),
        }
    }

    /// One value from those of all devices.
    pub(crate) fn together(all: &[Lv]) -> Option<Lv> {
        Some(match all.first()? {
            Lv::T(_) => {
                let ts: Option<Vec<Tv>> = all.iter().map(|x| x.tensor().cloned()).collect();
                Lv::Each(ts?.into())
            }
            Lv::Tuple(t) => {
                let mut out = Vec::with_capacity(t.len());
                for k in 0..t.len() {
                    let mut part = Vec::with_capacity(all.len());
                    for x in all {
                        match x {
                            Lv::Tuple(u) if u.len() == t.len() => part.push(u[k].clone()),
                            _ => return None,
                        }
                    }
                    out.push(Lv::together(&part)?);
                }
                Lv::Tuple(out.into())
            }
            Lv::Token => Lv::Token,
            Lv::Each(_) => return None,
        })
    }
}

impl Lifter<'_> {
    /// The value with the device digits read at device `d`.
    pub(crate) fn at_device(&mut self, t: &Tv, d: i64) -> Option<Tv> {
        let mut map = Subst::new();
        let mut rest = d;
        for &(a, n) in self.dev.digits.iter().rev() {
            let c = self.st.lins.constant(rest % n);
            map.set(a, c);
            rest /= n;
        }
        Some(Tv { val: self.st.subst(&t.val, &map)?, dims: t.dims.clone() })
    }

    fn leaf_at(&mut self, v: &Lv, d: i64) -> Result<Lv, String> {
        Ok(match v {
            Lv::T(t) => Lv::T(self.at_device(t, d).ok_or(REACH)?),
            Lv::Tuple(t) => {
                let all: Result<Vec<Lv>, String> = t.iter().map(|x| self.leaf_at(x, d)).collect();
                Lv::Tuple(all?.into())
            }
            other => other.clone(),
        })
    }

    /// Leaves that depend on device digits, per device.
    pub(crate) fn spread(&mut self, v: &Lv) -> Result<Lv, String> {
        match v {
            Lv::T(t) => {
                let digits: SmallVec<[_; 8]> = self.dev.digits.iter().map(|d| d.0).collect();
                if !self.st.ref_mentions_any(&t.val.r, &digits) {
                    return Ok(v.clone());
                }
                let mut ts = Vec::with_capacity(self.dev.count as usize);
                for d in 0..self.dev.count {
                    ts.push(self.at_device(t, d).ok_or(REACH)?);
                }
                Ok(Lv::Each(ts.into()))
            }
            Lv::Tuple(t) => {
                let all: Result<Vec<Lv>, String> = t.iter().map(|x| self.spread(x)).collect();
                Ok(Lv::Tuple(all?.into()))
            }
            other => Ok(other.clone()),
        }
    }

    /// An instruction that is no call, on values per device.
    pub(super) fn lift_each(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        let m = self.m;
        let ins = m.instr(i);
        let op = ins.opcode;
        if op.is_collective() && !matches!(op, Opcode::PartitionId | Opcode::ReplicaId) {
            return self.lift_collective_each(i, v);
        }
        let border = match &ins.attrs {
            Attrs::CustomCall(c) => {
                matches!(m.str(c.target), "xla.sdy.LocalToGlobalShape" | "SPMDShardToFullShape")
            }
            _ => false,
        };
        let moves = matches!(
            op,
            Opcode::Tuple
                | Opcode::GetTupleElement
                | Opcode::Copy
                | Opcode::OptimizationBarrier
                | Opcode::AddDependency
                | Opcode::Domain
                | Opcode::CopyStart
                | Opcode::CopyDone
                | Opcode::AsyncDone
                | Opcode::AsyncUpdate
        );
        if border || moves || !v.iter().any(Lv::differs) {
            let r = self.lift_whole(i, v)?;
            return self.spread(&r);
        }
        let mut all = Vec::with_capacity(self.dev.count as usize);
        for d in 0..self.dev.count {
            let own: SmallVec<[Lv; 4]> = v.iter().map(|x| x.on(d as usize)).collect();
            let r = self.lift_whole(i, &own)?;
            all.push(self.leaf_at(&r, d)?);
        }
        Lv::together(&all).ok_or_else(|| "the devices' values do not agree in shape".to_owned())
    }

    /// The values of all devices.
    fn all_of(&self, x: &Lv) -> Result<Rc<[Tv]>, String> {
        let n = self.dev.count as usize;
        match x {
            Lv::Each(ts) if ts.len() == n => Ok(ts.clone()),
            Lv::T(t) => Ok(vec![t.clone(); n].into()),
            _ => Err("operand is no array".to_owned()),
        }
    }

    /// Groups of device ids in which every device is exactly once, and for
    /// each device its group and position.
    fn members(&self, i: InstrId) -> Result<(DeviceGroups, Vec<(usize, usize)>), String> {
        let m = self.m;
        let Attrs::Collective(c) = &m.instr(i).attrs else { return Err(GROUPS.to_owned()) };
        let (r, p) = self.replicas_partitions();
        let groups = flattened(c, mode(m.instr(i).opcode, c), r, p).ok_or(GROUPS)?;
        let mut at = vec![None; self.dev.count as usize];
        for (g, ds) in groups.iter().enumerate() {
            for (k, &d) in ds.iter().enumerate() {
                let slot =
                    usize::try_from(d).ok().and_then(|d| at.get_mut(d)).ok_or("no such device")?;
                if slot.replace((g, k)).is_some() {
                    return Err("a device is in two groups".to_owned());
                }
            }
        }
        let at: Option<Vec<(usize, usize)>> = at.into_iter().collect();
        Ok((groups, at.ok_or("a device is in no group")?))
    }

    fn reduce_members(&mut self, op: Monoid, d: DType, ts: &[Tv]) -> Result<Tv, String> {
        let (first, rest) = ts.split_first().ok_or("an empty group")?;
        let (mut first, mut rest) = (first.clone(), rest.to_vec());
        if rest.is_empty() {
            return Ok(first);
        }
        for _ in 0..2 {
            for t in rest.iter_mut() {
                self.st.align(&mut first, t).ok_or("dimension splits clash")?;
            }
        }
        let dt = dt_of(d);
        let mut vals = vec![first.val.clone()];
        vals.extend(rest.iter().map(|t| t.val.clone()));
        let val = if dt == Dt::BOOL {
            match op {
                Monoid::Mul | Monoid::Min => self.st.and(&vals),
                Monoid::Add | Monoid::Max => self.st.or(&vals),
            }
        } else {
            match op {
                Monoid::Add if dt != Dt::INT && !self.st.rules.reals => {
                    return Err("the order of a sum over devices is not known".to_owned());
                }
                Monoid::Add => self.st.add(dt, &vals),
                Monoid::Max => self.st.max(dt, &vals),
                Monoid::Min => self.st.min(dt, &vals),
                Monoid::Mul => return Err("product over devices is not lifted".to_owned()),
            }
            .ok_or(REACH)?
        };
        let val = if dt == Dt::INT { self.checked(val, d)? } else { val };
        Ok(Tv { val, dims: first.dims })
    }

    fn sizes_of(&self, t: &Tv) -> SmallVec<[i64; 6]> {
        t.dims.iter().map(|d| self.st.dim_size(d)).collect()
    }

    /// Block `k` of `n` along a dimension.
    fn block_of(&mut self, t: &Tv, dim: usize, k: usize, n: usize) -> Result<Tv, String> {
        let mut t = t.clone();
        let size = self.st.dim_size(t.dims.get(dim).ok_or("dimension out of range")?);
        let n = n as i64;
        if n == 0 || size % n != 0 {
            return Err("the dimension does not split over the group".to_owned());
        }
        let len = size / n;
        self.cut_dim(&mut t, dim, k as i64 * len, len, 1).ok_or(REACH)?;
        t.val = self.st.norm(t.val);
        Ok(t)
    }

    fn joined(&mut self, dt: Dt, ts: &[Tv], dim: usize) -> Result<Tv, String> {
        let first = ts.first().ok_or("an empty group")?;
        let mut sizes = self.sizes_of(first);
        let len = *sizes.get(dim).ok_or("dimension out of range")?;
        sizes[dim] = len * ts.len() as i64;
        let parts: Vec<(i64, Tv)> = ts.iter().map(|t| (len, t.clone())).collect();
        self.join(dt, &parts, dim, &sizes)
    }

    /// The result of a group is made once and shared by its members.
    fn shared(
        &mut self,
        groups: &DeviceGroups,
        at: &[(usize, usize)],
        mut f: impl FnMut(&mut Self, &[i64]) -> Result<Tv, String>,
    ) -> Result<Lv, String> {
        let mut made = Vec::with_capacity(groups.len());
        for g in groups {
            made.push(f(self, g)?);
        }
        if let [one] = &made[..] {
            return Ok(Lv::T(one.clone()));
        }
        Ok(Lv::Each(at.iter().map(|x| made[x.0].clone()).collect()))
    }

    fn lift_collective_each(&mut self, i: InstrId, v: &[Lv]) -> Result<Lv, String> {
        use Opcode::*;
        let m = self.m;
        let ins = m.instr(i);
        if matches!(ins.opcode, AllReduceDone | AllGatherDone | CollectivePermuteDone) {
            return self.lift_collective(i, v);
        }
        let Attrs::Collective(c) = &ins.attrs else {
            return Err("collective without attributes".to_owned());
        };
        let pick = |ts: &[Tv], g: &[i64]| -> Vec<Tv> {
            g.iter().filter_map(|&d| ts.get(d as usize).cloned()).collect()
        };
        let mut out: Vec<Lv> = Vec::new();
        match ins.opcode {
            AllReduce | AllReduceStart | ReduceScatter => {
                let (groups, at) = self.members(i)?;
                let body = *ins.calls.first().ok_or("no reducer")?;
                let op = self.monoid(body).ok_or("the reducer is no known monoid")?;
                for (k, x) in v.iter().enumerate() {
                    let ts = self.all_of(x)?;
                    let d = m.dtype(ins.operands[k]).ok_or("operand is no array")?;
                    let r =
                        self.shared(&groups, &at, |s, g| s.reduce_members(op, d, &pick(&ts, g)))?;
                    if ins.opcode != ReduceScatter {
                        out.push(r);
                        continue;
                    }
                    let dim = c.dimension.ok_or("no scatter dimension")? as usize;
                    let whole = self.all_of(&r)?;
                    let mut own = Vec::with_capacity(at.len());
                    for (t, &(g, p)) in whole.iter().zip(&at) {
                        own.push(self.block_of(t, dim, p, groups[g].len())?);
                    }
                    out.push(Lv::Each(own.into()));
                }
            }
            AllGather | AllGatherStart => {
                let (groups, at) = self.members(i)?;
                let dim = c.dimension.ok_or("no gather dimension")? as usize;
                for (k, x) in v.iter().enumerate() {
                    let ts = self.all_of(x)?;
                    let dt = dt_of(m.dtype(ins.operands[k]).ok_or("operand is no array")?);
                    out.push(self.shared(&groups, &at, |s, g| s.joined(dt, &pick(&ts, g), dim))?);
                }
                if ins.opcode == AllGatherStart {
                    let one = |mut x: Vec<Lv>| {
                        if x.len() == 1 { x.remove(0) } else { Lv::Tuple(x.into()) }
                    };
                    return Ok(Lv::Tuple([one(v.to_vec()), one(out)].into_iter().collect()));
                }
            }
            AllToAll => {
                let (groups, at) = self.members(i)?;
                let dt = dt_of(m.dtype(ins.operands[0]).ok_or("operand is no array")?);
                match c.dimension {
                    // Each receiver joins its block of every sender.
                    Some(dim) if v.len() == 1 => {
                        let ts = self.all_of(&v[0])?;
                        let dim = dim as usize;
                        let mut own = Vec::with_capacity(at.len());
                        for &(g, p) in &at {
                            let n = groups[g].len();
                            let mut parts = Vec::with_capacity(n);
                            for t in pick(&ts, &groups[g]) {
                                parts.push(self.block_of(&t, dim, p, n)?);
                            }
                            own.push(self.joined(dt, &parts, dim)?);
                        }
                        out.push(Lv::Each(own.into()));
                    }
                    // Result `j` is what position `j` sent to the own position.
                    _ => {
                        let all: Result<Vec<Rc<[Tv]>>, String> =
                            v.iter().map(|x| self.all_of(x)).collect();
                        let all = all?;
                        if groups.iter().any(|g| g.len() != v.len()) {
                            return Err(
                                "as many operands as devices in a group were expected".to_owned()
                            );
                        }
                        for j in 0..v.len() {
                            let own = at
                                .iter()
                                .map(|&(g, p)| all[p][groups[g][j] as usize].clone())
                                .collect();
                            out.push(Lv::Each(own));
                        }
                        return Ok(Lv::Tuple(out.into()));
                    }
                }
            }
            CollectivePermute | CollectivePermuteStart | CollectiveBroadcast => {
                let src = self.sources(i)?;
                for (k, x) in v.iter().enumerate() {
                    let ts = self.all_of(x)?;
                    let d = m.dtype(ins.operands[k]).ok_or("operand is no array")?;
                    let dt = dt_of(d);
                    let zero = if dt == Dt::INT { self.st.int(0) } else { self.st.zero(dt) };
                    let mut own = Vec::with_capacity(src.len());
                    for (me, &s) in src.iter().enumerate() {
                        own.push(match usize::try_from(s).ok().and_then(|s| ts.get(s)) {
                            Some(t) => t.clone(),
                            None => Tv { val: zero.clone(), dims: ts[me].dims.clone() },
                        });
                    }
                    out.push(Lv::Each(own.into()));
                }
                if ins.opcode == CollectivePermuteStart {
                    let res = out.pop().ok_or("no operand")?;
                    return Ok(Lv::Tuple([v[0].clone(), res].into_iter().collect()));
                }
            }
            other => return Err(format!("{other} is not lifted")),
        }
        if m.shape(i).as_tuple().is_some() || out.len() != 1 {
            return Ok(Lv::Tuple(out.into()));
        }
        Ok(out.remove(0))
    }

    /// The global value whose blocks the devices hold; devices of the same
    /// tile must hold the same.
    pub(crate) fn global_of(&mut self, x: &Lv, p: &Placement) -> Result<Tv, String> {
        let ts = match x {
            Lv::T(t) => return self.to_global(t, p),
            _ => self.all_of(x)?,
        };
        let dt = ts.first().ok_or("no devices")?.val.dt;
        let tiled: Vec<usize> = (0..p.dims.len()).filter(|&k| p.dims[k].tiles > 1).collect();
        let tile = |d: usize| -> Vec<i64> {
            tiled.iter().map(|&k| i64::from(p.dims[k].tile(d as u32))).collect()
        };
        for d in 0..ts.len() {
            let first = (0..d).find(|&e| tile(e) == tile(d));
            if let Some(e) = first {
                if !crate::outputs::same_value(self.st, &ts[e], &ts[d]) {
                    return Err(
                        "the value differs between devices, which its sharding says it does not"
                            .to_owned(),
                    );
                }
            }
        }
        let mut blocks: Vec<(Vec<i64>, Tv)> =
            ts.iter().enumerate().map(|(d, t)| (tile(d), t.clone())).collect();
        blocks.sort_by(|a, b| a.0.cmp(&b.0));
        blocks.dedup_by(|a, b| a.0 == b.0);
        // The last tiled dimension is joined first.
        for &dim in tiled.iter().rev() {
            let mut next: Vec<(Vec<i64>, Vec<Tv>)> = Vec::new();
            for (mut key, t) in blocks {
                let last = key.pop().unwrap_or(0);
                match next.last_mut() {
                    Some(n) if n.0 == key => {
                        if n.1.len() as i64 != last {
                            return Err("a tile is held by no device".to_owned());
                        }
                        n.1.push(t);
                    }
                    _ if last == 0 => next.push((key, vec![t])),
                    _ => return Err("a tile is held by no device".to_owned()),
                }
            }
            blocks = Vec::new();
            for (key, parts) in next {
                if parts.len() as i64 != i64::from(p.dims[dim].tiles) {
                    return Err("a tile is held by no device".to_owned());
                }
                let t = self.joined(dt, &parts, dim)?;
                blocks.push((key, t));
            }
        }
        match &blocks[..] {
            [(_, t)] => Ok(t.clone()),
            _ => Err("tiles and mesh axes do not agree".to_owned()),
        }
    }
}
