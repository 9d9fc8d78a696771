//! Finds consecutive isomorphic segments in a sequence of items.

use rustc_hash::FxHashMap;

/// A run of `count` equal segments of `period` items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) period: usize,
    pub(crate) count: usize,
}

/// Periods that are tried.
const CANDIDATES: usize = 8;

/// Runs of the period that covers most, first to last. `keys` tell items
/// apart, `preds` are the positions each item reads.
pub(crate) fn runs(keys: &[u64], preds: &[Vec<u32>], cross: &[u32]) -> Vec<Run> {
    let n = keys.len();
    let mut last: FxHashMap<u64, usize> = FxHashMap::default();
    let mut periods: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, k) in keys.iter().enumerate() {
        if let Some(j) = last.insert(*k, i) {
            *periods.entry(i - j).or_insert(0) += 1;
        }
    }
    let mut candidates: Vec<(usize, usize)> = periods.into_iter().collect();
    candidates.sort_unstable_by_key(|&(p, c)| (std::cmp::Reverse(c), p));
    candidates.truncate(CANDIDATES);
    let mut best: (usize, usize, Vec<Run>) = (0, 0, Vec::new());
    for (period, _) in candidates {
        let found = of_period(keys, preds, cross, period, n);
        let covered: usize = found.iter().map(|r| r.period * r.count).sum();
        if covered > best.0 || (covered == best.0 && period < best.1) {
            best = (covered, period, found);
        }
    }
    best.2
}

fn of_period(keys: &[u64], preds: &[Vec<u32>], cross: &[u32], p: usize, n: usize) -> Vec<Run> {
    let least = if p < 4 { 8usize.div_ceil(p).max(3) } else { 2 };
    let mut out = Vec::new();
    let mut i = 0;
    while i + p < n {
        if keys[i] != keys[i + p] {
            i += 1;
            continue;
        }
        let start = i;
        while i + p < n && keys[i] == keys[i + p] {
            i += 1;
        }
        let end = i + p;
        if (end - start) / p >= least {
            // Segments begin where the fewest values cross.
            let slack = (end - start) % p;
            let first = (start..=start + slack).min_by_key(|&s| cross.get(s).copied().unwrap_or(0));
            let first = first.unwrap_or(start);
            let count = (end - first) / p;
            let inner = |t: usize| -> Vec<(usize, usize)> {
                let from = first + t * p;
                let mut v: Vec<(usize, usize)> = (0..p)
                    .flat_map(|k| {
                        let ps = preds.get(from + k).map_or(&[][..], |v| v);
                        ps.iter()
                            .map(|&q| q as usize)
                            .filter(move |&q| q >= from)
                            .map(move |q| (k, q - from))
                    })
                    .collect();
                v.sort_unstable();
                v
            };
            let mut t = 0;
            while t < count {
                let edges = inner(t);
                let mut to = t + 1;
                while to < count && inner(to) == edges {
                    to += 1;
                }
                if to - t >= least {
                    out.push(Run { start: first + t * p, period: p, count: to - t });
                }
                t = to;
            }
        }
        i = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_layers() {
        // Prologue, five layers of four items, epilogue.
        let mut keys = vec![100, 101];
        for _ in 0..5 {
            keys.extend([1, 2, 3, 4]);
        }
        keys.push(102);
        let preds: Vec<Vec<u32>> =
            (0..keys.len() as u32).map(|i| if i > 0 { vec![i - 1] } else { vec![] }).collect();
        let cross = vec![1; keys.len()];
        assert_eq!(runs(&keys, &preds, &cross), [Run { start: 2, period: 4, count: 5 }]);
    }

    #[test]
    fn other_wiring_is_no_repeat() {
        let keys = [1, 2, 3, 4, 1, 2, 3, 4];
        let chain = |k: u32| if k.is_multiple_of(4) { vec![] } else { vec![k - 1] };
        let mut preds: Vec<Vec<u32>> = (0..8).map(chain).collect();
        let cross = [0; 8];
        assert_eq!(runs(&keys, &preds, &cross).len(), 1);
        preds[7] = vec![4];
        assert!(runs(&keys, &preds, &cross).is_empty());
    }
}
