//! Checked look-ups and fixed words shared by the renderers.

use scalify_ir::{InstrId, Module};
use scalify_prove::outcome::{AssumptionKind, DimRelation, Frame, Grade, LayoutStep, Relation};
use scalify_prove::outcome::{Side, Verdict};

/// Name of an instruction; `?` if the id is not of this module.
pub(crate) fn name(m: &Module, id: InstrId) -> &str {
    m.instrs.get(id.0 as usize).map_or("?", |i| m.str(i.name))
}

pub(crate) fn opcode(m: &Module, id: InstrId) -> &'static str {
    m.instrs.get(id.0 as usize).map_or("?", |i| i.opcode.name())
}

/// Result shape without layout; tuples of more than 8 leaves are cut.
pub(crate) fn shape(m: &Module, id: InstrId) -> String {
    let Some(i) = m.instrs.get(id.0 as usize) else { return "?".into() };
    let Some(s) = m.shapes.get(i.shape.0 as usize) else { return "?".into() };
    let leaves = s.leaves().len();
    if leaves > 8 { format!("tuple of {leaves}") } else { s.to_string() }
}

/// Frames recorded for an instruction, as outcome frames.
pub(crate) fn frames(m: &Module, id: InstrId) -> Vec<Frame> {
    if m.instrs.get(id.0 as usize).is_none() {
        return Vec::new();
    }
    m.frames(id)
        .into_iter()
        .map(|f| Frame {
            file: f.file.to_string(),
            function: f.function.to_string(),
            line: f.line,
            column: f.column,
            end_column: if f.end_line == f.line { f.end_column } else { 0 },
        })
        .collect()
}

pub(crate) fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Proved => "proved",
        Verdict::Refuted => "refuted",
        Verdict::Unknown => "unknown",
    }
}

pub(crate) fn grade(g: Grade) -> &'static str {
    match g {
        Grade::Exact => "exact",
        Grade::Reassociated => "reassociated",
        Grade::UnderAssumptions => "under-assumptions",
    }
}

pub(crate) fn assumption(k: AssumptionKind) -> &'static str {
    match k {
        AssumptionKind::Finite => "finite",
        AssumptionKind::NonZero => "non-zero",
        AssumptionKind::IntRange => "int-range",
        AssumptionKind::NoOverflow => "no-overflow",
        AssumptionKind::Layout => "layout",
        AssumptionKind::Inferred => "inferred",
    }
}

pub(crate) fn side(s: Side) -> &'static str {
    match s {
        Side::Base => "base",
        Side::Dist => "dist",
    }
}

/// How a value is laid out, without names: `replicated`,
/// `dim 1 over tp; partial add over dp`.
pub(crate) fn layout(r: &Relation) -> String {
    let mut parts = Vec::new();
    for (k, d) in r.dims.iter().enumerate() {
        match d {
            DimRelation::Replicated => {}
            DimRelation::Sharded(axes) => parts.push(format!("dim {k} over {}", axes.join("*"))),
            DimRelation::Other(text) => parts.push(format!("dim {k}: {text}")),
        }
    }
    for (axis, monoid) in &r.partial {
        parts.push(format!("partial {monoid} over {axis}"));
    }
    if parts.is_empty() { "replicated".into() } else { parts.join("; ") }
}

/// `reshape [4,8] -> transpose (1,0)`; empty for the identity.
pub(crate) fn bijection(steps: &[LayoutStep]) -> String {
    let join = |v: Vec<String>| v.join(",");
    let step = |s: &LayoutStep| match s {
        LayoutStep::Reshape(d) => {
            format!("reshape [{}]", join(d.iter().map(i64::to_string).collect()))
        }
        LayoutStep::Transpose(p) => {
            format!("transpose ({})", join(p.iter().map(usize::to_string).collect()))
        }
    };
    steps.iter().map(step).collect::<Vec<_>>().join(" -> ")
}
