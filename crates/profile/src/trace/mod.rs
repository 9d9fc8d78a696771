//! Events of traces, whatever their format.
//!
//! Kept are events that may stand for work of instructions: those that say
//! which (`hlo_op`), those on lines of device operations, kernels, operators
//! of PyTorch, and those named like an instruction. All else is counted and
//! dropped while reading.

mod chrome;
mod files;
mod xplane;

pub use files::{find, from_reader, read};

use crate::peaks::Peaks;
use rustc_hash::FxHashMap;

/// Events kept at most.
const MAX_EVENTS: usize = 20_000_000;
/// Bytes of all distinct names at most.
const MAX_NAMES: usize = 512 << 20;
/// Lines at most.
const MAX_LINES: usize = 1 << 20;

/// What cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The content is no trace.
    #[error("{file}: {at}: {message}")]
    Bad {
        /// The file.
        file: String,
        /// Line and column, or byte.
        at: String,
        /// What is wrong and what was expected.
        message: String,
    },
}

/// Format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Chrome trace events, in JSON.
    Chrome,
    /// Chrome trace events of torch.profiler.
    Kineto,
    /// An XSpace protobuf.
    XPlane,
}

impl Format {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Format::Chrome => "Chrome trace",
            Format::Kineto => "torch.profiler (kineto)",
            Format::XPlane => "XPlane",
        }
    }
}

/// Why an event counts as work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// Named like an instruction, or on a line without a name.
    Named,
    /// Operator of a framework on the host.
    Operator,
    /// Kernel or copy on a device.
    Kernel,
    /// Operation of XLA.
    Op,
}

/// Index of a string in [`Trace::names`]; `NONE` if there is none.
pub(crate) type Name = u32;
/// No name.
pub(crate) const NONE: Name = u32::MAX;

/// One event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) name: Name,
    /// Instruction, if the event says so.
    pub(crate) op: Name,
    /// Module, if the event says so.
    pub(crate) module: Name,
    pub(crate) line: u32,
    pub(crate) class: Class,
    /// Nanoseconds.
    pub(crate) start: f64,
    /// Nanoseconds.
    pub(crate) duration: f64,
}

/// A thread, stream or core.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// Process or plane.
    pub(crate) process: String,
    /// Thread or line.
    pub(crate) name: String,
}

/// Events of a trace that may be work of instructions.
#[derive(Debug)]
pub struct Trace {
    /// Format of the file.
    pub format: Format,
    /// Complete events in the file, kept or not.
    pub seen: u64,
    /// Peaks that the trace states, or that are known of the device it names.
    pub peaks: Option<Peaks>,
    /// Facts for the reader.
    pub notes: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) lines: Vec<Line>,
    pub(crate) events: Vec<Event>,
}

impl Trace {
    pub(crate) fn name(&self, n: Name) -> Option<&str> {
        self.names.get(n as usize).map(String::as_str)
    }
}

/// Lines that repeat, as larger units, what others show.
fn is_summary(line: &str) -> bool {
    matches!(
        line,
        "XLA Modules"
            | "Steps"
            | "Framework Ops"
            | "Framework Name Scope"
            | "Source code"
            | "XLA TraceMe"
            | "TensorFlow Ops"
            | "TensorFlow Name Scope"
            | "Launch Stats"
    )
}

/// Lines of operations on a device.
fn is_device_line(line: &str) -> bool {
    matches!(line, "XLA Ops" | "Async XLA Ops")
}

/// Collects events.
pub(crate) struct Sink<'a> {
    trace: Trace,
    ids: FxHashMap<String, Name>,
    bytes: usize,
    interest: &'a dyn Fn(&str) -> bool,
    /// Whether a name is an instruction, once asked.
    known: FxHashMap<Name, bool>,
}

impl<'a> Sink<'a> {
    /// `interest` tells whether an instruction has this name.
    pub(crate) fn new(format: Format, interest: &'a dyn Fn(&str) -> bool) -> Self {
        Sink {
            trace: Trace {
                format,
                seen: 0,
                peaks: None,
                notes: Vec::new(),
                names: Vec::new(),
                lines: Vec::new(),
                events: Vec::new(),
            },
            ids: FxHashMap::default(),
            bytes: 0,
            interest,
            known: FxHashMap::default(),
        }
    }

    pub(crate) fn intern(&mut self, t: &str) -> Result<Name, String> {
        if let Some(&n) = self.ids.get(t) {
            return Ok(n);
        }
        self.bytes += t.len() + 64;
        if self.bytes > MAX_NAMES {
            return Err(format!("expected at most {} MB of names", MAX_NAMES >> 20));
        }
        let n = self.trace.names.len() as Name;
        self.trace.names.push(t.to_owned());
        self.ids.insert(t.to_owned(), n);
        Ok(n)
    }

    pub(crate) fn line(&mut self) -> Result<u32, String> {
        if self.trace.lines.len() >= MAX_LINES {
            return Err(format!("expected at most {MAX_LINES} threads"));
        }
        self.trace.lines.push(Line::default());
        Ok(self.trace.lines.len() as u32 - 1)
    }

    pub(crate) fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Takes or drops an event; `class` if its category tells.
    pub(crate) fn event(
        &mut self,
        line: u32,
        name: &str,
        op: Option<&str>,
        module: Option<&str>,
        class: Option<Class>,
        start: f64,
        duration: f64,
    ) -> Result<(), String> {
        self.trace.seen += 1;
        let at = self.trace.lines.get(line as usize).map_or("", |l| l.name.as_str());
        let (summary, on_device, unnamed) = (is_summary(at), is_device_line(at), at.is_empty());
        if summary || !start.is_finite() || !duration.is_finite() || duration < 0.0 {
            return Ok(());
        }
        let class = if op.is_some() || on_device {
            Class::Op
        } else if let Some(c) = class {
            c
        } else {
            // Ends of asynchronous work that its own event covers.
            if name.starts_with("end: ") {
                return Ok(());
            }
            let id = match self.ids.get(name) {
                Some(&n) => n,
                None if unnamed || (self.interest)(name) => self.intern(name)?,
                None => return Ok(()),
            };
            let interest = self.interest;
            let known = *self.known.entry(id).or_insert_with(|| interest(name));
            if !known && !unnamed {
                return Ok(());
            }
            Class::Named
        };
        if self.trace.events.len() >= MAX_EVENTS {
            return Err(format!("expected at most {MAX_EVENTS} events of operations"));
        }
        let name = self.intern(name)?;
        let op = op.map_or(Ok(NONE), |t| self.intern(t))?;
        let module = module.map_or(Ok(NONE), |t| self.intern(t))?;
        self.trace.events.push(Event { name, op, module, line, class, start, duration });
        Ok(())
    }

    /// The trace, with the events of the surest class that there is.
    pub(crate) fn finish(mut self) -> Trace {
        let lines = &self.trace.lines;
        self.trace.events.retain_mut(|e| {
            let at = lines.get(e.line as usize).map_or("", |l| l.name.as_str());
            if e.class == Class::Named && is_device_line(at) {
                e.class = Class::Op;
            }
            let known = *self.known.get(&e.name).unwrap_or(&true);
            !is_summary(at) && (e.class != Class::Named || known)
        });
        let best = self.trace.events.iter().map(|e| e.class).max();
        self.trace.events.retain(|e| Some(e.class) == best);
        self.trace
    }
}
