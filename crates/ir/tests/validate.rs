//! Each invariant of `validate` once kept and once broken.

mod common;

use Opcode::*;
use common::*;
use scalify_ir::*;

fn reports(m: &Module) -> Vec<String> {
    validate(m, &ValidateOptions::default()).iter().map(|r| r.to_string()).collect()
}

/// `f(x, y) = add(x, y)`, called twice by the entry.
fn sample() -> Module {
    let mut m = ModuleBuilder::new("m");
    let f = m.reducer(Add, DType::F32).unwrap();
    let mut b = m.computation("main");
    let (x, y) = (b.parameter(DType::F32, []), b.parameter(DType::F32, []));
    let a = b.call(f, &[x, y]).unwrap();
    let c = b.call(f, &[a, y]).unwrap();
    let main = b.finish(c);
    m.finish(main)
}

#[test]
fn sound_modules_pass() {
    assert_eq!(reports(&sample()), [""; 0]);
}

/// Breaks `sample` and expects a report with `part`.
#[track_caller]
fn broken(part: &str, f: impl FnOnce(&mut Module)) {
    let mut m = sample();
    f(&mut m);
    let r = reports(&m);
    assert!(r.iter().any(|r| r.contains(part)), "{part:?} not in {r:#?}");
}

// Instruction ids of `sample`: 0..3 in the reducer, 3..7 in the entry.
fn at(m: &mut Module, i: usize) -> &mut Instruction {
    &mut m.instrs[i]
}

#[test]
fn structure() {
    broken("a computation of the module", |m| m.entry = CompId(9));
    broken("an instruction of the module", |m| m.comps[1].instrs.push(InstrId(99)));
    broken("a shape of the module", |m| at(m, 5).shape = ShapeId(99));
    broken("a string of the module", |m| at(m, 5).name = Symbol(999));
    broken("is listed again", |m| m.comps[1].instrs.push(InstrId(3)));
    broken("is in no computation", |m| assert!(m.comps[1].instrs.pop().is_some()));
    broken("occurs again", |m| at(m, 6).name = at(m, 5).name);
    broken("stands before its user", |m| at(m, 5).operands[0] = InstrId(6));
    broken("stands before its user", |m| at(m, 5).operands[0] = InstrId(5));
    broken("stands before its user", |m| at(m, 5).operands[0] = InstrId(0));
    broken("stands before its user", |m| at(m, 5).operands[0] = InstrId(77));
    broken("stands before its caller", |m| at(m, 5).calls[0] = CompId(1));
    broken("stands before its caller", |m| at(m, 5).calls[0] = CompId(8));
    broken("numbered 0..n", |m| at(m, 4).attrs = Attrs::Parameter(0));
    broken("numbered 0..n", |m| at(m, 4).attrs = Attrs::Parameter(2));
    broken("numbered 0..n", |m| assert!(m.comps[1].params.pop().is_some()));
    broken("numbered 0..n", |m| m.comps[1].params.push(InstrId(5)));
    broken("numbered 0..n", |m| m.comps[1].params.push(InstrId(88)));
    broken("a root in the computation", |m| m.comps[1].root = InstrId(2));
    broken("a root in the computation", |m| m.comps[1].root = InstrId(55));
    broken("another instruction of the same computation", |m| {
        let e = Extra { control_predecessors: vec![InstrId(0)], ..Default::default() };
        at(m, 5).extra = Some(Box::new(e));
    });
}

