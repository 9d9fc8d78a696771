//! Which values of two runs are to be equal.
//!
//! A pair says where each element of a value of the second program stands in
//! a value of the first. Pairs come, in this order of trust, from the inputs,
//! from equal operations on paired operands, from the prover's relations, from
//! equal names, from the use that both are put to, from the outputs, and from equal
//! numbers.

use crate::bound::{numbers, roundoff};
use crate::flow::{Flow, NodeId, PerDevice, Slot, Sym, leaves};
use rustc_hash::FxHashMap;
use scalify_claim::Placement;
use scalify_interp::complex::Complex;
use scalify_interp::{Data, Tensor};
use scalify_ir::{ArrayShape, DType, Module, Opcode};
use scalify_prove::correspond::Correspondence;
use scalify_refute::place;
use std::rc::Rc;

/// What a pair rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Inputs of the programs.
    Input,
    /// The same operation on paired operands.
    Operation,
    /// A relation the prover found.
    Proof,
    /// The same name, opcode and shape.
    Name,
    /// Operands of paired operations at the same place.
    Use,
    /// The same numbers in `f64`, or nearly ([`crate::values`]).
    Value,
    /// Outputs at the same position.
    Output,
}

/// Where elements of a value come from: per device and element (row-major)
/// the other program's device and element.
pub type Places = Rc<Vec<Vec<(u32, u32)>>>;

/// A value of the first program (`a`) and one of the second (`b`).
#[derive(Clone, Debug)]
pub struct Pair {
    /// Slot of the first program.
    pub a: Slot,
    /// Slot of the second program.
    pub b: Slot,
    /// Places of `b`'s elements in `a`; `None`: the same elements on the same
    /// device.
    pub places: Option<Places>,
    /// What it rests on.
    pub basis: Basis,
    /// Coarsest unit roundoff of values of the first program with these
    /// elements.
    pub coarsest: f64,
}

impl Pair {
    /// The value of `a` as the devices of the second program hold it, in
    /// elements of `dtype`. `None` if it does not fit.
    pub fn carry(&self, a: &PerDevice, shape: &ArrayShape, devices: usize) -> Option<PerDevice> {
        let mut out: Vec<Tensor> = Vec::with_capacity(devices);
        let mut done: Vec<(usize, usize)> = Vec::new();
        for d in 0..devices {
            let own = if a.len() == 1 { 0 } else { d };
            // Devices that hold the same share it.
            let same = done.iter().find(|&&(k, o)| {
                let alike = a[o].data.same(&a[own].data);
                alike
                    && match &self.places {
                        None => true,
                        Some(p) => a.len() == 1 && p.get(k) == p.get(d),
                    }
            });
            if let Some(&(k, _)) = same {
                let t: Tensor = out[k].clone();
                out.push(t);
                continue;
            }
            let places = match &self.places {
                Some(p) => Some(p.get(d)?),
                None => None,
            };
            out.push(gather(a, own, places, shape)?);
            done.push((d, own));
        }
        Some(out)
    }

    /// Numbers of `a` (per device) in the order of `b` on `device`; two per
    /// element if complex.
    pub fn pick(&self, a: &[Vec<f64>], device: usize, width: usize) -> Option<Vec<f64>> {
        let own = if a.len() == 1 { 0 } else { device };
        match &self.places {
            None => a.get(own).cloned(),
            Some(p) => {
                let mut out = Vec::new();
                for &(d, e) in p.get(device)? {
                    for c in 0..width {
                        out.push(*a.get(d as usize)?.get(e as usize * width + c)?);
                    }
                }
                Some(out)
            }
        }
    }
}

