//! Reports of [`crate::diff`]: data for programs, text for people.

use crate::analyze::{Error, Kind, Row, Worst};
use crate::diff::{Report, Verdict};
use crate::flow::NodeId;
use crate::pairing::Basis;
use quick_junit::{NonSuccessKind, Report as Xml, TestCase, TestCaseStatus, TestSuite};
use scalify_ir::Module;
use serde::Serialize;
use std::fmt::Write as _;

/// The report as data; `schema` is `scalify-diff/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Doc {
    /// Name and version of the format.
    pub schema: &'static str,
    /// First program, the reference.
    pub expected: String,
    /// Second program.
    pub actual: String,
    /// The answer.
    pub verdict: Verdict,
    /// The first operation at fault.
    pub first: Option<First>,
    /// Operations of the second program, and how many were compared.
    pub counts: Counts,
    /// Outputs, end to end.
    pub outputs: Vec<crate::diff::Output>,
    /// Compared operations in the order of the second program.
    pub operations: Vec<Operation>,
    /// Facts for the reader.
    pub notes: Vec<String>,
}

/// Numbers of operations.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counts {
    /// Executed by the second program, loops unrolled.
    pub operations: usize,
    /// Compared with a counterpart.
    pub compared: usize,
    /// Of these, by a relation of the prover.
    pub by_proof: usize,
    /// Of these, more than rounding.
    pub different: usize,
}

/// The operation at fault.
#[derive(Clone, Debug, Serialize)]
pub struct First {
    /// Its name, with loops and calls it is in where executed repeatedly.
    pub operation: String,
    /// Opcode.
    pub opcode: &'static str,
    /// Shape.
    pub shape: String,
    /// `file:line`.
    pub source: Option<String>,
    /// What is wrong.
    pub kind: Kind,
    /// Operation of the first program that its value was compared with.
    pub counterpart: Option<String>,
    /// Where.
    pub worst: Option<Worst>,
    /// Found by the prover, not by values.
    pub by_prover: bool,
}

/// A compared operation.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// See [`First`].
    pub operation: String,
    /// Opcode.
    pub opcode: &'static str,
    /// Shape of its value on a device.
    pub shape: String,
    /// Operation of the first program.
    pub counterpart: String,
    /// What the pair rests on.
    pub basis: Basis,
    /// Operation alone, against itself in `f64`.
    pub local: Error,
    /// Fed with the reference's inputs.
    pub introduced: Error,
    /// Of its value.
    pub accumulated: Error,
    /// Introduced error over its bound, at most.
    #[serde(serialize_with = "crate::diff::number")]
    pub ratio: f64,
    /// What the introduced error is.
    pub kind: Kind,
    /// `file:line`.
    pub source: Option<String>,
    /// Where the introduced error is worst.
    pub worst: Worst,
}

impl Doc {
    /// The report of comparing `b` with `a`, files of these names.
    pub fn new(names: [&str; 2], a: &Module, b: &Module, r: &Report) -> Doc {
        let row = |row: &Row| {
            let n = r.b.slots[row.pair.b as usize];
            let i = r.b.nodes[n as usize].instr;
            Operation {
                operation: r.b.name(b, n),
                opcode: b.instr(i).opcode.name(),
                shape: shape(r, row.pair.b),
                counterpart: r.a.name(a, r.a.slots[row.pair.a as usize]),
                basis: row.pair.basis,
                local: row.local.clone(),
                introduced: row.introduced.clone(),
                accumulated: row.accumulated.clone(),
                ratio: row.ratio,
                kind: row.kind,
                source: r.b.source(b, n),
                worst: row.worst.clone(),
            }
        };
        let operations: Vec<Operation> = r.rows.iter().map(row).collect();
        let first = r.first.as_ref().map(|f| {
            let i = r.b.nodes[f.node as usize].instr;
            let at = f.row.and_then(|k| operations.get(k));
            First {
                operation: r.b.name(b, f.node),
                opcode: b.instr(i).opcode.name(),
                shape: node_shape(r, f.node),
                source: r.b.source(b, f.node),
                kind: f.kind,
                counterpart: at.map(|o| o.counterpart.clone()),
                worst: at.map(|o| o.worst.clone()),
                by_prover: f.by_prover,
            }
        });
        let count = |f: &dyn Fn(&Operation) -> bool| operations.iter().filter(|o| f(o)).count();
        Doc {
            schema: "scalify-diff/1",
            expected: names[0].to_owned(),
            actual: names[1].to_owned(),
            verdict: r.verdict,
            first,
            counts: Counts {
                operations: r.operations,
                compared: operations.len(),
                by_proof: count(&|o| o.basis == Basis::Proof),
                different: count(&|o| o.kind != Kind::Rounding),
            },
            outputs: r.outputs.clone(),
            operations,
            notes: r.notes.clone(),
        }
    }

