//! The counterexample, the repairs, and what evaluation showed.

use super::{MAX_LIST, Paint, output_name};
use crate::values::{ids, index, line, number, typed};
use crate::{Subject, names};
use scalify_ir::{DType, InstrId};
use scalify_prove::outcome::{FrontierItem, Verdict};
use scalify_refute::{Counterexample, Decision, Difference, Repair};
use std::fmt::Write as _;

/// Outputs whose worst element is shown.
const MAX_SHOWN: usize = 3;

/// Digits of values in `f64`.
const DIGITS: usize = 9;

/// `output #0 y`.
fn called(s: &Subject<'_>, output: usize) -> String {
    match name(s, output) {
        n if n.ends_with(" output") => format!("output #{output}"),
        n => format!("output {n}"),
    }
}

/// `#0 y`.
fn name(s: &Subject<'_>, output: usize) -> String {
    let hit = s.decision.outcome.outputs.iter().find(|r| r.index == output);
    hit.map_or(format!("#{output}"), output_name)
}

/// The baseline as it was evaluated.
fn evaluated<'a>(s: &Subject<'a>) -> &'a scalify_ir::Module {
    s.decision.reduced.as_ref().map_or(s.base, |r| &r.base)
}

/// Shape of a baseline instruction as it was evaluated.
fn shape(s: &Subject<'_>, x: InstrId) -> String {
    match &s.decision.reduced {
        Some(r) => r.base_ids.small(x).map_or(String::new(), |x| names::shape(&r.base, x)),
        None => names::shape(s.base, x),
    }
}

/// What the first difference is, to be read after "The programs differ: ".
pub(super) fn clause(s: &Subject<'_>, c: &Counterexample) -> Option<String> {
    let d = c.outputs.first()?;
    let dtype = crate::output_type(evaluated(s), d.output);
    let exact = dtype.filter(|d| !d.is_float() && !d.is_complex());
    let value = |x: f64| exact.map_or_else(|| number(x, 6), |d| typed(x, d));
    let rounding = match exact {
        Some(_) => String::new(),
        None => format!("; rounding explains {}", number(d.bound, 2)),
    };
    let more = match c.outputs.len() {
        1 => String::new(),
        2 => " (and another output differs)".into(),
        n => format!(" (and {} other outputs differ)", n - 1),
    };
    let smaller = s.decision.reduced.as_ref().is_some_and(|r| r.smaller);
    let sizes = if smaller { "at reduced sizes " } else { "" };
    Some(format!(
        "{sizes}{} is {} at {} on device {} where the baseline has {}{rounding}{more}",
        called(s, d.output),
        value(d.actual),
        index(&d.index),
        d.device,
        value(d.expected),
    ))
}

/// What evaluation showed where there is no counterexample.
pub(super) fn evidence(s: &Subject<'_>) -> Option<String> {
    let d: &Decision = s.decision;
    let proved = d.outcome.verdict == Verdict::Proved;
    if let Some(why) = &d.unable {
        let what =
            if proved { "The proof was not cross-checked" } else { "They were not evaluated" };
        return Some(format!("{what}: {why}."));
    }
    let e = d.evidence.as_ref()?;
    let on = match e.samples {
        0 => return Some("No input was evaluated within the limits.".into()),
        1 => "the one input".to_owned(),
        n => format!("all {n} inputs"),
    };
    if let Some(p) = &e.precision {
        return Some(format!(
            "Same values over the reals on {on} tried, but rounded differently: \
             {} has rms error {} against f64, the baseline's is {}.",
            called(s, p.output),
            number(p.dist, 2),
            number(p.base, 2),
        ));
    }
    let worst = number(100.0 * e.worst, 2);
    let verb = if proved { "Evaluation agrees" } else { "They agreed" };
    // Such elements are not compared.
    let nan = match (e.undefined, e.samples) {
        (0, _) => String::new(),
        (n, all) if n == all => " On each the baseline gives NaN where the distributed program gives a number, of which nothing is said.".to_owned(),
        (n, _) => format!(" On {n} of them the baseline gives NaN where the distributed program gives a number, of which nothing is said."),
    };
    Some(format!(
        "{verb} on {on} tried; the largest difference was {worst} % of what rounding explains.{nan}"
    ))
}

/// The repair that a frontier item speaks of.
pub(super) fn headline<'a>(s: &Subject<'a>, f: &FrontierItem) -> Option<&'a Repair> {
    s.decision.repairs.first().filter(|r| r.at == f.instr && f.reason.contains(&r.text))
}

/// The repairs, as title and sentences; without the one that the fault's title
/// names.
pub(super) fn repairs(s: &Subject<'_>) -> (&'static str, Vec<String>) {
    let told = s.decision.outcome.frontier.first().and_then(|f| headline(s, f));
    let rest = s.decision.repairs.iter().skip(usize::from(told.is_some()));
    let title = if told.is_some() { "other repairs" } else { "repairs" };
    (title, rest.map(|r| crate::repair_sentence(s, r)).collect())
}

