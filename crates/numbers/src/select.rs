//! Percentiles of the absolute error: read off the histogram, or exact, from
//! what [`crate::pick`] collected or else by passes that narrow down the values
//! at the wanted ranks.

use crate::decode::{CHUNK, Chunk, Pair};
use crate::engine::scan;
use crate::filter::{self, Filter};
use crate::metrics::{Metrics, Percentiles};
use crate::near;
use crate::pick::{self, Pick, Plan};
use multiversion::multiversion;
use scalify_ir::DType;
use scalify_tensors::{Tensor, TensorError};

pub(crate) const PERCENT: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Values collected by one pass at most.
const GATHER: u64 = 1 << 22;

/// Parts a range with more values is split into.
const PARTS: u32 = 16;

/// A range of bit patterns of errors (ordered like the errors), and the ranks
/// wanted from it.
#[derive(Clone)]
struct Range {
    lo: u64,
    hi: u64,
    count: u64,
    /// Rank in the range, place in the result.
    ranks: Vec<(u64, usize)>,
    /// Split by this shift, or collect.
    split: Option<u32>,
}

/// Rank below a percentile, and how far it lies towards the next.
fn place(n: u64, percent: f64) -> (u64, f64) {
    let at = (n - 1) as f64 * (percent / 100.0);
    let below = at.floor();
    (below as u64, at - below)
}

fn between(a: f64, b: f64, t: f64) -> f64 {
    if a == b {
        return a;
    }
    let d = b - a;
    if t >= 0.5 { b - d * (1.0 - t) } else { a + d * t }
}

/// Of errors with their counts, by growing error.
pub(crate) fn of_counts(errors: &[(f64, u64)]) -> Percentiles {
    let n: u64 = errors.iter().map(|x| x.1).sum();
    let at = |rank: u64| {
        let mut before = 0;
        let mut all = errors.iter();
        let found = all.find(|x| {
            before += x.1;
            rank < before
        });
        found.map_or(0.0, |x| x.0)
    };
    let of = |percent| {
        if n == 0 {
            return 0.0;
        }
        let (below, t) = place(n, percent);
        between(at(below.min(n - 1)), at((below + 1).min(n - 1)), t)
    };
    let [p50, p90, p99, p99_9] = PERCENT.map(of);
    Percentiles { p50, p90, p99, p99_9, exact: true }
}

pub(crate) fn percentiles(
    e: &Tensor,
    a: &Tensor,
    m: &mut Metrics,
    exact: bool,
    picked: Option<(Plan, Vec<Pick>)>,
    threads: usize,
) -> Result<(), TensorError> {
    let n = m.finite_pairs;
    if n == 0 {
        m.percentiles = Percentiles { exact: true, ..Percentiles::default() };
        return Ok(());
    }
    let ranks: Vec<u64> = PERCENT
        .iter()
        .flat_map(|&p| {
            let below = place(n, p).0;
            [below.min(n - 1), (below + 1).min(n - 1)]
        })
        .collect();
    let bins = m.histogram.errors();
    let mut found = vec![0.0; ranks.len()];
    let mut ranges: Vec<Range> = Vec::new();
    for (slot, &rank) in ranks.iter().enumerate() {
        let mut before = 0;
        for &((lo, hi), count) in &bins {
            if rank < before + count {
                let within = rank - before;
                if hi == 0.0 {
                    break;
                }
                // The largest is known, and no value exceeds it.
                let hi_open = hi.min(m.max_abs);
                let share = (within as f64 + 0.5) / count as f64;
                found[slot] = if rank == n - 1 { m.max_abs } else { lo + (hi_open - lo) * share };
                let hi_bits = if hi.is_infinite() { hi.to_bits() + 1 } else { hi.to_bits() };
                match ranges.last_mut() {
                    Some(r) if r.lo == lo.to_bits() => r.ranks.push((within, slot)),
                    _ => ranges.push(Range {
                        lo: lo.to_bits(),
                        hi: hi_bits,
                        count,
                        ranks: vec![(within, slot)],
                        split: None,
                    }),
                }
                break;
            }
            before += count;
        }
    }
    let zeros = m.histogram.zeros;
    let picked = picked.and_then(|(p, all)| pick::settle(&p, &all, &ranks, n, zeros, m.max_abs));
    if let Some(picked) = picked {
        found = picked;
    } else if exact {
        while !ranges.is_empty() {
            ranges = narrow(e, a, ranges, m.max_abs, &mut found, threads)?;
        }
    }
    let at = |i: usize| between(found[2 * i], found[2 * i + 1], place(n, PERCENT[i]).1);
    m.percentiles = Percentiles { p50: at(0), p90: at(1), p99: at(2), p99_9: at(3), exact };
    Ok(())
}

