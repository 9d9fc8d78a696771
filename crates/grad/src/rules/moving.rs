//! Operations that move elements.

use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Work};
use scalify_ir::{Attrs, InstrId, Opcode};

impl Work<'_> {
    pub(super) fn moving(
        &mut self,
        out: InstrId,
        op: Opcode,
        xs: &[InstrId],
        ct: InstrId,
        cts: &mut Cotangents,
    ) -> Res<()> {
        let bad = || internal(format!("attributes of {op}"), "those of the opcode");
        let x = *xs.first().ok_or_else(bad)?;
        let a = self.e.array(x)?;
        let d = a.dims.to_vec();
        let attrs = self.e.m.instr(out).attrs.clone();
        match (op, &attrs) {
            (Opcode::Reshape | Opcode::Bitcast, _) => {
                let b = self.e.array(out)?;
                if a.dtype != b.dtype || a.elements() != b.elements() {
                    return Err(internal("a bitcast that changes elements", "a reshape"));
                }
                let g = self.e.reshape(ct, &d)?;
                self.accumulate(cts, x, g)
            }
            (Opcode::Transpose, Attrs::Dims(perm)) => {
                let mut back = vec![0i64; perm.len()];
                for (k, &p) in perm.iter().enumerate() {
                    *back.get_mut(p as usize).ok_or_else(bad)? = k as i64;
                }
                let g = self.e.transpose(ct, &back)?;
                self.accumulate(cts, x, g)
            }
            (Opcode::Broadcast, Attrs::Dims(map)) => {
                let n = self.e.dims(out).len() as i64;
                let gone: Vec<i64> = (0..n).filter(|k| !map.contains(k)).collect();
                let g = self.e.sum(ct, &gone)?;
                // Dimensions that are left, in order; `map` may permute them.
                let left: Vec<i64> = (0..n).filter(|k| map.contains(k)).collect();
                let perm: Option<Vec<i64>> = map
                    .iter()
                    .map(|m| left.iter().position(|l| l == m).map(|p| p as i64))
                    .collect();
                let g = self.e.transpose(g, &perm.ok_or_else(bad)?)?;
                self.accumulate(cts, x, g)
            }
            (Opcode::Slice, Attrs::Slice(s)) => {
                let n = self.e.dims(out);
                let mut p = Vec::new();
                for k in 0..d.len() {
                    let (lo, st) = (s.start[k], s.stride[k]);
                    let used = if n[k] == 0 { 0 } else { (n[k] - 1) * st + 1 };
                    p.push((lo, d[k] - lo - used, st - 1));
                }
                let g = self.e.pad(ct, &p)?;
                self.accumulate(cts, x, g)
            }
            (Opcode::Pad, Attrs::Pad(p)) => {
                let back: Vec<_> = p.iter().map(|p| (-p.low, -p.high, 0)).collect();
                let g = self.e.pad(ct, &back)?;
                let s: Vec<_> =
                    p.iter().zip(self.e.dims(g)).map(|(p, n)| (0, n, p.interior + 1)).collect();
                let g = self.e.slice(g, &s)?;
                self.accumulate(cts, x, g)?;
                let v = *xs.get(1).ok_or_else(bad)?;
                if self.is_active(v) {
                    let all: Vec<i64> = (0..d.len() as i64).collect();
                    let (whole, own) = (self.e.sum(ct, &all)?, self.e.sum(g, &all)?);
                    let g = self.e.sub(whole, own)?;
                    self.accumulate(cts, v, g)?;
                }
                Ok(())
            }
            (Opcode::Concatenate, Attrs::Dims(dim)) => {
                let dim = *dim.first().ok_or_else(bad)? as usize;
                let mut at = 0;
                for &x in xs {
                    let d = self.e.dims(x);
                    let n = *d.get(dim).ok_or_else(bad)?;
                    if self.is_active(x) {
                        let r: Vec<_> = d
                            .iter()
                            .enumerate()
                            .map(|(k, &s)| if k == dim { (at, at + n, 1) } else { (0, s, 1) })
                            .collect();
                        let g = self.e.slice(ct, &r)?;
                        self.accumulate(cts, x, g)?;
                    }
                    at += n;
                }
                Ok(())
            }
            (Opcode::Reverse, Attrs::Dims(_)) => {
                let g = self.e.op(Opcode::Reverse, attrs.clone(), &[ct], &[], None)?;
                self.accumulate(cts, x, g)
            }
            _ => Err(bad()),
        }
    }
}
