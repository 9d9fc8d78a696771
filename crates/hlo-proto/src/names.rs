//! Enum values of the proto and their counterparts in the IR.

use crate::xla;
use scalify_ir::{CompareKind, Comparison, DType, FftKind, RngAlgorithm, TransposeKind};
use xla::PrimitiveType as P;

const DTYPES: &[(DType, P)] = &[
    (DType::Pred, P::Pred),
    (DType::S1, P::S1),
    (DType::S2, P::S2),
    (DType::S4, P::S4),
    (DType::S8, P::S8),
    (DType::S16, P::S16),
    (DType::S32, P::S32),
    (DType::S64, P::S64),
    (DType::U1, P::U1),
    (DType::U2, P::U2),
    (DType::U4, P::U4),
    (DType::U8, P::U8),
    (DType::U16, P::U16),
    (DType::U32, P::U32),
    (DType::U64, P::U64),
    (DType::F16, P::F16),
    (DType::Bf16, P::Bf16),
    (DType::F32, P::F32),
    (DType::F64, P::F64),
    (DType::F8E5M2, P::F8e5m2),
    (DType::F8E4M3, P::F8e4m3),
    (DType::F8E4M3Fn, P::F8e4m3fn),
    (DType::F8E4M3B11Fnuz, P::F8e4m3b11fnuz),
    (DType::F8E3M4, P::F8e3m4),
    (DType::F8E5M2Fnuz, P::F8e5m2fnuz),
    (DType::F8E4M3Fnuz, P::F8e4m3fnuz),
    (DType::F8E8M0Fnu, P::F8e8m0fnu),
    (DType::F4E2M1Fn, P::F4e2m1fn),
    (DType::F6E2M3Fn, P::F6e2m3fn),
    (DType::F6E3M2Fn, P::F6e3m2fn),
    (DType::C64, P::C64),
    (DType::C128, P::C128),
];

/// Element type of an array.
pub(crate) fn dtype(p: P) -> Option<DType> {
    DTYPES.iter().find(|r| r.1 == p).map(|r| r.0)
}

/// Its value in the proto.
pub(crate) fn primitive(d: DType) -> P {
    DTYPES[d as usize].1
}

/// `PrimitiveType` as HLO text prints it, e.g. in `#(u32)`.
pub(crate) fn primitive_text(p: P) -> String {
    p.as_str_name().to_ascii_lowercase()
}

/// Type of a comparison that text leaves out.
pub(crate) fn default_compare(d: DType) -> CompareKind {
    if d.is_float() || d.is_complex() {
        CompareKind::Float
    } else if d.is_signed() {
        CompareKind::Signed
    } else {
        CompareKind::Unsigned
    }
}

/// `comparison_direction`.
pub(crate) fn comparison(s: &str) -> Option<Comparison> {
    Comparison::from_name(s)
}

/// `fft_type`.
pub(crate) fn fft(t: xla::FftType) -> FftKind {
    match t {
        xla::FftType::Fft => FftKind::Fft,
        xla::FftType::Ifft => FftKind::Ifft,
        xla::FftType::Rfft => FftKind::Rfft,
        xla::FftType::Irfft => FftKind::Irfft,
    }
}

/// The inverse of [`fft`].
pub(crate) fn fft_type(k: FftKind) -> xla::FftType {
    match k {
        FftKind::Fft => xla::FftType::Fft,
        FftKind::Ifft => xla::FftType::Ifft,
        FftKind::Rfft => xla::FftType::Rfft,
        FftKind::Irfft => xla::FftType::Irfft,
    }
}

/// `rng_algorithm`.
pub(crate) fn algorithm(a: xla::RandomAlgorithm) -> RngAlgorithm {
    match a {
        xla::RandomAlgorithm::RngDefault => RngAlgorithm::Default,
        xla::RandomAlgorithm::RngThreeFry => RngAlgorithm::ThreeFry,
        xla::RandomAlgorithm::RngPhilox => RngAlgorithm::Philox,
    }
}

/// The inverse of [`algorithm`].
pub(crate) fn random_algorithm(a: RngAlgorithm) -> xla::RandomAlgorithm {
    match a {
        RngAlgorithm::Default => xla::RandomAlgorithm::RngDefault,
        RngAlgorithm::ThreeFry => xla::RandomAlgorithm::RngThreeFry,
        RngAlgorithm::Philox => xla::RandomAlgorithm::RngPhilox,
    }
}

/// `transpose_a`.
pub(crate) fn transpose(t: xla::triangular_solve_options::Transpose) -> Option<TransposeKind> {
    use xla::triangular_solve_options::Transpose as T;
    Some(match t {
        T::Invalid => return None,
        T::NoTranspose => TransposeKind::NoTranspose,
        T::Transpose => TransposeKind::Transpose,
        T::Adjoint => TransposeKind::Adjoint,
    })
}

/// The inverse of [`transpose`].
pub(crate) fn transpose_a(t: TransposeKind) -> xla::triangular_solve_options::Transpose {
    use xla::triangular_solve_options::Transpose as T;
    match t {
        TransposeKind::NoTranspose => T::NoTranspose,
        TransposeKind::Transpose => T::Transpose,
        TransposeKind::Adjoint => T::Adjoint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_agree_by_name() {
        for d in DType::all() {
            assert_eq!(primitive_text(primitive(d)), d.name());
            assert_eq!(dtype(primitive(d)), Some(d));
        }
    }
}
