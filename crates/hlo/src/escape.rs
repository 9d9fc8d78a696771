//! C escapes of quoted strings.
//!
//! Strings of an HLO file are bytes, those of the IR are text. A byte that is
//! not part of valid UTF-8 is kept as the character `RAW + byte` (private
//! use, plane 16); a character of that range in the file is kept as its bytes
//! in the same way, so the mapping can always be undone.

use std::borrow::Cow;

/// First of 256 characters that stand for raw bytes.
const RAW: u32 = 0x10FF00;

/// Text of the escapes in `s`; `Err` holds the offset of a bad one.
pub(crate) fn unescape(s: &str) -> Result<Cow<'_, str>, usize> {
    if memchr::memchr2(b'\\', 0xF4, s.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(s));
    }
    let b = s.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(s.len());
    let mut i = 0;
    while let Some(&c) = b.get(i) {
        if c != b'\\' {
            out.push(c);
            i += 1;
            continue;
        }
        let at = i;
        i += 2;
        let digit = |i: usize, radix: u32| b.get(i).and_then(|&c| (c as char).to_digit(radix));
        out.push(match b.get(at + 1) {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'v') => 11,
            Some(c @ (b'\\' | b'\'' | b'"' | b'?')) => *c,
            Some(b'0'..=b'7') => {
                i = at + 1;
                let mut v = 0;
                while let (Some(d), true) = (digit(i, 8), i < at + 4) {
                    v = v * 8 + d;
                    i += 1;
                }
                u8::try_from(v).map_err(|_| at)?
            }
            Some(b'x' | b'X') => {
                let mut v = digit(i, 16).ok_or(at)?;
                i += 1;
                while let Some(d) = digit(i, 16) {
                    v = v * 16 + d;
                    if v > 255 {
                        return Err(at);
                    }
                    i += 1;
                }
                v as u8
            }
            Some(u @ (b'u' | b'U')) => {
                let mut v = 0;
                for _ in 0..if *u == b'u' { 4 } else { 8 } {
                    v = v << 4 | digit(i, 16).ok_or(at)?;
                    i += 1;
                    if v > 0x10FFFF {
                        return Err(at);
                    }
                }
                let c = char::from_u32(v).ok_or(at)?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(at),
        });
    }
    Ok(Cow::Owned(from_bytes(&out)))
}

/// Text that stands for `bytes`.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut s = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if (c as u32) < RAW {
                s.push(c);
            } else {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| push_raw(&mut s, b));
            }
        }
        chunk.invalid().iter().for_each(|&b| push_raw(&mut s, b));
    }
    s
}

fn push_raw(s: &mut String, b: u8) {
    s.extend(char::from_u32(RAW + b as u32));
}

/// Bytes that `s` stands for: the inverse of [`from_bytes`].
pub fn to_bytes(s: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(s.len());
    for c in s.chars() {
        match (c as u32).checked_sub(RAW) {
            Some(b) => out.push(b as u8),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// Appends `s` escaped as XLA does: printable ASCII stays, other bytes are
/// three octal digits.
pub(crate) fn escape_into(out: &mut String, s: &str) {
    for b in to_bytes(s) {
        match b {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\'' => out.push_str("\\'"),
            b'\\' => out.push_str("\\\\"),
            0x20..0x7f => out.push(b as char),
            _ => {
                out.push('\\');
                for shift in [6, 3, 0] {
                    out.push((b'0' + (b >> shift & 7)) as char);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_survives() {
        let all: Vec<u8> = (0..=255).chain([0xF4, 0x8F, 0xBC, 0x80, 0xC3, 0xA9]).collect();
        let text = from_bytes(&all);
        assert_eq!(to_bytes(&text), all);
        let mut escaped = String::new();
        escape_into(&mut escaped, &text);
        assert!(escaped.is_ascii());
        assert_eq!(unescape(&escaped).as_deref(), Ok(text.as_str()));
    }

    #[test]
    fn known_escapes() {
        assert_eq!(unescape(r"a\'b\x41\101\u00e9\n").as_deref(), Ok("a'bAA\u{e9}\n"));
        assert_eq!(unescape(r"\303\251").as_deref(), Ok("\u{e9}"));
        assert_eq!(unescape(r"ab\q"), Err(2));
        assert_eq!(unescape(r"\400"), Err(0));
        assert_eq!(unescape("\\"), Err(0));
    }
}
