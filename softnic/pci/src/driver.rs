//! A small driver in this process, for tests: it reaches a function by registers, and shares memory with it.

use crate::Interrupts;
use crate::config_space::Identity;
use crate::function::{Function, Region};
use crate::guest::GuestMemory;
use rushmem_mlx5::prm::hca::{EnableHca, InitHca, ManagePages, PagesFor, PagesMode, QueryPages, SetIssi};
use rushmem_mlx5::prm::queue::{BLOCK_BYTES, BLOCK_DATA, BlockTrailer, CmdEntry, Delivery, INLINE_DATA};
use rushmem_mlx5::prm::{Command, DecodeError, Response};
use rushmem_softnic::{Config, HostBuffer, Idle, Ip, Memory, Nic};
use std::sync::Arc;
use std::time::Duration;

/// First address and length of the guest's memory.
pub(crate) const MEMORY: u64 = 1 << 20;
pub(crate) const MEMORY_BYTES: usize = 4 << 20;

/// Address of the command queue, followed by a page for blocks of input and output each.
pub(crate) const QUEUE: u64 = MEMORY;
const INPUT_BLOCKS: u64 = MEMORY + 0x1_0000;
const OUTPUT_BLOCKS: u64 = MEMORY + 0x2_0000;
/// Address of the first page that [`Driver::pages`] may return.
const PAGES: u64 = MEMORY + 0x4_0000;

pub(crate) const PAGE: u64 = 4096;

/// Distance between the blocks of a chain.
const BLOCK_STRIDE: u64 = 1024;

/// Starts an adapter that reaches no others.
pub(crate) fn adapter() -> Arc<Nic> {
    adapter_at(Ip::LoopbackOnly)
}

fn adapter_at(ip: Ip) -> Arc<Nic> {
    let config = Config {
        ip,
        infiniband: true,
        idle: Idle::Notified { max_sleep: Duration::from_millis(10) },
        ..Config::default()
    };
    Arc::new(Nic::start(config).expect("an adapter without a socket starts"))
}

pub(crate) struct Driver {
    pub(crate) nic: Arc<Nic>,
    pub(crate) function: Function,
    pub(crate) memory: Arc<GuestMemory>,
    /// End of the free pages.
    pub(crate) top: u64,
}

impl Driver {
    /// Creates a virtual function whose driver has only allocated the command queue.
    pub(crate) fn new(interrupts: Arc<dyn Interrupts>) -> Driver {
        Driver::of(Identity { infiniband: true, ..Identity::default() }, interrupts)
    }

    /// Creates a function whose driver has only allocated the command queue.
    pub(crate) fn of(identity: Identity, interrupts: Arc<dyn Interrupts>) -> Driver {
        Driver::on(adapter(), identity, interrupts)
    }

    /// Creates a virtual function of an adapter that reaches others of this machine.
    #[cfg(test)]
    pub(crate) fn connected(interrupts: Arc<dyn Interrupts>) -> Driver {
        let identity = Identity { infiniband: true, ..Identity::default() };
        Driver::on(adapter_at(Ip::AnyLoopback), identity, interrupts)
    }

    fn on(nic: Arc<Nic>, identity: Identity, interrupts: Arc<dyn Interrupts>) -> Driver {
        let memory = Arc::new(GuestMemory::default());
        memory.insert(MEMORY, HostBuffer::new(MEMORY_BYTES)).expect("the first region fits");
        let function = Function::new(Arc::clone(&nic), identity, Arc::clone(&memory), interrupts);
        let top = MEMORY + MEMORY_BYTES as u64;
        let mut driver = Driver { nic, function, memory, top };
        driver.set_queue();
        driver
    }

    pub(crate) fn set_queue(&mut self) {
        self.set_register(0x10, (QUEUE >> 32) as u32);
        self.set_register(0x14, QUEUE as u32);
    }

    pub(crate) fn set_register(&mut self, offset: u64, value: u32) {
        self.function.write(Region::Bar0, offset, &value.to_be_bytes());
    }

