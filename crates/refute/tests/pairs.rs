//! Small pairs whose verdict follows from mathematics: what is refuted, what
//! must not be, which repair is found.

use scalify_claim::{Claim, Mesh};
use scalify_interp::Accumulate;
use scalify_ir::{Module, Opcode};
use scalify_prove::outcome::Verdict;
use scalify_refute::evaluate::{self, RunLimits};
use scalify_refute::{Decision, Options, Plan, Search, decide, refute};
use std::time::Duration;

fn parse(text: &str) -> Module {
    let m = scalify_hlo::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let bad = scalify_ir::validate(&m, &scalify_ir::ValidateOptions::default());
    assert!(bad.is_empty(), "{bad:?}\n{text}");
    m
}

/// A module with reducers `add` and `max` on f32 and one entry.
fn module(devices: i64, body: &str) -> Module {
    let parts = if devices > 1 { format!(", num_partitions={devices}") } else { String::new() };
    parse(&format!(
        "HloModule m{parts}\n
add {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}}\n
max {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] maximum(a, b)\n}}\n
ENTRY main {{\n{body}\n}}\n"
    ))
}

fn claim(mesh: &str, inputs: &[&str], outputs: &[&str], assume: &[&str]) -> Claim {
    let mut c = Claim { mesh: Mesh::parse(mesh).ok(), ..Claim::default() };
    for i in inputs {
        c.add_input(i).unwrap();
    }
    for o in outputs {
        c.add_output(o).unwrap();
    }
    for a in assume {
        c.add_assume(a).unwrap();
    }
    c
}

fn decision(base: &Module, dist: &Module, c: &Claim) -> Decision {
    decide(base, dist, c, &scalify_prove::Options::default(), &Plan::default())
}

const MATMUL: &str = " x = f32[6,8] parameter(0)
 w = f32[8,10] parameter(1)
 ROOT d = f32[6,10] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}";

const PARTIAL: &str = " x = f32[6,4] parameter(0)
 w = f32[4,10] parameter(1)
 d = f32[6,10] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}";

fn row_parallel() -> Claim {
    claim("tp=2", &["x=P(None, 'tp')", "w=P('tp', None)"], &[], &[])
}

/// Row-parallel product with `end` after the partial product `d`.
fn row(end: &str) -> Module {
    module(2, &format!("{PARTIAL}\n{end}"))
}

const GROUPS: &str = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true";

#[test]
fn right_is_not_refuted() {
    let base = module(1, MATMUL);
    let dist = row(&format!(" ROOT r = f32[6,10] all-reduce(d), {GROUPS}, to_apply=add"));
    let s = refute(&base, &dist, &row_parallel(), Options::default());
    let Search::Agree(e) = s else { panic!("{s:?}") };
    assert_eq!(e.samples, Options::default().samples);
    assert!(e.worst < 1.0 && e.precision.is_none(), "{e:?}");
}

#[test]
fn the_counterexample_is_one() {
    let base = module(1, MATMUL);
    let dist = row(" ROOT r = f32[6,10] copy(d)");
    let d = decision(&base, &dist, &row_parallel());
    assert_eq!(d.outcome.verdict, Verdict::Refuted);
    let c = d.counterexample.expect("inputs");
    let x = &c.outputs[0];
    // The value the baseline should have, by hand.
    let (a, b) = (c.inputs.values[0][0].to_f64(), c.inputs.values[1][0].to_f64());
    let at = |lo: usize, hi: usize| -> f64 {
        let (i, j) = (x.index[0] as usize, x.index[1] as usize);
        (lo..hi).map(|k| a[i * 8 + k] * b[k * 10 + j]).sum()
    };
    let half = x.device as usize * 4;
    assert!((x.expected - at(0, 8)).abs() < 1e-9);
    assert!((x.actual - at(half, half + 4)).abs() < 1e-9);
    assert!((x.expected - x.actual).abs() > x.bound);
}

