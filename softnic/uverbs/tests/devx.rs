//! Objects created by raw commands (DevX), through the real libmlx5.

mod common;
mod mlx5;
mod peer;
mod program;

use mlx5::{Handle, Mlx5, Uar, inside};
use program::Cuda;
use rushmem_mlx5::doorbell::{ArmWord, CqArm, Doorbell, record_word, uar};
use rushmem_mlx5::prm::caps::{
    CapType, HcaCap, PortType, QueryHcaCap, QueryRoceAddress, RoceAddr, RoceVersion,
};
use rushmem_mlx5::prm::counter::{AllocQCounter, QueryQCounter};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq, QueryCq};
use rushmem_mlx5::prm::dct::{CreateDct, DctContext, DrainDct, QueryDct};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_mlx5::prm::port::QueryHcaVportContext;
use rushmem_mlx5::prm::qp::{
    AddressPath, AtomicMode, CreateQp, Init2Rtr, Mtu, QpContext, QpState, QueryQp, RqType, Rst2Init, Rtr2Rts,
};
use rushmem_mlx5::prm::rmp::{CreateRmp, RmpContext, RmpState, Wq, WqType};
use rushmem_mlx5::prm::xrc::{AllocXrcd, ArmXrcSrq, CreateXrcSrq, QueryXrcSrq, XrcSrqContext};
use rushmem_mlx5::prm::{CmdError, CmdStatus};
use rushmem_mlx5::{CqeOpcode, Flags, Wqe};
use rushmem_softnic::{HostBuffer, HostMemory, Memory};
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Offset of the send queue in the 64 KiB of memory that a QP has.
const SQ: usize = 0;
const CQ: usize = 0x1000;
const RECORDS: usize = 0x2000;
const HEAP: usize = 0x8000;
const SIZE: usize = 0x10000;

const LOG_DEPTH: u8 = 4;

/// A QP in separate memory, created entirely by commands.
struct DevxQp<'a> {
    lib: &'a Mlx5,
    context: Handle,
    pd: u32,
    memory: &'static HostMemory,
    /// The CUDA driver, if the queues are in GPU memory.
    cuda: Option<&'a Cuda>,
    uar: &'a Uar,
    qp: Handle,
    cq: Handle,
    qpn: u32,
    cqn: u32,
    key: u32,
    posted: u16,
}

impl<'a> DevxQp<'a> {
    fn new(lib: &'a Mlx5, context: Handle) -> DevxQp<'a> {
        let memory: &HostBuffer = Box::leak(Box::new(HostBuffer::new(SIZE)));
        DevxQp::at(lib, context, memory.as_ptr() as u64, memory.host_ptr().unwrap())
    }

    fn on_gpu(lib: &'a Mlx5, context: Handle, cuda: &'a Cuda) -> DevxQp<'a> {
        let (at, base) = cuda.allocate(SIZE);
        DevxQp { cuda: Some(cuda), ..DevxQp::at(lib, context, at, base) }
    }

