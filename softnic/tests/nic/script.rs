//! A minimal driver: brings QPs up with mailboxes, posts WQEs and polls completions.

use crate::far::FarBuffer;
use crate::ring::Ring;
use crate::shared::BY_UDP;
use rushmem_mlx5::cqe::CQE_BYTES;
use rushmem_mlx5::doorbell::{Doorbell, record_word};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::qp::{
    AddressPath, AtomicMode, CreateQp, Init2Rtr, Mtu, QpContext, QueryQp, RqType, Rst2Init, Rtr2Rts,
    SEND_DBR, SEND_NO_DBR, ServiceType, ToErr,
};
use rushmem_mlx5::prm::{CmdError, Command, DecodeError, Response};
use rushmem_mlx5::seg::{DataSeg, blocks_for};
use rushmem_mlx5::{Cqe, CtrlSeg, Flags, Opcode, Segment, Syndrome, Wqe};
use rushmem_softnic::{Config, Context, HostBuffer, Ip, Memory, Nic, PAGE};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for a completion. It is generous, because the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Q_Key of every datagram QP.
pub(crate) const QKEY: u32 = 0x1234_5678;
const KEY_LOW: u8 = 0x5a;

/// Starts an adapter without a socket.
pub(crate) fn loopback_nic() -> Nic {
    Nic::start(Config::default()).expect("an adapter without fabric needs nothing")
}

/// Starts an adapter without a fabric that allows QPs without a doorbell record.
pub(crate) fn nic_without_records() -> Nic {
    Nic::start(Config { no_record: true, ..Config::default() })
        .expect("an adapter without fabric needs nothing")
}

/// Starts an adapter on an unused loopback address.
pub(crate) fn wire_nic(config: Config) -> Nic {
    let shared_memory = config.shared_memory && std::env::var_os(BY_UDP).is_none();
    Nic::start(Config { ip: Ip::AnyLoopback, shared_memory, ..config }).expect("127/8 is always there")
}

pub(crate) fn call<C: Command>(context: &Context, command: &C) -> Result<C::Output, CmdError> {
    let mut output = <C::Output as Response>::EMPTY;
    context.command(command.encode().as_ref(), output.as_mut());
    <C::Output as Response>::decode(output.as_ref()).map_err(|error| match error {
        DecodeError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    })
}

/// What tests vary: access rights of the heap's memory key, QP attributes, and the memory of queues.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) service: ServiceType,
    pub(crate) heap: usize,
    /// First address of the heap's memory key.
    pub(crate) start: u64,
    /// Access rights of the heap's memory key: a, rw, rr, lw, lr.
    pub(crate) rights: [bool; 5],
    pub(crate) log_sq: u8,
    pub(crate) log_cq: u8,
    /// log2 of the CQE size in bytes, minus 6.
    pub(crate) cqe_sz: u8,
    /// ID of the UAR page to use instead of the PE's own.
    pub(crate) page: Option<u32>,
    pub(crate) collapsed: bool,
    pub(crate) ignore_overrun: bool,
    /// log2 of the number of receive WQEs, which have 64 bytes.
    pub(crate) log_rq: Option<u8>,
    pub(crate) mtu: Mtu,
    /// Access flags of the QP: rre, rwe, rae.
    pub(crate) access: [bool; 3],
    pub(crate) atomic_mode: AtomicMode,
    pub(crate) ack_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) log_msg_max: u8,
    pub(crate) log_reads: u8,
    pub(crate) psn: u32,
    pub(crate) pkey_index: u16,
    /// Whether the QP context forces the order of the InfiniBand specification.
    pub(crate) ibta_order: bool,
    /// Memory for the heap that another adapter accesses as well.
    pub(crate) shared_heap: Option<Arc<HostBuffer>>,
    /// Whether the CPU cannot access queues, doorbell records and UAR page, as if they were in GPU memory.
    pub(crate) far_queues: bool,
    /// Whether the send queue has no doorbell record.
    pub(crate) no_record: bool,
}

