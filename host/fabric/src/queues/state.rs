//! Lays out the memory in which kernels and the host share the state of QPs.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use bytemuck::Zeroable;
use rushmem_device::abi::{
    Connection, DevAddr, DeviceState, Handshake, PeerDesc, QpDesc, QpEntry, QpState, answer,
};
use rushmem_error::Result;
use rushmem_machine::{Machine, Region};

use super::Shape;

/// The PE state, QP table and peer table that kernels read and update. They are in the fastest memory of the machine,
/// which the host may be unable to access while kernels run.
pub struct StateMap {
    pub region: Region,
    shape: Shape,
}

/// Time limits for kernels' blocking calls.
pub struct Deadlines {
    /// Limit for a blocking call.
    pub call: Duration,
    /// Limit for connecting a QP on first contact with a peer.
    pub connect: Duration,
}

/// Kernels' requests to connect QPs and the host's answers: one [`Handshake`] per QP. They are in host memory, so the
/// host can serve them while kernels run.
pub struct Handshakes(Region);

impl Handshakes {
    pub fn new(machine: &dyn Machine, shape: Shape) -> Result<Self> {
        Ok(Self(machine.shared(shape.entries() * size_of::<Handshake>() as u64)?))
    }

    const fn at(i: usize) -> u64 {
        (i * size_of::<Handshake>()) as u64
    }

    pub(super) fn clear(&self) -> Result<()> {
        self.0.write(0, &vec![0; self.0.memory.len() as usize])
    }

    pub(super) fn clear_one(&self, i: usize) -> Result<()> {
        self.0.write(Self::at(i), bytemuck::bytes_of(&Handshake::zeroed()))
    }

    /// Returns the device address of the handshake of QP `i`.
    pub(super) fn addr(&self, i: usize) -> DevAddr {
        self.0.addr.add(Self::at(i))
    }

    /// Prepares the handshake of QP `i` for connections to another process of the peer, while kernels are running. Requests that
    /// kernels have made without knowing of it count no more.
    pub(super) fn renew(&self, i: usize) -> Result<()> {
        let Handshake { renewed, .. } = self.read(i)?;
        let word =
            |field: usize, value: u32| self.0.write(Self::at(i) + field as u64, bytemuck::bytes_of(&value));
        // First, so no request of an earlier process is taken for one of this process.
        word(offset_of!(Handshake, renewed), renewed + 1)?;
        fence(Ordering::SeqCst);
        word(offset_of!(Handshake, wanted), 0)?;
        word(offset_of!(Handshake, answer), answer::NONE)?;
        self.0.write(Self::at(i) + offset_of!(Handshake, resume) as u64, &[0; 8])
    }

    /// Returns the last request of kernels for a connection of QP `i` to the peer's current process, if there is any.
    pub(super) fn request(&self, i: usize) -> Result<Option<Request>> {
        const { assert!(offset_of!(Handshake, wanted) == 0 && offset_of!(Handshake, seen) == 12) };
        let mut words = [0u32; 4];
        self.0.read(Self::at(i), bytemuck::bytes_of_mut(&mut words))?;
        let [number, _, process, seen] = words;
        Ok((number != 0 && process == seen).then_some(Request { process, number }))
    }

    /// Reads the handshake of QP `i`.
    pub(super) fn read(&self, i: usize) -> Result<Handshake> {
        let mut handshake = Handshake::zeroed();
        self.0.read(Self::at(i), bytemuck::bytes_of_mut(&mut handshake))?;
        Ok(handshake)
    }

    /// Sets where kernels of QP `i` copy blocks if its connection fails.
    pub(super) fn set_salvage(&self, i: usize, ring: DevAddr) -> Result<()> {
        self.0.write(Self::at(i) + offset_of!(Handshake, salvage) as u64, bytemuck::bytes_of(&ring))
    }

    /// Sets how many entries of the CQ the host has consumed, and how many results are lost.
    pub(super) fn set_progress(&self, i: usize, completions: u64, lost_results: u64) -> Result<()> {
        let at = Self::at(i);
        self.0.write(at + offset_of!(Handshake, completions) as u64, bytemuck::bytes_of(&completions))?;
        self.0.write(at + offset_of!(Handshake, lost_results) as u64, bytemuck::bytes_of(&lost_results))
    }

