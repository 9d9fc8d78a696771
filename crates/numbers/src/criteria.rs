//! When two tensors count as equal.

use crate::metrics::Metrics;
use crate::num;
use scalify_ir::DType;
use scalify_ir::dtype::DTypeClass;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A criterion; `docs/NUMBERS.md` defines each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// Each element: `error <= atol + rtol |expected|` (torch, numpy).
    Allclose,
    /// Each element: `error <= atol` or `error / |expected| <= rtol` (XLA).
    Xla,
    /// The tensor: largest absolute error `<= atol`, or largest relative error
    /// (where `|expected| > atol`) `<= rtol`.
    Seed,
    /// Each element: at most `ulp` units in the last place.
    Ulp,
    /// RMSE of the actual against a third, `f64` tensor is at most `multiplier`
    /// times that of the expected one, plus `atol`.
    RmseFp64,
    /// Each element: error at most its bound.
    Bound,
    /// Largest elements along an axis agree.
    Top,
}

impl Criterion {
    /// All, with their names.
    pub const ALL: [(&'static str, Criterion); 7] = [
        ("allclose", Criterion::Allclose),
        ("xla", Criterion::Xla),
        ("seed", Criterion::Seed),
        ("ulp", Criterion::Ulp),
        ("rmse-fp64", Criterion::RmseFp64),
        ("bound", Criterion::Bound),
        ("top", Criterion::Top),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Criterion::ALL.iter().find(|c| c.1 == self).map_or("", |c| c.0)
    }

    /// The criterion of this name.
    pub fn from_name(s: &str) -> Option<Criterion> {
        Criterion::ALL.iter().find(|c| c.0 == s).map(|c| c.1)
    }
}

/// What an infinity may meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InfPolicy {
    /// The same infinity only.
    Equal,
    /// Also the largest finite value of the same sign: formats that saturate.
    Saturate,
    /// Anything but NaN.
    Ignore,
}

/// Criterion and tolerances of one tensor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the preset the tolerances come from, e.g. `f32`.
    pub preset: String,
    /// The criterion.
    pub criterion: Criterion,
    /// Absolute tolerance.
    #[serde(with = "num")]
    pub atol: f64,
    /// Relative tolerance.
    #[serde(with = "num")]
    pub rtol: f64,
    /// Units in the last place.
    pub ulp: u64,
    /// Does NaN equal NaN?
    pub equal_nan: bool,
    /// What an infinity may meet.
    pub inf: InfPolicy,
    /// Of [`Criterion::RmseFp64`].
    #[serde(with = "num")]
    pub multiplier: f64,
    /// Axis of the largest elements.
    pub axis: Option<i64>,
    /// Smallest share of rows with the same largest element.
    #[serde(with = "num")]
    pub min_top1: f64,
    /// Smallest share of rows whose largest expected element is among the five
    /// largest actual ones.
    #[serde(with = "num")]
    pub min_top5: f64,
    /// Terms of the sums that elements are, for [`Criterion::Bound`].
    pub sum_length: Option<u64>,
}

/// `(name, atol, rtol)`
const PRESETS: &[(&str, f64, f64)] = &[
    ("exact", 0.0, 0.0),
    ("f64", 1e-7, 1e-7),
    ("f32", 1e-5, 1e-3),
    ("bf16", 1e-2, 1.6e-2),
    ("f16", 1e-3, 1e-2),
    ("f8", 1e-2, 1.25e-1),
    ("int8", 1e-1, 1e-1),
];

impl Setting {
    /// The preset of this name.
    pub fn preset(name: &str) -> Option<Setting> {
        let &(name, atol, rtol) = PRESETS.iter().find(|p| p.0 == name)?;
        let int8 = name == "int8";
        Some(Setting {
            preset: name.into(),
            criterion: Criterion::Allclose,
            atol,
            rtol,
            ulp: 0,
            equal_nan: false,
            inf: InfPolicy::Equal,
            multiplier: 2.0,
            axis: None,
            min_top1: if int8 { 0.99 } else { 1.0 },
            min_top5: if int8 { 0.99 } else { 0.0 },
            sum_length: None,
        })
    }

