//! Dumps of XLA as they are, and with a fault put into the dumps from one pass
//! on: that pass must be named.

use scalify_bisect::{Options, Selection, Steps, report, run};
use scalify_claim::Claim;
use scalify_load::{DumpFile, DumpModule, dump_modules};
use scalify_prove::outcome::Verdict;
use std::io::Read as _;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/passes").join(name)
}

fn only_module(dir: &Path) -> DumpModule {
    let mut all = dump_modules(dir).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn bisect(dir: &Path, all: bool, cache: Option<&Path>) -> Steps {
    let m = only_module(dir);
    let claim = Claim::default();
    let plan = scalify_refute::Plan { repair: std::time::Duration::ZERO, ..Default::default() };
    let o = Options {
        claim: &claim,
        prover: scalify_prove::Options::default(),
        plan,
        all,
        cache,
        source_root: &[],
    };
    run(&m, &m.files, &o, &mut |_, _, _| {})
}

fn unpacked(f: &DumpFile) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(&f.path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// The dumps of a folder, with `edit` done to all from the first whose label
/// holds `from` on.
fn planted(name: &str, from: &str, edit: &dyn Fn(&str) -> String) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let m = only_module(&folder(name));
    let begin = m.files.iter().position(|f| f.label.contains(from)).unwrap();
    for (k, f) in m.files.iter().enumerate() {
        let text = unpacked(f);
        let new = if k >= begin { edit(&text) } else { text.clone() };
        assert_eq!(new != text, k >= begin, "{}", f.label);
        let file = f.path.file_name().unwrap().to_str().unwrap();
        std::fs::write(dir.path().join(file.strip_suffix(".gz").unwrap()), new).unwrap();
    }
    dir
}

#[test]
fn passes_of_xla_are_proved() {
    for (name, partitioning) in [("mlp", 0), ("dp8", 1), ("topk", 0)] {
        let s = bisect(&folder(name), true, None);
        assert_eq!(s.steps.len(), s.total);
        assert_ne!(s.verdict(), Verdict::Refuted, "{name}");
        let open = s.steps.iter().filter(|s| s.verdict != Verdict::Proved);
        let open: Vec<_> = open.collect();
        let open: Vec<_> = open.iter().map(|s| (&s.pass, s.verdict, &s.reason)).collect();
        assert!(open.is_empty(), "{name}: {open:#?}");
        assert_eq!(s.steps.iter().filter(|s| s.partitioning).count(), partitioning, "{name}");
        assert!(s.steps.iter().any(|s| s.identical) && s.steps.iter().any(|s| !s.identical));
        assert!(s.first().is_none());
    }
}

/// Folder, label of the first wrong dump, the edit, and the pass to be named.
type Plant = (&'static str, &'static str, fn(&str) -> String, (&'static str, &'static str));

#[test]
fn the_pass_with_the_fault_is_named() {
    let plants: &[Plant] = &[
        // The coefficient of gelu's cube.
        (
            "mlp",
            "after_fusion",
            |t| t.replace("constant(0.044715)", "constant(0.44715)"),
            ("HLO_passes_after_layout_assignment", "fusion"),
        ),
        // The bias is subtracted.
        (
            "mlp",
            "after_dot-library-rewriter",
            |t| t.replacen(" add(", " subtract(", 1),
            ("dot-library-passes", "dot-library-rewriter"),
        ),
        // Sums over tp in the place of dp.
        (
            "dp8",
            "after_reshape-mover",
            |t| t.replace("{{0,4},{1,5},{2,6},{3,7}}", "{{0,1},{2,3},{4,5},{6,7}}"),
            ("simplification", "reshape-mover"),
        ),
        // The partitioner itself forgets the gradient's sum over dp.
        (
            "dp8",
            "spmd-cleanup.after_pipeline-start",
            |t| t.replace("{{0,4},{1,5},{2,6},{3,7}}", "{{0},{1},{2},{3},{4},{5},{6},{7}}"),
            ("spmd-cleanup", "pipeline-start"),
        ),
        // Descending.
        (
            "topk",
            "after_layout-assignment",
            |t| {
                let at = t.find("ROOT %lt_to.1").unwrap();
                format!("{}{}", &t[..at], t[at..].replacen("direction=LT", "direction=GT", 1))
            },
            ("HLO_passes_through_layout_assignment", "layout-assignment"),
        ),
    ];
    for (name, from, edit, (pipeline, pass)) in plants {
        let dir = planted(name, from, edit);
        // The fault is in all later dumps, so that their steps are right.
        let s = bisect(dir.path(), true, None);
        let wrong = s.steps.iter().filter(|s| s.verdict == Verdict::Refuted).count();
        assert_eq!((wrong, s.steps.len()), (1, s.total), "{name} {from}");
        let first = s.first().unwrap();
        assert_eq!((first.pipeline.as_str(), first.pass.as_str()), (*pipeline, *pass), "{name}");
        // Nothing before it is in doubt, and nothing after it is looked at.
        let t = bisect(dir.path(), false, None);
        assert_eq!(t.first().map(|f| f.number), Some(first.number));
        assert!(t.steps.iter().filter(|s| s.verdict != Verdict::Proved).count() == 1);
        assert_eq!(t.steps.len(), first.number);
    }
}

#[test]
fn a_dump_that_cannot_be_read_is_passed_over() {
    let dir =
        planted("mlp", "after_fusion", &|t| t.replace("constant(0.044715)", "constant(0.44715)"));
    let m = only_module(dir.path());
    let at = m.files.iter().position(|f| f.label.contains("after_fusion")).unwrap();
    std::fs::write(&m.files[at].path, "HloModule broken, {").unwrap();
    let s = bisect(dir.path(), true, None);
    assert_eq!(s.steps.len(), s.total);
    let broken = &s.steps[at - 1];
    assert_eq!(broken.verdict, Verdict::Unknown);
    assert!(broken.reason.as_deref().unwrap().contains("cannot be read"));
    // The next step begins at the last dump that can be read.
    let next = s.first().unwrap();
    assert_eq!((next.number, next.verdict), (at + 1, Verdict::Refuted));
    assert_eq!(next.before, m.files[at - 1].path);
}

#[test]
fn a_cache_saves_the_work_and_is_not_trusted() {
    let cache = tempfile::tempdir().unwrap();
    let dir =
        planted("mlp", "after_fusion", &|t| t.replace("constant(0.044715)", "constant(0.44715)"));
    let decided = |s: &Steps| s.steps.iter().filter(|s| !s.identical).count();
    let cached = |s: &Steps| s.steps.iter().filter(|s| s.cached).count();
    let first = bisect(dir.path(), true, Some(cache.path()));
    assert_eq!((cached(&first), decided(&first) > 2), (0, true));
    let second = bisect(dir.path(), true, Some(cache.path()));
    assert_eq!(cached(&second), decided(&first));
    let results = |s: &Steps| -> Vec<_> {
        s.steps.iter().map(|s| (s.verdict, s.reason.clone(), s.report.clone())).collect()
    };
    assert_eq!(results(&first), results(&second));
    // Entries that say something else are as good as none.
    for e in std::fs::read_dir(cache.path()).unwrap() {
        let path = e.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("refuted", "proved")).unwrap();
    }
    let third = bisect(dir.path(), true, Some(cache.path()));
    assert_eq!(third.verdict(), Verdict::Refuted);
    assert!(cached(&third) < decided(&first));
    // A folder that cannot be written to is a note.
    let file = cache.path().join("file");
    std::fs::write(&file, "").unwrap();
    let fourth = bisect(dir.path(), true, Some(&file));
    assert_eq!((fourth.verdict(), fourth.notes.len()), (Verdict::Refuted, 1));
}

