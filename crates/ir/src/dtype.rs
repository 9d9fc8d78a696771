//! Element types. One small table; conversions of values live in the
//! interpreter.

/// Element type of an array, named as HLO prints it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum DType {
    Pred,
    S1,
    S2,
    S4,
    S8,
    S16,
    S32,
    S64,
    U1,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    F8E5M2,
    F8E4M3,
    F8E4M3Fn,
    F8E4M3B11Fnuz,
    F8E3M4,
    F8E5M2Fnuz,
    F8E4M3Fnuz,
    F8E8M0Fnu,
    F4E2M1Fn,
    F6E2M3Fn,
    F6E3M2Fn,
    C64,
    C128,
}

/// What arithmetic an element type has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DTypeClass {
    /// `pred`.
    Bool,
    /// Two's complement signed integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Floating point of any width.
    Float,
    /// Complex of two floats.
    Complex,
}

use DType::*;

/// (type, name in HLO text, width in bits, class)
const TABLE: &[(DType, &str, u32, DTypeClass)] = &[
    (Pred, "pred", 8, DTypeClass::Bool),
    (S1, "s1", 1, DTypeClass::Signed),
    (S2, "s2", 2, DTypeClass::Signed),
    (S4, "s4", 4, DTypeClass::Signed),
    (S8, "s8", 8, DTypeClass::Signed),
    (S16, "s16", 16, DTypeClass::Signed),
    (S32, "s32", 32, DTypeClass::Signed),
    (S64, "s64", 64, DTypeClass::Signed),
    (U1, "u1", 1, DTypeClass::Unsigned),
    (U2, "u2", 2, DTypeClass::Unsigned),
    (U4, "u4", 4, DTypeClass::Unsigned),
    (U8, "u8", 8, DTypeClass::Unsigned),
    (U16, "u16", 16, DTypeClass::Unsigned),
    (U32, "u32", 32, DTypeClass::Unsigned),
    (U64, "u64", 64, DTypeClass::Unsigned),
    (F16, "f16", 16, DTypeClass::Float),
    (Bf16, "bf16", 16, DTypeClass::Float),
    (F32, "f32", 32, DTypeClass::Float),
    (F64, "f64", 64, DTypeClass::Float),
    (F8E5M2, "f8e5m2", 8, DTypeClass::Float),
    (F8E4M3, "f8e4m3", 8, DTypeClass::Float),
    (F8E4M3Fn, "f8e4m3fn", 8, DTypeClass::Float),
    (F8E4M3B11Fnuz, "f8e4m3b11fnuz", 8, DTypeClass::Float),
    (F8E3M4, "f8e3m4", 8, DTypeClass::Float),
    (F8E5M2Fnuz, "f8e5m2fnuz", 8, DTypeClass::Float),
    (F8E4M3Fnuz, "f8e4m3fnuz", 8, DTypeClass::Float),
    (F8E8M0Fnu, "f8e8m0fnu", 8, DTypeClass::Float),
    (F4E2M1Fn, "f4e2m1fn", 4, DTypeClass::Float),
    (F6E2M3Fn, "f6e2m3fn", 6, DTypeClass::Float),
    (F6E3M2Fn, "f6e3m2fn", 6, DTypeClass::Float),
    (C64, "c64", 64, DTypeClass::Complex),
    (C128, "c128", 128, DTypeClass::Complex),
];

impl DType {
    /// Every element type, in declaration order.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|r| r.0)
    }

    fn row(self) -> &'static (DType, &'static str, u32, DTypeClass) {
        &TABLE[self as usize]
    }

    /// Name in HLO text, e.g. `bf16`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The type with this HLO name.
    pub fn from_name(s: &str) -> Option<DType> {
        // The common ones first: this is on the reader's hot path.
        match s {
            "f32" => return Some(F32),
            "bf16" => return Some(Bf16),
            "s32" => return Some(S32),
            "pred" => return Some(Pred),
            "u32" => return Some(U32),
            _ => {}
        }
        TABLE.iter().find(|r| r.1 == s).map(|r| r.0)
    }

    /// Width of one element in bits (`pred` counts 8).
    pub fn bits(self) -> u32 {
        self.row().2
    }

    /// Bytes of one element in a [`crate::Literal`]: sub-byte types take one.
    pub fn literal_bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    /// What arithmetic the type has.
    pub fn class(self) -> DTypeClass {
        self.row().3
    }

    /// True for floats (not complex).
    pub fn is_float(self) -> bool {
        self.class() == DTypeClass::Float
    }

    /// True for signed and unsigned integers, not `pred`.
    pub fn is_int(self) -> bool {
        matches!(self.class(), DTypeClass::Signed | DTypeClass::Unsigned)
    }

    /// True for signed integers.
    pub fn is_signed(self) -> bool {
        self.class() == DTypeClass::Signed
    }

    /// True for complex types.
    pub fn is_complex(self) -> bool {
        self.class() == DTypeClass::Complex
    }

    /// Smallest and largest value of an integer type or `pred`; `None` else.
    pub fn int_range(self) -> Option<(i128, i128)> {
        let b = self.bits();
        match self.class() {
            DTypeClass::Bool => Some((0, 1)),
            DTypeClass::Signed => Some((-(1i128 << (b - 1)), (1i128 << (b - 1)) - 1)),
            DTypeClass::Unsigned => Some((0, (1i128 << b) - 1)),
            _ => None,
        }
    }

    /// Bits of the significand with the implicit one; `None` if not a float.
    pub fn mantissa_bits(self) -> Option<u32> {
        Some(match self {
            F16 => 11,
            Bf16 => 8,
            F32 => 24,
            F64 => 53,
            F8E5M2 | F8E5M2Fnuz | F6E3M2Fn => 3,
            F8E4M3 | F8E4M3Fn | F8E4M3B11Fnuz | F8E4M3Fnuz | F6E2M3Fn => 4,
            F8E3M4 => 5,
            F8E8M0Fnu => 1,
            F4E2M1Fn => 2,
            _ => return None,
        })
    }

    /// Float type of the parts of a complex type.
    pub fn complex_part(self) -> Option<DType> {
        match self {
            C64 => Some(F32),
            C128 => Some(F64),
            _ => None,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_rows_are_in_declaration_order_and_names_round_trip() {
        for (i, r) in TABLE.iter().enumerate() {
            assert_eq!(r.0 as usize, i);
            assert_eq!(DType::from_name(r.1), Some(r.0));
        }
        assert_eq!(DType::S8.int_range(), Some((-128, 127)));
        assert_eq!(DType::U4.int_range(), Some((0, 15)));
    }
}
