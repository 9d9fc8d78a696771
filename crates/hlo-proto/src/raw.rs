//! `bytes` fields as text.
//!
//! The IR holds text. A byte that is not part of valid UTF-8 becomes the
//! character `0x10FF00 + byte` (private use), and so do the bytes of such a
//! character; the HLO text reader uses the same mapping for escapes.

const RAW: u32 = 0x10FF00;

/// Text that stands for `bytes`.
pub(crate) fn to_text(bytes: &[u8]) -> String {
    let mut s = String::with_capacity(bytes.len());
    let push_raw = |s: &mut String, b: u8| s.extend(char::from_u32(RAW + u32::from(b)));
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

/// The bytes that `text` stands for: the inverse of [`to_text`].
pub(crate) fn to_bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match (c as u32).checked_sub(RAW) {
            Some(b) => out.push(b as u8),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_survives() {
        let all: Vec<u8> = (0..=255).chain([0xF4, 0x8F, 0xBC, 0x80, 0xC3, 0xA9]).collect();
        assert_eq!(to_bytes(&to_text(&all)), all);
        assert_eq!(to_text(b"abc"), "abc");
    }
}