    /// Publishes the connection of QP `i` to waiting kernels. `None` informs them that it will not be connected.
    pub(super) fn answer(&self, i: usize, connection: Option<&Connection>) -> Result<()> {
        let at = Self::at(i);
        if let Some(connection) = connection {
            self.0.write(at + offset_of!(Handshake, connection) as u64, bytemuck::bytes_of(connection))?;
        }
        let answer = if connection.is_some() { answer::CONNECTED } else { answer::FAILED };
        // Writes may become visible in any order. The fence makes the answer the last one, so kernels that see it see
        // the connection.
        fence(Ordering::SeqCst);
        self.0.write(at + offset_of!(Handshake, answer) as u64, bytemuck::bytes_of(&answer))
    }
}

/// A request of kernels for a connection.
#[derive(Clone, Copy)]
pub(super) struct Request {
    /// [`Handshake::renewed`].
    process: u32,
    /// Number of the request among those for connections to this process, from 1.
    pub(super) number: u32,
}

impl Request {
    /// Returns the request as a word that is not 0.
    pub(super) fn word(self) -> u64 {
        u64::from(self.process) << 32 | u64::from(self.number)
    }
}

impl StateMap {
    pub fn new(machine: &dyn Machine, shape: Shape) -> Result<Self> {
        Ok(Self { region: machine.local(shape.state_bytes())?, shape })
    }

    pub fn device_state(&self) -> DevAddr {
        self.region.addr
    }

    /// Writes the PE state, which kernels need to wait and to report errors, and clears the words that kernels update.
    ///
    /// `control`, `print` and `lost` are addresses of the control page, of the ring for printed lines, and of the bit set of
    /// lost PEs; the latter two may be 0.
    pub fn write_pe(
        &self,
        pe: u32,
        control: DevAddr,
        print: DevAddr,
        lost: DevAddr,
        deadlines: Deadlines,
    ) -> Result<()> {
        let nanoseconds = |time: Duration| time.as_nanos().min(u64::MAX.into()) as u64;
        let deadline_ns = nanoseconds(deadlines.call);
        // The service gives up on a late connection first, with a reason. The kernels' own deadline is only the safety
        // net.
        let connect_ns = nanoseconds(deadlines.connect.saturating_add(deadlines.call));
        let Shape { failover, shared_sets, rails, n_pes, .. } = self.shape;
        let (qps, shared_qps) = (self.qp_table(), if failover { shared_sets * rails * n_pes } else { 0 });
        let words = DeviceState { control, deadline_ns, pe, connect_ns, print, lost, ..Zeroable::zeroed() };
        let state = DeviceState { qps, shared_qps, ..words };
        self.region.write(0, bytemuck::bytes_of(&state))
    }

    /// Returns the number of printed lines that were lost because the print buffer was full.
    pub fn lost_lines(&self) -> Result<u64> {
        let mut lost = 0u64;
        self.region.read(offset_of!(DeviceState, lost_lines) as u64, bytemuck::bytes_of_mut(&mut lost))?;
        Ok(lost)
    }

    /// Returns the number of errors that kernels have reported, recorded or not, and resets it to 0. Also resets the
    /// grid barrier, which a failed kernel may have left half entered. At most one kernel of a PE uses this barrier at
    /// a time.
    pub fn take_record_count(&self) -> Result<u64> {
        const RECORDS: u64 = offset_of!(DeviceState, records) as u64;
        const ARRIVED: u64 = offset_of!(DeviceState, grid_arrived) as u64;
        let mut count = 0u64;
        self.region.read(RECORDS, bytemuck::bytes_of_mut(&mut count))?;
        // Only these words: kernels on other streams may be updating the others.
        self.region.write(RECORDS, &[0; 8])?;
        self.region.write(ARRIVED, &[0; 8])?;
        Ok(count)
    }

    /// Returns the device address of entry `i` of the QP table.
    pub(super) fn entry(&self, i: u64) -> DevAddr {
        self.region.addr.add(Shape::entry_at(i))
    }

