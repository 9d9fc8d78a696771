//! The report of a module's cost and of traces on it, as data.

use crate::attach::{Attached, Named, is_free};
use crate::compare::Comparison;
use crate::cost::{Axis, Cost, ModuleCost, Traffic, is_container, owners, traffic};
use crate::peaks::Peaks;
use crate::trace::Trace;
use scalify_ir::{InstrId, Module, Opcode};
use serde::Serialize;
use std::collections::BTreeMap;

/// Names of a list of what could not be attached.
const MAX_NAMES: usize = 1000;

/// The report; `schema` is `scalify-profile/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Doc {
    /// Name and version of the format.
    pub schema: &'static str,
    /// The module.
    pub module: ModuleInfo,
    /// Mesh axes and sizes, major first; empty if none is known.
    pub mesh: Vec<Axis>,
    /// One execution on a device.
    pub total: Cost,
    /// The same with one iteration of each loop, as XLA counts.
    pub total_once: Cost,
    /// Peak rates.
    pub peaks: Option<Peaks>,
    /// The trace.
    pub trace: Option<TraceInfo>,
    /// Instructions that run by themselves and work or take time, in program
    /// order.
    pub instructions: Vec<Row>,
    /// By source line, longest (else most FLOP) first.
    pub sources: Vec<Sum>,
    /// By scope: `op_name` without its last part.
    pub scopes: Vec<Sum>,
    /// Collectives by kind and mesh axes, most bytes first.
    pub collectives: Vec<CollectiveSum>,
    /// The second trace.
    pub comparison: Option<Comparison>,
    /// Facts for the reader.
    pub notes: Vec<String>,
}

/// The module of a report.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleInfo {
    /// File.
    pub file: String,
    /// Name in the module.
    pub name: String,
    /// Instructions in all computations.
    pub instructions: usize,
}

/// A trace in a report.
#[derive(Clone, Debug, Serialize)]
pub struct TraceInfo {
    /// File.
    pub file: String,
    /// Format.
    pub format: &'static str,
    /// Complete events in the file.
    pub events: u64,
    /// Time of operations of the module, seconds, all threads and devices.
    pub seconds: f64,
    /// Share of it that is attached to instructions, 0 to 1.
    pub attributed: f64,
    /// From the first to the last operation, seconds.
    pub span: f64,
    /// Threads and devices with operations.
    pub lines: usize,
    /// Executions of the module on all devices together, as counts tell.
    pub runs: f64,
    /// What is not attached.
    pub unattributed: Vec<Named>,
    /// Other modules in the trace.
    pub others: Vec<Named>,
}

impl TraceInfo {
    /// The facts of a trace.
    pub fn new(file: &str, t: &Trace, a: &Attached) -> TraceInfo {
        let cut = |v: &[Named]| v.iter().take(MAX_NAMES).cloned().collect();
        TraceInfo {
            file: file.to_owned(),
            format: t.format.name(),
            events: t.seen,
            seconds: a.seconds,
            attributed: if a.seconds > 0.0 { a.attributed / a.seconds } else { 0.0 },
            span: a.span,
            lines: a.lines,
            runs: a.runs,
            unattributed: cut(&a.unattributed),
            others: cut(&a.others),
        }
    }
}

/// What bounds an instruction, by its intensity against the ridge of the
/// roofline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory.
    Memory,
    /// The interconnect: collectives.
    Communication,
    /// Its work is not known: custom calls, loops themselves.
    Unknown,
}

impl Bound {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
            Bound::Communication => "communication",
            Bound::Unknown => "unknown",
        }
    }
}

/// An instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name.
    pub instruction: String,
    /// Opcode.
    pub opcode: &'static str,
    /// Shape of the result.
    pub shape: String,
    /// `file:line` of the innermost frame.
    pub source: Option<String>,
    /// `op_name` without its last part.
    pub scope: Option<String>,
    /// Executions per execution of the module.
    pub executions: f64,
    /// One execution; zero for calls and loops, whose instructions are listed.
    #[serde(flatten)]
    pub cost: Cost,
    /// FLOP and transcendental evaluations per byte.
    pub intensity: Option<f64>,
    /// Iterations of a loop, if known.
    pub trips: Option<u64>,
    /// Of collectives.
    pub collective: Option<Traffic>,
    /// What bounds it; needs peaks.
    pub bound: Option<Bound>,
    /// Events in the trace.
    pub count: Option<f64>,
    /// Seconds in the trace, without what ran inside.
    pub seconds: Option<f64>,
    /// Share of all time of operations, 0 to 1.
    pub share: Option<f64>,
    /// Achieved.
    pub flops_per_second: Option<f64>,
    /// Achieved.
    pub bytes_per_second: Option<f64>,
    /// Achieved operations/s over what the roofline allows at this intensity.
    pub of_roof: Option<f64>,
    /// Its place in the module.
    #[serde(skip)]
    pub id: InstrId,
}

