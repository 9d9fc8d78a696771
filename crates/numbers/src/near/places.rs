//! Places in a chunk.

use crate::decode::CHUNK;

/// Places in a chunk of pairs that are handled by themselves.
pub(crate) struct Places {
    list: [u16; CHUNK],
    len: usize,
}

impl Places {
    pub(super) const fn new() -> Places {
        Places { list: [0; CHUNK], len: 0 }
    }

    pub(crate) fn all(&self) -> &[u16] {
        &self.list[..self.len.min(CHUNK)]
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds those of 16 from `first` on that a mask has.
    pub(super) fn add(&mut self, first: usize, mask: u16) {
        self.add_all(first, [mask, 0, 0, 0]);
    }

    /// Adds those of 64 from `first` on that masks have.
    pub(super) fn add_all(&mut self, first: usize, masks: [u16; 4]) {
        let [a, b, c, d] = masks.map(u64::from);
        let mut mask = a | b << 16 | c << 32 | d << 48;
        while mask != 0 {
            if let Some(o) = self.list.get_mut(self.len) {
                *o = (first + mask.trailing_zeros() as usize) as u16;
                self.len += 1;
            }
            mask &= mask - 1;
        }
    }
}
