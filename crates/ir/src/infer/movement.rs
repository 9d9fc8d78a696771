//! Opcodes that move or make elements without arithmetic.

use super::*;

pub(super) fn broadcast<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dims(dims) = c.attrs else { return c.bad_attrs() };
    let (a, out) = (c.array(0)?, c.declared_array()?);
    need!(
        a.dtype == out.dtype,
        format!("a result of type {}", a.dtype),
        "operand {a}, result {out}"
    );
    need!(
        dims.len() == a.rank(),
        format!("{} dimension numbers", a.rank()),
        "dimensions={dims:?} of operand {a}"
    );
    need!(
        distinct(dims, out.rank()),
        format!("distinct dimension numbers below {}", out.rank()),
        "dimensions={dims:?}"
    );
    for (i, &d) in dims.iter().enumerate() {
        need!(
            same_size(a.dims[i], out.dims[d as usize]),
            format!("size {} in result dimension {d}", a.dims[i]),
            "operand {a}, result {out}"
        );
    }
    Ok(declared(c))
}

/// The recorded shape itself, checked by the rule that calls this.
fn declared<'a>(c: &Ctx<'a>) -> Out<'a> {
    c.declared.map_or(Out::Free, Out::Ref)
}

pub(super) fn concatenate<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dims(dims) = c.attrs else { return c.bad_attrs() };
    let first = c.array(0)?;
    let dim = match dims[..] {
        [d] if in_rank(d, first.rank()) => d as usize,
        _ => {
            return err!(
                format!("one dimension below {}", first.rank()),
                "dimensions={dims:?} of {first}"
            );
        }
    };
    let (mut total, mut dynamic, mut dtype) = (0i64, false, first.dtype);
    // The most specific size of the other dimensions.
    let mut sizes = first.dims.clone();
    let mut flags = first.dynamic;
    for i in 0..c.len() {
        let a = c.array(i)?;
        need!(
            a.rank() == first.rank() && same_type(a.dtype, first.dtype, true),
            "operands of one rank and element type",
            "operands {first} and {a}"
        );
        for (k, size) in sizes.iter_mut().enumerate() {
            if k == dim {
                continue;
            }
            need!(
                same_size(a.dims[k], *size),
                "equal sizes outside the concatenated dimension",
                "operands {first} and {a}"
            );
            if *size == Shape::UNBOUNDED {
                *size = a.dims[k];
                flags = flags & !bit(k) | a.dynamic & bit(k);
            } else if a.dims[k] != Shape::UNBOUNDED {
                flags |= a.dynamic & bit(k);
            }
        }
        dtype = wider(dtype, a.dtype);
        dynamic |= a.is_dynamic(dim);
        total = if total == Shape::UNBOUNDED || a.dims[dim] == Shape::UNBOUNDED {
            Shape::UNBOUNDED
        } else {
            let Some(t) = total.checked_add(a.dims[dim]) else {
                return err!("a size below 2^63", "sizes that overflow");
            };
            t
        };
    }
    let mut out = DimsOut::default();
    for (k, &size) in sizes.iter().enumerate() {
        if k == dim {
            out.push(total, dynamic);
        } else {
            out.push(size, flags & bit(k) != 0);
        }
    }
    Ok(Out::Array(out.array(dtype)))
}

fn bit(i: usize) -> u64 {
    1u64.checked_shl(i as u32).unwrap_or(0)
}

/// Elements that a shape can hold, `None` if unbounded.
fn elements(a: &ArrayShape) -> Option<i128> {
    a.dims
        .iter()
        .try_fold(1i128, |n, &d| if d == Shape::UNBOUNDED { None } else { n.checked_mul(d.into()) })
}

pub(super) fn reshape<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    c.no_calls()?;
    let (a, out) = (c.array(0)?, c.declared_array()?);
    need!(
        a.dtype == out.dtype,
        format!("a result of type {}", a.dtype),
        "operand {a}, result {out}"
    );
    if a.dims != out.dims
        && let (Some(n), Some(k)) = (elements(a), elements(out))
    {
        need!(n == k, format!("{n} elements"), "{k} elements: operand {a}, result {out}");
    }
    Ok(declared(c))
}

pub(super) fn dynamic_reshape<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let out = c.declared_array()?;
    need!(
        c.len() == out.rank() + 1,
        format!("{} size operands", out.rank()),
        "{} size operands",
        c.len() - 1
    );
    for i in 1..c.len() {
        let s = c.scalar(i)?;
        need!(s.dtype == DType::S32, "an s32 scalar", "operand {i} is {s}");
    }
    reshape(c)
}

