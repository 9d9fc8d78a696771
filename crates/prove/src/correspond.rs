//! Which distributed values hold which elements of which baseline values.

use crate::Options;
use crate::decide::{self, Attempt};
use crate::problem::Problem;
use crate::tv::Tv;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use scalify_claim::Claim;
use scalify_ir::{DType, InstrId, Module};
use scalify_terms::{AtomKind, Ax, ClassId, Coef, LinId, Store};

/// An array-valued instruction as it is executed for the `visit`-th time
/// (from 0), calls and loops followed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct At {
    /// The instruction.
    pub instr: InstrId,
    /// How many times it was executed before.
    pub visit: u32,
}

/// A distributed value whose elements are elements of a baseline value over
/// the reals, under the laws that the best proof attempt used.
#[derive(Clone, PartialEq, Debug)]
pub struct Match {
    /// The baseline value.
    pub base: At,
    /// The distributed value.
    pub dist: At,
    /// Per device and element (row-major): device of the baseline (0 if it
    /// runs on one) and element there.
    pub elements: Vec<Vec<(u32, u32)>>,
    /// The coarsest element type of a baseline value with the same elements.
    pub coarsest: DType,
}

/// What [`correspond`] found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Correspondence {
    /// In the order of execution of the distributed program.
    pub matches: Vec<Match>,
    /// Times each instruction was followed; where a run differs, visits do
    /// not correspond.
    pub base_visits: Vec<u32>,
    /// See `base_visits`.
    pub dist_visits: Vec<u32>,
    /// Every output is proved.
    pub proved: bool,
}

/// Baseline values tried per distributed value.
const MAX_TRIES: usize = 4;

/// Matches of all distributed values that have a counterpart; those of more
/// than `max_elements` elements over all devices are left out.
pub(crate) fn correspond(
    base: &Module,
    dist: &Module,
    claim: &Claim,
    p: &Problem,
    options: &Options<'_>,
    max_elements: usize,
) -> Correspondence {
    let (mut a, grade) = decide::best(base, dist, claim, p, options, std::time::Instant::now());
    let visits = |recs: &[crate::lift::Lifted], n: usize| {
        let mut count = vec![0u32; n];
        let at: Vec<At> = recs
            .iter()
            .map(|r| {
                let c = &mut count[r.instr.0 as usize];
                *c += 1;
                At { instr: r.instr, visit: *c - 1 }
            })
            .collect();
        (at, count)
    };
    let (base_at, base_visits) = visits(&a.base, base.instrs.len());
    let (dist_at, dist_visits) = visits(&a.dist, dist.instrs.len());
    let mut classes: HashMap<(ClassId, Coef), Vec<u32>, FxBuildHasher> = HashMap::default();
    for k in 0..a.base.len() {
        if let (Some(t), None) = (a.base[k].tv.clone(), &a.base[k].failed) {
            let v = a.st.norm(t.val.clone());
            a.base[k].tv = Some(Tv { val: v.clone(), dims: t.dims });
            classes.entry((v.r.class, v.coef)).or_default().push(k as u32);
        }
    }
    let mut matches = Vec::new();
    let mut tables: HashMap<u32, Option<Table>, FxBuildHasher> = HashMap::default();
    for k in 0..a.dist.len() {
        let r = &a.dist[k];
        if r.failed.is_some() {
            continue;
        }
        let tvs: Vec<Tv> = match (&r.tv, &r.each) {
            (Some(t), _) => vec![t.clone()],
            (None, Some(e)) => e.to_vec(),
            _ => continue,
        };
        let at = dist_at[k];
        let elements = dist.array(at.instr).map_or(0, |s| s.elements().unwrap_or(i64::MAX));
        if elements.saturating_mul(p.devices) > max_elements as i64 {
            continue;
        }
        let tvs: Vec<Tv> =
            tvs.into_iter().map(|t| Tv { val: a.st.norm(t.val.clone()), dims: t.dims }).collect();
        let Some(list) = tvs.first().and_then(|t| classes.get(&(t.val.r.class, t.val.coef))) else {
            continue;
        };
        let op = dist.instr(at.instr).opcode;
        let types = list.iter().filter_map(|&b| base.dtype(base_at[b as usize].instr));
        let Some(coarsest) = types.min_by_key(|t| t.mantissa_bits().unwrap_or(99)) else {
            continue;
        };
        // The likeliest counterpart first.
        let mut order: Vec<u32> = list.clone();
        order.sort_by_key(|&b| {
            let i = base_at[b as usize].instr;
            let type_ = base.dtype(i) == dist.dtype(at.instr);
            let op = base.instr(i).opcode == op;
            let shape = crate::relate::comparable(base, dist, at.instr, i);
            std::cmp::Reverse(4 * u32::from(type_) + 2 * u32::from(op) + u32::from(shape))
        });
        for &b in order.iter().take(MAX_TRIES) {
            let table = tables
                .entry(b)
                .or_insert_with(|| Table::new(&a, b, base_at[b as usize], base, p, max_elements));
            let Some(elements) = table.as_ref().and_then(|t| {
                (0..p.devices)
                    .map(|d| {
                        let tv = tvs.get(d as usize).filter(|_| tvs.len() > 1).or(tvs.first())?;
                        t.read(&a, tv, d)
                    })
                    .collect::<Option<Vec<_>>>()
            }) else {
                continue;
            };
            matches.push(Match { base: base_at[b as usize], dist: at, elements, coarsest });
            break;
        }
    }
    Correspondence { matches, base_visits, dist_visits, proved: grade.is_some() }
}

