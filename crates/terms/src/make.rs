//! Hash-consing of nodes modulo renaming of axes.
//!
//! A node is given with its arguments over context atoms. Its class axes are
//! chosen as large as possible, so that the way a value is split over dims
//! and devices leaves no trace in the class:
//!
//! * index forms that share atoms with no other form (up to a constant) are
//!   abstracted whole: the class axis is the form's value, its domain the
//!   axis that is read (reads at constants and shifted reads included);
//! * atoms that several forms share are fused where every form that has one
//!   has the other in mixed-radix position (`coef_a = size_b * coef_b`);
//! * what is left becomes one axis per atom;
//! * reads at constants are abstracted too, unless a node has many.
//!
//! Commutative arguments are sorted by everything but axis names; ties are
//! tried in all orders, the least encoding wins, and the orders that tie for
//! it are the symmetries of the class.

use crate::coef::Coef;
use crate::lin::{Ax, BOUND_SLOT, FIRST_ATOM, Lin, LinId, Lins, UNBOUNDED};
use crate::store::{Arg, Class, ClassId, Dt, Op, Ref, Store};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::hash::Hasher;

/// First parameter id of values too wide to canonicalise.
pub(crate) const UNKNOWN: u32 = 1 << 30;

/// Most constant indices of a node that become axes; with more, all stay
/// inside (an unrolled loop over stacked weights adds one per iteration).
const MAX_CONSTS: usize = 4;

/// Most orders of tied arguments that are tried.
const MAX_ORDERS: usize = 720;

/// What to build.
pub(crate) struct Build<'a> {
    pub(crate) op: Op,
    pub(crate) dt: Dt,
    /// Arguments may be reordered.
    pub(crate) commutative: bool,
    /// Bound atoms (Sum, MaxR, AndR) or captured atoms in order (Opq, Pcs).
    pub(crate) bound: &'a [Ax],
    pub(crate) captured: bool,
    /// Own axes: size and the form the result is read at.
    pub(crate) own: &'a [(i64, LinId)],
}

/// An axis of the node before numbering.
struct Pa {
    size: i64,
    /// Position in `bound` if bound.
    bound: Option<usize>,
    /// The form in the context (free axes).
    ctx: LinId,
}

type PaTerms = SmallVec<[(i64, usize); 2]>;

/// All occurrences of one linear part.
struct Part {
    linear: LinId,
    is_const: bool,
    cmin: i64,
    domain: i64,
    terms: PaTerms,
    adjust: i64,
    isolated: bool,
}

/// One index form of one argument: its part and constant.
#[derive(Clone, Copy)]
struct Occ {
    part: usize,
    c: i64,
}

fn hash_key(k: &[u32]) -> u64 {
    let mut h = FxHasher::default();
    for &x in k {
        h.write_u32(x);
    }
    h.finish()
}

impl Store {
    /// A class without arguments.
    pub(crate) fn make_leaf(&mut self, op: Op, dt: Dt, sizes: &[i64]) -> ClassId {
        let mut key: SmallVec<[u32; 32]> = SmallVec::new();
        push_op(&mut key, op, dt);
        for &s in sizes {
            push_i64(&mut key, s);
        }
        self.lookup(&key, |_| Class {
            op,
            dt,
            nfree: sizes.len() as u16,
            sizes: SmallVec::from_slice(sizes),
            bound: SmallVec::new(),
            args: SmallVec::new(),
            autos: Vec::new(),
            forward: None,
            mark: 0,
            never_finite: matches!(op, Op::Const(crate::arith::NEG_INF | crate::arith::NAN)),
            doubtful: false,
        })
        .0
    }

    /// What [`Class::doubtful`] is for a node.
    fn doubtful(&self, op: Op, args: &[Arg]) -> bool {
        args.iter().any(|a| {
            let c = self.class(a.r.class);
            c.doubtful || c.never_finite && matches!(op, Op::Opq(_))
        })
    }

