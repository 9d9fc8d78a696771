//! Batch normalisation, FFT, factorisations, random numbers.

use super::*;
use crate::attrs::{FftKind, RngDistribution, TransposeKind};

/// Checks the operand, the feature dimension and the per-feature vectors;
/// returns the operand and the vector shape.
fn features<'a>(c: &Ctx<'a>, vectors: std::ops::Range<usize>) -> Res<(&'a ArrayShape, ArrayShape)> {
    let Attrs::BatchNorm { feature, .. } = *c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    need!(a.dtype.is_float(), "a float operand", "operand {a}");
    need!(
        in_rank(feature, a.rank()),
        format!("feature_index below {}", a.rank()),
        "feature_index={feature} of {a}"
    );
    let mut v = DimsOut::default();
    v.copy(a, feature as usize);
    let v = v.array(a.dtype);
    for i in vectors {
        let x = c.array(i)?;
        need!(compatible_arrays(x, &v, true), format!("{v}"), "operand {i} is {x}");
    }
    Ok((a, v))
}

pub(super) fn batch_norm_training<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (_, v) = features(c, 1..3)?;
    Ok(Out::Tuple(vec![Out::Ref(c.shape(0)?), Out::Array(v.clone()), Out::Array(v)]))
}

pub(super) fn batch_norm_inference<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    features(c, 1..5)?;
    Ok(Out::Ref(c.shape(0)?))
}

pub(super) fn batch_norm_grad<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (a, v) = features(c, 1..4)?;
    let g = c.array(4)?;
    need!(compatible_arrays(a, g, true), format!("a gradient of shape {a}"), "gradient {g}");
    Ok(Out::Tuple(vec![Out::Ref(c.shape(0)?), Out::Array(v.clone()), Out::Array(v)]))
}

pub(super) fn fft<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Fft { kind, length } = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    let n = length.len();
    need!((1..=3).contains(&n), "1 to 3 transform lengths", "fft_length={length:?}");
    need!(a.rank() >= n, format!("an operand of rank {n} or more"), "operand {a}");
    let tail = a.rank() - n;
    let complex = |a: &ArrayShape| -> Res<()> {
        need!(a.dtype.is_complex(), "a complex operand", "operand {a}");
        Ok(())
    };
    let minor = length[n - 1];
    let with_last = |dtype: DType, size: i64| {
        let mut out = DimsOut::default();
        (0..a.rank() - 1).for_each(|i| out.copy(a, i));
        let last = a.rank() - 1;
        out.push(size, a.is_dynamic(last) && a.dims[last] != Shape::UNBOUNDED);
        Out::Array(out.array(dtype))
    };
    match kind {
        FftKind::Fft | FftKind::Ifft => {
            complex(a)?;
            Ok(Out::Ref(c.shape(0)?))
        }
        FftKind::Rfft => {
            let to = match a.dtype {
                DType::F32 => DType::C64,
                DType::F64 => DType::C128,
                _ => return err!("an f32 or f64 operand", "operand {a}"),
            };
            need!(
                same_dims(&a.dims[tail..], length),
                format!("minor dimensions {length:?}"),
                "operand {a}"
            );
            Ok(if minor == 0 { Out::As(a, to) } else { with_last(to, minor / 2 + 1) })
        }
        FftKind::Irfft => {
            complex(a)?;
            need!(
                same_dims(&a.dims[tail..a.rank() - 1], &length[..n - 1]),
                format!("dimensions {:?} before the last", &length[..n - 1]),
                "operand {a}"
            );
            let last = a.dims[a.rank() - 1];
            need!(
                (last == 0 && minor == 0) || same_size(last, minor / 2 + 1),
                format!("a last dimension of size {}", minor / 2 + 1),
                "operand {a}"
            );
            Ok(with_last(a.dtype.complex_part().unwrap_or(a.dtype), minor))
        }
    }
}

/// A stack of square matrices of floats or complex numbers.
fn square(c: &Ctx<'_>) -> Res<()> {
    let a = c.array(0)?;
    let ok = match a.dims[..] {
        [.., x, y] => same_size(x, y),
        _ => false,
    };
    need!(
        ok && (a.dtype.is_float() || a.dtype.is_complex()),
        "square float or complex matrices",
        "operand {a}"
    );
    Ok(())
}

pub(super) fn cholesky<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Cholesky { .. } = c.attrs else { return c.bad_attrs() };
    square(c)?;
    Ok(Out::Ref(c.shape(0)?))
}

pub(super) fn triangular_solve<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::TriangularSolve { left_side, transpose_a, .. } = c.attrs else {
        return c.bad_attrs();
    };
    let (a, b) = (c.array(0)?, c.array(1)?);
    square(c)?;
    let rank = a.rank();
    let shared = if *left_side { 2 } else { 1 };
    need!(
        a.dtype == b.dtype
            && b.rank() == rank
            && a.dims[..rank - 2] == b.dims[..rank - 2]
            && same_size(a.dims[rank - 1], b.dims[rank - shared]),
        format!(
            "operands of one type and batch that share the size of 'a' with the {} of 'b'",
            if *left_side { "rows" } else { "columns" }
        ),
        "operands {a} and {b}"
    );
    let (TransposeKind::NoTranspose | TransposeKind::Transpose | TransposeKind::Adjoint) =
        transpose_a;
    Ok(Out::Ref(c.shape(1)?))
}

pub(super) fn rng<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Rng(kind) = c.attrs else { return c.bad_attrs() };
    let (a, b, out) = (c.scalar(0)?, c.scalar(1)?, c.declared_array()?);
    need!(
        a.dtype == b.dtype && same_type(a.dtype, out.dtype, true),
        "two scalars of the result's type",
        "operands {a} and {b}, result {out}"
    );
    let ok = match kind {
        RngDistribution::Normal => a.dtype.is_float(),
        RngDistribution::Uniform => !a.dtype.is_complex(),
    };
    need!(ok, "a type the distribution is defined on", "operands of type {}", a.dtype);
    Ok(c.declared.map_or(Out::Free, Out::Ref))
}

/// `(state, bits)`, or the bits alone.
pub(super) fn rng_bit_generator<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::RngBits(_) = c.attrs else { return c.bad_attrs() };
    let state = c.array(0)?;
    let bits = |s: &Shape| -> Res<()> {
        let ok = s.as_array().is_some_and(|a| a.dtype.is_int() || a.dtype.is_float());
        need!(ok, "an array of bits", "result {s}");
        Ok(())
    };
    match c.declared {
        None => err!("a result shape", "rng-bit-generator needs its result shape given"),
        Some(Shape::Tuple(t)) => {
            let [s, x] = &t[..] else {
                return err!("(state, bits)", "a tuple of {} elements", t.len());
            };
            need!(
                s.as_array().is_some_and(|s| compatible_arrays(s, state, false)),
                format!("a state of shape {state}"),
                "result state {s}"
            );
            bits(x)?;
            Ok(c.declared.map_or(Out::Free, Out::Ref))
        }
        Some(s) => {
            bits(s)?;
            Ok(Out::Ref(s))
        }
    }
}

pub(super) fn rng_get_and_update_state<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::RngDelta(_) = c.attrs else { return c.bad_attrs() };
    Ok(Out::Array(ArrayShape::new(DType::U64, [2])))
}