impl Setup {
    /// Wraps `memory` for queues, hiding its pointer if [`Setup::far_queues`] is set.
    fn queue_memory(&self, memory: &Arc<HostBuffer>) -> Arc<dyn Memory> {
        if self.far_queues { Arc::new(FarBuffer(Arc::clone(memory))) } else { Arc::clone(memory) as _ }
    }

    /// Creates the memory key of the heap, whose umem is `umem`.
    fn create_key(&self, context: &Context, pd: u32, umem: u32) -> u32 {
        let [a, rw, rr, lw, lr] = self.rights;
        let mkc = MkeyContext {
            a,
            rw,
            rr,
            lw,
            lr,
            qpn: MkeyContext::ANY_QP,
            mkey_7_0: KEY_LOW,
            pd,
            start_addr: self.start,
            len: self.heap as u64,
            ..MkeyContext::default()
        };
        let create = CreateMkey {
            umem_valid: true,
            umem_id: umem,
            context: mkc.with_access_mode(AccessMode::MTT),
            ..CreateMkey::default()
        };
        key(call(context, &create).unwrap().mkey_index, KEY_LOW)
    }

    /// Creates a CQ whose doorbell record is at offset `record_at` of the records' memory. Returns its CQN and its
    /// ring.
    fn create_cq(
        &self,
        context: &Context,
        uar_page: u32,
        (records, record_umem): (&Arc<HostBuffer>, u32),
        record_at: usize,
    ) -> (u32, Ring) {
        let slot = CQE_BYTES << self.cqe_sz;
        let bytes = slot << self.log_cq;
        let memory = Arc::new(HostBuffer::new(bytes));
        memory.write(0, &vec![0xff; bytes]).unwrap();
        let umem_id = context.umem_reg(self.queue_memory(&memory), 0, bytes as u64).unwrap();
        let cq = CqContext {
            dbr_umem_valid: true,
            dbr_umem_id: record_umem,
            dbr_addr: record_at as u64,
            cc: self.collapsed,
            oi: self.ignore_overrun,
            cqe_sz: self.cqe_sz,
            log_cq_size: self.log_cq,
            uar_page,
            ..CqContext::default()
        };
        let create = CreateCq { umem_id, umem_valid: true, context: cq, ..CreateCq::default() };
        let cqn = call(context, &create).unwrap().cqn;
        let record = Arc::clone(records);
        (cqn, Ring { memory, log: self.log_cq, slot, consumer: 0, record, record_at })
    }

    /// Returns the QP attributes that do not depend on other objects.
    fn qp_context(&self) -> QpContext {
        QpContext {
            st: self.service,
            user_index: 0x77,
            log_sq_size: self.log_sq,
            rq_type: if self.log_rq.is_some() { RqType::REGULAR } else { RqType::ZERO_SIZE },
            log_rq_size: self.log_rq.unwrap_or(0),
            // 64 bytes.
            log_rq_stride: 2,
            dbr_umem_valid: true,
            dbr_addr: SQ_RECORD as u64,
            send_dbr_mode: if self.no_record { SEND_NO_DBR } else { SEND_DBR },
            ..QpContext::default()
        }
    }
}

#[derive(Clone)]
pub(crate) struct UarPage {
    pub(crate) page_id: u32,
    memory: Arc<HostBuffer>,
}

impl UarPage {
    pub(crate) fn memory(&self) -> &HostBuffer {
        &self.memory
    }
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            service: ServiceType::RC,
            heap: 1 << 20,
            start: 0,
            rights: [true; 5],
            log_sq: 6,
            log_cq: 6,
            cqe_sz: 0,
            page: None,
            collapsed: false,
            ignore_overrun: true,
            log_rq: None,
            mtu: Mtu::B1024,
            access: [true; 3],
            atomic_mode: AtomicMode::UP_TO_8B,
            // 4.096 us * 2^14 = 67 ms.
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            log_msg_max: 30,
            log_reads: 4,
            psn: 0,
            pkey_index: 0,
            ibta_order: false,
            shared_heap: None,
            far_queues: false,
            no_record: false,
        }
    }
}

