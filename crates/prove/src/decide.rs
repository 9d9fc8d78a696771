//! Runs attempts at a proof, by one set of laws after another (`conclude` turns
//! the best one into an outcome).
//!
//! An attempt lifts the baseline, then the distributed program into the same
//! store. A distributed value whose term a baseline value has is *related*.
//! Where a value is not although its operands are, or where a reduction over
//! devices ends, other forms of the term are searched (variants); a hit
//! replaces the term, so that everything after it matches by construction.

use crate::conclude::outcome;
use crate::devices::Devices;
use crate::lift::known::Known;
use crate::lift::{Budget, ConstTable, Lifted, Lifter, Lv, Path, RegionInfo, Stop, Watcher, dt_of};
use crate::outcome::*;
use crate::outputs::{OutputCheck, check_output};
use crate::problem::{self, Problem};
use crate::tv::{Tv, TvOps};
use crate::{Options, memo, relate};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_claim::Claim;
use scalify_ir::{InstrId, Module, Opcode, Shape};
use scalify_terms::special::Special;
use scalify_terms::variants::VariantLimits;
use scalify_terms::{ClassId, Coef, Dt, Lins, Rules, Store, Val};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// Tag of the first distributed instruction in the log of assumptions.
pub(crate) const DIST_TAG: u32 = 1 << 31;
/// Most instructions that are lifted per program, loops unrolled.
const MAX_STEPS: usize = 8_000_000;
/// Outputs that may fail with all means; after that the programs are not equal
/// as far as this attempt can tell, and the rest is compared as it is.
const PATIENCE: usize = 8;
/// Bytes that a term takes, roughly; turns a memory limit into a term limit.
const BYTES_PER_CLASS: u64 = 700;

/// Everything an attempt leaves behind.
pub(crate) struct Attempt {
    pub(crate) st: Store,
    pub(crate) dev: Devices,
    pub(crate) base: Vec<Lifted>,
    pub(crate) dist: Vec<Lifted>,
    pub(crate) dist_paths: Vec<Path>,
    pub(crate) outputs: Vec<OutputCheck>,
    pub(crate) events: Vec<(u32, String)>,
    pub(crate) stop: Option<Stop>,
    pub(crate) replaced: usize,
    pub(crate) constants: Vec<crate::probe::Leaf>,
    /// Values were left out, see [`FAR`].
    pub(crate) lost: bool,
    /// For further distributed programs against the same baseline.
    lifted: LiftedBase,
    laws: Laws,
}

/// A lifted baseline beside its records.
struct LiftedBase {
    value: Lv,
    rec: u32,
    index: BaseIndex,
    consts: ConstTable,
    stop: Option<Stop>,
}

/// How an attempt lifts.
#[derive(Clone, Copy)]
pub(crate) struct Laws {
    pub(crate) rules: Rules,
    /// Devices are lifted one by one.
    pub(crate) each: bool,
    /// Values far from any relation are left out.
    pub(crate) glance: bool,
}

struct Clock {
    start: Instant,
    limit: Option<Duration>,
    steps: usize,
}

impl Budget for Clock {
    fn check(&mut self, st: &Store, steps: usize) -> Option<Stop> {
        if st.exhausted() {
            return Some(Stop::Nodes);
        }
        if steps > self.steps {
            return Some(Stop::Steps);
        }
        if self.limit.is_some_and(|l| self.start.elapsed() > l) {
            return Some(Stop::Time);
        }
        None
    }
}

/// Remembers which baseline record first had a term.
#[derive(Default)]
pub(crate) struct BaseIndex {
    by_term: HashMap<(ClassId, Coef), u32, FxBuildHasher>,
    classes: HashMap<ClassId, u32, FxBuildHasher>,
}

impl BaseIndex {
    pub(crate) fn find(&self, v: &Val) -> Option<u32> {
        self.by_term.get(&(v.r.class, v.coef)).copied()
    }

    pub(crate) fn find_class(&self, c: ClassId) -> Option<u32> {
        self.classes.get(&c).copied()
    }
}

