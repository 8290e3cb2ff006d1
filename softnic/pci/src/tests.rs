//! Drives a function by its registers and queues, as the drivers of an operating system do.

mod management;
mod umr;

use crate::driver::{Driver, MEMORY, MEMORY_BYTES, PAGE, QUEUE};
use crate::function::Region;
use crate::{Count, Identity, Interrupts, refuse};
use rushmem_mlx5::cqe::{CQE_BYTES, Cqe, CqeOpcode};
use rushmem_mlx5::doorbell::{ArmWord, CqArm, CqRecord, Doorbell, record_word, uar};
use rushmem_mlx5::prm::caps::{CapType, HcaCap, PortType, QueryHcaCap};
use rushmem_mlx5::prm::cq::{CqContext, CreateCq, DestroyCq};
use rushmem_mlx5::prm::eq::{CreateEq, DestroyEq, EqContext, Eqe, EventType};
use rushmem_mlx5::prm::hca::{
    DisableHca, EnableHca, InitHca, ManagePages, PagesMode, QueryIssi, SetIssi, TeardownHca,
};
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, DestroyMkey, MkeyContext, key};
use rushmem_mlx5::prm::pd::{AllocPd, DeallocPd};
use rushmem_mlx5::prm::port::{AccessReg, Ptys, QueryHcaVportContext, QueryHcaVportGid, RegisterId};
use rushmem_mlx5::prm::qp::{
    AddressPath, CreateQp, DestroyQp, Init2Rtr, Mtu, QpContext, RqType, Rst2Init, Rtr2Rts, ServiceType,
};
use rushmem_mlx5::prm::queue::{CmdEntry, Delivery};
use rushmem_mlx5::prm::uar::{AllocUar, DeallocUar};
use rushmem_mlx5::prm::uctx::{CreateUctx, DestroyUctx};
use rushmem_mlx5::prm::umem::{CreateUmem, DestroyUmem, Umem};
use rushmem_mlx5::prm::{CmdError, CmdOpcode, CmdStatus, DecodeError};
use rushmem_mlx5::{Flags, Segment, Syndrome, Wqe};
use rushmem_softnic::{FunctionType, HostBuffer, Model, Rule};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Index of the MSI-X interrupt and log2 of the queue sizes that the tests use.
const VECTOR: u16 = 2;
const LOG_SIZE: u8 = 4;

/// A QP that is connected to itself, with its queues in scattered pages, and an event queue.
struct Setup {
    uar: u64,
    eqn: u8,
    eq: u64,
    cqn: u32,
    cq: u64,
    records: u64,
    pd: u32,
    qpn: u32,
    sq: u64,
    lkey: u32,
    /// Two pages that the key maps from address `VA` on.
    data: Vec<u64>,
}

/// Counts interrupts.
#[derive(Default)]
struct Counter(AtomicU32);

impl Interrupts for Counter {
    fn raise(&self, _: u16) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn driver() -> Driver {
    Driver::new(Arc::new(Counter::default()))
}

/// First address of the memory key. It does not start at a page boundary.
const VA: u64 = 0x7f00_0000_0800;

impl Setup {
    fn new(driver: &mut Driver) -> Setup {
        driver.bring_up();
        let page = driver.call(&AllocUar::default()).unwrap().uar;
        let eq = driver.pages(1);
        let context =
            EqContext { log_eq_size: LOG_SIZE, uar_page: page, intr: VECTOR, ..EqContext::default() };
        let eqn = driver.call_with(&CreateEq { context, ..CreateEq::default() }, &eq).unwrap().eq_number;
        let records = driver.pages(1)[0];
        let cq = driver.pages(1);
        let cqc = CqContext {
            log_cq_size: LOG_SIZE,
            uar_page: page,
            c_eqn: eqn,
            dbr_addr: records,
            ..CqContext::default()
        };
        driver.put(cq[0], &[0xff; CQE_BYTES << LOG_SIZE]);
        let cqn = driver.call_with(&CreateCq { context: cqc, ..CreateCq::default() }, &cq).unwrap().cqn;
        let pd = driver.call(&AllocPd::default()).unwrap().pd;
        let data = driver.pages(2);
        let lkey = create_key(driver, pd, &data);
        let sq = driver.pages(1);
        let qpc = QpContext {
            pd,
            log_sq_size: LOG_SIZE,
            uar_page: page,
            cqn_snd: cqn,
            rq_type: RqType::ZERO_SIZE,
            dbr_addr: records + 64,
            ..QpContext::default()
        };
        let qpn = driver.call_with(&CreateQp { context: qpc, ..CreateQp::default() }, &sq).unwrap().qpn;
        connect_to_itself(driver, qpn);
        let uar = u64::from(page) * uar::PAGE_BYTES as u64;
        Setup { uar, eqn, eq: eq[0], cqn, cq: cq[0], records, pd, qpn, sq: sq[0], lkey, data }
    }

