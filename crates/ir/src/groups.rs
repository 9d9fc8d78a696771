//! Which devices take part in a collective.

use crate::Symbol;
use smallvec::SmallVec;

/// `[dims]<=[reshape]T(perm)`: the iota `0..n` reshaped, transposed and
/// reshaped again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IotaTile {
    /// Final dimensions.
    pub dims: SmallVec<[i64; 4]>,
    /// Dimensions of the iota before the transpose.
    pub reshape: SmallVec<[i64; 4]>,
    /// Transpose; the identity if none is printed.
    pub perm: SmallVec<[u32; 4]>,
}

impl IotaTile {
    /// Number of devices; `None` if sizes are not positive, there are more
    /// than 2^24, or `perm` is no permutation.
    pub fn device_count(&self) -> Option<i64> {
        let rank = self.reshape.len();
        let is_perm = self.perm.len() == rank
            && self
                .perm
                .iter()
                .enumerate()
                .all(|(i, &p)| (p as usize) < rank && !self.perm[..i].contains(&p));
        let n = product(&self.reshape)?;
        (is_perm && (1..=MAX_DEVICES).contains(&n)).then_some(n)
    }

    /// The device ids in row-major order of `dims`; empty if
    /// [`IotaTile::device_count`] is `None`.
    pub fn expand(&self) -> Vec<i64> {
        if self.device_count().is_none() {
            return Vec::new();
        }
        let n: i64 = self.reshape.iter().product();
        let rank = self.reshape.len();
        let mut strides = vec![1i64; rank];
        for i in (0..rank.saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * self.reshape[i + 1];
        }
        let sizes: Vec<i64> = self.perm.iter().map(|&p| self.reshape[p as usize]).collect();
        let steps: Vec<i64> = self.perm.iter().map(|&p| strides[p as usize]).collect();
        let mut out = Vec::with_capacity(n as usize);
        for mut k in 0..n {
            let mut v = 0;
            for i in (0..rank).rev() {
                v += k % sizes[i] * steps[i];
                k /= sizes[i];
            }
            out.push(v);
        }
        out
    }
}

/// Most devices that a group form may name.
const MAX_DEVICES: i64 = 1 << 24;

/// Product of positive sizes; `None` on overflow or a size below 1.
fn product(sizes: &[i64]) -> Option<i64> {
    sizes.iter().try_fold(1i64, |a, &d| if d < 1 { None } else { a.checked_mul(d) })
}

/// A mesh axis or a part of one: `'x'` or `'x':(pre)size`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AxisRef {
    /// Index into [`MeshGroups::axes`].
    pub axis: u32,
    /// `(pre_size, size)` of a sub-axis.
    pub sub: Option<(i64, i64)>,
}

/// `mesh['x'=2,'y'=4], device_ids=(..) {'x'}`: groups over named mesh axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeshGroups {
    /// Mesh axes, major first.
    pub axes: Vec<(Symbol, i64)>,
    /// Device order of the mesh if not the identity.
    pub device_ids: Option<DeviceOrder>,
    /// The axes that vary within a group, major first.
    pub group_axes: Vec<AxisRef>,
}

/// Device order of a mesh.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DeviceOrder {
    /// Explicit ids, row-major over the mesh.
    List(Vec<i64>),
    /// Iota form.
    Iota(IotaTile),
}

/// The replica groups of a collective, in the textual form they came in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReplicaGroups {
    /// `{{0,1},{2,3}}`; empty means all devices in one group.
    List(Vec<Vec<i64>>),
    /// `[groups,size]<=[..]T(..)`.
    Iota(IotaTile),
    /// Mesh-axes form.
    Mesh(MeshGroups),
}

/// Meaning of the ids in a group, from `channel_id` and
/// `use_global_device_ids` (XLA's `CollectiveOpGroupMode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupMode {
    /// No channel id: ids are replicas, within one partition.
    CrossReplica,
    /// Channel id of a partition-only collective: ids are partitions.
    CrossPartition,
    /// Channel id, no global ids: ids are replicas, all partitions take part.
    CrossReplicaAndPartition,
    /// Channel id and global ids: flattened `replica * partitions + partition`.
    FlattenedId,
}

/// Expanded groups: device ids in order.
pub type DeviceGroups = Vec<Vec<i64>>;

impl ReplicaGroups {
    /// All devices in one group (`replica_groups={}`).
    pub fn all() -> Self {
        ReplicaGroups::List(Vec::new())
    }

    /// Number of devices that a mesh or iota form names; `None` for lists and
    /// forms that are not well made.
    pub fn device_count(&self) -> Option<i64> {
        match self {
            ReplicaGroups::List(_) => None,
            ReplicaGroups::Iota(t) => t.device_count(),
            ReplicaGroups::Mesh(m) => m.device_count(),
        }
    }

