//! The terms that instructions are lifted to, evaluated, against the values
//! that the interpreter computes: for every instruction, on random inputs.
//!
//! `lift/*.hlo`: small modules by opcode, lifted alone with inputs that are
//! the same on all devices or not. First lines may say
//! `// range: LEAF LO HI`, `// mesh: a=2,b=2`, `// unlifted: NAMES` (must not
//! lift) and `// opaque: NAMES` (lift, but cannot be evaluated).
//! `corpus/*.gz`: pairs of modules, lifted as for a proof.
//!
//! With arguments that are folders, checks `base.hlo.txt` and
//! `dist.body.hlo.txt` in them instead.

use flate2::read::GzDecoder;
use libtest_mimic::{Arguments, Failed, Trial};
use scalify_claim::{Claim, Placement, parse_spec_file};
use scalify_interp::{Accumulate, Data, RunOptions, Tensor, Value};
use scalify_ir::{ArrayShape, InstrId, Module, Shape};
use scalify_prove::devices::Devices;
use scalify_prove::lift::Lifted;
use scalify_prove::probe::{self, How, Leaf};
use scalify_prove::tv::Tv;
use scalify_terms::eval::{Evaluator, Inputs};
use scalify_terms::{Rules, Store};
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// SplitMix64.
#[derive(Clone)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// Random elements of an array; integers in `range`.
    fn values(&mut self, a: &ArrayShape, range: Option<(i64, i64)>) -> Vec<f64> {
        let n = a.dims.iter().product::<i64>().max(0);
        (0..n)
            .map(|_| {
                if a.dtype.is_float() || a.dtype.is_complex() {
                    return (self.below(129) as f64 - 64.0) / 32.0;
                }
                let (mut lo, mut hi) = range.unwrap_or((-5, 11));
                if let Some((a, b)) = a.dtype.int_range() {
                    lo = lo.max(i64::try_from(a).unwrap_or(i64::MIN));
                    hi = hi.min(i64::try_from(b).unwrap_or(i64::MAX));
                }
                (lo + self.below((hi - lo + 1) as u64) as i64) as f64
            })
            .collect()
    }
}

/// An array of the shape, floats kept in `f64`.
fn tensor(a: &ArrayShape, v: &[f64]) -> Option<Tensor> {
    if a.dtype.is_float() {
        return Tensor::new(a.dtype, a.dims.iter().copied(), Data::F64(Arc::new(v.to_vec())));
    }
    let w = a.dtype.literal_bytes();
    let bytes: Vec<u8> =
        v.iter().flat_map(|&x| (x as i64).to_le_bytes().into_iter().take(w)).collect();
    Tensor::from_bytes(a, &bytes)
}

/// What the first lines of a file say.
#[derive(Default)]
struct Says {
    range: HashMap<usize, (i64, i64)>,
    mesh: Vec<(String, i64)>,
    unlifted: Vec<String>,
    opaque: Vec<String>,
}

fn says(text: &str) -> Says {
    let mut s = Says::default();
    for l in text.lines().take_while(|l| l.starts_with("//")) {
        let Some((k, v)) = l[2..].split_once(':') else { continue };
        let words = || v.split([' ', ',']).filter(|w| !w.is_empty());
        match k.trim() {
            "range" => {
                let n: Vec<i64> = words().map(|w| w.parse().expect("a number")).collect();
                s.range.insert(n[0] as usize, (n[1], n[2]));
            }
            "mesh" => {
                for w in words() {
                    let (a, n) = w.split_once('=').expect("axis=size");
                    s.mesh.push((a.to_owned(), n.parse().expect("a size")));
                }
            }
            "unlifted" => s.unlifted.extend(words().map(str::to_owned)),
            "opaque" => s.opaque.extend(words().map(str::to_owned)),
            _ => {}
        }
    }
    s
}

/// Values per device and instruction, in order of execution.
type Traces = Vec<HashMap<InstrId, Vec<Value>>>;

