//! Stages of pipelines against programs of which the stages are written by
//! hand after the baseline.

use scalify_claim::{Claim, Port};
use scalify_ir::validate::{Severity, ValidateOptions, validate};
use scalify_ir::{Attrs, Module};
use scalify_prove::outcome::Verdict;
use scalify_refute::{Plan, decide};
use scalify_stages::{Joined, join};
use std::time::Duration;

fn parse(text: &str) -> Module {
    let m = scalify_hlo::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let found = validate(&m, &ValidateOptions::default());
    assert!(found.iter().all(|i| i.severity != Severity::Error), "{found:?}\n{text}");
    m
}

/// Layers `from..to` of an MLP: each is `tanh(h @ w)`; widths of the values
/// between layers.
fn layers(from: usize, to: usize, width: &[i64]) -> String {
    let mut t = format!("HloModule layers_{from}_{to}\nENTRY main {{\n");
    t += &format!("  x = f32[4,{}] parameter(0)\n", width[from]);
    let mut h = "x".to_owned();
    for k in from..to {
        let (a, b) = (width[k], width[k + 1]);
        t += &format!("  w{k} = f32[{a},{b}] parameter({})\n", k - from + 1);
        t += &format!(
            "  d{k} = f32[4,{b}] dot({h}, w{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        );
        let root = if k + 1 == to { "ROOT " } else { "" };
        t += &format!("  {root}h{k} = f32[4,{b}] tanh(d{k})\n");
        h = format!("h{k}");
    }
    t + "}\n"
}

fn joined(texts: &[&str], links: &[(&str, &str)], results: &[&str]) -> Joined {
    let modules: Vec<Module> = texts.iter().map(|t| parse(t)).collect();
    let refs: Vec<&Module> = modules.iter().collect();
    let port = |t: &&str| Port::parse(t).unwrap();
    let links: Vec<(Port, Port)> = links.iter().map(|(a, b)| (port(a), port(b))).collect();
    let results: Vec<Port> = results.iter().map(port).collect();
    let j = join(&refs, &links, &results).unwrap_or_else(|e| panic!("{e}"));
    let found = validate(&j.module, &ValidateOptions::default());
    assert!(found.iter().all(|i| i.severity != Severity::Error), "{found:?}");
    j
}

fn error(texts: &[&str], links: &[(&str, &str)]) -> (usize, String, String) {
    let modules: Vec<Module> = texts.iter().map(|t| parse(t)).collect();
    let refs: Vec<&Module> = modules.iter().collect();
    let port = |t: &str| Port::parse(t).unwrap();
    let links: Vec<(Port, Port)> = links.iter().map(|(a, b)| (port(a), port(b))).collect();
    let e = join(&refs, &links, &[]).expect_err("stages that do not fit together");
    let (a, b) = (e.span.start as usize, e.span.end as usize);
    let line = texts[e.stage].get(a..b).unwrap_or("").trim().to_owned();
    (e.stage, format!("{e}, expected {}", e.expected), line)
}

fn verdict_with(base: &str, dist: &Module, pairs: &[&str]) -> Verdict {
    let mut claim = Claim::default();
    for p in pairs {
        claim.add_pair(p).unwrap();
    }
    let plan = Plan { repair: Duration::ZERO, ..Plan::default() };
    let d = decide(&parse(base), dist, &claim, &scalify_prove::Options::default(), &plan);
    d.outcome.verdict
}

fn verdict(base: &str, dist: &Module) -> Verdict {
    verdict_with(base, dist, &[])
}

/// Widths that differ, and equal ones between the layers.
const WIDTH: [i64; 5] = [8, 16, 12, 20, 6];
const EVEN: [i64; 5] = [8, 16, 16, 16, 6];

#[test]
fn a_cut_mlp_is_the_mlp() {
    for width in [WIDTH, EVEN] {
        let base = layers(0, 4, &width);
        for cuts in [vec![0, 4], vec![0, 2, 4], vec![0, 1, 4], vec![0, 1, 2, 3, 4]] {
            let stages: Vec<String> = cuts.windows(2).map(|c| layers(c[0], c[1], &width)).collect();
            let texts: Vec<&str> = stages.iter().map(String::as_str).collect();
            let j = joined(&texts, &[], &[]);
            assert_eq!(verdict(&base, &j.module), Verdict::Proved, "{cuts:?}");
            assert_eq!(j.notes.len(), usize::from(cuts.len() > 2));
            // The parameters of the baseline, and none for what passes on.
            assert_eq!(j.module.entry_comp().params.len(), 5);
        }
    }
}

#[test]
fn swapped_stages_are_refuted() {
    let base = layers(0, 4, &EVEN);
    let (a, b, c, d) =
        (layers(0, 1, &EVEN), layers(1, 2, &EVEN), layers(2, 3, &EVEN), layers(3, 4, &EVEN));
    let right = joined(&[&a, &b, &c, &d], &[], &[]);
    assert_eq!(verdict(&base, &right.module), Verdict::Proved);
    let wrong = joined(&[&a, &c, &b, &d], &[], &[]);
    assert_eq!(verdict(&base, &wrong.module), Verdict::Refuted);
    // Where shapes differ, they do not fit.
    let (a, b) = (layers(0, 2, &WIDTH), layers(2, 4, &WIDTH));
    let (stage, text, _) = error(&[&b, &a], &[]);
    assert!(stage == 0 && text.contains("not the leading inputs of stage 1"), "{text}");
}

#[test]
fn a_weight_used_twice_is_no_proof() {
    let base = layers(0, 4, &EVEN);
    let (a, b, d) = (layers(0, 1, &EVEN), layers(1, 2, &EVEN), layers(3, 4, &EVEN));
    // Two stages hold w1; nothing holds w2.
    let j = joined(&[&a, &b, &b, &d], &[], &[]);
    let names = ["stage1.w1", "stage2.w1"].map(|n| ("w1".to_owned(), n.to_owned()));
    assert_eq!(j.renamed, names);
    let pairs = ["w1=stage1.w1", "w1=stage2.w1"];
    assert_eq!(verdict_with(&base, &j.module, &pairs), Verdict::Refuted);
    // Of a baseline that uses its weight twice, it is right.
    let twice = base
        .replace("  w2 = f32[16,16] parameter(3)\n", "")
        .replace("dot(h1, w2)", "dot(h1, w1)")
        .replace("parameter(4)", "parameter(3)");
    assert_eq!(verdict_with(&twice, &j.module, &pairs), Verdict::Proved);
}

#[test]
fn links_are_as_declared() {
    let base = layers(0, 4, &EVEN);
    // Weights first: by position, the weight would be taken for the value.
    let weights_first = |t: String, x: &str| {
        t.replace(x, "").replace("parameter(1)", "parameter(0)").replace(
            "  d1",
            &format!("  {}  d1", x.trim_start().replace("parameter(0)", "parameter(1)")),
        )
    };
    let b = weights_first(layers(1, 2, &[8, 4, 4, 4, 6]), "  x = f32[4,4] parameter(0)\n");
    let a = layers(0, 1, &[8, 4, 4, 4, 6]);
    let rest = layers(2, 4, &[8, 4, 4, 4, 6]);
    let base4 = layers(0, 4, &[8, 4, 4, 4, 6]);
    let j = joined(&[&a, &b, &rest], &[("1:x", "0:#0"), ("2:#0", "1:#0")], &[]);
    assert_eq!(verdict(&base4, &j.module), Verdict::Proved);
    assert!(j.notes.is_empty());
    // By position there is a doubt, which is said.
    let j = joined(&[&a, &b, &rest], &[], &[]);
    assert!(j.notes[0].contains("other inputs have the same shapes"), "{:?}", j.notes);
    assert_ne!(verdict(&base4, &j.module), Verdict::Proved);
    // Where the shapes leave one way only, the order of inputs does not matter.
    let b = weights_first(layers(1, 2, &WIDTH), "  x = f32[4,16] parameter(0)\n");
    let (a, rest) = (layers(0, 1, &WIDTH), layers(2, 4, &WIDTH));
    let j = joined(&[&a, &b, &rest], &[], &[]);
    assert_eq!(verdict(&layers(0, 4, &WIDTH), &j.module), Verdict::Proved);
    // What does not fit is an error at the parameter.
    let (c, d) = (layers(0, 2, &EVEN), layers(2, 4, &EVEN));
    let (stage, text, line) = error(&[&c, &d], &[("1:w3", "0:#0")]);
    assert!(
        stage == 1 && text.contains("is f32[16,6], but output #0 of stage 0 is f32[4,16]"),
        "{text}"
    );
    assert!(line.contains("parameter(2)"), "{line}");
    for (link, expected) in [
        (("1:nope", "0:#0"), "no such input"),
        (("2:x", "0:#0"), "there is no stage 2"),
        (("1:x", "0:#1"), "no such output"),
        (("1:x", "3:#0"), "there is no stage 3"),
    ] {
        let (_, text, _) = error(&[&c, &d], &[link]);
        assert!(text.contains(expected), "{text}");
    }
    let (_, text, _) = error(&[&c, &d], &[("1:x", "0:#0"), ("1:#0", "0:#0")]);
    assert!(text.contains("linked twice"), "{text}");
    let (_, text, _) = error(&[&c, &d], &[("1:x", "0:#0"), ("0:x", "0:#0")]);
    assert!(text.contains("0:x") || text.contains("is f32[4,8]"), "{text}");
    assert_eq!(verdict(&base, &joined(&[&c, &d], &[("1:x", "0:#0")], &[]).module), Verdict::Proved);
}

/// Two layers on two devices: columns, then rows, then a sum over the devices.
fn tensor_parallel(from: usize, reduce: &str) -> String {
    let (w, v) = (format!("w{from}"), format!("w{}", from + 1));
    format!(
        "HloModule tp, num_partitions=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[4,8] parameter(0), sharding={{replicated}}
  {w} = f32[8,8] parameter(1), sharding={{devices=[1,2]<=[2]}}
  {v} = f32[8,8] parameter(2), sharding={{devices=[2,1]<=[2]}}
  d = f32[4,8] dot(x, {w}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  h = f32[4,8] tanh(d)
  e = f32[4,8] dot(h, {v}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  s = f32[4,8] {reduce}
  ROOT r = f32[4,8] tanh(s)
}}
"
    )
}

#[test]
fn stages_may_be_split_themselves() {
    let base = layers(0, 4, &[8, 16, 8, 16, 8]);
    let sum = "all-reduce(e), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add";
    let (a, b) = (tensor_parallel(0, sum), tensor_parallel(2, sum));
    let j = joined(&[&a, &b], &[], &[]);
    assert_eq!(j.module.header.num_partitions, Some(2));
    assert_eq!(verdict(&base, &j.module), Verdict::Proved);
    // The second stage forgets its sum.
    let wrong = tensor_parallel(2, "copy(e)");
    assert_eq!(verdict(&base, &joined(&[&a, &wrong], &[], &[]).module), Verdict::Refuted);
    let other = b.replace("num_partitions=2", "num_partitions=4").replace("{{0,1}}", "{{0,1,2,3}}");
    let other = other.replace("<=[2]", "<=[4]").replace("1,2]<", "1,4]<").replace("2,1]<", "4,1]<");
    let modules = [parse(&a), parse(&other)];
    let e = join(&[&modules[0], &modules[1]], &[], &[]).unwrap_err();
    assert!(e.stage == 1 && e.message.contains("not supported"), "{e}");
}

/// Forward in two stages and back: a loss `sum(tanh(tanh(x @ w0) @ w1))` and
/// the gradients of the weights, by the chain rule: with `h = tanh(x @ w0)` and
/// `y = tanh(h @ w1)`, `dy = 1 - y^2`, `dw1 = h' dy`, `dh = dy w1'`,
/// `dw0 = x' (dh (1 - h^2))`.
const BASE: &str = "HloModule base
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[4,8] parameter(0)
  w0 = f32[8,16] parameter(1)
  w1 = f32[16,6] parameter(2)
  z0 = f32[4,16] dot(x, w0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[4,16] tanh(z0)
  z1 = f32[4,6] dot(h, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[4,6] tanh(z1)
  zero = f32[] constant(0)
  loss = f32[] reduce(y, zero), dimensions={0,1}, to_apply=add
  one = f32[] constant(1)
  o1 = f32[4,6] broadcast(one), dimensions={}
  yy = f32[4,6] multiply(y, y)
  dy = f32[4,6] subtract(o1, yy)
  dw1 = f32[16,6] dot(h, dy), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dh = f32[4,16] dot(dy, w1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  o0 = f32[4,16] broadcast(one), dimensions={}
  hh = f32[4,16] multiply(h, h)
  k0 = f32[4,16] subtract(o0, hh)
  dz0 = f32[4,16] multiply(dh, k0)
  dw0 = f32[8,16] dot(x, dz0), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = (f32[], f32[8,16], f32[16,6]) tuple(loss, dw0, dw1)
}
";

/// Sends `h` on channel 1, receives its gradient on channel 2.
const FIRST: &str = "HloModule first
ENTRY main {
  x = f32[4,8] parameter(0)
  w0 = f32[8,16] parameter(1)
  z0 = f32[4,16] dot(x, w0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[4,16] tanh(z0)
  t0 = token[] after-all()
  s = (f32[4,16], u32[], token[]) send(h, t0), channel_id=1
  t1 = token[] send-done(s), channel_id=1
  r = (f32[4,16], u32[], token[]) recv(t1), channel_id=2
  rd = (f32[4,16], token[]) recv-done(r), channel_id=2
  dh = f32[4,16] get-tuple-element(rd), index=0
  one = f32[] constant(1)
  o0 = f32[4,16] broadcast(one), dimensions={}
  hh = f32[4,16] multiply(h, h)
  k0 = f32[4,16] subtract(o0, hh)
  dz0 = f32[4,16] multiply(dh, k0)
  ROOT dw0 = f32[8,16] dot(x, dz0), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
";

const SECOND: &str = "HloModule second
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  t0 = token[] after-all()
  r = (f32[4,16], u32[], token[]) recv(t0), channel_id=1
  rd = (f32[4,16], token[]) recv-done(r), channel_id=1
  h = f32[4,16] get-tuple-element(rd), index=0
  w1 = f32[16,6] parameter(0)
  z1 = f32[4,6] dot(h, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[4,6] tanh(z1)
  zero = f32[] constant(0)
  loss = f32[] reduce(y, zero), dimensions={0,1}, to_apply=add
  one = f32[] constant(1)
  o1 = f32[4,6] broadcast(one), dimensions={}
  yy = f32[4,6] multiply(y, y)
  dy = f32[4,6] subtract(o1, yy)
  dw1 = f32[16,6] dot(h, dy), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dh = f32[4,16] dot(dy, w1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  t1 = token[] get-tuple-element(rd), index=1
  s = (f32[4,16], u32[], token[]) send(dh, t1), channel_id=2
  t2 = token[] send-done(s), channel_id=2
  ROOT q = (f32[], f32[16,6]) tuple(loss, dw1)
}
";

#[test]
fn values_pass_by_channel_forward_and_back() {
    let results = ["1:#0", "0:#0", "1:#1"];
    let j = joined(&[FIRST, SECOND], &[], &results);
    assert_eq!(verdict(BASE, &j.module), Verdict::Proved);
    assert!(j.notes.is_empty());
    assert!(!j.module.instrs.iter().any(|i| matches!(i.attrs, Attrs::Channel { .. })));
    // Back goes the value before its product with the weight's transpose.
    let wrong = SECOND.replace("dh = f32[4,16] dot(dy, w1)", "dh = f32[4,16] dot(yy, w1)");
    let j = joined(&[FIRST, &wrong], &[], &results);
    assert_eq!(verdict(BASE, &j.module), Verdict::Refuted);
    // A stage may come before the one it depends on.
    let j = joined(&[SECOND, FIRST], &[], &["0:#0", "1:#0", "0:#1"]);
    assert_eq!(verdict(BASE, &j.module), Verdict::Proved);
}

/// Sends `x + y` and `x - y`; `x * (x - y)` of the other two would be wrong.
const TWO: [&str; 2] = [
    "HloModule a
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  p = f32[4] add(x, y)
  m = f32[4] subtract(x, y)
  t0 = token[] after-all()
  s = (f32[4], u32[], token[]) send(p, t0), channel_id=7
  d = token[] send-done(s), channel_id=7
  u = (f32[4], u32[], token[]) send(m, d), channel_id=9
  ROOT e = token[] send-done(u), channel_id=9
}
",
    "HloModule b
ENTRY main {
  t0 = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t0), channel_id=7
  rd = (f32[4], token[]) recv-done(r), channel_id=7
  q = (f32[4], u32[], token[]) recv(t0), channel_id=9
  qd = (f32[4], token[]) recv-done(q), channel_id=9
  p = f32[4] get-tuple-element(rd), index=0
  m = f32[4] get-tuple-element(qd), index=0
  ROOT o = f32[4] divide(p, m)
}
",
];

const QUOTIENT: &str = "HloModule base
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  p = f32[4] add(x, y)
  m = f32[4] subtract(x, y)
  ROOT o = f32[4] divide(p, m)
}
";

#[test]
fn a_wrong_channel_is_refuted_or_an_error() {
    let [a, b] = TWO;
    assert_eq!(verdict(QUOTIENT, &joined(&[a, b], &[], &[]).module), Verdict::Proved);
    let swapped = b.replace("channel_id=7", "channel_id=8").replace("channel_id=9", "channel_id=7");
    let swapped = swapped.replace("channel_id=8", "channel_id=9");
    assert_eq!(verdict(QUOTIENT, &joined(&[a, &swapped], &[], &[]).module), Verdict::Refuted);
    // Expected: the stage, words of the message, words of the line it points to.
    let cases: Vec<(&str, String, usize, &str, &str)> = vec![
        (
            a,
            b.replace("channel_id=9", "channel_id=8"),
            0,
            "nothing receives from channel 9",
            "send(m",
        ),
        (a, b.replace("channel_id=9", "channel_id=7"), 1, "another recv", "recv(t0)"),
        (a, b.replace("f32[4]", "f32[5]"), 1, "receives f32[5]", "recv(t0)"),
        (
            a,
            b.replace("channel_id=9", "channel_id=9, is_host_transfer=true"),
            1,
            "host",
            "recv(t0)",
        ),
    ];
    let cases = cases.into_iter().chain([(
        a,
        b.replace(
            "channel_id=9",
            "channel_id=9, frontend_attributes={_xla_send_recv_source_target_pairs=\"{{0,1}}\"}",
        ),
        1,
        "devices of other numbers",
        "recv(t0)",
    )]);
    for (a, b, stage, words, line) in cases {
        let (k, text, at) = error(&[a, &b], &[]);
        assert!(k == stage && text.contains(words) && at.contains(line), "{k}: {text}: {at}");
    }
    let (_, text, _) = error(&[b, b], &[]);
    assert!(text.contains("another recv"), "{text}");
    let (_, text, _) = error(&[b, &layers(0, 1, &WIDTH)], &[]);
    assert!(text.contains("nothing is sent on channel 7"), "{text}");
}

#[test]
fn stages_that_wait_for_each_other_are_an_error() {
    // Each sends what it has received.
    let one = |get: u32, give: u32| {
        format!(
            "HloModule m
ENTRY main {{
  t0 = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t0), channel_id={get}
  rd = (f32[4], token[]) recv-done(r), channel_id={get}
  v = f32[4] get-tuple-element(rd), index=0
  s = (f32[4], u32[], token[]) send(v, t0), channel_id={give}
  d = token[] send-done(s), channel_id={give}
  ROOT o = f32[4] negate(v)
}}
"
        )
    };
    let (_, text, line) = error(&[&one(1, 2), &one(2, 1)], &[]);
    assert!(text.contains("depends on itself"), "{text}");
    assert!(!line.is_empty());
    let (a, b) = (layers(0, 1, &[8, 8]), layers(0, 1, &[8, 8]));
    let port = |t: &str| Port::parse(t).unwrap();
    let links = [(port("1:x"), port("0:#0")), (port("0:x"), port("1:#0"))];
    let e = join(&[&parse(&a), &parse(&b)], &links, &[port("1:#0")]).unwrap_err();
    assert!(e.message.contains("depends on itself"), "{e}");
}