/// Where outputs differ, and on which inputs.
pub(super) fn render(t: &mut String, s: &Subject<'_>, p: Paint, all: bool) {
    let Some(c) = &s.decision.counterexample else { return };
    let title = match &s.decision.reduced {
        Some(r) if r.smaller => "where they differ, at reduced sizes",
        _ => "where they differ",
    };
    let _ = writeln!(t, "\n{}", p.bold(title));
    let shown = if all { c.outputs.len() } else { MAX_SHOWN };
    for d in c.outputs.iter().take(shown) {
        let out = s.decision.outcome.outputs.iter().find(|r| r.index == d.output);
        let about = About {
            name: name(s, d.output),
            shape: out.map_or(String::new(), |r| shape(s, r.base)),
            dtype: crate::output_type(evaluated(s), d.output),
            devices: s.decision.outcome.stats.devices as usize,
        };
        difference(t, &about, d);
    }
    if c.outputs.len() > shown {
        let more = format!("... and {} more outputs", c.outputs.len() - shown);
        let _ = writeln!(t, "  {}", p.dim(&more));
    }
    inputs(t, s, c, p, all);
}

/// What is said of an output besides its difference.
pub(super) struct About {
    pub(super) name: String,
    pub(super) shape: String,
    pub(super) dtype: Option<DType>,
    /// Devices of the program.
    pub(super) devices: usize,
}

pub(super) fn difference(t: &mut String, a: &About, d: &Difference) {
    let on = match d.devices.len() {
        1 => format!("device {}", ids(&d.devices)),
        n if n == a.devices => format!("all {n} devices"),
        _ => format!("devices {}", ids(&d.devices)),
    };
    let shape = if a.shape.is_empty() { String::new() } else { format!("  {}", a.shape) };
    let (bad, all) = d.count;
    let _ = writeln!(t, "  {}{shape}: {bad} of {all} elements differ, on {on}", a.name);
    let local = match d.local == d.index {
        true => String::new(),
        false => format!(", local {}", index(&d.local)),
    };
    let _ = writeln!(t, "    most at {} on device {}{local}", index(&d.index), d.device);
    let exact = a.dtype.filter(|d| !d.is_float() && !d.is_complex());
    let own = |x: f64| match a.dtype {
        Some(d) if d != DType::F64 => format!(" in f64, {} in {d}", typed(x, d)),
        _ => " in f64".to_owned(),
    };
    let rows = [("baseline", d.expected, d.plain.0), ("distributed", d.actual, d.plain.1)];
    let wide: Vec<String> =
        rows.iter().map(|r| exact.map_or_else(|| number(r.1, DIGITS), |d| typed(r.1, d))).collect();
    let width = wide.iter().map(|w| w.chars().count()).max().unwrap_or(0);
    for ((who, _, plain), wide) in rows.iter().zip(&wide) {
        let own = if exact.is_some() { String::new() } else { own(*plain) };
        let _ = writeln!(t, "      {who:11}  {wide:>width$}{own}");
    }
    if exact.is_some() {
        return;
    }
    let gap = (d.expected - d.actual).abs();
    let bound = number(d.bound, 3);
    let _ = match gap.is_finite() {
        true => writeln!(t, "      a difference of {}; rounding explains {bound}", number(gap, 3)),
        false => writeln!(t, "      rounding explains {bound}"),
    };
}

fn inputs(t: &mut String, s: &Subject<'_>, c: &Counterexample, p: Paint, all: bool) {
    if c.inputs.values.is_empty() {
        return;
    }
    let _ = writeln!(
        t,
        "\n{}",
        p.bold(&format!("inputs (seed {}, drawn as {})", s.seed, crate::draw(c)))
    );
    let n = c.inputs.values.len();
    let shown = if all || n <= MAX_LIST + 1 { n } else { MAX_LIST };
    let head = |k: usize| {
        let name = c.names.get(k).map_or("", String::as_str);
        if name.is_empty() { format!("#{k}") } else { format!("#{k} {name}") }
    };
    let shape = |k: usize| match c.inputs.values.get(k).and_then(|v| v.first()) {
        Some(t) => scalify_ir::ArrayShape::new(t.dtype, t.dims.iter().copied()).to_string(),
        None => "token".into(),
    };
    let width = |f: &dyn Fn(usize) -> String| {
        (0..shown).map(|k| f(k).chars().count()).max().unwrap_or(0).min(40)
    };
    let (w0, w1) = (width(&head), width(&shape));
    for (k, v) in c.inputs.values.iter().enumerate().take(shown) {
        let values = match v.as_slice() {
            [] => String::new(),
            [one] => line(one),
            many => format!("one per device; device 0: {}", line(&many[0])),
        };
        let _ = writeln!(t, "  {:w0$}  {:w1$}  {values}", head(k), shape(k));
    }
    if shown < n {
        let _ = writeln!(t, "  {}", p.dim(&format!("... and {} more", n - shown)));
    }
}

/// How to see the difference again.
pub(super) fn replay(t: &mut String, s: &Subject<'_>, p: Paint) {
    if s.decision.counterexample.is_none() {
        return;
    }
    let text = match s.witness {
        Some(dir) => format!(
            "witness in {dir}: `scalify replay {dir}`, or `python {dir}/replay.py` to see it in XLA"
        ),
        None => {
            "`--witness DIR` saves programs, inputs and a script that shows it in XLA".to_owned()
        }
    };
    let _ = writeln!(t, "\n{}", p.dim(&text));
}