impl Watcher for BaseIndex {
    fn value(&mut self, _: &mut Store, _: &Module, rec: &mut Lifted, all: &[Lifted], _: &Devices) {
        if rec.failed.is_some() {
            return;
        }
        if let Some(t) = &rec.tv {
            let id = all.len() as u32;
            self.by_term.entry((t.val.r.class, t.val.coef)).or_insert(id);
            self.classes.entry(t.val.r.class).or_insert(id);
        }
    }
}

/// Relates distributed values as they are lifted.
struct DistWatch<'a> {
    index: &'a BaseIndex,
    events: Vec<(u32, String)>,
    replaced: usize,
    search: bool,
    /// How far from a known value each one is, if that is asked.
    far: Option<Vec<u32>>,
    /// Values were left out.
    lost: bool,
}

/// Operations without any relation after which a first look gives up on what
/// follows: a fault, as forms that differ meet again sooner.
const FAR: u32 = 100;

impl Watcher for DistWatch<'_> {
    fn gives_up(&mut self, operands: &[u32], all: &[Lifted]) -> bool {
        let Some(far) = &mut self.far else { return false };
        let most = |far: &[u32], operands: &[u32]| {
            operands.iter().filter_map(|&o| far.get(o as usize)).max().copied().unwrap_or(0)
        };
        for r in all.iter().skip(far.len()) {
            let d = if r.known(all) { 0 } else { most(far, &r.operands).saturating_add(1) };
            far.push(d);
        }
        let gone = most(far, operands) > FAR;
        self.lost |= gone;
        gone
    }

    fn value(&mut self, st: &mut Store, m: &Module, rec: &mut Lifted, all: &[Lifted], _: &Devices) {
        if rec.failed.is_some() {
            return;
        }
        let mut vals: SmallVec<[Val; 1]> = match (&rec.tv, &rec.each) {
            (Some(t), _) => SmallVec::from_elem(t.val.clone(), 1),
            (None, Some(ts)) => ts.iter().map(|t| t.val.clone()).collect(),
            _ => return,
        };
        let index = self.index;
        let found = |vals: &[Val]| -> Option<u32> {
            let first = index.find(vals.first()?)?;
            vals[1..].iter().all(|v| index.find(v).is_some()).then_some(first)
        };
        rec.base = found(&vals);
        if rec.base.is_some() || !self.search {
            return;
        }
        let op = m.instr(rec.instr).opcode;
        let reduction =
            matches!(op, Opcode::AllReduce | Opcode::AllReduceStart | Opcode::ReduceScatter);
        let ready = rec.operands.iter().all(|&o| all.get(o as usize).is_none_or(|r| r.known(all)));
        let worth = matches!(
            op,
            Opcode::Dot
                | Opcode::Reduce
                | Opcode::Multiply
                | Opcode::Add
                | Opcode::Subtract
                | Opcode::Divide
                | Opcode::Convolution
        );
        // Products of several matrices are associated differently (absorbed
        // projections): a dot of an unmatched dot is worth a search too.
        let deep = st.rules.finite && op == Opcode::Dot;
        // Sums that the baseline may compute as one, or term by term: their
        // operands are no values of it.
        let apart = match op {
            Opcode::Add | Opcode::Subtract => st.may_join(&vals[0]),
            Opcode::Reduce | Opcode::Dot => st.may_split(&vals[0]),
            _ => false,
        };
        if !(reduction || deep || apart || (ready && worth)) || vals[0].dt == Dt::BOOL {
            return;
        }
        let mut changed = false;
        for val in vals.iter_mut() {
            // A multiple of a baseline value has its form already.
            if index.find_class(val.r.class).is_some() {
                continue;
            }
            let hit = st.search_variants(val, VariantLimits::default(), |_, w| {
                index.find_class(w.r.class).is_some()
            });
            if let Some(w) = hit {
                let before = st.show(val, 2);
                let after = st.show(&w, 2);
                self.events.push((all.len() as u32, format!("{before}  =  {after}")));
                self.replaced += 1;
                *val = w;
                changed = true;
            }
        }
        if !changed {
            return;
        }
        rec.base = found(&vals);
        match (&mut rec.tv, &mut rec.each) {
            (Some(t), _) => t.val = vals.remove(0),
            (None, Some(ts)) => {
                *ts =
                    ts.iter().zip(vals).map(|(t, val)| Tv { val, dims: t.dims.clone() }).collect();
            }
            _ => {}
        }
    }
}

