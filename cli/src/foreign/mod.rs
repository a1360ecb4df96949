//! Foreign models as a source for `import`: safetensors files and Hugging Face directories.
//! Knows their headers and index; it must not know how a checkpoint is written.

mod directory;
mod header;
mod stream;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use waystation_format::{Code, Dtype, Error, Result};

use crate::fuzzing::Found;

/// A model to import: open files, the tensors in them, and the other files beside them.
#[derive(Debug)]
pub(crate) struct Model {
    files: Vec<OpenFile>,
    /// Sorted by name, each name once.
    pub(crate) tensors: Vec<ForeignTensor>,
    /// Logical path and where the file is, sorted by path.
    pub(crate) attachments: Vec<(String, PathBuf)>,
    /// What was left out on purpose, for the user to see.
    pub(crate) skipped: Vec<String>,
}

/// A whole tensor: a run of bytes in one file, row-major and little-endian.
#[derive(Debug)]
pub(crate) struct ForeignTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    file: usize,
    /// From the start of the file, in bytes.
    offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    handle: File,
}

impl Model {
    /// Opens `source`: one file, or a directory.
    ///
    /// # Errors
    /// [`Code::NotFound`] when it is not there or holds no safetensors file, [`Code::BadArgument`] when a
    /// header or index is not valid, and what the system answers.
    pub(crate) fn open(source: &Path) -> Result<Self> {
        let kind = std::fs::metadata(source).map_err(|e| absent_or_io(source, e))?;
        let mut model = if kind.is_dir() {
            directory::open(source)?
        } else {
            let (file, tensors) = open_file(source, 0)?;
            Self { files: vec![file], tensors, attachments: Vec::new(), skipped: Vec::new() }
        };
        model.tensors.sort_by(|a, b| a.name.cmp(&b.name));
        for (a, b) in model.tensors.iter().zip(model.tensors.iter().skip(1)) {
            if a.name == b.name {
                let message =
                    format!("tensor {:?} stands in two files: expected it in one", a.name);
                return Err(
                    Error::new(Code::BadArgument, message).in_file(source.display().to_string())
                );
            }
        }
        Ok(model)
    }

    /// Reads bytes of `tensor` from its byte `offset` on, until `out` is full.
    ///
    /// # Errors
    /// What the system answers; a file that became shorter is [`Code::LengthMismatch`].
    fn read(&self, tensor: &ForeignTensor, offset: u64, out: &mut [u8]) -> Result<()> {
        let missing = || Error::new(Code::NotFound, "the tensor is not of this model");
        let file = self.files.get(tensor.file).ok_or_else(missing)?;
        let from = waystation_format::arith::add(tensor.offset, offset, "offset in the source")?;
        file.handle.read_exact_at(out, from).map_err(|e| {
            let error = if e.kind() == std::io::ErrorKind::UnexpectedEof {
                Error::new(Code::LengthMismatch, "the file became shorter while it was read")
            } else {
                Error::io("read", e)
            };
            error.in_file(file.path.display().to_string()).at_offset(from)
        })
    }
}

/// The tensors of a safetensors file in memory.
///
/// # Errors
/// As [`Model::open`] for a header that is not valid.
pub(crate) fn tensors_of(file: &[u8]) -> Result<Vec<Found>> {
    let found = header::read_bytes(file, 0)?;
    let of = |tensor: ForeignTensor| {
        let end = tensor.offset.saturating_add(tensor.bytes);
        (tensor.name, tensor.dtype, tensor.shape, tensor.offset..end)
    };
    Ok(found.into_iter().map(of).collect())
}

/// A length in memory, which always fits.
fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn open_file(path: &Path, index: usize) -> Result<(OpenFile, Vec<ForeignTensor>)> {
    let (handle, bytes) = open_regular(path)?;
    let tensors =
        header::read(&handle, bytes, index).map_err(|e| e.in_file(path.display().to_string()))?;
    Ok((OpenFile { path: path.to_owned(), handle }, tensors))
}

/// Opens a regular file, or a link to one, and gives its length. It is looked at first: opening a
/// pipe would wait for its writer for ever.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64)> {
    let name = || path.display().to_string();
    let kind = std::fs::metadata(path).map_err(|e| absent_or_io(path, e))?;
    if !kind.is_file() {
        let error = Error::new(Code::NotRegular, "expected a file, found something else");
        return Err(error.in_file(name()));
    }
    let handle = File::open(path).map_err(|e| absent_or_io(path, e))?;
    let bytes = handle.metadata().map_err(|e| Error::io("stat", e).in_file(name()))?.len();
    Ok((handle, bytes))
}

fn absent_or_io(path: &Path, e: std::io::Error) -> Error {
    let error = if e.kind() == std::io::ErrorKind::NotFound {
        Error::new(Code::NotFound, "there is no such file or directory")
    } else {
        Error::io("open", e)
    };
    error.in_file(path.display().to_string())
}

/// Importing our own files would make tensors of pads and pieces.
fn is_checkpoint() -> Error {
    let message = "this is a checkpoint or a shard of one, not a foreign model: use `copy`, `reshard` or `export`";
    Error::new(Code::BadArgument, message)
}
