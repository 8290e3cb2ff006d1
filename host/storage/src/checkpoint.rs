//! Checkpoints: a part for each PE, and the manifest that makes them one.
//!
//! Each save writes its parts to a new folder, `rushmem-GENERATION`, then replaces the manifest, which names the folder,
//! and then removes the folder of the previous save. The checkpoint is therefore always the old or the new one, on any
//! file system that renames files atomically.
//!
//! The first PE calls [`Save::begin`], each PE [`write_part`], and the first one [`Save::commit`] or [`Save::abandon`].
//! To load, each PE calls [`read_manifest`], compares the manifest's [`fingerprint`] with those of the others, and calls
//! [`Loading::verify`] and [`Loading::load`]. A PE that loads any part on its own calls [`Loading::verify_part`] and
//! [`Loading::load`].

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rushmem_error::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::chunks::{Buffer, Stop, in_parallel};
use crate::copy::{CHUNK, failed};
use crate::files::Files;
use crate::format::{ALIGN, Checksums, Chunk, Entry, Header, Layout, Manifest, PART};
use crate::frame::{self, PRELUDE};
use crate::span::Span;

pub use crate::format::Part;

const MANIFEST_FILE: &str = "rushmem.manifest";
const NEW_MANIFEST_FILE: &str = "rushmem.manifest.new";
const LOCK_FILE: &str = "rushmem.lock";
const FOLDER_PREFIX: &str = "rushmem-";

/// An object to save or to load.
#[derive(Clone)]
pub struct Object {
    pub name: String,
    /// Size of an element.
    pub element_bytes: u64,
    pub span: Span,
}

/// The PE that a part belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Rank among the PEs that save or load together, and number of the part.
    pub pe: u32,
    pub n_pes: u32,
}

/// A save that has begun.
pub struct Save<'a> {
    files: &'a dyn Files,
    path: PathBuf,
    generation: u64,
    /// Generation of the checkpoint that this one replaces.
    old: Option<u64>,
    /// Keeps other jobs from saving to the same place.
    _lock: Lock,
}

fn folder(path: &Path, generation: u64) -> PathBuf {
    path.join(format!("{FOLDER_PREFIX}{generation}"))
}

fn part_file(path: &Path, generation: u64, pe: u32) -> PathBuf {
    folder(path, generation).join(format!("pe-{pe}"))
}

fn refused(path: &Path) -> impl Fn(String) -> Error {
    move |why| Error::Checkpoint { path: path.into(), why }
}

impl<'a> Save<'a> {
    /// Begins a save to the folder `path`, which is created if there is none. Removes what an unfinished save has left.
    ///
    /// # Errors
    /// - [`Error::Checkpoint`] if another job is saving there, or if what is there is damaged.
    /// - [`Error::File`]
    pub fn begin(files: &'a dyn Files, path: &Path) -> Result<Self> {
        files.create_folder(path).map_err(failed("create", path))?;
        let lock = lock(path)?;
        let old = match read_manifest(path) {
            Ok(bytes) => Some(decoded(path, &bytes)?.generation),
            Err(Error::File { cause, .. }) if cause.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Once the rename of the last save is on the disk, nothing needs the folder before it.
        sync_folder(files, path)?;
        // A number is not used again while its folder exists: a PE that was lost may still be writing there.
        let mut last = old.unwrap_or(0);
        for entry in fs::read_dir(path).map_err(failed("list", path))? {
            let entry = entry.map_err(failed("list", path))?;
            let name = entry.file_name();
            let found = generation_of(&name.to_string_lossy());
            last = last.max(found.unwrap_or(0));
            if found.is_some() && found != old || name == NEW_MANIFEST_FILE {
                remove_leftover(files, &entry.path());
            }
        }
        let generation = last.checked_add(1);
        let generation =
            generation.ok_or_else(|| refused(path)("no save can have a larger number".into()))?;
        let folder = folder(path, generation);
        files.create_folder(&folder).map_err(failed("create", &folder))?;
        Ok(Self { files, path: path.into(), generation, old, _lock: lock })
    }

    /// Returns the number of this save, which is larger than that of the checkpoint it replaces.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes `parts`, those of all PEs by PE number, the checkpoint. Removes the old one.
    ///
    /// # Errors
    /// - [`Error::File`]. Then the checkpoint is the old or the new one.
    pub fn commit(self, parts: Vec<Part>) -> Result<()> {
        let Self { files, path, generation, old, .. } = &self;
        let manifest = Manifest { generation: *generation, parts };
        let bytes = manifest.encode().map_err(refused(path))?;
        sync_folder(*files, &folder(path, *generation))?;
        // The manifest must not reach the disk before the entries of the folders.
        sync_folder(*files, path)?;
        if old.is_none() {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            match sync_folder(*files, above.unwrap_or(Path::new("."))) {
                // Whoever may not read it cannot synchronize it either.
                Err(Error::File { cause, .. }) if cause.kind() == ErrorKind::PermissionDenied => {}
                outcome => outcome?,
            }
        }
        let (new, current) = (path.join(NEW_MANIFEST_FILE), path.join(MANIFEST_FILE));
        write_new(*files, &new, &bytes)?;
        files.rename(&new, &current).map_err(failed("replace", &current))?;
        sync_folder(*files, path)?;
        if let Some(old) = old {
            remove_leftover(*files, &folder(path, *old));
        }
        Ok(())
    }

    /// Removes the parts that were written. The old checkpoint stays.
    pub fn abandon(self) {
        remove_leftover(self.files, &folder(&self.path, self.generation));
    }
}

/// Returns the generation whose folder has this name.
fn generation_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix(FOLDER_PREFIX)?.parse().ok()?;
    // Not `+7` or `007`, which this crate does not create.
    (name == format!("{FOLDER_PREFIX}{number}")).then_some(number)
}