    /// Names of the presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|p| p.0)
    }

    /// The preset of an element type.
    pub fn of(t: DType) -> Setting {
        let name = match t {
            DType::F64 | DType::C128 => "f64",
            DType::F32 | DType::C64 => "f32",
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::S8 | DType::U8 => "int8",
            _ if t.is_float() => "f8",
            _ => "exact",
        };
        Setting::preset(name).unwrap_or_else(Setting::exact)
    }

    fn exact() -> Setting {
        Setting {
            preset: "exact".into(),
            criterion: Criterion::Allclose,
            atol: 0.0,
            rtol: 0.0,
            ulp: 0,
            equal_nan: false,
            inf: InfPolicy::Equal,
            multiplier: 2.0,
            axis: None,
            min_top1: 1.0,
            min_top5: 0.0,
            sum_length: None,
        }
    }

    /// Changes one field, named as in [`Change`].
    fn set(&mut self, c: &Change) {
        match *c {
            Change::Preset(_) => {}
            Change::Criterion(x) => self.criterion = x,
            Change::Atol(x) => self.atol = x,
            Change::Rtol(x) => self.rtol = x,
            Change::Ulp(x) => {
                self.ulp = x;
                self.criterion = Criterion::Ulp;
            }
            Change::EqualNan(x) => self.equal_nan = x,
            Change::Inf(x) => self.inf = x,
            Change::Multiplier(x) => self.multiplier = x,
            Change::Axis(x) => self.axis = Some(x),
            Change::MinTop1(x) => self.min_top1 = x,
            Change::MinTop5(x) => self.min_top5 = x,
            Change::SumLength(x) => self.sum_length = Some(x),
        }
    }

    /// The setting of type `t` after changes, in order. A preset among them
    /// replaces that of the type.
    pub fn with<'a>(t: DType, changes: impl IntoIterator<Item = &'a Change> + Clone) -> Setting {
        let mut s = Setting::of(t);
        for c in changes.clone() {
            if let Change::Preset(name) = c {
                s = Setting::preset(name).unwrap_or(s);
                // Tokens are what counts for int8, whatever the element type.
                if name == "int8" && !matches!(t.class(), DTypeClass::Complex) {
                    s.axis = Some(-1);
                    s.criterion = Criterion::Top;
                }
            }
        }
        s.changed(changes)
    }

    /// This setting after changes, in order; presets among them are ignored.
    pub fn changed<'a>(mut self, changes: impl IntoIterator<Item = &'a Change>) -> Setting {
        for c in changes {
            self.set(c);
        }
        if self.criterion == Criterion::Top && self.axis.is_none() {
            self.axis = Some(-1);
        }
        self
    }

    /// Unit roundoff of type `t`, for bounds.
    pub fn roundoff(t: DType) -> Option<f64> {
        let t = t.complex_part().unwrap_or(t);
        t.mantissa_bits().map(|b| 2f64.powi(-(b as i32)))
    }

    /// Factor of [`Criterion::Bound`]: two sums of `n` terms `x`, each rounded
    /// at every step in any order, differ by at most `2 (n-1)u / (1 - (n-1)u)`
    /// times the sum of `|x|`. 1 without `sum_length`.
    pub fn bound_factor(&self, t: DType) -> f64 {
        match (self.sum_length, Setting::roundoff(t)) {
            (Some(n), Some(u)) => {
                let x = n.saturating_sub(1) as f64 * u;
                if x < 1.0 { 2.0 * x / (1.0 - x) } else { f64::INFINITY }
            }
            _ => 1.0,
        }
    }

    /// One line, e.g. `allclose, atol 1e-5, rtol 0.001`.
    pub fn describe(&self) -> String {
        let mut s = self.criterion.name().to_string();
        let n = crate::report::Number;
        let _ = match self.criterion {
            Criterion::Allclose | Criterion::Xla | Criterion::Seed => {
                write!(s, ", atol {}, rtol {}", n(self.atol), n(self.rtol))
            }
            Criterion::Ulp => write!(s, ", at most {}", self.ulp),
            Criterion::RmseFp64 => {
                write!(s, ", multiplier {}, atol {}", n(self.multiplier), n(self.atol))
            }
            Criterion::Bound => match self.sum_length {
                Some(l) => write!(s, ", sums of {l} terms"),
                None => Ok(()),
            },
            Criterion::Top => {
                let (one, five) = (n(self.min_top1), n(self.min_top5));
                write!(s, ", top-1 at least {one}, top-5 at least {five}")
            }
        };
        if self.equal_nan {
            s.push_str(", NaN equals NaN");
        }
        match self.inf {
            InfPolicy::Equal => {}
            InfPolicy::Saturate => s.push_str(", infinities may saturate"),
            InfPolicy::Ignore => s.push_str(", infinities ignored"),
        }
        s
    }
}

