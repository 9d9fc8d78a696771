//! Opening a file of tensors, whatever its format.

use crate::source::{FileAt, Source};
use crate::tensor::{Coding, Tensor, count};
use crate::types::{Stored, from_ml_dtypes};
use crate::{TensorError, npy, safe};
use scalify_ir::DType;
use scalify_ir::shape::Dims;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use zip::{CompressionMethod, ZipArchive};

/// Inflated tensors up to this size are kept in memory, larger ones in an
/// unnamed temporary file.
const IN_MEMORY: u64 = 64 << 20;

/// A tensor of an archive, not read yet.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name; empty for the only tensor of an npy or raw file.
    pub name: String,
    /// Element type as stored.
    pub stored: Stored,
    /// Sizes.
    pub dims: Dims,
    place: Place,
    /// Where it is, for messages.
    at: String,
    fortran: bool,
    coding: Coding,
}

#[derive(Clone, Debug)]
enum Place {
    File(FileAt, u64),
    /// Of a folder, which may have more files than can be open at once.
    Path(PathBuf, u64),
    /// Number of the zip member, length of its npy header.
    Deflated(usize, u64),
}

/// A file (or a folder of npy files) with named tensors. Opening reads headers
/// only. Check sums are compared for deflated members, which are read whole; not
/// for stored ones, which are read in parts.
pub struct Archive {
    entries: Vec<Entry>,
    zip: Option<ZipArchive<FileAt>>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Archive {
    /// Opens an npy, npz or safetensors file, told apart by their contents, or
    /// a folder whose `*.npy` files are tensors named by their stems.
    ///
    /// # Errors
    /// Unreadable files and headers that break their format.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive, TensorError> {
        let path = path.as_ref();
        if path.is_dir() {
            return folder(path);
        }
        let f = FileAt::open(path)?;
        let head = f.head(0, 12)?;
        if head.starts_with(npy::MAGIC) {
            return Ok(Archive { entries: vec![npy_entry(f, String::new())?], zip: None });
        }
        if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
            return open_zip(f);
        }
        if safe::looks_like(&head, f.len) {
            return open_safe(f);
        }
        Err(TensorError::format(
            &f.name,
            0,
            "unknown format",
            "an npy, npz or safetensors file, or a folder of npy files",
        ))
    }

    /// Opens a file of bare little-endian, row-major elements, one byte each
    /// for types below eight bits, from byte `offset` on.
    ///
    /// # Errors
    /// If the file cannot be read or does not hold as many elements.
    pub fn open_raw(
        path: impl AsRef<Path>,
        dtype: DType,
        dims: &[i64],
        offset: u64,
    ) -> Result<Archive, TensorError> {
        let f = FileAt::open(path.as_ref())?;
        let want = count(dims).and_then(|n| n.checked_mul(dtype.literal_bytes() as u64));
        let end = want.and_then(|n| n.checked_add(offset));
        if end != Some(f.len) {
            return Err(TensorError::format(
                &f.name,
                offset,
                format!("{} bytes from here on", f.len.saturating_sub(offset)),
                match want {
                    Some(n) => format!("{n} bytes for {dtype}{dims:?}"),
                    None => "sizes of fewer than 2^48 elements".into(),
                },
            ));
        }
        let at = f.name.to_string();
        let entry = Entry {
            name: String::new(),
            stored: Stored::Known(dtype),
            dims: dims.iter().copied().collect(),
            place: Place::File(f, offset),
            at,
            fortran: false,
            coding: Coding { clean: true, ..Coding::default() },
        };
        Ok(Archive { entries: vec![entry], zip: None })
    }

    /// The tensors, in the order of the file (safetensors: by offset).
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Number of the tensor with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|e| e.name == name)
    }

    /// Tensor number `i`. `hint` is its type if the file does not name it
    /// ([`Stored::Opaque`]), and is ignored else. Elements stay in the file
    /// except those of deflated members and of arrays in Fortran order.
    ///
    /// # Errors
    /// Unreadable or broken members; an unknown type; no such tensor.
    pub fn tensor(&self, i: usize, hint: Option<DType>) -> Result<Tensor, TensorError> {
        let e = self.entries.get(i).ok_or_else(|| {
            TensorError::request(
                "archive",
                format!("no tensor number {i}"),
                format!("a number below {}", self.entries.len()),
            )
        })?;
        let dtype = match (e.stored, hint) {
            (Stored::Known(t), _) => t,
            (Stored::Opaque(n), Some(t)) if t.literal_bytes() as u32 == n => t,
            (Stored::Opaque(n), Some(t)) => {
                return Err(TensorError::request(
                    &e.at,
                    format!("elements of {n} bytes cannot be {t}"),
                    format!("a type of {n} bytes"),
                ));
            }
            (s @ Stored::Opaque(n), None) => s.dtype().ok_or_else(|| {
                TensorError::request(
                    &e.at,
                    format!("the file says only that an element has {n} byte"),
                    "the element type, e.g. f8e4m3fn or s4",
                )
            })?,
        };
        let len = count(&e.dims).unwrap_or(0);
        let bytes = len * dtype.literal_bytes() as u64;
        let source = match &e.place {
            Place::File(f, at) => Source::File(f.clone(), *at),
            Place::Path(p, at) => {
                let f = FileAt::open(p)?;
                if f.len < at.saturating_add(bytes) {
                    let m = "the file was truncated";
                    return Err(TensorError::format(&e.at, f.len, m, "the file as it was opened"));
                }
                Source::File(f, *at)
            }
            Place::Deflated(member, skip) => self.inflate(*member, *skip, bytes, &e.at)?,
        };
        let t = Tensor::stored(dtype, e.dims.clone(), len, source, e.coding);
        if !e.fortran || e.dims.len() < 2 {
            return Ok(t);
        }
        let row_major = transpose(&t.bytes()?, &e.dims, dtype.literal_bytes());
        let source = Source::Memory(row_major.into());
        Ok(Tensor::stored(dtype, e.dims.clone(), len, source, Coding::default()))
    }

    fn inflate(
        &self,
        member: usize,
        skip: u64,
        bytes: u64,
        at: &str,
    ) -> Result<Source, TensorError> {
        let Some(mut zip) = self.zip.clone() else {
            return Err(TensorError::request(at, "not in a zip archive", "a zip archive"));
        };
        let mut m = zip.by_index(member).map_err(|e| zip_error(at, e))?;
        let read = |e| TensorError::io(at, "inflate")(e);
        let short = |got: u64| {
            TensorError::format(
                at,
                skip + got,
                "the member ends",
                format!("{bytes} bytes of elements"),
            )
        };
        std::io::copy(&mut m.by_ref().take(skip), &mut std::io::sink()).map_err(read)?;
        let source = if bytes <= IN_MEMORY {
            let mut v = Vec::with_capacity(bytes.min(1 << 20) as usize);
            m.by_ref().take(bytes).read_to_end(&mut v).map_err(read)?;
            if (v.len() as u64) < bytes {
                return Err(short(v.len() as u64));
            }
            Source::Memory(v.into())
        } else {
            let mut file =
                tempfile::tempfile().map_err(TensorError::io(at, "create a temporary file for"))?;
            let n = std::io::copy(&mut m.by_ref().take(bytes), &mut file).map_err(read)?;
            file.flush().and_then(|()| file.seek(SeekFrom::Start(0))).map_err(read)?;
            if n < bytes {
                return Err(short(n));
            }
            Source::File(FileAt::of(file, at)?, 0)
        };
        // To the end: this is where the check sum is compared.
        let rest = std::io::copy(&mut m, &mut std::io::sink()).map_err(read)?;
        if rest > 0 {
            return Err(TensorError::format(
                at,
                skip + bytes,
                format!("{rest} bytes too many"),
                "the end",
            ));
        }
        Ok(source)
    }
}

