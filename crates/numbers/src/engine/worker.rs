//! What one worker makes of blocks: which way a chunk goes, and what is seen.

use super::gather::Special;
use super::{BLOCK, Bound, Max, Options, insert};
use crate::ahead::Ahead;
use crate::decode::{CHUNK, Chunk, Pair, Ulps, limits, parts, values};
use crate::hist::Table;
use crate::kernel::{self, Params, Partial, Planes, Sums};
use crate::near::{self, Found, Levels, Limits, Near, Screen, Way};
use crate::pick::{Pick, Plan};
use scalify_tensors::TensorError;

/// Of a chunk with up to this number of far pairs those are set aside.
pub(super) const FEW: u64 = CHUNK as u64 / 4;

/// Everything one worker has seen.
pub(super) struct Worker<'a> {
    pub(super) pair: Pair,
    pub(super) o: Options<'a>,
    pub(super) p: Params,
    pub(super) max_finite: (f64, f64),
    pub(super) c: Box<Chunk>,
    /// Position of each pair at hand, if they are not neighbours.
    pub(super) places: [u64; CHUNK],
    /// Marks of [`near::screen`], and the chunk without what is marked.
    pub(super) marks: [u8; CHUNK],
    pub(super) rest: [Vec<u8>; 2],
    /// Pairs of the block that kept chunks from being near: both sides,
    /// positions.
    pub(super) aside: [Vec<u8>; 2],
    pub(super) aside_at: Vec<u64>,
    pub(super) bound: Vec<u8>,
    pub(super) bounds: [f64; CHUNK],
    pub(super) near: Option<Box<Near>>,
    /// Collects errors at the wanted ranks.
    pub(super) pick: Option<Box<Pick>>,
    pub(super) limits: Limits,
    pub(super) levels: Box<Levels>,
    pub(super) planes: Box<Planes>,
    /// Have signs been opposite, or errors beyond tolerances?
    pub(super) spread: bool,
    /// Were many pairs of the last chunk far?
    pub(super) scattered: bool,
    /// Were all values of the last chunk NaN?
    pub(super) nan: bool,
    pub(super) table: Table,
    pub(super) sums: Vec<(u64, Sums)>,
    pub(super) t: Partial,
    pub(super) rel: Max<f64>,
    pub(super) ulp: Max<u64>,
    pub(super) bins: [u64; 64],
    pub(super) over: u64,
    pub(super) over_bound: u64,
    pub(super) worst: Vec<Max<f64>>,
    pub(super) special: Vec<u64>,
    pub(super) s: Special,
}

