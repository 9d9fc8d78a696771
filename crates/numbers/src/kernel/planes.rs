//! Counts of bits by place, kept in planes: plane `p` has bit `p` of every
//! count.

/// Bits of a vector.
type Vector = [u64; 8];

/// Planes of a chunk.
pub(super) const CHUNK_PLANES: usize = 8;

const PLANES: usize = 32;

/// How often each bit of a vector was set.
pub(crate) struct Planes {
    all: [Vector; PLANES],
    /// Chunks in them.
    held: u64,
    /// What the planes have been added to, for words of 64 bits and of 32.
    wide: [u64; 64],
    narrow: [u64; 64],
    is_wide: bool,
}

impl Planes {
    /// Of words of 64 bits (`wide`) or of 32.
    pub(crate) fn new(wide: bool) -> Planes {
        Planes { all: [[0; 8]; PLANES], held: 0, wide: [0; 64], narrow: [0; 64], is_wide: wide }
    }

    /// Adds the counts of a chunk.
    #[inline(always)]
    pub(super) fn add(&mut self, chunk: [Vector; CHUNK_PLANES]) {
        let mut carry = [0u64; 8];
        for (p, plane) in self.all.iter_mut().enumerate() {
            let more = chunk.get(p).copied().unwrap_or_default();
            if p >= CHUNK_PLANES && carry == [0; 8] {
                break;
            }
            for l in 0..8 {
                let (x, y, z) = (plane[l], more[l], carry[l]);
                plane[l] = x ^ y ^ z;
                carry[l] = x & y | z & (x | y);
            }
        }
        self.held += 1;
        if self.held >= 1 << (PLANES - CHUNK_PLANES) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for (p, plane) in self.all.iter_mut().enumerate() {
            for word in std::mem::take(plane) {
                for k in 0..64 {
                    let n = (word >> k & 1) << p;
                    self.wide[k] += n;
                    self.narrow[k % 32] += n;
                }
            }
        }
        self.held = 0;
    }

    /// How often each bit of a word was set.
    pub(crate) fn counts(&mut self) -> [u64; 64] {
        self.flush();
        if self.is_wide { self.wide } else { self.narrow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_count() {
        for wide in [false, true] {
            let mut planes = Planes::new(wide);
            let mut want = [0u64; 64];
            for i in 0..1000u64 {
                let chunk: [Vector; CHUNK_PLANES] = std::array::from_fn(|p| {
                    std::array::from_fn(|l| {
                        (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((p * 8 + l) as u32)
                    })
                });
                for (p, v) in chunk.iter().enumerate() {
                    for k in 0..64 {
                        let n = v.iter().filter(|w| **w >> k & 1 != 0).count() as u64;
                        want[if wide { k } else { k % 32 }] += n << p;
                    }
                }
                planes.add(chunk);
            }
            assert_eq!(planes.counts(), want);
        }
    }
}
