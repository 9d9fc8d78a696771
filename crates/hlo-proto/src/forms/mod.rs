//! Attributes that the IR keeps as printed: proto to text and back.
//!
//! Text that does not parse back (another spelling, a newer form) yields
//! `None` and is then left out of the proto.

mod call;
mod layout;
mod mesh;
mod scan;

pub(crate) use call::{CallRest, call_rest, parse_call_rest};
pub(crate) use layout::{layout_rest, parse_layout_rest, shape_text};
pub(crate) use mesh::{named, parse_named};
use scan::Scan;

use crate::xla;
use scalify_ir::sharding::{SubgroupKind, TileDevices};
use scalify_ir::{OpSharding, ShardingKind};
use std::fmt::{Display, Write};

/// `a,b,c`.
pub(crate) fn join<T: Display>(items: impl IntoIterator<Item = T>, sep: &str) -> String {
    let mut s = String::new();
    for (i, x) in items.into_iter().enumerate() {
        if i > 0 {
            s.push_str(sep);
        }
        let _ = write!(s, "{x}");
    }
    s
}

/// `input_output_alias`; `None` if there is none.
pub(crate) fn alias(p: &xla::HloInputOutputAliasProto) -> Option<String> {
    let entry = |e: &xla::hlo_input_output_alias_proto::AliasEntryProto| {
        let kind = if e.kind() == xla::Kind::MustAlias { "must-alias" } else { "may-alias" };
        format!(
            "{{{}}}: ({}, {{{}}}, {kind})",
            join(&e.output_shape_index, ","),
            e.parameter_number,
            join(&e.parameter_shape_index, ",")
        )
    };
    (!p.entries.is_empty()).then(|| format!("{{ {} }}", join(p.entries.iter().map(entry), ", ")))
}

/// The inverse of [`alias`].
pub(crate) fn parse_alias(s: &str) -> Option<xla::HloInputOutputAliasProto> {
    let mut c = Scan::new(s);
    let mut entries = Vec::new();
    c.eat("{")?;
    while !c.try_eat("}") {
        let output_shape_index = c.ints("{", "}")?;
        c.eat(":")?;
        c.eat("(")?;
        let parameter_number = c.int()?;
        c.eat(",")?;
        let parameter_shape_index = c.ints("{", "}")?;
        let kind = if c.try_eat(",") && c.word() == "must-alias" {
            xla::Kind::MustAlias
        } else {
            xla::Kind::MayAlias
        };
        c.eat(")")?;
        c.try_eat(",");
        entries.push(xla::hlo_input_output_alias_proto::AliasEntryProto {
            output_shape_index,
            parameter_number,
            parameter_shape_index,
            kind: kind.into(),
        });
    }
    c.done().then_some(xla::HloInputOutputAliasProto { entries })
}

/// `buffer_donor`; `None` if there is none.
pub(crate) fn donor(p: &xla::HloBufferDonorProto) -> Option<String> {
    let entry = |e: &xla::hlo_buffer_donor_proto::BufferDonorEntryProto| {
        format!("({}, {{{}}})", e.parameter_number, join(&e.parameter_shape_index, ","))
    };
    (!p.entries.is_empty()).then(|| format!("{{ {} }}", join(p.entries.iter().map(entry), ", ")))
}

/// The inverse of [`donor`].
pub(crate) fn parse_donor(s: &str) -> Option<xla::HloBufferDonorProto> {
    let mut c = Scan::new(s);
    let mut entries = Vec::new();
    c.eat("{")?;
    while !c.try_eat("}") {
        c.eat("(")?;
        let parameter_number = c.int()?;
        c.eat(",")?;
        let parameter_shape_index = c.ints("{", "}")?;
        c.eat(")")?;
        c.try_eat(",");
        entries.push(xla::hlo_buffer_donor_proto::BufferDonorEntryProto {
            parameter_number,
            parameter_shape_index,
        });
    }
    c.done().then_some(xla::HloBufferDonorProto { entries })
}

/// `output_to_operand_aliasing`; `None` if there is none.
pub(crate) fn aliasing(p: &[xla::OutputOperandAliasing]) -> Option<String> {
    let entry = |e: &xla::OutputOperandAliasing| {
        format!(
            "{{{}}}: ({}, {{{}}})",
            join(&e.output_shape_index, ","),
            e.operand_index,
            join(&e.operand_shape_index, ",")
        )
    };
    (!p.is_empty()).then(|| format!("{{{}}}", join(p.iter().map(entry), ", ")))
}

