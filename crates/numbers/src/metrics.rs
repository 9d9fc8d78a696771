//! What is measured of a pair of tensors.

use crate::hist::Histogram;
use crate::num;
use serde::{Serialize, Serializer};

/// Metrics of a pair. Errors are `actual - expected` in `f64`, of *finite
/// pairs*: positions where both values are finite. `docs/NUMBERS.md` defines
/// each.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Metrics {
    /// Elements.
    pub elements: u64,
    /// Pairs of finite values.
    pub finite_pairs: u64,
    /// Largest absolute error.
    #[serde(with = "num")]
    pub max_abs: f64,
    /// Mean absolute error; 0 without finite pairs.
    #[serde(with = "num")]
    pub mean_abs: f64,
    /// Root of the mean squared error.
    #[serde(with = "num")]
    pub rmse: f64,
    /// Largest error relative to `|expected|`, where that exceeds `rel_above`.
    #[serde(with = "num")]
    pub max_rel: f64,
    /// Mean of the same; 0 if there is none.
    #[serde(with = "num")]
    pub mean_rel: f64,
    /// Elements with a relative error.
    pub rel_elements: u64,
    /// The `atol` above which a relative error is taken.
    #[serde(with = "num")]
    pub rel_above: f64,
    /// Percentiles of the absolute error.
    pub percentiles: Percentiles,
    /// Cosine of the angle between both; `None` if one is zero.
    #[serde(with = "num::option")]
    pub cosine: Option<f64>,
    /// `10 log10(sum expected^2 / sum error^2)` in decibels; `None` if both
    /// sums are zero.
    #[serde(with = "num::option")]
    pub sqnr_db: Option<f64>,
    /// Finite pairs that are not equal.
    pub different: u64,
    /// Finite nonzero pairs of opposite sign.
    pub sign_flips: u64,
    /// Pairs of zeros of opposite sign.
    pub zero_signs: u64,
    /// Counts of the expected values.
    pub expected: Side,
    /// Counts of the actual values.
    pub actual: Side,
    /// Positions where exactly one side is NaN.
    pub nan_mismatches: u64,
    /// Positions where both are NaN.
    pub nan_pairs: u64,
    /// Positions without NaN where one side is infinite and the other is not
    /// the same infinity.
    pub inf_mismatches: u64,
    /// Those of them where the other side is the type's largest finite value
    /// of the same sign.
    pub inf_saturated: u64,
    /// Finite pairs with `error > atol + rtol |expected|`.
    pub not_allclose: u64,
    /// Finite pairs with `error > atol` and `error / |expected| > rtol`.
    pub not_xla: u64,
    /// Finite pairs whose error exceeds their bound; `None` without bounds.
    pub over_bound: Option<u64>,
    /// Distance in units in the last place; `None` for types that differ.
    pub ulp: Option<Ulp>,
    /// Largest absolute errors, largest first; the first of equals first.
    pub worst: Vec<Element>,
    /// Largest relative error.
    pub worst_rel: Option<Element>,
    /// Largest distance in units in the last place.
    pub worst_ulp: Option<Element>,
    /// First positions where NaN or infinities do not match.
    pub special: Vec<Element>,
    /// Agreement of largest elements along an axis, if asked for.
    pub top: Option<Top>,
    /// Errors by magnitude.
    pub histogram: Histogram,
}

/// Percentiles of the absolute error, linear between neighbours as numpy's
/// default.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    #[serde(with = "num")]
    pub p50: f64,
    #[serde(with = "num")]
    pub p90: f64,
    #[serde(with = "num")]
    pub p99: f64,
    #[serde(with = "num")]
    pub p99_9: f64,
    /// False: read off the histogram, and off by at most one part in eight
    /// (between 2^-150 and 2^130).
    pub exact: bool,
}

/// Counts of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Side {
    pub nan: u64,
    pub pos_inf: u64,
    pub neg_inf: u64,
    /// Nonzero values below the smallest normal one (not of complex numbers).
    pub denormal: u64,
}

/// Distances in units in the last place: representable values between both.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ulp {
    /// Largest.
    pub max: u64,
    /// Finite pairs farther apart than `limit`.
    pub over: u64,
    /// See `over`.
    pub limit: u64,
    /// `[from, count]`: pairs with a distance of at least `from` and below the
    /// next `from`: 0, 1, 2, 4, 8, ..
    pub histogram: Vec<[u64; 2]>,
}

/// A value of any type.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Value {
    Real(f64),
    Int(i128),
    Complex(f64, f64),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct N(#[serde(with = "num")] f64);
        match *self {
            Value::Real(x) => num::serialize(&x, s),
            Value::Int(i) => match (i64::try_from(i), u64::try_from(i)) {
                (Ok(i), _) => s.serialize_i64(i),
                (_, Ok(i)) => s.serialize_u64(i),
                _ => s.serialize_f64(i as f64),
            },
            Value::Complex(re, im) => (N(re), N(im)).serialize(s),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Value::Real(x) => crate::report::Number(x).fmt(f),
            Value::Int(i) => i.fmt(f),
            Value::Complex(re, im) => {
                let (re, im) = (crate::report::Number(re), crate::report::Number(im));
                write!(f, "({re}, {im})")
            }
        }
    }
}

/// One position.
#[derive(Clone, Debug, Serialize)]
pub struct Element {
    /// Indices, major first.
    pub index: Vec<u64>,
    /// Expected value.
    pub expected: Value,
    /// Actual value.
    pub actual: Value,
    /// Absolute error.
    #[serde(with = "num")]
    pub abs: f64,
    /// Error relative to `|expected|`; `None` for zero and non-finite pairs.
    #[serde(with = "num::option")]
    pub rel: Option<f64>,
    /// Distance in units in the last place.
    pub ulp: Option<u64>,
}

/// Agreement of the largest elements of rows along an axis.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Top {
    /// The axis.
    pub axis: usize,
    /// Rows.
    pub rows: u64,
    /// Rows with the same largest element (the first of equals, NaN above all).
    pub top1: u64,
    /// Rows where the largest expected element is among the five largest
    /// actual ones.
    pub top5: u64,
    /// Mean share of the five largest elements that are the same.
    pub overlap5: f64,
    /// First row (indices without the axis) whose largest elements differ.
    pub first_mismatch: Option<Vec<u64>>,
}

impl Top {
    /// Share of rows with the same largest element; 1 without rows.
    pub fn share1(&self) -> f64 {
        if self.rows == 0 { 1.0 } else { self.top1 as f64 / self.rows as f64 }
    }

    /// Share of rows counted by `top5`; 1 without rows.
    pub fn share5(&self) -> f64 {
        if self.rows == 0 { 1.0 } else { self.top5 as f64 / self.rows as f64 }
    }
}
