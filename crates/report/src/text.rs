//! The report for people: verdict first, then what to look at.

mod example;
mod fault;
mod table;

use crate::sources::Sources;
use crate::{Subject, names};
use scalify_ir::Module;
use scalify_prove::outcome::{Grade, Outcome, OutputResult, Verdict};
use scalify_refute::Difference;
use std::fmt::Write as _;

/// How to render.
#[derive(Debug, Default)]
pub struct TextOptions {
    /// With ANSI colours.
    pub color: bool,
    /// Only the verdict line and the sentence.
    pub quiet: bool,
    /// List every output and frontier item however many there are.
    pub all: bool,
    /// Where source files are looked up.
    pub sources: Sources,
}

/// Outputs above this number are grouped by layout.
const MAX_OUTPUTS: usize = 20;
/// List entries (assumptions, sums, further frontier items) shown at most.
const MAX_LIST: usize = 10;

/// Paints if colours are on.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn on(self, code: &str, text: &str) -> String {
        if self.0 { format!("{START}{code}{MID}{text}{END}") } else { text.to_string() }
    }
    fn bold(self, text: &str) -> String {
        self.on("1", text)
    }
    fn dim(self, text: &str) -> String {
        self.on("2", text)
    }
    fn verdict(self, v: Verdict) -> String {
        let code = match v {
            Verdict::Proved => "1;32",
            Verdict::Refuted => "1;31",
            Verdict::Unknown => "1;33",
        };
        self.on(code, &names::verdict(v).to_uppercase())
    }
    fn small_verdict(self, v: Verdict) -> String {
        let code = match v {
            Verdict::Proved => "32",
            Verdict::Refuted => "31",
            Verdict::Unknown => "33",
        };
        self.on(code, names::verdict(v))
    }
}

/// The whole report, ending in a newline.
pub fn render(s: &Subject<'_>, options: &mut TextOptions) -> String {
    let color = options.color;
    let p = Paint(color);
    let o = &s.decision.outcome;
    let mut t = String::new();
    head(&mut t, s, p);
    if options.quiet {
        return finish(&t, color);
    }
    let mut out = finish(&t, color);
    // The snippet renderer writes its own colours and escapes.
    out.push_str(&fault::first(s, options));
    let mut t = String::new();
    let (title, repairs) = example::repairs(s);
    list(&mut t, p, options.all, title, &repairs);
    example::render(&mut t, s, p, options.all);
    example::replay(&mut t, s, p);
    fault::rest(&mut t, s, options);
    table::render(&mut t, s, p, options.all);
    list(&mut t, p, options.all, "regrouped sums", &regrouped(s));
    // What a counterexample shows rests on no assumption.
    let any = o.outputs.iter().any(|r| r.verdict == Verdict::Proved);
    if o.verdict != Verdict::Refuted || any {
        list(&mut t, p, options.all, "assumptions", &assumptions(s));
    }
    list(&mut t, p, options.all, "notes", &o.notes);
    let st = &o.stats;
    let lemmas = match st.lemmas {
        0 => String::new(),
        1 => format!(", {} parts by 1 lemma", st.parts),
        n => format!(", {} parts by {n} lemmas", st.parts),
    };
    let _ = writeln!(
        t,
        "\n{}",
        p.dim(&format!(
            "{} + {} instructions, {} terms{lemmas}, {} device{}, {:.2} s",
            st.base_instructions,
            st.dist_instructions,
            st.classes,
            st.devices,
            if st.devices == 1 { "" } else { "s" },
            st.seconds
        ))
    );
    out.push_str(&finish(&t, color));
    out
}

/// How outputs differ, one paragraph each; `devices` is the number of devices
/// of the distributed program.
pub fn differences(base: &Module, devices: i64, found: &[Difference], color: bool) -> String {
    let mut t = String::new();
    let shapes = scalify_prove::problem::output_shapes(base);
    for d in found {
        let a = shapes.get(d.output).and_then(|s| s.as_array());
        let about = example::About {
            name: format!("#{}", d.output),
            shape: a.map_or(String::new(), |a| {
                scalify_ir::ArrayShape::new(a.dtype, a.dims.iter().copied()).to_string()
            }),
            dtype: a.map(|a| a.dtype),
            devices: usize::try_from(devices).unwrap_or(0),
        };
        example::difference(&mut t, &about, d);
    }
    finish(&t, color)
}

/// Stand-ins of the escape character in text that may hold names from files.
const START: char = '\u{f8f0}';
const MID: char = '\u{f8f1}';
const END: char = '\u{f8f2}';

