//! Order of dimensions and elements: transposes, reshapes, broadcasts,
//! contractions, concatenations, reductions.

use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::shape::Dims;
use scalify_ir::{Attrs, InstrId, Opcode};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "transpose-perm",
        about: "a transpose by another permutation (reshaped back if sizes differ)",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::Transpose),
        edit: permute,
    },
    Operator {
        name: "reshape-order",
        about: "a value is transposed before it is reshaped",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::Reshape),
        edit: reshape_order,
    },
    Operator {
        name: "reinterpret",
        about: "two dimensions are exchanged and the sizes restored by a reshape",
        equal: false,
        ways: |m, _, i| {
            use Opcode::*;
            let here = matches!(
                m.instr(i).opcode,
                AllGather | AllToAll | ReduceScatter | Dot | DynamicSlice | Concatenate
            );
            if here { m.array(i).map_or(0, |a| a.rank().saturating_sub(1) as u32) } else { 0 }
        },
        edit: reinterpret,
    },
    Operator {
        name: "broadcast-dims",
        about: "a broadcast puts the operand's dimensions elsewhere",
        equal: false,
        ways: |m, _, i| match &m.instr(i).attrs {
            Attrs::Dims(d) if m.instr(i).opcode == Opcode::Broadcast => u32::from(!d.is_empty()),
            _ => 0,
        },
        edit: broadcast,
    },
    Operator {
        name: "iota-dimension",
        about: "an iota counts along another dimension",
        equal: false,
        ways: |m, _, i| {
            let here = m.instr(i).opcode == Opcode::Iota;
            if here { m.array(i).map_or(0, |a| a.rank().saturating_sub(1) as u32) } else { 0 }
        },
        edit: |e, s, _| {
            let Attrs::Iota(old) = e.m.instr(s.instr).attrs else { return None };
            let way = i64::from(s.way);
            let new = if way < old { way } else { way + 1 };
            e.text = format!("along {new}, was {old}");
            e.reattr(s.instr, Attrs::Iota(new))
        },
    },
    Operator {
        name: "dot-contraction",
        about: "a dot contracts another dimension of an operand",
        equal: false,
        ways: |m, _, i| if m.instr(i).opcode == Opcode::Dot { 2 } else { 0 },
        edit: contraction,
    },
    Operator {
        name: "dot-batch",
        about: "a dot pairs batch dimensions in another order",
        equal: false,
        ways: |m, _, i| match &m.instr(i).attrs {
            Attrs::Dot(d) => u32::from(d.lhs_batch.len() > 1 || d.lhs_contracting.len() > 1),
            _ => 0,
        },
        edit: |e, s, r| {
            let Attrs::Dot(mut d) = e.m.instr(s.instr).attrs.clone() else { return None };
            let old = d.clone();
            r.shuffle(&mut d.rhs_batch);
            r.shuffle(&mut d.rhs_contracting);
            if *d == *old {
                return None;
            }
            e.text = "dimensions of the right operand paired in another order".into();
            e.reattr(s.instr, Attrs::Dot(d))
        },
    },
    Operator {
        name: "concat-order",
        about: "two parts of a concatenation change places",
        equal: false,
        ways: |m, _, i| {
            let i = m.instr(i);
            if i.opcode == Opcode::Concatenate {
                i.operands.len().saturating_sub(1) as u32
            } else {
                0
            }
        },
        edit: |e, s, _| {
            let (mut o, k) = (e.operands(s.instr), s.way as usize);
            if o[k] == o[k + 1] {
                return None;
            }
            o.swap(k, k + 1);
            let i = e.m.instr(s.instr).clone();
            e.text = format!("parts {k} and {} exchanged", k + 1);
            e.redo(s.instr, i.opcode, i.attrs, &o, &i.calls)
        },
    },
    Operator {
        name: "concat-dimension",
        about: "parts are joined along another dimension",
        equal: false,
        ways: |m, _, i| {
            let here = m.instr(i).opcode == Opcode::Concatenate;
            if here { m.array(i).map_or(0, |a| a.rank().saturating_sub(1) as u32) } else { 0 }
        },
        edit: |e, s, _| {
            let Attrs::Dims(d) = &e.m.instr(s.instr).attrs else { return None };
            let (old, way) = (*d.first()?, i64::from(s.way));
            let new = if way < old { way } else { way + 1 };
            e.text = format!("along {new}, was {old}");
            e.reattr(s.instr, Attrs::Dims([new].into_iter().collect()))
        },
    },
    Operator {
        name: "reduce-dims",
        about: "a reduction over another dimension",
        equal: false,
        ways: |m, _, i| match &m.instr(i).attrs {
            Attrs::Dims(d) if m.instr(i).opcode == Opcode::Reduce => d.len() as u32,
            _ => 0,
        },
        edit: reduce_dims,
    },
    Operator {
        name: "reverse-dims",
        about: "a reversal along another dimension",
        equal: false,
        ways: |m, _, i| u32::from(m.instr(i).opcode == Opcode::Reverse),
        edit: |e, s, r| {
            let rank = e.m.array(s.instr)?.rank();
            let new = Attrs::Dims([r.below(rank) as i64].into_iter().collect());
            if new == e.m.instr(s.instr).attrs {
                return None;
            }
            e.text = "along another dimension".into();
            e.reattr(s.instr, new)
        },
    },
    Operator {
        name: "sort",
        about: "a sort along another dimension or a top-k of the other end",
        equal: false,
        ways: |m, _, i| u32::from(matches!(m.instr(i).opcode, Opcode::Sort | Opcode::TopK)),
        edit: |e, s, r| {
            let a = match e.m.instr(s.instr).attrs.clone() {
                Attrs::TopK { k, largest } => Attrs::TopK { k, largest: !largest },
                Attrs::Sort { dim, stable } => {
                    let x = *e.m.instr(s.instr).operands.first()?;
                    let new = r.below(e.m.array(x)?.rank()) as i64;
                    if new == dim {
                        return None;
                    }
                    Attrs::Sort { dim: new, stable }
                }
                _ => return None,
            };
            e.text = format!("{a:?}");
            e.instr_mut(s.instr).attrs = a;
            Some(())
        },
    },
];

