//! Shardings by named mesh axes (Shardy's model), and their HLO text form
//! `{mesh['a'=2,'b'=4], [{'a'}, {'b':(1)2}], replicated={..}}`.

use crate::cursor::{Cursor, ParseError, Res};
use crate::mesh::{self, MAX_DEVICES, Mesh};
use scalify_ir::IotaTile;
use std::fmt;
use std::sync::Arc;

/// A mesh with its device order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NamedMesh {
    /// Symbol name without `@`; empty if written in place.
    pub name: String,
    /// Axes; none for a maximal mesh and for the empty mesh.
    pub mesh: Mesh,
    /// Device id of each row-major mesh position; `None`: the position itself.
    /// If present it has one entry per position, all different.
    pub device_ids: Option<Arc<[u32]>>,
    /// The only device that holds data, for a maximal mesh.
    pub maximal: Option<u32>,
}

/// A mesh axis or a part of one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AxisRef {
    /// Axis name.
    pub name: String,
    /// `(pre, size)`: the axis is seen as `[pre, size, rest]` and the middle
    /// part is meant.
    pub sub: Option<(i64, i64)>,
}

/// Sharding of one dimension.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DimSharding {
    /// Axes, major first; empty: not split.
    pub axes: Vec<AxisRef>,
    /// `?`: the partitioner may split further.
    pub open: bool,
    /// `p0`, `p1`, ...
    pub priority: Option<i64>,
}

/// Sharding of a value over the axes of a mesh that is given apart.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AxisSharding {
    /// Per dimension; dimensions after the last entry are not split.
    pub dims: Vec<DimSharding>,
    /// Axes declared to be replicated.
    pub replicated: Vec<AxisRef>,
    /// Axes along which the value is a partial value.
    pub unreduced: Vec<AxisRef>,
    /// Axes along which the program is manual.
    pub manual: Vec<AxisRef>,
}

impl AxisSharding {
    /// True if a dimension is open.
    pub fn is_open(&self) -> bool {
        self.dims.iter().any(|d| d.open)
    }
}

impl NamedMesh {
    /// A mesh in row-major device order without a name.
    pub fn plain(mesh: Mesh) -> Self {
        NamedMesh { mesh, ..NamedMesh::default() }
    }

    /// Number of device positions.
    pub fn devices(&self) -> i64 {
        self.mesh.devices()
    }

    pub(crate) fn with_ids(mut self, ids: &[i64]) -> Result<Self, String> {
        if self.mesh.axes.is_empty() {
            let [one] = ids else { return Err("one device id for a mesh without axes".into()) };
            self.maximal = Some(id(*one)?);
            return Ok(self);
        }
        if ids.len() as i64 != self.mesh.devices() {
            return Err(format!("{} device ids, not {}", self.mesh.devices(), ids.len()));
        }
        let v = ids.iter().map(|i| id(*i)).collect::<Result<Vec<u32>, String>>()?;
        let mut sorted = v.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|w| w.first() == w.get(1)) {
            return Err("device ids that are all different".into());
        }
        let row_major = v.iter().enumerate().all(|(i, d)| i as u64 == u64::from(*d));
        self.device_ids = (!row_major).then(|| v.into());
        Ok(self)
    }
}

fn id(v: i64) -> Result<u32, String> {
    match u32::try_from(v) {
        Ok(d) if v < MAX_DEVICES => Ok(d),
        _ => Err(format!("device ids from 0 to {}", MAX_DEVICES - 1)),
    }
}

/// An axis reference: quoted or bare name, then `:(pre)size` if it is a part.
pub(crate) fn axis_ref(c: &mut Cursor<'_>) -> Res<AxisRef> {
    let name = if c.at_quote() {
        c.quoted("an axis name")?
    } else {
        match c.word() {
            Some(w) => w.to_string(),
            None => return c.fail("an axis name"),
        }
    };
    let sub = if c.eat(":") {
        c.expect("(")?;
        let pre = c.int()?;
        c.expect(")")?;
        let at = c.at;
        let size = c.int()?;
        if pre < 1 || size < 1 || pre.checked_mul(size).is_none_or(|n| n > MAX_DEVICES) {
            c.at = at;
            return c.fail("a sub-axis with positive sizes");
        }
        Some((pre, size))
    } else {
        None
    };
    Ok(AxisRef { name, sub })
}

pub(crate) fn dim_sharding(c: &mut Cursor<'_>) -> Res<DimSharding> {
    let mut d = DimSharding::default();
    let items = c.list("{", "}", |c| if c.eat("?") { Ok(None) } else { axis_ref(c).map(Some) })?;
    for i in items {
        match i {
            Some(a) => d.axes.push(a),
            None => d.open = true,
        }
    }
    if c.rest().starts_with('p') {
        c.eat("p");
        d.priority = Some(c.int()?);
    }
    Ok(d)
}

/// `, replicated={..}, unreduced={..}, manual={..}` in any order.
pub(crate) fn axis_lists(c: &mut Cursor<'_>, s: &mut AxisSharding) -> Res<()> {
    while c.eat(",") {
        let list = if c.eat("replicated") {
            &mut s.replicated
        } else if c.eat("unreduced") {
            &mut s.unreduced
        } else if c.eat("manual") {
            &mut s.manual
        } else {
            return c.fail("`replicated={..}`, `unreduced={..}` or `manual={..}`");
        };
        c.expect("=")?;
        *list = c.list("{", "}", axis_ref)?;
    }
    Ok(())
}