/// Removes what belongs to an unfinished save or to a replaced checkpoint. If that fails, the next save tries again.
fn remove_leftover(files: &dyn Files, path: &Path) {
    if let Err(error) = files.remove(path) {
        tracing::warn!("{} is no longer needed, and stays: {error}", path.display());
    }
}

/// For how long a save waits for the lock, which a process that is being killed may still have.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A lock of a folder.
struct Lock(File);

impl Drop for Lock {
    /// Unlocks explicitly, because a forked child may have the file open, too.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::debug!("a folder stays locked until the process ends: {error}");
        }
    }
}

/// Locks the folder for this process.
fn lock(path: &Path) -> Result<Lock> {
    let name = path.join(LOCK_FILE);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&name);
    let file = options.map_err(failed("open", &name))?;
    let begin = Instant::now();
    let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    while locked == Err(Errno::WOULDBLOCK) && begin.elapsed() < LOCK_PATIENCE {
        sleep(LOCK_PATIENCE / 50);
        locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
    }
    match locked {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(refused(path)("another job is saving there; give each job its own folder".into()));
        }
        Err(error @ (Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK)) => {
            tracing::warn!("{} cannot be locked ({error}): no other job may save there", path.display());
        }
        Err(error) => return Err(failed("lock", &name)(error.into())),
    }
    Ok(Lock(file))
}

/// Writes a file that does not exist yet, and waits until it has reached the disk.
fn write_new(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = files.create(path).map_err(failed("create", path))?;
    files.write_at(&file, bytes, 0).map_err(failed("write", path))?;
    files.sync(&file).map_err(failed("write", path))
}

fn sync_folder(files: &dyn Files, path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| files.sync(&folder)).map_err(failed("write", path))
}

/// Writes the part of a PE in the save with this number, and waits until it has reached the disk.
///
/// # Errors
/// - [`Error::File`]
/// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be read.
pub fn write_part(
    files: &dyn Files,
    path: &Path,
    generation: u64,
    owner: Owner,
    objects: &[Object],
    stop: &Stop,
) -> Result<Part> {
    write_part_in_chunks(files, path, generation, owner, (objects, CHUNK), stop)
}

