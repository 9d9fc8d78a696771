//! Classes, references and values; opening nodes and substitution.

use crate::coef::{Coef, Coefs};
use crate::lin::{BOUND_SLOT, LinId, Lins, OWN_SLOT, Subst};
use hashbrown::{HashMap, HashTable};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::rc::Rc;

/// Index of a class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClassId(pub u32);

/// An interned operator name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sym(pub u32);

/// Value kind: mathematical integers, booleans, or a tagged type whose
/// arithmetic is the reals (floats; the tag keeps types apart).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Dt(pub u8);

impl Dt {
    /// Mathematical integers; every HLO integer type.
    pub const INT: Dt = Dt(0);
    /// Booleans.
    pub const BOOL: Dt = Dt(1);
    /// First tag of other types.
    pub const FIRST: u8 = 2;
}

/// Operator of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Op {
    /// The number 1, or true.
    One,
    /// The integer equal to its index; one unbounded axis.
    Iota,
    /// Input array.
    Param(u32),
    /// A scalar that is no rational number (infinity, NaN) or is unknown.
    Const(u32),
    /// A constant array of numbers.
    Arr(u32),
    /// `sum coef * arg`.
    Add,
    /// `prod arg ^ pow`.
    Prod,
    /// `sum over bound of prod arg ^ pow`.
    Sum,
    /// Largest `coef * arg`.
    Max,
    /// Largest of the one `coef * arg` over the bound axes.
    MaxR,
    /// Conjunction.
    And,
    /// Conjunction over the bound axes of the one argument.
    AndR,
    /// A function applied pointwise; arguments `coef * arg`.
    Ew(Sym),
    /// A function of whole arrays: the bound axes are captured in order, own
    /// axes index its result.
    Opq(Sym),
    /// Pieces along the one own axis: argument `k` holds the next
    /// `bound[k]` indices, read at its bound axis `k` (from 0).
    Pcs,
}

/// A class read at one linear form per axis.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ref {
    /// The class.
    pub class: ClassId,
    /// Index form of each axis: free axes, then own axes.
    pub m: SmallVec<[LinId; 4]>,
}

/// Argument of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Arg {
    /// Factor (Add, Max, Ew, Opq, Pcs); 1 in Prod and Sum.
    pub coef: Coef,
    /// Exponent (Prod, Sum); 1 elsewhere.
    pub pow: i32,
    /// What is read; over slots inside a class, over atoms when opened.
    pub r: Ref,
}

/// A value: `coef * class[m]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Val {
    /// Factor; 0 and 1 for booleans.
    pub coef: Coef,
    /// What is read.
    pub r: Ref,
    /// Kind.
    pub dt: Dt,
}

/// A class.
#[derive(Debug)]
pub struct Class {
    /// Operator.
    pub op: Op,
    /// Kind of value.
    pub dt: Dt,
    /// Number of free axes; the rest of `sizes` are own axes.
    pub nfree: u16,
    /// Domain of each axis.
    pub sizes: SmallVec<[i64; 4]>,
    /// Sizes of bound or captured axes.
    pub bound: SmallVec<[i64; 2]>,
    /// Arguments over slots.
    pub args: SmallVec<[Arg; 2]>,
    /// Permutations of the axes under which the class does not change:
    /// reading at `m` equals reading at `m'` with `m'[i] = m[p[i]]`.
    pub autos: Vec<SmallVec<[u8; 6]>>,
    /// A union: this class equals that reference (over this class's slots).
    pub forward: Option<Ref>,
    /// Free for the user of the store, e.g. which programs use the class.
    pub mark: u8,
    /// Infinite or NaN at every index, whatever the inputs; may be false of
    /// classes that are. Laws that need finite values do not apply to it.
    pub(crate) never_finite: bool,
    /// A function without a definition of something that is never finite, or
    /// made of such: it may never be finite either.
    pub(crate) doubtful: bool,
}