/// A context of an adapter, with a heap and a QP.
pub(crate) struct Pe {
    pub(crate) context: Arc<Context>,
    pub(crate) setup: Setup,
    pub(crate) pd: u32,
    pub(crate) heap: Arc<HostBuffer>,
    pub(crate) heap_umem: u32,
    pub(crate) key: u32,
    pub(crate) uar: UarPage,
    pub(crate) cqn: u32,
    pub(crate) recv_cqn: u32,
    pub(crate) qpn: u32,
    pub(crate) queues: Arc<HostBuffer>,
    pub(crate) cq: Ring,
    pub(crate) recv_cq: Ring,
    pub(crate) records: Arc<HostBuffer>,
    pub(crate) producer: u16,
    pub(crate) receives: u16,
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
}

// Offsets of the doorbell records in their memory.
const SQ_RECORD: usize = 0;
const CQ_RECORD: usize = 64;
const RECV_CQ_RECORD: usize = 128;

impl Pe {
    pub(crate) fn new(nic: &Nic, setup: Setup) -> Pe {
        Pe::of(nic, nic.open(), setup)
    }

    /// Creates the first QP of a context, on a new UAR page.
    pub(crate) fn of(nic: &Nic, context: Context, setup: Setup) -> Pe {
        let memory = Arc::new(HostBuffer::new(PAGE));
        let page_id = context.alloc_uar_in(setup.queue_memory(&memory), 0).unwrap();
        let uar = UarPage { page_id, memory };
        Pe::with(nic, Arc::new(context), uar, setup)
    }

    /// Creates another QP in the same context and on the same UAR page.
    pub(crate) fn sibling(&self, nic: &Nic) -> Pe {
        Pe::with(nic, Arc::clone(&self.context), self.uar.clone(), self.setup.clone())
    }

    fn with(nic: &Nic, context: Arc<Context>, uar: UarPage, setup: Setup) -> Pe {
        let heap = setup.shared_heap.clone().unwrap_or_else(|| Arc::new(HostBuffer::new(setup.heap)));
        let pd = call(&context, &AllocPd::default()).unwrap().pd;
        let heap_umem = context.umem_reg(Arc::clone(&heap) as _, 0, setup.heap as u64).unwrap();
        let key = setup.create_key(&context, pd, heap_umem);
        let uar_page = setup.page.unwrap_or(uar.page_id);
        let records = Arc::new(HostBuffer::new(4096));
        let record_umem = context.umem_reg(setup.queue_memory(&records), 0, 4096).unwrap();
        let (cqn, cq) = setup.create_cq(&context, uar_page, (&records, record_umem), CQ_RECORD);
        let (recv_cqn, recv_cq) =
            setup.create_cq(&context, uar_page, (&records, record_umem), RECV_CQ_RECORD);
        let bytes = (64 << setup.log_sq) + setup.log_rq.map_or(0, |log| 64 << log);
        let queues = Arc::new(HostBuffer::new(bytes));
        let wq_umem_id = context.umem_reg(setup.queue_memory(&queues), 0, bytes as u64).unwrap();
        let qp = QpContext {
            pd,
            uar_page,
            cqn_snd: cqn,
            cqn_rcv: recv_cqn,
            dbr_umem_id: record_umem,
            ..setup.qp_context()
        };
        let create = CreateQp { wq_umem_id, wq_umem_valid: true, context: qp, ..CreateQp::default() };
        let qpn = call(&context, &create).unwrap().qpn;
        Pe {
            context,
            setup,
            pd,
            heap,
            heap_umem,
            key,
            uar,
            cqn,
            recv_cqn,
            qpn,
            queues,
            cq,
            recv_cq,
            records,
            producer: 0,
            receives: 0,
            gid: nic.gid(),
            mac: nic.mac(),
        }
    }

    /// Moves the QP to RTS, connected to `peer`.
    pub(crate) fn connect(&self, peer: &Pe) {
        self.to_rtr(peer);
        self.to_rts();
    }

    /// Moves the QP to RTS, connected to itself.
    pub(crate) fn connect_to_itself(&self) {
        self.connect(self);
    }

