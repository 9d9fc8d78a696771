//! Errors at the wanted ranks, collected while both tensors are read for all
//! other metrics.
//!
//! A sample says between which errors each percentile most probably lies. All
//! errors of these ranges are collected, and those from each range on are
//! counted: so a rank that is indeed in its range is answered exactly. For what
//! is not, [`crate::select`] reads the tensors again.

use crate::decode::{CHUNK, Pair, values};
use crate::filter::{Filter, Index, RANGES, class, infinity, middle};
use crate::select::PERCENT;
use scalify_ir::DType;
use scalify_tensors::{Tensor, TensorError};
use std::ops::Range;

/// Tensors of this many elements are sampled first; smaller ones are read again
/// at little cost, of larger ones too much would be collected.
const LENGTHS: Range<u64> = 1 << 17..(1 << 26) + 1;

/// Elements next to one another in the sample, and places of such.
const RUN: usize = 512;
const PLACES: [u64; 2] = [32, 384];

/// Elements of the tensor for one of the sample.
const SHARE: u64 = 32;

/// A range for each; the last one has no upper end.
const _: () = assert!(PERCENT.len() == RANGES);

/// Standard errors of a percentile of the sample that a range extends to both
/// sides.
const WIDTH: f64 = 3.5;

/// Largest share of the sample that may be in ranges.
const MOST: f64 = 0.25;

/// Errors that are collected at most.
const CAP: usize = 1 << 22;

/// Parts of a range that errors are counted by, as a power of two.
const PARTS: u32 = 11;

/// Ranges of errors to collect, none with an error of zero.
#[derive(Clone)]
pub(crate) struct Plan {
    filter: Filter,
    /// Between each range and what is below, as bits of `f64`.
    cuts: [u64; RANGES],
}

/// What a worker has collected.
pub(crate) struct Pick {
    filter: Filter,
    /// Errors from the lower end of each range on.
    from: [u64; RANGES],
    /// Errors in any range, as bits of `f64`.
    errors: Vec<u64>,
    index: Index,
    full: bool,
}

/// Places of the sample: first elements, one in each of equal parts of the
/// tensor.
fn places(len: u64) -> impl Iterator<Item = u64> {
    let n = (len / (SHARE * RUN as u64)).clamp(PLACES[0], PLACES[1]);
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
        let t = pair.e;
        if t != pair.a || !Filter::handles(t) || !LENGTHS.contains(&e.len()) {
            return Ok(None);
        }
        let mut runs: Vec<Vec<u32>> = Vec::new();
        let (mut be, mut ba) = (Vec::new(), Vec::new());
        let (mut x, mut y) = ([0.0; RUN], [0.0; RUN]);
        for at in places(e.len()) {
            values(t, e.read(at, RUN, &mut be)?, &mut x);
            values(t, a.read(at, RUN, &mut ba)?, &mut y);
            let all = x.iter().zip(&y).map(|(&x, &y)| class(t, x, y));
            runs.push(all.filter(|&c| c < infinity(t)).collect());
        }
        Ok(plan(t, &runs, e.len()))
    }
}

/// From the classes of runs of neighbours out of `len` elements.
fn plan(t: DType, runs: &[Vec<u32>], len: u64) -> Option<Plan> {
    // How many are up to each class.
    let mut sums = vec![0u32; infinity(t) as usize];
    runs.iter().flatten().for_each(|&c| sums[c as usize] += 1);
    let mut n = 0;
    for s in &mut sums {
        n += *s;
        *s = n;
    }
    if n < RUN as u32 {
        return None;
    }
    let n = n as f64;
    let at = |rank: f64| {
        let rank = rank.clamp(0.0, n - 1.0) as u32;
        sums.partition_point(|&s| s <= rank) as u32
    };
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for (k, percent) in PERCENT.iter().enumerate() {
        let p = percent / 100.0;
        // Neighbours may be alike: so runs are what is independent.
        let middle = at(p * n);
        let share = sums[middle as usize] as f64 / n;
        let square = |r: &Vec<u32>| {
            let up_to = r.iter().map(|&c| (c <= middle) as u32).sum::<u32>();
            (up_to as f64 - share * r.len() as f64).powi(2)
        };
        let error = runs.iter().map(square).sum::<f64>().max(n * p * (1.0 - p)).sqrt();
        let width = WIDTH * error + 2.0;
        let low = at(p * n - width).max(1);
        let high = if k == RANGES - 1 { infinity(t) } else { at(p * n + width) + 1 };
        match ranges.last_mut() {
            _ if high <= low => {}
            Some(r) if r.end >= low => r.end = high,
            _ => ranges.push(low..high),
        }
    }
    let up_to = |class: u32| sums[class as usize - 1];
    let within: u32 = ranges.iter().map(|r| up_to(r.end) - up_to(r.start)).sum();
    let share = within as f64 / n;
    if share > MOST || share * len as f64 > CAP as f64 {
        return None;
    }
    let mut cuts = [u64::MAX; RANGES];
    for (cut, r) in cuts.iter_mut().zip(&ranges) {
        // There is at least a class between two ranges.
        *cut = middle(t, r.start - 1).to_bits();
    }
    Some(Plan { filter: Filter::new(t, &ranges), cuts })
}

