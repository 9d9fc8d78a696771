//! `scalify nan-trace`: where NaN and infinities begin.

use crate::numeric::{ProgramArgs, single};
use crate::table::{OutputArgs, Row, Status, Table, object, take, text_of};
use crate::{Exit, input};
use clap::Args;
use scalify_diff::flow::{Engine, Limits};
use scalify_diff::nan::{Found, trace};
use scalify_refute::domain::Profile;
use scalify_refute::evaluate;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 all values are finite, 1 some are not, 2 bad usage or input")]
pub(crate) struct NanTraceArgs {
    /// HLO text or proto, may be compressed
    module: PathBuf,
    #[command(flatten)]
    program: ProgramArgs,
    /// Also list operations that came within this share of the largest finite
    /// value of their type
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    near: f64,
    /// Wall time of one operation
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "60s")]
    time_limit: Duration,
    /// Memory for all values, e.g. 4G
    #[arg(long, value_name = "SIZE", value_parser = crate::args::bytes)]
    memory_limit: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
    /// List every writer
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(a: &NanTraceArgs) -> anyhow::Result<Exit> {
    a.output.check()?;
    let claim = a.program.claim()?;
    let m = input::load_valid(&a.module)?;
    let p = single(&m, &claim)?;
    let placements = crate::run::inputs::placements(&m, &p, &claim)?;
    let values = match &a.program.inputs[..] {
        [] => scalify_diff::diff::draw(&m, &p, &claim, Profile::Normal, a.program.seed)?,
        files => {
            let seed = Some(a.program.seed);
            crate::run::inputs::values(files, seed, &m, &p, &claim, &placements)?
        }
    };
    let args = evaluate::dist_arguments(&m, &p, &placements, &values)
        .ok_or_else(|| anyhow::anyhow!("the inputs do not fit the parameters of the program"))?;
    let topology = evaluate::topology(&m, &p, usize::try_from(p.devices)?);
    let mut limits = Limits { time: a.time_limit, ..Limits::default() };
    limits.bytes = a.memory_limit.unwrap_or(limits.bytes);
    let name = a.module.display();
    let fail = |e| anyhow::anyhow!("{name}: {e}");
    let flow =
        Engine::new(&m, topology, limits).map_err(fail)?.flow(&args, limits).map_err(fail)?;
    let found = trace(&m, &flow, a.near);
    let exit = if found.writers.is_empty() && found.inputs.is_empty() && found.outputs.is_empty() {
        Exit::Success
    } else {
        Exit::Refuted
    };
    let json = serde_json::to_string_pretty(&found)? + "\n";
    let name = name.to_string();
    a.output.write(&table(&name, &found)?, &json, &|_| text(&found, &name, a.all), false)?;
    Ok(exit)
}

const COLUMNS: &[&str] = &[
    "kind",
    "operation",
    "opcode",
    "dtype",
    "value",
    "index",
    "device",
    "count",
    "devices",
    "finite_operands",
    "max",
    "share",
    "source",
];

/// Writers, inputs and outputs that are not finite fail; what is near the
/// largest value does not. Without any row all values are finite.
fn table(name: &str, f: &Found) -> anyhow::Result<Table> {
    let mut head = object(f)?;
    let mut rows = Vec::new();
    let lists =
        [("writer", "writers"), ("input", "inputs"), ("output", "outputs"), ("near", "near")];
    for (kind, list) in lists {
        for v in take(&mut head, list) {
            let mut value = serde_json::Map::new();
            value.insert("kind".into(), kind.into());
            match v {
                serde_json::Value::Object(v) => value.extend(v),
                v => drop(value.insert("operation".into(), v)),
            }
            let value = serde_json::Value::Object(value);
            let operation = text_of(&value, "operation");
            let (status, message) = match kind {
                "near" => (Status::Pass, String::new()),
                "writer" => (Status::Fail, format!("writes {}", text_of(&value, "value"))),
                _ => (Status::Fail, format!("{kind} is not finite")),
            };
            rows.push(Row { name: format!("{kind} {operation}"), status, message, value });
        }
    }
    if rows.is_empty() {
        let value = serde_json::json!({"kind": "program"});
        let name = "all values are finite".into();
        rows.push(Row { name, status: Status::Pass, message: String::new(), value });
    }
    Ok(Table {
        command: "scalify nan-trace",
        subject: name.to_owned(),
        head: head.into(),
        columns: COLUMNS,
        rows,
    })
}

fn text(f: &Found, name: &str, all: bool) -> String {
    let mut t = String::new();
    match f.writers.first() {
        None => {
            let _ = writeln!(t, "{name}: no operation writes NaN or infinity");
        }
        Some(w) => {
            let at = w.source.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
            let _ = writeln!(t, "{name}: %{} ({}) writes {}{at}", w.operation, w.opcode, w.value);
        }
    }
    if !f.inputs.is_empty() {
        let _ = writeln!(t, "inputs that are not finite: {}", f.inputs.join(", "));
    }
    if !f.outputs.is_empty() {
        let list: Vec<String> = f.outputs.iter().map(|k| format!("#{k}")).collect();
        let _ = writeln!(t, "outputs that are not finite: {}", list.join(", "));
    }
    let shown = if all { f.writers.len() } else { 5 };
    for w in f.writers.iter().take(shown) {
        let index: Vec<String> = w.index.iter().map(i64::to_string).collect();
        let _ = writeln!(
            t,
            "\n%{} = {} {} is {} at index ({}) on device {}{}",
            w.operation,
            w.dtype,
            w.opcode,
            w.value,
            index.join(", "),
            w.device,
            if w.finite_operands { ", its operands are finite" } else { "" }
        );
        if let Some(s) = &w.source {
            let _ = writeln!(t, "  at {s}");
        }
        let _ = writeln!(t, "  {} such elements, on {} devices", w.count, w.devices.len());
        for o in &w.operands {
            let value = o.value.map(|v| format!(" is {v} there,")).unwrap_or_default();
            let _ = writeln!(t, "  operand %{}{value} all in [{}, {}]", o.operation, o.min, o.max);
        }
    }
    if f.writers.len() > shown {
        let _ = writeln!(t, "\n... and {} more writers (--all)", f.writers.len() - shown);
    }
    if !f.near.is_empty() {
        let _ = writeln!(t, "\nnear the largest finite value");
        for n in f.near.iter().take(if all { usize::MAX } else { 5 }) {
            let _ = writeln!(
                t,
                "  %{}  {} {:e} on device {}, {:.2} % of the largest",
                n.operation,
                n.dtype,
                n.max,
                n.device,
                100.0 * n.share
            );
        }
    }
    t
}