/// An index form with its atoms resolved against dimensions and device
/// digits: `c0 + sum c * digit(position)`, tables apart.
struct Form {
    c0: i64,
    /// (coefficient, stride of the digit in the flat position, its size).
    linear: Vec<(i64, i64, i64)>,
    /// (coefficient, inner digits (stride, size), values).
    tables: Vec<(i64, Vec<(i64, i64)>, std::rc::Rc<[i64]>)>,
}

/// Position of an atom's digit: the device's digits are fixed numbers.
fn form(a: &Attempt, l: LinId, dims: &[(Ax, i64, i64)], device: i64) -> Option<Form> {
    let f = a.st.lins.get(l);
    let mut out = Form { c0: f.c0, linear: Vec::new(), tables: Vec::new() };
    let fixed = |x: Ax| -> Option<i64> {
        let k = a.dev.digits.iter().position(|d| d.0 == x)?;
        let stride: i64 = a.dev.digits[k + 1..].iter().map(|d| d.1).product();
        Some(device / stride % a.dev.digits[k].1)
    };
    for &(c, x) in &f.terms {
        if let Some(&(_, stride, size)) = dims.iter().find(|d| d.0 == x) {
            out.linear.push((c, stride, size));
        } else if let Some(v) = fixed(x) {
            out.c0 = out.c0.checked_add(c.checked_mul(v)?)?;
        } else if let AtomKind::Table { axes, tab } = &a.st.lins.atom(x).kind {
            // Digits of a fixed atom: stride 0 and its value as an offset.
            let mut inner = Vec::new();
            let (mut offset, mut scale) = (0i64, 1i64);
            let mut strides: Vec<(Ax, i64)> = Vec::new();
            for &y in axes.iter().rev() {
                strides.push((y, scale));
                scale = scale.checked_mul(a.st.lins.size(y))?;
            }
            let mut weights = Vec::new();
            for (y, w) in strides {
                if let Some(&(_, stride, size)) = dims.iter().find(|d| d.0 == y) {
                    inner.push((stride, size));
                    weights.push(w);
                } else {
                    offset += w * fixed(y)?;
                }
            }
            // The table as seen on this device, row-major over `inner`.
            let n: i64 = inner.iter().map(|d| d.1).product();
            let mut seen = Vec::with_capacity(usize::try_from(n).ok()?);
            for k in 0..n {
                let (mut rest, mut at) = (k, offset);
                for (j, d) in inner.iter().enumerate().rev() {
                    at += weights[j] * (rest % d.1);
                    rest /= d.1;
                }
                seen.push(*tab.get(usize::try_from(at).ok()?)?);
            }
            out.tables.push((c, inner, seen.into()));
        } else {
            return None;
        }
    }
    Some(out)
}

impl Form {
    fn at(&self, flat: i64) -> i64 {
        let mut v = self.c0;
        for &(c, stride, size) in &self.linear {
            v += c * (flat / stride % size);
        }
        for (c, inner, tab) in &self.tables {
            let k = inner.iter().fold(0, |k, &(stride, size)| k * size + flat / stride % size);
            v += c * tab.get(k as usize).copied().unwrap_or(0);
        }
        v
    }
}

/// Atoms of a value with strides in its flat position, and its size.
fn strides(st: &Store, t: &Tv) -> Option<(Vec<(Ax, i64, i64)>, i64)> {
    let mut out = Vec::new();
    let mut stride = 1i64;
    for &x in t.dims.iter().flatten().rev() {
        let n = st.lins.size(x);
        out.push((x, stride, n));
        stride = stride.checked_mul(n)?;
    }
    Some((out, stride))
}

fn forms(a: &Attempt, t: &Tv, device: i64) -> Option<(Vec<Form>, i64)> {
    let (dims, n) = strides(&a.st, t)?;
    let f = t.val.r.m.iter().map(|&l| form(a, l, &dims, device)).collect::<Option<_>>()?;
    Some((f, n))
}

/// Where a baseline value holds each read of its class.
struct Table {
    /// One map if the baseline runs on one device, else one per device.
    maps: Vec<HashMap<Vec<i64>, u32, FxBuildHasher>>,
}

impl Table {
    fn new(
        a: &Attempt,
        rec: u32,
        at: At,
        base: &Module,
        p: &Problem,
        max_elements: usize,
    ) -> Option<Table> {
        let t = a.base.get(rec as usize)?.tv.as_ref()?;
        let devices = if p.base_spmd { p.devices } else { 1 };
        let n = base.array(at.instr)?.elements()?;
        if n.checked_mul(devices)? > max_elements as i64 {
            return None;
        }
        let mut maps = Vec::new();
        for d in 0..devices {
            let (f, m) = forms(a, t, d)?;
            if m != n {
                return None;
            }
            let mut map = HashMap::default();
            for k in 0..n {
                map.entry(f.iter().map(|f| f.at(k)).collect::<Vec<i64>>()).or_insert(k as u32);
            }
            maps.push(map);
        }
        Some(Table { maps })
    }

    /// Elements of a distributed value on device `d`.
    fn read(&self, a: &Attempt, t: &Tv, d: i64) -> Option<Vec<(u32, u32)>> {
        let (f, n) = forms(a, t, d)?;
        let own = d as usize % self.maps.len();
        let mut key = vec![0i64; f.len()];
        (0..n)
            .map(|k| {
                for (x, f) in key.iter_mut().zip(&f) {
                    *x = f.at(k);
                }
                let hit = |m: usize| self.maps[m].get(&key).map(|&e| (m as u32, e));
                hit(own).or_else(|| (0..self.maps.len()).find_map(hit))
            })
            .collect()
    }
}
