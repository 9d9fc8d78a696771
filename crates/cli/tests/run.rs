//! `run`, `verify --witness` and `replay` from outside. Expected values are
//! worked out by hand.

mod common;

use common::{code, err, out, scalify};
use scalify_ir::DType;
use scalify_tensors::{TensorRef, read_archive, write_npz};
use std::path::{Path, PathBuf};

const BASE: &str = "examples/llama_layer/base.hlo.txt";
const SHARD_MAP: &str = "examples/llama_layer/shard_map.hlo.txt";
const GSPMD: &str = "examples/llama_layer/gspmd.hlo.txt";
const WRONG: &str = "examples/llama_layer/shard_map_wrong.hlo.txt";

struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("scalify-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Temp(dir)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
    /// An npz of `f32` arrays.
    fn npz(&self, name: &str, arrays: &[(&str, &[i64], &[f32])]) -> String {
        let bytes: Vec<Vec<u8>> =
            arrays.iter().map(|a| a.2.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        let refs = arrays
            .iter()
            .zip(&bytes)
            .map(|(a, bytes)| (a.0, TensorRef { dtype: DType::F32, dims: a.1, bytes }));
        write_npz(self.0.join(name), refs).unwrap();
        self.path(name)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Name, type, sizes and values of everything in a file.
fn read(path: &str) -> Vec<(String, DType, Vec<i64>, Vec<f64>)> {
    let all = read_archive(path).unwrap();
    let value = |t: DType, c: &[u8]| match t {
        DType::F32 => f64::from(f32::from_le_bytes(c.try_into().unwrap())),
        DType::F64 => f64::from_le_bytes(c.try_into().unwrap()),
        DType::U32 => f64::from(u32::from_le_bytes(c.try_into().unwrap())),
        DType::S32 => f64::from(i32::from_le_bytes(c.try_into().unwrap())),
        _ => panic!("{t}"),
    };
    all.into_iter()
        .map(|(n, t)| {
            let bytes = t.bytes().unwrap().into_owned();
            let v = bytes.chunks(t.dtype().literal_bytes()).map(|c| value(t.dtype(), c)).collect();
            (n, t.dtype(), t.dims().to_vec(), v)
        })
        .collect()
}

const DOT: &str = "HloModule m

ENTRY main {
  a = f32[2,3] parameter(0)
  b = f32[3] parameter(1)
  ROOT y = f32[2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
";

/// Every device adds its number to its block, then all add up.
const SPMD: &str = "HloModule m, num_partitions=4

plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[1] parameter(0)
  me = u32[] partition-id()
  id = f32[] convert(me)
  ids = f32[1] broadcast(id), dimensions={}
  mine = f32[1] add(x, ids)
  sum = f32[1] all-reduce(mine), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=plus
  ROOT r = (f32[1], f32[1]) tuple(mine, sum)
}
";

#[test]
fn inputs_by_name_and_by_position() {
    let t = Temp::new("names");
    let m = t.file("m.hlo", DOT);
    let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 10.0, 100.0]);
    for (i, names) in [["a", "b"], ["#0", "#1"], ["arr_0", "arr_1"]].iter().enumerate() {
        let x = t.npz(&format!("x{i}.npz"), &[(names[1], &[3], &b), (names[0], &[2, 3], &a)]);
        let y = t.path("y.npz");
        let o = scalify(&["run", &m, "--inputs", &x, "--outputs", &y]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        assert_eq!(err(&o), "");
        let want = vec![321.0, 654.0];
        assert_eq!(read(&y), [("out_0".to_owned(), DType::F32, vec![2], want)]);
        let text = out(&o);
        for word in ["1 device", "#0 %y", "f32[2]", "[321, 654]", "487.5"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn devices_take_blocks_and_blocks_are_joined() {
    let t = Temp::new("blocks");
    let m = t.file("m.hlo", SPMD);
    let x = t.npz("x.npz", &[("x", &[4], &[10.0, 20.0, 30.0, 40.0])]);
    let y = t.path("y.npz");
    let common = ["run", &m, "--inputs", &x, "--mesh", "d=4", "--in", "x=P('d')", "--outputs", &y];
    let o = scalify(&common);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let each = [10.0, 21.0, 32.0, 43.0].map(|v| vec![v]);
    let mut want: Vec<_> = (each.iter().enumerate())
        .map(|(d, v)| (format!("out_0@{d}"), DType::F32, vec![1], v.clone()))
        .collect();
    want.push(("out_1".into(), DType::F32, vec![1], vec![106.0]));
    assert_eq!(read(&y), want);
    let mut args = common.to_vec();
    args.extend(["--out", "#0=P('d')"]);
    assert_eq!(code(&scalify(&args)), 0);
    assert_eq!(read(&y)[0], ("out_0".into(), DType::F32, vec![4], each.concat()));
    // The same from per-device values.
    let names = ["x@0", "x@1", "x@2", "x@3"];
    let v = [[10.0f32], [20.0], [30.0], [40.0]];
    let arrays: Vec<(&str, &[i64], &[f32])> =
        names.iter().zip(&v).map(|(n, v)| (*n, &[1i64][..], &v[..])).collect();
    let x = t.npz("each.npz", &arrays);
    let o = scalify(&["run", &m, "--inputs", &x, "--outputs", &y]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(read(&y), want);
}

#[test]
fn floats_in_f64_are_not_rounded() {
    let t = Temp::new("f64");
    let m = t.file(
        "m.hlo",
        "HloModule m\n\nENTRY main {\n  x = f32[] parameter(0)\n  one = f32[] constant(1)\n  \
         s = f32[] add(one, x)\n  ROOT y = f32[] subtract(s, one)\n}\n",
    );
    let x = t.npz("x.npz", &[("x", &[], &[2f32.powi(-30)])]);
    let y = t.path("y.npz");
    for (flag, dtype, want) in
        [(None, DType::F32, 0.0), (Some("--f64"), DType::F64, 2f64.powi(-30))]
    {
        let mut args = vec!["run", &m, "--inputs", &x, "--outputs", &y];
        args.extend(flag);
        let o = scalify(&args);
        assert_eq!(code(&o), 0, "{}", err(&o));
        assert_eq!(read(&y), [("out_0".to_owned(), dtype, vec![], vec![want])]);
    }
}

#[test]
fn traces_hold_every_value() {
    let t = Temp::new("trace");
    let m = t.file("m.hlo", SPMD);
    let x = t.npz("x.npz", &[("x", &[4], &[10.0, 20.0, 30.0, 40.0])]);
    let trace = |file: &str| {
        let path = t.path(file);
        let o = scalify(&[
            "run", &m, "--inputs", &x, "--mesh", "d=4", "--in", "x=P('d')", "--trace", &path,
        ]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        path
    };
    let all = read(&trace("t.npz"));
    let get = |n: &str| all.iter().find(|a| a.0 == n).map(|a| a.3.clone());
    assert_eq!(get("me@3"), Some(vec![3.0]));
    assert_eq!(get("mine@2"), Some(vec![32.0]));
    assert_eq!(get("sum@1"), Some(vec![106.0]));
    assert_eq!(get("r[0]@2"), Some(vec![32.0]));
    assert_eq!(get("sum@4"), None);
    let rows: Vec<serde_json::Value> = std::fs::read_to_string(trace("t.jsonl"))
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let row = rows.iter().find(|r| r["instruction"] == "mine" && r["device"] == 2).unwrap();
    assert_eq!((&row["opcode"], &row["max"]), (&"add".into(), &32.0.into()));
    assert_eq!(row["shape"], "f32[1]");
}

#[test]
fn infinities_and_nans_are_counted() {
    let t = Temp::new("odd");
    let m = t.file(
        "m.hlo",
        "HloModule m\n\nENTRY main {\n  x = f32[5] parameter(0)\n  ROOT y = f32[5] log(x)\n}\n",
    );
    // log 0 = -inf, log -1 and log -2 are NaN, log 1 = 0, log inf = inf.
    let x = t.npz("x.npz", &[("x", &[5], &[0.0, -1.0, 1.0, f32::INFINITY, -2.0])]);
    let path = t.path("t.jsonl");
    let o = scalify(&["run", &m, "--inputs", &x, "--trace", &path]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let line = out(&o).lines().last().unwrap_or_default().to_owned();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[..8], ["#0", "%y", "f32[5]", "-inf", "inf", "0", "2", "2"], "{line}");
    let text = std::fs::read_to_string(path).unwrap();
    let row: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&row["min"], &row["max"]), (&"-Infinity".into(), &"Infinity".into()));
    assert_eq!((&row["nan"], &row["inf"]), (&2.into(), &2.into()));
}

/// The three programs are one function: equal inputs give equal outputs up to
/// the order of f32 sums.
#[test]
fn drawn_inputs_are_those_of_the_seed() {
    let t = Temp::new("random");
    let run = |m: &str, seed: &str| {
        let y = t.path("y.npz");
        let o = scalify(&["run", m, "--random", seed, "--outputs", &y]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        read(&y).remove(0).3
    };
    let base = run(BASE, "7");
    assert_eq!(base, run(BASE, "7"));
    assert_ne!(base, run(BASE, "8"));
    let size = (base.iter().map(|x| x * x).sum::<f64>() / base.len() as f64).sqrt();
    assert!(size > 0.1);
    for dist in [SHARD_MAP, GSPMD] {
        let got = run(dist, "7");
        assert_eq!(got.len(), base.len());
        let worst = base.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-4 * size, "{dist}: {worst} of {size}");
    }
}

#[test]
fn errors_say_what_was_expected() {
    let t = Temp::new("errors");
    let (m, spmd) = (t.file("m.hlo", DOT), t.file("spmd.hlo", SPMD));
    let good = t.npz("good.npz", &[("a", &[2, 3], &[0.0; 6]), ("b", &[3], &[0.0; 3])]);
    let shape = t.npz("shape.npz", &[("a", &[3, 2], &[0.0; 6]), ("b", &[3], &[0.0; 3])]);
    let some = t.npz("some.npz", &[("a", &[2, 3], &[0.0; 6]), ("c", &[3], &[0.0; 3])]);
    let x5 = t.npz("x5.npz", &[("x", &[5], &[0.0; 5])]);
    let two = t.npz("two.npz", &[("x@0", &[1], &[0.0]), ("x@1", &[1], &[0.0])]);
    let ints = t.path("ints.npz");
    let bytes = [0u8; 24];
    let one = TensorRef { dtype: DType::S32, dims: &[2, 3], bytes: &bytes };
    write_npz(&ints, [("a", one)]).unwrap();
    let not = t.file("x.bin", "neither");
    let in_x = "x=P('d')";
    let cases: &[(&[&str], &str)] = &[
        (&["run", &m], "expected --inputs FILE or --random SEED; the inputs are\n  #0 a  f32[2,3]"),
        (
            &["run", &m, "--inputs", &some],
            "no value for input #1 b (f32[3]): expected an array named",
        ),
        (&["run", &m, "--inputs", &shape], "input #0 a is f32[3,2], expected f32[2,3]"),
        (&["run", &m, "--inputs", &ints], "input #0 a is s32[2,3], expected f32[2,3]"),
        (&["run", &m, "--inputs", &not], "x.bin"),
        (&["run", &m, "--inputs", "/does/not/exist.npz"], "/does/not/exist.npz"),
        (&["run", &m, "--inputs", &good, "--outputs", "/does/not/exist/y.npz"], "/does/not/exist"),
        (
            &["run", &m, "--inputs", &good, "--trace", "t.csv"],
            "expected .npz, .safetensors or .jsonl",
        ),
        (&["run", &m, "--inputs", &good, "--in", "q=P()"], "no such input; the inputs are"),
        (&["run", &m, "--inputs", &good, "--out", "#4=P()"], "the program has 1 output(s)"),
        (
            &["run", &spmd, "--inputs", &x5, "--mesh", "d=4", "--in", in_x],
            "is f32[5], expected f32[4]",
        ),
        (&["run", &spmd, "--inputs", &two], "`x@0` but no `x@2`; expected one per device"),
        (
            &["run", &spmd, "--random", "1", "--mesh", "d=3"],
            "3 devices, the distributed module says 4",
        ),
        (&["run", &spmd, "--random", "1", "--mesh", "d=4", "--devices", "2"], "has 4 devices"),
        (&["run", &spmd, "--random", "1", "--memory-limit", "1"], "memory limit reached"),
        (&["replay", "/does/not/exist"], "cannot read /does/not/exist/witness.json: "),
    ];
    for (args, expected) in cases {
        let o = scalify(args);
        assert_eq!(code(&o), 2, "{args:?}: {}{}", out(&o), err(&o));
        assert!(err(&o).contains(expected), "{args:?}: {}", err(&o));
        assert_eq!(out(&o), "", "{args:?}");
    }
    // What is not needed is said, and no error.
    let o = scalify(&["run", &m, "--inputs", &some, "--inputs", &good]);
    assert_eq!(code(&o), 0);
    assert!(err(&o).contains("some.npz: no input is named `c`"), "{}", err(&o));
}

#[test]
fn the_reason_of_the_system_is_said_once() {
    for args in [["verify", "/no/such", BASE], ["replay", "/no/such", "--color=never"]] {
        let e = err(&scalify(&args));
        assert_eq!(e.matches("No such file").count(), 1, "{e}");
    }
}

#[test]
fn witnesses_are_saved_and_replayed() {
    let t = Temp::new("witness");
    let dir = t.path("w");
    let o = scalify(&["verify", BASE, WRONG, "--no-repair", "--witness", &dir]);
    assert_eq!(code(&o), 1, "{}{}", out(&o), err(&o));
    assert!(out(&o).starts_with("REFUTED"), "{}", out(&o));
    assert!(out(&o).contains(&format!("scalify replay {dir}")), "{}", out(&o));
    let mut names: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let want =
        ["base.hlo.txt", "dist.hlo.txt", "inputs.npz", "replay.py", "spec.json", "witness.json"];
    assert_eq!(names, want);
    // Nothing else is left beside it.
    assert_eq!(std::fs::read_dir(&t.0).unwrap().count(), 1);
    let o = scalify(&["replay", &dir]);
    assert_eq!(code(&o), 1, "{}", err(&o));
    assert!(out(&o).starts_with("DIFFERENT"), "{}", out(&o));
    assert!(!out(&o).contains("not those that the witness records"), "{}", out(&o));
    // A witness is replaced; anything else is not.
    assert_eq!(code(&scalify(&["verify", BASE, WRONG, "-q", "--witness", &dir])), 1);
    std::fs::create_dir(t.path("other")).unwrap();
    t.file("other/keep", "x");
    let o = scalify(&["verify", BASE, WRONG, "--witness", &t.path("other")]);
    assert_eq!((code(&o), out(&o)), (2, String::new()));
    assert!(err(&o).contains("exists and is no witness; expected a new folder"), "{}", err(&o));
    assert_eq!(std::fs::read_to_string(t.path("other/keep")).unwrap(), "x");
    // With the right program in its place there is no difference.
    let right = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(SHARD_MAP);
    std::fs::copy(right, Path::new(&dir).join("dist.hlo.txt")).unwrap();
    let o = scalify(&["replay", &dir]);
    assert_eq!(code(&o), 0, "{}{}", out(&o), err(&o));
    assert!(out(&o).starts_with("NO DIFFERENCE"), "{}", out(&o));
    // Damage is an error.
    std::fs::write(Path::new(&dir).join("inputs.npz"), "x").unwrap();
    let o = scalify(&["replay", &dir]);
    assert_eq!((code(&o), out(&o)), (2, String::new()));
}

#[test]
fn proved_and_unrefuted_programs_leave_no_witness() {
    let t = Temp::new("none");
    let dir = t.path("w");
    let o = scalify(&["verify", BASE, SHARD_MAP, "--cross-check", "--witness", &dir]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert!(out(&o).contains("Evaluation agrees on all 8 inputs tried"), "{}", out(&o));
    assert!(!Path::new(&dir).exists());
    let o = scalify(&["verify", BASE, WRONG, "--no-refute"]);
    assert_eq!(code(&o), 3, "{}", out(&o));
    assert!(!out(&o).contains("where they differ"));
    let o = scalify(&["verify", BASE, WRONG, "--samples", "0"]);
    assert_eq!(code(&o), 3, "{}", out(&o));
}