fn zip_error(at: &str, e: zip::result::ZipError) -> TensorError {
    match e {
        zip::result::ZipError::Io(source) => TensorError::io(at, "read")(source),
        e => TensorError::request(at, e.to_string(), "a readable zip archive"),
    }
}

/// Column-major to row-major.
fn transpose(b: &[u8], dims: &[i64], size: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(dims.len());
    let mut s = size;
    for &d in dims {
        strides.push(s);
        s *= d as usize;
    }
    let mut out = Vec::with_capacity(b.len());
    let mut index = vec![0i64; dims.len()];
    let mut from = 0;
    while out.len() < b.len() {
        out.extend_from_slice(b.get(from..from + size).unwrap_or_default());
        for k in (0..dims.len()).rev() {
            index[k] += 1;
            from += strides[k];
            if index[k] < dims[k] {
                break;
            }
            from -= strides[k] * dims[k] as usize;
            index[k] = 0;
        }
    }
    out
}

fn npy_coding(h: &npy::Header) -> Coding {
    Coding { big: h.big, packed: false, clean: true }
}

/// The tensor of an npy file.
fn npy_entry(f: FileAt, name: String) -> Result<Entry, TensorError> {
    let h = npy::header(&f.name, 0, |at, n| f.head(at, n))?;
    let want = h.data_bytes().and_then(|n| n.checked_add(h.data));
    if want != Some(f.len) {
        let m = format!("{} bytes from here on", f.len.saturating_sub(h.data));
        let e = format!("{} bytes as the header says", h.data_bytes().unwrap_or(0));
        return Err(TensorError::format(&f.name, h.data, m, e));
    }
    let at = f.name.to_string();
    let coding = npy_coding(&h);
    let place = Place::File(f, h.data);
    Ok(Entry { name, stored: h.stored, dims: h.dims, place, at, fortran: h.fortran, coding })
}

