//! A tensor in memory or in a file, read in blocks.

use crate::source::Source;
use crate::{TensorError, Window};
use scalify_ir::DType;
use scalify_ir::dtype::DTypeClass;
use scalify_ir::shape::Dims;
use std::borrow::Cow;
use std::sync::Arc;

/// An array. Elements are given as [`scalify_ir::Literal`]s hold them:
/// row-major, little endian, [`DType::literal_bytes`] each (an element below
/// eight bits takes one byte, sign-extended for signed integers and
/// zero-extended else; `pred` is 0 or 1; complex is real, imaginary).
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    dims: Dims,
    len: u64,
    source: Source,
    coding: Coding,
}

/// Fewer bytes are faster copied than mapped.
const MAPPED: usize = 1 << 17;

/// How stored bytes differ from canonical ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Coding {
    /// Parts of an element are big endian.
    pub(crate) big: bool,
    /// Elements below eight bits stand without gaps, first in the low bits.
    pub(crate) packed: bool,
    /// Bits above an element's width must be set to what they should be.
    pub(crate) clean: bool,
}

/// A borrowed array with canonical bytes (see [`Tensor`]).
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: &'a [i64],
    /// Elements.
    pub bytes: &'a [u8],
}

/// Number of elements; `None` for a negative size or 2^48 elements and more
/// (zeros left out).
pub(crate) fn count(dims: &[i64]) -> Option<u64> {
    let all = dims.iter().try_fold(1i64, |a, &d| {
        if d < 0 {
            return None;
        }
        a.checked_mul(d.max(1)).filter(|&n| n < 1 << 48)
    })?;
    Some(if dims.contains(&0) { 0 } else { all as u64 })
}

/// Sets the unused high bits of bytes that hold elements below eight bits.
pub(crate) fn clean(t: DType, bytes: &mut [u8]) {
    if t == DType::Pred {
        return bytes.iter_mut().for_each(|b| *b = (*b != 0) as u8);
    }
    let w = t.bits();
    if w >= 8 {
        return;
    }
    if t.class() == DTypeClass::Signed {
        bytes.iter_mut().for_each(|b| *b = ((*b << (8 - w)) as i8 >> (8 - w)) as u8);
    } else {
        bytes.iter_mut().for_each(|b| *b &= (1 << w) - 1);
    }
}

