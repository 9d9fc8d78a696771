//! Collectives. A group meets only if all its devices are active.

use super::multi::Multi;
use super::{Active, Machine, u32_scalar};
use crate::error::{Fail, Res, RunError, invalid, unsupported};
use crate::ops::elementwise::{binary, zeros};
use crate::ops::movement::{concatenate, flat, slice};
use crate::tensor::{Tensor, Value};
use scalify_ir::{Attrs, CollectiveAttrs, InstrId, Opcode, SliceAttrs};

/// Rows `lo..hi` of dimension `d`.
fn part(t: &Tensor, d: usize, lo: i64, hi: i64) -> Res<Tensor> {
    let mut s = SliceAttrs {
        start: t.dims.iter().map(|_| 0).collect(),
        limit: t.dims.clone(),
        stride: t.dims.iter().map(|_| 1).collect(),
    };
    match (s.start.get_mut(d), s.limit.get_mut(d)) {
        (Some(a), Some(b)) => (*a, *b) = (lo, hi),
        _ => return invalid(format!("dimension {d} of {:?}", t.dims)),
    }
    slice(t, &s)
}

/// Piece `i` of `n` equal pieces along `d`.
fn piece(t: &Tensor, d: i64, i: usize, n: usize) -> Res<Tensor> {
    let size = usize::try_from(d).ok().and_then(|d| t.dims.get(d).copied());
    match size {
        Some(s) if n > 0 && s % n as i64 == 0 => {
            let w = s / n as i64;
            part(t, d as usize, i as i64 * w, (i as i64 + 1) * w)
        }
        _ => invalid(format!("dimension {d} of {:?} in {n} parts", t.dims)),
    }
}

fn tensor(v: &Value) -> Res<&Tensor> {
    v.as_tensor().map_or_else(|| invalid("expects arrays"), Ok)
}

impl Machine<'_, '_> {
    /// Device groups by XLA's group modes.
    fn groups(&self, op: Opcode, at: &CollectiveAttrs) -> Res<Vec<Vec<usize>>> {
        use Opcode::*;
        let (r, p) = (self.replicas, self.partitions);
        let channel = at.channel_id.is_some();
        // Operations without the global flag address partitions by channel.
        let by_channel =
            matches!(op, AllToAll | CollectiveBroadcast | RaggedAllToAll | CollectivePermute);
        let flattened = channel && at.use_global_device_ids;
        let universe = match (channel, flattened, by_channel) {
            (_, true, _) => r * p,
            (true, _, true) => p,
            _ => r,
        };
        let Some(ids) = at.groups.expand(universe as i64) else {
            return invalid("replica groups are not well made");
        };
        let mut out: Vec<Vec<usize>> = Vec::new();
        for g in &ids {
            let ok = g.iter().all(|&i| 0 <= i && (i as u64) < universe as u64);
            if !ok {
                return invalid(format!("group {g:?} among {universe} devices"));
            }
            let g: Vec<usize> = g.iter().map(|&i| i as usize).collect();
            match (channel, flattened, by_channel) {
                (_, true, _) => out.push(g),
                // Partitions of each replica.
                (true, _, true) => {
                    out.extend((0..r).map(|k| g.iter().map(|i| k * p + i).collect::<Vec<_>>()));
                }
                // Replicas with all their partitions.
                (true, _, false) => {
                    out.push(g.iter().flat_map(|i| (0..p).map(move |k| i * p + k)).collect());
                }
                // Replicas of each partition.
                _ => out.extend((0..p).map(|k| g.iter().map(|i| i * p + k).collect::<Vec<_>>())),
            }
        }
        let mut seen = vec![false; r * p];
        for &d in out.iter().flatten() {
            if std::mem::replace(&mut seen[d], true) {
                return invalid(format!("device {d} is in two groups"));
            }
        }
        Ok(out)
    }

