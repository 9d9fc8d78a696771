//! Results of a run: the table and the file.

use scalify_claim::{Claim, Mesh, Placement};
use scalify_interp::{Data, Tensor};
use scalify_ir::{ArrayShape, DType, Module, Opcode};
use scalify_prove::problem::Problem;
use scalify_refute::place;
use scalify_report::values;
use scalify_tensors::{TensorRef, write_archive};
use std::fmt::Write as _;
use std::path::Path;

/// Devices shown of an output that differs between them.
const MAX_DEVICES: usize = 8;
/// Values of this many characters stand in the table.
const MAX_VALUES: usize = 48;

/// One output.
struct Output {
    /// Instruction that gives it.
    name: String,
    /// The whole array, if the devices hold the same or a layout is declared.
    whole: Option<Tensor>,
    /// How the whole array came about.
    how: &'static str,
    /// Else one per device.
    each: Vec<Tensor>,
}

/// All outputs, in order.
pub(crate) struct Results(Vec<Output>);

impl Results {
    /// Sorts the results of the devices by output and joins blocks as
    /// declared.
    ///
    /// # Errors
    /// Layouts that do not fit an output.
    pub(crate) fn new(
        m: &Module,
        p: &Problem,
        claim: &Claim,
        per_device: Vec<Vec<Tensor>>,
    ) -> anyhow::Result<Results> {
        let mesh = Mesh::new(p.mesh.clone()).ok();
        let count = per_device.first().map_or(0, Vec::len);
        for (selector, spec) in &claim.outputs {
            let hit = (0..count).any(|k| selector.matches(k, &[&format!("#{k}")]));
            anyhow::ensure!(hit, "--out {selector}={spec}: the program has {count} output(s)");
        }
        let names = names(m);
        let mut out = Vec::new();
        for k in 0..count {
            let each: Vec<Tensor> = per_device.iter().filter_map(|v| v.get(k).cloned()).collect();
            let name = names.get(k).cloned().unwrap_or_default();
            let spec = claim.output_spec(k, &[&format!("#{k}")]);
            let (whole, how) = match (spec, &mesh) {
                (Some(spec), Some(mesh)) => {
                    let rank = each.first().map_or(0, Tensor::rank);
                    let q = Placement::from_spec(mesh, spec, rank)
                        .map_err(|e| anyhow::anyhow!("--out #{k}={spec}: {e}"))?;
                    (join(&each, &q), "joined")
                }
                (Some(spec), None) => anyhow::bail!("--out #{k}={spec}: a spec needs --mesh"),
                (None, _) if each.len() == 1 => (each.first().cloned(), ""),
                (None, _) if each.windows(2).all(|w| equal(&w[0], &w[1])) => {
                    (each.first().cloned(), "all")
                }
                (None, _) => (None, ""),
            };
            out.push(Output { name, whole, how, each });
        }
        Ok(Results(out))
    }

    /// Name in files, and tensor, of everything.
    fn entries(&self) -> Vec<(String, &Tensor)> {
        let mut v = Vec::new();
        for (k, o) in self.0.iter().enumerate() {
            match &o.whole {
                Some(t) => v.push((format!("out_{k}"), t)),
                None => {
                    v.extend(o.each.iter().enumerate().map(|(d, t)| (format!("out_{k}@{d}"), t)));
                }
            }
        }
        v
    }

    /// Writes `out_0`, `out_1`, ..; `out_0@3` for device 3 where the devices
    /// hold different values.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn save(&self, path: &Path, wide: bool) -> anyhow::Result<()> {
        let raw: Vec<(String, DType, &Tensor, Vec<u8>)> = self
            .entries()
            .into_iter()
            .map(|(name, t)| {
                let (dtype, bytes) = stored(t, wide);
                (name, dtype, t, bytes)
            })
            .collect();
        let refs = raw
            .iter()
            .map(|(n, dtype, t, bytes)| (n, TensorRef { dtype: *dtype, dims: &t.dims, bytes }));
        write_archive(path, refs)?;
        Ok(())
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let head = ["output", "shape", "device", "min", "max", "mean", "NaN", "inf", ""];
        let mut rows = vec![head.map(str::to_owned)];
        for (k, o) in self.0.iter().enumerate() {
            let name = if o.name.is_empty() { format!("#{k}") } else { format!("#{k} {}", o.name) };
            match &o.whole {
                Some(t) => rows.push(row(name, o.how.to_owned(), t)),
                None => {
                    for (d, t) in o.each.iter().enumerate().take(MAX_DEVICES) {
                        let name = if d == 0 { name.clone() } else { String::new() };
                        rows.push(row(name, d.to_string(), t));
                    }
                    if o.each.len() > MAX_DEVICES {
                        let mut r: [String; 9] = Default::default();
                        r[2] = format!("... {} more", o.each.len() - MAX_DEVICES);
                        rows.push(r);
                    }
                }
            }
        }
        render(&rows)
    }
}

