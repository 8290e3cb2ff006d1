//! The fuzzing harness: an adapter without an engine thread, with one context and two QPs of one service in RTS.

use crate::address::{Ip, gid_of, mac_of};
use crate::bus::{Attached, Bus};
use crate::cmd;
use crate::config::{Config, Faults};
use crate::dma::Umem;
use crate::engine::core::Core;
use crate::link::Fabric;
use crate::memory::{HostBuffer, Memory, PAGE};
use crate::objects::UarPage;
use crate::rng::Rng;
use crate::roce::{self, Aeth, AethSyndrome, Bth, Connect, DEFAULT_PKEY, Ext, Op, Psn, Service};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::doorbell::{Doorbell, record_word};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq};
use rushmem_mlx5::prm::dct::{CreateDct, DctContext};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::qp::{
    AddressPath, AtomicMode, CreateQp, Init2Rtr, Mtu, QpContext, RqType, Rst2Init, Rtr2Rts, ServiceType,
};
use rushmem_mlx5::prm::rmp::{CreateRmp, RmpContext, Wq, WqType};
use rushmem_mlx5::prm::xrc::{AllocXrcd, CreateXrcSrq, XrcSrqContext};
use rushmem_mlx5::prm::{CmdOpcode, Command, Response};
use rushmem_mlx5::seg::XrcSeg;
use rushmem_mlx5::wqe::Inline;
use rushmem_mlx5::{Flags, Opcode, Segment, Wqe};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

/// Address of a peer adapter that does not exist.
pub(crate) const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 77, 77, 77), 4791);
/// log2 of the send queue depth, in 64-byte blocks.
const LOG_SQ: u8 = 5;
/// Size of the memory that keys map, in bytes.
const HEAP: u64 = 64 << 10;
// Offsets in the control memory.
const RING: u64 = 0;
const CQ: u64 = 32 << 10;
const RECORD: u64 = 48 << 10;
const SHARED: u64 = 56 << 10;
// Four receive WQEs.
const RECEIVES: u64 = 256;
/// DC access key of the harness's DCT.
pub(crate) const DC_KEY: u64 = 7;
const CONTROL: usize = 64 << 10;

pub(crate) struct Harness {
    pub(crate) core: Core,
    pub(super) context: u32,
    control: Arc<HostBuffer>,
    page: Arc<HostBuffer>,
    key: u32,
    /// Index of a key that is free, and that WQEs can change.
    free_key: u32,
    service: ServiceType,
    qpn: u32,
    peer: u32,
    dctn: u32,
    xrc_srqn: u32,
    to: SocketAddrV4,
    /// Numbers of all objects, which replace small numbers in fuzzed commands.
    numbers: Vec<u32>,
}

/// Returns the opcodes of all commands, followed by an unknown one.
pub(super) fn opcodes() -> Vec<u16> {
    CmdOpcode::ALL.iter().map(|opcode| opcode.0).chain([0xfff]).collect()
}

/// Returns the service that `choice` selects. Its top bit enables stalls, splits and late answers.
fn choose(choice: u8) -> (ServiceType, Faults) {
    let services = [ServiceType::RC, ServiceType::UC, ServiceType::UD, ServiceType::DCI, ServiceType::XRC];
    let service = services[usize::from(choice & 0x7f) % services.len()];
    let rate = if choice & 0x80 != 0 { 0.5 } else { 0.0 };
    let time = Duration::from_micros(1);
    let faults = Faults {
        stall: rate,
        stall_time: time,
        split: rate,
        late: rate,
        late_time: time,
        ..Faults::default()
    };
    (service, faults)
}

/// Registers new memory of `len` bytes. Returns the memory and the ID of its umem.
fn register(core: &mut Core, owner: u32, len: usize) -> (Arc<HostBuffer>, u32) {
    let memory = Arc::new(HostBuffer::new(len));
    let umem = Umem { owner, memory: Arc::clone(&memory) as _, offset: 0, len: len as u64, users: 0 };
    (memory, core.path.objects.umems.insert(umem).expect("numbers are left"))
}

