//! The inner loop: every additive metric of one chunk of finite pairs.

mod pass;
mod planes;
mod ulps;
#[cfg(target_arch = "x86_64")]
mod wide;

use crate::decode::{CHUNK, Chunk};
use multiversion::multiversion;
use pass::sum;
pub(crate) use planes::Planes;
pub(crate) use ulps::ulp_bins;
#[cfg(target_arch = "x86_64")]
pub(crate) use wide::Wide;

/// What the loop is told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Params {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// Smallest normal values of both sides.
    pub(crate) tiny_e: f64,
    pub(crate) tiny_a: f64,
}

/// Sums over pairs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) abs: f64,
    pub(crate) square: f64,
    pub(crate) e2: f64,
    pub(crate) a2: f64,
    pub(crate) ea: f64,
    pub(crate) rel: f64,
}

impl Sums {
    pub(crate) fn add(&mut self, o: &Sums) {
        self.abs += o.abs;
        self.square += o.square;
        self.e2 += o.e2;
        self.a2 += o.a2;
        self.ea += o.ea;
        self.rel += o.rel;
    }
}

/// Result of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    pub(crate) sums: Sums,
    pub(crate) max_abs: f64,
    pub(crate) max_rel: f64,
    pub(crate) rel_count: u64,
    pub(crate) sign_flips: u64,
    pub(crate) zero_signs: u64,
    pub(crate) not_allclose: u64,
    pub(crate) not_xla: u64,
    pub(crate) denormal_e: u64,
    pub(crate) denormal_a: u64,
}

/// All pairs must be finite; unused ones zero. Fills [`Chunk::keys`]. The
/// largest relative error is 0 unless it may be as large as `known`.
pub(crate) fn run(c: &mut Chunk, p: Params, known: f64) -> Partial {
    let known = known * (1.0 - f64::EPSILON * 4.0);
    let seen = pass::look(c, p, known);
    // Products of four values and an error are normal numbers.
    let (small, large) = (2f64.powi(-240), 2f64.powi(240));
    let odd = seen.least_e < small || seen.max_e > large || seen.max_abs > large;
    let mut out = Partial { sums: seen.sums, max_abs: seen.max_abs, ..Partial::default() };
    if odd {
        out.sums.rel = relative_sum(c, p.atol);
    }
    if seen.rel || odd {
        out.max_rel = max_rel(c, p.atol);
    }
    out.rel_count = if seen.min_e > p.atol { CHUNK as u64 } else { above(c, p.atol) };
    if seen.far || odd {
        [out.not_allclose, out.not_xla] = not_close(c, p, odd);
    }
    if seen.opposite {
        [out.sign_flips, out.zero_signs] = signs(c);
    }
    if seen.least_e < p.tiny_e || seen.least_a < p.tiny_a {
        [out.denormal_e, out.denormal_a] = denormals(c, p);
    }
    out
}

macro_rules! passes {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($c:ident: &Chunk $(, $arg:ident: $t:ty)*) -> $out:ty
        $body:block)*) => {$(
        $(#[$doc])*
        #[multiversion(targets(
            "x86_64+avx512f+avx512vl+avx512dq+avx512bw",
            "x86_64+avx2+fma"
        ))]
        $vis fn $name($c: &Chunk $(, $arg: $t)*) -> $out $body
    )*};
}

passes! {
    fn relative_sum(c: &Chunk, atol: f64) -> f64 {
        sum(&c.d, &c.e, |d, e| if e.abs() > atol { d.abs() / e.abs() } else { 0.0 })
    }

    pub(crate) fn max_rel(c: &Chunk, atol: f64) -> f64 {
        // Sizes of floats that are not negative are ordered like their bits.
        let mut max = 0i64;
        for (d, e) in c.d.iter().zip(&c.e) {
            let r = if e.abs() > atol { d.abs() / e.abs() } else { 0.0 };
            max = max.max(r.to_bits() as i64);
        }
        f64::from_bits(max as u64)
    }

    fn above(c: &Chunk, atol: f64) -> u64 {
        c.e.iter().fold(0u64, |n, e| n.wrapping_add((e.abs() > atol) as u64))
    }

    /// How many errors exceed the tolerances of `allclose` and of `xla`.
    pub(crate) fn not_close(c: &Chunk, p: Params, odd: bool) -> [u64; 2] {
        let (mut close, mut xla, mut maybe) = (0u64, 0u64, 0u64);
        // Away from equality a product decides as the quotient does.
        let (low, high) = (1.0 - f64::EPSILON * 4.0, 1.0 + f64::EPSILON * 4.0);
        for (d, e) in c.d.iter().zip(&c.e) {
            let d = d.abs();
            let t = p.rtol * e.abs();
            close = close.wrapping_add((d > p.atol + t) as u64);
            let above = (d > p.atol) & (d > t * low);
            maybe = maybe.wrapping_add(above as u64);
            xla = xla.wrapping_add((above & (d > t * high)) as u64);
        }
        if odd || xla != maybe {
            xla = 0;
            for (d, e) in c.d.iter().zip(&c.e) {
                let far = (d.abs() > p.atol) & (d.abs() / e.abs() > p.rtol);
                xla = xla.wrapping_add(far as u64);
            }
        }
        [close, xla]
    }

    /// Nonzero pairs and pairs of zeros of opposite sign.
    fn signs(c: &Chunk) -> [u64; 2] {
        let (mut flips, mut zeros) = (0u64, 0u64);
        for (e, a) in c.e.iter().zip(&c.a) {
            let opposite = (e.to_bits() ^ a.to_bits()) >> 63;
            flips = flips.wrapping_add(opposite & ((*e != 0.0) & (*a != 0.0)) as u64);
            zeros = zeros.wrapping_add(opposite & ((*e == 0.0) & (*a == 0.0)) as u64);
        }
        [flips, zeros]
    }

    fn denormals(c: &Chunk, p: Params) -> [u64; 2] {
        let (mut n, mut m) = (0u64, 0u64);
        for (e, a) in c.e.iter().zip(&c.a) {
            n = n.wrapping_add(((e.abs() < p.tiny_e) & (*e != 0.0)) as u64);
            m = m.wrapping_add(((a.abs() < p.tiny_a) & (*a != 0.0)) as u64);
        }
        [n, m]
    }
}

/// [`run`] for pairs that are all equal, of which only the expected values are
/// filled in; `None` if some are not finite.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn run_equal(c: &Chunk, p: Params) -> Option<Partial> {
    let (mut bad, mut rels, mut den) = (0u64, 0u64, 0u64);
    for i in 0..CHUNK {
        let me = c.e[i].abs();
        bad |= !me.is_finite() as u64;
        rels = rels.wrapping_add((me > p.atol) as u64);
        den = den.wrapping_add(((me < p.tiny_e) & (me > 0.0)) as u64);
    }
    let e2 = sum(&c.e, &c.e, |e, _| e * e);
    (bad == 0).then(|| Partial {
        sums: Sums { e2, a2: e2, ea: e2, ..Sums::default() },
        rel_count: rels,
        denormal_e: den,
        denormal_a: den,
        ..Partial::default()
    })
}

/// Are all values of the chunk finite?
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2+fma"))]
pub(crate) fn all_finite(c: &Chunk) -> bool {
    let mut bad = 0u64;
    for i in 0..CHUNK {
        bad |= !((c.e[i].abs() < f64::INFINITY) & (c.a[i].abs() < f64::INFINITY)) as u64;
    }
    bad == 0
}