impl Pick {
    pub(crate) fn new(plan: &Plan) -> Pick {
        let filter = plan.filter.clone();
        let index = [0; CHUNK + 16];
        Pick { filter, from: [0; RANGES], errors: Vec::new(), index, full: false }
    }

    /// Takes up to a chunk of pairs.
    pub(crate) fn add(&mut self, e: &[u8], a: &[u8]) {
        if self.full {
            return;
        }
        let (f, index) = (&self.filter, &mut self.index);
        let full = e.len() == CHUNK * f.size();
        let (n, from) = if full { f.run(e, a, index) } else { f.run_few(e, a, index) };
        self.from.iter_mut().zip(from).for_each(|(all, n)| *all += n as u64);
        f.errors(e, a, &index[..n], &mut self.errors);
        self.full = self.errors.len() > CAP;
    }
}

/// Errors of these ranks, in order, out of `finite` ones, of which so many are
/// zero; `None` unless all are among those collected. `max` is the largest error.
pub(crate) fn settle(
    plan: &Plan,
    picks: &[Pick],
    ranks: &[u64],
    finite: u64,
    zeros: u64,
    max: f64,
) -> Option<Vec<f64>> {
    if !Filter::covers(plan.filter.dtype(), max) || picks.iter().any(|p| p.full) {
        return None;
    }
    let all = || picks.iter().flat_map(|p| &p.errors);
    let from: [u64; RANGES] = std::array::from_fn(|k| picks.iter().map(|p| p.from[k]).sum::<u64>());
    // Each range is counted by parts of the same width.
    let cuts = plan.cuts;
    let shifts: [u32; RANGES] = std::array::from_fn(|k| {
        let end = cuts.get(k + 1).copied().unwrap_or(u64::MAX).min(max.to_bits());
        (64 - end.saturating_sub(cuts[k]).leading_zeros()).saturating_sub(PARTS)
    });
    let part = |bits: u64| {
        let k = (1..RANGES).map(|k| (bits >= cuts[k]) as usize).sum::<usize>();
        (k << PARTS) + (bits.wrapping_sub(cuts[k]) >> shifts[k]) as usize % (1 << PARTS)
    };
    let mut counts = vec![0u64; RANGES << PARTS];
    all().for_each(|&bits| counts[part(bits)] += 1);
    // Of each rank its part, and the rank in it.
    let find = |&rank: &u64| {
        if rank < zeros {
            return Some(None);
        }
        counts.chunks(1 << PARTS).enumerate().find_map(|(k, counts)| {
            // As many are below as are not from there on.
            let mut within = rank.checked_sub(finite.checked_sub(from[k])?)?;
            let (i, _) = counts.iter().enumerate().find(|&(_, &n)| {
                let here = within < n;
                within -= if here { 0 } else { n };
                here
            })?;
            Some(Some(((k << PARTS) + i, within)))
        })
    };
    let places: Vec<Option<(usize, u64)>> = ranks.iter().map(find).collect::<Option<_>>()?;
    let mut wanted = vec![false; RANGES << PARTS];
    places.iter().flatten().for_each(|&(part, _)| wanted[part] = true);
    let mut few: Vec<u64> = all().copied().filter(|&bits| wanted[part(bits)]).collect();
    few.sort_unstable();
    let value = |place: &Option<(usize, u64)>| {
        let Some((of, within)) = *place else { return Some(0.0) };
        let before = few.partition_point(|&bits| part(bits) < of);
        few.get(before + within as usize).map(|&bits| f64::from_bits(bits))
    };
    places.iter().map(value).collect()
}