    /// Moves the QP to the Error state by a command.
    pub(crate) fn fail_now(&self) {
        call(&self.context, &ToErr { qpn: self.qpn, ..ToErr::default() }).unwrap();
    }

    pub(crate) fn to_init(&self) {
        let [rre, rwe, rae] = self.setup.access;
        let context = QpContext {
            rre,
            rwe,
            rae,
            atomic_mode: self.setup.atomic_mode,
            q_key: QKEY,
            primary_address_path: AddressPath {
                vhca_port_num: 1,
                pkey_index: self.setup.pkey_index,
                ..AddressPath::default()
            },
            ..QpContext::default()
        };
        call(&self.context, &Rst2Init { qpn: self.qpn, context, ..Rst2Init::default() }).unwrap();
    }

    pub(crate) fn init2rtr(&self, peer: &Pe) -> Init2Rtr {
        let context = QpContext {
            mtu: self.setup.mtu,
            log_msg_max: self.setup.log_msg_max,
            remote_qpn: peer.qpn,
            log_rra_max: self.setup.log_reads,
            // 0.01 ms.
            min_rnr_nak: 1,
            dp_ordering_force: self.setup.ibta_order,
            next_rcv_psn: peer.setup.psn,
            primary_address_path: AddressPath {
                rgid_rip: peer.gid,
                rmac: peer.mac,
                hop_limit: 64,
                ..AddressPath::default()
            },
            ..QpContext::default()
        };
        Init2Rtr { qpn: self.qpn, context, ..Init2Rtr::default() }
    }

    pub(crate) fn to_rtr(&self, peer: &Pe) {
        self.to_init();
        call(&self.context, &self.init2rtr(peer)).unwrap();
    }

    pub(crate) fn to_rts(&self) {
        let context = QpContext {
            log_sra_max: self.setup.log_reads,
            retry_count: self.setup.retry_count,
            rnr_retry: self.setup.rnr_retry,
            next_send_psn: self.setup.psn,
            primary_address_path: AddressPath {
                ack_timeout: self.setup.ack_timeout,
                ..AddressPath::default()
            },
            ..QpContext::default()
        };
        call(&self.context, &Rtr2Rts { qpn: self.qpn, context, ..Rtr2Rts::default() }).unwrap();
    }

    pub(crate) fn query(&self) -> QpContext {
        call(&self.context, &QueryQp { qpn: self.qpn, ..QueryQp::default() }).unwrap().context
    }

    pub(crate) fn sq_offset(&self, index: u16) -> usize {
        let rq = self.setup.log_rq.map_or(0, |log| 64 << log);
        rq + usize::from(index) % (1 << self.setup.log_sq) * 64
    }

    /// Writes a WQE to the send queue without ringing the doorbell. Returns its index.
    pub(crate) fn write(&mut self, wqe: &Wqe, flags: Flags) -> u16 {
        let emitted = wqe.emit(self.producer, self.qpn, flags);
        self.write_segments(emitted.segments())
    }

    /// Writes a WQE given by its segments to the send queue, without ringing the doorbell. Returns its index.
    pub(crate) fn write_segments(&mut self, segments: &[Segment]) -> u16 {
        let index = self.producer;
        for (block, part) in segments.chunks(4).enumerate() {
            let at = self.sq_offset(index.wrapping_add(block as u16));
            self.queues.write(at as u64, Segment::bytes_of(part)).unwrap();
        }
        self.producer = index.wrapping_add(u16::from(blocks_for(segments.len() as u8)));
        index
    }

    /// Writes an RDMA WQE with a list of local ranges (address, length) to the send queue.
    pub(crate) fn write_list(
        &mut self,
        opcode: Opcode,
        raddr: u64,
        rkey: u32,
        list: &[(u64, u32)],
        flags: Flags,
    ) -> u16 {
        let ds = 2 + list.len() as u8;
        let ctrl = CtrlSeg::new(0, opcode, self.producer, self.qpn, ds, flags, 0);
        let mut segments =
            vec![ctrl.to_segment(), rushmem_mlx5::seg::RaddrSeg::new(raddr, rkey).to_segment()];
        let key = self.key;
        segments.extend(list.iter().map(|(addr, len)| DataSeg::new(*addr, key, *len).to_segment()));
        self.write_segments(&segments)
    }

