//! Writing, all or nothing.

use crate::tensor::pack;
use crate::types::ml_dtypes_name;
use crate::{TensorError, TensorRef, npy, safe};
use safetensors::tensor::View;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use zip::CompressionMethod;
use zip::write::{FullFileOptions, ZipWriter};

/// Writes a file beside its place and renames it: a reader sees the old file
/// or the whole new one, and a failure leaves nothing behind.
///
/// # Errors
/// Those of `write`, and of the operating system.
pub fn save_atomically<E: From<TensorError>>(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    // Removed when dropped unless it is persisted.
    let mut file = tempfile::Builder::new()
        .prefix(".scalify-")
        .tempfile_in(folder)
        .map_err(TensorError::io(&name, "create"))?;
    write(file.as_file_mut())?;
    file.as_file().sync_all().map_err(TensorError::io(&name, "write"))?;
    set_mode(file.as_file(), path).map_err(TensorError::io(&name, "set the permissions of"))?;
    file.persist(path).map_err(|e| TensorError::io(&name, "replace")(e.error))?;
    Ok(())
}

/// Permissions of the file that is replaced, else those of a new file.
#[cfg(unix)]
fn set_mode(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = match std::fs::metadata(path) {
        Ok(m) => m.permissions().mode() & 0o777,
        Err(_) => 0o644,
    };
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Elements as npy stores them: unused bits are zero, as `ml_dtypes` writes
/// its integers.
fn npy_bytes<'a>(t: &TensorRef<'a>) -> Cow<'a, [u8]> {
    match t.dtype.bits() {
        w @ ..8 => Cow::Owned(t.bytes.iter().map(|b| b & ((1 << w) - 1)).collect()),
        _ => Cow::Borrowed(t.bytes),
    }
}

/// Writes one array as npy. Types numpy does not have become `|V1` or `<V2`,
/// as numpy itself writes them, and the reader must be told which.
///
/// # Errors
/// Bytes that do not fit the sizes, and those of the operating system.
pub fn write_npy(path: impl AsRef<Path>, t: TensorRef) -> Result<(), TensorError> {
    let name = path.as_ref().display().to_string();
    t.check(&name)?;
    save_atomically(path, |f| {
        f.write_all(&npy::write_header(t.dtype, t.dims))
            .and_then(|()| f.write_all(&npy_bytes(&t)))
            .map_err(TensorError::io(&name, "write"))
    })
}

/// Writes named tensors as npz, members stored and aligned to 64 bytes. A type
/// numpy does not have is written as by [`write_npy`] and named in the
/// member's zip comment, which [`crate::Archive`] reads.
///
/// # Errors
/// Bytes that do not fit the sizes, a name that occurs twice, and those of the
/// operating system.
pub fn write_npz<'a, N: AsRef<str>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, TensorRef<'a>)>,
) -> Result<(), TensorError> {
    npz(path.as_ref(), tensors, CompressionMethod::Stored)
}

/// [`write_npz`] with deflated members.
///
/// # Errors
/// Those of [`write_npz`].
pub fn write_npz_deflated<'a, N: AsRef<str>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, TensorRef<'a>)>,
) -> Result<(), TensorError> {
    npz(path.as_ref(), tensors, CompressionMethod::Deflated)
}

