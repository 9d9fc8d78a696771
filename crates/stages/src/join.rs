//! The module in which all stages are.

use crate::channels::{self, Transfers};
use crate::error::StageError;
use crate::wiring::{self, Wire};
use rustc_hash::{FxHashMap, FxHashSet};
use scalify_claim::{Placement, Port};
use scalify_ir::{
    Absorbed, Attrs, Computation, InstrId, Module, OpMetadata, OpSharding, Opcode, Shape,
    ShardingKind, Span,
};
use std::collections::BTreeMap;

/// Stages as one program.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The program. Instructions of stage `k` are called `stagek.NAME`;
    /// parameters keep their names where only one stage has them.
    pub module: Module,
    /// What was taken for granted, one sentence each.
    pub notes: Vec<String>,
    /// Values pass by position, and other inputs would fit as well.
    pub unsure: bool,
    /// Inputs that several stages call the same: what their stage calls them,
    /// and what they are called in the whole.
    pub renamed: Vec<(String, String)>,
}

/// Joins the programs of a pipeline's stages, in order. Values pass along
/// `links` (input, output that it takes); without links, and without channels
/// between the stages, by position. `results` lists the outputs of the whole in
/// order; if it is empty, they are all outputs that no link takes.
///
/// Every stage must be valid (`scalify_ir::validate`).
///
/// # Errors
/// Stages for different numbers of devices or meshes, links and channels that
/// do not fit together, and values that depend on themselves.
pub fn join(
    stages: &[&Module],
    links: &[(Port, Port)],
    results: &[Port],
) -> Result<Joined, StageError> {
    let (mut notes, mut unsure) = (Vec::new(), false);
    same_devices(stages)?;
    let transfers = channels::transfers(stages)?;
    let wires = if !links.is_empty() {
        wiring::declared(links, stages)?
    } else if transfers.is_empty() {
        let (wires, several) = wiring::positional(stages)?;
        unsure = several;
        if stages.len() > 1 {
            let more = if several { "; other inputs have the same shapes" } else { "" };
            notes.push(format!(
                "the outputs of each stage are taken for inputs of the next by position{more}"
            ));
        }
        wires
    } else {
        Vec::new()
    };
    for w in &wires {
        same_layout(stages, w)?;
    }
    let mut m = Module::new("stages");
    let first = stages.first().ok_or_else(|| StageError::new(0, "no stage", "one or more"))?;
    m.header.num_partitions = first.header.num_partitions;
    m.header.replica_count = first.header.replica_count;
    if let Some(meshes) = stages.iter().find_map(|s| s.header_attr(MESHES)) {
        let (k, v) = (m.strings.intern(MESHES), m.strings.intern(meshes));
        m.header.frontend.push((k, v));
    }
    let absorbed: Vec<Absorbed> = stages.iter().map(|s| m.absorb(s)).collect();
    for i in &mut m.instrs {
        i.span = Span::default();
    }
    let outputs = stages.iter().map(|s| wiring::outputs(s)).collect();
    let mut b = Builder { stages, m, absorbed, outputs, stands: BTreeMap::new() };
    let linked: FxHashSet<(usize, InstrId)> = wires.iter().map(|w| w.to).collect();
    let renamed = b.rename(&linked);
    for w in &wires {
        let value = b.output(w.from);
        let to = b.absorbed[w.to.0].instr(w.to.1);
        b.stands.insert(to, value);
    }
    b.transfers(&transfers)?;
    let chosen: Vec<(usize, usize)> = if results.is_empty() {
        let taken: FxHashSet<(usize, usize)> = wires.iter().map(|w| w.from).collect();
        let all = (0..stages.len()).flat_map(|k| (0..b.outputs[k].len()).map(move |n| (k, n)));
        all.filter(|at| !taken.contains(at)).collect()
    } else {
        results.iter().map(|p| wiring::output_of(p, stages)).collect::<Result<_, _>>()?
    };
    // Tokens are no results.
    let is_array = |&(k, n): &(usize, usize)| {
        b.outputs[k].get(n).is_some_and(|o| matches!(o.shape, Shape::Array(_)))
    };
    let chosen: Vec<(usize, usize)> = chosen.into_iter().filter(is_array).collect();
    if chosen.is_empty() {
        let text = "all outputs are inputs of other stages";
        return Err(StageError::new(stages.len() - 1, text, "an output of the whole"));
    }
    let shardings: Option<Vec<OpSharding>> =
        chosen.iter().map(|&(k, n)| output_sharding(stages[k], n)).collect();
    let values: Vec<InstrId> = chosen.iter().map(|&at| b.output(at)).collect();
    let module = b.finish(&values, shardings)?;
    Ok(Joined { module, notes, unsure, renamed })
}

