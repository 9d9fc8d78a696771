//! Collectives. Group sizes come from the text, or else from the module
//! header; where both leave them open, the recorded result supplies them.

use super::*;
use crate::GroupMode;
use crate::attrs::CollectiveAttrs;
use crate::devices;

fn attrs<'a>(c: &Ctx<'a>) -> Res<(&'a CollectiveAttrs, GroupMode)> {
    let Attrs::Collective(a) = c.attrs else { return c.bad_attrs() };
    Ok((a, devices::group_mode(c.op, a)?))
}

fn size(c: &Ctx<'_>, a: &CollectiveAttrs, mode: GroupMode) -> Option<i64> {
    devices::group_size(c.m, mode, &a.groups)
}

/// The one dimension of a collective, within operand `i`.
fn dimension(a: &CollectiveAttrs, s: &ArrayShape, i: usize) -> Res<usize> {
    match a.dimension {
        Some(d) if in_rank(d, s.rank()) => Ok(d as usize),
        Some(d) => {
            err!(format!("a dimension below {}", s.rank()), "dimension {d} of {s} (operand {i})")
        }
        None => err!("dimensions={d}", "no dimension"),
    }
}

/// Recorded array result `i` of `n`.
fn recorded(s: Option<&Shape>, i: usize, n: usize) -> Option<&ArrayShape> {
    match s? {
        Shape::Array(a) if n == 1 => Some(a),
        Shape::Tuple(t) if n > 1 => t.get(i)?.as_array(),
        _ => None,
    }
}

/// Known group size, else the ratio of recorded sizes in dimension `d`.
fn factor(known: Option<i64>, big: Option<i64>, small: Option<i64>) -> Res<i64> {
    if let Some(n) = known {
        need!(n >= 1, "groups of at least one device", "groups of {n}");
        return Ok(n);
    }
    match (big, small) {
        (Some(b), Some(s)) if s > 0 && b >= 0 && b % s == 0 && b / s > 0 => Ok(b / s),
        // Empty arrays tell nothing, and neither do unbounded ones.
        (Some(b), Some(s)) if (b == 0 && s == 0) || b < 0 || s < 0 => Ok(1),
        (Some(b), Some(s)) => err!("sizes in a whole ratio", "sizes {b} and {s}"),
        _ => err!("a group size or a result shape", "neither"),
    }
}

fn group<'a>(mut v: Vec<Out<'a>>) -> Out<'a> {
    if v.len() == 1
        && let Some(one) = v.pop()
    {
        return one;
    }
    Out::Tuple(v)
}

pub(super) fn all_gather<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (a, mode) = attrs(c)?;
    let start = c.op == Opcode::AllGatherStart;
    let result = match (start, c.declared) {
        (true, Some(Shape::Tuple(t))) => t.get(1),
        (true, _) => None,
        (false, d) => d,
    };
    let known = size(c, a, mode);
    let mut out = Vec::with_capacity(c.len());
    let mut n = known;
    for i in 0..c.len() {
        let s = c.array(i)?;
        let d = dimension(a, s, i)?;
        let big = recorded(result, i, c.len()).and_then(|r| r.dims.get(d)).copied();
        let k = factor(n, big, Some(s.dims[d]))?;
        n = n.or(Some(k));
        let mut r = DimsOut::default();
        for j in 0..s.rank() {
            if j == d && s.dims[j] != Shape::UNBOUNDED {
                let Some(size) = s.dims[j].checked_mul(k) else {
                    return err!("a size below 2^63", "{} times {k}", s.dims[j]);
                };
                r.push(size, s.is_dynamic(j));
            } else {
                r.copy(s, j);
            }
        }
        out.push(Out::Array(r.array(s.dtype)));
    }
    let out = group(out);
    if !start {
        return Ok(out);
    }
    let input = if c.len() == 1 { Out::Ref(c.shape(0)?) } else { Out::Of(c.operands) };
    Ok(Out::Tuple(vec![input, out]))
}

/// The reducer takes and returns scalars of the operands' types.
fn reducer(c: &Ctx<'_>) -> Res<()> {
    let f = c.call(0)?;
    for i in 0..c.len() {
        let t = c.array(i)?.dtype;
        reduction::reducer(&f, 1, |_| Ok((t, t)))?;
    }
    Ok(())
}

pub(super) fn all_reduce<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    attrs(c)?;
    reducer(c)?;
    if c.len() == 1 { Ok(Out::Ref(c.shape(0)?)) } else { Ok(Out::Of(c.operands)) }
}

pub(super) fn reduce_scatter<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (a, mode) = attrs(c)?;
    reducer(c)?;
    let mut n = size(c, a, mode);
    let mut out = Vec::with_capacity(c.len());
    for i in 0..c.len() {
        let s = c.array(i)?;
        let d = dimension(a, s, i)?;
        let small = recorded(c.declared, i, c.len()).and_then(|r| r.dims.get(d)).copied();
        let k = factor(n, Some(s.dims[d]), small)?;
        n = n.or(Some(k));
        let whole = s.dims[d];
        need!(
            whole == Shape::UNBOUNDED || whole % k == 0,
            format!("a size divisible by {k}"),
            "dimension {d} of {s} (operand {i})"
        );
        let mut r = DimsOut::default();
        for j in 0..s.rank() {
            if j == d && whole != Shape::UNBOUNDED {
                r.push(whole / k, s.is_dynamic(j));
            } else {
                r.copy(s, j);
            }
        }
        out.push(Out::Array(r.array(s.dtype)));
    }
    Ok(group(out))
}

