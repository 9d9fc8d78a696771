//! `fft`, computed in `c128`: mixed radix, or Bluestein's algorithm for lengths
//! with a prime factor above 128.

use super::dot::{as_c128, finish};
use super::movement::transpose;
use crate::complex::{C128, c};
use crate::error::{Res, invalid};
use crate::tensor::{Data, Tensor, count};
use scalify_ir::{DType, FftKind};
use std::f64::consts::PI;

/// `e^(sign * 2 pi i k / n)`, by sines and cosines of at most an eighth of a
/// turn: powers of `i` are exact, conjugate roots exactly conjugate.
fn root(k: usize, n: usize, sign: f64) -> C128 {
    // In units of 1 / 8n of a turn.
    let (n, mut at) = (n as u128, 8 * (k as u128 % n as u128));
    let lower = at > 4 * n;
    if lower {
        at = 8 * n - at;
    }
    let left = at > 2 * n;
    if left {
        at = 4 * n - at;
    }
    let steep = at > n;
    if steep {
        at = 2 * n - at;
    }
    let angle = 2.0 * PI * (at as f64 / (8 * n) as f64);
    let (mut re, mut im) = (angle.cos(), angle.sin());
    if steep {
        (re, im) = (im, re);
    }
    c(if left { -re } else { re }, if lower { -im } else { im } * sign)
}

/// Unscaled transform in place, length a power of two.
fn radix2(x: &mut [C128], sign: f64) {
    let n = x.len();
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits).min(usize::BITS - 1);
        if bits > 0 && i < j {
            x.swap(i, j);
        }
    }
    let w: Vec<C128> = (0..n / 2).map(|k| root(k, n, sign)).collect();
    let mut len = 2;
    while len <= n {
        let step = n / len;
        for block in x.chunks_exact_mut(len) {
            let (lo, hi) = block.split_at_mut(len / 2);
            for k in 0..len / 2 {
                let t = hi[k].mul(w[k * step]);
                hi[k] = lo[k].sub(t);
                lo[k] = lo[k].add(t);
            }
        }
        len *= 2;
    }
}

/// Greatest prime factor that transforms are split into.
const MAX_FACTOR: usize = 128;

/// The factor to split off: four where possible, else the least prime.
fn factor(n: usize) -> usize {
    if n.is_multiple_of(4) {
        return 4;
    }
    (2..).take_while(|p| p * p <= n).find(|p| n.is_multiple_of(*p)).unwrap_or(n)
}

/// Are all prime factors small?
fn smooth(mut n: usize) -> bool {
    while n > 1 {
        let p = factor(n);
        if p > MAX_FACTOR {
            return false;
        }
        n /= p;
    }
    true
}

/// Unscaled transform of every `stride`th element of `x`, decimated in time.
/// `w` are the roots of a multiple of the length.
fn mixed(x: &[C128], stride: usize, out: &mut [C128], w: &[C128]) {
    let n = out.len();
    if n == 1 {
        out[0] = x[0];
        return;
    }
    let p = factor(n);
    let m = n / p;
    for (r, part) in out.chunks_exact_mut(m).enumerate() {
        mixed(&x[r * stride..], stride * p, part, w);
    }
    let (step, turn) = (w.len() / n, w.len() / p);
    let mut t = [C128::default(); MAX_FACTOR];
    for k in 0..m {
        for (r, t) in t[..p].iter_mut().enumerate() {
            *t = out[r * m + k].mul(w[r * k % n * step]);
        }
        for q in 0..p {
            let mut s = t[0];
            for (r, t) in t[..p].iter().enumerate().skip(1) {
                s = s.add(t.mul(w[r * q % p * turn]));
            }
            out[q * m + k] = s;
        }
    }
}

fn bluestein(x: &mut [C128], sign: f64) {
    let n = x.len();
    // Bluestein: x_k w^(k^2/2) convolved with w^(-k^2/2).
    let m = (2 * n - 1).next_power_of_two();
    let chirp: Vec<C128> = (0..n)
        .map(|k| root((k as u128 * k as u128 % (2 * n as u128)) as usize, 2 * n, sign))
        .collect();
    let mut a = vec![C128::default(); m];
    let mut b = vec![C128::default(); m];
    for k in 0..n {
        a[k] = x[k].mul(chirp[k]);
        b[k] = chirp[k].conj();
        if k > 0 {
            b[m - k] = chirp[k].conj();
        }
    }
    radix2(&mut a, 1.0);
    radix2(&mut b, 1.0);
    for (p, q) in a.iter_mut().zip(&b) {
        *p = p.mul(*q);
    }
    radix2(&mut a, -1.0);
    for k in 0..n {
        x[k] = a[k].scale(1.0 / m as f64).mul(chirp[k]);
    }
}