/// A sum over instructions.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// Source line or scope; empty where instructions name none.
    pub key: String,
    /// Instructions.
    pub instructions: usize,
    /// FLOP of one execution of the module.
    pub flops: f64,
    /// Bytes of one execution of the module.
    pub bytes: f64,
    /// Seconds in the trace.
    pub seconds: f64,
    /// Share of all time of operations, 0 to 1.
    pub share: f64,
}

/// Collectives of one kind over the same axes.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveSum {
    /// Opcode.
    pub kind: &'static str,
    /// Mesh axes, joined; or the size of the groups.
    pub over: String,
    /// Instructions.
    pub instructions: usize,
    /// Executions per execution of the module.
    pub executions: f64,
    /// Bytes a device sends in one execution of the module.
    pub bytes: f64,
    /// Seconds in the trace.
    pub seconds: f64,
    /// Bytes a device sends per second.
    pub bytes_per_second: Option<f64>,
}

/// `file:line` of an instruction: its own innermost frame; of a fusion or call
/// that has none, that of the root inside.
pub fn source(m: &Module, id: InstrId) -> Option<String> {
    let mut k = id;
    for _ in 0..8 {
        if let Some(f) = m.frames(k).first() {
            return Some(format!("{}:{}", f.file, f.line));
        }
        let i = m.instr(k);
        k = match i.calls.first().and_then(|c| m.comps.get(c.0 as usize)) {
            Some(c) if matches!(i.opcode, Opcode::Fusion | Opcode::Call) => c.root,
            _ => return None,
        };
    }
    None
}

fn scope(m: &Module, id: InstrId) -> Option<String> {
    let name = m.op_name(id)?;
    Some(name.rsplit_once('/').map_or("", |x| x.0).to_owned())
}

impl Doc {
    /// The report of `m`, with the trace that is attached to it. `given` peaks
    /// win over those that the trace knows; else the best rates in the trace
    /// stand in.
    pub fn new(
        file: &str,
        m: &Module,
        cost: &ModuleCost,
        mesh: &[Axis],
        trace: Option<(&str, &Trace, &Attached)>,
        given: Option<Peaks>,
    ) -> Doc {
        let mut rows = rows(m, cost, mesh, trace.map(|t| t.2));
        let known = given.or_else(|| trace.and_then(|t| t.1.peaks.clone()));
        let peaks = known.or_else(|| observed(&rows));
        if let Some(p) = &peaks {
            classify(&mut rows, p);
        }
        let mut notes: Vec<String> = trace.map_or(Vec::new(), |t| t.2.notes.clone());
        if cost.unknown_loops > 0 {
            notes.push(format!(
                "{} loops count as one iteration: theirs are not known",
                cost.unknown_loops
            ));
        }
        if cost.custom_calls > 0 {
            notes.push(format!(
                "{} custom calls count no FLOP: what they do is not known",
                cost.custom_calls
            ));
        }
        if let Some((_, t, a)) = trace
            && a.seconds == 0.0
        {
            notes.push(format!("none of the {} events is an operation of this module", t.seen));
        }
        Doc {
            schema: "scalify-profile/1",
            module: ModuleInfo {
                file: file.to_owned(),
                name: m.str(m.name).to_owned(),
                instructions: m.instrs.len(),
            },
            mesh: mesh.to_vec(),
            total: cost.total,
            total_once: cost.once,
            trace: trace.map(|(f, t, a)| TraceInfo::new(f, t, a)),
            sources: sums(&rows, |r| r.source.as_deref().unwrap_or("")),
            scopes: sums(&rows, |r| r.scope.as_deref().unwrap_or("")),
            collectives: collectives(&rows),
            instructions: rows,
            peaks,
            comparison: None,
            notes,
        }
    }

    /// One JSON value.
    ///
    /// # Errors
    /// None that occur.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|s| s + "\n")
    }
}

fn rows(m: &Module, cost: &ModuleCost, mesh: &[Axis], a: Option<&Attached>) -> Vec<Row> {
    let owner = owners(m);
    let whole = a.map_or(0.0, |a| a.seconds);
    let mut out = Vec::new();
    for c in (0..m.comps.len()).rev() {
        for &id in &m.comps[c].instrs {
            let k = id.0 as usize;
            let i = &m.instrs[k];
            let time = a.map(|a| a.instrs[k]).filter(|t| t.count > 0.0);
            let runs = owner[k].map_or(0.0, |c| cost.executions[c.0 as usize]);
            let listed = cost.scheduled[c] && runs > 0.0 && !is_free(i.opcode);
            if !listed && time.is_none() {
                continue;
            }
            let own = if is_container(i.opcode) && i.opcode != Opcode::AsyncStart {
                Cost::default()
            } else {
                cost.instrs[k]
            };
            let rate = |x: f64| {
                time.filter(|t| t.seconds > 0.0 && x > 0.0).map(|t| x * t.count / t.seconds)
            };
            out.push(Row {
                instruction: m.name_of(id).to_owned(),
                opcode: i.opcode.name(),
                shape: m.shape(id).to_string(),
                source: source(m, id),
                scope: scope(m, id),
                executions: runs,
                cost: own,
                intensity: (own.bytes() > 0.0).then(|| own.operations() / own.bytes()),
                trips: cost.trips[k].map(|t| t.count),
                collective: traffic(m, id, mesh),
                bound: None,
                count: time.map(|t| t.count),
                seconds: time.map(|t| t.seconds),
                share: time.filter(|_| whole > 0.0).map(|t| t.seconds / whole),
                flops_per_second: rate(own.flops),
                bytes_per_second: rate(own.bytes()),
                of_roof: None,
                id,
            });
        }
    }
    out
}

