//! Two things at a time.

/// Stack of the second thread: computations nest.
const STACK: usize = 256 << 20;

/// Runs both, on two threads if one more can be had.
///
/// # Panics
/// If either panics.
pub(crate) fn both<A: Send, B>(f: impl Fn() -> A + Sync, g: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|s| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let other = thread.spawn_scoped(s, &f);
        let b = g();
        let a = match other.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(a)) => a,
            Ok(Err(e)) => std::panic::resume_unwind(e),
            Err(_) => f(),
        };
        (a, b)
    })
}