/// The first proved repair: its kind and the instruction.
fn repaired(base: &Module, dist: &Module, c: &Claim) -> (&'static str, String, String) {
    let d = decision(base, dist, c);
    assert_eq!(d.outcome.verdict, Verdict::Refuted, "{:?}", d.unable);
    let r = d.repairs.first().unwrap_or_else(|| panic!("no repair of {} tried", d.edits_tried));
    assert!(r.grade.is_some(), "only evaluated: {}", r.text);
    // The repaired program is proved by a run of its own.
    let o = scalify_prove::verify(base, &r.module, c, &scalify_prove::Options::default());
    assert_eq!(o.verdict, Verdict::Proved);
    assert_eq!(d.outcome.frontier[0].instr, r.at);
    (r.code, dist.name_of(r.at).to_owned(), r.text.clone())
}

#[test]
fn repairs_of_collectives() {
    let base = module(1, MATMUL);
    let c = row_parallel();
    let (code, at, text) = repaired(&base, &row(" ROOT r = f32[6,10] copy(d)"), &c);
    assert_eq!((code, at.as_str()), ("missing-all-reduce", "d"), "{text}");
    assert!(text.starts_with("all-reduce over tp after %d"), "{text}");

    let twice = row(&format!(
        " s = f32[6,10] all-reduce(d), {GROUPS}, to_apply=add
 ROOT r = f32[6,10] all-reduce(s), {GROUPS}, to_apply=add"
    ));
    let (code, at, _) = repaired(&base, &twice, &c);
    assert_eq!(code, "duplicate-collective");
    assert!(at == "s" || at == "r");

    let maximum = row(&format!(" ROOT r = f32[6,10] all-reduce(d), {GROUPS}, to_apply=max"));
    assert_eq!(repaired(&base, &maximum, &c).0, "wrong-reducer");

    let mean = row(&format!(
        " s = f32[6,10] all-reduce(d), {GROUPS}, to_apply=add
 h = f32[] constant(0.5)
 b = f32[6,10] broadcast(h), dimensions={{}}
 ROOT r = f32[6,10] multiply(s, b)"
    ));
    let (code, _, text) = repaired(&base, &mean, &c);
    let codes = ["wrong-constant", "wrong-scale", "extra-operation"];
    assert!(codes.contains(&code), "{code}: {text}");

    let alone = row(
        " ROOT r = f32[6,10] all-reduce(d), channel_id=1, replica_groups={{0},{1}}, use_global_device_ids=true, to_apply=add",
    );
    assert_eq!(repaired(&base, &alone, &c).0, "wrong-group");
}

#[test]
fn repairs_of_layouts_and_offsets() {
    // Blocks gathered along the wrong dimension, then reshaped.
    let base = module(1, " x = f32[4,6] parameter(0)\n ROOT r = f32[4,6] negate(x)");
    let dist = module(
        2,
        &format!(
            " x = f32[4,3] parameter(0)
 n = f32[4,3] negate(x)
 g = f32[8,3] all-gather(n), {GROUPS}, dimensions={{0}}
 ROOT r = f32[4,6] reshape(g)"
        ),
    );
    let (code, at, _) = repaired(&base, &dist, &claim("tp=2", &["x=P(None, 'tp')"], &[], &[]));
    assert!(["wrong-dimension", "wrong-layout"].contains(&code), "{code}");
    // The gather is at fault.
    assert_eq!(at, "g");

    // Positions that start at 0 on every shard.
    let base = module(
        1,
        " x = f32[8] parameter(0)
 i = s32[8] iota(), iota_dimension=0
 f = f32[8] convert(i)
 ROOT r = f32[8] multiply(x, f)",
    );
    let dist = module(
        2,
        " x = f32[4] parameter(0)
 i = s32[4] iota(), iota_dimension=0
 f = f32[4] convert(i)
 ROOT r = f32[4] multiply(x, f)",
    );
    let c = claim("sp=2", &["x=P('sp')"], &["#0=P('sp')"], &[]);
    let (code, _, text) = repaired(&base, &dist, &c);
    assert_eq!(code, "wrong-offset", "{text}");
    assert!(text.contains("4 times the coordinate on sp"), "{text}");

    // A slice that starts where the baseline does not cut.
    let base = module(
        1,
        " x = f32[20] parameter(0)
 a = f32[8] slice(x), slice={[4:12]}
 b = f32[8] slice(x), slice={[12:20]}
 ROOT r = f32[16] concatenate(a, b), dimensions={0}",
    );
    let dist = module(
        1,
        " x = f32[20] parameter(0)
 ROOT s = f32[16] slice(x), slice={[0:16]}",
    );
    let (code, at, text) = repaired(&base, &dist, &claim("d=1", &[], &[], &[]));
    assert_eq!((code, &at[..]), ("wrong-offset", "s"), "{text}");
}