/// Attribute of the module that declares Shardy's meshes.
const MESHES: &str = "xla.sdy.meshes";

fn same_devices(stages: &[&Module]) -> Result<(), StageError> {
    let count = |m: &Module| (m.header.num_partitions.unwrap_or(1), m.header.replica_count.max(1));
    let mut meshes: Option<&str> = None;
    let Some(first) = stages.first() else { return Ok(()) };
    for (k, s) in stages.iter().enumerate() {
        if count(s) != count(first) {
            let ((p, r), (q, t)) = (count(s), count(first));
            let text = format!(
                "is a program for {p} partitions and {r} replicas, stage 0 for {q} and {t}: stages \
                 on different numbers of devices are not supported"
            );
            return Err(StageError::new(k, text, format!("num_partitions={q}, replica_count={t}")));
        }
        if let Some(mesh) = s.header_attr(MESHES) {
            if *meshes.get_or_insert(mesh) != mesh {
                let text = "declares another mesh than the stages before, which is not supported";
                return Err(StageError::new(k, text, meshes.unwrap_or("")));
            }
        }
    }
    Ok(())
}

fn output_sharding(m: &Module, n: usize) -> Option<OpSharding> {
    let s = m.header.spmd_output_sharding.as_ref()?;
    let mut s = match &s.kind {
        ShardingKind::Tuple(t) => t.get(n)?.clone(),
        _ => s.clone(),
    };
    s.metadata.clear();
    Some(s)
}

/// Blocks pass from device to device of the same number: both stages must lay
/// the value out in the same way.
fn same_layout(stages: &[&Module], w: &Wire) -> Result<(), StageError> {
    let (k, param) = w.to;
    let m = stages[k];
    let (Some(a), Some(b)) = (output_sharding(stages[w.from.0], w.from.1), m.sharding(param))
    else {
        return Ok(());
    };
    let devices = u32::try_from(m.header.num_partitions.unwrap_or(1)).unwrap_or(1);
    let rank = m.array(param).map_or(0, |a| a.dims.len());
    let place = |s: &OpSharding| Placement::from_op_sharding(s, rank, devices).ok();
    if let (Some(x), Some(y)) = (place(&a), place(b)) {
        let tile =
            |q: &Placement, d: u32| -> Vec<u32> { q.dims.iter().map(|z| z.tile(d)).collect() };
        if (0..devices).any(|d| tile(&x, d) != tile(&y, d)) {
            let text = format!(
                "is laid out otherwise than output #{} of stage {}, which is not supported",
                w.from.1, w.from.0
            );
            return Err(StageError::at(k, m, param, text, "the same sharding"));
        }
    }
    Ok(())
}

struct Builder<'m> {
    stages: &'m [&'m Module],
    m: Module,
    absorbed: Vec<Absorbed>,
    /// Outputs of each stage.
    outputs: Vec<Vec<wiring::Output>>,
    /// What stands for a value: another one.
    stands: BTreeMap<InstrId, InstrId>,
}

