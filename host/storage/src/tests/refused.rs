//! Checkpoints that are refused.

use std::fs;
use std::path::{Path, PathBuf};

use rushmem_error::Error;

use super::{CHUNK, PES, load, load_into, object, objects, owner, save};
use crate::checkpoint::{Loading, Owner, Save, read_manifest, write_part_in_chunks};
use crate::{Disk, Stop};

fn files(path: &Path, generation: u64) -> Vec<PathBuf> {
    let parts = (0..PES).map(|pe| path.join(format!("rushmem-{generation}/pe-{pe}")));
    parts.chain([path.join("rushmem.manifest")]).collect()
}

/// Returns why a load is refused.
fn why(path: &Path) -> String {
    match load(path) {
        Err(Error::Checkpoint { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn truncated_and_extended_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    for file in files(folder.path(), 1) {
        let whole = fs::read(&file).unwrap();
        for length in [0, 7, 8, 12, 23, 24, 30, whole.len() / 2, whole.len() - 1] {
            fs::write(&file, &whole[..length]).unwrap();
            why(folder.path());
        }
        fs::write(&file, [&whole[..], &[0]].concat()).unwrap();
        why(folder.path());
        fs::write(&file, whole).unwrap();
        assert_eq!(load(folder.path()).unwrap(), 1);
    }
}

#[test]
fn flipped_bits_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    let (mut refused, mut unused) = (0, 0);
    for file in files(folder.path(), 1) {
        let mut bytes = fs::read(&file).unwrap();
        for bit in (0..bytes.len() * 8).step_by(4999) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&file, &bytes).unwrap();
            match load(folder.path()) {
                Err(Error::Checkpoint { .. }) => refused += 1,
                // Between the objects.
                Ok(1) => unused += 1,
                other => panic!("bit {bit} of {}: {other:?}", file.display()),
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        fs::write(&file, &bytes).unwrap();
    }
    assert!(refused > 60 && unused > 5, "{refused} and {unused}");
}

#[test]
fn parts_of_other_pes_and_other_saves_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    save(&Disk, &old, 1).unwrap();
    save(&Disk, &new, 2).unwrap();
    let parts = files(&new, 1);
    let kept = fs::read(&parts[0]).unwrap();
    fs::copy(&parts[1], &parts[0]).unwrap();
    assert_eq!(why(&new), "it is not the part that the manifest names");
    fs::copy(&files(&old, 1)[0], &parts[0]).unwrap();
    assert_eq!(why(&new), "it is not the part that the manifest names");
    fs::write(&parts[0], kept).unwrap();
    assert_eq!(load(&new).unwrap(), 2);
    fs::remove_file(&parts[2]).unwrap();
    assert!(matches!(load(&new), Err(Error::File { path, .. }) if path == parts[2]));
}

#[test]
fn other_versions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    let file = folder.path().join("rushmem.manifest");
    let mut bytes = fs::read(&file).unwrap();
    bytes[8] = 2;
    fs::write(&file, bytes).unwrap();
    assert_eq!(why(folder.path()), "it has version 2 of the format, and this build reads version 1");
}

#[test]
fn job_and_objects_must_fit() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    let manifest = read_manifest(folder.path()).unwrap();
    let verify = |owner: Owner, objects: &[_]| {
        let loading = Loading::verify(folder.path(), &manifest, owner, objects, &Stop::default());
        loading.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let other_shape = verify(Owner { pe: 0, n_pes: 2 }, &objects(1, 0));
    assert!(other_shape.ends_with("it was saved by 3 PEs, and this job has 2"), "{other_shape}");
    let other_name = verify(owner(0), &[object("x", &[0])]);
    assert!(other_name.contains("it has no object `x`, only [\"object 0\","), "{other_name}");
    let other_length = verify(owner(0), &[object("object 0", &[0])]);
    assert!(
        other_length.contains("has 10000 bytes in elements of 1 there, and 1 in elements of 1"),
        "{other_length}"
    );
    let mut wider = object("object 0", &[0; 10_000]);
    wider.element_bytes = 2;
    assert!(!verify(owner(0), &[wider]).is_empty());
    assert_eq!(verify(owner(0), &objects(1, 0)), "");
}

#[test]
fn second_save_to_a_folder_is_refused_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let first = Save::begin(&Disk, folder.path()).unwrap();
    let second = Save::begin(&Disk, folder.path()).map(drop).unwrap_err();
    assert!(second.to_string().contains("another job is saving there"), "{second}");
    drop(first);
    save(&Disk, folder.path(), 1).unwrap();
}

#[test]
fn save_keeps_a_damaged_checkpoint_and_other_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rushmem-notes"), "mine").unwrap();
    fs::write(folder.path().join("rushmem.manifest"), "damaged").unwrap();
    assert!(matches!(save(&Disk, folder.path(), 1), Err(Error::Checkpoint { .. })));
    assert_eq!(fs::read(folder.path().join("rushmem.manifest")).unwrap(), b"damaged");
    fs::remove_file(folder.path().join("rushmem.manifest")).unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    assert_eq!(fs::read(folder.path().join("rushmem-notes")).unwrap(), b"mine");
}

#[test]
fn data_that_changes_after_the_check_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    let (manifest, objects, stop) = (read_manifest(folder.path()).unwrap(), objects(9, 0), Stop::default());
    let loading = Loading::verify(folder.path(), &manifest, owner(0), &objects, &stop).unwrap();
    let part = &files(folder.path(), 1)[0];
    let mut bytes = fs::read(part).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(part, bytes).unwrap();
    assert!(matches!(loading.load(&stop), Err(Error::Checkpoint { .. })));
}

#[test]
fn object_that_is_too_small_for_its_memory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let save = Save::begin(&Disk, folder.path()).unwrap();
    let mut object = object("x", &[0; 10]);
    object.span = crate::Span::new(rushmem_machine::Region::host(4096).unwrap(), 4000, 1000);
    let written = write_part_in_chunks(
        &Disk,
        folder.path(),
        save.generation(),
        owner(0),
        (&[object], CHUNK),
        &Stop::default(),
    );
    assert!(matches!(written, Err(Error::Memory(_))));
    // A part exists already.
    let again = write_part_in_chunks(
        &Disk,
        folder.path(),
        save.generation(),
        owner(0),
        (&objects(1, 0), CHUNK),
        &Stop::default(),
    );
    assert!(matches!(again, Err(Error::File { what: "create", .. })));
    load_into(folder.path(), &[]).unwrap_err();
}
