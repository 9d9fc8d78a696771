//! Numbers in strict JSON: `"NaN"`, `"Infinity"` and `"-Infinity"` are strings.

use serde::{Deserialize, Deserializer, Serializer};

/// `f64` to a number or one of the three strings.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(x: &f64, s: S) -> Result<S::Ok, S::Error> {
    if x.is_finite() { s.serialize_f64(*x) } else { s.serialize_str(text(*x)) }
}

/// Name of a number that is not finite.
fn text(x: f64) -> &'static str {
    if x.is_nan() {
        "NaN"
    } else if x > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Text(String),
}

fn read<E: serde::de::Error>(w: Written) -> Result<f64, E> {
    match w {
        Written::Number(x) => Ok(x),
        Written::Text(t) => match t.as_str() {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(E::custom(format!("'{t}', expected a number"))),
        },
    }
}

/// The reverse of [`serialize`].
///
/// # Errors
/// Anything but a number or one of the three strings.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    read(Written::deserialize(d)?)
}

/// The same for numbers that may be missing (`null`).
pub mod option {
    use super::{Deserialize, Deserializer, Serializer, Written};

    /// See [`super::serialize`].
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(x: &Option<f64>, s: S) -> Result<S::Ok, S::Error> {
        match x {
            Some(x) => super::serialize(x, s),
            None => s.serialize_none(),
        }
    }

    /// See [`super::deserialize`].
    ///
    /// # Errors
    /// Those of [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
        Option::<Written>::deserialize(d)?.map(super::read).transpose()
    }
}