fn execute(
    m: &Module,
    replicas: usize,
    partitions: usize,
    inputs: &[Vec<Value>],
) -> Result<Traces, String> {
    let mut traces: Traces = vec![HashMap::new(); replicas * partitions];
    let mut see = |d: usize, i: InstrId, v: &Value| {
        traces[d].entry(i).or_default().push(v.clone());
    };
    let o = RunOptions {
        replicas,
        partitions,
        step_limit: Some(3_000_000),
        accumulate: Accumulate::F64,
        trace: Some(&mut see),
        ..RunOptions::default()
    };
    scalify_interp::run(m, None, inputs, o).map_err(|e| format!("interpreter: {e}"))?;
    Ok(traces)
}

/// Counts of a comparison.
#[derive(Default, Debug, Clone, Copy)]
struct Counts {
    /// Array-valued records.
    records: usize,
    /// Of these, evaluated at a point at least.
    evaluated: usize,
    /// Of these, not lifted.
    failed: usize,
    /// Points compared.
    points: usize,
}

impl Counts {
    fn add(&mut self, o: Counts) {
        self.records += o.records;
        self.evaluated += o.evaluated;
        self.failed += o.failed;
        self.points += o.points;
    }
}

/// Most steps of the evaluator per module.
const STEPS: u64 = 60_000_000;

/// Compares the records with the traces; `None` devices: the first device.
#[allow(clippy::too_many_arguments)]
fn compare(
    m: &Module,
    store: &Store,
    dev: Option<&Devices>,
    recs: &[Lifted],
    inputs: &Inputs,
    traces: &Traces,
    rng: &mut Rng,
    not_evaluated: &mut Vec<String>,
) -> Result<Counts, String> {
    let mut ev = Evaluator::new(store, inputs);
    ev.max_steps = STEPS;
    let mut count: HashMap<InstrId, usize> = HashMap::new();
    for r in recs {
        *count.entry(r.instr).or_default() += 1;
    }
    let mut seen: HashMap<InstrId, usize> = HashMap::new();
    let mut c = Counts::default();
    for r in recs {
        let k = seen.entry(r.instr).or_default();
        let at = *k;
        *k += 1;
        let per: Vec<&Tv> = match (&r.tv, &r.each) {
            (Some(t), _) => vec![t],
            (None, Some(ts)) => ts.iter().collect(),
            _ => continue,
        };
        let t = per[0];
        let name = m.name_of(r.instr);
        let of = |d: usize| traces[d].get(&r.instr).filter(|v| v.len() == count[&r.instr]);
        let Some(Value::Tensor(_)) = of(0).and_then(|v| v.get(at)) else { continue };
        c.records += 1;
        if r.failed.is_some() {
            c.failed += 1;
            continue;
        }
        let a = m.array(r.instr).ok_or_else(|| format!("{name} is no array"))?;
        let sizes: Vec<i64> =
            t.dims.iter().map(|d| d.iter().map(|&x| store.lins.size(x)).product::<i64>()).collect();
        if sizes != a.dims.to_vec() {
            return Err(format!("%{name} has sizes {sizes:?}, its shape is {a}"));
        }
        let n: i64 = sizes.iter().product();
        if n == 0 {
            c.evaluated += 1;
            continue;
        }
        let mut any = false;
        let want: Vec<Vec<f64>> = (0..traces.len())
            .map(|d| match of(d).and_then(|v| v.get(at)) {
                Some(Value::Tensor(t)) => t.to_f64(),
                _ => Vec::new(),
            })
            .collect();
        let tries = 6.max(4 * traces.len());
        for p in 0..tries {
            let d = if p < traces.len() { p } else { rng.below(traces.len() as u64) as usize };
            let flat = match p / traces.len() {
                0 if p % 2 == 0 => 0,
                0 => n - 1,
                _ => rng.below(n as u64) as i64,
            };
            let Some(&want) = want[d].get(flat as usize) else { continue };
            if !want.is_finite() {
                continue;
            }
            let t = per[d % per.len()];
            let (mut axes, mut point) = (Vec::new(), Vec::new());
            if let (Some(dev), None) = (dev, &r.each) {
                let mut rest = d as i64;
                for &(x, n) in dev.digits.iter().rev() {
                    axes.push(x);
                    point.push(rest % n);
                    rest /= n;
                }
            }
            let mut rest = flat;
            for (k, ds) in t.dims.iter().enumerate().rev() {
                let mut i = rest % sizes[k];
                rest /= sizes[k];
                for &x in ds.iter().rev() {
                    let n = store.lins.size(x);
                    if axes.contains(&x) {
                        return Err(format!("%{name}: an axis stands in two dimensions"));
                    }
                    axes.push(x);
                    point.push(i % n);
                    i /= n;
                }
            }
            let Some(got) = ev.value(&t.val, &axes, &point) else { continue };
            any = true;
            c.points += 1;
            // Laws of the reals let a constant stand for the fraction or root
            // that it is the rounded value of.
            let (a, b) = if store.rules.reals { (2e-6, 1e-5) } else { (1e-9, 1e-9) };
            let tol = a + b * want.abs();
            if (got - want).abs() > tol {
                return Err(format!(
                    "%{name} ({}) on device {d} at {flat}: the term is {got}, the value {want}\n{a}\n{}",
                    m.instr(r.instr).opcode,
                    store.show(&t.val, 5)
                ));
            }
        }
        if any {
            c.evaluated += 1;
        } else {
            not_evaluated.push(name.to_owned());
        }
    }
    Ok(c)
}