fn gather(
    a: &PerDevice,
    own: usize,
    places: Option<&Vec<(u32, u32)>>,
    shape: &ArrayShape,
) -> Option<Tensor> {
    let from = a.get(own)?;
    let n = usize::try_from(shape.elements()?).ok()?;
    let dims = shape.dims.iter().copied();
    if shape.dtype == from.dtype && places.is_none() && n == from.len() {
        let t = Tensor::new(shape.dtype, dims, from.data.clone())?;
        return Some(t);
    }
    let at = |k: usize| -> Option<(usize, usize)> {
        match places {
            Some(p) => p.get(k).map(|&(d, e)| (d as usize, e as usize)),
            None => (k < from.len()).then_some((own, k)),
        }
    };
    if shape.dtype.is_float() && from.dtype.is_float() {
        let all: Vec<Vec<f64>> = cached(a, places, own, |t| t.to_f64());
        let v: Vec<f64> = (0..n)
            .map(|k| at(k).and_then(|(d, e)| all.get(d)?.get(e).copied()))
            .collect::<Option<_>>()?;
        return Tensor::from_vec(shape.dtype, dims, v);
    }
    if shape.dtype.is_complex() && from.dtype.is_complex() {
        let all: Vec<Vec<f64>> = cached(a, places, own, numbers);
        let v: Vec<Complex<f64>> = (0..n)
            .map(|k| {
                let (d, e) = at(k)?;
                let v = all.get(d)?;
                Some(Complex { re: *v.get(2 * e)?, im: *v.get(2 * e + 1)? })
            })
            .collect::<Option<_>>()?;
        return Tensor::new(shape.dtype, dims, Data::C128(v.into()));
    }
    if shape.dtype != from.dtype {
        return None;
    }
    let w = shape.dtype.literal_bytes();
    let all: Vec<Vec<u8>> = cached(a, places, own, |t| t.to_bytes());
    let mut bytes = Vec::with_capacity(n * w);
    for k in 0..n {
        let (d, e) = at(k)?;
        bytes.extend_from_slice(all.get(d)?.get(e * w..(e + 1) * w)?);
    }
    Tensor::from_bytes(&ArrayShape::new(shape.dtype, shape.dims.iter().copied()), &bytes)
}

/// `f` of the devices that are read.
fn cached<T: Clone + Default>(
    a: &PerDevice,
    places: Option<&Vec<(u32, u32)>>,
    own: usize,
    f: impl Fn(&Tensor) -> T,
) -> Vec<T> {
    let mut used = vec![false; a.len()];
    match places {
        Some(p) => p.iter().for_each(|&(d, _)| {
            if let Some(u) = used.get_mut(d as usize) {
                *u = true;
            }
        }),
        None => used[own] = true,
    }
    a.iter().zip(used).map(|(t, u)| if u { f(t) } else { T::default() }).collect()
}

/// Places that a placement says; padding of uneven blocks reads element 0.
pub fn placed(
    global: &[i64],
    local: &[i64],
    q: Option<&Placement>,
    devices: usize,
) -> Option<Option<Places>> {
    if q.is_none_or(Placement::is_replicated) {
        return (global == local).then_some(None);
    }
    let n = usize::try_from(local.iter().product::<i64>()).ok()?;
    let mut all = Vec::with_capacity(devices);
    for d in 0..devices {
        let mut v = vec![(0u32, 0u32); n];
        for (l, g) in place::positions(global, q, d as u32)? {
            *v.get_mut(l)? = (0, g as u32);
        }
        all.push(v);
    }
    Some(Some(Rc::new(all)))
}

/// Both runs.
pub struct Runs<'r> {
    /// The first program.
    pub ma: &'r Module,
    /// Its run.
    pub fa: &'r Flow,
    /// Its slots in `f64`.
    pub wa: &'r [PerDevice],
    /// The second program.
    pub mb: &'r Module,
    /// Its run.
    pub fb: &'r Flow,
    /// Its slots in `f64`.
    pub wb: &'r [PerDevice],
}

/// The pairs of two runs.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// By slot of the second program.
    pub of: Vec<Option<Pair>>,
    /// The programs are versions of one another: most names are the same.
    pub versions: bool,
}