struct Nothing;

impl Watcher for Nothing {
    fn value(&mut self, _: &mut Store, _: &Module, _: &mut Lifted, _: &[Lifted], _: &Devices) {}
}

/// The range that a claim declares of a baseline input, by its own name or its
/// distributed counterpart's.
pub(crate) fn declared_range(p: &Problem, claim: &Claim, b: usize) -> Option<(i64, i64)> {
    let names: Vec<&str> = p.base_inputs[b].names.iter().map(String::as_str).collect();
    let mut range = None;
    for x in &claim.assume {
        let other = p.pairs.iter().find(|q| q.base == Some(b)).map(|q| &p.dist_inputs[q.dist]);
        let hit = x.selector.matches(b, &names)
            || other.is_some_and(|o| {
                let n: Vec<&str> = o.names.iter().map(String::as_str).collect();
                matches!(x.selector, scalify_claim::Selector::Name(_))
                    && x.selector.matches(o.index, &n)
            });
        if hit {
            range = Some((x.lo, x.hi));
        }
    }
    range
}

/// Values of the entry parameters of a program.
fn param_values(
    l: &mut Lifter<'_>,
    p: &Problem,
    dist: bool,
    claim: &Claim,
    known: &HashMap<InstrId, Tv, FxBuildHasher>,
) -> Vec<Lv> {
    let leaves = if dist { &p.dist_inputs } else { &p.base_inputs };
    let mut vals: Vec<Lv> = Vec::new();
    for (k, leaf) in leaves.iter().enumerate() {
        let Shape::Array(a) = &leaf.shape else {
            vals.push(Lv::Token);
            continue;
        };
        let computed = p.computed.get(k).copied().flatten().filter(|_| dist);
        if let Some(t) = computed.and_then(|i| known.get(&i)) {
            let q = p.pairs[k].placement.as_ref();
            let v = q.map_or_else(|| Ok(t.clone()), |q| l.to_local(t, q));
            vals.push(v.map_or_else(|_| l.unknown_of(&leaf.shape), Lv::T));
            continue;
        }
        let (base, placement) =
            if dist { (p.pairs[k].base, p.pairs[k].placement.as_ref()) } else { (Some(k), None) };
        let Some(b) = base else {
            vals.push(l.unknown_of(&leaf.shape));
            continue;
        };
        let Shape::Array(g) = &p.base_inputs[b].shape else {
            vals.push(l.unknown_of(&leaf.shape));
            continue;
        };
        if g.dynamic != 0 || a.dynamic != 0 {
            vals.push(l.unknown_of(&leaf.shape));
            continue;
        }
        let id = b as u32;
        if let Some(&n) = p.natures.get(b) {
            l.st.set_param_nature(id, n);
        }
        if g.dtype.is_int() {
            let declared = declared_range(p, claim, b);
            let range = declared.or_else(|| {
                let (lo, hi) = g.dtype.int_range()?;
                Some((i64::try_from(lo).ok()?, i64::try_from(hi).ok()?))
            });
            if let Some((lo, hi)) = range {
                l.st.set_param_range(id, lo, hi);
            }
        }
        let dims = l.st.fresh_dims(&g.dims);
        let mut atoms: SmallVec<[_; 8]> = dims.iter().flatten().copied().collect();
        if p.local_inputs {
            // Devices that hold the same value do not tell it apart.
            let same = p.holders.get(b).map_or(&[][..], Vec::as_slice);
            let tells = |k: &usize| same.is_empty() || !l.dev.ignores(same, *k);
            let digits = (0..l.dev.digits.len()).filter(tells);
            atoms.extend(digits.map(|k| l.dev.digits[k].0));
        }
        let sizes: SmallVec<[i64; 8]> = atoms.iter().map(|&x| l.st.lins.size(x)).collect();
        let m: SmallVec<[_; 8]> = atoms.iter().map(|&x| Lins::plain(x)).collect();
        let val = l.st.param(id, dt_of(g.dtype), &sizes, &m);
        let t = Tv { val, dims };
        let t = match placement {
            Some(q) => match l.padded_to_tiles(&t, q, g.dtype).and_then(|t| l.to_local(&t, q)) {
                Ok(t) => t,
                Err(_) => {
                    vals.push(l.unknown_of(&leaf.shape));
                    continue;
                }
            },
            None => t,
        };
        vals.push(Lv::T(t));
    }
    if l.each {
        vals = vals.into_iter().map(|v| l.spread(&v).unwrap_or_else(|_| Lv::Token)).collect();
    }
    // Back into the parameters' tuples.
    let params = &l.m.entry_comp().params;
    let mut out: Vec<Lv> = Vec::new();
    let mut it = vals.into_iter();
    for &q in params {
        let s = l.m.shape(q).clone();
        out.push(regroup(&s, &mut it));
    }
    out
}