#[test]
fn shapes_and_constants() {
    let set = |s: &'static str| {
        move |m: &mut Module| {
            let s = m.shape_id(shape(s));
            at(m, 5).shape = s;
        }
    };
    broken("expected f32[]", set("f32[1]"));
    broken("expected f32[]", set("bf16[]"));
    broken("sizes of 0 or more", set("f32[-2]"));
    broken("fewer than 2^59", set("f32[4000000000,4000000000]"));
    broken("at most 64 dimensions", |m| {
        let s = m.shape_id(Shape::array(DType::F32, vec![1; 65]));
        at(m, 5).shape = s;
    });
    broken("orders each dimension once", |m| {
        let mut a = ArrayShape::new(DType::F32, [2, 2]);
        let minor_to_major = [0, 0].into_iter().collect();
        a.layout = Some(Box::new(Layout { minor_to_major, ..Default::default() }));
        let s = m.shape_id(Shape::Array(a));
        at(m, 5).shape = s;
    });
    let constant = |shape: Shape, l: Literal| {
        let mut m = ModuleBuilder::new("m");
        let mut b = m.computation("main");
        let c = b.unchecked(Constant, Attrs::Constant(Box::new(l)), &[], &[], shape);
        let main = b.finish(c);
        reports(&m.finish(main)).join("\n")
    };
    let dense = |s: &str, n: usize| Literal {
        shape: shape(s),
        data: LiteralData::Dense(vec![0; n].into()),
    };
    assert_eq!(constant(shape("s32[2]"), dense("s32[2]", 8)), "");
    assert_eq!(constant(shape("u4[3]"), dense("u4[3]", 3)), "");
    assert!(constant(shape("s32[2]"), dense("s32[2]", 7)).contains("8 bytes"));
    assert!(constant(shape("s32[3]"), dense("s32[2]", 8)).contains("expected s32[2]"));
    assert!(constant(shape("(s32[2])"), dense("(s32[2])", 8)).contains("another form"));
    let t =
        |v: Vec<Literal>| Literal { shape: shape("(s32[], f32[])"), data: LiteralData::Tuple(v) };
    let whole = vec![dense("s32[]", 4), dense("f32[]", 4)];
    assert_eq!(constant(shape("(s32[], f32[])"), t(whole)), "");
    let swapped = vec![dense("f32[]", 4), dense("s32[]", 4)];
    assert!(constant(shape("(s32[], f32[])"), t(swapped)).contains("expected s32[]"));
    assert!(constant(shape("(s32[], f32[])"), t(vec![])).contains("another form"));
    let elided = Literal { shape: shape("s32[2]"), data: LiteralData::Elided };
    assert_eq!(constant(shape("s32[2]"), elided), "");
}

/// Reports on one collective of `f32[4]` on 8 replicas. The verdicts are those
/// of XLA's verifier (jaxlib 0.10.2).
fn collective(op: Opcode, f: impl FnOnce(&mut CollectiveAttrs), result: i64) -> String {
    let mut m = ModuleBuilder::new("m");
    m.module().header.replica_count = 8;
    let add = m.reducer(Add, DType::F32).unwrap();
    let mut b = m.computation("main");
    let x = b.parameter(DType::F32, [4]);
    let mut a = CollectiveAttrs { dimension: Some(0), ..Default::default() };
    f(&mut a);
    let calls = if matches!(op, AllReduce | ReduceScatter) { vec![add] } else { vec![] };
    let shape = Shape::array(DType::F32, [result]);
    let y = b.unchecked(op, Attrs::Collective(Box::new(a)), &[x], &calls, shape);
    let main = b.finish(y);
    reports(&m.finish(main)).join("\n")
}

#[test]
fn replica_groups() {
    let with = |op, g: &[&[i64]], result| {
        collective(
            op,
            |a| a.groups = ReplicaGroups::List(g.iter().map(|g| g.to_vec()).collect()),
            result,
        )
    };
    let twos: &[&[i64]] = &[&[0, 1], &[2, 3], &[4, 5], &[6, 7]];
    let uneven: &[&[i64]] = &[&[0, 1], &[2, 3, 4], &[5], &[6, 7]];
    assert_eq!(with(AllGather, twos, 8), "");
    assert_eq!(with(AllGather, &[], 32), "");
    assert!(with(AllGather, twos, 9).contains("expected f32[8]"));
    assert!(with(AllGather, &[&[0, 1], &[2, 3]], 8).contains("8 ids in all"));
    assert!(
        with(AllGather, &[&[0, 1], &[2, 1], &[4, 5], &[6, 7]], 8).contains("at most one group")
    );
    assert!(with(AllGather, &[&[0, 1], &[2, 9], &[4, 5], &[6, 7]], 8).contains("ids from 0 to 7"));
    assert!(with(AllGather, uneven, 8).contains("equal size"));
    assert_eq!(with(AllReduce, uneven, 4), "");
    assert!(
        with(AllReduce, &[&[0, 1, 2], &[], &[3, 4, 5, 6, 7]], 4).contains("at least one device")
    );
    assert_eq!(with(AllToAll, twos, 4), "");
    assert!(with(AllToAll, &[&[0, 1, 2], &[3, 4, 5], &[6, 7]], 4).contains("divisible by 3"));
    assert_eq!(with(ReduceScatter, twos, 2), "");
    let flattened = collective(
        AllReduce,
        |a| {
            a.channel_id = Some(1);
            a.use_global_device_ids = true;
        },
        4,
    );
    assert!(flattened.contains("flattened device ids"));
    let no_channel = collective(AllReduce, |a| a.use_global_device_ids = true, 4);
    assert!(no_channel.contains("a channel_id"));
    let iota = |reshape: &[i64], perm: &[u32]| {
        collective(
            AllGather,
            |a| {
                a.groups = ReplicaGroups::Iota(IotaTile {
                    dims: [4, 2].into_iter().collect(),
                    reshape: reshape.into(),
                    perm: perm.into(),
                })
            },
            8,
        )
    };
    assert_eq!(iota(&[2, 4], &[1, 0]), "");
    assert!(iota(&[2, 3], &[1, 0]).contains("malformed"));
    assert!(iota(&[2, 4], &[1, 1]).contains("malformed"));
    assert!(iota(&[i64::MAX, 4], &[0, 1]).contains("malformed"));
}