    /// The groups as id lists in order. `devices` is used where the text
    /// says "all". Returns `None` if the form is not well made (sizes do not
    /// multiply up), never panics.
    pub fn expand(&self, devices: i64) -> Option<DeviceGroups> {
        match self {
            ReplicaGroups::List(l) if l.is_empty() => Some(vec![(0..devices).collect()]),
            ReplicaGroups::List(l) => Some(l.clone()),
            ReplicaGroups::Iota(t) => {
                let size = *t.dims.last()?;
                if product(&t.dims)? != t.device_count()? {
                    return None;
                }
                Some(t.expand().chunks(size as usize).map(<[i64]>::to_vec).collect())
            }
            ReplicaGroups::Mesh(m) => m.expand(),
        }
    }
}

impl MeshGroups {
    fn device_count(&self) -> Option<i64> {
        let n = self.axes.iter().try_fold(
            1i64,
            |a, x| {
                if x.1 < 1 { None } else { a.checked_mul(x.1) }
            },
        )?;
        (n <= MAX_DEVICES).then_some(n)
    }

    fn expand(&self) -> Option<DeviceGroups> {
        let n = self.device_count()?;
        let order: Vec<i64> = match &self.device_ids {
            None => (0..n).collect(),
            Some(DeviceOrder::List(l)) => l.clone(),
            Some(DeviceOrder::Iota(t)) => {
                if t.device_count()? != n {
                    return None;
                }
                t.expand()
            }
        };
        if order.len() as i64 != n {
            return None;
        }
        // Split each mesh axis at the borders of the sub-axes in use.
        let mut cuts: Vec<Vec<i64>> = self.axes.iter().map(|a| vec![1, a.1]).collect();
        for r in &self.group_axes {
            let size = self.axes.get(r.axis as usize)?.1;
            if let Some((pre, s)) = r.sub {
                if pre <= 0 || s <= 0 || size % (pre.checked_mul(s)?) != 0 {
                    return None;
                }
                cuts[r.axis as usize].extend([pre, pre * s]);
            }
        }
        // digits: (axis, pre, size), row-major.
        let mut digits = Vec::new();
        for (a, c) in cuts.iter_mut().enumerate() {
            c.sort_unstable();
            c.dedup();
            for w in c.windows(2) {
                if w[1] % w[0] != 0 {
                    return None;
                }
                digits.push((a as u32, w[0], w[1] / w[0]));
            }
        }
        let mut inside = Vec::new();
        for r in &self.group_axes {
            let (lo, hi) = match r.sub {
                None => (1, self.axes[r.axis as usize].1),
                Some((pre, s)) => (pre, pre * s),
            };
            for (k, d) in digits.iter().enumerate() {
                if d.0 == r.axis && d.1 >= lo && d.1 < hi {
                    if inside.contains(&k) {
                        return None;
                    }
                    inside.push(k);
                }
            }
        }
        let outside: Vec<usize> = (0..digits.len()).filter(|k| !inside.contains(k)).collect();
        let mut stride = vec![1i64; digits.len()];
        for i in (0..digits.len().saturating_sub(1)).rev() {
            stride[i] = stride[i + 1] * digits[i + 1].2;
        }
        let walk = |ks: &[usize]| -> Vec<i64> {
            let mut v = vec![0i64];
            for &k in ks {
                v = v
                    .iter()
                    .flat_map(|b| (0..digits[k].2).map(move |j| (b, j)))
                    .map(|(b, j)| b + j * stride[k])
                    .collect();
            }
            v
        };
        let inner = walk(&inside);
        walk(&outside)
            .iter()
            .map(|o| inner.iter().map(|i| order.get((o + i) as usize).copied()).collect())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iota(dims: &[i64], reshape: &[i64], perm: &[u32]) -> IotaTile {
        IotaTile {
            dims: dims.iter().copied().collect(),
            reshape: reshape.iter().copied().collect(),
            perm: perm.iter().copied().collect(),
        }
    }

    #[test]
    fn iota_groups_match_numpy() {
        // np.arange(8).reshape(2,4).transpose(1,0).reshape(4,2)
        let g = ReplicaGroups::Iota(iota(&[4, 2], &[2, 4], &[1, 0])).expand(8);
        assert_eq!(g, Some(vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]));
    }

    #[test]
    fn mesh_groups_with_sub_axis() {
        let mut i = crate::Interner::default();
        let x = i.intern("x");
        let m = |group_axes| {
            ReplicaGroups::Mesh(MeshGroups { axes: vec![(x, 8)], device_ids: None, group_axes })
        };
        let sub = |pre, size| AxisRef { axis: 0, sub: Some((pre, size)) };
        // x:(1)2 is the major half of x, x:(2)4 the minor quarter.
        let expect = |g: &[&[i64]]| Some(g.iter().map(|v| v.to_vec()).collect::<Vec<_>>());
        assert_eq!(m(vec![sub(1, 2)]).expand(8), expect(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]));
        assert_eq!(m(vec![sub(2, 4)]).expand(8), expect(&[&[0, 1, 2, 3], &[4, 5, 6, 7]]));
        assert_eq!(m(vec![sub(3, 2)]).expand(8), None);
    }
}
