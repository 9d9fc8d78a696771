//! One pass over a pair of tensors, in blocks, by several workers.

mod gather;
#[cfg(target_arch = "x86_64")]
mod whole;
mod worker;

use crate::bytes::{self, Bytes};
use crate::decode::{CHUNK, Pair};
use crate::metrics::Metrics;
use crate::pick::Plan;
use crate::{select, top};
pub(crate) use gather::{Gathered, indices};
use scalify_tensors::{Tensor, TensorError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use worker::Worker;

/// Elements a worker reads at a time.
pub(crate) const BLOCK: usize = 64 * CHUNK;

/// Up to this number of elements percentiles are exact without being asked.
const EXACT: u64 = 1 << 24;

/// From this number of elements on, pairs of bytes are counted.
pub(crate) const MANY: u64 = 1 << 20;

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Absolute tolerance; also the magnitude above which an element has a
    /// relative error. Not negative.
    pub atol: f64,
    /// Relative tolerance.
    pub rtol: f64,
    /// Distance in units in the last place that is still counted as close.
    pub ulp: u64,
    /// How many of the worst elements to name.
    pub worst: usize,
    /// Exact percentiles at any size, which takes longer; they are exact for up
    /// to 2^24 elements anyway.
    pub exact_percentiles: bool,
    /// Workers, at least 1.
    pub threads: usize,
    /// Bound of the error of each element.
    pub bound: Option<Bound<'a>>,
    /// Axis along which largest elements are compared; negative ones count
    /// from the last.
    pub axis: Option<i64>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            atol: 0.0,
            rtol: 0.0,
            ulp: 0,
            worst: 5,
            exact_percentiles: false,
            threads: 1,
            bound: None,
            axis: None,
        }
    }
}

/// A bound of the error.
#[derive(Clone, Copy, Debug)]
pub enum Bound<'a> {
    /// A factor times a tensor of the same sizes.
    Of(&'a Tensor, f64),
    /// A factor times `|expected|`.
    OfExpected(f64),
}

/// Measures `actual` against `expected`, which must have the same sizes.
///
/// # Errors
/// Unreadable files, sizes that differ, no such axis.
pub fn measure(expected: &Tensor, actual: &Tensor, o: &Options) -> Result<Metrics, TensorError> {
    let same = |t: &Tensor, what: &str| {
        if t.dims() == expected.dims() {
            return Ok(());
        }
        Err(TensorError::Request {
            name: what.into(),
            message: format!("sizes {:?}", t.dims()),
            expected: format!("{:?}", expected.dims()),
        })
    };
    same(actual, "actual tensor")?;
    if let Some(Bound::Of(t, _)) = o.bound {
        same(t, "bound")?;
    }
    let pair = Pair::new(expected.dtype(), actual.dtype());
    let bytes = Bytes::handles(&pair) && o.bound.is_none() && o.worst <= bytes::KEPT;
    let mut m = if bytes && expected.len() >= MANY {
        let add = |w: &mut Bytes, at, e: &[u8], a: &[u8], mapped| {
            w.add(at, e, a, mapped);
            Ok(())
        };
        let workers = scan(expected, actual, o.threads, |_| Bytes::new(&pair, o), add)?;
        let (all, errors) = bytes::settle(&pair, o, workers);
        let mut m = all.finish(expected, actual, pair, o)?;
        m.percentiles = select::of_counts(&errors);
        m
    } else {
        general(expected, actual, pair, o)?
    };
    if let Some(axis) = o.axis {
        m.top = Some(top::agreement(expected, actual, axis, o.threads)?);
    }
    Ok(m)
}

/// [`measure`] without agreement along an axis, for any types.
pub(crate) fn general(
    e: &Tensor,
    a: &Tensor,
    pair: Pair,
    o: &Options,
) -> Result<Metrics, TensorError> {
    let exact = o.exact_percentiles || e.len() <= EXACT;
    let plan = if exact { Plan::new(e, a, &pair)? } else { None };
    let new = |small| Worker::new(pair, o, small, plan.as_ref());
    let workers = scan(e, a, o.threads, new, Worker::block)?;
    let mut all = Gathered::default();
    let mut picks = Vec::new();
    for mut w in workers {
        picks.extend(w.pick.take().map(|p| *p));
        all.take(w, o.worst);
    }
    let mut m = all.finish(e, a, pair, o)?;
    let picked = plan.map(|plan| (plan, picks));
    select::percentiles(e, a, &mut m, exact, picked, o.threads)?;
    Ok(m)
}

