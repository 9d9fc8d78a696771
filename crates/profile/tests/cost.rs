//! Costs, by mathematics. Agreement with XLA is checked in
//! `scripts/check_profile.py`.

use scalify_ir::{InstrId, Module};
use scalify_profile::cost::{Axis, ModuleCost, traffic, trips};

fn parse(text: &str) -> Module {
    scalify_hlo::parse(text).unwrap_or_else(|e| panic!("{e:?}"))
}

fn find(m: &Module, name: &str) -> InstrId {
    let k = (0..m.instrs.len()).find(|&k| m.name_of(InstrId(k as u32)) == name);
    InstrId(k.unwrap_or_else(|| panic!("no {name}")) as u32)
}

/// A loop that adds `step` to a counter from `start` while it compares with
/// `limit`.
fn counting(start: i64, step: i64, limit: i64, direction: &str, ty: &str) -> Module {
    parse(&format!(
        "HloModule m
cond {{
  p = ({ty}[], f32[8]) parameter(0)
  i = {ty}[] get-tuple-element(p), index=0
  n = {ty}[] constant({limit})
  ROOT c = pred[] compare(i, n), direction={direction}
}}
body {{
  p = ({ty}[], f32[8]) parameter(0)
  i = {ty}[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  s = {ty}[] constant({step})
  j = {ty}[] add(i, s)
  y = f32[8] add(x, x)
  ROOT t = ({ty}[], f32[8]) tuple(j, y)
}}
ENTRY e {{
  i = {ty}[] constant({start})
  x = f32[8] parameter(0)
  t = ({ty}[], f32[8]) tuple(i, x)
  ROOT w = ({ty}[], f32[8]) while(t), condition=cond, body=body
}}
"
    ))
}

/// What executing the counter gives.
fn executed(start: i64, step: i64, limit: i64, direction: &str) -> Option<u64> {
    let (mut i, mut n) = (start, 0);
    loop {
        let go = match direction {
            "LT" => i < limit,
            "LE" => i <= limit,
            "GT" => i > limit,
            "GE" => i >= limit,
            _ => i != limit,
        };
        if !go {
            return Some(n);
        }
        if n > 1000 {
            return None;
        }
        i += step;
        n += 1;
    }
}

#[test]
fn counted_loops() {
    for direction in ["LT", "LE", "GT", "GE", "NE"] {
        for (start, step, limit) in [
            (0, 1, 5),
            (5, 1, 0),
            (0, 3, 10),
            (7, -2, -4),
            (4, -1, 4),
            (-3, 2, 9),
            (0, 2, 5),
            (1, 4, 9),
        ] {
            let m = counting(start, step, limit, direction, "s32");
            let found = trips(&m, find(&m, "w")).map(|t| t.count);
            // Loops that only overflow ends have no count.
            assert_eq!(
                found,
                executed(start, step, limit, direction),
                "{start} {step} {limit} {direction}"
            );
        }
    }
    // In range up to the last value, and one that goes round before it ends.
    let count = |limit| {
        let m = counting(120, 1, limit, "LE", "s8");
        trips(&m, find(&m, "w")).map(|t| t.count)
    };
    assert_eq!((count(126), count(127)), (Some(7), None));
    let m = counting(0, 1, 5, "LT", "u8");
    let c = ModuleCost::new(&m);
    // Per iteration 8 + 1 additions and one comparison; XLA counts one.
    assert_eq!((c.total.flops, c.once.flops), (50.0, 10.0));
    assert_eq!(c.unknown_loops, 0);
}

#[test]
fn a_loop_without_constant_limit_has_no_count() {
    let text = "HloModule m
cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  s = s32[] constant(1)
  j = s32[] add(i, s)
  ROOT t = (s32[], s32[]) tuple(j, LIMIT)
}
ENTRY e {
  i = s32[] constant(0)
  n = s32[] INPUT
  t = (s32[], s32[]) tuple(i, n)
  ROOT w = (s32[], s32[]) while(t), condition=cond, body=body
}
";
    let count = |limit: &str, input: &str| {
        let m = parse(&text.replace("LIMIT", limit).replace("INPUT", input));
        trips(&m, find(&m, "w")).map(|t| t.count)
    };
    assert_eq!(count("n", "constant(12)"), Some(12));
    assert_eq!(count("n", "parameter(0)"), None);
    // The limit moves with the counter.
    assert_eq!(count("j", "constant(12)"), None);
}

