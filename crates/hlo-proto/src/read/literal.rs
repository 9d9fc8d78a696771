//! Values of constants.

use super::shape;
use crate::error::{Part, bad};
use crate::xla;
use scalify_ir::dtype::DTypeClass;
use scalify_ir::{ArrayShape, DType, Literal, LiteralData, Shape};
use std::borrow::Cow;

const LITERAL: &str = "literal";

/// Translates a literal.
pub(crate) fn literal(p: &xla::LiteralProto) -> Part<Literal> {
    let Some(s) = &p.shape else { return bad(LITERAL, "no shape") };
    let shape = shape::shape(s).map_err(|e| e.of(LITERAL))?;
    let data = match &shape {
        Shape::Array(a) => LiteralData::Dense(dense(p, a)?.into()),
        Shape::Tuple(parts) => {
            if parts.len() != p.tuple_literals.len() {
                let n = p.tuple_literals.len();
                return bad(LITERAL, format!("{n} elements for the tuple {shape}"));
            }
            let inner: Vec<Literal> = p.tuple_literals.iter().map(literal).collect::<Part<_>>()?;
            if let Some((want, got)) = parts.iter().zip(&inner).find(|(a, b)| !a.same(&b.shape)) {
                return bad(LITERAL, format!("element {} of a tuple with {want}", got.shape));
            }
            LiteralData::Tuple(inner)
        }
        other => return bad(LITERAL, format!("a constant of shape {other}")),
    };
    Ok(Literal { shape, data })
}

/// Row-major bytes of an array literal.
fn dense(p: &xla::LiteralProto, a: &ArrayShape) -> Part<Vec<u8>> {
    let width = a.dtype.literal_bytes();
    let bytes = stored(p, a.dtype);
    let want = if a.dims.contains(&0) { Some(0) } else { a.elements() };
    let want = want.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(width));
    if want != Some(bytes.len()) {
        let n = bytes.len() / width;
        return bad(LITERAL, format!("{n} elements are given for {a}"));
    }
    let mut bytes = match &a.layout {
        Some(l) if !is_row_major(&l.minor_to_major) => {
            row_major(&bytes, &a.dims, &l.minor_to_major, width)
        }
        _ => bytes.into_owned(),
    };
    narrow(&mut bytes, a.dtype);
    Ok(bytes)
}

/// Little-endian elements in the order of the literal's layout.
fn stored(p: &xla::LiteralProto, t: DType) -> Cow<'_, [u8]> {
    let le = |it: &mut dyn Iterator<Item = [u8; 4]>| Cow::Owned(it.flatten().collect());
    let le8 = |it: &mut dyn Iterator<Item = [u8; 8]>| Cow::Owned(it.flatten().collect());
    match t {
        DType::Pred => Cow::Owned(p.preds.iter().map(|&b| u8::from(b)).collect()),
        DType::S32 => le(&mut p.s32s.iter().map(|v| v.to_le_bytes())),
        DType::U32 => le(&mut p.u32s.iter().map(|v| v.to_le_bytes())),
        DType::F32 => le(&mut p.f32s.iter().map(|v| v.to_le_bytes())),
        DType::C64 => le(&mut p.c64s.iter().map(|v| v.to_le_bytes())),
        DType::S64 => le8(&mut p.s64s.iter().map(|v| v.to_le_bytes())),
        DType::U64 => le8(&mut p.u64s.iter().map(|v| v.to_le_bytes())),
        DType::F64 => le8(&mut p.f64s.iter().map(|v| v.to_le_bytes())),
        DType::C128 => le8(&mut p.c128s.iter().map(|v| v.to_le_bytes())),
        DType::S1 => Cow::Borrowed(&p.s1s),
        DType::S2 => Cow::Borrowed(&p.s2s),
        DType::S4 => Cow::Borrowed(&p.s4s),
        DType::S8 => Cow::Borrowed(&p.s8s),
        DType::S16 => Cow::Borrowed(&p.s16s),
        DType::U1 => Cow::Borrowed(&p.u1s),
        DType::U2 => Cow::Borrowed(&p.u2s),
        DType::U4 => Cow::Borrowed(&p.u4s),
        DType::U8 => Cow::Borrowed(&p.u8s),
        DType::U16 => Cow::Borrowed(&p.u16s),
        DType::F16 => Cow::Borrowed(&p.f16s),
        DType::Bf16 => Cow::Borrowed(&p.bf16s),
        DType::F8E5M2 => Cow::Borrowed(&p.f8e5m2s),
        DType::F8E4M3 => Cow::Borrowed(&p.f8e4m3s),
        DType::F8E4M3Fn => Cow::Borrowed(&p.f8e4m3fns),
        DType::F8E4M3B11Fnuz => Cow::Borrowed(&p.f8e4m3b11fnuzs),
        DType::F8E3M4 => Cow::Borrowed(&p.f8e3m4s),
        DType::F8E5M2Fnuz => Cow::Borrowed(&p.f8e5m2fnuzs),
        DType::F8E4M3Fnuz => Cow::Borrowed(&p.f8e4m3fnuzs),
        DType::F8E8M0Fnu => Cow::Borrowed(&p.f8e8m0fnus),
        DType::F4E2M1Fn => Cow::Borrowed(&p.f4e2m1fns),
        DType::F6E2M3Fn => Cow::Borrowed(&p.f6e2m3fns),
        DType::F6E3M2Fn => Cow::Borrowed(&p.f6e3m2fns),
    }
}

