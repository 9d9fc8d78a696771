//! Loading and saving through files.

use scalify_ir::same::{Compare, difference};
use scalify_load::{
    Compression, Format, LoadError, Options, SaveFormat, Unsupported, load, load_bytes,
    load_bytes_with, save,
};
use std::io::Write;

const TEXT: &str = "HloModule m\n\nENTRY main {\n  p = f32[2]{0} parameter(0)\n  \
                    ROOT a = f32[2]{0} add(p, p), metadata={op_name=\"x\"}\n}\n";

fn gzip(b: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    e.write_all(b).unwrap();
    e.finish().unwrap()
}

fn zstd(b: &[u8]) -> Vec<u8> {
    zstd::encode_all(b, 3).unwrap()
}

#[test]
fn text_and_proto_plain_and_compressed() {
    let plain = load_bytes("m", TEXT.as_bytes()).unwrap();
    assert_eq!((plain.format, plain.compression), (Format::HloText, Compression::None));
    assert_eq!(plain.text.as_deref(), Some(TEXT));
    let proto = scalify_hlo_proto::write(&plain.module);
    let mut two_members = gzip(&TEXT.as_bytes()[..30]);
    two_members.extend(gzip(&TEXT.as_bytes()[30..]));
    for (bytes, format, compression) in [
        (gzip(TEXT.as_bytes()), Format::HloText, Compression::Gzip),
        (two_members, Format::HloText, Compression::Gzip),
        (zstd(TEXT.as_bytes()), Format::HloText, Compression::Zstd),
        (proto.clone(), Format::HloModuleProto, Compression::None),
        (gzip(&proto), Format::HloModuleProto, Compression::Gzip),
        (zstd(&gzip(&proto)), Format::HloModuleProto, Compression::Zstd),
    ] {
        let l = load_bytes("m", &bytes).unwrap();
        assert_eq!((l.format, l.compression), (format, compression));
        assert_eq!(l.text.is_some(), format == Format::HloText);
        assert_eq!(difference(&plain.module, &l.module, Compare::ALL), None);
    }
}

#[test]
fn bombs_stop_at_the_limit() {
    let zeros = vec![b' '; 64 << 20];
    for bomb in [gzip(&zeros), zstd(&zeros)] {
        assert!(bomb.len() < 1 << 17);
        let e = load_bytes_with("bomb", &bomb, Options { max_bytes: 1 << 20 }).unwrap_err();
        assert!(matches!(e, LoadError::TooLarge { limit: 1048576, .. }), "{e}");
    }
    let options = Options { max_bytes: TEXT.len() as u64 };
    assert!(load_bytes_with("m", TEXT.as_bytes(), options).is_ok());
    assert!(load_bytes_with("m", &gzip(TEXT.as_bytes()), options).is_ok());
    let options = Options { max_bytes: TEXT.len() as u64 - 1 };
    assert!(load_bytes_with("m", TEXT.as_bytes(), options).is_err());
}

#[test]
fn damage_is_named() {
    for (good, kind) in [(gzip(TEXT.as_bytes()), "gzip"), (zstd(TEXT.as_bytes()), "zstd")] {
        let e = load_bytes("f.gz", &good[..good.len() - 9]).unwrap_err().to_string();
        assert!(e.starts_with(&format!("f.gz: damaged {kind} data: ")), "{e}");
    }
    let mut flipped = gzip(TEXT.as_bytes());
    let crc = flipped.len() - 6;
    flipped[crc] ^= 1;
    assert!(matches!(load_bytes("f", &flipped), Err(LoadError::Damaged { .. })));
}

#[test]
fn other_formats_are_named() {
    let e = load_bytes("f.mlir", b"module @jit_f {}").unwrap_err();
    assert!(matches!(e, LoadError::Unsupported { found: Unsupported::MlirText, .. }));
    assert!(e.to_string().contains("StableHLO"), "{e}");
    assert!(load_bytes("f", &gzip(b"")).unwrap_err().to_string().contains("empty"));
    let e = load_bytes("f", b"HloModule m\n\n// \xff\n").unwrap_err();
    assert_eq!(e.to_string(), "f:3: HLO text must be UTF-8");
    let e = load("/nonexistent/f.hlo").unwrap_err();
    assert!(e.to_string().starts_with("/nonexistent/f.hlo: cannot open: "), "{e}");
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(load(dir.path()), Err(LoadError::Io { action: "read", .. })));
}

#[test]
fn faults_keep_the_text() {
    let broken = TEXT.replace("add(p, p)", "add(p, q)");
    match load_bytes("f.hlo", broken.as_bytes()) {
        Err(e @ LoadError::Text { .. }) => {
            assert!(e.to_string().starts_with("f.hlo:5:"), "{e}");
            assert!(matches!(e, LoadError::Text { text, .. } if text == broken));
        }
        other => panic!("{:?}", other.map(|l| l.format)),
    }
}

#[test]
fn saving_replaces_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let m = load_bytes("m", TEXT.as_bytes()).unwrap().module;
    let path = dir.path().join("m.hlo");
    for (format, want) in [
        (SaveFormat::HloText, Format::HloText),
        (SaveFormat::HloModuleProto, Format::HloModuleProto),
    ] {
        save(&m, &path, format).unwrap();
        let back = load(&path).unwrap();
        assert_eq!(back.format, want);
        assert_eq!(difference(&m, &back.module, Compare::ALL), None);
    }
    // A folder stands in the way: an error, and nothing left behind.
    let taken = dir.path().join("taken");
    std::fs::create_dir_all(taken.join("inner")).unwrap();
    assert!(matches!(save(&m, &taken, SaveFormat::HloText), Err(LoadError::Io { .. })));
    assert!(save(&m, dir.path().join("no/such/folder.hlo"), SaveFormat::HloText).is_err());
    let mut left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["m.hlo", "taken"]);
}
