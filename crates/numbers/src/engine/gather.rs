//! What all workers have seen, and the metrics that follow.

use super::worker::Worker;
use super::{Max, Options, insert};
use crate::decode::{Chunk, Pair, Ulps, parts};
use crate::hist::Histogram;
use crate::kernel::{Partial, Sums};
use crate::metrics::{Element, Metrics, Side, Ulp, Value};
use scalify_ir::DType;
use scalify_tensors::{Tensor, TensorError};

/// Counts of what is not finite.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Special {
    pub(crate) e: Side,
    pub(crate) a: Side,
    pub(crate) finite: u64,
    pub(crate) nan_mismatches: u64,
    pub(crate) nan_pairs: u64,
    pub(crate) inf_mismatches: u64,
    pub(crate) inf_saturated: u64,
}

impl Special {
    /// Counts `n` pairs that are not finite on both sides; do they mismatch?
    /// `max`: largest finite values of both sides.
    pub(crate) fn not_finite(
        &mut self,
        e: f64,
        a: f64,
        equal: bool,
        max: (f64, f64),
        n: u64,
    ) -> bool {
        if e.is_nan() && a.is_nan() {
            self.nan_pairs += n;
            return false;
        }
        if e.is_nan() || a.is_nan() {
            self.nan_mismatches += n;
            return true;
        }
        if equal {
            return false;
        }
        self.inf_mismatches += n;
        let full = |x: f64, max: f64| x.is_infinite() || x.abs() >= max;
        let same_sign = e.is_sign_negative() == a.is_sign_negative();
        self.inf_saturated += n * (same_sign && full(e, max.0) && full(a, max.1)) as u64;
        true
    }
}

impl Side {
    /// Counts `n` times a value; `tiny` is the smallest normal one.
    pub(crate) fn count(&mut self, x: f64, tiny: f64, n: u64) {
        self.nan += n * x.is_nan() as u64;
        self.pos_inf += n * (x == f64::INFINITY) as u64;
        self.neg_inf += n * (x == f64::NEG_INFINITY) as u64;
        self.denormal += n * (x != 0.0 && x.abs() < tiny) as u64;
    }
}

/// Sum of all workers.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) sums: Vec<(u64, Sums)>,
    pub(crate) t: Partial,
    pub(crate) rel: Max<f64>,
    pub(crate) ulp: Max<u64>,
    pub(crate) bins: Vec<u64>,
    pub(crate) over: u64,
    pub(crate) over_bound: u64,
    pub(crate) worst: Vec<Max<f64>>,
    pub(crate) special: Vec<u64>,
    pub(crate) s: Special,
    pub(crate) histogram: Histogram,
}

fn add_side(a: &mut Side, b: Side) {
    a.nan += b.nan;
    a.pos_inf += b.pos_inf;
    a.neg_inf += b.neg_inf;
    a.denormal += b.denormal;
}

/// A sum with its rounding errors carried along.
#[derive(Clone, Copy, Default)]
struct Exact {
    sum: f64,
    lost: f64,
}

impl Exact {
    fn add(&mut self, x: f64) {
        let t = self.sum + x;
        if t.is_finite() {
            self.lost +=
                if self.sum.abs() >= x.abs() { self.sum - t + x } else { x - t + self.sum };
        }
        self.sum = t;
    }

    fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

impl Gathered {
    pub(super) fn take(&mut self, mut w: Worker, keep: usize) {
        let mut bins = w.levels.bins();
        let mut more = 0;
        let by_cell = w.table.take_levels();
        for (k, n) in by_cell.into_iter().enumerate().rev() {
            let crossing = w.near.as_ref().map_or(0, |c| c.levels[k]);
            more += n as i64 + crossing;
            bins[k] += more as u64;
        }
        let mut all = w.planes.counts();
        all.iter_mut().zip(bins).for_each(|(a, b)| *a += b);
        for (k, n) in all.into_iter().enumerate() {
            w.bins[k] += n;
            if w.o.ulp.checked_add(1) == Some(1 << k) {
                w.over += n;
            }
        }
        self.sums.append(&mut w.sums);
        w.table.drain_into(&mut self.histogram);
        self.t.max_abs = self.t.max_abs.max(w.t.max_abs);
        self.t.rel_count += w.t.rel_count;
        self.t.sign_flips += w.t.sign_flips;
        self.t.zero_signs += w.t.zero_signs;
        self.t.not_allclose += w.t.not_allclose;
        self.t.not_xla += w.t.not_xla;
        self.rel.take(w.rel);
        self.ulp.take(w.ulp);
        self.bins.resize(64, 0);
        self.bins.iter_mut().zip(w.bins).for_each(|(a, b)| *a += b);
        self.over += w.over;
        self.over_bound += w.over_bound;
        for x in w.worst {
            insert(&mut self.worst, keep, x);
        }
        self.special.append(&mut w.special);
        self.special.sort_unstable();
        self.special.truncate(keep);
        add_side(&mut self.s.e, w.s.e);
        add_side(&mut self.s.a, w.s.a);
        self.s.finite += w.s.finite;
        self.s.nan_mismatches += w.s.nan_mismatches;
        self.s.nan_pairs += w.s.nan_pairs;
        self.s.inf_mismatches += w.s.inf_mismatches;
        self.s.inf_saturated += w.s.inf_saturated;
    }