/// What a worker collects of each range.
enum Seen {
    Values(Vec<f64>),
    Counts(Counts),
}

/// Counts of parts of a range, and the least and the largest seen, as bits.
#[derive(Clone)]
struct Counts {
    parts: Vec<u64>,
    least: u64,
    most: u64,
}

impl Counts {
    fn new(parts: usize) -> Counts {
        Counts { parts: vec![0; parts], least: u64::MAX, most: 0 }
    }

    fn add(&mut self, o: &Counts) {
        self.parts.iter_mut().zip(&o.parts).for_each(|(n, m)| *n += m);
        self.least = self.least.min(o.least);
        self.most = self.most.max(o.most);
    }
}

impl Range {
    fn parts(&self) -> usize {
        self.split.map_or(0, |s| ((self.hi - self.lo - 1) >> s) as usize + 1)
    }

    /// Collects or counts an error, given by its bits.
    #[inline(always)]
    fn see(&self, bits: u64, s: &mut Seen) {
        if bits < self.lo || bits >= self.hi {
            return;
        }
        match (s, self.split) {
            (Seen::Values(v), _) => v.push(f64::from_bits(bits)),
            (Seen::Counts(c), Some(shift)) => {
                c.parts[((bits - self.lo) >> shift) as usize] += 1;
                c.least = c.least.min(bits);
                c.most = c.most.max(bits);
            }
            _ => {}
        }
    }
}

/// A filter for all errors in some ranges, and a few more; `None` if there is
/// none for the type, or for errors up to `max`.
fn filter_of(t: DType, ranges: &[Range], max: f64) -> Option<Filter> {
    if !Filter::handles(t) || !Filter::covers(t, max) {
        return None;
    }
    let class = |x: u64| filter::class(t, 0.0, f64::from_bits(x).min(f64::MAX));
    let mut all: Vec<std::ops::Range<u32>> = Vec::new();
    for r in ranges {
        // Errors of zero are not asked for; whatever roundings do.
        let low = class(r.lo).saturating_sub(1);
        let high = (class(r.hi) + 2).min(filter::infinity(t));
        match all.last_mut() {
            Some(x) if x.end >= low => x.end = high.max(x.end),
            _ => all.push(low..high),
        }
    }
    // Between ranks next to one another there is nothing.
    while all.len() > filter::RANGES {
        let gap = |i: &usize| all[i + 1].start - all[*i].end;
        let i = (0..all.len() - 1).min_by_key(gap)?;
        all[i].end = all.remove(i + 1).end;
    }
    Some(Filter::new(t, &all))
}

/// Marks errors in any of some ranges, given by begin and length.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
fn mark(d: &[f64; CHUNK], ranges: &[(u64, u64)], flags: &mut [u8; CHUNK]) {
    flags.fill(0);
    for &(lo, len) in ranges {
        for i in 0..CHUNK {
            flags[i] |= (d[i].abs().to_bits().wrapping_sub(lo) < len) as u8;
        }
    }
}

