//! Device lists: replica groups and tile assignments.

use crate::cursor::{Cursor, R};
use scalify_ir::groups::{AxisRef, DeviceOrder};
use scalify_ir::sharding::TileDevices;
use scalify_ir::{Interner, IotaTile, MeshGroups, ReplicaGroups};
use smallvec::SmallVec;

/// Most devices a list may name.
const MAX_DEVICES: i64 = 1 << 32;

fn product(c: &Cursor<'_>, start: usize, dims: &[i64]) -> R<i64> {
    let n = dims.iter().try_fold(1i64, |a, &d| if d > 0 { a.checked_mul(d) } else { None });
    match n {
        Some(n) if n <= MAX_DEVICES => Ok(n),
        _ => c.fail(start, c.pos, "sizes must be positive and name at most 2^32 devices"),
    }
}

/// `[2,4]T(1,0)` after `<=`: reshape dimensions and permutation.
fn iota(c: &mut Cursor<'_>, dims: Option<&[i64]>) -> R<IotaTile> {
    c.ws();
    let start = c.pos;
    let mut reshape: SmallVec<[i64; 4]> = SmallVec::new();
    c.ints(b'[', b']', &mut reshape)?;
    let n = product(c, start, &reshape)?;
    let mut perm: SmallVec<[u32; 4]> = (0..reshape.len() as u32).collect();
    c.ws();
    if c.peek() == b'T' && c.peek_at(1) == b'(' {
        c.pos += 1;
        let at = c.pos;
        let mut p: SmallVec<[i64; 4]> = SmallVec::new();
        c.ints(b'(', b')', &mut p)?;
        let mut sorted = p.clone();
        sorted.sort_unstable();
        if p.len() != reshape.len() || sorted.iter().enumerate().any(|(i, &v)| v != i as i64) {
            let what = format!("this is not a permutation of {} dimensions", reshape.len());
            return c.fail(at, c.pos, what);
        }
        perm = p.iter().map(|&v| v as u32).collect();
    }
    let dims: SmallVec<[i64; 4]> = dims.unwrap_or(&reshape).iter().copied().collect();
    if product(c, start, &dims)? != n {
        return c.fail(start, c.pos, "the iota and the tile dimensions differ in size");
    }
    Ok(IotaTile { dims, reshape, perm })
}

/// Value of `replica_groups`, in any of its three forms.
pub(crate) fn replica_groups(c: &mut Cursor<'_>, strings: &mut Interner) -> R<ReplicaGroups> {
    c.ws();
    match c.peek() {
        b'{' => {
            let mut out = Vec::new();
            c.list(b'{', b'}', "`{`", |c| {
                let mut g: Vec<i64> = Vec::new();
                c.ints(b'{', b'}', &mut g)?;
                out.push(g);
                Ok(())
            })?;
            Ok(ReplicaGroups::List(out))
        }
        b'[' => {
            let start = c.pos;
            let mut dims: SmallVec<[i64; 4]> = SmallVec::new();
            c.ints(b'[', b']', &mut dims)?;
            if dims.len() != 2 {
                return c.fail(start, c.pos, "the groups must form a table of two dimensions");
            }
            if !c.eat_str("<=") {
                return c.expected("`<=`");
            }
            Ok(ReplicaGroups::Iota(iota(c, Some(&dims))?))
        }
        _ if c.eat_word("mesh") => Ok(ReplicaGroups::Mesh(mesh(c, strings)?)),
        _ => c.expected("replica groups: `{{0,1}}`, `[1,2]<=[2]` or `mesh['x'=2] {'x'}`"),
    }
}

fn axis_name<'a>(c: &mut Cursor<'a>) -> R<&'a str> {
    c.ws();
    if matches!(c.peek(), b'\'' | b'"') {
        c.string_raw("the name of a mesh axis")
    } else {
        let start = c.pos;
        c.pos = c.ident_end(start);
        if c.pos == start {
            return c.expected("the name of a mesh axis");
        }
        Ok(c.slice(start, c.pos))
    }
}

