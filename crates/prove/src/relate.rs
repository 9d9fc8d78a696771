//! Reads relations off the terms.

use crate::decide::Attempt;
use crate::outcome::*;
use crate::outputs::same_value;
use crate::problem;
use crate::tv::{Tv, TvOps};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_claim::Placement;
use scalify_ir::{InstrId, Module};
use scalify_terms::{ClassId, Coef, Lins, Subst};

/// Relation of a proved output.
pub(crate) fn output(
    a: &Attempt,
    base: &Module,
    k: usize,
    bi: InstrId,
    q: Option<&Placement>,
) -> Option<Relation> {
    let q = q?;
    let _ = k;
    let dims = placement_dims(a, q);
    let text = text(base, bi, &dims);
    Some(Relation { base: bi, dims, partial: Vec::new(), bijection: Vec::new(), text })
}

fn placement_dims(a: &Attempt, q: &Placement) -> Vec<DimRelation> {
    q.dims
        .iter()
        .map(|d| {
            if d.tiles <= 1 {
                return DimRelation::Replicated;
            }
            match a.dev.linear_tiles(&d.tile_of_device) {
                Some(c) => {
                    let mut ks: Vec<usize> = (0..c.len()).filter(|&i| c[i] != 0).collect();
                    ks.sort_by_key(|&i| std::cmp::Reverse(c[i]));
                    DimRelation::Sharded(a.dev.names(&ks))
                }
                None => DimRelation::Other(format!("{} tiles by a device table", d.tiles)),
            }
        })
        .collect()
}

fn text(base: &Module, bi: InstrId, dims: &[DimRelation]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (k, d) in dims.iter().enumerate() {
        match d {
            DimRelation::Replicated => {}
            DimRelation::Sharded(x) => parts.push(format!("dim {k} sharded over {}", x.join("·"))),
            DimRelation::Other(t) => parts.push(format!("dim {k}: {t}")),
        }
    }
    let how = if parts.is_empty() { "replicated".to_owned() } else { parts.join(", ") };
    format!("%{} {how}", base.name_of(bi))
}

/// The block of a baseline value that the devices would hold.
pub(crate) fn block(a: &mut Attempt, b: &Tv, q: &Placement) -> Option<Tv> {
    let mut t = b.clone();
    for (k, d) in q.dims.iter().enumerate() {
        if d.tiles <= 1 {
            continue;
        }
        let n = a.st.dim_size(&t.dims[k]);
        let len = n / i64::from(d.tiles);
        let start = a.dev.start(&mut a.st.lins, &d.tile_of_device, len, 0);
        a.st.cut(&mut t, k, start, len)?;
    }
    Some(t)
}

/// Relation of a distributed value to the baseline value of its class, with
/// the sharding found by trying the placements that the shapes allow.
pub(crate) fn relation(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    rec: u32,
) -> Option<Relation> {
    let brec = a.dist.get(rec as usize)?.base?;
    relation_to(a, base, dist, rec, brec)
}

/// [`relation`] to one of the baseline values of the class.
fn relation_to(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    rec: u32,
    brec: u32,
) -> Option<Relation> {
    let r = a.dist.get(rec as usize)?;
    let d = r.tv.clone()?;
    let instr = r.instr;
    let b = a.base.get(brec as usize)?.tv.clone()?;
    let bi = a.base[brec as usize].instr;
    let (gs, ls) = (base.array(bi)?.dims.clone(), dist.array(instr)?.dims.clone());
    if let Some(q) = placed(a, &b, &d, &gs, &ls) {
        let dims = placement_dims(a, &q);
        let text = text(base, bi, &dims);
        return Some(Relation { base: bi, dims, partial: Vec::new(), bijection: Vec::new(), text });
    }
    // Same elements under another index map: say which.
    let map = index_text(a, &b, &d);
    let steps = bijection(a, &b, &d, &gs, &ls);
    let dims = vec![DimRelation::Other(map.clone()); 1];
    let text = format!("elements of %{} re-indexed: {map}", base.name_of(bi));
    Some(Relation {
        base: bi,
        dims,
        partial: Vec::new(),
        bijection: steps.unwrap_or_default(),
        text,
    })
}