    /// Creates a QP with queues at the device address `at`. `base` is the CPU's mapping of that memory, which is never
    /// freed.
    fn at(lib: &'a Mlx5, context: Handle, at: u64, base: NonNull<u8>) -> DevxQp<'a> {
        // SAFETY: promised by the caller.
        let memory: &HostMemory =
            Box::leak(Box::new(unsafe { HostMemory::from_raw_parts(base, SIZE as u64, ()) }));
        memory.write(CQ as u64, &[0xff; 0x1000]).unwrap();
        let (_, umem_id) = lib.umem(context, at, SIZE).unwrap();
        let uar = lib.alloc_uar(context, 1).unwrap();
        assert_eq!(uar.reg_addr as usize - uar.base_addr as usize, 0x800);
        let (_, pd) = lib.create(context, &AllocPd::default()).unwrap();

        let key = make_key(lib, context, pd.pd, umem_id, SIZE);
        let (cq, cqn) = DevxQp::create_cq(lib, context, umem_id, uar.page_id);
        let qp_context = QpContext {
            pd: pd.pd,
            log_sq_size: LOG_DEPTH,
            rq_type: RqType::ZERO_SIZE,
            uar_page: uar.page_id,
            cqn_snd: cqn,
            dbr_umem_valid: true,
            dbr_umem_id: umem_id,
            dbr_addr: RECORDS as u64,
            ..QpContext::default()
        };
        let create = CreateQp {
            context: qp_context,
            wq_umem_offset: SQ as u64,
            wq_umem_id: umem_id,
            wq_umem_valid: true,
            ..CreateQp::default()
        };
        let (qp, answer) = lib.create(context, &create).unwrap();
        DevxQp {
            lib,
            context,
            pd: pd.pd,
            memory,
            cuda: None,
            uar,
            qp,
            cq,
            qpn: answer.qpn,
            cqn,
            key,
            posted: 0,
        }
    }

    /// Creates a CQ whose ring and doorbell record are in umem `umem_id`. Returns its handle and its CQN.
    fn create_cq(lib: &Mlx5, context: Handle, umem_id: u32, uar_page: u32) -> (Handle, u32) {
        let cq_context = CqContext {
            dbr_umem_valid: true,
            dbr_umem_id: umem_id,
            dbr_addr: RECORDS as u64 + 64,
            log_cq_size: LOG_DEPTH,
            uar_page,
            c_eqn: lib.eqn(context, 0).unwrap() as u8,
            ..CqContext::default()
        };
        let create = CreateCq {
            context: cq_context,
            umem_offset: CQ as u64,
            umem_id,
            umem_valid: true,
            ..CreateCq::default()
        };
        let (cq, answer) = lib.create(context, &create).unwrap();
        (cq, answer.cqn)
    }

    /// Connects to a QP at the other end of `path`.
    fn connect(&self, remote_qpn: u32, path: AddressPath) {
        let qpn = self.qpn;
        let port = AddressPath { vhca_port_num: 1, ..AddressPath::default() };
        let rights = QpContext {
            rre: true,
            rwe: true,
            rae: true,
            atomic_mode: AtomicMode::UP_TO_8B,
            ..Default::default()
        };
        let context = QpContext { primary_address_path: port, ..rights };
        self.lib.modify(self.qp, &Rst2Init { qpn, context, ..Default::default() }).unwrap();
        let context = QpContext {
            mtu: Mtu::B1024,
            log_msg_max: 30,
            remote_qpn,
            log_rra_max: 3,
            min_rnr_nak: 12,
            primary_address_path: path,
            ..QpContext::default()
        };
        self.lib.modify(self.qp, &Init2Rtr { qpn, context, ..Default::default() }).unwrap();
        let path = AddressPath { ack_timeout: 14, ..AddressPath::default() };
        let context = QpContext {
            retry_count: 7,
            rnr_retry: 7,
            log_sra_max: 3,
            primary_address_path: path,
            ..QpContext::default()
        };
        self.lib.modify(self.qp, &Rtr2Rts { qpn, context, ..Default::default() }).unwrap();
    }

    fn base(&self) -> *mut u8 {
        self.memory.host_ptr().unwrap().as_ptr()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside of the buffer, aligned, and never freed.
        unsafe { AtomicU64::from_ptr(self.base().add(offset).cast()) }
    }

    fn post(&mut self, wqe: &Wqe) {
        let entry = wqe.emit(self.posted, self.qpn, Flags::SIGNALED);
        let at = SQ + usize::from(self.posted & 0xf) * 64;
        for (i, segment) in entry.segments().iter().enumerate() {
            self.memory.write((at + 16 * i) as u64, bytemuck::bytes_of(segment)).unwrap();
        }
        self.posted += u16::from(entry.n_blocks());
        // The second half of the record belongs to the SQ.
        // SAFETY: inside of the buffer, aligned, and never freed.
        let record = unsafe { AtomicU32::from_ptr(self.base().add(RECORDS + 4).cast()) };
        record.store(record_word(self.posted), Ordering::Release);
        fence(Ordering::SeqCst);
        // SAFETY: the doorbell register of a mapped page.
        let register = unsafe { AtomicU64::from_ptr(self.uar.reg_addr.cast()) };
        register.store(Doorbell::producer(self.qpn, self.posted).raw(), Ordering::Release);
    }

    /// Requests an event for the next completion, after `consumed` completions have been polled.
    fn arm(&self, consumed: u32) {
        let request = ArmWord::new(0, false, consumed);
        // SAFETY: inside of the buffer, aligned, and never freed.
        let record = unsafe { AtomicU32::from_ptr(self.base().add(RECORDS + 68).cast()) };
        record.store(request.0.raw(), Ordering::Release);
        fence(Ordering::SeqCst);
        // SAFETY: the register of a mapped page.
        let register =
            unsafe { AtomicU64::from_ptr(self.uar.base_addr.cast::<u8>().add(uar::CQ_ARM).cast()) };
        register.store(CqArm::new(request, self.cqn).0.raw(), Ordering::Release);
    }

    /// Waits for completion `index`.
    fn poll(&self, index: u32) -> CqeOpcode {
        let begin = Instant::now();
        let slot = CQ + (index as usize & 0xf) * 64;
        loop {
            if let Some(cuda) = self.cuda {
                cuda.start_copies();
            }
            let last = self.word(slot + 56).load(Ordering::Acquire).to_le_bytes();
            let (opcode, owner) = (last[7] >> 4, last[7] & 1);
            if opcode != 0xf && u32::from(owner) == index >> LOG_DEPTH & 1 {
                return CqeOpcode(opcode);
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "no completion");
            std::thread::yield_now();
        }
    }
}

/// Creates an MKey of a umem, zero-based and with all rights.
fn make_key(lib: &Mlx5, context: Handle, pd: u32, umem_id: u32, len: usize) -> u32 {
    let rights = MkeyContext { lr: true, lw: true, rr: true, rw: true, a: true, ..MkeyContext::default() };
    let mkey = MkeyContext { qpn: MkeyContext::ANY_QP, pd, len: len as u64, ..rights };
    let mkey = mkey.with_access_mode(AccessMode::MTT);
    // Linux sets `umem_valid`.
    let create = CreateMkey { umem_id, context: mkey, ..Default::default() };
    let (_, answer) = lib.create(context, &create).unwrap();
    key(answer.mkey_index, 0)
}

/// Returns the path to this port.
fn own_path(lib: &Mlx5, context: Handle) -> AddressPath {
    let port = AddressPath { vhca_port_num: 1, ..AddressPath::default() };
    if port_type(lib, context) == PortType::IB {
        let lid = std::fs::read_to_string("/sys/class/infiniband/mlx5_0/ports/1/lid").unwrap();
        let rlid = u16::from_str_radix(lid.trim().trim_start_matches("0x"), 16).unwrap();
        return AddressPath { rlid, ..port };
    }
    let RoceAddr { source_l3_address, source_mac, .. } = own_address(lib, context);
    AddressPath { src_addr_index: 3, rgid_rip: source_l3_address, rmac: source_mac, hop_limit: 64, ..port }
}

fn port_type(lib: &Mlx5, context: Handle) -> PortType {
    let question = QueryHcaCap { cap_type: CapType::GENERAL, current: true, uid: 0 };
    lib.general(context, &question).unwrap().page.get::<HcaCap>().port_type
}

fn own_address(lib: &Mlx5, context: Handle) -> RoceAddr {
    let question = QueryRoceAddress { roce_address_index: 3, vhca_port_num: 1, ..Default::default() };
    let address = lib.general(context, &question).unwrap().address;
    assert_eq!((address.roce_version, address.roce_l3_type), (RoceVersion::V2, 0));
    address
}

/// Returns a dma-buf of `len` bytes, and its memory. Where the kernel exports none to this user, the device accepts a
/// memory file.
fn dma_buf(len: usize) -> (c_int, &'static HostMemory) {
    /// Argument of the command that makes a dma-buf of part of a memory file.
    #[repr(C)]
    struct Create {
        memfd: c_int,
        flags: u32,
        offset: u64,
        size: u64,
    }
    const UDMABUF_CREATE: libc::c_ulong = 0x4018_7542;
    // SAFETY: C strings, numbers, a live local variable, and a mapping that stays.
    unsafe {
        let memfd = libc::memfd_create(c"dma-buf".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert_eq!(libc::ftruncate(memfd, len as libc::off_t), 0);
        assert_eq!(libc::fcntl(memfd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
        let (rights, at) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        let mapped = libc::mmap(at, len, rights, libc::MAP_SHARED, memfd, 0);
        let base = NonNull::new(mapped.cast()).unwrap();
        let memory = Box::leak(Box::new(HostMemory::from_raw_parts(base, len as u64, ())));
        let exporter = libc::open(c"/dev/udmabuf".as_ptr(), libc::O_RDWR);
        if exporter < 0 {
            return (memfd, memory);
        }
        let create = Create { memfd, flags: 0, offset: 0, size: len as u64 };
        let exported = libc::ioctl(exporter, UDMABUF_CREATE, &raw const create);
        assert!(exported >= 0, "{}", std::io::Error::last_os_error());
        (exported, memory)
    }
}

/// Writes, adds and reads from one QP to another. There are more WQEs than slots, which makes all rings wrap.
fn move_data(a: &mut DevxQp<'_>, b: &DevxQp<'_>) {
    for round in 0..40u64 {
        let at = HEAP as u64;
        a.word(HEAP).store(0x1000 + round, Ordering::Relaxed);
        let write = Wqe::Write { raddr: at + 64, rkey: b.key, laddr: at, lkey: a.key, len: 8 };
        let add = Wqe::FetchAdd { raddr: at, rkey: b.key, laddr: at + 8, lkey: a.key, add: 3 };
        let read = Wqe::Read { raddr: at + 64, rkey: b.key, laddr: at + 16, lkey: a.key, len: 8 };
        for (i, wqe) in (0..).zip([write, add, read]) {
            a.post(&wqe);
            let index = round as u32 * 3 + i;
            assert_eq!(a.poll(index), CqeOpcode::REQ, "round {round}, entry {i}");
            // The consumer counter, to free CQEs.
            // SAFETY: inside of the buffer, aligned, and never freed.
            let record = unsafe { AtomicU32::from_ptr(a.base().add(RECORDS + 64).cast()) };
            record.store((index + 1).to_be(), Ordering::Release);
        }
        assert_eq!(b.word(HEAP + 64).load(Ordering::Relaxed), 0x1000 + round);
        assert_eq!(b.word(HEAP).load(Ordering::Relaxed), 3 * (round + 1));
        assert_eq!(a.word(HEAP + 8).load(Ordering::Relaxed), 3 * round);
        assert_eq!(a.word(HEAP + 16).load(Ordering::Relaxed), 0x1000 + round);
    }
}

#[test]
fn queue_pairs_made_by_commands_move_data() {
    inside("queue_pairs_made_by_commands_move_data", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let path = own_path(lib, context);
        let (mut a, b) = (DevxQp::new(lib, context), DevxQp::new(lib, context));
        a.connect(b.qpn, path);
        b.connect(a.qpn, path);
        move_data(&mut a, &b);
        let state = lib.query(a.qp, &QueryQp { qpn: a.qpn, ..Default::default() }).unwrap().context.state;
        assert_eq!(state, QpState::RTS);
        let cq = lib.query(a.cq, &QueryCq { cqn: a.cqn, ..Default::default() }).unwrap().context;
        assert_eq!(cq.producer_counter, 120);

        // Queries of an object other than the handle's are refused.
        assert!(lib.query(a.qp, &QueryQp { qpn: b.qpn, ..Default::default() }).is_err());
        // A CQ in use cannot be destroyed.
        assert_eq!(lib.destroy(a.cq).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        lib.destroy(a.qp).unwrap();
        lib.destroy(a.cq).unwrap();
        // Closing the context destroys the remaining objects.
        lib.close(context).unwrap();
    });
}

#[test]
fn queue_pairs_in_gpu_memory_move_data() {
    let test = "queue_pairs_in_gpu_memory_move_data";
    inside(test, &["--devices", "2"], |lib| {
        let cuda = Cuda::load(test);
        for peer in [0, 1] {
            let (near, far) = (lib.open(0, true).unwrap(), lib.open(peer, true).unwrap());
            let (mut a, b) = (DevxQp::on_gpu(lib, near, &cuda), DevxQp::on_gpu(lib, far, &cuda));
            a.connect(b.qpn, own_path(lib, far));
            b.connect(a.qpn, own_path(lib, near));
            move_data(&mut a, &b);
            lib.close(near).unwrap();
            lib.close(far).unwrap();
        }
    });
}

#[test]
fn events_reach_their_files() {
    inside("events_reach_their_files", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let path = own_path(lib, context);
        let (mut a, b) = (DevxQp::new(lib, context), DevxQp::new(lib, context));
        a.connect(b.qpn, path);
        b.connect(a.qpn, path);
        let (whole, brief) =
            (lib.event_channel(context, false).unwrap(), lib.event_channel(context, true).unwrap());
        // Completions of the CQ, and an access violation at the target QP.
        lib.subscribe(whole, a.cq, &mut [0x00], 0xabc).unwrap();
        lib.subscribe(brief, b.qp, &mut [0x05, 0x11], 0xdef).unwrap();

        a.arm(0);
        a.post(&Wqe::Nop);
        let (cookie, entry) = lib.event(whole).unwrap();
        assert_eq!((cookie, entry.len(), entry[1]), (0xabc, 64, 0));
        assert_eq!(entry[0x38..0x3c], a.cqn.to_be_bytes());
        assert_eq!(a.poll(0), CqeOpcode::REQ);

        a.post(&Wqe::Write { raddr: SIZE as u64, rkey: b.key, laddr: 0, lkey: a.key, len: 8 });
        assert_eq!(a.poll(1), CqeOpcode::REQ_ERR);
        assert_eq!(lib.event(brief).unwrap(), (0xdef, vec![]));

        let (name, answer) =
            lib.query_async(context, a.qp, &QueryQp { qpn: a.qpn, ..Default::default() }, 77).unwrap();
        assert_eq!((name, answer.context.state), (77, QpState::ERR));
        for mut events in [vec![], vec![0x99], vec![0; 17]] {
            let refused = lib.subscribe(whole, a.cq, &mut events, 1).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{events:?}");
        }
    });
}

#[test]
fn a_dc_target_is_drained_when_it_is_destroyed() {
    inside("a_dc_target_is_drained_when_it_is_destroyed", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let qp = DevxQp::new(lib, context);
        let (_, umem_id) = lib.umem(context, qp.base() as u64, SIZE).unwrap();
        let wq = Wq {
            wq_type: WqType::CYCLIC,
            pd: qp.pd,
            dbr_addr: RECORDS as u64 + 128,
            log_wq_stride: 6,
            log_wq_sz: 2,
            dbr_umem_id: umem_id,
            wq_umem_id: umem_id,
            ..Wq::default()
        };
        let pool = RmpContext { state: RmpState::RDY, basic_cyclic_rcv_wqe: true, wq };
        let (rmp, made) = lib.create(context, &CreateRmp { context: pool, ..Default::default() }).unwrap();
        let target = DctContext {
            cqn: qp.cqn,
            pd: qp.pd,
            srqn_xrqn: made.rmpn,
            dc_access_key: 0x1122_3344_5566_7788,
            mtu: Mtu::B1024,
            port: 1,
            ..DctContext::default()
        };
        let (dct, made) = lib.create(context, &CreateDct { context: target, ..Default::default() }).unwrap();
        let query = QueryDct { dctn: made.dctn, ..Default::default() };
        assert_eq!(lib.query(dct, &query).unwrap().context, target);
        assert!(lib.query(rmp, &query).is_err(), "of another object");
        assert!(lib.destroy(rmp).is_err(), "in use");

        let channel = lib.event_channel(context, false).unwrap();
        // DCT_DRAINED.
        lib.subscribe(channel, dct, &mut [0x1c], 0xabc).unwrap();
        // Only Linux drains a target: before it destroys it.
        let refused = lib.modify(dct, &DrainDct { dctn: made.dctn, ..Default::default() }).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        lib.destroy(dct).unwrap();
        let (cookie, entry) = lib.event(channel).unwrap();
        assert_eq!((cookie, entry[1]), (0xabc, 0x1c));
        assert_eq!(entry[0x38..0x3c], made.dctn.to_be_bytes());
        lib.destroy(rmp).unwrap();
    });
}

#[test]
fn shared_receive_queues_of_xrc_domains_are_made_by_commands() {
    inside("shared_receive_queues_of_xrc_domains_are_made_by_commands", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let qp = DevxQp::new(lib, context);
        let (_, umem_id) = lib.umem(context, qp.base() as u64, SIZE).unwrap();
        let (domain, made) = lib.create(context, &AllocXrcd::default()).unwrap();
        let queue = XrcSrqContext {
            log_xrc_srq_size: 2,
            log_rq_stride: 2,
            xrcd: made.xrcd,
            cqn: qp.cqn,
            dbr_umem_id: umem_id,
            user_index: 7,
            pd: qp.pd,
            dbr_addr: RECORDS as u64 + 128,
            ..XrcSrqContext::default()
        };
        let create = CreateXrcSrq { context: queue, umem_id, ..Default::default() };
        let (srq, made) = lib.create(context, &create).unwrap();
        let xrc_srqn = made.xrc_srqn;
        let arm = ArmXrcSrq { op_mod: ArmXrcSrq::XRC_SRQ, xrc_srqn, lwm: 2, ..Default::default() };
        lib.modify(srq, &arm).unwrap();
        let query = QueryXrcSrq { xrc_srqn, ..Default::default() };
        let expected = XrcSrqContext { dbr_umem_valid: true, dbr_addr: 0, lwm: 2, ..queue };
        assert_eq!(lib.query(srq, &query).unwrap().context, expected);
        assert!(lib.query(domain, &query).is_err(), "of another object");
        assert!(lib.destroy(domain).is_err(), "in use");
        lib.destroy(srq).unwrap();
        lib.destroy(domain).unwrap();
    });
}

#[test]
fn two_devices_of_a_process_meet() {
    inside("two_devices_of_a_process_meet", &["--devices", "2"], |lib| {
        let contexts = [0, 1].map(|index| lib.open(index, true).unwrap());
        let [one, two] = contexts.map(|context| own_path(lib, context));
        assert_ne!(one.rgid_rip, two.rgid_rip);
        let (mut a, b) = (DevxQp::new(lib, contexts[0]), DevxQp::new(lib, contexts[1]));
        a.connect(b.qpn, two);
        b.connect(a.qpn, one);
        let at = HEAP as u64;
        a.memory.write(at, &[0x5a; 5000]).unwrap();
        a.post(&Wqe::Write { raddr: at + 100, rkey: b.key, laddr: at, lkey: a.key, len: 5000 });
        assert_eq!(a.poll(0), CqeOpcode::REQ);
        let mut arrived = vec![0; 5002];
        b.memory.read(at + 99, &mut arrived).unwrap();
        assert!(arrived[1..5001].iter().all(|byte| *byte == 0x5a) && arrived[0] == 0 && arrived[5001] == 0);
    });
}

#[test]
fn memory_of_a_peer_client_is_reached() {
    inside("memory_of_a_peer_client_is_reached", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        // Without a client, these addresses are invalid.
        let refused = lib.umem(context, peer::BASE, 4096).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
        let memory = peer::register();

        let path = own_path(lib, context);
        let (mut a, b) = (DevxQp::new(lib, context), DevxQp::new(lib, context));
        a.connect(b.qpn, path);
        b.connect(a.qpn, path);
        let (umem, umem_id) = lib.umem(b.context, peer::BASE + 64, 4096).unwrap();
        let key = make_key(lib, b.context, b.pd, umem_id, 4096);
        let at = HEAP as u64;
        a.memory.write(at, b"to the peer's memory").unwrap();
        a.post(&Wqe::Write { raddr: 8, rkey: key, laddr: at, lkey: a.key, len: 20 });
        a.post(&Wqe::FetchAdd { raddr: 32, rkey: key, laddr: at + 64, lkey: a.key, add: 5 });
        a.post(&Wqe::Read { raddr: 8, rkey: key, laddr: at + 128, lkey: a.key, len: 32 });
        for index in 0..3 {
            assert_eq!(a.poll(index), CqeOpcode::REQ, "entry {index}");
        }
        let mut arrived = [0; 32];
        memory.read(64 + 8, &mut arrived).unwrap();
        assert_eq!(&arrived[..20], b"to the peer's memory");
        assert_eq!(arrived[24], 5);
        let mut back = [0; 32];
        a.memory.read(at + 128, &mut back).unwrap();
        assert_eq!(back, arrived);
        // An MR registered through the kernel's command, too.
        let pd = lib.alloc_pd(context).unwrap();
        lib.dereg_mr(lib.reg_mr(pd, peer::BASE, 4096, peer::BASE, 1).unwrap()).unwrap();
        assert_eq!(lib.umem_dereg(umem).unwrap_err().raw_os_error(), Some(libc::EBUSY), "a key maps it");
    });
}

