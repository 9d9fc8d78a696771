//! The device id as digits, and the groups of collectives over them.

use scalify_ir::DeviceGroups;
use scalify_terms::{AtomKind, Ax, Lin, LinId, Lins};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// The devices of the distributed program. The device id is the mixed radix
/// number of the digits, major first.
#[derive(Clone, Debug)]
pub struct Devices {
    /// Number of devices.
    pub count: i64,
    /// Digits: atom and size, major first.
    pub digits: Vec<(Ax, i64)>,
    /// Mesh axis each digit belongs to, if a mesh is known.
    pub axis_of: Vec<Option<usize>>,
    /// Mesh axes (name, size), may be empty.
    pub mesh: Vec<(String, i64)>,
    /// What [`Devices::linear`] says of the tables met so far.
    known: RefCell<Vec<(Arc<[u32]>, Option<Coefs>)>>,
}

/// Coefficient of each digit.
type Coefs = SmallVec<[i64; 8]>;

/// Most tables of which the coefficients are kept.
const MAX_KNOWN: usize = 16;

/// Digits that vary within the groups of a collective, in group order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDigits {
    /// Indices into [`Devices::digits`], major first by position in the group.
    pub digits: SmallVec<[usize; 4]>,
    /// Devices per group.
    pub size: i64,
}

impl Devices {
    /// Devices of which the digits are the mesh axes, or with `prime` their
    /// prime factors.
    pub fn new(lins: &mut Lins, count: i64, mesh: &[(String, i64)], prime: bool) -> Self {
        let whole = [(String::new(), count)];
        let named = mesh.iter().map(|a| a.1).product::<i64>() == count && !mesh.is_empty();
        let axes = if named { mesh } else { &whole[..] };
        let mut digits = Vec::new();
        let mut axis_of = Vec::new();
        for (i, (_, size)) in axes.iter().enumerate() {
            let parts = if prime { primes(*size) } else { vec![*size] };
            for p in parts.into_iter().filter(|&p| p > 1) {
                digits.push((lins.fresh(p, AtomKind::Device), p));
                axis_of.push(named.then_some(i));
            }
        }
        let mesh = if named { mesh.to_vec() } else { Vec::new() };
        Devices { count, digits, axis_of, mesh, known: RefCell::default() }
    }

    /// Value of digit `k` on a device.
    fn digit(&self, device: i64, k: usize) -> i64 {
        let stride: i64 = self.digits[k + 1..].iter().map(|d| d.1).product();
        device / stride % self.digits[k].1
    }

    /// True if `tab` is the same on all devices that differ in digit `k` only.
    pub fn ignores(&self, tab: &[u32], k: usize) -> bool {
        let stride: i64 = self.digits[k + 1..].iter().map(|d| d.1).product();
        let at = |d: i64| usize::try_from(d).ok().and_then(|d| tab.get(d));
        (0..self.count).all(|d| at(d).is_some() && at(d) == at(d - self.digit(d, k) * stride))
    }

    /// The device id as a form.
    pub fn id(&self, lins: &mut Lins) -> LinId {
        let mut l = Lin::constant(0);
        let mut stride = 1;
        for &(a, n) in self.digits.iter().rev() {
            l.push(stride, a);
            stride *= n;
        }
        lins.make(l)
    }

    /// A table over device ids as a form.
    pub fn table(&self, lins: &mut Lins, tab: &[i64]) -> LinId {
        let axes: Vec<Ax> = self.digits.iter().map(|d| d.0).collect();
        let sizes: Vec<i64> = self.digits.iter().map(|d| d.1).collect();
        lins.from_table(&axes, &sizes, tab)
    }

    /// [`Devices::linear`] of the tiles of a placement. Clones of one table
    /// are looked at once.
    pub fn linear_tiles(&self, tiles: &Arc<[u32]>) -> Option<Coefs> {
        if let Some(k) = self.known.borrow().iter().find(|k| Arc::ptr_eq(&k.0, tiles)) {
            return k.1.clone();
        }
        let tab: Vec<i64> = tiles.iter().map(|&x| i64::from(x)).collect();
        let c = self.linear(&tab);
        let mut known = self.known.borrow_mut();
        if known.len() < MAX_KNOWN {
            known.push((tiles.clone(), c.clone()));
        }
        c
    }

    /// `tile * len + at` of each device as a form.
    pub fn start(&self, lins: &mut Lins, tiles: &Arc<[u32]>, len: i64, at: i64) -> LinId {
        match self.linear_tiles(tiles) {
            Some(c) => {
                let mut l = Lin::constant(at);
                for (&c, &(a, _)) in c.iter().zip(&self.digits) {
                    l.push(c * len, a);
                }
                lins.make(l)
            }
            None => {
                let tab: Vec<i64> = tiles.iter().map(|&x| at + i64::from(x) * len).collect();
                self.table(lins, &tab)
            }
        }
    }