    /// One JSON value.
    ///
    /// # Errors
    /// None that occur.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|s| s + "\n")
    }

    /// A line with everything but operations, then one per operation.
    ///
    /// # Errors
    /// None that occur.
    pub fn jsonl(&self) -> serde_json::Result<String> {
        let head = Doc { operations: Vec::new(), ..self.clone() };
        let mut out = serde_json::to_string(&head)? + "\n";
        for o in &self.operations {
            out += &(serde_json::to_string(o)? + "\n");
        }
        Ok(out)
    }

    /// A row per operation.
    ///
    /// # Errors
    /// None that occur.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut w = csv::Writer::from_writer(Vec::new());
        w.write_record([
            "operation",
            "opcode",
            "shape",
            "counterpart",
            "basis",
            "local",
            "introduced",
            "accumulated",
            "ratio",
            "kind",
            "device",
            "index",
            "expected",
            "actual",
            "bound",
            "source",
        ])?;
        for o in &self.operations {
            w.write_record([
                o.operation.as_str(),
                o.opcode,
                &o.shape,
                &o.counterpart,
                word(&o.basis).as_str(),
                &o.local.max.to_string(),
                &o.introduced.max.to_string(),
                &o.accumulated.max.to_string(),
                &o.ratio.to_string(),
                word(&o.kind).as_str(),
                &o.worst.device.to_string(),
                &indices(&o.worst.index),
                &o.worst.expected.to_string(),
                &o.worst.actual.to_string(),
                &o.worst.bound.to_string(),
                o.source.as_deref().unwrap_or(""),
            ])?;
        }
        let bytes = w.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// JUnit XML: a test case per output and per operation.
    ///
    /// # Errors
    /// None that occur.
    pub fn junit(&self) -> Result<String, quick_junit::SerializeError> {
        let mut suite = TestSuite::new(format!("{} = {}", self.expected, self.actual));
        let mut add = |name: String, kind: Kind, what: String| {
            let status = if kind == Kind::Rounding {
                TestCaseStatus::success()
            } else {
                let mut s = TestCaseStatus::non_success(NonSuccessKind::Failure);
                s.set_message(what);
                s
            };
            let mut case = TestCase::new(name, status);
            case.set_classname("scalify.diff");
            suite.add_test_case(case);
        };
        for o in &self.outputs {
            add(format!("output #{}", o.index), o.kind, greatest(&o.worst, o.kind));
        }
        for o in &self.operations {
            add(o.operation.clone(), o.kind, greatest(&o.worst, o.kind));
        }
        let mut xml = Xml::new("scalify diff");
        xml.add_test_suite(suite);
        xml.to_string()
    }

    /// For people; `all` lists every operation.
    pub fn text(&self, all: bool) -> String {
        let mut t = String::new();
        let head = match self.verdict {
            Verdict::Equal => "EQUAL up to rounding",
            Verdict::Different => "DIFFERENT",
            Verdict::Unknown => "UNKNOWN",
        };
        let _ = writeln!(t, "{head}  {} vs {}", self.actual, self.expected);
        if let Some(f) = &self.first {
            let at = f.source.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
            let what = match f.kind {
                Kind::Function => "computes something else",
                _ => "rounds more coarsely than the reference",
            };
            let _ = writeln!(t, "first: %{}{at}, {} {}, {what}", f.operation, f.opcode, f.shape);
            if let Some(c) = &f.counterpart {
                let _ = writeln!(t, "  compared with %{c}, fed with the reference's inputs");
            }
            if let Some(w) = &f.worst {
                let _ = writeln!(t, "  {}", greatest(w, f.kind));
            }
            if f.by_prover {
                let _ = writeln!(
                    t,
                    "  named by the prover: its operands are related, its value is not"
                );
            }
        }
        let _ = writeln!(t, "\noutputs");
        for o in &self.outputs {
            let _ = writeln!(
                t,
                "  #{}  {}  error {}, {} of what rounding explains",
                o.index,
                word(&o.kind),
                short(o.max),
                short(o.ratio)
            );
            if o.kind != Kind::Rounding {
                let _ = writeln!(t, "      {}", greatest(&o.worst, o.kind));
            }
        }
        let mut list: Vec<&Operation> = self.operations.iter().collect();
        if !all {
            list.retain(|o| o.kind != Kind::Rounding);
            if list.is_empty() {
                // The largest shares of the bound.
                list = self.operations.iter().filter(|o| o.introduced.max > 0.0).collect();
                list.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
                list.truncate(5);
            } else {
                list.truncate(20);
            }
        }
        if !list.is_empty() {
            let title = if all {
                "operations"
            } else if self.counts.different > 0 {
                "operations that introduce more than rounding"
            } else {
                "operations nearest to their bound"
            };
            let _ = writeln!(t, "\n{title}");
            let mut rows: Vec<[String; 7]> = vec![
                [
                    "operation",
                    "counterpart",
                    "by",
                    "local",
                    "introduced",
                    "accumulated",
                    "of bound",
                ]
                .map(str::to_owned),
            ];
            for o in &list {
                rows.push([
                    format!("%{}", o.operation),
                    format!("%{}", o.counterpart),
                    word(&o.basis),
                    short(o.local.max),
                    short(o.introduced.max),
                    short(o.accumulated.max),
                    short(o.ratio),
                ]);
            }
            let width: Vec<usize> = (0..7)
                .map(|k| rows.iter().map(|r| r[k].chars().count()).max().unwrap_or(0))
                .collect();
            for r in &rows {
                let line: Vec<String> =
                    r.iter().zip(&width).map(|(c, w)| format!("{c:w$}")).collect();
                let _ = writeln!(t, "  {}", line.join("  ").trim_end());
            }
        }
        if !self.notes.is_empty() {
            let _ = writeln!(t, "\nnotes");
            for n in &self.notes {
                let _ = writeln!(t, "  {n}");
            }
        }
        let c = &self.counts;
        let _ = writeln!(
            t,
            "\n{} of {} operations compared, {} through relations of the prover",
            c.compared, c.operations, c.by_proof
        );
        t
    }
}

