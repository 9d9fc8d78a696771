//! Loops and branches.
//!
//! A loop of known trip count is run once forwards, keeping what each iteration
//! begins with (only elements of the state that change), and once backwards,
//! where each iteration is computed again before it is differentiated. A
//! conditional is differentiated branch by branch, computed again too.

use crate::activity::{self, Tree};
use crate::emit::{Res, internal};
use crate::forward::{Cotangents, Step, Tape, Val, Work};
use scalify_ir::{Attrs, CompId, Comparison, DType, InstrId, Instruction, Opcode, Shape, trips};

/// Work of the analysis of what depends on what.
const BUDGET: u64 = 20_000_000;
/// Most iterations of a loop, each of which saves its state.
const MAX_TRIPS: i64 = 1 << 20;

/// A loop on the tape.
pub(crate) struct Loop {
    body: CompId,
    trips: i64,
    shape: Val,
    init: Vec<InstrId>,
    outs: Vec<InstrId>,
    /// Values at the beginning of each iteration, where they change.
    saved: Vec<Option<InstrId>>,
    active: Vec<bool>,
}

/// A conditional on the tape.
pub(crate) struct Branches {
    index: InstrId,
    calls: Vec<CompId>,
    args: Vec<Val>,
    outs: Vec<InstrId>,
}

