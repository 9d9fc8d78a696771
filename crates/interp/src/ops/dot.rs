//! `dot`, `ragged-dot`, `scaled-dot`.
//!
//! Products of floats up to `f32` are summed in `f32` (in `f64` if an operand
//! or the result is `f64`, or in accumulation mode `F64`) and rounded once to
//! the result; integers are exact modulo the width of the result; complex
//! numbers are summed in parts likewise (`c64` in `f32`). `operand_precision` and `algorithm` are
//! ignored: they only allow less exact results.

use super::matmul::{Field, Steps, matmul, parallel, thin};
use super::movement::{reshape, transpose};
use super::par::map1;
use crate::complex::{C64, C128};
use crate::error::{Res, invalid, unsupported};
use crate::tensor::{Data, Store, Tensor};
use scalify_ir::dtype::DTypeClass;
use scalify_ir::shape::Dims;
use scalify_ir::{DType, DotAttrs};
use std::sync::Arc;

/// What products are summed in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Acc {
    F32,
    F64,
    I32,
    I64,
    C64,
    C128,
}

pub(crate) fn accumulator(a: DType, b: DType, out: DType, wide: bool) -> Acc {
    let all = [a, b, out];
    if all.iter().any(|t| t.is_complex()) {
        let double = wide || all.contains(&DType::C128) || all.contains(&DType::F64);
        if double { Acc::C128 } else { Acc::C64 }
    } else if all.iter().any(|t| t.is_float()) {
        if wide || all.contains(&DType::F64) { Acc::F64 } else { Acc::F32 }
    } else if out.bits() <= 32 {
        Acc::I32
    } else {
        Acc::I64
    }
}

/// Elements as accumulators.
pub(crate) fn as_f32(t: &Tensor) -> Res<Arc<Vec<f32>>> {
    Ok(match super::convert::convert(t.clone(), DType::F32, false)?.data {
        Data::F32(v) => v,
        Data::F64(v) => Arc::new(map1(&v, |x: f64| x as f32)),
        _ => return unsupported("element type"),
    })
}

pub(crate) fn as_f64(t: &Tensor) -> Res<Arc<Vec<f64>>> {
    Ok(match &t.data {
        Data::F64(v) => v.clone(),
        _ => Arc::new(t.to_f64()),
    })
}

pub(crate) fn as_i32(t: &Tensor) -> Res<Arc<Vec<i32>>> {
    match super::convert::convert(t.clone(), DType::S32, false)?.data {
        Data::I32(v) => Ok(v),
        _ => unsupported("element type"),
    }
}

pub(crate) fn as_i64(t: &Tensor) -> Res<Arc<Vec<i64>>> {
    match super::convert::convert(t.clone(), DType::S64, false)?.data {
        Data::I64(v) => Ok(v),
        _ => unsupported("element type"),
    }
}

pub(crate) fn as_c64(t: &Tensor) -> Res<Arc<Vec<C64>>> {
    match super::convert::convert(t.clone(), DType::C64, false)?.data {
        Data::C64(v) => Ok(v),
        Data::C128(v) => Ok(Arc::new(map1(&v, |x: C128| x.narrow()))),
        _ => unsupported("element type"),
    }
}

pub(crate) fn as_c128(t: &Tensor) -> Res<Arc<Vec<C128>>> {
    Ok(match &t.data {
        Data::C128(v) => v.clone(),
        Data::C64(v) => Arc::new(map1(v, |x: C64| x.wide())),
        _ => Arc::new(map1(&t.to_f64(), |re| C128 { re, im: 0.0 })),
    })
}

/// Sums as elements of the result's type.
pub(crate) fn finish<T: Store>(v: Vec<T>, out: DType, dims: &[i64], wide: bool) -> Res<Tensor> {
    let data = Data::from_vec(v);
    let from = match &data {
        Data::F32(_) => DType::F32,
        Data::F64(_) => DType::F64,
        Data::I32(_) => DType::S32,
        Data::I64(_) => DType::S64,
        Data::C64(_) => DType::C64,
        _ => DType::C128,
    };
    super::convert::convert(Tensor::raw(from, dims, data), out, wide)
}