impl Runs<'_> {
    fn shape_a(&self, s: Slot) -> (DType, &[i64]) {
        let t = &self.fa.values[s as usize][0];
        (t.dtype, &t.dims)
    }

    fn shape_b(&self, s: Slot) -> (DType, &[i64]) {
        let t = &self.fb.values[s as usize][0];
        (t.dtype, &t.dims)
    }

    /// Pairs of all slots of the second program that have a counterpart.
    /// `inputs` are the pairs of the entry's parameters.
    pub fn pairs(&self, inputs: Vec<Pair>, proof: Option<&Correspondence>) -> Pairs {
        let mut of: Vec<Option<Pair>> = vec![None; self.fb.slots.len()];
        for p in inputs {
            let b = p.b as usize;
            of[b] = Some(p);
        }
        let proved = self.proved(proof);
        let versions = self.versions();
        // Operations of the first program by opcode and operands.
        let mut by_operands: FxHashMap<(Opcode, Vec<Slot>), Vec<NodeId>> = FxHashMap::default();
        let mut by_name: FxHashMap<(&str, u32), NodeId> = FxHashMap::default();
        for (k, n) in self.fa.nodes.iter().enumerate() {
            let op = self.ma.instr(n.instr).opcode;
            by_operands.entry((op, n.reads())).or_default().push(k as u32);
            by_name.insert((self.ma.name_of(n.instr), n.visit), k as u32);
        }
        // Both take the same values, on one device or on many.
        let same_inputs = self.same_devices() && of.iter().flatten().all(|p| p.places.is_none());
        for (k, n) in self.fb.nodes.iter().enumerate() {
            let op = self.mb.instr(n.instr).opcode;
            if op == Opcode::Parameter {
                continue;
            }
            let named = by_name.get(&(self.mb.name_of(n.instr), n.visit)).copied();
            // The same operation on the same operands.
            let reads: Option<Vec<Slot>> = n
                .reads()
                .iter()
                .map(|&s| of[s as usize].as_ref().filter(|p| p.places.is_none()).map(|p| p.a))
                .collect();
            if let Some(r) = reads {
                let list = by_operands.get(&(op, r)).map(Vec::as_slice).unwrap_or_default();
                let alike = |a: &&NodeId| self.alike(**a, k as u32, true, versions);
                let hit = (list.iter().find(|a| Some(**a) == named && alike(a)))
                    .or_else(|| list.iter().find(alike))
                    .copied();
                if let Some(a) = hit {
                    self.join(&mut of, a, k as u32, Basis::Operation);
                    continue;
                }
            }
            for b in n.slots.0..n.slots.1 {
                if let Some(p) = proved.get(&b) {
                    of[b as usize] = Some(p.clone());
                }
            }
            // Versions of one program: the same name.
            if let Some(a) = named.filter(|_| same_inputs && !self.found(&of, n.slots)) {
                if self.alike(a, k as u32, false, versions) && (versions || self.close(a, k as u32))
                {
                    self.join(&mut of, a, k as u32, Basis::Name);
                }
            }
        }
        if same_inputs {
            self.by_use(&mut of, if versions { 0.5 } else { 0.1 });
        }
        Pairs { of, versions }
    }

    fn found(&self, of: &[Option<Pair>], slots: (Slot, Slot)) -> bool {
        (slots.0..slots.1).any(|s| of[s as usize].is_some())
    }

    fn join(&self, of: &mut [Option<Pair>], a: NodeId, b: NodeId, basis: Basis) {
        let (x, y) = (self.fa.nodes[a as usize].slots, self.fb.nodes[b as usize].slots);
        for (a, b) in (x.0..x.1).zip(y.0..y.1) {
            let coarsest = roundoff(self.shape_a(a).0);
            of[b as usize] = Some(Pair { a, b, places: None, basis, coarsest });
        }
    }

    /// Same opcode, shapes and, with `exactly`, attributes and computations.
    fn alike(&self, a: NodeId, b: NodeId, exactly: bool, versions: bool) -> bool {
        let (x, y) = (&self.fa.nodes[a as usize], &self.fb.nodes[b as usize]);
        let (i, j) = (self.ma.instr(x.instr), self.mb.instr(y.instr));
        let dense = i.opcode == Opcode::Constant;
        i.opcode == j.opcode
            && self.ma.shape(x.instr).same(self.mb.shape(y.instr))
            && x.slots.1 - x.slots.0 == y.slots.1 - y.slots.0
            && (if dense {
                self.same_constant(a, b)
                    || versions && self.ma.name_of(x.instr) == self.mb.name_of(y.instr)
            } else {
                !exactly || same_operation(self.ma, x.instr, self.mb, y.instr)
            })
    }

    fn same_constant(&self, a: NodeId, b: NodeId) -> bool {
        let (x, y) = (&self.fa.nodes[a as usize], &self.fb.nodes[b as usize]);
        match (self.ma.literal(x.instr), self.mb.literal(y.instr)) {
            (Some(l), Some(r)) => l.data == r.data,
            _ => false,
        }
    }

    /// Values in `f64` that agree but for rounding.
    fn close(&self, a: NodeId, b: NodeId) -> bool {
        let (x, y) = (self.fa.nodes[a as usize].slots, self.fb.nodes[b as usize].slots);
        (x.0..x.1).zip(y.0..y.1).all(|(a, b)| self.close_slots(a, b, 1e-4))
    }

    fn close_slots(&self, a: Slot, b: Slot, tolerance: f64) -> bool {
        self.wa[a as usize].iter().zip(&self.wb[b as usize]).all(|(x, y)| {
            let (x, y) = (numbers(x), numbers(y));
            let size = scalify_refute::compare::rms(x.iter().copied());
            let d = scalify_refute::compare::rms(x.iter().zip(&y).map(|(x, y)| x - y));
            x.len() == y.len() && d <= tolerance * size
        })
    }

    /// As many devices, or all do the same: what has the same name is the same
    /// value, not a block of it.
    fn same_devices(&self) -> bool {
        let count = |f: &Flow| f.values.first().map(Vec::len);
        let apart = |m: &Module, f: &Flow| {
            f.nodes.iter().any(|n| {
                let i = m.instr(n.instr);
                i.opcode.is_collective()
                    || matches!(i.opcode, Opcode::PartitionId | Opcode::ReplicaId)
                    || matches!(&i.attrs, scalify_ir::Attrs::CustomCall(c) if {
                        let t = m.str(c.target);
                        t.starts_with("xla.sdy.") || t.starts_with("SPMD")
                    })
            })
        };
        count(self.fa) == count(self.fb) || !(apart(self.ma, self.fa) || apart(self.mb, self.fb))
    }

    /// Versions of one program: nearly all operations of the first have their
    /// name, opcode and shape in the second too.
    pub fn versions(&self) -> bool {
        if !self.same_devices() {
            return false;
        }
        let mut names: FxHashMap<&str, (Opcode, &scalify_ir::Shape)> = FxHashMap::default();
        for n in &self.fb.nodes {
            let i = self.mb.instr(n.instr);
            names.insert(self.mb.name_of(n.instr), (i.opcode, self.mb.shape(n.instr)));
        }
        let (mut hit, mut all) = (0, 0);
        for n in &self.fa.nodes {
            let i = self.ma.instr(n.instr);
            all += 1;
            let same = names.get(self.ma.name_of(n.instr));
            hit += usize::from(
                same.is_some_and(|(op, s)| *op == i.opcode && s.same(self.ma.shape(n.instr))),
            );
        }
        all > 0 && hit * 10 >= all * 9
    }

    fn proved(&self, proof: Option<&Correspondence>) -> FxHashMap<Slot, Pair> {
        let mut out = FxHashMap::default();
        let Some(c) = proof else { return out };
        for m in &c.matches {
            let count = |v: &[u32], i: scalify_ir::InstrId| v.get(i.0 as usize).copied();
            if count(&c.base_visits, m.base.instr) != count(&self.fa.visits, m.base.instr)
                || count(&c.dist_visits, m.dist.instr) != count(&self.fb.visits, m.dist.instr)
            {
                continue;
            }
            let a = self.fa.find(m.base.instr, m.base.visit);
            let b = self.fb.find(m.dist.instr, m.dist.visit);
            let (Some(a), Some(b)) = (a, b) else { continue };
            let n = self.fb.values[b as usize].first().map_or(0, Tensor::len);
            if m.elements.iter().any(|e| e.len() != n) {
                continue;
            }
            let identity = self.fa.values[a as usize].first().is_some_and(|t| t.len() == n)
                && m.elements.iter().enumerate().all(|(d, e)| {
                    e.iter().enumerate().all(|(k, &(x, y))| {
                        y as usize == k
                            && (x as usize == d || self.fa.values[a as usize].len() == 1)
                    })
                });
            let places = (!identity).then(|| Rc::new(m.elements.clone()));
            let coarsest = roundoff(m.coarsest).max(roundoff(self.shape_a(a).0));
            out.entry(b).or_insert(Pair { a, b, places, basis: Basis::Proof, coarsest });
        }
        out
    }

    /// Unpaired operands of paired operations, from the end backwards, where
    /// the values are close.
    fn by_use(&self, of: &mut [Option<Pair>], tolerance: f64) {
        for k in (0..self.fb.nodes.len()).rev() {
            let n = &self.fb.nodes[k];
            let Some(p) = of.get(n.slots.0 as usize).and_then(Option::as_ref) else { continue };
            if n.slots.0 == n.slots.1 || p.places.is_some() {
                continue;
            }
            let a = self.fa.node_of(p.a);
            if self.ma.instr(a.instr).opcode != self.mb.instr(n.instr).opcode
                || a.operands.len() != n.operands.len()
            {
                continue;
            }
            let (mut x, mut y) = (Vec::new(), Vec::new());
            for (s, t) in a.operands.iter().zip(&n.operands) {
                if let (Sym::Slot(s), Sym::Slot(t)) = (s, t) {
                    x.push(*s);
                    y.push(*t);
                } else {
                    leaves(s, &mut x);
                    leaves(t, &mut y);
                }
            }
            if x.len() != y.len() {
                continue;
            }
            for (a, b) in x.into_iter().zip(y) {
                let fits = self.shape_a(a) == self.shape_b(b);
                if of[b as usize].is_none() && fits && self.close_slots(a, b, tolerance) {
                    let coarsest = roundoff(self.shape_a(a).0);
                    of[b as usize] = Some(Pair { a, b, places: None, basis: Basis::Use, coarsest });
                }
            }
        }
    }
}

