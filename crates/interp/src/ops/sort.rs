//! `sort` and `topk`. Sorting is always stable.

use super::gather::dim;
use super::movement::{take, transpose};
use super::real::Flt;
use super::reduce::Apply;
use crate::error::{Res, invalid, unsupported};
use crate::tensor::{Data, Tensor};
use scalify_ir::DType;
use std::cmp::Ordering;

/// A recognised comparator: keys (functions of one operand's element) in
/// lexicographic order, and per key whether it descends and compares by
/// total order.
pub(crate) struct KeyOrder {
    /// Key tensors, flat, in the layout of the operands.
    pub(crate) key: Tensor,
    pub(crate) descending: bool,
    pub(crate) total: bool,
}

fn rank_keys(k: &KeyOrder) -> Option<Vec<i128>> {
    // Keys as integers whose order is the comparator's; `None` where the
    // order is not total (NaN under a partial compare).
    let v: Vec<i128> = match &k.key.data {
        Data::U64(v) => v.iter().map(|&x| x as i128).collect(),
        d if k.key.dtype.is_float() => {
            let x = match d {
                Data::F64(v) => v.to_vec(),
                _ => k.key.to_f64(),
            };
            if !k.total && x.iter().any(|x| x.is_nan()) {
                return None;
            }
            // Without total order both zeros are one.
            x.iter().map(|&x| if k.total { x.key() } else { (x + 0.0).key() } as i128).collect()
        }
        _ => k.key.to_i64()?.into_iter().map(|x| x as i128).collect(),
    };
    Some(if k.descending { v.into_iter().map(|x| -x).collect() } else { v })
}

/// Sorts `x` along `d`. `less` is the comparator on lanes; `keys` yields a
/// recognised form of it for operands already laid out with `d` last.
pub(crate) fn sort(
    x: Vec<Tensor>,
    d: i64,
    keys: &mut dyn FnMut(&[Tensor]) -> Res<Option<KeyOrder>>,
    less: &mut Apply<'_>,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<Vec<Tensor>> {
    let Some(first) = x.first() else { return invalid("no operands") };
    if x.iter().any(|t| t.dims != first.dims) {
        return invalid("operand shapes differ");
    }
    let d = dim(d, first.rank())?;
    let dims = first.dims.clone();
    let mut perm: Vec<i64> = (0..dims.len() as i64).filter(|&i| i != d as i64).collect();
    perm.push(d as i64);
    let moved: Vec<Tensor> = x.into_iter().map(|t| transpose(t, &perm)).collect::<Res<_>>()?;
    let n = dims[d] as usize;
    let total = moved[0].len();
    let mut order: Vec<usize> = (0..total).collect();
    if n > 1 && total > 0 {
        match keys(&moved)?.and_then(|k| rank_keys(&k)).filter(|k| k.len() == total) {
            Some(k) => {
                for row in order.chunks_mut(n) {
                    row.sort_by(|&a, &b| k[a].cmp(&k[b]));
                }
            }
            None => merge(&moved, &mut order, n, less, tick)?,
        }
    }
    let mdims = moved[0].dims.clone();
    let mut back = vec![0i64; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        back[p as usize] = i as i64;
    }
    moved
        .iter()
        .map(|t| transpose(Tensor { dims: mdims.clone(), ..take(t, &order) }, &back))
        .collect()
}

/// Bottom-up merge sort; the merges of all rows advance together, one
/// comparison of each per step.
fn merge(
    x: &[Tensor],
    order: &mut Vec<usize>,
    n: usize,
    less: &mut Apply<'_>,
    tick: &mut dyn FnMut() -> Res<()>,
) -> Res<()> {
    struct Job {
        a: usize,
        a_end: usize,
        b: usize,
        b_end: usize,
        out: usize,
    }
    let mut width = 1;
    let mut next = order.clone();
    while width < n {
        let mut jobs = Vec::new();
        for row in 0..order.len() / n {
            let base = row * n;
            for a in (0..n).step_by(2 * width) {
                let mid = (a + width).min(n);
                let end = (a + 2 * width).min(n);
                jobs.push(Job {
                    a: base + a,
                    a_end: base + mid,
                    b: base + mid,
                    b_end: base + end,
                    out: base + a,
                });
            }
        }
        while !jobs.is_empty() {
            tick()?;
            jobs.retain_mut(|j| {
                if j.a < j.a_end && j.b < j.b_end {
                    return true;
                }
                while j.a < j.a_end {
                    next[j.out] = order[j.a];
                    (j.a, j.out) = (j.a + 1, j.out + 1);
                }
                while j.b < j.b_end {
                    next[j.out] = order[j.b];
                    (j.b, j.out) = (j.b + 1, j.out + 1);
                }
                false
            });
            if jobs.is_empty() {
                break;
            }
            let l: Vec<usize> = jobs.iter().map(|j| order[j.b]).collect();
            let r: Vec<usize> = jobs.iter().map(|j| order[j.a]).collect();
            let args = x.iter().flat_map(|t| [take(t, &l), take(t, &r)]).collect();
            let c = less(args)?;
            let Some(Data::Bool(c)) = c.first().map(|t| &t.data) else {
                return invalid("comparator does not return pred");
            };
            for (j, &right_first) in jobs.iter_mut().zip(c.iter()) {
                if right_first {
                    next[j.out] = order[j.b];
                    j.b += 1;
                } else {
                    next[j.out] = order[j.a];
                    j.a += 1;
                }
                j.out += 1;
            }
        }
        std::mem::swap(order, &mut next);
        width *= 2;
    }
    Ok(())
}

/// `topk` along the last dimension: (values, indices `s32`). Equal values
/// keep their order; NaN counts as the largest.
pub(crate) fn topk(t: &Tensor, k: i64, largest: bool) -> Res<(Tensor, Tensor)> {
    let Some(&n) = t.dims.last() else { return invalid("scalar operand") };
    if k < 0 || k > n {
        return invalid(format!("k = {k} of {n}"));
    }
    let (n, k) = (n as usize, k as usize);
    let keys: Vec<i128> = match &t.data {
        Data::U64(v) => v.iter().map(|&x| x as i128).collect(),
        _ if t.dtype.is_float() => {
            let key = |x: f64| if x.is_nan() { i64::MAX } else { x.key() };
            t.to_f64().into_iter().map(|x| key(x) as i128).collect()
        }
        _ => match t.to_i64() {
            Some(v) => v.into_iter().map(|x| x as i128).collect(),
            None => return unsupported(format!("element type {}", t.dtype)),
        },
    };
    let (mut places, mut index) = (Vec::new(), Vec::new());
    for row in 0..t.len().checked_div(n).unwrap_or(0) {
        let mut order: Vec<usize> = (row * n..(row + 1) * n).collect();
        let cmp = |a: &usize, b: &usize| -> Ordering {
            let o = keys[*a].cmp(&keys[*b]);
            if largest { o.reverse() } else { o }
        };
        order.sort_by(cmp);
        order.truncate(k);
        index.extend(order.iter().map(|&i| (i - row * n) as i32));
        places.extend(order);
    }
    let mut dims = t.dims.clone();
    if let Some(d) = dims.last_mut() {
        *d = k as i64;
    }
    if places.len() != crate::tensor::count(&dims).unwrap_or(0) {
        return invalid("result dimensions");
    }
    let values = Tensor { dims: dims.clone(), ..take(t, &places) };
    Ok((values, Tensor::raw(DType::S32, &dims, Data::from_vec(index))))
}