#[test]
fn permute_pairs() {
    let with = |p: &[(i64, i64)]| collective(CollectivePermute, |a| a.pairs = p.to_vec(), 4);
    assert_eq!(with(&[(0, 1), (1, 2)]), "");
    assert!(with(&[(0, 1), (0, 2)]).contains("source"));
    assert!(with(&[(0, 1), (2, 1)]).contains("target"));
    assert!(with(&[(0, 9)]).contains("ids from 0 to 7"));
    assert!(with(&[(-1, 0)]).contains("ids from 0 to 7"));
}

#[test]
fn starts_and_dones() {
    // The operand of `done` has the right shape but is a tuple, no start.
    let with = |done: Opcode, operand: &str, result: &str, attrs: Attrs| {
        let mut m = ModuleBuilder::new("m");
        let mut b = m.computation("main");
        let x = b.parameter_of(shape(operand));
        let y = b.unchecked(done, attrs, &[x], &[], shape(result));
        let main = b.finish(y);
        reports(&m.finish(main)).join("\n")
    };
    let channel = || Attrs::Channel { channel_id: None, is_host_transfer: false };
    let a = || Attrs::Async { sugar: None, thread: None };
    let two = "(f32[2], f32[2])";
    assert!(with(AllGatherDone, two, "f32[2]", Attrs::None).contains("all-gather-start"));
    assert!(with(AllReduceDone, "f32[2]", "f32[2]", Attrs::None).contains("all-reduce-start"));
    assert!(with(CollectivePermuteDone, two, "f32[2]", Attrs::None).contains("permute-start"));
    assert!(
        with(CopyDone, "(f32[2], f32[2], u32[])", "f32[2]", Attrs::None).contains("copy-start")
    );
    let sent = "(f32[2], u32[], token[])";
    assert!(with(SendDone, sent, "token[]", channel()).contains("send or get-tuple-element"));
    assert!(with(RecvDone, sent, "(f32[2], token[])", channel()).contains("recv or"));
    assert!(with(AsyncDone, "((f32[2]), f32[2])", "f32[2]", a()).contains("async-start or"));

    let start_done = |ops: usize| {
        let mut m = ModuleBuilder::new("m");
        let mut b = m.computation("wrapped");
        let mut x = b.parameter(DType::F32, [2]);
        for _ in 0..ops {
            x = b.unary(Negate, x).unwrap();
        }
        let f = b.finish(x);
        let mut b = m.computation("main");
        let x = b.parameter(DType::F32, [2]);
        let s = b.op(AsyncStart, a(), &[x], &[f]).unwrap();
        let d = b.op(AsyncDone, a(), &[s], &[f]).unwrap();
        let main = b.finish(d);
        reports(&m.finish(main)).join("\n")
    };
    assert_eq!(start_done(1), "");
    assert!(start_done(2).contains("several operations"));
}

