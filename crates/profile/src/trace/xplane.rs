//! XSpace protobufs of XLA's profiler: planes (hosts, devices) of lines
//! (threads, queues) of events, whose names and statistics stand in tables of
//! the plane. Times are picoseconds from a line's start in nanoseconds.

use super::Sink;
use crate::peaks::Peaks;
use prost::Message;
use rustc_hash::FxHashMap;

/// Where reading failed (byte), and what was expected.
type Flaw = (usize, String);

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(int64, tag = "1")]
    metadata_id: i64,
    #[prost(int64, tag = "2")]
    offset_ps: i64,
    #[prost(int64, tag = "3")]
    duration_ps: i64,
    #[prost(message, repeated, tag = "4")]
    stats: Vec<Stat>,
    /// Set in lines of totals, which have no times.
    #[prost(int64, optional, tag = "5")]
    occurrences: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Stat {
    #[prost(int64, tag = "1")]
    metadata_id: i64,
    #[prost(double, optional, tag = "2")]
    double: Option<f64>,
    #[prost(uint64, optional, tag = "3")]
    unsigned: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    signed: Option<i64>,
    #[prost(string, optional, tag = "5")]
    text: Option<String>,
    /// Name of a row of the plane's table of statistics.
    #[prost(uint64, optional, tag = "7")]
    reference: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct EventEntry {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(message, optional, tag = "2")]
    value: Option<EventMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct EventMetadata {
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "4")]
    display_name: String,
    #[prost(message, repeated, tag = "5")]
    stats: Vec<Stat>,
}

#[derive(Clone, PartialEq, Message)]
struct StatEntry {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(message, optional, tag = "2")]
    value: Option<StatMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct StatMetadata {
    #[prost(string, tag = "2")]
    name: String,
}

/// A field of a message: number, and its bytes if it has a length; with where
/// these begin.
struct Field<'a> {
    number: u64,
    bytes: Option<&'a [u8]>,
    varint: u64,
    at: usize,
}

/// The fields of a message that begins at byte `base` of the file.
fn fields(buf: &[u8], base: usize) -> impl Iterator<Item = Result<Field<'_>, Flaw>> {
    let mut pos = 0;
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || pos >= buf.len() {
            return None;
        }
        let start = pos;
        let next = field(buf, &mut pos, base).ok_or_else(|| {
            (
                base + start,
                "malformed or cut off, expected a field of an XSpace protobuf".to_owned(),
            )
        });
        failed = next.is_err();
        Some(next)
    })
}

fn varint(buf: &[u8], pos: &mut usize) -> Option<u64> {
    let mut v = 0u64;
    for shift in 0..10 {
        let b = *buf.get(*pos)?;
        *pos += 1;
        v |= u64::from(b & 0x7f).checked_shl(7 * shift)?;
        if b < 0x80 {
            return Some(v);
        }
    }
    None
}

fn field<'a>(buf: &'a [u8], pos: &mut usize, base: usize) -> Option<Field<'a>> {
    let key = varint(buf, pos)?;
    let mut f = Field { number: key >> 3, bytes: None, varint: 0, at: 0 };
    let skip = match key & 7 {
        0 => {
            f.varint = varint(buf, pos)?;
            0
        }
        1 => 8,
        2 => usize::try_from(varint(buf, pos)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let end = pos.checked_add(skip)?;
    let bytes = buf.get(*pos..end)?;
    f.at = base + *pos;
    if key & 7 == 2 {
        f.bytes = Some(bytes);
    }
    *pos = end;
    (f.number != 0).then_some(f)
}

fn message<M: Message + Default>(f: &Field<'_>, what: &str) -> Result<M, Flaw> {
    let b = f.bytes.ok_or_else(|| (f.at, format!("expected {what}")))?;
    M::decode(b).map_err(|e| (f.at, format!("expected {what}: {e}")))
}

fn text<'a>(f: &Field<'a>, what: &str) -> Result<&'a str, Flaw> {
    let b = f.bytes.ok_or_else(|| (f.at, format!("expected {what}")))?;
    std::str::from_utf8(b).map_err(|_| (f.at, format!("expected {what} in UTF-8")))
}