fn regroup(s: &Shape, it: &mut impl Iterator<Item = Lv>) -> Lv {
    match s {
        Shape::Tuple(t) => Lv::Tuple(t.iter().map(|x| regroup(x, it)).collect()),
        _ => it.next().unwrap_or(Lv::Token),
    }
}

/// Leaves of a value with the record that made each.
fn output_leaves(v: &Lv, rec: u32, recs: &[Lifted], m: &Module) -> Vec<(Lv, u32)> {
    match v {
        Lv::Tuple(t) => {
            let parts = recs.get(rec as usize).filter(|r| {
                m.instr(r.instr).opcode == Opcode::Tuple && r.operands.len() == t.len()
            });
            t.iter()
                .enumerate()
                .flat_map(|(k, x)| {
                    let r = parts.map_or(rec, |p| p.operands[k]);
                    output_leaves(x, r, recs, m)
                })
                .collect()
        }
        other => vec![(other.clone(), rec)],
    }
}

/// One attempt under the given laws; `each`: devices are lifted one by one;
/// `glance`: values far from any relation are not lifted.
pub(crate) fn attempt(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    rules: Rules,
    prime: bool,
    each: bool,
    glance: bool,
    start: Instant,
    options: &Options<'_>,
) -> Attempt {
    let mut st = Store::new(rules);
    if let Some(b) = options.memory_limit {
        st.max_classes = (b / BYTES_PER_CLASS).max(1000) as usize;
    }
    let mut clock = Clock { start, limit: options.time_limit, steps: MAX_STEPS };
    let mut consts = ConstTable::default();
    let dev = Devices::new(&mut st.lins, p.devices, &p.mesh, prime);
    let one = if p.base_spmd { dev.clone() } else { Devices::new(&mut st.lins, 1, &[], false) };
    let mut index = BaseIndex::default();
    if let Some(q) = options.progress {
        q.phase("baseline", Some(base.instrs.len() as u64));
    }
    let (value, rec, records, stop) = {
        let mut l = Lifter::new(
            base,
            &mut st,
            one,
            &mut index,
            &mut clock,
            &mut consts,
            RegionInfo::of(base),
            0,
        );
        l.replica_mode = p.replica_mode && p.base_spmd;
        let args = param_values(&mut l, p, false, claim, &HashMap::default());
        let (v, rec) = l.run(args);
        (v, rec, std::mem::take(&mut l.lifted), l.stop)
    };
    let lifted = LiftedBase { value, rec, index, consts, stop };
    let laws = Laws { rules, each, glance };
    against(st, dev, records, lifted, laws, base, dist, claim, p, clock, options, None)
}

