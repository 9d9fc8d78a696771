//! What the tests of laws share.

#![allow(dead_code)] // each test takes what it needs

pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 * (1.0 + a.abs().max(b.abs()))
}

/// All points of the free axes.
pub(crate) fn points(size: &[i64]) -> Vec<Vec<i64>> {
    let n: i64 = size.iter().product();
    (0..n)
        .map(|mut k| {
            let mut p = vec![0; size.len()];
            for i in (0..size.len()).rev() {
                p[i] = k % size[i];
                k /= size[i];
            }
            p
        })
        .collect()
}
