//! Kernels: functions of tensors. They know nothing of instructions, devices
//! or control flow; called computations reach them as closures over lanes.

pub(crate) mod approx;
pub(crate) mod conv;
pub(crate) mod convert;
pub(crate) mod dot;
pub(crate) mod elementwise;
pub(crate) mod fft;
pub(crate) mod fuse;
pub(crate) mod gather;
pub(crate) mod int;
pub(crate) mod linalg;
pub(crate) mod matmul;
pub(crate) mod movement;
pub(crate) mod norm;
pub(crate) mod par;
pub(crate) mod real;
pub(crate) mod reduce;
pub(crate) mod rng;
pub(crate) mod scatter;
pub(crate) mod simd;
pub(crate) mod sort;
pub(crate) mod strided;
pub(crate) mod window;
