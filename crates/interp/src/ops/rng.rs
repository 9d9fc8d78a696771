//! `rng-bit-generator` (ThreeFry 2x32 and Philox 4x32 as XLA lays their
//! streams out) and the unspecified generator behind `rng`.

use super::strided::strides;
use crate::error::{Res, invalid, unsupported};
use crate::tensor::{Data, Tensor, count};
use scalify_ir::{ArrayShape, DType, RngAlgorithm, RngDistribution};

fn threefry(key: [u32; 2], x: [u32; 2]) -> [u32; 2] {
    const ROT: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let ks = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let mut v = [x[0].wrapping_add(ks[0]), x[1].wrapping_add(ks[1])];
    for round in 0..5usize {
        for r in ROT[round % 2] {
            v[0] = v[0].wrapping_add(v[1]);
            v[1] = v[1].rotate_left(r) ^ v[0];
        }
        v[0] = v[0].wrapping_add(ks[(round + 1) % 3]);
        v[1] = v[1].wrapping_add(ks[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    v
}

fn philox(key: u64, counter: u128) -> [u32; 4] {
    let mut k = [key as u32, (key >> 32) as u32];
    let mut c: [u32; 4] = std::array::from_fn(|i| (counter >> (32 * i)) as u32);
    for _ in 0..10 {
        let p0 = c[0] as u64 * 0xD251_1F53;
        let p1 = c[2] as u64 * 0xCD9E_8D57;
        c = [
            (p1 >> 32) as u32 ^ c[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ c[3] ^ k[1],
            p0 as u32,
        ];
        k[0] = k[0].wrapping_add(0x9E37_79B9);
        k[1] = k[1].wrapping_add(0xBB67_AE85);
    }
    c
}

fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// 32-bit ThreeFry stream: the first even dimension (else the largest) is
/// split in pairs; both words of a block land in one pair.
fn threefry32(key: u64, counter: u64, dims: &[i64]) -> (Vec<u32>, u64) {
    let n = count(dims).unwrap_or(0);
    if dims.is_empty() {
        return (vec![threefry(halves(key), halves(counter))[0]], 1);
    }
    let even = dims.iter().position(|d| d % 2 == 0);
    // First of the largest.
    let split = even
        .unwrap_or_else(|| (0..dims.len()).fold(0, |b, i| if dims[i] > dims[b] { i } else { b }));
    let mut half: Vec<i64> = dims.to_vec();
    half[split] = (half[split] + 1) / 2;
    let (hs, os) = (strides(&half), strides(dims));
    let mut out = vec![0; n];
    for (i, o) in out.iter_mut().enumerate() {
        let (mut h, mut word) = (0u64, 0);
        for d in 0..dims.len() {
            let mut x = i as i64 / os[d] % dims[d];
            if d == split {
                word = (x % 2) as usize;
                x /= 2;
            }
            h += (x * hs[d]) as u64;
        }
        *o = threefry(halves(key), halves(counter.wrapping_add(h)))[word];
    }
    (out, half.iter().product::<i64>() as u64)
}

/// `rng-bit-generator`: new state and bits.
pub(crate) fn bits(
    state: &Tensor,
    algorithm: RngAlgorithm,
    dtype: DType,
    dims: &[i64],
    wide: bool,
) -> Res<(Tensor, Tensor)> {
    let Data::U64(s) = &state.data else {
        return unsupported(format!("state of {}", state.dtype));
    };
    let Some(n) = count(dims) else { return invalid("result too big") };
    let width = dtype.bits();
    if !matches!(width, 8 | 16 | 32 | 64) || dtype.is_complex() || dtype == DType::Pred {
        return unsupported(format!("bits as {dtype}"));
    }
    let mut next = s.to_vec();
    let bytes: Vec<u8> = match (algorithm, &s[..]) {
        (RngAlgorithm::ThreeFry, &[key, counter]) => {
            if width == 64 {
                next[1] = counter.wrapping_add(n as u64);
                let word = |i: usize| {
                    let w = threefry(halves(key), halves(counter.wrapping_add(i as u64)));
                    (w[0] as u64 | (w[1] as u64) << 32).to_le_bytes()
                };
                (0..n).flat_map(word).collect()
            } else {
                let (words, used) = threefry32(key, counter, dims);
                next[1] = counter.wrapping_add(used);
                let keep = width as usize / 8;
                words.iter().flat_map(|w| w.to_le_bytes().into_iter().take(keep)).collect()
            }
        }
        (RngAlgorithm::Philox | RngAlgorithm::Default, &[key, ref c @ ..])
            if c.len() == 1 || c.len() == 2 =>
        {
            // A state of two words lends the key to the counter's upper half.
            let counter = c[0] as u128 | (c.get(1).copied().unwrap_or(key) as u128) << 64;
            let blocks = if width == 64 { n.div_ceil(2) } else { n.div_ceil(4) };
            let mut bytes = Vec::with_capacity(n * width as usize / 8);
            for i in 0..blocks {
                let w = philox(key, counter.wrapping_add(i as u128));
                let keep = if width == 64 { 4 } else { width as usize / 8 };
                bytes.extend(w.iter().flat_map(|w| w.to_le_bytes().into_iter().take(keep)));
            }
            bytes.truncate(n * width as usize / 8);
            let after = counter.wrapping_add(blocks as u128);
            next[1] = after as u64;
            if let Some(hi) = next.get_mut(2) {
                *hi = (after >> 64) as u64;
            }
            bytes
        }
        _ => return unsupported(format!("state of {} words", s.len())),
    };
    let shape = ArrayShape::new(dtype, dims.iter().copied());
    let Some(out) = Tensor::from_bytes(&shape, &bytes) else { return invalid("result shape") };
    let state = Tensor { data: Data::from_vec(next), ..state.clone() };
    Ok((state, if wide { out.widened() } else { out }))
}

/// `rng`: which numbers it yields is not specified; these depend on `seed`
/// only.
pub(crate) fn rng(
    d: RngDistribution,
    a: &Tensor,
    b: &Tensor,
    dtype: DType,
    dims: &[i64],
    seed: u64,
    wide: bool,
) -> Res<Tensor> {
    let Some(n) = count(dims) else { return invalid("result too big") };
    let unit = |i: usize, k: usize| {
        let w = philox(seed, i as u128);
        ((w[2 * k] as u64 | (w[2 * k + 1] as u64) << 32) >> 11) as f64 / (1u64 << 53) as f64
    };
    let (Some(&p), Some(&q)) = (a.to_f64().first(), b.to_f64().first()) else {
        return invalid("parameters are no scalars");
    };
    let v: Vec<f64> = match d {
        RngDistribution::Uniform => (0..n)
            .map(|i| {
                let x = p + (q - p) * unit(i, 0);
                if dtype.is_float() { x } else { x.floor() }
            })
            .collect(),
        RngDistribution::Normal => (0..n)
            .map(|i| {
                let r = (-2.0 * (1.0 - unit(i, 0)).ln()).sqrt();
                p + q * r * (2.0 * std::f64::consts::PI * unit(i, 1)).cos()
            })
            .collect(),
    };
    super::convert::convert(Tensor::raw(DType::F64, dims, Data::from_vec(v)), dtype, wide)
}
