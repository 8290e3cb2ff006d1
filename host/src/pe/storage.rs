//! The methods of [`Pe`] that move symmetric memory to and from files: checkpoints of the job, and copies of one PE.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use bytemuck::Pod;
use rushmem_device::{Handle, LocalBuffer, SymSlice};
use rushmem_error::call_site;
use rushmem_error::call_site::CallSite;
use rushmem_memory::misuse;
use rushmem_storage::checkpoint::{self, Loading, Object, Owner, Part, Save};
use rushmem_storage::{Disk, Span, Stop};

use super::Pe;
use crate::{Error, Result};

/// The symmetric objects of a checkpoint, each with a name. For [`Pe::save`] and [`Pe::restore`].
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    objects: Vec<Named>,
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    handle: Handle,
    element_bytes: u64,
}

impl Checkpoint {
    /// Creates a checkpoint without objects.
    pub const fn new() -> Self {
        Self { objects: Vec::new() }
    }

    /// Adds an object, or a part of one, under a name that the checkpoint does not have yet.
    ///
    /// Windows are added by their handle, and single elements by [`Sym::as_slice`](rushmem_device::Sym::as_slice).
    #[must_use]
    pub fn with<T: Pod>(mut self, name: impl Into<String>, object: SymSlice<T>) -> Self {
        let (name, handle) = (name.into(), object.handle());
        self.objects.push(Named { name, handle, element_bytes: size_of::<T>() as u64 });
        self
    }

    /// Returns the number of parts of the checkpoint in the folder `path`: one for each PE that saved it. For
    /// [`Pe::restore_part`].
    ///
    /// # Errors
    /// - [`Error::Checkpoint`] if the checkpoint is damaged.
    /// - [`Error::File`] if there is no checkpoint, or if it cannot be read.
    pub fn parts(path: impl AsRef<Path>) -> Result<u32> {
        checkpoint::n_parts(path.as_ref())
    }

    /// Describes the objects, equally on all PEs.
    fn describe(&self) -> String {
        let each = self.objects.iter().map(|Named { name, handle, element_bytes }| {
            format!(", `{name}`: {} bytes at {:#x} by {element_bytes}", handle.bytes, handle.offset)
        });
        each.collect()
    }
}

/// Data of the living PEs, each with its number.
type Told = Vec<(u32, Vec<u8>)>;

// First byte of the messages of `Pe::work_together`.

/// The PE is still working.
const WORKS: u8 = 0;
/// The PE has finished. The data for the others follows.
const DONE: u8 = 1;
/// The PE has failed. The error's text follows.
const FAILED: u8 = 2;