/// Runs `$body` with `$x`, `$y` as slices of the accumulator type.
macro_rules! accumulate {
    ($acc:expr, $a:expr, $b:expr, |$x:ident, $y:ident| $body:expr) => {
        match $acc {
            Acc::F32 => {
                let ($x, $y) = (as_f32($a)?, as_f32($b)?);
                $body
            }
            Acc::F64 => {
                let ($x, $y) = (as_f64($a)?, as_f64($b)?);
                $body
            }
            Acc::I32 => {
                let ($x, $y) = (as_i32($a)?, as_i32($b)?);
                $body
            }
            Acc::I64 => {
                let ($x, $y) = (as_i64($a)?, as_i64($b)?);
                $body
            }
            Acc::C64 => {
                let ($x, $y) = (as_c64($a)?, as_c64($b)?);
                $body
            }
            Acc::C128 => {
                let ($x, $y) = (as_c128($a)?, as_c128($b)?);
                $body
            }
        }
    };
}
pub(crate) use accumulate;

/// Checked dimension numbers.
fn pick(t: &Tensor, which: &[i64], used: &mut [bool]) -> Res<Vec<usize>> {
    let mut out = Vec::new();
    for &d in which {
        match usize::try_from(d).ok().filter(|&d| d < t.rank() && !used[d]) {
            Some(d) => {
                used[d] = true;
                out.push(d);
            }
            None => return invalid(format!("dimension {d} of {:?}", t.dims)),
        }
    }
    Ok(out)
}

/// One operand as batch x rows x columns: permuted if needed.
struct Side {
    tensor: Tensor,
    batch: Vec<i64>,
    free: Vec<i64>,
    contract: Vec<i64>,
    /// Contracting dimensions come before the free ones.
    contract_first: bool,
}

fn side(t: &Tensor, batch: &[i64], contract: &[i64]) -> Res<Side> {
    let mut used = vec![false; t.rank()];
    let b = pick(t, batch, &mut used)?;
    let k = pick(t, contract, &mut used)?;
    let f: Vec<usize> = (0..t.rank()).filter(|&d| !used[d]).collect();
    let order = |x: &[usize], y: &[usize]| -> Vec<i64> {
        b.iter().chain(x).chain(y).map(|&d| d as i64).collect()
    };
    let (kf, fk) = (order(&k, &f), order(&f, &k));
    let contract_first = kf.windows(2).all(|w| w[0] < w[1]);
    let tensor = transpose(t.clone(), if contract_first { &kf } else { &fk })?;
    let sizes = |x: &[usize]| x.iter().map(|&d| t.dims[d]).collect();
    Ok(Side { tensor, batch: sizes(&b), free: sizes(&f), contract: sizes(&k), contract_first })
}

fn product(d: &[i64]) -> usize {
    d.iter().product::<i64>() as usize
}

/// `dot`.
pub(crate) fn dot(a: &Tensor, b: &Tensor, at: &DotAttrs, out: DType, wide: bool) -> Res<Tensor> {
    let l = side(a, &at.lhs_batch, &at.lhs_contracting)?;
    let r = side(b, &at.rhs_batch, &at.rhs_contracting)?;
    if l.batch != r.batch || l.contract != r.contract {
        return invalid(format!("{:?} and {:?} do not match by {at:?}", a.dims, b.dims));
    }
    let (m, k, n) = (product(&l.free), product(&l.contract), product(&r.free));
    let batch = product(&l.batch);
    let dims: Dims = l.batch.iter().chain(&l.free).chain(&r.free).copied().collect();
    if crate::tensor::count(&dims).is_none() {
        return invalid("result too big");
    }
    let sa = if l.contract_first { Steps(1, m) } else { Steps(k, 1) };
    let sb = if r.contract_first { Steps(n, 1) } else { Steps(1, k) };
    let acc = accumulator(a.dtype, b.dtype, out, wide);
    if out == DType::Pred {
        let t = accumulate!(acc, &l.tensor, &r.tensor, |x, y| {
            finish(batched(&x, &y, batch, (m, k, n), sa, sb)?, DType::S64, &dims, wide)?
        });
        return super::convert::convert(t, out, wide);
    }
    accumulate!(acc, &l.tensor, &r.tensor, |x, y| {
        finish(batched(&x, &y, batch, (m, k, n), sa, sb)?, out, &dims, wide)
    })
}