/// Extends elements of fewer than eight bits as the IR wants them.
fn narrow(bytes: &mut [u8], t: DType) {
    let bits = t.bits();
    if bits >= 8 {
        return;
    }
    let unused = 8 - bits;
    let signed = t.class() == DTypeClass::Signed;
    for b in bytes {
        let up = *b << unused;
        *b = if signed { (up as i8 >> unused) as u8 } else { up >> unused };
    }
}

fn is_row_major(minor_to_major: &[i64]) -> bool {
    minor_to_major.iter().rev().enumerate().all(|(i, &d)| d == i as i64)
}

/// Reorders elements stored with `minor_to_major` to row-major order. The
/// sizes multiply up to the number of elements.
fn row_major(stored: &[u8], dims: &[i64], minor_to_major: &[i64], width: usize) -> Vec<u8> {
    let rank = dims.len();
    let mut strides = vec![0usize; rank];
    let mut step = 1usize;
    for &d in minor_to_major {
        strides[d as usize] = step;
        step = step.saturating_mul(dims[d as usize] as usize);
    }
    let mut out = Vec::with_capacity(stored.len());
    let mut index = vec![0i64; rank];
    let mut at = 0usize;
    while out.len() < stored.len() {
        out.extend_from_slice(&stored[at * width..(at + 1) * width]);
        for d in (0..rank).rev() {
            index[d] += 1;
            at += strides[d];
            if index[d] < dims[d] {
                break;
            }
            at -= strides[d] * dims[d] as usize;
            index[d] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_major_as_numpy() {
        // np.arange(6).reshape(2, 3): order F holds 0 3 1 4 2 5.
        assert_eq!(row_major(&[0, 3, 1, 4, 2, 5], &[2, 3], &[0, 1], 1), [0, 1, 2, 3, 4, 5]);
        // np.arange(24).reshape(2,3,4).transpose(1,2,0).ravel() in memory,
        // read back through its strides.
        let v: Vec<u8> = (0..12).flat_map(|i| [i, i + 12]).collect();
        let got = row_major(&v, &[2, 3, 4], &[0, 2, 1], 1);
        assert_eq!(got, (0..24).collect::<Vec<u8>>());
    }

    #[test]
    fn narrow_types() {
        // jaxlib stores s4 {1,-2,7} as 01 0e 07.
        let mut s = [1, 14, 7];
        narrow(&mut s, DType::S4);
        assert_eq!(s, [1, 254, 7]);
        let mut u = [1, 0xff, 15];
        narrow(&mut u, DType::U4);
        assert_eq!(u, [1, 15, 15]);
    }
}
