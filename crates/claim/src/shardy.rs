//! Shardy's attributes as HLO carries them in `frontend_attributes`:
//! `xla.sdy.meshes` of the module header, `xla.sdy.sharding`,
//! `xla.sdy.in_shardings`, `xla.sdy.out_shardings`, `xla.sdy.manual_axes`.

use crate::cursor::{Cursor, ParseError, Res};
use crate::mesh::{self, Mesh};
use crate::named::{AxisSharding, NamedMesh, axis_lists, dim_sharding};

/// How a sharding names its mesh.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MeshRef {
    /// `@name`, declared in the header.
    Name(String),
    /// `mesh<[..]>` in place.
    Inline(NamedMesh),
}

/// One `#sdy.sharding<@mesh, [..]>`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SdySharding {
    /// Its mesh.
    pub mesh: MeshRef,
    /// The axes of each dimension.
    pub sharding: AxisSharding,
}

impl SdySharding {
    /// The mesh, looked up in the header's meshes.
    pub fn resolve<'a>(&'a self, meshes: &'a [NamedMesh]) -> Option<&'a NamedMesh> {
        match &self.mesh {
            MeshRef::Inline(m) => Some(m),
            MeshRef::Name(n) => meshes.iter().find(|m| m.name == *n),
        }
    }
}

/// `<["dp"=2, "tp"=4], device_ids=[..]>`.
fn mesh_body(c: &mut Cursor<'_>, name: &str) -> Res<NamedMesh> {
    c.expect("<")?;
    let at = c.at;
    let axes = c.list("[", "]", |c| mesh::axis(c, &["="]))?;
    let wrong = |c: &Cursor<'_>, at: usize, e: String| {
        let mut e2 = c.fail::<()>(e).unwrap_err();
        e2.at = at;
        e2
    };
    let mesh = Mesh::new(axes).map_err(|e| wrong(c, at, e))?;
    let mut m = NamedMesh { name: name.to_string(), mesh, ..NamedMesh::default() };
    if c.eat(",") {
        c.expect("device_ids")?;
        c.expect("=")?;
        let at = c.at;
        let ids = c.list("[", "]", Cursor::int)?;
        m = m.with_ids(&ids).map_err(|e| wrong(c, at, e))?;
    }
    c.expect(">")?;
    Ok(m)
}

