//! Lifted terms for tests that evaluate them. Not part of the interface.
//! Callers provide a stack that nested calls and terms need.

use crate::Options;
use crate::decide::{self, Attempt};
use crate::devices::Devices;
use crate::lift::{Budget, ConstTable, Lifted, Lifter, Lv, RegionInfo, Stop, Watcher, dt_of};

use crate::problem::{self, Problem};
use crate::tv::{Tv, TvOps};
use scalify_claim::Claim;
use scalify_ir::{ArrayShape, DType, Module, Shape};
use scalify_terms::{Lins, Rules, Store};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

/// A constant array that is a leaf of the terms: parameter id, element type,
/// bytes as in a literal.
pub type Leaf = (u32, DType, Arc<[u8]>);

/// One module, lifted.
pub struct Lifting {
    /// The terms.
    pub store: Store,
    /// The devices.
    pub devices: Devices,
    /// One per lifted instruction, in the order of execution.
    pub records: Vec<Lifted>,
    /// Constant leaves.
    pub constants: Vec<Leaf>,
}

/// Both modules of a problem, lifted as for a proof. Input leaf `k` of the
/// baseline is parameter `k`.
pub struct Pair {
    /// The terms.
    pub store: Store,
    /// Devices of the distributed module; the baseline depends on none.
    pub devices: Devices,
    /// Records of the baseline.
    pub base: Vec<Lifted>,
    /// Records of the distributed module.
    pub dist: Vec<Lifted>,
    /// Constant leaves.
    pub constants: Vec<Leaf>,
    /// Pairing and placement of inputs.
    pub problem: Problem,
}

struct Unlimited;

impl Budget for Unlimited {
    fn check(&mut self, _: &Store, _: usize) -> Option<Stop> {
        None
    }
}

struct Nothing;

impl Watcher for Nothing {
    fn value(&mut self, _: &mut Store, _: &Module, _: &mut Lifted, _: &[Lifted], _: &Devices) {}
}

/// How [`lift`] lifts.
pub struct How<'a> {
    /// Number of devices.
    pub count: i64,
    /// Mesh, may be empty.
    pub mesh: &'a [(String, i64)],
    /// Devices by prime digits.
    pub prime: bool,
    /// Ids in groups without channel are device ids.
    pub replica_mode: bool,
    /// Devices are lifted one by one.
    pub each: bool,
    /// Laws.
    pub rules: Rules,
    /// Input leaf differs between devices: its term has the device digits as
    /// leading axes, before its dimensions larger than 1.
    pub varies: &'a (dyn Fn(usize) -> bool + Sync),
    /// Range of an integer input leaf.
    pub range: &'a (dyn Fn(usize) -> Option<(i64, i64)> + Sync),
}

/// Lifts one module by itself. Input leaf `k` is parameter `k`.
pub fn lift(m: &Module, how: &How<'_>) -> Lifting {
    let mut store = Store::new(how.rules);
    let devices = Devices::new(&mut store.lins, how.count, how.mesh, how.prime);
    let mut consts = ConstTable::default();
    let (mut watcher, mut budget) = (Nothing, Unlimited);
    let records = {
        let mut l = Lifter::new(
            m,
            &mut store,
            devices.clone(),
            &mut watcher,
            &mut budget,
            &mut consts,
            RegionInfo::of(m),
            0,
        );
        l.replica_mode = how.replica_mode;
        l.each = how.each;
        let mut k = 0;
        let params: Vec<Lv> =
            m.entry_comp().params.iter().map(|&p| input(&mut l, m.shape(p), &mut k, how)).collect();
        let params = if how.each {
            params.iter().map(|v| l.spread(v).unwrap_or(Lv::Token)).collect()
        } else {
            params
        };
        l.run(params);
        std::mem::take(&mut l.lifted)
    };
    Lifting { store, devices, records, constants: consts.leaves() }
}

fn input(l: &mut Lifter<'_>, s: &Shape, k: &mut usize, how: &How<'_>) -> Lv {
    match s {
        Shape::Tuple(t) => Lv::Tuple(t.iter().map(|x| input(l, x, k, how)).collect()),
        Shape::Array(a) => {
            *k += 1;
            Lv::T(array(l, a, *k - 1, how))
        }
        _ => {
            *k += 1;
            Lv::Token
        }
    }
}

fn array(l: &mut Lifter<'_>, a: &ArrayShape, k: usize, how: &How<'_>) -> Tv {
    let id = k as u32;
    if let Some((lo, hi)) = (how.range)(k) {
        l.st.set_param_range(id, lo, hi);
    } else if let Some((lo, hi)) = a.dtype.int_range() {
        if let (Ok(lo), Ok(hi)) = (i64::try_from(lo), i64::try_from(hi)) {
            l.st.set_param_range(id, lo, hi);
        }
    }
    let dims = l.st.fresh_dims(&a.dims);
    let mut atoms: SmallVec<[_; 8]> = SmallVec::new();
    if (how.varies)(k) {
        atoms.extend(l.dev.digits.iter().map(|d| d.0));
    }
    atoms.extend(dims.iter().flatten().copied());
    let sizes: SmallVec<[i64; 8]> = atoms.iter().map(|&x| l.st.lins.size(x)).collect();
    let m: SmallVec<[_; 8]> = atoms.iter().map(|&x| Lins::plain(x)).collect();
    Tv { val: l.st.param(id, dt_of(a.dtype), &sizes, &m), dims }
}

/// Lifts both modules of a problem and searches variants as for a proof;
/// `each`: devices one by one.
pub fn pair(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    rules: Rules,
    prime: bool,
    each: bool,
) -> Pair {
    let problem = problem::setup(base, dist, claim);
    let o = Options::default();
    let a =
        decide::attempt(base, dist, claim, &problem, rules, prime, each, false, Instant::now(), &o);
    let Attempt { st, dev, base, dist, constants, .. } = a;
    Pair { store: st, devices: dev, base, dist, constants, problem }
}
