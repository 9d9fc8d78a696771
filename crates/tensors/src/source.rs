//! Where bytes come from.

use crate::TensorError;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

/// An open file; reads do not move a shared position.
#[derive(Clone, Debug)]
pub(crate) struct FileAt {
    pub(crate) file: Arc<File>,
    /// For messages.
    pub(crate) name: Arc<str>,
    /// Length when opened.
    pub(crate) len: u64,
    pos: u64,
}

impl FileAt {
    pub(crate) fn open(path: &std::path::Path) -> Result<FileAt, TensorError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(TensorError::io(&name, "open"))?;
        FileAt::of(file, &name)
    }

    pub(crate) fn of(file: File, name: &str) -> Result<FileAt, TensorError> {
        let meta = file.metadata().map_err(TensorError::io(name, "read"))?;
        if !meta.is_file() {
            return Err(TensorError::request(name, "not a regular file", "a regular file"));
        }
        Ok(FileAt { file: Arc::new(file), name: name.into(), len: meta.len(), pos: 0 })
    }

    /// Fills `buf` from `offset`.
    pub(crate) fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match read_at(&self.file, buf, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    buf = buf.get_mut(n..).unwrap_or_default();
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Bytes `offset..offset + len`, fewer at the end of the file.
    pub(crate) fn head(&self, offset: u64, len: usize) -> Result<Vec<u8>, TensorError> {
        let n = self.len.saturating_sub(offset).min(len as u64) as usize;
        let mut v = vec![0; n];
        self.read_exact_at(&mut v, offset).map_err(TensorError::io(&*self.name, "read"))?;
        Ok(v)
    }
}

#[cfg(unix)]
fn read_at(f: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(f, buf, offset)
}

#[cfg(windows)]
fn read_at(f: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(f, buf, offset)
}

impl Read for FileAt {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = read_at(&self.file, buf, self.pos)?;
        self.pos += n as u64;
        Ok(n)
    }
}

impl Seek for FileAt {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(d) => self.len.checked_add_signed(d),
            SeekFrom::Current(d) => self.pos.checked_add_signed(d),
        };
        self.pos = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.pos)
    }
}

/// Bytes of one tensor.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Memory(Arc<[u8]>),
    /// From an offset on.
    File(FileAt, u64),
}