fn constants(inputs: &mut Inputs, leaves: &[Leaf]) {
    for (id, d, bytes) in leaves {
        let w = d.literal_bytes();
        let n = (bytes.len() / w.max(1)) as i64;
        let a = ArrayShape { dtype: *d, dims: [n].into_iter().collect(), dynamic: 0, layout: None };
        if let Some(t) = Tensor::from_bytes(&a, bytes) {
            inputs.insert(*id, t.to_f64());
        }
    }
}

fn leaves(m: &Module) -> Vec<Shape> {
    m.entry_comp().params.iter().flat_map(|&p| m.shape(p).leaves()).cloned().collect()
}

/// Arguments from leaves.
fn arguments(m: &Module, leaves: Vec<Value>) -> Vec<Value> {
    fn build(s: &Shape, it: &mut impl Iterator<Item = Value>) -> Value {
        match s {
            Shape::Tuple(t) => Value::Tuple(t.iter().map(|x| build(x, it)).collect()),
            _ => it.next().unwrap_or(Value::Token),
        }
    }
    let mut it = leaves.into_iter();
    m.entry_comp().params.iter().map(|&p| build(m.shape(p), &mut it)).collect()
}

const ALL: Rules = Rules { reals: true, finite: true };
const REALS: Rules = Rules { reals: true, finite: false };
const EXACT: Rules = Rules { reals: false, finite: false };