    /// Returns the index of the UAR page.
    fn page(&self) -> u32 {
        (self.uar / uar::PAGE_BYTES as u64) as u32
    }

    /// Returns the context of the CQ.
    fn cq_context(&self) -> CqContext {
        CqContext {
            log_cq_size: LOG_SIZE,
            uar_page: self.page(),
            c_eqn: self.eqn,
            dbr_addr: self.records,
            ..CqContext::default()
        }
    }

    /// Posts a WQE as number `index`, and rings its doorbell.
    fn post(&self, driver: &mut Driver, index: u16, wqe: &Wqe) {
        let emitted = wqe.emit(index, self.qpn, Flags::SIGNALED);
        let segments: &[Segment] = emitted.segments();
        driver.put(self.sq + u64::from(index) * 64, bytemuck::cast_slice(segments));
        self.ring(driver, index + 1);
    }

    /// Rings the doorbell for WQEs up to block `producer`.
    fn ring(&self, driver: &mut Driver, producer: u16) {
        driver.put(self.records + 68, &record_word(producer).to_ne_bytes());
        let doorbell = Doorbell::producer(self.qpn, producer).raw();
        driver.function.write(Region::Bar0, self.uar + uar::DB as u64, &doorbell.to_ne_bytes());
    }

    fn arm_cq(&self, driver: &mut Driver, consumed: u32) {
        let arm = CqArm::new(ArmWord::new(0, false, consumed), self.cqn);
        driver.put(self.records + CqRecord::ARM_OFFSET as u64, bytemuck::bytes_of(&arm.arm()));
        driver.function.write(Region::Bar0, self.uar + uar::CQ_ARM as u64, bytemuck::bytes_of(&arm));
    }

    fn arm_eq(&self, driver: &mut Driver, consumed: u32) {
        let value = u32::from(self.eqn) << 24 | consumed;
        driver.function.write(Region::Bar0, self.uar + uar::EQ as u64, &value.to_be_bytes());
    }

    fn first_cqe(&self, driver: &Driver) -> Cqe {
        self.cqe(driver, 0)
    }

