//! Traces that jax recorded on CPU (`tests/traces`), and damaged ones.

use scalify_ir::{InstrId, Module};
use scalify_profile::attach::{Attached, Names, attach};
use scalify_profile::compare::{Side, compare};
use scalify_profile::cost::ModuleCost;
use scalify_profile::peaks::Peaks;
use scalify_profile::report::{Bound, Doc, TraceInfo};
use scalify_profile::trace::{self, Trace, TraceError};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(name)
}

struct Case {
    m: Module,
    cost: ModuleCost,
    names: Names,
}

fn case(name: &str) -> Case {
    let m = scalify_load::load(path(&format!("{name}.hlo.txt"))).unwrap().module;
    let cost = ModuleCost::new(&m);
    let names = Names::new(&m, &cost);
    Case { m, cost, names }
}

impl Case {
    fn read(&self, file: &str) -> (Trace, Attached) {
        let t = trace::read(&path(file), &|n| self.names.has(n)).unwrap();
        let a = attach(&self.m, &self.cost, &self.names, &t);
        (t, a)
    }

    fn bytes(&self, name: &str, b: &[u8]) -> Result<Attached, TraceError> {
        let t = trace::from_reader(name, b, &|n| self.names.has(n))?;
        Ok(attach(&self.m, &self.cost, &self.names, &t))
    }
}

fn unpacked(file: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let f = std::fs::File::open(path(file)).unwrap();
    flate2::read::GzDecoder::new(f).read_to_end(&mut out).unwrap();
    out
}

const MODELS: [(&str, &str, f64); 10] = [
    ("mlp", "trace.json", 2.0),
    ("mlp", "perfetto_trace.json", 2.0),
    ("mlp", "xplane.pb", 2.0),
    ("attention", "trace.json", 2.0),
    ("attention", "xplane.pb", 2.0),
    ("attention_bf16", "trace.json", 2.0),
    ("conv", "trace.json", 2.0),
    ("scan", "trace.json", 2.0),
    ("tensor_parallel", "trace.json", 8.0),
    ("tensor_parallel", "xplane.pb", 8.0),
];

#[test]
fn op_time_is_attached() {
    for (name, kind, runs) in MODELS {
        let c = case(name);
        let (_, a) = c.read(&format!("{name}.{kind}.gz"));
        assert!(a.seconds > 1e-5, "{name} {kind}");
        assert!(a.attributed >= 0.95 * a.seconds, "{name} {kind}: {:?}", a.unattributed);
        // As many as `record.py` ran, on each device.
        assert_eq!(a.runs, runs, "{name} {kind}");
    }
}

#[test]
fn formats_of_one_run_agree() {
    for (name, kinds) in [
        ("mlp", &["trace.json", "perfetto_trace.json", "xplane.pb"][..]),
        ("attention", &["trace.json", "xplane.pb"]),
        ("tensor_parallel", &["trace.json", "xplane.pb"]),
    ] {
        let c = case(name);
        let all: Vec<Attached> =
            kinds.iter().map(|k| c.read(&format!("{name}.{k}.gz")).1).collect();
        for a in &all[1..] {
            for (k, (x, y)) in all[0].instrs.iter().zip(&a.instrs).enumerate() {
                assert_eq!(x.count, y.count, "{name} %{}", c.m.name_of(InstrId(k as u32)));
                assert!((x.seconds - y.seconds).abs() <= 1e-9 + 1e-6 * x.seconds);
            }
        }
    }
}

#[test]
fn times_are_those_of_the_events() {
    // Nothing is nested in this trace: sums of durations.
    let c = case("mlp");
    let v: serde_json::Value = serde_json::from_slice(&unpacked("mlp.trace.json.gz")).unwrap();
    let mut want: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for e in v["traceEvents"].as_array().unwrap() {
        let (Some(op), Some("jit_mlp_step")) =
            (e["args"]["hlo_op"].as_str(), e["args"]["hlo_module"].as_str())
        else {
            continue;
        };
        let x = want.entry(op).or_default();
        *x = (x.0 + 1.0, x.1 + e["dur"].as_f64().unwrap() * 1e-6);
    }
    assert!(want.len() > 10);
    let (_, a) = c.read("mlp.trace.json.gz");
    let got: BTreeMap<&str, (f64, f64)> = a
        .instrs
        .iter()
        .enumerate()
        .filter(|(_, x)| x.count > 0.0)
        .map(|(k, x)| (c.m.name_of(InstrId(k as u32)), (x.count, x.seconds)))
        .collect();
    assert_eq!(want.keys().collect::<Vec<_>>(), got.keys().collect::<Vec<_>>());
    for (k, w) in want {
        assert!(w.0 == got[k].0 && (w.1 - got[k].1).abs() < 1e-9, "{k} {w:?} {:?}", got[k]);
    }
}

