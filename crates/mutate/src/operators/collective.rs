//! Collectives dropped, doubled, replaced by others, moved.

use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::shape::Dims;
use scalify_ir::{
    ArrayShape, Attrs, CollectiveAttrs, CompareKind, Comparison, DType, InstrId, Literal, Module,
    Opcode, Shape, SliceAttrs,
};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "drop-collective",
        about: "a collective is replaced by its operand, tiled or cut to size",
        equal: false,
        ways: |m, _, i| u32::from(is(m, i)),
        edit: drop,
    },
    Operator {
        name: "double-collective",
        about: "a collective is applied twice",
        equal: false,
        ways: |m, _, i| u32::from(is(m, i) && same_shape(m, i)),
        edit: double,
    },
    Operator {
        name: "collective-reducer",
        about: "all-reduce or reduce-scatter by another of sum, product, max, min, and, or",
        equal: false,
        ways: |m, _, i| u32::from(is(m, i) && reducer_of(m, i).is_some()),
        edit: reducer,
    },
    Operator {
        name: "wrong-block",
        about: "reduce-scatter becomes all-reduce and the next device's block",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::ReduceScatter),
        edit: |e, s, _| split_scatter(e, s.instr, 1),
    },
    Operator {
        name: "gather-wrong-place",
        about: "all-gather becomes a sum of blocks, each put in the next device's place",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::AllGather),
        edit: |e, s, _| gather_by_sum(e, s.instr, 1),
    },
    Operator {
        name: "collective-dimension",
        about: "all-gather, reduce-scatter or all-to-all along another dimension",
        equal: false,
        ways: |m, _, i| match attrs(m, i) {
            Some(a) if a.dimension.is_some() => {
                m.array(i).map_or(0, |s| s.rank().saturating_sub(1) as u32)
            }
            _ => 0,
        },
        edit: dimension,
    },
    Operator {
        name: "collective-before-op",
        about: "a collective and the elementwise operation before it change places",
        equal: false,
        ways: |m, _, i| {
            let o = m.instr(i).operands.first();
            u32::from(
                is(m, i)
                    && m.instr(i).operands.len() == 1
                    && o.is_some_and(|&o| elementwise_of_one(m, o)),
            )
        },
        edit: swap_with_op,
    },
    Operator {
        name: "collective-low-precision",
        about: "a collective on values rounded to bf16 or f16",
        equal: false,
        ways: |m, _, i| {
            let t = m.dtype(i);
            u32::from(is(m, i) && t.is_some_and(|t| matches!(t, DType::F32 | DType::F64)))
        },
        edit: low_precision,
    },
    Operator {
        name: "skip-on-one-device",
        about: "one device keeps its own operand in place of a collective's result",
        equal: false,
        ways: |m, _, i| u32::from(is(m, i) && same_shape(m, i) && m.array(i).is_some()),
        edit: skip_on_one,
    },
    Operator {
        name: "scatter-as-all-reduce",
        about: "reduce-scatter becomes all-reduce and the own block (equal)",
        equal: true,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::ReduceScatter),
        edit: |e, s, _| split_scatter(e, s.instr, 0),
    },
    Operator {
        name: "all-reduce-as-scatter-gather",
        about: "all-reduce becomes reduce-scatter and all-gather (equal)",
        equal: true,
        ways: |m, _, i| {
            let rank = m.array(i).map_or(0, ArrayShape::rank) as u32;
            if m.instr(i).opcode == Opcode::AllReduce { rank } else { 0 }
        },
        edit: split_reduce,
    },
    Operator {
        name: "gather-as-sum",
        about: "all-gather becomes a sum of blocks put in place (equal)",
        equal: true,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::AllGather),
        edit: |e, s, _| gather_by_sum(e, s.instr, 0),
    },
];

/// A synchronous collective.
pub(super) fn is(m: &Module, i: InstrId) -> bool {
    use Opcode::*;
    matches!(
        m.instr(i).opcode,
        AllGather | AllReduce | AllToAll | CollectiveBroadcast | CollectivePermute | ReduceScatter
    )
}