/// Lifts a module alone and compares. `varies`: bit k says whether leaf k
/// differs between devices (leaves beyond 63: bit 63).
#[allow(clippy::too_many_arguments)]
fn alone(
    m: &Module,
    s: &Says,
    (replicas, partitions): (usize, usize),
    replica_mode: bool,
    varies: u64,
    rules: Rules,
    (prime, each): (bool, bool),
    not_evaluated: &mut Vec<String>,
    failed: &mut Vec<String>,
) -> Result<Counts, String> {
    let devices = replicas * partitions;
    let bit = |k: usize| varies >> k.min(63) & 1 == 1;
    let mut rng = Rng(varies ^ 77);
    let mut inputs = Inputs::default();
    let mut per: Vec<Vec<Value>> = vec![Vec::new(); devices];
    for (k, shape) in leaves(m).iter().enumerate() {
        let Shape::Array(a) = shape else {
            per.iter_mut().for_each(|p| p.push(Value::Token));
            continue;
        };
        let range = s.range.get(&k).copied();
        let mut all = Vec::new();
        let first = rng.values(a, range);
        for (d, p) in per.iter_mut().enumerate() {
            let v = if d == 0 || !bit(k) { first.clone() } else { rng.values(a, range) };
            if d == 0 || bit(k) {
                all.extend_from_slice(&v);
            }
            p.push(Value::Tensor(tensor(a, &v).ok_or_else(|| format!("no {a}"))?));
        }
        inputs.insert(k as u32, all);
    }
    let args: Vec<Vec<Value>> = per.into_iter().map(|p| arguments(m, p)).collect();
    let traces = execute(m, replicas, partitions, &args)?;
    let l = probe::lift(
        m,
        &How {
            count: devices as i64,
            mesh: &s.mesh,
            prime,
            replica_mode,
            each,
            rules,
            varies: &bit,
            range: &|k| s.range.get(&k).copied(),
        },
    );
    constants(&mut inputs, &l.constants);
    for r in &l.records {
        if let Some(f) = &r.failed {
            failed.push(format!("{}: {f}", m.name_of(r.instr)));
        }
    }
    compare(m, &l.store, Some(&l.devices), &l.records, &inputs, &traces, &mut rng, not_evaluated)
}

/// Blocks of a global array, by the placement.
fn block(a: &ArrayShape, v: &[f64], q: Option<&Placement>, d: usize) -> Vec<f64> {
    let Some(q) = q else { return v.to_vec() };
    let local: Vec<i64> = a.dims.iter().zip(&q.dims).map(|(n, p)| p.local(*n)).collect();
    let n: i64 = local.iter().product();
    (0..n)
        .map(|flat| {
            let (mut rest, mut at, mut stride) = (flat, 0, 1);
            for k in (0..local.len()).rev() {
                // Position in what the device holds, section by section.
                let mut held = rest % local[k];
                let mut i = 0;
                for (start, len) in q.dims[k].spans(a.dims[k], d as u32) {
                    if held < len {
                        i = start + held;
                        break;
                    }
                    held -= len;
                }
                rest /= local[k];
                at += stride * i;
                stride *= a.dims[k];
            }
            v[at as usize]
        })
        .collect()
}

/// Lifts a pair as for a proof and compares both sides.
fn pair(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    rules: Rules,
    (prime, each): (bool, bool),
    missing: &mut Vec<String>,
) -> Result<Counts, String> {
    let p = probe::pair(base, dist, claim, rules, prime, each);
    let mut rng = Rng(5);
    let mut inputs = Inputs::default();
    let mut base_args = Vec::new();
    let bs = leaves(base);
    for (k, shape) in bs.iter().enumerate() {
        let Shape::Array(a) = shape else {
            base_args.push(Value::Token);
            continue;
        };
        let names: Vec<&str> = p.problem.base_inputs[k].names.iter().map(String::as_str).collect();
        let range =
            claim.assume.iter().rev().find(|x| x.selector.matches(k, &names)).map(|x| (x.lo, x.hi));
        let v = rng.values(a, range);
        base_args.push(Value::Tensor(tensor(a, &v).ok_or_else(|| format!("no {a}"))?));
        inputs.insert(k as u32, v);
    }
    let n = p.problem.devices as usize;
    let mut dist_args: Vec<Vec<Value>> = vec![Vec::new(); n];
    for q in &p.problem.pairs {
        let Some(b) = q.base else { return Err(format!("input {} is not paired", q.dist)) };
        for (d, args) in dist_args.iter_mut().enumerate() {
            let (Shape::Array(g), Shape::Array(l)) = (&bs[b], &p.problem.dist_inputs[q.dist].shape)
            else {
                args.push(Value::Token);
                continue;
            };
            let v = block(g, &inputs[&(b as u32)], q.placement.as_ref(), d);
            args.push(Value::Tensor(tensor(l, &v).ok_or_else(|| format!("no {l}"))?));
        }
    }
    let (r, q) = if p.problem.replica_mode { (n, 1) } else { (1, n) };
    let bt = execute(base, 1, 1, &[arguments(base, base_args)])?;
    let args: Vec<Vec<Value>> = dist_args.into_iter().map(|v| arguments(dist, v)).collect();
    let dt = execute(dist, r, q, &args)?;
    constants(&mut inputs, &p.constants);
    let mut c = compare(base, &p.store, None, &p.base, &inputs, &bt, &mut rng, missing)
        .map_err(|e| format!("baseline: {e}"))?;
    let d = compare(dist, &p.store, Some(&p.devices), &p.dist, &inputs, &dt, &mut rng, missing)
        .map_err(|e| format!("distributed: {e}"))?;
    c.add(d);
    Ok(c)
}