/// Bytes of each tensor mapped at a time.
const WINDOW: u64 = 1 << 21;

/// Hands runs of whole blocks (the last one may be shorter) to workers until
/// there are none, as first element, bytes of both, and "mapped?"; the first
/// error ends it.
pub(crate) fn scan<W: Send>(
    expected: &Tensor,
    actual: &Tensor,
    threads: usize,
    new: impl Fn(bool) -> W + Sync,
    block: impl Fn(&mut W, u64, &[u8], &[u8], bool) -> Result<(), TensorError> + Sync,
) -> Result<Vec<W>, TensorError> {
    let len = expected.len();
    let blocks = len.div_ceil(BLOCK as u64);
    let bytes = expected.dtype().literal_bytes().max(actual.dtype().literal_bytes()) as u64;
    // Enough runs to keep all workers busy to the end.
    let run = (WINDOW / (BLOCK as u64 * bytes)).min(blocks / (4 * threads.max(1) as u64)).max(1);
    let next = AtomicU64::new(0);
    let error = Mutex::new(None);
    let work = || {
        let mut w = new(blocks <= 1);
        let (mut be, mut ba) = (Vec::new(), Vec::new());
        loop {
            let b = next.fetch_add(run, Ordering::Relaxed);
            if b >= blocks {
                return w;
            }
            let at = b * BLOCK as u64;
            let n = (len - at).min(run * BLOCK as u64) as usize;
            let mut all = || -> Result<(), TensorError> {
                if let (Some(e), Some(a)) = (expected.map(at, n), actual.map(at, n)) {
                    block(&mut w, at, e.bytes(), a.bytes(), true)?;
                    e.check()?;
                    return a.check();
                }
                for at in (at..at + n as u64).step_by(BLOCK) {
                    let n = (len - at).min(BLOCK as u64) as usize;
                    let (e, a) = (expected.read(at, n, &mut be)?, actual.read(at, n, &mut ba)?);
                    block(&mut w, at, e, a, false)?;
                }
                Ok(())
            };
            if let Err(e) = all() {
                next.store(blocks, Ordering::Relaxed);
                error.lock().unwrap_or_else(|p| p.into_inner()).get_or_insert(e);
                return w;
            }
        }
    };
    let n = threads.clamp(1, 256).min(blocks.max(1) as usize);
    let all = if n == 1 {
        vec![work()]
    } else {
        std::thread::scope(|s| {
            let run: Vec<_> = (0..n).map(|_| s.spawn(work)).collect();
            // A worker panics only if there is a fault in this crate.
            run.into_iter().filter_map(|h| h.join().ok()).collect()
        })
    };
    match error.into_inner().unwrap_or_else(|p| p.into_inner()) {
        Some(e) => Err(e),
        None if all.len() < n => Err(TensorError::Request {
            name: "comparison".into(),
            message: "a worker failed".into(),
            expected: "no fault in the program".into(),
        }),
        None => Ok(all),
    }
}

/// Position and size of a maximum; the first position wins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Max<T> {
    pub(crate) size: T,
    pub(crate) at: u64,
}

impl<T: PartialOrd + Copy> Max<T> {
    pub(crate) fn take(&mut self, o: Max<T>) {
        if o.size > self.size || o.size == self.size && o.at < self.at {
            *self = o;
        }
    }
}

/// Adds `x` to a list of the largest, largest first, the first of equals
/// first.
pub(crate) fn insert(list: &mut Vec<Max<f64>>, keep: usize, x: Max<f64>) {
    let at = list.partition_point(|y| y.size > x.size || y.size == x.size && y.at < x.at);
    if at < keep {
        list.insert(at, x);
        list.truncate(keep);
    }
}
