//! Loops compiled for the vector instructions of the processor at hand.
//!
//! Fused multiply-adds are never formed, so results do not depend on the
//! processor.

/// Calls `f`, compiled for AVX2 where the processor has it. `f` is a closure
/// marked `#[inline(always)]`.
#[inline(always)]
pub(crate) fn vector<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        if std::is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has AVX2.
            return unsafe { avx2(f) };
        }
    }
    f()
}

/// As [`vector`], with AVX-512 where there is that: for loops that compute
/// much per element.
#[inline(always)]
pub(crate) fn vector_long<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        let has = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vl");
        if has {
            #[allow(unsafe_code)]
            // SAFETY: the processor has these parts of AVX-512.
            return unsafe { avx512(f) };
        }
    }
    vector(f)
}