fn read(path: &Path) -> Result<String, String> {
    let err = |e: std::io::Error| format!("{}: {e}", path.display());
    if path.extension().is_some_and(|e| e == "gz") {
        let mut s = String::new();
        let f = std::fs::File::open(path).map_err(err)?;
        GzDecoder::new(f).read_to_string(&mut s).map_err(err)?;
        return Ok(s);
    }
    std::fs::read_to_string(path).map_err(err)
}

fn parse(path: &Path) -> Result<(Module, String), String> {
    let text = read(path)?;
    let m = scalify_hlo::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((m, text))
}

fn on_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let h = std::thread::Builder::new().stack_size(1 << 30).spawn_scoped(s, f);
        h.expect("a thread").join().unwrap_or_else(|p| std::panic::resume_unwind(p))
    })
}

/// One of the small modules under all laws and kinds of inputs.
fn small(path: &Path) -> Result<(), Failed> {
    let (m, text) = parse(path)?;
    let s = says(&text);
    let replicas = m.header.replica_count.max(1) as usize;
    let partitions = m.header.num_partitions.unwrap_or(1).max(1) as usize;
    let devices = replicas * partitions;
    let kinds: &[u64] = if devices == 1 { &[0] } else { &[u64::MAX, 0, 0x5555_5555_5555_5555] };
    for &varies in kinds {
        for rules in [ALL, REALS, EXACT] {
            for (prime, each) in [(false, false), (true, false), (false, true)] {
                if (prime || each) && devices == 1 {
                    continue;
                }
                let how = format!("varies {varies:x}, {rules:?}, prime {prime}, each {each}");
                let (mut missing, mut failed) = (Vec::new(), Vec::new());
                let d = (replicas, partitions);
                alone(&m, &s, d, false, varies, rules, (prime, each), &mut missing, &mut failed)
                    .map_err(|e| format!("{how}: {e}"))?;
                // Groups need prime digits unless a mesh gives finer ones.
                if rules == EXACT || (devices > 1 && !prime) {
                    continue;
                }
                failed.retain(|f| {
                    f.split_once(':').is_none_or(|x| !s.unlifted.iter().any(|u| u == x.0))
                });
                if !failed.is_empty() {
                    return Err(format!("{how}: not lifted: {failed:?}").into());
                }
                missing.retain(|x| !s.opaque.contains(x));
                if !missing.is_empty() {
                    return Err(format!("{how}: not evaluated: {missing:?}").into());
                }
            }
        }
    }
    Ok(())
}