pub(super) fn iota<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Iota(dim) = c.attrs else { return c.bad_attrs() };
    let out = c.declared_array()?;
    need!(
        in_rank(*dim, out.rank()),
        format!("iota_dimension below {}", out.rank()),
        "iota_dimension={dim} of {out}"
    );
    need!(
        out.dtype.class() != DTypeClass::Bool,
        "an integer, float or complex result",
        "result {out}"
    );
    Ok(declared(c))
}

pub(super) fn pad<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Pad(p) = c.attrs else { return c.bad_attrs() };
    let (a, v) = (c.array(0)?, c.scalar(1)?);
    need!(
        same_type(a.dtype, v.dtype, true),
        format!("a padding value of type {}", a.dtype),
        "operand {a}, padding value {v}"
    );
    need!(
        p.len() == a.rank(),
        format!("padding of {} dimensions", a.rank()),
        "padding of {}",
        p.len()
    );
    let mut out = DimsOut::default();
    for (i, p) in p.iter().enumerate() {
        need!(p.interior >= 0, "interior padding >= 0", "{} in dimension {i}", p.interior);
        let d = a.dims[i];
        if d == Shape::UNBOUNDED {
            out.push(d, true);
            continue;
        }
        let size = i128::from(d)
            + i128::from(p.low)
            + i128::from(p.high)
            + i128::from((d - 1).max(0)) * i128::from(p.interior);
        let Some(size) = i64::try_from(size).ok().filter(|s| *s >= 0) else {
            return err!("a result size from 0 to 2^63", "size {size} in dimension {i}");
        };
        out.push(size, a.is_dynamic(i));
    }
    Ok(Out::Array(out.array(wider(a.dtype, v.dtype))))
}

pub(super) fn reverse<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dims(dims) = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    need!(
        distinct(dims, a.rank()),
        format!("distinct dimension numbers below {}", a.rank()),
        "dimensions={dims:?}"
    );
    Ok(Out::Ref(c.shape(0)?))
}

pub(super) fn slice<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Slice(s) = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    let rank = a.rank();
    need!(
        s.start.len() == rank && s.limit.len() == rank && s.stride.len() == rank,
        format!("{rank} starts, limits and strides"),
        "{} starts, {} limits, {} strides",
        s.start.len(),
        s.limit.len(),
        s.stride.len()
    );
    let mut out = DimsOut::default();
    for i in 0..rank {
        let (lo, hi, step, d) = (s.start[i], s.limit[i], s.stride[i], a.dims[i]);
        need!(
            lo >= 0 && lo <= hi && (d == Shape::UNBOUNDED || hi <= d),
            format!("0 <= start <= limit <= {d}"),
            "[{lo}:{hi}] in dimension {i} of {a}"
        );
        need!(step >= 1, "a stride of at least 1", "stride {step} in dimension {i}");
        let size = (hi - lo) / step + i64::from((hi - lo) % step != 0);
        out.push(size, size != 1 && a.is_dynamic(i) && d != Shape::UNBOUNDED);
    }
    Ok(Out::Array(out.array(a.dtype)))
}

pub(super) fn transpose<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dims(dims) = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    need!(
        dims.len() == a.rank() && distinct(dims, a.rank()),
        format!("a permutation of {} dimensions", a.rank()),
        "dimensions={dims:?} of {a}"
    );
    let mut out = DimsOut::default();
    dims.iter().for_each(|&d| out.copy(a, d as usize));
    Ok(Out::Array(out.array(a.dtype)))
}

fn size_dim(c: &Ctx<'_>) -> Res<usize> {
    let Attrs::Dim(d) = *c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    need!(in_rank(d, a.rank()), format!("a dimension below {}", a.rank()), "dimension {d} of {a}");
    need!(
        a.dims[d as usize] <= i64::from(i32::MAX),
        "a size that fits s32",
        "dimension {d} of {a}"
    );
    Ok(d as usize)
}

pub(super) fn get_dimension_size<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    size_dim(c)?;
    Ok(Out::Array(ArrayShape::new(DType::S32, [])))
}

pub(super) fn set_dimension_size<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let dim = size_dim(c)?;
    let s = c.scalar(1)?;
    need!(s.dtype == DType::S32, "an s32 scalar", "operand 1 is {s}");
    let mut a = c.array(0)?.clone();
    a.dynamic |= bit(dim);
    Ok(Out::Array(a))
}
