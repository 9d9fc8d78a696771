//! Verdicts on pairs of small modules. `never/`: pairs that are not
//! equivalent, which must not be proved. `prove/`: pairs that look alike and
//! are equivalent, which must be. A folder holds `base.hlo`, `dist.hlo` and
//! `case.toml` (a claim, as for `--spec`). A baseline of both folders is also
//! verified against itself.

use libtest_mimic::{Arguments, Failed, Trial};
use scalify_claim::{Claim, parse_spec_file};
use scalify_ir::Module;
use scalify_prove::outcome::Verdict;
use scalify_prove::{Options, verify};
use std::path::{Path, PathBuf};

fn read(dir: &Path, name: &str) -> Result<String, Failed> {
    let p = dir.join(name);
    std::fs::read_to_string(&p).map_err(|e| format!("{}: {e}", p.display()).into())
}

fn module(dir: &Path, name: &str) -> Result<Module, Failed> {
    let text = read(dir, name)?;
    let m = scalify_hlo::parse(&text).map_err(|e| format!("{name}: {e}"))?;
    let bad = scalify_ir::validate(&m, &scalify_ir::ValidateOptions::default());
    if let Some(e) = bad.iter().find(|e| e.severity == scalify_ir::Severity::Error) {
        return Err(format!("{name} is not valid: {e}").into());
    }
    Ok(m)
}

fn claim(dir: &Path) -> Result<Claim, Failed> {
    let text = match std::fs::read_to_string(dir.join("case.toml")) {
        Ok(t) => t,
        Err(_) => return Ok(Claim::default()),
    };
    parse_spec_file(&text, None).map_err(|e| format!("case.toml: {e}").into())
}

fn case(dir: &Path, want: bool) -> Result<(), Failed> {
    let (b, d) = (module(dir, "base.hlo")?, module(dir, "dist.hlo")?);
    let c = claim(dir)?;
    let o = verify(&b, &d, &c, &Options::default());
    let proved = o.verdict == Verdict::Proved;
    if proved != want {
        let why: Vec<_> = o.outputs.iter().map(|x| x.reason.clone()).collect();
        return Err(format!(
            "{:?} {:?}\nassumptions {:?}\nnotes {:?}\nreasons {why:?}\nfrontier {:?}",
            o.verdict,
            o.grade,
            o.assumptions.iter().map(|a| &a.text).collect::<Vec<_>>(),
            o.notes,
            o.frontier.iter().map(|f| &f.reason).collect::<Vec<_>>()
        )
        .into());
    }
    Ok(())
}

/// A module is equivalent to itself on one device.
fn itself(dir: &Path) -> Result<(), Failed> {
    let b = module(dir, "base.hlo")?;
    let o = verify(&b, &b, &Claim::default(), &Options::default());
    if o.verdict != Verdict::Proved {
        let why: Vec<_> = o.outputs.iter().map(|x| x.reason.clone()).collect();
        return Err(format!("{:?}: {:?} {why:?}", o.verdict, o.notes).into());
    }
    Ok(())
}

fn main() {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut trials = Vec::new();
    for (kind, want) in [("never", false), ("prove", true)] {
        let Ok(dir) = std::fs::read_dir(root.join(kind)) else { continue };
        let mut all: Vec<PathBuf> = dir.filter_map(|e| Some(e.ok()?.path())).collect();
        all.sort();
        for p in all {
            let name = p.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
            let q = p.clone();
            trials.push(Trial::test(format!("{kind}::{name}"), move || case(&p, want)));
            if !q.join("not_itself").exists() {
                trials.push(Trial::test(format!("itself::{kind}::{name}"), move || itself(&q)));
            }
        }
    }
    libtest_mimic::run(&args, trials).exit();
}
