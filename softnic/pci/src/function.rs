//! The PCI function: what its driver reads and writes on the bus.

use crate::command;
use crate::config_space::{ConfigSpace, Identity};
use crate::eq::{EventQueues, Interrupts};
use crate::firmware::{Effect, Firmware};
use crate::guest::GuestMemory;
use crate::segment::{self, Segment, Shown, Written};
use crate::users::Users;
use crate::{BAR_BYTES, events, refuse};
use rushmem_mlx5::be::Be64;
use rushmem_mlx5::doorbell::{CqArm, uar};
use rushmem_mlx5::prm::eq::{Eqe, EventType};
use rushmem_mlx5::prm::{CmdError, CmdOpcode, Header};
use rushmem_softnic::{Bus, Context, HostBuffer, Memory, Nic};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A region of the function on its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// BAR 0: the initialization segment, followed by doorbell pages.
    Bar0,
    /// The configuration space.
    Config,
}

/// How often a command was executed and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of commands executed successfully.
    pub done: u64,
    /// Number of commands refused.
    pub refused: u64,
}

/// A PCI function of a software ConnectX.
///
/// A driver reaches it by reads and writes of its [`Region`]s, and it reaches its driver by [`GuestMemory`] and
/// [`Interrupts`].
pub struct Function {
    nic: Arc<Nic>,
    identity: Identity,
    memory: Arc<GuestMemory>,
    /// The contents of BAR 0 as far as the adapter reads them: doorbell pages.
    doorbells: Arc<HostBuffer>,
    events: Arc<EventQueues>,
    config: ConfigSpace,
    segment: Segment,
    firmware: Firmware,
    /// The adapter, opened for this function.
    context: Arc<Context>,
    /// First half of a doorbell that is written in two halves, with its offset.
    half: Option<(u64, u32)>,
    counts: BTreeMap<CmdOpcode, Count>,
}

impl Function {
    /// Attaches a function of `nic` to a bus, with `memory` at its bus addresses.
    ///
    /// The function takes over the events of the adapter.
    #[must_use]
    pub fn new(
        nic: Arc<Nic>,
        identity: Identity,
        memory: Arc<GuestMemory>,
        interrupts: Arc<dyn Interrupts>,
    ) -> Function {
        let doorbells = Arc::new(HostBuffer::new(BAR_BYTES as usize));
        let events = Arc::new(EventQueues::new(Arc::clone(&memory), interrupts));
        let context = open(&nic, &memory, &doorbells, &events);
        Function {
            nic,
            identity,
            memory,
            doorbells,
            events,
            config: ConfigSpace::new(identity),
            segment: Segment::default(),
            firmware: Firmware::new(identity.function),
            context,
            half: None,
            counts: BTreeMap::new(),
        }
    }

    /// Resets the function: its objects are destroyed, and its registers have their initial values.
    pub fn reset(&mut self) {
        self.config = ConfigSpace::new(self.identity);
        self.destroy_objects();
        self.firmware = Firmware::new(self.identity.function);
        (self.segment, self.half) = Default::default();
    }

    fn destroy_objects(&mut self) {
        self.events.clear();
        // The driver's memory keys refer to protection domains of programs, so they are destroyed first.
        self.context = open(&self.nic, &self.memory, &self.doorbells, &self.events);
        self.firmware.users = Users::default();
    }

