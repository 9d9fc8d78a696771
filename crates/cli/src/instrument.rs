//! `scalify instrument`: programs that report values that are not finite.

use crate::numeric::save_text;
use crate::table::{OutputArgs, Row, Status, Table};
use crate::{Exit, input, output};
use anyhow::Context as _;
use clap::Args;
use globset::{Glob, GlobMatcher};
use scalify_diff::instrument::{Flag, Instrumented, Test, check_finite, first};
use scalify_ir::DType;
use scalify_tensors::Archive;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 written, or with --read all values are finite; 1 some are not; 2 bad usage or input"
)]
pub(crate) struct InstrumentArgs {
    /// HLO text or proto, may be compressed; with --read the map file
    module: PathBuf,
    /// File to write (HLO text, or proto if it ends in .pb); beside it FILE.json
    /// says what each flag is about
    #[arg(long, short, value_name = "FILE", required_unless_present = "read")]
    output: Option<PathBuf>,
    /// Add an output that says of each instruction whether its values are finite
    #[arg(long)]
    check_finite: bool,
    /// Only instructions whose name matches (may repeat)
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Read the added output (npy, npz) of a run and name the first
    /// instruction that is not finite; one file per device (may repeat)
    #[arg(long, value_name = "FLAGS", conflicts_with = "output")]
    read: Vec<PathBuf>,
    /// What to print of what was read
    #[command(flatten)]
    report: OutputArgs,
}

/// What the elements of the added output are about.
#[derive(Serialize, Deserialize)]
struct Map {
    schema: String,
    /// Position of the added output.
    output: usize,
    /// The program had one array as result; it is now a tuple.
    wrapped: bool,
    flags: Vec<Flag>,
}

const SCHEMA: &str = "scalify-instrument/1";

pub(crate) fn run(a: &InstrumentArgs) -> anyhow::Result<Exit> {
    if !a.read.is_empty() {
        return read(a);
    }
    let Some(out) = &a.output else { anyhow::bail!("expected --output FILE") };
    anyhow::ensure!(a.check_finite, "expected --check-finite: what to report");
    let m = input::load_valid(&a.module)?;
    let globs: Vec<GlobMatcher> = a
        .only
        .iter()
        .map(|g| Ok(Glob::new(g).with_context(|| format!("--only '{g}'"))?.compile_matcher()))
        .collect::<anyhow::Result<_>>()?;
    let choose = |n: &str| globs.is_empty() || globs.iter().any(|g| g.is_match(n));
    let Some(Instrumented { module, flags, output: at, wrapped, skipped }) =
        check_finite(&m, &choose)
    else {
        anyhow::bail!("{}: no instruction of a float type is chosen", a.module.display());
    };
    crate::convert::write(&module, out)?;
    let count = flags.len();
    let map = Map { schema: SCHEMA.to_owned(), output: at, wrapped, flags };
    let side = PathBuf::from(format!("{}.json", out.display()));
    save_text(&side, &(serde_json::to_string_pretty(&map)? + "\n"))?;
    let mut text = format!(
        "{}: output #{at} is pred[{count}], two flags per instruction ({})\n",
        out.display(),
        side.display()
    );
    if !skipped.is_empty() {
        text += &format!("not entered: {}\n", skipped.join(", "));
    }
    output::stdout(&text)?;
    Ok(Exit::Success)
}

fn flags(path: &Path, n: usize) -> anyhow::Result<Vec<bool>> {
    let z = Archive::open(path)?;
    for k in 0..z.entries().len() {
        let t = z.tensor(k, None)?;
        if t.dtype() == DType::Pred && t.dims() == [n as i64] {
            return Ok(t.bytes()?.iter().map(|b| *b != 0).collect());
        }
    }
    anyhow::bail!("{}: expected an array pred[{n}]", path.display())
}

const COLUMNS: &[&str] =
    &["instruction", "opcode", "shape", "nan", "finite", "devices", "in_loop", "source"];

/// A row per instruction: does it have a NaN, are all its values finite, on
/// which devices not.
fn table(name: &str, map: &Map, values: &[Vec<bool>]) -> Table {
    let failing = |k: usize| -> Vec<usize> {
        (0..values.len()).filter(|&d| values[d].get(k) == Some(&false)).collect()
    };
    let mut rows: Vec<Row> = Vec::new();
    for (k, f) in map.flags.iter().enumerate() {
        let devices = failing(k);
        let same = rows.last().is_some_and(|r| r.name == f.instruction);
        if !same {
            let value = serde_json::json!({
                "instruction": f.instruction, "opcode": f.opcode, "shape": f.shape,
                "nan": null, "finite": null, "devices": [], "in_loop": f.in_loop,
                "source": f.source,
            });
            let name = f.instruction.clone();
            rows.push(Row { name, status: Status::Pass, message: String::new(), value });
        }
        let Some(row) = rows.last_mut() else { continue };
        let (key, holds, what) = match f.test {
            Test::Nan => ("nan", !devices.is_empty(), "a NaN"),
            Test::Finite => ("finite", devices.is_empty(), "a value that is not finite"),
        };
        row.value[key] = holds.into();
        if !devices.is_empty() {
            row.status = Status::Fail;
            if row.message.is_empty() || f.test == Test::Nan {
                row.message = format!("has {what}");
            }
            row.value["devices"] = devices.into();
        }
    }
    let head = serde_json::json!({
        "schema": "scalify-instrument-read/1",
        "module": name,
        "verdict": if rows.iter().any(|r| r.status == Status::Fail) { "not-finite" } else { "finite" },
    });
    Table { command: "scalify instrument", subject: name.to_owned(), head, columns: COLUMNS, rows }
}

fn read(a: &InstrumentArgs) -> anyhow::Result<Exit> {
    a.report.check()?;
    let name = a.module.display();
    let text = std::fs::read_to_string(&a.module).with_context(|| format!("cannot read {name}"))?;
    let map: Map = serde_json::from_str(&text)
        .with_context(|| format!("{name}: expected the map that `instrument` wrote"))?;
    anyhow::ensure!(map.schema == SCHEMA, "{name}: schema {}, expected {SCHEMA}", map.schema);
    let values: Vec<Vec<bool>> =
        a.read.iter().map(|p| flags(p, map.flags.len())).collect::<anyhow::Result<_>>()?;
    let all = map.flags.len() / 2;
    let mut text = String::new();
    for (test, what) in [(Test::Nan, "NaN"), (Test::Finite, "a value that is not finite")] {
        let fails = |k: usize| map.flags[k].test == test && values.iter().any(|v| !v[k]);
        let count = (0..map.flags.len()).filter(|&k| fails(k)).count();
        let Some((k, d)) = first(&map.flags, &values, test) else { continue };
        let f = &map.flags[k];
        let at = f.source.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
        text += &format!(
            "%{}{at}, {} {}, is the first with {what}, on device {d}; {count} of {all} have one\n",
            f.instruction, f.opcode, f.shape
        );
        if f.in_loop {
            text += "  in a loop: an instruction after it may have been first in an earlier iteration\n";
        }
    }
    let exit = if text.is_empty() { Exit::Success } else { Exit::Refuted };
    if text.is_empty() {
        text = format!("all {all} instructions are finite\n");
    }
    let table = table(&name.to_string(), &map, &values);
    let mut json = table.head.clone();
    json["instructions"] = table.rows.iter().map(|r| r.value.clone()).collect();
    let json = serde_json::to_string_pretty(&json)? + "\n";
    a.report.write(&table, &json, &|_| text.clone(), false)?;
    Ok(exit)
}
