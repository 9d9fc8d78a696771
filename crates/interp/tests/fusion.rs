//! Instructions that run together give the bits that they give one by one
//! (as they run when traced), with any number of threads.

use scalify_interp::{RunOptions, Tensor, Value, run};
use scalify_ir::Module;
use std::fmt::Write;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// A random program of mostly elementwise instructions over `rows x cols`,
/// vectors and scalars.
fn program(r: &mut Random, rows: usize, cols: usize) -> String {
    let full = format!("[{rows},{cols}]");
    let flat = format!("[{}]", rows * cols);
    let mut s = String::from(
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\nENTRY e {\n",
    );
    // (name, type, dimensions: full, flat, row, scalar)
    let mut values: Vec<(String, &str, u8)> = Vec::new();
    for (k, (t, d)) in [("f32", 0u8), ("f32", 0), ("s32", 0), ("f32", 2), ("f32", 3), ("pred", 3)]
        .iter()
        .enumerate()
    {
        let dims = [&full, &flat, &format!("[{cols}]"), &String::from("[]")][*d as usize].clone();
        let _ = writeln!(s, " p{k} = {t}{dims} parameter({k})");
        values.push((format!("p{k}"), t, *d));
    }
    for k in 0..24 {
        let name = format!("v{k}");
        let dims = |d: u8| {
            [full.clone(), flat.clone(), format!("[{cols}]"), "[]".into()][d as usize].clone()
        };
        let pick = |r: &mut Random, t: &str, d: u8| -> Option<String> {
            let all: Vec<&String> =
                values.iter().filter(|v| v.1 == t && v.2 == d).map(|v| &v.0).collect();
            (!all.is_empty()).then(|| all[r.below(all.len())].clone())
        };
        let d = [0u8, 0, 0, 0, 1, 2, 3][r.below(7)];
        let made = match r.below(14) {
            0..=3 => {
                let op = ["add", "multiply", "subtract", "maximum", "divide"][r.below(5)];
                let t = ["f32", "f32", "s32", "bf16"][r.below(4)];
                pick(r, t, d).zip(pick(r, t, d)).map(|(a, b)| (t, d, format!("{op}({a}, {b})")))
            }
            4..=5 => {
                let op = ["tanh", "exponential", "negate", "sine", "log", "logistic"][r.below(6)];
                let t = ["f32", "f32", "bf16"][r.below(3)];
                pick(r, t, d).map(|a| (t, d, format!("{op}({a})")))
            }
            6 => pick(r, "f32", d)
                .zip(pick(r, "f32", d))
                .map(|(a, b)| ("pred", d, format!("compare({a}, {b}), direction=LT"))),
            7 => {
                let p = if r.below(2) == 0 { pick(r, "pred", d) } else { pick(r, "pred", 3) };
                let ab = pick(r, "f32", d).zip(pick(r, "f32", d));
                p.zip(ab).map(|(p, (a, b))| ("f32", d, format!("select({p}, {a}, {b})")))
            }
            8 => pick(r, "f32", 3)
                .zip(pick(r, "f32", d))
                .map(|(l, a)| ("f32", d, format!("clamp({l}, {a}, {l})"))),
            9 => {
                let (a, b) = [
                    ("f32", "bf16"),
                    ("bf16", "f32"),
                    ("f32", "s32"),
                    ("s32", "f32"),
                    ("pred", "f32"),
                ][r.below(5)];
                pick(r, a, d).map(|x| (b, d, format!("convert({x})")))
            }
            10 => pick(r, "f32", 3).map(|a| ("f32", 0, format!("broadcast({a}), dimensions={{}}"))),
            11 => {
                pick(r, "f32", 2).map(|a| ("f32", 0, format!("broadcast({a}), dimensions={{1}}")))
            }
            12 => {
                let (a, b) = if r.below(2) == 0 { (0, 1) } else { (1, 0) };
                pick(r, "f32", a).map(|x| ("f32", b, format!("reshape({x})")))
            }
            _ => pick(r, "f32", 0).zip(pick(r, "f32", 3)).map(|(a, z)| {
                ("f32", 2, format!("reduce({a}, {z}), dimensions={{0}}, to_apply=add"))
            }),
        };
        if let Some((t, d, text)) = made {
            let _ = writeln!(s, " {name} = {t}{} {text}", dims(d));
            values.push((name, t, d));
        }
    }
    // Some values leave, used ones too.
    let mut out: Vec<(String, &str, u8)> =
        values.iter().filter(|_| r.below(4) == 0).cloned().collect();
    out.extend(values.last().cloned());
    let shape = |v: &(String, &str, u8)| {
        format!(
            "{}{}",
            v.1,
            [full.clone(), flat.clone(), format!("[{cols}]"), "[]".into()][v.2 as usize]
        )
    };
    let shapes: Vec<String> = out.iter().map(shape).collect();
    let names: Vec<&str> = out.iter().map(|v| v.0.as_str()).collect();
    let _ = writeln!(s, " ROOT r = ({}) tuple({})\n}}", shapes.join(", "), names.join(", "));
    s
}

fn inputs(m: &Module, r: &mut Random) -> Vec<Value> {
    let one = |r: &mut Random, p| {
        let a = m.array(p).expect("parameters are arrays");
        let n = a.elements().expect("static") as usize;
        let bytes: Vec<u8> = match a.dtype {
            scalify_ir::DType::F32 => (0..n)
                .flat_map(|_| ((r.below(4000) as f32 - 2000.0) / 300.0).to_le_bytes())
                .collect(),
            scalify_ir::DType::S32 => {
                (0..n).flat_map(|_| (r.below(2000) as i32 - 1000).to_le_bytes()).collect()
            }
            _ => (0..n).map(|_| r.below(2) as u8).collect(),
        };
        Value::Tensor(Tensor::from_bytes(a, &bytes).expect("sizes fit"))
    };
    m.entry_comp().params.iter().map(|&p| one(r, p)).collect()
}

fn bytes(v: &[Value]) -> Vec<Vec<u8>> {
    let flat = |v: &Value| v.as_tuple().map(|t| t.to_vec()).unwrap_or_default();
    let all = v.iter().flat_map(flat);
    all.filter_map(|v| v.as_tensor().map(Tensor::to_bytes)).collect()
}

#[test]
fn together_as_one_by_one() {
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
    let (solo, three) = (pool(1), pool(3));
    for seed in 0..150u64 {
        let mut r = Random(seed * 7919 + 1);
        let (rows, cols) = [(2, 3), (7, 40), (3, 5000), (64, 1100)][seed as usize % 4];
        let text = program(&mut r, rows, cols);
        let m = scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let devices = if seed % 3 == 0 { 2 } else { 1 };
        let args: Vec<Vec<Value>> = (0..devices).map(|_| inputs(&m, &mut r)).collect();
        let options = || RunOptions { partitions: devices, ..Default::default() };
        let mut seen = 0usize;
        let mut trace = |_: usize, _: scalify_ir::InstrId, _: &Value| seen += 1;
        let traced = run(&m, None, &args, RunOptions { trace: Some(&mut trace), ..options() });
        let want = bytes(&traced.unwrap_or_else(|e| panic!("{e}\n{text}")));
        assert_eq!(seen, devices * m.entry_comp().instrs.len(), "the trace sees every instruction");
        for pool in [&solo, &three] {
            let got = pool.install(|| run(&m, None, &args, options()));
            let got = bytes(&got.unwrap_or_else(|e| panic!("{e}\n{text}")));
            assert!(got == want, "seed {seed}\n{text}");
        }
    }
}

#[test]
fn dots_do_not_depend_on_the_number_of_threads() {
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
    let pools = [pool(1), pool(2), pool(3), pool(5)];
    let mut r = Random(3);
    for (m, k, n) in [
        (3, 700, 300),
        (5, 300, 700),
        (1, 3000, 400),
        (400, 3000, 1),
        (2, 600, 900),
        (130, 257, 131),
    ] {
        let text = format!(
            "HloModule m\nENTRY e {{\n a = f32[{m},{k}] parameter(0)\n b = f32[{k},{n}] parameter(1)\n \
             d = f32[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n ROOT t = (f32[{m},{n}]) tuple(d)\n}}\n"
        );
        let module = scalify_hlo::parse(&text).expect("parses");
        let args = inputs(&module, &mut r);
        let results: Vec<Vec<Vec<u8>>> = pools
            .iter()
            .map(|p| {
                let out = p.install(|| {
                    run(&module, None, std::slice::from_ref(&args), RunOptions::default())
                });
                bytes(&out.expect("runs"))
            })
            .collect();
        assert!(results.windows(2).all(|w| w[0] == w[1]), "{m}x{k}x{n}");
    }
}