/// A dump of each text, in order, after passes `p0`, `p1`, ..
fn dumps(texts: &[String]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (k, t) in texts.iter().enumerate() {
        let name = format!("module_0001.f.{k:04}.pipe.after_p{k}.before_p{}.txt", k + 1);
        std::fs::write(dir.path().join(name), t).unwrap();
    }
    dir
}

#[test]
fn constants_that_text_leaves_out_are_inputs() {
    let text = |constant: &str, op: &str| {
        format!(
            "HloModule f, entry_computation_layout={{(f32[16]{{0}})->f32[16]{{0}}}}
ENTRY e {{
  x = f32[16] parameter(0)
  {constant} = f32[16] constant({{...}})
  ROOT y = f32[16] {op}(x, {constant})
}}
"
        )
    };
    let b = text("constant.1", "add").replace("  ROOT", "  unused = f32[16] negate(x)\n  ROOT");
    let dir = dumps(&[
        text("constant.1", "add"),
        b,
        // Another operation: not proved, and values that nobody knows refute nothing.
        text("constant.1", "multiply"),
        // Another name: nothing is known of its value.
        text("constant.2", "multiply"),
    ]);
    let s = bisect(dir.path(), true, None);
    let verdicts: Vec<_> = s.steps.iter().map(|s| s.verdict).collect();
    assert_eq!(verdicts, [Verdict::Proved, Verdict::Unknown, Verdict::Unknown]);
    assert_eq!(s.steps[0].report.as_ref().unwrap()["grade"], "under-assumptions");
    assert!(s.steps[2].reason.as_ref().unwrap().contains("--xla_dump_hlo_as_proto"));
}