impl Builder<'_> {
    /// Names tell the stages apart. Returns inputs with their former names.
    fn rename(&mut self, linked: &FxHashSet<(usize, InstrId)>) -> Vec<(String, String)> {
        let mut owners: FxHashMap<String, usize> = FxHashMap::default();
        for (k, s) in self.stages.iter().enumerate() {
            for &p in s.entry_comp().params.iter().filter(|p| !linked.contains(&(k, **p))) {
                // A path that is the same as the name counts once.
                let path = s.op_name(p).filter(|n| *n != s.name_of(p));
                for n in path.into_iter().chain([s.name_of(p)]) {
                    *owners.entry(n.to_owned()).or_insert(0) += 1;
                }
            }
        }
        let shared = |n: &str| owners.get(n).is_some_and(|&c| c > 1);
        let mut out = Vec::new();
        for (k, s) in self.stages.iter().enumerate() {
            let params: FxHashSet<InstrId> = s.entry_comp().params.iter().copied().collect();
            for n in 0..s.instrs.len() as u32 {
                let (old, new) = (InstrId(n), self.absorbed[k].instr(InstrId(n)));
                let name = s.name_of(old);
                let param = params.contains(&old) && !linked.contains(&(k, old));
                if !param || shared(name) {
                    let name = self.m.strings.intern(&format!("stage{k}.{name}"));
                    self.m.instrs[new.0 as usize].name = name;
                }
                if !param {
                    continue;
                }
                let Some(p) = s.op_name(old).filter(|p| shared(p)) else {
                    if shared(name) && s.op_name(old).is_none() {
                        let stem = wiring::names(s, old)[0];
                        out.push((stem.to_owned(), format!("stage{k}.{name}")));
                    }
                    continue;
                };
                out.push((p.to_owned(), format!("stage{k}.{p}")));
                let p = self.m.strings.intern(&format!("stage{k}.{p}"));
                let id = self.m.instr(new).metadata;
                let known = id.and_then(|m| self.m.metadata.get(m.0 as usize)).cloned();
                let meta = OpMetadata { op_name: Some(p), ..known.unwrap_or_default() };
                self.m.metadata.push(meta);
                let id = scalify_ir::MetaId(self.m.metadata.len() as u32 - 1);
                self.m.instrs[new.0 as usize].metadata = Some(id);
            }
        }
        // Called computations, in order of the stages.
        let mut at = 0;
        for (k, s) in self.stages.iter().enumerate() {
            for _ in 0..s.comps.len() - 1 {
                if let Some(c) = self.m.comps.get_mut(at) {
                    let name = format!("stage{k}.{}", self.m.strings.get(c.name));
                    c.name = self.m.strings.intern(&name);
                }
                at += 1;
            }
        }
        out
    }

    /// The value of a stage's output.
    fn output(&mut self, (k, n): (usize, usize)) -> InstrId {
        let s = self.stages[k];
        let Some(o) = self.outputs[k].get(n).cloned() else {
            return self.absorbed[k].entry.root;
        };
        if let Some(i) = wiring::direct(s, &o) {
            return self.absorbed[k].instr(i);
        }
        let mut at = self.absorbed[k].entry.root;
        for (depth, &j) in o.path.iter().enumerate() {
            let shape = match self.m.shape(at) {
                Shape::Tuple(t) => usize::try_from(j).ok().and_then(|j| t.get(j)).cloned(),
                _ => None,
            };
            let Some(shape) = shape else { return at };
            let name = format!("stage{k}.output.{n}.{depth}");
            let attrs = Attrs::TupleIndex(j);
            at = self.m.append(&name, Opcode::GetTupleElement, attrs, &[at], &[], shape);
        }
        at
    }

    /// `recv-done` becomes the value that is sent, with a token.
    fn transfers(&mut self, all: &Transfers) -> Result<(), StageError> {
        for (k, s) in self.stages.iter().enumerate() {
            for &i in &s.entry_comp().instrs {
                let new = self.absorbed[k].instr(i);
                // What the halves give may go to their other halves only.
                let allowed = |op| match op {
                    Opcode::Send => Some(Opcode::SendDone),
                    Opcode::Recv => Some(Opcode::RecvDone),
                    _ => None,
                };
                for &o in &s.instr(i).operands {
                    if let Some(done) = allowed(s.instr(o).opcode) {
                        if s.instr(i).opcode != done {
                            let text = format!("takes the result of {}", s.instr(o).opcode);
                            return Err(StageError::at(k, s, i, text, done.to_string()));
                        }
                    }
                }
                if channels::ends_with(s, i, Opcode::SendDone).is_some() {
                    let x = &mut self.m.instrs[new.0 as usize];
                    (x.opcode, x.attrs) = (Opcode::AfterAll, Attrs::None);
                    x.operands.clear();
                } else if let Some(recv) = channels::ends_with(s, i, Opcode::RecvDone) {
                    let Some(t) = all.get(&(k, recv)) else {
                        return Err(StageError::at(k, s, i, "ends no recv", "its recv"));
                    };
                    let (from, send) = t.from;
                    let Some(&sent) = self.stages[from].instr(send).operands.first() else {
                        return Err(StageError::at(
                            from,
                            self.stages[from],
                            send,
                            "sends nothing",
                            "a value",
                        ));
                    };
                    let value = self.absorbed[from].instr(sent);
                    let name = format!("stage{k}.{}.token", s.name_of(i));
                    let token =
                        self.m.append(&name, Opcode::AfterAll, Attrs::None, &[], &[], Shape::Token);
                    let x = &mut self.m.instrs[new.0 as usize];
                    (x.opcode, x.attrs, x.extra) = (Opcode::Tuple, Attrs::None, None);
                    x.operands = [value, token].into_iter().collect();
                }
            }
        }
        Ok(())
    }

    /// What stands for a value in the end.
    fn value(&self, mut i: InstrId) -> InstrId {
        // Parameters stand for outputs, which may be parameters.
        for _ in 0..=self.stands.len() {
            match self.stands.get(&i) {
                Some(&j) => i = j,
                None => break,
            }
        }
        i
    }

    /// Stage and instruction that a copy was made of.
    fn origin(&self, i: InstrId) -> Option<(usize, InstrId)> {
        let k = self.absorbed.iter().rposition(|a| a.first <= i.0)?;
        let n = i.0 - self.absorbed[k].first;
        ((n as usize) < self.stages[k].instrs.len()).then_some((k, InstrId(n)))
    }

    fn depends_on_itself(&self, i: InstrId) -> StageError {
        let expected = "stages that need not wait for each other";
        match self.origin(i) {
            Some((k, o)) => {
                let text = "depends on itself through other stages";
                StageError::at(k, self.stages[k], o, text, expected)
            }
            None => StageError::new(0, "a value depends on itself through other stages", expected),
        }
    }

    fn finish(
        mut self,
        values: &[InstrId],
        shardings: Option<Vec<OpSharding>>,
    ) -> Result<Module, StageError> {
        // A chain of parameters that leads back to itself.
        for &p in self.stands.keys() {
            let end = self.value(p);
            if self.stands.contains_key(&end) {
                return Err(self.depends_on_itself(end));
            }
        }
        // Parameters in order of the stages, then what the results need and
        // all else that stages compute, operands first.
        let mut order: Vec<InstrId> = Vec::new();
        let mut params: Vec<InstrId> = Vec::new();
        for a in &self.absorbed {
            params.extend(a.entry.params.iter().copied().filter(|p| !self.stands.contains_key(p)));
        }
        for (n, &p) in params.iter().enumerate() {
            self.m.instrs[p.0 as usize].attrs = Attrs::Parameter(n as u32);
        }
        let halves = |op| matches!(op, Opcode::Send | Opcode::Recv);
        let entries = self.absorbed.iter().flat_map(|a| a.entry.instrs.iter().copied());
        let roots: Vec<InstrId> = params
            .iter()
            .copied()
            .chain(entries)
            .filter(|i| !self.stands.contains_key(i) && !halves(self.m.instr(*i).opcode))
            .chain(values.iter().map(|&v| self.value(v)))
            .collect();
        // 1: on the way, 2: done.
        let mut state: FxHashMap<InstrId, u8> = FxHashMap::default();
        for root in roots {
            let mut todo = vec![(root, 0usize)];
            while let Some((i, k)) = todo.pop() {
                if k == 0 {
                    match state.get(&i) {
                        Some(2) => continue,
                        Some(_) => return Err(self.depends_on_itself(i)),
                        None => {}
                    }
                    state.insert(i, 1);
                }
                match self.m.instr(i).operands.get(k).copied() {
                    Some(o) => {
                        let o = self.value(o);
                        self.m.instrs[i.0 as usize].operands[k] = o;
                        todo.push((i, k + 1));
                        match state.get(&o) {
                            Some(2) => {}
                            Some(_) => return Err(self.depends_on_itself(o)),
                            None => todo.push((o, 0)),
                        }
                    }
                    None => {
                        state.insert(i, 2);
                        order.push(i);
                    }
                }
            }
        }
        for &i in &order {
            if let Some(e) = &mut self.m.instrs[i.0 as usize].extra {
                e.control_predecessors.clear();
            }
        }
        let values: Vec<InstrId> = values.iter().map(|&v| self.value(v)).collect();
        let root = match values[..] {
            [one] => one,
            _ => {
                let shapes = values.iter().map(|&v| self.m.shape(v).clone()).collect();
                let (op, shape) = (Opcode::Tuple, Shape::Tuple(shapes));
                let root = self.m.append("results", op, Attrs::None, &values, &[], shape);
                order.push(root);
                root
            }
        };
        if let Some(mut s) = shardings {
            let one = if s.len() == 1 { s.pop() } else { None };
            self.m.header.spmd_output_sharding = Some(one.unwrap_or_else(|| OpSharding {
                kind: ShardingKind::Tuple(s),
                metadata: Vec::new(),
                shard_group: String::new(),
            }));
        }
        let name = self.m.strings.intern("stages");
        self.m.comps.push(Computation {
            name,
            instrs: order,
            params,
            root,
            execution_thread: None,
            other: Vec::new(),
            span: Span::default(),
        });
        self.m.entry = scalify_ir::CompId(self.m.comps.len() as u32 - 1);
        // Linked parameters, send and recv.
        self.m.drop_loose();
        Ok(self.m)
    }
}