#[test]
fn a_refused_command_says_why() {
    inside("a_refused_command_says_why", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let uar_page = lib.alloc_uar(context, 1).unwrap().page_id;
        let c_eqn = lib.eqn(context, 0).unwrap() as u8;
        let cq = CqContext { dbr_umem_valid: true, uar_page, c_eqn, ..CqContext::default() };
        let create = CreateCq { context: cq, umem_id: 999, umem_valid: true, ..CreateCq::default() };
        let (error, refusal) = lib.create(context, &create).unwrap_err();
        let CmdError { status, syndrome } = refusal.unwrap();
        assert_eq!(status, CmdStatus::BAD_RES);
        assert!(rushmem_softnic::reason(syndrome).is_some_and(|why| why.contains("no such umem")));
        // libmlx5 converts the status to an error code, depending on its version.
        assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EREMOTEIO)), "{error}");
        // Linux checks the event queue before it sends the command.
        let without = CreateCq { context: CqContext { c_eqn: 0, ..cq }, ..create };
        let (error, refusal) = lib.create(context, &without).unwrap_err();
        assert_eq!((error.raw_os_error(), refusal), (Some(libc::ENOENT), None));
        // A command that does not create an object.
        let (error, _) = lib.create(context, &QueryQp::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    });
}

#[test]
fn a_queue_pair_writes_to_a_dma_buf() {
    inside("a_queue_pair_writes_to_a_dma_buf", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let path = own_path(lib, context);
        let (mut a, b) = (DevxQp::new(lib, context), DevxQp::new(lib, context));
        a.connect(b.qpn, path);
        b.connect(a.qpn, path);
        let (file, memory) = dma_buf(8192);
        let umem = lib.umem_dmabuf(context, 4096, 4096, file).unwrap();
        // SAFETY: libmlx5 keeps the ID until the umem is destroyed.
        let key = make_key(lib, context, b.pd, unsafe { *umem }, 4096);
        a.memory.write(HEAP as u64, b"to a dma-buf").unwrap();
        a.post(&Wqe::Write { raddr: 100, rkey: key, laddr: HEAP as u64, lkey: a.key, len: 12 });
        assert_eq!(a.poll(0), CqeOpcode::REQ);
        let mut arrived = [0; 12];
        memory.read(4096 + 100, &mut arrived).unwrap();
        assert_eq!(&arrived, b"to a dma-buf");
    });
}