fn npz<'a, N: AsRef<str>>(
    path: &Path,
    tensors: impl IntoIterator<Item = (N, TensorRef<'a>)>,
    method: CompressionMethod,
) -> Result<(), TensorError> {
    let file = path.display().to_string();
    save_atomically(path, |f| {
        let mut z = ZipWriter::new(BufWriter::new(f));
        for (name, t) in tensors {
            let at = format!("{file}, member {}.npy", name.as_ref());
            t.check(&at)?;
            let failed = |e: zip::result::ZipError| match e {
                zip::result::ZipError::Io(e) => TensorError::io(&at, "write")(e),
                e => {
                    TensorError::request(&at, e.to_string(), "names that differ and can be written")
                }
            };
            let mut options = FullFileOptions::default()
                .compression_method(method)
                .large_file(t.bytes.len() as u64 > u32::MAX as u64 / 2);
            if method == CompressionMethod::Stored {
                options = options.with_alignment(64);
            }
            if ml_dtypes_name(t.dtype).is_some() {
                options = options.with_file_comment(format!("dtype={}", t.dtype));
            }
            z.start_file(format!("{}.npy", name.as_ref()), options).map_err(failed)?;
            z.write_all(&npy::write_header(t.dtype, t.dims))
                .and_then(|()| z.write_all(&npy_bytes(&t)))
                .map_err(TensorError::io(&at, "write"))?;
        }
        let mut w =
            z.finish().map_err(|e| TensorError::request(&file, e.to_string(), "room for it"))?;
        w.flush().map_err(TensorError::io(&file, "write"))
    })
}

struct Packed<'a> {
    dtype: safetensors::Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl View for &Packed<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes named tensors as safetensors; floats below eight bits are packed.
///
/// # Errors
/// Types the format does not have (`s4`, `c128`, ..), bytes that do not fit
/// the sizes, packed tensors that do not fill bytes, a name that occurs twice,
/// and those of the operating system.
pub fn write_safetensors<'a, N: AsRef<str>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, TensorRef<'a>)>,
) -> Result<(), TensorError> {
    let path = path.as_ref();
    let file = path.display().to_string();
    let mut all: Vec<(String, Packed)> = Vec::new();
    for (name, t) in tensors {
        let at = format!("{file}, tensor {}", name.as_ref());
        t.check(&at)?;
        let dtype = safe::from_dtype(t.dtype).ok_or_else(|| {
            let m = format!("safetensors has no type {}", t.dtype);
            TensorError::request(&at, m, "another type or an npz file")
        })?;
        let w = t.dtype.bits();
        if w < 8 && !(t.bytes.len() * w as usize).is_multiple_of(8) {
            let m = format!("{} elements of {w} bits", t.bytes.len());
            return Err(TensorError::request(&at, m, "a whole number of bytes"));
        }
        let bytes =
            if w < 8 { Cow::Owned(pack(t.bytes, w as usize)) } else { Cow::Borrowed(t.bytes) };
        let shape = t.dims.iter().map(|&d| d as usize).collect();
        all.push((name.as_ref().into(), Packed { dtype, shape, bytes }));
    }
    let mut names: Vec<&str> = all.iter().map(|t| t.0.as_str()).collect();
    names.sort_unstable();
    if let Some(w) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(TensorError::request(
            &file,
            format!("two tensors named {}", w[0]),
            "names that differ",
        ));
    }
    let bytes = safetensors::serialize(all.iter().map(|(n, t)| (n, t)), None)
        .map_err(|e| TensorError::request(&file, e.to_string(), "tensors that can be written"))?;
    save_atomically(path, |f| f.write_all(&bytes).map_err(TensorError::io(&file, "write")))
}

/// Writes named tensors in the format of the path's ending: `.npz`,
/// `.safetensors`, or `.npy` for exactly one tensor.
///
/// # Errors
/// Those of the writers, and for another ending.
pub fn write_archive<'a, N: AsRef<str>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, TensorRef<'a>)>,
) -> Result<(), TensorError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    match path.extension().and_then(|e| e.to_str()) {
        Some("npz") => write_npz(path, tensors),
        Some("safetensors") => write_safetensors(path, tensors),
        Some("npy") => {
            let mut it = tensors.into_iter();
            match (it.next(), it.next()) {
                (Some((_, t)), None) => write_npy(path, t),
                _ => {
                    Err(TensorError::request(&name, "an npy file holds one tensor", "an npz file"))
                }
            }
        }
        _ => Err(TensorError::request(&name, "unknown ending", ".npz, .npy or .safetensors")),
    }
}
