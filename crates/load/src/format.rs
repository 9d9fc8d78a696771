//! Formats, recognised from content.

use scalify_hlo_proto::MessageKind;
use std::fmt;

/// A format that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// HLO text.
    HloText,
    /// `xla.HloModuleProto`.
    HloModuleProto,
    /// `xla.HloProto`.
    HloProto,
    /// `xla.HloSnapshot`.
    HloSnapshot,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::HloText => "HLO text",
            Format::HloModuleProto => "HloModuleProto",
            Format::HloProto => "HloProto",
            Format::HloSnapshot => "HloSnapshot",
        })
    }
}

/// What a file is that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// No bytes.
    Empty,
    /// StableHLO or other MLIR text.
    MlirText,
    /// MLIR bytecode, e.g. a portable StableHLO artifact.
    MlirBytecode,
    /// An ONNX model.
    Onnx,
    /// A zip archive, e.g. `.pt2`, `.npz`.
    Zip,
    /// A tar archive.
    Tar,
    /// xz or bzip2 data.
    OtherCompression,
    /// Text that starts like no format known here.
    OtherText,
    /// Bytes that no format known here has.
    OtherBinary,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsupported::Empty => "the file is empty",
            Unsupported::MlirText => {
                "this is MLIR text (StableHLO?), which is not supported yet; \
                 expected HLO text or an HLO proto"
            }
            Unsupported::MlirBytecode => {
                "this is MLIR bytecode (StableHLO?), which is not supported yet; \
                 expected HLO text or an HLO proto"
            }
            Unsupported::Onnx => {
                "this is an ONNX model, which is not supported yet; \
                 expected HLO text or an HLO proto"
            }
            Unsupported::Zip => {
                "this is a zip archive (.pt2, .npz?), which is not supported yet; \
                 expected HLO text or an HLO proto"
            }
            Unsupported::Tar => {
                "this is a tar archive: unpack it first; expected HLO text or an HLO proto"
            }
            Unsupported::OtherCompression => {
                "this is xz or bzip2 data: decompress it first; gzip and zstd are read directly"
            }
            Unsupported::OtherText => {
                "this is text but not HLO: expected a first line `HloModule name`"
            }
            Unsupported::OtherBinary => {
                "unknown binary data: expected HLO text, HloModuleProto, HloProto or HloSnapshot"
            }
        })
    }
}

/// Recognises decompressed content.
pub(crate) fn recognise(b: &[u8]) -> Result<Format, Unsupported> {
    let magic = |m: &[u8]| b.starts_with(m);
    if b.is_empty() {
        return Err(Unsupported::Empty);
    }
    if magic(b"PK\x03\x04") || magic(b"PK\x05\x06") {
        return Err(Unsupported::Zip);
    }
    if magic(b"ML\xefR") {
        return Err(Unsupported::MlirBytecode);
    }
    if magic(b"\xfd7zXZ\0") || magic(b"BZh") {
        return Err(Unsupported::OtherCompression);
    }
    if b.get(257..262) == Some(b"ustar") {
        return Err(Unsupported::Tar);
    }
    // Protos first: the name of a module may look like text.
    if let Some((kind, _)) = scalify_hlo_proto::recognise(b) {
        return Ok(match kind {
            MessageKind::Module => Format::HloModuleProto,
            MessageKind::Proto => Format::HloProto,
            MessageKind::Snapshot => Format::HloSnapshot,
        });
    }
    if is_onnx(b) {
        return Err(Unsupported::Onnx);
    }
    text(b)
}

/// ModelProto: field 1 `ir_version` (varint, small), then `producer_name`
/// (field 2) or another of its fields.
fn is_onnx(b: &[u8]) -> bool {
    matches!(b, [0x08, 1..=31, key, ..] if matches!(key, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42))
}

fn text(b: &[u8]) -> Result<Format, Unsupported> {
    let head = &b[..b.len().min(1 << 16)];
    let binary = head.iter().any(|&c| c < 0x20 && !matches!(c, b'\n' | b'\r' | b'\t' | 0x0c));
    if binary {
        return Err(Unsupported::OtherBinary);
    }
    let rest = skip_comments(b.strip_prefix(b"\xef\xbb\xbf").unwrap_or(b));
    let (word, after) = word(rest);
    let dialect = ["func.", "stablehlo.", "mhlo.", "sdy.", "builtin.", "vhlo."];
    let mlir = word == b"module"
        || dialect.iter().any(|d| word.starts_with(d.as_bytes()))
        || rest.starts_with(b"#loc")
        || rest.starts_with(b"\"builtin.module\"");
    // XLA's reader does without the first line: a computation or just an
    // instruction follows.
    let bare = || {
        let named = |b: &[u8]| matches!(b.trim_ascii_start().first(), Some(b'{' | b'(' | b'='));
        let name = |b| self::word(self::skip_comments(b));
        match word {
            b"ENTRY" => named(name(after).1),
            b"" => false,
            _ => named(after),
        }
    };
    if mlir {
        Err(Unsupported::MlirText)
    } else if word == b"HloModule" || bare() {
        Ok(Format::HloText)
    } else {
        Err(Unsupported::OtherText)
    }
}

/// What follows white space and comments.
fn skip_comments(mut b: &[u8]) -> &[u8] {
    loop {
        b = b.trim_ascii_start();
        let end = if b.starts_with(b"//") {
            b.iter().position(|&c| c == b'\n')
        } else if b.starts_with(b"/*") {
            b.windows(2).skip(2).position(|w| w == b"*/").map(|i| i + 4)
        } else {
            return b;
        };
        b = &b[end.unwrap_or(b.len())..];
    }
}

/// A leading word, with or without `%`, and what follows it.
fn word(b: &[u8]) -> (&[u8], &[u8]) {
    let b = b.strip_prefix(b"%").unwrap_or(b);
    let more = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    b.split_at(b.iter().position(|c| !more(c)).unwrap_or(b.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        for (bytes, want) in [
            (&b""[..], Err(Unsupported::Empty)),
            (b"HloModule m\n", Ok(Format::HloText)),
            (b"// run\n/* x */\nHloModule m", Ok(Format::HloText)),
            (b"e {\n  a = u4[8] parameter(0)\n}", Ok(Format::HloText)),
            (b"ENTRY %e (p: f32[]) -> f32[] {", Ok(Format::HloText)),
            (b"/**/ /* { */ %e (p: f32[]) -> f32[] {", Ok(Format::HloText)),
            (b"/* never closed", Err(Unsupported::OtherText)),
            (b"module @jit_f attributes {", Err(Unsupported::MlirText)),
            (b"#loc1 = loc(\"x\")\nmodule {", Err(Unsupported::MlirText)),
            (b"func.func @main() {", Err(Unsupported::MlirText)),
            (b"ML\xefR\x0dStableHLO", Err(Unsupported::MlirBytecode)),
            (b"PK\x03\x04....", Err(Unsupported::Zip)),
            // pytorch's exporter: ir_version 8, producer_name "pytorch".
            (b"\x08\x08\x12\x07pytorch\x1a", Err(Unsupported::Onnx)),
            (b"\xfd7zXZ\0", Err(Unsupported::OtherCompression)),
            (b"hello world", Err(Unsupported::OtherText)),
            (b"\x7fELF\x02\x01\x01\0", Err(Unsupported::OtherBinary)),
        ] {
            assert_eq!(recognise(bytes), want, "{}", bytes.escape_ascii());
        }
    }
}
