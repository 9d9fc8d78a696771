//! Questions about a verified pair while its terms are there.

use scalify_claim::{Claim, Mesh};
use scalify_ir::{InstrId, Module};
use scalify_prove::outcome::{Grade, Verdict};
use scalify_prove::{Options, verify, verify_then};

fn program(devices: i64, rows: i64, end: &str) -> Module {
    let text = format!(
        "HloModule m, num_partitions={devices}

add {{
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b)
}}

ENTRY main {{
 x = f32[6,{rows}] parameter(0)
 w = f32[{rows},10] parameter(1)
 t = f32[6,{rows}] tanh(x)
 d = f32[6,10] dot(t, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{end}
}}
"
    );
    scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn sum(groups: &str, after: &str) -> Module {
    let s = format!(
        " s = f32[6,10] all-reduce(d), channel_id=1, replica_groups={groups}, use_global_device_ids=true, to_apply=add\n{after}"
    );
    program(2, 4, &s)
}

fn named(m: &Module, name: &str) -> InstrId {
    let k = m.instrs.iter().position(|i| m.str(i.name) == name).unwrap();
    InstrId(k as u32)
}

#[test]
fn other_programs_are_proved_against_the_same_baseline() {
    let base = program(1, 8, " ROOT r = f32[6,10] exponential(d)");
    let wrong = program(2, 4, " ROOT r = f32[6,10] exponential(d)");
    let right = sum("{{0,1}}", " ROOT r = f32[6,10] exponential(s)");
    let late = sum("{{0,1}}", " e = f32[6,10] exponential(d)\n ROOT r = f32[6,10] add(e, s)");
    let alone = sum("{{0},{1}}", " ROOT r = f32[6,10] exponential(s)");
    let mut c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    c.add_input("x=P(None, 'tp')").unwrap();
    c.add_input("w=P('tp', None)").unwrap();
    let o = Options::default();
    let all = [&wrong, &right, &late, &right, &alone, &wrong, &right];
    let found = verify_then(&base, &wrong, &c, &o, |outcome, kept| {
        let t = kept.block_of(named(&wrong, "t"));
        let d = (kept.is_related(named(&wrong, "d")), kept.block_of(named(&wrong, "d")));
        (outcome, t, d, all.map(|m| kept.proves(m, &c, &o)))
    });
    let (outcome, t, d, grades) = found.expect("no panic");
    assert_eq!(outcome.verdict, Verdict::Unknown);
    // The block of the baseline's value, by columns; the partial sum is none.
    let (b, q) = t.expect("a block");
    assert_eq!(base.name_of(b), "t");
    assert_eq!(q.dims.iter().map(|d| d.tiles).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(q.dims[1].tile_of_device[..], [0, 1]);
    assert!(!d.0 && d.1.is_none());
    // As each is decided on its own.
    for (m, g) in all.iter().zip(&grades) {
        let v = verify(&base, m, &c, &o);
        assert_eq!(v.grade, *g);
        assert_eq!(v.verdict == Verdict::Proved, g.is_some());
    }
    assert_eq!(grades[1], Some(Grade::Reassociated));
    assert_eq!(grades[0], None);
}

#[test]
fn a_program_on_other_devices_is_not_proved_against_this_lifting() {
    let base = program(1, 8, " ROOT r = f32[6,10] exponential(d)");
    let wrong = program(2, 4, " ROOT r = f32[6,10] exponential(d)");
    let whole = program(4, 8, " ROOT r = f32[6,10] exponential(d)");
    let half = program(2, 8, " ROOT r = f32[6,10] exponential(d)");
    // No mesh is declared: the number of devices is the program's.
    let (c, o) = (Claim::default(), Options::default());
    assert_eq!(verify(&base, &whole, &c, &o).verdict, Verdict::Proved);
    let first = |m: &Module| {
        verify_then(&base, &wrong, &c, &o, |_, kept| kept.proves(m, &c, &o)).expect("no panic")
    };
    assert_eq!(first(&whole), None);
    assert!(first(&half).is_some());
}

#[test]
fn exact_laws_alone_prove_nothing_further() {
    let base = program(1, 8, " ROOT r = f32[6,10] exponential(d)");
    let (c, o) = (Claim::default(), Options::default());
    let (grade, again) = verify_then(&base, &base, &c, &o, |outcome, kept| {
        (outcome.grade, kept.proves(&base, &c, &o))
    })
    .expect("no panic");
    assert_eq!((grade, again), (Some(Grade::Exact), None));
}

/// One of two results of a sort, then an operation on it.
fn sorted(devices: i64, which: i64, end: &str) -> Module {
    let text = format!(
        "HloModule m, num_partitions={devices}

less {{
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 ROOT r = pred[] compare(a, b), direction=LT
}}

ENTRY main {{
 x = f32[6] parameter(0)
 y = f32[6] parameter(1)
 s = (f32[6], f32[6]) sort(x, y), dimensions={{0}}, to_apply=less
 g = f32[6] get-tuple-element(s), index={which}
 e = f32[6] exponential(g)
 ROOT r = f32[6] {end}(e)
}}
"
    );
    scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn an_edit_of_what_has_no_operation_of_its_own_counts() {
    let base = sorted(1, 1, "tanh");
    // The first program is wrong at its end alone.
    let first = sorted(2, 1, "sine");
    let (right, wrong) = (sorted(2, 1, "tanh"), sorted(2, 0, "tanh"));
    let c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    let o = Options::default();
    let found = verify_then(&base, &first, &c, &o, |outcome, kept| {
        (outcome.verdict, [&wrong, &right, &wrong].map(|m| kept.proves(m, &c, &o).is_some()))
    });
    let (verdict, proved) = found.expect("no panic");
    assert_eq!(verdict, Verdict::Unknown);
    assert_eq!(proved, [false, true, false]);
}