#[test]
fn executions_multiply_through_loops_and_calls() {
    let m = parse(
        "HloModule m
f {
  x = f32[4,4] parameter(0)
  ROOT d = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
cond {
  p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,4] get-tuple-element(p), index=1
  s = s32[] constant(1)
  j = s32[] add(i, s)
  a = f32[4,4] call(x), to_apply=f
  b = f32[4,4] call(a), to_apply=f
  ROOT t = (s32[], f32[4,4]) tuple(j, b)
}
ENTRY e {
  i = s32[] constant(0)
  x = f32[4,4] parameter(0)
  y = f32[4,4] call(x), to_apply=f
  t = (s32[], f32[4,4]) tuple(i, y)
  ROOT w = (s32[], f32[4,4]) while(t), condition=cond, body=body
}
",
    );
    let c = ModuleCost::new(&m);
    let f = m.comps.iter().position(|c| m.str(c.name) == "f").unwrap();
    assert_eq!(c.executions[f], 7.0);
    // A product is 2 * 4^3; the counter costs an addition and a comparison.
    assert_eq!(c.total.flops, 7.0 * 128.0 + 3.0 * 2.0);
    assert_eq!(c.once.flops, 3.0 * 128.0 + 2.0);
}

fn collective(line: &str, mesh: &[(&str, i64)]) -> (f64, Option<i64>, Vec<String>) {
    let m = parse(&format!(
        "HloModule m, num_partitions=8
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  p = f32[16,32] parameter(0)
  ROOT r = {line}
}}
"
    ));
    let mesh: Vec<Axis> = mesh.iter().map(|a| (a.0.to_owned(), a.1)).collect();
    let t = traffic(&m, find(&m, "r"), &mesh).unwrap();
    (t.bytes, t.group_size, t.axes)
}

#[test]
fn traffic_of_rings() {
    const MESH: &[(&str, i64)] = &[("dp", 2), ("tp", 4)];
    // 16 * 32 * 4 bytes.
    let whole = 2048.0;
    let tail = "channel_id=1, use_global_device_ids=true, to_apply=add";
    let (b, n, axes) = collective(
        &format!("f32[16,32] all-reduce(p), replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, {tail}"),
        MESH,
    );
    assert_eq!((b, n, axes), (2.0 * whole * 3.0 / 4.0, Some(4), vec!["tp".to_owned()]));
    let (b, n, axes) = collective(
        &format!("f32[16,32] all-reduce(p), replica_groups=[4,2]<=[2,4]T(1,0), {tail}"),
        MESH,
    );
    assert_eq!((b, n, axes), (whole, Some(2), vec!["dp".to_owned()]));
    let (b, n, axes) =
        collective(&format!("f32[16,32] all-reduce(p), replica_groups=[1,8]<=[8], {tail}"), MESH);
    assert_eq!((b, n), (2.0 * whole * 7.0 / 8.0, Some(8)));
    assert_eq!(axes, ["dp", "tp"]);
    let (b, n, axes) = collective(
        "f32[64,32] all-gather(p), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}, channel_id=1, use_global_device_ids=true",
        MESH,
    );
    assert_eq!((b, n, axes), (4.0 * whole * 3.0 / 4.0, Some(4), vec!["tp".to_owned()]));
    let (b, ..) = collective(
        &format!(
            "f32[4,32] reduce-scatter(p), replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}}, dimensions={{0}}, {tail}"
        ),
        MESH,
    );
    assert_eq!(b, whole * 3.0 / 4.0);
    // Half of the devices send.
    let (b, _, axes) = collective(
        "f32[16,32] collective-permute(p), source_target_pairs={{0,1},{1,2},{4,5},{5,6}}, channel_id=1",
        MESH,
    );
    assert_eq!((b, axes), (whole / 2.0, vec!["tp".to_owned()]));
    // Groups that are no block of the mesh name no axis.
    let (_, n, axes) = collective(
        &format!(
            "f32[16,32] all-reduce(p), replica_groups={{{{0,1}},{{2,3}},{{4,5}},{{6,7}}}}, {tail}"
        ),
        MESH,
    );
    assert_eq!((n, axes.len()), (Some(2), 0));
}

#[test]
fn odd_sizes_are_no_error() {
    // Unbounded and huge dimensions.
    let m = parse(
        "HloModule m
ENTRY e {
  p = f32[?,4] parameter(0)
  q = f32[1000000000,1000000000,1000000000] parameter(1)
  a = f32[?,4] add(p, p)
  ROOT b = f32[1000000000,1000000000,1000000000] add(q, q)
}
",
    );
    let c = ModuleCost::new(&m);
    assert!((c.total.flops - 1e27).abs() <= 1e13, "{}", c.total.flops);
}
