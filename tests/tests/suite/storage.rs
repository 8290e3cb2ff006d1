//! Tests of checkpoints, and of copies between files and symmetric memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rushmem::{Checkpoint, Error, Operations, Pe};
use rushmem_device::{Sym, SymSlice};
use rushmem_tests::Setup;

use super::memory::pattern;
use super::setups;

const LEN: usize = 1001;

/// Symmetric objects of three kinds.
struct Objects {
    words: SymSlice<u64>,
    one: Sym<u16>,
    empty: SymSlice<f32>,
}

impl Objects {
    fn new(pe: &Pe) -> Result<Self, Error> {
        Ok(Self { words: pe.alloc(LEN)?, one: pe.alloc_one()?, empty: pe.alloc(0)? })
    }

    fn state(&self) -> Checkpoint {
        let Self { words, one, empty } = *self;
        Checkpoint::new().with("words", words).with("one", one.as_slice()).with("empty", empty)
    }

    fn fill(&self, pe: &Pe, value: u16) -> Result<(), Error> {
        pe.write(self.words, &pattern(u32::from(value) + pe.my_pe(), LEN))?;
        pe.write(self.one.as_slice(), &[value])
    }

    fn check(&self, pe: &Pe, value: u16) -> Result<(), Error> {
        assert_eq!(pe.read(self.words)?, pattern(u32::from(value) + pe.my_pe(), LEN));
        assert_eq!(pe.read_one(self.one)?, value);
        Ok(())
    }
}

/// Returns the part of PE `pe` of the only checkpoint in `path`.
fn part(path: &Path, pe: u32) -> PathBuf {
    let folders = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    folders.map(|folder| folder.join(format!("pe-{pe}"))).find(|part| part.exists()).unwrap()
}

#[test]
fn saved_objects_are_loaded_on_every_pe() {
    for setup in setups::all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        setup.run(|pe| {
            let objects = Objects::new(pe)?;
            for value in [7, 8] {
                objects.fill(pe, value)?;
                pe.save(&path, &objects.state())?;
            }
            objects.fill(pe, 9)?;
            pe.restore(&path, &objects.state())?;
            objects.check(pe, 8)
        });
        // Another job, whose objects are elsewhere in the heap.
        setup.run(|pe| {
            let before = pe.alloc::<u64>(100)?;
            let objects = Objects::new(pe)?;
            pe.restore(&path, &Checkpoint::new().with("words", objects.words))?;
            assert_eq!(pe.read_one(objects.one)?, 0);
            pe.restore(&path, &objects.state())?;
            objects.check(pe, 8)?;
            assert_eq!(pe.read(before)?, [0; 100]);
            Ok(())
        });
    }
}

#[test]
fn puts_before_a_save_are_in_it() {
    let folder = tempfile::tempdir().unwrap();
    Setup::new(3).run(|pe| {
        let (inbox, message) = (pe.alloc::<u64>(LEN)?, pe.alloc::<u64>(LEN)?);
        pe.write(message, &pattern(pe.my_pe(), LEN))?;
        pe.put(inbox, message, (pe.my_pe() + 1) % 3)?;
        pe.quiet()?;
        let state = Checkpoint::new().with("inbox", inbox);
        pe.save(folder.path(), &state)?;
        pe.write(inbox, &[0; LEN])?;
        pe.restore(folder.path(), &state)?;
        assert_eq!(pe.read(inbox)?, pattern((pe.my_pe() + 2) % 3, LEN));
        Ok(())
    });
}

#[test]
fn damaged_part_changes_no_memory_on_any_pe() {
    let folder = tempfile::tempdir().unwrap();
    let told = Setup::new(3).run(|pe| {
        let objects = Objects::new(pe)?;
        objects.fill(pe, 7)?;
        pe.save(folder.path(), &objects.state())?;
        objects.fill(pe, 9)?;
        if pe.my_pe() == 1 {
            let part = part(folder.path(), 1);
            let mut bytes = fs::read(&part).unwrap();
            // The last page of the file has `one`.
            let at = bytes.len() - 4096;
            bytes[at] ^= 1;
            fs::write(&part, bytes).unwrap();
        }
        let error = pe.restore(folder.path(), &objects.state()).unwrap_err();
        objects.check(pe, 9)?;
        // The job is still usable.
        pe.save(folder.path(), &objects.state())?;
        pe.restore(folder.path(), &objects.state())?;
        Ok(error)
    });
    assert!(
        matches!(&told[1], Error::Checkpoint { path, why } if path.ends_with("pe-1") && why.contains("`one`"))
    );
    for error in [&told[0], &told[2]] {
        assert!(matches!(error, Error::Elsewhere { pe: 1, call: "restore", .. }), "{error}");
    }
}

