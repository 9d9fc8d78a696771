//! Matrix products over the accumulator types.

use crate::complex::{C64, C128, c};
use crate::tensor::Store;
use rayon::prelude::*;

/// Row and column stride of a matrix, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps(pub usize, pub usize);

/// Multiplications below which a product stays on one thread.
const SPLIT: usize = 1 << 18;
/// Rows per part are a multiple of this.
const STRIP: usize = 16;

/// Does a product go row by row, each element summed in order? Tiny ones and
/// those of few rows do.
pub(crate) fn thin(m: usize, k: usize, n: usize, sb: Steps) -> bool {
    m <= 2 && sb.1 == 1 || m.saturating_mul(k).saturating_mul(n) <= 1024
}

/// Element types that products accumulate in.
pub(crate) trait Field: Store {
    /// `c += a * b` of `m x k` by `k x n`, `c` row-major. The caller has
    /// checked that all strides stay inside the slices. `thin`: row by row.
    #[allow(clippy::too_many_arguments)]
    fn block(
        m: usize,
        k: usize,
        n: usize,
        a: &[Self],
        sa: Steps,
        b: &[Self],
        sb: Steps,
        c: &mut [Self],
        thin: bool,
    );
}

fn last(rows: usize, cols: usize, s: Steps) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * s.0 + (cols - 1) * s.1 + 1 }
}

/// Runs `f(offset, chunk)` on chunks of `size`, each its own task.
pub(crate) fn parallel<T: Send>(out: &mut [T], size: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
    out.par_chunks_mut(size.max(1)).enumerate().for_each(|(i, c)| f(i * size, c));
}

/// `a * b` of `m x k` by `k x n` in row-major order, `None` if a stride
/// leaves its slice.
pub(crate) fn matmul<T: Field>(
    (m, k, n): (usize, usize, usize),
    (a, sa): (&[T], Steps),
    (b, sb): (&[T], Steps),
) -> Option<Vec<T>> {
    if last(m, k, sa) > a.len() || last(k, n, sb) > b.len() {
        return None;
    }
    let mut out = vec![T::default(); m.checked_mul(n)?];
    if out.is_empty() || k == 0 {
        return Some(out);
    }
    let work = m.saturating_mul(k).saturating_mul(n);
    // Parts do not depend on the number of threads, nor does a part's kernel
    // on its size: the sums are the same bits for any number.
    if work < SPLIT {
        T::block(m, k, n, a, sa, b, sb, &mut out, thin(m, k, n, sb));
    } else if m >= 2 * STRIP {
        let per = m.div_ceil(4).next_multiple_of(STRIP);
        let go = |at: usize, c: &mut [T]| {
            T::block(c.len() / n, k, n, &a[at / n * sa.0..], sa, b, sb, c, false);
        };
        parallel(&mut out, per * n, &go);
    } else {
        // Few rows: split the columns, then put the parts side by side.
        let thin = thin(m, k, n, sb);
        let per = n.div_ceil(4).next_multiple_of(64);
        let count = n.div_ceil(per);
        let mut parts = vec![T::default(); count * m * per];
        let width = |i: usize| per.min(n - i * per);
        let go = |at: usize, c: &mut [T]| {
            let i = at / (m * per);
            let w = width(i);
            T::block(m, k, w, a, sa, &b[i * per * sb.1..], sb, &mut c[..m * w], thin);
        };
        parallel(&mut parts, m * per, &go);
        for (i, c) in parts.chunks_exact(m * per).enumerate() {
            let (at, w) = (i * per, width(i));
            for r in 0..m {
                out[r * n + at..r * n + at + w].copy_from_slice(&c[r * w..(r + 1) * w]);
            }
        }
    }
    Some(out)
}

/// Row-by-row product for types without a tuned kernel.
#[allow(clippy::too_many_arguments)]
fn plain<T: Copy>(
    m: usize,
    k: usize,
    n: usize,
    a: &[T],
    sa: Steps,
    b: &[T],
    sb: Steps,
    c: &mut [T],
    mul_add: impl Fn(T, T, T) -> T,
) {
    for i in 0..m {
        let row = &mut c[i * n..(i + 1) * n];
        for p in 0..k {
            let x = a[i * sa.0 + p * sa.1];
            if sb.1 == 1 {
                for (o, &y) in row.iter_mut().zip(&b[p * sb.0..p * sb.0 + n]) {
                    *o = mul_add(*o, x, y);
                }
            } else {
                for (j, o) in row.iter_mut().enumerate() {
                    *o = mul_add(*o, x, b[p * sb.0 + j * sb.1]);
                }
            }
        }
    }
}

macro_rules! tuned {
    ($t:ident, $f:path) => {
        impl Field for $t {
            fn block(
                m: usize,
                k: usize,
                n: usize,
                a: &[$t],
                sa: Steps,
                b: &[$t],
                sb: Steps,
                c: &mut [$t],
                thin: bool,
            ) {
                if thin {
                    return plain(m, k, n, a, sa, b, sb, c, |o, x, y| o + x * y);
                }
                assert!(last(m, k, sa) <= a.len() && last(k, n, sb) <= b.len());
                assert!(m * n <= c.len());
                #[allow(unsafe_code)]
                // SAFETY: the asserts above bound every element that the
                // strides reach.
                unsafe {
                    $f(
                        m,
                        k,
                        n,
                        1.0,
                        a.as_ptr(),
                        sa.0 as isize,
                        sa.1 as isize,
                        b.as_ptr(),
                        sb.0 as isize,
                        sb.1 as isize,
                        1.0,
                        c.as_mut_ptr(),
                        n as isize,
                        1,
                    );
                }
            }
        }
    };
}
tuned!(f32, matrixmultiply::sgemm);
tuned!(f64, matrixmultiply::dgemm);

macro_rules! ring {
    ($t:ident, $f:expr) => {
        impl Field for $t {
            fn block(
                m: usize,
                k: usize,
                n: usize,
                a: &[$t],
                sa: Steps,
                b: &[$t],
                sb: Steps,
                c: &mut [$t],
                _thin: bool,
            ) {
                plain(m, k, n, a, sa, b, sb, c, $f);
            }
        }
    };
}
ring!(i32, |o: i32, x: i32, y: i32| o.wrapping_add(x.wrapping_mul(y)));
ring!(i64, |o: i64, x: i64, y: i64| o.wrapping_add(x.wrapping_mul(y)));
ring!(C64, |o: C64, x: C64, y: C64| C64 {
    re: o.re + (x.re * y.re - x.im * y.im),
    im: o.im + (x.re * y.im + x.im * y.re),
});
ring!(C128, |o: C128, x: C128, y: C128| {
    let p = x.mul(y);
    c(o.re + p.re, o.im + p.im)
});
