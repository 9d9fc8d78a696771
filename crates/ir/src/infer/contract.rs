//! dot, ragged-dot, scaled-dot, convolution.

use super::*;
use crate::attrs::{ConvAttrs, DotAttrs};

/// Conditions on dimension numbers and sizes that all dots share.
fn dot_dims(d: &DotAttrs, a: &ArrayShape, b: &ArrayShape) -> Res<()> {
    let side = |batch: &[i64], contracting: &[i64], s: &ArrayShape, name: &str| -> Res<()> {
        need!(
            distinct(batch, s.rank())
                && distinct(contracting, s.rank())
                && !batch.iter().any(|d| contracting.contains(d)),
            format!("distinct {name} dimension numbers below {}", s.rank()),
            "{name}_batch_dims={batch:?}, {name}_contracting_dims={contracting:?} of {s}"
        );
        Ok(())
    };
    side(&d.lhs_batch, &d.lhs_contracting, a, "lhs")?;
    side(&d.rhs_batch, &d.rhs_contracting, b, "rhs")?;
    for (l, r, name) in [
        (&d.lhs_contracting, &d.rhs_contracting, "contracting"),
        (&d.lhs_batch, &d.rhs_batch, "batch"),
    ] {
        need!(
            l.len() == r.len(),
            format!("as many {name} dimensions on both sides"),
            "{l:?} and {r:?}"
        );
        for (&i, &j) in l.iter().zip(r) {
            need!(
                same_size(a.dims[i as usize], b.dims[j as usize]),
                format!("equal {name} sizes"),
                "{a} dimension {i}, {b} dimension {j}"
            );
        }
    }
    Ok(())
}

/// Batch, lhs free, rhs free dimensions.
fn dot_result(d: &DotAttrs, a: &ArrayShape, b: &ArrayShape, out: &mut DimsOut) {
    d.lhs_batch.iter().for_each(|&i| out.copy(a, i as usize));
    for i in 0..a.rank() {
        let k = i as i64;
        if !d.lhs_batch.contains(&k) && !d.lhs_contracting.contains(&k) {
            out.copy(a, i);
        }
    }
    for i in 0..b.rank() {
        let k = i as i64;
        if !d.rhs_batch.contains(&k) && !d.rhs_contracting.contains(&k) && !d.rhs_group.contains(&k)
        {
            out.copy(b, i);
        }
    }
}

/// The recorded element type, else the operands' more precise one.
fn result_type(c: &Ctx<'_>, a: &ArrayShape, b: &ArrayShape) -> DType {
    c.declared_type().unwrap_or_else(|| wider(a.dtype, b.dtype))
}

/// At most one packed nibble operand is meaningless: none, or both of 8 bits.
fn packed_nibble(
    c: &Ctx<'_>,
    precision: &[crate::Symbol],
    a: &ArrayShape,
    b: &ArrayShape,
) -> Res<()> {
    let packed = precision.iter().filter(|p| text(c.m, **p) == "packed_nibble").count();
    let ok = match packed {
        0 => true,
        2 => [a, b].iter().all(|s| s.dtype.is_int() && s.dtype.bits() == 8),
        _ => false,
    };
    need!(ok, "packed_nibble on both 8-bit integer operands", "operands {a} and {b}");
    Ok(())
}

pub(super) fn dot<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dot(d) = c.attrs else { return c.bad_attrs() };
    need!(
        c.len() == 2 || d.sparsity.is_some(),
        "2 operands (more only with sparsity)",
        "{} operands",
        c.len()
    );
    let (a, b) = (c.array(0)?, c.array(1)?);
    if d.sparsity.is_some() {
        // The sparse side holds a fraction of the contracting dimension.
        return Ok(Out::Free);
    }
    dot_dims(d, a, b)?;
    if !d.precision.is_empty() {
        packed_nibble(c, &d.precision, a, b)?;
    }
    let mut out = DimsOut::default();
    dot_result(d, a, b, &mut out);
    Ok(Out::Array(out.array(result_type(c, a, b))))
}