/// `(0,2,1,3)`, `([4,2]T(1,0))` or `([8])`.
fn device_ids(c: &mut Cursor<'_>) -> Res<Vec<i64>> {
    let start = c.at;
    c.expect("(")?;
    if !c.peek("[") {
        c.at = start;
        return c.list("(", ")", Cursor::int);
    }
    let dims = c.list("[", "]", Cursor::int)?;
    let n = dims.iter().try_fold(1i64, |n, d| {
        if *d < 1 { None } else { n.checked_mul(*d).filter(|n| *n <= MAX_DEVICES) }
    });
    let Some(_) = n else { return c.fail("positive sizes of a mesh that is not too big") };
    let perm =
        if c.eat("T") { c.list("(", ")", Cursor::int)? } else { (0..dims.len() as i64).collect() };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..dims.len() as i64) {
        return c.fail("a permutation of the dimensions before this place");
    }
    c.expect(")")?;
    let tile = IotaTile {
        dims: dims.iter().copied().collect(),
        reshape: dims.iter().copied().collect(),
        perm: perm.iter().map(|p| *p as u32).collect(),
    };
    Ok(tile.expand())
}

/// Parses the named form of an HLO `sharding={...}` (one value, not a tuple),
/// with or without the outer braces.
///
/// # Errors
/// What was expected and where.
pub fn parse_named_sharding(text: &str) -> Result<(NamedMesh, AxisSharding), ParseError> {
    let mut c = Cursor::new(text);
    let braces = c.eat("{");
    let mut s = AxisSharding::default();
    let mut m = NamedMesh::default();
    if c.eat("maximal_mesh") {
        c.expect("[")?;
        c.expect("device_id")?;
        c.expect("=")?;
        let at = c.at;
        let v = c.int()?;
        m.maximal = Some(id(v).map_err(|e| ParseError::new(text, at, e))?);
        c.expect("]")?;
    } else {
        if !c.eat("mesh") {
            return c.fail("`mesh[..]` or `maximal_mesh[..]`");
        }
        let at = c.at;
        let axes = c.list("[", "]", |c| mesh::axis(c, &["="]))?;
        m.mesh = Mesh::new(axes).map_err(|e| ParseError::new(text, at, e))?;
        let all = |m: &NamedMesh| -> Vec<AxisRef> {
            m.mesh.axes.iter().map(|a| AxisRef { name: a.0.clone(), sub: None }).collect()
        };
        c.expect(",")?;
        if c.eat("device_ids") {
            c.expect("=")?;
            let at = c.at;
            let ids = device_ids(&mut c)?;
            m = m.with_ids(&ids).map_err(|e| ParseError::new(text, at, e))?;
            c.expect(",")?;
        }
        if c.eat("replicated") {
            s.replicated = all(&m);
        } else if c.eat("unreduced") {
            s.unreduced = all(&m);
        } else if c.eat("manual") {
            s.manual = all(&m);
        } else if c.peek("[") {
            s.dims = c.list("[", "]", dim_sharding)?;
            axis_lists(&mut c, &mut s)?;
        } else {
            return c.fail("`[..]`, `replicated`, `unreduced`, `manual` or `device_ids=(..)`");
        }
    }
    if braces {
        // Metadata of the sharding has no meaning here.
        if c.eat(",") || c.peek("metadata") {
            let Some(end) = text.rfind('}') else { return c.fail("`}`") };
            c.at = end.max(c.at);
        }
        c.expect("}")?;
    }
    c.end()?;
    Ok((m, s))
}

impl fmt::Display for AxisRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sub {
            None => f.write_str(&self.name),
            Some((pre, size)) => write!(f, "{}:({pre}){size}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let (m, s) = parse_named_sharding(
            "{mesh['data'=1,'fsdp'=2,'tensor'=4], [{'fsdp'}, {}, {'tensor':(2)2, ?}p1], replicated={'data'}}",
        )
        .unwrap();
        assert_eq!(m.mesh.to_string(), "data=1,fsdp=2,tensor=4");
        assert_eq!(s.dims.len(), 3);
        assert_eq!(s.dims[2].axes[0].sub, Some((2, 2)));
        assert!(s.dims[2].open && s.is_open());
        assert_eq!(s.dims[2].priority, Some(1));
        assert_eq!(s.replicated[0].name, "data");
        let (m, s) = parse_named_sharding("{mesh[], replicated}").unwrap();
        assert!(m.mesh.axes.is_empty() && s.dims.is_empty() && m.maximal.is_none());
        assert_eq!(parse_named_sharding("{maximal_mesh[device_id=5]}").unwrap().0.maximal, Some(5));
        let (_, s) = parse_named_sharding("mesh[a=2,b=4], manual").unwrap();
        assert_eq!(s.manual.len(), 2);
    }

    #[test]
    fn device_order() {
        let (m, _) =
            parse_named_sharding("{mesh['x'=2,'y'=2], device_ids=(0,2,1,3), [{'x'}]}").unwrap();
        assert_eq!(m.device_ids.as_deref(), Some(&[0, 2, 1, 3][..]));
        // np.arange(8).reshape(2,4).T.ravel()
        let (m, _) =
            parse_named_sharding("{mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)), [{'x'}]}").unwrap();
        assert_eq!(m.device_ids.as_deref(), Some(&[0, 4, 1, 5, 2, 6, 3, 7][..]));
        let e = parse_named_sharding("{mesh['x'=4], device_ids=(0,1,1,3), [{'x'}]}").unwrap_err();
        assert!(e.to_string().contains("all different"));
        let e = parse_named_sharding("{mesh['x'=4], device_ids=([0,4]), [{'x'}]}").unwrap_err();
        assert!(e.to_string().contains("positive"));
        assert!(parse_named_sharding("{mesh['x'=4], device_ids=([4]T(1)), [{'x'}]}").is_err());
        assert!(parse_named_sharding("{mesh['x'=4], oops}").is_err());
        assert!(parse_named_sharding("{mesh['x'=4], [{'x'}]").is_err());
    }
}