/// Escapes control characters that names may hold, then puts in the colours.
fn finish(t: &str, color: bool) -> String {
    let mut out = String::with_capacity(t.len() + 16);
    for c in t.chars() {
        match c {
            START if color => out.push_str("\x1b["),
            MID if color => out.push('m'),
            END if color => out.push_str("\x1b[0m"),
            '\n' => out.push(c),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

fn head(t: &mut String, s: &Subject<'_>, p: Paint) {
    let o = &s.decision.outcome;
    let grade = match (o.verdict, o.grade) {
        (Verdict::Proved, Some(g)) => format!(" ({})", names::grade(g)),
        (Verdict::Unknown, _) if precision(s) => " (precision)".to_owned(),
        _ => String::new(),
    };
    let mesh: Vec<String> = o.mesh.iter().map(|(a, n)| format!("{a}={n}")).collect();
    let mesh = if mesh.is_empty() { String::new() } else { format!(" on mesh {}", mesh.join(",")) };
    let _ =
        writeln!(t, "{}{grade}  {} vs {}{mesh}", p.verdict(o.verdict), s.dist_file, s.base_file);
    let _ = writeln!(t, "{}", sentence(s));
}

/// Evaluation showed that the programs differ in rounding only.
fn precision(s: &Subject<'_>) -> bool {
    let e = s.decision.evidence.as_ref();
    s.decision.outcome.verdict == Verdict::Unknown && e.is_some_and(|e| e.precision.is_some())
}

/// The verdict in a sentence or two.
fn sentence(s: &Subject<'_>) -> String {
    let o: &Outcome = &s.decision.outcome;
    let example = s.decision.counterexample.as_deref().and_then(|c| example::clause(s, c));
    let n = o.outputs.len();
    let open = o.outputs.iter().filter(|r| r.verdict != Verdict::Proved).count();
    let of = format!("{open} of {n} output{}", if n == 1 { "" } else { "s" });
    let mut text = match o.verdict {
        Verdict::Proved => match o.grade {
            Some(Grade::Exact) => {
                "The distributed program does the same operations on the same values.".to_string()
            }
            Some(Grade::Reassociated) => {
                "The distributed program computes the baseline's function \
                 over the reals; float sums are grouped differently where listed."
                    .to_string()
            }
            Some(Grade::UnderAssumptions) => "The distributed program computes the baseline's \
                 function, given the assumptions listed."
                .to_string(),
            None => "The distributed program computes the baseline's function.".to_string(),
        },
        Verdict::Refuted => match &example {
            Some(e) => format!("The programs differ: {e}."),
            None => format!("The programs differ: {of} got different values on the same inputs."),
        },
        Verdict::Unknown => match &example {
            Some(e) => format!("Proof and evaluation contradict each other: {e}."),
            None => format!("Neither proved nor refuted: {of} could not be related."),
        },
    };
    if let Some(e) = example::evidence(s) {
        // That the outputs round differently is why they are not related.
        if precision(s) {
            text = e;
        } else {
            let _ = write!(text, " {e}");
        }
    }
    if let Some(budget) = o.exhausted {
        let _ = write!(text, " The {budget} limit was reached.");
    }
    text
}

/// `dist.hlo: all-reduce.1 (model.py:12)`.
fn place(m: &scalify_ir::Module, id: scalify_ir::InstrId) -> String {
    let at = names::frames(m, id)
        .first()
        .map(|f| format!(" ({}:{})", f.file, f.line))
        .unwrap_or_default();
    format!("{}{at}", names::name(m, id))
}

fn regrouped(s: &Subject<'_>) -> Vec<String> {
    let line = |r: &scalify_prove::outcome::Regrouped| {
        format!("{} in {}: {}", place(s.dist, r.instr), r.dtype, r.text)
    };
    s.decision.outcome.regrouped.iter().map(line).collect()
}

fn assumptions(s: &Subject<'_>) -> Vec<String> {
    use scalify_prove::outcome::Side;
    s.decision
        .outcome
        .assumptions
        .iter()
        .map(|a| {
            let at = match a.at {
                Some((Side::Base, id)) => format!("  [base {}]", place(s.base, id)),
                Some((Side::Dist, id)) => format!("  [dist {}]", place(s.dist, id)),
                None => String::new(),
            };
            format!("{}: {}{at}", names::assumption(a.kind), a.text)
        })
        .collect()
}

fn list(t: &mut String, p: Paint, all: bool, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(t, "\n{}", p.bold(title));
    let shown = if all || items.len() <= MAX_LIST + 1 { items.len() } else { MAX_LIST };
    for i in items.iter().take(shown) {
        let _ = writeln!(t, "  {i}");
    }
    if shown < items.len() {
        let _ = writeln!(t, "  {}", p.dim(&format!("... and {} more", items.len() - shown)));
    }
}

/// Name of an output for a table: its index and its name.
fn output_name(r: &OutputResult) -> String {
    let at = format!("#{}", r.index);
    // An output without a name goes by its index.
    if r.name.is_empty() || r.name == format!("output {at}") {
        at
    } else {
        format!("{at} {}", r.name)
    }
}