#[test]
fn failed_save_keeps_the_old_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let told = Setup::new(2).run(|pe| {
        let objects = Objects::new(pe)?;
        objects.fill(pe, 7)?;
        pe.save(&path, &objects.state())?;
        let state = objects.state();
        pe.host_sync()?;
        if pe.my_pe() == 0 {
            // What an interrupted save leaves. The next save removes it.
            fs::write(path.join("rushmem-2"), "").unwrap();
            fs::write(path.join("rushmem.manifest.new"), "").unwrap();
        }
        pe.host_sync()?;
        objects.fill(pe, 8)?;
        pe.save(&path, &state)?;
        pe.host_sync()?;
        if pe.my_pe() == 0 {
            fs::rename(&path, folder.path().join("kept")).unwrap();
            fs::write(&path, "a file").unwrap();
        }
        pe.host_sync()?;
        let error = pe.save(&path, &state).unwrap_err();
        objects.fill(pe, 9)?;
        pe.restore(folder.path().join("kept"), &state)?;
        objects.check(pe, 8)?;
        Ok(error)
    });
    assert!(
        matches!(&told[0], Error::File { what: "create", path: named, .. } if *named == path),
        "{told:?}"
    );
    assert!(matches!(told[1], Error::Elsewhere { pe: 0, .. }), "{told:?}");
}

#[test]
fn loads_and_saves_with_wrong_arguments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    Setup::new(2).run(|pe| {
        let objects = Objects::new(pe)?;
        let twice = objects.state().with("one", objects.words);
        for result in [pe.save(folder.path(), &twice), pe.restore(folder.path(), &twice)] {
            assert!(result.unwrap_err().to_string().contains("two objects have the name `one`"));
        }
        let missing = pe.restore(folder.path(), &objects.state()).unwrap_err();
        assert!(missing.to_string().contains("rushmem.manifest"), "{missing}");
        let freed = pe.alloc::<u64>(4)?;
        pe.free(freed)?;
        let state = Checkpoint::new().with("freed", freed);
        assert!(matches!(pe.save(folder.path(), &state), Err(Error::Misuse { call: "save", .. })));
        let own = folder.path().join(pe.my_pe().to_string());
        assert!(matches!(pe.save(own, &objects.state()), Err(Error::Mismatch { .. })));
        Ok(())
    });
}

#[test]
fn job_of_another_size_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let save = |pe: &Pe| pe.save(folder.path(), &Objects::new(pe)?.state());
    Setup::new(2).run(save);
    Setup::new(3).run(|pe| {
        let error = pe.restore(folder.path(), &Objects::new(pe)?.state()).unwrap_err();
        assert!(error.to_string().contains("it was saved by 2 PEs, and this job has 3"), "{error}");
        Ok(())
    });
}

#[test]
fn parts_are_restored_by_a_job_of_another_size() {
    let folder = tempfile::tempdir().unwrap();
    Setup::new(3).run(|pe| {
        let objects = Objects::new(pe)?;
        objects.fill(pe, 7)?;
        pe.save(folder.path(), &objects.state())
    });
    Setup::new(1).run(|pe| {
        let objects = Objects::new(pe)?;
        assert_eq!(Checkpoint::parts(folder.path())?, 3);
        for part in 0..3 {
            pe.restore_part(folder.path(), part, &objects.state())?;
            assert_eq!(pe.read(objects.words)?, pattern(7 + part, LEN));
        }
        let error = pe.restore_part(folder.path(), 3, &objects.state()).unwrap_err();
        assert!(error.to_string().contains("it has 3 parts, and none is number 3"), "{error}");
        let twice = objects.state().with("one", objects.words);
        assert!(matches!(pe.restore_part(folder.path(), 0, &twice), Err(Error::Misuse { .. })));
        assert_eq!(pe.read(objects.words)?, pattern(9, LEN));
        Ok(())
    });
}

