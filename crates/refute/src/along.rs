//! Edits of what an operation runs along: the dimensions that a broadcast, a
//! reduction, a dot, an iota or a sort names.

use crate::candidates::{Context, Edit};
use scalify_ir::{Attrs, InstrId, Opcode};

/// Most ways that are tried at one instruction.
const MOST: usize = 6;

impl Context<'_> {
    /// Other dimensions for an instruction, with which its sizes stay.
    pub(crate) fn along(&self, at: InstrId, push: &mut dyn FnMut(f64, Edit)) {
        let m = self.m;
        let i = m.instr(at);
        let Some(a) = m.array(at) else { return };
        let source = i.operands.first().and_then(|&o| m.array(o));
        let mut out: Vec<Attrs> = Vec::new();
        match (&i.attrs, i.opcode) {
            (Attrs::Dims(d), Opcode::Broadcast) => {
                // One dimension moved, or two exchanged.
                for k in 0..d.len() {
                    for to in 0..a.dims.len() as i64 {
                        let mut v = d.clone();
                        match d.iter().position(|&x| x == to) {
                            Some(j) => v.swap(k, j),
                            None => v[k] = to,
                        }
                        let fits = |(j, &x): (usize, &i64)| {
                            source.is_some_and(|s| s.dims.get(j) == a.dims.get(x as usize))
                        };
                        if v != *d && v.iter().enumerate().all(fits) {
                            out.push(Attrs::Dims(v));
                        }
                    }
                }
            }
            (Attrs::Dims(d), Opcode::Reduce) => {
                let Some(s) = source else { return };
                for k in 0..d.len() {
                    for to in 0..s.dims.len() as i64 {
                        let size = |x: i64| s.dims.get(x as usize);
                        if !d.contains(&to) && size(to) == size(d[k]) {
                            let mut v = d.clone();
                            v[k] = to;
                            v.sort_unstable();
                            out.push(Attrs::Dims(v));
                        }
                    }
                }
            }
            (Attrs::Iota(d), Opcode::Iota) => {
                let others = (0..a.dims.len() as i64).filter(|k| k != d);
                out.extend(others.map(Attrs::Iota));
            }
            (Attrs::Sort { dim, stable }, Opcode::Sort) => {
                let others = (0..a.dims.len() as i64).filter(|k| k != dim);
                out.extend(others.map(|dim| Attrs::Sort { dim, stable: *stable }));
            }
            (Attrs::Collective(c), Opcode::AllToAll) => {
                let Some(old) = c.dimension else { return };
                for k in (0..a.dims.len() as i64).filter(|&k| k != old) {
                    let mut x = (**c).clone();
                    x.dimension = Some(k);
                    out.push(Attrs::Collective(Box::new(x)));
                }
            }
            (Attrs::Dot(d), Opcode::Dot) => {
                for side in 0..2 {
                    let Some(s) = i.operands.get(side).and_then(|&o| m.array(o)) else { return };
                    let mut free = |mine: &dyn Fn(&mut scalify_ir::attrs::DotAttrs) -> &mut i64,
                                    taken: &[i64]| {
                        let mut now = (**d).clone();
                        let old = *mine(&mut now);
                        for to in 0..s.dims.len() as i64 {
                            if !taken.contains(&to)
                                && s.dims.get(to as usize) == s.dims.get(old as usize)
                            {
                                let mut x = (**d).clone();
                                *mine(&mut x) = to;
                                out.push(Attrs::Dot(Box::new(x)));
                            }
                        }
                    };
                    let (c, b) = if side == 0 {
                        (&d.lhs_contracting, &d.lhs_batch)
                    } else {
                        (&d.rhs_contracting, &d.rhs_batch)
                    };
                    let taken: Vec<i64> = c.iter().chain(b).copied().collect();
                    for k in 0..c.len() {
                        free(
                            &|x| {
                                let v = if side == 0 {
                                    &mut x.lhs_contracting
                                } else {
                                    &mut x.rhs_contracting
                                };
                                &mut v[k]
                            },
                            &taken,
                        );
                    }
                }
                // Pairs of batch or contracted dimensions in another order.
                if d.rhs_batch.len() > 1 {
                    let mut x = (**d).clone();
                    x.rhs_batch.swap(0, 1);
                    out.push(Attrs::Dot(Box::new(x)));
                }
                if d.rhs_contracting.len() > 1 {
                    let mut x = (**d).clone();
                    x.rhs_contracting.swap(0, 1);
                    out.push(Attrs::Dot(Box::new(x)));
                }
            }
            _ => {}
        }
        for attrs in out.into_iter().take(MOST) {
            push(0.75, Edit::Along { attrs: Box::new(attrs) });
        }
    }

    /// Has the baseline more transposes than the distributed program?
    pub(crate) fn transposes_lost(&self) -> bool {
        let count = |m: &scalify_ir::Module| {
            let all = m.comps.iter().flat_map(|c| &c.instrs);
            all.filter(|&&x| m.instr(x).opcode == Opcode::Transpose).count()
        };
        count(self.base) > count(self.m)
    }

    /// The dimensions in words.
    pub(crate) fn along_text(&self, attrs: &Attrs) -> String {
        match attrs {
            Attrs::Collective(c) => format!("dimension {}", c.dimension.unwrap_or_default()),
            Attrs::Dims(d) => format!("dimensions {d:?}"),
            Attrs::Iota(d) | Attrs::Sort { dim: d, .. } => format!("dimension {d}"),
            Attrs::Dot(d) if !d.lhs_batch.is_empty() => format!(
                "dimensions {:?} against {:?} contracted, {:?} against {:?} in pairs",
                d.lhs_contracting, d.rhs_contracting, d.lhs_batch, d.rhs_batch
            ),
            Attrs::Dot(d) => {
                format!(
                    "dimensions {:?} against {:?} contracted",
                    d.lhs_contracting, d.rhs_contracting
                )
            }
            _ => "other dimensions".to_owned(),
        }
    }
}