    /// What [`Class::never_finite`] is for a node.
    fn never_finite(&self, op: Op, args: &[Arg]) -> bool {
        let not = |a: &Arg| a.coef != Coef::ZERO && self.class(a.r.class).never_finite;
        match op {
            Op::Add => args.iter().any(not),
            // 0 * inf is NaN, but where an indicator is 0 the product is 0.
            Op::Prod | Op::Sum => {
                args.iter().any(|a| a.pow > 0 && not(a))
                    && !args.iter().any(|a| self.is_indicator(&a.r))
            }
            Op::Max => {
                let top = |a: &Arg| match self.class(a.r.class).op {
                    Op::Const(crate::arith::NEG_INF) => self.coefs.sign(a.coef) < 0,
                    Op::Const(crate::arith::NAN) => true,
                    _ => false,
                };
                args.iter().any(top) || args.iter().all(not)
            }
            Op::MaxR | Op::Pcs => args.iter().all(not),
            Op::Ew(s) if s == self.known.select => args.iter().skip(1).all(not),
            Op::Ew(s) if s == self.known.add || s == self.known.mul => args.iter().any(not),
            Op::Ew(s) => {
                let k = &self.known;
                (s == k.abs || s == k.sqrt || s == k.log || s == k.convert) && args.iter().all(not)
            }
            _ => false,
        }
    }

    fn key_of(&self, i: u32) -> &[u32] {
        let from = if i == 0 { 0 } else { self.key_ends[i as usize - 1] as usize };
        &self.keys[from..self.key_ends[i as usize] as usize]
    }