/// Like [`write_part`], with chunks of a given length, a multiple of [`ALIGN`].
pub(crate) fn write_part_in_chunks(
    files: &dyn Files,
    path: &Path,
    generation: u64,
    owner: Owner,
    (objects, chunk_bytes): (&[Object], u64),
    stop: &Stop,
) -> Result<Part> {
    let name = part_file(path, generation, owner.pe);
    let entry = |object: &Object| {
        let bytes = object.span.bytes();
        let checksums = Checksums(vec![0; bytes.div_ceil(chunk_bytes) as usize]);
        Entry { name: object.name.clone(), element_bytes: object.element_bytes, bytes, checksums }
    };
    let objects_of_header = objects.iter().map(entry).collect();
    let Owner { pe, n_pes } = owner;
    let mut header = Header { generation, pe, n_pes, chunk_bytes, objects: objects_of_header };
    // The checksums do not change the length of the header.
    let header_bytes = header.encode().map_err(refused(&name))?.len() as u64;
    let Layout { chunks, bytes } = header.layout(header_bytes).map_err(refused(&name))?;

    let file = files.create_direct(&name).map_err(failed("create", &name))?;
    let checksums = in_parallel(chunks.len(), stop, |number, buffer| {
        let Chunk { object, at, bytes, in_file, .. } = chunks[number];
        let pages = buffer.take(bytes.next_multiple_of(ALIGN));
        let (data, rest) = pages.split_at_mut(bytes as usize);
        objects[object].span.read(at, data)?;
        rest.fill(0);
        let checksum = crc32fast::hash(data);
        files.write_at(&file, pages, in_file).map_err(failed("write", &name))?;
        Ok(checksum)
    })?;
    for (chunk, checksum) in chunks.iter().zip(checksums) {
        header.objects[chunk.object].checksums.0[chunk.index] = checksum;
    }
    let frame = header.encode().map_err(refused(&name))?;
    let mut buffer = Buffer::default();
    let pages = buffer.take(header_bytes.next_multiple_of(ALIGN));
    pages.fill(0);
    pages[..frame.len()].copy_from_slice(&frame);
    files.write_at(&file, pages, 0).map_err(failed("write", &name))?;
    files.sync(&file).map_err(failed("write", &name))?;
    Ok(Part { bytes, checksum: crc32fast::hash(&frame[PRELUDE..]) })
}

/// Returns the content of the manifest of the checkpoint in the folder `path`, which is not checked yet.
///
/// # Errors
/// - [`Error::File`]
pub fn read_manifest(path: &Path) -> Result<Vec<u8>> {
    let name = path.join(MANIFEST_FILE);
    fs::read(&name).map_err(failed("read", &name))
}

fn decoded(path: &Path, manifest: &[u8]) -> Result<Manifest> {
    Manifest::decode(manifest).map_err(refused(&path.join(MANIFEST_FILE)))
}

/// Returns the number of parts of the checkpoint in the folder `path`: one for each PE that saved it.
///
/// # Errors
/// - [`Error::Checkpoint`] if the manifest is damaged.
/// - [`Error::File`]
pub fn n_parts(path: &Path) -> Result<u32> {
    Ok(decoded(path, &read_manifest(path)?)?.parts.len() as u32)
}

/// The part of a PE that is being loaded.
pub struct Loading<'a> {
    name: PathBuf,
    file: File,
    header: Header,
    /// The chunks of the objects to load, each with the object's index in `objects`.
    chunks: Vec<(Chunk, usize)>,
    objects: &'a [Object],
}

impl<'a> Loading<'a> {
    /// Opens the part of a PE in the folder `path`, by the content of its manifest. Checks that it fits the job and the
    /// objects, and the checksums of their data.
    ///
    /// # Errors
    /// - [`Error::Checkpoint`] if the checkpoint is damaged, or does not fit.
    /// - [`Error::File`]
    pub fn verify(
        path: &Path,
        manifest: &[u8],
        owner: Owner,
        objects: &'a [Object],
        stop: &Stop,
    ) -> Result<Self> {
        let manifest = decoded(path, manifest)?;
        if manifest.parts.len() != owner.n_pes as usize {
            let saved = manifest.parts.len();
            return Err(refused(path)(format!(
                "it was saved by {saved} PEs, and this job has {}",
                owner.n_pes
            )));
        }
        Self::verify_part_of(path, &manifest, owner.pe, objects, stop)
    }

    /// Opens part `number` in the folder `path`, and checks it like [`Loading::verify`], however many PEs there are.
    ///
    /// # Errors
    /// - The errors of [`Loading::verify`], also if there is no such part.
    pub fn verify_part(path: &Path, number: u32, objects: &'a [Object], stop: &Stop) -> Result<Self> {
        Self::verify_part_of(path, &decoded(path, &read_manifest(path)?)?, number, objects, stop)
    }

    fn verify_part_of(
        path: &Path,
        manifest: &Manifest,
        number: u32,
        objects: &'a [Object],
        stop: &Stop,
    ) -> Result<Self> {
        let loading = Self::open(path, manifest, number, objects)?;
        in_parallel(loading.chunks.len(), stop, |number, buffer| loading.read(number, buffer).map(drop))?;
        Ok(loading)
    }

