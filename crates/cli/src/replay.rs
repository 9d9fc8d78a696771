//! `scalify replay`: a saved witness on the reference interpreter.

use crate::args::ReplayArgs;
use crate::{Exit, output};
use scalify_prove::problem;
use scalify_refute::Refuter;
use scalify_report::text;

pub(crate) fn run(a: &ReplayArgs) -> anyhow::Result<Exit> {
    let w = scalify_witness::load(&a.dir)?;
    let p = problem::setup(&w.base, &w.dist, &w.claim);
    let name = a.dir.display();
    anyhow::ensure!(
        p.devices == i64::from(w.record.devices) && p.pairs.len() == w.placements.len(),
        "{name}: the programs have {} devices and {} inputs, expected {} and {}",
        p.devices,
        p.pairs.len(),
        w.record.devices,
        w.placements.len()
    );
    let mut options = scalify_refute::Options { seed: w.record.seed, ..Default::default() };
    options.time = a.time_limit;
    options.memory = a.memory_limit.unwrap_or(options.memory);
    let refuter = Refuter::new(&w.base, &w.dist, &p, &w.claim, options);
    let found = refuter
        .and_then(|r| r.check(&w.inputs, &w.placements))
        .map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
    let mut t = String::new();
    if found.is_empty() {
        t.push_str(
            "NO DIFFERENCE  the programs agree up to rounding on the inputs of this witness\n",
        );
    } else {
        t.push_str(&format!(
            "DIFFERENT  {} vs {} on the inputs of this witness\n",
            w.record.dist.from, w.record.base.from
        ));
        t.push_str(&text::differences(&w.base, p.devices, &found, output::stdout_color(a.color)));
        // What rounding explains is measured by drawing: where it is tight,
        // another element may be the worst.
        let recorded = |x: &scalify_refute::Difference| {
            w.record.outputs.iter().any(|o| {
                let same = o.expected == x.expected.to_string() && o.actual == x.actual.to_string();
                o.output == x.output && (o.index != x.index || same)
            })
        };
        if !(found.len() == w.record.outputs.len() && found.iter().all(recorded)) {
            t.push_str("\nThe values are not those that the witness records.\n");
        }
    }
    output::stdout(&t)?;
    Ok(if found.is_empty() { Exit::Success } else { Exit::Refuted })
}