/// One pass: answers what it can and returns smaller ranges for the rest. `max`
/// is the largest error.
fn narrow(
    e: &Tensor,
    a: &Tensor,
    mut ranges: Vec<Range>,
    max: f64,
    found: &mut [f64],
    threads: usize,
) -> Result<Vec<Range>, TensorError> {
    ranges.retain(|r| {
        let one = r.hi - r.lo == 1;
        if one {
            r.ranks.iter().for_each(|&(_, slot)| found[slot] = f64::from_bits(r.lo));
        }
        !one
    });
    if ranges.is_empty() {
        return Ok(ranges);
    }
    let mut room = GATHER;
    for r in &mut ranges {
        r.split = if r.count <= room {
            room -= r.count;
            None
        } else {
            Some((64 - (r.hi - r.lo).leading_zeros()).saturating_sub(PARTS))
        };
    }
    let pair = Pair::new(e.dtype(), a.dtype());
    let limits: Vec<(u64, u64)> = ranges.iter().map(|r| (r.lo, r.hi - r.lo)).collect();
    let same = e.dtype() == a.dtype();
    let filter = if same { filter_of(e.dtype(), &ranges, max) } else { None };
    let fresh = |_| {
        let seen = |r: &Range| match r.split {
            None => Seen::Values(Vec::new()),
            Some(_) => Seen::Counts(Counts::new(r.parts())),
        };
        let seen: Vec<Seen> = ranges.iter().map(seen).collect();
        (Chunk::new(), seen)
    };
    let block = |w: &mut (Box<Chunk>, Vec<Seen>), _, be: &[u8], ba: &[u8], _| {
        let (se, sa) = (e.dtype().literal_bytes(), a.dtype().literal_bytes());
        let mut flags = [0u8; CHUNK];
        let (mut index, mut some) = ([0; CHUNK + 16], Vec::new());
        for (x, y) in be.chunks(CHUNK * se).zip(ba.chunks(CHUNK * sa)) {
            // What is equal has no error.
            if same && x == y {
                continue;
            }
            let n = x.len() / se;
            let (c, seen) = (&mut *w.0, &mut w.1);
            if let (Some(f), CHUNK) = (&filter, n) {
                let (n, _) = f.run(x, y, &mut index);
                some.clear();
                f.errors(x, y, &index[..n], &mut some);
                for &bits in &some {
                    ranges.iter().zip(&mut *seen).for_each(|(r, s)| r.see(bits, s));
                }
                continue;
            }
            if pair.fill_floats(x, y, c).is_none() {
                pair.fill(x, y, n, c);
            }
            mark(&c.d, &limits, &mut flags);
            near::each(&flags, |i| {
                let bits = c.d[i].abs().to_bits();
                if i >= n || bits == 0 || !c.e[i].is_finite() || !c.a[i].is_finite() {
                    return;
                }
                ranges.iter().zip(&mut *seen).for_each(|(r, s)| r.see(bits, s));
            });
        }
        Ok(())
    };
    let workers = scan(e, a, threads, fresh, block)?;
    let mut rest: Vec<Range> = Vec::new();
    for (i, r) in ranges.iter().enumerate() {
        let mut values = Vec::new();
        let mut counts = Counts::new(r.parts());
        for (_, seen) in &workers {
            match seen.get(i) {
                Some(Seen::Values(v)) => values.extend_from_slice(v),
                Some(Seen::Counts(c)) => counts.add(c),
                None => {}
            }
        }
        let Some(shift) = r.split else {
            for &(rank, slot) in &r.ranks {
                // Fewer only if the file changed meanwhile.
                if (rank as usize) < values.len() {
                    let at = values.select_nth_unstable_by(rank as usize, f64::total_cmp);
                    found[slot] = *at.1;
                }
            }
            continue;
        };
        for &(rank, slot) in &r.ranks {
            let mut before = 0;
            for (k, &count) in counts.parts.iter().enumerate() {
                if rank < before + count {
                    let lo = r.lo + ((k as u64) << shift);
                    let hi = (lo + (1 << shift)).min(r.hi).min(counts.most + 1);
                    let lo = lo.max(counts.least);
                    let ranks = vec![(rank - before, slot)];
                    match rest.last_mut() {
                        Some(r) if r.lo == lo => r.ranks.extend(ranks),
                        _ => rest.push(Range { lo, hi, count, ranks, split: None }),
                    }
                    break;
                }
                before += count;
            }
        }
    }
    Ok(rest)
}