#[test]
fn a_loop_has_its_own_time_only() {
    let c = case("scan");
    let (_, a) = c.read("scan.trace.json.gz");
    let v: serde_json::Value = serde_json::from_slice(&unpacked("scan.trace.json.gz")).unwrap();
    let whole: f64 = v["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["args"]["hlo_op"].as_str().is_some_and(|o| o.starts_with("while")))
        .map(|e| e["dur"].as_f64().unwrap() * 1e-6)
        .sum();
    let w = c.m.instrs.iter().position(|i| i.opcode == scalify_ir::Opcode::While).unwrap();
    assert!(a.instrs[w].seconds < 0.6 * whole, "{} of {whole}", a.instrs[w].seconds);
    // Six layers, two runs.
    let dot = a.instrs.iter().filter(|x| x.count == 12.0).count();
    assert!(dot >= 3, "{dot}");
    assert!((c.cost.total.flops / c.cost.once.flops - 6.0).abs() < 0.1);
}

fn events(list: &str) -> Vec<u8> {
    format!("{{\"traceEvents\":[{list}]}}").into_bytes()
}

#[test]
fn nesting_overlap_and_pairs() {
    let c = case("kineto");
    // dot.4 holds tanh.9 (3 µs); maximum.7 sticks out of dot.8 by 2 µs.
    let a = c
        .bytes(
            "t",
            &events(
                r#"{"ph":"X","name":"dot.4","pid":1,"tid":1,"ts":0,"dur":10,"args":{"hlo_op":"dot.4"}},
                {"ph":"B","name":"tanh.9","pid":1,"tid":1,"ts":2,"args":{"hlo_op":"tanh.9"}},
                {"ph":"E","pid":1,"tid":1,"ts":5},
                {"ph":"X","name":"x","pid":1,"tid":1,"ts":20,"dur":10,"args":{"hlo_op":"dot.8"}},
                {"ph":"X","name":"x","pid":1,"tid":1,"ts":28,"dur":4,"args":{"hlo_op":"maximum.7"}},
                {"ph":"X","name":"x","pid":1,"tid":2,"ts":28,"dur":4,"args":{"hlo_op":"strange"}}"#,
            ),
        )
        .unwrap();
    let t = |n: &str| {
        let k = (0..c.m.instrs.len()).find(|&k| c.m.name_of(InstrId(k as u32)) == n).unwrap();
        (a.instrs[k].seconds * 1e6).round()
    };
    assert_eq!([t("dot.4"), t("tanh.9"), t("dot.8"), t("maximum.7")], [7.0, 3.0, 8.0, 4.0]);
    assert_eq!(a.unattributed.len(), 1);
    assert_eq!((a.unattributed[0].name.as_str(), a.lines), ("strange", 2));
    assert!((a.attributed / a.seconds - 22.0 / 26.0).abs() < 1e-9);
}

#[test]
fn pytorch_operators_by_order() {
    // `aten::mm` twice: the first event is the first product.
    let c = case("kineto");
    let (t, a) = c.read("kineto.json");
    assert_eq!(t.format.name(), "torch.profiler (kineto)");
    let time = |n: &str| {
        let k = (0..c.m.instrs.len()).find(|&k| c.m.name_of(InstrId(k as u32)) == n).unwrap();
        (a.instrs[k].seconds * 1e6).round()
    };
    // aten::clamp_min is part of aten::relu.
    assert_eq!(
        [time("dot.4"), time("dot.8"), time("maximum.7"), time("tanh.9")],
        [80.0, 90.0, 30.0, 40.0]
    );
    assert!((a.attributed - a.seconds).abs() < 1e-12);
}

#[test]
fn device_lines_and_other_modules() {
    let c = case("kineto");
    // TPU: names of instructions on a line `XLA Ops`; the line of modules
    // repeats them.
    let a = c
        .bytes(
            "t",
            &events(
                r#"{"ph":"M","name":"thread_name","pid":3,"tid":1,"args":{"name":"XLA Modules"}},
                {"ph":"M","name":"thread_name","pid":3,"tid":2,"args":{"name":"XLA Ops"}},
                {"ph":"X","name":"IrToHlo.12(7)","pid":3,"tid":1,"ts":0,"dur":99},
                {"ph":"X","name":"%dot.4 = f32[64,256]{1,0} dot(..)","pid":3,"tid":2,"ts":0,"dur":9},
                {"ph":"X","name":"infeed.99","pid":3,"tid":2,"ts":10,"dur":1},
                {"ph":"X","name":"dot.4","pid":3,"tid":2,"ts":20,"dur":7,"args":{"hlo_module":"jit_g(3)","hlo_op":"dot.4"}},
                {"ph":"X","name":"dot.8","pid":3,"tid":2,"ts":30,"dur":5,"args":{"hlo_module":"IrToHlo.12(7)","hlo_op":"dot.8"}}"#,
            ),
        )
        .unwrap();
    assert!((a.seconds * 1e6 - 15.0).abs() < 1e-6, "{}", a.seconds);
    assert_eq!(a.unattributed[0].name, "infeed.99");
    assert_eq!((a.others.len(), a.others[0].name.as_str()), (1, "jit_g"));
}

#[test]
fn roofline_against_given_peaks() {
    let c = case("kineto");
    let (t, a) = c.read("kineto.json");
    let peaks = Peaks { flops: 1e11, bytes: 1e10, source: "given".into() };
    let d = Doc::new("m", &c.m, &c.cost, &[], Some(("t", &t, &a)), Some(peaks));
    let row = |n: &str| d.instructions.iter().find(|r| r.instruction == n).unwrap();
    // 2 * 64 * 256 * 128 FLOP in 80 µs.
    let dot = row("dot.4");
    assert_eq!(dot.cost.flops, 4_194_304.0);
    assert!((dot.flops_per_second.unwrap() - 4_194_304.0 / 80e-6).abs() < 1.0);
    assert_eq!(dot.bound, Some(Bound::Compute));
    assert!((dot.of_roof.unwrap() - 4_194_304.0 / 80e-6 / 1e11).abs() < 1e-9);
    // 2 * 64 * 128 * 4 bytes in 40 µs.
    let tanh = row("tanh.9");
    assert_eq!(tanh.bound, Some(Bound::Memory));
    assert!((tanh.of_roof.unwrap() - 65_536.0 / 40e-6 / 1e10).abs() < 1e-9);
    let lines: Vec<&str> = d.sources.iter().map(|s| s.key.as_str()).collect();
    assert_eq!(&lines[..4], ["train.py:14", "train.py:12", "train.py:15", "train.py:13"]);
}

#[test]
fn precision_that_was_traded() {
    let c = case("kineto");
    let (t, a) = c.read("kineto.json");
    let faster = String::from_utf8(std::fs::read(path("kineto.json")).unwrap()).unwrap();
    let faster = faster.replace("\"ts\": 230.0, \"dur\": 90.0", "\"ts\": 230.0, \"dur\": 45.0");
    let b = c.bytes("u", faster.as_bytes()).unwrap();
    let diff = serde_json::json!({"schema": "scalify-diff/1",
        "outputs": [{"kind": "precision", "max": 0.01}],
        "operations": [
            {"operation": "while.1[0]/dot.8", "kind": "rounding", "introduced": {"max": 1e-9}},
            {"operation": "while.1[1]/dot.8", "kind": "precision", "introduced": {"max": 0.002}},
            {"operation": "tanh.9", "kind": "rounding", "introduced": {"max": 0.0}}]});
    let side = |attached| Side { module: &c.m, attached };
    let r = compare(&side(&a), &side(&b), TraceInfo::new("u", &t, &b), None, Some(&diff));
    let first = &r.rows[0];
    assert_eq!((first.instruction.as_str(), first.change, first.traded), ("dot.8", "faster", true));
    assert_eq!(first.error, Some(0.002));
    assert_eq!(r.traded, 1);
    assert_eq!(r.rows.iter().filter(|x| x.change == "same").count(), 3);
    assert_eq!(r.outputs, Some(("precision".to_owned(), Some(0.01))));
}

#[test]
fn errors_say_where() {
    let c = case("kineto");
    let fails = |b: &[u8]| c.bytes("f", b).map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        fails(b"{\"traceEvents\":[\n {\"ph\":\"X\",\"ts\":\"noon\"}]}"),
        "f: line 2, column 23: `ts`: \"noon\", expected a number of microseconds"
    );
    assert!(
        fails(b"{\"traceEvents\":[\n {\"ph\":\"X\",\"dur\":1}]}").contains("expected microseconds")
    );
    assert!(fails(b"{\"events\":[]}").contains("no `traceEvents`, expected"));
    let seven = fails(b"{\"traceEvents\":7}");
    assert!(seven.contains("line 1, column 1") && seven.contains("an array of events"), "{seven}");
    assert!(fails(b"").contains("empty file, expected"));
    assert!(fails(b"hello").contains("expected a Chrome trace"));
    assert!(fails(b"{\"traceEvents\":[{\"ph\":").contains("line 1"));
    assert!(fails(&[0x0a, 0x05, 1, 2]).contains("byte 0"));
    // Neither depth nor length takes the stack or all memory.
    let deep = "[".repeat(200_000);
    assert!(fails(format!("{{\"traceEvents\":[{{\"x\":{deep}").as_bytes()).contains("EOF"));
    assert!(
        fails(format!("{{\"traceEvents\":[{{\"args\":{{\"hlo_op\":{deep}").as_bytes())
            .contains("line 1")
    );
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut bomb, b"{\"traceEvents\":[{\"x\":").unwrap();
    let blanks = vec![b' '; 1 << 24];
    for _ in 0..17 {
        std::io::Write::write_all(&mut bomb, &blanks).unwrap();
    }
    let said = fails(&bomb.finish().unwrap());
    assert!(said.contains("no event in 256 MB"), "{said}");
    // An array need not be closed.
    let open =
        br#"[{"ph":"X","name":"dot.4","pid":1,"tid":1,"ts":0,"dur":10,"args":{"hlo_op":"dot.4"}},"#;
    assert!((c.bytes("f", open).unwrap().seconds - 1e-5).abs() < 1e-12);
}