/// A pass on programs of one device each may not take their inputs for equal:
/// a mean over the devices is another function than its operand, although no
/// collective is there before.
#[test]
fn devices_have_inputs_of_their_own_after_partitioning() {
    let text = |body: &str, sharding: &str| {
        format!(
            "HloModule f, num_partitions=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[4] parameter(0), sharding={{{sharding}}}
{body}
}}
"
        )
    };
    let plain = "  ROOT r = f32[4] negate(x)";
    let mean = "  n = f32[4] negate(x)
  s = f32[4] all-reduce(n), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  h = f32[] constant(0.5)
  hs = f32[4] broadcast(h), dimensions={}
  ROOT r = f32[4] multiply(s, hs)";
    for (sharding, expected) in
        [("devices=[2]<=[2]", Verdict::Refuted), ("replicated", Verdict::Proved)]
    {
        let dir = tempfile::tempdir().unwrap();
        for (name, body) in [
            ("0000.spmd-partitioner.after_spmd-partitioning.before_x", plain),
            ("0001.simplify.after_x.before_y", mean),
        ] {
            let file = dir.path().join(format!("module_0001.f.{name}.txt"));
            std::fs::write(file, text(body, sharding)).unwrap();
        }
        assert_eq!(bisect(dir.path(), true, None).verdict(), expected, "{sharding}");
    }
}

#[test]
fn modules_and_passes_are_selected() {
    let m = only_module(&folder("mlp"));
    let of = |from, to| {
        let s = Selection::new(None, from, to).unwrap();
        s.dumps(&m).map(|d| d.iter().map(|f| f.pass().to_owned()).collect::<Vec<_>>())
    };
    let all = of(None, None).unwrap();
    assert_eq!(all.len(), m.files.len());
    assert_eq!((all[0].as_str(), all.len()), ("before_optimizations", 10));
    let part = of(Some("algsimp"), Some("*fusion*")).unwrap();
    assert_eq!(
        (part.first().unwrap().as_str(), part.last().unwrap().as_str()),
        ("algsimp", "fusion")
    );
    assert!(of(Some("nope"), None).unwrap_err().to_string().contains("algsimp"));
    assert!(Selection::new(Some("["), None, None).is_err());
    for (pattern, found) in [("jit_f", true), ("module_0000.*", true), ("jit_g", false)] {
        let s = Selection::new(Some(pattern), None, None).unwrap();
        assert_eq!(s.modules(vec![m.clone()]).is_ok(), found, "{pattern}");
    }
}

#[test]
fn reports_name_pass_and_instruction() {
    let dir =
        planted("mlp", "after_fusion", &|t| t.replace("constant(0.044715)", "constant(0.44715)"));
    let all = [bisect(dir.path(), false, None)];
    let number = all[0].first().unwrap().number;
    let v: serde_json::Value = serde_json::from_str(&report::json("d", &all).unwrap()).unwrap();
    assert_eq!((&v["verdict"], &v["modules"][0]["first"]), (&"refuted".into(), &number.into()));
    let step = &v["modules"][0]["steps"][number - 1];
    assert_eq!((&step["pass"], &step["verdict"]), (&"fusion".into(), &"refuted".into()));
    assert!(step["instruction"].is_string());
    assert_eq!(step["source"]["file"], "tests/passes/dump.py");
    assert_eq!(step["report"]["verdict"], "refuted");
    let text = report::text(&all, report::TextOptions::default());
    let head = format!(
        "REFUTED  module_0000.jit_f: fusion of HLO_passes_after_layout_assignment (step {number} of {})\n",
        all[0].total
    );
    assert!(text.starts_with(&head), "{text}");
    assert!(text.contains("tests/passes/dump.py:"), "{text}");
    let junit = report::junit(&all);
    assert_eq!(junit.matches("<testcase").count(), all[0].steps.len());
    assert_eq!(junit.matches("<failure").count(), 1);
}
