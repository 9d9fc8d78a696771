//! Every case of `tests/corpus/hand` and `tests/pairs`, in all its forms: right
//! pairs are proved (except those listed in `not_yet.txt`, which must not be), wrong
//! ones never; each program is proved equal to itself; and evaluation on
//! random inputs tells wrong from right (wrong ones may only round otherwise).

use libtest_mimic::{Arguments, Failed, Trial};
use scalify_claim::Claim;
use scalify_corpus::{Case, find, module};
use scalify_prove::outcome::{Grade, Outcome, Verdict};
use scalify_prove::{Memo, Options, verify};
use scalify_refute::{Search, refute};
use std::path::{Path, PathBuf};

const FORMS: [&str; 3] = ["dist", "dist.body", "dist.spmd"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn why(o: &Outcome) -> String {
    let first = o.frontier.first().map(|f| f.reason.clone()).unwrap_or_default();
    format!("{:?} {:?} {first}", o.notes, o.exhausted)
}

fn run(dir: &Path, not_yet: bool) -> Result<(), Failed> {
    let case = Case::read(dir)?;
    let claim = case.claim()?;
    let base = module(&find(dir, "base.hlo.txt").ok_or("no baseline")?)?;
    let options = Options::default();
    let own = Claim { assume: claim.assume.clone(), ..Claim::default() };
    let o = verify(&base, &base, &own, &options);
    if o.verdict != Verdict::Proved || o.grade != Some(Grade::Exact) {
        return Err(format!("baseline against itself: {:?} {}", o.grade, why(&o)).into());
    }
    for f in FORMS {
        let Some(path) = find(dir, &format!("{f}.hlo.txt")) else { continue };
        let dist = module(&path)?;
        let mut c = claim.clone();
        if f == "dist.spmd" {
            // The partitioner chooses the layout of outputs itself.
            c.outputs.clear();
        }
        let o = verify(&base, &dist, &c, &options);
        let same = case.expected == "equivalent";
        let proved = o.verdict == Verdict::Proved;
        if !same && proved {
            return Err(format!("{f}: FALSE PROOF").into());
        }
        if same && proved == not_yet {
            return Err(format!("{f}: proved is {proved}: {}", why(&o)).into());
        }
        // Lemmas of what repeats itself change no answer.
        let by_lemmas = Options { memo: Memo::Always, ..options };
        let l = verify(&base, &dist, &c, &by_lemmas);
        if (l.verdict, l.grade) != (o.verdict, o.grade) {
            return Err(format!("{f}: by lemmas {:?} {:?}", l.verdict, l.grade).into());
        }
        if l.stats.lemmas > 0
            && (&l.outputs, &l.assumptions, &l.regrouped)
                != (&o.outputs, &o.assumptions, &o.regrouped)
        {
            return Err(format!("{f}: by lemmas the report is another").into());
        }
        // Evaluation must not contradict: wrong pairs differ, right ones not.
        if f == "dist.body" || !same && find(dir, "dist.body.hlo.txt").is_none() {
            match refute(&base, &dist, &c, scalify_refute::Options::default()) {
                Search::Differ(_) if same => return Err(format!("{f}: FALSE REFUTATION").into()),
                Search::Agree(e) if !same && e.precision.is_none() => {
                    return Err(format!("{f}: no difference seen on {} samples", e.samples).into());
                }
                Search::Unable(e) => return Err(format!("{f}: not evaluated: {e}").into()),
                _ => {}
            }
        }
        if !proved && o.frontier.is_empty() && o.notes.is_empty() {
            return Err(format!("{f}: not proved and no reason given").into());
        }
        let own =
            Claim { mesh: claim.mesh.clone(), assume: claim.assume.clone(), ..Claim::default() };
        let o = verify(&dist, &dist, &own, &options);
        // Some planted errors leave outputs that differ between devices where
        // the program says they do not: such a program is no function.
        let undefined = |o: &Outcome| why(o).contains("value differs between devices");
        if o.verdict != Verdict::Proved && (same || !undefined(&o)) {
            return Err(format!("{f} against itself: {}", why(&o)).into());
        }
    }
    Ok(())
}

fn main() {
    let args = Arguments::from_args();
    let mut trials = Vec::new();
    for (dir, list) in [("corpus/hand", "corpus/not_yet.txt"), ("pairs", "pairs/not_yet.txt")] {
        let list = std::fs::read_to_string(root().join(list)).unwrap_or_default();
        let not_yet: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
        for e in std::fs::read_dir(root().join(dir)).into_iter().flatten().flatten() {
            let path = e.path();
            let name = e.file_name().to_string_lossy().into_owned();
            if !path.join("case.json").exists() {
                continue;
            }
            let late = not_yet.contains(&name.as_str());
            trials.push(Trial::test(name, move || run(&path, late)));
        }
    }
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    libtest_mimic::run(&args, trials).exit();
}
