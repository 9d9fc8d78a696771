//! Candidates in words: the kind of fault, the place to show, the sentence.

use crate::candidates::{Candidate, Context, Edit};
use crate::edit::number;
use crate::graft::of_opcodes;
use scalify_ir::{Attrs, CompId, DType, InstrId, Module, Opcode, ReplicaGroups};

impl Context<'_> {
    /// The instruction to show for an edit: of a constant, the nearest use.
    pub fn place(&self, x: &Candidate, distances: &[f64]) -> InstrId {
        let mut at = x.at;
        if let Edit::Redo { like, .. } = x.edit {
            at = like;
        }
        if let Edit::Operand { operand, with } = x.edit {
            // A tuple has no source line: what it holds has.
            let i = self.m.instr(at);
            if i.opcode == Opcode::Tuple && self.m.frames(at).is_empty() {
                let old = i.operands.get(operand).copied();
                return old.filter(|&o| !self.m.frames(o).is_empty()).unwrap_or(with);
            }
        }
        for _ in 0..4 {
            let op = self.m.instr(at).opcode;
            if !matches!(
                op,
                Opcode::Constant | Opcode::Broadcast | Opcode::Convert | Opcode::Reshape
            ) || self.m.instr(x.at).opcode != Opcode::Constant
            {
                break;
            }
            let users = self.users(at).iter().copied();
            let best =
                users.min_by(|a, b| distances[a.0 as usize].total_cmp(&distances[b.0 as usize]));
            match best {
                Some(u) => at = u,
                None => break,
            }
        }
        at
    }

    /// Where the changed value is used next: the nearest user, through
    /// instructions of the same source line or of none, that has another
    /// line. What is missing is missing between the two. With `index`, what
    /// is computed from the device id and constants alone is used where it
    /// meets data.
    pub fn next_use(&self, at: InstrId, index: bool) -> Option<InstrId> {
        let line = |i: InstrId| {
            let f = self.m.frames(i);
            f.first().filter(|f| f.line > 0).map(|f| (f.file.to_owned(), f.line))
        };
        let here = line(at);
        let list = &self.m.comp(self.owner[at.0 as usize]).instrs;
        let from = self.position(at);
        let mut reach: rustc_hash::FxHashMap<InstrId, u32> = [(at, 0)].into_iter().collect();
        let mut best: Option<(u32, InstrId)> = None;
        let fixed = index && self.is_fixed(at, 8);
        for &u in list.iter().skip(from + 1).take(2000) {
            let i = self.m.instr(u);
            let Some(d) = i.operands.iter().filter_map(|o| reach.get(o)).min().copied() else {
                continue;
            };
            match line(u) {
                _ if fixed && d < 12 && self.is_fixed(u, 8) => {
                    reach.insert(u, d + 1);
                }
                Some(l) if Some(&l) != here.as_ref() => {
                    if best.is_none_or(|b| d < b.0) {
                        best = Some((d, u));
                    }
                }
                _ if d < 6 => {
                    reach.insert(u, d + 1);
                }
                _ => {}
            }
        }
        best.map(|b| b.1)
    }

    /// The nearest all-reduce of the same kind over the same devices as the
    /// one that an edit inserts.
    pub fn alike(&self, x: &Candidate) -> Option<InstrId> {
        let Edit::AllReduce { mask, op, drop: None, .. } = x.edit else { return None };
        let groups = self.template(mask).groups;
        let list = &self.m.comp(self.owner[x.at.0 as usize]).instrs;
        let here = self.position(x.at);
        let same = |i: InstrId| {
            let i = self.m.instr(i);
            let reducer = i.calls.first().map(|&c| self.m.instr(self.m.comp(c).root).opcode);
            i.opcode == Opcode::AllReduce
                && reducer == Some(op)
                && matches!(&i.attrs, Attrs::Collective(a) if a.groups == groups)
        };
        let all = list.iter().enumerate().filter(|(_, i)| same(**i));
        all.min_by_key(|(k, _)| k.abs_diff(here)).map(|(_, i)| *i)
    }

    /// An integer or truth value that depends on the device id and constants
    /// alone.
    fn is_fixed(&self, x: InstrId, depth: u32) -> bool {
        let i = self.m.instr(x);
        let scalar = self.m.array(x).is_some_and(|a| a.dims.is_empty() && !a.dtype.is_float());
        scalar
            && match i.opcode {
                Opcode::PartitionId | Opcode::ReplicaId | Opcode::Constant => true,
                Opcode::Parameter => false,
                _ => {
                    depth > 0
                        && !i.operands.is_empty()
                        && i.operands.iter().all(|&o| self.is_fixed(o, depth - 1))
                }
            }
    }

    /// Is something put between a value and its uses?
    pub fn inserts(x: &Candidate) -> bool {
        matches!(
            x.edit,
            Edit::AllReduce { drop: None, .. }
                | Edit::Scale { .. }
                | Edit::Offset { .. }
                | Edit::Shift { .. }
                | Edit::Relayout { .. }
                | Edit::Add { .. }
                | Edit::AddSpread { .. }
                | Edit::Permute { .. }
                | Edit::Times { .. }
                | Edit::Coordinate { .. }
        )
    }

    /// Kind of the fault that an edit mends.
    pub fn code(&self, x: &Candidate) -> &'static str {
        self.split_code(x, self.edit_code(x))
    }

    fn edit_code(&self, x: &Candidate) -> &'static str {
        let opcode = self.m.instr(x.at).opcode;
        match &x.edit {
            Edit::AllReduce { drop: Some(d), .. } if self.added_between(x.at, *d) => {
                "duplicated-operand"
            }
            Edit::AllReduce { drop: Some(d), .. }
                if self.m.instr(*d).opcode != Opcode::AllReduce =>
            {
                "wrong-kind-collective"
            }
            Edit::AllReduce { drop: Some(d), .. } if self.m.instr(*d).operands[..] == [x.at] => {
                "wrong-reducer"
            }
            Edit::AllReduce { drop: Some(d), .. } => self.moved_code(x.at, *d),
            Edit::AllReduce { mask, mean, .. } => self.sum_code(x, *mask, *mean),
            // Left empty, groups mean everyone.
            Edit::Drop
                if matches!(&self.m.instr(x.at).attrs, Attrs::Collective(a)
                    if matches!(&a.groups, ReplicaGroups::List(g) if g.is_empty()))
                    && opcode != Opcode::CollectivePermute =>
            {
                "wrong-group"
            }
            Edit::Drop => "duplicate-collective",
            Edit::Groups { .. } => "wrong-group",
            Edit::Reducer { .. } => "wrong-reducer",
            // A transpose of the baseline is gone.
            Edit::Along { .. } if opcode == Opcode::Dot && self.transposes_lost() => "wrong-layout",
            Edit::Redo { .. } | Edit::Along { .. } => "wrong-dimension",
            Edit::Gather { source, mask, .. } if self.gathered_otherwise(x.at, *source, *mask) => {
                "wrong-group"
            }
            Edit::Gather { source, .. } if self.gathered_moved(x.at, *source) => "wrong-layout",
            // Blocks put in place by device and summed.
            Edit::Gather { .. } if self.sums_blocks(x.at) => "wrong-offset",
            Edit::Gather { .. } => "missing-all-gather",
            Edit::Use { .. } => of_opcodes(&[opcode]).unwrap_or("extra-operation"),
            Edit::Graft { from } => self.apart(x.at, *from),
            Edit::Exchange { with } if self.branches(x.at, *with) => "wrong-mask",
            // Parts joined in another order.
            Edit::Exchange { with } if self.joined(x.at, *with) => "wrong-layout",
            Edit::Exchange { .. } => "wrong-operand",
            Edit::Reorder { .. } if self.m.dtype(x.at).is_some_and(|d| d.is_int()) => {
                "wrong-offset"
            }
            Edit::Reorder { .. } => "wrong-operand",
            Edit::TransposeAfter { .. } => "wrong-layout",
            Edit::Pairs { .. } => "wrong-permute",
            Edit::Scale { factor } if self.copies_summed(x.at, *factor) => "duplicated-operand",
            Edit::Scale { .. } => "wrong-scale",
            Edit::ScaleOperand { .. } => "duplicated-operand",
            Edit::Constant { .. } => self.constant_code(x.at),
            // What a broadcast or a sum runs along.
            Edit::Relayout { split, .. }
                if matches!(opcode, Opcode::Broadcast | Opcode::Reduce | Opcode::Iota)
                    && self.m.array(x.at).is_some_and(|a| a.dims[..] == split[..]) =>
            {
                "wrong-dimension"
            }
            Edit::TransposeBefore { .. } | Edit::Permutation { .. } | Edit::Relayout { .. } => {
                "wrong-layout"
            }
            Edit::Operand { operand, with } => {
                let old = self.m.instr(x.at).operands.get(*operand);
                let a = old.and_then(|&o| self.m.array(o));
                match opcode {
                    _ if old.is_some_and(|&o| self.same_elements(o, *with)) => "wrong-layout",
                    // What was there before something was written into it.
                    _ if old.is_some_and(|&o| self.written_into(o, *with)) => "stale-slice",
                    _ if a.is_some_and(|a| a.dtype == DType::Pred) => "wrong-mask",
                    Opcode::And | Opcode::Or => "wrong-mask",
                    Opcode::Gather | Opcode::Scatter if *operand == 1 => "wrong-offset",
                    // A number too much was added.
                    _ if old.is_some_and(|&o| {
                        let i = self.m.instr(o);
                        let sum = matches!(i.opcode, Opcode::Add | Opcode::Subtract);
                        sum && i.operands.contains(with)
                    }) && a.is_some_and(|a| a.dtype.is_int()) =>
                    {
                        "wrong-offset"
                    }
                    _ if a.is_some_and(|a| a.dtype.is_int() && a.dims.is_empty()) => "wrong-offset",
                    Opcode::Concatenate if self.m.instr(x.at).operands.contains(with) => {
                        "wrong-layout"
                    }
                    Opcode::DynamicUpdateSlice => "stale-slice",
                    _ => "wrong-operand",
                }
            }
            Edit::OwnBlock { .. } => "stale-slice",
            Edit::Start { .. } | Edit::Padding { .. } => "wrong-offset",
            Edit::MaskPadding { .. } | Edit::InRange { .. } | Edit::Devices { .. } => "wrong-mask",
            Edit::Swap => "wrong-operand",
            Edit::Op { .. } if self.m.dtype(x.at).is_some_and(|d| d.is_int()) => "wrong-offset",
            Edit::Op { op, .. } if self.is_turned(x.at, *op) => "wrong-scale",
            Edit::Op { .. } => "wrong-operation",
            Edit::Direction { .. } if self.is_condition(self.owner[x.at.0 as usize]) => {
                "wrong-trip-count"
            }
            Edit::Direction { .. } => "wrong-mask",
            Edit::Coordinate { .. } => "wrong-mesh-axis",
            Edit::Offset { .. } | Edit::Shift { .. } => "wrong-offset",
            Edit::Add { .. } | Edit::AddSpread { .. } => "missing-operand",
            Edit::Permute { .. } | Edit::Rotate { .. } => "missing-collective-permute",
            Edit::Times { with, .. } if self.unused.contains(with) => {
                let scalar = self.m.array(*with).is_some_and(|a| a.dims.is_empty());
                if scalar { "wrong-scale" } else { "missing-operand" }
            }
            Edit::Times { .. } | Edit::TimesOperand { .. } => "missing-factor",
        }
    }

    /// Is a sum with another value, a bias or a residual, among what is
    /// computed from `x` on the way to the all-reduce `d`?
    fn added_between(&self, x: InstrId, d: InstrId) -> bool {
        let known = |i: InstrId| self.aligned.as_ref().is_some_and(|a| a.holds(i));
        let mut reach = vec![x];
        for &u in &self.m.comp(self.owner[x.0 as usize]).instrs {
            if u == d {
                break;
            }
            let i = self.m.instr(u);
            if !i.operands.iter().any(|o| reach.contains(o)) || reach.len() > 64 {
                continue;
            }
            if let (Opcode::Add, [p, q]) = (i.opcode, &i.operands[..]) {
                let other = if reach.contains(p) { *q } else { *p };
                if !reach.contains(&other) && known(other) {
                    return true;
                }
            }
            reach.push(u);
        }
        false
    }

    /// What a constant is to its nearest arithmetic use.
    pub(crate) fn constant_code(&self, at: InstrId) -> &'static str {
        let mut reach = vec![at];
        for &u in &self.m.comp(self.owner[at.0 as usize]).instrs {
            let i = self.m.instr(u);
            if u == at || !i.operands.iter().any(|o| reach.contains(o)) {
                continue;
            }
            let float = self.m.dtype(u).is_some_and(|d| d.is_float());
            match i.opcode {
                Opcode::Broadcast | Opcode::Reshape | Opcode::Convert if reach.len() < 8 => {
                    reach.push(u);
                }
                Opcode::Minimum | Opcode::Maximum | Opcode::Clamp if !float && reach.len() < 8 => {
                    reach.push(u);
                }
                // Where a loop begins to count.
                Opcode::Tuple if self.m.array(at).is_some_and(|a| a.dtype.is_int()) => {
                    return "wrong-offset";
                }
                Opcode::Multiply | Opcode::Divide if float => return "wrong-scale",
                Opcode::Add | Opcode::Subtract if !float => return "wrong-offset",
                Opcode::Multiply | Opcode::Divide | Opcode::Remainder => return "wrong-offset",
                Opcode::Select => return "wrong-mask",
                Opcode::DynamicSlice | Opcode::DynamicUpdateSlice => return "wrong-offset",
                Opcode::Compare if self.is_condition(self.owner[at.0 as usize]) => {
                    return "wrong-trip-count";
                }
                Opcode::Compare => return "wrong-mask",
                _ => return "wrong-constant",
            }
        }
        "wrong-constant"
    }

    /// Is the computation the condition of a loop?
    pub(crate) fn is_condition(&self, c: CompId) -> bool {
        let mut loops = self.m.instrs.iter().filter(|i| i.opcode == Opcode::While);
        loops.any(|i| i.calls.first() == Some(&c))
    }

    /// Name of an instruction with its source line.
    pub fn name(&self, i: InstrId) -> String {
        name_in(self.m, i)
    }

    /// The edit in words, to be read after "with".
    pub fn text(&self, x: &Candidate) -> String {
        let m = self.m;
        let name = |i: InstrId| self.name(i);
        let mut at = name(x.at);
        if !x.also.is_empty() {
            let line = |i| m.frames(i).first().map(|f| (f.file.to_owned(), f.line));
            let one = x.also.iter().all(|y| line(y.0) == line(x.at));
            at += &format!(" and {} more", x.also.len());
            at += if one { " of this line" } else { "" };
        }
        match &x.edit {
            Edit::AllReduce { mask, op, mean, drop } => {
                let kind = match op {
                    Opcode::Add if *mean => " (mean)".to_owned(),
                    Opcode::Add => String::new(),
                    op => format!(" ({op})"),
                };
                let mut t = format!("all-reduce{kind} over {} after {at}", self.axes(*mask));
                if let Some(d) = drop {
                    t += &format!(" in place of {}", name(*d));
                }
                t
            }
            Edit::Drop => format!("{} {at} left out", m.instr(x.at).opcode),
            Edit::Groups { mask } => {
                format!("{at} over {}{}", self.axes(*mask), self.axes_apart(x.at, *mask))
            }
            Edit::Reducer { op } => format!("{op} as the reducer of {at}"),
            Edit::Redo { like, dim, .. } => {
                format!("{} along dimension {dim} in place of {at}", name(*like))
            }
            Edit::Gather { source, mask, dim } => format!(
                "all-gather of {} over {} along dimension {dim} in place of {at}",
                name(*source),
                self.axes(*mask)
            ),
            Edit::Use { operand } => {
                let o = m.instr(x.at).operands.get(*operand).copied().unwrap_or(x.at);
                format!("{} in place of {at}", name(o))
            }
            Edit::TransposeAfter { perm } => {
                format!("sizes permuted by {perm:?} and transposed back in {at}")
            }
            Edit::Exchange { with } => format!("{at} and {} exchanged", name(*with)),
            Edit::Pairs { .. } if !x.also.is_empty() && self.is_reversal(x) => {
                format!("the pairs of {at} reversed")
            }
            Edit::Pairs { pairs } => {
                let p: Vec<String> =
                    pairs.iter().take(8).map(|p| format!("{{{},{}}}", p.0, p.1)).collect();
                format!("pairs {} in {at}", p.join(","))
            }
            Edit::Scale { factor } => format!("{at} multiplied by {}", fraction(*factor)),
            Edit::ScaleOperand { operand, factor } => {
                format!("operand {operand} of {at} multiplied by {}", fraction(*factor))
            }
            Edit::Constant { value } => {
                let old = m.literal(x.at).and_then(number).unwrap_or(f64::NAN);
                format!("{value} in place of {old} in {at}")
            }
            Edit::TransposeBefore { perm } => {
                format!("transpose {perm:?} of the operand before {at}")
            }
            Edit::Permutation { perm } => format!("dimensions {perm:?} in {at}"),
            Edit::Relayout { split, perm } => {
                format!("reshape to {split:?} and transpose {perm:?} after {at}")
            }
            Edit::Operand { operand, with } => {
                format!("{} as operand {operand} of {at}", name(*with))
            }
            Edit::Start { dim, start } => {
                format!("elements from {start} of dimension {dim} on in {at}")
            }
            Edit::OwnBlock { axis, dim } => format!(
                "the device's own block along {} of dimension {dim} in place of {at}",
                self.mesh[*axis].0
            ),
            Edit::Along { attrs } => format!("{} in {at}", self.along_text(attrs)),
            Edit::Padding { dim } => {
                format!("the padding of dimension {dim} at the other end in {at}")
            }
            Edit::MaskPadding { dim, size, fill, .. } => {
                format!("the padding of dimension {dim} of {at}, from {size} on, set to {fill}")
            }
            Edit::InRange { raw, size, .. } => {
                format!("0 where {} is outside of [0, {size}) in {at}", name(*raw))
            }
            Edit::Devices { list } => {
                let d: Vec<String> = list.iter().map(i64::to_string).collect();
                let first = m.instr(x.at).operands.get(1).copied().unwrap_or(x.at);
                format!("{} on devices {} alone in {at}", name(first), d.join(", "))
            }
            Edit::Op { op } => format!("{op} in place of {at}"),
            Edit::Direction { dir } => format!("direction {dir:?} in {at}").to_lowercase(),
            Edit::Coordinate { axis } => {
                format!("the coordinate on {} in place of {at}", self.mesh[*axis].0)
            }
            Edit::Offset { axis, stride } => {
                format!("{stride} times the coordinate on {} added to {at}", self.mesh[*axis].0)
            }
            Edit::Add { with } => format!("{} added to {at}", name(*with)),
            Edit::AddSpread { with, .. } => {
                format!("{}, which nothing uses, added to {at}", name(*with))
            }
            Edit::Swap => format!("the operands of {at} swapped"),
            Edit::Permute { like, times } => {
                let other = |e: &Edit| matches!(e, Edit::Permute { times: t, .. } if t != times);
                let rising = x.also.iter().any(|(_, e)| other(e));
                let more = if rising { ", one more for each of them" } else { "" };
                format!("a collective-permute like {} after {at}{more}", name(*like))
            }
            Edit::Reorder { of, reverse } => {
                let how = if *reverse { "in reverse order" } else { "each one step earlier" };
                format!("{at} and {} more of this line used {how}", of.len() - 1)
            }
            Edit::Shift { by } => format!("{by} added to {at}"),
            Edit::Rotate { like } => {
                format!("a collective-permute like {} of {at} before each further use", name(*like))
            }
            Edit::Times { with, .. } => format!("{at} multiplied by {}", name(*with)),
            Edit::Graft { from } => {
                let b = self.base;
                format!(
                    "the baseline's {} {} in place of {at}",
                    b.instr(*from).opcode,
                    name_in(b, *from)
                )
            }
            Edit::TimesOperand { operand, with, .. } => {
                format!("operand {operand} of {at} multiplied by {}", name(*with))
            }
        }
    }
}

fn name_in(m: &Module, i: InstrId) -> String {
    let n = m.name_of(i);
    match m.frames(i).first() {
        Some(f) if f.line > 0 => {
            format!("%{n} ({}:{})", f.file.rsplit('/').next().unwrap_or(""), f.line)
        }
        _ => format!("%{n}"),
    }
}

fn fraction(f: f64) -> String {
    if f < 1.0 && (1.0 / f).fract() == 0.0 { format!("1/{}", 1.0 / f) } else { f.to_string() }
}
