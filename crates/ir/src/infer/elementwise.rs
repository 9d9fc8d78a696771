//! Elementwise opcodes: no implicit broadcast, scalars only where stated.

use super::*;

const FLOAT: u8 = 1;
const COMPLEX: u8 = 2;
const SIGNED: u8 = 4;
const UNSIGNED: u8 = 8;
const BOOL: u8 = 16;
const INT: u8 = SIGNED | UNSIGNED;

fn bit(d: DType) -> u8 {
    match d.class() {
        DTypeClass::Float => FLOAT,
        DTypeClass::Complex => COMPLEX,
        DTypeClass::Signed => SIGNED,
        DTypeClass::Unsigned => UNSIGNED,
        DTypeClass::Bool => BOOL,
    }
}

#[cold]
fn describe(set: u8) -> String {
    let all = [
        (FLOAT, "float"),
        (COMPLEX, "complex"),
        (SIGNED, "signed integer"),
        (UNSIGNED, "unsigned integer"),
        (BOOL, "pred"),
    ];
    let names: Vec<_> = all.iter().filter(|(b, _)| set & b != 0).map(|(_, n)| *n).collect();
    format!("element type {}", names.join(" or "))
}

fn of_type(a: &ArrayShape, i: usize, set: u8) -> Res<()> {
    need!(bit(a.dtype) & set != 0, describe(set), "operand {i} is {a}");
    Ok(())
}

pub(super) fn unary<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    use Opcode::*;
    let s = c.shape(0)?;
    let a = c.array(0)?;
    let set = match c.op {
        Floor | Cbrt | Ceil | Erf | RoundNearestAfz | RoundNearestEven | IsFinite => FLOAT,
        Abs | Sign => FLOAT | SIGNED | COMPLEX,
        Clz | PopulationCount => INT,
        Negate => INT | FLOAT | COMPLEX,
        Not => INT | BOOL,
        _ => FLOAT | COMPLEX,
    };
    of_type(a, 0, set)?;
    Ok(match (c.op, a.dtype.complex_part()) {
        (IsFinite, _) => Out::As(a, DType::Pred),
        (Abs | Real | Imag, Some(part)) => Out::As(a, part),
        _ => Out::Ref(s),
    })
}

pub(super) fn binary<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    use Opcode::*;
    let (a, b) = (c.array(0)?, c.array(1)?);
    let set = match c.op {
        Add | Maximum | Minimum | Multiply | Compare => BOOL | INT | FLOAT | COMPLEX,
        And | Or | Xor => BOOL | INT,
        Atan2 => FLOAT | COMPLEX,
        Complex => FLOAT,
        _ => INT | FLOAT | COMPLEX,
    };
    of_type(a, 0, set)?;
    let same = std::ptr::eq(a, b);
    if !same {
        need!(
            same_type(a.dtype, b.dtype, true),
            "operands of one element type",
            "operands {a} and {b}"
        );
        need!(
            same_dims(&a.dims, &b.dims),
            "operands of the same dimensions (HLO has no implicit broadcast)",
            "operands {a} and {b}"
        );
    }
    let dtype = match c.op {
        Compare => {
            compare_kind(c, b.dtype)?;
            DType::Pred
        }
        Complex => match (a.dtype, b.dtype) {
            (DType::F32, DType::F32) => DType::C64,
            (DType::F64, DType::F64) => DType::C128,
            _ => return err!("two f32 or two f64 operands", "operands {a} and {b}"),
        },
        _ => wider(a.dtype, b.dtype),
    };
    if same || (a.dims == b.dims && a.dynamic == b.dynamic) {
        return Ok(if dtype == a.dtype { Out::Ref(c.shape(0)?) } else { Out::As(a, dtype) });
    }
    Ok(Out::Array(merge(&[a, b], dtype)))
}

/// Dimensions of compatible arrays: bounded wins over unbounded, a dynamic
/// bound over the same static size, a static size over `?`.
fn merge(arrays: &[&ArrayShape], dtype: DType) -> ArrayShape {
    let mut out = DimsOut::default();
    for i in 0..arrays[0].rank() {
        let known = || arrays.iter().filter(|a| a.dims[i] != Shape::UNBOUNDED);
        match known().next() {
            None => out.push(Shape::UNBOUNDED, true),
            Some(a) => out.push(a.dims[i], known().any(|a| a.is_dynamic(i))),
        }
    }
    out.array(dtype)
}

fn compare_kind(c: &Ctx<'_>, d: DType) -> Res<()> {
    use crate::attrs::CompareKind::*;
    let Attrs::Compare { kind, .. } = c.attrs else { return c.bad_attrs() };
    let Some(kind) = kind else { return Ok(()) };
    let (ok, want) = match d.class() {
        DTypeClass::Float => (matches!(kind, Float | TotalOrder), "FLOAT or TOTALORDER"),
        DTypeClass::Complex => (*kind == Float, "FLOAT"),
        DTypeClass::Signed => (*kind == Signed, "SIGNED"),
        DTypeClass::Unsigned | DTypeClass::Bool => (*kind == Unsigned, "UNSIGNED"),
    };
    need!(ok, format!("comparison type {want}"), "comparison type {} on {d}", kind.name());
    Ok(())
}

