//! Opcodes that address by run-time indices.

use super::*;

/// Start indices: one integer scalar per dimension, or one integer vector.
fn start_indices(c: &Ctx<'_>, from: usize, rank: usize) -> Res<()> {
    let given = c.len() - from;
    if given == 1 {
        let v = c.array(from)?;
        if v.rank() == 1 {
            need!(
                v.dtype.is_int() && same_size(v.dims[0], rank as i64),
                format!("an integer vector of {rank} start indices"),
                "start indices {v}"
            );
            return Ok(());
        }
    }
    need!(given == rank, format!("{rank} start indices"), "{given} start indices");
    for i in from..c.len() {
        let s = c.scalar(i)?;
        need!(s.dtype.is_int(), "an integer scalar", "operand {i} is {s}");
        let first = c.scalar(from)?;
        need!(s.dtype == first.dtype, "start indices of one type", "start indices {first} and {s}");
    }
    Ok(())
}

pub(super) fn dynamic_slice<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::DynamicSlice(sizes) = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    start_indices(c, 1, a.rank())?;
    need!(
        sizes.len() == a.rank(),
        format!("{} slice sizes", a.rank()),
        "dynamic_slice_sizes={sizes:?}"
    );
    let mut out = DimsOut::default();
    for (i, &s) in sizes.iter().enumerate() {
        let d = a.dims[i];
        need!(
            s >= 0 && (d == Shape::UNBOUNDED || s <= d),
            format!("a slice size from 0 to {d}"),
            "size {s} in dimension {i} of {a}"
        );
        out.push(s, a.is_dynamic(i) && s > 1 && s == d);
    }
    Ok(Out::Array(out.array(a.dtype)))
}

pub(super) fn dynamic_update_slice<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let (s, u) = (c.shape(0)?, c.array(1)?);
    // A buffer may be updated in place.
    let a = match s {
        Shape::Buffer(b) => b.as_array(),
        s => s.as_array(),
    };
    let Some(a) = a else { return err!("an array", "operand 0 is {s}") };
    start_indices(c, 2, a.rank())?;
    need!(
        same_type(a.dtype, u.dtype, true) && a.rank() == u.rank(),
        "an update of the operand's rank and element type",
        "operand {a}, update {u}"
    );
    let mut grown = 0u64;
    for i in 0..a.rank() {
        let (d, k) = (a.dims[i], u.dims[i]);
        need!(
            k <= d || d == Shape::UNBOUNDED,
            format!("an update size of at most {d}"),
            "update {u} of {a}"
        );
        if u.is_dynamic(i) && k == d {
            grown |= 1 << i;
        }
    }
    if grown & !a.dynamic == 0 || matches!(s, Shape::Buffer(_)) {
        return Ok(Out::Ref(s));
    }
    Ok(Out::Array(ArrayShape { dynamic: a.dynamic | grown, ..a.clone() }))
}

/// Sizes of the index array with `index_vector_dim` made explicit.
fn index_dims(a: &ArrayShape, vector_dim: i64) -> Res<ArrayShape> {
    need!(a.dtype.is_int(), "integer indices", "indices {a}");
    need!(
        in_rank(vector_dim, a.rank() + 1),
        format!("index_vector_dim from 0 to {}", a.rank()),
        "index_vector_dim={vector_dim} of indices {a}"
    );
    let mut out =
        ArrayShape { dtype: a.dtype, dims: a.dims.clone(), dynamic: a.dynamic, layout: None };
    if vector_dim as usize == a.rank() {
        out.dims.push(1);
    }
    Ok(out)
}

/// Conditions that gather and scatter share. `map` sends index components to
/// operand dimensions, `collapsed` and `batching` are absent from the window.
fn index_maps(
    operand: &ArrayShape,
    indices: &ArrayShape,
    vector_dim: i64,
    (map, map_name): (&[i64], &str),
    (collapsed, collapsed_name): (&[i64], &str),
    (batching, batching_name): (&[i64], &str),
    (index_batching, index_batching_name): (&[i64], &str),
) -> Res<()> {
    let rank = operand.rank();
    let width = indices.dims[vector_dim as usize];
    need!(
        same_size(map.len() as i64, width),
        format!("{width} entries in {map_name}"),
        "{map_name}={map:?} with indices {indices}, index_vector_dim={vector_dim}"
    );
    need!(
        distinct(map, rank),
        format!("distinct dimensions below {rank} in {map_name}"),
        "{map_name}={map:?}"
    );
    for (list, name) in [(collapsed, collapsed_name), (batching, batching_name)] {
        need!(
            ascending(list, rank),
            format!("ascending dimensions below {rank} in {name}"),
            "{name}={list:?}"
        );
    }
    need!(
        batching.iter().all(|d| !collapsed.contains(d) && !map.contains(d)),
        format!("{batching_name} disjoint from {collapsed_name} and {map_name}"),
        "{batching_name}={batching:?}, {collapsed_name}={collapsed:?}, {map_name}={map:?}"
    );
    need!(
        batching.len() == index_batching.len(),
        format!("{} entries in {index_batching_name}", batching.len()),
        "{index_batching_name}={index_batching:?}"
    );
    need!(
        distinct(index_batching, indices.rank()) && !index_batching.contains(&vector_dim),
        format!(
            "distinct dimensions below {} other than index_vector_dim in {index_batching_name}",
            indices.rank()
        ),
        "{index_batching_name}={index_batching:?}"
    );
    for (&a, &b) in batching.iter().zip(index_batching) {
        need!(
            same_size(operand.dims[a as usize], indices.dims[b as usize]),
            "equal sizes of batching dimensions",
            "operand {operand} dimension {a}, indices {indices} dimension {b}"
        );
    }
    Ok(())
}