    pub(super) fn finish(
        mut self,
        e: &Tensor,
        a: &Tensor,
        pair: Pair,
        o: &Options,
    ) -> Result<Metrics, TensorError> {
        // In the order of the blocks: the same on any number of workers.
        self.sums.sort_unstable_by_key(|s| s.0);
        let total = |f: fn(&Sums) -> f64| {
            let mut t = Exact::default();
            self.sums.iter().for_each(|s| t.add(f(&s.1)));
            t.value()
        };
        let (abs, square, rel) = (total(|s| s.abs), total(|s| s.square), total(|s| s.rel));
        let (e2, a2, ea) = (total(|s| s.e2), total(|s| s.a2), total(|s| s.ea));
        let mean = |x: f64, n: u64| if n == 0 { 0.0 } else { x / n as f64 };
        let element = |at: u64| element(e, a, pair, at);
        let s = self.s;
        let different = s.finite - self.histogram.zeros;
        let ulp = (pair.ulps != Ulps::None).then(|| {
            // From "at least 2^k" to "from 2^k to the next".
            let mut bins = vec![[0, s.finite]];
            for (k, &n) in self.bins.iter().enumerate().take_while(|(_, n)| **n > 0) {
                if let Some(b) = bins.last_mut() {
                    b[1] -= n;
                }
                bins.push([1 << k, n]);
            }
            Ulp { max: self.ulp.size, over: self.over, limit: o.ulp, histogram: bins }
        });
        Ok(Metrics {
            elements: e.len(),
            finite_pairs: s.finite,
            max_abs: self.t.max_abs,
            mean_abs: mean(abs, s.finite),
            rmse: mean(square, s.finite).sqrt(),
            max_rel: self.rel.size,
            mean_rel: mean(rel, self.t.rel_count),
            rel_elements: self.t.rel_count,
            rel_above: o.atol,
            cosine: (e2 > 0.0 && a2 > 0.0)
                .then(|| if different == 0 { 1.0 } else { ea / (e2.sqrt() * a2.sqrt()) }),
            sqnr_db: (e2 > 0.0 || square > 0.0).then(|| 10.0 * (e2 / square).log10()),
            different,
            sign_flips: self.t.sign_flips,
            zero_signs: self.t.zero_signs,
            expected: s.e,
            actual: s.a,
            nan_mismatches: s.nan_mismatches,
            nan_pairs: s.nan_pairs,
            inf_mismatches: s.inf_mismatches,
            inf_saturated: s.inf_saturated,
            not_allclose: self.t.not_allclose,
            not_xla: self.t.not_xla,
            over_bound: o.bound.map(|_| self.over_bound),
            worst: self.worst.iter().map(|w| element(w.at)).collect::<Result<_, _>>()?,
            worst_rel: (self.rel.size > 0.0).then(|| element(self.rel.at)).transpose()?,
            worst_ulp: (self.ulp.size > 0).then(|| element(self.ulp.at)).transpose()?,
            special: self.special.iter().map(|&i| element(i)).collect::<Result<_, _>>()?,
            ulp,
            histogram: self.histogram,
            ..Metrics::default()
        })
    }
}

fn value(t: DType, b: &[u8]) -> Value {
    let (re, im) = parts(t, b, 0);
    match (t, b.first_chunk::<8>()) {
        (DType::S64, Some(b)) => Value::Int(i64::from_le_bytes(*b) as i128),
        (DType::U64, Some(b)) => Value::Int(u64::from_le_bytes(*b) as i128),
        _ if t.is_complex() => Value::Complex(re, im),
        _ if t.is_float() => Value::Real(re),
        _ => Value::Int(re as i128),
    }
}

/// Indices of element `at`, major first.
pub(crate) fn indices(dims: &[i64], mut at: u64) -> Vec<u64> {
    let mut v: Vec<u64> = dims
        .iter()
        .rev()
        .map(|&d| {
            let d = d.max(1) as u64;
            let i = at % d;
            at /= d;
            i
        })
        .collect();
    v.reverse();
    v
}

fn element(e: &Tensor, a: &Tensor, pair: Pair, at: u64) -> Result<Element, TensorError> {
    let (mut be, mut ba) = (Vec::new(), Vec::new());
    let (be, ba) = (e.read(at, 1, &mut be)?, a.read(at, 1, &mut ba)?);
    let mut c = Chunk::new();
    pair.fill(be, ba, 1, &mut c);
    let finite = c.e[0].is_finite() && c.a[0].is_finite();
    let abs = c.d[0].abs();
    Ok(Element {
        index: indices(e.dims(), at),
        expected: value(pair.e, be),
        actual: value(pair.a, ba),
        abs,
        rel: (finite && c.e[0] != 0.0).then(|| abs / c.e[0].abs()),
        ulp: match pair.ulps {
            _ if !finite => None,
            Ulps::None => None,
            Ulps::Narrow => Some(c.u[0] as u64),
            Ulps::Wide => Some(c.w[0]),
        },
    })
}