fn batched<T: Field>(
    a: &[T],
    b: &[T],
    batch: usize,
    (m, k, n): (usize, usize, usize),
    sa: Steps,
    sb: Steps,
) -> Res<Vec<T>> {
    let one = |i: usize| matmul((m, k, n), (&a[i * m * k..], sa), (&b[i * k * n..], sb));
    if batch == 1 {
        return one(0).map_or_else(|| invalid("matrix sizes"), Ok);
    }
    let mut out = vec![T::default(); batch * m * n];
    if out.is_empty() || k == 0 {
        return Ok(out);
    }
    let thin = thin(m, k, n, sb);
    let go = |at: usize, c: &mut [T]| {
        let i = at / (m * n);
        T::block(m, k, n, &a[i * m * k..], sa, &b[i * k * n..], sb, c, thin);
    };
    if batch * m * k * n < 1 << 18 {
        out.chunks_mut(m * n).enumerate().for_each(|(i, c)| go(i * m * n, c));
    } else {
        parallel(&mut out, m * n, &go);
    }
    Ok(out)
}

/// `ragged-dot`: rows (or contracted elements) of `a` belong to groups of
/// consecutive `sizes`; each group uses its own slice of `b`.
pub(crate) fn ragged_dot(
    a: &Tensor,
    b: &Tensor,
    sizes: &Tensor,
    at: &DotAttrs,
    out: (DType, &[i64]),
    wide: bool,
) -> Res<Tensor> {
    let Some(groups) = sizes.to_i64() else { return invalid("group sizes are no integers") };
    let [ragged] = at.lhs_ragged[..] else { return unsupported("several ragged dimensions") };
    if sizes.rank() != 1 || at.lhs_batch.contains(&ragged) {
        return unsupported("ragged batch dimension or batched group sizes");
    }
    let Some(r) = usize::try_from(ragged).ok().filter(|&r| r < a.rank()) else {
        return invalid(format!("ragged dimension {ragged} of {:?}", a.dims));
    };
    let plain = DotAttrs { lhs_ragged: Dims::new(), rhs_group: Dims::new(), ..at.clone() };
    let slice = |t: &Tensor, d: usize, lo: i64, hi: i64| {
        let mut s = scalify_ir::SliceAttrs {
            start: t.dims.iter().map(|_| 0).collect(),
            limit: t.dims.clone(),
            stride: t.dims.iter().map(|_| 1).collect(),
        };
        s.start[d] = lo;
        s.limit[d] = hi;
        super::movement::slice(t, &s)
    };
    let total = a.dims[r];
    let mut bounds = Vec::new();
    let mut from = 0i64;
    for g in groups {
        let to = from.saturating_add(g.max(0)).min(total);
        bounds.push((from, to));
        from = to;
    }
    let mut parts = Vec::new();
    if let Some(c) = at.lhs_contracting.iter().position(|&d| d == ragged) {
        let Some(rd) = at.rhs_contracting.get(c).and_then(|&d| usize::try_from(d).ok()) else {
            return invalid("contracting dimensions");
        };
        if rd >= b.rank() {
            return invalid("contracting dimensions");
        }
        for &(lo, hi) in &bounds {
            let t = dot(&slice(a, r, lo, hi)?, &slice(b, rd, lo, hi)?, &plain, out.0, wide)?;
            let dims: Vec<i64> = std::iter::once(1).chain(t.dims.iter().copied()).collect();
            parts.push(reshape(t, &dims)?);
        }
        return super::movement::concatenate(&parts, 0);
    }
    let [group] = at.rhs_group[..] else { return invalid("no rhs group dimension") };
    let Some(g) = usize::try_from(group).ok().filter(|&g| g < b.rank()) else {
        return invalid(format!("group dimension {group} of {:?}", b.dims));
    };
    let shift = |d: &Dims| d.iter().map(|&d| if d > group { d - 1 } else { d }).collect();
    let inner = DotAttrs {
        rhs_batch: shift(&at.rhs_batch),
        rhs_contracting: shift(&at.rhs_contracting),
        ..plain
    };
    // Position of the ragged dimension among the free ones of the result.
    let used = |d: i64| at.lhs_batch.contains(&d) || at.lhs_contracting.contains(&d);
    let pos = at.lhs_batch.len() + (0..ragged).filter(|&d| !used(d)).count();
    let squeeze: Vec<i64> =
        b.dims.iter().enumerate().filter(|(i, _)| *i != g).map(|(_, &d)| d).collect();
    if bounds.len() as i64 > b.dims[g] {
        return invalid("more group sizes than groups");
    }
    for (i, &(lo, hi)) in bounds.iter().enumerate() {
        let w = reshape(slice(b, g, i as i64, i as i64 + 1)?, &squeeze)?;
        parts.push(dot(&slice(a, r, lo, hi)?, &w, &inner, out.0, wide)?);
    }
    if from < total {
        // Rows past the last group are zero.
        let w = reshape(slice(b, g, 0, 1)?, &squeeze)?;
        let mut z = dot(&slice(a, r, from, total)?, &w, &inner, out.0, wide)?;
        z.data = super::elementwise::zeros(&z.data, z.len());
        parts.push(z);
    }
    if parts.is_empty() {
        return unsupported("no groups");
    }
    super::movement::concatenate(&parts, pos as i64)
}