impl Work<'_> {
    fn flags(&self, v: &Val) -> Tree<bool> {
        match v {
            Tree::Leaf(x) => Tree::Leaf(self.is_active(*x)),
            Tree::Tuple(t) => Tree::Tuple(t.iter().map(|t| self.flags(t)).collect()),
        }
    }

    fn index_at(&mut self, rank: usize, k: InstrId) -> Res<Vec<InstrId>> {
        let zero = self.e.scalar(DType::S32, 0.0)?;
        let mut v = vec![k];
        v.extend(std::iter::repeat_n(zero, rank));
        Ok(v)
    }

    pub(crate) fn forward_loop(
        &mut self,
        at: InstrId,
        i: &Instruction,
        init: Val,
        tape: &mut Tape,
    ) -> Res<Val> {
        let (cond, body) = (i.calls[0], i.calls[1]);
        let leaves = init.flat();
        if !leaves.iter().any(|&l| self.is_active(l)) {
            return self.kept(i, &[init]);
        }
        let mut budget = BUDGET;
        let mut state = self.flags(&init);
        let active = loop {
            let next = activity::result(self.src, body, &[state.clone()], &mut budget, 0)?;
            let (a, b) = (state.flat(), next.flat());
            let both: Vec<bool> = a.iter().zip(&b).map(|(x, y)| *x || *y).collect();
            if both == a {
                break both;
            }
            state = state
                .rebuilt(&mut both.into_iter())
                .ok_or_else(|| internal("a state of another shape", "the same"))?;
        };
        let elements: Vec<&Val> = match &init {
            Tree::Tuple(t) => t.iter().collect(),
            leaf => vec![leaf],
        };
        let first = |k: usize| match elements.get(k) {
            Some(Tree::Leaf(x)) => trips::integer(&self.e.m, *x),
            _ => None,
        };
        let found = trips::look(self.src, cond, body, elements.len(), &first);
        let n = found.count.filter(|n| *n <= MAX_TRIPS).ok_or_else(|| {
            internal(
                "a loop whose trip count is not known, or is over a million",
                "a counter that is compared with a constant and moved by a constant",
            )
        })?;
        if leaves.iter().any(|&l| self.e.m.array(l).is_none()) {
            return Err(internal("a loop over tokens", "a state of arrays"));
        }
        // Per leaf: does its element stay as it is?
        let mut stays = Vec::new();
        for (k, e) in elements.iter().enumerate() {
            stays.extend(vec![found.stays.get(k) == Some(&true); e.flat().len()]);
        }
        // (counter, leaves, stacks of those that change)
        let zero = self.e.scalar(DType::S32, 0.0)?;
        let mut start = vec![zero];
        start.extend(&leaves);
        let mut stacked = Vec::new();
        for (l, _) in leaves.iter().zip(&stays).filter(|s| !s.1) {
            let mut a = self.e.array(*l)?;
            a.dims.insert(0, n);
            stacked.push(a.clone());
            start.push(self.e.full(&a, 0.0)?);
        }
        let begin = self.e.tuple(&start)?;
        let shape = self.e.m.shape(begin).clone();
        let test = self.counts_to(&shape, n)?;
        self.e.begin("forward_body");
        let p = self.e.parameter(shape.clone())?;
        let k = self.e.element(p, 0)?;
        let own = (0..leaves.len()).map(|j| self.e.element(p, 1 + j)).collect::<Res<Vec<_>>>()?;
        let mut stacks = Vec::new();
        for (j, l) in (0..leaves.len()).filter(|&j| !stays[j]).enumerate() {
            let s = self.e.element(p, 1 + leaves.len() + j)?;
            let d = self.e.dims(own[l]);
            let row: Vec<i64> = std::iter::once(1).chain(d.iter().copied()).collect();
            let u = self.e.reshape(own[l], &row)?;
            let mut xs = vec![s, u];
            xs.extend(self.index_at(d.len(), k)?);
            stacks.push(self.e.op(Opcode::DynamicUpdateSlice, Attrs::None, &xs, &[], None)?);
        }
        let arg = init
            .rebuilt(&mut own.iter().copied())
            .ok_or_else(|| internal("a state of another shape", "the same"))?;
        let next = self.computation(body, vec![arg], &mut Tape::new())?.flat();
        let one = self.e.scalar(DType::S32, 1.0)?;
        let mut root = vec![self.e.add(k, one)?];
        root.extend(&next);
        root.extend(&stacks);
        let root = self.e.tuple(&root)?;
        let step = self.e.end(root)?;
        let w = self.e.raw(Opcode::While, Attrs::None, &[begin], &[test, step], shape)?;
        let outs = (0..leaves.len()).map(|j| self.e.element(w, 1 + j)).collect::<Res<Vec<_>>>()?;
        let mut saved = Vec::new();
        let mut j = 0;
        for s in &stays {
            if *s {
                saved.push(None);
            } else {
                saved.push(Some(self.e.element(w, 1 + leaves.len() + j)?));
                j += 1;
            }
        }
        for (o, a) in outs.iter().zip(&active) {
            if *a {
                self.set_active(*o);
            }
        }
        let out = init
            .rebuilt(&mut outs.iter().copied())
            .ok_or_else(|| internal("a state of another shape", "the same"))?;
        let l = Loop { body, trips: n, shape: init, init: leaves, outs, saved, active };
        tape.push(Step::Loop(at, Box::new(l)));
        Ok(out)
    }

    /// `state.0 < n`.
    fn counts_to(&mut self, shape: &Shape, n: i64) -> Res<CompId> {
        self.e.begin("counts");
        let p = self.e.parameter(shape.clone())?;
        let k = self.e.element(p, 0)?;
        let n = self.e.scalar(DType::S32, n as f64)?;
        let r = self.e.compare(Comparison::Lt, k, n)?;
        self.e.end(r)
    }

    pub(crate) fn backward_loop(&mut self, l: &Loop, cts: &mut Cotangents) -> Res<()> {
        let given: Vec<Option<InstrId>> = l.outs.iter().map(|o| cts.remove(o)).collect();
        if given.iter().all(Option::is_none) {
            return Ok(());
        }
        let moving: Vec<usize> = (0..l.init.len()).filter(|&j| l.active[j]).collect();
        let zero = self.e.scalar(DType::S32, 0.0)?;
        let mut start = vec![zero];
        for &j in &moving {
            start.push(match given[j] {
                Some(g) => g,
                None => {
                    let a = self.e.array(l.init[j])?;
                    self.e.full(&a, 0.0)?
                }
            });
        }
        for (s, x) in l.saved.iter().zip(&l.init) {
            start.push(s.unwrap_or(*x));
        }
        let begin = self.e.tuple(&start)?;
        let shape = self.e.m.shape(begin).clone();
        let test = self.counts_to(&shape, l.trips)?;
        self.e.begin("backward_body");
        let p = self.e.parameter(shape.clone())?;
        let k = self.e.element(p, 0)?;
        let last = self.e.scalar(DType::S32, (l.trips - 1) as f64)?;
        let at = self.e.sub(last, k)?;
        let got = (0..moving.len()).map(|j| self.e.element(p, 1 + j)).collect::<Res<Vec<_>>>()?;
        let mut kept = Vec::new();
        let mut own = Vec::new();
        for (j, s) in l.saved.iter().enumerate() {
            let x = self.e.element(p, 1 + moving.len() + j)?;
            kept.push(x);
            let v = if s.is_some() {
                let d = self.e.dims(x);
                let row: Vec<i64> = std::iter::once(1).chain(d[1..].iter().copied()).collect();
                let mut xs = vec![x];
                xs.extend(self.index_at(d.len() - 1, at)?);
                let sizes = Attrs::DynamicSlice(row.iter().copied().collect());
                let r = self.e.op(Opcode::DynamicSlice, sizes, &xs, &[], None)?;
                // Its own instruction: a leaf may hold its own cotangent.
                self.e.op(
                    Opcode::Reshape,
                    Attrs::None,
                    &[r],
                    &[],
                    Some(Shape::array(self.e.array(x)?.dtype, d[1..].iter().copied())),
                )?
            } else {
                x
            };
            if l.active[j] {
                self.set_active(v);
            }
            own.push(v);
        }
        let arg = l
            .shape
            .rebuilt(&mut own.iter().copied())
            .ok_or_else(|| internal("a state of another shape", "the same"))?;
        let mut tape = Tape::new();
        let out = self.computation(l.body, vec![arg], &mut tape)?.flat();
        let mut inner = Cotangents::default();
        for (&j, &g) in moving.iter().zip(&got) {
            if let Some(&o) = out.get(j) {
                self.accumulate(&mut inner, o, g)?;
            }
        }
        self.backward(&tape, &mut inner)?;
        let one = self.e.scalar(DType::S32, 1.0)?;
        let mut root = vec![self.e.add(k, one)?];
        for &j in &moving {
            root.push(match inner.get(&own[j]) {
                Some(&g) => g,
                None => {
                    let a = self.e.array(own[j])?;
                    self.e.full(&a, 0.0)?
                }
            });
        }
        root.extend(&kept);
        let root = self.e.tuple(&root)?;
        let step = self.e.end(root)?;
        let w = self.e.raw(Opcode::While, Attrs::None, &[begin], &[test, step], shape)?;
        for (k, &j) in moving.iter().enumerate() {
            if self.is_active(l.init[j]) {
                let g = self.e.element(w, 1 + k)?;
                self.accumulate(cts, l.init[j], g)?;
            }
        }
        Ok(())
    }

    /// A loop or conditional as it is.
    fn kept(&mut self, i: &Instruction, operands: &[Val]) -> Res<Val> {
        let xs = operands.iter().map(|v| self.put_together(v)).collect::<Res<Vec<_>>>()?;
        let calls = i.calls.iter().map(|&c| self.copied(c)).collect::<Res<Vec<_>>>()?;
        let shape = crate::emit::plain(&self.src.shapes[i.shape.0 as usize]);
        let w = self.e.raw(i.opcode, i.attrs.clone(), &xs, &calls, shape)?;
        self.taken_apart(w)
    }

    pub(crate) fn forward_branches(
        &mut self,
        at: InstrId,
        i: &Instruction,
        operands: Vec<Val>,
        tape: &mut Tape,
    ) -> Res<Val> {
        let out = self.kept(i, &operands)?;
        let (Some(Tree::Leaf(index)), args) = (operands.first(), &operands[1..]) else {
            return Err(internal("a tuple decides the branch", "a scalar"));
        };
        if !args.iter().any(|a| self.flags(a).flat().contains(&true)) {
            return Ok(out);
        }
        let outs = out.flat();
        let mut budget = BUDGET;
        for (&c, a) in i.calls.iter().zip(args) {
            let f = activity::result(self.src, c, &[self.flags(a)], &mut budget, 0)?;
            for (&o, active) in outs.iter().zip(f.flat()) {
                if active {
                    self.set_active(o);
                }
            }
        }
        let b = Branches { index: *index, calls: i.calls.to_vec(), args: args.to_vec(), outs };
        tape.push(Step::Branch(at, Box::new(b)));
        Ok(out)
    }

    pub(crate) fn backward_branches(&mut self, b: &Branches, cts: &mut Cotangents) -> Res<()> {
        let given: Vec<(usize, InstrId)> =
            b.outs.iter().enumerate().filter_map(|(k, o)| Some((k, cts.remove(o)?))).collect();
        if given.is_empty() {
            return Ok(());
        }
        let seeds: Vec<InstrId> = given.iter().map(|g| g.1).collect();
        // Per branch: positions and values of the leaves that get one.
        let want: Vec<Vec<(usize, InstrId)>> = b
            .args
            .iter()
            .map(|a| {
                let all = a.flat().into_iter().enumerate();
                all.filter(|x| self.is_active(x.1)).collect()
            })
            .collect();
        let mut operands = vec![b.index];
        let mut comps = Vec::new();
        let mut result = None;
        for (k, (&c, arg)) in b.calls.iter().zip(&b.args).enumerate() {
            let leaves = arg.flat();
            let all: Vec<InstrId> = leaves.iter().chain(&seeds).copied().collect();
            let t = self.e.tuple(&all)?;
            operands.push(t);
            let shape = self.e.m.shape(t).clone();
            self.e.begin("backward_branch");
            let p = self.e.parameter(shape)?;
            let mut own = Vec::new();
            for (j, &l) in leaves.iter().enumerate() {
                let x = self.e.element(p, j)?;
                if self.is_active(l) {
                    self.set_active(x);
                }
                own.push(x);
            }
            let mut got = Vec::new();
            for j in 0..seeds.len() {
                got.push(self.e.element(p, leaves.len() + j)?);
            }
            let arg = arg
                .rebuilt(&mut own.iter().copied())
                .ok_or_else(|| internal("an argument of another shape", "the same"))?;
            let mut tape = Tape::new();
            let out = self.computation(c, vec![arg], &mut tape)?.flat();
            let mut inner = Cotangents::default();
            for ((j, _), g) in given.iter().zip(got) {
                if let Some(&o) = out.get(*j) {
                    self.accumulate(&mut inner, o, g)?;
                }
            }
            self.backward(&tape, &mut inner)?;
            let mut root = Vec::new();
            for (q, list) in want.iter().enumerate() {
                for &(j, x) in list {
                    let mine = (q == k).then(|| inner.get(&own[j]).copied()).flatten();
                    root.push(match mine {
                        Some(g) => g,
                        None => {
                            let a = self.e.array(x)?;
                            self.e.full(&a, 0.0)?
                        }
                    });
                }
            }
            let root = self.e.tuple(&root)?;
            result = Some(self.e.m.shape(root).clone());
            comps.push(self.e.end(root)?);
        }
        let Some(shape) = result else { return Ok(()) };
        let w = self.e.raw(Opcode::Conditional, Attrs::None, &operands, &comps, shape)?;
        let mut k = 0;
        for list in &want {
            for &(_, x) in list {
                let g = self.e.element(w, k)?;
                self.accumulate(cts, x, g)?;
                k += 1;
            }
        }
        Ok(())
    }
}
