//! Scalar integer operations with XLA's meaning at the edges: wrap-around,
//! division by zero, oversized shifts.

/// What the elementwise kernels need of the integer types.
pub(crate) trait Int: Copy + Default + Ord + Send + Sync + 'static {
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn div(self, o: Self) -> Self;
    fn rem(self, o: Self) -> Self;
    fn pow(self, o: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    /// `bits` is the width of the element type, at most that of the storage.
    fn shl(self, o: Self, bits: u32) -> Self;
    fn shr(self, o: Self, bits: u32) -> Self;
    fn sar(self, o: Self, bits: u32) -> Self;
    fn clz(self, bits: u32) -> Self;
    fn popcnt(self, bits: u32) -> Self;
    /// Wraps to `bits`.
    fn wrap(self, bits: u32) -> Self;
    /// A shift count read as unsigned of `bits` bits.
    fn wrap_shift(self, bits: u32) -> Self;
}

macro_rules! int {
    ($($t:ident $u:ident $s:ident $signed:literal),*) => {$(
        impl Int for $t {
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                self.wrapping_add(o)
            }
            #[inline(always)]
            fn sub(self, o: Self) -> Self {
                self.wrapping_sub(o)
            }
            #[inline(always)]
            fn mul(self, o: Self) -> Self {
                self.wrapping_mul(o)
            }
            fn div(self, o: Self) -> Self {
                if o == 0 { !0 } else { self.wrapping_div(o) }
            }
            fn rem(self, o: Self) -> Self {
                if o == 0 { self } else { self.wrapping_rem(o) }
            }
            #[allow(unused_comparisons)]
            fn pow(self, o: Self) -> Self {
                if o < 0 {
                    return match self {
                        1 => 1,
                        x if x == !0 => if o & 1 == 0 { 1 } else { x },
                        _ => 0,
                    };
                }
                let (mut r, mut b, mut e) = (1 as $t, self, o);
                while e != 0 {
                    if e & 1 == 1 {
                        r = r.wrapping_mul(b);
                    }
                    b = b.wrapping_mul(b);
                    e >>= 1;
                }
                r
            }
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[allow(unused_comparisons)]
            fn abs(self) -> Self {
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[allow(unused_comparisons)]
            fn sign(self) -> Self {
                if self < 0 { !0 } else { (self != 0) as $t }
            }
            #[inline(always)]
            fn shl(self, o: Self, bits: u32) -> Self {
                if (o as $u as u64) < bits as u64 { self << o } else { 0 }
            }
            #[inline(always)]
            fn shr(self, o: Self, bits: u32) -> Self {
                let mask = !0 >> ($u::BITS - bits);
                if (o as $u as u64) < bits as u64 { ((self as $u & mask) >> o) as $t } else { 0 }
            }
            #[inline(always)]
            fn sar(self, o: Self, bits: u32) -> Self {
                let o = (o as $u as u64).min(bits as u64 - 1) as u32;
                // Sign-extends from `bits` first: unsigned storage does not.
                let up = $u::BITS - bits;
                (((self as $s) << up >> up) >> o) as $t
            }
            fn clz(self, bits: u32) -> Self {
                let mask = !0 >> ($u::BITS - bits);
                ((self as $u & mask).leading_zeros() - ($u::BITS - bits)) as $t
            }
            fn popcnt(self, bits: u32) -> Self {
                let mask = !0 >> ($u::BITS - bits);
                (self as $u & mask).count_ones() as $t
            }
            fn wrap(self, bits: u32) -> Self {
                let up = $u::BITS - bits;
                if $signed { ((self as $s) << up >> up) as $t } else { ((self as $u) << up >> up) as $t }
            }
            fn wrap_shift(self, bits: u32) -> Self {
                (self as $u & (!0 >> ($u::BITS - bits))) as $t
            }
        }
    )*};
}
int!(i8 u8 i8 true, i16 u16 i16 true, i32 u32 i32 true, i64 u64 i64 true,
     u8 u8 i8 false, u16 u16 i16 false, u32 u32 i32 false, u64 u64 i64 false);
