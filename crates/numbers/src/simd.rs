//! Which instructions there are.

/// AVX-512, if the processor has it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn v4() -> Option<pulp::x86::V4> {
    #[cfg(test)]
    if tests::PLAIN.get() {
        return None;
    }
    pulp::x86::V4::try_new()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::{Options, measure};
    use scalify_ir::DType;
    use scalify_tensors::Tensor;
    use std::cell::Cell;

    thread_local! {
        /// Does this thread do without?
        pub(crate) static PLAIN: Cell<bool> = const { Cell::new(false) };
    }

    /// Kinds of pairs.
    #[derive(Clone, Copy, Debug)]
    enum Kind {
        /// Relative errors of this size.
        Noise(f64),
        /// Errors of this size.
        Absolute(f64),
        Unrelated,
        /// Errors of one, of values that are tiny, of the same sign.
        Grown,
        /// Bits at random, of which one in so many differs.
        Bits(u64),
    }

    fn encode(t: DType, x: f64) -> Vec<u8> {
        match t {
            DType::F32 => (x as f32).to_le_bytes().to_vec(),
            DType::Bf16 => half::bf16::from_f64(x).to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(x).to_le_bytes().to_vec(),
            DType::F64 => x.to_le_bytes().to_vec(),
            _ => vec![x as i64 as u8],
        }
    }

    fn pair(t: DType, kind: Kind, zeros: f64, octaves: f64, n: usize) -> (Vec<u8>, Vec<u8>) {
        let mut s = 1u64;
        let mut next = move || {
            s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            s >> 11
        };
        let unit = 1.0 / (1u64 << 53) as f64;
        let size = t.literal_bytes();
        let (mut e, mut a) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let mut real = || next() as f64 * unit * 2.0 - 1.0;
            let x = real() * 2f64.powf(real() * octaves);
            let y = match kind {
                Kind::Noise(d) => x * (1.0 + d * real()),
                Kind::Absolute(d) => x + d * real(),
                Kind::Unrelated => real() * 2f64.powf(real() * octaves),
                Kind::Grown => {
                    e.extend(encode(t, x.abs() * 1e-4));
                    a.extend(encode(t, x.abs() * 1e-4 + real().abs()));
                    continue;
                }
                Kind::Bits(of) => {
                    let x = next().to_le_bytes();
                    let y = if next() % of == 0 { next().to_le_bytes() } else { x };
                    // The upper bits are those at random.
                    e.extend(&x[7 - size.min(7)..7]);
                    a.extend(&y[7 - size.min(7)..7]);
                    e.resize(e.len().next_multiple_of(size), 0x40);
                    a.resize(a.len().next_multiple_of(size), 0x40);
                    continue;
                }
            };
            let zero = real().abs() < zeros;
            e.extend(encode(t, if zero { 0.0 } else { x }));
            a.extend(encode(t, if zero { 0.0 } else { y }));
        }
        (e, a)
    }

    /// With AVX-512 and without, all metrics are the same to the last bit.
    #[test]
    fn reports_do_not_depend_on_the_processor() {
        let kinds = [
            Kind::Noise(1e-4),
            Kind::Noise(1e-7),
            Kind::Noise(1e-2),
            Kind::Absolute(1e-3),
            Kind::Absolute(1e-1),
            Kind::Unrelated,
            Kind::Grown,
            Kind::Bits(1),
            Kind::Bits(50),
        ];
        let n = 3 * crate::engine::BLOCK + 777;
        for t in [DType::F32, DType::Bf16, DType::F16, DType::F64] {
            for kind in kinds {
                for (zeros, octaves) in [(0.0, 2.0), (0.3, 9.0), (0.0, 120.0)] {
                    let (e, a) = pair(t, kind, zeros, octaves, n);
                    let [e, a] = [e, a].map(|b| Tensor::new(t, [n as i64], b).unwrap());
                    for (atol, rtol, ulp) in [(1e-5, 1e-3, 0), (0.0, 1e-4, 2), (0.1, 0.0, 0)] {
                        let o = Options { atol, rtol, ulp, ..Options::default() };
                        let json = || serde_json::to_string(&measure(&e, &a, &o).unwrap()).unwrap();
                        let fast = json();
                        PLAIN.set(true);
                        let plain = json();
                        PLAIN.set(false);
                        assert!(fast == plain, "{t} {kind:?} {zeros} {octaves}: {}", {
                            let at = fast.bytes().zip(plain.bytes()).take_while(|(x, y)| x == y);
                            let at = at.count().saturating_sub(60);
                            let part = |s: &str| s.chars().skip(at).take(120).collect::<String>();
                            format!("{} / {}", part(&fast), part(&plain))
                        });
                    }
                }
            }
        }
    }
}