    /// Waits for the CQE at `index`.
    fn cqe(&self, driver: &Driver, index: u64) -> Cqe {
        wait(|| {
            let cqe = Cqe::from_bytes(driver.get(self.cq + index * CQE_BYTES as u64));
            (cqe.op_own().0 & 1 == 0).then_some(cqe)
        })
    }
}

fn create_key(driver: &mut Driver, pd: u32, pages: &[u64]) -> u32 {
    let mkc = MkeyContext {
        lr: true,
        lw: true,
        rr: true,
        rw: true,
        qpn: MkeyContext::ANY_QP,
        mkey_7_0: 7,
        pd,
        start_addr: VA,
        len: PAGE,
        log_page_size: 12,
        ..MkeyContext::default()
    };
    let create = CreateMkey {
        context: mkc.with_access_mode(AccessMode::MTT),
        translations_octword_actual_size: 1,
        ..CreateMkey::default()
    };
    key(driver.call_with(&create, pages).unwrap().mkey_index, 7)
}

fn connect_to_itself(driver: &mut Driver, qpn: u32) {
    connect(driver, qpn, qpn, AddressPath { fl: true, ..AddressPath::default() });
}

/// Connects a QP, which is in RESET, to a remote QP.
fn connect(driver: &mut Driver, qpn: u32, remote_qpn: u32, path: AddressPath) {
    let context = QpContext { rre: true, rwe: true, ..QpContext::default() };
    driver.call(&Rst2Init { qpn, context, ..Rst2Init::default() }).unwrap();
    let context = QpContext {
        mtu: Mtu::B1024,
        log_msg_max: 30,
        remote_qpn,
        primary_address_path: path,
        ..QpContext::default()
    };
    driver.call(&Init2Rtr { qpn, context, ..Init2Rtr::default() }).unwrap();
    driver.call(&Rtr2Rts { qpn, ..Rtr2Rts::default() }).unwrap();
}

/// Polls until `done` returns a value.
fn wait<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < end, "nothing has happened for 30 seconds");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, DecodeError>) -> CmdError {
    match outcome {
        Err(DecodeError::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_driver_comes_and_goes() {
    let mut driver = driver();
    assert_eq!(refused(driver.call(&AllocPd::default())), refuse::STATE);
    driver.call(&EnableHca::default()).unwrap();
    let issi = driver.call(&QueryIssi::default()).unwrap();
    assert_eq!((issi.current_issi, issi.supported_issi_dw0), (0, 2));
    assert_eq!(refused(driver.call(&SetIssi { current_issi: 2, ..SetIssi::default() })), refuse::ISSI);
    assert_eq!(refused(driver.call(&InitHca::default())), refuse::PAGE_COUNT);
    let mut given = driver.bring_up();
    driver.call(&AllocPd::default()).unwrap();
    assert_eq!(refused(driver.call(&DisableHca::default())), refuse::STATE);
    driver.call(&TeardownHca::default()).unwrap();
    assert_eq!(refused(driver.call(&AllocPd::default())), refuse::STATE);
    let take = ManagePages { op_mod: PagesMode::TAKE, input_num_entries: 1000, ..ManagePages::default() };
    // The answer has room for ten pages.
    let mut taken = Vec::new();
    loop {
        let output = driver.submit(&take.encode(), 16 + 80).unwrap();
        let count = u32::from_be_bytes(*output[8..].first_chunk().unwrap()) as usize;
        if count == 0 {
            break;
        }
        taken.extend(output[16..].as_chunks().0.iter().take(count).map(|page| u64::from_be_bytes(*page)));
    }
    given.sort_unstable();
    taken.sort_unstable();
    assert_eq!(given, taken);
    driver.call(&DisableHca::default()).unwrap();
    assert_eq!(refused(driver.call(&QueryIssi::default())), refuse::STATE);
    assert_eq!(driver.function.counts()[&CmdOpcode::INIT_HCA], Count { done: 1, refused: 1 });
}

#[test]
fn the_port_is_infiniband() {
    let mut driver = driver();
    driver.bring_up();
    let caps: HcaCap = driver.call(&QueryHcaCap::current::<HcaCap>()).unwrap().page.get();
    assert_eq!((caps.port_type, caps.num_ports, caps.roce), (PortType::IB, 1, false));
    assert!(!caps.umr_modify_entity_size_disabled && caps.umr_indirect_mkey_disabled);
    let port = driver.call(&QueryHcaVportContext::default()).unwrap().context;
    let gid = driver.call(&QueryHcaVportGid::default()).unwrap().gid;
    assert_eq!((&gid[..2], &gid[8..]), (&[0xfe, 0x80][..], &port.port_guid.to_be_bytes()[..]));
    let asked = AccessReg { op_mod: AccessReg::READ, register_id: RegisterId::PTYS, ..AccessReg::default() };
    let mut ptys = [0; Ptys::LEN];
    Ptys { local_port: 1, proto_mask: Ptys::IB, ..Ptys::default() }.write(&mut ptys);
    let output = driver.submit(&[&asked.encode()[..], &ptys].concat(), 16 + ptys.len()).unwrap();
    assert_eq!(Ptys::read(output[16..].first_chunk().unwrap()).ib_proto_oper, Ptys::NDR);
}

/// Linux 6.12, unlike 6.1, registers dma-bufs only on devices with page faults.
#[test]
fn a_function_has_page_faults_that_no_operation_raises() {
    let mut driver = driver();
    driver.bring_up();
    let caps: HcaCap = driver.call(&QueryHcaCap::current::<HcaCap>()).unwrap().page.get();
    let question = QueryHcaCap { cap_type: CapType::ODP, current: true, uid: 0 };
    let operations = driver.call(&question).unwrap().page;
    assert!(caps.pg && operations.0.iter().all(|byte| *byte == 0));
}

#[test]
fn a_function_presents_itself_as_its_model() {
    for model in Model::ALL {
        for function in [FunctionType::Physical, FunctionType::Virtual] {
            let identity = Identity { model, function, infiniband: true };
            let driver = Driver::of(identity, Arc::new(Counter::default()));
            let mut id = [0; 4];
            driver.function.read(Region::Config, 0, &mut id);
            let [vendor, device] = [[id[0], id[1]], [id[2], id[3]]].map(u16::from_le_bytes);
            assert_eq!((vendor, device), (0x15b3, model.device_id(function)));
            let mut revision = [0; 8];
            driver.function.read(Region::Bar0, 0, &mut revision);
            let [minor, major, _, subminor] =
                [0, 2, 4, 6].map(|at| u16::from_be_bytes([revision[at], revision[at + 1]]));
            assert_eq!([major, minor, subminor], model.firmware());
        }
    }
}

#[test]
fn a_physical_function_has_the_byte_order_of_the_host() {
    let access = |function, op_mod| {
        let identity = Identity { function, infiniband: true, ..Identity::default() };
        let mut driver = Driver::of(identity, Arc::new(Counter::default()));
        driver.call(&EnableHca::default()).unwrap();
        let mut access = |op_mod, value: u8| {
            let register_id = RegisterId::HOST_ENDIANNESS;
            let command = AccessReg { op_mod, register_id, ..AccessReg::default() }.encode();
            let output = driver.submit(&[&command[..], &[value], &[0; 15]].concat(), 32).unwrap();
            CmdError::check(&output).map(|()| output[16])
        };
        access(op_mod, 0x80).and_then(|_| access(AccessReg::READ, 0))
    };
    assert_eq!(access(FunctionType::Physical, AccessReg::WRITE), Ok(0x80));
    assert_eq!(access(FunctionType::Physical, AccessReg::READ), Ok(0));
    assert_eq!(access(FunctionType::Physical, 2), Err(DecodeError::Refused(refuse::REGISTER)));
    assert_eq!(access(FunctionType::Virtual, AccessReg::WRITE), Err(DecodeError::Refused(refuse::VIRTUAL)));
}

#[test]
fn broken_commands_are_not_delivered() {
    let mut driver = driver();
    let input = [0; 600];
    let mut outcome = |change: &dyn Fn(&mut CmdEntry), signed: bool| {
        let mut entry = driver.prepare(&input, 600);
        change(&mut entry);
        let mut bytes = entry.sign();
        if !signed {
            bytes[1] ^= 1;
        }
        driver.put(QUEUE, &bytes);
        let entry = driver.ring();
        assert!(!entry.owned_by_hw);
        entry.delivery
    };
    assert_eq!(outcome(&|_| {}, true), Delivery::OK);
    assert_eq!(outcome(&|_| {}, false), Delivery::SIGNATURE);
    assert_eq!(outcome(&|entry| entry.token += 1, true), Delivery::TOKEN);
    assert_eq!(outcome(&|entry| entry.transport = 3, true), Delivery::DESCRIPTOR);
    assert_eq!(outcome(&|entry| entry.input_len = 4, true), Delivery::INPUT_LENGTH);
    assert_eq!(outcome(&|entry| entry.input_len = u32::MAX, true), Delivery::INPUT_LENGTH);
    assert_eq!(outcome(&|entry| entry.output_len = u32::MAX, true), Delivery::OUTPUT_LENGTH);
    assert_eq!(outcome(&|entry| entry.input_block += 1, true), Delivery::INPUT_POINTER);
    assert_eq!(outcome(&|entry| entry.output_block = 0, true), Delivery::OUTPUT_POINTER);
    // The second block is linked as the first, and the chain is one block too short.
    assert_eq!(outcome(&|entry| entry.input_block += 1024, true), Delivery::BLOCK_NUMBER);
    assert_eq!(outcome(&|entry| entry.input_len = 4000, true), Delivery::INPUT_POINTER);
    assert_eq!(
        outcome(&|entry| entry.input_block = MEMORY + MEMORY_BYTES as u64, true),
        Delivery::INPUT_POINTER
    );
}

#[test]
fn entries_of_the_driver_are_left_alone() {
    let mut driver = driver();
    let entry = CmdEntry { owned_by_hw: false, ..driver.prepare(&[0; 16], 16) };
    driver.put(QUEUE, &entry.sign());
    driver.set_register(0x18, u32::MAX);
    assert_eq!(driver.get(QUEUE), entry.sign());
    // A queue without memory.
    driver.set_register(0x10, u32::MAX);
    driver.set_register(0x18, u32::MAX);
}

#[test]
fn unknown_commands_are_refused() {
    let mut driver = driver();
    driver.bring_up();
    let mut input = [0; 16];
    input[..2].copy_from_slice(&0x0d0du16.to_be_bytes());
    let output = driver.submit(&input, 16).unwrap();
    let error = CmdError::check(&output);
    assert!(
        matches!(error, Err(DecodeError::Refused(CmdError { status: CmdStatus::BAD_OP, .. }))),
        "{error:?}"
    );
}

#[test]
fn programs_are_kept_apart() {
    let mut driver = driver();
    driver.bring_up();
    let [a, b] = [(); 2].map(|()| driver.call(&CreateUctx::default()).unwrap().uid);
    let pd = driver.call(&AllocPd { uid: a }).unwrap().pd;
    let pages = driver.pages(2);
    let context =
        MkeyContext { lr: true, lw: true, pd, len: PAGE, log_page_size: 12, ..MkeyContext::default() };
    let by_address = CreateMkey {
        context: context.with_access_mode(AccessMode::MTT),
        translations_octword_actual_size: 1,
        ..CreateMkey::default()
    };
    // The driver may use the domain of a program, but another program may not, and no program may use bus addresses.
    let mkey_index = driver.call_with(&by_address, &pages).unwrap().mkey_index;
    let umem = CreateUmem { uid: a, umem: Umem { num_of_mtt: 1, ..Umem::default() } };
    let umem_id = driver.call_with(&umem, &pages).unwrap().umem_id;
    let in_umem = CreateMkey { umem_valid: true, umem_id, ..by_address };
    let syndrome_of =
        |driver: &mut Driver, command: CreateMkey| refused(driver.call_with(&command, &pages)).syndrome;
    assert_eq!(syndrome_of(&mut driver, CreateMkey { uid: a, ..by_address }), 0x5f_0030);
    assert_eq!(syndrome_of(&mut driver, CreateMkey { uid: b, ..in_umem }), 0x5f_0010);
    let of_program = driver.call_with(&CreateMkey { uid: a, ..in_umem }, &pages).unwrap().mkey_index;
    let foreign = DestroyMkey { uid: b, mkey_index: of_program };
    assert_eq!(refused(driver.call(&foreign)).syndrome, 0x5f_0013);
    assert_eq!(refused(driver.call(&SetIssi { uid: a, ..SetIssi::default() })), refuse::PRIVILEGED);
    assert_eq!(refused(driver.call(&AllocPd { uid: 77 })), refuse::NO_USER);
    let rights = CreateUctx { cap: 1, ..CreateUctx::default() };
    assert_eq!(refused(driver.call(&rights)), refuse::USER_RIGHTS);

    let destroy = DestroyUctx { destroyed: a, ..DestroyUctx::default() };
    assert_eq!(refused(driver.call(&destroy)), refuse::USER_BUSY);
    for mkey_index in [mkey_index, of_program] {
        let uid = if mkey_index == of_program { a } else { 0 };
        driver.call(&DestroyMkey { uid, mkey_index }).unwrap();
    }
    driver.call(&DestroyUmem { uid: a, umem_id }).unwrap();
    driver.call(&DeallocPd { uid: a, pd }).unwrap();
    driver.call(&destroy).unwrap();
    assert_eq!(refused(driver.call(&destroy)), refuse::NO_USER);
    driver.call(&TeardownHca::default()).unwrap();
    driver.call(&InitHca::default()).unwrap();
    assert_eq!(refused(driver.call(&AllocPd { uid: b })), refuse::NO_USER);
}

#[test]
fn completion_queues_of_programs_need_a_shared_event_queue() {
    let mut driver = driver();
    driver.bring_up();
    let uid = driver.call(&CreateUctx::default()).unwrap().uid;
    let driver_page = driver.call(&AllocUar::default()).unwrap().uar;
    let uar_page = driver.call(&AllocUar { uid }).unwrap().uar;
    let pages = driver.pages(1);
    let context = EqContext { uar_page: driver_page, ..EqContext::default() };
    let [own, shared] = [0, 0xffff].map(|uid| {
        let create = CreateEq { uid, context, ..CreateEq::default() };
        driver.call_with(&create, &pages).unwrap().eq_number
    });
    let mut create = |uar_page, c_eqn| {
        let context = CqContext { uar_page, c_eqn, dbr_addr: pages[0], ..CqContext::default() };
        driver.call_with(&CreateCq { uid, context, ..CreateCq::default() }, &pages)
    };
    assert_eq!(refused(create(uar_page, own)), refuse::NO_EQ);
    assert_eq!(refused(create(driver_page, shared)).syndrome, 0x5f_0011);
    let cqn = create(uar_page, shared).unwrap().cqn;
    // The driver creates XRC initiators of a program by itself, on the program's page and CQ.
    let pd = driver.call(&AllocPd::default()).unwrap().pd;
    let context = QpContext {
        st: ServiceType::XRC,
        rq_type: RqType::ZERO_SIZE,
        pd,
        uar_page,
        cqn_snd: cqn,
        dbr_addr: pages[0],
        ..QpContext::default()
    };
    let create = CreateQp { context, ..CreateQp::default() };
    let qpn = driver.call_with(&create, &pages).unwrap().qpn;
    driver.call(&DestroyQp { qpn, ..DestroyQp::default() }).unwrap();
    // A DC initiator names an SRQ of the driver, although it receives nothing.
    let pd = driver.call(&AllocPd { uid }).unwrap().pd;
    let context =
        QpContext { st: ServiceType::DCI, rq_type: RqType::SRQ, pd, srqn_rmpn_xrqn: 0x77, ..context };
    driver.call_with(&CreateQp { uid, context, ..CreateQp::default() }, &pages).unwrap();
    assert_eq!(
        refused(driver.call(&DestroyEq { eq_number: shared, ..DestroyEq::default() })),
        refuse::EQ_USED
    );
}

#[test]
fn a_write_in_scattered_memory_raises_an_interrupt() {
    let interrupts = Arc::new(Counter::default());
    let mut driver = Driver::new(Arc::clone(&interrupts) as _);
    let setup = Setup::new(&mut driver);
    // The source is at the end of the first page, and the destination is in the second.
    driver.put(setup.data[0] + 0xff0, b"across pages");
    setup.arm_eq(&mut driver, 0);
    setup.arm_cq(&mut driver, 0);
    let wqe =
        Wqe::Write { raddr: VA + 0x900, rkey: setup.lkey, laddr: VA + 0x7f0, lkey: setup.lkey, len: 12 };
    setup.post(&mut driver, 0, &wqe);
    assert_eq!(setup.first_cqe(&driver).op_own().opcode(), CqeOpcode::REQ);
    assert_eq!(&driver.get(setup.data[1] + 0x100), b"across pages");
    wait(|| (interrupts.0.load(Ordering::SeqCst) == 1).then_some(()));
    let eqe = Eqe::read(&driver.get(setup.eq));
    assert_eq!((eqe.event_type, eqe.number, eqe.owner), (EventType::COMP, setup.cqn, 0));
}

#[test]
fn only_an_armed_cq_raises_an_event() {
    let mut driver = driver();
    let setup = Setup::new(&mut driver);
    let (ring, record) = (driver.pages(1), driver.pages(1)[0]);
    let context = CqContext { dbr_addr: record, ..setup.cq_context() };
    let other = driver.call_with(&CreateCq { context, ..CreateCq::default() }, &ring).unwrap().cqn;
    let arm = CqArm::new(ArmWord::new(0, false, 0), other);
    driver.function.write(Region::Bar0, setup.uar + uar::CQ_ARM as u64, bytemuck::bytes_of(&arm));
    let wqe =
        Wqe::Write { raddr: VA + 0x900, rkey: setup.lkey, laddr: VA + 0x7f0, lkey: setup.lkey, len: 12 };
    setup.post(&mut driver, 0, &wqe);
    setup.cqe(&driver, 0);
    // By the second completion, an event of the first one would have been delivered.
    setup.post(&mut driver, 1, &wqe);
    setup.cqe(&driver, 1);
    assert_eq!(Eqe::read(&driver.get(setup.eq)), Eqe::default());
    setup.arm_cq(&mut driver, 0);
    let eqe = wait(|| Some(Eqe::read(&driver.get(setup.eq))).filter(|eqe| eqe.number != 0));
    assert_eq!(eqe.number, setup.cqn);
}

#[test]
fn a_qp_that_changes_keys_does_nothing_else() {
    let mut driver = driver();
    let setup = Setup::new(&mut driver);
    let (sq, records) = (driver.pages(1), driver.pages(1)[0]);
    let context = QpContext {
        st: ServiceType::REG_UMR,
        log_sq_size: LOG_SIZE,
        uar_page: setup.page(),
        cqn_snd: setup.cqn,
        rq_type: RqType::ZERO_SIZE,
        dbr_addr: records + 64,
        ..QpContext::default()
    };
    let create = |context| CreateQp { context, ..CreateQp::default() };
    let no_pd = refused(driver.call_with(&create(QpContext { pd: 0xffff, ..context }), &sq));
    assert_eq!(no_pd.status, CmdStatus::BAD_RES);
    let qpn = driver.call_with(&create(context), &sq).unwrap().qpn;
    connect_to_itself(&mut driver, qpn);
    let setup = Setup { qpn, sq: sq[0], records, ..setup };
    setup.post(&mut driver, 0, &Wqe::Nop);
    assert_eq!(setup.cqe(&driver, 0).op_own().opcode(), CqeOpcode::REQ);
    let wqe = Wqe::Write { raddr: VA, rkey: setup.lkey, laddr: VA, lkey: setup.lkey, len: 0 };
    setup.post(&mut driver, 1, &wqe);
    let cqe = setup.cqe(&driver, 1);
    assert_eq!(cqe.as_error().map(|error| error.syndrome), Some(Syndrome::LOCAL_QP_OP_ERR));
}

#[test]
fn a_list_has_the_pages_of_its_object() {
    let mut driver = driver();
    driver.bring_up();
    let pd = driver.call(&AllocPd::default()).unwrap().pd;
    let pages = driver.pages(2);
    let mkc = MkeyContext { pd, start_addr: VA, len: PAGE, log_page_size: 12, ..MkeyContext::default() };
    let mut create = |len, octwords, list: &[u64]| {
        let context = MkeyContext { len, ..mkc }.with_access_mode(AccessMode::MTT);
        let translations_octword_actual_size = octwords;
        driver.call_with(
            &CreateMkey { context, translations_octword_actual_size, ..CreateMkey::default() },
            list,
        )
    };
    // The key starts in the middle of its first page, so it needs two.
    for (octwords, list) in [(1, &pages[..1]), (2, &pages[..]), (0, &pages[..])] {
        assert_eq!(refused(create(PAGE, octwords, list)).status, CmdStatus::BAD_INP_LEN);
    }
    create(PAGE, 1, &pages).unwrap();
    // The second address of a list for one page is padding, not a page.
    create(8, 1, &[pages[0], 0]).unwrap();
}

#[test]
fn queues_name_what_exists() {
    let mut driver = driver();
    let setup = Setup::new(&mut driver);
    let page = driver.pages(1);
    let context = EqContext { uar_page: setup.page() + 1, ..EqContext::default() };
    let error = refused(driver.call_with(&CreateEq { context, ..CreateEq::default() }, &page));
    assert_eq!(error, refuse::NO_UAR);
    let context = CqContext { c_eqn: setup.eqn + 1, ..setup.cq_context() };
    let error = refused(driver.call_with(&CreateCq { context, ..CreateCq::default() }, &page));
    assert_eq!(error, refuse::NO_EQ);
    let destroy = DestroyEq { eq_number: setup.eqn, ..DestroyEq::default() };
    assert_eq!(refused(driver.call(&destroy)), refuse::EQ_USED);
    driver.call(&DestroyQp { qpn: setup.qpn, ..DestroyQp::default() }).unwrap();
    driver.call(&DestroyCq { cqn: setup.cqn, ..DestroyCq::default() }).unwrap();
    driver.call(&destroy).unwrap();
}

#[test]
fn memory_may_go_at_any_time() {
    let mut driver = driver();
    let setup = Setup::new(&mut driver);
    driver.memory.unmap(MEMORY, MEMORY_BYTES as u64).unwrap();
    driver.memory.insert(MEMORY, HostBuffer::new(MEMORY_BYTES / 2)).unwrap();
    // The queues, which were in the second half, have lost their memory.
    let doorbell = Doorbell::producer(setup.qpn, 1).raw();
    driver.function.write(Region::Bar0, setup.uar + uar::DB as u64, &doorbell.to_ne_bytes());
    wait(|| (driver.nic.stats().doorbells == 1).then_some(()));
    // The adapter goes on.
    assert!(driver.nic.violations().iter().all(|violation| violation.rule != Rule::Engine));
    driver.function.reset();
    driver.set_queue();
    driver.top = MEMORY + MEMORY_BYTES as u64 / 2;
    driver.bring_up();
}

#[test]
fn each_doorbell_register_of_a_page_works() {
    let mut driver = driver();
    let setup = Setup::new(&mut driver);
    for (index, register) in (0x800..0x1000).step_by(0x100).enumerate() {
        let emitted = Wqe::Nop.emit(index as u16, setup.qpn, Flags::SIGNALED);
        driver.put(setup.sq + index as u64 * 64, bytemuck::cast_slice(emitted.segments()));
        let doorbell = Doorbell::producer(setup.qpn, index as u16 + 1).raw();
        driver.function.write(Region::Bar0, setup.uar + register, &doorbell.to_ne_bytes());
        assert_eq!(setup.cqe(&driver, index as u64).op_own().opcode(), CqeOpcode::REQ);
    }
}

#[test]
fn a_reset_destroys_everything() {
    let mut driver = driver();
    let setup = Setup::new(&mut driver);
    driver.function.reset();
    let mut queue = [0xff; 4];
    driver.function.read(Region::Bar0, 0x14, &mut queue);
    assert_eq!(queue[..3], [0; 3]);
    driver.set_queue();
    assert_eq!(refused(driver.call(&AllocPd::default())), refuse::STATE);
    driver.bring_up();
    let error = refused(driver.call(&DeallocUar { uar: setup.page(), ..DeallocUar::default() }));
    assert_eq!(error.status, CmdStatus::BAD_RES);
    // Doorbells of the old objects reach nobody.
    setup.arm_eq(&mut driver, 0);
    setup.arm_cq(&mut driver, 0);
    let again = Setup::new(&mut { driver });
    assert_ne!(again.qpn, setup.qpn);
}

#[test]
fn a_function_level_reset_is_a_write_to_configuration_space() {
    let mut driver = driver();
    driver.bring_up();
    let mut capability = [0; 1];
    driver.function.read(Region::Config, 0x34, &mut capability);
    driver.function.write(Region::Config, u64::from(capability[0]) + 8, &0x8000u16.to_le_bytes());
    driver.set_queue();
    assert_eq!(refused(driver.call(&AllocPd::default())), refuse::STATE);
}