    fn lookup(&mut self, key: &[u32], new: impl FnOnce(&mut Self) -> Class) -> (ClassId, bool) {
        self.nodes_tried += 1;
        let h = hash_key(key);
        if let Some(&i) = self.table.find(h, |&i| self.key_of(i) == key) {
            return (ClassId(i), false);
        }
        let id = self.classes.len() as u32;
        let class = new(self);
        self.classes.push(class);
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u32);
        let (keys, ends) = (&self.keys, &self.key_ends);
        self.table.insert_unique(h, id, |&i| {
            let from = if i == 0 { 0 } else { ends[i as usize - 1] as usize };
            hash_key(&keys[from..ends[i as usize] as usize])
        });
        (ClassId(id), true)
    }

    /// Builds a node. For `Add` the coefficients are divided by that of the
    /// leading argument, which is returned as content (1 elsewhere).
    pub(crate) fn make(&mut self, b: &Build<'_>, mut args: SmallVec<[Arg; 4]>) -> (Ref, Coef) {
        if !b.bound.is_empty() && self.reads_by_table(&args, b.bound) {
            // The axis cannot be bound: nothing is known of the value.
            let mut axes = SmallVec::new();
            for a in &args {
                for &l in &a.r.m {
                    self.lins.base_axes(l, &mut axes);
                }
            }
            return (self.unknown(b, &axes), Coef::ONE);
        }
        // 1. Collect linear parts.
        let mut parts: SmallVec<[Part; 6]> = SmallVec::new();
        let mut occs: SmallVec<[SmallVec<[Occ; 4]>; 4]> = SmallVec::with_capacity(args.len());
        for a in &args {
            let mut o: SmallVec<[Occ; 4]> = SmallVec::with_capacity(a.r.m.len());
            let sizes = &self.classes[a.r.class.0 as usize].sizes;
            for (k, &l) in a.r.m.iter().enumerate() {
                let n = sizes[k];
                let is_const = self.lins.as_constant(l).is_some();
                let (linear, c) =
                    if is_const { (l, 0) } else { (self.lins.linear(l), self.lins.c0(l)) };
                let room = if n == UNBOUNDED { UNBOUNDED } else { n - c };
                let hit = parts
                    .iter()
                    .position(|p| p.linear == linear && (!is_const || p.domain == room));
                let part = match hit {
                    Some(i) => {
                        parts[i].cmin = parts[i].cmin.min(c);
                        i
                    }
                    None => {
                        parts.push(Part {
                            linear,
                            is_const,
                            cmin: c,
                            domain: room,
                            terms: PaTerms::new(),
                            adjust: 0,
                            isolated: false,
                        });
                        parts.len() - 1
                    }
                };
                if room < parts[part].domain {
                    parts[part].domain = room;
                }
                o.push(Occ { part, c });
            }
            occs.push(o);
        }
        // `domain` is the least `n - c`; over the shifted axis it is that plus cmin.
        // 2. Atoms and the parts they stand in.
        let mut atoms: SmallVec<[(Ax, u128); 8]> = SmallVec::new();
        let many = parts.len() > 120;
        let embed = many || parts.iter().filter(|p| p.is_const).count() > MAX_CONSTS;
        for (i, p) in parts.iter().enumerate() {
            if p.is_const {
                continue;
            }
            let bit = 1u128 << (i.min(127));
            self.lins.for_terms(p.linear, |_, a| match atoms.iter_mut().find(|x| x.0 == a) {
                Some(x) => x.1 |= bit,
                None => atoms.push((a, bit)),
            });
        }
        let mut pas: SmallVec<[Pa; 8]> = SmallVec::new();
        for i in 0..parts.len() {
            if parts[i].is_const && embed {
                parts[i].adjust = self.lins.c0(parts[i].linear);
                continue;
            }
            if parts[i].is_const {
                parts[i].terms.push((1, pas.len()));
                parts[i].isolated = true;
                pas.push(Pa { size: parts[i].domain, bound: None, ctx: parts[i].linear });
                continue;
            }
            if many {
                continue;
            }
            let bit = 1u128 << i;
            let mut alone = true;
            self.lins.for_terms(parts[i].linear, |_, a| {
                alone &= atoms.iter().any(|x| x.0 == a && x.1 == bit) && !b.bound.contains(&a);
            });
            if alone {
                let ctx = self.lins.shift(parts[i].linear, parts[i].cmin);
                let p = &mut parts[i];
                p.isolated = true;
                p.terms.push((1, pas.len()));
                let domain = if p.domain == UNBOUNDED { UNBOUNDED } else { p.domain + p.cmin };
                pas.push(Pa { size: domain, bound: None, ctx });
            }
        }
        // The free part of a form over free and bound atoms is abstracted too,
        // if its atoms stand nowhere else.
        let mut covered: SmallVec<[Ax; 8]> = SmallVec::new();
        if !many && !b.bound.is_empty() {
            self.free_parts(b, &mut parts, &mut pas, &atoms, &occs, &mut covered);
        }
        // 3. The other atoms, fused where possible.
        let first_shared = pas.len();
        let mut masks: SmallVec<[u128; 8]> = SmallVec::from_elem(0, first_shared);
        for &(a, mask) in &atoms {
            if covered.contains(&a) {
                continue;
            }
            let lone = mask.count_ones() == 1 && {
                let i = mask.trailing_zeros() as usize;
                i < parts.len() && parts[i].isolated
            };
            if lone && !many {
                continue;
            }
            let pa = pas.len();
            pas.push(Pa {
                size: self.lins.size(a),
                bound: b.bound.iter().position(|&x| x == a),
                ctx: Lins::plain(a),
            });
            masks.push(mask);
            for p in parts.iter_mut().filter(|p| !p.isolated) {
                self.lins.for_terms(p.linear, |c, t| {
                    if t == a {
                        p.terms.push((c, pa));
                    }
                });
            }
        }
        if pas.len() >= 250 {
            return (self.unknown(b, &atoms.iter().map(|a| a.0).collect::<Vec<_>>()), Coef::ONE);
        }
        if !many {
            self.fuse(b, &mut parts, &mut pas, &mut masks, first_shared);
        }
        // A bound axis that counts down more often than up is turned round; as
        // often: by the least classes that do not read it both ways alike.
        if !b.captured {
            let mut by_class: SmallVec<[usize; 8]> = (0..args.len()).collect();
            by_class.sort_by_key(|&k| (args[k].r.class, args[k].pow));
            for pa in first_shared..pas.len() {
                if pas[pa].bound.is_none() || pas[pa].size == 0 {
                    continue;
                }
                let (mut net, mut lead) = (0i64, 0i64);
                let mut i = 0;
                while i < by_class.len() {
                    let class = args[by_class[i]].r.class;
                    let mut group = 0i64;
                    while i < by_class.len() && args[by_class[i]].r.class == class {
                        for o in &occs[by_class[i]] {
                            for t in parts[o.part].terms.iter().filter(|t| t.1 == pa) {
                                group += t.0.signum();
                            }
                        }
                        i += 1;
                    }
                    net += group;
                    if lead == 0 {
                        lead = group;
                    }
                }
                if net < 0 || (net == 0 && lead < 0) {
                    turn(&mut parts, pa, pas[pa].size - 1);
                }
            }
        }
        for p in parts.iter_mut() {
            p.terms.sort_by(|x, y| {
                y.0.cmp(&x.0)
                    .then(pas[x.1].bound.is_some().cmp(&pas[y.1].bound.is_some()))
                    .then(pas[x.1].size.cmp(&pas[y.1].size))
            });
        }
        // 4. Order of the arguments.
        let shape = |a: usize, bb: usize| -> Ordering {
            let (x, y) = (&args[a], &args[bb]);
            x.r.class.cmp(&y.r.class).then(x.pow.cmp(&y.pow)).then_with(|| {
                for (p, q) in occs[a].iter().zip(&occs[bb]) {
                    let (pp, qp) = (&parts[p.part], &parts[q.part]);
                    let off = |o: &Occ, p: &Part| {
                        if p.isolated {
                            o.c - if p.is_const { 0 } else { p.cmin }
                        } else {
                            o.c + p.adjust
                        }
                    };
                    let o = off(p, pp).cmp(&off(q, qp)).then(pp.terms.len().cmp(&qp.terms.len()));
                    if o != Ordering::Equal {
                        return o;
                    }
                    for (s, t) in pp.terms.iter().zip(&qp.terms) {
                        let (sp, tp) = (&pas[s.1], &pas[t.1]);
                        let o =
                            s.0.cmp(&t.0)
                                .then(sp.bound.is_some().cmp(&tp.bound.is_some()))
                                .then(sp.size.cmp(&tp.size));
                        if o != Ordering::Equal {
                            return o;
                        }
                    }
                }
                Ordering::Equal
            })
        };
        let mut order: SmallVec<[usize; 8]> = (0..args.len()).collect();
        let mut content = Coef::ONE;
        let mut groups: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        if b.commutative && args.len() > 1 {
            order.sort_by(|&x, &y| shape(x, y));
            let same: SmallVec<[bool; 8]> = (1..order.len())
                .map(|i| shape(order[i - 1], order[i]) == Ordering::Equal)
                .collect();
            if b.op == Op::Add {
                content = self.leader(&args, &order, &same, b.dt);
            }
            if content != Coef::ONE {
                content = self.divide_all(&mut args, content);
            }
            // Equal shapes: by coefficient; equal coefficients too are ties.
            let mut i = 0;
            while i < order.len() {
                let mut j = i + 1;
                while j < order.len() && same[j - 1] {
                    j += 1;
                }
                if j - i > 1 {
                    order[i..j].sort_by_key(|&k| args[k].coef);
                    let mut s = i;
                    while s < j {
                        let mut e = s + 1;
                        while e < j && args[order[e]].coef == args[order[s]].coef {
                            e += 1;
                        }
                        if e - s > 1 {
                            groups.push((s, e));
                        }
                        s = e;
                    }
                }
                i = j;
            }
        } else if b.op == Op::Add && args.len() == 1 {
            content = self.leader(&args, &order, &[], b.dt);
            if content != Coef::ONE {
                content = self.divide_all(&mut args, content);
            }
        }
        // 5. Try the orders; the least encoding wins.
        let orders = groups
            .iter()
            .try_fold(1usize, |p, g| p.checked_mul((1..=g.1 - g.0).product()))
            .unwrap_or(usize::MAX);
        let autos_of = |s: &Store, k: usize| s.classes[args[k].r.class.0 as usize].autos.len();
        let flips = (0..args.len())
            .try_fold(1usize, |p, k| p.checked_mul(1 + autos_of(self, k)))
            .unwrap_or(usize::MAX);
        let total = orders.saturating_mul(flips);
        let mut best = self.encode(b, &args, &occs, &parts, &pas, &order, &[]);
        let mut autos: Vec<SmallVec<[u8; 6]>> = Vec::new();
        if total > 1 {
            let (orders, flips) = if total > MAX_ORDERS {
                self.tie_overflows += 1;
                for g in &groups {
                    let lins = &self.lins;
                    order[g.0..g.1].sort_by_cached_key(|&k| {
                        let f: Vec<(i64, Vec<(i64, i64, Ax)>)> = args[k]
                            .r
                            .m
                            .iter()
                            .map(|&l| {
                                let l = lins.get(l);
                                let t = l.terms.iter().map(|&(c, a)| (c, lins.size(a), a));
                                (l.c0, t.collect())
                            })
                            .collect();
                        f
                    });
                }
                best = self.encode(b, &args, &occs, &parts, &pas, &order, &[]);
                if flips <= MAX_ORDERS { (1, flips) } else { (1, 1) }
            } else {
                (orders, flips)
            };
            let mut winners: Vec<SmallVec<[usize; 8]>> = vec![best.free.clone()];
            for o in 0..orders {
                let ord = nth_order(&order, &groups, o);
                for f in 0..flips {
                    if o == 0 && f == 0 {
                        continue;
                    }
                    let mut flip: SmallVec<[usize; 4]> = SmallVec::new();
                    let mut r = f;
                    for k in 0..args.len() {
                        let n = 1 + autos_of(self, k);
                        flip.push(r % n);
                        r /= n;
                    }
                    let e = self.encode(b, &args, &occs, &parts, &pas, &ord, &flip);
                    match e.key.cmp(&best.key) {
                        Ordering::Less => {
                            winners.clear();
                            winners.push(e.free.clone());
                            best = e;
                        }
                        Ordering::Equal => {
                            if !winners.contains(&e.free) {
                                winners.push(e.free);
                            }
                        }
                        Ordering::Greater => {}
                    }
                }
            }
            let base = &winners[0];
            for w in &winners[1..] {
                let p: SmallVec<[u8; 6]> = w
                    .iter()
                    .map(|pa| base.iter().position(|x| x == pa).unwrap_or(0) as u8)
                    .collect();
                autos.push(p);
            }
        }
        // 6. Look up.
        let Encoded { key, free, bound, args: nargs } = best;
        let mut sizes: SmallVec<[i64; 4]> = free.iter().map(|&p| pas[p].size).collect();
        sizes.extend(b.own.iter().map(|o| o.0));
        let bsizes: SmallVec<[i64; 2]> = bound.iter().copied().collect();
        let (op, dt) = (b.op, b.dt);
        let (class, _) = self.lookup(&key, |st| Class {
            never_finite: st.never_finite(op, &nargs),
            doubtful: dt.0 >= Dt::FIRST && st.doubtful(op, &nargs),
            op,
            dt,
            nfree: free.len() as u16,
            sizes,
            bound: bsizes,
            args: nargs.into_iter().collect(),
            autos,
            forward: None,
            mark: 0,
        });
        let mut m: SmallVec<[LinId; 4]> = free.iter().map(|&p| pas[p].ctx).collect();
        m.extend(b.own.iter().map(|o| o.1));
        let mut r = Ref { class, m };
        self.least(&mut r);
        (r, content)
    }

    fn free_parts(
        &mut self,
        b: &Build<'_>,
        parts: &mut [Part],
        pas: &mut SmallVec<[Pa; 8]>,
        atoms: &[(Ax, u128)],
        occs: &[SmallVec<[Occ; 4]>],
        covered: &mut SmallVec<[Ax; 8]>,
    ) {
        let mut free: SmallVec<[Option<(LinId, i64)>; 8]> = SmallVec::new();
        for p in parts.iter() {
            let mut f = Lin::constant(0);
            let mut top = 0i64;
            let mut any_bound = false;
            if !p.isolated && !p.is_const {
                self.lins.for_terms(p.linear, |c, a| {
                    if b.bound.contains(&a) {
                        any_bound = true;
                        top += c.max(0) * (self.lins.size(a) - 1);
                    } else {
                        f.push(c, a);
                    }
                });
            }
            free.push(if any_bound && !f.terms.is_empty() {
                Some((self.lins.make(f), top))
            } else {
                None
            });
        }
        for i in 0..parts.len() {
            let Some((form, _)) = free[i] else { continue };
            if free[..i].iter().flatten().any(|f| f.0 == form) {
                continue;
            }
            let mut here = 0u128;
            for (k, f) in free.iter().enumerate() {
                if f.is_some_and(|f| f.0 == form) {
                    here |= 1 << k;
                }
            }
            let mut alone = true;
            self.lins.for_terms(form, |_, a| {
                alone &= atoms.iter().any(|x| x.0 == a && x.1 & !here == 0);
            });
            if !alone {
                continue;
            }
            let mine = |k: usize| here >> k & 1 == 1;
            let cmin =
                (0..parts.len()).filter(|&k| mine(k)).map(|k| parts[k].cmin).min().unwrap_or(0);
            // Domain: every occurrence stays in the axis it reads.
            let mut size = UNBOUNDED;
            for o in occs.iter().flatten().filter(|o| mine(o.part)) {
                let p = &parts[o.part];
                if p.domain != UNBOUNDED {
                    // `domain` is the least n - c of the part.
                    let top = free[o.part].map_or(0, |f| f.1);
                    size = size.min(p.domain + cmin - top);
                }
            }
            let ctx = self.lins.shift(form, cmin);
            let pa = pas.len();
            pas.push(Pa { size, bound: None, ctx });
            for (k, p) in parts.iter_mut().enumerate() {
                if mine(k) {
                    p.terms.push((1, pa));
                    p.adjust -= cmin;
                }
            }
            self.lins.for_terms(form, |_, a| covered.push(a));
        }
    }

    /// A value nothing is known of but the atoms it may depend on.
    fn unknown(&mut self, b: &Build<'_>, atoms: &[Ax]) -> Ref {
        let free: Vec<Ax> = atoms.iter().copied().filter(|a| !b.bound.contains(a)).collect();
        let sizes: SmallVec<[i64; 8]> =
            free.iter().map(|&a| self.lins.size(a)).chain(b.own.iter().map(|o| o.0)).collect();
        let id = self.unknowns;
        self.unknowns += 1;
        let class = self.make_leaf(Op::Param(UNKNOWN + id), b.dt, &sizes);
        let m = free.iter().map(|&a| Lins::plain(a)).chain(b.own.iter().map(|o| o.1)).collect();
        Ref { class, m }
    }

    fn fuse(
        &mut self,
        b: &Build<'_>,
        parts: &mut [Part],
        pas: &mut SmallVec<[Pa; 8]>,
        masks: &mut SmallVec<[u128; 8]>,
        first: usize,
    ) {
        'again: loop {
            for x in first..pas.len() {
                if pas[x].size == 0 {
                    continue;
                }
                for y in first..pas.len() {
                    if x == y || masks[x] != masks[y] || pas[y].size == 0 {
                        continue;
                    }
                    let both = (pas[x].bound.is_some(), pas[y].bound.is_some());
                    if both.0 != both.1 || (both.0 && b.captured) {
                        continue;
                    }
                    let n = pas[y].size;
                    let fits = |n: i64| {
                        parts.iter().all(|p| {
                            let cx = p.terms.iter().find(|t| t.1 == x).map(|t| t.0);
                            let cy = p.terms.iter().find(|t| t.1 == y).map(|t| t.0);
                            match (cx, cy) {
                                (None, None) => true,
                                (Some(cx), Some(cy)) => cy.checked_mul(n) == Some(cx),
                                _ => false,
                            }
                        })
                    };
                    if !fits(n) {
                        // A bound axis may count down where the other counts up.
                        if !both.0 || !self.rules.reals || !fits(-n) {
                            continue;
                        }
                        turn(parts, x, pas[x].size - 1);
                    }
                    let Some(size) = pas[x].size.checked_mul(n) else { continue };
                    if !both.0 {
                        let (cx, cy) = (pas[x].ctx, pas[y].ctx);
                        let Some(ctx) = self.lins.combine(&[(n, cx), (1, cy)]) else { continue };
                        pas[y].ctx = ctx;
                    }
                    pas[y].size = size;
                    // x is gone: size 0 marks it.
                    pas[x].size = 0;
                    for p in parts.iter_mut() {
                        p.terms.retain(|t| t.1 != x);
                    }
                    continue 'again;
                }
            }
            return;
        }
    }

    /// Coefficient that leads an Add: of the first argument in order; among
    /// equal shapes the one of largest magnitude, positive first. Integers:
    /// the gcd with the leader's sign.
    fn leader(&mut self, args: &[Arg], order: &[usize], same: &[bool], dt: Dt) -> Coef {
        let mut n = 1;
        while n <= same.len() && same[n - 1] {
            n += 1;
        }
        let mut lead = args[order[0]].coef;
        for &k in &order[1..n] {
            let c = args[k].coef;
            let (a, b) = (self.coefs.abs(c), self.coefs.abs(lead));
            let (ra, rb) = (self.coefs.get(a), self.coefs.get(b));
            if ra > rb || (ra == rb && self.coefs.sign(c) > self.coefs.sign(lead)) {
                lead = c;
            }
        }
        if dt == Dt::INT {
            let g = self.coefs.gcd(args.iter().map(|a| a.coef));
            return if self.coefs.sign(lead) < 0 { self.coefs.neg(g) } else { g };
        }
        lead
    }

    /// Divides all coefficients; gives up (returns 1) if one grows too long.
    fn divide_all(&mut self, args: &mut [Arg], by: Coef) -> Coef {
        let Some(inv) = self.coefs.inv(by) else { return Coef::ONE };
        let mut new: SmallVec<[Coef; 8]> = SmallVec::new();
        for a in args.iter() {
            match self.coefs.mul(a.coef, inv) {
                Some(c) => new.push(c),
                None => return Coef::ONE,
            }
        }
        for (a, c) in args.iter_mut().zip(new) {
            a.coef = c;
        }
        by
    }

    fn encode(
        &mut self,
        b: &Build<'_>,
        args: &[Arg],
        occs: &[SmallVec<[Occ; 4]>],
        parts: &[Part],
        pas: &[Pa],
        order: &[usize],
        flip: &[usize],
    ) -> Encoded {
        let mut slot: SmallVec<[u32; 8]> = SmallVec::from_elem(u32::MAX, pas.len());
        let mut free: SmallVec<[usize; 8]> = SmallVec::new();
        let mut bound: SmallVec<[i64; 4]> = SmallVec::new();
        if b.captured {
            for (k, &a) in b.bound.iter().enumerate() {
                bound.push(self.lins.size(a));
                if let Some(p) = pas.iter().position(|p| p.bound == Some(k)) {
                    slot[p] = BOUND_SLOT + k as u32;
                }
            }
        }
        let mut out: SmallVec<[Arg; 4]> = SmallVec::with_capacity(args.len());
        for &k in order {
            let a = &args[k];
            let perm = flip.get(k).and_then(|&f| f.checked_sub(1));
            let mut m: SmallVec<[LinId; 4]> = SmallVec::with_capacity(a.r.m.len());
            for i in 0..a.r.m.len() {
                let src = match perm {
                    Some(f) => {
                        let p = &self.classes[a.r.class.0 as usize].autos[f];
                        p.get(i).map_or(i, |&x| x as usize)
                    }
                    None => i,
                };
                let o = occs[k][src];
                let p = &parts[o.part];
                let c0 = if p.is_const && p.isolated {
                    0
                } else if p.isolated {
                    o.c - p.cmin
                } else {
                    o.c + p.adjust
                };
                let mut l = Lin::constant(c0);
                for &(c, pa) in &p.terms {
                    if slot[pa] == u32::MAX {
                        if pas[pa].bound.is_some() {
                            slot[pa] = BOUND_SLOT + bound.len() as u32;
                            bound.push(pas[pa].size);
                        } else {
                            slot[pa] = free.len() as u32;
                            free.push(pa);
                        }
                    }
                    l.terms.push((c, slot[pa]));
                }
                l.terms.sort_unstable_by(|x, y| y.0.cmp(&x.0).then(x.1.cmp(&y.1)));
                m.push(self.lins.intern(l));
            }
            out.push(Arg { coef: a.coef, pow: a.pow, r: Ref { class: a.r.class, m } });
        }
        // Bound axes that nothing reads count: one axis of their joint size.
        if !b.captured {
            let unread: i64 = (0..b.bound.len())
                .filter(|&k| !pas.iter().any(|p| p.bound == Some(k)))
                .map(|k| self.lins.size(b.bound[k]))
                .fold(1, i64::saturating_mul);
            if unread != 1 {
                bound.push(unread);
            }
        }
        let mut key: SmallVec<[u32; 32]> = SmallVec::new();
        push_op(&mut key, b.op, b.dt);
        key.push(free.len() as u32 | (bound.len() as u32) << 16);
        for &p in &free {
            push_i64(&mut key, pas[p].size);
        }
        for o in b.own {
            push_i64(&mut key, o.0);
        }
        for &s in &bound {
            push_i64(&mut key, s);
        }
        for a in &out {
            key.push(a.r.class.0);
            key.push(a.coef.0);
            key.push(a.pow as u32);
            key.extend(a.r.m.iter().map(|l| l.0));
        }
        debug_assert!(free.len() < 256 && (FIRST_ATOM as usize) > 512 + bound.len());
        Encoded { key, free, bound, args: out }
    }
}

