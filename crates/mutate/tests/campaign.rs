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
    let text = |m: &scalify_ir::Module| scalify_hlo::write(m, &Default::default());
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

/// Folders of a partitioner's records and of two modules without one.
#[test]
fn reads_records_and_pipelines() {
    let root = std::env::temp_dir().join(format!("scalify-mutate-{}", std::process::id()));
    let text = |n: i64| format!("HloModule m\nENTRY e {{\n  ROOT x = f32[{n}] parameter(0)\n}}\n");
    let put = |dir: &str, file: &str, text: &str| {
        let d = root.join(dir);
        std::fs::create_dir_all(&d).expect("a folder");
        std::fs::write(d.join(file), text).expect("a file");
    };
    put("rec", "base.input.hlo.txt", &text(8));
    put("rec", "gspmd.post_spmd.hlo.txt", &text(2));
    put(
        "rec",
        "gspmd.io.json",
        r#"{"mesh": {"axes": ["x"], "shape": [4]},
            "inputs": [{"path": "a", "spec": "P('x',)"}], "outputs": [{"spec": "P('x',)"}]}"#,
    );
    // A record without the modules, and modules without a record.
    put("rec", "shardy.io.json", "{}");
    put("pipe", "before.hlo.txt", &text(3));
    put("pipe", "after.hlo.txt", &text(3));
    put("none", "after.hlo.txt", &text(3));
    let found = cases::sources(&root).expect("folders");
    let names: Vec<&str> = found.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["pipe/before:after", "rec/gspmd"]);
    let pairs: Vec<_> = found.iter().map(|s| s.load().expect("a pair")).collect();
    assert!(pairs[0].claim.mesh.is_none());
    assert_eq!(pairs[1].claim.mesh.as_ref().map(|m| m.devices()), Some(4));
    assert_eq!((pairs[1].claim.inputs.len(), pairs[1].claim.outputs.len()), (1, 1));
    let dims = |m: &scalify_ir::Module| {
        m.array(m.entry_comp().root).map(|a| a.dims.to_vec()).expect("an array")
    };
    assert_eq!((dims(&pairs[1].base), dims(&pairs[1].dist)), (vec![8], vec![2]));
    std::fs::remove_dir_all(&root).expect("the folder goes");
}
