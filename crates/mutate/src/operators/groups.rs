//! Device groups of collectives and pairs of permutations.

use super::collective::attrs;
use super::{Operator, Site};
use crate::edit::Edit;
use crate::random::Random;
use scalify_ir::{Attrs, DeviceGroups, InstrId, Module, Opcode, ReplicaGroups};

const fn operator(
    name: &'static str,
    about: &'static str,
    edit: fn(&mut Edit, Site, &mut Random) -> Option<()>,
) -> Operator {
    Operator { name, about, equal: false, ways: grouped, edit }
}

pub(super) const OPERATORS: &[Operator] = &[
    operator("group-transpose", "the table of groups is read by columns", |e, s, _| {
        with(e, s, |g, _| {
            let n = g.first()?.len();
            if g.len() < 2 || n < 2 || g.iter().any(|x| x.len() != n) {
                return None;
            }
            let flat: Vec<i64> = (0..n).flat_map(|k| g.iter().map(move |x| x[k])).collect();
            Some(flat.chunks(n).map(<[i64]>::to_vec).collect())
        })
    }),
    operator("group-split", "an all-reduce within halves of its groups", |e, s, _| {
        with(e, s, |g, op| {
            let n = g.first()?.len();
            if op != Opcode::AllReduce || n < 2 || n % 2 != 0 {
                return None;
            }
            Some(g.iter().flat_map(|x| x.chunks(n / 2).map(<[i64]>::to_vec)).collect())
        })
    }),
    operator("group-merge", "an all-reduce over pairs of its groups together", |e, s, _| {
        with(e, s, |g, op| {
            if op != Opcode::AllReduce || g.len() < 2 || g.len() % 2 != 0 {
                return None;
            }
            Some(g.chunks(2).map(<[Vec<i64>]>::concat).collect())
        })
    }),
    operator(
        "group-order",
        "members of all groups in another order, the same in each",
        |e, s, r| {
            let n = attrs(&e.m, s.instr)?.groups.expand(e.devices)?.first()?.len();
            let mut p: Vec<usize> = (0..n).collect();
            r.shuffle(&mut p);
            with(e, s, |g, _| {
                g.iter().map(|x| p.iter().map(|&k| x.get(k).copied()).collect()).collect()
            })
        },
    ),
    operator("group-order-one", "two members of one group change places", |e, s, r| {
        let k = r.bits() as usize;
        with(e, s, |g, _| {
            let mut g = g.clone();
            let c = k % g.len().max(1);
            let x = g.get_mut(c)?;
            if x.len() < 2 {
                return None;
            }
            let at = k / 7 % (x.len() - 1);
            x.swap(at, at + 1);
            Some(g)
        })
    }),
    operator("group-shift", "every member is replaced by the next device", |e, s, _| {
        let n = e.devices;
        with(e, s, |g, _| Some(g.iter().map(|x| x.iter().map(|d| (d + 1) % n).collect()).collect()))
    }),
    operator("group-exchange", "two groups exchange a member", |e, s, r| {
        let k = r.bits() as usize;
        with(e, s, |g, _| {
            if g.len() < 2 {
                return None;
            }
            let mut g = g.clone();
            let (a, b) = (k % (g.len() - 1), k % (g.len() - 1) + 1);
            let at = k / 7 % g[a].len().min(g[b].len()).max(1);
            let (x, y) = (*g[a].get(at)?, *g[b].get(at)?);
            g[a][at] = y;
            g[b][at] = x;
            Some(g)
        })
    }),
    Operator {
        name: "group-list-order",
        about: "groups listed in another order (equal)",
        equal: true,
        ways: grouped,
        edit: |e, s, _| with(e, s, |g, _| Some(g.iter().rev().cloned().collect())),
    },
    Operator {
        name: "permute-reverse",
        about: "sources and targets of a permutation change places",
        equal: false,
        ways: permute,
        edit: |e, s, _| {
            pairs(e, s, "reversed", |v, _| Some(v.iter().map(|p| (p.1, p.0)).collect()))
        },
    },
    Operator {
        name: "permute-shift",
        about: "a permutation sends to the next device",
        equal: false,
        ways: permute,
        edit: |e, s, _| {
            pairs(e, s, "targets + 1", |v, n| {
                Some(v.iter().map(|p| (p.0, (p.1 + 1) % n)).collect())
            })
        },
    },
    Operator {
        name: "permute-drop-pair",
        about: "a permutation lacks one pair",
        equal: false,
        ways: permute,
        edit: |e, s, r| {
            let k = r.bits() as usize;
            pairs(e, s, "lacks a pair", |v, _| {
                let mut v = v.to_vec();
                if v.is_empty() {
                    return None;
                }
                v.remove(k % v.len());
                Some(v)
            })
        },
    },
    Operator {
        name: "permute-exchange",
        about: "two pairs of a permutation exchange targets",
        equal: false,
        ways: permute,
        edit: |e, s, r| {
            let k = r.bits() as usize;
            pairs(e, s, "two targets exchanged", |v, _| {
                let mut v = v.to_vec();
                if v.len() < 2 {
                    return None;
                }
                let a = k % (v.len() - 1);
                let t = v[a].1;
                v[a].1 = v[a + 1].1;
                v[a + 1].1 = t;
                Some(v)
            })
        },
    },
];

fn grouped(m: &Module, _: scalify_ir::CompId, i: InstrId) -> u32 {
    use Opcode::*;
    let op = matches!(m.instr(i).opcode, AllGather | AllReduce | AllToAll | ReduceScatter);
    u32::from(op && attrs(m, i).is_some())
}

fn permute(m: &Module, _: scalify_ir::CompId, i: InstrId) -> u32 {
    u32::from(m.instr(i).opcode == Opcode::CollectivePermute)
}

fn with(
    e: &mut Edit,
    s: Site,
    f: impl FnOnce(&DeviceGroups, Opcode) -> Option<DeviceGroups>,
) -> Option<()> {
    let mut a = attrs(&e.m, s.instr)?.clone();
    let old = a.groups.expand(e.devices)?;
    let new = f(&old, e.m.instr(s.instr).opcode)?;
    if new == old {
        return None;
    }
    e.text = format!("groups {new:?}, were {old:?}");
    a.groups = ReplicaGroups::List(new);
    e.instr_mut(s.instr).attrs = Attrs::Collective(Box::new(a));
    Some(())
}

fn pairs(
    e: &mut Edit,
    s: Site,
    text: &str,
    f: impl FnOnce(&[(i64, i64)], i64) -> Option<Vec<(i64, i64)>>,
) -> Option<()> {
    let mut a = attrs(&e.m, s.instr)?.clone();
    let new = f(&a.pairs, e.devices)?;
    let mut sorted = (new.clone(), a.pairs.clone());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    if sorted.0 == sorted.1 {
        return None;
    }
    e.text = format!("pairs {text}: {new:?}");
    a.pairs = new;
    e.instr_mut(s.instr).attrs = Attrs::Collective(Box::new(a));
    Some(())
}
