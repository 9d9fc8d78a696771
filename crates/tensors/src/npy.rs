//! The npy header: a magic number, a version, and a Python dictionary.

use crate::TensorError;
use crate::types::{Stored, from_descr, to_descr};
use scalify_ir::DType;
use scalify_ir::shape::Dims;

pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header that is read.
const LIMIT: usize = 1 << 20;

/// What a header says.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) stored: Stored,
    pub(crate) big: bool,
    pub(crate) fortran: bool,
    pub(crate) dims: Dims,
    /// Length of the header: where elements begin.
    pub(crate) data: u64,
}

impl Header {
    /// Bytes all elements take; `None` if that is too much to address.
    pub(crate) fn data_bytes(&self) -> Option<u64> {
        let size = match self.stored {
            Stored::Known(t) => t.literal_bytes() as u64,
            Stored::Opaque(n) => n as u64,
        };
        crate::tensor::count(&self.dims)?.checked_mul(size)
    }
}

/// Reads a header. `read` gives bytes `from..from + len` of the npy file, and
/// fewer at its end; `base` is where in `name` the npy file begins.
pub(crate) fn header(
    name: &str,
    base: u64,
    mut read: impl FnMut(u64, usize) -> Result<Vec<u8>, TensorError>,
) -> Result<Header, TensorError> {
    let bad = |at: u64, m: &str, e: &str| TensorError::format(name, base + at, m, e);
    let head = read(0, 12)?;
    if head.get(..6) != Some(MAGIC) {
        return Err(bad(0, "not an npy file", "the magic number \\x93NUMPY"));
    }
    let (len, start) = match (head.get(6..8), head.get(8..10), head.get(8..12)) {
        (Some([1, _]), Some(&[a, b]), _) => (u16::from_le_bytes([a, b]) as usize, 10),
        (Some([2 | 3, _]), _, Some(&[a, b, c, d])) => {
            (u32::from_le_bytes([a, b, c, d]) as usize, 12)
        }
        (Some([v @ (0 | 4..), _]), ..) => {
            return Err(bad(6, &format!("format version {v}"), "version 1, 2 or 3"));
        }
        _ => {
            return Err(bad(6, "the file ends in its header", "a version and the header's length"));
        }
    };
    if len > LIMIT {
        return Err(bad(8, &format!("a header of {len} bytes"), "at most 1 MiB"));
    }
    let text = read(start, len)?;
    if text.len() < len {
        return Err(bad(start + text.len() as u64, "the file ends in its header", "more"));
    }
    let mut p = Python { s: &text, at: 0 };
    let fail = |p: &Python, e: &str| bad(start + p.at as u64, "malformed header", e);
    let (mut descr, mut fortran, mut dims) = (None, None, None);
    if !p.eat(b'{') {
        return Err(fail(&p, "a dictionary"));
    }
    loop {
        if p.eat(b'}') {
            break;
        }
        let Some(key) = p.string() else {
            return Err(fail(&p, "a quoted key or '}'"));
        };
        if !p.eat(b':') {
            return Err(fail(&p, "':'"));
        }
        p.space();
        let at = p.at;
        match key {
            "descr" => {
                if p.peek() == Some(b'[') {
                    let m = "an array of records";
                    return Err(bad(start + at as u64, m, "elements of one plain type"));
                }
                let Some(s) = p.string() else {
                    return Err(fail(&p, "a quoted type"));
                };
                descr = Some(from_descr(s).ok_or_else(|| {
                    let m = format!("element type '{s}'");
                    let e =
                        "a bool, integer, float or complex type such as '<f4', or one of ml_dtypes";
                    bad(start + at as u64, &m, e)
                })?);
            }
            "fortran_order" => {
                fortran = Some(if p.word("True") {
                    true
                } else if p.word("False") {
                    false
                } else {
                    return Err(fail(&p, "True or False"));
                });
            }
            "shape" => dims = Some(p.tuple().ok_or_else(|| fail(&p, "a tuple of sizes"))?),
            _ => return Err(fail(&p, "the keys descr, fortran_order and shape")),
        }
        if !p.eat(b',') && p.peek() != Some(b'}') {
            return Err(fail(&p, "',' or '}'"));
        }
    }
    let (Some((stored, big)), Some(fortran), Some(dims)) = (descr, fortran, dims) else {
        return Err(fail(&p, "the keys descr, fortran_order and shape"));
    };
    let h = Header { stored, big, fortran, dims, data: start + len as u64 };
    if h.data_bytes().is_none() {
        return Err(bad(start, &format!("shape {:?}", h.dims), "fewer than 2^48 elements"));
    }
    Ok(h)
}

/// The few Python literals of a header.
struct Python<'a> {
    s: &'a [u8],
    at: usize,
}

impl<'a> Python<'a> {
    fn space(&mut self) {
        while matches!(self.s.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.s.get(self.at).copied()
    }

    fn eat(&mut self, c: u8) -> bool {
        let yes = self.peek() == Some(c);
        self.at += yes as usize;
        yes
    }

    fn word(&mut self, w: &str) -> bool {
        self.space();
        let yes = self.s.get(self.at..).is_some_and(|r| r.starts_with(w.as_bytes()));
        self.at += if yes { w.len() } else { 0 };
        yes
    }

    /// A quoted string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        let q = self.peek().filter(|c| matches!(c, b'\'' | b'"'))?;
        let rest = self.s.get(self.at + 1..)?;
        let n = rest.iter().position(|&c| c == q)?;
        let text = rest.get(..n)?;
        if text.contains(&b'\\') {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        self.at += n + 2;
        Some(text)
    }

    fn tuple(&mut self) -> Option<Dims> {
        let mut out = Dims::new();
        if !self.eat(b'(') {
            return None;
        }
        while !self.eat(b')') {
            let mut n = 0i64;
            let mut any = false;
            while let Some(c @ b'0'..=b'9') =
                if any { self.s.get(self.at).copied() } else { self.peek() }
            {
                n = n.checked_mul(10)?.checked_add((c - b'0') as i64)?;
                self.at += 1;
                any = true;
            }
            if !any || out.len() >= 64 {
                return None;
            }
            // Python 2 wrote long integers so.
            if self.s.get(self.at) == Some(&b'L') {
                self.at += 1;
            }
            out.push(n);
            if !self.eat(b',') && self.peek() != Some(b')') {
                return None;
            }
        }
        Some(out)
    }
}

/// The header of a row-major array, padded to a multiple of 64 bytes.
pub(crate) fn write_header(t: DType, dims: &[i64]) -> Vec<u8> {
    let sizes: String = match dims {
        [d] => format!("{d},"),
        _ => dims.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
    };
    let dict =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({sizes}), }}", to_descr(t));
    let mut out = MAGIC.to_vec();
    let pad = |head: usize| (head + dict.len() + 1).next_multiple_of(64) - head;
    match u16::try_from(pad(10)) {
        Ok(n) => {
            out.extend([1, 0]);
            out.extend(n.to_le_bytes());
        }
        Err(_) => {
            out.extend([2, 0]);
            out.extend((pad(12) as u32).to_le_bytes());
        }
    }
    out.extend(dict.as_bytes());
    out.resize((out.len() + 1).next_multiple_of(64) - 1, b' ');
    out.push(b'\n');
    out
}