    fn open(path: &Path, manifest: &Manifest, number: u32, objects: &'a [Object]) -> Result<Self> {
        let Manifest { generation, parts } = manifest;
        let n_parts = parts.len() as u32;
        let part = parts.get(number as usize);
        let part = part
            .ok_or_else(|| refused(path)(format!("it has {n_parts} parts, and none is number {number}")))?;
        let name = part_file(path, *generation, number);
        let (file, header, layout) = open_part(&name, part)?;
        if (header.generation, header.pe, header.n_pes) != (*generation, number, n_parts) {
            return Err(refused(&name)("it is the part of another PE or another save".into()));
        }
        let mut wanted = vec![None; header.objects.len()];
        for (index, object) in objects.iter().enumerate() {
            wanted[find(&header, object).map_err(refused(&name))?] = Some(index);
        }
        let chunks = layout.chunks.into_iter().filter_map(|chunk| Some((chunk, wanted[chunk.object]?)));
        let chunks = chunks.collect();
        Ok(Self { name, file, header, chunks, objects })
    }

    /// Reads a chunk to `buffer`, and checks its checksum.
    fn read<'b>(&self, number: usize, buffer: &'b mut Buffer) -> Result<&'b [u8]> {
        let chunk = &self.chunks[number].0;
        let data = buffer.take(chunk.bytes);
        self.file.read_exact_at(data, chunk.in_file).map_err(failed("read", &self.name))?;
        let entry = &self.header.objects[chunk.object];
        if crc32fast::hash(data) != entry.checksums.0[chunk.index] {
            let why = format!("the checksum of `{}` at byte {} is wrong", entry.name, chunk.at);
            return Err(refused(&self.name)(why));
        }
        Ok(data)
    }

    /// Copies the data to the objects.
    ///
    /// # Errors
    /// Some objects may have changed:
    /// - [`Error::Checkpoint`] if the data has changed since it was verified.
    /// - [`Error::File`]
    /// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be written.
    pub fn load(&self, stop: &Stop) -> Result<()> {
        in_parallel(self.chunks.len(), stop, |number, buffer| {
            let (chunk, object) = self.chunks[number];
            self.objects[object].span.write(chunk.at, self.read(number, buffer)?)
        })?;
        Ok(())
    }
}

/// Opens a part, and checks everything but its data.
fn open_part(name: &Path, part: &Part) -> Result<(File, Header, Layout)> {
    let file = File::open(name).map_err(failed("read", name))?;
    let length = file.metadata().map_err(failed("read", name))?.len();
    if length != part.bytes {
        return Err(refused(name)(format!("it has {length} bytes in place of {}", part.bytes)));
    }
    let mut frame = vec![0; PRELUDE.min(length as usize)];
    file.read_exact_at(&mut frame, 0).map_err(failed("read", name))?;
    let prelude = frame::prelude(PART, &frame).map_err(refused(name))?;
    if prelude.checksum != part.checksum {
        return Err(refused(name)("it is not the part that the manifest names".into()));
    }
    let whole = prelude.length.checked_add(PRELUDE as u64).filter(|&whole| whole <= length);
    let whole = whole.ok_or_else(|| refused(name)("its header is longer than the file".into()))?;
    let no_room = |_| refused(name)(format!("there is no memory for its header of {whole} bytes"));
    frame.try_reserve_exact(whole as usize).map_err(no_room)?;
    frame.resize(whole as usize, 0);
    file.read_exact_at(&mut frame, 0).map_err(failed("read", name))?;
    let (header, layout) = Header::decode(&frame).map_err(refused(name))?;
    if layout.bytes != length {
        return Err(refused(name)(format!("its objects take up {} bytes of {length}", layout.bytes)));
    }
    Ok((file, header, layout))
}

/// Returns the index of `object` in the header.
fn find(header: &Header, object: &Object) -> Result<usize, String> {
    let Some(index) = header.objects.iter().position(|entry| entry.name == object.name) else {
        let names: Vec<&str> = header.objects.iter().map(|entry| &*entry.name).collect();
        return Err(format!("it has no object `{}`, only {names:?}", object.name));
    };
    let entry = &header.objects[index];
    let (theirs, ours) = ((entry.bytes, entry.element_bytes), (object.span.bytes(), object.element_bytes));
    if theirs != ours {
        return Err(format!(
            "`{}` has {} bytes in elements of {} there, and {} in elements of {} in this job",
            object.name, theirs.0, theirs.1, ours.0, ours.1
        ));
    }
    Ok(index)
}

/// Returns a checksum of the content of a manifest, by which PEs find that they have read different ones.
pub fn fingerprint(manifest: &[u8]) -> u32 {
    crc32fast::hash(manifest)
}

/// Returns the first name that two objects have.
pub fn duplicate(objects: &[Object]) -> Option<&str> {
    let mut names = BTreeSet::new();
    objects.iter().map(|object| &*object.name).find(|name| !names.insert(*name))
}
