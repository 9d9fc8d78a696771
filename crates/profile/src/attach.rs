//! Attaches events of a trace to instructions of a module, by name.

use crate::cost::{ModuleCost, is_container, owners};
use crate::trace::{NONE, Trace};
use rustc_hash::FxHashMap;
use scalify_ir::{InstrId, Module, Opcode};

/// What a name stands for.
#[derive(Clone, PartialEq, Debug)]
enum Target {
    One(InstrId),
    /// Instructions that share an operation of the framework, in program
    /// order.
    Group(u32),
}

/// Names of a module's instructions as traces write them.
pub struct Names {
    /// By instruction name, and by it with every `.` and `-` as `_` (kernels).
    exact: FxHashMap<String, Target>,
    /// By `op_name` and `op_type`, `::` as `__`.
    scoped: FxHashMap<String, Target>,
    groups: Vec<Vec<InstrId>>,
}

/// The instruction name in an event's: without `%`, and without the text that
/// follows it on some devices.
fn plain(t: &str) -> &str {
    let t = t.split(" = ").next().unwrap_or(t).trim();
    t.strip_prefix('%').unwrap_or(t)
}

fn kernel(t: &str) -> String {
    t.replace(['.', '-'], "_")
}

impl Names {
    /// Names of all instructions of `m`; framework operations of those that
    /// run by themselves.
    pub fn new(m: &Module, cost: &ModuleCost) -> Names {
        let mut exact: FxHashMap<String, Target> = FxHashMap::default();
        let mut kernels: FxHashMap<String, Option<InstrId>> = FxHashMap::default();
        for k in 0..m.instrs.len() {
            let id = InstrId(k as u32);
            let name = m.name_of(id);
            exact.entry(name.to_owned()).or_insert(Target::One(id));
            // Only if no other instruction has it.
            kernels.entry(kernel(name)).and_modify(|x| *x = None).or_insert(Some(id));
        }
        for (name, id) in kernels.into_iter().collect::<std::collections::BTreeMap<_, _>>() {
            if let Some(id) = id {
                exact.entry(name).or_insert(Target::One(id));
            }
        }
        let mut groups: Vec<Vec<InstrId>> = Vec::new();
        let mut scoped: FxHashMap<String, Target> = FxHashMap::default();
        for (c, comp) in m.comps.iter().enumerate() {
            if !cost.scheduled.get(c).copied().unwrap_or(false) {
                continue;
            }
            for &id in &comp.instrs {
                let op = m.instr(id).opcode;
                let Some(meta) = m.meta(id) else { continue };
                if is_container(op) || is_free(op) || op == Opcode::Broadcast {
                    continue;
                }
                let keys = [meta.op_name, meta.op_type].map(|s| s.map(|s| m.str(s).to_owned()));
                let [a, b] = keys;
                for key in [a.clone(), b.filter(|b| Some(b) != a.as_ref())].into_iter().flatten() {
                    let fresh = groups.len() as u32;
                    match scoped.entry(key.replace("::", "__")).or_insert(Target::Group(fresh)) {
                        Target::Group(g) if *g == fresh => groups.push(vec![id]),
                        Target::Group(g) => groups[*g as usize].push(id),
                        Target::One(_) => {}
                    }
                }
            }
        }
        Names { exact, scoped, groups }
    }

    fn find(&self, name: &str) -> Option<&Target> {
        let p = plain(name);
        self.exact.get(p).or_else(|| self.scoped.get(p)).or_else(|| {
            // Operators of PyTorch.
            p.contains("::").then(|| self.scoped.get(&p.replace("::", "__"))).flatten()
        })
    }

    /// Whether the name stands for instructions.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }
}

/// Instructions that take no time of their own.
pub(crate) fn is_free(op: Opcode) -> bool {
    use Opcode::*;
    matches!(
        op,
        Parameter
            | Constant
            | GetTupleElement
            | Tuple
            | Bitcast
            | AfterAll
            | AddDependency
            | Domain
    )
}