/// How a value lies on the devices as blocks of a baseline value, of the
/// placements that the shapes allow.
fn placed(a: &mut Attempt, b: &Tv, d: &Tv, gs: &[i64], ls: &[i64]) -> Option<Placement> {
    let mesh: Vec<(String, i64)> = a.dev.mesh.clone();
    problem::candidates(&mesh, a.dev.count, gs, ls, 24)
        .into_iter()
        .find(|q| block(a, b, q).is_some_and(|w| same_value(&mut a.st, &w, d)))
}

/// The first baseline value of the same term of which a distributed one is the
/// block, and the placement.
pub(crate) fn block_of(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    rec: u32,
) -> Option<(InstrId, Placement)> {
    let r = a.dist.get(rec as usize)?;
    let b = a.base.get(r.base? as usize)?;
    let (bi, di) = (b.instr, r.instr);
    let (b, d) = (b.tv.clone()?, r.tv.clone()?);
    let (gs, ls) = (base.array(bi)?.dims.clone(), dist.array(di)?.dims.clone());
    Some((bi, placed(a, &b, &d, &gs, &ls)?))
}

/// The first of some baseline values of which a distributed one is the block,
/// and the placement.
pub(crate) fn block_of_some(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    rec: u32,
    among: &[u32],
) -> Option<(InstrId, Placement)> {
    let d = a.dist.get(rec as usize)?;
    let (di, d) = (d.instr, d.tv.clone()?);
    let ls = dist.array(di)?.dims.clone();
    among.iter().take(MAX_COUNTERPARTS).find_map(|&k| {
        let b = a.base.get(k as usize)?;
        let (bi, b) = (b.instr, b.tv.clone()?);
        let gs = base.array(bi)?.dims.clone();
        Some((bi, placed(a, &b, &d, &gs, &ls)?))
    })
}

/// Time for working out the layouts of relations.
const LAYOUT_TIME: std::time::Duration = std::time::Duration::from_secs(5);
/// Baseline instructions listed per distributed one.
const MAX_COUNTERPARTS: usize = 8;
/// Of those, equal values of one visit.
const MAX_ALIKE: usize = 4;

/// How every lifted distributed instruction stands to the baseline.
pub(crate) fn all(a: &mut Attempt, base: &Module, dist: &Module) -> Vec<Related> {
    let start = std::time::Instant::now();
    let mut at = vec![usize::MAX; dist.instrs.len()];
    let mut out: Vec<Related> = Vec::new();
    // Baseline records of each term: movement of data keeps the term.
    let mut same: HashMap<(ClassId, Coef), Vec<u32>, FxBuildHasher> = HashMap::default();
    for (k, r) in a.base.iter().enumerate() {
        if let Some(t) = &r.tv {
            same.entry((t.val.r.class, t.val.coef)).or_default().push(k as u32);
        }
    }
    for rec in 0..a.dist.len() {
        let r = &a.dist[rec];
        let (instr, brec) = (r.instr, r.base);
        let standing = match brec {
            Some(_) => Standing::Related,
            None if r.known(&a.dist) => Standing::Free,
            None => Standing::Unrelated,
        };
        let Some(slot) = at.get_mut(instr.0 as usize) else { continue };
        if *slot == usize::MAX {
            *slot = out.len();
            out.push(Related { dist: instr, standing, to: Vec::new() });
        }
        let k = *slot;
        // One unrelated visit makes the instruction unrelated.
        if standing == Standing::Unrelated {
            out[k].standing = standing;
        }
        let Some(brec) = brec else { continue };
        // Of equal values, those of the same operation; else the first.
        let term = a.base.get(brec as usize).and_then(|b| b.tv.as_ref());
        let list = term.and_then(|t| same.get(&(t.val.r.class, t.val.coef)));
        let alike = |b: &u32| {
            let b = base.instr(a.base[*b as usize].instr);
            b.opcode == dist.instr(instr).opcode
        };
        let mut to: Vec<u32> = list
            .map(|l| l.iter().copied().filter(alike).take(MAX_ALIKE).collect())
            .unwrap_or_default();
        if to.is_empty() {
            to.push(brec);
        }
        for brec in to {
            let Some(bi) = a.base.get(brec as usize).map(|b| b.instr) else { continue };
            if out[k].to.len() >= MAX_COUNTERPARTS || out[k].to.iter().any(|t| t.base == bi) {
                continue;
            }
            let timely = start.elapsed() < LAYOUT_TIME;
            let found = if timely { relation_to(a, base, dist, rec as u32, brec) } else { None };
            out[k].to.push(found.unwrap_or_else(|| Relation {
                base: bi,
                dims: Vec::new(),
                partial: Vec::new(),
                bijection: Vec::new(),
                text: format!("%{}", base.name_of(bi)),
            }));
        }
    }
    out
}

