//! Any bytes: no panic; what is read is written, and read back the same.
//! Seeds: `cargo +nightly fuzz run proto corpus ../tests/data`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalify_hlo_proto::{read, write};
use scalify_ir::same::{Compare, difference};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(m) = read(bytes) {
        let once = write(&m);
        let again = read(&once).expect("own output is read");
        let twice = write(&again);
        let third = read(&twice).expect("own output is read");
        assert_eq!(difference(&again, &third, Compare::ALL), None);
    }
});
