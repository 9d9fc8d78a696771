//! Two traces: what became slower or faster, and at what precision.

use crate::attach::Attached;
use crate::report::{TraceInfo, source};
use rustc_hash::FxHashMap;
use scalify_ir::{InstrId, Module};
use serde::Serialize;
use serde_json::Value;

/// Changes below this share of the earlier time are none.
pub const NOISE: f64 = 0.05;

/// A second trace against the first.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The second trace.
    pub trace: TraceInfo,
    /// Its module, if another than the first's.
    pub module: Option<String>,
    /// Seconds of one execution in the first trace.
    pub before: f64,
    /// Seconds of one execution in the second.
    pub after: f64,
    /// Instructions of both, largest change first.
    pub rows: Vec<Change>,
    /// Instructions with time in the first trace only.
    pub gone: Vec<Single>,
    /// Instructions with time in the second trace only.
    pub new: Vec<Single>,
    /// Faster and less precise.
    pub traded: usize,
    /// A report of `scalify diff` was joined.
    pub with_numbers: bool,
    /// Its outputs: the most severe kind, and the largest error.
    pub outputs: Option<(String, Option<f64>)>,
}

/// An instruction of one trace only.
#[derive(Clone, Debug, Serialize)]
pub struct Single {
    /// Name.
    pub instruction: String,
    /// Opcode.
    pub opcode: &'static str,
    /// Seconds of one execution of the module.
    pub seconds: f64,
    /// See [`Change::numbers`]; of the second trace's.
    pub numbers: Option<String>,
}

/// An instruction in both.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Name in the first module.
    pub instruction: String,
    /// Name in the second, if another.
    pub counterpart: Option<String>,
    /// Opcode.
    pub opcode: &'static str,
    /// `file:line`.
    pub source: Option<String>,
    /// Seconds per execution of the module.
    pub before: f64,
    /// Seconds per execution of the module.
    pub after: f64,
    /// `faster`, `slower`, `same`: up to [`NOISE`].
    pub change: &'static str,
    /// Of the report of `scalify diff`: `rounding`, `precision`, `function`; of
    /// a fusion, the most severe inside.
    pub numbers: Option<String>,
    /// Largest introduced error there.
    pub error: Option<f64>,
    /// Faster and rounded more coarsely.
    pub traded: bool,
}

/// A module and what a trace says of it.
pub struct Side<'a> {
    /// The module.
    pub module: &'a Module,
    /// The trace on it.
    pub attached: &'a Attached,
}

impl Side<'_> {
    fn per_run(&self, k: usize) -> f64 {
        self.attached.instrs[k].seconds / self.attached.runs.max(1.0)
    }

    fn timed(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.attached.instrs.len()).filter(|&k| self.attached.instrs[k].count > 0.0)
    }
}

/// Instructions of `b` for those of `a` that have time: by name where the
/// opcode is the same, else the k-th of the same opcode, `op_name` and shape.
fn pairs(a: &Side<'_>, b: &Side<'_>) -> Vec<(usize, usize)> {
    let mut by_name: FxHashMap<&str, usize> = FxHashMap::default();
    for k in b.timed() {
        by_name.entry(b.module.name_of(InstrId(k as u32))).or_insert(k);
    }
    let mut used = vec![false; b.attached.instrs.len()];
    let (mut out, mut rest) = (Vec::new(), Vec::new());
    for k in a.timed() {
        let name = a.module.name_of(InstrId(k as u32));
        match by_name.get(name) {
            Some(&j) if a.module.instrs[k].opcode == b.module.instrs[j].opcode && !used[j] => {
                used[j] = true;
                out.push((k, j));
            }
            _ => rest.push(k),
        }
    }
    let sign = |m: &Module, k: usize| {
        let id = InstrId(k as u32);
        (m.instrs[k].opcode, m.op_name(id).unwrap_or("").to_owned(), m.shape(id).dims().to_vec())
    };
    let mut left: FxHashMap<_, std::collections::VecDeque<usize>> = FxHashMap::default();
    for j in b.timed().filter(|&j| !used[j]) {
        left.entry(sign(b.module, j)).or_default().push_back(j);
    }
    for k in rest {
        if let Some(j) =
            left.get_mut(&sign(a.module, k)).and_then(std::collections::VecDeque::pop_front)
        {
            out.push((k, j));
        }
    }
    out
}

/// What a report of `scalify diff` says of an operation.
#[derive(Clone)]
struct Numbers {
    kind: String,
    error: Option<f64>,
}

fn rank(kind: &str) -> u8 {
    match kind {
        "function" => 2,
        "precision" => 1,
        _ => 0,
    }
}

impl Numbers {
    fn severity(&self) -> (u8, f64) {
        (rank(&self.kind), self.error.unwrap_or(0.0))
    }
}

