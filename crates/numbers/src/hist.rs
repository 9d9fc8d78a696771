//! The two-dimensional histogram: error by magnitude, both logarithmic.

use crate::ahead::Ahead;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Smallest and largest binary exponent with bins of their own. They hold all
/// of `f32`; what lies beyond falls into the open bins at the ends.
const LOW: i32 = -150;
const HIGH: i32 = 130;
/// Bins of an octave of errors, as a power of two.
const SUB: u32 = 3;
const SPAN: i64 = (HIGH - LOW) as i64;
/// Bins of errors: one below, one above.
const E_BINS: i64 = (SPAN << SUB) + 2;
/// Bins of magnitudes.
const M_BINS: i64 = SPAN + 2;
/// First of the cells that zero errors are spread over: equal keys in a row
/// would wait for one another.
const ZERO: usize = (E_BINS * M_BINS) as usize;
const ZEROS: usize = 16;
/// Cells of a table.
pub(crate) const CELLS: usize = ZERO + ZEROS;

/// Cell of an error and a magnitude, neither negative nor NaN.
#[inline(always)]
pub(crate) fn key(error: f64, magnitude: f64, i: usize) -> u32 {
    let e = ((error.to_bits() >> (52 - SUB)) as i64).wrapping_sub(((1023 + LOW as i64) << SUB) - 1);
    let e = e.clamp(0, E_BINS - 1);
    let m = ((magnitude.to_bits() >> 52) as i64).wrapping_sub(1023 + LOW as i64 - 1);
    let m = m.clamp(0, M_BINS - 1);
    let cell = e.wrapping_mul(M_BINS).wrapping_add(m);
    (if error == 0.0 { (ZERO + (i & (ZEROS - 1))) as i64 } else { cell }) as u32
}

/// How [`key`] is made of the upper 32 bits of an error and a magnitude: shifts
/// to the right, what is taken off, the last bins of both; errors count rows.
pub(crate) const SHIFT: [u32; 2] = [20 - SUB, 20];
pub(crate) const FIRST: [i32; 2] = [((1023 + LOW) << SUB) - 1, 1023 + LOW - 1];
pub(crate) const LAST: [i32; 2] = [E_BINS as i32 - 1, M_BINS as i32 - 1];
pub(crate) const ROW: i32 = M_BINS as i32;

/// The cell of an error of zero.
pub(crate) fn zero_key(i: usize) -> u32 {
    (ZERO + (i & (ZEROS - 1))) as u32
}

/// Cells of [`near_key`].
const NEAR: usize = 1 << 19;

/// Cell of an error and a magnitude that are zero or normal `f32`, from their
/// bits (the sign of the error is dropped): the error down to eighths of an
/// octave, and the exponent of the magnitude.
#[inline(always)]
pub(crate) fn near_key(error: u32, magnitude: u32, i: usize) -> u32 {
    // Rows begin at different lines, or few sets of a cache would hold all.
    let e = (error << 1) >> 21;
    let key = e << 8 | (magnitude >> 23 ^ (e << 4 & 0xf0));
    // Zeros are spread: equal keys in a row would wait for one another.
    if e == 0 { i as u32 & 0xff } else { key }
}

/// The same as [`key`].
fn of_near(k: u32) -> u32 {
    let (e, m) = ((k >> 8) as i64, ((k & 0xff) ^ (k >> 4 & 0xf0)) as i64);
    if e == 0 {
        return ZERO as u32;
    }
    let e = e + ((-127 - LOW as i64) << SUB) + 1;
    let m = if m == 0 { 0 } else { m - 127 - LOW as i64 + 1 };
    (e * M_BINS + m) as u32
}

/// Cell of an error that is not above its magnitude, but if it is not zero, is
/// not below it by more than 24 octaves; otherwise as [`near_key`].
#[inline(always)]
pub(crate) fn short_key(error: u32, magnitude: u32, i: usize) -> u16 {
    let relative = (error >> 20).wrapping_sub(magnitude >> 20 & !7).wrapping_add(24 << 3);
    let key = (magnitude >> 15 & 0xff00) | relative;
    // No magnitude that is not zero has these.
    (if error == 0 { i as u32 & 0xff } else { key }) as u16
}

