//! Sums, products and exponentials in normal form.
//!
//! Laws (reals; each noted with its side condition where it is applied):
//! sums and products are flat and commutative, equal terms are combined, a
//! coefficient stands outside; a sum over bound axes has connected factors,
//! factors free of the bound axes stand outside, a sole nested sum is merged;
//! products of exponentials are one exponential.

mod add;
mod exp;
mod indicators;
mod product;
mod sum;

use crate::coef::Coef;
use crate::lin::{Ax, LinId, Lins, Subst};
use crate::make::Build;
use crate::store::{Arg, Dt, Op, Ref, Store, Sym, Val};
use crate::tables::Untabled;
use smallvec::SmallVec;

/// Sums longer than this are not flattened into their user.
const MAX_FLAT: usize = 64;

/// Most terms over which a sum is distributed.
const MAX_SUMS_ADDED: usize = 8;

/// Most pieces that a sum is split into.
const MAX_RUNS_OUT: usize = 8;

/// Largest number of points over which a predicate on bound axes is decided.
const MAX_TRUTH: i64 = 4096;

type Factors = SmallVec<[Arg; 4]>;

impl Store {
    pub(crate) fn node(&mut self, op: Op, dt: Dt, commutative: bool, args: Factors) -> Val {
        let b = Build { op, dt, commutative, bound: &[], captured: false, own: &[] };
        let (r, coef) = self.make(&b, args);
        Val { coef, r, dt }
    }

    fn node_bound(
        &mut self,
        op: Op,
        dt: Dt,
        commutative: bool,
        args: Factors,
        bound: &[Ax],
    ) -> Val {
        let b = Build { op, dt, commutative, bound, captured: false, own: &[] };
        let (r, coef) = self.make(&b, args);
        Val { coef, r, dt }
    }

    /// A function applied pointwise, without laws.
    pub fn ew(&mut self, f: Sym, dt: Dt, commutative: bool, args: &[Val]) -> Val {
        if commutative {
            self.commutative.insert(f);
        }
        let args = args.iter().map(Self::arg).collect();
        self.node(Op::Ew(f), dt, commutative, args)
    }

    /// A function of whole arrays. `captured` are the atoms of the arguments
    /// that the function sees as a whole, in order; `own` the result axes
    /// (size, form at which the result is read).
    pub fn opaque(
        &mut self,
        f: Sym,
        dt: Dt,
        args: &[Val],
        captured: &[Ax],
        own: &[(i64, LinId)],
    ) -> Val {
        let args = args.iter().map(Self::arg).collect();
        let b =
            Build { op: Op::Opq(f), dt, commutative: false, bound: captured, captured: true, own };
        let (r, coef) = self.make(&b, args);
        Val { coef, r, dt }
    }

    /// True of the constants infinity and NaN and of what is always one of
    /// them: to assume it finite would prove anything.
    pub fn is_not_finite(&self, r: &Ref) -> bool {
        self.class(r.class).never_finite
    }

    /// True of what may never be finite: it is not assumed to be.
    pub(crate) fn is_doubtful(&self, r: &Ref) -> bool {
        let c = self.class(r.class);
        c.never_finite || c.doubtful
    }

    /// True of what may be infinite or NaN although all inputs are finite.
    pub fn may_not_be_finite(&mut self, r: &Ref) -> bool {
        self.is_doubtful(r) || self.may_be_infinite(r)
    }

    pub(crate) fn is_indicator(&self, r: &Ref) -> bool {
        matches!(self.class(r.class).op, Op::Ew(s) if s == self.known.ind || s == self.known.b2f)
    }
}

/// Constants of at most this mask scores out.
pub(crate) const MASK_VALUE: f64 = -1e9;
/// The law for such constants.
pub const MASK: &str = "exp(m + x) = 0 for a mask value m of at most -1e9: every softmax row has a score that is not masked";

/// Id of the constant minus infinity, see [`Store::special`].
pub const NEG_INF: u32 = 0;
/// Id of the constant NaN.
pub const NAN: u32 = 1;
/// Id of minus zero, where it is kept apart from zero.
pub const NEG_ZERO: u32 = 2;
/// First id free for other special constants.
pub const FIRST_SPECIAL: u32 = 16;

enum Decided {
    No,
    Same(Factors, SmallVec<[Ax; 4]>),
    Pieces(Vec<(Factors, SmallVec<[Ax; 4]>)>),
}