#[test]
fn neighbours_exchanged_are_one_repair() {
    // x[i-1] + 2 x[i+1], where each device asks the wrong neighbour for both.
    let base = module(
        1,
        " x = f32[8] parameter(0)
 z = f32[] constant(0)
 p = f32[10] pad(x, z), padding=1_1
 a = f32[8] slice(p), slice={[0:8]}
 b = f32[8] slice(p), slice={[2:10]}
 c = f32[8] add(b, b)
 ROOT r = f32[8] add(a, c)",
    );
    let dist = |up: &str, down: &str| {
        module(
            4,
            &format!(
                " x = f32[2] parameter(0)
 l = f32[1] slice(x), slice={{[1:2]}}
 u = f32[1] collective-permute(l), channel_id=1, source_target_pairs={{{up}}}
 f = f32[1] slice(x), slice={{[0:1]}}
 d = f32[1] collective-permute(f), channel_id=2, source_target_pairs={{{down}}}
 p = f32[4] concatenate(u, x, d), dimensions={{0}}
 a = f32[2] slice(p), slice={{[0:2]}}
 b = f32[2] slice(p), slice={{[2:4]}}
 c = f32[2] add(b, b)
 ROOT r = f32[2] add(a, c)"
            ),
        )
    };
    let (up, down) = ("{0,1},{1,2},{2,3}", "{1,0},{2,1},{3,2}");
    let c = claim("sp=4", &["x=P('sp')"], &["#0=P('sp')"], &[]);
    assert_eq!(decision(&base, &dist(up, down), &c).outcome.verdict, Verdict::Proved);
    let (code, _, text) = repaired(&base, &dist(down, up), &c);
    assert_eq!(code, "wrong-permute", "{text}");
    assert!(text.contains("reversed"), "{text}");
}

#[test]
fn precision_is_its_own_finding() {
    let base = module(1, MATMUL);
    let dist = parse(&format!(
        "HloModule m, num_partitions=2\n
add {{\n a = bf16[] parameter(0)\n b = bf16[] parameter(1)\n ROOT r = bf16[] add(a, b)\n}}\n
ENTRY main {{\n{PARTIAL}\n c = bf16[6,10] convert(d)
 s = bf16[6,10] all-reduce(c), {GROUPS}, to_apply=add
 ROOT r = f32[6,10] convert(s)\n}}\n"
    ));
    let d = decision(&base, &dist, &row_parallel());
    assert_eq!(d.outcome.verdict, Verdict::Unknown);
    let p = d.evidence.and_then(|e| e.precision).expect("a coarser sum");
    assert!(p.dist > 8.0 * p.base && p.dist > 1e-3 * p.scale, "{p:?}");
}

#[test]
fn a_constant_rounded_otherwise_is_no_difference() {
    let base = module(
        1,
        " x = f32[64] parameter(0)
 c = f32[] constant(10)
 b = f32[64] broadcast(c), dimensions={}
 ROOT r = f32[64] divide(x, b)",
    );
    let dist = module(
        2,
        " x = f32[64] parameter(0)
 c = f32[] constant(0.1)
 b = f32[64] broadcast(c), dimensions={}
 ROOT r = f32[64] multiply(x, b)",
    );
    let s = refute(&base, &dist, &claim("d=2", &[], &[], &[]), Options::default());
    assert!(matches!(s, Search::Agree(_)), "{s:?}");
}