/// The same as [`key`].
fn of_short(k: u16) -> u32 {
    let m = (k >> 8) as u32;
    if m == 0 {
        return ZERO as u32;
    }
    let e = (m << 3).wrapping_add((k & 0xff) as u32).wrapping_sub(24 << 3) as i64;
    let e = e + ((-127 - LOW as i64) << SUB) + 1;
    (e * M_BINS + m as i64 - 127 - LOW as i64 + 1) as u32
}

/// Power of two of the distance in units in the last place of a pair in this
/// cell, if both have the same exponent and fractions of `bits`.
#[inline(always)]
pub(crate) fn short_level(k: u16, bits: u32) -> Option<usize> {
    if k < 256 {
        return None;
    }
    (((k & 0xff) as u32 >> 3) + bits).checked_sub(24).map(|n| n as usize)
}

/// Cells that are counted by [`short_key`], and what [`short_key`] adds to an
/// error's eighth of an octave and 248 times the exponent of a magnitude.
pub(crate) const SHORT: usize = (1 << 16) + SHORT_FIRST;
pub(crate) const SHORT_FIRST: usize = 24 << 3;

/// Keys that are listed before there is a table.
const LISTED: usize = 1 << 15;

/// Counts of one worker.
pub(crate) struct Table {
    /// Keys are listed, not counted.
    small: bool,
    /// Empty before the first.
    cells: Vec<u32>,
    /// Counts by [`near_key`]; empty before the first.
    near: Vec<u32>,
    /// Counts by [`short_key`]; empty before the first.
    short: Vec<u32>,
    list: Vec<u32>,
    short_list: Vec<u16>,
    /// Bits of fractions, for [`short_level`].
    bits: u32,
    levels: [u64; 32],
    /// Elements counted since the table was emptied.
    held: u64,
    sparse: BTreeMap<u32, u64>,
    zeros: u64,
}

/// Calls `f` for each count that is not zero, and sets it to zero.
fn drain(cells: &mut [u32], mut f: impl FnMut(usize, u64)) {
    for (i, some) in cells.chunks_mut(64).enumerate() {
        if some.iter().fold(0, |a, &n| a | n) == 0 {
            continue;
        }
        for (j, n) in some.iter_mut().enumerate().filter(|(_, n)| **n != 0) {
            f(i * 64 + j, *n as u64);
            *n = 0;
        }
    }
}

impl Table {
    /// `small` if only some ten thousand elements will come; `bits` of the
    /// fraction of the type if [`Table::add_short`] is used.
    pub(crate) fn new(small: bool, bits: u32) -> Table {
        Table {
            small,
            bits,
            cells: Vec::new(),
            near: Vec::new(),
            short: Vec::new(),
            list: Vec::new(),
            short_list: Vec::new(),
            levels: [0; 32],
            held: 0,
            sparse: BTreeMap::new(),
            zeros: 0,
        }
    }

    pub(crate) fn add(&mut self, keys: &[u32]) {
        // A table is large, and some pairs are left over of any tensor.
        if self.small || self.cells.is_empty() && self.list.len() < LISTED {
            self.list.extend_from_slice(keys);
            return;
        }
        if self.cells.is_empty() {
            self.cells = vec![0; CELLS];
        }
        for &k in keys {
            if let Some(c) = self.cells.get_mut(k as usize) {
                *c += 1;
            }
        }
        self.counted(keys.len());
    }

    /// Counts keys of [`near_key`].
    pub(crate) fn add_near(&mut self, keys: &[u32]) {
        if self.small {
            self.list.extend(keys.iter().map(|&k| of_near(k)));
            return;
        }
        if self.near.is_empty() {
            self.near = vec![0; NEAR];
        }
        if let Some(cells) = self.near.first_chunk_mut::<NEAR>() {
            for &k in keys {
                cells[k as usize % NEAR] += 1;
            }
        }
        self.counted(keys.len());
    }

    pub(crate) fn counted(&mut self, n: usize) {
        self.held += n as u64;
        if self.held > u32::MAX as u64 / 2 {
            self.flush();
        }
    }