#[test]
fn entry_layout_is_a_warning() {
    let layout = |p: &str, r: &str| {
        let mut m = sample();
        m.header.entry_layout = Some((shapes(p), shape(r)));
        validate(&m, &ValidateOptions::default())
    };
    assert!(layout("f32[], f32[]", "f32[]").is_empty());
    for (p, r) in [("f32[]", "f32[]"), ("f32[], f32[2]", "f32[]"), ("f32[], f32[]", "s32[]")] {
        let r = layout(p, r);
        assert_eq!(r.len(), 1);
        assert_eq!(r[0].severity, Severity::Warning);
    }
}

#[test]
fn mixed_precision_is_an_option() {
    let mut m = sample();
    let s = m.shape_id(shape("bf16[]"));
    m.instrs[2].shape = s;
    assert!(!reports(&m).is_empty());
    let add = InstrId(2);
    assert!(scalify_ir::infer::check(&m, add, false).is_err());
    assert!(scalify_ir::infer::check(&m, add, true).is_ok());
    // Also between operands: f32 + bf16.
    let mut m = sample();
    m.instrs[1].shape = m.shape_id(shape("bf16[]"));
    assert!(scalify_ir::infer::check(&m, add, false).is_err());
    assert!(scalify_ir::infer::check(&m, add, true).is_ok());
}

#[test]
fn reports_are_capped_and_carry_places() {
    let mut m = ModuleBuilder::new("m");
    let mut b = m.computation("main");
    let x = b.parameter(DType::F32, [2]);
    for _ in 0..1000 {
        b.unchecked(Negate, Attrs::None, &[x], &[], shape("f32[3]"));
    }
    let main = b.finish(x);
    let mut m = m.finish(main);
    m.instrs[1].span = source::Span { start: 10, end: 20 };
    let r = validate(&m, &ValidateOptions { max_reports: 7, ..Default::default() });
    assert_eq!(r.len(), 7);
    assert_eq!((r[0].instr, r[0].comp, r[0].span.start), (Some(InstrId(1)), Some(main), 10));
    assert_eq!(r[0].expected, "f32[2]");
}

/// Wrapped and plain calls, a reduction and a collective.
fn varied() -> Module {
    let mut m = ModuleBuilder::new("m");
    let add = m.reducer(Add, DType::F32).unwrap();
    let mut b = m.computation("wrapped");
    let x = b.parameter(DType::F32, [4]);
    let n = b.unary(Negate, x).unwrap();
    let f = b.finish(n);
    let mut b = m.computation("main");
    let x = b.parameter(DType::F32, [4]);
    let zero = b.f32(0.0);
    let a = || Attrs::Async { sugar: None, thread: None };
    let s = b.op(AsyncStart, a(), &[x], &[f]).unwrap();
    let d = b.op(AsyncDone, a(), &[s], &[f]).unwrap();
    let r = b.reduce(d, zero, &[0], add).unwrap();
    let g = CollectiveAttrs { channel_id: Some(1), ..Default::default() };
    let all = b.collective(AllReduce, &[r], g, Some(add)).unwrap();
    let t = b.tuple(&[all, d]);
    let main = b.finish(t);
    m.finish(main)
}

#[test]
fn random_damage_is_reported_and_never_panics() {
    assert_eq!(reports(&varied()), [""; 0]);
    let mut seed = 1u64;
    let mut next = move |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    let mut caught = 0;
    for _ in 0..20_000 {
        let mut m = varied();
        for _ in 0..1 + next(3) {
            let (i, c) = (next(m.instrs.len()), next(m.comps.len()));
            let wild = [0, 1, 2, 3, 5, 8, 13, 1000, u32::MAX][next(9)];
            match next(9) {
                0 => m.instrs[i].shape = ShapeId(wild),
                1 => m.instrs[i].name = Symbol(wild),
                2 => m.instrs[i].operands.iter_mut().for_each(|o| *o = InstrId(wild)),
                3 => m.instrs[i].calls.iter_mut().for_each(|o| *o = CompId(wild)),
                4 => m.comps[c].root = InstrId(wild),
                5 => m.comps[c].name = Symbol(wild),
                6 => m.comps[c].instrs.push(InstrId(wild)),
                7 => m.comps[c].params.push(InstrId(wild)),
                _ => m.instrs[i].opcode = Opcode::ALL[next(Opcode::ALL.len())],
            }
        }
        caught += usize::from(!reports(&m).is_empty());
        for i in 0..m.instrs.len() {
            let _ = infer(&m, InstrId(i as u32));
        }
    }
    assert!(caught > 15_000, "{caught} of 20000");
}
