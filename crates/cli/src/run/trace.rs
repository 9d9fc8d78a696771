//! Every intermediate value of a run: as arrays, or one row of facts each.

use super::outputs::stored;
use crate::args::RunArgs;
use anyhow::Context as _;
use scalify_interp::{Tensor, Value};
use scalify_ir::{ArrayShape, InstrId, Module};
use scalify_report::values;
use scalify_tensors::{TensorRef, write_archive};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes of arrays kept for a file, unless `--memory-limit` says otherwise.
const MAX_BYTES: u64 = 4 << 30;

/// Where the values go.
pub(crate) struct Sink<'m> {
    module: &'m Module,
    path: PathBuf,
    wide: bool,
    /// How often (device, instruction) was seen.
    visits: BTreeMap<(usize, u32), usize>,
    kind: Kind,
    failed: Option<anyhow::Error>,
}

enum Kind {
    Rows(BufWriter<File>),
    Arrays { all: Vec<(String, Tensor)>, bytes: u64, limit: u64 },
}

/// One line of a trace.
#[derive(Serialize)]
struct Row<'a> {
    instruction: &'a str,
    /// Position in a tuple.
    element: Option<usize>,
    opcode: &'static str,
    device: usize,
    /// From 0: instructions in loops and called computations run often.
    visit: usize,
    shape: String,
    min: Option<serde_json::Value>,
    max: Option<serde_json::Value>,
    mean: f64,
    nan: usize,
    inf: usize,
    source: Option<String>,
}

impl<'m> Sink<'m> {
    /// Opens the file; its ending says which form.
    ///
    /// # Errors
    /// Another ending, or if the file cannot be created.
    pub(crate) fn new(path: &Path, module: &'m Module, a: &RunArgs) -> anyhow::Result<Self> {
        let kind = match path.extension().and_then(|e| e.to_str()) {
            Some("jsonl") => {
                let f = File::create(path);
                Kind::Rows(BufWriter::new(
                    f.with_context(|| format!("cannot create {}", path.display()))?,
                ))
            }
            Some("npz" | "safetensors") => Kind::Arrays {
                all: Vec::new(),
                bytes: 0,
                limit: a.memory_limit.unwrap_or(MAX_BYTES),
            },
            _ => anyhow::bail!("--trace {}: expected .npz, .safetensors or .jsonl", path.display()),
        };
        Ok(Sink {
            module,
            path: path.to_owned(),
            wide: a.f64,
            visits: BTreeMap::new(),
            kind,
            failed: None,
        })
    }

    /// Takes one value.
    pub(crate) fn add(&mut self, device: usize, id: InstrId, v: &Value) {
        if self.failed.is_some() {
            return;
        }
        let visit = self.visits.entry((device, id.0)).or_insert(0);
        let n = *visit;
        *visit += 1;
        let out = match v {
            Value::Tensor(t) => self.one(device, id, n, None, t),
            Value::Tuple(v) => v.iter().enumerate().try_for_each(|(k, v)| match v {
                Value::Tensor(t) => self.one(device, id, n, Some(k), t),
                _ => Ok(()),
            }),
            Value::Token => Ok(()),
        };
        self.failed = out.err();
    }

    fn one(
        &mut self,
        device: usize,
        id: InstrId,
        visit: usize,
        element: Option<usize>,
        t: &Tensor,
    ) -> anyhow::Result<()> {
        let name = self.module.name_of(id);
        match &mut self.kind {
            Kind::Arrays { all, bytes, limit } => {
                *bytes = bytes.saturating_add(t.len() as u64 * 16);
                anyhow::ensure!(
                    *bytes <= *limit,
                    "the values of the trace take more than {limit} bytes: raise --memory-limit, or write .jsonl"
                );
                let element = element.map(|k| format!("[{k}]")).unwrap_or_default();
                let visit = if visit == 0 { String::new() } else { format!("#{visit}") };
                all.push((format!("{name}{element}@{device}{visit}"), t.clone()));
            }
            Kind::Rows(out) => {
                let s = values::summary(t);
                let number = |x: f64| match serde_json::Number::from_f64(x) {
                    Some(n) => serde_json::Value::Number(n),
                    None if x > 0.0 => "Infinity".into(),
                    None => "-Infinity".into(),
                };
                let frame = self.module.frames(id).into_iter().next();
                let row = Row {
                    instruction: name,
                    element,
                    opcode: self.module.instr(id).opcode.name(),
                    device,
                    visit,
                    shape: ArrayShape::new(t.dtype, t.dims.iter().copied()).to_string(),
                    min: s.range.map(|r| number(r.0)),
                    max: s.range.map(|r| number(r.1)),
                    mean: s.mean,
                    nan: s.nan,
                    inf: s.inf,
                    source: frame.map(|f| format!("{}:{}", f.file, f.line)),
                };
                serde_json::to_writer(&mut *out, &row)?;
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The first error of any value, and those of writing.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let name = self.path.display().to_string();
        if let Some(e) = self.failed {
            return Err(e.context(name));
        }
        match self.kind {
            Kind::Rows(mut out) => out.flush().with_context(|| format!("cannot write {name}")),
            Kind::Arrays { all, .. } => {
                let wide = self.wide;
                let raw: Vec<_> = all
                    .iter()
                    .map(|(n, t)| {
                        let (dtype, bytes) = stored(t, wide);
                        (n, dtype, &t.dims, bytes)
                    })
                    .collect();
                let refs = raw.iter().map(|(n, dtype, dims, bytes)| {
                    (n, TensorRef { dtype: *dtype, dims: &dims[..], bytes })
                });
                write_archive(&self.path, refs)?;
                Ok(())
            }
        }
    }
}