    /// Returns the offset of QP `i`'s state in the memory that kernels update.
    pub(super) const fn qp_at(i: u64) -> u64 {
        Shape::entry_at(i) + offset_of!(QpEntry, state) as u64
    }

    /// Returns the device address of the ready entries of slot `slot`: one word per basic block of its send queue.
    pub(super) fn ready(&self, slot: u64) -> DevAddr {
        self.region.addr.add(Shape::entry_at(self.shape.entries()) + 2 * slot * self.shape.depth * 8)
    }

    /// Returns the device address of the busy words of slot `slot`: one word per basic block of its send queue.
    pub(super) fn fetch_busy(&self, slot: u64) -> DevAddr {
        self.ready(slot).add(self.shape.depth * 8)
    }

    /// Writes the QP table, with all QPs unconnected. Its address is [`StateMap::qp_table`].
    pub fn describe_qps(&self, qps: &[QpDesc]) -> Result<()> {
        let entries: Vec<QpEntry> = qps.iter().map(unconnected).collect();
        self.region.write(Shape::QPS_AT, bytemuck::cast_slice(&entries))
    }

    /// Writes entry `i` of the QP table, with the QP unconnected.
    pub(super) fn describe_qp(&self, i: u64, qp: &QpDesc) -> Result<()> {
        self.region.write(Shape::entry_at(i), bytemuck::bytes_of(&unconnected(qp)))
    }

    /// Gives QP `i` another connection, which starts with block `block`, and of whose CQ the host has consumed `completions`
    /// entries. No kernel may use the QP.
    pub(super) fn resume(&self, i: u64, connection: &Connection, block: u64, completions: u64) -> Result<()> {
        let at = Shape::entry_at(i) + offset_of!(QpEntry, connection) as u64;
        self.region.write(at, bytemuck::bytes_of(connection))?;
        let words = [
            (offset_of!(QpState, reserved), block),
            (offset_of!(QpState, doorbell), block),
            (offset_of!(QpState, done), block),
            (offset_of!(QpState, cq_next), completions),
            (offset_of!(QpState, second_blocks), 0),
        ];
        self.write_words(i, &words)
    }

    /// Clears the ready entries and busy words of slot `slot`.
    pub(super) fn clear_slot(&self, slot: u64) -> Result<()> {
        let at = self.ready(slot).0 - self.region.addr.0;
        self.region.write(at, &vec![0; (2 * self.shape.depth * 8) as usize])
    }

    /// Clears the ready entries and busy words of all slots.
    pub(super) fn clear_slots(&self) -> Result<()> {
        let at = Shape::entry_at(self.shape.entries());
        self.region.write(at, &vec![0; (self.shape.peers_at() - at) as usize])
    }

    /// Writes the peer descriptors. The table's address is [`StateMap::peer_table`].
    pub fn describe_peers(&self, peers: &[PeerDesc]) -> Result<()> {
        self.region.write(self.shape.peers_at(), bytemuck::cast_slice(peers))
    }

    /// Overwrites the rkeys of `pe`'s heap in all QP descriptors with an invalid value, for fault tests.
    pub fn corrupt_rkey(&self, pe: u32) -> Result<()> {
        for i in (u64::from(pe)..self.shape.entries()).step_by(self.shape.n_pes as usize) {
            let desc = Shape::entry_at(i) + offset_of!(QpEntry, desc) as u64;
            for key in [offset_of!(QpDesc, rkey), offset_of!(QpDesc, strict_rkey)] {
                self.region.write(desc + key as u64, bytemuck::bytes_of(&0xbad_0e11u32))?;
            }
        }
        Ok(())
    }

    pub fn qp_table(&self) -> DevAddr {
        self.region.addr.add(Shape::QPS_AT)
    }

    pub fn peer_table(&self) -> DevAddr {
        self.region.addr.add(self.shape.peers_at())
    }
}

/// Returns the entry of the QP table for a QP that is not connected.
fn unconnected(&desc: &QpDesc) -> QpEntry {
    QpEntry { desc, connection: Zeroable::zeroed(), state: QpState::unconnected() }
}
