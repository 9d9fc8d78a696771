//! safetensors: a JSON header with offsets, then elements.

use crate::TensorError;
use crate::source::FileAt;
use safetensors::{Dtype, tensor::Metadata};
use scalify_ir::DType;

/// Longest header that is read, as the format says.
const LIMIT: u64 = 100_000_000;

const TYPES: &[(Dtype, DType)] = &[
    (Dtype::BOOL, DType::Pred),
    (Dtype::F4, DType::F4E2M1Fn),
    (Dtype::F6_E2M3, DType::F6E2M3Fn),
    (Dtype::F6_E3M2, DType::F6E3M2Fn),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::S8),
    (Dtype::F8_E5M2, DType::F8E5M2),
    (Dtype::F8_E4M3, DType::F8E4M3Fn),
    (Dtype::F8_E8M0, DType::F8E8M0Fnu),
    (Dtype::F8_E4M3FNUZ, DType::F8E4M3Fnuz),
    (Dtype::F8_E5M2FNUZ, DType::F8E5M2Fnuz),
    (Dtype::I16, DType::S16),
    (Dtype::U16, DType::U16),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::Bf16),
    (Dtype::I32, DType::S32),
    (Dtype::U32, DType::U32),
    (Dtype::F32, DType::F32),
    (Dtype::C64, DType::C64),
    (Dtype::F64, DType::F64),
    (Dtype::I64, DType::S64),
    (Dtype::U64, DType::U64),
];

pub(crate) fn to_dtype(t: Dtype) -> Option<DType> {
    TYPES.iter().find(|r| r.0 == t).map(|r| r.1)
}

pub(crate) fn from_dtype(t: DType) -> Option<Dtype> {
    TYPES.iter().find(|r| r.1 == t).map(|r| r.0)
}

/// Does the file begin like one?
pub(crate) fn looks_like(head: &[u8], len: u64) -> bool {
    match (head.first_chunk::<8>(), head.get(8)) {
        (Some(n), Some(b'{' | b' ')) => u64::from_le_bytes(*n).saturating_add(8) <= len,
        _ => false,
    }
}

/// The checked header and where elements begin.
pub(crate) fn header(f: &FileAt) -> Result<(Metadata, u64), TensorError> {
    let bad = |at: u64, m: String, e: &str| TensorError::format(&f.name, at, m, e);
    let head = f.head(0, 8)?;
    let Some(n) = head.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)) else {
        return Err(bad(0, "the file is too short".into(), "the header's length in 8 bytes"));
    };
    if n > LIMIT || n + 8 > f.len {
        let m = format!("a header of {n} bytes in a file of {}", f.len);
        return Err(bad(0, m, "a header inside the file and of at most 100 MB"));
    }
    let text = f.head(8, n as usize)?;
    let meta: Metadata = serde_json::from_slice(&text).map_err(|e| {
        let line = text.split(|&c| c == b'\n').take(e.line().saturating_sub(1));
        let at = line.map(|l| l.len() + 1).sum::<usize>() + e.column().saturating_sub(1);
        bad(8 + at as u64, format!("malformed header: {e}"), "a safetensors header")
    })?;
    let want = 8 + n + meta.data_len() as u64;
    if want != f.len {
        let m = format!("the file has {} bytes", f.len);
        return Err(bad(f.len.min(want), m, &format!("{want} bytes as the header says")));
    }
    Ok((meta, 8 + n))
}
