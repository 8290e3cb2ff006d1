//! A test bed: a fresh software ConnectX whose initiator and target QPs are created and connected by PRM commands.

use std::sync::Arc;

use rushmem_mlx5::doorbell::Record;
use rushmem_mlx5::prm::cq::{CqContext, CreateCq};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::qp::{
    AddressPath, AtomicMode, CreateQp, Init2Rtr, Mtu, PmState, QpContext, RqType, Rst2Init, Rtr2Rts,
    ServiceType,
};
use rushmem_mlx5::prm::{Command, Response};
use rushmem_mlx5::seg::WQEBB_BYTES;
use rushmem_softnic::{Config, Context, HostBuffer, Memory, Nic, Numbers, Uar};

use crate::{Error, Result};

/// Size of each side's registered heap, in bytes. Test data starts at offset [`HEAD`].
pub const HEAP_BYTES: usize = 64 << 10;
/// Offset of the test data in a heap, in bytes. Only the first word before it is used: atomics return old values there.
pub const HEAD: u64 = 8 << 10;
/// Fill byte of the send queue's slots before entries are written. It reveals bytes that no code writes.
pub const UNWRITTEN: u8 = 0xa5;

const CQE_BYTES: usize = 64;
/// Size of a doorbell record in bytes. Each has a cache line to itself.
const RECORD_BYTES: usize = 64;
/// Low byte (the variant byte, chosen by the consumer) of both memory keys.
const KEY_LOW: u8 = 0x52;

/// Depth of a queue pair's send and completion queues, and how completions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// log2 of the number of WQEBBs in the send queue and of the number of entries in the completion queue.
    pub log_depth: u8,
    /// Whether the completion queue is collapsed: every completion overwrites entry 0.
    pub collapsed: bool,
}

impl Shape {
    /// Number of WQEBBs (64-byte building blocks) in the send queue.
    pub fn depth(self) -> usize {
        1 << self.log_depth
    }

    pub(crate) fn sq_at(self) -> usize {
        0
    }

    pub(crate) fn cq_at(self) -> usize {
        self.depth() * WQEBB_BYTES
    }

    pub(crate) fn sq_record_at(self) -> usize {
        self.cq_at() + self.depth() * CQE_BYTES + Record::SND_OFFSET
    }

    pub(crate) fn cq_record_at(self) -> usize {
        self.cq_at() + self.depth() * CQE_BYTES + RECORD_BYTES
    }

    fn queue_bytes(self) -> usize {
        self.cq_record_at() + RECORD_BYTES
    }
}

/// A software ConnectX with an initiator and a target whose QPs are connected.
pub struct Bed {
    /// The software ConnectX that executes the posted WQEs.
    pub nic: Nic,
    /// The side that posts work requests.
    pub initiator: End,
    /// The side whose heap the initiator writes and reads.
    pub target: End,
    /// Depth of both sides' queues, and how completions are written.
    pub shape: Shape,
}

impl Bed {
    /// Creates a software ConnectX, connects the initiator's QP to the target's, and zeroes both heaps.
    ///
    /// # Errors
    /// - [`Error::Nic`], [`Error::Command`] and [`Error::Memory`]: the adapter refused a call.
    pub fn new(shape: Shape) -> Result<Self> {
        let nic = Nic::start(Config { numbers: Numbers::Lowest, ..Config::default() })?;
        // Create the target first. Otherwise the initiator's QPN would read the same in both byte orders and hide a
        // missing swap.
        let target = End::new(&nic, shape)?;
        let initiator = End::new(&nic, shape)?;
        initiator.connect(&nic, &target)?;
        target.connect(&nic, &initiator)?;
        Ok(Self { nic, initiator, target, shape })
    }

    /// Returns the first `count` WQEBBs of the initiator's send queue.
    ///
    /// # Errors
    /// - [`Error::Memory`]: the send queue has fewer than `count` WQEBBs.
    pub fn wqes(&self, count: usize) -> Result<Vec<[u8; WQEBB_BYTES]>> {
        let block = |i: usize| {
            let mut bytes = [0; WQEBB_BYTES];
            self.initiator.queues.read((self.shape.sq_at() + i * WQEBB_BYTES) as u64, &mut bytes)?;
            Ok(bytes)
        };
        (0..count).map(block).collect()
    }

    /// Returns the producer counter in the initiator's doorbell record.
    pub fn posted(&self) -> u16 {
        rushmem_mlx5::doorbell::record_counter(self.initiator.queues.load_u32(self.shape.sq_record_at()))
    }
}

/// One side of the connected QPs: a registered heap, and a QP with its queues.
pub struct End {
    context: Context,
    /// The registered memory that WQEs read and write. The memory key covers it from address 0.
    pub heap: Arc<HostBuffer>,
    /// Local and remote key of the heap.
    pub key: u32,
    /// The UAR page that contains the doorbell register.
    pub uar: Uar,
    /// Memory of the send queue, the completion queue and the doorbell records.
    pub queues: Arc<HostBuffer>,
    /// QPN of this side's QP.
    pub qpn: u32,
    /// CQN of this side's completion queue.
    pub cqn: u32,
}

