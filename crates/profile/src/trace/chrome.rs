//! Chrome trace events, read as a stream: an object with `traceEvents`, or an
//! array, which need not be closed. `X` events and pairs of `B` and `E`;
//! `M` events name processes and threads. Times are microseconds.

use super::files::bad;
use super::{Class, Format, Sink, Trace, TraceError};
use crate::peaks;
use rustc_hash::FxHashMap;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

/// Open `B` events per thread.
const MAX_OPEN: usize = 4096;
/// Bytes from one event to the next: strings and nesting take memory.
const MAX_GAP: u64 = 1 << 28;

/// A reader that ends with an error if no event comes for too long.
struct Bounded<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        let left = self.left.get().checked_sub(n as u64);
        self.left.set(left.unwrap_or(0));
        match left {
            Some(_) => Ok(n),
            None => Err(io::Error::other(format!(
                "no event in {} MB, expected events of a trace",
                MAX_GAP >> 20
            ))),
        }
    }
}

/// Reads all events.
pub(super) fn read(
    file: &str,
    input: impl Read,
    interest: &dyn Fn(&str) -> bool,
) -> Result<Trace, TraceError> {
    let mut state = State {
        sink: Sink::new(Format::Chrome, interest),
        lines: FxHashMap::default(),
        processes: FxHashMap::default(),
        open: FxHashMap::default(),
        array: false,
        events: false,
        left: Rc::new(Cell::new(MAX_GAP)),
    };
    let bounded = Bounded { inner: input, left: Rc::clone(&state.left) };
    let mut d = serde_json::Deserializer::from_reader(BufReader::new(bounded));
    let result = Top(&mut state).deserialize(&mut d);
    let fail = |e: &serde_json::Error| {
        // Line and column stand apart.
        let text = e.to_string();
        let text = text.split(" at line ").next().unwrap_or("").to_owned();
        bad(file, &format!("line {}, column {}", e.line(), e.column()), &text)
    };
    match result {
        Ok(()) => {}
        Err(e) if e.is_io() => {
            return Err(TraceError::Io { file: file.to_owned(), source: e.into() });
        }
        Err(e) if e.is_eof() && state.array => {
            state.sink.trace().notes.push("the array of events is not closed".into());
        }
        Err(e) => return Err(fail(&e)),
    }
    if !state.events {
        return Err(bad(
            file,
            &format!("line {}, column {}", 1, 1),
            "no `traceEvents`, expected the object of a Chrome trace or an array of events",
        ));
    }
    let names: FxHashMap<u32, String> = state
        .lines
        .iter()
        .filter_map(|((pid, _), line)| Some((*line, state.processes.get(pid)?.clone())))
        .collect();
    for (k, l) in state.sink.trace().lines.iter_mut().enumerate() {
        if let Some(p) = names.get(&(k as u32)) {
            l.process.clone_from(p);
        }
    }
    Ok(state.sink.finish())
}

struct State<'a> {
    sink: Sink<'a>,
    /// By process and thread id, as written.
    lines: FxHashMap<(Id, Id), u32>,
    processes: FxHashMap<Id, String>,
    open: FxHashMap<u32, Vec<Raw>>,
    /// The top is an array.
    array: bool,
    /// There was a list of events.
    events: bool,
    /// Bytes that may come before the next event.
    left: Rc<Cell<u64>>,
}