/// Which families of laws are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Laws of the reals (regrouped sums and products). Off: only data
    /// movement and commutativity, so equality is bitwise.
    pub reals: bool,
    /// Laws that need finite values (`x - x`, `0 * x`, softmax shift, ...);
    /// each use is logged.
    pub finite: bool,
}

/// Use of a law that needs an assumption.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Use {
    /// Name of the law.
    pub law: &'static str,
    /// What [`Store::at`] was.
    pub at: u32,
}

/// Operators that laws know by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) exp: Sym,
    pub(crate) log: Sym,
    pub(crate) sqrt: Sym,
    pub(crate) select: Sym,
    pub(crate) ind: Sym,
    pub(crate) b2f: Sym,
    pub(crate) not: Sym,
    pub(crate) ge0: Sym,
    pub(crate) eq0: Sym,
    pub(crate) abs: Sym,
    pub(crate) add: Sym,
    pub(crate) mul: Sym,
    pub(crate) div: Sym,
    pub(crate) convert: Sym,
}

impl Default for Known {
    fn default() -> Self {
        let z = Sym(0);
        Known {
            exp: z,
            log: z,
            sqrt: z,
            select: z,
            ind: z,
            b2f: z,
            not: z,
            ge0: z,
            eq0: z,
            abs: z,
            add: z,
            mul: z,
            div: z,
            convert: z,
        }
    }
}

/// All classes of a verification.
pub struct Store {
    /// Index arithmetic.
    pub lins: Lins,
    /// Coefficients.
    pub coefs: Coefs,
    pub(crate) classes: Vec<Class>,
    pub(crate) keys: Vec<u32>,
    pub(crate) key_ends: Vec<u32>,
    pub(crate) table: HashTable<u32>,
    syms: Vec<String>,
    sym_ids: HashMap<String, Sym, FxBuildHasher>,
    /// Constant arrays: values row-major.
    pub(crate) arrays: Vec<Rc<[Coef]>>,
    array_ids: HashMap<(Dt, SmallVec<[i64; 4]>, Rc<[Coef]>), ClassId, FxBuildHasher>,
    /// Declared ranges of integer inputs.
    pub(crate) param_range: HashMap<u32, (i64, i64), FxBuildHasher>,
    /// Ranges of integer-valued operators, e.g. a wrapping addition.
    pub(crate) sym_range: HashMap<Sym, (i64, i64), FxBuildHasher>,
    /// Sums (false) and differences (true) modulo the size of the operator's
    /// range.
    pub(crate) wrapping: HashMap<Sym, bool, FxBuildHasher>,
    /// Operators that are positions of largest values.
    pub(crate) argmaxes: hashbrown::HashSet<Sym, FxBuildHasher>,
    /// Operators whose arguments commute.
    pub(crate) commutative: hashbrown::HashSet<Sym, FxBuildHasher>,
    /// Laws in force.
    pub rules: Rules,
    /// Tag of the instruction being lifted, for the log.
    pub at: u32,
    /// Laws used that need an assumption.
    pub log: Vec<Use>,
    /// Times a tie was too symmetric to canonicalise (loses proofs only).
    pub tie_overflows: usize,
    /// Largest number of classes; beyond it construction still works but
    /// [`Store::exhausted`] is set.
    pub max_classes: usize,
    /// Sums are split where guards on their axes are decided (see `special`).
    pub(crate) split_guards: bool,
    /// Exponentials of mask values are 0 (see `special`).
    pub(crate) drop_masks: bool,
    pub(crate) nodes_tried: u64,
    /// See [`Store::set_param_nature`].
    pub(crate) natures: HashMap<u32, crate::Nature, FxBuildHasher>,
    /// Which classes an infinite constant reaches (with mask values or not).
    pub(crate) infinite_cache: HashMap<(ClassId, bool), crate::infinite::Infinite, FxBuildHasher>,
    pub(crate) unknowns: u32,
    pub(crate) known: Known,
}