#[test]
fn windows_are_saved_and_files_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    Setup::new(2).run(|pe| {
        let me = pe.my_pe();
        let window = pe.register_symmetric(pattern(me, 1024))?;
        let local = pe.register(vec![0_u64; 24])?;
        let (handle, state) = (window.handle(), Checkpoint::new().with("window", window.handle()));
        pe.save(folder.path().join("checkpoint"), &state)?;

        // Both PEs write to one file.
        let at = u64::from(me) * handle.bytes();
        pe.write_file(&file, at, handle)?;
        pe.host_sync()?;
        let theirs = handle.slice(0..512);
        pe.read_file(&file, u64::from(1 - me) * handle.bytes(), theirs)?;
        pe.read_file(&file, at + 8 * 1000, local.handle())?;
        let expected = pattern(me, 1024);
        assert_eq!(pe.read(theirs)?, pattern(1 - me, 1024)[..512]);
        assert_eq!(pe.read(local.handle())?, expected[1000..]);
        let short = pe.read_file(&file, handle.bytes() + 8, handle).unwrap_err();
        assert!(matches!(&short, Error::File { what: "read", path, .. } if *path == file), "{short}");

        pe.restore(folder.path().join("checkpoint"), &state)?;
        drop(pe.unregister(local)?);
        assert_eq!(pe.unregister_symmetric(window)?, expected);
        Ok(())
    });
}

#[test]
fn save_may_take_longer_than_the_deadline_of_collective_calls() {
    let folder = tempfile::tempdir().unwrap();
    // PEs that are threads of one process share its memory, so a slow one is easy to have: it reads from a pipe.
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    Setup::new(2).with("bootstrap_timeout", "4s").run(|pe| {
        let words = pe.alloc::<u64>(8)?;
        let state = Checkpoint::new().with("words", words);
        pe.save(folder.path().join("checkpoint"), &state)?;
        if pe.my_pe() == 0 {
            let part = part(&folder.path().join("checkpoint"), 0);
            fs::remove_file(&part).unwrap();
            std::os::unix::fs::symlink(&pipe, part).unwrap();
        }
        pe.host_sync()?;
        let load = || pe.restore(folder.path().join("checkpoint"), &state);
        let error = std::thread::scope(|scope| {
            if pe.my_pe() == 0 {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_secs(6));
                    // The reader waits for a writer to open the pipe, and leaves before it could write.
                    drop(fs::File::options().write(true).open(&pipe).unwrap());
                });
            }
            load().unwrap_err()
        });
        let expected =
            if pe.my_pe() == 0 { "pe-0 is refused: it has 0 bytes" } else { "restore failed on PE 0" };
        assert!(error.to_string().contains(expected), "{error}");
        Ok(())
    });
}

/// Prints how long checkpoints and copies take beside copies through the host, in the folder that `TMPDIR` names.
#[test]
#[ignore = "slow: runs with --ignored"]
fn large_checkpoints_and_files_are_copied() {
    const MIB: usize = 256;
    let folder = tempfile::tempdir().unwrap();
    let file = |pe: &Pe, name: &str| folder.path().join(format!("{name}-{}", pe.my_pe()));
    Setup::new(2).with("heap_bytes", format!("{}MiB", MIB + 8)).run(|pe| {
        let cells = pe.alloc::<u64>(MIB << 17)?;
        let content = pattern(pe.my_pe(), MIB << 17);
        pe.write(cells, &content)?;
        let state = Checkpoint::new().with("cells", cells);
        let checked = || -> Result<(), Error> {
            assert!(pe.read(cells)? == content);
            pe.write(cells, &vec![0; content.len()])
        };
        let time = |what: &str, call: &dyn Fn() -> Result<(), Error>| {
            pe.host_sync()?;
            let begin = Instant::now();
            call()?;
            pe.host_sync()?;
            if pe.my_pe() == 0 {
                let rate = (2 * MIB) as f64 / begin.elapsed().as_secs_f64();
                println!("{what}: {rate:.0} MiB/s for {} PEs", pe.n_pes());
            }
            Ok::<(), Error>(())
        };
        let sync = |path: PathBuf| fs::File::open(path).unwrap().sync_all().unwrap();
        time("write by read and fs::write", &|| {
            fs::write(file(pe, "host"), bytemuck::cast_slice(&pe.read(cells)?)).unwrap();
            sync(file(pe, "host"));
            Ok(())
        })?;
        time("write_file", &|| {
            pe.write_file(file(pe, "direct"), 0, cells)?;
            sync(file(pe, "direct"));
            Ok(())
        })?;
        time("save", &|| pe.save(folder.path().join("checkpoint"), &state))?;
        checked()?;
        time("read by fs::read and write", &|| {
            pe.write(cells, bytemuck::cast_slice(&fs::read(file(pe, "host")).unwrap()))
        })?;
        checked()?;
        time("read_file", &|| pe.read_file(file(pe, "direct"), 0, cells))?;
        checked()?;
        time("restore", &|| pe.restore(folder.path().join("checkpoint"), &state))?;
        checked()
    });
}
