//! Files of numpy and ml_dtypes read to the bytes numpy has, and what we write
//! reads back; broken files give errors.

use scalify_ir::DType;
use scalify_tensors::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn unhex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn numpy_files() {
    let text = std::fs::read_to_string(data().join("expected.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let mut seen = 0;
    for (file, want) in all.as_object().unwrap() {
        let want = want.as_object().unwrap();
        let type_of = |n: &str, _| DType::from_name(want[n]["dtype"].as_str().unwrap());
        let got = read_archive_with(data().join(file), &type_of).unwrap();
        assert_eq!(got.len(), want.len(), "{file}");
        for (name, t) in got {
            let w = &want[&name];
            assert_eq!(t.dtype().name(), w["dtype"], "{file} {name}");
            let dims: Vec<i64> =
                w["dims"].as_array().unwrap().iter().map(|d| d.as_i64().unwrap()).collect();
            assert_eq!(t.dims(), dims, "{file} {name}");
            let bytes = unhex(w["bytes"].as_str().unwrap());
            assert_eq!(t.bytes().unwrap(), bytes, "{file} {name}");
            // Every block reads as its part of the whole.
            let size = t.dtype().literal_bytes();
            let mut buf = Vec::new();
            for start in 0..t.len() {
                for n in 0..=(t.len() - start).min(4) {
                    let b = t.read(start, n as usize, &mut buf).unwrap();
                    assert_eq!(b, &bytes[start as usize * size..(start + n) as usize * size]);
                }
            }
            assert!(t.read(t.len(), 1, &mut buf).is_err());
            seen += 1;
        }
    }
    assert!(seen > 60);
}

#[test]
fn one_opaque_byte_needs_a_type() {
    let e = read_archive(data().join("stored.npz")).unwrap_err().to_string();
    assert!(e.contains("expected the element type"), "{e}");
    let a = Archive::open(data().join("stored.npz")).unwrap();
    let i = a.find("bfloat16").unwrap();
    assert_eq!(a.tensor(i, None).unwrap().dtype(), DType::Bf16);
    assert!(a.tensor(i, Some(DType::S4)).is_err());
}

/// Canonical bytes of three elements of any type.
fn some(t: DType) -> Vec<u8> {
    let w = t.bits();
    (0..8 * t.literal_bytes())
        .map(|i| {
            let b = (i as u8).wrapping_mul(37).wrapping_add(11);
            match (t, w) {
                (DType::Pred, _) => b & 1,
                (_, 8..) => b,
                _ if t.is_signed() => ((b << (8 - w)) as i8 >> (8 - w)) as u8,
                _ => b & ((1 << w) - 1),
            }
        })
        .collect()
}

#[test]
fn what_is_written_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<(String, DType, Vec<u8>)> =
        DType::all().map(|t| (format!("p/{t}"), t, some(t))).collect();
    fn refs(v: &[(String, DType, Vec<u8>)]) -> impl Iterator<Item = (&str, TensorRef<'_>)> {
        v.iter().map(|(n, t, b)| (n.as_str(), TensorRef { dtype: *t, dims: &[2, 4], bytes: b }))
    }
    let check = |path: &Path, want: &[(String, DType, Vec<u8>)]| {
        let mut got = read_archive(path).unwrap();
        got.sort_by(|a, b| a.0.cmp(&b.0));
        let mut want = want.to_vec();
        want.sort();
        assert_eq!(got.len(), want.len());
        for ((n, t), (m, d, b)) in got.iter().zip(&want) {
            assert_eq!((n, t.dtype(), t.dims()), (m, *d, &[2i64, 4][..]));
            assert_eq!(t.bytes().unwrap(), *b, "{n}");
        }
    };
    let p = dir.path().join("a.npz");
    write_archive(&p, refs(&all)).unwrap();
    check(&p, &all);
    write_npz_deflated(&p, refs(&all)).unwrap();
    check(&p, &all);
    let p = dir.path().join("a.safetensors");
    let e = write_archive(&p, refs(&all)).unwrap_err().to_string();
    assert!(e.contains("safetensors has no type s1"), "{e}");
    assert!(!p.exists());
    let mut written = all.clone();
    written.retain(|x| write_safetensors(&p, refs(std::slice::from_ref(x))).is_ok());
    assert_eq!(written.len(), 22);
    write_archive(&p, refs(&written)).unwrap();
    check(&p, &written);
    // Nothing is left over.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn failures_leave_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let p = dir.path().join("x.npz");
    let good = TensorRef { dtype: DType::U8, dims: &[2], bytes: &[1, 2] };
    let bad = TensorRef { dtype: DType::U8, dims: &[3], bytes: &[1, 2] };
    write_npz(&p, [("a", good)]).unwrap();
    assert!(write_npz(&p, [("a", good), ("b", bad)]).is_err());
    assert!(write_npz(&p, [("a", good), ("a", good)]).is_err());
    assert_eq!(read_archive(&p).unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn raw_and_folders() {
    let dir = tempfile::tempdir().unwrap();
    let p = dir.path().join("x.bin");
    std::fs::write(&p, [9, 0xff, 1, 0x18]).unwrap();
    let a = Archive::open_raw(&p, DType::S4, &[3], 1).unwrap();
    assert_eq!(a.tensor(0, None).unwrap().bytes().unwrap(), vec![0xff, 1, 0xf8]);
    assert!(Archive::open_raw(&p, DType::F32, &[2], 0).is_err());
    assert!(Archive::open_raw(&p, DType::F32, &[i64::MAX, 4], 0).is_err());
    assert!(Archive::open(&p).unwrap_err().to_string().contains("unknown format"));
    assert!(Archive::open(dir.path()).is_err());
    write_npy(dir.path().join("b.npy"), TensorRef { dtype: DType::U8, dims: &[1], bytes: &[7] })
        .unwrap();
    write_npy(dir.path().join("a.npy"), TensorRef { dtype: DType::U8, dims: &[], bytes: &[8] })
        .unwrap();
    let all = read_archive(dir.path()).unwrap();
    assert_eq!(all.iter().map(|t| t.0.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(all[0].1.bytes().unwrap(), vec![8u8]);
}

/// Truncations and changed bytes are errors or other values, never a panic.
#[test]
fn broken_files() {
    let dir = tempfile::tempdir().unwrap();
    let p = dir.path().join("x");
    let s = dir.path().join("y.safetensors");
    let x = TensorRef { dtype: DType::F16, dims: &[2], bytes: &[1, 2, 3, 4] };
    write_safetensors(&s, [("k", x), ("l", x)]).unwrap();
    for f in [data().join("odd.npz"), data().join("one.npy"), data().join("v2.npy"), s] {
        let good = std::fs::read(&f).unwrap();
        let step = 1 + good.len() / 120;
        for n in (0..good.len()).step_by(step) {
            std::fs::write(&p, &good[..n]).unwrap();
            assert!(read_archive(&p).is_err(), "{} cut at {n}", f.display());
        }
        for i in (0..good.len()).step_by(step) {
            for v in [0, 0xff, good[i] ^ 1, good[i].wrapping_add(9), b'9'] {
                let mut b = good.clone();
                b[i] = v;
                std::fs::write(&p, &b).unwrap();
                if let Err(e) = read_archive(&p) {
                    assert!(e.to_string().contains("x"), "{e}");
                }
            }
        }
    }
}

#[test]
fn malformed_headers() {
    let dir = tempfile::tempdir().unwrap();
    let p = dir.path().join("x.npy");
    for (dict, want) in [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)", "',' or '}'"),
        ("{'descr': '<f4', 'fortran_order': False}", "the keys descr"),
        ("{'descr': 'wat', 'fortran_order': False, 'shape': ()}", "element type 'wat'"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "array of records"),
        ("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", "True or False"),
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}", "tuple of sizes"),
        (
            "{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999999999999,)}",
            "tuple of sizes",
        ),
        (
            "{'descr': '<f4', 'fortran_order': True, 'shape': (4000000000, 4000000000)}",
            "fewer than 2^48",
        ),
        ("[]", "a dictionary"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "8 bytes as the header says"),
    ] {
        let mut b = b"\x93NUMPY\x01\x00".to_vec();
        b.extend((dict.len() as u16).to_le_bytes());
        b.extend(dict.as_bytes());
        b.extend([0; 4]);
        std::fs::write(&p, &b).unwrap();
        let e = read_archive(&p).unwrap_err().to_string();
        assert!(e.contains(want) && e.contains("at byte"), "{dict}: {e}");
    }
}
