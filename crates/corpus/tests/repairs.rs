//! Planted errors of `tests/corpus/hand` and `tests/bugs` of which the fault has a site per step
//! of an unrolled loop, or shows best at the collective that does the same for
//! another value: the repair is proved, of the right kind, and a line that it
//! names is the planted one.

use scalify_corpus::bugs::BugCase;
use scalify_corpus::{Case, find, module, planted};
use scalify_prove::outcome::Verdict;
use scalify_refute::{Plan, decide};
use std::path::Path;
use std::time::Duration;

fn check(name: &str, kinds: &[&str]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/hand").join(name);
    let case = Case::read(&dir).unwrap();
    let load = |f: &str| module(&find(&dir, f).unwrap()).unwrap();
    let form = if find(&dir, "dist.body.hlo.txt").is_some() { "dist.body" } else { "dist" };
    let (base, dist) = (load("base.hlo.txt"), load(&format!("{form}.hlo.txt")));
    let claim = case.claim().unwrap();
    let options = scalify_prove::Options::default();
    let plan = Plan { repair: Duration::from_secs(120), ..Plan::default() };
    let d = decide(&base, &dist, &claim, &options, &plan);
    assert_eq!(d.outcome.verdict, Verdict::Refuted, "{name}: {:?}", d.unable);
    let r = d.repairs.first().unwrap_or_else(|| panic!("{name}: {} edits tried", d.edits_tried));
    assert!(r.grade.is_some(), "{name}: only evaluated: {}", r.text);
    assert!(kinds.contains(&r.code), "{name}: {}: {}", r.code, r.text);
    let mut places = std::iter::once(r.at).chain(r.places.iter().copied());
    let hit = places.any(|i| dist.frames(i).iter().any(|f| planted(&case, f.file, f.line)));
    assert!(hit, "{name}: {}", r.text);
}

#[test]
fn order_of_steps() {
    check("bug__collective_matmul_rs__block", &["wrong-offset"]);
}

#[test]
fn one_value_does_not_travel() {
    check("bug__ring_attn_causal__k_not_rotated", &["missing-collective-permute"]);
}

#[test]
fn positions_do_not_travel() {
    check("bug__ring_attn_causal__mask_offset", &["missing-collective-permute", "wrong-offset"]);
}

#[test]
fn a_factor_per_step() {
    check("bug__ring_attn_causal__l_no_rescale", &["missing-factor"]);
}

#[test]
fn the_collective_of_the_others() {
    check("bug__tp_dp_train_mlp__dp_skip_norm", &["missing-all-reduce"]);
}

#[test]
fn an_index_where_it_meets_data() {
    check("bug__vocab_embed_2d__wrong_axis_index", &["wrong-mesh-axis"]);
}

/// An edit of the loop's counter makes it endless: given up, and the search
/// goes on.
#[test]
fn endless_edits_are_given_up() {
    check("bug__dp_accum__accum_no_div", &["wrong-scale"]);
}

/// A wrong program of `tests/bugs`: the first repair is proved and of this kind.
fn reported(name: &str, file: &str, kind: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bugs").join(name);
    let case = BugCase::read(&dir).unwrap();
    let graph = case.graphs.iter().find(|g| g.file == format!("{file}.hlo.txt")).unwrap();
    let load = |f: &str| module(&find(&dir, f).unwrap()).unwrap();
    let (base, dist) = (load("base.hlo.txt"), load(&graph.file));
    let options = scalify_prove::Options::default();
    let plan = Plan { repair: Duration::from_secs(60), ..Plan::default() };
    let d = decide(&base, &dist, &case.claim(graph).unwrap(), &options, &plan);
    assert_eq!(d.outcome.verdict, Verdict::Refuted, "{name}: {:?}", d.unable);
    let r = d.repairs.first().unwrap_or_else(|| panic!("{name}: {} edits tried", d.edits_tried));
    assert!(r.grade.is_some(), "{name}: only evaluated: {}", r.text);
    assert_eq!(r.code, kind, "{name}: {}", r.text);
    assert_eq!(d.outcome.frontier.first().map(|f| f.code), Some(kind), "{name}");
}

/// Operations that the baseline has and the rewritten program has not.
#[test]
fn as_in_the_baseline() {
    reported("I05_alpha_ignored", "wrong", "wrong-scale");
    reported("J07_scale_through_relu", "wrong", "wrong-scale");
    reported("H08_row_without_keys", "wrong", "wrong-mask");
    reported("J01_identity_transpose", "wrong", "wrong-layout");
    reported("I14_order_of_constant", "wrong", "wrong-layout");
    reported("I06_crop_in_window", "wrong", "wrong-offset");
    reported("I22_inverse_permutation", "wrong", "wrong-dimension");
}

#[test]
fn pairs_of_permutes() {
    reported("A25_empty_permute", "wrong", "wrong-permute");
    reported("A13_shift", "wrong_wraps", "wrong-permute");
}

#[test]
fn one_block_for_all() {
    reported("E05_first_shard_everywhere", "wrong", "stale-slice");
}

#[test]
fn reducer_of_a_scatter() {
    reported("H06_repeated_indices", "wrong", "wrong-reducer");
}

/// A bias added before the sum over devices: not the collective is at fault.
#[test]
fn what_is_added_once_per_device() {
    reported("D02_added_to_partial", "wrong", "duplicated-operand");
    reported("E23_replicated_output_layer", "wrong_residual", "duplicated-operand");
}

/// To sum copies once more is a factor, no missing sum.
#[test]
fn copies_are_not_summed() {
    reported("B28_mean_for_sum", "wrong_first", "wrong-scale");
    reported("D08_gradient_of_partial", "wrong_divided", "wrong-scale");
}

