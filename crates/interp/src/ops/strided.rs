//! Strided copies: the one kernel behind broadcast, transpose, slice,
//! reverse, pad, concatenate and the windows of gather.

/// Strides of a row-major array, in elements. Saturates: callers have checked
/// that the element count fits.
pub(crate) fn strides(dims: &[i64]) -> Vec<i64> {
    let mut s = vec![1i64; dims.len()];
    for i in (0..dims.len().saturating_sub(1)).rev() {
        s[i] = s[i + 1].saturating_mul(dims[i + 1].max(1));
    }
    s
}

/// A box of elements in one array read in the order of another.
#[derive(Clone)]
struct Walk {
    dims: Vec<usize>,
    src: Vec<i64>,
    dst: Vec<i64>,
}

/// Lowest and highest offset touched; `None` on overflow.
fn extent(off: i64, str: &[i64], dims: &[i64]) -> Option<(i64, i64)> {
    let (mut lo, mut hi) = (off, off);
    for (&s, &d) in str.iter().zip(dims) {
        let reach = s.checked_mul(d.checked_sub(1)?)?;
        if reach < 0 {
            lo = lo.checked_add(reach)?;
        } else {
            hi = hi.checked_add(reach)?;
        }
    }
    Some((lo, hi))
}

impl Walk {
    /// Drops sizes of one and joins dimensions that lie behind each other in
    /// both arrays.
    fn new(dims: &[i64], src: &[i64], dst: &[i64]) -> Walk {
        let mut w = Walk { dims: Vec::new(), src: Vec::new(), dst: Vec::new() };
        for i in 0..dims.len() {
            if dims[i] == 1 {
                continue;
            }
            let d = dims[i];
            if let Some(k) = w.dims.len().checked_sub(1)
                && w.src[k] == src[i] * d
                && w.dst[k] == dst[i] * d
            {
                w.dims[k] *= d as usize;
                w.src[k] = src[i];
                w.dst[k] = dst[i];
                continue;
            }
            w.dims.push(d as usize);
            w.src.push(src[i]);
            w.dst.push(dst[i]);
        }
        w
    }

    fn run<T: Copy>(&self, src: &[T], soff: i64, dst: &mut [T], doff: i64) {
        let rank = self.dims.len();
        if rank == 0 {
            dst[doff as usize] = src[soff as usize];
            return;
        }
        // The two inner loops: the last dimension and, for a transpose, the
        // one that is contiguous in the source.
        let last = rank - 1;
        let tiled = (self.src[last] != 1 && self.src[last] != 0)
            .then(|| (0..last).find(|&k| self.src[k] == 1))
            .flatten();
        let outer: Vec<usize> = (0..last).filter(|&k| Some(k) != tiled).collect();
        let mut at = vec![0usize; outer.len()];
        let (mut so, mut d_o) = (soff, doff);
        loop {
            match tiled {
                Some(k) => self.tile(src, so, dst, d_o, k, last),
                None => line(src, so, self.src[last], dst, d_o, self.dst[last], self.dims[last]),
            }
            let mut k = outer.len();
            loop {
                if k == 0 {
                    return;
                }
                k -= 1;
                let d = outer[k];
                at[k] += 1;
                so += self.src[d];
                d_o += self.dst[d];
                if at[k] < self.dims[d] {
                    break;
                }
                so -= self.src[d] * self.dims[d] as i64;
                d_o -= self.dst[d] * self.dims[d] as i64;
                at[k] = 0;
            }
        }
    }

    /// Blocked transpose of dimensions `k` (contiguous in the source) and
    /// `last`.
    fn tile<T: Copy>(&self, src: &[T], so: i64, dst: &mut [T], d_o: i64, k: usize, last: usize) {
        const B: usize = 16;
        let (nk, nl) = (self.dims[k], self.dims[last]);
        for k0 in (0..nk).step_by(B) {
            let k1 = (k0 + B).min(nk);
            for l0 in (0..nl).step_by(B) {
                let n = (l0 + B).min(nl) - l0;
                for i in k0..k1 {
                    let s = so + i as i64 * self.src[k] + l0 as i64 * self.src[last];
                    let d = d_o + i as i64 * self.dst[k] + l0 as i64 * self.dst[last];
                    line(src, s, self.src[last], dst, d, self.dst[last], n);
                }
            }
        }
    }
}

#[inline]
fn line<T: Copy>(src: &[T], so: i64, ss: i64, dst: &mut [T], d_o: i64, ds: i64, n: usize) {
    if ds == 1 {
        let out = &mut dst[d_o as usize..d_o as usize + n];
        match ss {
            1 => out.copy_from_slice(&src[so as usize..so as usize + n]),
            0 => out.fill(src[so as usize]),
            _ => {
                let mut s = so;
                for o in out {
                    *o = src[s as usize];
                    s += ss;
                }
            }
        }
        return;
    }
    let (mut s, mut d) = (so, d_o);
    for _ in 0..n {
        dst[d as usize] = src[s as usize];
        s += ss;
        d += ds;
    }
}

