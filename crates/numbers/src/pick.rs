//! Errors at the wanted ranks, collected while both tensors are read for all
//! other metrics.
//!
//! A sample says between which errors each percentile most probably lies. All
//! errors of these ranges are collected, and those from each range on are
//! counted: so a rank that is indeed in its range is answered exactly. For what
//! is not, [`crate::select`] reads the tensors again.

use crate::decode::{CHUNK, Pair, parts};
use crate::filter::{Filter, Index, RANGES, class, infinity};
use crate::select::PERCENT;
use scalify_ir::DType;
use scalify_tensors::{Tensor, TensorError};
use std::ops::Range;

/// Tensors of this many elements are sampled first; smaller ones are read again
/// at little cost, larger ones would have too much collected.
const LENGTHS: Range<u64> = 1 << 17..(1 << 26) + 1;

/// Elements next to one another in the sample, and places with so many.
const RUN: usize = 256;
const PLACES: Range<u64> = 32..256;

/// Elements of the tensor for one of the sample.
const SHARE: u64 = 16;

/// Standard errors of a percentile of the sample that a range extends to both
/// sides.
const WIDTH: f64 = 4.0;

/// A range for each; the last one has no upper end.
const _: () = assert!(PERCENT.len() == RANGES);

/// Largest share of the sample that may be in ranges.
const MOST: f64 = 0.125;

/// Errors that one worker collects at most.
const CAP: usize = 1 << 21;

/// Ranges of errors to collect, none with an error of zero.
#[derive(Clone)]
pub(crate) struct Plan(Filter);

/// What a worker has collected.
pub(crate) struct Pick {
    filter: Filter,
    /// Errors from the lower end of each range on.
    from: [u64; RANGES],
    /// Errors in each range, as bits of `f64`.
    errors: [Vec<u64>; RANGES],
    index: Index,
    full: bool,
}

/// Places of the sample: first elements, one in each of equal parts of the
/// tensor.
fn places(len: u64) -> impl Iterator<Item = u64> {
    let n = (len / (SHARE * RUN as u64)).clamp(PLACES.start, PLACES.end);
    let part = len / n;
    let mut s = 0x9e37_79b9_7f4a_7c15u64;
    (0..n).map(move |i| {
        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        i * part + (s >> 33) % (part - RUN as u64)
    })
}

impl Plan {
    /// Plans from a sample of both tensors; `None` if reading them again is
    /// better.
    pub(crate) fn new(e: &Tensor, a: &Tensor, pair: &Pair) -> Result<Option<Plan>, TensorError> {
        if pair.e != pair.a || !Filter::handles(pair.e) || !LENGTHS.contains(&e.len()) {
            return Ok(None);
        }
        let mut runs: Vec<Vec<u64>> = Vec::new();
        let (mut be, mut ba) = (Vec::new(), Vec::new());
        let size = pair.e.literal_bytes();
        for at in places(e.len()) {
            let (x, y) = (e.read(at, RUN, &mut be)?, a.read(at, RUN, &mut ba)?);
            let pairs = x.chunks(size).zip(y.chunks(size));
            let value = |b| parts(pair.e, b, 0).0;
            let all = pairs.map(|(x, y)| class(pair.e, value(x), value(y)));
            runs.push(all.filter(|&c| c < infinity(pair.e)).collect());
        }
        Ok(ranges(pair.e, &runs))
    }
}

/// Ranges from the classes of runs of neighbours.
fn ranges(t: DType, runs: &[Vec<u64>]) -> Option<Plan> {
    let mut all: Vec<u64> = runs.concat();
    let n = all.len();
    if n < RUN {
        return None;
    }
    all.sort_unstable();
    let at = |rank: f64| all[(rank.max(0.0) as usize).min(n - 1)];
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (k, percent) in PERCENT.iter().enumerate() {
        let p = percent / 100.0;
        let middle = at(p * n as f64);
        // Neighbours may be alike: so runs are what is independent.
        let mut square = 0.0;
        for r in runs {
            let below = r.iter().filter(|&&c| c <= middle).count() as f64;
            square += (below - p * r.len() as f64).powi(2);
        }
        let error = square.max(n as f64 * p * (1.0 - p)).sqrt();
        let low = at(p * n as f64 - WIDTH * error - 2.0).max(1);
        let high = at(p * n as f64 + WIDTH * error + 2.0) + 1;
        let last = k == RANGES - 1;
        if high <= 1 && !last {
            continue;
        }
        let high = if last { infinity(t) } else { high };
        match ranges.last_mut() {
            Some(r) if r.end >= low => r.end = high,
            _ => ranges.push(low..high),
        }
    }
    let within = all.iter().filter(|c| ranges.iter().any(|r| r.contains(c))).count();
    if within as f64 > MOST * n as f64 {
        return None;
    }
    Some(Plan(Filter::new(t, &ranges)))
}

impl Pick {
    pub(crate) fn new(plan: &Plan) -> Pick {
        Pick {
            filter: plan.0.clone(),
            from: [0; RANGES],
            errors: [const { Vec::new() }; RANGES],
            index: [0; CHUNK + 16],
            full: false,
        }
    }

    /// Takes up to a chunk of pairs.
    pub(crate) fn add(&mut self, e: &[u8], a: &[u8]) {
        if self.full {
            return;
        }
        let (f, errors) = (&self.filter, &mut self.errors);
        let mut put = |_, range: usize, error: f64| errors[range].push(error.to_bits());
        let from = if e.len() == CHUNK * f.size() {
            let (n, from) = f.run(e, a, &mut self.index);
            f.each(e, a, self.index[..n].iter().map(|&i| i as usize), &mut put);
            from
        } else {
            f.each(e, a, 0..e.len() / f.size(), &mut put);
            f.run_few(e, a)
        };
        self.from.iter_mut().zip(from).for_each(|(all, n)| *all += n as u64);
        self.full = self.errors.iter().map(Vec::len).sum::<usize>() > CAP;
    }
}

/// Errors of these ranks out of `finite` ones, of which so many are zero;
/// `None` unless all are among those collected. `max` is the largest error.
pub(crate) fn settle(
    plan: &Plan,
    picks: Vec<Box<Pick>>,
    ranks: &[u64],
    finite: u64,
    zeros: u64,
    max: f64,
) -> Option<Vec<f64>> {
    if !Filter::covers(plan.0.dtype(), max) || picks.iter().any(|p| p.full) {
        return None;
    }
    let mut from = [0; RANGES];
    let mut errors = [const { Vec::new() }; RANGES];
    for p in picks {
        for k in 0..RANGES {
            from[k] += p.from[k];
        }
        for (all, more) in errors.iter_mut().zip(p.errors) {
            if all.is_empty() { *all = more } else { all.extend(more) }
        }
    }
    let one = |rank: u64| {
        if rank < zeros {
            return Some(0.0);
        }
        for (from, errors) in from.iter().zip(&mut errors) {
            // As many are below as are not from there on.
            let within = rank.checked_sub(finite.checked_sub(*from)?);
            let Some(within) = within.filter(|&w| w < errors.len() as u64) else { continue };
            return Some(f64::from_bits(*errors.select_nth_unstable(within as usize).1));
        }
        None
    };
    ranks.iter().copied().map(one).collect()
}
