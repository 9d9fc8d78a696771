//! A small campaign with a fixed seed, and operators on a small module.

use scalify_mutate::campaign::{self, Config, End, Silent};
use scalify_mutate::{cases, operators, random::Random};
use std::path::Path;
use std::time::Duration;

const TEXT: &str = "HloModule m, num_partitions=4
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4,4] parameter(0)
  y = f32[4,4] parameter(1)
  d = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[4,4] all-reduce(d), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  s = f32[2,4] slice(r), slice={[0:2],[0:4]}
  ROOT t = f32[4,2] transpose(s), dimensions={1,0}
}
";

/// Every operator's mutants are valid, are not the original, keep the entry's
/// signature and are the same for the same seed.
#[test]
fn mutants_are_valid_and_new() {
    let m = scalify_hlo::parse(TEXT).expect("a module");
    let text = |m| scalify_hlo::write(m, &Default::default());
    let mut made = 0;
    for o in operators::all() {
        for (k, s) in o.sites(&m).into_iter().enumerate() {
            let mutant = |seed| o.apply(&m, s, 4, &mut Random::new(seed)).map(|x| text(&x.module));
            let Some(x) = mutant(k as u64) else { continue };
            made += 1;
            assert_ne!(x, text(&m), "{}", o.name);
            assert_eq!(mutant(k as u64), Some(x.clone()), "{}", o.name);
            let again = scalify_hlo::parse(&x).unwrap_or_else(|e| panic!("{}: {e}\n{x}", o.name));
            assert!(operators::valid(&again), "{}", o.name);
            let shape = |m: &scalify_ir::Module| m.shape(m.entry_comp().root).clone();
            assert!(shape(&again).same(&shape(&m)), "{}", o.name);
        }
    }
    assert!(made > 40, "{made} mutants");
}

/// The edits of one operator are what it says.
#[test]
fn drops_a_collective() {
    let m = scalify_hlo::parse(TEXT).expect("a module");
    let o = operators::all().into_iter().find(|o| o.name == "drop-collective").expect("it exists");
    let sites = o.sites(&m);
    assert_eq!(sites.len(), 1);
    let x = o.apply(&m, sites[0], 4, &mut Random::new(1)).expect("a mutant").module;
    let s = x.entry_comp().instrs.iter().find(|&&i| x.name_of(i) == "s").expect("the slice");
    assert_eq!(x.name_of(x.instr(*s).operands[0]), "d");
}

/// No mutant of some pairs is falsely proved or refuted, and operators that
/// keep the function keep it.
#[test]
fn no_false_verdict() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let mut sources = Vec::new();
    for d in ["corpus/hand", "pairs"] {
        sources.extend(cases::sources(&root.join(d)).expect("a folder of pairs"));
    }
    let c = Config {
        mutants: 300,
        seed: 20,
        proof_limit: Duration::from_secs(10),
        ..Config::default()
    };
    let r = campaign::run(&cases::some(sources, 24), &c, &Silent);
    assert!(r.originals.is_empty(), "proved, but values differ: {:?}", r.originals);
    let bad: Vec<String> = r
        .records
        .iter()
        .filter(|x| x.end.bad())
        .map(|x| format!("{} {:?} {} {}: {}", x.number, x.end, x.operator, x.pair, x.text))
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    let count = |e: &[End]| r.records.iter().filter(|x| e.contains(&x.end)).count();
    assert!(r.records.len() >= 295, "{} mutants", r.records.len());
    assert!(count(&[End::Killed, End::Refuted]) > 100, "mutants that differ");
    assert!(count(&[End::EqualProved]) > 50, "mutants that are equal");
}