    /// Counts keys of [`short_key`].
    pub(crate) fn add_short(&mut self, keys: &[u16], ahead: &mut Ahead) {
        if self.small {
            self.short_list.extend_from_slice(keys);
            return;
        }
        if self.short.is_empty() {
            self.short = vec![0; SHORT];
        }
        if let Some(cells) = self.short.first_chunk_mut::<{ 1 << 16 }>() {
            for keys in keys.chunks(128) {
                for &k in keys {
                    cells[k as usize] += 1;
                }
                ahead.part(16);
            }
        }
        self.counted(keys.len());
    }

    /// Cells of [`key`] to count pairs in, likewise.
    pub(crate) fn cells(&mut self) -> Option<&mut [u32; CELLS]> {
        if self.small {
            return None;
        }
        if self.cells.is_empty() {
            self.cells = vec![0; CELLS];
        }
        self.cells.first_chunk_mut()
    }

    /// Cells of [`short_key`] to count pairs in; [`Table::counted`] must be told
    /// how many. `None` if keys are listed.
    pub(crate) fn short_cells(&mut self) -> Option<&mut [u32; SHORT]> {
        if self.small {
            return None;
        }
        if self.short.is_empty() {
            self.short = vec![0; SHORT];
        }
        self.short.first_chunk_mut()
    }

    /// How many pairs in cells of [`short_key`] have a distance from `2^k` to
    /// the next, as far as [`short_level`] says; empty again after that.
    pub(crate) fn take_levels(&mut self) -> [u64; 32] {
        self.flush();
        std::mem::take(&mut self.levels)
    }

    pub(crate) fn add_zeros(&mut self, n: usize) {
        self.zeros = self.zeros.wrapping_add(n as u64);
    }

    /// Takes back pairs of zeros, counted already or about to be.
    pub(crate) fn remove_zeros(&mut self, n: u64) {
        self.zeros = self.zeros.wrapping_sub(n);
    }

    fn count(&mut self, k: u32, n: u64) {
        if k as usize >= ZERO {
            self.zeros = self.zeros.wrapping_add(n);
        } else {
            *self.sparse.entry(k).or_default() += n;
        }
    }

    fn count_short(&mut self, k: u16, n: u64) {
        self.count(of_short(k), n);
        if let Some(l) = short_level(k, self.bits).and_then(|l| self.levels.get_mut(l)) {
            *l += n;
        }
    }

    fn flush(&mut self) {
        let mut list = std::mem::take(&mut self.list);
        list.sort_unstable();
        for run in list.chunk_by(|a, b| a == b) {
            self.count(run.first().copied().unwrap_or(0), run.len() as u64);
        }
        let mut cells = std::mem::take(&mut self.cells);
        drain(&mut cells, |k, n| self.count(k as u32, n));
        self.cells = cells;
        let mut near = std::mem::take(&mut self.near);
        drain(&mut near, |k, n| self.count(of_near(k as u32), n));
        self.near = near;
        let mut short = std::mem::take(&mut self.short);
        drain(&mut short, |k, n| self.count_short(k as u16, n));
        self.short = short;
        for k in std::mem::take(&mut self.short_list) {
            self.count_short(k, 1);
        }
        self.held = 0;
    }

    /// Moves all counts into `h`, and is empty again.
    pub(crate) fn drain_into(&mut self, h: &mut Histogram) {
        self.flush();
        h.zeros += std::mem::take(&mut self.zeros);
        for (k, n) in std::mem::take(&mut self.sparse) {
            *h.cells.entry(k).or_default() += n;
        }
    }
}

/// How often an error met a magnitude of the expected value. Pairs of finite
/// values only.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Histogram {
    cells: BTreeMap<u32, u64>,
    /// Pairs without error.
    pub zeros: u64,
}

/// A cell: errors `error.0 ..= error.1` at magnitudes
/// `magnitude.0 ..= magnitude.1` of the expected value (the upper ends are not
/// reached, but for infinity).
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
pub struct Cell {
    pub error: (f64, f64),
    pub magnitude: (f64, f64),
    pub count: u64,
}

/// Lower end of error bin `b`.
fn error_edge(b: i64) -> f64 {
    match b {
        ..=0 => 0.0,
        _ if b >= E_BINS => f64::INFINITY,
        _ => {
            let x = b - 1;
            let octave = 2f64.powi((x >> SUB) as i32 + LOW);
            octave * (1.0 + (x & ((1 << SUB) - 1)) as f64 / (1 << SUB) as f64)
        }
    }
}