fn folder(path: &Path) -> Result<Archive, TensorError> {
    let name = path.display().to_string();
    let list = std::fs::read_dir(path).map_err(TensorError::io(&name, "list"))?;
    let mut files = Vec::new();
    for f in list {
        let p = f.map_err(TensorError::io(&name, "list"))?.path();
        if p.extension().is_some_and(|e| e == "npy") {
            files.push(p);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(TensorError::request(&name, "no *.npy in this folder", "npy files"));
    }
    let entries = files
        .iter()
        .map(|p| {
            let stem = p.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let mut e = npy_entry(FileAt::open(p)?, stem)?;
            if let Place::File(_, at) = e.place {
                e.place = Place::Path(p.clone(), at);
            }
            Ok(e)
        })
        .collect::<Result<_, TensorError>>()?;
    Ok(Archive { entries, zip: None })
}

fn open_safe(f: FileAt) -> Result<Archive, TensorError> {
    let (meta, data) = safe::header(&f)?;
    let mut entries = Vec::new();
    for name in meta.offset_keys() {
        let Some(info) = meta.info(&name) else { continue };
        let at = format!("{}, tensor {name}", f.name);
        let begin = data + info.data_offsets.0 as u64;
        let dtype = safe::to_dtype(info.dtype).ok_or_else(|| {
            let m = format!("element type {:?}", info.dtype);
            TensorError::format(&at, begin, m, "a type that HLO has")
        })?;
        let dims: Option<Dims> = info.shape.iter().map(|&d| i64::try_from(d).ok()).collect();
        let dims = dims.filter(|d| count(d).is_some()).ok_or_else(|| {
            let m = format!("shape {:?}", info.shape);
            TensorError::format(&at, begin, m, "fewer than 2^48 elements")
        })?;
        entries.push(Entry {
            name,
            stored: Stored::Known(dtype),
            dims,
            place: Place::File(f.clone(), begin),
            at,
            fortran: false,
            coding: Coding { big: false, packed: true, clean: true },
        });
    }
    Ok(Archive { entries, zip: None })
}

fn open_zip(f: FileAt) -> Result<Archive, TensorError> {
    let name = f.name.to_string();
    let mut zip = ZipArchive::new(f.clone()).map_err(|e| zip_error(&name, e))?;
    if zip.has_duplicate_names() {
        return Err(TensorError::request(&name, "two members have one name", "names that differ"));
    }
    let mut entries = Vec::new();
    for i in 0..zip.len() {
        let m = zip.by_index_raw(i).map_err(|e| zip_error(&name, e))?;
        let full = String::from_utf8_lossy(m.name_raw()).into_owned();
        if m.is_dir() {
            continue;
        }
        let at = format!("{name}, member {full}");
        if m.encrypted() {
            return Err(TensorError::request(&at, "encrypted", "a plain member"));
        }
        let tensor = full.strip_suffix(".npy").ok_or_else(|| {
            TensorError::request(&at, "not a .npy member", "an archive of .npy members")
        })?;
        let comment = m
            .comment()
            .strip_prefix("dtype=")
            .and_then(|c| DType::from_name(c).or_else(|| from_ml_dtypes(c)));
        let (size, packed, method) = (m.size(), m.compressed_size(), m.compression());
        let start = m.data_start();
        drop(m);
        let (h, place, base) = match (method, start) {
            (CompressionMethod::Stored, Some(start)) => {
                if start.checked_add(size).is_none_or(|end| end > f.len) || packed != size {
                    let m = format!("a member of {size} bytes");
                    return Err(TensorError::format(&at, start, m, "a member inside the file"));
                }
                let end = start + size;
                let h = npy::header(&at, start, |from, n| {
                    let from = start + from;
                    f.head(from, (end.saturating_sub(from)).min(n as u64) as usize)
                })?;
                let place = Place::File(f.clone(), start + h.data);
                (h, place, start)
            }
            (CompressionMethod::Deflated, _) => {
                let mut m = zip.by_index(i).map_err(|e| zip_error(&at, e))?;
                // The header reader asks for bytes in order but for the two
                // lengths it may begin at.
                let mut seen = Vec::new();
                let h = npy::header(&at, 0, |from, n| {
                    let end = from as usize + n;
                    let more = end.saturating_sub(seen.len()) as u64;
                    m.by_ref()
                        .take(more)
                        .read_to_end(&mut seen)
                        .map_err(TensorError::io(&at, "inflate"))?;
                    let end = end.min(seen.len());
                    Ok(seen.get(from as usize..end).unwrap_or_default().to_vec())
                })?;
                let place = Place::Deflated(i, h.data);
                (h, place, 0)
            }
            (method, _) => {
                let m = format!("compression method {method}");
                return Err(TensorError::request(&at, m, "a stored or deflated member"));
            }
        };
        let want = h.data_bytes().and_then(|n| n.checked_add(h.data));
        if want != Some(size) {
            let m = format!("{} bytes from here on", size.saturating_sub(h.data));
            let e = format!("{} bytes as the header says", h.data_bytes().unwrap_or(0));
            return Err(TensorError::format(&at, base + h.data, m, e));
        }
        let stored = match (h.stored, comment) {
            (Stored::Opaque(n), Some(t)) if t.literal_bytes() as u32 == n => Stored::Known(t),
            (s, _) => s,
        };
        entries.push(Entry {
            name: tensor.into(),
            stored,
            dims: h.dims.clone(),
            place,
            at,
            fortran: h.fortran,
            coding: npy_coding(&h),
        });
    }
    Ok(Archive { entries, zip: Some(zip) })
}

/// All tensors of a file (see [`Archive::open`]) by name.
///
/// # Errors
/// Unreadable or broken files; an element type the file does not name (see
/// [`read_archive_with`]).
pub fn read_archive(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>, TensorError> {
    read_archive_with(path, &|_, _| None)
}

/// [`read_archive`]; `type_of` names the type of tensors whose file gives only
/// the bytes of an element (its second argument).
///
/// # Errors
/// Those of [`read_archive`].
pub fn read_archive_with(
    path: impl AsRef<Path>,
    type_of: &dyn Fn(&str, u32) -> Option<DType>,
) -> Result<Vec<(String, Tensor)>, TensorError> {
    let a = Archive::open(path)?;
    a.entries
        .iter()
        .enumerate()
        .map(|(i, e)| {
            let hint = match e.stored {
                Stored::Opaque(n) => type_of(&e.name, n),
                Stored::Known(_) => None,
            };
            Ok((e.name.clone(), a.tensor(i, hint)?))
        })
        .collect()
}
