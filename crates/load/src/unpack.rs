//! Decompression with a limit.

use crate::LoadError;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, possibly of several members.
    Gzip,
    /// zstd, possibly of several frames.
    Zstd,
}

/// Layers of compression that are taken off at most.
const MAX_LAYERS: usize = 2;
/// Largest window a zstd frame may ask for, as a power of two: 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 27;

fn detect(head: &[u8]) -> Compression {
    if head.starts_with(&[0x1f, 0x8b]) {
        Compression::Gzip
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Compression::Zstd
    } else {
        Compression::None
    }
}

/// Content of a file, decompressed.
pub(crate) fn file(
    path: &Path,
    name: &str,
    limit: u64,
) -> Result<(Vec<u8>, Compression), LoadError> {
    let io = |action, source| LoadError::Io { name: name.to_owned(), action, source };
    let mut f = File::open(path).map_err(|e| io("open", e))?;
    let mut head = [0u8; 4];
    let mut have = 0;
    while have < head.len() {
        match f.read(&mut head[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(io("read", e)),
        }
    }
    let kind = detect(&head[..have]);
    let size = f.metadata().map_or(0, |m| m.len());
    // A failing disk must not look like damaged data.
    let mut source = Watched { inner: f, failed: None };
    let result = {
        let chained = head[..have].chain(&mut source);
        decode(name, chained, kind, size, limit)
    };
    if let Some(e) = source.failed {
        return Err(io("read", e));
    }
    layers(name, result?, kind, limit)
}

/// Content of bytes, decompressed.
pub(crate) fn bytes(name: &str, b: &[u8], limit: u64) -> Result<(Vec<u8>, Compression), LoadError> {
    let kind = detect(b);
    let out = decode(name, b, kind, b.len() as u64, limit)?;
    layers(name, out, kind, limit)
}

/// Takes off further layers.
fn layers(
    name: &str,
    mut b: Vec<u8>,
    first: Compression,
    limit: u64,
) -> Result<(Vec<u8>, Compression), LoadError> {
    for _ in 1..MAX_LAYERS {
        let kind = detect(&b);
        if first == Compression::None || kind == Compression::None {
            break;
        }
        b = decode(name, b.as_slice(), kind, b.len() as u64, limit)?;
    }
    Ok((b, first))
}

/// Remembers errors of the reader below a decoder.
struct Watched<R> {
    inner: R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for &mut Watched<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buf).inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                self.failed = Some(io::Error::new(e.kind(), e.to_string()));
            }
        })
    }
}

/// Decodes at most `limit` bytes; memory grows with what is decoded, not with
/// what the input claims.
fn decode(
    name: &str,
    input: impl Read,
    kind: Compression,
    size: u64,
    limit: u64,
) -> Result<Vec<u8>, LoadError> {
    let damaged = |source| match kind {
        Compression::None => LoadError::Io { name: name.to_owned(), action: "read", source },
        Compression::Gzip => LoadError::Damaged { name: name.to_owned(), kind: "gzip", source },
        Compression::Zstd => LoadError::Damaged { name: name.to_owned(), kind: "zstd", source },
    };
    let mut out = Vec::new();
    let most = limit.saturating_add(1);
    let n = match kind {
        Compression::None => {
            out.reserve(usize::try_from(size.min(limit)).unwrap_or(0).min(1 << 30));
            input.take(most).read_to_end(&mut out)
        }
        Compression::Gzip => {
            let d = flate2::read::MultiGzDecoder::new(BufReader::new(input));
            d.take(most).read_to_end(&mut out)
        }
        Compression::Zstd => {
            let mut d = zstd::Decoder::new(input).map_err(damaged)?;
            d.window_log_max(ZSTD_WINDOW_LOG).map_err(damaged)?;
            d.take(most).read_to_end(&mut out)
        }
    }
    .map_err(damaged)?;
    if n as u64 > limit {
        return Err(LoadError::TooLarge { name: name.to_owned(), limit });
    }
    Ok(out)
}