/// Which of two equal values comes first is no difference that lasts.
#[test]
fn ties_are_no_difference() {
    let sign = |dir: &str| {
        module(
            1,
            &format!(
                " x = f32[16] parameter(0)
 n = f32[16] subtract(x, x)
 z = f32[] constant(0)
 b = f32[16] broadcast(z), dimensions={{}}
 p = pred[16] compare(n, b), direction={dir}
 y = f32[16] add(x, x)
 ROOT r = f32[16] select(p, y, x)"
            ),
        )
    };
    // x - x >= 0 always, x - x > 0 never: differs everywhere, and lasts.
    let c = claim("d=1", &[], &[], &[]);
    assert!(matches!(refute(&sign("GE"), &sign("GT"), &c, Options::default()), Search::Differ(_)));
    // The same comparison of a value that rounding moves: no finding.
    let cut = |sum: &str| {
        module(
            1,
            &format!(
                " x = f32[16] parameter(0)
 t = f32[] constant(0.1)
 b = f32[16] broadcast(t), dimensions={{}}
 y = f32[16] multiply(x, b)
 z = f32[16] {sum}
 q = f32[16] subtract(z, z)
 p = pred[16] compare(z, y), direction=EQ
 ROOT r = f32[16] select(p, x, q)"
            ),
        )
    };
    let a = cut("multiply(b, x)");
    let b = module(
        1,
        " x = f32[16] parameter(0)
 t = f32[] constant(0.1)
 b = f32[16] broadcast(t), dimensions={}
 y = f32[16] multiply(x, b)
 two = f32[] constant(3)
 c = f32[16] broadcast(two), dimensions={}
 u = f32[16] multiply(y, c)
 z = f32[16] divide(u, c)
 q = f32[16] subtract(z, z)
 p = pred[16] compare(z, y), direction=EQ
 ROOT r = f32[16] select(p, x, q)",
    );
    assert!(!matches!(refute(&a, &b, &c, Options::default()), Search::Differ(_)));
}

#[test]
fn undeclared_layouts_are_not_guessed_against_the_program() {
    // Square weights: split on rows or on columns, nothing says which.
    let base = module(1, " x = f32[4,4] parameter(0)\n ROOT r = f32[4,4] negate(x)");
    let rows = module(
        2,
        &format!(
            " x = f32[4,2] parameter(0)
 g = f32[4,4] all-gather(x), {GROUPS}, dimensions={{1}}
 ROOT r = f32[4,4] negate(g)"
        ),
    );
    let c = claim("tp=2", &[], &[], &[]);
    assert!(!matches!(refute(&base, &rows, &c, Options::default()), Search::Differ(_)));
    // An output in either half fits one of the admissible layouts.
    let half = module(2, " x = f32[4,2] parameter(0)\n ROOT r = f32[4,2] negate(x)");
    assert!(!matches!(refute(&base, &half, &c, Options::default()), Search::Differ(_)));
}

