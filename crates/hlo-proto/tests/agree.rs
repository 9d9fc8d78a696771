//! The proto says what the text says, and survives a trip through the writer.

use scalify_hlo_proto::{MessageKind, read, recognise, write};
use scalify_ir::Module;
use scalify_ir::same::{Compare, difference};

macro_rules! pair {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("data/", $name, ".hlo.pb")),
            include_str!(concat!("data/", $name, ".hlo.txt")),
        )
    };
}

const PAIRS: &[(&str, &[u8], &str)] = &[
    pair!("odd"),
    pair!("vocab_embed"),
    pair!("generate_loop"),
    pair!("conv"),
    pair!("f8_dot"),
    pair!("reshard"),
];

fn module(name: &str, bytes: &[u8]) -> Module {
    read(bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn proto_equals_text() {
    for &(name, bytes, text) in PAIRS {
        let p = module(name, bytes);
        let t = scalify_hlo::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        // Protos lack the header attributes of the run, such as num_partitions.
        let what = Compare { rest: false, ..Compare::ALL };
        assert_eq!(difference(&p, &t, what), None, "{name}");
    }
}

#[test]
fn text_of_rare_attributes_equals_too() {
    let (name, bytes, text) = PAIRS[0];
    let t = scalify_hlo::parse(text).unwrap();
    assert_eq!(difference(&module(name, bytes), &t, Compare::ALL), None);
}

#[test]
fn writing_loses_nothing_and_is_stable() {
    for &(name, bytes, _) in PAIRS {
        let first = module(name, bytes);
        let written = write(&first);
        let again = module(name, &written);
        assert_eq!(difference(&first, &again, Compare::ALL), None, "{name}");
        assert_eq!(write(&again), written, "{name}");
    }
}

#[test]
fn modules_from_text_survive_the_proto() {
    for &(name, _, text) in PAIRS {
        let t = scalify_hlo::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let what = Compare { rest: false, ..Compare::ALL };
        assert_eq!(difference(&t, &module(name, &write(&t)), what), None, "{name}");
    }
}

/// `bytes` as field 1 of a message.
fn wrap(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x0a];
    let mut n = bytes.len();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out.extend_from_slice(bytes);
    out
}

#[test]
fn containers_are_recognised() {
    for &(name, bytes, _) in PAIRS {
        let bare = module(name, bytes);
        let (kind, inner) = recognise(bytes).unwrap();
        let proto = if kind == MessageKind::Module { wrap(bytes) } else { bytes.to_vec() };
        assert_eq!(recognise(&proto).unwrap().0, MessageKind::Proto, "{name}");
        // HloSnapshot: the HloProto, then execution_platform (field 4).
        let mut snapshot = wrap(&proto);
        snapshot.extend([0x22, 3, b'C', b'P', b'U']);
        let (kind, found) = recognise(&snapshot).unwrap();
        assert_eq!((kind, found), (MessageKind::Snapshot, inner), "{name}");
        assert_eq!(difference(&bare, &module(name, &snapshot), Compare::ALL), None);
    }
    for junk in [&b""[..], b"HloModule m\n\nENTRY e {", b"\x0a\x00", b"\x7fELF", &[0xff; 64]] {
        assert!(recognise(junk).is_none());
    }
}