/// The rest of an attempt: the distributed program against a lifted baseline.
fn against(
    mut st: Store,
    dev: Devices,
    base_recs: Vec<Lifted>,
    lifted: LiftedBase,
    laws: Laws,
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    mut clock: Clock,
    options: &Options<'_>,
    known: Option<Known<'_>>,
) -> Attempt {
    if let Some(q) = options.progress {
        q.phase("distributed", Some(dist.instrs.len() as u64));
    }
    // Symbols of this program are no symbols of the next.
    let mut consts = lifted.consts.clone();
    let mut watch = DistWatch {
        index: &lifted.index,
        events: Vec::new(),
        replaced: 0,
        search: laws.rules.reals,
        far: laws.glance.then(Vec::new),
        lost: false,
    };
    let mut computed: HashMap<InstrId, Tv, FxBuildHasher> = HashMap::default();
    if !p.computed.is_empty() {
        let values = base_recs.iter().filter_map(|r| Some((r.instr, r.tv.clone()?)));
        computed.extend(values);
    }
    let (dv, drec, dist_recs, dist_paths, stop2) = {
        let mut l = Lifter::new(
            dist,
            &mut st,
            dev.clone(),
            &mut watch,
            &mut clock,
            &mut consts,
            RegionInfo::of(dist),
            DIST_TAG,
        );
        l.replica_mode = p.replica_mode;
        l.each = laws.each;
        l.known = known;
        let args = param_values(&mut l, p, true, claim, &computed);
        let (v, rec) = l.run(args);
        (v, rec, std::mem::take(&mut l.lifted), std::mem::take(&mut l.paths), l.stop)
    };
    let mut stop = lifted.stop.or(stop2);
    let (events, replaced, lost) = (std::mem::take(&mut watch.events), watch.replaced, watch.lost);
    let mut outputs = Vec::new();
    if stop.is_none() {
        let b = output_leaves(&lifted.value, lifted.rec, &base_recs, base);
        let d = output_leaves(&dv, drec, &dist_recs, dist);
        let (bs, ds) = (problem::output_shapes(base), problem::output_shapes(dist));
        let n = b.len().max(d.len());
        let mut nothing = Nothing;
        let mut l = Lifter::new(
            dist,
            &mut st,
            dev.clone(),
            &mut nothing,
            &mut clock,
            &mut consts,
            RegionInfo::of(dist),
            DIST_TAG,
        );
        l.each = laws.each;
        let mut sp = [Special::default(), Special::deep()];
        let mut failed = 0;
        for k in 0..n {
            stop = l.budget.check(l.st, 0);
            if stop.is_some() {
                break;
            }
            let none = (Lv::Token, u32::MAX);
            let (x, y) = (b.get(k).unwrap_or(&none), d.get(k).unwrap_or(&none));
            sp.iter_mut().for_each(Special::renew);
            let shapes = (bs.get(k), ds.get(k));
            let sp = match (&p.layouts, failed < PATIENCE && !lost) {
                (None, true) => &mut sp[..],
                // Lemmas that need more are not worth it: the whole will tell.
                (Some(_), _) | (None, false) => &mut [],
            };
            let o = check_output(&mut l, k, x, y, shapes, p, claim, dist, sp);
            failed += usize::from(!o.proved);
            outputs.push(o);
            if p.layouts.is_some() && failed > LOST {
                break;
            }
        }
    }
    let constants = consts.leaves();
    // Leaves of the next program are new ones.
    let lifted = LiftedBase { consts: lifted.consts.after(&consts), ..lifted };
    Attempt {
        st,
        dev,
        base: base_recs,
        dist: dist_recs,
        dist_paths,
        outputs,
        events,
        stop,
        replaced,
        constants,
        lost,
        lifted,
        laws,
    }
}

impl Attempt {
    /// The same attempt with another distributed program of the same
    /// interface, mostly an edit of `known`, if that is given. Assumptions of earlier ones stay
    /// in the log.
    pub(crate) fn again(
        self,
        base: &Module,
        dist: &Module,
        claim: &Claim,
        p: &Problem,
        options: &Options<'_>,
        known: Option<Known<'_>>,
    ) -> Attempt {
        let clock = Clock { start: Instant::now(), limit: options.time_limit, steps: MAX_STEPS };
        let Attempt { st, dev, base: records, lifted, laws, .. } = self;
        let laws = Laws { glance: false, ..laws };
        against(st, dev, records, lifted, laws, base, dist, claim, p, clock, options, known)
    }

    /// By laws that hold to the bit.
    pub(crate) fn is_exact(&self) -> bool {
        !self.laws.rules.reals
    }

    /// Grade, if every output is proved.
    pub(crate) fn grade(&self, claim: &Claim, p: &Problem) -> Option<Grade> {
        if !proved(self) {
            return None;
        }
        let assumed = !claim.assume.is_empty() || !p.assumed.is_empty();
        Some(match grade_of(self) {
            _ if self.is_exact() => Grade::Exact,
            Grade::Reassociated if assumed => Grade::UnderAssumptions,
            g => g,
        })
    }
}

