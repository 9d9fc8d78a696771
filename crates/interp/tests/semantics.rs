//! The meaning of operations where programs of one operation and the suite do
//! not look: edges, devices, limits.

use scalify_interp::{Accumulate, Data, Limit, RunError, RunOptions, Tensor, Value, run};
use scalify_ir::DType;
use std::sync::Arc;
use std::time::Duration;

fn module(text: &str) -> scalify_ir::Module {
    scalify_hlo::parse(text).expect("test program parses")
}

fn f32s(dims: &[i64], v: &[f32]) -> Value {
    Value::Tensor(Tensor::from_vec(DType::F32, dims.iter().copied(), v.to_vec()).unwrap())
}

fn s32s(dims: &[i64], v: &[i32]) -> Value {
    Value::Tensor(Tensor::from_vec(DType::S32, dims.iter().copied(), v.to_vec()).unwrap())
}

fn floats(v: &Value) -> Vec<f64> {
    v.as_tensor().expect("array").to_f64()
}

fn ints(v: &Value) -> Vec<i64> {
    v.as_tensor().expect("array").to_i64().expect("integers")
}

/// Runs a program without parameters on one device.
fn eval(text: &str) -> Value {
    run(&module(text), None, &[vec![]], RunOptions::default()).expect("runs").remove(0)
}

fn on(text: &str, inputs: Vec<Vec<Value>>, replicas: usize) -> Result<Vec<Value>, RunError> {
    let partitions = inputs.len() / replicas;
    let options = RunOptions { replicas, partitions, ..Default::default() };
    run(&module(text), None, &inputs, options)
}

#[test]
fn integer_edges() {
    let two = |op: &str, a: &str, b: &str| {
        ints(&eval(&format!(
            "HloModule m
             ENTRY e {{
               a = s8[4] constant({{{a}}})
               b = s8[4] constant({{{b}}})
               ROOT r = s8[4] {op}(a, b)
             }}"
        )))
    };
    assert_eq!(two("divide", "7, -128, -7, 5", "0, -1, 2, -2"), [-1, -128, -3, -2]);
    assert_eq!(two("remainder", "7, -128, -7, 5", "0, -1, 2, -2"), [7, 0, -1, 1]);
    assert_eq!(two("add", "127, -128, 1, 0", "1, -1, 1, 0"), [-128, 127, 2, 0]);
    assert_eq!(two("shift-left", "1, 1, 1, -1", "7, 8, -1, 4"), [-128, 0, 0, -16]);
    assert_eq!(two("shift-right-arithmetic", "-128, -1, 64, -2", "9, -1, 6, 1"), [-1, -1, 1, -1]);
    assert_eq!(two("shift-right-logical", "-128, -1, 64, -2", "7, 8, 6, 1"), [1, 0, 1, 127]);
    assert_eq!(two("power", "2, -1, 3, 0", "9, -3, -1, 0"), [0, -1, 0, 1]);
}

#[test]
fn float_edges() {
    let r = eval(
        "HloModule m
         ENTRY e {
           a = f32[4] constant({nan, 1, -0, 0})
           b = f32[4] constant({1, nan, 0, -0})
           x = f32[4] maximum(a, b)
           n = f32[4] minimum(a, b)
           c = f32[4] constant({nan, 3e9, -3e9, -1.9})
           i = s32[4] convert(c)
           u = u8[4] convert(c)
           ROOT t = (f32[4], f32[4], s32[4], u8[4]) tuple(x, n, i, u)
         }",
    );
    let t = r.as_tuple().unwrap();
    let (max, min) = (floats(&t[0]), floats(&t[1]));
    assert!(max[0].is_nan() && max[1].is_nan() && min[0].is_nan() && min[1].is_nan());
    assert!(max[2..].iter().all(|x| x.is_sign_positive()));
    assert!(min[2..].iter().all(|x| x.is_sign_negative()));
    assert_eq!(ints(&t[2]), [0, i32::MAX as i64, i32::MIN as i64, -1]);
    assert_eq!(ints(&t[3]), [0, 255, 0, 0]);
}

#[test]
fn bf16_rounds_once_and_f64_mode_never() {
    // 1 + 2^-8 is a tie in bf16 and goes to even.
    let text = "HloModule m
        ENTRY e {
          a = bf16[1] constant({1})
          b = bf16[1] constant({0.00390625})
          ROOT r = bf16[1] add(a, b)
        }";
    assert_eq!(floats(&eval(text)), [1.0]);
    let options = RunOptions { accumulate: Accumulate::F64, ..Default::default() };
    let wide = run(&module(text), None, &[vec![]], options).unwrap();
    assert_eq!(floats(&wide[0]), [1.00390625]);
}

