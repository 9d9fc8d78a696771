//! `cholesky` and `triangular-solve`, computed in `c128` or `f64`.

use super::dot::{as_c128, finish};
use crate::complex::{C128, c};
use crate::error::{Res, invalid};
use crate::tensor::Tensor;
use scalify_ir::TransposeKind;

fn square(t: &Tensor) -> Res<(usize, usize)> {
    let r = t.rank();
    if r < 2 || t.dims[r - 1] != t.dims[r - 2] {
        return invalid(format!("{:?} is no batch of square matrices", t.dims));
    }
    let n = t.dims[r - 1] as usize;
    Ok((n, if n == 0 { 0 } else { t.len() / (n * n) }))
}

/// `cholesky`: the other triangle of the result is zero; a matrix that is not
/// positive definite gives NaN.
pub(crate) fn cholesky(t: &Tensor, lower: bool, wide: bool) -> Res<Tensor> {
    let (n, batch) = square(t)?;
    let a = as_c128(t)?;
    let mut out = vec![C128::default(); a.len()];
    for b in 0..batch {
        let a = &a[b * n * n..];
        // The lower factor, from whichever triangle is to be read.
        let get = |i: usize, j: usize| if lower { a[i * n + j] } else { a[j * n + i].conj() };
        let mut l = vec![C128::default(); n * n];
        for j in 0..n {
            for i in j..n {
                let mut s = get(i, j);
                for k in 0..j {
                    s = s.sub(l[i * n + k].mul(l[j * n + k].conj()));
                }
                l[i * n + j] = if i == j {
                    c(if s.re > 0.0 { s.re.sqrt() } else { f64::NAN }, 0.0)
                } else {
                    s.scale(1.0 / l[j * n + j].re)
                };
            }
        }
        for i in 0..n {
            for j in 0..n {
                out[b * n * n + i * n + j] = if lower { l[i * n + j] } else { l[j * n + i].conj() };
            }
        }
    }
    finish(out, t.dtype, &t.dims, wide)
}

/// `triangular-solve`: `op(a) x = b` or `x op(a) = b`.
pub(crate) fn triangular_solve(
    a: &Tensor,
    b: &Tensor,
    left: bool,
    lower: bool,
    unit: bool,
    how: TransposeKind,
    wide: bool,
) -> Res<Tensor> {
    let (n, batch) = square(a)?;
    let r = b.rank();
    let fits = r == a.rank()
        && a.dims[..r - 2] == b.dims[..r - 2]
        && b.dims[if left { r - 2 } else { r - 1 }] == n as i64;
    if !fits {
        return invalid(format!("{:?} against {:?}", a.dims, b.dims));
    }
    let cols = b.dims[if left { r - 1 } else { r - 2 }] as usize;
    let (av, bv) = (as_c128(a)?, as_c128(b)?);
    let mut out = vec![C128::default(); bv.len()];
    for k in 0..batch {
        let m = &av[k * n * n..(k + 1) * n * n];
        let base = k * n * cols;
        let op = |i: usize, j: usize| match how {
            TransposeKind::NoTranspose => m[i * n + j],
            TransposeKind::Transpose => m[j * n + i],
            TransposeKind::Adjoint => m[j * n + i].conj(),
        };
        // x op(a) = b is op(a)^T x^T = b^T.
        let get = |i: usize, j: usize| if left { op(i, j) } else { op(j, i) };
        let transposed = (how != TransposeKind::NoTranspose) == left;
        let forward = lower != transposed;
        for col in 0..cols {
            let at = |i: usize| base + if left { i * cols + col } else { col * n + i };
            for step in 0..n {
                let i = if forward { step } else { n - 1 - step };
                let mut s = bv[at(i)];
                let known = if forward { 0..i } else { i + 1..n };
                for j in known {
                    s = s.sub(get(i, j).mul(out[at(j)]));
                }
                out[at(i)] = if unit { s } else { s.div(get(i, i)) };
            }
        }
    }
    finish(out, b.dtype, &b.dims, wide)
}