impl Store {
    /// An empty store.
    pub fn new(rules: Rules) -> Self {
        let mut s = Store {
            lins: Lins::default(),
            coefs: Coefs::default(),
            classes: Vec::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            table: HashTable::new(),
            syms: Vec::new(),
            sym_ids: HashMap::default(),
            arrays: Vec::new(),
            array_ids: HashMap::default(),
            param_range: HashMap::default(),
            sym_range: HashMap::default(),
            wrapping: HashMap::default(),
            argmaxes: hashbrown::HashSet::default(),
            commutative: hashbrown::HashSet::default(),
            rules,
            at: 0,
            log: Vec::new(),
            tie_overflows: 0,
            max_classes: usize::MAX,
            split_guards: false,
            drop_masks: false,
            nodes_tried: 0,
            natures: HashMap::default(),
            infinite_cache: HashMap::default(),
            unknowns: 0,
            known: Known::default(),
        };
        s.known = Known {
            exp: s.sym("exponential"),
            log: s.sym("log"),
            sqrt: s.sym("sqrt"),
            select: s.sym("select"),
            ind: s.sym("indicator"),
            b2f: s.sym("convert-pred"),
            not: s.sym("not"),
            ge0: s.sym("ge0"),
            eq0: s.sym("eq0"),
            abs: s.sym("abs"),
            add: s.sym("add"),
            mul: s.sym("multiply"),
            div: s.sym("divide"),
            convert: s.sym("convert"),
        };
        s
    }