/// The best rates of a trace, where nothing better is known.
fn observed(rows: &[Row]) -> Option<Peaks> {
    // The shortest events are at the resolution of clocks.
    let sure = |r: &&Row| {
        r.seconds.zip(r.count).is_some_and(|(s, n)| s / n >= 1e-6) && r.collective.is_none()
    };
    let best = |f: &dyn Fn(&Row) -> Option<f64>| {
        rows.iter().filter(sure).filter_map(f).fold(0.0f64, f64::max)
    };
    let (flops, bytes) = (best(&|r| r.flops_per_second), best(&|r| r.bytes_per_second));
    (flops > 0.0 && bytes > 0.0).then(|| Peaks {
        flops,
        bytes,
        source: "the best rates in this trace; give --peak-flops and --peak-bytes for the device's"
            .into(),
    })
}

fn classify(rows: &mut [Row], p: &Peaks) {
    for r in rows {
        r.bound = Some(if r.collective.is_some() {
            Bound::Communication
        } else if r.opcode == "custom-call" || r.cost.operations() + r.cost.bytes() == 0.0 {
            Bound::Unknown
        } else if r.cost.operations() * p.bytes >= r.cost.bytes() * p.flops {
            Bound::Compute
        } else {
            Bound::Memory
        });
        let known = matches!(r.bound, Some(Bound::Compute | Bound::Memory));
        if let (Some(s), Some(n), true) = (r.seconds.filter(|s| *s > 0.0), r.count, known) {
            let least = (r.cost.operations() / p.flops).max(r.cost.bytes() / p.bytes) * n;
            r.of_roof = Some(least / s);
        }
    }
}

fn sums<'a>(rows: &'a [Row], key: impl Fn(&'a Row) -> &'a str) -> Vec<Sum> {
    let mut all: BTreeMap<&str, Sum> = BTreeMap::new();
    for r in rows {
        let k = key(r);
        let s = all.entry(k).or_insert_with(|| Sum {
            key: k.to_owned(),
            instructions: 0,
            flops: 0.0,
            bytes: 0.0,
            seconds: 0.0,
            share: 0.0,
        });
        s.instructions += 1;
        s.flops += r.cost.flops * r.executions;
        s.bytes += r.cost.bytes() * r.executions;
        s.seconds += r.seconds.unwrap_or(0.0);
        s.share += r.share.unwrap_or(0.0);
    }
    let mut v: Vec<Sum> = all.into_values().collect();
    v.sort_by(|a, b| {
        b.seconds
            .total_cmp(&a.seconds)
            .then(b.flops.total_cmp(&a.flops))
            .then(b.bytes.total_cmp(&a.bytes))
    });
    v
}

fn collectives(rows: &[Row]) -> Vec<CollectiveSum> {
    let mut all: BTreeMap<(&str, String), CollectiveSum> = BTreeMap::new();
    let mut sent: BTreeMap<(&str, String), f64> = BTreeMap::new();
    for r in rows {
        let Some(t) = &r.collective else { continue };
        let over = match (&t.axes[..], t.group_size) {
            ([], Some(n)) => format!("groups of {n}"),
            ([], None) => String::new(),
            (a, _) => a.join("·"),
        };
        let key = (t.kind, over.clone());
        *sent.entry(key.clone()).or_default() += t.bytes * r.count.unwrap_or(0.0);
        let s = all.entry(key).or_insert_with(|| CollectiveSum {
            kind: t.kind,
            over,
            instructions: 0,
            executions: 0.0,
            bytes: 0.0,
            seconds: 0.0,
            bytes_per_second: None,
        });
        s.instructions += 1;
        s.executions += r.executions;
        s.bytes += t.bytes * r.executions;
        s.seconds += r.seconds.unwrap_or(0.0);
    }
    let mut v: Vec<CollectiveSum> = all
        .into_iter()
        .map(|(k, mut s)| {
            if s.seconds > 0.0 {
                s.bytes_per_second = sent.get(&k).map(|b| b / s.seconds);
            }
            s
        })
        .collect();
    v.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    v
}