pub(super) fn attrs(m: &Module, i: InstrId) -> Option<&CollectiveAttrs> {
    match &m.instr(i).attrs {
        Attrs::Collective(a) => Some(a),
        _ => None,
    }
}

fn same_shape(m: &Module, i: InstrId) -> bool {
    let o = &m.instr(i).operands;
    o.len() == 1 && m.shape(i).same(m.shape(o[0]))
}

/// Opcode of the reducer `(x, y) -> op(x, y)`.
pub(super) fn reducer_of(m: &Module, i: InstrId) -> Option<Opcode> {
    let c = m.instr(i).calls.first()?;
    let root = m.comp(*c).root;
    (m.comp(*c).params.len() == 2 && m.instr(root).opcode.is_binary_elementwise())
        .then(|| m.instr(root).opcode)
}

fn elementwise_of_one(m: &Module, i: InstrId) -> bool {
    let o = &m.instr(i).operands;
    o.len() == 1 && m.instr(i).opcode.is_unary_elementwise() && m.shape(i).same(m.shape(o[0]))
}

fn drop(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let i = s.instr;
    let ops = e.operands(i);
    if ops.len() != 1 {
        e.text = "dropped".into();
        return e.redo(i, Opcode::Tuple, Attrs::None, &ops, &[]);
    }
    let x = ops[0];
    if e.m.shape(i).same(e.m.shape(x)) {
        e.text = "dropped".into();
        e.bypass(i, x);
        return Some(());
    }
    let dim = attrs(&e.m, i)?.dimension?;
    let n = size(e, i, dim)?;
    match e.m.instr(i).opcode {
        Opcode::AllGather => {
            let (a, b) = (dim_of(e, x, dim)?, dim_of(e, i, dim)?);
            if a < 1 || b / a > 64 {
                return None;
            }
            e.text = "replaced by copies of its operand".into();
            let xs = vec![x; (b / a) as usize];
            e.redo(i, Opcode::Concatenate, Attrs::Dims([dim].into_iter().collect()), &xs, &[])
        }
        Opcode::ReduceScatter if r.coin() => {
            let len = dim_of(e, i, dim)?;
            let sizes = e.m.array(x)?.dims.clone();
            let mut a = SliceAttrs {
                start: sizes.iter().map(|_| 0).collect(),
                limit: sizes.clone(),
                stride: sizes.iter().map(|_| 1).collect(),
            };
            a.limit[dim as usize] = len;
            e.text = "replaced by the first block of its operand".into();
            e.redo(i, Opcode::Slice, Attrs::Slice(Box::new(a)), &[x], &[])
        }
        Opcode::ReduceScatter => {
            let _ = n;
            e.text = "replaced by the own block of its operand".into();
            let y = own_block(e, i, i, x, dim, 0)?;
            e.bypass(i, y);
            Some(())
        }
        _ => None,
    }
}

fn size(e: &Edit, i: InstrId, dim: i64) -> Option<i64> {
    dim_of(e, i, dim)
}

fn dim_of(e: &Edit, i: InstrId, dim: i64) -> Option<i64> {
    e.m.array(i)?.dims.get(dim as usize).copied()
}

fn double(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let i = s.instr;
    let old = e.m.instr(i).clone();
    let shape = e.m.shape(i).clone();
    e.text = "applied twice".into();
    e.behind(i, |e, at| e.put(at, old.opcode, old.attrs, &[i], &old.calls, shape))?;
    Some(())
}

fn reducer(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let i = s.instr;
    let old = reducer_of(&e.m, i)?;
    let x = *e.m.instr(i).operands.first()?;
    let t = e.m.dtype(x)?;
    let choices: Vec<Opcode> = match t {
        DType::Pred => vec![Opcode::And, Opcode::Or],
        _ => vec![Opcode::Add, Opcode::Maximum, Opcode::Minimum, Opcode::Multiply],
    };
    let choices: Vec<Opcode> = choices.into_iter().filter(|&o| o != old).collect();
    let new = *r.pick(&choices)?;
    e.text = format!("by {new}, was {old}");
    let c = e.reducer(new, t)?;
    e.instr_mut(i).calls[0] = c;
    Some(())
}