impl<'a> Worker<'a> {
    pub(super) fn new(pair: Pair, o: &Options<'a>, small: bool, plan: Option<&Plan>) -> Worker<'a> {
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
            pick: plan.map(|p| Box::new(Pick::new(p))),
            limits: Limits::new(pair.e, p),
            levels: Box::new(Levels::new()),
            planes: Box::new(Planes::new(pair.ulps == Ulps::Wide)),
            spread: false,
            scattered: false,
            nan: false,
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

    pub(super) fn block(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        mapped: bool,
    ) -> Result<(), TensorError> {
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

    /// Is it a full chunk of a type that can be near?
    pub(super) fn may_be_near(&self, e: &[u8]) -> bool {
        let t = self.pair.e;
        t == self.pair.a
            && near::handles(t)
            && e.len() == CHUNK * t.literal_bytes()
            && self.o.bound.is_none()
            && self.p.atol >= 0.0
            && self.p.rtol >= 0.0
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
        if !self.may_be_near(e) {
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

    pub(super) fn near_pairs(
        &mut self,
        at: u64,
        e: &[u8],
        a: &[u8],
        c: &Near,
        found: Found,
        ahead: &mut Ahead,
    ) {
        let t = self.pair.e;
        if found.counted {
            ahead.part(1);
        } else if found.close {
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
            let [close, xla] = found.not_close.unwrap_or_else(|| near::not_close(c, self.p));
            self.t.not_allclose += close;
            self.t.not_xla += xla;
        }
        let far = found.max_ulp as u64;
        // Other limits are read off the counts.
        let over = far > self.o.ulp && !self.o.ulp.wrapping_add(1).is_power_of_two();
        let sides;
        let (e, a) = if (over || far > self.ulp.size) && !c.far.all().is_empty() {
            sides = [e, a].map(|b| c.without_far(t, b));
            (sides[0].as_slice(), sides[1].as_slice())
        } else {
            (e, a)
        };
        if over {
            self.over += near::over(t, e, a, self.o.ulp as u32);
        }
        if far > self.ulp.size {
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
        self.nan = self.nan && self.may_be_near(e) && near::all_nan(self.pair.e, e, a, ahead);
        if self.nan {
            let n = CHUNK as u64;
            self.s.e.nan += n;
            self.s.a.nan += n;
            self.s.nan_pairs += n;
            return Ok(Sums::default());
        }
        // Most of two runs of one program is bitwise equal.
        let equal = e == a;
        if !equal && let Some(p) = &mut self.pick {
            p.add(e, a);
        }
        #[cfg(target_arch = "x86_64")]
        if !equal && let Some(sums) = self.direct(at, e, a, ahead) {
            return Ok(sums);
        }
        if std::mem::take(&mut self.scattered) && !equal && self.may_be_near(e) {
            let found = near::screen(self.pair.e, e, a, &mut self.marks);
            if found.is_some_and(|s| s.special == 0 && s.far > FEW) {
                self.scattered = true;
                return self.far(at, e, a, n, equal, ahead);
            }
        }
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
        self.scattered = !few && found.special == 0;
        let gone = found.special + if few { found.far } else { 0 };
        if gone == 0 {
            return Ok(None);
        }
        self.special(at, e, a, &found);
        let special = found.special > 0;
        if found.special == CHUNK as u64 {
            self.nan = found.nan_pairs == found.special;
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
        if let (true, Some(c)) = (special, &mut self.near) {
            c.way = Way::Look;
        }
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
        #[cfg(target_arch = "x86_64")]
        if let Some(sums) = self.wide(at, e, a, ahead) {
            return Ok(sums);
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
        self.largest(&part, at, n, moved);
        let far =
            kernel::ulp_bins(&self.c, self.pair.ulps, self.o.ulp, &mut self.bins, &mut self.over);
        self.farthest(far, at, n, moved);
        if let Some(b) = self.o.bound {
            self.check_bound(b, at, n, moved)?;
        }
        self.take(&part);
        Ok(part.sums)
    }

    /// Finds the places of the largest errors of a chunk.
    pub(super) fn largest(&mut self, part: &Partial, at: u64, n: usize, moved: bool) {
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
    }

    /// Finds the place of the largest distance in units in the last place.
    pub(super) fn farthest(&mut self, far: u64, at: u64, n: usize, moved: bool) {
        let place = |all: &[u64; CHUNK], i: usize| if moved { all[i] } else { at + i as u64 };
        if far > self.ulp.size || moved && far > 0 && far == self.ulp.size {
            let is = |i: &usize| match self.pair.ulps {
                Ulps::Narrow => self.c.u[*i] as u64 == far,
                _ => self.c.w[*i] == far,
            };
            if let Some(i) = (0..n).find(is) {
                self.ulp.take(Max { size: far, at: place(&self.places, i) });
            }
        }
    }

    /// Takes what is known of a chunk but for sums and places.
    pub(super) fn take(&mut self, part: &Partial) {
        self.t.max_abs = self.t.max_abs.max(part.max_abs);
        self.t.rel_count += part.rel_count;
        self.t.sign_flips += part.sign_flips;
        self.t.zero_signs += part.zero_signs;
        self.t.not_allclose += part.not_allclose;
        self.t.not_xla += part.not_xla;
        self.s.e.denormal += part.denormal_e;
        self.s.a.denormal += part.denormal_a;
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