/// A pair in the folder, as for a proof, and each module alone.
fn folder(dir: &Path, claim: &Claim, base: &Path, dist: &Path) -> Result<Counts, String> {
    let (b, d) = (parse(base)?.0, parse(dist)?.0);
    let mut missing = Vec::new();
    let mut c = Counts::default();
    for rules in [ALL, REALS, EXACT] {
        for how in [(false, false), (true, false), (false, true)] {
            let at = |e: String| format!("{}: {rules:?}, prime, each {how:?}: {e}", dir.display());
            c.add(pair(&b, &d, claim, rules, how, &mut missing).map_err(at)?);
        }
    }
    let n = claim.mesh.as_ref().map_or(1, |m| m.devices()) as usize;
    let s = Says {
        mesh: claim.mesh.as_ref().map(|m| m.axes.clone()).unwrap_or_default(),
        range: claim
            .assume
            .iter()
            .filter_map(|a| match a.selector {
                scalify_claim::Selector::Index(k) => Some((k, (a.lo, a.hi))),
                scalify_claim::Selector::Name(_) => None,
            })
            .collect(),
        ..Says::default()
    };
    for varies in [u64::MAX, 0] {
        let mut failed = Vec::new();
        // Ranges are of the baseline's inputs: without them here.
        let t = Says { range: HashMap::new(), mesh: s.mesh.clone(), ..Says::default() };
        c.add(
            alone(&d, &t, (1, n), false, varies, ALL, (false, false), &mut missing, &mut failed)
                .map_err(|e| format!("{}: alone, varies {varies:x}: {e}", dir.display()))?,
        );
    }
    Ok(c)
}

/// The claim of a corpus folder's `case.json`, by its converted TOML.
fn main() {
    let folders: Vec<PathBuf> = std::env::args()
        .skip(1)
        .map(PathBuf::from)
        .filter(|p| p.join("base.hlo.txt").exists())
        .collect();
    if !folders.is_empty() {
        on_stack(|| sweep(&folders));
        return;
    }
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let list = |d: &str, ends: &str| -> Vec<PathBuf> {
        let Ok(dir) = std::fs::read_dir(root.join(d)) else { return Vec::new() };
        let mut v: Vec<PathBuf> = dir
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.to_string_lossy().ends_with(ends))
            .collect();
        v.sort();
        v
    };
    let stem = |p: &Path| {
        p.file_name().map_or(String::new(), |n| {
            n.to_string_lossy().split('.').next().unwrap_or("").to_owned()
        })
    };
    let mut trials: Vec<Trial> = list("lift", ".hlo")
        .into_iter()
        .map(|p| Trial::test(format!("small::{}", stem(&p)), move || on_stack(|| small(&p))))
        .collect();
    for toml in list("corpus", ".toml") {
        let name = stem(&toml);
        trials.push(Trial::test(format!("corpus::{name}"), move || {
            on_stack(|| {
                let claim = parse_spec_file(&read(&toml)?, None).map_err(|e| e.to_string())?;
                let dir = toml.parent().unwrap_or(Path::new("."));
                let f = |k: &str| dir.join(format!("{name}.{k}.hlo.gz"));
                let c = folder(dir, &claim, &f("base"), &f("dist"))?;
                // The terms of nearly all instructions can be evaluated.
                let seen = c.evaluated as f64 / (c.records - c.failed).max(1) as f64;
                if seen < 0.85 || c.points < 1000 {
                    return Err(format!("only {:.0} % evaluated: {c:?}", 100.0 * seen).into());
                }
                Ok(())
            })
        }));
    }
    libtest_mimic::run(&args, trials).exit();
}

/// For development: checks folders, prints a line each.
#[allow(clippy::print_stdout)]
fn sweep(folders: &[PathBuf]) {
    for d in folders {
        let r = read(&d.join("claim.toml"))
            .and_then(|t| parse_spec_file(&t, None).map_err(|e| e.to_string()))
            .and_then(|c| folder(d, &c, &d.join("base.hlo.txt"), &d.join("dist.body.hlo.txt")));
        match r {
            Ok(c) => println!("ok {} {c:?}", d.display()),
            Err(e) => println!("BAD {e}"),
        }
    }
}