impl State<'_> {
    fn line(&mut self, pid: &Id, tid: &Id) -> Result<u32, String> {
        let key = (pid.clone(), tid.clone());
        if let Some(&l) = self.lines.get(&key) {
            return Ok(l);
        }
        let l = self.sink.line()?;
        self.lines.insert(key, l);
        Ok(l)
    }

    fn take(&mut self, e: Raw) -> Result<(), String> {
        self.left.set(MAX_GAP);
        match e.phase.as_str() {
            "X" => {
                let line = self.line(&e.pid, &e.tid)?;
                let ts = e.ts.ok_or("an `X` event without `ts`, expected microseconds")?;
                // Some writers leave the duration of instants out.
                self.push(line, &e, ts, e.dur.unwrap_or(0.0))
            }
            "B" => {
                let line = self.line(&e.pid, &e.tid)?;
                e.ts.ok_or("a `B` event without `ts`, expected microseconds")?;
                let open = self.open.entry(line).or_default();
                if open.len() >= MAX_OPEN {
                    return Err(format!("expected at most {MAX_OPEN} open `B` events in a thread"));
                }
                open.push(e);
                Ok(())
            }
            "E" => {
                let line = self.line(&e.pid, &e.tid)?;
                let end = e.ts.ok_or("an `E` event without `ts`, expected microseconds")?;
                let Some(b) = self.open.get_mut(&line).and_then(Vec::pop) else { return Ok(()) };
                let start = b.ts.unwrap_or(end);
                self.push(line, &b, start, end - start)
            }
            "M" => {
                let Some(name) = e.args.name else { return Ok(()) };
                match e.name.as_str() {
                    "process_name" => {
                        self.processes.insert(e.pid, name);
                    }
                    "thread_name" => {
                        let line = self.line(&e.pid, &e.tid)?;
                        if let Some(l) = self.sink.trace().lines.get_mut(line as usize) {
                            l.name = name;
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn push(&mut self, line: u32, e: &Raw, ts: f64, dur: f64) -> Result<(), String> {
        let class = match e.category.as_str() {
            "kernel" | "gpu_memcpy" | "gpu_memset" | "Kernel" => Some(Class::Kernel),
            "cpu_op" | "Operator" => Some(Class::Operator),
            _ => None,
        };
        let (op, module) = (e.args.op.as_deref(), e.args.module.as_deref());
        self.sink.event(line, &e.name, op, module, class, ts * 1e3, dur * 1e3)
    }
}

/// A process or thread id; writers use numbers and words.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
enum Id {
    #[default]
    None,
    Number(u64),
    Text(String),
}

/// A number or a text; anything else is passed over.
enum Scalar {
    Number(f64),
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }
            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }
            fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v as f64))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v as f64))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(v))
            }
            fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(v.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<Scalar, A::Error> {
                while a.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<Scalar, A::Error> {
                while a.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        d.deserialize_any(V)
    }
}

impl Scalar {
    fn text(self) -> Option<String> {
        match self {
            Scalar::Text(t) => Some(t),
            _ => None,
        }
    }

    fn id(self) -> Id {
        match self {
            Scalar::Number(n) => Id::Number(n.to_bits()),
            Scalar::Text(t) => Id::Text(t),
            Scalar::Other => Id::None,
        }
    }

    fn time(self, key: &str) -> Result<f64, String> {
        match self {
            Scalar::Number(n) => Ok(n),
            Scalar::Text(t) => t
                .trim()
                .parse()
                .ok()
                .filter(|x: &f64| x.is_finite())
                .ok_or_else(|| format!("`{key}`: {t:?}, expected a number of microseconds")),
            Scalar::Other => Err(format!("`{key}`: expected a number of microseconds")),
        }
    }
}

/// What an event says of its instruction.
#[derive(Default)]
struct ArgsOf {
    op: Option<String>,
    module: Option<String>,
    name: Option<String>,
}

impl<'de> Deserialize<'de> for ArgsOf {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = ArgsOf;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of arguments")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<ArgsOf, A::Error> {
                let mut out = ArgsOf::default();
                while let Some(k) = a.next_key::<Key>()? {
                    match k {
                        Key::Op => out.op = a.next_value::<Scalar>()?.text(),
                        Key::Module => out.module = a.next_value::<Scalar>()?.text(),
                        Key::Name => out.name = a.next_value::<Scalar>()?.text(),
                        Key::Other => {
                            a.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(out)
            }
            fn visit_unit<E>(self) -> Result<ArgsOf, E> {
                Ok(ArgsOf::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<ArgsOf, A::Error> {
                while a.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ArgsOf::default())
            }
            fn visit_str<E>(self, _: &str) -> Result<ArgsOf, E> {
                Ok(ArgsOf::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<ArgsOf, E> {
                Ok(ArgsOf::default())
            }
        }
        d.deserialize_any(V)
    }
}

enum Key {
    Op,
    Module,
    Name,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_str<E>(self, v: &str) -> Result<Key, E> {
                Ok(match v {
                    "hlo_op" => Key::Op,
                    "hlo_module" => Key::Module,
                    "name" => Key::Name,
                    _ => Key::Other,
                })
            }
        }
        d.deserialize_str(V)
    }
}

/// One event as written.
#[derive(Default)]
struct Raw {
    phase: String,
    name: String,
    category: String,
    pid: Id,
    tid: Id,
    ts: Option<f64>,
    dur: Option<f64>,
    args: ArgsOf,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Raw;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event, which is an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<Raw, A::Error> {
                let mut e = Raw::default();
                while let Some(k) = a.next_key::<String>()? {
                    match k.as_str() {
                        "args" => e.args = a.next_value()?,
                        "ph" | "name" | "cat" | "pid" | "tid" | "ts" | "dur" => {
                            let v: Scalar = a.next_value()?;
                            match k.as_str() {
                                "ph" => e.phase = v.text().unwrap_or_default(),
                                "name" => e.name = v.text().unwrap_or_default(),
                                "cat" => e.category = v.text().unwrap_or_default(),
                                "pid" => e.pid = v.id(),
                                "tid" => e.tid = v.id(),
                                "ts" => e.ts = Some(v.time("ts").map_err(A::Error::custom)?),
                                _ => e.dur = Some(v.time("dur").map_err(A::Error::custom)?),
                            }
                        }
                        _ => {
                            a.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(e)
            }
        }
        d.deserialize_map(V)
    }
}

/// The object or array at the top.
struct Top<'s, 'a>(&'s mut State<'a>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`, or an array of events")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, a: A) -> Result<(), A::Error> {
        self.0.array = true;
        Events(self.0).visit_seq(a)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<(), A::Error> {
        while let Some(k) = a.next_key::<String>()? {
            match k.as_str() {
                "traceEvents" => a.next_value_seed(Events(self.0))?,
                "schemaVersion" | "deviceProperties" => {
                    let trace = self.0.sink.trace();
                    trace.format = Format::Kineto;
                    if k == "deviceProperties" {
                        let devices: Vec<Device> = a.next_value()?;
                        trace.peaks =
                            devices.iter().find_map(|d| peaks::of_device(d.name.as_deref()?));
                    } else {
                        a.next_value::<IgnoredAny>()?;
                    }
                }
                _ => {
                    a.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Device {
    #[serde(default)]
    name: Option<String>,
}

/// The list of events.
struct Events<'s, 'a>(&'s mut State<'a>);

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<(), A::Error> {
        self.0.events = true;
        while let Some(e) = a.next_element::<Raw>()? {
            self.0.take(e).map_err(de::Error::custom)?;
        }
        Ok(())
    }
}