    pub(super) fn collective(
        &mut self,
        id: InstrId,
        ops: Vec<Multi>,
        active: &Active,
    ) -> Res<Multi> {
        use Opcode::*;
        let ins = self.module.instr(id);
        let Attrs::Collective(at) = &ins.attrs else { return invalid("attributes") };
        let at = at.as_ref();
        if ops.is_empty() {
            return invalid("no operands");
        }
        let op = ins.opcode;
        let mut out: Vec<Option<Value>> = vec![None; active.len()];
        if matches!(op, CollectivePermute | CollectivePermuteStart) {
            return self.permute(id, at, ops, active);
        }
        for group in self.groups(op, at)? {
            // Positions of the group's devices among the active ones.
            let pos: Vec<usize> =
                group.iter().filter_map(|d| active.binary_search(d).ok()).collect();
            if pos.is_empty() {
                continue;
            }
            if pos.len() < group.len() {
                return Err(self.deadlock(id));
            }
            // Same operands in every group: the first group's results serve.
            let results: Vec<Value> = match op {
                AllReduce | AllReduceStart => {
                    let v = self.all_reduce(id, &ops, &pos)?;
                    vec![v; pos.len()]
                }
                AllGather | AllGatherStart => {
                    let Some(d) = at.dimension else { return invalid("no dimension") };
                    let mut all = Vec::new();
                    for m in &ops {
                        let t: Vec<Tensor> =
                            pos.iter().map(|&k| tensor(m.get(k)).cloned()).collect::<Res<_>>()?;
                        all.push(Value::Tensor(concatenate(&t, d)?));
                    }
                    vec![bundle(all); pos.len()]
                }
                ReduceScatter => {
                    let Some(d) = at.dimension else { return invalid("no dimension") };
                    let sums = match self.all_reduce(id, &ops, &pos)? {
                        Value::Tuple(v) => v,
                        v => vec![v],
                    };
                    (0..pos.len())
                        .map(|i| {
                            let own =
                                |v: &Value| Ok(Value::Tensor(piece(tensor(v)?, d, i, pos.len())?));
                            Ok(bundle(sums.iter().map(own).collect::<Res<_>>()?))
                        })
                        .collect::<Res<_>>()?
                }
                AllToAll => all_to_all(&ops, &pos, at)?,
                CollectiveBroadcast => {
                    let from: Vec<Value> = ops.iter().map(|m| m.get(pos[0]).clone()).collect();
                    vec![bundle(from); pos.len()]
                }
                RaggedAllToAll => ragged(&ops, &pos)?,
                _ => return unsupported("collective"),
            };
            for (&k, v) in pos.iter().zip(results) {
                out[k] = Some(v);
            }
        }
        if op == CollectiveBroadcast {
            // Devices outside every group get zeros.
            for (k, o) in out.iter_mut().enumerate().filter(|(_, o)| o.is_none()) {
                let z = ops.iter().map(|m| zero(m.get(k))).collect::<Res<Vec<_>>>()?;
                *o = Some(bundle(z));
            }
        }
        let Some(out) = out.into_iter().collect::<Option<Vec<Value>>>() else {
            return invalid("a device is in no group");
        };
        let out = if op == AllGatherStart {
            let pair = |(k, v): (usize, Value)| {
                let own = bundle(ops.iter().map(|m| m.get(k).clone()).collect());
                Value::Tuple(vec![own, v])
            };
            out.into_iter().enumerate().map(pair).collect()
        } else {
            out
        };
        Ok(Multi::from_vec(out))
    }

    fn deadlock(&self, id: InstrId) -> Fail {
        Fail::Done(Box::new(RunError::Deadlock {
            instr: self.name(id),
            opcode: self.module.instr(id).opcode,
        }))
    }

    /// Sums (or what the reducer says) in the order of the group.
    fn all_reduce(&mut self, id: InstrId, ops: &[Multi], pos: &[usize]) -> Res<Value> {
        let comp = self.called(id, 0)?;
        let known = self.known(comp);
        let mut out = Vec::new();
        for m in ops {
            let first = tensor(m.get(pos[0]))?;
            let dims = first.dims.clone();
            let mut acc = flat(first);
            for &k in &pos[1..] {
                let t = tensor(m.get(k))?;
                if t.dims != dims || t.dtype != first.dtype {
                    return invalid("operand shapes differ between devices");
                }
                acc = match known {
                    Some(op) => binary(op, acc, flat(t))?,
                    None => match <[Tensor; 1]>::try_from(self.lift(comp, vec![acc, flat(t)])?) {
                        Ok([t]) => t,
                        Err(_) => return invalid("reducer does not return one value"),
                    },
                };
            }
            out.push(Value::Tensor(Tensor { dims, ..acc }));
        }
        Ok(bundle(out))
    }