/// Counts an axis from its last index `n` down.
fn turn(parts: &mut [Part], axis: usize, n: i64) {
    for p in parts.iter_mut() {
        for t in p.terms.iter_mut().filter(|t| t.1 == axis) {
            p.adjust += t.0 * n;
            t.0 = -t.0;
        }
    }
}

struct Encoded {
    key: SmallVec<[u32; 32]>,
    free: SmallVec<[usize; 8]>,
    bound: SmallVec<[i64; 4]>,
    args: SmallVec<[Arg; 4]>,
}

fn push_i64(key: &mut SmallVec<[u32; 32]>, v: i64) {
    key.push(v as u32);
    key.push((v >> 32) as u32);
}

fn push_op(key: &mut SmallVec<[u32; 32]>, op: Op, dt: Dt) {
    let (tag, x) = match op {
        Op::One => (0, 0),
        Op::Iota => (1, 0),
        Op::Param(i) => (2, i),
        Op::Const(i) => (3, i),
        Op::Arr(i) => (4, i),
        Op::Add => (5, 0),
        Op::Prod => (6, 0),
        Op::Sum => (7, 0),
        Op::Max => (8, 0),
        Op::MaxR => (9, 0),
        Op::And => (10, 0),
        Op::AndR => (11, 0),
        Op::Ew(s) => (12, s.0),
        Op::Opq(s) => (13, s.0),
        Op::Pcs => (14, 0),
    };
    key.push(tag | u32::from(dt.0) << 8);
    key.push(x);
}

/// The `n`-th way to order the tie groups.
fn nth_order(order: &[usize], groups: &[(usize, usize)], mut n: usize) -> SmallVec<[usize; 8]> {
    let mut out: SmallVec<[usize; 8]> = SmallVec::from_slice(order);
    for &(s, e) in groups {
        let mut pool: SmallVec<[usize; 8]> = SmallVec::from_slice(&order[s..e]);
        for i in s..e {
            let k = n % pool.len();
            n /= pool.len();
            out[i] = pool.remove(k);
        }
    }
    out
}
