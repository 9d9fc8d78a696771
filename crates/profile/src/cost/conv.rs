//! FLOP of convolutions: products with padding and with the holes of a
//! dilated base are not counted.

use scalify_ir::attrs::{Attrs, WindowDim};
use scalify_ir::{InstrId, Module};

/// Kernel positions that are counted one by one.
const MAX_KERNEL: i64 = 1 << 22;

/// Two FLOP per product of an input element and a kernel element.
pub(super) fn flops(m: &Module, id: InstrId) -> f64 {
    let i = m.instr(id);
    let Attrs::Conv(c) = &i.attrs else { return 0.0 };
    let &[lhs, rhs] = i.operands.as_slice() else { return 0.0 };
    let (lhs, rhs, out) = (m.shape(lhs).dims(), m.shape(rhs).dims(), m.shape(id).dims());
    let at = |d: &[i64], k: i64| {
        usize::try_from(k).ok().and_then(|k| d.get(k)).copied().unwrap_or(0).max(0)
    };
    let features = at(lhs, c.input_feature) / c.feature_group_count.max(1);
    let batch = at(lhs, c.input_batch) / c.batch_group_count.max(1);
    let mut n = features as f64 * at(out, c.output_feature) as f64 * batch as f64;
    for (k, w) in c.window.iter().enumerate() {
        let dim = |v: &[i64], of: &[i64]| v.get(k).map_or(0, |&d| at(of, d));
        n *= positions(
            dim(&c.input_spatial, lhs),
            dim(&c.kernel_spatial, rhs),
            dim(&c.output_spatial, out),
            w,
        );
    }
    2.0 * n
}

/// Pairs of an output and a kernel position along one dimension that meet an
/// input element.
fn positions(input: i64, kernel: i64, output: i64, w: &WindowDim) -> f64 {
    let (stride, base) = (i128::from(w.stride.max(1)), i128::from(w.base_dilation.max(1)));
    if input <= 0 || kernel <= 0 || output <= 0 {
        return 0.0;
    }
    if kernel > MAX_KERNEL {
        return kernel as f64 * output as f64 / base as f64;
    }
    let last = i128::from(input - 1) * base;
    let g = gcd(stride, base);
    // Output positions that share a residue repeat with this period.
    let period = base / g;
    let inverse = (0..period).find(|k| (k * (stride / g)) % period == 1 % period).unwrap_or(0);
    let mut n = 0i128;
    for k in 0..i128::from(kernel) {
        // Dilated input position at output 0.
        let c = k * i128::from(w.window_dilation.max(1)) - i128::from(w.pad_low);
        let lo = (-c).div_euclid(stride) + i128::from((-c).rem_euclid(stride) != 0);
        let hi = (last - c).div_euclid(stride);
        let (lo, hi) = (lo.max(0), hi.min(i128::from(output) - 1));
        if lo > hi || c.rem_euclid(g) != 0 {
            continue;
        }
        // o * stride + c = 0 (mod base)
        let r = ((-c).div_euclid(g).rem_euclid(period) * inverse).rem_euclid(period);
        let first = lo + (r - lo).rem_euclid(period);
        if first <= hi {
            n += (hi - first) / period + 1;
        }
    }
    n as f64
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By definition.
    fn slow(input: i64, kernel: i64, output: i64, w: &WindowDim) -> i64 {
        let mut n = 0;
        for k in 0..kernel {
            for o in 0..output {
                let x = o * w.stride - w.pad_low + k * w.window_dilation;
                n += i64::from(
                    x % w.base_dilation == 0 && (0..input).contains(&x.div_euclid(w.base_dilation)),
                );
            }
        }
        n
    }

    #[test]
    fn positions_are_those_of_the_definition() {
        for input in 1..7 {
            for kernel in 1..5 {
                for (stride, base, window_dilation) in
                    [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 3, 2), (3, 2, 1), (4, 6, 3), (1, 5, 2)]
                {
                    for pad_low in -2..4 {
                        let w = WindowDim {
                            stride,
                            base_dilation: base,
                            window_dilation,
                            pad_low,
                            ..Default::default()
                        };
                        for output in [1, 3, 8] {
                            assert_eq!(
                                positions(input, kernel, output, &w),
                                slow(input, kernel, output, &w) as f64,
                                "{input} {kernel} {output} {w:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