/// Transforms the last dimension of every row of `n`.
fn rows(x: &mut [C128], n: usize, sign: f64, scale: f64) {
    if n == 0 {
        return;
    }
    let smooth = smooth(n);
    let w: Vec<C128> = if smooth { (0..n).map(|k| root(k, n, sign)).collect() } else { Vec::new() };
    let mut from = Vec::new();
    for row in x.chunks_exact_mut(n) {
        if smooth {
            from.clear();
            from.extend_from_slice(row);
            mixed(&from, 1, row, &w);
        } else {
            bluestein(row, sign);
        }
        if scale != 1.0 {
            for v in row {
                *v = v.scale(scale);
            }
        }
    }
}

/// `fft` over the last `length.len()` dimensions.
pub(crate) fn fft(
    t: &Tensor,
    kind: FftKind,
    length: &[i64],
    out: DType,
    wide: bool,
) -> Res<Tensor> {
    let (r, k) = (t.rank(), length.len());
    if k > r || k == 0 {
        return invalid(format!("{k} transform dimensions of rank {r}"));
    }
    let dims: Vec<i64> = t.dims.to_vec();
    let last = length[k - 1];
    let half = |n: i64| if n == 0 { 0 } else { n / 2 + 1 };
    for i in 0..k {
        let minor = i + 1 == k;
        let expect = if minor && kind == FftKind::Irfft { half(last) } else { length[i] };
        if dims[r - k + i] != expect {
            return invalid(format!("lengths {length:?} of {:?}", t.dims));
        }
    }
    if count(&dims).is_none() {
        return invalid("operand too big");
    }
    let inverse = matches!(kind, FftKind::Ifft | FftKind::Irfft);
    let sign = if inverse { 1.0 } else { -1.0 };
    let mut x = Tensor::raw(DType::C128, &dims, Data::C128(as_c128(t)?));
    // Outer transform dimensions first for the inverse of a real transform,
    // last for the others.
    let outer: Vec<usize> = (r - k..r - 1).collect();
    let along = |x: Tensor, d: usize| -> Res<Tensor> {
        let mut perm: Vec<i64> = (0..r as i64).collect();
        perm.swap(d, r - 1);
        let mut y = transpose(x, &perm)?;
        let n = y.dims[r - 1] as usize;
        if let Data::C128(v) = &mut y.data {
            let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
            rows(std::sync::Arc::make_mut(v).as_mut_slice(), n, sign, scale);
        }
        transpose(y, &perm)
    };
    let minor = |x: Tensor| -> Res<Tensor> {
        let Data::C128(v) = &x.data else { return Ok(x) };
        let n = last as usize;
        let (mut v, w) = (v.to_vec(), half(last) as usize);
        let mut dims = x.dims.to_vec();
        if kind == FftKind::Irfft {
            // The other half is the conjugate mirror image.
            let mut full = Vec::new();
            for row in v.chunks_exact(w.max(1)) {
                full.extend((0..n).map(|i| {
                    let z = if i < w { row[i] } else { row[n - i].conj() };
                    let real = i == 0 || 2 * i == n;
                    if real { c(z.re, 0.0) } else { z }
                }));
            }
            v = full;
            dims[r - 1] = last;
        }
        rows(&mut v, n, sign, if inverse { 1.0 / n as f64 } else { 1.0 });
        if kind == FftKind::Rfft {
            v = v.chunks_exact(n.max(1)).flat_map(|row| row[..w].to_vec()).collect();
            dims[r - 1] = w as i64;
        }
        if count(&dims) != Some(v.len()) {
            return invalid("transform of an empty dimension");
        }
        Ok(Tensor::raw(DType::C128, &dims, Data::from_vec(v)))
    };
    if kind != FftKind::Irfft {
        x = minor(x)?;
    }
    for d in outer {
        x = along(x, d)?;
    }
    if kind == FftKind::Irfft {
        x = minor(x)?;
    }
    let dims = x.dims.clone();
    let Data::C128(v) = x.data else { return invalid("element type") };
    finish(v.to_vec(), out, &dims, wide)
}