#[test]
fn narrow_floats_match_microfloat_exhaustively() {
    // All f16 values through an f8 and back, against another implementation.
    macro_rules! check {
        ($name:literal, $t:ty) => {{
            let all: Vec<u16> = (0..=u16::MAX).collect();
            let v = Tensor::from_vec(DType::U16, [65536], all.clone()).unwrap();
            let text = format!(
                "HloModule m
                 ENTRY e {{
                   p = u16[65536] parameter(0)
                   x = f16[65536] bitcast-convert(p)
                   y = {0}[65536] convert(x)
                   ROOT z = f32[65536] convert(y)
                 }}",
                $name
            );
            let r = run(&module(&text), None, &[vec![Value::Tensor(v)]], RunOptions::default());
            let r = r.unwrap();
            let Data::F32(got) = &r[0].as_tensor().unwrap().data else { panic!() };
            for (&bits, &g) in all.iter().zip(got.iter()) {
                let x = half::f16::from_bits(bits).to_f32();
                // A tie between the largest value and the code of NaN: even
                // is the former, as ml_dtypes has it.
                if $name == "f8e4m3fn" && x.abs() == 464.0 {
                    assert_eq!(g.abs(), 448.0);
                    continue;
                }
                let e = <$t>::from_f32(x).to_f32();
                assert!(g == e || g.is_nan() && e.is_nan(), "{} of {x}: {g} for {e}", $name);
            }
        }};
    }
    check!("f8e5m2", microfloat::f8e5m2);
    check!("f8e4m3", microfloat::f8e4m3);
    check!("f8e4m3fn", microfloat::f8e4m3fn);
    check!("f8e3m4", microfloat::f8e3m4);
    check!("f8e4m3b11fnuz", microfloat::f8e4m3b11fnuz);
    check!("f8e5m2fnuz", microfloat::f8e5m2fnuz);
    check!("f8e4m3fnuz", microfloat::f8e4m3fnuz);
}

const SUM: &str = "add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
";

#[test]
fn group_modes() {
    // 2 replicas x 2 partitions; device d = 2 * replica + partition holds 10^d.
    let devices = || (0..4).map(|d| vec![f32s(&[1], &[10f32.powi(d)])]).collect::<Vec<_>>();
    let sums = |attrs: &str| -> Vec<f64> {
        let text = format!(
            "HloModule m\n{SUM}ENTRY e {{\n p = f32[1] parameter(0)\n ROOT r = f32[1] all-reduce(p), {attrs}, to_apply=add\n}}"
        );
        on(&text, devices(), 2).unwrap().iter().map(|v| floats(v)[0]).collect()
    };
    // Replicas of each partition.
    assert_eq!(sums("replica_groups={{0,1}}"), [101.0, 1010.0, 101.0, 1010.0]);
    // Replicas with all their partitions.
    assert_eq!(sums("replica_groups={{0},{1}}, channel_id=1"), [11.0, 11.0, 1100.0, 1100.0]);
    // Flattened ids.
    let flat = "replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true";
    assert_eq!(sums(flat), [1001.0, 110.0, 110.0, 1001.0]);
    assert_eq!(sums("replica_groups={}"), [101.0, 1010.0, 101.0, 1010.0]);
}

#[test]
fn permute_leaves_zeros() {
    let text = "HloModule m
        ENTRY e {
          p = s32[1] parameter(0)
          ROOT r = s32[1] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,2}}
        }";
    let r = on(text, (1..4).map(|d| vec![s32s(&[1], &[d])]).collect(), 1).unwrap();
    assert_eq!(r.iter().flat_map(ints).collect::<Vec<_>>(), [0, 1, 2]);
}