    /// Coefficients of a table that is linear in the digits and 0 on device 0.
    pub fn linear(&self, tab: &[i64]) -> Option<Coefs> {
        if tab.len() as i64 != self.count || tab.first() != Some(&0) {
            return None;
        }
        let mut stride = self.count;
        let mut coefs: SmallVec<[i64; 8]> = SmallVec::new();
        let mut strides: SmallVec<[i64; 8]> = SmallVec::new();
        for &(_, n) in &self.digits {
            stride /= n;
            strides.push(stride);
            coefs.push(tab[stride as usize]);
        }
        for (dev, &v) in tab.iter().enumerate() {
            let mut s = 0;
            for k in 0..self.digits.len() {
                s += coefs[k] * (dev as i64 / strides[k] % self.digits[k].1);
            }
            if s != v {
                return None;
            }
        }
        Some(coefs)
    }

    /// The digits a list of groups runs over; `None` if the groups are not
    /// all of the same digits in the same order.
    pub fn group(&self, groups: &DeviceGroups) -> Option<GroupDigits> {
        let size = groups.first()?.len() as i64;
        if size == 0 || groups.len() as i64 * size != self.count {
            return None;
        }
        let mut pos = vec![-1i64; self.count as usize];
        for g in groups {
            if g.len() as i64 != size {
                return None;
            }
            for (p, &d) in g.iter().enumerate() {
                let at = pos.get_mut(usize::try_from(d).ok()?)?;
                if *at != -1 {
                    return None;
                }
                *at = p as i64;
            }
        }
        let coefs = self.linear(&pos)?;
        let mut inside: SmallVec<[usize; 4]> =
            (0..self.digits.len()).filter(|&k| coefs[k] != 0).collect();
        inside.sort_by_key(|&k| std::cmp::Reverse(coefs[k]));
        let mut stride = 1;
        for &k in inside.iter().rev() {
            if coefs[k] != stride {
                return None;
            }
            stride *= self.digits[k].1;
        }
        if stride != size {
            return None;
        }
        // Devices of one group agree on all other digits.
        for g in groups {
            for k in (0..self.digits.len()).filter(|k| !inside.contains(k)) {
                if g.iter().any(|&d| self.digit(d, k) != self.digit(g[0], k)) {
                    return None;
                }
            }
        }
        Some(GroupDigits { digits: inside, size })
    }

    /// True if the digit is a device atom of this description.
    pub fn is_device(&self, a: Ax) -> bool {
        self.digits.iter().any(|d| d.0 == a)
    }

    /// Mesh axis names of a set of digits, whole axes only; otherwise the
    /// digit as `devices/stride%size`.
    pub fn names(&self, digits: &[usize]) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for &k in digits {
            let name = match self.axis_of[k] {
                Some(a) => self.mesh[a].0.clone(),
                None if self.digits.len() == 1 => "devices".to_owned(),
                None => {
                    let stride: i64 = self.digits[k + 1..].iter().map(|d| d.1).product();
                    format!("device/{stride}%{}", self.digits[k].1)
                }
            };
            if out.last() != Some(&name) {
                out.push(name);
            }
        }
        out
    }
}

fn primes(mut n: i64) -> Vec<i64> {
    let mut out = Vec::new();
    let mut p = 2;
    while p * p <= n {
        while n % p == 0 {
            out.push(p);
            n /= p;
        }
        p += 1;
    }
    if n > 1 {
        out.push(n);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dev(count: i64, mesh: &[(&str, i64)], prime: bool) -> Devices {
        let mut l = Lins::default();
        let m: Vec<_> = mesh.iter().map(|a| (a.0.to_owned(), a.1)).collect();
        Devices::new(&mut l, count, &m, prime)
    }

    #[test]
    fn groups_are_read_with_their_order() {
        let d = dev(8, &[("c", 2), ("b", 2), ("a", 2)], false);
        // all_gather over ("c", "a") and over ("a", "c").
        let g = d.group(&vec![vec![0, 1, 4, 5], vec![2, 3, 6, 7]]).unwrap();
        assert_eq!(g.digits.as_slice(), &[0, 2]);
        let g = d.group(&vec![vec![0, 4, 1, 5], vec![2, 6, 3, 7]]).unwrap();
        assert_eq!(g.digits.as_slice(), &[2, 0]);
        // Groups whose members differ in different digits.
        assert_eq!(d.group(&vec![vec![0, 1], vec![2, 3], vec![4, 6], vec![5, 7]]), None);
        assert_eq!(d.group(&vec![vec![0, 1, 2]]), None, "not all devices");
        assert_eq!(d.group(&vec![vec![0, 0], vec![1, 1]]), None, "twice");
    }

    #[test]
    fn half_an_axis_needs_prime_digits() {
        let groups = vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
        assert_eq!(dev(8, &[("x", 8)], false).group(&groups), None);
        let g = dev(8, &[("x", 8)], true).group(&groups).unwrap();
        assert_eq!(g.digits.as_slice(), &[1, 2]);
    }
}
