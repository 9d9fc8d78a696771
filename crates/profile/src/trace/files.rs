//! Opening traces: folders of profilers, compression, formats.

use super::{Sink, Trace, TraceError, chrome, xplane};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Largest protobuf, decompressed (bytes); it is held in memory.
const MAX_PROTO: u64 = 1 << 30;
/// Largest JSON, decompressed (bytes); it is read as a stream.
const MAX_JSON: u64 = 64 << 30;
/// Largest window of a zstd frame, as a power of two.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Entries of a folder of traces.
const MAX_ENTRIES: usize = 100_000;

fn io_error(path: &Path) -> impl Fn(io::Error) -> TraceError + '_ {
    move |source| TraceError::Io { file: path.display().to_string(), source }
}

/// The trace in what a profiler wrote: a file itself; of a folder (that of
/// `jax.profiler.trace`) the newest run's, as protobuf if there is one.
///
/// # Errors
/// Unreadable folders, or no trace in one.
pub fn find(path: &Path) -> Result<PathBuf, TraceError> {
    let meta = std::fs::metadata(path).map_err(io_error(path))?;
    if !meta.is_dir() {
        return Ok(path.to_owned());
    }
    let rank = |n: &str| {
        [".xplane.pb", ".xplane.pb.gz", ".trace.json.gz", ".trace.json", ".pt.trace.json.gz"]
            .iter()
            .position(|e| n.ends_with(e))
    };
    let mut best: Option<(String, std::cmp::Reverse<usize>, PathBuf)> = None;
    let mut todo = vec![(path.to_owned(), 0)];
    let mut seen = 0;
    while let Some((dir, depth)) = todo.pop() {
        for e in std::fs::read_dir(&dir).map_err(io_error(&dir))? {
            let e = e.map_err(io_error(&dir))?;
            seen += 1;
            if seen > MAX_ENTRIES {
                break;
            }
            let name = e.file_name().to_string_lossy().into_owned();
            let kind = e.file_type().map_err(io_error(&dir))?;
            if kind.is_dir() && depth < 5 {
                todo.push((e.path(), depth + 1));
            } else if let Some(r) = rank(&name) {
                // Folders of runs are named by time.
                let key = (dir.display().to_string(), std::cmp::Reverse(r), e.path());
                if best.as_ref().is_none_or(|b| key > *b) {
                    best = Some(key);
                }
            }
        }
    }
    best.map(|b| b.2).ok_or_else(|| TraceError::Bad {
        file: path.display().to_string(),
        at: "folder".into(),
        message: "no trace, expected *.xplane.pb or *.trace.json.gz in it or its plugins/profile"
            .into(),
    })
}

/// Reads a trace; `interest` tells whether an instruction has a name.
///
/// # Errors
/// Unreadable files, what is no trace (with its place and what was expected),
/// or more than the limits.
pub fn read(path: &Path, interest: &dyn Fn(&str) -> bool) -> Result<Trace, TraceError> {
    let file = File::open(path).map_err(io_error(path))?;
    from_reader(&path.display().to_string(), file, interest)
}

/// See [`read`]; `name` is for messages.
///
/// # Errors
/// See [`read`].
pub fn from_reader(
    name: &str,
    input: impl Read,
    interest: &dyn Fn(&str) -> bool,
) -> Result<Trace, TraceError> {
    let io = |source| TraceError::Io { file: name.to_owned(), source };
    let mut raw = BufReader::new(input);
    let head = raw.fill_buf().map_err(io)?;
    let plain: Box<dyn Read + '_> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::read::MultiGzDecoder::new(raw))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let mut d = zstd::Decoder::with_buffer(raw).map_err(io)?;
        d.window_log_max(ZSTD_WINDOW_LOG).map_err(io)?;
        Box::new(d)
    } else {
        Box::new(raw)
    };
    let mut plain = BufReader::with_capacity(1 << 18, plain);
    let head = plain.fill_buf().map_err(io)?;
    let first = head.iter().find(|b| !b.is_ascii_whitespace()).copied();
    // A protobuf of planes begins with key 1, type 2, which is a line feed.
    let proto = head.first() == Some(&0x0a) && !matches!(first, Some(b'{' | b'['));
    match first {
        None => {
            Err(bad(name, "byte 0", "empty file, expected a Chrome trace or an XPlane protobuf"))
        }
        Some(b'{' | b'[') if !proto => chrome::read(name, plain.take(MAX_JSON), interest),
        _ if proto || head.first().is_some_and(|b| matches!(b, 0x12 | 0x1a | 0x22)) => {
            let mut bytes = Vec::new();
            plain.take(MAX_PROTO + 1).read_to_end(&mut bytes).map_err(io)?;
            if bytes.len() as u64 > MAX_PROTO {
                return Err(bad(
                    name,
                    "byte 0",
                    &format!("expected at most {} MB", MAX_PROTO >> 20),
                ));
            }
            let mut sink = Sink::new(super::Format::XPlane, interest);
            xplane::read(&bytes, &mut sink)
                .map_err(|(at, m)| bad(name, &format!("byte {at}"), &m))?;
            Ok(sink.finish())
        }
        _ => Err(bad(
            name,
            "byte 0",
            "expected a Chrome trace (`{` or `[`) or an XPlane protobuf, may be compressed",
        )),
    }
}

pub(super) fn bad(file: &str, at: &str, message: &str) -> TraceError {
    TraceError::Bad { file: file.to_owned(), at: at.to_owned(), message: message.to_owned() }
}
