//! The command queue of a PCIe function: entries and mailbox blocks in memory, by which a kernel driver passes commands
//! to the firmware.
//!
//! An entry contains the first 16 bytes of the input and of the output. The rest is in chains of blocks with
//! [`BLOCK_DATA`] bytes of data, each followed by a [`BlockTrailer`].

use super::layout::{layout, numbers};

/// Length of the data in a block.
pub const BLOCK_DATA: usize = 512;

/// Length of a block.
pub const BLOCK_BYTES: usize = BLOCK_DATA + BlockTrailer::LEN;

/// Length of the input and of the output in an entry.
pub const INLINE_DATA: usize = 16;

numbers! {
    /// How a command was delivered to the firmware, which is not its outcome.
    pub struct Delivery(u8) {
        /// The command was executed, and its output has its status.
        OK = 0x00;
        /// A signature is wrong.
        SIGNATURE = 0x01;
        /// The token of a block is not that of its entry.
        TOKEN = 0x02;
        /// A block has the wrong number.
        BLOCK_NUMBER = 0x03;
        /// The address of an output block is not aligned.
        OUTPUT_POINTER = 0x04;
        /// The address of an input block is not aligned.
        INPUT_POINTER = 0x05;
        /// The firmware failed.
        INTERNAL = 0x06;
        /// The input has an unsupported length.
        INPUT_LENGTH = 0x07;
        /// The output has an unsupported length.
        OUTPUT_LENGTH = 0x08;
        /// The entry has an unsupported type.
        DESCRIPTOR = 0x10;
    }
}

layout! {
    /// An entry of the command queue.
    pub struct CmdEntry[64] {
        /// Transport of the command: [`CmdEntry::PCI`].
        transport: u8 = 0x000, 8;
        /// Length of the input, in bytes.
        input_len: u32 = 0x020, 32;
        /// Bus address of the first input block.
        input_block: u64 = 0x040, 64;
        /// First bytes of the input.
        input: [u8; 16] = 0x080, 128;
        /// First bytes of the output.
        output: [u8; 16] = 0x100, 128;
        /// Bus address of the first output block.
        output_block: u64 = 0x180, 64;
        /// Length of the output, in bytes.
        output_len: u32 = 0x1c0, 32;
        /// Number that the blocks of this command carry.
        token: u8 = 0x1e0, 8;
        /// Chosen such that the XOR of all bytes is 0xff.
        signature: u8 = 0x1e8, 8;
        /// How the command was delivered.
        delivery: Delivery = 0x1f8, 7;
        /// The entry belongs to the firmware, until the command is complete.
        owned_by_hw: bool = 0x1ff, 1;
    }
}

impl CmdEntry {
    /// Value of `transport`: commands from the PCI bus.
    pub const PCI: u8 = 7;

    /// Encodes the entry with its signature.
    pub fn sign(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        Self { signature: 0, ..self }.write(&mut bytes);
        Self { signature: !xor(&bytes), ..self }.write(&mut bytes);
        bytes
    }
}

layout! {
    /// What follows the data in a block.
    pub struct BlockTrailer[64] {
        /// Bus address of the next block, or 0.
        next: u64 = 0x180, 64;
        /// Number of the block in its chain, from 0.
        number: u32 = 0x1c0, 32;
        /// Number that the entry carries, too.
        token: u8 = 0x1e8, 8;
        /// Chosen such that the XOR of the trailer's bytes before `signature` is 0xff.
        control_signature: u8 = 0x1f0, 8;
        /// Chosen such that the XOR of all bytes of the block is 0xff.
        signature: u8 = 0x1f8, 8;
    }
}

impl BlockTrailer {
    /// Encodes the trailer with the signatures for a block that contains `data`.
    pub fn sign(self, data: &[u8; BLOCK_DATA]) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        Self { control_signature: 0, signature: 0, ..self }.write(&mut bytes);
        let control_signature = !xor(&bytes);
        Self { control_signature, signature: 0, ..self }.write(&mut bytes);
        let signature = !(xor(&bytes) ^ xor(data));
        Self { control_signature, signature, ..self }.write(&mut bytes);
        bytes
    }
}

/// Returns the XOR of all bytes, which is 0xff for an entry or a block with a valid signature.
pub fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_entries_and_blocks_add_up() {
        let entry = CmdEntry { transport: CmdEntry::PCI, token: 9, owned_by_hw: true, ..Default::default() };
        let bytes = entry.sign();
        assert_eq!((bytes[0], bytes[60], bytes[63], xor(&bytes)), (7, 9, 1, 0xff));
        let data = core::array::from_fn(|i| (i as u8).wrapping_mul(3));
        let trailer =
            BlockTrailer { next: 0x1_2345_6000, number: 2, token: 9, ..Default::default() }.sign(&data);
        assert_eq!((trailer[61], xor(&trailer[..63]), xor(&trailer) ^ xor(&data)), (9, 0xff, 0xff));
    }
}