pub(super) fn scaled_dot<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dot(d) = c.attrs else { return c.bad_attrs() };
    let (a, b) = (c.array(0)?, c.array(1)?);
    dot_dims(d, a, b)?;
    for (k, x) in [(2, a), (3, b)] {
        let s = c.array(k)?;
        // A scale covers blocks of its operand.
        let fits = s.dims.is_empty()
            || (s.rank() == x.rank()
                && s.dims.iter().zip(&x.dims).all(|(&s, &x)| {
                    s == Shape::UNBOUNDED || x == Shape::UNBOUNDED || (s <= x && (s > 0 || x == 0))
                }));
        need!(fits, format!("a scale of at most the sizes of {x}"), "scale (operand {k}) {s}");
    }
    let mut out = DimsOut::default();
    dot_result(d, a, b, &mut out);
    Ok(Out::Array(out.array(result_type(c, a, b))))
}

pub(super) fn ragged_dot<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Dot(d) = c.attrs else { return c.bad_attrs() };
    let (a, b, groups) = (c.array(0)?, c.array(1)?, c.array(2)?);
    dot_dims(d, a, b)?;
    let ragged = match d.lhs_ragged[..] {
        [r] if in_rank(r, a.rank()) => r,
        _ => {
            return err!(
                format!("one lhs ragged dimension below {}", a.rank()),
                "lhs_ragged_dims={:?}",
                d.lhs_ragged
            );
        }
    };
    let (in_batch, in_contracting) =
        (d.lhs_batch.contains(&ragged), d.lhs_contracting.contains(&ragged));
    let before =
        |dims: &[i64]| -> Dims { dims.iter().copied().take_while(|&k| k != ragged).collect() };
    // Group sizes: one count per group, for every leading lhs index.
    let mut prefix: Dims = if in_batch { before(&d.lhs_batch) } else { d.lhs_batch.clone() };
    if in_contracting {
        prefix.extend(before(&d.lhs_contracting));
    } else if !in_batch {
        let free: Dims = (0..a.rank() as i64)
            .filter(|k| !d.lhs_batch.contains(k) && !d.lhs_contracting.contains(k))
            .collect();
        prefix.extend(before(&free));
    }
    let sizes: Dims = prefix.iter().map(|&k| a.dims[k as usize]).collect();
    let Some((&count, lead)) = groups.dims.split_last() else {
        return err!("group sizes of rank 1 or more", "group sizes {groups}");
    };
    need!(
        lead.is_empty() || lead == &sizes[..],
        format!("group sizes of dimensions [groups] or {sizes:?} and groups"),
        "group sizes {groups}"
    );
    for &g in &d.rhs_group {
        need!(
            in_rank(g, b.rank()) && !d.rhs_batch.contains(&g) && !d.rhs_contracting.contains(&g),
            "rhs group dimensions that are neither batch nor contracting",
            "rhs_group_dims={:?} of {b}",
            d.rhs_group
        );
    }
    if in_batch || in_contracting {
        need!(
            d.rhs_group.is_empty(),
            "no rhs group dimension when the ragged one is batch or contracting",
            "rhs_group_dims={:?}",
            d.rhs_group
        );
    } else {
        let ok = matches!(d.rhs_group[..], [g] if same_size(b.dims[g as usize], count));
        need!(
            ok,
            format!("one rhs group dimension of size {count}"),
            "rhs_group_dims={:?} of {b}",
            d.rhs_group
        );
    }
    let mut out = DimsOut::default();
    if in_contracting {
        out.copy(groups, groups.rank() - 1);
    }
    dot_result(d, a, b, &mut out);
    Ok(Out::Array(out.array(result_type(c, a, b))))
}