fn sums_over_devices(m: &Module) -> bool {
    m.instrs.iter().any(|i| {
        matches!(i.opcode, Opcode::AllReduce | Opcode::AllReduceStart | Opcode::ReduceScatter)
            && m.shapes[i.shape.0 as usize]
                .leaves()
                .iter()
                .any(|s| s.dtype().is_some_and(|d| d.is_float()))
            && i.calls.first().is_none_or(|c| m.instr(m.comp(*c).root).opcode == Opcode::Add)
    })
}

pub(crate) fn proved(a: &Attempt) -> bool {
    a.stop.is_none() && !a.outputs.is_empty() && a.outputs.iter().all(|o| o.proved)
}

/// Results of lemmas that are not proved, after which the others are not asked
/// for: more than one place is at fault, or a law is missing.
const LOST: usize = 8;

/// Most records, over all devices, of an attempt that lifts them one by one.
const MAX_EACH: usize = 100_000;

/// Most devices that are lifted one by one.
const MAX_DEVICES: i64 = 16;

/// True if devices may do different work: then each is worth a look.
fn tells_devices_apart(m: &Module) -> bool {
    m.instrs.iter().any(|i| {
        matches!(
            i.opcode,
            Opcode::PartitionId
                | Opcode::ReplicaId
                | Opcode::CollectivePermute
                | Opcode::CollectivePermuteStart
                | Opcode::CollectiveBroadcast
        )
    })
}

pub(crate) fn grade_of(a: &Attempt) -> Grade {
    if a.st.log.is_empty() { Grade::Reassociated } else { Grade::UnderAssumptions }
}

/// Tries the weakest laws that suffice.
pub(crate) fn best(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    start: Instant,
) -> (Attempt, Option<Grade>) {
    let (a, grade) = first(base, dist, claim, p, options, start, false);
    if grade.is_some() || a.stop.is_some() {
        return (a, grade);
    }
    // Its memory serves the next one.
    drop(a);
    rest(base, dist, claim, p, options, start)
}

pub(crate) const EXACT: Rules = Rules { reals: false, finite: false };
pub(crate) const REALS: Rules = Rules { reals: true, finite: false };
const FINITE: Rules = Rules { reals: true, finite: true };

/// Every value of the distributed program is the baseline's or moved.
pub(crate) fn moves_only(dist: &Module, p: &Problem) -> bool {
    !sums_over_devices(dist) && p.errors.is_empty()
}

/// The laws that hold for all values.
fn first(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    start: Instant,
    glance: bool,
) -> (Attempt, Option<Grade>) {
    if moves_only(dist, p) {
        let a = attempt(base, dist, claim, p, EXACT, false, false, glance, start, options);
        if proved(&a) {
            return (a, Some(Grade::Exact));
        }
    }
    let a = attempt(base, dist, claim, p, REALS, false, false, glance, start, options);
    let grade = proved(&a).then(|| grade_of(&a));
    (a, grade)
}

/// The laws that need finite values, and devices apart.
fn rest(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    start: Instant,
) -> (Attempt, Option<Grade>) {
    let run = |rules: Rules, prime: bool, each: bool| {
        attempt(base, dist, claim, p, rules, prime, each, false, start, options)
    };
    let (exact, reals, finite) = (EXACT, REALS, FINITE);
    let moves_only = moves_only(dist, p);
    let mut a = run(finite, false, false);
    if proved(&a) {
        let g = grade_of(&a);
        return (a, Some(g));
    }
    // Groups across parts of an axis need finer digits.
    let split = a.st.lins.has_device_tables()
        || a.dist.iter().any(|r| r.failed.as_deref().is_some_and(|f| f.contains("device")));
    if split && a.stop.is_none() {
        let b = run(finite, true, false);
        if proved(&b) {
            let g = grade_of(&b);
            return (b, Some(g));
        }
        if b.outputs.iter().filter(|o| o.proved).count()
            > a.outputs.iter().filter(|o| o.proved).count()
        {
            a = b;
        }
    }
    // Devices one by one: all laws first, as most attempts fail with any.
    let small = p.devices > 1
        && p.devices <= MAX_DEVICES
        && a.dist.len().saturating_mul(p.devices as usize) <= MAX_EACH;
    if a.stop.is_none() && p.errors.is_empty() && !p.base_spmd && small && tells_devices_apart(dist)
    {
        let e = run(finite, false, true);
        if proved(&e) {
            if moves_only {
                let w = run(exact, false, true);
                if proved(&w) {
                    return (w, Some(Grade::Exact));
                }
            }
            let w = run(reals, false, true);
            let e = if proved(&w) { w } else { e };
            let g = grade_of(&e);
            return (e, Some(g));
        }
    }
    (a, None)
}

