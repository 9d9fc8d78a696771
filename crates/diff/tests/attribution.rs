//! A slice of `examples/attribution.rs`: planted faults are named, right pairs
//! raise no alarm, wrong ones are found.

#[path = "common/measure.rs"]
mod measure;
#[path = "common/plant.rs"]
mod plant;

use measure::{Planting, faults, pair_modules};
use scalify_corpus::{Case, find, module};
use scalify_diff::diff::{Options, Verdict, diff};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/hand")
}

#[test]
fn planted_faults_are_named() {
    let mut all = Planting::default();
    for case in ["attn_gqa_shard", "mlp_swiglu_bf16", "dp_sgd_clip", "ring_attn_scan"] {
        for (_, m, claim) in pair_modules(&root().join(case)).unwrap() {
            for (_, p) in faults(&m, None, &claim, 2, 5, case, true) {
                all.add(&p);
            }
        }
    }
    assert!(all.above >= 50, "{all:?}");
    assert!(all.named * 100 >= all.above * 98, "{all:?}");
}

/// Names say nothing between a baseline and a distributed program.
#[test]
fn faults_in_distributed_programs_are_named() {
    let mut all = Planting::default();
    for case in [
        "attn_fused_qkv",
        "fsdp_manual",
        "gpipe_unroll",
        "quant_amax",
        "ring_attn_scan",
        "rowpar_psum",
    ] {
        let modules = pair_modules(&root().join(case)).unwrap();
        let base = &modules.iter().find(|m| m.0 == "base").unwrap().1;
        let (_, dist, claim) = modules.iter().find(|m| m.0 == "dist").unwrap();
        for (_, p) in faults(dist, Some(base), claim, 2, 3, case, true) {
            all.add(&p);
        }
    }
    assert!(all.above >= 35, "{all:?}");
    assert!(all.named * 100 >= all.above * 98, "{all:?}");
}

fn pair(case: &str) -> (scalify_ir::Module, scalify_ir::Module, scalify_claim::Claim) {
    let dir = root().join(case);
    let claim = Case::read(&dir).unwrap().claim().unwrap();
    let file = |n: &str| module(&find(&dir, n).unwrap()).unwrap();
    (file("base.hlo.txt"), file("dist.hlo.txt"), claim)
}

#[test]
fn right_pairs_raise_no_alarm() {
    for case in ["attn_mha_bf16", "rowpar_bf16_f32acc", "attn_gqa_shard", "ring_attn_scan"] {
        let (a, b, claim) = pair(case);
        let r = diff(&a, &b, &claim, None, &Options::default()).unwrap();
        assert_eq!(r.verdict, Verdict::Equal, "{case}: {:?}", r.first);
        assert!(!r.rows.is_empty(), "{case}");
    }
}

#[test]
fn wrong_pairs_are_found() {
    for case in [
        "bug__attn_gqa_repl__kv_index",
        "bug__mlp_swiglu__bf16_down",
        "bug__rowpar_bf16_f32acc__bf16_acc",
        "bug__allreduce_two_step__inner_twice",
    ] {
        let (a, b, claim) = pair(case);
        let r = diff(&a, &b, &claim, None, &Options::default()).unwrap();
        assert_eq!(r.verdict, Verdict::Different, "{case}");
        let first = r.first.as_ref().expect("an operation is named");
        assert!(r.b.source(&b, first.node).is_some(), "{case}");
    }
}