fn covers(first: i64, second: i64, spatial: &[i64], rank: usize, name: &str) -> Res<()> {
    let mut all: Dims = spatial.into();
    all.extend([first, second]);
    need!(
        all.len() == rank && distinct(&all, rank),
        format!("each of {rank} {name} dimensions once"),
        "{name} dimension numbers {first}, {second}, {spatial:?}"
    );
    Ok(())
}

pub(super) fn convolution<'a>(c: &Ctx<'a>) -> Res<Out<'a>> {
    let Attrs::Conv(v) = c.attrs else { return c.bad_attrs() };
    let ConvAttrs { feature_group_count: fg, batch_group_count: bg, .. } = **v;
    let (a, k) = (c.array(0)?, c.array(1)?);
    need!(
        fg >= 1 && bg >= 1 && (fg == 1 || bg == 1),
        "positive group counts, at most one above 1",
        "feature_group_count={fg}, batch_group_count={bg}"
    );
    let n = v.window.len();
    let rank = n + 2;
    need!(
        v.input_spatial.len() == n && v.kernel_spatial.len() == n && v.output_spatial.len() == n,
        format!("{n} spatial dimensions, as the window"),
        "{} input, {} kernel, {} output",
        v.input_spatial.len(),
        v.kernel_spatial.len(),
        v.output_spatial.len()
    );
    need!(
        a.rank() == rank && k.rank() == rank,
        format!("operands of rank {rank}"),
        "operands {a} and {k}"
    );
    covers(v.input_batch, v.input_feature, &v.input_spatial, rank, "input")?;
    covers(v.kernel_input_feature, v.kernel_output_feature, &v.kernel_spatial, rank, "kernel")?;
    covers(v.output_batch, v.output_feature, &v.output_spatial, rank, "output")?;
    let (batch, features) = (a.dims[v.input_batch as usize], a.dims[v.input_feature as usize]);
    let (k_in, k_out) =
        (k.dims[v.kernel_input_feature as usize], k.dims[v.kernel_output_feature as usize]);
    let free = |d: i64| d == Shape::UNBOUNDED;
    need!(
        free(features) || free(k_in) || (features % fg == 0 && features / fg == k_in),
        format!("{features} input features = {fg} groups of the kernel's"),
        "kernel {k} with {k_in} input features"
    );
    need!(
        k_out != Shape::UNBOUNDED && !k.is_dynamic(v.kernel_output_feature as usize),
        "a static output feature dimension of the kernel",
        "kernel {k}"
    );
    need!(
        k_out % fg == 0 && k_out % bg == 0,
        "kernel output features divisible by the group counts",
        "{k_out} output features, feature_group_count={fg}, batch_group_count={bg}"
    );
    need!(
        free(batch) || batch % bg == 0,
        format!("a batch divisible by {bg}"),
        "batch {batch} of {a}"
    );
    if !v.precision.is_empty() {
        packed_nibble(c, &v.precision, a, k)?;
    }
    let mut spatial = DimsOut::default();
    for (i, w) in v.window.iter().enumerate() {
        let (si, sk) = (v.input_spatial[i] as usize, v.kernel_spatial[i] as usize);
        need!(
            same_size(w.size, k.dims[sk]),
            format!("window size {}", k.dims[sk]),
            "window size {} in spatial dimension {i}, kernel {k}",
            w.size
        );
        reduction::push_window(&mut spatial, w, a.dims[si], a.is_dynamic(si) || k.is_dynamic(sk))?;
    }
    let spatial = spatial.array(DType::Pred);
    let mut out = DimsOut::default();
    for d in 0..rank as i64 {
        if d == v.output_batch {
            let size = if free(batch) { batch } else { batch / bg };
            out.push(size, a.is_dynamic(v.input_batch as usize));
        } else if d == v.output_feature {
            out.push(k_out, false);
        } else if let Some(i) = v.output_spatial.iter().position(|&s| s == d) {
            out.copy(&spatial, i);
        }
    }
    Ok(Out::Array(out.array(result_type(c, a, k))))
}