fn magnitude_edge(b: i64) -> f64 {
    match b {
        ..=0 => 0.0,
        _ if b >= M_BINS => f64::INFINITY,
        _ => 2f64.powi(b as i32 - 1 + LOW),
    }
}

impl Histogram {
    /// Cells with errors that are not zero, by growing error.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.cells.iter().map(|(&k, &count)| {
            let (e, m) = (k as i64 / M_BINS, k as i64 % M_BINS);
            Cell {
                error: (error_edge(e), error_edge(e + 1)),
                magnitude: (magnitude_edge(m), magnitude_edge(m + 1)),
                count,
            }
        })
    }

    /// Counts `n` pairs of an error and a magnitude, neither negative nor NaN.
    pub(crate) fn count(&mut self, error: f64, magnitude: f64, n: u64) {
        match key(error, magnitude, 0) {
            k if k as usize >= ZERO => self.zeros += n,
            k => *self.cells.entry(k).or_default() += n,
        }
    }

    /// Number of pairs.
    pub fn total(&self) -> u64 {
        self.zeros + self.cells.values().sum::<u64>()
    }

    /// Bins of errors with their counts, by growing error, zero first.
    pub(crate) fn errors(&self) -> Vec<((f64, f64), u64)> {
        let mut out = Vec::new();
        if self.zeros > 0 {
            out.push(((0.0, 0.0), self.zeros));
        }
        for c in self.cells() {
            match out.last_mut() {
                Some((r, n)) if *r == c.error => *n += c.count,
                _ => out.push((c.error, c.count)),
            }
        }
        out
    }
}

/// As it stands in a report: bins and counts.
#[derive(Serialize, Deserialize)]
struct Written {
    /// Pairs without error.
    zeros: u64,
    /// Lowest and highest exponent and bins per octave, to refuse others.
    layout: [i64; 3],
    /// `[error bin, magnitude bin, count]`
    cells: Vec<[u64; 3]>,
}

const LAYOUT: [i64; 3] = [LOW as i64, HIGH as i64, 1 << SUB];

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let m = M_BINS as u64;
        let cells = self.cells.iter().map(|(&k, &n)| [k as u64 / m, k as u64 % m, n]).collect();
        Written { zeros: self.zeros, layout: LAYOUT, cells }.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let w = Written::deserialize(d)?;
        if w.layout != LAYOUT {
            return Err(D::Error::custom(format!(
                "histogram layout {:?}, expected {LAYOUT:?}",
                w.layout
            )));
        }
        let mut h = Histogram { zeros: w.zeros, cells: BTreeMap::new() };
        let mut total = w.zeros;
        for [e, m, n] in w.cells {
            total = match total.checked_add(n) {
                Some(t) if e < E_BINS as u64 && m < M_BINS as u64 && n > 0 => t,
                _ => return Err(D::Error::custom(format!("histogram cell [{e}, {m}, {n}]"))),
            };
            h.cells.insert((e * M_BINS as u64 + m) as u32, n);
        }
        Ok(h)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_in_their_cells() {
        let mut x = 1e-320f64;
        while x < 1e300 {
            let mut y = 1e-310f64;
            while y < 1e300 {
                let mut t = Histogram::default();
                t.cells.insert(key(x, y, 5), 1);
                let c = t.cells().next().unwrap();
                assert!(c.error.0 <= x && x < c.error.1, "{x} {c:?}");
                assert!(c.magnitude.0 <= y && y < c.magnitude.1, "{y} {c:?}");
                y *= 1e7;
            }
            x *= 1.31;
        }
        let mut t = Histogram::default();
        t.cells.insert(key(f64::INFINITY, 0.0, 0), 3);
        let c = t.cells().next().unwrap();
        assert_eq!((c.error.1, c.magnitude.0), (f64::INFINITY, 0.0));
        let s = serde_json::to_string(&t).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&s).unwrap(), t);
        assert!(serde_json::from_str::<Histogram>(&s.replace("130", "131")).is_err());
    }
}