/// Adds a UAR page. Returns its memory and its ID.
fn add_uar_page(core: &mut Core, context: u32) -> (Arc<HostBuffer>, u32) {
    let page = Arc::new(HostBuffer::new(PAGE));
    let memory: Arc<dyn Memory> = Arc::clone(&page) as _;
    let Ok(uar) = UarPage::new(context, &memory, 0) else { unreachable!("a page is a page") };
    (page, core.path.objects.uars.insert(uar).expect("numbers are left"))
}

/// IDs of the objects that the harness creates first, to which the others refer.
#[derive(Clone, Copy)]
struct Base {
    /// Umem that memory keys map.
    heap: u32,
    /// Umem of rings and doorbell records.
    control: u32,
    /// Umem of the shared receive queues.
    shared: u32,
    uar_page: u32,
    pd: u32,
    xrcd: u32,
    cqn: u32,
}

impl Harness {
    /// Creates the harness. With `wire`, the peer of the first QP is on another adapter, otherwise it is the second QP.
    ///
    /// `choice` selects the service. Its top bit enables stalls, splits and late answers.
    pub(crate) fn new(wire: bool, choice: u8) -> Harness {
        let (service, faults) = choose(choice);
        let ip = if wire { Ip::AnyLoopback } else { Ip::LoopbackOnly };
        let config = Config { ip, faults, infiniband: !wire, ..Config::default() };
        let fabric = Fabric::open(&config).expect("127/8 is always there");
        let address = fabric.as_ref().map_or(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), Fabric::local);
        let mut core = Core::new(config, address, fabric, Some(Rng::new(1)));
        let context = core.contexts.open();
        let bus = Bus {
            memory: Arc::new(HostBuffer::new(CONTROL)),
            doorbells: Arc::new(HostBuffer::new(64 * PAGE)),
        };
        core.path.objects.buses.insert(context, Attached::new(bus, context));
        let (_, heap) = register(&mut core, context, HEAP as usize);
        let (memory, control) = register(&mut core, context, CONTROL);
        let (_, shared) = register(&mut core, context, PAGE);
        let (page, uar_page) = add_uar_page(&mut core, context);
        let mut harness = Harness {
            core,
            context,
            control: memory,
            page,
            key: 0,
            free_key: 0,
            service,
            qpn: 0,
            peer: 0,
            dctn: 0,
            xrc_srqn: 0,
            to: if wire { PEER } else { address },
            numbers: Vec::new(),
        };
        harness.create_objects(Base { heap, control, shared, uar_page, pd: 0, xrcd: 0, cqn: 0 });
        harness
    }

    /// Creates all objects of the harness, and connects its QPs.
    fn create_objects(&mut self, mut base: Base) {
        base.pd = self.call(&AllocPd::default()).pd;
        let mkey_index = self.create_key(base);
        self.key = key(mkey_index, 0);
        self.free_key = self.create_free_key(base);
        base.cqn = self.create_cq(base);
        base.xrcd = self.call(&AllocXrcd::default()).xrcd;
        self.qpn = self.create_qp(base, RING, RECORD);
        self.peer = self.create_qp(base, RING + (8 << 10), RECORD + 8);
        let rmpn = self.create_rmp(base);
        self.dctn = self.create_dct(base, rmpn);
        self.xrc_srqn = self.create_xrc_srq(base);
        let Base { heap, control, uar_page, pd, xrcd, cqn, .. } = base;
        let Harness { qpn, peer, dctn, xrc_srqn, to, .. } = *self;
        self.numbers =
            vec![heap, control, uar_page, pd, mkey_index, cqn, qpn, peer, rmpn, dctn, xrcd, xrc_srqn];
        self.connect(qpn, peer, to);
        self.connect(peer, qpn, to);
    }

    fn create_key(&mut self, base: Base) -> u32 {
        let context = MkeyContext {
            a: true,
            rw: true,
            rr: true,
            lw: true,
            lr: true,
            qpn: MkeyContext::ANY_QP,
            pd: base.pd,
            len: HEAP,
            ..MkeyContext::default()
        };
        let create = CreateMkey {
            umem_valid: true,
            umem_id: base.heap,
            context: context.with_access_mode(AccessMode::MTT),
            ..CreateMkey::default()
        };
        self.call(&create).mkey_index
    }

    fn create_free_key(&mut self, base: Base) -> u32 {
        let context = MkeyContext {
            free: true,
            umr_en: true,
            qpn: MkeyContext::ANY_QP,
            pd: base.pd,
            translations_octword_size: 4,
            ..MkeyContext::default()
        };
        let create =
            CreateMkey { context: context.with_access_mode(AccessMode::MTT), ..CreateMkey::default() };
        self.call(&create).mkey_index
    }

    fn create_cq(&mut self, base: Base) -> u32 {
        let context = CqContext {
            dbr_umem_valid: true,
            dbr_umem_id: base.control,
            dbr_addr: RECORD + 64,
            oi: true,
            log_cq_size: 6,
            uar_page: base.uar_page,
            ..CqContext::default()
        };
        let create = CreateCq {
            umem_id: base.control,
            umem_offset: CQ,
            umem_valid: true,
            context,
            ..CreateCq::default()
        };
        self.call(&create).cqn
    }

    fn create_qp(&mut self, base: Base, ring: u64, record: u64) -> u32 {
        // For XRC, the second QP is the target.
        let is_extended = self.service == ServiceType::XRC;
        let context = QpContext {
            st: self.service,
            xrcd: base.xrcd,
            no_sq: is_extended && record != RECORD,
            pd: base.pd,
            uar_page: base.uar_page,
            cqn_snd: base.cqn,
            cqn_rcv: base.cqn,
            log_sq_size: LOG_SQ,
            rq_type: if is_extended { RqType::ZERO_SIZE } else { RqType::REGULAR },
            log_rq_size: 2,
            log_rq_stride: 2,
            dbr_umem_valid: true,
            dbr_umem_id: base.control,
            dbr_addr: record,
            ..QpContext::default()
        };
        let create = CreateQp {
            wq_umem_id: base.control,
            wq_umem_offset: ring + if is_extended { RECEIVES } else { 0 },
            wq_umem_valid: true,
            context,
            ..CreateQp::default()
        };
        self.call(&create).qpn
    }

    /// Creates an RMP, which is the SRQ of the DCT.
    fn create_rmp(&mut self, base: Base) -> u32 {
        let wq = Wq {
            wq_type: WqType::CYCLIC,
            pd: base.pd,
            dbr_addr: SHARED + 1024,
            log_wq_stride: 6,
            log_wq_sz: 2,
            dbr_umem_valid: true,
            wq_umem_valid: true,
            dbr_umem_id: base.control,
            wq_umem_id: base.shared,
            ..Wq::default()
        };
        let context = RmpContext { wq, basic_cyclic_rcv_wqe: true, ..RmpContext::default() };
        self.call(&CreateRmp { context, ..CreateRmp::default() }).rmpn
    }

    fn create_dct(&mut self, base: Base, rmpn: u32) -> u32 {
        let context = DctContext {
            cqn: base.cqn,
            pd: base.pd,
            srqn_xrqn: rmpn,
            rre: true,
            rwe: true,
            rae: true,
            atomic_mode: AtomicMode::UP_TO_8B,
            dc_access_key: DC_KEY,
            mtu: Mtu::B256,
            ..DctContext::default()
        };
        self.call(&CreateDct { context, ..CreateDct::default() }).dctn
    }

    fn create_xrc_srq(&mut self, base: Base) -> u32 {
        let context = XrcSrqContext {
            log_xrc_srq_size: 2,
            log_rq_stride: 2,
            xrcd: base.xrcd,
            dbr_umem_valid: true,
            cqn: base.cqn,
            dbr_umem_id: base.control,
            user_index: 3,
            pd: base.pd,
            dbr_addr: SHARED + 1088,
            ..XrcSrqContext::default()
        };
        let create = CreateXrcSrq {
            context,
            umem_offset: 1024,
            umem_id: base.shared,
            umem_valid: true,
            ..CreateXrcSrq::default()
        };
        self.call(&create).xrc_srqn
    }

    fn connect(&mut self, qpn: u32, remote_qpn: u32, to: SocketAddrV4) {
        let context = QpContext {
            rre: true,
            rwe: true,
            rae: true,
            atomic_mode: AtomicMode::UP_TO_8B,
            ..QpContext::default()
        };
        self.call(&Rst2Init { qpn, context, ..Rst2Init::default() });
        let path =
            AddressPath { rgid_rip: gid_of(*to.ip()), rmac: mac_of(to.port()), ..AddressPath::default() };
        let context = QpContext {
            mtu: Mtu::B256,
            log_msg_max: 20,
            remote_qpn,
            min_rnr_nak: 1,
            log_rra_max: 2,
            primary_address_path: path,
            ..QpContext::default()
        };
        self.call(&Init2Rtr { qpn, context, ..Init2Rtr::default() });
        let path = AddressPath { ack_timeout: 20, ..AddressPath::default() };
        let context =
            QpContext { log_sra_max: 2, retry_count: 7, primary_address_path: path, ..QpContext::default() };
        self.call(&Rtr2Rts { qpn, context, ..Rtr2Rts::default() });
    }

    fn call<C: Command>(&mut self, command: &C) -> C::Output {
        let mut output = <C::Output as Response>::EMPTY;
        cmd::execute(&mut self.core, self.context, command.encode().as_ref(), output.as_mut());
        <C::Output as Response>::decode(output.as_ref()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Replaces small numbers in a mailbox with numbers of existing objects.
    pub(super) fn use_known_numbers(&self, input: &mut [u8]) {
        for word in input[8..].chunks_exact_mut(4) {
            let value = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            if let Some(number) = self.numbers.get(value as usize & 0xff).filter(|_| value < 0x100) {
                word.copy_from_slice(&number.to_be_bytes());
            }
        }
    }

    fn sq(&self) -> u64 {
        // The receive WQEs come first.
        RING + RECEIVES
    }

    /// Fills the send queue with `data`. With `plausible`, most blocks get the right index, QPN and keys, and small
    /// lengths and addresses.
    pub(super) fn fill_ring(&mut self, data: &[u8], plausible: bool) {
        let mut bytes = data[..data.len().min(64 << LOG_SQ)].to_vec();
        if plausible {
            let blocks = bytes.as_chunks_mut().0;
            let mut index = 0;
            while let [first, rest @ ..] = &mut blocks[index..] {
                self.make_plausible(first, index as u16);
                index += 1;
                if Opcode(first[3]) == Opcode::UMR {
                    self.aim_at_keys(first, rest.get_mut(1));
                    index += 2.min(rest.len());
                }
            }
        }
        self.control.write(self.sq(), &bytes).expect("in range");
    }

    fn make_plausible(&self, block: &mut [u8; 64], index: u16) {
        if self.service == ServiceType::DCI {
            return self.make_dynamic(block, index);
        }
        block[1..3].copy_from_slice(&index.to_be_bytes());
        block[4..7].copy_from_slice(&self.qpn.to_be_bytes()[1..]);
        // One block in sixteen keeps the fuzzer's bytes.
        if block[12] & 0xf == 0 {
            return;
        }
        let key = self.key.to_be_bytes();
        let opcode = Opcode(block[3]);
        let atomic = matches!(
            opcode,
            Opcode::ATOMIC_CS | Opcode::ATOMIC_FA | Opcode::ATOMIC_MASKED_CS | Opcode::ATOMIC_MASKED_FA
        );
        if self.service == ServiceType::UD {
            return self.make_datagram(block);
        }
        let remote =
            atomic || matches!(opcode, Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM | Opcode::RDMA_READ);
        let mut data = 16;
        if self.service == ServiceType::XRC {
            block[16..20].copy_from_slice(&self.xrc_srqn.to_be_bytes());
            data = 32;
        }
        if remote {
            // Up to 64 KiB; aligned for an atomic.
            let at = &mut block[data..];
            at[..6].fill(0);
            at[7] &= if atomic { 0xf8 } else { 0xff };
            at[8..12].copy_from_slice(&key);
            data += if atomic { 32 } else { 16 };
        }
        for segment in (data..64).step_by(16) {
            block[segment..segment + 2].fill(0);
            block[segment + 2] &= 3;
            block[segment + 4..segment + 8].copy_from_slice(&key);
            block[segment + 8..segment + 14].fill(0);
        }
        if atomic {
            block[48..52].copy_from_slice(&8u32.to_be_bytes());
        }
    }

    /// Makes a WQE change the free key, with translations in the heap if its third block has a pointer.
    fn aim_at_keys(&self, first: &mut [u8; 64], third: Option<&mut [u8; 64]>) {
        first[12..16].copy_from_slice(&key(self.free_key, 0).to_be_bytes());
        if let Some(third) = third {
            third[..2].fill(0);
            third[4..8].copy_from_slice(&self.key.to_be_bytes());
            third[8..14].fill(0);
        }
    }

    /// Writes address segments of a datagram to the peer into `block`: a short address vector followed by data
    /// segments, or a long one.
    fn make_datagram(&self, block: &mut [u8; 64]) {
        let whole = block[12] & 0x20 != 0;
        let [high, low] = if block[12] & 0x40 != 0 { [0, 1] } else { [block[30], block[31]] };
        let dqpn = self.peer | if whole { AvSeg::EXTENDED } else { 0 };
        block[16..24].fill(0);
        block[24..28].copy_from_slice(&dqpn.to_be_bytes());
        block[30..32].copy_from_slice(&[high, low]);
        if whole {
            block[36..42].copy_from_slice(&mac_of(self.to.port()));
            block[48..64].copy_from_slice(&gid_of(*self.to.ip()));
            return;
        }
        for segment in block[32..].chunks_exact_mut(16) {
            segment[..2].fill(0);
            segment[2] &= 3;
            segment[4..8].copy_from_slice(&self.key.to_be_bytes());
            segment[8..14].fill(0);
        }
    }

    /// Returns the address vector of DCT `dctn` on the adapter at `to`.
    fn vector(&self, to: SocketAddrV4, dctn: u32) -> AvSeg {
        let av = AvSeg { rmac: mac_of(to.port()), rgid: gid_of(*to.ip()), ..AvSeg::default() };
        av.to_dct(dctn, DC_KEY)
    }

    /// Writes control and address segments of a DC initiator to even blocks, and remote address and data segments to
    /// odd ones.
    fn make_dynamic(&self, block: &mut [u8; 64], index: u16) {
        if index.is_multiple_of(2) {
            block[1..3].copy_from_slice(&index.to_be_bytes());
            block[4..7].copy_from_slice(&self.qpn.to_be_bytes()[1..]);
            // One address in four keeps the fuzzer's bytes, and one names another target.
            let (choice, other) = (block[12] & 3, u32::from(block[12] & 3 == 1));
            if choice != 0 {
                let av = self.vector(self.to, self.dctn + other).to_segments();
                block[16..].copy_from_slice(Segment::bytes_of(&av));
            }
            return;
        }
        let key = self.key.to_be_bytes();
        block[..6].fill(0);
        block[7] &= 0xf8;
        block[8..12].copy_from_slice(&key);
        for segment in (16..64).step_by(16) {
            block[segment..segment + 2].fill(0);
            block[segment + 2] &= 3;
            block[segment + 4..segment + 8].copy_from_slice(&key);
            block[segment + 8..segment + 14].fill(0);
        }
    }

    /// Connects the peer to the DCT, and has the peer's DCT accept the first QP's connect.
    pub(super) fn connect_both_ways(&mut self) {
        if self.service != ServiceType::DCI {
            return;
        }
        let before: Vec<u32> = self.core.path.objects.qps.iter().map(|(qpn, _)| qpn).collect();
        let connect = Connect { key: DC_KEY, mtu: 1, source_qpn: self.peer, sequence: 1 };
        self.receive(Op::Connect, self.dctn, u32::MAX, &Ext::Connect(connect));
        self.peer = self
            .core
            .path
            .objects
            .qps
            .iter()
            .map(|(qpn, _)| qpn)
            .find(|qpn| !before.contains(qpn))
            .unwrap_or(self.peer);
        let aeth = Aeth { syndrome: AethSyndrome::Ack, msn: 0 };
        self.receive(Op::Accept, self.qpn, 0, &Ext::Accept(aeth, self.core.transports.dynamic.sequence, 5));
    }

    /// Processes a packet from the peer on a dynamic connection, without payload.
    pub(crate) fn receive(&mut self, op: Op, dest_qpn: u32, psn: u32, ext: &Ext) {
        self.receive_of(Service::Dc, op, dest_qpn, psn, ext, 0);
    }

    /// Processes a packet from the peer, without XRC header, whose payload is one byte repeated `payload` times.
    pub(crate) fn receive_of(
        &mut self,
        service: Service,
        op: Op,
        dest_qpn: u32,
        psn: u32,
        ext: &Ext,
        payload: usize,
    ) {
        let psn = Psn::new(psn);
        let bth = Bth {
            service,
            op,
            solicited: false,
            pkey: DEFAULT_PKEY,
            ack_req: true,
            dest_qpn,
            psn,
            srqn: None,
        };
        let mut bytes = vec![0; roce::packet_len(bth.len() + ext.len(), payload)];
        roce::emit(&bth, ext, payload, &mut bytes).fill(0xee);
        self.packet(&bytes);
    }

    pub(super) fn packet(&mut self, bytes: &[u8]) {
        self.core.transports.packet(&mut self.core.path, PEER, bytes);
    }

    pub(super) fn ring(&self, producer: u16) {
        self.control.store_u32(RECORD as usize + 4, record_word(producer));
        self.page.store_u64(0x800, Doorbell::producer(self.qpn, producer).raw());
    }

    /// Posts receives, and one send WQE of each operation that has a response.
    pub(crate) fn post_some(&mut self) {
        let (rkey, lkey) = (self.key, self.key);
        let (raddr, laddr) = (0, 4096);
        let ops = [
            Wqe::Write { raddr, rkey, laddr, lkey, len: 1000 },
            Wqe::Read { raddr, rkey, laddr, lkey, len: 700 },
            Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: 1 },
            Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: 1, boundary: 0 },
            Wqe::Send { laddr, lkey, len: 300 },
            Wqe::WriteInline { raddr, rkey, data: Inline::from_u32(1) },
        ];
        let av = self.vector(PEER, 5);
        let mut index = 0;
        for op in ops {
            let segments = match self.service {
                ServiceType::DCI => op.emit_to(&av, index, self.qpn, Flags::SIGNALED).segments().to_vec(),
                ServiceType::XRC => extended(&op, index, self.qpn, self.xrc_srqn),
                _ => op.emit(index, self.qpn, Flags::SIGNALED).segments().to_vec(),
            };
            let at = self.sq() + 64 * u64::from(index);
            self.control.write(at, Segment::bytes_of(&segments)).expect("in range");
            index += segments.len().div_ceil(4) as u16;
        }
        self.control.store_u32(SHARED as usize + 1088, record_word(3));
        self.control.store_u32(RECORD as usize, record_word(3));
        self.control.store_u32(RECORD as usize + 8, record_word(3));
        self.ring(index);
    }

    /// Sets QPN, PSN and key of a fuzzed packet to likely values.
    pub(super) fn make_packet_plausible(&self, packet: &mut [u8], choice: u8) {
        let Some(bth) = packet.first_chunk_mut::<{ crate::roce::BTH }>() else { return };
        bth[1] &= 0xb0;
        let qpn = if choice & 1 == 0 { self.qpn } else { self.peer };
        bth[4..8].copy_from_slice(&qpn.to_be_bytes());
        bth[9..11].fill(0);
        bth[11] &= 0x1f;
        let mut headers = &mut packet[crate::roce::BTH..];
        if self.service == ServiceType::XRC && headers.len() >= 4 {
            if choice & 4 == 0 {
                headers[..4].copy_from_slice(&self.xrc_srqn.to_be_bytes());
            }
            headers = &mut headers[4..];
        }
        if choice & 2 != 0 && headers.len() >= 16 {
            headers[8..12].copy_from_slice(&self.key.to_be_bytes());
            headers[..6].fill(0);
            headers[12..14].fill(0);
        }
    }
}

#[cfg(test)]
impl Harness {
    pub(crate) fn qpn(&self) -> u32 {
        self.qpn
    }

    pub(crate) fn dctn(&self) -> u32 {
        self.dctn
    }

    pub(crate) fn key(&self) -> u32 {
        self.key
    }
}

/// Returns the segments of a WQE of an XRC initiator.
pub(super) fn extended(wqe: &Wqe, index: u16, qpn: u32, srqn: u32) -> Vec<Segment> {
    let mut segments = wqe.emit(index, qpn, Flags::SIGNALED).segments().to_vec();
    if matches!(wqe, Wqe::Nop) {
        return segments;
    }
    let mut ctrl = segments[0].to_bytes();
    ctrl[7] += 1;
    segments[0] = Segment::from_bytes(ctrl);
    segments.insert(1, XrcSeg::new(srqn).to_segment());
    segments
}