/// Lower-case name of an enum's variant.
fn word<T: Serialize>(x: &T) -> String {
    match serde_json::to_value(x) {
        Ok(serde_json::Value::String(s)) => s,
        _ => String::new(),
    }
}

fn indices(v: &[i64]) -> String {
    v.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
}

fn greatest(w: &Worst, kind: Kind) -> String {
    let index: Vec<String> = w.index.iter().map(i64::to_string).collect();
    let d = (w.actual - w.expected).abs();
    let tail = if kind == Kind::Rounding { "" } else { ", no rounding" };
    format!(
        "Greatest difference: {} at index ({}) on device {} (expected {}, is {}; rounding explains {}){}",
        short(d),
        index.join(", "),
        w.device,
        w.expected,
        w.actual,
        short(w.bound),
        tail
    )
}

/// Three digits.
pub(crate) fn short(x: f64) -> String {
    match x {
        0.0 => "0".into(),
        x if !x.is_finite() => x.to_string(),
        x if (1e-3..1e5).contains(&x.abs()) => {
            let d = (2 - x.abs().log10().floor() as i32).max(0) as usize;
            format!("{x:.d$}")
        }
        x => format!("{x:.2e}"),
    }
}

fn shape(r: &Report, s: crate::flow::Slot) -> String {
    r.b.values.get(s as usize).and_then(|v| v.first()).map_or(String::new(), |t| {
        let d: Vec<String> = t.dims.iter().map(i64::to_string).collect();
        format!("{}[{}]", t.dtype, d.join(","))
    })
}

fn node_shape(r: &Report, n: NodeId) -> String {
    r.b.nodes.get(n as usize).map_or(String::new(), |n| shape(r, n.slots.0))
}
