//! Whether two values are the same: outputs in the layouts that are declared
//! or possible, dimension by dimension, and in parts.

use crate::lift::{Lifter, Lv};
use crate::problem::{self, Problem};
use crate::tv::{Tv, TvOps};
use scalify_claim::{Claim, Placement};
use scalify_ir::{Module, Shape};
use scalify_terms::special::Special;
use scalify_terms::{Coef, Store};

/// Most terms of an attempt whose outputs are compared in parts.
const MAX_NARROW: usize = 40_000;

pub(crate) const UNRELATED: &str = "is not related to the baseline's output";

/// One output of an attempt.
pub(crate) struct OutputCheck {
    pub(crate) base: Option<Tv>,
    pub(crate) dist: Option<Tv>,
    pub(crate) dist_rec: u32,
    pub(crate) base_rec: u32,
    pub(crate) proved: bool,
    pub(crate) placement: Option<Placement>,
    pub(crate) reason: Option<String>,
    pub(crate) assumed: Option<String>,
}

pub(crate) fn check_output(
    l: &mut Lifter<'_>,
    k: usize,
    x: &(Lv, u32),
    y: &(Lv, u32),
    (bs, ds): (Option<&Shape>, Option<&Shape>),
    p: &Problem,
    claim: &Claim,
    dist: &Module,
    sp: &mut [Special],
) -> OutputCheck {
    let mut out = OutputCheck {
        base: x.0.tensor().cloned(),
        dist: y.0.tensor().cloned(),
        dist_rec: y.1,
        base_rec: x.1,
        proved: false,
        placement: None,
        reason: None,
        assumed: None,
    };
    let (Some(b), Lv::T(_) | Lv::Each(_)) = (out.base.clone(), &y.0) else {
        // Tokens on both sides carry nothing.
        let empty = |s: Option<&Shape>| s.is_some_and(|s| s.as_array().is_none());
        let tokens = matches!((&x.0, &y.0), (Lv::Token, Lv::Token));
        out.proved = tokens && empty(bs) && empty(ds);
        if !out.proved {
            let why = match (bs, ds) {
                (Some(_), Some(_)) => UNRELATED,
                _ => "the programs have different numbers of outputs",
            };
            out.reason = Some(why.to_owned());
        }
        return out;
    };
    let (Some(Shape::Array(g)), Some(Shape::Array(s))) = (bs, ds) else {
        out.reason = Some("an output is no array".to_owned());
        return out;
    };
    if g.dtype != s.dtype {
        out.reason = Some(format!("the output is {} here, {} in the baseline", s.dtype, g.dtype));
        return out;
    }
    let given = p.layouts.as_ref().map(|l| Ok(l.get(k).cloned().unwrap_or_default()));
    let tries = match given.unwrap_or_else(|| problem::output_layouts(p, claim, dist, k, g, s)) {
        Ok(t) => t,
        Err(e) => {
            out.reason = Some(e);
            return out;
        }
    };
    if p.local_inputs && g.dims == s.dims {
        // Two per-device programs: the same value on each device.
        out.proved = y.0.tensor().is_some_and(|d| same_value(l.st, &b, d));
        if out.proved {
            out.placement = Some(Placement::replicated(g.dims.len(), p.devices as u32));
        } else {
            out.reason = Some(UNRELATED.to_owned());
        }
        return out;
    }
    let mut last = None;
    for (q, assumed) in tries {
        match same_in_layout(l, &b, &y.0, &q, sp) {
            Ok(()) => {
                out.proved = true;
                out.placement = Some(q);
                out.assumed = assumed;
                return out;
            }
            Err(e) => last = Some(e),
        }
    }
    out.reason = last;
    out
}

/// True if `d` is on every device the block of `b` that the placement says.
fn same_in_layout(
    l: &mut Lifter<'_>,
    b: &Tv,
    d: &Lv,
    q: &Placement,
    sp: &mut [Special],
) -> Result<(), String> {
    let want = l.to_local(b, q)?;
    let d = match d {
        // The same on all devices, as far as the terms show.
        Lv::T(d) if l.each => {
            for k in 0..l.dev.count {
                let own = l.at_device(&want, k).ok_or("index arithmetic is out of reach")?;
                if !same_value(l.st, &own, d) && !same_narrowed(l.st, &own, d, sp) {
                    return Err(format!("is not the baseline's output on device {k}"));
                }
                // A baseline value that is whole on every device is the same.
                if !l.dev.digits.iter().any(|x| l.st.ref_mentions(&want.val.r, x.0)) {
                    break;
                }
            }
            return Ok(());
        }
        Lv::T(d) => d,
        Lv::Each(ts) if ts.len() as i64 == l.dev.count => {
            for (k, t) in ts.iter().enumerate() {
                let own = l.at_device(&want, k as i64).ok_or("index arithmetic is out of reach")?;
                if !same_value(l.st, &own, t) && !same_narrowed(l.st, &own, t, sp) {
                    return Err(format!("is not the baseline's output on device {k}"));
                }
            }
            return Ok(());
        }
        _ => return Err("is no array".to_owned()),
    };
    if same_value(l.st, &want, d) {
        return Ok(());
    }
    if l.st.len() < MAX_NARROW && same_narrowed(l.st, &want, d, sp) {
        return Ok(());
    }
    if want.val.r.class == d.val.r.class && want.val.coef == d.val.coef {
        return Err("equals the baseline's output, but in another layout".to_owned());
    }
    if want.val.r.class == d.val.r.class {
        return Err(format!(
            "is {} times what it should be",
            ratio(l.st, d.val.coef, want.val.coef)
        ));
    }
    Err(UNRELATED.to_owned())
}

pub(crate) fn ratio(st: &mut Store, a: Coef, b: Coef) -> String {
    match st.coefs.inv(b).and_then(|i| st.coefs.mul(a, i)) {
        Some(k) => st.coefs.get(k).to_string(),
        None => "?".to_owned(),
    }
}

/// Equality of two values of the same local shape, dimension by dimension.
pub(crate) fn same_value(st: &mut Store, a: &Tv, b: &Tv) -> bool {
    if a.val.coef != b.val.coef {
        return false;
    }
    let (mut a, mut b) = (a.clone(), b.clone());
    for _ in 0..2 {
        if st.align(&mut a, &mut b).is_none() {
            return false;
        }
    }
    a.val = st.norm(a.val);
    b.val = st.norm(b.val);
    a.val == b.val
}

/// Equality of two values of the same local shape where reads of parts are
/// pushed into the definitions; `sp`: of some reads and of all, or none.
fn same_narrowed(st: &mut Store, a: &Tv, b: &Tv, sp: &mut [Special]) -> bool {
    let (mut a, mut b) = (a.clone(), b.clone());
    for _ in 0..2 {
        if st.align(&mut a, &mut b).is_none() {
            return false;
        }
    }
    let [some, all] = sp else { return false };
    if st.same_by_parts(&a.val, &b.val, some, 6) {
        return true;
    }
    // What is too much work for reads of parts is so for everything.
    !some.is_spent(st)
        && (st.same_by_parts(&a.val, &b.val, all, 6) || st.same_at_points(&a.val, &b.val, all))
}
