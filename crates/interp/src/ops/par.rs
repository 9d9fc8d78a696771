//! Loops over slices, split over threads where that pays.
//!
//! The threading code sees its loop as a trait object: one instance per
//! element type, not per operation, keeps compile time in bounds.

use super::simd::{vector, vector_long};
use rayon::prelude::*;
use std::sync::Arc;

/// Elements below which a loop stays on one thread.
const SPLIT: usize = 1 << 16;
const CHUNK: usize = 1 << 14;

type Loop<'a, T> = &'a (dyn Fn(usize, &mut [T]) + Sync);

/// Runs `f(offset, chunk)` over chunks whose lengths are multiples of `unit`.
/// `work` is the cost of one element in elementary steps.
pub(crate) fn update<T: Send>(a: &mut [T], unit: usize, work: usize, f: Loop<'_, T>) {
    let unit = unit.max(1);
    if a.len().saturating_mul(work) < SPLIT || a.len() <= unit {
        return f(0, a);
    }
    let units = (CHUNK / unit.saturating_mul(work).max(1)).max(1);
    let size = units * unit;
    a.par_chunks_mut(size).enumerate().for_each(|(i, c)| f(i * size, c));
}

/// A fresh vector filled in by `f` as in [`update`].
pub(crate) fn fill<R: Copy + Default + Send>(n: usize, f: Loop<'_, R>) -> Vec<R> {
    let mut out = vec![R::default(); n];
    update(&mut out, 1, 1, f);
    out
}

pub(crate) fn map1<T, R>(a: &[T], f: impl Fn(T) -> R + Sync) -> Vec<R>
where
    T: Copy + Sync,
    R: Copy + Default + Send,
{
    fill(a.len(), &|at, out| {
        vector(
            #[inline(always)]
            || out.iter_mut().zip(&a[at..]).for_each(|(o, &x)| *o = f(x)),
        );
    })
}

pub(crate) fn map2<T, U, R>(a: &[T], b: &[U], f: impl Fn(T, U) -> R + Sync) -> Vec<R>
where
    T: Copy + Sync,
    U: Copy + Sync,
    R: Copy + Default + Send,
{
    fill(a.len().min(b.len()), &|at, out| {
        vector(
            #[inline(always)]
            || {
                let it = out.iter_mut().zip(&a[at..]).zip(&b[at..]);
                it.for_each(|((o, &x), &y)| *o = f(x, y));
            },
        );
    })
}

/// As [`map1`], in place if `a` is not shared.
pub(crate) fn map1_same<T: Copy + Send + Sync>(
    a: Arc<Vec<T>>,
    f: impl Fn(T) -> T + Sync,
) -> Arc<Vec<T>> {
    let mut a = Arc::unwrap_or_clone(a);
    update(&mut a, 1, 1, &|_, c| {
        vector(
            #[inline(always)]
            || c.iter_mut().for_each(|x| *x = f(*x)),
        );
    });
    Arc::new(a)
}

/// Applies a loop in place if `a` is not shared. For much work per element.
pub(crate) fn map_slice<T: Copy + Send + Sync>(
    a: Arc<Vec<T>>,
    f: impl Fn(&mut [T]) + Sync,
) -> Arc<Vec<T>> {
    let mut a = Arc::unwrap_or_clone(a);
    update(&mut a, 1, 4, &|_, c| {
        vector_long(
            #[inline(always)]
            || f(c),
        );
    });
    Arc::new(a)
}

/// As [`map2`], in place if `a` or `b` is not shared. Lengths are equal.
pub(crate) fn map2_same<T: Copy + Send + Sync>(
    a: Arc<Vec<T>>,
    mut b: Arc<Vec<T>>,
    f: impl Fn(T, T) -> T + Sync,
) -> Arc<Vec<T>> {
    if Arc::strong_count(&a) > 1
        && let Some(w) = Arc::get_mut(&mut b)
    {
        update(w, 1, 1, &|at, c| {
            vector(
                #[inline(always)]
                || c.iter_mut().zip(&a[at..]).for_each(|(y, &x)| *y = f(x, *y)),
            );
        });
        return b;
    }
    let mut a = Arc::unwrap_or_clone(a);
    update(&mut a, 1, 1, &|at, c| {
        vector(
            #[inline(always)]
            || c.iter_mut().zip(&b[at..]).for_each(|(x, &y)| *x = f(*x, y)),
        );
    });
    Arc::new(a)
}