    /// Returns how often each command was executed and refused so far.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<CmdOpcode, Count> {
        &self.counts
    }

    /// Reads bytes of a region. Any range is allowed.
    pub fn read(&self, region: Region, offset: u64, buf: &mut [u8]) {
        if region == Region::Config {
            return self.config.read(offset, buf);
        }
        let firmware = self.identity.model.firmware();
        let shown = Shown { health: self.nic.health(), clock: self.nic.clock(), firmware };
        for (at, byte) in (offset..).zip(buf) {
            // Doorbells cannot be read.
            let word = if at < segment::BYTES { self.segment.read(at & !3, shown) } else { 0 };
            *byte = word.to_be_bytes()[(at & 3) as usize];
        }
    }

    /// Writes bytes of a region. Only aligned writes of 4 or 8 bytes, or several such, reach the registers of BAR 0.
    pub fn write(&mut self, region: Region, offset: u64, data: &[u8]) {
        if region == Region::Config {
            if self.config.write(offset, data) {
                self.reset();
            }
            return;
        }
        if !offset.is_multiple_of(4) || !data.len().is_multiple_of(4) {
            return;
        }
        let words = data.as_chunks::<4>().0;
        for (at, word) in (offset..BAR_BYTES).step_by(4).zip(words) {
            match at {
                0..segment::BYTES => self.write_register(at, u32::from_be_bytes(*word)),
                _ => self.write_doorbell(at, u32::from_ne_bytes(*word)),
            }
        }
    }

    fn write_register(&mut self, offset: u64, value: u32) {
        if let Written::Commands { queue, entries } = self.segment.write(offset, value) {
            (0..1 << command::LOG_ENTRIES).filter(|index| entries >> index & 1 != 0).for_each(|index| {
                self.execute(queue, index);
            });
        }
    }

    /// Executes the command in entry `index` of the queue at bus address `queue`, and completes it.
    fn execute(&mut self, queue: u64, index: u8) {
        let Some(mut request) = command::fetch(&self.memory, queue, index) else { return };
        // A queue that this command creates does not report it.
        let listeners = self.events.receivers(EventType::CMD);
        if let Err(error) = self.process(&request.input, &mut request.output) {
            error.write(&mut request.output);
        }
        self.count(&request.input, &request.output);
        request.finish(&self.memory);
        let eqe = Eqe { event_type: EventType::CMD, first: 1 << index, ..Eqe::default() };
        listeners.into_iter().for_each(|number| self.events.post(number, eqe));
    }

    fn process(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CmdError> {
        let header = Header::decode(input).map_err(|_| refuse::INPUT_LENGTH)?;
        let sender = self.firmware.users.sender(&self.context, &header)?;
        match self.firmware.execute(&self.context, &self.events, input, output)? {
            Effect::None => {}
            Effect::Adapter => sender.command(input, output),
            Effect::Teardown => {
                drop(sender);
                self.destroy_objects();
            }
        }
        Ok(())
    }

    fn count(&mut self, input: &[u8], output: &[u8]) {
        let Ok(header) = Header::decode(input) else { return };
        let count = self.counts.entry(header.opcode).or_default();
        match CmdError::check(output) {
            Ok(()) => count.done += 1,
            Err(error) => {
                count.refused += 1;
                tracing::debug!(opcode = %header.opcode, op_mod = header.op_mod, %error, "command refused");
            }
        }
    }

    /// Writes half of an 8-byte register, or a 4-byte register, of a doorbell page.
    fn write_doorbell(&mut self, offset: u64, value: u32) {
        const ARM: u64 = uar::EQ as u64;
        const UPDATE: u64 = uar::EQ as u64 + 8;
        const PAGE: u64 = uar::PAGE_BYTES as u64;
        let page = (offset / PAGE) as u32;
        match offset % PAGE {
            ARM => self.events.doorbell(page, u32::from_be(value), true),
            UPDATE => self.events.doorbell(page, u32::from_be(value), false),
            _ if offset.is_multiple_of(8) => self.half = Some((offset + 4, value)),
            _ => {
                let Some((_, first)) = self.half.take().filter(|(expected, _)| *expected == offset) else {
                    return;
                };
                // The register has the bytes in the order in which they were written.
                let value = bytemuck::cast::<[u32; 2], u64>([first, value]);
                let at = offset - 4;
                if at % PAGE == uar::CQ_ARM as u64 {
                    // The register would hold only the last request.
                    return self.context.arm(page, CqArm(Be64::from_raw(value)));
                }
                self.doorbells.store_u64(register(at) as usize, value);
                self.context.waker().wake();
            }
        }
    }
}

/// Returns the register that the adapter reads for a doorbell at this offset. It reads those of the first two BlueFlame
/// registers of a page, like libmlx5 uses; a kernel driver also uses the other two.
fn register(offset: u64) -> u64 {
    const ALL: u64 = uar::BF_REGS as u64 * 2 * uar::NC_REG_STRIDE as u64;
    const READ: u64 = ALL / 2;
    let within = offset % uar::PAGE_BYTES as u64;
    let first = uar::DB as u64;
    if (first + READ..first + ALL).contains(&within) { offset - READ } else { offset }
}

impl Drop for Function {
    fn drop(&mut self) {
        // The adapter's callback keeps the context, which keeps the adapter.
        self.nic.on_event(|_| {});
    }
}

/// Opens the adapter for a function, and delivers its events to the function's event queues.
fn open(
    nic: &Nic,
    memory: &Arc<GuestMemory>,
    doorbells: &Arc<HostBuffer>,
    events: &Arc<EventQueues>,
) -> Arc<Context> {
    let bus = Bus {
        memory: Arc::clone(memory) as Arc<dyn Memory>,
        doorbells: Arc::clone(doorbells) as Arc<dyn Memory>,
    };
    let context = Arc::new(nic.open_function(bus));
    let (events, of) = (Arc::clone(events), Arc::clone(&context));
    nic.on_event(move |event| events::deliver(&events, &of, event));
    context
}