impl Tensor {
    /// An array in memory; `None` if `bytes` does not hold exactly the
    /// elements of `dims`.
    pub fn new(
        dtype: DType,
        dims: impl IntoIterator<Item = i64>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Option<Tensor> {
        let bytes = bytes.into();
        let dims: Dims = dims.into_iter().collect();
        let len = count(&dims)?;
        (len.checked_mul(dtype.literal_bytes() as u64)? == bytes.len() as u64).then(|| Tensor {
            dtype,
            dims,
            len,
            source: Source::Memory(bytes),
            coding: Coding::default(),
        })
    }

    pub(crate) fn stored(
        dtype: DType,
        dims: Dims,
        len: u64,
        source: Source,
        mut coding: Coding,
    ) -> Tensor {
        coding.clean &= dtype == DType::Pred || dtype.bits() < 8;
        coding.packed &= dtype.bits() < 8;
        Tensor { dtype, dims, len, source, coding }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same bytes as another type of the same width; `None` if the widths
    /// differ.
    pub fn reinterpret(mut self, dtype: DType) -> Option<Tensor> {
        if dtype.literal_bytes() != self.dtype.literal_bytes() || self.coding.packed {
            return None;
        }
        self.coding.clean = dtype == DType::Pred || dtype.bits() < 8;
        self.dtype = dtype;
        Some(self)
    }

    /// Elements `start..start + count` in row-major order. They are in `buf`
    /// or, without a copy, in the tensor itself.
    ///
    /// # Errors
    /// If the file cannot be read, or the range is not in the tensor.
    pub fn read<'a>(
        &'a self,
        start: u64,
        count: usize,
        buf: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], TensorError> {
        let beyond = || {
            TensorError::request(
                "tensor",
                format!("elements {start}.. ({count}) asked for"),
                format!("a range in 0..{}", self.len),
            )
        };
        if start.checked_add(count as u64).is_none_or(|end| end > self.len) {
            return Err(beyond());
        }
        let size = self.dtype.literal_bytes();
        let plain = self.coding == Coding::default();
        let width = if self.coding.packed { self.dtype.bits() as u64 } else { size as u64 * 8 };
        let first_bit = start * width;
        let from = first_bit / 8;
        let need = ((first_bit + count as u64 * width).div_ceil(8) - from) as usize;
        match &self.source {
            Source::Memory(m) => {
                let part = usize::try_from(from)
                    .ok()
                    .and_then(|f| m.get(f..f.checked_add(need)?))
                    .ok_or_else(beyond)?;
                if plain {
                    return Ok(part);
                }
                buf.clear();
                buf.extend_from_slice(part);
            }
            Source::File(f, at) => {
                buf.resize(need, 0);
                f.read_exact_at(buf, at + from).map_err(TensorError::io(&*f.name, "read"))?;
            }
        }
        if self.coding.packed {
            let packed = std::mem::take(buf);
            *buf = unpack(&packed, (first_bit % 8) as usize, self.dtype.bits() as usize, count);
        }
        if self.coding.big {
            let part = if self.dtype.is_complex() { size / 2 } else { size };
            buf.chunks_exact_mut(part).for_each(<[u8]>::reverse);
        }
        if self.coding.clean || self.coding.packed {
            clean(self.dtype, buf);
        }
        Ok(buf)
    }

    /// Elements `start..start + count` mapped into memory, in row-major order;
    /// `None` where [`Tensor::read`] must do: elements in memory or stored in
    /// another form, few elements, a system or file that cannot map.
    pub fn map(&self, start: u64, count: usize) -> Option<Window> {
        let Source::File(f, at) = &self.source else { return None };
        let size = self.dtype.literal_bytes();
        let len = count.checked_mul(size).filter(|&n| n >= MAPPED)?;
        if self.coding != Coding::default() || start.checked_add(count as u64)? > self.len {
            return None;
        }
        Window::open(&f.file, &f.name, at.checked_add(start * size as u64)?, len)
    }

    /// All elements.
    ///
    /// # Errors
    /// If the file cannot be read, or there is no memory for all elements.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, TensorError> {
        if let (Source::Memory(m), true) = (&self.source, self.coding == Coding::default()) {
            return Ok(Cow::Borrowed(m));
        }
        let size = self.len as usize * self.dtype.literal_bytes();
        let mut v = Vec::new();
        v.try_reserve_exact(size).map_err(|_| {
            TensorError::request(
                "tensor",
                format!("no memory for {size} bytes"),
                "less to read at once",
            )
        })?;
        self.read(0, self.len as usize, &mut v)?;
        Ok(Cow::Owned(v))
    }
}

/// Fields of `width` < 8 bits from bit `skip` on, one per byte.
fn unpack(b: &[u8], skip: usize, width: usize, count: usize) -> Vec<u8> {
    let byte = |i: usize| b.get(i).copied().unwrap_or(0) as u16;
    (0..count)
        .map(|i| {
            let bit = skip + i * width;
            let two = byte(bit / 8) | byte(bit / 8 + 1) << 8;
            (two >> (bit % 8)) as u8 & ((1 << width) - 1)
        })
        .collect()
}

/// The reverse of reading packed fields.
pub(crate) fn pack(b: &[u8], width: usize) -> Vec<u8> {
    let mut out = vec![0u8; (b.len() * width).div_ceil(8) + 1];
    for (i, &x) in b.iter().enumerate() {
        let bit = i * width;
        let two = ((x as u16) & ((1 << width) - 1)) << (bit % 8);
        let [lo, hi] = two.to_le_bytes();
        out[bit / 8] |= lo;
        out[bit / 8 + 1] |= hi;
    }
    out.truncate((b.len() * width).div_ceil(8));
    out
}

impl<'a> TensorRef<'a> {
    pub(crate) fn check(&self, name: &str) -> Result<(), TensorError> {
        let want = count(self.dims).and_then(|n| n.checked_mul(self.dtype.literal_bytes() as u64));
        if want == Some(self.bytes.len() as u64) {
            return Ok(());
        }
        Err(TensorError::request(
            name,
            format!("{} bytes for {}{:?}", self.bytes.len(), self.dtype, self.dims),
            want.map_or("sizes that are not negative".into(), |n| format!("{n} bytes")),
        ))
    }
}