fn mesh(c: &mut Cursor<'_>, strings: &mut Interner) -> R<MeshGroups> {
    let start = c.pos;
    let mut axes = Vec::new();
    c.list(b'[', b']', "`[` and the axes of the mesh", |c| {
        let name = axis_name(c)?;
        c.expect(b'=', "`=` and the size of the axis")?;
        let at = c.pos;
        let size = c.int("the size of the axis")?;
        let name = strings.intern(name);
        if axes.iter().any(|a: &(_, i64)| a.0 == name) {
            return c.fail(at, c.pos, "this mesh axis is named twice");
        }
        axes.push((name, size));
        Ok(())
    })?;
    let sizes: Vec<i64> = axes.iter().map(|a| a.1).collect();
    let n = product(c, start, &sizes)?;
    let mut device_ids = None;
    if c.eat(b',') {
        c.ws();
        let at = c.pos;
        if !c.eat_str("device_ids=") {
            return c.expected("`device_ids=`");
        }
        c.ws();
        let open = c.pos;
        c.expect(b'(', "`(` and the device numbers")?;
        c.ws();
        device_ids = Some(if c.peek() == b'[' {
            let t = iota(c, None)?;
            c.expect(b')', "`)`")?;
            DeviceOrder::Iota(t)
        } else {
            let mut l: Vec<i64> = Vec::new();
            c.pos = open;
            c.ints(b'(', b')', &mut l)?;
            DeviceOrder::List(l)
        });
        let have = match &device_ids {
            Some(DeviceOrder::List(l)) => l.len() as i64,
            Some(DeviceOrder::Iota(t)) => t.reshape.iter().product(),
            None => n,
        };
        if have != n {
            return c.fail(at, c.pos, format!("the mesh has {n} devices, {have} are listed"));
        }
    }
    let mut group_axes = Vec::new();
    c.list(b'{', b'}', "`{` and the axes of a group", |c| {
        c.ws();
        let at = c.pos;
        let name = axis_name(c)?;
        let by_name = strings.lookup(name).and_then(|s| axes.iter().position(|a| a.0 == s));
        let axis = by_name.or_else(|| name.parse().ok().filter(|&i: &usize| i < axes.len()));
        let Some(axis) = axis else {
            return c.fail(at, c.pos, format!("the mesh has no axis `{name}`"));
        };
        let mut sub = None;
        if c.eat(b':') {
            c.expect(b'(', "`(` and the size before the sub-axis")?;
            let pre = c.int("an integer")?;
            c.expect(b')', "`)`")?;
            let size = c.int("the size of the sub-axis")?;
            let whole = axes[axis].1;
            let fits = pre > 0
                && size > 0
                && pre.checked_mul(size).is_some_and(|p| p <= whole && whole % p == 0);
            if !fits {
                return c.fail(at, c.pos, format!("no such part of an axis of size {whole}"));
            }
            sub = Some((pre, size));
        }
        group_axes.push(AxisRef { axis: axis as u32, sub });
        Ok(())
    })?;
    Ok(MeshGroups { axes, device_ids, group_axes })
}

/// `[2,4]<=[8]` or `[2,2]0,1,2,3` after `devices=`.
pub(crate) fn tile(c: &mut Cursor<'_>) -> R<(Vec<i64>, TileDevices)> {
    c.ws();
    let start = c.pos;
    let mut dims: Vec<i64> = Vec::new();
    c.ints(b'[', b']', &mut dims)?;
    let n = product(c, start, &dims)?;
    c.ws();
    if c.eat_str("<=") {
        let t = iota(c, Some(&dims))?;
        return Ok((dims, TileDevices::Iota(t)));
    }
    let mut l = Vec::new();
    loop {
        l.push(c.int("a device number or `<=`")?);
        if !c.eat(b',') {
            break;
        }
    }
    if l.len() as i64 != n {
        let what = format!("the tile grid has {n} devices, {} are listed", l.len());
        return c.fail(start, c.pos, what);
    }
    Ok((dims, TileDevices::List(l)))
}
