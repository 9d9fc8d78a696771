//! `scalify verify --explain`.

use scalify_claim::Claim;
use scalify_ir::{InstrId, Module};
use scalify_prove::outcome::Side;
use scalify_prove::{Options, explain};
use std::fmt::Write as _;

/// The steps behind the relation of the distributed instruction `name`.
///
/// # Errors
/// No or several instructions of that name.
pub(crate) fn run(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    name: &str,
) -> anyhow::Result<String> {
    let id = find(dist, name)?;
    let steps = explain(base, dist, claim, options, id);
    let mut t = String::new();
    if steps.is_empty() {
        let _ = writeln!(t, "{} is not related to a baseline value", dist.name_of(id));
    }
    for (k, s) in steps.iter().enumerate() {
        let at = match s.at {
            Some((Side::Base, i)) => format!("base {}: ", checked(base, i)),
            Some((Side::Dist, i)) => format!("dist {}: ", checked(dist, i)),
            None => String::new(),
        };
        let _ = writeln!(t, "{:3}. {at}{}", k + 1, s.rule);
        for line in s.detail.lines() {
            let _ = writeln!(t, "     {line}");
        }
    }
    Ok(t)
}

fn checked(m: &Module, id: InstrId) -> &str {
    m.instrs.get(id.0 as usize).map_or("?", |i| m.str(i.name))
}

fn find(m: &Module, name: &str) -> anyhow::Result<InstrId> {
    let name = name.trim_start_matches('%');
    let ids: Vec<InstrId> =
        (0..m.instrs.len() as u32).map(InstrId).filter(|i| m.name_of(*i) == name).collect();
    // Names may repeat across computations; the entry's is meant.
    let entry = m.comps.get(m.entry.0 as usize).map_or(&[][..], |c| &c.instrs);
    match ids.iter().find(|i| entry.contains(i)).or(ids.last()) {
        Some(id) => Ok(*id),
        None => anyhow::bail!("--explain: the distributed program has no instruction `{name}`"),
    }
}