#[test]
fn ids_out_of_range_are_no_counterexample() {
    // A gather clamps, a one-hot product gives zero: equal for valid ids.
    let base = module(
        1,
        " t = f32[5,3] parameter(0)
 i = s32[4,1] parameter(1)
 ROOT r = f32[4,3] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    );
    let dist = module(
        1,
        " t = f32[5,3] parameter(0)
 i = s32[4,1] parameter(1)
 v = s32[4] reshape(i)
 b = s32[4,5] broadcast(v), dimensions={0}
 k = s32[4,5] iota(), iota_dimension=1
 p = pred[4,5] compare(b, k), direction=EQ
 h = f32[4,5] convert(p)
 ROOT r = f32[4,3] dot(h, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    );
    let s = refute(&base, &dist, &claim("d=1", &[], &[], &[]), Options::default());
    assert!(matches!(s, Search::Agree(_)), "{s:?}");
    // Declared to reach beyond: then it is one.
    let c = claim("d=1", &[], &[], &["i in [0, 9]"]);
    assert!(matches!(refute(&base, &dist, &c, Options::default()), Search::Differ(_)));
}

#[test]
fn what_cannot_be_replayed_is_not_evaluated() {
    let m = parse(
        "HloModule m\n\nENTRY main {\n a = f32[] constant(0)\n b = f32[] constant(1)\n ROOT r = f32[8] rng(a, b), distribution=rng_uniform\n}\n",
    );
    let s = refute(&m, &m, &claim("d=1", &[], &[], &[]), Options::default());
    assert!(matches!(s, Search::Unable(_)), "{s:?}");
}

/// A feed-forward block of real dimensions, `end` after the partial product.
fn block(devices: i64, ffn: i64, end: &str) -> Module {
    module(
        devices,
        &format!(
            " x = f32[4096,16384] parameter(0)
 a = f32[16384,{ffn}] parameter(1)
 b = f32[{ffn},16384] parameter(2)
 h = f32[4096,{ffn}] dot(x, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 t = f32[4096,{ffn}] tanh(h)
 d = f32[4096,16384] dot(t, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{end}"
        ),
    )
}

#[test]
fn real_dimensions_are_refuted_at_reduced_sizes() {
    let base = block(1, 53248, " ROOT r = f32[4096,16384] add(d, x)");
    let c = claim("tp=2", &["a=P(None, 'tp')", "b=P('tp', None)"], &[], &[]);
    let wrong = block(2, 26624, " ROOT r = f32[4096,16384] add(d, x)");
    let d = decision(&base, &wrong, &c);
    assert_eq!(d.outcome.verdict, Verdict::Refuted, "{:?} {:?}", d.unable, d.outcome.notes);
    let r = d.reduced.expect("reduced pair");
    let size = |m: &Module| m.shape(m.entry_comp().root).to_string();
    assert_ne!(size(&r.base), size(&base));
    assert_eq!(d.repairs[0].code, "missing-all-reduce");
    assert!(d.repairs[0].grade.is_some());
    // The right program: proved, and at reduced sizes they agree.
    let right = block(
        2,
        26624,
        &format!(
            " s = f32[4096,16384] all-reduce(d), {GROUPS}, to_apply=add
 ROOT r = f32[4096,16384] add(s, x)"
        ),
    );
    assert_eq!(decision(&base, &right, &c).outcome.verdict, Verdict::Proved);
    let p = scalify_prove::problem::setup(&base, &right, &c);
    let r = scalify_refute::shrink::shrink(&base, &right, &p).expect("smaller");
    let s = refute(&r.base, &r.dist, &c, Options::default());
    assert!(matches!(s, Search::Agree(_)), "{s:?}");
}

/// Softmax may be shifted by anything that is finite; a sum over a row with
/// masked entries of -1e30 takes every exponential out of range.
#[test]
fn an_assumption_that_no_input_meets_proves_nothing() {
    let softmax = |f: &str, start: &str| {
        module(
            1,
            &format!(
                " x = f32[4,8] parameter(0)
 i = s32[4,8] iota(), iota_dimension=1
 k = s32[] constant(5)
 kb = s32[4,8] broadcast(k), dimensions={{}}
 p = pred[4,8] compare(i, kb), direction=LT
 m = f32[] constant(-1e30)
 mb = f32[4,8] broadcast(m), dimensions={{}}
 y = f32[4,8] select(p, x, mb)
 s = f32[] constant({start})
 t = f32[4] reduce(y, s), dimensions={{1}}, to_apply={f}
 tb = f32[4,8] broadcast(t), dimensions={{0}}
 d = f32[4,8] subtract(y, tb)
 e = f32[4,8] exponential(d)
 z = f32[] constant(0)
 n = f32[4] reduce(e, z), dimensions={{1}}, to_apply=add
 nb = f32[4,8] broadcast(n), dimensions={{0}}
 ROOT r = f32[4,8] divide(e, nb)"
            ),
        )
    };
    let c = claim("d=1", &[], &[], &[]);
    let d = decision(&softmax("max", "-inf"), &softmax("add", "0"), &c);
    assert_eq!(d.outcome.verdict, Verdict::Refuted);
    assert!(!d.counterexample.expect("inputs").outputs[0].actual.is_finite());
    // Without a refuter it proves nothing either.
    let none = Plan { refute: false, ..Plan::default() };
    let o = scalify_prove::Options::default();
    let d = decide(&softmax("max", "-inf"), &softmax("add", "0"), &c, &o, &none);
    assert_eq!(d.outcome.verdict, Verdict::Unknown);
    assert!(d.counterexample.is_none() && d.outcome.grade.is_none());
    assert!(d.outcome.outputs.iter().all(|o| o.verdict == Verdict::Unknown));
    assert!(d.outcome.notes.iter().any(|n| n.contains("do not meet")));
    let right = softmax("max", "-inf");
    let d = decide(&right, &right, &c, &o, &none);
    assert_eq!(d.outcome.verdict, Verdict::Proved);
    // Shifted by another maximum: proved, and it stays.
    let d = decision(&softmax("max", "-inf"), &softmax("max", "-1e30"), &c);
    assert_ne!(d.outcome.verdict, Verdict::Refuted);
}

/// A causal softmax of `f32[2,2,2]` scores, shifted by their maximum over
/// `over`.
fn causal_softmax(over: i64) -> Module {
    module(
        1,
        &format!(
            " x = f32[2,2,2] parameter(0)
 q = s32[2,2] iota(), iota_dimension=0
 k = s32[2,2] iota(), iota_dimension=1
 keep = pred[2,2] compare(q, k), direction=GE
 keeps = pred[2,2,2] broadcast(keep), dimensions={{1,2}}
 low = f32[] constant(-1e30)
 lows = f32[2,2,2] broadcast(low), dimensions={{}}
 s = f32[2,2,2] select(keeps, x, lows)
 none = f32[] constant(-inf)
 m = f32[2,2] reduce(s, none), dimensions={{{over}}}, to_apply=max
 ms = f32[2,2,2] broadcast(m), dimensions={{0,1}}
 d = f32[2,2,2] subtract(s, ms)
 e = f32[2,2,2] exponential(d)
 zero = f32[] constant(0)
 t = f32[2,2] reduce(e, zero), dimensions={{2}}, to_apply=add
 ts = f32[2,2,2] broadcast(t), dimensions={{0,1}}
 ROOT p = f32[2,2,2] divide(e, ts)"
        ),
    )
}

#[test]
fn nan_on_every_input_proves_nothing() {
    // Over the heads the maximum of a masked column is -1e30: the shift by it
    // gives NaN on every input.
    let (right, wrong) = (causal_softmax(2), causal_softmax(0));
    let c = claim("tp=1", &[], &[], &[]);
    for (base, dist) in [(&wrong, &right), (&right, &wrong)] {
        let d = decision(base, dist, &c);
        assert_ne!(d.outcome.verdict, Verdict::Proved, "{:?}", d.outcome.assumptions);
        assert!(d.outcome.outputs.iter().all(|o| o.verdict != Verdict::Proved));
        let none = Plan { refute: false, ..Plan::default() };
        let d = decide(base, dist, &c, &scalify_prove::Options::default(), &none);
        assert_eq!(d.outcome.verdict, Verdict::Unknown);
    }
    // A number from the distributed program is no counterexample to NaN.
    assert_eq!(decision(&wrong, &right, &c).outcome.verdict, Verdict::Unknown);
    assert_eq!(decision(&right, &wrong, &c).outcome.verdict, Verdict::Refuted);
    assert_eq!(decision(&right, &right, &c).outcome.verdict, Verdict::Proved);
}

/// Too big to evaluate as a whole: the output that a wrong slice reaches is
/// evaluated alone, at full size, and the slice is named.
#[test]
fn one_output_of_a_big_program() {
    let program = |start: i64| {
        let end = start + 4;
        module(
            1,
            &format!(
                " x = f32[3,8] parameter(0)
 w = f32[8,12] parameter(1)
 y = f32[30000,20000] parameter(2)
 d = f32[3,12] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 q = f32[3,4] slice(d), slice={{[0:3], [0:4]}}
 k = f32[3,4] slice(d), slice={{[0:3], [{start}:{end}]}}
 v = f32[3,4] slice(d), slice={{[0:3], [8:12]}}
 s = f32[3,4] multiply(q, k)
 t = f32[3,4] add(s, v)
 e = f32[30000,20000] exponential(y)
 ROOT r = (f32[30000,20000], f32[3,4]) tuple(e, t)"
            ),
        )
    };
    let (base, wrong) = (program(4), program(0));
    let c = claim("d=1", &[], &[], &[]);
    let d = decision(&base, &wrong, &c);
    assert_eq!(d.outcome.verdict, Verdict::Refuted, "{:?} {:?}", d.unable, d.outcome.notes);
    let r = d.reduced.expect("one output");
    assert_eq!(r.output, Some(1));
    let x = d.counterexample.expect("inputs");
    assert_eq!(x.inputs.values[0][0].dims[..], [3, 8]);
    assert_eq!(x.outputs.iter().map(|o| o.output).collect::<Vec<_>>(), [1]);
    assert_eq!(d.repairs[0].code, "wrong-offset");
    assert!(d.repairs[0].grade.is_some());
    assert_eq!(wrong.name_of(d.repairs[0].at), "k");
    // The same inputs, in the whole programs, by hand: what the edit changes.
    let q = d.reduced_problem.expect("its pairing");
    assert_eq!(q.base_inputs[2].shape.to_string(), "f32[1,1]");
}

/// A stack of `layers` feed-forward blocks of real dimensions that gives the
/// sum after each; the one `without` has no all-reduce. With `called`, the
/// stack is a computation that the entry calls.
fn stack(devices: i64, layers: usize, without: Option<usize>, called: bool) -> Module {
    let ffn = 53248 / devices;
    let x = "f32[4096,16384]";
    let (mut params, mut body) = (format!(" x0 = {x} parameter(0)\n"), String::new());
    for k in 0..layers {
        let (p, q) = (2 * k + 1, 2 * k + 2);
        params += &format!(
            " a{k} = f32[16384,{ffn}] parameter({p})\n b{k} = f32[{ffn},16384] parameter({q})\n"
        );
        let n = k + 1;
        body += &format!(
            " h{k} = f32[4096,{ffn}] dot(x{k}, a{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 t{k} = f32[4096,{ffn}] tanh(h{k})
 d{k} = {x} dot(t{k}, b{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        );
        let sum = if devices > 1 && without != Some(k) {
            body += &format!(
                " s{k} = {x} all-reduce(d{k}), channel_id={n}, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=add\n"
            );
            "s"
        } else {
            "d"
        };
        body += &format!(" x{n} = {x} add({sum}{k}, x{k})\n");
    }
    let outs: Vec<String> = (1..=layers).map(|k| format!("x{k}")).collect();
    let tuple = format!("({})", vec![x; layers].join(", "));
    let root = format!(" ROOT r = {tuple} tuple({})", outs.join(", "));
    if !called {
        return module(devices, &format!("{params}{body}{root}"));
    }
    let inner = format!("{params}{body}{root}");
    let names: Vec<String> = std::iter::once("x0".to_owned())
        .chain((0..layers).flat_map(|k| [format!("a{k}"), format!("b{k}")]))
        .collect();
    let outer: String = params.replace(" = ", "_in = ");
    let args: Vec<String> = names.iter().map(|n| format!("{n}_in")).collect();
    let gets: String =
        (0..layers).map(|k| format!(" y{k} = {x} get-tuple-element(c), index={k}\n")).collect();
    let ys: Vec<String> = (0..layers).map(|k| format!("y{k}")).collect();
    let parts = if devices > 1 { format!(", num_partitions={devices}") } else { String::new() };
    parse(&format!(
        "HloModule m{parts}\n
add {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}}\n
layers {{\n{inner}\n}}\n
ENTRY main {{\n{outer} c = {tuple} call({}), to_apply=layers\n{gets} ROOT o = {tuple} tuple({})\n}}\n",
        args.join(", "),
        ys.join(", ")
    ))
}

#[test]
fn a_deep_stack_is_refuted_from_the_fault_on() {
    let layers = 6;
    let inputs: Vec<String> = (0..layers)
        .flat_map(|k| {
            let (a, b) = (2 * k + 1, 2 * k + 2);
            [format!("#{a}=P(None, 'tp')"), format!("#{b}=P('tp', None)")]
        })
        .collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let c = claim("tp=4", &inputs, &[], &[]);
    for called in [false, true] {
        let base = stack(1, layers, None, false);
        let right = decision(&base, &stack(4, layers, None, called), &c);
        assert_eq!(right.outcome.verdict, Verdict::Proved, "{:?}", right.outcome.notes);
        let wrong = stack(4, layers, Some(3), called);
        let d = decision(&base, &wrong, &c);
        assert_eq!(d.outcome.verdict, Verdict::Refuted, "{:?} {:?}", d.unable, d.outcome.notes);
        // The first output after the fault, alone.
        let r = d.reduced.expect("reduced pair");
        assert_eq!((r.output, r.smaller), (Some(3), true));
        assert_eq!(d.repairs[0].code, "missing-all-reduce");
        assert!(d.repairs[0].grade.is_some());
        assert_eq!(wrong.name_of(d.repairs[0].at), "d3");
        let x = d.counterexample.expect("inputs");
        // The whole of the smaller programs, nothing taken from the baseline,
        // has the same values on these inputs.
        let q = d.reduced_problem.expect("its pairing");
        let limits = RunLimits { memory: 1 << 30, time: Duration::from_secs(60) };
        let want = evaluate::base(&r.base, &q, &x.inputs, Accumulate::F64, limits).unwrap();
        let got =
            evaluate::dist(&r.dist, &q, &x.placements, &x.inputs, Accumulate::F64, limits).unwrap();
        let at = |t: &scalify_interp::Tensor, index: &[i64]| {
            let k = t.dims.iter().zip(index).fold(0, |k, (n, i)| k * n + i);
            t.to_f64()[k as usize]
        };
        let o = &x.outputs[0];
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs());
        assert!(close(at(&want[0][3], &o.index), o.expected));
        assert!(close(at(&got[o.device as usize][3], &o.local), o.actual));
        assert!((o.expected - o.actual).abs() > o.bound);
    }
}

/// From some thousands of instructions on, a wrong pair is refuted by a first
/// look, which leaves out what lies far behind the fault; outputs before the
/// fault are proved all the same, and no others.
#[test]
fn a_very_deep_stack_is_refuted_by_a_first_look() {
    let (layers, fault) = (1150, 6);
    let inputs: Vec<String> = (0..layers)
        .flat_map(|k| {
            let (a, b) = (2 * k + 1, 2 * k + 2);
            [format!("#{a}=P(None, 'tp')"), format!("#{b}=P('tp', None)")]
        })
        .collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let c = claim("tp=4", &inputs, &[], &[]);
    let base = stack(1, layers, None, false);
    let wrong = stack(4, layers, Some(fault), false);
    assert!(base.instrs.len() + wrong.instrs.len() > 10_000);
    let d = decision(&base, &wrong, &c);
    assert_eq!(d.outcome.verdict, Verdict::Refuted, "{:?} {:?}", d.unable, d.outcome.notes);
    assert_eq!(d.repairs[0].code, "missing-all-reduce");
    assert!(d.repairs[0].grade.is_some());
    assert_eq!(wrong.name_of(d.repairs[0].at), format!("d{fault}"));
    let first = d.outcome.frontier.first().expect("a finding");
    assert_eq!(first.instr, d.repairs[0].at);
    for (k, o) in d.outcome.outputs.iter().enumerate() {
        let want = match k {
            k if k < fault => Verdict::Proved,
            k if k == fault => Verdict::Refuted,
            _ => Verdict::Unknown,
        };
        assert_eq!(o.verdict, want, "output {k}: {:?}", o.reason);
    }
    // The repaired program is proved from the start too.
    let again = scalify_prove::verify(&base, &d.repairs[0].module, &c, &Default::default());
    assert_eq!(again.verdict, Verdict::Proved);
}

#[test]
fn calls_in_line_compute_the_same() {
    let called = stack(4, 2, None, true);
    let flat = scalify_refute::flat::flat(&called).expect("a call");
    let bad = scalify_ir::validate(&flat, &scalify_ir::ValidateOptions::default());
    assert!(bad.is_empty(), "{bad:?}");
    let ops = |m: &Module| m.entry_comp().instrs.iter().any(|&x| m.instr(x).opcode == Opcode::Call);
    assert!(ops(&called) && !ops(&flat));
    // Computations that are called twice stay calls, and nothing is to be done.
    let twice = parse(
        "HloModule m\n\nf {\n a = f32[2] parameter(0)\n ROOT r = f32[2] tanh(a)\n}\n\nENTRY main {\n x = f32[2] parameter(0)\n b = f32[2] call(x), to_apply=f\n ROOT c = f32[2] call(b), to_apply=f\n}\n",
    );
    assert!(scalify_refute::flat::flat(&twice).is_none());
}
