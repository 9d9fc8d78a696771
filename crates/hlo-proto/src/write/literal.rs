//! Values of constants.

use super::shape;
use crate::xla;
use scalify_ir::shape::Dims;
use scalify_ir::{DType, Literal, LiteralData, Shape};

/// Translates a literal, stored row-major; `None` if its value is not known.
pub(crate) fn literal(l: &Literal) -> Option<xla::LiteralProto> {
    let mut p = xla::LiteralProto { shape: Some(shape::shape(&l.shape)), ..Default::default() };
    match (&l.data, &l.shape) {
        (LiteralData::Elided, _) => return None,
        (LiteralData::Tuple(parts), _) => {
            p.tuple_literals = parts.iter().map(literal).collect::<Option<_>>()?;
        }
        (LiteralData::Dense(bytes), Shape::Array(a)) => {
            let mut a = a.clone();
            let order: Dims = (0..a.rank() as i64).rev().collect();
            let mut l = a.layout.take().map(|l| *l).unwrap_or_default();
            l.minor_to_major = order;
            a.layout = Some(Box::new(l));
            p.shape = Some(shape::shape(&Shape::Array(a.clone())));
            fill(&mut p, a.dtype, bytes);
        }
        (LiteralData::Dense(_), _) => return None,
    }
    Some(p)
}

fn words<const N: usize>(b: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    b.as_chunks::<N>().0.iter().copied()
}

fn fill(p: &mut xla::LiteralProto, t: DType, b: &[u8]) {
    let narrow = || -> Vec<u8> {
        let mask = if t.bits() < 8 { (1u8 << t.bits()) - 1 } else { 0xff };
        b.iter().map(|v| v & mask).collect()
    };
    match t {
        DType::Pred => p.preds = b.iter().map(|&v| v != 0).collect(),
        DType::S32 => p.s32s = words(b).map(i32::from_le_bytes).collect(),
        DType::U32 => p.u32s = words(b).map(u32::from_le_bytes).collect(),
        DType::F32 => p.f32s = words(b).map(f32::from_le_bytes).collect(),
        DType::C64 => p.c64s = words(b).map(f32::from_le_bytes).collect(),
        DType::S64 => p.s64s = words(b).map(i64::from_le_bytes).collect(),
        DType::U64 => p.u64s = words(b).map(u64::from_le_bytes).collect(),
        DType::F64 => p.f64s = words(b).map(f64::from_le_bytes).collect(),
        DType::C128 => p.c128s = words(b).map(f64::from_le_bytes).collect(),
        DType::S1 => p.s1s = narrow(),
        DType::S2 => p.s2s = narrow(),
        DType::S4 => p.s4s = narrow(),
        DType::S8 => p.s8s = narrow(),
        DType::S16 => p.s16s = narrow(),
        DType::U1 => p.u1s = narrow(),
        DType::U2 => p.u2s = narrow(),
        DType::U4 => p.u4s = narrow(),
        DType::U8 => p.u8s = narrow(),
        DType::U16 => p.u16s = narrow(),
        DType::F16 => p.f16s = narrow(),
        DType::Bf16 => p.bf16s = narrow(),
        DType::F8E5M2 => p.f8e5m2s = narrow(),
        DType::F8E4M3 => p.f8e4m3s = narrow(),
        DType::F8E4M3Fn => p.f8e4m3fns = narrow(),
        DType::F8E4M3B11Fnuz => p.f8e4m3b11fnuzs = narrow(),
        DType::F8E3M4 => p.f8e3m4s = narrow(),
        DType::F8E5M2Fnuz => p.f8e5m2fnuzs = narrow(),
        DType::F8E4M3Fnuz => p.f8e4m3fnuzs = narrow(),
        DType::F8E8M0Fnu => p.f8e8m0fnus = narrow(),
        DType::F4E2M1Fn => p.f4e2m1fns = narrow(),
        DType::F6E2M3Fn => p.f6e2m3fns = narrow(),
        DType::F6E3M2Fn => p.f6e3m2fns = narrow(),
    }
}