/// A change to a setting.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Change {
    Preset(String),
    Criterion(Criterion),
    Atol(f64),
    Rtol(f64),
    /// Also chooses [`Criterion::Ulp`].
    Ulp(u64),
    EqualNan(bool),
    Inf(InfPolicy),
    Multiplier(f64),
    Axis(i64),
    MinTop1(f64),
    MinTop5(f64),
    SumLength(u64),
}

impl Change {
    /// Reads `key=value`.
    ///
    /// # Errors
    /// Says which keys and values there are.
    pub fn parse(text: &str) -> Result<Change, String> {
        let (key, v) =
            text.split_once('=').ok_or_else(|| format!("'{text}', expected KEY=VALUE"))?;
        let (key, v) = (key.trim(), v.trim());
        let bad = |what: &str| format!("{key}={v}, expected {what}");
        let tolerance = || match v.parse::<f64>() {
            Ok(x) if x >= 0.0 => Ok(x),
            _ => Err(bad("a number that is not negative")),
        };
        let share = || match v.parse::<f64>() {
            Ok(x) if (0.0..=1.0).contains(&x) => Ok(x),
            _ => Err(bad("a number from 0 to 1")),
        };
        let whole = || v.parse::<u64>().map_err(|_| bad("a whole number"));
        Ok(match key {
            "preset" => {
                if Setting::preset(v).is_none() {
                    return Err(bad(&Setting::presets().collect::<Vec<_>>().join(", ")));
                }
                Change::Preset(v.into())
            }
            "criterion" => Change::Criterion(
                Criterion::from_name(v)
                    .ok_or_else(|| bad(&Criterion::ALL.map(|c| c.0).join(", ")))?,
            ),
            "atol" => Change::Atol(tolerance()?),
            "rtol" => Change::Rtol(tolerance()?),
            "ulp" => Change::Ulp(whole()?),
            "equal_nan" => Change::EqualNan(v.parse().map_err(|_| bad("true or false"))?),
            "inf" => Change::Inf(match v {
                "equal" => InfPolicy::Equal,
                "saturate" => InfPolicy::Saturate,
                "ignore" => InfPolicy::Ignore,
                _ => return Err(bad("equal, saturate or ignore")),
            }),
            "multiplier" => Change::Multiplier(tolerance()?),
            "axis" => Change::Axis(v.parse().map_err(|_| bad("a whole number"))?),
            "min_top1" => Change::MinTop1(share()?),
            "min_top5" => Change::MinTop5(share()?),
            "sum_length" => Change::SumLength(whole()?),
            _ => {
                return Err(format!(
                    "'{key}', expected preset, criterion, atol, rtol, ulp, equal_nan, inf, \
                     multiplier, axis, min_top1, min_top5 or sum_length"
                ));
            }
        })
    }
}

/// Result of a criterion.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Judgement {
    /// Equal? `None`: not known.
    pub equal: Option<bool>,
    /// Elements that break the criterion, NaN and infinities included.
    pub mismatched: Option<u64>,
    /// What breaks it, or what is missing to know.
    pub reasons: Vec<String>,
}

/// Measures against the `f64` reference, for [`Criterion::RmseFp64`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fp64 {
    /// RMSE of the expected tensor against the reference.
    #[serde(with = "num")]
    pub expected_rmse: f64,
    /// RMSE of the actual tensor against the reference.
    #[serde(with = "num")]
    pub actual_rmse: f64,
}

