//! Reports that are lists of results, in the formats of `scalify compare`.

use crate::compare::Format;
use crate::numeric::{format_of, save_text};
use crate::output;
use clap::Args;
use quick_junit::{NonSuccessKind, Report as Xml, TestCase, TestCaseStatus, TestSuite};
use serde_json::Value;
use std::path::PathBuf;

/// Where a report goes.
#[derive(Args)]
pub(crate) struct OutputArgs {
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a report; its format is that of the ending: .json, .jsonl,
    /// .csv, .xml (JUnit) or .txt (may repeat)
    #[arg(long = "report", value_name = "FILE")]
    reports: Vec<PathBuf>,
}

/// How a result is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Pass,
    Fail,
    /// Not decided: an error in JUnit.
    Open,
}

/// A result.
pub(crate) struct Row {
    /// Name of the test case.
    pub(crate) name: String,
    pub(crate) status: Status,
    /// Why it does not pass.
    pub(crate) message: String,
    /// An object: a line of JSON lines; cells are read from it.
    pub(crate) value: Value,
}

/// A list of results.
pub(crate) struct Table {
    /// `scalify` and the command.
    pub(crate) command: &'static str,
    /// What was examined.
    pub(crate) subject: String,
    /// First line of JSON lines: the report without its lists.
    pub(crate) head: Value,
    /// Fields of rows that are columns.
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Row>,
}

impl OutputArgs {
    /// Checks the endings of files before any work is done.
    ///
    /// # Errors
    /// Another ending.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.reports.iter().try_for_each(|p| format_of(p).map(|_| ()))
    }

    /// Is text printed?
    pub(crate) fn prints_text(&self) -> bool {
        !self.json && self.format == Format::Text
    }

    /// Prints (unless `quiet`) and saves a report. `text` is given whether it is
    /// for the terminal.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(crate) fn write(
        &self,
        t: &Table,
        json: &str,
        text: &dyn Fn(bool) -> String,
        quiet: bool,
    ) -> anyhow::Result<()> {
        let render = |f: Format, terminal: bool| -> anyhow::Result<String> {
            Ok(match f {
                Format::Text => text(terminal),
                Format::Json => json.to_owned(),
                Format::Jsonl => t.jsonl()?,
                Format::Csv => t.csv()?,
                Format::Junit => t.junit()?,
            })
        };
        for path in &self.reports {
            save_text(path, &render(format_of(path)?, false)?)?;
        }
        if !quiet {
            let format = if self.json { Format::Json } else { self.format };
            output::stdout(&render(format, true)?)?;
        }
        Ok(())
    }
}

/// A value as a cell; lists are joined.
fn cell(v: &Value) -> String {
    match v {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        Value::Array(v) => v.iter().map(cell).collect::<Vec<_>>().join("; "),
        v => v.to_string(),
    }
}

impl Table {
    fn jsonl(&self) -> serde_json::Result<String> {
        let mut s = serde_json::to_string(&self.head)? + "\n";
        for r in &self.rows {
            s += &serde_json::to_string(&r.value)?;
            s.push('\n');
        }
        Ok(s)
    }

    fn csv(&self) -> anyhow::Result<String> {
        let mut w = csv::Writer::from_writer(Vec::new());
        w.write_record(self.columns)?;
        for r in &self.rows {
            w.write_record(
                self.columns.iter().map(|c| cell(r.value.get(c).unwrap_or(&Value::Null))),
            )?;
        }
        Ok(String::from_utf8(w.into_inner()?)?)
    }

    fn junit(&self) -> anyhow::Result<String> {
        let mut suite = TestSuite::new(&self.subject);
        for r in &self.rows {
            let status = match r.status {
                Status::Pass => TestCaseStatus::success(),
                s => {
                    let kind = match s {
                        Status::Fail => NonSuccessKind::Failure,
                        _ => NonSuccessKind::Error,
                    };
                    let mut status = TestCaseStatus::non_success(kind);
                    let lines = self.columns.iter().filter_map(|c| {
                        let text = cell(r.value.get(c)?);
                        (!text.is_empty()).then(|| format!("{c}: {text}"))
                    });
                    status.set_message(&r.message);
                    status.set_description(lines.collect::<Vec<_>>().join("\n"));
                    status
                }
            };
            let mut case =
                TestCase::new(if r.name.is_empty() { "(unnamed)" } else { &r.name }, status);
            case.set_classname(self.command.replace(' ', "."));
            suite.add_test_case(case);
        }
        let mut xml = Xml::new(self.command);
        xml.add_test_suite(suite);
        Ok(xml.to_string()?)
    }
}

/// A report as a JSON object.
///
/// # Errors
/// Values that are no objects.
pub(crate) fn object(r: &impl serde::Serialize) -> anyhow::Result<serde_json::Map<String, Value>> {
    match serde_json::to_value(r)? {
        Value::Object(m) => Ok(m),
        v => anyhow::bail!("a report that is no object: {v}"),
    }
}

/// Takes a list out of an object; none if it is not there.
pub(crate) fn take(m: &mut serde_json::Map<String, Value>, key: &str) -> Vec<Value> {
    match m.remove(key) {
        Some(Value::Array(v)) => v,
        _ => Vec::new(),
    }
}

/// A field as text.
pub(crate) fn text_of(v: &Value, key: &str) -> String {
    v.get(key).map(cell).unwrap_or_default()
}