/// The placement under which a distributed value is the blocks of a given
/// baseline value, if one that the shapes allow is.
pub(crate) fn plain(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    drec: u32,
    brec: u32,
) -> Option<Placement> {
    let (d, b) = (a.dist.get(drec as usize)?, a.base.get(brec as usize)?);
    let (di, bi) = (d.instr, b.instr);
    let (d, b) = (d.tv.clone()?, b.tv.clone()?);
    if d.val.r.class != b.val.r.class || d.val.coef != b.val.coef {
        return None;
    }
    let (gs, ls) = (base.array(bi)?.dims.clone(), dist.array(di)?.dims.clone());
    let mesh: Vec<(String, i64)> = a.dev.mesh.clone();
    problem::candidates(&mesh, a.dev.count, &gs, &ls, 24)
        .into_iter()
        .find(|q| block(a, &b, q).is_some_and(|w| same_value(&mut a.st, &w, &d)))
}

/// True if the shapes could be blocks of one another.
pub(crate) fn comparable(base: &Module, dist: &Module, di: InstrId, bi: InstrId) -> bool {
    match (base.array(bi), dist.array(di)) {
        (Some(g), Some(l)) => {
            g.dims.len() == l.dims.len()
                && g.dims.iter().zip(&l.dims).all(|(g, l)| *l > 0 && g % l == 0)
        }
        _ => false,
    }
}

/// How each axis of the common term is read on both sides.
fn index_text(a: &Attempt, b: &Tv, d: &Tv) -> String {
    let name = |t: &Tv, l: scalify_terms::LinId| -> String {
        let f = a.st.lins.get(l);
        let mut s = String::new();
        for &(c, x) in &f.terms {
            let n = match a.dev.digits.iter().position(|y| y.0 == x) {
                Some(k) => a.dev.names(&[k]).join(""),
                None => {
                    let pos = t.dims.iter().enumerate().find_map(|(i, ds)| {
                        ds.iter().position(|&y| y == x).map(|j| {
                            if ds.len() == 1 { format!("i{i}") } else { format!("i{i}.{j}") }
                        })
                    });
                    pos.unwrap_or_else(|| "?".to_owned())
                }
            };
            if !s.is_empty() {
                s.push('+');
            }
            if c == 1 {
                s.push_str(&n);
            } else {
                s.push_str(&format!("{c}*{n}"));
            }
        }
        if f.c0 != 0 || s.is_empty() {
            if !s.is_empty() {
                s.push('+');
            }
            s.push_str(&f.c0.to_string());
        }
        s
    };
    let side = |t: &Tv| -> String {
        let v: Vec<String> = t.val.r.m.iter().map(|&l| name(t, l)).collect();
        format!("[{}]", v.join(", "))
    };
    format!("baseline {} here {}", side(b), side(d))
}