/// The inverse of [`aliasing`].
pub(crate) fn parse_aliasing(s: &str) -> Option<Vec<xla::OutputOperandAliasing>> {
    let mut c = Scan::new(s);
    let mut out = Vec::new();
    c.eat("{")?;
    while !c.try_eat("}") {
        let output_shape_index = c.ints("{", "}")?;
        c.eat(":")?;
        c.eat("(")?;
        let operand_index = c.int()?;
        c.eat(",")?;
        let operand_shape_index = c.ints("{", "}")?;
        c.eat(")")?;
        c.try_eat(",");
        out.push(xla::OutputOperandAliasing {
            output_shape_index,
            operand_index,
            operand_shape_index,
        });
    }
    c.done().then_some(out)
}

/// `result_accuracy`; `None` if it is the default.
pub(crate) fn accuracy(p: &xla::ResultAccuracy) -> Option<String> {
    use xla::result_accuracy::Specs;
    match p.specs.as_ref()? {
        Specs::Mode(m) if *m == xla::result_accuracy::Mode::Highest as i32 => {
            Some("{mode=highest}".to_owned())
        }
        Specs::Mode(_) => None,
        Specs::Tolerance(t) => {
            Some(format!("{{tolerance={{atol={},rtol={},ulps={}}}}}", t.atol, t.rtol, t.ulps))
        }
    }
}

/// The inverse of [`accuracy`].
pub(crate) fn parse_accuracy(s: &str) -> Option<xla::ResultAccuracy> {
    use xla::result_accuracy::{Mode, Specs, Tolerance};
    let mut c = Scan::new(s);
    c.eat("{")?;
    let specs = if c.try_eat("mode=") {
        match c.word() {
            "highest" => Specs::Mode(Mode::Highest.into()),
            "default" => Specs::Mode(Mode::Default.into()),
            _ => return None,
        }
    } else {
        c.eat("tolerance={")?;
        let mut t = Tolerance::default();
        while !c.try_eat("}") {
            let key = c.word();
            c.eat("=")?;
            match key {
                "atol" => t.atol = c.float()?,
                "rtol" => t.rtol = c.float()?,
                "ulps" => t.ulps = c.int()?,
                _ => return None,
            }
            c.try_eat(",");
        }
        Specs::Tolerance(t)
    };
    c.eat("}")?;
    c.done().then_some(xla::ResultAccuracy { specs: Some(specs) })
}

/// `statistics`; `None` if there are none.
pub(crate) fn statistics(p: &xla::StatisticsViz) -> Option<String> {
    let all = p.statistics.iter().map(|s| format!("{}={}", s.stat_name, s.stat_val));
    (!p.statistics.is_empty())
        .then(|| format!("{{visualizing_index={},{}}}", p.stat_index_to_visualize, join(all, ",")))
}

/// The inverse of [`statistics`].
pub(crate) fn parse_statistics(s: &str) -> Option<xla::StatisticsViz> {
    let mut c = Scan::new(s);
    let mut out = xla::StatisticsViz::default();
    c.eat("{")?;
    while !c.try_eat("}") {
        let key = c.word();
        c.eat("=")?;
        if key == "visualizing_index" {
            out.stat_index_to_visualize = c.int()?;
        } else {
            out.statistics.push(xla::Statistic { stat_name: key.to_owned(), stat_val: c.float()? });
        }
        c.try_eat(",");
    }
    c.done().then_some(out)
}

