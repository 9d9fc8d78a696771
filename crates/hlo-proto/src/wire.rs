//! Walks the fields of a message without building it.
//!
//! Module, computation and instruction are walked in place: their messages
//! have some eighty fields each, of which an instruction uses six.

use crate::error::{Flaw, Part};

/// Value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2.
    Len(&'a [u8]),
    /// Wire types 1 and 5; nothing that is walked in place uses them.
    Fixed,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    /// Field number.
    pub(crate) number: u32,
    /// Its value.
    pub(crate) value: Value<'a>,
    /// The whole field with its key.
    pub(crate) raw: &'a [u8],
}

/// Fields of a message, in the order of the bytes.
pub(crate) struct Fields<'a> {
    buf: &'a [u8],
    pos: usize,
}

/// Starts the walk.
pub(crate) fn fields(buf: &[u8]) -> Fields<'_> {
    Fields { buf, pos: 0 }
}

impl<'a> Fields<'a> {
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let first = *self.buf.get(self.pos)?;
        self.pos += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut v = u64::from(first & 0x7f);
        for shift in 1..10 {
            let b = *self.buf.get(self.pos)?;
            self.pos += 1;
            v |= u64::from(b & 0x7f) << (7 * shift);
            if b < 0x80 {
                return (shift < 9 || b < 2).then_some(v);
            }
        }
        None
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let n = usize::try_from(n).ok()?;
        let s = self.buf.get(self.pos..self.pos.checked_add(n)?)?;
        self.pos += n;
        Some(s)
    }

    fn field(&mut self) -> Option<Field<'a>> {
        let start = self.pos;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|&n| n != 0 && n < 1 << 29)?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed
            }
            2 => {
                let n = self.varint()?;
                Value::Len(self.take(n)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed
            }
            _ => return None,
        };
        Some(Field { number, value, raw: &self.buf[start..self.pos] })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Part<Field<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.pos >= self.buf.len() {
            return None;
        }
        let start = self.pos;
        Some(self.field().ok_or_else(|| {
            self.pos = self.buf.len();
            Flaw::new("", format!("not a protobuf field at byte {start} of the message"))
        }))
    }
}

impl<'a> Value<'a> {
    /// Bytes of a length-delimited field.
    pub(crate) fn bytes(self, field: &'static str) -> Part<&'a [u8]> {
        match self {
            Value::Len(b) => Ok(b),
            _ => Err(Flaw::new(field, "expected a string or a message")),
        }
    }

    /// UTF-8 text.
    pub(crate) fn str(self, field: &'static str) -> Part<&'a str> {
        std::str::from_utf8(self.bytes(field)?)
            .map_err(|e| Flaw::new(field, format!("not UTF-8: {e}")))
    }

    /// An int64.
    pub(crate) fn int(self, field: &'static str) -> Part<i64> {
        match self {
            Value::Varint(v) => Ok(v as i64),
            _ => Err(Flaw::new(field, "expected an integer")),
        }
    }

    /// Elements of a repeated int64, packed or not, appended to `out`.
    pub(crate) fn ints(self, field: &'static str, out: &mut impl Extend<i64>) -> Part<()> {
        match self {
            Value::Varint(v) => out.extend([v as i64]),
            Value::Len(buf) => {
                let mut f = Fields { buf, pos: 0 };
                while f.pos < buf.len() {
                    let Some(v) = f.varint() else {
                        return Err(Flaw::new(field, "broken list of integers"));
                    };
                    out.extend([v as i64]);
                }
            }
            Value::Fixed => return Err(Flaw::new(field, "expected integers")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_and_rejects() {
        // field 1 varint 300; field 2 "ab"; examples of the protobuf manual.
        let b = [0x08, 0xac, 0x02, 0x12, 2, b'a', b'b'];
        let f: Vec<_> = fields(&b).map(|f| f.unwrap()).collect();
        assert_eq!((f[0].number, f[0].value.int("x").unwrap()), (1, 300));
        assert_eq!((f[1].number, f[1].value.str("x").unwrap()), (2, "ab"));
        for cut in [1, 2, 4, 5, 6] {
            assert!(fields(&b[..cut]).any(|f| f.is_err()), "{cut}");
        }
        // Field number 0, a group, a varint of eleven bytes.
        for bad in [&[0x00, 1][..], &[0x0b], &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]] {
            assert!(fields(bad).any(|f| f.is_err()) || bad.len() == 11);
        }
        assert!(fields(&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]).any(|f| f.is_err()));
    }
}