#[test]
fn counter_sets_are_objects() {
    inside("counter_sets_are_objects", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let (set, made) = lib.create(context, &AllocQCounter::default()).unwrap();
        let query = QueryQCounter { counter_set_id: made.counter_set_id, ..Default::default() };
        assert_eq!(lib.query(set, &query).unwrap().duplicate_request, 0);
        let other = QueryQCounter { counter_set_id: made.counter_set_id + 1, ..query };
        assert_eq!(lib.query(set, &other).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        lib.destroy(set).unwrap();
    });
}

#[test]
fn umems_are_checked() {
    inside("umems_are_checked", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let errno =
            |result: std::io::Result<_>| result.err().and_then(|error: std::io::Error| error.raw_os_error());
        assert_eq!(errno(lib.umem(context, 0x1000, 4096)), Some(libc::EFAULT));
        let buffer = HostBuffer::new(8192);
        let (umem, _) = lib.umem(context, buffer.as_ptr() as u64 + 100, 5000).unwrap();
        lib.umem_dereg(umem).unwrap();
        // Remote writes without local ones, and remote atomics.
        for rights in [2, 1 | 8] {
            let refused = lib.umem_with(context, buffer.as_ptr() as u64, 4096, rights);
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }

        let (file, _) = dma_buf(8192);
        let umem = lib.umem_dmabuf(context, 0, 8192, file).unwrap();
        lib.umem_dereg(umem).unwrap();
        assert_eq!(
            lib.umem_dmabuf(context, 4096, 8192, file).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
    });
}

