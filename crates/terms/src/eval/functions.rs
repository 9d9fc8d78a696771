//! Elementwise operators of HLO by name and element type.

use super::Function;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

type Table = HashMap<String, Function, FxBuildHasher>;

/// Float types whose operators are functions of the reals here.
const FLOATS: [&str; 4] = ["f16", "bf16", "f32", "f64"];

fn b(x: bool) -> f64 {
    f64::from(x)
}

pub(super) fn floats(t: &mut Table) {
    let table: [(&str, Function); 29] = [
        ("tanh", |a| a[0].tanh()),
        ("cosine", |a| a[0].cos()),
        ("sine", |a| a[0].sin()),
        ("tan", |a| a[0].tan()),
        ("exponential-minus-one", |a| a[0].exp_m1()),
        ("log-plus-one", |a| a[0].ln_1p()),
        ("logistic", |a| 1.0 / (1.0 + (-a[0]).exp())),
        ("cbrt", |a| a[0].cbrt()),
        ("sqrt", |a| a[0].sqrt()),
        ("rsqrt", |a| 1.0 / a[0].sqrt()),
        ("floor", |a| a[0].floor()),
        ("ceil", |a| a[0].ceil()),
        ("round-nearest-afz", |a| a[0].round()),
        ("round-nearest-even", |a| a[0].round_ties_even()),
        ("sign", |a| if a[0] == 0.0 { 0.0 } else { a[0].signum() }),
        ("power", |a| a[0].powf(a[1])),
        ("remainder", |a| a[0] % a[1]),
        ("divide", |a| a[0] / a[1]),
        ("atan2", |a| a[0].atan2(a[1])),
        ("cosh", |a| a[0].cosh()),
        ("sinh", |a| a[0].sinh()),
        ("is-finite", |a| b(a[0].is_finite())),
        ("gt", |a| b(a[0] > a[1])),
        ("ge", |a| b(a[0] >= a[1])),
        ("eq", |a| b(a[0] == a[1])),
        ("total-gt", |a| b(a[0] > a[1])),
        ("total-ge", |a| b(a[0] >= a[1])),
        ("total-eq", |a| b(a[0] == a[1])),
        ("convert-to-pred", |a| b(a[0] != 0.0)),
    ];
    for d in FLOATS {
        for (n, f) in table {
            t.insert(format!("{n}:{d}"), f);
        }
    }
}

/// The value modulo `2^BITS`, as the type reads it. Integers of 64 bits that
/// `f64` does not hold are not known.
fn wrap<const BITS: u32, const SIGNED: bool>(x: i128) -> f64 {
    let m = 1i128 << BITS;
    let mut r = x.rem_euclid(m);
    if SIGNED && r >= m / 2 {
        r -= m;
    }
    if r.unsigned_abs() > 1 << 53 { f64::NAN } else { r as f64 }
}

fn bits<const BITS: u32>(x: f64) -> u64 {
    (x as i128).rem_euclid(1i128 << BITS) as u64
}

fn add_type<const BITS: u32, const SIGNED: bool>(t: &mut Table, d: &str) {
    let table: [(&str, Function); 19] = [
        ("add", |a| wrap::<BITS, SIGNED>(a[0] as i128 + a[1] as i128)),
        ("subtract", |a| wrap::<BITS, SIGNED>(a[0] as i128 - a[1] as i128)),
        ("multiply", |a| wrap::<BITS, SIGNED>(a[0] as i128 * a[1] as i128)),
        ("negate", |a| wrap::<BITS, SIGNED>(-(a[0] as i128))),
        ("abs", |a| wrap::<BITS, SIGNED>((a[0] as i128).abs())),
        ("sign", |a| (a[0] as i128).signum() as f64),
        ("divide", |a| {
            let (x, y) = (a[0] as i128, a[1] as i128);
            wrap::<BITS, SIGNED>(if y == 0 { -1 } else { x / y })
        }),
        ("remainder", |a| {
            let (x, y) = (a[0] as i128, a[1] as i128);
            wrap::<BITS, SIGNED>(if y == 0 { x } else { x % y })
        }),
        ("maximum", |a| a[0].max(a[1])),
        ("minimum", |a| a[0].min(a[1])),
        ("and", |a| wrap::<BITS, SIGNED>(i128::from(bits::<BITS>(a[0]) & bits::<BITS>(a[1])))),
        ("or", |a| wrap::<BITS, SIGNED>(i128::from(bits::<BITS>(a[0]) | bits::<BITS>(a[1])))),
        ("xor", |a| wrap::<BITS, SIGNED>(i128::from(bits::<BITS>(a[0]) ^ bits::<BITS>(a[1])))),
        ("not", |a| wrap::<BITS, SIGNED>(i128::from(!bits::<BITS>(a[0])))),
        ("shift-left", |a| {
            let n = bits::<BITS>(a[1]);
            if n >= u64::from(BITS) {
                return 0.0;
            }
            wrap::<BITS, SIGNED>(i128::from(bits::<BITS>(a[0])) << n)
        }),
        ("shift-right-logical", |a| {
            let n = bits::<BITS>(a[1]);
            if n >= u64::from(BITS) {
                return 0.0;
            }
            wrap::<BITS, SIGNED>(i128::from(bits::<BITS>(a[0]) >> n))
        }),
        ("shift-right-arithmetic", |a| {
            let n = bits::<BITS>(a[1]).min(u64::from(BITS) - 1);
            // The sign bit decides, also of unsigned types.
            let x = bits::<BITS>(a[0]) as i128;
            let x = if x >> (BITS - 1) == 1 { x - (1i128 << BITS) } else { x };
            wrap::<BITS, SIGNED>(x >> n)
        }),
        ("convert", |a| {
            // From floats; saturates.
            let (lo, hi) = if SIGNED {
                (-(1i128 << (BITS - 1)), (1i128 << (BITS - 1)) - 1)
            } else {
                (0, (1i128 << BITS) - 1)
            };
            (a[0] as i128).clamp(lo, hi) as f64
        }),
        ("wrap", |a| wrap::<BITS, SIGNED>(a[0] as i128)),
    ];
    for (n, f) in table {
        t.insert(format!("{n}:{d}"), f);
    }
    t.insert(format!("popcnt:{d}"), |a| f64::from(bits::<BITS>(a[0]).count_ones()));
    t.insert(format!("count-leading-zeros:{d}"), |a| {
        f64::from(bits::<BITS>(a[0]).leading_zeros() - (64 - BITS))
    });
}

pub(super) fn ints(t: &mut Table) {
    add_type::<8, true>(t, "s8");
    add_type::<16, true>(t, "s16");
    add_type::<32, true>(t, "s32");
    add_type::<64, true>(t, "s64");
    add_type::<8, false>(t, "u8");
    add_type::<16, false>(t, "u16");
    add_type::<32, false>(t, "u32");
    add_type::<64, false>(t, "u64");
}
