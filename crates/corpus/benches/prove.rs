//! Proving shipped pairs, reading excluded.

use scalify_claim::Claim;
use scalify_corpus::{Case, find, module};
use scalify_ir::Module;
use scalify_prove::outcome::Verdict;
use scalify_prove::{Options, verify};
use std::path::Path;

const CASES: [&str; 4] = [
    "hand/attn_mha",
    "hand/llama_stack3_unroll",
    "scale/llama31_8b_prefill_tp8",
    "scale/llama31_405b_prefill_tp8",
];

fn load(name: &str) -> (Module, Module, Claim) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus").join(name);
    let read = |f: &str| module(&find(&dir, f).expect("file of the case")).expect("module");
    let claim = Case::read(&dir).and_then(|c| c.claim()).expect("case.json");
    (read("base.hlo.txt"), read("dist.hlo.txt"), claim)
}

#[divan::bench(args = CASES, sample_count = 10)]
fn prove(bencher: divan::Bencher<'_, '_>, name: &str) {
    let (base, dist, claim) = load(name);
    bencher.bench(|| {
        let o = verify(&base, &dist, &claim, &Options::default());
        assert_eq!(o.verdict, Verdict::Proved);
    });
}

fn main() {
    divan::main();
}