/// Same attributes and called computations, names apart.
fn same_operation(
    ma: &Module,
    a: scalify_ir::InstrId,
    mb: &Module,
    b: scalify_ir::InstrId,
) -> bool {
    let (x, y) = (ma.instr(a), mb.instr(b));
    attrs_text(ma, a) == attrs_text(mb, b)
        && x.calls.len() == y.calls.len()
        && x.calls.iter().zip(&y.calls).all(|(&c, &d)| same_computation(ma, c, mb, d, 0))
}

fn same_computation(
    ma: &Module,
    a: scalify_ir::CompId,
    mb: &Module,
    b: scalify_ir::CompId,
    depth: usize,
) -> bool {
    let (x, y) = (ma.comp(a), mb.comp(b));
    if x.instrs.len() != y.instrs.len() || depth > 8 {
        return false;
    }
    let place = |c: &scalify_ir::Computation| -> FxHashMap<scalify_ir::InstrId, usize> {
        c.instrs.iter().enumerate().map(|(k, &i)| (i, k)).collect()
    };
    let (px, py) = (place(x), place(y));
    px.get(&x.root) == py.get(&y.root)
        && x.instrs.iter().zip(&y.instrs).all(|(&i, &j)| {
            let (u, v) = (ma.instr(i), mb.instr(j));
            u.opcode == v.opcode
                && ma.shape(i).same(mb.shape(j))
                && u.operands.iter().map(|o| px.get(o)).eq(v.operands.iter().map(|o| py.get(o)))
                && attrs_text(ma, i) == attrs_text(mb, j)
                && u.calls.len() == v.calls.len()
                && (u.calls.iter().zip(&v.calls))
                    .all(|(&c, &d)| same_computation(ma, c, mb, d, depth + 1))
        })
}

/// Attributes as text in which symbols are strings.
fn attrs_text(m: &Module, i: scalify_ir::InstrId) -> String {
    use scalify_ir::Attrs;
    match &m.instr(i).attrs {
        Attrs::CustomCall(c) => format!("custom {}", m.str(c.target)),
        Attrs::Dot(d) => format!(
            "{:?} {:?} {:?} {:?}",
            d.lhs_batch, d.rhs_batch, d.lhs_contracting, d.rhs_contracting
        ),
        Attrs::Collective(c) => {
            format!(
                "{:?} {:?} {:?} {:?}",
                c.groups.expand(1),
                c.groups.device_count(),
                c.pairs,
                c.dimension
            )
        }
        a => format!("{a:?}"),
    }
}
