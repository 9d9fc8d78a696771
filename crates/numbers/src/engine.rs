//! One pass over a pair of tensors, in blocks, by several workers.

use crate::ahead::Ahead;
use crate::bytes::{self, Bytes};
use crate::decode::{CHUNK, Chunk, Pair, Ulps, limits, parts, values};
use crate::hist::{Histogram, Table};
use crate::kernel::{self, Params, Partial, Sums};
use crate::metrics::{Element, Metrics, Side, Ulp, Value};
use crate::near::{self, Found, Levels, Limits, Near, Screen};
use crate::{select, top};
use scalify_ir::DType;
use scalify_tensors::{Tensor, TensorError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements a worker reads at a time.
pub(crate) const BLOCK: usize = 64 * CHUNK;

/// Up to this number of elements percentiles are exact without being asked.
const EXACT: u64 = 1 << 24;

/// Of a chunk with up to this number of far pairs those are set aside.
const FEW: u64 = CHUNK as u64 / 4;

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
    /// Exact percentiles at any size, at the price of a second pass; they are
    /// exact for up to 2^24 elements anyway.
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
        let workers = scan(expected, actual, o.threads, |_| Bytes::new(o.worst), add)?;
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
    let workers = scan(e, a, o.threads, |small| Worker::new(pair, o, small), Worker::block)?;
    let mut all = Gathered::default();
    for w in workers {
        all.take(w, o.worst);
    }
    let mut m = all.finish(e, a, pair, o)?;
    let exact = o.exact_percentiles || m.elements <= EXACT;
    select::percentiles(e, a, &mut m, exact, o.threads)?;
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

/// Everything one worker has seen.
struct Worker<'a> {
    pair: Pair,
    o: Options<'a>,
    p: Params,
    max_finite: (f64, f64),
    c: Box<Chunk>,
    /// Position of each pair at hand, if they are not neighbours.
    places: [u64; CHUNK],
    /// Marks of [`near::screen`], and the chunk without what is marked.
    marks: [u8; CHUNK],
    rest: [Vec<u8>; 2],
    /// Pairs of the block that kept chunks from being near: both sides,
    /// positions.
    aside: [Vec<u8>; 2],
    aside_at: Vec<u64>,
    bound: Vec<u8>,
    bounds: [f64; CHUNK],
    near: Option<Box<Near>>,
    limits: Limits,
    levels: Box<Levels>,
    table: Table,
    sums: Vec<(u64, Sums)>,
    t: Partial,
    rel: Max<f64>,
    ulp: Max<u64>,
    bins: [u64; 64],
    over: u64,
    over_bound: u64,
    worst: Vec<Max<f64>>,
    special: Vec<u64>,
    s: Special,
}

/// Counts of what is not finite.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Special {
    pub(crate) e: Side,
    pub(crate) a: Side,
    pub(crate) finite: u64,
    nan_mismatches: u64,
    nan_pairs: u64,
    inf_mismatches: u64,
    inf_saturated: u64,
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

/// Adds `x` to a list of the largest, largest first, the first of equals
/// first.
pub(crate) fn insert(list: &mut Vec<Max<f64>>, keep: usize, x: Max<f64>) {
    let at = list.partition_point(|y| y.size > x.size || y.size == x.size && y.at < x.at);
    if at < keep {
        list.insert(at, x);
        list.truncate(keep);
    }
}