/// The reshape-transpose-reshape sequence from the local value to the
/// baseline's order of axes, for values that hold the whole array in another
/// order. Checked by applying it.
fn bijection(a: &mut Attempt, b: &Tv, d: &Tv, gs: &[i64], ls: &[i64]) -> Option<Vec<LayoutStep>> {
    let (n, m): (i64, i64) = (gs.iter().product(), ls.iter().product());
    if n != m {
        return None;
    }
    // Each atom of d must be read where one atom of b is read.
    let mut b = b.clone();
    a.st.fuse_dims(&mut b)?;
    let mut d = d.clone();
    a.st.fuse_dims(&mut d)?;
    let mut perm: Vec<usize> = Vec::new();
    let da: Vec<_> = d.atoms().into_iter().collect();
    let ba: Vec<_> = b.atoms().into_iter().collect();
    if da.len() != ba.len() {
        return None;
    }
    for &x in &ba {
        let pos = b.val.r.m.iter().position(|&l| l == Lins::plain(x))?;
        let y = Lins::as_plain(*d.val.r.m.get(pos)?)?;
        perm.push(da.iter().position(|&z| z == y)?);
    }
    let mid: Vec<i64> = da.iter().map(|&x| a.st.lins.size(x)).collect();
    let moved: Vec<i64> = perm.iter().map(|&k| mid[k]).collect();
    let mut steps = Vec::new();
    if mid != ls {
        steps.push(LayoutStep::Reshape(mid.clone()));
    }
    if perm.iter().enumerate().any(|(i, &k)| i != k) {
        steps.push(LayoutStep::Transpose(perm.clone()));
    }
    if moved != gs {
        steps.push(LayoutStep::Reshape(gs.to_vec()));
    }
    // Check: the sequence applied to d is b.
    let mut t = d.clone();
    for s in &steps {
        match s {
            LayoutStep::Reshape(z) => t = a.st.reshape(&t, z)?,
            LayoutStep::Transpose(p) => {
                t.dims = p.iter().map(|&k| t.dims[k].clone()).collect();
            }
        }
    }
    same_value(&mut a.st, &b, &t).then_some(steps)
}

/// Steps behind a relation.
pub(crate) fn explain(
    a: &mut Attempt,
    base: &Module,
    dist: &Module,
    instr: InstrId,
) -> Vec<ExplainStep> {
    let mut out = Vec::new();
    let recs: Vec<u32> =
        (0..a.dist.len() as u32).filter(|&k| a.dist[k as usize].instr == instr).collect();
    for rec in recs.into_iter().take(4) {
        let r = a.dist[rec as usize].clone();
        for &o in &r.operands {
            if let Some(x) = a.dist.get(o as usize) {
                let at = x.instr;
                let rel = relation(a, base, dist, o);
                out.push(ExplainStep {
                    at: Some((Side::Dist, at)),
                    rule: match &rel {
                        Some(r) => format!("operand equals {}", r.text),
                        None => {
                            "operand equals no baseline value (a partial or new value)".to_owned()
                        }
                    },
                    detail: a.dist[o as usize]
                        .tv
                        .as_ref()
                        .map(|t| a.st.show(&t.val, 3))
                        .unwrap_or_default(),
                });
            }
        }
        if let Some(t) = &r.tv {
            out.push(ExplainStep {
                at: Some((Side::Dist, instr)),
                rule: format!("{} lifts to the term", dist.instr(instr).opcode),
                detail: a.st.show(&t.val, 4),
            });
        }
        for (k, e) in &a.events {
            if *k == rec {
                out.push(ExplainStep {
                    at: Some((Side::Dist, instr)),
                    rule: "another form of the term is the baseline's".to_owned(),
                    detail: e.clone(),
                });
            }
        }
        for u in &a.st.log {
            if u.at == crate::decide::DIST_TAG + rec {
                out.push(ExplainStep {
                    at: Some((Side::Dist, instr)),
                    rule: u.law.to_owned(),
                    detail: String::new(),
                });
            }
        }
        if let Some(f) = &r.failed {
            out.push(ExplainStep {
                at: Some((Side::Dist, instr)),
                rule: "not lifted".to_owned(),
                detail: f.to_string(),
            });
        }
        let rel = relation(a, base, dist, rec);
        out.push(match rel {
            Some(r) => ExplainStep {
                at: Some((Side::Base, r.base)),
                rule: format!("the same term as {}", r.text),
                detail: String::new(),
            },
            None if r.each.is_some() => ExplainStep {
                at: None,
                rule: "devices do different work: each was lifted by itself".to_owned(),
                detail: String::new(),
            },
            None => ExplainStep {
                at: None,
                rule: "no baseline value has this term".to_owned(),
                detail: String::new(),
            },
        });
    }
    let _ = Subst::new();
    out
}