impl Setting {
    /// Elements that break the rules for NaN and infinities, with reasons.
    pub(crate) fn special(
        &self,
        nan_pairs: u64,
        nan_mismatches: u64,
        inf_mismatches: u64,
        inf_saturated: u64,
        reasons: &mut Vec<String>,
    ) -> u64 {
        let mut n = nan_mismatches;
        if nan_mismatches > 0 {
            reasons.push(format!("{nan_mismatches} positions are NaN on one side only"));
        }
        if nan_pairs > 0 && !self.equal_nan {
            n += nan_pairs;
            reasons.push(format!("{nan_pairs} positions are NaN on both sides (see --equal-nan)"));
        }
        let inf = match self.inf {
            InfPolicy::Equal => inf_mismatches,
            InfPolicy::Saturate => inf_mismatches.saturating_sub(inf_saturated),
            InfPolicy::Ignore => 0,
        };
        if inf > 0 {
            reasons.push(format!("{inf} infinities do not meet the same infinity"));
        }
        n + inf
    }

    /// Judges metrics that were measured with this setting's tolerances.
    pub fn judge(&self, m: &Metrics, fp64: Option<Fp64>) -> Judgement {
        let mut reasons = Vec::new();
        let special = self.special(
            m.nan_pairs,
            m.nan_mismatches,
            m.inf_mismatches,
            m.inf_saturated,
            &mut reasons,
        );
        let n = crate::report::Number;
        let unknown = |mut reasons: Vec<String>, why: &str| {
            let equal = if special > 0 { Some(false) } else { None };
            reasons.push(why.into());
            Judgement { equal, mismatched: None, reasons }
        };
        let elements = |far: u64, mut reasons: Vec<String>| {
            if far > 0 {
                reasons.push(format!("{far} of {} finite pairs are too far apart", m.finite_pairs));
            }
            Judgement { equal: Some(far + special == 0), mismatched: Some(far + special), reasons }
        };
        match self.criterion {
            Criterion::Allclose => elements(m.not_allclose, reasons),
            Criterion::Xla => elements(m.not_xla, reasons),
            Criterion::Ulp => match &m.ulp {
                Some(u) if u.limit == self.ulp => elements(u.over, reasons),
                Some(u) if u.max <= self.ulp => elements(0, reasons),
                _ => unknown(reasons, "units in the last place need one element type"),
            },
            Criterion::Bound => match m.over_bound {
                Some(far) => elements(far, reasons),
                None => unknown(reasons, "no bound was given"),
            },
            Criterion::Seed => {
                let close = m.max_abs <= self.atol || m.max_rel <= self.rtol;
                if !close {
                    reasons.push(format!(
                        "largest absolute error {} and largest relative error {}",
                        n(m.max_abs),
                        n(m.max_rel)
                    ));
                }
                let far = if close { 0 } else { m.not_xla };
                Judgement {
                    equal: Some(close && special == 0),
                    mismatched: Some(far + special),
                    reasons,
                }
            }
            Criterion::RmseFp64 => match fp64 {
                Some(f) => {
                    let limit = self.multiplier * f.expected_rmse + self.atol;
                    let close = f.actual_rmse <= limit;
                    if !close {
                        reasons.push(format!(
                            "RMSE against the f64 reference is {}, at most {} allowed",
                            n(f.actual_rmse),
                            n(limit)
                        ));
                    }
                    Judgement { equal: Some(close && special == 0), mismatched: None, reasons }
                }
                None => unknown(reasons, "no f64 reference was given"),
            },
            Criterion::Top => match &m.top {
                Some(t) => {
                    let (one, five) = (t.share1(), t.share5());
                    if one < self.min_top1 {
                        reasons.push(format!("top-1 agreement is {}", n(one)));
                    }
                    if five < self.min_top5 {
                        reasons.push(format!("top-5 agreement is {}", n(five)));
                    }
                    let close = one >= self.min_top1 && five >= self.min_top5;
                    Judgement { equal: Some(close && special == 0), mismatched: None, reasons }
                }
                None => unknown(reasons, "no axis was given"),
            },
        }
    }
}