/// `table[device]` as an s32 scalar before `at`; devices are counted as the
/// collective `like` counts them.
pub(super) fn per_device(
    e: &mut Edit,
    at: InstrId,
    like: InstrId,
    table: &[i64],
) -> Option<InstrId> {
    let bytes: Vec<u8> = table.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect();
    let t =
        e.constant(at, Literal::dense(ArrayShape::new(DType::S32, [table.len() as i64]), bytes))?;
    let me = device(e, at, like)?;
    let one: Dims = [1].into_iter().collect();
    let v = e.add(at, Opcode::DynamicSlice, Attrs::DynamicSlice(one), &[t, me], &[])?;
    e.put(at, Opcode::Reshape, Attrs::None, &[v], &[], Shape::array(DType::S32, []))
}

fn device(e: &mut Edit, at: InstrId, like: InstrId) -> Option<InstrId> {
    let op = match attrs(&e.m, like)?.channel_id {
        Some(_) => Opcode::PartitionId,
        None => Opcode::ReplicaId,
    };
    e.put(at, op, Attrs::None, &[], &[], Shape::array(DType::U32, []))
}

/// Per device the position in its group, moved by `by`, times `scale`.
fn positions(e: &Edit, i: InstrId, by: i64, scale: i64) -> Option<Vec<i64>> {
    let groups = attrs(&e.m, i)?.groups.expand(e.devices)?;
    let mut t = vec![0; e.devices as usize];
    for g in &groups {
        for (k, &d) in g.iter().enumerate() {
            *t.get_mut(d as usize)? = (k as i64 + by) % g.len() as i64 * scale;
        }
    }
    Some(t)
}

/// The block of `x` along `dim` that the collective `i` gives this device
/// (moved on by `by` devices), before `at`.
fn own_block(
    e: &mut Edit,
    at: InstrId,
    i: InstrId,
    x: InstrId,
    dim: i64,
    by: i64,
) -> Option<InstrId> {
    let out = e.m.array(i)?.clone();
    let t = positions(e, i, by, *out.dims.get(dim as usize)?)?;
    let p = per_device(e, at, i, &t)?;
    let zero = e.scalar(at, DType::S32, 0.0)?;
    let mut ops = vec![x];
    ops.extend((0..out.rank()).map(|k| if k as i64 == dim { p } else { zero }));
    e.add(at, Opcode::DynamicSlice, Attrs::DynamicSlice(out.dims), &ops, &[])
}

fn split_scatter(e: &mut Edit, i: InstrId, by: i64) -> Option<()> {
    let ops = e.operands(i);
    let [x] = ops[..] else { return None };
    let mut a = attrs(&e.m, i)?.clone();
    let dim = a.dimension.take()?;
    let calls = e.m.instr(i).calls.to_vec();
    let shape = e.m.shape(x).clone();
    let sum = e.put(i, Opcode::AllReduce, Attrs::Collective(Box::new(a)), &[x], &calls, shape)?;
    let y = own_block(e, i, i, sum, dim, by)?;
    e.text = format!("became all-reduce and the block of position own + {by}");
    e.bypass(i, y);
    Some(())
}

fn split_reduce(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let i = s.instr;
    let ops = e.operands(i);
    let [x] = ops[..] else { return None };
    let mut a = attrs(&e.m, i)?.clone();
    let groups = a.groups.expand(e.devices)?;
    let n = groups.first()?.len() as i64;
    let dim = i64::from(s.way);
    let len = dim_of(e, x, dim)?;
    if n < 2 || len % n != 0 || groups.iter().any(|g| g.len() as i64 != n) {
        return None;
    }
    let calls = e.m.instr(i).calls.to_vec();
    let mut part = e.m.array(x)?.clone();
    part.dims[dim as usize] = len / n;
    part.layout = None;
    a.dimension = Some(dim);
    let whole = e.m.shape(i).clone();
    let attrs = Attrs::Collective(Box::new(a));
    let y = e.put(i, Opcode::ReduceScatter, attrs.clone(), &[x], &calls, Shape::Array(part))?;
    let z = e.put(i, Opcode::AllGather, attrs, &[y], &[], whole)?;
    e.text = format!("became reduce-scatter and all-gather along {dim}");
    e.bypass(i, z);
    Some(())
}

