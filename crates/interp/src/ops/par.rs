//! Loops over slices, split over threads where that pays.

use rayon::prelude::*;
use std::sync::Arc;

/// Elements below which a loop stays on one thread.
const SPLIT: usize = 1 << 16;
const CHUNK: usize = 1 << 14;

/// Filled in by `f(offset, chunk)`, chunk by chunk.
pub(crate) fn fill<R: Copy + Default + Send>(
    n: usize,
    f: impl Fn(usize, &mut [R]) + Sync,
) -> Vec<R> {
    let mut out = vec![R::default(); n];
    if n < SPLIT {
        f(0, &mut out);
    } else {
        out.par_chunks_mut(CHUNK).enumerate().for_each(|(i, c)| f(i * CHUNK, c));
    }
    out
}

pub(crate) fn map1<T, R>(a: &[T], f: impl Fn(T) -> R + Sync) -> Vec<R>
where
    T: Copy + Sync,
    R: Copy + Default + Send,
{
    if a.len() < SPLIT {
        return a.iter().map(|&x| f(x)).collect();
    }
    fill(a.len(), |at, out| {
        for (o, &x) in out.iter_mut().zip(&a[at..]) {
            *o = f(x);
        }
    })
}

pub(crate) fn map2<T, U, R>(a: &[T], b: &[U], f: impl Fn(T, U) -> R + Sync) -> Vec<R>
where
    T: Copy + Sync,
    U: Copy + Sync,
    R: Copy + Default + Send,
{
    if a.len() < SPLIT {
        return a.iter().zip(b).map(|(&x, &y)| f(x, y)).collect();
    }
    fill(a.len().min(b.len()), |at, out| {
        for ((o, &x), &y) in out.iter_mut().zip(&a[at..]).zip(&b[at..]) {
            *o = f(x, y);
        }
    })
}

fn update<T: Copy + Send>(a: &mut [T], f: impl Fn(usize, &mut [T]) + Sync) {
    if a.len() < SPLIT {
        f(0, a);
    } else {
        a.par_chunks_mut(CHUNK).enumerate().for_each(|(i, c)| f(i * CHUNK, c));
    }
}

/// As [`map1`], in place if `a` is not shared.
pub(crate) fn map1_same<T: Copy + Default + Send + Sync>(
    a: Arc<Vec<T>>,
    f: impl Fn(T) -> T + Sync,
) -> Arc<Vec<T>> {
    let mut a = match Arc::try_unwrap(a) {
        Ok(v) => v,
        Err(a) => return Arc::new(map1(&a, f)),
    };
    update(&mut a, |_, c| {
        for x in c {
            *x = f(*x);
        }
    });
    Arc::new(a)
}

/// As [`map2`], in place if an operand is not shared. Lengths are equal.
pub(crate) fn map2_same<T: Copy + Default + Send + Sync>(
    a: Arc<Vec<T>>,
    b: Arc<Vec<T>>,
    f: impl Fn(T, T) -> T + Sync,
) -> Arc<Vec<T>> {
    let a = match Arc::try_unwrap(a) {
        Ok(mut v) => {
            update(&mut v, |at, c| {
                for (x, &y) in c.iter_mut().zip(&b[at..]) {
                    *x = f(*x, y);
                }
            });
            return Arc::new(v);
        }
        Err(a) => a,
    };
    match Arc::try_unwrap(b) {
        Ok(mut v) => {
            update(&mut v, |at, c| {
                for (y, &x) in c.iter_mut().zip(&a[at..]) {
                    *y = f(x, *y);
                }
            });
            Arc::new(v)
        }
        Err(b) => Arc::new(map2(&a, &b, f)),
    }
}
