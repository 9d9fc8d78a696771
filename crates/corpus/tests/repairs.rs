//! Planted errors of `tests/corpus/hand` of which the fault has a site per step
//! of an unrolled loop, or shows best at the collective that does the same for
//! another value: the repair is proved, of the right kind, and a line that it
//! names is the planted one.

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