fn row(name: String, device: String, t: &Tensor) -> [String; 9] {
    let s = values::summary(t);
    let shape = ArrayShape::new(t.dtype, t.dims.iter().copied()).to_string();
    let wide = matches!(t.data, Data::F64(_) | Data::C128(_));
    let number = |x: f64| if wide { values::number(x, 9) } else { values::typed(x, t.dtype) };
    let (min, max) = match s.range {
        Some((a, b)) => (number(a), number(b)),
        None => ("-".into(), "-".into()),
    };
    let whole = values::whole(t).filter(|w| w.chars().count() <= MAX_VALUES && !wide);
    [
        name,
        shape,
        device,
        min,
        max,
        values::number(s.mean, 6),
        s.nan.to_string(),
        s.inf.to_string(),
        whole.unwrap_or_default(),
    ]
}

/// Columns of one width; numbers to the right, empty columns left out.
fn render(rows: &[[String; 9]]) -> String {
    let n = rows.first().map_or(0, |r| r.len());
    let width: Vec<usize> =
        (0..n).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    let used: Vec<bool> = (0..n).map(|c| rows.iter().skip(1).any(|r| !r[c].is_empty())).collect();
    let mut t = String::new();
    for r in rows {
        let mut line = String::new();
        for c in (0..n).filter(|&c| used[c]) {
            let w = width[c];
            match (3..8).contains(&c) {
                true => {
                    let _ = write!(line, "  {:>w$}", r[c]);
                }
                false => {
                    let _ = write!(line, "  {:w$}", r[c]);
                }
            }
        }
        t.push_str(line.trim_end());
        t.push('\n');
    }
    t
}

fn equal(a: &Tensor, b: &Tensor) -> bool {
    a.dims == b.dims && stored(a, true).1 == stored(b, true).1
}

/// Element type and bytes in a file; unrounded floats if `wide`.
pub(super) fn stored(t: &Tensor, wide: bool) -> (DType, Vec<u8>) {
    match &t.data {
        Data::F64(v) if wide => (DType::F64, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Data::C128(v) if wide => {
            let one = |x: &scalify_interp::complex::C128| {
                [x.re.to_le_bytes(), x.im.to_le_bytes()].concat()
            };
            (DType::C128, v.iter().flat_map(one).collect())
        }
        _ => (t.dtype, t.to_bytes()),
    }
}

/// The whole array that the devices hold blocks of; `None` if they do not fit
/// together, or hold different values of one element.
fn join(each: &[Tensor], q: &Placement) -> Option<Tensor> {
    let first = each.first()?;
    let global: Vec<i64> = q
        .dims
        .iter()
        .zip(&first.dims)
        .map(|(d, n)| n.checked_mul(i64::from(d.tiles)))
        .collect::<Option<_>>()?;
    let (dtype, _) = stored(first, true);
    let width = dtype.literal_bytes();
    let n = usize::try_from(global.iter().product::<i64>()).ok()?;
    let mut out = vec![0u8; n.checked_mul(width)?];
    let mut set = vec![false; n];
    for (d, t) in each.iter().enumerate() {
        let (_, bytes) = stored(t, true);
        for (a, b) in place::positions(&global, Some(q), d as u32)? {
            let x = bytes.get(a * width..(a + 1) * width)?;
            let y = out.get_mut(b * width..(b + 1) * width)?;
            if *set.get(b)? && y != x {
                return None;
            }
            y.copy_from_slice(x);
            *set.get_mut(b)? = true;
        }
    }
    Tensor::from_bytes(&ArrayShape::new(dtype, global), &out)
}

/// Names of the instructions that give the outputs.
fn names(m: &Module) -> Vec<String> {
    let Some(root) = m.comps.get(m.entry.0 as usize).map(|c| c.root) else { return Vec::new() };
    let mut out = Vec::new();
    gather(m, root, 0, &mut out);
    out
}

fn gather(m: &Module, id: scalify_ir::InstrId, depth: u32, out: &mut Vec<String>) {
    let Some(i) = m.instrs.get(id.0 as usize) else { return };
    if i.opcode == Opcode::Tuple && depth < 32 {
        for &o in &i.operands {
            gather(m, o, depth + 1, out);
        }
        return;
    }
    let n = m.shapes.get(i.shape.0 as usize).map_or(0, |s| s.leaves().len());
    for k in 0..n {
        let name = m.name_of(id);
        out.push(if n == 1 { format!("%{name}") } else { format!("%{name}[{k}]") });
    }
}