pub(super) fn clamp<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (lo, x, hi) = (c.array(0)?, c.array(1)?, c.array(2)?);
    for (i, b) in [(0, lo), (2, hi)] {
        need!(
            same_type(b.dtype, x.dtype, true),
            "bounds of the operand's element type",
            "bound (operand {i}) {b} for {x}"
        );
        need!(
            b.dims.is_empty() || same_dims(&b.dims, &x.dims),
            "scalar bounds or bounds of the operand's dimensions",
            "bound (operand {i}) {b} for {x}"
        );
    }
    Ok(Out::Ref(c.shape(1)?))
}

pub(super) fn select<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (p, t, f) = (c.array(0)?, c.array(1)?, c.array(2)?);
    need!(p.dtype == DType::Pred, "a pred array or scalar", "operand 0 is {p}");
    let same = std::ptr::eq(t, f);
    need!(
        same || compatible_arrays(t, f, true),
        "both values of one shape",
        "operands 1 and 2 are {t} and {f}"
    );
    need!(
        p.dims.is_empty() || same_dims(&p.dims, &t.dims),
        "a scalar predicate or one of the values' dimensions",
        "predicate {p} for {t}"
    );
    let dynamic = t.dynamic | f.dynamic | p.dynamic;
    let dtype = wider(t.dtype, f.dtype);
    if dynamic == 0 || (same && p.dynamic & !t.dynamic == 0) {
        return Ok(if dtype == t.dtype { Out::Ref(c.shape(1)?) } else { Out::As(t, dtype) });
    }
    Ok(Out::Array(if p.dims.is_empty() { merge(&[t, f], dtype) } else { merge(&[t, f, p], dtype) }))
}

pub(super) fn convert<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    Ok(Out::As(c.array(0)?, c.declared_array()?.dtype))
}

pub(super) fn bitcast_convert<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (a, to) = (c.array(0)?, c.declared_array()?.dtype);
    need!(
        a.dtype.is_complex() == to.is_complex(),
        "both types complex or neither",
        "bitcast-convert from {} to {to}",
        a.dtype
    );
    let (from_bits, to_bits) = (storage_bits(a.dtype), storage_bits(to));
    if from_bits == to_bits {
        return Ok(Out::As(a, to));
    }
    let (big, small) = (from_bits.max(to_bits), from_bits.min(to_bits));
    need!(
        big % small == 0,
        "bit widths that divide each other",
        "bitcast-convert from {} to {to}",
        a.dtype
    );
    let ratio = i64::from(big / small);
    let mut out = DimsOut::default();
    if from_bits > to_bits {
        (0..a.rank()).for_each(|i| out.copy(a, i));
        out.push(ratio, false);
    } else {
        need!(
            a.dims.last().is_some_and(|&d| same_size(d, ratio)),
            format!("a last dimension of size {ratio}"),
            "bitcast-convert from {a} to {to}"
        );
        (0..a.rank() - 1).for_each(|i| out.copy(a, i));
    }
    Ok(Out::Array(out.array(to)))
}

fn storage_bits(d: DType) -> u32 {
    match d.bits() {
        b @ (1 | 2 | 4) => b,
        b => b.next_multiple_of(8),
    }
}

pub(super) fn stochastic_convert<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (a, r) = (c.array(0)?, c.array(1)?);
    of_type(a, 0, FLOAT)?;
    of_type(r, 1, UNSIGNED)?;
    need!(
        a.dtype.bits() == r.dtype.bits() && same_dims(&a.dims, &r.dims),
        "random bits of the operand's width and dimensions",
        "operands {a} and {r}"
    );
    Ok(Out::As(a, c.declared_array()?.dtype))
}

pub(super) fn reduce_precision<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::ReducePrecision { exponent, .. } = c.attrs else { return c.bad_attrs() };
    of_type(c.array(0)?, 0, FLOAT)?;
    need!(*exponent >= 1, "at least 1 exponent bit", "{exponent} exponent bits");
    Ok(Out::Ref(c.shape(0)?))
}

pub(super) fn map<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let first = c.array(0)?;
    for i in 1..c.len() {
        let a = c.array(i)?;
        need!(
            same_dims(&a.dims, &first.dims),
            "operands of the same dimensions",
            "operands {first} and {a}"
        );
    }
    match c.attrs {
        Attrs::Dims(d) => need!(
            d.len() == first.rank() && d.iter().enumerate().all(|(i, &d)| d == i as i64),
            "dimensions={0,1,..} over all dimensions",
            "dimensions={d:?} of {first}"
        ),
        Attrs::None => {}
        _ => return c.bad_attrs(),
    }
    let f = c.call(0)?;
    need!(
        f.params() == c.len(),
        format!("{} parameters", c.len()),
        "computation {} has {}",
        f.name(),
        f.params()
    );
    for i in 0..c.len() {
        let (p, a) = (f.param(i)?, c.array(i)?);
        need!(
            p.as_array().is_some_and(|p| p.dims.is_empty() && same_type(p.dtype, a.dtype, true)),
            format!("{}[]", a.dtype),
            "parameter {i} of computation {} is {p}",
            f.name()
        );
    }
    let r = f.result()?;
    match r {
        Shape::Array(r) if r.dims.is_empty() => Ok(Out::As(first, r.dtype)),
        _ => err!("a scalar", "computation {} returns {r}", f.name()),
    }
}
