//! Agreement of the largest elements along an axis.

use crate::decode::values;
use crate::engine::indices;
use crate::metrics::Top;
use scalify_tensors::{Tensor, TensorError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const K: usize = 5;

/// Rows handled side by side at most.
const ROWS: u64 = 1 << 20;

/// The largest elements of a row so far, largest first.
#[derive(Clone, Copy)]
struct Best {
    value: [f64; K],
    index: [u64; K],
    held: usize,
}

impl Best {
    const EMPTY: Best = Best { value: [0.0; K], index: [0; K], held: 0 };

    /// NaN is above all, as for numpy's `argmax`; the first of equals wins.
    fn above(a: f64, b: f64) -> bool {
        a > b || a.is_nan() && !b.is_nan()
    }

    fn add(&mut self, x: f64, at: u64) {
        if self.held == K && !Best::above(x, self.value[K - 1]) {
            return;
        }
        let place = (0..self.held).find(|&i| Best::above(x, self.value[i])).unwrap_or(self.held);
        if place >= K {
            return;
        }
        self.held = (self.held + 1).min(K);
        for i in (place + 1..self.held).rev() {
            self.value[i] = self.value[i - 1];
            self.index[i] = self.index[i - 1];
        }
        self.value[place] = x;
        self.index[place] = at;
    }

    fn indices(&self) -> &[u64] {
        &self.index[..self.held]
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    top1: u64,
    top5: u64,
    same: u64,
    of: u64,
    first: Option<u64>,
}

/// See [`Top`].
pub(crate) fn agreement(
    e: &Tensor,
    a: &Tensor,
    axis: i64,
    threads: usize,
) -> Result<Top, TensorError> {
    let refuse = |message: String, expected: String| TensorError::Request {
        name: "tensor".into(),
        message,
        expected,
    };
    let rank = e.dims().len() as i64;
    let at = if axis < 0 { axis + rank } else { axis };
    let Some(&size) = usize::try_from(at).ok().and_then(|i| e.dims().get(i)) else {
        return Err(refuse(format!("axis {axis}"), format!("an axis of {rank} dimensions")));
    };
    if e.dtype().is_complex() || a.dtype().is_complex() {
        return Err(refuse("complex numbers have no order".into(), "real numbers".into()));
    }
    let at = at as usize;
    let size = size as u64;
    let inner: u64 = e.dims().iter().skip(at + 1).map(|&d| d as u64).product();
    let rows = e.len().checked_div(size).unwrap_or(0);
    // Work is cut into runs of rows: whole outer indices, or parts of the
    // inner ones where those are many.
    let wide = inner.min(ROWS);
    let parts = if wide == 0 { 0 } else { inner.div_ceil(wide) };
    let outer = rows.checked_div(inner).unwrap_or(0);
    let next = AtomicU64::new(0);
    let result = Mutex::new(Ok(Counts::default()));
    let work = || {
        let mut sum = Counts::default();
        let mut s = Scratch::default();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= outer * parts {
                break;
            }
            let (o, from) = (job / parts, (job % parts) * wide);
            let n = wide.min(inner - from);
            let run = Run { base: o * size * inner + from, size, inner, n };
            match run.compare(e, a, &mut s) {
                Ok(c) => {
                    sum.top1 += c.top1;
                    sum.top5 += c.top5;
                    sum.same += c.same;
                    sum.of += c.of;
                    let first = c.first.map(|i| o * inner + from + i);
                    sum.first = [sum.first, first].into_iter().flatten().min();
                }
                Err(e) => {
                    next.store(outer * parts, Ordering::Relaxed);
                    *result.lock().unwrap_or_else(|p| p.into_inner()) = Err(e);
                    return;
                }
            }
        }
        let mut all = result.lock().unwrap_or_else(|p| p.into_inner());
        if let Ok(t) = &mut *all {
            t.top1 += sum.top1;
            t.top5 += sum.top5;
            t.same += sum.same;
            t.of += sum.of;
            t.first = [t.first, sum.first].into_iter().flatten().min();
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.clamp(1, 256).min((outer * parts).max(1) as usize) {
            s.spawn(work);
        }
        work();
    });
    let c = result.into_inner().unwrap_or_else(|p| p.into_inner())?;
    let mut others = e.dims().to_vec();
    others.remove(at);
    Ok(Top {
        axis: at,
        rows,
        top1: c.top1,
        top5: c.top5,
        overlap5: if c.of == 0 { 1.0 } else { c.same as f64 / c.of as f64 },
        first_mismatch: c.first.map(|i| indices(&others, i)),
    })
}

#[derive(Default)]
struct Scratch {
    e: Vec<Best>,
    a: Vec<Best>,
    bytes: Vec<u8>,
    values: Vec<f64>,
}

/// `n` neighbouring rows of `size` elements that are `inner` apart.
struct Run {
    base: u64,
    size: u64,
    inner: u64,
    n: u64,
}

impl Run {
    fn compare(&self, e: &Tensor, a: &Tensor, s: &mut Scratch) -> Result<Counts, TensorError> {
        let Scratch { e: be, a: ba, bytes, values } = s;
        self.best(e, be, bytes, values)?;
        self.best(a, ba, bytes, values)?;
        let mut c = Counts::default();
        for (i, (x, y)) in be.iter().zip(ba.iter()).enumerate() {
            let (x, y) = (x.indices(), y.indices());
            let one = x.first() == y.first();
            c.top1 += one as u64;
            if !one && c.first.is_none() {
                c.first = Some(i as u64);
            }
            c.top5 += x.first().is_some_and(|i| y.contains(i)) as u64;
            c.same += x.iter().filter(|i| y.contains(i)).count() as u64;
            c.of += x.len() as u64;
        }
        Ok(c)
    }

    fn best(
        &self,
        t: &Tensor,
        out: &mut Vec<Best>,
        bytes: &mut Vec<u8>,
        v: &mut Vec<f64>,
    ) -> Result<(), TensorError> {
        out.clear();
        out.resize(self.n as usize, Best::EMPTY);
        // Contiguous stretches: one row, or all rows at one place of the axis.
        let mut stretch = |from: u64, len: u64, mut add: Box<dyn FnMut(u64, f64) + '_>| {
            let mut at = 0;
            while at < len {
                let n = (len - at).min(1 << 16) as usize;
                let b = t.read(from + at, n, bytes)?;
                v.resize(n, 0.0);
                values(t.dtype(), b, v);
                v.iter().enumerate().for_each(|(i, &x)| add(at + i as u64, x));
                at += n as u64;
            }
            Ok::<(), TensorError>(())
        };
        if self.inner == 1 {
            if let Some(row) = out.first_mut() {
                stretch(self.base, self.size, Box::new(|i, x| row.add(x, i)))?;
            }
            return Ok(());
        }
        for j in 0..self.size {
            let add = |i: u64, x: f64| {
                if let Some(row) = out.get_mut(i as usize) {
                    row.add(x, j);
                }
            };
            stretch(self.base + j * self.inner, self.n, Box::new(add))?;
        }
        Ok(())
    }
}
