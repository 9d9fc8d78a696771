//! Results of steps by the content they depend on. Entries that cannot be read
//! or do not fit are as good as none; a cache never fails a run.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Raised when entries change their form or meaning.
const FORMAT: u32 = 1;
/// Largest entry (bytes).
const MAX_ENTRY: u64 = 64 << 20;

/// What is kept of a decided step.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The report of the pair (`docs/JSON.md`).
    pub report: Value,
    /// The report for people.
    pub text: String,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    key: String,
    /// Digest of report and text.
    check: String,
    report: Value,
    text: String,
}

fn hex(d: impl AsRef<[u8]>) -> String {
    d.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Digest of parts; where one ends and the next begins counts.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut h = Sha256::new();
    for p in parts {
        h.update((p.len() as u64).to_le_bytes());
        h.update(p);
    }
    hex(h.finalize())
}

fn check(key: &str, report: &Value, text: &str) -> String {
    digest([key.as_bytes(), report.to_string().as_bytes(), text.as_bytes()])
}

fn file(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("{key}.json"))
}

/// The entry of a key, if there is a sound one.
pub(crate) fn get(dir: &Path, key: &str) -> Option<Entry> {
    let path = file(dir, key);
    if std::fs::metadata(&path).ok()?.len() > MAX_ENTRY {
        return None;
    }
    let s: Stored = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
    let sound = s.format == FORMAT && s.key == key && s.check == check(key, &s.report, &s.text);
    sound.then_some(Entry { report: s.report, text: s.text })
}

/// Keeps an entry: written beside its place, then renamed.
///
/// # Errors
/// If the operating system refuses.
pub(crate) fn put(dir: &Path, key: &str, e: &Entry) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let stored = Stored {
        format: FORMAT,
        key: key.to_owned(),
        check: check(key, &e.report, &e.text),
        report: e.report.clone(),
        text: e.text.clone(),
    };
    let mut f = tempfile::Builder::new().prefix(".scalify-").tempfile_in(dir)?;
    f.write_all(&serde_json::to_vec(&stored)?)?;
    f.persist(file(dir, key)).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_entries_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let e = Entry { report: serde_json::json!({"verdict": "proved"}), text: "PROVED".into() };
        let key = digest([&b"a"[..], b"b"]);
        assert_ne!(key, digest([&b"ab"[..], b""]));
        assert!(get(dir, &key).is_none());
        put(dir, &key, &e).unwrap();
        let hit = get(dir, &key).unwrap();
        assert_eq!((hit.report, hit.text), (e.report, e.text));
        let path = file(dir, &key);
        let good = std::fs::read_to_string(&path).unwrap();
        // Cut off, altered, another entry's.
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(get(dir, &key).is_none());
        std::fs::write(&path, good.replace("\"proved\"", "\"refuted\"")).unwrap();
        assert!(get(dir, &key).is_none());
        let other = digest([&b"c"[..]]);
        std::fs::write(file(dir, &other), &good).unwrap();
        assert!(get(dir, &other).is_none());
        // Test vector of FIPS 180-4.
        assert!(hex(Sha256::digest(b"abc")).starts_with("ba7816bf8f01cfea"));
    }
}