fn looping(body: &str) -> String {
    format!(
        "HloModule m
         {SUM}
         c {{ s = (s32[], f32[]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              z = s32[] constant(0)
              ROOT g = pred[] compare(i, z), direction=GT }}
         b {{ s = (s32[], f32[]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              x = f32[] get-tuple-element(s), index=1
              o = s32[] constant(1)
              j = s32[] subtract(i, o)
              {body}
              ROOT t = (s32[], f32[]) tuple(j, y) }}
         ENTRY e {{
           n = s32[] parameter(0)
           q = f32[] parameter(1)
           t = (s32[], f32[]) tuple(n, q)
           w = (s32[], f32[]) while(t), condition=c, body=b
           ROOT r = f32[] get-tuple-element(w), index=1
         }}"
    )
}

#[test]
fn trip_counts_may_differ_without_collectives() {
    let inputs = || -> Vec<Vec<Value>> {
        [3, 0, 1].iter().map(|&n| vec![s32s(&[], &[n]), f32s(&[], &[1.0])]).collect()
    };
    let r = on(&looping("y = f32[] add(x, x)"), inputs(), 1).unwrap();
    assert_eq!(r.iter().flat_map(floats).collect::<Vec<_>>(), [8.0, 1.0, 2.0]);
    let sum = "y = f32[] all-reduce(x), channel_id=1, replica_groups={{0,1,2}}, \
               use_global_device_ids=true, to_apply=add";
    let e = on(&looping(sum), inputs(), 1).unwrap_err();
    assert!(matches!(&e, RunError::Deadlock { instr, .. } if instr == "y"), "{e}");
    // Groups whose devices agree may meet.
    let inputs = [2, 2, 1].iter().map(|&n| vec![s32s(&[], &[n]), f32s(&[], &[1.0])]).collect();
    let r = on(&looping(&sum.replace("{{0,1,2}}", "{{0,1},{2}}")), inputs, 1).unwrap();
    assert_eq!(r.iter().flat_map(floats).collect::<Vec<_>>(), [4.0, 4.0, 1.0]);
}

#[test]
fn limits_and_named_errors() {
    let forever = "HloModule m
        c { s = s32[] parameter(0)
            ROOT t = pred[] constant(true) }
        b { s = s32[] parameter(0)
            ROOT t = s32[] add(s, s) }
        ENTRY e { z = s32[] constant(1)
                  ROOT w = s32[] while(z), condition=c, body=b }";
    let m = module(forever);
    let limit = |o: RunOptions<'_>| match run(&m, None, &[vec![]], o) {
        Err(RunError::Limit { limit, .. }) => limit,
        r => panic!("{r:?}"),
    };
    assert_eq!(limit(RunOptions { step_limit: Some(1000), ..Default::default() }), Limit::Steps);
    let time = Some(Duration::from_millis(50));
    assert_eq!(limit(RunOptions { time_limit: time, ..Default::default() }), Limit::Time);
    let big = "HloModule m
        ENTRY e { z = f32[] constant(1)
                  ROOT b = f32[1000000,1000000,1000000] broadcast(z), dimensions={} }";
    let e = run(&module(big), None, &[vec![]], RunOptions::default()).unwrap_err();
    assert!(matches!(e, RunError::Limit { limit: Limit::Memory, .. }), "{e}");
    let elided = "HloModule m\nENTRY e { ROOT k = f32[100] constant({...}) }";
    let e = run(&module(elided), None, &[vec![]], RunOptions::default()).unwrap_err();
    assert_eq!(e, RunError::Elided { instr: "k".into() });
    let custom = "HloModule m
        ENTRY e { z = f32[] constant(1)
                  ROOT q = f32[] custom-call(z), custom_call_target=\"mystery\" }";
    let e = run(&module(custom), None, &[vec![]], RunOptions::default()).unwrap_err();
    assert!(
        e.to_string().contains("q: unsupported custom-call") && e.to_string().contains("mystery")
    );
}

#[test]
fn deep_calls_are_bounded() {
    let mut text = String::from("HloModule m\nc0 { ROOT x = f32[] parameter(0) }\n");
    for k in 1..2000 {
        text += &format!(
            "c{k} {{ p = f32[] parameter(0)\n ROOT x = f32[] call(p), to_apply=c{} }}\n",
            k - 1
        );
    }
    text += "ENTRY e { z = f32[] constant(1)\n ROOT r = f32[] call(z), to_apply=c1999 }";
    let e = run(&module(&text), None, &[vec![]], RunOptions::default()).unwrap_err();
    assert!(matches!(e, RunError::Limit { limit: Limit::Depth, .. }), "{e}");
    let ok = text.replace("to_apply=c1999", "to_apply=c150");
    assert_eq!(floats(&eval(&ok)), [1.0]);
}

#[test]
fn shared_inputs_are_computed_once() {
    let text = "HloModule m
        ENTRY e { p = f32[4] parameter(0)
                  ROOT r = f32[4] multiply(p, p) }";
    let p = f32s(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let r = on(text, vec![vec![p.clone()], vec![p.clone()]], 1).unwrap();
    let data = |v: &Value| match &v.as_tensor().unwrap().data {
        Data::F32(v) => v.clone(),
        _ => panic!(),
    };
    assert!(Arc::ptr_eq(&data(&r[0]), &data(&r[1])));
    // The caller's storage is not written to.
    assert_eq!(floats(&p), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(floats(&r[0]), [1.0, 4.0, 9.0, 16.0]);
}

#[test]
fn trace_sees_every_instruction_of_every_device() {
    let m = module(
        "HloModule m
         ENTRY e { p = u32[] partition-id()
                   ROOT r = u32[] add(p, p) }",
    );
    let mut seen = Vec::new();
    let mut trace = |d: usize, id, v: &Value| seen.push((d, m.name_of(id).to_string(), ints(v)[0]));
    let options = RunOptions { partitions: 2, trace: Some(&mut trace), ..Default::default() };
    run(&m, None, &[vec![], vec![]], options).unwrap();
    let row = |d, n: &str, v| (d, n.to_string(), v);
    assert_eq!(seen, [row(0, "p", 0), row(1, "p", 1), row(0, "r", 0), row(1, "r", 2)]);
}

#[test]
fn ragged_all_to_all_moves_rows() {
    // Device 0 holds rows 1,2,3 and sends one to itself and two to device 1;
    // device 1 holds 4,5 and sends both to device 0.
    let text = "HloModule m
        ENTRY e {
          x = s32[3] parameter(0)
          o = s32[4] parameter(1)
          io = s32[2] parameter(2)
          ss = s32[2] parameter(3)
          oo = s32[2] parameter(4)
          rs = s32[2] parameter(5)
          ROOT r = s32[4] ragged-all-to-all(x, o, io, ss, oo, rs), replica_groups={{0,1}}
        }";
    let dev = |x: [i32; 3], io: [i32; 2], ss: [i32; 2], oo: [i32; 2], rs: [i32; 2]| {
        let two = |v: [i32; 2]| s32s(&[2], &v);
        vec![s32s(&[3], &x), s32s(&[4], &[-1; 4]), two(io), two(ss), two(oo), two(rs)]
    };
    let a = dev([1, 2, 3], [0, 1], [1, 2], [0, 0], [1, 2]);
    let b = dev([4, 5, 0], [0, 2], [2, 0], [1, 2], [2, 0]);
    let r = on(text, vec![a, b], 2).unwrap();
    assert_eq!(ints(&r[0]), [1, 4, 5, -1]);
    assert_eq!(ints(&r[1]), [2, 3, -1, -1]);
}

#[test]
fn ragged_dot_uses_one_matrix_per_group() {
    // Rows 0 and 1 times the first matrix, row 2 times the second.
    let text = "HloModule m
        ENTRY e {
          a = f32[3,2] constant({{1,2},{3,4},{5,6}})
          b = f32[2,2,1] constant({{{1},{1}},{{10},{100}}})
          g = s32[2] constant({2,1})
          ROOT r = f32[3,1] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
        }";
    assert_eq!(floats(&eval(text)), [3.0, 7.0, 650.0]);
}

#[test]
fn start_and_done_forms() {
    let text = "HloModule m
        ENTRY e {
          p = f32[2] parameter(0)
          s = (f32[2], f32[4]) all-gather-start(p), replica_groups={{0,1}}, dimensions={0}
          ROOT r = f32[4] all-gather-done(s)
        }";
    let r = on(text, vec![vec![f32s(&[2], &[1., 2.])], vec![f32s(&[2], &[3., 4.])]], 2).unwrap();
    assert_eq!(floats(&r[0]), [1., 2., 3., 4.]);
    assert_eq!(floats(&r[1]), [1., 2., 3., 4.]);
}

#[test]
fn a_declared_shape_that_lies_is_an_error() {
    let text = "HloModule m
        ENTRY e { a = f32[2] constant({1,2})
                  ROOT r = f32[3] negate(a) }";
    let e = run(&module(text), None, &[vec![]], RunOptions::default()).unwrap_err();
    assert!(matches!(&e, RunError::Invalid { instr, .. } if instr == "r"), "{e}");
}

#[test]
fn scan_carries_along_a_dimension() {
    let text = |reverse: bool| {
        format!(
            "HloModule m
             step {{ x = f32[2] parameter(0)
                    c = f32[2] parameter(1)
                    s = f32[2] add(c, x)
                    ROOT t = (f32[2], f32[2]) tuple(s, s) }}
             ENTRY e {{
               x = f32[2,3] constant({{{{1,2,3}},{{10,20,30}}}})
               z = f32[2] constant({{0,100}})
               ROOT r = (f32[2,3], f32[2]) scan(x, z), dimensions={{1}}, is_reverse={reverse}, num_carries=1, to_apply=step
             }}"
        )
    };
    let both = |v: Value| {
        let t = v.as_tuple().unwrap().to_vec();
        (floats(&t[0]), floats(&t[1]))
    };
    let (sums, last) = both(eval(&text(false)));
    assert_eq!((sums, last), (vec![1., 3., 6., 110., 130., 160.], vec![6., 160.]));
    let (sums, last) = both(eval(&text(true)));
    assert_eq!((sums, last), (vec![6., 5., 3., 160., 150., 130.], vec![6., 160.]));
}

/// Random roundings move a result of arithmetic by at most a unit in its last
/// place, differ by seed, repeat for one seed, and leave moved data alone.
#[test]
fn random_rounding_is_a_unit_in_the_last_place() {
    let m = module(
        "HloModule m
         ENTRY e {
           p = f32[64] parameter(0)
           a = f32[64] add(p, p)
           r = f32[64] reverse(p), dimensions={0}
           ROOT t = (f32[64], f32[64]) tuple(a, r)
         }",
    );
    let x: Vec<f32> = (1..=64).map(|k| k as f32).collect();
    let at = |accumulate, jitter| -> Vec<Vec<f64>> {
        let args = [vec![f32s(&[64], &x)]];
        let o = RunOptions { accumulate, jitter, ..Default::default() };
        let v = run(&m, None, &args, o).unwrap();
        let Value::Tuple(t) = &v[0] else { panic!("no tuple") };
        t.iter().map(floats).collect()
    };
    let (one, two) = (at(Accumulate::F64, Some(1)), at(Accumulate::F64, Some(2)));
    assert_eq!(one, at(Accumulate::F64, Some(1)));
    assert_ne!(one[0], two[0]);
    for (k, (a, r)) in one[0].iter().zip(&one[1]).enumerate() {
        let exact = 2.0 * (k + 1) as f64;
        assert!((a - exact).abs() <= exact * f64::EPSILON);
        assert_eq!(*r, (64 - k) as f64);
    }
    let plain = at(Accumulate::Plain, Some(1));
    assert_eq!(plain[0], (1..=64).map(|k| 2.0 * f64::from(k)).collect::<Vec<_>>());
}

/// Keys of a comparator are used only where they can be computed: a bit
/// pattern, and a table that is no lane-wise operation. The order of positive
/// floats is that of their bits; the table reverses the order.
#[test]
fn sort_by_bits_and_by_a_table() {
    let program = |comparator: &str| {
        format!(
            "HloModule m
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
{comparator}
}}
ENTRY e {{
  p = f32[5] parameter(0)
  ROOT s = f32[5] sort(p), dimensions={{0}}, is_stable=true, to_apply=less
}}"
        )
    };
    let bits = "  x = s32[] bitcast(a)
  y = s32[] bitcast(b)
  ROOT c = pred[] compare(x, y), direction=LT";
    let table = "  t = s32[5] constant({4, 3, 2, 1, 0})
  i = s32[] convert(a)
  j = s32[] convert(b)
  u = s32[1] dynamic-slice(t, i), dynamic_slice_sizes={1}
  v = s32[1] dynamic-slice(t, j), dynamic_slice_sizes={1}
  x = s32[] reshape(u)
  y = s32[] reshape(v)
  ROOT c = pred[] compare(x, y), direction=LT";
    for (comparator, expected) in
        [(bits, [0.0, 1.0, 2.0, 3.0, 4.0]), (table, [4.0, 3.0, 2.0, 1.0, 0.0])]
    {
        let input = f32s(&[5], &[3.0, 0.0, 4.0, 1.0, 2.0]);
        for accumulate in [Accumulate::Plain, Accumulate::F64] {
            let options = RunOptions { accumulate, ..Default::default() };
            let got = run(&module(&program(comparator)), None, &[vec![input.clone()]], options);
            assert_eq!(floats(&got.unwrap()[0]), expected, "{accumulate:?}: {comparator}");
        }
    }
}

/// Along dimension 0: x / sqrt(mean(x^2) + epsilon) * weight, by hand.
#[test]
fn neuron_rms_norm() {
    let v = eval(
        "HloModule m
         ENTRY e {
           x = f32[2,2] constant({{3, 1}, {4, -1}})
           w = f32[2] constant({2, 10})
           c = f32[] constant(3.5)
           n = f32[2,2] custom-call(x, w, c), custom_call_target=\"AwsNeuronRmsNorm\", backend_config=\"0\"
           ROOT r = f32[2,2] custom-call(n), custom_call_target=\"AwsNeuronTransferWithStaticRing\"
         }",
    );
    // Means of squares 12.5 and 1: roots of 16 and of 4.5.
    let s = 4.5f64.sqrt();
    let expected = [1.5, 2.0 / s, 10.0, -10.0 / s];
    for (x, y) in floats(&v).iter().zip(expected) {
        assert!((x - y).abs() < 1e-6, "{x} {y}");
    }
}