impl<'a> Worker<'a> {
    fn new(pair: Pair, o: &Options<'a>, small: bool) -> Worker<'a> {
        let (le, la) = (limits(pair.e), limits(pair.a));
        let p = Params { atol: o.atol, rtol: o.rtol, tiny_e: le.0, tiny_a: la.0 };
        Worker {
            pair,
            o: *o,
            p,
            max_finite: (le.1, la.1),
            c: Chunk::new(),
            places: [0; CHUNK],
            marks: [0; CHUNK],
            rest: [const { Vec::new() }; 2],
            aside: [const { Vec::new() }; 2],
            aside_at: Vec::new(),
            bound: Vec::new(),
            bounds: [0.0; CHUNK],
            near: None,
            limits: Limits::new(pair.e, p),
            levels: Box::new(Levels::new()),
            table: Table::new(small, near::fraction(pair.e)),
            sums: Vec::new(),
            t: Partial::default(),
            rel: Max::default(),
            ulp: Max::default(),
            bins: [0; 64],
            over: 0,
            over_bound: 0,
            worst: Vec::new(),
            special: Vec::new(),
            s: Special::default(),
        }
    }

    fn block(&mut self, at: u64, e: &[u8], a: &[u8], mapped: bool) -> Result<(), TensorError> {
        let (se, sa) = (self.pair.e.literal_bytes(), self.pair.a.literal_bytes());
        let mut sums = Sums::default();
        let n = e.len() / se;
        for from in (0..n).step_by(CHUNK) {
            let part = |b, size: usize, from: usize| -> &[u8] {
                let to = (from + CHUNK).min(n) * size;
                <[u8]>::get(b, from * size..to).unwrap_or_default()
            };
            let mut ahead = Ahead::default();
            if mapped {
                ahead = Ahead::new(part(e, se, from + CHUNK), part(a, sa, from + CHUNK));
            }
            let here = at + from as u64;
            let (x, y) = (part(e, se, from), part(a, sa, from));
            sums.add(&self.chunk(here, x, y, x.len() / se, &mut ahead)?);
            let end = from + CHUNK;
            let last = end.is_multiple_of(BLOCK) || end >= n;
            while self.aside_at.len() >= CHUNK || last && !self.aside_at.is_empty() {
                sums.add(&self.put_aside()?);
            }
            if last {
                let first = here - here % BLOCK as u64;
                self.sums.push((first, std::mem::take(&mut sums)));
            }
        }
        Ok(())
    }

    /// Handles full chunks whose values are near one another.
    fn near(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        equal: bool,
        ahead: &mut Ahead,
    ) -> Option<Sums> {
        let t = self.pair.e;
        if t != self.pair.a || !near::handles(t) || e.len() != CHUNK * t.literal_bytes() {
            return None;
        }
        if self.o.bound.is_some() || !(self.p.atol >= 0.0 && self.p.rtol >= 0.0) {
            return None;
        }
        let mut c = self.near.take().unwrap_or_else(Near::new);
        let found = if equal {
            near::equal(t, e, self.limits)
        } else {
            c.run(t, e, a, self.p, self.limits, self.rel.size, ahead)
        };
        if let Some(found) = found {
            self.s.finite += CHUNK as u64;
            self.t.rel_count += found.rel_count;
            self.s.e.denormal += found.denormal[0];
            self.s.a.denormal += found.denormal[1];
            if equal {
                self.table.add_zeros(CHUNK);
            } else {
                self.near_pairs(at, e, a, &c, found, ahead);
            }
        }
        self.near = Some(c);
        found.map(|f| f.sums)
    }

    fn near_pairs(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        c: &Near,
        found: Found,
        ahead: &mut Ahead,
    ) {
        let t = self.pair.e;
        if found.close {
            self.table.add_short(&c.short[..c.held], ahead);
            ahead.part(1);
        } else {
            self.table.add_near(&c.keys[..c.held]);
            self.levels.add(c, found.max_ulp);
        }
        self.table.add_zeros(CHUNK - c.held);
        let max_abs = found.max_abs as f64;
        self.t.max_abs = self.t.max_abs.max(max_abs);
        let least = match self.worst.last() {
            Some(w) if self.worst.len() >= self.o.worst => w.size,
            _ => 0.0,
        };
        if max_abs > least {
            for (i, d) in c.d[..c.held].iter().enumerate() {
                let size = d.abs() as f64;
                if size > least {
                    insert(&mut self.worst, self.o.worst, Max { size, at: at + c.place(i) });
                }
            }
        }
        if found.rel {
            let max = near::max_rel(c, self.p.atol);
            let is = |i: &usize| {
                let e = c.e[*i] as f64;
                e > self.p.atol && c.d[*i].abs() as f64 / e == max
            };
            if let (true, Some(i)) = (max > self.rel.size, (0..c.held).find(is)) {
                self.rel = Max { size: max, at: at + c.place(i) };
            }
        }
        if found.far {
            let [close, xla] = near::not_close(c, self.p);
            self.t.not_allclose += close;
            self.t.not_xla += xla;
        }
        // Other limits are read off the counts.
        if found.max_ulp as u64 > self.o.ulp && !self.o.ulp.wrapping_add(1).is_power_of_two() {
            self.over += near::over(t, e, a, self.o.ulp as u32);
        }
        if found.max_ulp as u64 > self.ulp.size {
            if let Some(i) = near::first(t, e, a, found.max_ulp) {
                self.ulp = Max { size: found.max_ulp as u64, at: at + i as u64 };
            }
        }
    }

    fn chunk(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        n: usize,
        ahead: &mut Ahead,
    ) -> Result<Sums, TensorError> {
        // Most of two runs of one program is bitwise equal.
        let equal = e == a;
        if let Some(sums) = self.near(at, e, a, equal, ahead) {
            return Ok(sums);
        }
        if let Some(sums) = self.screen(at, e, a, ahead)? {
            return Ok(sums);
        }
        self.far(at, e, a, n, equal, ahead)
    }

    /// Sets aside pairs that are not near, and handles the rest of the chunk;
    /// `None` if that is not worth it.
    fn screen(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        ahead: &mut Ahead,
    ) -> Result<Option<Sums>, TensorError> {
        let t = self.pair.e;
        if t != self.pair.a || self.o.bound.is_some() || e.len() != CHUNK * t.literal_bytes() {
            return Ok(None);
        }
        let Some(found) = near::screen(t, e, a, &mut self.marks) else { return Ok(None) };
        ahead.part(2);
        let few = found.far <= FEW;
        let gone = found.special + if few { found.far } else { 0 };
        if gone == 0 {
            return Ok(None);
        }
        self.special(at, e, a, &found);
        if found.special == CHUNK as u64 {
            return Ok(Some(Sums::default()));
        }
        if few {
            let size = t.literal_bytes();
            let ([ae, aa], all) = (&mut self.aside, &mut self.aside_at);
            near::each(&self.marks, |i| {
                ae.extend_from_slice(e.get(i * size..(i + 1) * size).unwrap_or_default());
                aa.extend_from_slice(a.get(i * size..(i + 1) * size).unwrap_or_default());
                all.push(at + i as u64);
            });
        }
        let least = if few { near::FAR } else { near::SPECIAL };
        let [mut x, mut y] = std::mem::take(&mut self.rest);
        near::blank(t, e, &self.marks, least, &mut x);
        near::blank(t, a, &self.marks, least, &mut y);
        let equal = x == y;
        let sums = match self.near(at, &x, &y, equal, ahead) {
            Some(sums) => Ok(sums),
            None => self.far(at, &x, &y, CHUNK, equal, ahead),
        };
        self.rest = [x, y];
        // In their places were pairs of zeros.
        self.s.finite -= gone;
        self.table.remove_zeros(gone);
        sums.map(Some)
    }

    /// Counts special pairs.
    fn special(&mut self, at: u64, e: &[u8], a: &[u8], found: &Screen) {
        let s = &mut self.s;
        for (k, side) in [&mut s.e, &mut s.a].into_iter().enumerate() {
            side.nan += found.nan[k];
            side.pos_inf += found.pos_inf[k];
            side.neg_inf += found.neg_inf[k];
            side.denormal += found.denormal[k];
        }
        let one_nan = found.nan[0] + found.nan[1] - 2 * found.nan_pairs;
        s.nan_pairs += found.nan_pairs;
        s.nan_mismatches += one_nan;
        s.inf_mismatches += found.special - found.nan_pairs - one_nan - found.equal;
        s.inf_saturated += found.saturated;
        if found.special > found.nan_pairs + found.equal {
            let size = self.pair.e.literal_bytes();
            for (i, (x, y)) in e.chunks(size).zip(a.chunks(size)).enumerate() {
                if self.special.len() >= self.o.worst {
                    break;
                }
                let (x, y) = (parts(self.pair.e, x, 0).0, parts(self.pair.a, y, 0).0);
                let nans = x.is_nan() && y.is_nan();
                if self.marks[i] == near::SPECIAL && !nans && x != y {
                    self.special.push(at + i as u64);
                }
            }
        }
    }

    /// Handles up to a chunk of what was set aside.
    fn put_aside(&mut self) -> Result<Sums, TensorError> {
        let n = self.aside_at.len().min(CHUNK);
        let size = self.pair.e.literal_bytes();
        let mut rest = self.aside.each_mut().map(|b| b.split_off(n * size));
        std::mem::swap(&mut rest, &mut self.aside);
        for (o, at) in self.places.iter_mut().zip(self.aside_at.drain(..n)) {
            *o = at;
        }
        let [e, a] = &rest;
        self.pair.fill(e, a, n, &mut self.c);
        self.pairs(0, n, true, &mut Ahead::default())
    }

    /// Handles a chunk in any state.
    fn far(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        n: usize,
        equal: bool,
        ahead: &mut Ahead,
    ) -> Result<Sums, TensorError> {
        if equal && self.pair.e == self.pair.a && !self.pair.complex && self.o.bound.is_none() {
            self.pair.fill_expected(e, n, &mut self.c);
            if let Some(part) = kernel::run_equal(&self.c, self.p) {
                self.s.finite += n as u64;
                self.table.add_zeros(n);
                self.t.rel_count += part.rel_count;
                self.s.e.denormal += part.denormal_e;
                self.s.a.denormal += part.denormal_a;
                return Ok(part.sums);
            }
        }
        let finite = match self.pair.fill_floats(e, a, &mut self.c) {
            Some(finite) => finite,
            None => {
                self.pair.fill(e, a, n, &mut self.c);
                kernel::all_finite(&self.c)
            }
        };
        ahead.part(8);
        let moved = !finite;
        let n = if moved { self.set_aside(at, n) } else { n };
        if n == 0 {
            return Ok(Sums::default());
        }
        self.pairs(at, n, moved, ahead)
    }

    /// Measures finite pairs of the chunk, from position `at` on or, if they
    /// have `moved`, at the places held.
    fn pairs(
        &mut self,
        at: u64,
        n: usize,
        moved: bool,
        ahead: &mut Ahead,
    ) -> Result<Sums, TensorError> {
        self.s.finite += n as u64;
        ahead.part(8);
        let mut part = kernel::run(&mut self.c, self.p, self.rel.size);
        if self.pair.complex {
            part.sums.ea = self.c.dot;
            (part.sign_flips, part.zero_signs, part.denormal_e, part.denormal_a) = (0, 0, 0, 0);
        }
        if part.max_abs == 0.0 {
            self.table.add_zeros(n);
        } else {
            for keys in self.c.keys[..n].chunks(CHUNK / 16) {
                ahead.part(16);
                self.table.add(keys);
            }
            ahead.part(1);
        }
        let place = |all: &[u64; CHUNK], i: usize| if moved { all[i] } else { at + i as u64 };
        let least = match self.worst.last() {
            Some(w) if self.worst.len() >= self.o.worst => w.size,
            _ => 0.0,
        };
        // What was set aside may come first of equals.
        let beats = |x: f64, y: f64| x > y || moved && x == y && x > 0.0;
        if beats(part.max_abs, least) {
            for i in 0..n {
                let size = self.c.d[i].abs();
                if beats(size, least) {
                    insert(&mut self.worst, self.o.worst, Max { size, at: place(&self.places, i) });
                }
            }
        }
        if beats(part.max_rel, self.rel.size) {
            let rel = |i: usize| {
                let me = self.c.e[i].abs();
                if me > self.p.atol { self.c.d[i].abs() / me } else { 0.0 }
            };
            if let Some(i) = (0..n).find(|&i| rel(i) == part.max_rel) {
                self.rel.take(Max { size: part.max_rel, at: place(&self.places, i) });
            }
        }
        let far =
            kernel::ulp_bins(&self.c, self.pair.ulps, self.o.ulp, &mut self.bins, &mut self.over);
        if far > self.ulp.size || moved && far > 0 && far == self.ulp.size {
            let is = |i: &usize| match self.pair.ulps {
                Ulps::Narrow => self.c.u[*i] as u64 == far,
                _ => self.c.w[*i] == far,
            };
            if let Some(i) = (0..n).find(is) {
                self.ulp.take(Max { size: far, at: place(&self.places, i) });
            }
        }
        if let Some(b) = self.o.bound {
            self.check_bound(b, at, n, moved)?;
        }
        self.t.max_abs = self.t.max_abs.max(part.max_abs);
        self.t.rel_count += part.rel_count;
        self.t.sign_flips += part.sign_flips;
        self.t.zero_signs += part.zero_signs;
        self.t.not_allclose += part.not_allclose;
        self.t.not_xla += part.not_xla;
        self.s.e.denormal += part.denormal_e;
        self.s.a.denormal += part.denormal_a;
        Ok(part.sums)
    }

    fn check_bound(&mut self, b: Bound, at: u64, n: usize, moved: bool) -> Result<(), TensorError> {
        let factor = match b {
            Bound::OfExpected(f) => f,
            Bound::Of(t, f) => {
                let all = (t.len() - at).min(CHUNK as u64) as usize;
                let bytes = t.read(at, all, &mut self.bound)?;
                if t.dtype().is_complex() {
                    self.bounds.fill(f64::NAN);
                } else {
                    values(t.dtype(), bytes, &mut self.bounds);
                }
                f
            }
        };
        for i in 0..n {
            let limit = match b {
                Bound::OfExpected(_) => self.c.e[i].abs() * factor,
                Bound::Of(..) => {
                    self.bounds[if moved { (self.places[i] - at) as usize % CHUNK } else { i }]
                        * factor
                }
            };
            // A bound that is NaN bounds nothing.
            self.over_bound += (limit.is_nan() || self.c.d[i].abs() > limit) as u64;
        }
        Ok(())
    }

    /// Counts pairs that are not finite and closes the gaps they leave;
    /// returns how many pairs remain, whose places are held.
    fn set_aside(&mut self, at: u64, n: usize) -> usize {
        let c = &mut self.c;
        let mut kept = 0;
        for i in 0..n {
            let (e, a) = (c.e[i], c.a[i]);
            if e.is_finite() && a.is_finite() {
                (c.d[kept], c.e[kept], c.a[kept]) = (c.d[i], e, a);
                (c.u[kept], c.w[kept]) = (c.u[i], c.w[i]);
                self.places[kept] = at + i as u64;
                kept += 1;
                continue;
            }
            let tiny = |t: f64| if self.pair.complex { 0.0 } else { t };
            self.s.e.count(e, tiny(self.p.tiny_e), 1);
            self.s.a.count(a, tiny(self.p.tiny_a), 1);
            let equal = if self.pair.complex { c.d[i] == 0.0 } else { e == a };
            if !self.s.not_finite(e, a, equal, self.max_finite, 1) {
                continue;
            }
            if self.special.len() < self.o.worst {
                self.special.push(at + i as u64);
            }
        }
        for v in [&mut c.d, &mut c.e, &mut c.a] {
            v[kept..].fill(0.0);
        }
        c.u[kept..].fill(0);
        c.w[kept..].fill(0);
        kept
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
    fn take(&mut self, mut w: Worker, keep: usize) {
        let mut bins = w.levels.bins();
        let mut more = 0;
        let by_cell = w.table.take_levels();
        for (k, n) in by_cell.into_iter().enumerate().rev() {
            let crossing = w.near.as_ref().map_or(0, |c| c.levels[k]);
            more += n as i64 + crossing;
            bins[k] += more as u64;
        }
        for (k, n) in bins.into_iter().enumerate() {
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

    fn finish(
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
