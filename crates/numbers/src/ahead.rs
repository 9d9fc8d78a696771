//! Fetching what comes next from memory while something else is computed.

/// Bytes of a line of a cache.
const LINE: usize = 64;

/// The next bytes of both tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead<'a> {
    pub(crate) e: &'a [u8],
    pub(crate) a: &'a [u8],
    /// Lines of both that have been asked for.
    asked: usize,
}

impl<'a> Ahead<'a> {
    pub(crate) fn new(e: &'a [u8], a: &'a [u8]) -> Ahead<'a> {
        Ahead { e, a, asked: 0 }
    }

    /// Asks for one part of `parts`. Called between steps of the computation,
    /// since a processor waits for few lines at a time.
    #[inline(always)]
    pub(crate) fn part(&mut self, parts: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::_MM_HINT_T0;
            let lines = self.e.len().max(self.a.len()).div_ceil(LINE);
            let end = (self.asked + lines.div_ceil(parts)).min(lines);
            if self.asked >= end {
                return;
            }
            let Some(v) = pulp::x86::V3::try_new() else { return };
            for i in self.asked..end {
                for x in [self.e, self.a] {
                    if let Some(x) = x.get(i * LINE) {
                        v.sse._mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(x).cast());
                    }
                }
            }
            self.asked = end;
        }
    }
}