#[test]
fn a_dma_buf_becomes_a_memory_region() {
    inside("a_dma_buf_becomes_a_memory_region", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        let (file, _) = dma_buf(8192);
        let pd = lib.alloc_pd(context).unwrap();
        let mr = lib.reg_dmabuf(pd, 4096, 4096, file).unwrap();
        assert_eq!(lib.dealloc_pd(pd).unwrap_err().raw_os_error(), Some(libc::EBUSY), "the region is in it");
        lib.dereg_mr(mr).unwrap();
        // A directory is not a dma-buf.
        // SAFETY: a C string and a number.
        let folder = unsafe { libc::open(c"/".as_ptr(), libc::O_RDONLY) };
        assert!(lib.reg_dmabuf(pd, 0, 4096, folder).is_err());
        lib.dealloc_pd(pd).unwrap();
    });
}

#[test]
fn an_infiniband_port_has_no_roce() {
    inside("an_infiniband_port_has_no_roce", &["--link", "ib"], |lib| {
        let context = lib.open(0, true).unwrap();
        let question = QueryHcaCap { cap_type: CapType::GENERAL, current: true, uid: 0 };
        let caps: HcaCap = lib.general(context, &question).unwrap().page.get();
        assert_eq!((caps.port_type, caps.roce), (PortType::IB, false));
        let port = lib.general(context, &QueryHcaVportContext::default()).unwrap().context;
        assert_ne!(port.lid, 0);
        let question = QueryRoceAddress { roce_address_index: 3, vhca_port_num: 1, ..Default::default() };
        assert!(lib.general(context, &question).is_err());
    });
}

#[test]
fn a_child_uses_the_device_and_opens_it_again() {
    inside("a_child_uses_the_device_and_opens_it_again", &["--devices", "2"], |lib| {
        assert_eq!(lib.names(), ["mlx5_0", "mlx5_1"]);
        let context = lib.open(0, true).unwrap();
        let own = own_address(lib, context).source_l3_address;
        // SAFETY: the child makes calls that need no other thread, and exits without cleaning up.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let question = QueryRoceAddress { roce_address_index: 3, vhca_port_num: 1, ..Default::default() };
            let inherited = lib.general(context, &question).map(|answer| answer.address.source_l3_address);
            let again = lib.open(0, true).map(|context| own_address(lib, context).source_l3_address);
            let good = inherited.is_ok_and(|address| address == own) && again.is_ok_and(|other| other != own);
            // SAFETY: exits the child immediately.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a live local variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child");
        assert_eq!(own_address(lib, context).source_l3_address, own, "the parent's goes on");
        lib.close(context).unwrap();
    });
}