/// Reads all planes.
pub(super) fn read(buf: &[u8], sink: &mut Sink<'_>) -> Result<(), Flaw> {
    let mut planes = 0;
    for f in fields(buf, 0) {
        let f = f?;
        if f.number == 1 {
            plane(f.bytes.ok_or_else(|| (f.at, "expected a plane".to_owned()))?, f.at, sink)?;
            planes += 1;
        }
    }
    if planes == 0 {
        return Err((0, "no planes, expected an XSpace protobuf".into()));
    }
    Ok(())
}

/// Names and statistics of a plane.
#[derive(Default)]
struct Tables {
    name: String,
    stats: FxHashMap<i64, String>,
    events: FxHashMap<i64, Named>,
}

/// A row of the table of events.
struct Named {
    name: String,
    op: Option<String>,
    module: Option<String>,
}

impl Tables {
    fn stat<'a>(&'a self, s: &'a Stat) -> Option<&'a str> {
        if let Some(t) = &s.text {
            return Some(t);
        }
        self.stats.get(&i64::try_from(s.reference?).ok()?).map(String::as_str)
    }

    /// Instruction and module that statistics name.
    fn op<'a>(&'a self, stats: &'a [Stat]) -> (Option<&'a str>, Option<&'a str>) {
        let (mut op, mut module) = (None, None);
        for s in stats {
            match self.stats.get(&s.metadata_id).map_or("", String::as_str) {
                "hlo_op" => op = self.stat(s),
                "hlo_module" => module = self.stat(s),
                _ => {}
            }
        }
        (op, module)
    }
}

fn plane(buf: &[u8], base: usize, sink: &mut Sink<'_>) -> Result<(), Flaw> {
    let mut t = Tables::default();
    let (mut lines, mut events, mut stats) = (Vec::new(), Vec::new(), Vec::new());
    for f in fields(buf, base) {
        let f = f?;
        match f.number {
            2 => t.name = text(&f, "the name of a plane")?.to_owned(),
            3 => lines.push(f),
            4 => events.push(f),
            5 => {
                let e: StatEntry = message(&f, "a row of the table of statistics")?;
                t.stats.insert(e.key, e.value.unwrap_or_default().name);
            }
            6 => stats.push(message::<Stat>(&f, "a statistic")?),
            _ => {}
        }
    }
    for f in events {
        let e: EventEntry = message(&f, "a row of the table of events")?;
        let v = e.value.unwrap_or_default();
        let (op, module) = t.op(&v.stats);
        let (op, module) = (op.map(str::to_owned), module.map(str::to_owned));
        // Names of device operations are their whole text.
        let short = !v.display_name.is_empty() && v.name.starts_with('%');
        let name = if short { v.display_name } else { v.name };
        t.events.insert(e.key, Named { name, op, module });
    }
    if let Some(p) = peaks(&t, &stats) {
        sink.trace().peaks = Some(p);
    }
    for f in lines {
        line(f.bytes.ok_or_else(|| (f.at, "expected a line".to_owned()))?, f.at, &t, sink)?;
    }
    Ok(())
}

/// Peaks that a device's plane states.
fn peaks(t: &Tables, stats: &[Stat]) -> Option<Peaks> {
    let number = |key: &str| {
        let s = stats.iter().find(|s| t.stats.get(&s.metadata_id).is_some_and(|n| n == key))?;
        let v = s.double.or(s.unsigned.map(|x| x as f64)).or(s.signed.map(|x| x as f64))?;
        (v.is_finite() && v > 0.0).then_some(v)
    };
    Some(Peaks {
        flops: number("peak_teraflops_per_second")? * 1e12,
        bytes: number("peak_hbm_bw_gigabytes_per_second")? * 1e9,
        source: format!("stated in the trace for {}", t.name),
    })
}

