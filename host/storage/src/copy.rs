//! Copies between a file and a span of memory.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rushmem_config::StorageKind;
use rushmem_cuda::{CuFile, DeviceBuffer};
use rushmem_error::{Error, Result};
use rustix::fs::OFlags;

use crate::chunks::{Stop, in_parallel};
use crate::span::Span;

/// Number of bytes that a thread copies at a time.
pub(crate) const CHUNK: u64 = 4 << 20;

/// The Linux module through which cuFile accesses GPU memory directly.
const DIRECT_MODULE: &str = "/sys/module/nvidia_fs";

/// Returns the error of an operation on the file at `path`.
pub(crate) fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |cause| Error::File { what, path: path.into(), cause }
}

/// The path of data between a file and a span.
enum DataPath<'a> {
    CuFile(&'static CuFile, &'a DeviceBuffer, Range<u64>),
    /// Reads and writes of the host, with the reason.
    Plain(&'static str),
}

/// Chooses the path by the setting `storage`.
fn data_path(kind: StorageKind, span: &Span) -> Result<DataPath<'_>> {
    let without_cufile = |why| match kind {
        StorageKind::CuFile => Err(Error::Unavailable { what: "cuFile".into(), why }),
        StorageKind::Auto | StorageKind::Plain => Ok(()),
    };
    let Some((buffer, range)) = span.in_gpu() else {
        without_cufile("the memory is not on a GPU; set RUSHMEM_STORAGE=auto".into())?;
        return Ok(DataPath::Plain("the memory is not on a GPU"));
    };
    match kind {
        StorageKind::Plain => Ok(DataPath::Plain("the setting asks for it")),
        StorageKind::Auto if !Path::new(DIRECT_MODULE).exists() => {
            Ok(DataPath::Plain("the module nvidia_fs is not loaded"))
        }
        StorageKind::Auto | StorageKind::CuFile => match CuFile::load(buffer.device()) {
            Ok(cufile) => Ok(DataPath::CuFile(cufile, buffer, range)),
            Err(why) => {
                without_cufile(format!("{why}; install libcufile, or set RUSHMEM_STORAGE=auto"))?;
                Ok(DataPath::Plain(why))
            }
        },
    }
}

/// Opens a file past the page cache, as cuFile needs it.
fn open_direct(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::DIRECT.bits() as i32).open(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            io::Error::new(ErrorKind::Unsupported, "its file system has no direct I/O")
        }
        _ => error,
    })
}

/// Copies on the path `by`: by cuFile with `direct`, or by `plain`. The latter also if cuFile does not take the file,
/// unless the setting `storage` asks for it.
fn copy_by(
    by: DataPath<'_>,
    kind: StorageKind,
    (what, path): (&'static str, &Path),
    direct: impl FnOnce(&CuFile, &DeviceBuffer, Range<u64>) -> io::Result<()>,
    plain: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match by {
        DataPath::CuFile(cufile, buffer, range) => match direct(cufile, buffer, range) {
            Err(error) if kind == StorageKind::Auto && error.kind() == ErrorKind::Unsupported => {
                tracing::info!("{} by plain files, because {error}", path.display());
                plain()
            }
            result => {
                tracing::info!("{} by cuFile", path.display());
                result.map_err(failed(what, path))
            }
        },
        DataPath::Plain(why) => {
            tracing::info!("{} by plain files, because {why}", path.display());
            plain()
        }
    }
}

/// Copies the bytes at offset `at` of a file to a span, on the path that the setting `storage` chooses.
///
/// # Errors
/// - [`Error::File`] if the file cannot be read. The span is unchanged if the file is too short.
/// - [`Error::Unavailable`] if the setting asks for a path that cannot be used.
/// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be written.
pub fn read_file(path: &Path, at: u64, span: &Span, storage: StorageKind) -> Result<()> {
    let by = data_path(storage, span)?;
    let failed = || failed("read", path);
    let file = File::open(path).map_err(failed())?;
    let length = file.metadata().map_err(failed())?.len();
    if at.checked_add(span.bytes()).is_none_or(|end| end > length) {
        let why = format!("it has {length} bytes, and {} at offset {at} are asked for", span.bytes());
        return Err(failed()(io::Error::new(ErrorKind::UnexpectedEof, why)));
    }
    let direct = |cufile: &CuFile, buffer: &DeviceBuffer, range: Range<u64>| {
        cufile.read(&open_direct(OpenOptions::new().read(true), path)?, at, buffer, range)
    };
    copy_by(by, storage, ("read", path), direct, || {
        in_chunks(span, |offset, buffer| {
            file.read_exact_at(buffer, at + offset).map_err(failed())?;
            span.write(offset, buffer)
        })
    })
}

/// Copies a span to offset `at` of a file, which is created if there is none, on the path that the setting `storage`
/// chooses. The other bytes of the file stay.
///
/// # Errors
/// - [`Error::File`] if the file cannot be written.
/// - [`Error::Unavailable`] if the setting asks for a path that cannot be used.
/// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be read.
pub fn write_file(path: &Path, at: u64, span: &Span, storage: StorageKind) -> Result<()> {
    let by = data_path(storage, span)?;
    let failed = || failed("write", path);
    if at.checked_add(span.bytes()).is_none_or(|end| end > i64::MAX as u64) {
        return Err(failed()(ErrorKind::FileTooLarge.into()));
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed())?;
    let direct = |cufile: &CuFile, buffer: &DeviceBuffer, range: Range<u64>| {
        cufile.write(&open_direct(OpenOptions::new().read(true).write(true), path)?, at, buffer, range)
    };
    copy_by(by, storage, ("write", path), direct, || {
        in_chunks(span, |offset, buffer| {
            span.read(offset, buffer)?;
            file.write_all_at(buffer, at + offset).map_err(failed())
        })
    })
}

/// Calls `copy` with the offset of each chunk of the span, and a buffer of its length.
fn in_chunks(span: &Span, copy: impl Fn(u64, &mut [u8]) -> Result<()> + Sync) -> Result<()> {
    let count = span.bytes().div_ceil(CHUNK) as usize;
    in_parallel(count, &Stop::default(), |index, buffer| {
        let offset = index as u64 * CHUNK;
        copy(offset, buffer.take(CHUNK.min(span.bytes() - offset)))
    })?;
    Ok(())
}