    /// Announces all WQEs written so far, in the doorbell record and then in the register.
    pub(crate) fn ring(&self) {
        self.records.store_u32(SQ_RECORD + 4, record_word(self.producer));
        self.uar.memory().store_u64(0x800, Doorbell::producer(self.qpn, self.producer).raw());
    }

    /// Writes a signaled WQE and rings the doorbell.
    pub(crate) fn post(&mut self, wqe: &Wqe) -> u16 {
        let index = self.write(wqe, Flags::SIGNALED);
        self.ring();
        index
    }

    /// Posts a receive with one data segment.
    pub(crate) fn post_receive(&mut self, addr: u64, len: u32) {
        let slot = u64::from(self.receives) % (1 << self.setup.log_rq.unwrap());
        let end = DataSeg::new(0, DataSeg::LIST_END_LKEY, 0);
        let entry = [DataSeg::new(addr, self.key, len), end].map(DataSeg::to_segment);
        self.queues.write(slot * 64, Segment::bytes_of(&entry)).unwrap();
        self.receives = self.receives.wrapping_add(1);
        self.records.store_u32(SQ_RECORD, record_word(self.receives));
    }

    /// Posts a WQE and waits for it to succeed.
    pub(crate) fn run(&mut self, wqe: &Wqe) -> Cqe {
        let index = self.post(wqe);
        let cqe = self.cq.wait();
        assert!(cqe.as_error().is_none(), "{wqe:?}: {cqe:?}");
        assert_eq!(cqe.tail.wqe_counter.get(), index);
        assert_eq!((cqe.qpn(), cqe.srqn_uidx.get()), (self.qpn, 0x77));
        cqe
    }

    /// Posts a WQE and waits for it to fail.
    pub(crate) fn fail(&mut self, wqe: &Wqe) -> Syndrome {
        let index = self.post(wqe);
        let cqe = self.cq.wait();
        let Some(error) = cqe.as_error() else { panic!("{wqe:?} succeeded") };
        assert_eq!(error.tail.wqe_counter.get(), index);
        error.syndrome
    }

    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        self.heap.write(offset, bytes).unwrap();
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.heap.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Runs a test body with two QPs of one adapter, then of two adapters.
pub(crate) fn both(setup: Setup, body: impl Fn(&mut Pe, &mut Pe)) {
    both_paths(&Setup { far_queues: true, ..setup.clone() }, &body);
    both_paths(&setup, &body);
}

fn both_paths(setup: &Setup, body: &impl Fn(&mut Pe, &mut Pe)) {
    let nic = loopback_nic();
    let (mut a, mut b) = pair(&nic, &nic, setup.clone());
    body(&mut a, &mut b);
    assert_eq!(nic.violations(), []);

    let (x, y) = (wire_nic(Config::default()), wire_nic(Config::default()));
    let (mut a, mut b) = pair(&x, &y, setup.clone());
    body(&mut a, &mut b);
    assert_eq!((x.violations(), y.violations()), (vec![], vec![]));
    assert!(x.stats().packets_sent > 0, "the second run must use packets");
}

/// Returns two connected PEs, on one adapter or on two.
pub(crate) fn pair(a: &Nic, b: &Nic, setup: Setup) -> (Pe, Pe) {
    pair_of(a, b, setup.clone(), setup)
}

pub(crate) fn pair_of(a: &Nic, b: &Nic, of_a: Setup, of_b: Setup) -> (Pe, Pe) {
    let (x, y) = (Pe::new(a, of_a), Pe::new(b, of_b));
    x.connect(&y);
    y.connect(&x);
    (x, y)
}

/// Returns `len` pseudorandom bytes, which depend only on `seed`.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Waits until `done` returns `true`, for an effect that has no completion. `what` describes it on a timeout.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "not in time: {what}");
        std::thread::yield_now();
    }
}