fn permute(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let Attrs::Dims(old) = e.m.instr(s.instr).attrs.clone() else { return None };
    let mut new = old.clone();
    if new.len() < 2 {
        return None;
    }
    let (a, b) = (r.below(new.len()), r.below(new.len()));
    new.swap(a, b);
    if new == old {
        return None;
    }
    e.text = format!("by {new:?}, was {old:?}");
    e.reattr(s.instr, Attrs::Dims(new))
}

fn exchange(e: &mut Edit, at: InstrId, x: InstrId, d: usize) -> Option<InstrId> {
    let rank = e.m.array(x)?.rank();
    let sizes = &e.m.array(x)?.dims;
    if *sizes.get(d)? < 2 || *sizes.get(d + 1)? < 2 {
        return None;
    }
    let mut p: Dims = (0..rank as i64).collect();
    p.swap(d, d + 1);
    e.add(at, Opcode::Transpose, Attrs::Dims(p), &[x], &[])
}

fn reshape_order(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let x = *e.m.instr(s.instr).operands.first()?;
    let d = r.below(e.m.array(x)?.rank().checked_sub(1)?);
    let y = exchange(e, s.instr, x, d)?;
    e.text = format!("dimensions {d} and {} exchanged before", d + 1);
    e.instr_mut(s.instr).operands[0] = y;
    Some(())
}

fn reinterpret(e: &mut Edit, s: Site, _: &mut Random) -> Option<()> {
    let i = s.instr;
    let d = s.way as usize;
    let shape = e.m.shape(i).clone();
    e.text = format!("dimensions {d} and {} exchanged and reshaped back", d + 1);
    e.behind(i, |e, at| {
        let y = exchange(e, at, i, d)?;
        e.put(at, Opcode::Reshape, Attrs::None, &[y], &[], shape)
    })?;
    Some(())
}

fn broadcast(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let Attrs::Dims(old) = e.m.instr(s.instr).attrs.clone() else { return None };
    let out = e.m.array(s.instr)?.clone();
    let x = *e.m.instr(s.instr).operands.first()?;
    let sizes = e.m.array(x)?.dims.clone();
    let k = r.below(old.len());
    let want = *sizes.get(k)?;
    // Another free dimension of the same size, or two dimensions exchanged.
    let mut choices: Vec<Dims> = (0..out.rank() as i64)
        .filter(|d| !old.contains(d) && out.dims[*d as usize] == want)
        .map(|d| {
            let mut v = old.clone();
            v[k] = d;
            v
        })
        .collect();
    for j in 0..old.len() {
        if j != k && sizes[j] == want {
            let mut v = old.clone();
            v.swap(j, k);
            choices.push(v);
        }
    }
    let new = r.pick(&choices)?.clone();
    e.text = format!("dimensions {new:?}, were {old:?}");
    e.instr_mut(s.instr).attrs = Attrs::Dims(new);
    Some(())
}

fn contraction(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let Attrs::Dot(mut d) = e.m.instr(s.instr).attrs.clone() else { return None };
    let ops = e.operands(s.instr);
    let rank = e.m.array(*ops.get(s.way as usize)?)?.rank() as i64;
    let (c, b) = if s.way == 0 {
        (&mut d.lhs_contracting, &d.lhs_batch)
    } else {
        (&mut d.rhs_contracting, &d.rhs_batch)
    };
    let k = r.below(c.len());
    let old = *c.get(k)?;
    let free: Vec<i64> = (0..rank).filter(|x| !c.contains(x) && !b.contains(x)).collect();
    let new = *r.pick(&free)?;
    c[k] = new;
    e.text = format!("operand {} contracted over {new}, was {old}", s.way);
    e.reattr(s.instr, Attrs::Dot(d))
}

fn reduce_dims(e: &mut Edit, s: Site, r: &mut Random) -> Option<()> {
    let Attrs::Dims(old) = e.m.instr(s.instr).attrs.clone() else { return None };
    let x = *e.m.instr(s.instr).operands.first()?;
    let rank = e.m.array(x)?.rank() as i64;
    let free: Vec<i64> = (0..rank).filter(|d| !old.contains(d)).collect();
    let mut new = old.clone();
    *new.get_mut(s.way as usize)? = *r.pick(&free)?;
    new.sort_unstable();
    e.text = format!("over {new:?}, was {old:?}");
    e.reattr(s.instr, Attrs::Dims(new))
}