impl End {
    fn new(nic: &Nic, shape: Shape) -> Result<Self> {
        let context = nic.open();
        let uar = context.alloc_uar()?;
        let pd = call(&context, &AllocPd::default())?.pd;

        let heap = Arc::new(HostBuffer::new(HEAP_BYTES));
        let heap_umem = context.umem_reg(Arc::clone(&heap) as _, 0, heap.len())?;
        let mkey = MkeyContext {
            a: true,
            rw: true,
            rr: true,
            lw: true,
            lr: true,
            qpn: MkeyContext::ANY_QP,
            mkey_7_0: KEY_LOW,
            pd,
            len: heap.len(),
            ..Default::default()
        };
        let create = CreateMkey {
            umem_valid: true,
            umem_id: heap_umem,
            context: mkey.with_access_mode(AccessMode::MTT),
            ..Default::default()
        };
        let key = key(call(&context, &create)?.mkey_index, KEY_LOW);

        let queues = Arc::new(HostBuffer::new(shape.queue_bytes()));
        queues.write(shape.sq_at() as u64, &vec![UNWRITTEN; shape.depth() * WQEBB_BYTES])?;
        queues.write(shape.cq_at() as u64, &vec![0xff; shape.depth() * CQE_BYTES])?;
        let umem = context.umem_reg(Arc::clone(&queues) as _, 0, queues.len())?;
        let cqn = create_cq(&context, shape, umem, uar.page_id)?;
        let create = CreateQp {
            wq_umem_id: umem,
            wq_umem_offset: shape.sq_at() as u64,
            wq_umem_valid: true,
            context: QpContext {
                st: ServiceType::RC,
                pm_state: PmState::MIGRATED,
                pd,
                uar_page: uar.page_id,
                cqn_snd: cqn,
                log_sq_size: shape.log_depth,
                rq_type: RqType::ZERO_SIZE,
                dbr_umem_valid: true,
                dbr_umem_id: umem,
                dbr_addr: (shape.sq_record_at() - Record::SND_OFFSET) as u64,
                ..Default::default()
            },
            ..Default::default()
        };
        let qpn = call(&context, &create)?.qpn;
        Ok(Self { context, heap, key, uar, queues, qpn, cqn })
    }

    fn connect(&self, nic: &Nic, peer: &End) -> Result {
        const LOG_READS: u8 = 4;
        let qpn = self.qpn;
        let context = QpContext {
            pm_state: PmState::MIGRATED,
            rre: true,
            rwe: true,
            rae: true,
            atomic_mode: AtomicMode::UP_TO_8B,
            primary_address_path: AddressPath { vhca_port_num: 1, ..Default::default() },
            ..Default::default()
        };
        call(&self.context, &Rst2Init { qpn, context, ..Default::default() })?;
        let path = AddressPath {
            rgid_rip: nic.gid(),
            rmac: nic.mac(),
            hop_limit: 64,
            vhca_port_num: 1,
            ..Default::default()
        };
        let context = QpContext {
            mtu: Mtu::B1024,
            log_msg_max: 30,
            remote_qpn: peer.qpn,
            log_rra_max: LOG_READS,
            min_rnr_nak: 12,
            primary_address_path: path,
            ..Default::default()
        };
        call(&self.context, &Init2Rtr { qpn, context, ..Default::default() })?;
        let context = QpContext {
            log_sra_max: LOG_READS,
            retry_count: 7,
            rnr_retry: 7,
            primary_address_path: AddressPath { ack_timeout: 14, ..Default::default() },
            ..Default::default()
        };
        call(&self.context, &Rtr2Rts { qpn, context, ..Default::default() })?;
        Ok(())
    }

    /// Returns a copy of the whole heap.
    ///
    /// # Errors
    /// - [`Error::Memory`]: the heap cannot be read.
    pub fn image(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; HEAP_BYTES];
        self.heap.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Overwrites the whole heap with `image`.
    ///
    /// # Errors
    /// - [`Error::Memory`]: the heap cannot be written.
    pub fn fill(&self, image: &[u8]) -> Result {
        Ok(self.heap.write(0, image)?)
    }
}

fn create_cq(context: &Context, shape: Shape, umem: u32, uar_page: u32) -> Result<u32> {
    let create = CreateCq {
        umem_id: umem,
        umem_offset: shape.cq_at() as u64,
        umem_valid: true,
        context: CqContext {
            dbr_umem_valid: true,
            dbr_umem_id: umem,
            dbr_addr: shape.cq_record_at() as u64,
            cc: shape.collapsed,
            oi: true,
            log_cq_size: shape.log_depth,
            uar_page,
            ..Default::default()
        },
        ..Default::default()
    };
    Ok(call(context, &create)?.cqn)
}

fn call<C: Command>(context: &Context, command: &C) -> Result<C::Output> {
    let mut output = <C::Output as Response>::EMPTY;
    context.command(command.encode().as_ref(), output.as_mut());
    <C::Output as Response>::decode(output.as_ref()).map_err(|error| Error::Command(C::OPCODE, error))
}