/// # Files and checkpoints
///
/// Copies between files and symmetric memory. `docs/checkpoints.md` describes the layout and what a crash leaves.
impl Pe {
    /// Saves symmetric objects of all PEs in the folder `path`, in place of the checkpoint that is there. Collective.
    ///
    /// All PEs must see the same folder. It is created if there is none; the folder above it must exist. Whatever
    /// fails, the folder has the old or the new checkpoint, and never parts of both. When the call returns, the new one
    /// has reached the disk.
    ///
    /// The objects have the values that they have in memory when all PEs have made the call. No PE and no kernel may
    /// change them until it returns. The call takes as long as the slowest PE. After a loss, the living PEs save their
    /// parts, which are numbered in the order of these PEs.
    ///
    /// # Errors
    /// Every PE returns an error:
    /// - [`Error::File`] if a file or folder cannot be written.
    /// - [`Error::Checkpoint`] if another job is saving to the folder, or if the manifest in it is damaged.
    /// - [`Error::Misuse`] if two objects have the same name, or if an object has been freed.
    /// - [`Error::Mismatch`] if a PE makes another call, or passes other arguments.
    /// - [`Error::Elsewhere`] if another PE has failed.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be read.
    /// - The errors of [`Pe::host_sync`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe) -> Result<(), rushmem::Error> {
    /// use rushmem::Checkpoint;
    ///
    /// let (cells, step) = (pe.alloc::<f32>(1 << 20)?, pe.alloc_one::<u64>()?);
    /// let state = Checkpoint::new().with("cells", cells).with("step", step.as_slice());
    /// pe.save("heat.checkpoint", &state)?;
    /// pe.restore("heat.checkpoint", &state)
    /// # }
    /// ```
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>, objects: &Checkpoint) -> Result<()> {
        let _site = call_site::enter();
        let _span = self.trace.call("save");
        const CALL: &str = "save";
        let (path, named) = (path.as_ref(), &objects.objects);
        let objects = self.agree_on_objects(CALL, path, objects)?;
        named.iter().for_each(|object| self.watch.read(CALL, object.handle));

        let is_first = self.owner().pe == 0;
        let begin = |_: &Stop| if is_first { Save::begin(&Disk, path).map(Some) } else { Ok(None) };
        let generation = |save: &Option<Save<'_>>| {
            save.as_ref().map_or(Vec::new(), |save| save.generation().to_le_bytes().to_vec())
        };
        let (save, generations) = self.work_together(CALL, begin, generation)?;
        let (first, generation) = &generations[0];
        let generation = generation[..].try_into().map(u64::from_le_bytes);
        let generation = generation.map_err(|_| malformed(CALL, *first))?;

        let write =
            |stop: &Stop| checkpoint::write_part(&Disk, path, generation, self.owner(), &objects, stop);
        let written = self.work_together(CALL, write, |part| serde_json::to_vec(part).unwrap_or_default());
        let written = written.and_then(|(_, parts)| {
            let parse = |(pe, part): &(u32, Vec<u8>)| {
                serde_json::from_slice::<Part>(part).map_err(|_| malformed(CALL, *pe))
            };
            parts.iter().map(parse).collect::<Result<Vec<_>>>()
        });
        let parts = match written {
            Ok(parts) => parts,
            // The folder of an interrupted save stays, so that its number is not used again: a lost PE may still write there.
            Err(error @ Error::PeerLost(_)) => return Err(error),
            Err(error) => {
                save.into_iter().for_each(Save::abandon);
                return Err(error);
            }
        };
        let commit = |_: &Stop| save.map_or(Ok(()), |save| save.commit(parts));
        self.work_together(CALL, commit, |()| Vec::new()).map(drop)
    }

    /// Restores symmetric objects of all PEs from the checkpoint in the folder `path`. Collective.
    ///
    /// There must be as many PEs, without lost ones, as there were when it was saved; otherwise, see
    /// [`Pe::restore_part`]. Each object must have the name, length and size of elements that it had there. Objects that `objects` does not name are left out. No PE and no kernel may use the
    /// objects until the call returns.
    ///
    /// All PEs check the checkpoint, with all checksums, before any of them changes its memory. So the data is read
    /// twice, the second time from the page cache if there is room.
    ///
    /// # Errors
    /// Every PE returns an error. No object has changed, unless a PE was lost meanwhile, or data that had been verified
    /// could not be loaded:
    /// - [`Error::Checkpoint`] if the checkpoint is damaged, has another version, or does not fit the job or its objects.
    /// - [`Error::File`] if there is no checkpoint, or if a file cannot be read.
    /// - [`Error::Misuse`] if two objects have the same name, or if an object has been freed.
    /// - [`Error::Mismatch`] if a PE makes another call, or passes other arguments.
    /// - [`Error::Elsewhere`] if another PE has failed.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be written.
    /// - The errors of [`Pe::host_sync`].
    #[track_caller]
    pub fn restore(&self, path: impl AsRef<Path>, objects: &Checkpoint) -> Result<()> {
        let _site = call_site::enter();
        let _span = self.trace.call("restore");
        const CALL: &str = "restore";
        let (path, named) = (path.as_ref(), &objects.objects);
        let objects = self.agree_on_objects(CALL, path, objects)?;
        named.iter().for_each(|object| self.watch.write(CALL, object.handle));

        let read = |_: &Stop| checkpoint::read_manifest(path);
        let told = |manifest: &Vec<u8>| checkpoint::fingerprint(manifest).to_le_bytes().to_vec();
        let (manifest, fingerprints) = self.work_together(CALL, read, told)?;
        // PEs that read before and after the checkpoint was replaced must not mix the two.
        if let Some((pe, _)) = fingerprints.iter().find(|(_, theirs)| *theirs != told(&manifest)) {
            let why = format!("PE {pe} has read another manifest: another job is saving there");
            return Err(Error::Checkpoint { path: path.into(), why });
        }
        let verify = |stop: &Stop| Loading::verify(path, &manifest, self.owner(), &objects, stop);
        let (loading, _) = self.work_together(CALL, verify, |_| Vec::new())?;
        self.work_together(CALL, |stop| loading.load(stop), |()| Vec::new()).map(drop)
    }

    /// Fills this PE's copies of symmetric objects from part `part` of the checkpoint in the folder `path`, however many
    /// PEs have saved it. Not collective.
    ///
    /// For jobs that go on with other PEs than those that saved: each PE loads the parts that it takes over, such as that
    /// of a lost PE. [`Checkpoint::parts`] returns their number. The objects and the data are checked as by
    /// [`Pe::restore`]. Nobody may replace the checkpoint during the call.
    ///
    /// # Errors
    /// No object has changed, unless the data could be read once but not again:
    /// - [`Error::Checkpoint`] if the checkpoint is damaged, has no such part, or does not fit the objects.
    /// - [`Error::File`] if there is no checkpoint, or if a file cannot be read.
    /// - [`Error::Misuse`] if two objects have the same name, or if an object has been freed.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the memory cannot be written.
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe, cells: rushmem_device::SymSlice<f32>) -> Result<(), rushmem::Error> {
    /// use rushmem::Checkpoint;
    ///
    /// // The sum of what all PEs had saved.
    /// let mut sum = vec![0.0; cells.len()];
    /// for part in 0..Checkpoint::parts("heat.checkpoint")? {
    ///     pe.restore_part("heat.checkpoint", part, &Checkpoint::new().with("cells", cells))?;
    ///     sum.iter_mut().zip(pe.read(cells)?).for_each(|(sum, cell)| *sum += cell);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn restore_part(&self, path: impl AsRef<Path>, part: u32, objects: &Checkpoint) -> Result<()> {
        let _site = call_site::enter();
        const CALL: &str = "restore_part";
        self.wait_for_dropped();
        let spans = self.spans(CALL, objects)?;
        objects.objects.iter().for_each(|object| self.watch.write(CALL, object.handle));
        let stop = Stop::default();
        Loading::verify_part(path.as_ref(), part, &spans, &stop)?.load(&stop)
    }

    /// Copies bytes of a file, from offset `at` on, to this PE's copy of an object, or to its registered buffer. Not
    /// collective. Kernels launched afterwards see them.
    ///
    /// The setting `storage` chooses how data gets to GPU memory. With cuFile, the call waits until no PE of this process
    /// runs a kernel.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the object has been freed.
    /// - [`Error::File`] if the file cannot be read, or is too short. The object is unchanged if it is too short.
    /// - [`Error::Unavailable`] if the setting `storage` asks for cuFile, and it cannot be used.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the copy fails.
    ///
    /// # Examples
    /// ```no_run
    /// # fn app(pe: &rushmem::Pe) -> Result<(), rushmem::Error> {
    /// // Each PE reads its part of a file of floats.
    /// let part = pe.alloc::<f32>(1 << 20)?;
    /// pe.read_file("weights.bin", u64::from(pe.my_pe()) * part.bytes(), part)
    /// # }
    /// ```
    #[track_caller]
    pub fn read_file<T: Pod>(
        &self,
        path: impl AsRef<Path>,
        at: u64,
        object: impl LocalBuffer<T> + std::fmt::Debug,
    ) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        let span = self.span("read_file", object, object.handle())?;
        self.watch.write("read_file", object.handle());
        rushmem_storage::read_file(path.as_ref(), at, &span, self.config.storage)
    }

    /// Copies this PE's copy of an object, or its registered buffer, to a file, from offset `at` on. Not collective.
    ///
    /// The file is created if there is none, and its other bytes stay. PEs may write to different places of one file at
    /// the same time. When the call returns, the bytes are in the file, but a crash of the machine may still lose them.
    /// The setting `storage` applies as to [`Pe::read_file`].
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the object has been freed.
    /// - [`Error::File`] if the file cannot be written.
    /// - [`Error::Unavailable`] if the setting `storage` asks for cuFile, and it cannot be used.
    /// - [`Error::Memory`] or [`Error::Cuda`] if the copy fails.
    #[track_caller]
    pub fn write_file<T: Pod>(
        &self,
        path: impl AsRef<Path>,
        at: u64,
        object: impl LocalBuffer<T> + std::fmt::Debug,
    ) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        let span = self.span("write_file", object, object.handle())?;
        self.watch.read("write_file", object.handle());
        rushmem_storage::write_file(path.as_ref(), at, &span, self.config.storage)
    }

    /// Returns the memory of the object with this handle, which keeps a user buffer registered. Errors show the object as
    /// `shown`.
    fn span(&self, call: &'static str, shown: impl std::fmt::Debug, handle: Handle) -> Result<Span> {
        let place = self.memory.locate(handle).map_err(|why| misuse(call, shown, why))?;
        let span = Span::new(place.region.clone(), place.at, handle.bytes);
        Ok(span.keeping(Arc::new(place.guard())))
    }

    /// Returns this PE's part among those of the living PEs.
    fn owner(&self) -> Owner {
        let living: Vec<u32> = (0..self.n_pes()).filter(|&pe| self.is_member(pe)).collect();
        let rank = living.partition_point(|&pe| pe < self.my_pe());
        Owner { pe: rank as u32, n_pes: living.len() as u32 }
    }

    /// Checks that all PEs save or load the same objects, and finds their memory.
    fn agree_on_objects(&self, call: &'static str, path: &Path, objects: &Checkpoint) -> Result<Vec<Object>> {
        self.agree(call, &format!("{path:?}{}", objects.describe()))?;
        self.spans(call, objects)
    }

    /// Finds the memory of objects.
    fn spans(&self, call: &'static str, objects: &Checkpoint) -> Result<Vec<Object>> {
        let locate = |Named { name, handle, element_bytes }: &Named| {
            let span = self.span(call, name, *handle)?;
            Ok(Object { name: name.clone(), element_bytes: *element_bytes, span })
        };
        let objects = objects.objects.iter().map(locate).collect::<Result<Vec<_>>>()?;
        match checkpoint::duplicate(&objects) {
            Some(name) => Err(Error::misuse(call, format!("two objects have the name `{name}`"))),
            None => Ok(objects),
        }
    }

    /// Runs `work` on all living PEs in the collective call `call`. Returns what it returned on this PE, and what `told`
    /// makes of that on each PE, with its number.
    ///
    /// `work` may take longer than the deadline of collective calls, because PEs that are still working send messages.
    ///
    /// # Errors
    /// - The error of `work`.
    /// - [`Error::Elsewhere`] if it has failed on another PE first.
    fn work_together<R: Send>(
        &self,
        call: &'static str,
        work: impl FnOnce(&Stop) -> Result<R> + Send,
        told: impl Fn(&R) -> Vec<u8>,
    ) -> Result<(R, Told)> {
        let stop = &Stop::default();
        thread::scope(|scope| {
            // The channel carries nothing: it closes when the thread is done.
            let (open, end) = mpsc::channel::<()>();
            let body = move || {
                let _open = open;
                work(stop)
            };
            let (mut worker, mut mine) =
                match thread::Builder::new().name("storage".into()).spawn_scoped(scope, body) {
                    Ok(worker) => (Some(worker), None),
                    Err(error) => (None, Some(Err(Error::Thread(error)))),
                };
            let pause = self.config.bootstrap_timeout / 4;
            let mut failure = None;
            loop {
                if mine.is_none() && end.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                    let joined = worker.take().map(|worker| worker.join());
                    mine = joined.map(|joined| joined.unwrap_or_else(|panic| resume_unwind(panic)));
                }
                let message = match &mine {
                    None => vec![WORKS],
                    Some(Ok(value)) => [vec![DONE], told(value)].concat(),
                    Some(Err(error)) => [vec![FAILED], error.to_string().into_bytes()].concat(),
                };
                let all = self.allgather_for(self.next_collective(), call, &message);
                let all = all.inspect_err(|_| stop.set())?;
                let all: Vec<_> = (0..).zip(all.iter()).filter(|(pe, _)| self.is_member(*pe)).collect();
                if let (None, Some(first)) = (&failure, first_failure(call, &all)) {
                    // PEs that have failed by now report their own errors. The others stop.
                    stop.set();
                    failure = Some(if matches!(mine, Some(Err(_))) { None } else { Some(first) });
                }
                let all_ended = all.iter().all(|(_, message)| message.first() != Some(&WORKS));
                if let Some(mine) = mine.take_if(|_| all_ended) {
                    if let Some(elsewhere) = failure.flatten() {
                        return Err(elsewhere);
                    }
                    return Ok((
                        mine?,
                        all.into_iter().map(|(pe, message)| (pe, message[1..].to_vec())).collect(),
                    ));
                }
            }
        })
    }
}