fn line(buf: &[u8], base: usize, t: &Tables, sink: &mut Sink<'_>) -> Result<(), Flaw> {
    let (mut name, mut display, mut start) = ("", "", 0i64);
    for f in fields(buf, base) {
        let f = f?;
        match f.number {
            2 => name = text(&f, "the name of a line")?,
            11 => display = text(&f, "the name of a line")?,
            3 => start = f.varint as i64,
            _ => {}
        }
    }
    let id = sink.line().map_err(|m| (base, m))?;
    if let Some(l) = sink.trace().lines.get_mut(id as usize) {
        l.process.clone_from(&t.name);
        l.name = if display.is_empty() { name } else { display }.to_owned();
        if l.name.is_empty() {
            // Only unnamed threads of Chrome traces may be named later.
            l.name = "line".into();
        }
    }
    for f in fields(buf, base) {
        let f = f?;
        if f.number != 4 {
            continue;
        }
        let e: Event = message(&f, "an event")?;
        let Some(of) = t.events.get(&e.metadata_id) else { continue };
        if e.occurrences.is_some_and(|n| n > 0) {
            continue;
        }
        let (op, module) = t.op(&e.stats);
        let at = start as f64 + e.offset_ps as f64 / 1e3;
        sink.event(
            id,
            &of.name,
            op.or(of.op.as_deref()),
            module.or(of.module.as_deref()),
            None,
            at,
            e.duration_ps as f64 / 1e3,
        )
        .map_err(|m| (f.at, m))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::trace::{Class, Format, Sink};

    fn varint(mut v: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while v >= 0x80 {
            out.push(v as u8 | 0x80);
            v >>= 7;
        }
        out.push(v as u8);
        out
    }

    /// A field with a length.
    fn part(number: u64, b: &[u8]) -> Vec<u8> {
        [varint(number << 3 | 2), varint(b.len() as u64), b.to_vec()].concat()
    }

    fn int(number: u64, v: u64) -> Vec<u8> {
        [varint(number << 3), varint(v)].concat()
    }

    fn double(number: u64, v: f64) -> Vec<u8> {
        [varint(number << 3 | 1), v.to_le_bytes().to_vec()].concat()
    }

    /// A row of a table: key and value.
    fn row(field: u64, key: u64, value: &[Vec<u8>]) -> Vec<u8> {
        part(field, &[int(1, key), part(2, &value.concat())].concat())
    }

    /// A plane of an accelerator, tables behind the lines: names that are whole
    /// texts, modules by reference, stated peaks.
    #[test]
    fn a_plane_of_a_device() {
        let event = [
            int(1, 9),
            int(2, 5_000_000),
            int(3, 2_500_000),
            part(4, &[int(1, 2), int(7, 3)].concat()),
        ];
        let total = [int(1, 9), int(5, 4), int(3, 99)];
        let line = |name: &str, events: &[Vec<u8>]| {
            let mut b = [part(2, name.as_bytes()), int(3, 1_000)].concat();
            for e in events {
                b.extend(part(4, e));
            }
            part(3, &b)
        };
        let plane = [
            part(2, b"/device:TPU:0"),
            line("XLA Modules", &[event.concat()]),
            line("XLA Ops", &[event.concat(), total.concat()]),
            row(4, 9, &[part(2, b"%dot.4 = f32[8] dot(%a, %b)"), part(4, b"dot.4")]),
            row(5, 2, &[part(2, b"hlo_module")]),
            row(5, 3, &[part(2, b"jit_f(7)")]),
            row(5, 4, &[part(2, b"peak_teraflops_per_second")]),
            row(5, 5, &[part(2, b"peak_hbm_bw_gigabytes_per_second")]),
            part(6, &[int(1, 4), double(2, 197.0)].concat()),
            part(6, &[int(1, 5), double(2, 819.0)].concat()),
        ];
        let space = part(1, &plane.concat());
        let mut sink = Sink::new(Format::XPlane, &|_| false);
        super::read(&space, &mut sink).unwrap();
        let t = sink.finish();
        assert_eq!(t.events.len(), 1);
        let e = t.events[0];
        assert_eq!((t.name(e.name), t.name(e.module)), (Some("dot.4"), Some("jit_f(7)")));
        assert_eq!((e.class, e.start, e.duration), (Class::Op, 6_000.0, 2_500.0));
        let p = t.peaks.unwrap();
        assert_eq!((p.flops, p.bytes), (197e12, 819e9));
        // Cut anywhere it is an error with a byte, or a shorter trace.
        for n in 0..space.len() {
            let mut sink = Sink::new(Format::XPlane, &|_| false);
            if let Err((at, _)) = super::read(&space[..n], &mut sink) {
                assert!(at <= n);
            }
        }
    }
}