/// Time of one instruction in a trace.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Events; a fraction where events of several instructions could not be
    /// told apart.
    pub count: f64,
    /// Seconds without what ran inside, all threads and devices together.
    pub seconds: f64,
}

/// A name and its time.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Named {
    /// Name in the trace.
    pub name: String,
    /// Events.
    pub count: u64,
    /// Seconds without what ran inside.
    pub seconds: f64,
}

/// A trace on a module.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Per instruction.
    pub instrs: Vec<Measured>,
    /// Time of operations of this module.
    pub seconds: f64,
    /// Of it, attached to instructions.
    pub attributed: f64,
    /// From the first to the last of these events.
    pub span: f64,
    /// Threads and devices with such events.
    pub lines: usize,
    /// Executions of the module, over all devices, as far as counts tell.
    pub runs: f64,
    /// What could not be attached, longest first.
    pub unattributed: Vec<Named>,
    /// Time of other modules, longest first.
    pub others: Vec<Named>,
    /// Facts for the reader.
    pub notes: Vec<String>,
}

/// Attaches `t` to `m`. Time of nested events is counted once, at the innermost
/// that is attached.
pub fn attach(m: &Module, cost: &ModuleCost, names: &Names, t: &Trace) -> Attached {
    let mut notes = t.notes.clone();
    let module = |n: u32| t.name(n).map(|x| x.split('(').next().unwrap_or(x));
    let own = m.str(m.name);
    let same = |x: &str| x == own || own.strip_prefix(x).is_some_and(|r| r.starts_with(['.', ',']));
    let stated = t.events.iter().any(|e| e.module != NONE);
    let ours = t.events.iter().any(|e| module(e.module).is_some_and(same));
    if stated && !ours {
        notes.push(format!("no event is of a module {own}: names of all modules were looked up"));
    }
    // By line and time; an enclosing event comes first.
    let mut order: Vec<u32> = (0..t.events.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| {
        let (x, y) = (&t.events[a as usize], &t.events[b as usize]);
        x.line
            .cmp(&y.line)
            .then(x.start.total_cmp(&y.start))
            .then(y.duration.total_cmp(&x.duration))
    });
    let mut targets: FxHashMap<(u32, u32), Option<&Target>> = FxHashMap::default();
    let mut own_time = vec![0.0f64; t.events.len()];
    let mut charged: Vec<u32> = (0..t.events.len() as u32).collect();
    let mut found: Vec<Option<&Target>> = vec![None; t.events.len()];
    let mut foreign = vec![false; t.events.len()];
    let mut stack: Vec<(u32, f64)> = Vec::new();
    let mut line = u32::MAX;
    for &k in &order {
        let e = &t.events[k as usize];
        if e.line != line {
            stack.clear();
            line = e.line;
        }
        while stack.last().is_some_and(|s| s.1 <= e.start) {
            stack.pop();
        }
        foreign[k as usize] = ours && module(e.module).is_some_and(|x| !same(x));
        let target = *targets.entry((e.op, e.name)).or_insert_with(|| {
            t.name(e.op).and_then(|n| names.find(n)).or_else(|| names.find(t.name(e.name)?))
        });
        found[k as usize] = target.filter(|_| !foreign[k as usize]);
        own_time[k as usize] += e.duration;
        let mut end = e.start + e.duration;
        if let Some(&(p, until)) = stack.last() {
            // What sticks out of the enclosing event is its own.
            let inside = end.min(until) - e.start;
            own_time[p as usize] -= inside;
            if found[k as usize].is_none() && !foreign[k as usize] {
                // Part of what encloses it.
                let q = charged[p as usize];
                if found[q as usize].is_some() {
                    charged[k as usize] = q;
                }
            }
            end = end.max(e.start);
        }
        stack.push((k, end));
    }
    let mut out = Attached {
        instrs: vec![Measured::default(); m.instrs.len()],
        seconds: 0.0,
        attributed: 0.0,
        span: 0.0,
        lines: 0,
        runs: 0.0,
        unattributed: Vec::new(),
        others: Vec::new(),
        notes,
    };
    let mut loose: FxHashMap<String, (u64, f64)> = FxHashMap::default();
    let mut others: FxHashMap<String, (u64, f64)> = FxHashMap::default();
    // Events of each group, in time.
    let mut shared: Vec<Vec<(f64, f64)>> = vec![Vec::new(); names.groups.len()];
    let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut lines = Vec::new();
    let mut extra = vec![0.0f64; t.events.len()];
    for k in 0..t.events.len() {
        if charged[k] != k as u32 {
            extra[charged[k] as usize] += own_time[k].max(0.0) * 1e-9;
        }
    }
    for (k, e) in t.events.iter().enumerate() {
        if charged[k] != k as u32 {
            continue;
        }
        let s = own_time[k].max(0.0) * 1e-9 + extra[k];
        let label = || t.name(e.op).or(t.name(e.name)).unwrap_or("").to_owned();
        if foreign[k] {
            let x = others.entry(module(e.module).unwrap_or("").to_owned()).or_default();
            *x = (x.0 + 1, x.1 + s);
            continue;
        }
        out.seconds += s;
        first = first.min(e.start);
        last = last.max(e.start + e.duration);
        lines.push(e.line);
        match found[k] {
            Some(Target::One(id)) => {
                let x = &mut out.instrs[id.0 as usize];
                x.count += 1.0;
                x.seconds += s;
                out.attributed += s;
            }
            Some(Target::Group(g)) => {
                shared[*g as usize].push((e.start, s));
                out.attributed += s;
            }
            None => {
                let x = loose.entry(label()).or_default();
                *x = (x.0 + 1, x.1 + s);
            }
        }
    }
    let mut unclear = 0;
    for (g, mut events) in shared.into_iter().enumerate() {
        let list = &names.groups[g];
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let n = list.len();
        if n == 0 || events.is_empty() {
            continue;
        }
        if events.len().is_multiple_of(n) {
            // One event per instruction and execution, in program order.
            for (k, e) in events.iter().enumerate() {
                let x = &mut out.instrs[list[k % n].0 as usize];
                x.count += 1.0;
                x.seconds += e.1;
            }
        } else {
            unclear += 1;
            let all: f64 = events.iter().map(|e| e.1).sum();
            for id in list {
                let x = &mut out.instrs[id.0 as usize];
                x.count += events.len() as f64 / n as f64;
                x.seconds += all / n as f64;
            }
        }
    }
    if unclear > 0 {
        out.notes.push(format!(
            "{unclear} framework operations have other numbers of events than of instructions: their time is split evenly"
        ));
    }
    lines.sort_unstable();
    lines.dedup();
    out.lines = lines.len();
    out.span = if last > first { (last - first) * 1e-9 } else { 0.0 };
    out.runs = runs(m, cost, &out.instrs);
    out.unattributed = ranked(loose);
    out.others = ranked(others);
    out
}

fn ranked(x: FxHashMap<String, (u64, f64)>) -> Vec<Named> {
    let mut v: Vec<Named> =
        x.into_iter().map(|(name, (count, seconds))| Named { name, count, seconds }).collect();
    v.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
    v
}

/// Executions: the median of events per execution of the entry.
fn runs(m: &Module, cost: &ModuleCost, instrs: &[Measured]) -> f64 {
    let owner = owners(m);
    let mut v: Vec<f64> = instrs
        .iter()
        .enumerate()
        .filter(|(k, x)| x.count > 0.0 && !is_container(m.instrs[*k].opcode))
        .filter_map(|(k, x)| {
            let n = cost.executions[owner[k]?.0 as usize];
            (n > 0.0).then(|| x.count / n)
        })
        .collect();
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(0.0)
}
