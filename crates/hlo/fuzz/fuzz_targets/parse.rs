//! Any text: no panic; what is read is written, and read back the same.
//! Seeds: `cargo +nightly fuzz run parse corpus ../tests/ok ../tests/err`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalify_hlo::{WriteOptions, parse, write};

fuzz_target!(|text: &str| {
    if let Ok(m) = parse(text) {
        let once = write(&m, &WriteOptions::default());
        let again = parse(&once).expect("own output is read");
        assert_eq!(write(&again, &WriteOptions::default()), once);
    }
});