/// With a dimension: splits and concatenates in place. Without: operand `i`
/// goes to member `i`, results are a tuple.
pub(super) fn all_to_all<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (a, mode) = attrs(c)?;
    let n = size(c, a, mode);
    let first = c.array(0)?;
    if a.dimension.is_some() {
        need!(c.len() == 1, "1 operand, as a dimension is given", "{} operands", c.len());
        let d = dimension(a, first, 0)?;
        let size = first.dims[d];
        if let Some(n) = n {
            need!(
                n >= 1 && (size == Shape::UNBOUNDED || size % n == 0),
                format!("a size divisible by {n}"),
                "dimension {d} of {first}"
            );
        }
        return Ok(Out::Ref(c.shape(0)?));
    }
    if let Some(n) = n {
        need!(
            c.len() as i64 == n,
            format!("{n} operands, one per member of a group"),
            "{} operands",
            c.len()
        );
    }
    for i in 1..c.len() {
        let s = c.array(i)?;
        need!(
            compatible_arrays(s, first, false),
            "operands of one shape",
            "operands {first} and {s}"
        );
    }
    Ok(Out::Of(c.operands))
}

pub(super) fn ragged_all_to_all<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    attrs(c)?;
    let (input, output, offsets) = (c.array(0)?, c.array(1)?, c.array(2)?);
    need!(
        input.dtype == output.dtype && input.rank() == output.rank() && input.rank() >= 1,
        "input and output of one type and rank",
        "operands {input} and {output}"
    );
    for i in 2..6 {
        let s = c.array(i)?;
        need!(
            s.dtype.is_int() && matches!(s.rank(), 1 | 2) && same_dims(&s.dims, &offsets.dims),
            "integer offsets and sizes of equal dimensions",
            "operand {i} is {s}"
        );
    }
    Ok(Out::Ref(c.shape(1)?))
}

pub(super) fn broadcast<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    attrs(c)?;
    // A trailing s32 vector may name the roots at run time.
    let n = match c.declared {
        Some(Shape::Tuple(t)) => t.len(),
        _ => 1,
    };
    if c.len() != n {
        let roots = c.array(c.len() - 1)?;
        need!(
            c.len() == n + 1 && roots.dtype == DType::S32 && roots.dims[..] == [n as i64],
            format!("{n} operands, or one more of shape s32[{n}]"),
            "{} operands, the last {roots}",
            c.len()
        );
    }
    if n == 1 && c.declared.is_none_or(|d| d.as_tuple().is_none()) {
        c.array(0)?;
        return Ok(Out::Ref(c.shape(0)?));
    }
    Ok(Out::Of(&c.operands[..n]))
}

/// How often a source or target may occur: once, or once per slice of the
/// in-place form `(input, output, input offsets, output offsets)`.
pub(crate) fn permute_slices(m: &Module, operands: &[InstrId]) -> usize {
    let [input, _, offsets, _] = operands else { return 1 };
    let (Some(input), Some(Shape::Tuple(offsets))) = (shape_of(m, *input), shape_of(m, *offsets))
    else {
        return 1;
    };
    match (input, offsets.first()) {
        (Shape::Tuple(_), Some(Shape::Tuple(t))) => t.len(),
        _ => offsets.len(),
    }
    .max(1)
}

pub(super) fn permute<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    attrs(c)?;
    let in_place =
        c.len() == 4 && matches!((c.shape(2)?, c.shape(3)?), (Shape::Tuple(_), Shape::Tuple(_)));
    if !in_place {
        for i in 0..c.len() {
            c.array(i)?;
        }
    }
    let all = || -> Res<Out<'a>> {
        Ok(if c.len() == 1 { Out::Ref(c.shape(0)?) } else { Out::Of(c.operands) })
    };
    if c.op == Opcode::CollectivePermute {
        return if in_place { Ok(Out::Ref(c.shape(1)?)) } else { all() };
    }
    let mut parts = if in_place {
        vec![Out::Ref(c.shape(0)?), Out::Ref(c.shape(1)?)]
    } else {
        vec![all()?, all()?]
    };
    // Context buffers are free.
    if let Some(Shape::Tuple(t)) = c.declared {
        parts.extend(t.iter().skip(2).map(Out::Ref));
    }
    Ok(Out::Tuple(parts))
}

/// `(input, output, ..)` of a start.
pub(super) fn done<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    match c.tuple(0)? {
        [_, out, ..] => Ok(Out::Ref(out)),
        t => err!("(input, output, ..)", "operand {}", Shape::Tuple(t.to_vec())),
    }
}
