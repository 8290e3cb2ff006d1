//! Tests of checkpoints: what a crash leaves, and what is refused.

mod crash;
mod format;
mod refused;

use std::path::Path;

use rushmem_config::StorageKind;
use rushmem_error::{Error, Result};
use rushmem_machine::Region;

use crate::checkpoint::{Loading, Object, Owner, Save, n_parts, read_manifest, write_part_in_chunks};
use crate::{Disk, Files, Span, Stop};

const PES: u32 = 3;
/// Small, so that objects have several chunks.
const CHUNK: u64 = 4096;
/// Lengths of the objects of a part.
const LENGTHS: [u64; 3] = [10_000, 0, 4096];

fn memory(bytes: &[u8]) -> Span {
    let region = Region::host(bytes.len().max(1) as u64).unwrap();
    region.write(0, bytes).unwrap();
    Span::new(region, 0, bytes.len() as u64)
}

fn bytes_of(span: &Span) -> Vec<u8> {
    let mut bytes = vec![0; span.bytes() as usize];
    span.read(0, &mut bytes).unwrap();
    bytes
}

/// The bytes of an object in the save with this number.
fn pattern(save: u8, pe: u32, object: usize) -> Vec<u8> {
    (0..LENGTHS[object])
        .map(|i| (i as u8).wrapping_mul(31) ^ save ^ (pe as u8) << 4 ^ (object as u8) << 6)
        .collect()
}

fn object(name: &str, bytes: &[u8]) -> Object {
    Object { name: name.into(), element_bytes: 1, span: memory(bytes) }
}

/// The objects of a PE, with the content that they have in the save with this number.
fn objects(save: u8, pe: u32) -> Vec<Object> {
    (0..LENGTHS.len()).map(|i| object(&format!("object {i}"), &pattern(save, pe, i))).collect()
}

const fn owner(pe: u32) -> Owner {
    Owner { pe, n_pes: PES }
}

/// Saves the parts of all PEs, one after the other.
fn save(files: &dyn Files, path: &Path, number: u8) -> Result<()> {
    let save = Save::begin(files, path)?;
    let part = |pe| {
        let objects = objects(number, pe);
        let generation = save.generation();
        write_part_in_chunks(files, path, generation, owner(pe), (&objects, CHUNK), &Stop::default())
    };
    match (0..PES).map(part).collect() {
        Ok(parts) => save.commit(parts),
        Err(error) => {
            save.abandon();
            Err(error)
        }
    }
}

/// Loads the parts of all PEs into `objects`, as PEs do: all verify their parts before any loads.
fn load_into(path: &Path, objects: &[Vec<Object>]) -> Result<()> {
    let (manifest, stop) = (read_manifest(path)?, Stop::default());
    let parts = (0..PES).zip(objects);
    let verified = parts.map(|(pe, objects)| Loading::verify(path, &manifest, owner(pe), objects, &stop));
    let verified = verified.collect::<Result<Vec<_>>>()?;
    verified.iter().try_for_each(|loading| loading.load(&stop))
}

/// Loads the checkpoint. Returns the number of the save that wrote it.
///
/// # Panics
/// If the content is of no save, or of several. If the load fails and has changed memory.
fn load(path: &Path) -> Result<u8> {
    const NONE: u8 = 0xff;
    let contents = |objects: &[Vec<Object>]| -> Vec<Vec<u8>> {
        objects.iter().flatten().map(|object| bytes_of(&object.span)).collect()
    };
    let of_save = |number| (0..PES).map(|pe| objects(number, pe)).collect::<Vec<_>>();
    let loaded = of_save(NONE);
    if let Err(error) = load_into(path, &loaded) {
        assert_eq!(contents(&loaded), contents(&of_save(NONE)), "{error}");
        return Err(error);
    }
    let found = contents(&loaded)[0][0] ^ pattern(0, 0, 0)[0];
    assert_eq!(contents(&loaded), contents(&of_save(found)));
    Ok(found)
}

/// Returns the names of the files and folders in the folder of a checkpoint, sorted.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn saved_objects_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    for number in 1..4 {
        save(&Disk, &path, number).unwrap();
        assert_eq!(load(&path).unwrap(), number);
        let generation = format!("rushmem-{number}");
        assert_eq!(names(&path), [&generation, "rushmem.lock", "rushmem.manifest"]);
    }
}

#[test]
fn some_objects_can_be_loaded_alone() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    let last: Vec<Vec<Object>> = (0..PES).map(|_| vec![object("object 2", &[0; 4096])]).collect();
    load_into(folder.path(), &last).unwrap();
    for (pe, objects) in (0..PES).zip(&last) {
        assert_eq!(bytes_of(&objects[0].span), pattern(1, pe, 2));
    }
}

#[test]
fn parts_can_be_loaded_by_another_number_of_pes() {
    let folder = tempfile::tempdir().unwrap();
    save(&Disk, folder.path(), 1).unwrap();
    assert_eq!(n_parts(folder.path()).unwrap(), PES);
    let (part, stop) = ([object("object 2", &[0; 4096])], Stop::default());
    for pe in (0..PES).rev() {
        Loading::verify_part(folder.path(), pe, &part, &stop).unwrap().load(&stop).unwrap();
        assert_eq!(bytes_of(&part[0].span), pattern(1, pe, 2));
    }
    let error = Loading::verify_part(folder.path(), PES, &part, &stop).err().unwrap().to_string();
    assert!(error.contains("it has 3 parts, and none is number 3"), "{error}");
    let manifest = read_manifest(folder.path()).unwrap();
    let two = Owner { pe: 0, n_pes: 2 };
    let error = Loading::verify(folder.path(), &manifest, two, &part, &stop).err().unwrap().to_string();
    assert!(error.contains("it was saved by 3 PEs, and this job has 2"), "{error}");
}

#[test]
fn files_and_memory_are_copied_in_several_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let data: Vec<u8> = (0..9_000_001_u32).map(|i| (i % 251) as u8).collect();
    crate::write_file(&path, 5, &memory(&data), StorageKind::Auto).unwrap();
    crate::write_file(&path, 1, &memory(&[7; 3]), StorageKind::Auto).unwrap();
    let written = std::fs::read(&path).unwrap();
    assert!(written[..5] == [0, 7, 7, 7, 0] && written[5..] == data);

    let read = memory(&vec![0; data.len()]);
    crate::read_file(&path, 5, &read, StorageKind::Auto).unwrap();
    assert!(bytes_of(&read) == data);
    let error = crate::read_file(&path, 6, &memory(&data), StorageKind::Auto).unwrap_err().to_string();
    assert!(error.contains("file: it has 9000006 bytes, and 9000001 at offset 6 are asked for"), "{error}");
    assert!(crate::read_file(&path, u64::MAX, &read, StorageKind::Auto).is_err() && bytes_of(&read) == data);
    let error =
        crate::read_file(&folder.path().join("none"), 0, &read, StorageKind::Auto).unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("none: No such file"), "{error}");
}

#[test]
fn cufile_without_gpu_memory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let error = crate::write_file(&path, 0, &memory(&[1]), StorageKind::CuFile).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && !path.exists(), "{error}");
}

#[test]
fn stopped_call_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let save = Save::begin(&Disk, folder.path()).unwrap();
    let stop = Stop::default();
    stop.set();
    let objects = objects(1, 0);
    let written =
        write_part_in_chunks(&Disk, folder.path(), save.generation(), owner(0), (&objects, CHUNK), &stop);
    assert!(written.is_err());
    save.abandon();
    assert_eq!(names(folder.path()), ["rushmem.lock"]);
}
