//! Element types as the formats write them.

use scalify_ir::DType;

/// Element type of a stored tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// The file names the type.
    Known(DType),
    /// The file gives the width of an element in bytes only: numpy writes the
    /// types of `ml_dtypes` as `|V1` and `<V2`.
    Opaque(u32),
}

impl Stored {
    /// The type, if the file leaves no doubt: two opaque bytes are `bf16`, the
    /// only two-byte type of `ml_dtypes` that is a real number.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Stored::Known(t) => Some(t),
            Stored::Opaque(2) => Some(DType::Bf16),
            Stored::Opaque(_) => None,
        }
    }
}

/// `ml_dtypes` names of the types numpy has none for.
const ML_DTYPES: &[(DType, &str)] = &[
    (DType::Bf16, "bfloat16"),
    (DType::F8E5M2, "float8_e5m2"),
    (DType::F8E4M3, "float8_e4m3"),
    (DType::F8E4M3Fn, "float8_e4m3fn"),
    (DType::F8E4M3B11Fnuz, "float8_e4m3b11fnuz"),
    (DType::F8E3M4, "float8_e3m4"),
    (DType::F8E5M2Fnuz, "float8_e5m2fnuz"),
    (DType::F8E4M3Fnuz, "float8_e4m3fnuz"),
    (DType::F8E8M0Fnu, "float8_e8m0fnu"),
    (DType::F4E2M1Fn, "float4_e2m1fn"),
    (DType::F6E2M3Fn, "float6_e2m3fn"),
    (DType::F6E3M2Fn, "float6_e3m2fn"),
    (DType::S1, "int1"),
    (DType::S2, "int2"),
    (DType::S4, "int4"),
    (DType::U1, "uint1"),
    (DType::U2, "uint2"),
    (DType::U4, "uint4"),
];

/// `ml_dtypes`' name of a type that numpy itself does not have.
pub fn ml_dtypes_name(t: DType) -> Option<&'static str> {
    ML_DTYPES.iter().find(|r| r.0 == t).map(|r| r.1)
}

pub(crate) fn from_ml_dtypes(name: &str) -> Option<DType> {
    ML_DTYPES.iter().find(|r| r.1 == name).map(|r| r.0)
}

/// numpy's kind and size of a type, e.g. `f4`.
const NUMPY: &[(DType, &str)] = &[
    (DType::Pred, "b1"),
    (DType::S8, "i1"),
    (DType::S16, "i2"),
    (DType::S32, "i4"),
    (DType::S64, "i8"),
    (DType::U8, "u1"),
    (DType::U16, "u2"),
    (DType::U32, "u4"),
    (DType::U64, "u8"),
    (DType::F16, "f2"),
    (DType::F32, "f4"),
    (DType::F64, "f8"),
    (DType::C64, "c8"),
    (DType::C128, "c16"),
    // What `ml_dtypes` calls its e5m2; numpy writes it, but cannot read it.
    (DType::F8E5M2, "f1"),
];

/// Type and "big endian?" of a `descr` string.
pub(crate) fn from_descr(s: &str) -> Option<(Stored, bool)> {
    if let Some(t) = from_ml_dtypes(s) {
        return Some((Stored::Known(t), false));
    }
    let (big, rest) = match s.as_bytes().first()? {
        b'<' => (false, s.get(1..)?),
        b'>' => (true, s.get(1..)?),
        b'|' => (false, s.get(1..)?),
        b'=' => (cfg!(target_endian = "big"), s.get(1..)?),
        _ => (cfg!(target_endian = "big"), s),
    };
    let rest = if rest == "?" { "b1" } else { rest };
    match rest {
        "V1" => return Some((Stored::Opaque(1), false)),
        "V2" => return Some((Stored::Opaque(2), big)),
        _ => {}
    }
    let t = NUMPY.iter().find(|r| r.1 == rest)?.0;
    Some((Stored::Known(t), big && t.literal_bytes() > 1))
}

/// The `descr` string that numpy reads without `ml_dtypes`.
pub(crate) fn to_descr(t: DType) -> String {
    match NUMPY.iter().find(|r| r.0 == t) {
        Some((DType::F8E5M2, _)) | None => match t.literal_bytes() {
            1 => "|V1".into(),
            n => format!("<V{n}"),
        },
        Some((_, k)) if t.literal_bytes() == 1 => format!("|{k}"),
        Some((_, k)) => format!("<{k}"),
    }
}
