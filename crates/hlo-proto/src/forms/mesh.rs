//! The named mesh form of shardings.

use super::{join, scan::Scan};
use crate::xla;
use xla::named_sharding_proto::DimensionSharding;

fn axis(mesh: &xla::MeshProto, a: &xla::AxisRefProto) -> Option<String> {
    let name = &mesh.axes.get(usize::try_from(a.mesh_axis_index).ok()?)?.name;
    Some(match &a.sub_axis_info {
        None => format!("'{name}'"),
        Some(s) => format!("'{name}':({}){}", s.pre_size, s.size),
    })
}

fn axes(mesh: &xla::MeshProto, list: &[xla::AxisRefProto]) -> Option<Vec<String>> {
    list.iter().map(|a| axis(mesh, a)).collect()
}

/// The text between the braces of `sharding={..}`; `None` if an axis does
/// not exist.
pub(crate) fn named(p: &xla::NamedShardingProto) -> Option<String> {
    let none = xla::MeshProto::default();
    let mesh = p.mesh.as_ref().unwrap_or(&none);
    if mesh.axes.is_empty() {
        return Some(match mesh.device_ids.first() {
            Some(d) => format!("maximal_mesh[device_id={d}]"),
            None => "mesh[], replicated".to_owned(),
        });
    }
    let mut s = format!(
        "mesh[{}]",
        join(mesh.axes.iter().map(|a| format!("'{}'={}", a.name, a.size)), ",")
    );
    if let Some(t) = &mesh.iota_transform {
        if t.reshape_dims.len() > 1 {
            s += &format!(
                ", device_ids=([{}]T({}))",
                join(&t.reshape_dims, ","),
                join(&t.transpose_perm, ",")
            );
        }
    } else if !mesh.device_ids.is_empty() {
        s += &format!(", device_ids=({})", join(&mesh.device_ids, ","));
    }
    let groups = [
        ("replicated", &p.replicated_axes),
        ("unreduced", &p.unreduced_axes),
        ("manual", &p.manual_axes),
    ];
    if p.dim_shardings.is_empty() && groups.iter().all(|g| g.1.is_empty()) {
        return Some(s + ", replicated");
    }
    let mut dims = Vec::new();
    for d in &p.dim_shardings {
        let mut parts = axes(mesh, &d.axes)?;
        if !d.is_closed {
            parts.push("?".to_owned());
        }
        dims.push(format!("{{{}}}", parts.join(", ")));
    }
    s += &format!(", [{}]", dims.join(", "));
    for (key, list) in groups {
        if !list.is_empty() {
            s += &format!(", {key}={{{}}}", axes(mesh, list)?.join(", "));
        }
    }
    Some(s)
}

fn parse_axes(c: &mut Scan<'_>, mesh: &xla::MeshProto) -> Option<(Vec<xla::AxisRefProto>, bool)> {
    c.eat("{")?;
    let mut out = Vec::new();
    let mut open = false;
    while !c.try_eat("}") {
        if c.try_eat("?") {
            open = true;
            continue;
        }
        let name = c.string()?;
        let mesh_axis_index = mesh.axes.iter().position(|a| a.name == name)? as i64;
        let mut sub_axis_info = None;
        if c.try_eat(":") {
            let pre = c.ints("(", ")")?;
            let &[pre_size] = pre.as_slice() else { return None };
            sub_axis_info = Some(xla::axis_ref_proto::SubAxis { pre_size, size: c.int()? });
        }
        out.push(xla::AxisRefProto { mesh_axis_index, sub_axis_info });
        c.try_eat(",");
    }
    Some((out, open))
}

/// The inverse of [`named`]; attached metadata is left out.
pub(crate) fn parse_named(s: &str) -> Option<xla::NamedShardingProto> {
    let mut c = Scan::new(s);
    let mut mesh = xla::MeshProto::default();
    if c.try_eat("maximal_mesh[device_id=") {
        mesh.device_ids.push(c.int()?);
        c.eat("]")?;
        return Some(xla::NamedShardingProto { mesh: Some(mesh), ..Default::default() });
    }
    c.eat("mesh[")?;
    while !c.try_eat("]") {
        let name = c.string()?;
        c.eat("=")?;
        mesh.axes.push(xla::mesh_proto::MeshAxis { name, size: c.int()? });
        c.try_eat(",");
    }
    if mesh.axes.len() > 64 {
        return None;
    }
    let mut out = xla::NamedShardingProto::default();
    while c.try_eat(",") {
        if c.try_eat("device_ids=") {
            let body = c.balanced('(', ')')?;
            let mut b = Scan::new(body);
            if body.trim_start().starts_with('[') {
                let reshape_dims = b.ints("[", "]")?;
                let transpose_perm = if b.try_eat("T") {
                    b.ints("(", ")")?
                } else {
                    (0..reshape_dims.len() as i64).collect()
                };
                mesh.iota_transform =
                    Some(xla::mesh_proto::IotaTransform { reshape_dims, transpose_perm });
            } else {
                while !b.done() {
                    mesh.device_ids.push(b.int()?);
                    b.try_eat(",");
                }
            }
        } else if c.try_eat("[") {
            while !c.try_eat("]") {
                let (axes, open) = parse_axes(&mut c, &mesh)?;
                out.dim_shardings.push(DimensionSharding { axes, is_closed: !open });
                c.try_eat(",");
            }
        } else if c.try_eat("replicated=") {
            out.replicated_axes = parse_axes(&mut c, &mesh)?.0;
        } else if c.try_eat("unreduced=") {
            out.unreduced_axes = parse_axes(&mut c, &mesh)?.0;
        } else if c.try_eat("manual=") {
            out.manual_axes = parse_axes(&mut c, &mesh)?.0;
        } else if c.try_eat("metadata=") {
            c.balanced('{', '}')?;
        } else {
            c.eat("replicated")?;
        }
    }
    out.mesh = Some(mesh);
    c.done().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    // As jaxlib 0.10.2 prints them.
    #[test]
    fn named_shardings_survive() {
        for s in [
            "mesh['x'=2,'y'=4,'z'=4], [{'x'}, {'y':(2)2, ?}], manual={'z'}",
            "mesh['x'=2,'y'=2], device_ids=(3,2,1,0), [{'x'}, {?}], replicated={'y'}",
            "mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x', 'y'}, {}]",
            "mesh['x'=2], replicated",
            "maximal_mesh[device_id=3]",
        ] {
            assert_eq!(named(&parse_named(s).unwrap()).as_deref(), Some(s));
        }
        assert!(parse_named("mesh['x'=2], [{'y'}]").is_none());
        assert!(parse_named("mesh['x'").is_none());
    }
}