fn gather_by_sum(e: &mut Edit, i: InstrId, by: i64) -> Option<()> {
    let ops = e.operands(i);
    let [x] = ops[..] else { return None };
    let mut a = attrs(&e.m, i)?.clone();
    let dim = a.dimension.take()?;
    let (t, rank) = (e.m.dtype(i)?, e.m.array(i)?.rank());
    if !t.is_float() && !t.is_int() {
        return None;
    }
    let table = positions(e, i, by, dim_of(e, x, dim)?)?;
    let sum = e.reducer(Opcode::Add, t)?;
    let p = per_device(e, i, i, &table)?;
    let zero = e.scalar(i, DType::S32, 0.0)?;
    let empty = e.filled(i, i, 0.0)?;
    let mut ops = vec![empty, x];
    ops.extend((0..rank).map(|k| if k as i64 == dim { p } else { zero }));
    let own = e.add(i, Opcode::DynamicUpdateSlice, Attrs::None, &ops, &[])?;
    let shape = e.m.shape(i).clone();
    let y = e.put(i, Opcode::AllReduce, Attrs::Collective(Box::new(a)), &[own], &[sum], shape)?;
    e.text = format!("became a sum of blocks put at position own + {by}");
    e.bypass(i, y);
    Some(())
}

fn dimension(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let mut a = attrs(&e.m, s.instr)?.clone();
    let old = a.dimension?;
    let new = if i64::from(s.way) < old { i64::from(s.way) } else { i64::from(s.way) + 1 };
    a.dimension = Some(new);
    e.text = format!("along {new}, was {old}");
    e.reattr(s.instr, Attrs::Collective(Box::new(a)))
}

fn swap_with_op(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let i = s.instr;
    let u = *e.m.instr(i).operands.first()?;
    let x = *e.m.instr(u).operands.first()?;
    let (c, f) = (e.m.instr(i).clone(), e.m.instr(u).clone());
    let shape = e.m.shape(i).clone();
    let y = e.put(i, c.opcode, c.attrs, &[x], &c.calls, shape.clone())?;
    let z = e.put(i, f.opcode, f.attrs, &[y], &f.calls, shape)?;
    e.text = format!("before {} and not after it", f.opcode);
    e.bypass(i, z);
    Some(())
}

fn low_precision(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let i = s.instr;
    let ops = e.operands(i);
    let [x] = ops[..] else { return None };
    let t = if r.coin() { DType::Bf16 } else { DType::F16 };
    let old = e.m.dtype(i)?;
    let y = e.convert(i, x, t)?;
    let z = e.convert(i, y, old)?;
    e.text = format!("operand rounded to {t}");
    e.instr_mut(i).operands[0] = z;
    Some(())
}

fn skip_on_one(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let i = s.instr;
    let x = *e.m.instr(i).operands.first()?;
    let at_device = r.below(e.devices.max(1) as usize);
    let dims = e.m.array(i)?.dims.clone();
    let shape = e.m.shape(i).clone();
    e.text = format!("not on device {at_device}");
    e.behind(i, |e, at| {
        let me = device(e, at, i)?;
        let k = e.scalar(at, DType::U32, at_device as f64)?;
        let a = Attrs::Compare { direction: Comparison::Eq, kind: Some(CompareKind::Unsigned) };
        let hit = e.add(at, Opcode::Compare, a, &[me, k], &[])?;
        let all = Shape::array(DType::Pred, dims.iter().copied());
        let none = Attrs::Dims(Dims::new());
        let p = e.put(at, Opcode::Broadcast, none, &[hit], &[], all)?;
        e.put(at, Opcode::Select, Attrs::None, &[p, x, i], &[], shape)
    })?;
    Some(())
}