pub(super) fn gather<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Gather(g) = c.attrs else { return c.bad_attrs() };
    let a = c.array(0)?;
    let idx = index_dims(c.array(1)?, g.index_vector_dim)?;
    let rank = g.offset_dims.len() + idx.rank() - 1;
    need!(
        ascending(&g.offset_dims, rank),
        format!("ascending offset_dims below {rank}"),
        "offset_dims={:?}",
        g.offset_dims
    );
    index_maps(
        a,
        &idx,
        g.index_vector_dim,
        (&g.start_index_map, "start_index_map"),
        (&g.collapsed_slice_dims, "collapsed_slice_dims"),
        (&g.operand_batching_dims, "operand_batching_dims"),
        (&g.start_indices_batching_dims, "start_indices_batching_dims"),
    )?;
    let sizes = &g.slice_sizes;
    need!(
        sizes.len() == a.rank()
            && sizes.len()
                == g.offset_dims.len()
                    + g.collapsed_slice_dims.len()
                    + g.operand_batching_dims.len(),
        format!("{} slice sizes, each an offset, collapsed or batching dimension", a.rank()),
        "slice_sizes={sizes:?}, offset_dims={:?}, collapsed_slice_dims={:?}, \
         operand_batching_dims={:?}",
        g.offset_dims,
        g.collapsed_slice_dims,
        g.operand_batching_dims
    );
    for (i, &s) in sizes.iter().enumerate() {
        let d = a.dims[i];
        need!(
            s >= 0 && (d == Shape::UNBOUNDED || s <= d),
            format!("a slice size from 0 to {d}"),
            "slice size {s} in dimension {i} of {a}"
        );
    }
    for &d in g.collapsed_slice_dims.iter().chain(&g.operand_batching_dims) {
        let s = sizes[d as usize];
        need!(s <= 1, "slice size 0 or 1", "slice size {s} of collapsed or batching dimension {d}");
    }
    let mut window = (0..a.rank()).filter(|&d| {
        !g.collapsed_slice_dims.contains(&(d as i64))
            && !g.operand_batching_dims.contains(&(d as i64))
    });
    let mut batch = (0..idx.rank()).filter(|&d| d as i64 != g.index_vector_dim);
    let mut out = DimsOut::default();
    for i in 0..rank {
        if g.offset_dims.contains(&(i as i64)) {
            let Some(d) = window.next() else { return c.bad_attrs() };
            out.push(sizes[d], sizes[d] == a.dims[d] && a.is_dynamic(d));
        } else {
            let Some(d) = batch.next() else { return c.bad_attrs() };
            out.copy(&idx, d);
        }
    }
    Ok(Out::Array(out.array(a.dtype)))
}

pub(super) fn scatter<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Scatter(s) = c.attrs else { return c.bad_attrs() };
    let n = c.len() / 2;
    need!(c.len() == 2 * n + 1, "n operands, indices, n updates", "{} operands", c.len());
    let idx = index_dims(c.array(n)?, s.index_vector_dim)?;
    let first = c.array(0)?;
    let rank = s.update_window_dims.len() + idx.rank() - 1;
    for k in 0..n {
        let (a, u) = (c.array(k)?, c.array(n + 1 + k)?);
        need!(
            same_dims(&a.dims, &first.dims),
            "operands of the same dimensions",
            "operands {first} and {a}"
        );
        need!(u.rank() == rank, format!("updates of rank {rank}"), "updates {u}");
        need!(
            ascending(&s.update_window_dims, rank),
            format!("ascending update_window_dims below {rank}"),
            "update_window_dims={:?}",
            s.update_window_dims
        );
        index_maps(
            a,
            &idx,
            s.index_vector_dim,
            (&s.scatter_dims_to_operand_dims, "scatter_dims_to_operand_dims"),
            (&s.inserted_window_dims, "inserted_window_dims"),
            (&s.input_batching_dims, "input_batching_dims"),
            (&s.scatter_indices_batching_dims, "scatter_indices_batching_dims"),
        )?;
        need!(
            s.update_window_dims.len() + s.inserted_window_dims.len() + s.input_batching_dims.len()
                == a.rank(),
            format!("{} window, inserted and batching dimensions together", a.rank()),
            "update_window_dims={:?}, inserted_window_dims={:?}, input_batching_dims={:?}",
            s.update_window_dims,
            s.inserted_window_dims,
            s.input_batching_dims
        );
        let window = (0..a.rank()).filter(|&d| {
            !s.inserted_window_dims.contains(&(d as i64))
                && !s.input_batching_dims.contains(&(d as i64))
        });
        for (d, &w) in window.zip(&s.update_window_dims) {
            let (bound, size) = (a.dims[d], u.dims[w as usize]);
            need!(
                size <= bound || bound == Shape::UNBOUNDED,
                format!("a window size of at most {bound}"),
                "updates {u} dimension {w}, operand {a} dimension {d}"
            );
        }
        let mut batch = (0..idx.rank()).filter(|&d| d as i64 != s.index_vector_dim);
        for i in 0..rank {
            if s.update_window_dims.contains(&(i as i64)) {
                continue;
            }
            let Some(d) = batch.next() else { return c.bad_attrs() };
            need!(
                same_size(u.dims[i], idx.dims[d]),
                format!("size {} in update dimension {i}", idx.dims[d]),
                "updates {u}, indices {idx}"
            );
        }
    }
    let types =
        |k: usize| -> Res<(DType, DType)> { Ok((c.array(k)?.dtype, c.array(n + 1 + k)?.dtype)) };
    reduction::reducer(&c.call(0)?, n, types)?;
    if n == 1 { Ok(Out::Ref(c.shape(0)?)) } else { Ok(Out::Of(&c.operands[..n])) }
}
