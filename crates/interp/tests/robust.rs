//! Damaged modules give errors or values, never a panic.

#[path = "common/mod.rs"]
mod common;

use scalify_interp::{RunOptions, run};
use scalify_ir::{Attrs, CompId, InstrId, Module, Shape, ShapeId, WindowDim};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

struct Random(u64);

impl Random {
    /// xorshift64
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

const EXTREMES: &[i64] =
    &[0, 1, -1, 2, 3, 7, 1 << 20, 1 << 40, i64::MAX, i64::MIN, i64::MAX - 1, u32::MAX as i64];

/// Sets one of the numbers of an attribute.
fn number(a: &mut Attrs, k: usize, n: i64) {
    fn put(list: &mut [i64], k: usize, n: i64) {
        let len = list.len();
        if len > 0 {
            list[k % len] = n;
        }
    }
    match a {
        Attrs::Parameter(p) => *p = n as u32,
        Attrs::Iota(d) | Attrs::Dim(d) | Attrs::TupleIndex(d) => *d = n,
        Attrs::Sort { dim, .. } => *dim = n,
        Attrs::Dims(d) | Attrs::DynamicSlice(d) => put(d, k, n),
        Attrs::Slice(s) => {
            let s = &mut **s;
            match k % 3 {
                0 => put(&mut s.start, k / 3, n),
                1 => put(&mut s.limit, k / 3, n),
                _ => put(&mut s.stride, k / 3, n),
            }
        }
        Attrs::Pad(p) if !p.is_empty() => {
            let len = p.len();
            let p = &mut p[k % len];
            match k / len % 3 {
                0 => p.low = n,
                1 => p.high = n,
                _ => p.interior = n,
            }
        }
        Attrs::Window(w) if !w.is_empty() => window(w, k, n),
        Attrs::Conv(c) => match k % 12 {
            0 => c.input_batch = n,
            1 => c.input_feature = n,
            2 => c.kernel_input_feature = n,
            3 => c.kernel_output_feature = n,
            4 => c.output_batch = n,
            5 => c.output_feature = n,
            6 => c.feature_group_count = n,
            7 => c.batch_group_count = n,
            8 => put(&mut c.input_spatial, k / 12, n),
            9 => put(&mut c.output_spatial, k / 12, n),
            _ if c.window.is_empty() => {}
            _ => window(&mut c.window, k / 2, n),
        },
        Attrs::Dot(d) => {
            let d = &mut **d;
            match k % 4 {
                0 => put(&mut d.lhs_batch, k / 4, n),
                1 => put(&mut d.rhs_batch, k / 4, n),
                2 => put(&mut d.lhs_contracting, k / 4, n),
                _ => put(&mut d.rhs_contracting, k / 4, n),
            }
        }
        Attrs::Gather(g) => {
            let g = &mut **g;
            match k % 6 {
                0 => put(&mut g.offset_dims, k / 6, n),
                1 => put(&mut g.collapsed_slice_dims, k / 6, n),
                2 => put(&mut g.start_index_map, k / 6, n),
                3 => put(&mut g.slice_sizes, k / 6, n),
                4 => put(&mut g.operand_batching_dims, k / 6, n),
                _ => g.index_vector_dim = n,
            }
        }
        Attrs::Scatter(g) => {
            let g = &mut **g;
            match k % 5 {
                0 => put(&mut g.update_window_dims, k / 5, n),
                1 => put(&mut g.inserted_window_dims, k / 5, n),
                2 => put(&mut g.scatter_dims_to_operand_dims, k / 5, n),
                3 => put(&mut g.input_batching_dims, k / 5, n),
                _ => g.index_vector_dim = n,
            }
        }
        Attrs::Fft { length, .. } => put(length, k, n),
        Attrs::TopK { k, .. } => *k = n,
        Attrs::BatchNorm { feature, .. } => *feature = n,
        Attrs::ReducePrecision { exponent, mantissa } => {
            *(if k.is_multiple_of(2) { exponent } else { mantissa }) = n as u32;
        }
        _ => {}
    }
}

fn window(w: &mut [WindowDim], k: usize, n: i64) {
    let len = w.len();
    let w = &mut w[k % len];
    let all = [
        &mut w.size,
        &mut w.stride,
        &mut w.pad_low,
        &mut w.pad_high,
        &mut w.window_dilation,
        &mut w.base_dilation,
    ];
    for (i, x) in all.into_iter().enumerate() {
        if i == k / len % 6 {
            *x = n;
        }
    }
}

fn damage(m: &mut Module, r: &mut Random) -> String {
    let n = m.instrs.len();
    let i = r.below(n);
    let kind = r.below(11);
    match kind {
        0 => {
            m.instrs[i].operands.pop();
        }
        1 => {
            let k = r.below(m.instrs[i].operands.len());
            let to = InstrId(r.below(n + 1) as u32);
            if let Some(o) = m.instrs[i].operands.get_mut(k) {
                *o = to;
            }
        }
        2 => m.instrs[i].shape = ShapeId(r.below(m.shapes.len() + 1) as u32),
        3 => m.instrs[i].attrs = m.instrs[r.below(n)].attrs.clone(),
        4 => {
            let c = CompId(r.below(m.comps.len() + 1) as u32);
            m.instrs[i].calls = [c].into_iter().collect();
        }
        5 => m.instrs[i].opcode = m.instrs[r.below(n)].opcode,
        6 => {
            let k = r.below(m.comps.len());
            m.comps[k].root = InstrId(r.below(n + 1) as u32);
        }
        7 => {
            let k = r.below(m.shapes.len());
            let n = EXTREMES[r.below(EXTREMES.len())];
            if let Shape::Array(a) = &mut m.shapes[k]
                && !a.dims.is_empty()
            {
                let d = r.below(a.dims.len());
                a.dims[d] = n;
            }
        }
        8 | 9 => {
            let n = EXTREMES[r.below(EXTREMES.len())];
            let all: Vec<usize> = (0..m.instrs.len()).collect();
            let numeric =
                |i: &&usize| !matches!(m.instrs[**i].attrs, Attrs::None | Attrs::Constant(_));
            let some: Vec<usize> = all.iter().filter(numeric).copied().collect();
            if some.is_empty() {
                return "nothing".into();
            }
            let at = some[r.below(some.len())];
            let k = r.below(64);
            number(&mut m.instrs[at].attrs, k, n);
            return format!("number {k} of {} to {n}", m.str(m.instrs[at].name));
        }
        _ => {
            let extra = InstrId(r.below(n) as u32);
            m.instrs[i].operands.push(extra);
        }
    }
    format!("kind {kind} at {}", m.str(m.instrs[i].name))
}

#[test]
fn damaged_modules_do_not_panic() {
    let cases = common::cases().expect("the suite is readable");
    let mut r = Random(0x5EED);
    let (mut runs, mut errors) = (0, 0);
    for c in &cases {
        let Ok(good) = scalify_hlo::parse(&c.text) else { continue };
        for _ in 0..8 {
            let mut m = good.clone();
            let mut what = Vec::new();
            for _ in 0..1 + r.below(2) {
                what.push(damage(&mut m, &mut r));
            }
            let options = RunOptions {
                partitions: 2,
                memory_limit: 64 << 20,
                time_limit: Some(Duration::from_secs(2)),
                step_limit: Some(20_000),
                ..Default::default()
            };
            runs += 1;
            let go =
                AssertUnwindSafe(|| run(&m, None, &[Vec::new(), Vec::new()], options).is_err());
            match catch_unwind(go) {
                Ok(e) => errors += e as u32,
                Err(_) => panic!("{} panics after {what:?}", c.name),
            }
        }
    }
    // Damage mostly shows; if nothing failed the test would not test.
    assert!(errors * 4 > runs, "only {errors} of {runs} runs fail");
}