/// Returns the error of the first PE that reports a failure.
fn first_failure(call: &'static str, messages: &[(u32, &Vec<u8>)]) -> Option<Error> {
    let failed = |(_, message): &&(u32, &Vec<u8>)| message.first() == Some(&FAILED);
    let &(pe, message) = messages.iter().find(failed)?;
    let why = String::from_utf8_lossy(&message[1..]).into_owned();
    Some(Error::Elsewhere { pe, call, why, site: CallSite::current() })
}

fn malformed(call: &'static str, pe: u32) -> Error {
    Error::misuse(call, format!("PE {pe} sent malformed data"))
}

#[cfg(test)]
mod tests {
    use rushmem_device::LocalBuffer;

    use crate::Job;
    use crate::config::{Config, DeviceKind};

    #[test]
    fn buffer_of_a_copy_stays_registered() {
        let mut config = Config::default();
        config.device = DeviceKind::Native;
        config.set("heap_bytes", "64KiB").unwrap();
        let pe = Job::with_config(config).start().unwrap();
        let registered = pe.register(vec![7_u8; 64]).unwrap();
        let handle = registered.handle();
        let span = pe.span("read_file", handle, handle.handle()).unwrap();
        let kept = pe.unregister(registered).unwrap_err();
        assert!(kept.to_string().contains("may be in use"), "{kept}");
        drop(span);
        assert_eq!(pe.unregister(*kept.registration).unwrap(), [7; 64]);
        pe.finish().unwrap();
    }
}