/// Removes one layer of quotes around a whole attribute.
fn unquoted(c: &mut Cursor<'_>) -> Option<&'static str> {
    ["\\\"", "\""].into_iter().find(|q| c.eat(q))
}

/// Parses the value of `xla.sdy.meshes`:
/// `{mesh = #sdy.mesh<["dp"=2, "tp"=4]>, other = #sdy.mesh<[], device_ids=[0]>}`.
///
/// # Errors
/// What was expected and where.
pub fn parse_sdy_meshes(text: &str) -> Result<Vec<NamedMesh>, ParseError> {
    let mut c = Cursor::new(text);
    let quote = unquoted(&mut c);
    let meshes = c.list("{", "}", |c| {
        let name = if c.at_quote() {
            c.quoted("a mesh name")?
        } else {
            match c.word() {
                Some(w) => w.to_string(),
                None => return c.fail("a mesh name"),
            }
        };
        c.expect("=")?;
        // Older writers quote each mesh.
        let quote = unquoted(c);
        c.expect("#sdy.mesh")?;
        let m = mesh_body(c, &name)?;
        if let Some(q) = quote {
            c.expect(q)?;
        }
        Ok(m)
    })?;
    if let Some(q) = quote {
        c.expect(q)?;
    }
    c.end()?;
    Ok(meshes)
}

/// `<@mesh, [{"x"}, {?}], replicated={"y"}>`.
fn sharding(c: &mut Cursor<'_>) -> Res<SdySharding> {
    c.expect("<")?;
    let mesh = if c.eat("@") {
        if c.at_quote() {
            MeshRef::Name(c.quoted("a mesh name")?)
        } else {
            match c.word() {
                Some(w) => MeshRef::Name(w.to_string()),
                None => return c.fail("a mesh name"),
            }
        }
    } else if c.eat("mesh") {
        MeshRef::Inline(mesh_body(c, "")?)
    } else {
        return c.fail("`@` and a mesh name, or `mesh<..>`");
    };
    c.expect(",")?;
    let mut sharding =
        AxisSharding { dims: c.list("[", "]", dim_sharding)?, ..AxisSharding::default() };
    axis_lists(c, &mut sharding)?;
    c.expect(">")?;
    Ok(SdySharding { mesh, sharding })
}

/// Parses `#sdy.sharding<..>` (one) or `#sdy.sharding_per_value<[<..>, ..]>`
/// (one per tuple leaf).
///
/// # Errors
/// What was expected and where.
pub fn parse_sdy_shardings(text: &str) -> Result<Vec<SdySharding>, ParseError> {
    let mut c = Cursor::new(text);
    let quote = unquoted(&mut c);
    let out = if c.eat("#sdy.sharding_per_value") {
        c.expect("<")?;
        let v = c.list("[", "]", sharding)?;
        c.expect(">")?;
        v
    } else if c.eat("#sdy.sharding") {
        vec![sharding(&mut c)?]
    } else {
        return c.fail("`#sdy.sharding<..>` or `#sdy.sharding_per_value<..>`");
    };
    if let Some(q) = quote {
        c.expect(q)?;
    }
    c.end()?;
    Ok(out)
}

/// Parses the value of `xla.sdy.manual_axes`: `#sdy<manual_axes{"dp", "tp"}>`.
///
/// # Errors
/// What was expected and where.
pub fn parse_manual_axes(text: &str) -> Result<Vec<String>, ParseError> {
    let mut c = Cursor::new(text);
    let quote = unquoted(&mut c);
    c.expect("#sdy")?;
    let angle = c.eat("<");
    if !angle {
        c.expect(".")?;
    }
    c.expect("manual_axes")?;
    let inner = c.eat("<");
    let v = c.list("{", "}", |c| c.quoted("an axis name"))?;
    for _ in 0..u8::from(angle) + u8::from(inner) {
        c.expect(">")?;
    }
    if let Some(q) = quote {
        c.expect(q)?;
    }
    c.end()?;
    Ok(v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes() {
        let m = parse_sdy_meshes(r#"{empty_mesh = #sdy.mesh<[]>, mesh = #sdy.mesh<["tp"=4]>}"#)
            .unwrap();
        assert_eq!((m[0].name.as_str(), m[0].devices()), ("empty_mesh", 1));
        assert_eq!(m[1].mesh.to_string(), "tp=4");
        let m = parse_sdy_meshes("{maximal_mesh_0 = #sdy.mesh<[], device_ids=[0]>}").unwrap();
        assert_eq!(m[0].maximal, Some(0));
        let m = parse_sdy_meshes(r#"{m = #sdy.mesh<[\"x\"=2,\"y\"=2], device_ids=[3,2,1,0]>}"#)
            .unwrap();
        assert_eq!(m[0].device_ids.as_deref(), Some(&[3, 2, 1, 0][..]));
        let m = parse_sdy_meshes(r##"{mesh = "#sdy.mesh<[\"tp\"=4]>"}"##).unwrap();
        assert_eq!(m[0].mesh.to_string(), "tp=4");
        let e = parse_sdy_meshes(r#"{m = #sdy.mesh<["x"=2], device_ids=[0]>}"#).unwrap_err();
        assert!(e.to_string().contains("2 device ids"));
    }

    #[test]
    fn shardings() {
        let s = parse_sdy_shardings(
            r#"#sdy.sharding_per_value<[<@mesh, [{"dp"}, {"sp", ?}, {}]>, <@mesh, [{"x":(1)2}p0], replicated={"y"}>]>"#,
        )
        .unwrap();
        assert_eq!(s.len(), 2);
        assert!(s[0].sharding.dims[1].open);
        assert_eq!(s[1].sharding.dims[0].axes[0].to_string(), "x:(1)2");
        assert_eq!(s[1].sharding.dims[0].priority, Some(0));
        assert_eq!(s[1].sharding.replicated.len(), 1);
        let s =
            parse_sdy_shardings(r##"#sdy.sharding<@mesh, [{\"a\", \"b\"}, {\"c\"}]>"##).unwrap();
        assert_eq!(s[0].sharding.dims[0].axes.len(), 2);
        let s = parse_sdy_shardings(r#"#sdy.sharding<mesh<["a"=2]>, [{?}]>"#).unwrap();
        assert_eq!(s[0].resolve(&[]).unwrap().devices(), 2);
        let e = parse_sdy_shardings("#sdy.sharding<@mesh [{}]>").unwrap_err();
        assert_eq!((e.at, e.expected.as_str()), (20, "`,`"));
    }

    #[test]
    fn manual() {
        let v = parse_manual_axes(r#"#sdy<manual_axes{"dp", "tp"}>"#).unwrap();
        assert_eq!(v, ["dp", "tp"]);
        assert!(parse_manual_axes("#sdy<manual_axes{}>").unwrap().is_empty());
        assert!(parse_manual_axes("#sdy<manual_axes{").is_err());
    }
}