/// The most severe of an instruction and, where it is a fusion, what it fuses.
fn of(known: &FxHashMap<String, Numbers>, m: &Module, id: InstrId) -> Option<Numbers> {
    let mut best = known.get(m.name_of(id));
    let i = m.instr(id);
    if i.opcode == scalify_ir::Opcode::Fusion
        && let Some(c) = i.calls.first().and_then(|c| m.comps.get(c.0 as usize))
    {
        let inner = c.instrs.iter().filter_map(|&k| known.get(m.name_of(k)));
        best = best.into_iter().chain(inner).max_by(|a, b| {
            let (x, y) = (a.severity(), b.severity());
            x.0.cmp(&y.0).then(x.1.total_cmp(&y.1))
        });
    }
    best.cloned()
}

/// The most severe output of a report of `scalify diff`, and the largest error.
fn outputs(v: &Value) -> Option<(String, Option<f64>)> {
    let list = v.get("outputs")?.as_array()?;
    let kind = |o: &Value| o.get("kind").and_then(Value::as_str).map(str::to_owned);
    let worst = list.iter().filter_map(kind).max_by_key(|k| rank(k))?;
    let error = list.iter().filter_map(|o| o.get("max")?.as_f64()).reduce(f64::max);
    Some((worst, error))
}

/// Operations by the instruction of the second program, without the loops and
/// calls they are in; the most severe of each.
fn numbers(v: &Value) -> FxHashMap<String, Numbers> {
    let mut out: FxHashMap<String, Numbers> = FxHashMap::default();
    let list = v.get("operations").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for o in list {
        let (Some(name), Some(kind)) =
            (o.get("operation").and_then(Value::as_str), o.get("kind").and_then(Value::as_str))
        else {
            continue;
        };
        let name = name.rsplit('/').next().unwrap_or(name);
        let error = o.get("introduced").and_then(|e| e.get("max")).and_then(Value::as_f64);
        let new = Numbers { kind: kind.to_owned(), error };
        match out.get(name) {
            Some(old) if old.severity() >= new.severity() => {}
            _ => {
                out.insert(name.to_owned(), new);
            }
        }
    }
    out
}

/// Compares two traces; `diff` is the report of `scalify diff --json` of the
/// first module and the second.
pub fn compare(
    a: &Side<'_>,
    b: &Side<'_>,
    trace: TraceInfo,
    module: Option<String>,
    diff: Option<&Value>,
) -> Comparison {
    let known = diff.map(numbers).unwrap_or_default();
    let pairs = pairs(a, b);
    let mut rows: Vec<Change> = pairs
        .iter()
        .map(|&(k, j)| {
            let (x, y) = (InstrId(k as u32), InstrId(j as u32));
            let (before, after) = (a.per_run(k), b.per_run(j));
            let (name, other) = (a.module.name_of(x), b.module.name_of(y));
            let n = of(&known, b.module, y);
            let change = if (after - before).abs() <= NOISE * before {
                "same"
            } else if after < before {
                "faster"
            } else {
                "slower"
            };
            Change {
                instruction: name.to_owned(),
                counterpart: (name != other).then(|| other.to_owned()),
                opcode: a.module.instrs[k].opcode.name(),
                source: source(a.module, x),
                before,
                after,
                change,
                error: n.as_ref().and_then(|n| n.error),
                traded: change == "faster" && n.as_ref().is_some_and(|n| n.kind == "precision"),
                numbers: n.map(|n| n.kind),
            }
        })
        .collect();
    rows.sort_by(|x, y| (y.after - y.before).abs().total_cmp(&(x.after - x.before).abs()));
    let alone = |s: &Side<'_>, second: bool, taken: &dyn Fn(usize) -> bool| {
        let mut v: Vec<Single> = s
            .timed()
            .filter(|&k| !taken(k))
            .map(|k| Single {
                instruction: s.module.name_of(InstrId(k as u32)).to_owned(),
                opcode: s.module.instrs[k].opcode.name(),
                seconds: s.per_run(k),
                numbers: of(&known, s.module, InstrId(k as u32)).filter(|_| second).map(|n| n.kind),
            })
            .collect();
        v.sort_by(|x, y| y.seconds.total_cmp(&x.seconds));
        v
    };
    let (mut in_a, mut in_b) =
        (vec![false; a.attached.instrs.len()], vec![false; b.attached.instrs.len()]);
    for &(k, j) in &pairs {
        in_a[k] = true;
        in_b[j] = true;
    }
    Comparison {
        trace,
        module,
        before: a.attached.seconds / a.attached.runs.max(1.0),
        after: b.attached.seconds / b.attached.runs.max(1.0),
        traded: rows.iter().filter(|r| r.traded).count(),
        gone: alone(a, false, &|k| in_a[k]),
        new: alone(b, true, &|k| in_b[k]),
        rows,
        with_numbers: diff.is_some(),
        outputs: diff.and_then(outputs),
    }
}