/// `scaled-dot`: operands times their block scales, then `dot`.
pub(crate) fn scaled_dot(ops: &[Tensor], at: &DotAttrs, out: DType, wide: bool) -> Res<Tensor> {
    let [a, b, sa, sb] = ops else { return invalid("expects four operands") };
    let scaled = |t: &Tensor, s: &Tensor| -> Res<Tensor> {
        let acc = if wide { DType::F64 } else { DType::F32 };
        let t = super::convert::convert(t.clone(), acc, wide)?;
        let s = super::convert::convert(s.clone(), acc, wide)?;
        if s.rank() == 0 || s.len() == 1 {
            let data = super::elementwise::splat(&s, t.len());
            let s = Tensor { data, dims: t.dims.clone(), ..s };
            return super::elementwise::binary(scalify_ir::Opcode::Multiply, t, s);
        }
        // Each scale covers a block: [d] -> [d, block] -> [d * block].
        let (mut grid, mut map) = (Vec::new(), Vec::new());
        if s.rank() != t.rank() {
            return invalid("scale of another rank");
        }
        for (&d, &n) in s.dims.iter().zip(&t.dims) {
            if d <= 0 || n % d != 0 {
                return invalid(format!("scale {:?} of {:?}", s.dims, t.dims));
            }
            map.push(grid.len() as i64);
            grid.extend([d, n / d]);
        }
        let s = reshape(super::movement::broadcast(&s, &map, &grid)?, &t.dims.clone())?;
        super::elementwise::binary(scalify_ir::Opcode::Multiply, t, s)
    };
    let (x, y) = (scaled(a, sa)?, scaled(b, sb)?);
    if out.class() != DTypeClass::Float {
        return unsupported(format!("result {out}"));
    }
    dot(&x, &y, at, out, wide)
}