/// A generator of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Damage of all kinds: the reader gives a trace or an error, and times stay
/// finite and not negative.
#[test]
fn damaged_traces_are_errors_or_traces() {
    let c = case("tensor_parallel");
    let mut r = Random(7);
    let good = ["tensor_parallel.trace.json.gz", "tensor_parallel.xplane.pb.gz"].map(unpacked);
    let packed = std::fs::read(path("tensor_parallel.trace.json.gz")).unwrap();
    let kineto = std::fs::read(path("kineto.json")).unwrap();
    let sources = [&good[0], &good[1], &packed, &kineto];
    let (mut read, mut refused) = (0, 0);
    for round in 0..1200 {
        let mut b = sources[round % 4].clone();
        match r.below(5) {
            0 => b.truncate(r.below(b.len())),
            1 => {
                let at = r.below(b.len());
                let end = (at + 1 + r.below(64)).min(b.len());
                b.drain(at..end);
            }
            2 => {
                let (at, from) = (r.below(b.len()), r.below(b.len()));
                let part: Vec<u8> = b[from..(from + 1 + r.below(300)).min(b.len())].to_vec();
                b.splice(at..at, part);
            }
            3 => {
                // A number becomes an extreme one.
                let numeric = |x: u8| x.is_ascii_digit() || x == b'.' || x == b'-';
                let starts: Vec<usize> =
                    (1..b.len()).filter(|&k| numeric(b[k]) && b[k - 1] == b':').collect();
                if let Some(&at) = starts.get(r.below(starts.len())) {
                    let end = (at..b.len()).find(|&k| !numeric(b[k])).unwrap_or(b.len());
                    let extreme =
                        ["1e308", "-1e300", "1e999", "null", "\"x\"", "-0", "[[]]"][r.below(7)];
                    b.splice(at..end, extreme.bytes());
                }
            }
            _ => {
                for _ in 0..1 + r.below(8) {
                    let at = r.below(b.len());
                    b[at] = if r.below(2) == 0 { b'0' + r.below(40) as u8 } else { r.next() as u8 };
                }
            }
        }
        match c.bytes("damaged", &b) {
            Ok(a) => {
                read += 1;
                let sane = |x: f64| x >= 0.0 && !x.is_nan();
                assert!(sane(a.seconds) && sane(a.attributed), "{} {}", a.seconds, a.attributed);
            }
            Err(e) => {
                refused += 1;
                assert!(!e.to_string().is_empty());
            }
        }
    }
    assert!(read > 50 && refused > 200, "{read} {refused}");
    for _ in 0..400 {
        let n = r.below(200);
        let mut b: Vec<u8> = (0..n).map(|_| r.next() as u8).collect();
        // Also behind the first byte of each format.
        if let Some(x) = b.first_mut() {
            *x = [b'{', b'[', 0x0a, 0x1f, *x][r.below(5)];
        }
        let _ = c.bytes("random", &b);
    }
}