/// The kind shows in what stands around the edit.
#[test]
fn around_an_edit() {
    reported("B04_local_token_count", "wrong", "wrong-scale");
    reported("G04_two_levels_of_means", "wrong_per_device", "wrong-scale");
    reported("B04_local_token_count", "wrong_count", "missing-all-reduce");
    reported("B25_fused_loss_gradient", "wrong_gathered", "wrong-kind-collective");
    reported("D13_local_gradient_norm", "wrong_norms_added", "wrong-operand");
    reported("A03_slice_before_sum", "wrong", "stale-slice");
    reported("A06_hoisted_scaled", "wrong", "duplicated-operand");
    reported("A32_groups_dropped", "wrong", "wrong-group");
    reported("A29_meaning_of_groups", "wrong", "wrong-group");
    reported("H03_causal_blocks", "wrong_other_device", "wrong-mask");
    reported("F06_products_with_transposes", "wrong", "wrong-layout");
}

/// Blocks that leave elements out or hold some twice.
#[test]
fn blocks_that_make_up_no_whole() {
    reported("C02_tokens_dropped", "wrong", "axis-split");
    reported("C02_tokens_dropped", "wrong_clamped", "axis-split");
    reported("C03_stale_head_count", "wrong", "axis-split");
}

#[test]
fn masks_of_padding_indices_and_devices() {
    reported("B17_uneven_vocabulary", "wrong", "wrong-mask");
    reported("B17_uneven_vocabulary", "wrong_zeros", "wrong-mask");
    reported("D04_mean_of_uneven_shards", "wrong_padding", "wrong-mask");
    reported("C10_global_expert_ids", "wrong_no_mask", "wrong-mask");
    reported("A08_two_cycles", "wrong", "wrong-mask");
}

/// What no edit mends is named by what is seen, and the reason says what.
#[test]
fn what_is_seen() {
    for (name, file, kind, word) in [
        ("A11_prefix_sum", "wrong", "axis-split", "of which the baseline has 8"),
        ("A15_strided_conv", "wrong", "wrong-offset", "the window starts"),
        ("A36_strided_slice_start", "wrong", "wrong-offset", "starts at 0"),
        ("D03_index_of_maximum", "wrong", "wrong-reducer", "one by one, by maximum"),
        ("E08_fused_projections", "wrong", "wrong-layout", "in another order"),
        ("E09_norm_per_head", "wrong", "wrong-dimension", "reduces 4 elements"),
        ("E13_order_of_tokens", "wrong", "stale-slice", "starts at"),
        ("G04_two_levels_of_means", "wrong", "wrong-scale", "added up"),
    ] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bugs").join(name);
        let case = BugCase::read(&dir).unwrap();
        let graph = case.graphs.iter().find(|g| g.file == format!("{file}.hlo.txt")).unwrap();
        let load = |f: &str| module(&find(&dir, f).unwrap()).unwrap();
        let (base, dist) = (load("base.hlo.txt"), load(&graph.file));
        let claim = case.claim(graph).unwrap();
        let plan = Plan { repair: Duration::from_secs(30), ..Plan::default() };
        let d = decide(&base, &dist, &claim, &scalify_prove::Options::default(), &plan);
        assert_eq!(d.outcome.verdict, Verdict::Refuted, "{name}");
        let f = d.outcome.frontier.first().unwrap_or_else(|| panic!("{name}: no finding"));
        assert_eq!(f.code, kind, "{name}: {}", f.reason);
        assert!(f.reason.contains(word), "{name}: {}", f.reason);
    }
}

/// Quantised by another scale: no input tells which edit mends it, but the
/// proof goes through with one. The verdict is not changed by that.
#[test]
fn roundings_apart_are_mended_by_proof() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bugs/E15_scale_per_rank");
    let case = BugCase::read(&dir).unwrap();
    for (file, kind) in [("wrong", "missing-all-reduce"), ("wrong_sum", "wrong-reducer")] {
        let graph = case.graphs.iter().find(|g| g.file == format!("{file}.hlo.txt")).unwrap();
        let load = |f: &str| module(&find(&dir, f).unwrap()).unwrap();
        let (base, dist) = (load("base.hlo.txt"), load(&graph.file));
        let claim = case.claim(graph).unwrap();
        let plan = Plan { repair: Duration::from_secs(30), ..Plan::default() };
        let d = decide(&base, &dist, &claim, &scalify_prove::Options::default(), &plan);
        assert_eq!(d.outcome.verdict, Verdict::Unknown, "{file}");
        assert!(d.repairs.first().is_some_and(|r| r.grade.is_some()), "{file}");
        assert_eq!(d.outcome.frontier.first().map(|f| f.code), Some(kind), "{file}");
    }
}

/// A program that rounds to another type is no wrong arithmetic: the finding
/// says which operation rounds.
#[test]
fn roundings_are_named() {
    for (name, file) in [
        ("I08_round_trip_removed", "wrong"),
        ("E20_router_in_bf16", "wrong"),
        ("E19_cast_before_weight", "wrong"),
    ] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bugs").join(name);
        let case = BugCase::read(&dir).unwrap();
        let graph = case.graphs.iter().find(|g| g.file == format!("{file}.hlo.txt")).unwrap();
        let load = |f: &str| module(&find(&dir, f).unwrap()).unwrap();
        let (base, dist) = (load("base.hlo.txt"), load(&graph.file));
        let claim = case.claim(graph).unwrap();
        let d = decide(&base, &dist, &claim, &scalify_prove::Options::default(), &Plan::default());
        assert_eq!(d.outcome.verdict, Verdict::Unknown, "{name}");
        let f = d.outcome.frontier.first().unwrap_or_else(|| panic!("{name}: no finding"));
        assert_eq!(f.code, "precision", "{name}: {}", f.reason);
    }
}
