//! The command queue: entries and mailboxes in guest memory.

use crate::guest::GuestMemory;
use rushmem_mlx5::prm::queue::{BLOCK_BYTES, BLOCK_DATA, BlockTrailer, CmdEntry, Delivery, INLINE_DATA, xor};
use rushmem_softnic::Memory;

/// log2 of the number of entries.
pub(crate) const LOG_ENTRIES: u8 = 5;

/// log2 of the size of an entry, in bytes.
pub(crate) const LOG_STRIDE: u8 = 6;

/// Maximum length of an input or an output. The translations of a memory key of 4 GiB take 8 MiB.
const MAX_LEN: usize = 16 << 20;

/// Minimum length of an input or an output: that of a header, or of a status with its syndrome.
const MIN_LEN: usize = 8;

/// Alignment of a block. A driver may choose more.
const BLOCK_ALIGN: u64 = 512;

/// A command that has been read from guest memory.
pub(crate) struct Request {
    entry: CmdEntry,
    address: u64,
    pub(crate) input: Vec<u8>,
    /// Space for the output, filled with zeros.
    pub(crate) output: Vec<u8>,
    /// Bus address of each output block.
    blocks: Vec<u64>,
}

/// Reads the command in entry `index` of the queue at bus address `queue`. Returns `None` if the entry belongs to the
/// driver or cannot be read. A command that is not delivered is completed with the reason.
pub(crate) fn fetch(memory: &GuestMemory, queue: u64, index: u8) -> Option<Request> {
    let address = queue.checked_add(u64::from(index) << LOG_STRIDE)?;
    let mut bytes = [0; CmdEntry::LEN];
    memory.read(address, &mut bytes).ok()?;
    let entry = CmdEntry::read(&bytes);
    if !entry.owned_by_hw {
        return None;
    }
    let request = match xor(&bytes) {
        0xff => load(memory, entry, address),
        _ => Err(Delivery::SIGNATURE),
    };
    request.map_err(|why| complete(memory, address, entry, why)).ok()
}

fn load(memory: &GuestMemory, entry: CmdEntry, address: u64) -> Result<Request, Delivery> {
    let (input_len, output_len) = (entry.input_len as usize, entry.output_len as usize);
    if entry.transport != CmdEntry::PCI {
        return Err(Delivery::DESCRIPTOR);
    }
    if !(MIN_LEN..=MAX_LEN).contains(&input_len) {
        return Err(Delivery::INPUT_LENGTH);
    }
    if !(MIN_LEN..=MAX_LEN).contains(&output_len) {
        return Err(Delivery::OUTPUT_LENGTH);
    }
    let mut input = entry.input.to_vec();
    walk(memory, entry.input_block, entry.token, input_len, Delivery::INPUT_POINTER, |_, data| {
        input.extend_from_slice(data);
    })?;
    input.truncate(input_len);
    let mut blocks = Vec::new();
    walk(memory, entry.output_block, entry.token, output_len, Delivery::OUTPUT_POINTER, |block, _| {
        blocks.push(block);
    })?;
    Ok(Request { entry, address, input, output: vec![0; output_len], blocks })
}

/// Calls `each` with the address and the data of each block of a chain for `len` bytes, of which the first are in the
/// entry.
fn walk(
    memory: &GuestMemory,
    first: u64,
    token: u8,
    len: usize,
    bad_pointer: Delivery,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<(), Delivery> {
    let mut at = first;
    for number in 0..len.saturating_sub(INLINE_DATA).div_ceil(BLOCK_DATA) {
        let mut block = [0; BLOCK_BYTES];
        if at == 0 || !at.is_multiple_of(BLOCK_ALIGN) || memory.read(at, &mut block).is_err() {
            return Err(bad_pointer);
        }
        let (data, trailer) = block.split_at(BLOCK_DATA);
        let trailer = BlockTrailer::read(trailer.first_chunk().ok_or(Delivery::INTERNAL)?);
        if trailer.token != token {
            return Err(Delivery::TOKEN);
        }
        if trailer.number as usize != number {
            return Err(Delivery::BLOCK_NUMBER);
        }
        each(at, data);
        at = trailer.next;
    }
    Ok(())
}

impl Request {
    /// Writes the output to guest memory, and returns the entry to the driver.
    pub(crate) fn finish(self, memory: &GuestMemory) {
        let Request { mut entry, address, output, blocks, .. } = self;
        let (inline, rest) = output.split_at(output.len().min(INLINE_DATA));
        entry.output[..inline.len()].copy_from_slice(inline);
        let mut delivery = Delivery::OK;
        for (number, (data, at)) in rest.chunks(BLOCK_DATA).zip(&blocks).enumerate() {
            let mut block = [0; BLOCK_DATA];
            block[..data.len()].copy_from_slice(data);
            let next = blocks.get(number + 1).copied().unwrap_or(0);
            let trailer =
                BlockTrailer { next, number: number as u32, token: entry.token, ..Default::default() };
            let trailer = trailer.sign(&block);
            let written =
                memory.write(*at, &block).and_then(|()| memory.write(at + BLOCK_DATA as u64, &trailer));
            if written.is_err() {
                delivery = Delivery::OUTPUT_POINTER;
            }
        }
        complete(memory, address, entry, delivery);
    }
}

/// Returns an entry to the driver.
fn complete(memory: &GuestMemory, address: u64, entry: CmdEntry, delivery: Delivery) {
    if delivery != Delivery::OK {
        tracing::debug!(?delivery, "command not delivered");
    }
    let bytes = CmdEntry { delivery, owned_by_hw: false, ..entry }.sign();
    // The driver polls the last byte.
    let (body, last) = bytes.split_at(CmdEntry::LEN - 4);
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    if memory.write(address, body).is_ok() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        // If the memory is gone, so is the driver that would read it.
        let _ = memory.write(address + body.len() as u64, last);
    }
}