    fn permute(
        &mut self,
        id: InstrId,
        at: &CollectiveAttrs,
        ops: Vec<Multi>,
        active: &Active,
    ) -> Res<Multi> {
        let ins = self.module.instr(id);
        let (r, p) = (self.replicas, self.partitions);
        let cross = at.channel_id.is_some();
        let universe = if cross { p } else { r };
        let mut source: Vec<Option<usize>> = vec![None; r * p];
        let mut sends = vec![false; r * p];
        for &(s, t) in &at.pairs {
            let ok = |i: i64| 0 <= i && (i as u64) < universe as u64;
            if !ok(s) || !ok(t) {
                return invalid(format!("pair {s},{t} among {universe} devices"));
            }
            for k in 0..if cross { r } else { p } {
                let dev = |i: i64| if cross { k * p + i as usize } else { i as usize * p + k };
                if source[dev(t)].replace(dev(s)).is_some() {
                    return invalid(format!("two sources for {t}"));
                }
                if std::mem::replace(&mut sends[dev(s)], true) {
                    return invalid(format!("two targets for {s}"));
                }
                if active.binary_search(&dev(s)).is_ok() != active.binary_search(&dev(t)).is_ok() {
                    return Err(self.deadlock(id));
                }
            }
        }
        let mut blank: Option<Vec<Value>> = None;
        let mut out = Vec::new();
        for (k, &d) in active.iter().enumerate() {
            let got: Vec<Value> = match source[d].and_then(|s| active.binary_search(&s).ok()) {
                Some(s) => ops.iter().map(|m| m.get(s).clone()).collect(),
                None => match &blank {
                    Some(z) => z.clone(),
                    None => {
                        let z: Vec<Value> =
                            ops.iter().map(|m| zero(m.get(k))).collect::<Res<_>>()?;
                        blank = Some(z.clone());
                        z
                    }
                },
            };
            let v = bundle(got);
            out.push(if ins.opcode == Opcode::CollectivePermuteStart {
                let own = bundle(ops.iter().map(|m| m.get(k).clone()).collect());
                Value::Tuple(vec![own, v, u32_scalar(0), u32_scalar(0)])
            } else {
                v
            });
        }
        Ok(Multi::from_vec(out))
    }
}

/// One value stays itself, several become a tuple.
fn bundle(mut v: Vec<Value>) -> Value {
    match v.len() {
        1 => v.swap_remove(0),
        _ => Value::Tuple(v),
    }
}

fn zero(v: &Value) -> Res<Value> {
    Ok(Value::Tensor({
        let t = tensor(v)?;
        Tensor { data: zeros(&t.data, t.len()), ..t.clone() }
    }))
}

fn all_to_all(ops: &[Multi], pos: &[usize], at: &CollectiveAttrs) -> Res<Vec<Value>> {
    let n = pos.len();
    if let Some(d) = at.dimension {
        let [m] = ops else { return invalid("array form takes one operand") };
        return (0..n)
            .map(|i| {
                let parts: Vec<Tensor> =
                    pos.iter().map(|&k| piece(tensor(m.get(k))?, d, i, n)).collect::<Res<_>>()?;
                Ok(Value::Tensor(concatenate(&parts, d)?))
            })
            .collect();
    }
    if ops.len() != n {
        return invalid(format!("{} operands for a group of {n}", ops.len()));
    }
    let one = |i: usize| {
        let v: Vec<Value> = pos.iter().map(|&k| ops[i].get(k).clone()).collect();
        // The tuple form keeps its tuple even for one operand.
        Value::Tuple(v)
    };
    Ok((0..n).map(one).collect())
}

/// Operands: input, output, input offsets, send sizes, output offsets (in the
/// receiver), receive sizes; rows of dimension 0.
fn ragged(ops: &[Multi], pos: &[usize]) -> Res<Vec<Value>> {
    let [input, output, input_at, send, output_at, _] = ops else {
        return invalid("expects six operands");
    };
    let n = pos.len();
    let numbers = |m: &Multi, k: usize| -> Res<Vec<i64>> {
        match tensor(m.get(k))?.to_i64() {
            Some(v) if v.len() % n == 0 => Ok(v),
            _ => invalid("offsets and sizes are one integer list per group member"),
        }
    };
    let mut out: Vec<Tensor> =
        pos.iter().map(|&k| tensor(output.get(k)).cloned()).collect::<Res<_>>()?;
    for &k in pos {
        let x = tensor(input.get(k))?;
        let (from, size, to) = (numbers(input_at, k)?, numbers(send, k)?, numbers(output_at, k)?);
        if from.len() != size.len() || to.len() != size.len() || x.rank() == 0 {
            return invalid("offsets and sizes differ in number");
        }
        let per = size.len() / n;
        for (i, ((&f, &s), &t)) in from.iter().zip(&size).zip(&to).enumerate() {
            let target = &mut out[i / per.max(1)];
            let fits =
                f >= 0 && s >= 0 && t >= 0 && f.checked_add(s).is_some_and(|e| e <= x.dims[0]);
            let lands = t.checked_add(s).is_some_and(|e| Some(&e) <= target.dims.first());
            if !fits || !lands {
                return invalid(format!("{s} rows from {f} to {t}"));
            }
            let rows = part(x, 0, f, f + s)?;
            let mut at = vec![0i64; target.rank()];
            at[0] = t;
            *target = crate::ops::movement::dynamic_update_slice(target.clone(), &rows, &at)?;
        }
    }
    Ok(out.into_iter().map(Value::Tensor).collect())
}
