//! Parts of files mapped into memory, safe from what happens to the files.
//!
//! A page of a mapping that cannot be read (the file was truncated, the disk
//! failed) raises `SIGBUS`, which ends a process. Here a handler puts a page of
//! zeros in its place and marks the [`Window`]; who has read it asks
//! [`Window::check`] before using what was computed. Signals from anywhere else
//! go to the handler that was there before.

use crate::TensorError;
use std::fs::File;
use std::sync::Arc;

/// A range of elements of a file, mapped into memory.
///
/// Another process may change the file at any time, so that two looks at one
/// element may differ: what is read must be taken for nothing but numbers.
#[derive(Debug)]
pub struct Window {
    map: sys::Map,
    name: Arc<str>,
}

impl Window {
    /// `None` if this system or file cannot be mapped.
    pub(crate) fn open(file: &File, name: &Arc<str>, offset: u64, len: usize) -> Option<Window> {
        Some(Window { map: sys::Map::open(file, offset, len)?, name: name.clone() })
    }

    /// The bytes of the elements; zeros where the file could not be read.
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// Were all bytes those of the file until now?
    ///
    /// # Errors
    /// If some could not be read.
    pub fn check(&self) -> Result<(), TensorError> {
        if self.map.intact() {
            return Ok(());
        }
        Err(TensorError::io(&*self.name, "read")(std::io::ErrorKind::UnexpectedEof.into()))
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys {
    use memmap2::{Mmap, MmapOptions};
    use std::fs::File;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    /// Where a mapping is, for the handler. Free if `begin` is zero.
    struct Slot {
        begin: AtomicUsize,
        end: AtomicUsize,
        hit: AtomicBool,
    }

    /// More than workers have windows.
    static SLOTS: [Slot; 1024] = [const {
        Slot { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), hit: AtomicBool::new(false) }
    }; 1024];

    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(0);

    /// Only calls what may be called in a handler.
    extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid `siginfo_t` with `SA_SIGINFO`.
        let at = unsafe { (*info).si_addr() } as usize;
        let page = PAGE.load(SeqCst);
        for slot in &SLOTS {
            let (begin, end) = (slot.begin.load(SeqCst), slot.end.load(SeqCst));
            // The same mapping as a moment ago, not half of the next.
            if begin == 0 || at < begin || at >= end || slot.begin.load(SeqCst) != begin {
                continue;
            }
            slot.hit.store(true, SeqCst);
            // SAFETY: replaces a page of a mapping that a `Map` owns (it holds
            // its slot as long as the mapping exists), read-only as before.
            let new = unsafe {
                libc::mmap(
                    (at & !(page - 1)) as *mut libc::c_void,
                    page,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if new != libc::MAP_FAILED {
                return;
            }
        }
        // SAFETY: a `sigaction` of zeros is the default action; the other came
        // from the kernel. The instruction is run again and faults again.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, BEFORE.get().unwrap_or(&default), std::ptr::null_mut());
        }
    }

    /// Installs the handler, once.
    fn guarded() -> bool {
        static DONE: OnceLock<bool> = OnceLock::new();
        *DONE.get_or_init(|| {
            // SAFETY: plain calls with valid arguments; the handler keeps to
            // what signal handlers may do.
            unsafe {
                let page = libc::sysconf(libc::_SC_PAGESIZE);
                if page <= 0 {
                    return false;
                }
                PAGE.store(page as usize, SeqCst);
                let (mut new, mut old): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
                new.sa_sigaction = on_fault as *const () as libc::sighandler_t;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigemptyset(&mut new.sa_mask);
                if libc::sigaction(libc::SIGBUS, &new, &mut old) != 0 {
                    return false;
                }
                let _ = BEFORE.set(old);
                true
            }
        })
    }

    #[derive(Debug)]
    pub(super) struct Map {
        /// `None` once it is unmapped.
        map: Option<Mmap>,
        slot: usize,
    }

    impl Map {
        pub(super) fn open(file: &File, offset: u64, len: usize) -> Option<Map> {
            if len == 0 || !guarded() {
                return None;
            }
            // SAFETY: read-only, and never taken for anything but numbers. A
            // file that shrinks is met by the handler once the slot is set.
            let map = unsafe { MmapOptions::new().offset(offset).len(len).populate().map(file) };
            let map = map.ok()?;
            let begin = map.as_ptr() as usize & !(PAGE.load(SeqCst) - 1);
            let end = map.as_ptr() as usize + len;
            let free = |s: &Slot| s.begin.compare_exchange(0, begin, SeqCst, SeqCst).is_ok();
            let slot = SLOTS.iter().position(free)?;
            SLOTS[slot].hit.store(false, SeqCst);
            SLOTS[slot].end.store(end, SeqCst);
            Some(Map { map: Some(map), slot })
        }

        pub(super) fn bytes(&self) -> &[u8] {
            self.map.as_deref().unwrap_or_default()
        }

        pub(super) fn intact(&self) -> bool {
            !SLOTS[self.slot].hit.load(SeqCst)
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            let slot = &SLOTS[self.slot];
            slot.end.store(0, SeqCst);
            self.map = None;
            slot.begin.store(0, SeqCst);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    #[derive(Debug)]
    pub(super) enum Map {}

    impl Map {
        pub(super) fn open(_: &std::fs::File, _: u64, _: usize) -> Option<Map> {
            None
        }

        pub(super) fn bytes(&self) -> &[u8] {
            match *self {}
        }

        pub(super) fn intact(&self) -> bool {
            match *self {}
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;

    fn sum(w: &Window) -> u64 {
        w.bytes().iter().map(|&b| b as u64).sum()
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let mut f = tempfile::tempfile().unwrap();
        let n = 1 << 20;
        f.write_all(&vec![1; n]).unwrap();
        let name: Arc<str> = "x".into();
        let (w, other) = (
            Window::open(&f, &name, 128, n - 128).unwrap(),
            Window::open(&f, &name, 0, 1000).unwrap(),
        );
        assert_eq!(sum(&w), (n - 128) as u64);
        assert!(w.check().is_ok());
        f.set_len(n as u64 / 2).unwrap();
        // What is left can still be read, the rest counts as zeros.
        assert_eq!(sum(&w), (n / 2 - 128) as u64);
        assert!(w.check().is_err());
        assert_eq!(sum(&other), 1000);
        assert!(other.check().is_ok());
        // Slots are free again, and marks are gone.
        drop(w);
        for _ in 0..3000 {
            let w = Window::open(&f, &name, 0, n / 2).unwrap();
            assert!(w.check().is_ok());
        }
        // A mapping that begins behind the end.
        let w = Window::open(&f, &name, n as u64, 100).unwrap();
        assert_eq!(sum(&w), 0);
        assert!(w.check().is_err());
    }

    #[test]
    fn many_threads_meet_it() {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(&vec![1; 1 << 20]).unwrap();
        let name: Arc<str> = "x".into();
        let windows: Vec<Window> =
            (0..8).map(|_| Window::open(&f, &name, 0, 1 << 20).unwrap()).collect();
        f.set_len(4096).unwrap();
        std::thread::scope(|s| {
            for w in &windows {
                s.spawn(|| {
                    assert_eq!(sum(w), 4096);
                    assert!(w.check().is_err());
                });
            }
        });
    }
}