/// `sparsity_config` of a dot; text has no form for it. `None` if it says
/// nothing.
pub(crate) fn sparsity(p: &xla::SparsityConfig) -> Option<String> {
    let side = |name: &str, t: &Option<xla::sparsity_config::TensorSparsityConfig>| {
        let t = t.as_ref().filter(|t| **t != Default::default())?;
        Some(format!("{name}={{{},{},{},{}}}", t.num_non_zero, t.block_size, t.dimension, t.stride))
    };
    let parts: Vec<String> = side("lhs", &p.lhs).into_iter().chain(side("rhs", &p.rhs)).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// The inverse of [`sparsity`].
pub(crate) fn parse_sparsity(s: &str) -> Option<xla::SparsityConfig> {
    let mut c = Scan::new(s);
    let mut out = xla::SparsityConfig::default();
    while !c.done() {
        let key = c.word();
        c.eat("=")?;
        let v: [i64; 4] = c.ints("{", "}")?.try_into().ok()?;
        let t = xla::sparsity_config::TensorSparsityConfig {
            num_non_zero: v[0],
            block_size: v[1],
            dimension: v[2],
            stride: v[3],
        };
        match key {
            "lhs" => out.lhs = Some(t),
            "rhs" => out.rhs = Some(t),
            _ => return None,
        }
    }
    Some(out)
}

/// A sharding as text prints it, without metadata.
pub(crate) fn sharding_text(s: &OpSharding) -> String {
    let group = if s.shard_group.is_empty() { "" } else { " " };
    let body = match &s.kind {
        ShardingKind::Replicated => "replicated".to_owned(),
        ShardingKind::Manual => "manual".to_owned(),
        ShardingKind::Unknown => "unknown".to_owned(),
        ShardingKind::Unreduced => "unreduced".to_owned(),
        ShardingKind::Maximal(d) => format!("maximal device={d}"),
        ShardingKind::Named(text) => text.clone(),
        ShardingKind::Tuple(parts) => join(parts.iter().map(sharding_text), ", "),
        ShardingKind::Tiled(t) => {
            let devices = match &t.devices {
                TileDevices::List(l) => join(l, ","),
                TileDevices::Iota(i) => {
                    let plain = i.perm.iter().enumerate().all(|(k, &p)| k == p as usize);
                    let perm = format!("T({})", join(&i.perm, ","));
                    format!("<=[{}]{}", join(&i.reshape, ","), if plain { "" } else { &perm })
                }
            };
            let kind = |k: &SubgroupKind| match k {
                SubgroupKind::Replicated => "replicated",
                SubgroupKind::Manual => "manual",
                SubgroupKind::Unreduced => "unreduced",
            };
            let last = match (t.last_tile_dim_replicate, t.subgroups.is_empty()) {
                (true, _) => " last_tile_dim_replicate".to_owned(),
                (_, true) => String::new(),
                _ => format!(" last_tile_dims={{{}}}", join(t.subgroups.iter().map(kind), ",")),
            };
            format!("devices=[{}]{devices}{last}", join(&t.dims, ","))
        }
    };
    format!("{{{body}{group}{}}}", s.shard_group)
}

/// True if text prints the configuration in braces rather than quoted: one
/// brace pair around everything, braces balanced outside strings.
pub(crate) fn is_brace_form(s: &str) -> bool {
    let mut depth = 0usize;
    let mut quoted = false;
    let mut escaped = false;
    for (i, b) in s.bytes().enumerate() {
        if quoted {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match b {
            b'{' => depth += 1,
            b'}' => {
                if depth <= 1 {
                    return depth == 1 && i + 1 == s.len();
                }
                depth -= 1;
            }
            b'"' if depth > 0 => quoted = true,
            _ if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// `key="value"` with quotes and backslashes escaped.
pub(crate) fn quoted(key: &str, value: &str) -> String {
    format!("{key}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Pairs of `key="value" key="value"`.
pub(crate) fn parse_quoted(s: &str) -> Vec<(String, String)> {
    let mut c = Scan::new(s);
    let mut out = Vec::new();
    loop {
        let key = c.word().to_owned();
        if key.is_empty() || c.eat("=").is_none() {
            return out;
        }
        let Some(value) = c.string() else { return out };
        out.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Left: as jaxlib 0.10.2 prints it.
    #[test]
    fn printed_forms_survive() {
        let a = "{ {0}: (0, {}, may-alias), {1}: (1, {0,1}, must-alias) }";
        assert_eq!(alias(&parse_alias(a).unwrap()).as_deref(), Some(a));
        let d = "{ (1, {0,0}) }";
        assert_eq!(donor(&parse_donor(d).unwrap()).as_deref(), Some(d));
        let o = "{{}: (0, {}), {1}: (2, {0})}";
        assert_eq!(aliasing(&parse_aliasing(o).unwrap()).as_deref(), Some(o));
        for r in ["{tolerance={atol=1,rtol=0.5,ulps=2}}", "{mode=highest}"] {
            assert_eq!(accuracy(&parse_accuracy(r).unwrap()).as_deref(), Some(r));
        }
        let s = "{visualizing_index=1,count1=1.5,count2=2.25}";
        assert_eq!(statistics(&parse_statistics(s).unwrap()).as_deref(), Some(s));
        assert!(parse_alias("{ {0}: (0, {").is_none());
        assert_eq!(
            parse_quoted(r#"deduplicated_name="d\"d" scheduling_name="s""#),
            [("deduplicated_name".into(), "d\"d".into()), ("scheduling_name".into(), "s".into())]
        );
    }

    // Which of these jaxlib 0.10.2 prints in braces.
    #[test]
    fn brace_forms() {
        for (s, brace) in [
            (r#"{"a":"b"}"#, true),
            ("{a = 1 : i32}", true),
            ("{}", true),
            (r#"{"a":"}"}"#, true),
            ("abc", false),
            ("{a}{b}", false),
            ("{", false),
            ("", false),
        ] {
            assert_eq!(is_brace_form(s), brace, "{s}");
        }
    }
}
