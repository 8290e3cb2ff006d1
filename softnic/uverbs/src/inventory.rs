//! Records of the objects that programs have created, which other processes can read.
//!
//! The kernel knows the objects of all processes, but each process of this library has a separate adapter. So an opened
//! device keeps a record of each object in its memory file. To list them for `rdma`, the library reads the memory files
//! of the same user's processes, which it finds in `/proc`.

use crate::sys;
use bytemuck::{Pod, Zeroable};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// File offset of the records: the pages of command 6, which programs never map.
pub(crate) const OFFSET: u64 = 6 << 20;
/// Maximum number of records. Further objects are not recorded.
const MAX_RECORDS: u32 = (1 << 20) / size_of::<Record>() as u32 - 1;
/// Magic number at the start of the header.
const MAGIC: u64 = u64::from_le_bytes(*b"rushmem1");

/// Kinds of objects that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Pd = 1,
    Cq = 2,
    Qp = 3,
    Mr = 4,
    Context = 5,
    Srq = 6,
}

/// Properties of an object. Fields that do not apply to its kind are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Record {
    /// A [`Kind`], or 0 for no object.
    pub(crate) kind: u8,
    /// Type of a QP or an SRQ, as in verbs.
    pub(crate) subtype: u8,
    /// State of a QP, as in `ibv_qp_state`.
    pub(crate) state: u8,
    pub(crate) reserved: u8,
    /// Number of the object in firmware commands, or the lkey of an MR.
    pub(crate) number: u32,
    pub(crate) pd: u32,
    /// QPN of the QP that a connected QP sends to.
    pub(crate) peer: u32,
    pub(crate) receive_psn: u32,
    pub(crate) send_psn: u32,
    /// CQNs of the SQ and the RQ.
    pub(crate) cqns: [u32; 2],
    /// Number of CQEs of a CQ, or length of an MR in bytes.
    pub(crate) len: u64,
}

impl Record {
    pub(crate) fn new(kind: Kind, number: u32) -> Record {
        Record { kind: kind as u8, number, ..Record::default() }
    }

    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }
}

/// Header of the memory file's records.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    magic: u64,
    device: u32,
    pid: u32,
    /// Number of slots that have ever been used.
    count: u32,
    reserved: [u32; 5],
}

const _: () = assert!(size_of::<Head>() == size_of::<Record>());

pub(crate) struct Inventory {
    file: std::fs::File,
    head: Head,
    /// Index of each object's slot, by the handle of the object.
    places: BTreeMap<u32, u32>,
    free: Vec<u32>,
}

impl Inventory {
    /// Creates the records in `file`, with a first record for the context.
    pub(crate) fn new(file: OwnedFd, device: u32) -> Inventory {
        let head = Head { magic: MAGIC, device, pid: std::process::id(), count: 1, reserved: [0; 5] };
        let inventory = Inventory { file: file.into(), head, places: BTreeMap::new(), free: Vec::new() };
        inventory.write(0, Record::new(Kind::Context, 0));
        inventory.write_head();
        inventory
    }

    /// Sets or removes the record of the object with a handle.
    pub(crate) fn set(&mut self, handle: u32, record: Option<Record>) {
        let Some(record) = record else {
            if let Some(place) = self.places.remove(&handle) {
                self.write(place, Record::default());
                self.free.push(place);
            }
            return;
        };
        if let Some(place) = self.places.get(&handle).copied().or_else(|| self.free.pop()) {
            self.places.insert(handle, place);
            self.write(place, record);
        } else if self.head.count < MAX_RECORDS {
            let place = self.head.count;
            self.places.insert(handle, place);
            self.write(place, record);
            self.head.count += 1;
            self.write_head();
        }
    }

    fn write(&self, place: u32, record: Record) {
        self.put(u64::from(place) + 1, bytemuck::bytes_of(&record));
    }

    fn write_head(&self) {
        self.put(0, bytemuck::bytes_of(&self.head));
    }

    fn put(&self, place: u64, bytes: &[u8]) {
        let at = OFFSET + place * size_of::<Record>() as u64;
        if let Err(error) = self.file.write_all_at(bytes, at) {
            tracing::warn!(%error, "the objects of this device are not listed");
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) pid: u32,
    pub(crate) records: Vec<Record>,
}

impl Opened {
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.is(kind))
    }
}

/// Returns the records of device `device`, once for each time that a process of this user has opened it.
pub(crate) fn of_device(device: u32) -> Vec<Opened> {
    let mut all: Vec<Opened> = pids().flat_map(|pid| of_process(pid, device)).collect();
    all.sort_by_key(|opened| opened.pid);
    all
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn of_process(pid: u32, device: u32) -> Vec<Opened> {
    // Each file has at least two descriptors: the program's and the library's.
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        if sys::is_memory_link(&entry.path())
            && let Ok(file) = std::fs::File::open(entry.path())
            && let Ok(meta) = file.metadata()
        {
            files.insert((meta.dev(), meta.ino()), file);
        }
    }
    files.into_values().filter_map(|file| read(&file, pid, device)).collect()
}

/// Reads the records of a file that the process has opened itself, not inherited.
fn read(file: &std::fs::File, pid: u32, device: u32) -> Option<Opened> {
    let mut head = Head::zeroed();
    file.read_exact_at(bytemuck::bytes_of_mut(&mut head), OFFSET).ok()?;
    if head.magic != MAGIC || head.pid != pid || head.device != device || head.count > MAX_RECORDS {
        return None;
    }
    let mut records = vec![Record::default(); head.count as usize];
    let at = OFFSET + size_of::<Head>() as u64;
    file.read_exact_at(bytemuck::cast_slice_mut(&mut records), at).ok()?;
    records.retain(|record| record.kind != 0);
    Some(Opened { pid, records })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_can_read_what_is_set() {
        const DEVICE: u32 = 0x7777;
        let file = sys::memory_file(true).unwrap();
        let mut inventory = Inventory::new(file.try_clone().unwrap(), DEVICE);
        let qp = |state| Record { state, ..Record::new(Kind::Qp, 5) };
        inventory.set(1, Some(Record::new(Kind::Pd, 3)));
        inventory.set(2, Some(qp(0)));
        inventory.set(1, None);
        inventory.set(2, Some(qp(3)));
        inventory.set(4, Some(Record::new(Kind::Mr, 9)));
        let own = of_device(DEVICE);
        let [opened] = &own[..] else { panic!("{own:?}") };
        let context = Record::new(Kind::Context, 0);
        let expected = [context, Record::new(Kind::Mr, 9), qp(3)];
        assert_eq!((opened.pid, &opened.records[..]), (std::process::id(), &expected[..]));
        assert_eq!(of_device(DEVICE + 1), []);
        drop((file, inventory));
        assert_eq!(of_device(DEVICE), []);
    }

    #[test]
    fn too_many_objects_are_left_out() {
        let mut inventory = Inventory::new(sys::memory_file(true).unwrap(), 0);
        (0..=MAX_RECORDS).for_each(|handle| inventory.set(handle, Some(Record::new(Kind::Pd, 0))));
        assert_eq!(inventory.head.count, MAX_RECORDS);
    }
}