/// Reads `dims` elements of `src` from `off` with strides `str` (zero repeats,
/// negative reverses) into a fresh row-major array. `None` if an offset falls
/// outside `src`.
pub(crate) fn read<T: Copy + Default + Send + Sync>(
    src: &[T],
    off: i64,
    str: &[i64],
    dims: &[i64],
) -> Option<Vec<T>> {
    let n = crate::tensor::count(dims)?;
    if n == 0 {
        return Some(Vec::new());
    }
    let (lo, hi) = extent(off, str, dims)?;
    if lo < 0 || hi >= src.len() as i64 {
        return None;
    }
    let w = Walk::new(dims, str, &strides(dims));
    if w.dims.is_empty() || w.dims.len() == 1 && w.src[0] == 1 {
        return Some(src[off as usize..off as usize + n].to_vec());
    }
    let mut out = vec![T::default(); n];
    let rows = w.dims[0];
    if n < 1 << 16 || rows < 2 {
        w.run(src, off, &mut out, 0);
        return Some(out);
    }
    let row = n / rows;
    super::par::update(&mut out, row, 1, &|at, c| {
        let mut part = w.clone();
        part.dims[0] = c.len() / row;
        part.run(src, off + (at / row) as i64 * w.src[0], c, 0);
    });
    Some(out)
}

/// A strided box of elements of which any run, in row-major order, can be read.
pub(crate) struct View {
    dims: Vec<usize>,
    str: Vec<i64>,
    off: i64,
}

impl View {
    /// `dims` elements from `off` with strides `str` of an array of `len`;
    /// `None` if an offset falls outside.
    pub(crate) fn new(off: i64, str: &[i64], dims: &[i64], len: usize) -> Option<View> {
        crate::tensor::count(dims).filter(|&n| n > 0)?;
        let (lo, hi) = extent(off, str, dims)?;
        let w = Walk::new(dims, str, &strides(dims));
        (lo >= 0 && hi < len as i64).then_some(View { dims: w.dims, str: w.src, off })
    }

    /// Elements `lo..lo + n` of the box.
    pub(crate) fn block<T: Copy>(&self, src: &[T], lo: usize, n: usize) -> Vec<T> {
        let mut out = Vec::with_capacity(n);
        let Some((&width, outer)) = self.dims.split_last() else {
            out.resize(n, src[self.off as usize]);
            return out;
        };
        let step = self.str[outer.len()];
        let mut at = vec![0usize; outer.len()];
        let (mut row, mut from) = (lo / width, lo % width);
        let mut off = self.off;
        for k in (0..outer.len()).rev() {
            at[k] = row % outer[k];
            row /= outer[k];
            off += at[k] as i64 * self.str[k];
        }
        loop {
            let m = (width - from).min(n - out.len());
            let first = off + from as i64 * step;
            match step {
                0 => out.resize(out.len() + m, src[first as usize]),
                1 => out.extend_from_slice(&src[first as usize..first as usize + m]),
                _ => out.extend((0..m as i64).map(|i| src[(first + i * step) as usize])),
            }
            if out.len() >= n {
                return out;
            }
            from = 0;
            let mut k = outer.len();
            loop {
                if k == 0 {
                    return out;
                }
                k -= 1;
                at[k] += 1;
                off += self.str[k];
                if at[k] < outer[k] {
                    break;
                }
                off -= self.str[k] * outer[k] as i64;
                at[k] = 0;
            }
        }
    }
}

/// Writes the row-major box `src` of `dims` into `dst` at `off` with strides
/// `str`. `None` if an offset falls outside `dst`.
pub(crate) fn write<T: Copy>(
    src: &[T],
    dims: &[i64],
    dst: &mut [T],
    off: i64,
    str: &[i64],
) -> Option<()> {
    copy(src, 0, &strides(dims), dst, off, str, dims)
}

/// Copies a box between two arrays. `None` if an offset falls outside.
pub(crate) fn copy<T: Copy>(
    src: &[T],
    soff: i64,
    sstr: &[i64],
    dst: &mut [T],
    doff: i64,
    dstr: &[i64],
    dims: &[i64],
) -> Option<()> {
    if crate::tensor::count(dims)? == 0 {
        return Some(());
    }
    let (lo, hi) = extent(soff, sstr, dims)?;
    let (dlo, dhi) = extent(doff, dstr, dims)?;
    if lo < 0 || hi >= src.len() as i64 || dlo < 0 || dhi >= dst.len() as i64 {
        return None;
    }
    Walk::new(dims, sstr, dstr).run(src, soff, dst, doff);
    Some(())
}

/// Calls `f` with every index of a box in row-major order until it fails.
pub(crate) fn odometer<E>(
    dims: &[i64],
    mut f: impl FnMut(&[i64]) -> Result<(), E>,
) -> Result<(), E> {
    if dims.iter().any(|&d| d <= 0) {
        return Ok(());
    }
    let mut at = vec![0i64; dims.len()];
    loop {
        f(&at)?;
        let mut k = dims.len();
        loop {
            if k == 0 {
                return Ok(());
            }
            k -= 1;
            at[k] += 1;
            if at[k] < dims[k] {
                break;
            }
            at[k] = 0;
        }
    }
}