    /// Returns zeroed pages, no two of which follow each other.
    pub(crate) fn pages(&mut self, count: usize) -> Vec<u64> {
        let mut pages = Vec::new();
        for _ in 0..count {
            self.top -= 2 * PAGE;
            assert!(self.top >= PAGES, "the guest is out of memory");
            self.put(self.top, &[0; PAGE as usize]);
            pages.push(self.top);
        }
        pages
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes).expect("the address has memory");
    }

    pub(crate) fn get<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(address, &mut bytes).expect("the address has memory");
        bytes
    }

    /// Writes a chain of blocks that contains `data`. Returns its address.
    fn put_blocks(&self, first: u64, data: &[u8], token: u8) -> u64 {
        let blocks = data.chunks(BLOCK_DATA).count();
        for (number, part) in data.chunks(BLOCK_DATA).enumerate() {
            let at = first + number as u64 * BLOCK_STRIDE;
            let mut block = [0; BLOCK_DATA];
            block[..part.len()].copy_from_slice(part);
            let next = if number + 1 < blocks { at + BLOCK_STRIDE } else { 0 };
            let trailer = BlockTrailer { next, number: number as u32, token, ..Default::default() };
            self.put(at, &[&block[..], &trailer.sign(&block)].concat());
        }
        if blocks == 0 { 0 } else { first }
    }

    /// Writes entry 0 of the queue and the blocks of a command.
    pub(crate) fn prepare(&self, input: &[u8], output_len: usize) -> CmdEntry {
        const TOKEN: u8 = 0x5a;
        let (inline, rest) = input.split_at(input.len().min(INLINE_DATA));
        let output = vec![0; output_len.saturating_sub(INLINE_DATA)];
        let mut entry = CmdEntry {
            transport: CmdEntry::PCI,
            input_len: input.len() as u32,
            input_block: self.put_blocks(INPUT_BLOCKS, rest, TOKEN),
            output_block: self.put_blocks(OUTPUT_BLOCKS, &output, TOKEN),
            output_len: output_len as u32,
            token: TOKEN,
            owned_by_hw: true,
            ..CmdEntry::default()
        };
        entry.input[..inline.len()].copy_from_slice(inline);
        self.put(QUEUE, &entry.sign());
        entry
    }

    /// Rings the doorbell of entry 0. Returns the entry as the function has left it.
    pub(crate) fn ring(&mut self) -> CmdEntry {
        self.set_register(0x18, 1);
        CmdEntry::read(&self.get(QUEUE))
    }

    /// Executes a command.
    pub(crate) fn submit(&mut self, input: &[u8], output_len: usize) -> Result<Vec<u8>, Delivery> {
        self.prepare(input, output_len);
        let entry = self.ring();
        assert!(!entry.owned_by_hw, "the command is not complete");
        if entry.delivery != Delivery::OK {
            return Err(entry.delivery);
        }
        let mut output = entry.output.to_vec();
        let mut at = entry.output_block;
        while output.len() < output_len {
            let block: [u8; BLOCK_BYTES] = self.get(at);
            output.extend_from_slice(&block[..BLOCK_DATA]);
            at += BLOCK_STRIDE;
        }
        output.truncate(output_len);
        Ok(output)
    }

    /// Executes a command whose mailbox is followed by a list.
    pub(crate) fn call_with<C: Command>(
        &mut self,
        command: &C,
        list: &[u64],
    ) -> Result<C::Output, DecodeError> {
        let list = list.iter().flat_map(|entry| entry.to_be_bytes());
        let input: Vec<u8> = command.encode().as_ref().iter().copied().chain(list).collect();
        let len = <C::Output as Response>::EMPTY.as_ref().len();
        C::Output::decode(&self.submit(&input, len).expect("the command is delivered"))
    }

    pub(crate) fn call<C: Command>(&mut self, command: &C) -> Result<C::Output, DecodeError> {
        self.call_with(command, &[])
    }

    /// Initializes the function, as a driver does when it is loaded. Returns the pages that the driver has given.
    pub(crate) fn bring_up(&mut self) -> Vec<u64> {
        self.call(&EnableHca::default()).expect("enabled");
        self.call(&SetIssi { current_issi: 1, ..SetIssi::default() }).expect("version 1 exists");
        let mut given = self.give_pages(PagesFor::BOOT);
        given.extend(self.give_pages(PagesFor::INIT));
        self.call(&InitHca::default()).expect("there are enough pages");
        given
    }

    fn give_pages(&mut self, op_mod: PagesFor) -> Vec<u64> {
        let needed = self.call(&QueryPages { op_mod, ..QueryPages::default() }).expect("a known purpose");
        let pages = self.pages(needed.num_pages as usize);
        let give = ManagePages {
            op_mod: PagesMode::GIVE,
            input_num_entries: needed.num_pages,
            ..ManagePages::default()
        };
        self.call_with(&give, &pages).expect("the function takes its pages");
        pages
    }
}
