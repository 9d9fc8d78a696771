//! Where a program repeats itself: runs of segments that do the same, one
//! after another.

use super::flow::{Flow, What};
use rustc_hash::FxHashMap;
use scalify_ir::Opcode;

/// Fewest values of a segment.
const MIN_PERIOD: usize = 8;
/// Fewest segments of a run.
const MIN_COUNT: usize = 4;
/// Periods tried per position.
const MAX_TRIES: usize = 48;

/// Comparisons per value, at most.
const MAX_WORK: usize = 64;

/// A run of equal segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Position of the first segment's first value in [`Split::order`].
    pub(super) start: usize,
    /// Values per segment.
    pub(super) period: usize,
    /// Segments.
    pub(super) count: usize,
}

/// A program cut into segments and the gaps between runs.
pub(super) struct Split {
    /// Nodes that depend on inputs, inputs left out, in program order.
    pub(super) order: Vec<u32>,
    pub(super) runs: Vec<Run>,
    /// Per node: its part; gap and segments are numbered in program order.
    /// `u32::MAX` for inputs and what does not depend on any.
    pub(super) part: Vec<u32>,
    /// Per part: the run and the segment in it; `None` for a gap.
    pub(super) parts: Vec<Option<(usize, usize)>>,
    /// Per node: used in another part.
    pub(super) crosses: Vec<bool>,
}

/// Cuts a program.
pub(super) fn split(f: &Flow<'_>) -> Split {
    let order: Vec<u32> = (0..f.nodes.len() as u32)
        .filter(|&n| {
            let x = &f.nodes[n as usize];
            x.open && matches!(x.what, What::Instr(_))
        })
        .collect();
    let mut at = vec![usize::MAX; f.nodes.len()];
    for (k, &n) in order.iter().enumerate() {
        at[n as usize] = k;
    }
    let kinds: Vec<u32> = order.iter().map(|&n| f.nodes[n as usize].kind).collect();
    let mut runs = find(&kinds);
    let last = last_uses(f, &order, &at);
    for r in &mut runs {
        settle(r, &last);
    }
    let mut part = vec![u32::MAX; f.nodes.len()];
    let mut parts = Vec::new();
    let mut k = 0;
    let mut fill = |range: std::ops::Range<usize>, what: Option<(usize, usize)>| {
        if !range.is_empty() {
            for &n in &order[range] {
                part[n as usize] = parts.len() as u32;
            }
            parts.push(what);
        }
    };
    for (i, r) in runs.iter().enumerate() {
        fill(k..r.start, None);
        for s in 0..r.count {
            fill(r.start + s * r.period..r.start + (s + 1) * r.period, Some((i, s)));
        }
        k = r.start + r.count * r.period;
    }
    fill(k..order.len(), None);
    let mut crosses = vec![false; f.nodes.len()];
    for &n in &order {
        for &o in &f.nodes[n as usize].operands {
            // Broadcasts are made anew on the other side.
            let mut o = o;
            while f.opcode(o) == Some(Opcode::Broadcast) {
                o = f.nodes[o as usize].operands[0];
            }
            if part[o as usize] != u32::MAX && part[o as usize] != part[n as usize] {
                crosses[o as usize] = true;
            }
        }
    }
    Split { order, runs, part, parts, crosses }
}

/// Runs of a sequence, each as long as it goes, from the front.
fn find(s: &[u32]) -> Vec<Run> {
    let n = s.len();
    let mut next = vec![usize::MAX; n];
    let mut seen: FxHashMap<u32, usize> = FxHashMap::default();
    for i in (0..n).rev() {
        if let Some(k) = seen.insert(s[i], i) {
            next[i] = k;
        }
    }
    let mut out = Vec::new();
    let mut work = MAX_WORK * n;
    let mut i = 0;
    while i < n && work > 0 {
        let mut found = None;
        let mut k = next[i];
        let mut tries = 0;
        while k < n && tries < MAX_TRIES {
            let p = k - i;
            tries += 1;
            if p >= MIN_PERIOD {
                if i + (MIN_COUNT - 1) * p > n {
                    break;
                }
                let same = s[k..].iter().zip(&s[i..]).take_while(|(a, b)| a == b).count();
                work = work.saturating_sub(same);
                let count = (same + p) / p;
                if count >= MIN_COUNT {
                    found = Some(Run { start: i, period: p, count });
                    i = k + same;
                    break;
                }
            }
            k = next[k];
        }
        match found {
            Some(r) => out.push(Run { count: (i - r.start) / r.period, ..r }),
            None => i += 1,
        }
    }
    out
}

/// Position of each value's last user.
fn last_uses(f: &Flow<'_>, order: &[u32], at: &[usize]) -> Vec<usize> {
    let mut last: Vec<usize> = (0..order.len()).collect();
    for (k, &n) in order.iter().enumerate() {
        for &o in &f.nodes[n as usize].operands {
            if let Some(l) = last.get_mut(at[o as usize]) {
                *l = (*l).max(k);
            }
        }
    }
    last
}

/// Moves the borders of segments to where the fewest values cross them.
fn settle(r: &mut Run, last: &[usize]) {
    let (p, end) = (r.period, r.start + r.count * r.period);
    let from = r.start + (r.count / 2) * p;
    let mut change = vec![0i64; p + 1];
    for v in from.saturating_sub(2 * p).max(r.start)..from + p {
        // Uses beyond the next segment cross whatever the border.
        if last[v] >= (v + 2 * p).min(end) {
            continue;
        }
        let (a, b) = ((v + 1).max(from), last[v].min(from + p - 1));
        if a <= b {
            change[a - from] += 1;
            change[b + 1 - from] -= 1;
        }
    }
    let mut width = 0;
    let mut best = (i64::MAX, 0);
    for (k, c) in change[..p].iter().enumerate() {
        width += c;
        if width < best.0 {
            best = (width, k);
        }
    }
    if best.1 > 0 {
        r.start += best.1;
        r.count -= 1;
    }
}