    /// True once more classes exist than allowed.
    pub fn exhausted(&self) -> bool {
        self.classes.len() > self.max_classes
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Number of nodes that were looked up or made.
    pub fn nodes_tried(&self) -> u64 {
        self.nodes_tried
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// A class.
    pub fn class(&self, c: ClassId) -> &Class {
        &self.classes[c.0 as usize]
    }

    /// A class, to set its mark.
    pub fn class_mut(&mut self, c: ClassId) -> &mut Class {
        &mut self.classes[c.0 as usize]
    }

    /// Interns an operator name.
    pub fn sym(&mut self, s: &str) -> Sym {
        if let Some(&x) = self.sym_ids.get(s) {
            return x;
        }
        let x = Sym(self.syms.len() as u32);
        self.syms.push(s.to_owned());
        self.sym_ids.insert(s.to_owned(), x);
        x
    }

    /// Text of an operator name.
    pub fn sym_text(&self, s: Sym) -> &str {
        &self.syms[s.0 as usize]
    }

    /// Notes the use of a law that needs an assumption.
    pub fn assume(&mut self, law: &'static str) {
        let u = Use { law, at: self.at };
        if self.log.last() != Some(&u) {
            self.log.push(u);
        }
    }

    /// The value 1 (or true).
    pub fn one(&mut self, dt: Dt) -> Val {
        let r = self.make_leaf(Op::One, dt, &[]);
        Val { coef: Coef::ONE, r: Ref { class: r, m: SmallVec::new() }, dt }
    }

    /// The value 0 (or false).
    pub fn zero(&mut self, dt: Dt) -> Val {
        Val { coef: Coef::ZERO, ..self.one(dt) }
    }

    /// A rational constant. Integer constants are iota values.
    pub fn constant(&mut self, dt: Dt, c: Coef) -> Val {
        if dt == Dt::INT {
            if let Some(i) = self.coefs.to_int(c) {
                return self.int(i);
            }
        }
        Val { coef: c, ..self.one(dt) }
    }

    /// An integer constant.
    pub fn int(&mut self, i: i64) -> Val {
        let l = self.lins.constant(i);
        self.iota(l)
    }

    /// The integer value of an index form.
    pub fn iota(&mut self, l: LinId) -> Val {
        let c = self.make_leaf(Op::Iota, Dt::INT, &[crate::lin::UNBOUNDED]);
        Val { coef: Coef::ONE, r: Ref { class: c, m: SmallVec::from_slice(&[l]) }, dt: Dt::INT }
    }

    /// A scalar that is not rational, told apart by `id`.
    pub fn special(&mut self, dt: Dt, id: u32) -> Val {
        let c = self.make_leaf(Op::Const(id), dt, &[]);
        Val { coef: Coef::ONE, r: Ref { class: c, m: SmallVec::new() }, dt }
    }

    /// An input array read at `m`.
    pub fn param(&mut self, id: u32, dt: Dt, sizes: &[i64], m: &[LinId]) -> Val {
        let c = self.make_leaf(Op::Param(id), dt, sizes);
        self.norm(Val { coef: Coef::ONE, r: Ref { class: c, m: SmallVec::from_slice(m) }, dt })
    }

    /// Declares the range of an integer input, bounds inclusive.
    pub fn set_param_range(&mut self, id: u32, lo: i64, hi: i64) {
        self.param_range.insert(id, (lo, hi));
    }

    /// Declares that an operator of two integers in the range given by
    /// [`Store::set_sym_range`] is their sum, or with `minus` their
    /// difference, modulo the size of that range.
    pub fn set_wrapping(&mut self, s: Sym, minus: bool) {
        self.wrapping.insert(s, minus);
    }

    /// Declares the range of an integer-valued operator.
    pub fn set_sym_range(&mut self, s: Sym, lo: i64, hi: i64) {
        self.sym_range.insert(s, (lo, hi));
    }

    /// A constant array (row-major over `sizes`, none of them 1) read at `m`.
    pub fn array(&mut self, dt: Dt, sizes: &[i64], values: Vec<Coef>, m: &[LinId]) -> Val {
        let values: Rc<[Coef]> = values.into();
        let key = (dt, SmallVec::from_slice(sizes), values.clone());
        let c = match self.array_ids.get(&key) {
            Some(&c) => c,
            None => {
                let id = self.arrays.len() as u32;
                self.arrays.push(values);
                let c = self.make_leaf(Op::Arr(id), dt, sizes);
                self.array_ids.insert(key, c);
                c
            }
        };
        self.norm(Val { coef: Coef::ONE, r: Ref { class: c, m: SmallVec::from_slice(m) }, dt })
    }

    /// `k * v`; `None` if a coefficient grows too long.
    pub fn scale(&mut self, v: &Val, k: Coef) -> Option<Val> {
        if v.dt == Dt::INT && k == Coef::ZERO {
            return Some(self.int(0));
        }
        if v.dt == Dt::INT && self.classes[v.r.class.0 as usize].op == Op::Iota {
            let c = self.coefs.mul(v.coef, k)?;
            let c = self.coefs.to_int(c)?;
            let l = self.lins.combine(&[(c, v.r.m[0])])?;
            return Some(self.iota(l));
        }
        let coef = self.coefs.mul(v.coef, k)?;
        if coef == Coef::ZERO {
            return Some(self.zero(v.dt));
        }
        Some(Val { coef, r: v.r.clone(), dt: v.dt })
    }

    /// True if the value is the number zero (or false).
    pub fn is_zero(&self, v: &Val) -> bool {
        v.coef == Coef::ZERO || self.as_int(v) == Some(0)
    }

    /// The constant that the value is, if it is one.
    pub fn as_const(&mut self, v: &Val) -> Option<Coef> {
        match self.class(v.r.class).op {
            Op::One => Some(v.coef),
            Op::Iota => {
                let i = self.lins.as_constant(v.r.m[0])?;
                let i = self.coefs.int(i);
                self.coefs.mul(v.coef, i)
            }
            _ if v.coef == Coef::ZERO => Some(Coef::ZERO),
            _ => None,
        }
    }

    /// The integer that the value is, if it is a constant integer.
    pub fn as_int(&self, v: &Val) -> Option<i64> {
        if v.dt == Dt::INT && v.coef == Coef::ONE && self.class(v.r.class).op == Op::Iota {
            return self.lins.as_constant(v.r.m[0]);
        }
        None
    }

    /// The index form, if the value is an integer affine in the axes.
    pub fn as_iota(&self, v: &Val) -> Option<LinId> {
        (v.dt == Dt::INT && v.coef == Coef::ONE && self.class(v.r.class).op == Op::Iota)
            .then(|| v.r.m[0])
    }

    /// A value as an argument.
    pub fn arg(v: &Val) -> Arg {
        Arg { coef: v.coef, pow: 1, r: v.r.clone() }
    }

    /// An argument as a value of kind `dt`.
    pub fn val_of(&self, a: &Arg) -> Val {
        Val { coef: a.coef, r: a.r.clone(), dt: self.class(a.r.class).dt }
    }

    /// Replaces atoms in a reference. `None` if index arithmetic gives up.
    pub fn subst_ref(&mut self, r: &Ref, map: &Subst) -> Option<Ref> {
        let mut m = SmallVec::with_capacity(r.m.len());
        for &l in &r.m {
            m.push(self.lins.substitute(l, map)?);
        }
        Some(Ref { class: r.class, m })
    }

    /// Replaces atoms in a value and normalizes the read.
    pub fn subst(&mut self, v: &Val, map: &Subst) -> Option<Val> {
        if map.is_empty() {
            return Some(v.clone());
        }
        let r = self.subst_ref(&v.r, map)?;
        Some(self.norm(Val { coef: v.coef, r, dt: v.dt }))
    }

    /// Opens the node of `r`: its arguments over context atoms, and a fresh
    /// atom per bound axis.
    pub fn open(&mut self, r: &Ref) -> Option<(SmallVec<[Arg; 4]>, SmallVec<[crate::Ax; 2]>)> {
        let c = &self.classes[r.class.0 as usize];
        let nfree = c.nfree as usize;
        let nown = c.sizes.len() - nfree;
        let bound_sizes = c.bound.clone();
        let args = c.args.clone();
        let mut map = Subst::new();
        for (i, &l) in r.m.iter().take(nfree).enumerate() {
            map.set(i as u32, l);
        }
        for i in 0..nown {
            map.set(OWN_SLOT + i as u32, r.m[nfree + i]);
        }
        let mut bound = SmallVec::new();
        for (k, &n) in bound_sizes.iter().enumerate() {
            let a = self.lins.local(n);
            map.set(BOUND_SLOT + k as u32, Lins::plain(a));
            bound.push(a);
        }
        let mut out = SmallVec::with_capacity(args.len());
        for a in &args {
            let r = self.subst_ref(&a.r, &map)?;
            let dt = self.classes[a.r.class.0 as usize].dt;
            let v = self.norm(Val { coef: Coef::ONE, r, dt });
            // Reading a constant array or a piece at a constant leaves a factor.
            let coef = if v.coef == Coef::ONE {
                a.coef
            } else if a.pow == 1 {
                self.coefs.mul(a.coef, v.coef)?
            } else {
                let p = self.coefs.pow(v.coef, a.pow)?;
                self.coefs.mul(a.coef, p)?
            };
            out.push(Arg { coef, pow: a.pow, r: v.r });
        }
        Some((out, bound))
    }

    /// Normal form of a read: follows unions, steps into pieces, reads
    /// constant arrays at constants, and picks the least of equal index lists.
    pub fn norm(&mut self, mut v: Val) -> Val {
        for _ in 0..64 {
            let c = &self.classes[v.r.class.0 as usize];
            if let Some(f) = &c.forward {
                let f = f.clone();
                let mut map = Subst::new();
                for (i, &l) in v.r.m.iter().enumerate() {
                    map.set(i as u32, l);
                }
                match self.subst_ref(&f, &map) {
                    Some(r) => {
                        v.r = r;
                        continue;
                    }
                    None => return v,
                }
            }
            match c.op {
                Op::Pcs => match self.step_into_piece(&v) {
                    Some(w) => {
                        v = w;
                        continue;
                    }
                    None => break,
                },
                Op::Arr(id) => {
                    if let Some(w) = self.read_array(&v, id) {
                        return w;
                    }
                    break;
                }
                _ => break,
            }
        }
        self.least(&mut v.r);
        v
    }

    fn read_array(&mut self, v: &Val, id: u32) -> Option<Val> {
        let sizes = self.classes[v.r.class.0 as usize].sizes.clone();
        if v.dt == Dt::INT && v.r.m.iter().any(|&l| self.lins.as_constant(l).is_none()) {
            return self.read_by_device(v, id, &sizes);
        }
        let mut at = 0i64;
        for (l, n) in v.r.m.iter().zip(&sizes) {
            let i = self.lins.as_constant(*l)?;
            if i < 0 || i >= *n {
                return None;
            }
            at = at * n + i;
        }
        let k = *self.arrays[id as usize].get(at as usize)?;
        let k = self.coefs.mul(k, v.coef)?;
        Some(self.constant(v.dt, k))
    }

    /// An integer array read at forms that depend on the device alone is an
    /// index form itself (offset tables of a partitioner).
    fn read_by_device(&mut self, v: &Val, id: u32, sizes: &[i64]) -> Option<Val> {
        for &l in &v.r.m {
            let mut device = true;
            self.lins.for_terms(l, |_, a| {
                device &= a >= crate::lin::FIRST_ATOM && {
                    let mut base = SmallVec::new();
                    self.lins.base_axes(Lins::plain(a), &mut base);
                    base.iter().all(|&b| {
                        b >= crate::lin::FIRST_ATOM
                            && self.lins.atom(b).kind == crate::AtomKind::Device
                    })
                };
            });
            if !device {
                return None;
            }
        }
        let values = self.arrays[id as usize].clone();
        let mut ints = Vec::with_capacity(values.len());
        for &c in values.iter() {
            ints.push(self.coefs.to_int(c)?);
        }
        let l = self.lins.tabulate(&v.r.m, |p| {
            let mut at = 0i64;
            for (i, n) in p.iter().zip(sizes) {
                if i < &0 || i >= n {
                    return None;
                }
                at = at * n + i;
            }
            ints.get(at as usize).copied()
        })?;
        let i = self.iota(l);
        self.scale(&i, v.coef)
    }

    /// Puts the index list into its least form under the class's symmetries.
    pub(crate) fn least(&self, r: &mut Ref) {
        let c = &self.classes[r.class.0 as usize];
        if c.autos.is_empty() {
            return;
        }
        let mut best = r.m.clone();
        for p in &c.autos {
            let cand: SmallVec<[LinId; 4]> =
                (0..r.m.len()).map(|i| r.m[*p.get(i).unwrap_or(&(i as u8)) as usize]).collect();
            if cand < best {
                best = cand;
            }
        }
        r.m = best;
    }

    /// Declares class `from` equal to `to`, a reference over `from`'s slots.
    /// Later reads of `from` become reads of `to`. Refused (false) if `to`
    /// leads back to `from`.
    pub fn union(&mut self, from: ClassId, to: Ref) -> bool {
        let mut at = to.class;
        for _ in 0..1000 {
            if at == from {
                return false;
            }
            match &self.classes[at.0 as usize].forward {
                Some(f) => at = f.class,
                None => {
                    self.classes[from.0 as usize].forward = Some(to);
                    return true;
                }
            }
        }
        false
    }

    /// True if an index form of the reference depends on atom `a`.
    pub fn ref_mentions(&self, r: &Ref, a: crate::Ax) -> bool {
        r.m.iter().any(|&l| self.lins.mentions(l, a))
    }

    /// True if the reference depends on any of the atoms.
    pub fn ref_mentions_any(&self, r: &Ref, atoms: &[crate::Ax]) -> bool {
        atoms.iter().any(|&a| self.ref_mentions(r, a))
    }
}
