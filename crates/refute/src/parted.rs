//! Where the two programs part: the first place at which the same operation
//! is given another window, start, dimension or extent.

use crate::candidates::Context;
use crate::kinds::moves;
use crate::observe::Observed;
use scalify_ir::{Attrs, InstrId, Module, Opcode};

/// Instructions looked at from one place on.
const FAR: usize = 256;
/// Instructions of programs in which any place is near the fault.
const SMALL: usize = 64;

impl Context<'_> {
    /// The first place at which the programs part, in the order of the walk
    /// from the outputs.
    pub(crate) fn parted(&self, outputs: &[InstrId]) -> Option<Observed> {
        if let Some(x) = outputs.iter().find_map(|&x| self.indices_reduced(x)) {
            return Some(x);
        }
        let a = self.aligned.as_ref()?;
        let pairs = || a.pairs.iter().copied();
        // Where the operands are the same values, that is where they part.
        let known = |p: &(InstrId, InstrId)| {
            let (x, y) = (self.m.instr(p.0), self.base.instr(p.1));
            x.operands.first().zip(y.operands.first()).is_some_and(|(&o, &b)| a.same(o, b))
        };
        // Transposes may stand elsewhere in both.
        let moved = |p: &(InstrId, InstrId)| self.m.instr(p.0).opcode == Opcode::Transpose;
        pairs()
            .find_map(|(d, b)| self.along_split(d, b))
            .or_else(|| pairs().filter(known).find_map(|(d, b)| self.given_otherwise(d, b)))
            .or_else(|| {
                let small = self.m.instrs.len() <= SMALL;
                let mut others = pairs().filter(|p| small && !moved(p));
                others.find_map(|(d, b)| self.given_otherwise(d, b))
            })
            .or_else(|| pairs().find_map(|(d, b)| self.parts_joined(d, b)))
            .or_else(|| pairs().find_map(|(d, b)| self.mean_of_means(d, b)))
    }

    fn seen(
        &self,
        code: &'static str,
        at: InstrId,
        b: Option<InstrId>,
        reason: String,
    ) -> Option<Observed> {
        Some(Observed { code, at, reason, counterpart: b, vague: false })
    }

    /// Positions of extreme values, or sorted values, that devices combine one
    /// by one; or do not combine at all.
    fn indices_reduced(&self, output: InstrId) -> Option<Observed> {
        let m = self.m;
        let mut x = output;
        let mut combined = None;
        for _ in 0..8 {
            let i = m.instr(x);
            if i.opcode == Opcode::AllReduce && i.operands.len() == 1 {
                combined = Some(x);
            } else if !moves(i.opcode) {
                break;
            }
            x = i.operands[0];
        }
        let i = m.instr(x);
        let source = i.operands.first().map(|&o| m.instr(o))?;
        let position = i.opcode == Opcode::GetTupleElement
            && matches!(source.opcode, Opcode::Reduce | Opcode::Sort)
            && source.operands.len() > 1
            && m.dtype(x).is_some_and(|d| d.is_int());
        let sorted = i.opcode == Opcode::Sort
            || matches!(i.opcode, Opcode::Slice | Opcode::GetTupleElement)
                && source.opcode == Opcode::Sort;
        let what = if position {
            "positions, which say nothing without the values they belong to,"
        } else if sorted {
            "sorted values, of which each device has its own,"
        } else {
            return None;
        };
        match combined {
            Some(r) => {
                let f = m.instr(r).calls.first()?;
                let op = m.instr(m.comp(*f).root).opcode;
                let reason = format!("{what} are combined one by one, by {op}");
                self.seen("wrong-reducer", r, None, reason)
            }
            None if position && self.varies[x.0 as usize] != 0 => {
                let reason = format!("{what} are those of each device's own block");
                self.seen("missing-all-reduce", x, None, reason)
            }
            None => None,
        }
    }

    /// An operation along a dimension of which each device has a part, with
    /// nothing behind it that would join the parts.
    fn along_split(&self, d: InstrId, b: InstrId) -> Option<Observed> {
        let (m, base) = (self.m, self.base);
        let (x, y) = (m.instr(d), base.instr(b));
        if x.opcode != y.opcode || self.varies[d.0 as usize] == 0 {
            return None;
        }
        let (s, t) = (m.array(*x.operands.first()?)?, base.array(*y.operands.first()?)?);
        let along: Vec<usize> = match (&x.attrs, x.opcode) {
            (Attrs::Sort { dim, .. } | Attrs::Dim(dim), Opcode::Sort) => vec![*dim as usize],
            (Attrs::Window(w), Opcode::ReduceWindow) => {
                (0..w.len()).filter(|&k| w[k].size > 1).collect()
            }
            (Attrs::Dims(v), Opcode::Reverse) => v.iter().map(|&k| k as usize).collect(),
            (Attrs::Fft { length, .. }, _) => {
                (s.dims.len().saturating_sub(length.len())..s.dims.len()).collect()
            }
            _ => return None,
        };
        for k in along {
            let (p, q) = (*s.dims.get(k)?, *t.dims.get(k)?);
            if p < q {
                if x.opcode == Opcode::Sort && self.gathered_unsorted(d) {
                    let reason = "sorted parts are gathered, and not sorted again".to_owned();
                    return self.seen("missing-operation", d, Some(b), reason);
                }
                let reason = format!(
                    "{} runs along {p} elements of dimension {k}, of which the baseline has {q}",
                    x.opcode
                );
                return self.seen("axis-split", d, Some(b), reason);
            }
        }
        None
    }

    /// Are the sorted parts of devices gathered, and used as they are?
    fn gathered_unsorted(&self, d: InstrId) -> bool {
        let m = self.m;
        let list = &m.comp(self.owner[d.0 as usize]).instrs;
        let (mut from, mut gathered) = (vec![d], false);
        for &u in list {
            let i = m.instr(u);
            if u == d || !i.operands.iter().any(|o| from.contains(o)) || from.len() > FAR {
                continue;
            }
            gathered |= i.opcode == Opcode::AllGather;
            if gathered && i.opcode == Opcode::Sort {
                return false;
            }
            from.push(u);
        }
        gathered
    }

    /// The same operation, given other windows, starts or dimensions.
    fn given_otherwise(&self, d: InstrId, b: InstrId) -> Option<Observed> {
        let (m, base) = (self.m, self.base);
        let (x, y) = (m.instr(d), base.instr(b));
        if x.opcode != y.opcode || x.operands.len() != y.operands.len() {
            return None;
        }
        let rank = |m: &Module, o: &InstrId| m.array(*o).map(|a| a.dims.len());
        let ranks = |m: &Module, i: &scalify_ir::Instruction| -> Vec<_> {
            i.operands.iter().map(|o| rank(m, o)).collect()
        };
        if ranks(m, x) != ranks(base, y) {
            return None;
        }
        let than = "than in the baseline";
        match (&x.attrs, &y.attrs) {
            (Attrs::Slice(s), Attrs::Slice(t)) => {
                let (from, to) = (m.array(x.operands[0])?, base.array(y.operands[0])?);
                for k in 0..from.dims.len().min(to.dims.len()) {
                    let whole = |n: i64, s: &scalify_ir::attrs::SliceAttrs| {
                        s.start[k] == 0 && s.limit[k] == n && s.stride[k] == 1
                    };
                    if whole(from.dims[k], s) && whole(to.dims[k], t) || s.start[k] == t.start[k] {
                        continue;
                    }
                    let reason = format!(
                        "dimension {k} starts at {} in place of the baseline's {}",
                        s.start[k], t.start[k]
                    );
                    let stored = self
                        .users(d)
                        .iter()
                        .any(|&u| m.instr(u).opcode == Opcode::DynamicUpdateSlice);
                    let code = if stored { "stale-slice" } else { "wrong-offset" };
                    return self.seen(code, d, Some(b), reason);
                }
                None
            }
            (Attrs::Window(v), Attrs::Window(w)) if v.len() == w.len() => {
                self.windows(d, b, v, w, than)
            }
            (Attrs::Conv(v), Attrs::Conv(w)) if v.window.len() == w.window.len() => {
                if v.window == w.window && v.input_spatial != w.input_spatial {
                    let reason = format!("the window runs along other dimensions {than}");
                    return self.seen("wrong-dimension", d, Some(b), reason);
                }
                self.windows(d, b, &v.window, &w.window, than)
            }
            (Attrs::Compare { direction: v, .. }, Attrs::Compare { direction: w, .. })
                if v != w =>
            {
                let reason = format!("compares by {v:?}, the baseline by {w:?}").to_lowercase();
                self.seen("wrong-mask", d, Some(b), reason)
            }
            (Attrs::Dims(v), Attrs::Dims(w)) if x.opcode == Opcode::Reduce => {
                let (from, to) = (m.array(x.operands[0])?, base.array(y.operands[0])?);
                if v != w {
                    let reason = format!("sums along {v:?}, the baseline along {w:?}");
                    return self.seen("wrong-dimension", d, Some(b), reason);
                }
                let more = v.iter().find(|&&k| {
                    let of = |a: &scalify_ir::ArrayShape| a.dims.get(k as usize).copied();
                    of(from) > of(to)
                })?;
                let reason = format!(
                    "reduces {} elements along dimension {more}, the baseline {}",
                    from.dims[*more as usize], to.dims[*more as usize]
                );
                self.seen("wrong-dimension", d, Some(b), reason)
            }
            (Attrs::Dims(v), Attrs::Dims(w)) if x.opcode == Opcode::Transpose && v != w => {
                let reason = format!("permutes by {v:?}, the baseline by {w:?}");
                self.seen("wrong-layout", d, Some(b), reason)
            }
            (Attrs::Dims(v), Attrs::Dims(w)) if x.opcode == Opcode::Concatenate && v != w => {
                let reason = format!("joins along {v:?}, the baseline along {w:?}");
                self.seen("wrong-dimension", d, Some(b), reason)
            }
            (Attrs::Iota(v), Attrs::Iota(w)) if v != w => {
                let reason = format!("counts along dimension {v}, the baseline along {w}");
                self.seen("wrong-dimension", d, Some(b), reason)
            }
            _ => None,
        }
    }

    fn windows(
        &self,
        d: InstrId,
        b: InstrId,
        v: &[scalify_ir::attrs::WindowDim],
        w: &[scalify_ir::attrs::WindowDim],
        than: &str,
    ) -> Option<Observed> {
        let k = (0..v.len()).find(|&k| v[k] != w[k])?;
        let moved =
            scalify_ir::attrs::WindowDim { pad_low: w[k].pad_low, pad_high: w[k].pad_high, ..v[k] };
        if moved == w[k] {
            let reason = format!(
                "the window starts {} before its dimension {k}, in the baseline {}",
                v[k].pad_low, w[k].pad_low
            );
            return self.seen("wrong-offset", d, Some(b), reason);
        }
        let reason = format!("the window has another extent along its dimension {k} {than}");
        self.seen("wrong-dimension", d, Some(b), reason)
    }

    /// The baseline works on parts and joins them; here the same operation
    /// runs on the whole.
    fn parts_joined(&self, d: InstrId, b: InstrId) -> Option<Observed> {
        let y = self.base.instr(b);
        let x = self.m.instr(d);
        if y.opcode != Opcode::Concatenate || y.operands.len() < 2 {
            return None;
        }
        let ops: Vec<Opcode> = y.operands.iter().map(|&o| self.base.instr(o).opcode).collect();
        let alike = ops.windows(2).all(|w| w[0] == w[1]) && ops[0] == x.opcode;
        let computed = !moves(x.opcode) && !matches!(x.opcode, Opcode::Slice | Opcode::Parameter);
        (alike && computed).then(|| {
            let reason = format!(
                "runs on the whole what the baseline runs on each of {} parts",
                y.operands.len()
            );
            Observed { code: "axis-split", at: d, reason, counterpart: Some(b), vague: false }
        })
    }

    /// Quotients by what was counted in a part are added up; the baseline
    /// divides once.
    fn mean_of_means(&self, d: InstrId, b: InstrId) -> Option<Observed> {
        let quotient = |m: &Module, x: InstrId| {
            let i = m.instr(x);
            let constant = |o: InstrId| {
                let mut o = o;
                for _ in 0..4 {
                    if m.instr(o).opcode != Opcode::Broadcast {
                        break;
                    }
                    o = m.instr(o).operands[0];
                }
                m.instr(o).opcode == Opcode::Constant
            };
            i.opcode == Opcode::Divide && !constant(i.operands[1])
        };
        if !quotient(self.base, b) || quotient(self.m, d) {
            return None;
        }
        // Through sums and divisions by numbers.
        let mut list = vec![d];
        let mut k = 0;
        let mut added = false;
        while k < list.len() && list.len() < FAR {
            let x = list[k];
            k += 1;
            let i = self.m.instr(x);
            if quotient(self.m, x) {
                if added {
                    let reason =
                        "quotients by the count of a part are added up; the baseline divides once";
                    return self.seen("wrong-scale", x, Some(b), reason.to_owned());
                }
                continue;
            }
            match i.opcode {
                Opcode::Add | Opcode::AllReduce => {
                    added = true;
                    list.extend(i.operands.iter().copied());
                }
                Opcode::Divide | Opcode::Multiply => list.extend(i.operands.iter().copied()),
                op if moves(op) => list.extend(i.operands.iter().copied()),
                _ => {}
            }
        }
        None
    }

    /// By the operations that only one of the programs has.
    pub(crate) fn last_resort(&self) -> Option<Observed> {
        if self.m.instrs.len() > SMALL {
            return None;
        }
        let a = self.aligned.as_ref()?;
        let other = |p: &&(InstrId, InstrId)| {
            let (x, y) = (self.m.instr(p.0).opcode, self.base.instr(p.1).opcode);
            x != y && !x.is_collective()
        };
        // Next to values that both have; in small programs the first one.
        let next = |p: &&(InstrId, InstrId)| {
            let y = self.base.instr(p.1);
            other(p) && !y.operands.is_empty() && y.operands.iter().all(|&o| a.has(self.base, o))
        };
        let found = a.pairs.iter().find(next);
        let &(d, b) = found.or_else(|| a.pairs.iter().find(other))?;
        let scalar = self.m.array(d).is_some_and(|a| a.dims.is_empty() && a.dtype.is_int());
        let code = if scalar { "wrong-offset" } else { self.apart(d, b) };
        let reason = format!(
            "here the baseline has its {} {}",
            self.base.instr(b).opcode,
            self.base.name_of(b)
        );
        self.seen(code, d, Some(b), reason).map(|x| Observed { vague: true, ..x })
    }
}