/// See [`crate::verify`].
pub(crate) fn verify(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
) -> Outcome {
    let t0 = Instant::now();
    let p = problem::setup(base, dist, claim);
    match memo::prove(base, dist, claim, &p, options, t0) {
        memo::Answer::Proved(o) => o,
        _ => verify_with(base, dist, claim, options, p, t0).0,
    }
}

/// [`verify`] without lemmas, with what it leaves behind.
pub(crate) fn verify_with(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    p: Problem,
    t0: Instant,
) -> (Outcome, Problem, Attempt) {
    let (mut a, grade) = best(base, dist, claim, &p, options, t0);
    let outcome = outcome(&mut a, grade, base, dist, claim, &p, options, t0, false);
    (outcome, p, a)
}

/// Instructions of both programs from which on a first look is worth it.
pub(crate) const MANY: usize = 10_000;

/// [`verify_with`], but `early` is asked first where the first attempt, without
/// what is far from any relation, fails on a big pair: what it makes of that
/// ends the matter; else `then` gets what all attempts come to.
pub(crate) fn verify_early<T>(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    p: Problem,
    t0: Instant,
    early: impl FnOnce(Outcome, Problem, Attempt) -> Option<T>,
    then: impl FnOnce(Outcome, Problem, Attempt) -> T,
) -> T {
    if base.instrs.len() + dist.instrs.len() < MANY {
        let (o, p, a) = verify_with(base, dist, claim, options, p, t0);
        return then(o, p, a);
    }
    let (mut a, mut grade) = first(base, dist, claim, &p, options, t0, true);
    if grade.is_none() && a.stop.is_none() {
        if p.errors.is_empty() {
            let (lost, q) = (a.lost, p.clone());
            let o = outcome(&mut a, None, base, dist, claim, &p, options, t0, true);
            if let Some(t) = early(o, q, a) {
                return t;
            }
            (a, grade) = if lost {
                best(base, dist, claim, &p, options, t0)
            } else {
                rest(base, dist, claim, &p, options, t0)
            };
        } else {
            drop(a);
            (a, grade) = best(base, dist, claim, &p, options, t0);
        }
    }
    let outcome = outcome(&mut a, grade, base, dist, claim, &p, options, t0, false);
    then(outcome, p, a)
}

/// See [`crate::explain`].
pub(crate) fn explain(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    instr: InstrId,
) -> Vec<ExplainStep> {
    let p = problem::setup(base, dist, claim);
    let (mut a, _) = best(base, dist, claim, &p, options, Instant::now());
    relate::explain(&mut a, base, dist, instr)
}

/// Terms of the outputs, baseline and distributed, in index notation. `each`:
/// of the attempt that lifts the devices one by one, on the last device.
pub(crate) fn output_terms(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    options: &Options<'_>,
    depth: u32,
    each: bool,
) -> Vec<(bool, String, String)> {
    let p = problem::setup(base, dist, claim);
    let a = if each {
        let rules = Rules { reals: true, finite: true };
        attempt(base, dist, claim, &p, rules, false, true, false, Instant::now(), options)
    } else {
        best(base, dist, claim, &p, options, Instant::now()).0
    };
    let show = |t: Option<&Tv>| t.map(|t| a.st.show(&t.val, depth)).unwrap_or_default();
    a.outputs
        .iter()
        .map(|o| {
            let each = a.dist.get(o.dist_rec as usize).and_then(|r| r.each.as_ref());
            let d = o.dist.as_ref().or_else(|| each.and_then(|e| e.last()));
            (o.proved, show(o.base.as_ref()), show(d))
        })
        .collect()
}
