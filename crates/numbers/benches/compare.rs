//! All metrics of one pair, in bytes per second of both tensors together.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use scalify_ir::DType;
use scalify_numbers::{Options, measure};
use scalify_tensors::Tensor;

fn main() {
    divan::main();
}

/// Deterministic bytes that are values of about one with small errors.
fn pair(t: DType, n: usize) -> (Tensor, Tensor) {
    let mut s = 1u64;
    let mut next = move || {
        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (s >> 33) as f32 / (1u64 << 31) as f32
    };
    let (mut e, mut a) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let x = next() * 2.0 - 1.0;
        let y = x + (next() - 0.5) * 1e-4;
        match t {
            DType::F32 => {
                e.extend(x.to_le_bytes());
                a.extend(y.to_le_bytes());
            }
            DType::Bf16 => {
                e.extend(((x.to_bits() >> 16) as u16).to_le_bytes());
                a.extend(((y.to_bits() >> 16) as u16).to_le_bytes());
            }
            _ => {
                e.extend((x as f64).to_le_bytes());
                a.extend((y as f64).to_le_bytes());
            }
        }
    }
    let t = |b| Tensor::new(t, [n as i64], b).expect("sizes fit");
    (t(e), t(a))
}

#[divan::bench(args = [DType::F32, DType::Bf16, DType::F64], sample_count = 10)]
fn all_metrics(b: Bencher, t: DType) {
    let n = 1 << 25;
    let (e, a) = pair(t, n);
    let o = Options { atol: 1e-5, rtol: 1e-3, ..Options::default() };
    b.counter(BytesCount::new(2 * n * t.literal_bytes()))
        .bench_local(|| measure(black_box(&e), black_box(&a), &o).map(|m| m.max_abs));
}
