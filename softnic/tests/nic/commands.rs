//! Tests of PRM commands: state transitions, object numbers, limits and reference counts.

use crate::script::{Pe, Setup, call, loopback_nic, nic_without_records, pair, pattern, wire_nic};
use rushmem_mlx5::Wqe;
use rushmem_mlx5::prm::caps::{AtomicCaps, CapType, HcaCap, QueryHcaCap, QueryRoceAddress, RoceVersion};
use rushmem_mlx5::prm::counter::{AllocQCounter, DeallocQCounter, QueryQCounter};
use rushmem_mlx5::prm::cq::DestroyCq;
use rushmem_mlx5::prm::lag::QueryLag;
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, DestroyMkey, MkeyContext};
use rushmem_mlx5::prm::pd::{AllocPd, DeallocPd};
use rushmem_mlx5::prm::qp::{
    CreateQp, DestroyQp, ECE_VERSION_1, Init2Init, Init2Rtr, Mtu, QpContext, QpState, RqType, Rst2Init,
    Rtr2Rts, Rts2Rts, SEND_DBR, SEND_NO_DBR, ServiceType, ToErr, ToRst, opt_param,
};
use rushmem_mlx5::prm::{CmdError, CmdOpcode, CmdStatus};
use rushmem_mlx5::wqe::Inline;
use rushmem_softnic::{Config, Error, Faults, HostBuffer, Nic, Numbers, reason};
use std::sync::Arc;

fn status<T: std::fmt::Debug>(result: Result<T, CmdError>) -> CmdStatus {
    let refusal = result.expect_err("must be refused");
    assert!(reason(refusal.syndrome).is_some(), "syndrome {:#x} has no text", refusal.syndrome);
    refusal.status
}

#[test]
fn capabilities_suit_a_gpu_initiated_driver() {
    let nic = loopback_nic();
    let context = nic.open();
    let general: HcaCap = call(&context, &QueryHcaCap::current::<HcaCap>()).unwrap().page.get();
    assert!(general.rc && general.roce && general.atomic && general.cq_oi);
    assert!(!general.umr_modify_entity_size_disabled && !general.umr_indirect_mkey_disabled);
    assert_eq!((general.cqe_version, general.log_max_msg, general.num_ports), (1, 30, 1));
    let atomics: AtomicCaps = call(&context, &QueryHcaCap::current::<AtomicCaps>()).unwrap().page.get();
    assert_eq!((atomics.atomic_operations, atomics.atomic_size_qp), (0xf, 0xc));
    assert_eq!(atomics.atomic_req_8b_endianness_mode, 1);
    let page = |cap_type| {
        call(&context, &QueryHcaCap { cap_type, current: true, ..QueryHcaCap::default() }).map(|out| out.page)
    };
    assert!(page(CapType::DEVICE_MEMORY).unwrap().0.iter().all(|byte| *byte == 0));
    assert_eq!(status(page(CapType(0x7f))), CmdStatus::BAD_PARAM);
}

#[test]
fn address_table_holds_the_adapter_address() {
    let nic = wire_nic(Config::default());
    let context = nic.open();
    let address = call(&context, &QueryRoceAddress::default()).unwrap().address;
    assert_eq!((address.source_l3_address, address.source_mac), (nic.gid(), nic.mac()));
    assert_eq!(address.roce_version, RoceVersion::V2);
    assert_eq!(nic.gid()[10..12], [0xff, 0xff]);
    assert_eq!(nic.gid()[12..], nic.address().ip().octets());
    assert_eq!(nic.mac(), [2, 0x52, 0x4d, 0, 0x12, 0xb7], "port 4791");
    let second = QueryRoceAddress { roce_address_index: 1, ..QueryRoceAddress::default() };
    assert_eq!(status(call(&context, &second)), CmdStatus::BAD_PARAM);
}

#[test]
fn path_mtu_fits_the_link() {
    let nic = wire_nic(Config::default());
    assert_eq!(nic.path_mtu([127, 0, 0, 1].into()), Some(4096), "the loopback interface has room");
    assert_eq!(nic.path_mtu(*nic.address().ip()), Some(4096));
    let small = wire_nic(Config { mtu: 512, ..Config::default() });
    assert_eq!(small.path_mtu([127, 0, 0, 1].into()), Some(512));
    assert_eq!(nic.path_mtu([192, 0, 2, 1].into()), None, "a loopback address reaches no other machine");
}

#[test]
fn transitions_start_from_their_state_only() {
    let nic = loopback_nic();
    let (a, peer) = (Pe::new(&nic, Setup::default()), Pe::new(&nic, Setup::default()));
    let qpn = a.qpn;
    struct Step<'s> {
        name: &'static str,
        from: QpState,
        run: &'s dyn Fn() -> Result<(), CmdError>,
    }
    let rtr = a.init2rtr(&peer);
    let steps = [
        Step {
            name: "RST2INIT",
            from: QpState::RST,
            run: &|| call(&a.context, &Rst2Init { qpn, ..Rst2Init::default() }).map(drop),
        },
        Step {
            name: "INIT2INIT",
            from: QpState::INIT,
            run: &|| call(&a.context, &Init2Init { qpn, ..Init2Init::default() }).map(drop),
        },
        Step { name: "INIT2RTR", from: QpState::INIT, run: &|| call(&a.context, &rtr).map(drop) },
        Step {
            name: "RTR2RTS",
            from: QpState::RTR,
            run: &|| call(&a.context, &Rtr2Rts { qpn, ..Rtr2Rts::default() }).map(drop),
        },
        Step {
            name: "RTS2RTS",
            from: QpState::RTS,
            run: &|| call(&a.context, &Rts2Rts { qpn, ..Rts2Rts::default() }).map(drop),
        },
    ];
    // In every state, transitions from any other state are refused.
    let walk: [(QpState, Option<usize>); 4] =
        [(QpState::RST, Some(0)), (QpState::INIT, Some(2)), (QpState::RTR, Some(3)), (QpState::RTS, None)];
    for (state, onward) in walk {
        assert_eq!(a.query().state, state);
        for Step { name, from, run } in &steps {
            if *from != state {
                assert_eq!(status(run()), CmdStatus::BAD_QP_STATE, "{name} in {state}");
                assert_eq!(a.query().state, state);
            }
        }
        if let Some(next) = onward {
            (steps[next].run)().unwrap();
        }
    }
    call(&a.context, &ToErr { qpn, ..ToErr::default() }).unwrap();
    assert_eq!(a.query().state, QpState::ERR);
    for Step { name, run, .. } in &steps {
        assert_eq!(status(run()), CmdStatus::BAD_QP_STATE, "{name} in ERR");
    }
    call(&a.context, &ToRst { qpn, ..ToRst::default() }).unwrap();
    assert_eq!(a.query().state, QpState::RST);
}

#[test]
fn reset_qp_can_connect_again() {
    let nic = loopback_nic();
    let (mut a, mut b) = pair(&nic, &nic, Setup::default());
    let bad = Wqe::Write { raddr: 0, rkey: 0, laddr: 0, lkey: a.key, len: 1 };
    a.fail(&bad);
    for pe in [&mut a, &mut b] {
        call(&pe.context, &ToRst { qpn: pe.qpn, ..ToRst::default() }).unwrap();
        pe.producer = 0;
        pe.records.store_u32(4, 0);
    }
    a.connect(&b);
    b.connect(&a);
    a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(4) });
    assert_eq!(b.heap.load_u32(0), 4);
}

#[test]
fn query_returns_attributes_and_counters() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup { psn: 0xff_fffe, ..Setup::default() });
    for i in 0..3 {
        a.run(&Wqe::WriteInline { raddr: 0, rkey: b.key, data: Inline::from_u32(i) });
    }
    let context = a.query();
    assert_eq!((context.state, context.remote_qpn, context.mtu), (QpState::RTS, b.qpn, Mtu::B1024));
    assert_eq!((context.hw_sq_wqebb_counter, context.sw_sq_wqebb_counter), (3, 3));
    assert_eq!((context.next_send_psn, b.query().next_rcv_psn), (1, 1), "packet numbers have 24 bits");
    assert_eq!((context.pd, context.cqn_snd, context.user_index), (a.pd, a.cqn, 0x77));
    assert!(context.rre && context.rwe && context.rae);
    assert_eq!((context.retry_count, context.primary_address_path.ack_timeout), (7, 14));
}

#[test]
fn optional_fields_count_only_with_their_bit() {
    let nic = loopback_nic();
    let (a, _) = pair(&nic, &nic, Setup::default());
    let context = QpContext { retry_count: 3, ..QpContext::default() };
    let change = Rts2Rts { qpn: a.qpn, context, ..Rts2Rts::default() };
    call(&a.context, &change).unwrap();
    assert!(a.query().rwe && a.query().retry_count == 7);
    let opt_param_mask = opt_param::RWE | opt_param::RETRY_COUNT;
    call(&a.context, &Rts2Rts { opt_param_mask, ..change }).unwrap();
    let now = a.query();
    assert!(!now.rwe && now.rre && now.retry_count == 3);
}

#[test]
fn ece_options_are_offered_only_on_request() {
    let nic = loopback_nic();
    let a = Pe::new(&nic, Setup::default());
    let create = |ece| call(&a.context, &CreateQp { ece, ..another_qp(&a) }).unwrap();
    let [silent, asked, all] = [0, ECE_VERSION_1, ECE_VERSION_1].map(create);
    assert_eq!(silent.ece, 0);
    assert!(asked.ece > ECE_VERSION_1, "{:#x}", asked.ece);
    let connect = |qpn, ece| {
        call(&a.context, &Rst2Init { qpn, ..Rst2Init::default() }).unwrap();
        call(&a.context, &Init2Rtr { qpn, ece, ..a.init2rtr(&a) }).map(|out| out.ece)
    };
    assert_eq!(connect(asked.qpn, asked.ece), Ok(asked.ece));
    assert_eq!(connect(all.qpn, !1), Ok(asked.ece & !1), "options that were not offered are ignored");
    assert_eq!(status(connect(silent.qpn, asked.ece)), CmdStatus::BAD_PARAM, "options that were not offered");
}

#[test]
fn a_qp_names_its_port_of_a_bond() {
    struct Case {
        bond: u8,
        port: u8,
        names: bool,
        expected: Option<u8>,
    }
    for Case { bond, port, names, expected } in [
        Case { bond: 1, port: 1, names: false, expected: Some(0) },
        Case { bond: 2, port: 2, names: true, expected: Some(2) },
        Case { bond: 2, port: 3, names: true, expected: None },
        Case { bond: 2, port: 0, names: true, expected: None },
        Case { bond: 1, port: 1, names: true, expected: Some(1) },
    ] {
        let nic = Nic::start(Config { bond, ..Config::default() }).unwrap();
        let a = Pe::new(&nic, Setup::default());
        let lag = call(&a.context, &QueryLag::default()).unwrap();
        assert_eq!(lag.lag_state != 0, bond > 1);
        a.to_init();
        let mut command = a.init2rtr(&a);
        command.context.lag_tx_port_affinity = port;
        command.opt_param_mask |= if names { opt_param::LAG_TX_AFF } else { 0 };
        let outcome = call(&a.context, &command);
        let found = outcome.ok().map(|_| a.query().lag_tx_port_affinity);
        assert_eq!(found, expected, "port {port} of {bond}");
    }
}

#[test]
fn a_counter_set_counts_the_losses_of_its_qps() {
    let faults = Faults { drop: 0.2, ..Faults::default() };
    let (x, y) = (wire_nic(Config { faults, ..Config::default() }), wire_nic(Config::default()));
    let (mut a, b) = (Pe::new(&x, Setup::default()), Pe::new(&y, Setup::default()));
    let driver = y.open();
    let set = call(&driver, &AllocQCounter::default()).unwrap().counter_set_id;
    let query = QueryQCounter { counter_set_id: set, ..QueryQCounter::default() };
    let count = |context| call(context, &query).map(|counts| counts.out_of_sequence);
    let init = |counter_set_id| {
        let context = QpContext { counter_set_id, rwe: true, ..QpContext::default() };
        Rst2Init { qpn: b.qpn, context, ..Rst2Init::default() }
    };
    assert_eq!(status(call(&b.context, &init(set + 1))), CmdStatus::BAD_RES);
    assert_eq!((count(&driver), status(count(&b.context))), (Ok(0), CmdStatus::BAD_RES));
    // The user's QP names the driver's set, like verbs QPs on Linux.
    a.connect(&b);
    call(&b.context, &init(set)).unwrap();
    call(&b.context, &b.init2rtr(&a)).unwrap();
    a.fill(0, &pattern(100_000, 1));
    a.run(&Wqe::Write { raddr: 0, rkey: b.key, laddr: 0, lkey: a.key, len: 100_000 });
    assert!(count(&driver).unwrap() > 0 && y.stats().out_of_order > 0);
    let dealloc = DeallocQCounter { counter_set_id: set, ..DeallocQCounter::default() };
    assert_eq!(status(call(&driver, &dealloc)), CmdStatus::RES_BUSY);
    call(&b.context, &DestroyQp { qpn: b.qpn, ..DestroyQp::default() }).unwrap();
    call(&driver, &dealloc).unwrap();
}

#[test]
fn objects_in_use_cannot_be_destroyed() {
    let nic = loopback_nic();
    let a = Pe::new(&nic, Setup::default());
    let (pd, cqn, qpn, mkey_index) = (a.pd, a.cqn, a.qpn, a.key >> 8);
    let context = &a.context;
    let dealloc = DeallocPd { pd, ..DeallocPd::default() };
    let destroy_cq = DestroyCq { cqn, ..DestroyCq::default() };
    let destroy_qp = DestroyQp { qpn, ..DestroyQp::default() };
    let destroy_mkey = DestroyMkey { mkey_index, ..DestroyMkey::default() };

    assert_eq!(status(call(context, &dealloc)), CmdStatus::RES_BUSY);
    assert_eq!(status(call(context, &destroy_cq)), CmdStatus::RES_BUSY);
    let used = context.umem_dereg(a.heap_umem);
    assert!(matches!(used, Err(Error::InUse { kind: "umem", users: 1, .. })), "{used:?}");
    assert!(matches!(context.free_uar(a.uar.page_id), Err(Error::InUse { users: 3, .. })));

    call(context, &destroy_qp).unwrap();
    assert_eq!(status(call(context, &destroy_qp)), CmdStatus::BAD_RES);
    call(context, &destroy_cq).unwrap();
    call(context, &DestroyCq { cqn: a.recv_cqn, ..DestroyCq::default() }).unwrap();
    assert_eq!(status(call(context, &dealloc)), CmdStatus::RES_BUSY, "the key is still there");
    call(context, &destroy_mkey).unwrap();
    call(context, &dealloc).unwrap();
    context.umem_dereg(a.heap_umem).unwrap();
    assert!(matches!(context.umem_dereg(a.heap_umem), Err(Error::Unknown { kind: "umem", .. })));
    context.free_uar(a.uar.page_id).unwrap();
}

#[test]
fn a_new_queue_pair_has_an_mtu() {
    let nic = loopback_nic();
    let a = Pe::new(&nic, Setup::default());
    assert_eq!((a.query().state, a.query().mtu), (QpState::RST, Mtu::B256));
}

#[test]
fn objects_belong_to_their_context() {
    let nic = loopback_nic();
    let a = Pe::new(&nic, Setup::default());
    let stranger = nic.open();
    let (qpn, cqn, pd) = (a.qpn, a.cqn, a.pd);
    assert_eq!(status(call(&stranger, &ToErr { qpn, ..ToErr::default() })), CmdStatus::BAD_RES);
    assert_eq!(status(call(&stranger, &DestroyQp { qpn, ..DestroyQp::default() })), CmdStatus::BAD_RES);
    assert_eq!(status(call(&stranger, &DestroyCq { cqn, ..DestroyCq::default() })), CmdStatus::BAD_RES);
    assert_eq!(status(call(&stranger, &DeallocPd { pd, ..DeallocPd::default() })), CmdStatus::BAD_RES);
    assert!(stranger.umem_dereg(a.heap_umem).is_err());
    assert_eq!(a.query().state, QpState::RST);
}

#[test]
fn closing_a_context_destroys_its_objects() {
    let nic = loopback_nic();
    let (mut a, b) = pair(&nic, &nic, Setup { ack_timeout: 10, retry_count: 0, ..Setup::default() });
    let (key, heap) = (b.key, Arc::downgrade(&b.heap));
    drop(b);
    assert!(heap.upgrade().is_none(), "the adapter lets go of the memory");
    let wqe = Wqe::WriteInline { raddr: 0, rkey: key, data: Inline::from_u32(1) };
    assert_eq!(a.fail(&wqe), rushmem_mlx5::Syndrome::TRANSPORT_RETRY_EXC_ERR);
}

/// Returns the command that creates another QP of `a`, with queues in its heap.
fn another_qp(a: &Pe) -> CreateQp {
    CreateQp {
        wq_umem_id: a.heap_umem,
        wq_umem_valid: true,
        context: QpContext {
            pd: a.pd,
            uar_page: a.uar.page_id,
            cqn_snd: a.cqn,
            log_sq_size: 4,
            rq_type: RqType::ZERO_SIZE,
            dbr_umem_valid: true,
            dbr_umem_id: a.heap_umem,
            dbr_addr: 8192,
            ..QpContext::default()
        },
        ..CreateQp::default()
    }
}

#[test]
fn queues_without_doorbell_record_share_no_page() {
    let nic = nic_without_records();
    let a = Pe::new(&nic, Setup { no_record: true, ..Setup::default() });
    let create = |send_dbr_mode| {
        let command = another_qp(&a);
        let context = QpContext { send_dbr_mode, ..command.context };
        call(&a.context, &CreateQp { context, ..command })
    };
    assert_eq!(status(create(SEND_NO_DBR)), CmdStatus::BAD_PARAM);
    create(SEND_DBR).unwrap();
    // Only modes 0 and 1 exist.
    assert_eq!(status(create(2)), CmdStatus::BAD_PARAM);
}

#[test]
fn unsupported_features_are_refused_by_name() {
    let nic = loopback_nic();
    let a = Pe::new(&nic, Setup::default());
    let good = another_qp(&a);
    call(&a.context, &good).unwrap();
    type Change = fn(&mut CreateQp);
    let bad: [(CmdStatus, Change); 14] = [
        (CmdStatus::BAD_PARAM, |c| c.context.st = ServiceType::DCT),
        (CmdStatus::BAD_PARAM, |c| c.context.st = ServiceType::REG_UMR),
        (CmdStatus::BAD_PARAM, |c| c.context.st = ServiceType::QP0),
        (CmdStatus::BAD_PARAM, |c| c.context.st = ServiceType::QP1),
        // No such SRQ.
        (CmdStatus::BAD_RES, |c| c.context.rq_type = RqType::SRQ),
        (CmdStatus::BAD_PARAM, |c| c.context.send_dbr_mode = 1),
        (CmdStatus::BAD_PARAM, |c| c.wq_umem_valid = false),
        (CmdStatus::BAD_PARAM, |c| c.wq_umem_offset = 32),
        (CmdStatus::BAD_PARAM, |c| c.wq_umem_offset = (1 << 20) - 64),
        (CmdStatus::BAD_PARAM, |c| c.wq_umem_offset = u64::MAX - 63),
        (CmdStatus::BAD_RES, |c| c.context.pd += 77),
        (CmdStatus::BAD_RES, |c| c.context.cqn_snd += 77),
        (CmdStatus::BAD_RES, |c| c.context.uar_page += 77),
        (CmdStatus::BAD_RES, |c| c.context.dbr_umem_id += 77),
    ];
    for (i, (expected, change)) in bad.into_iter().enumerate() {
        let mut command = good;
        change(&mut command);
        assert_eq!(status(call(&a.context, &command)), expected, "change {i}");
    }

    let mkc = MkeyContext { pd: a.pd, len: 64, ..MkeyContext::default() };
    let key = |mode| CreateMkey {
        umem_valid: true,
        umem_id: a.heap_umem,
        context: mkc.with_access_mode(mode),
        ..CreateMkey::default()
    };
    call(&a.context, &key(AccessMode::MTT)).unwrap();
    assert_eq!(status(call(&a.context, &key(AccessMode::KSM))), CmdStatus::BAD_PARAM);
    let mut wraps = key(AccessMode::MTT);
    wraps.context.start_addr = u64::MAX - 10;
    assert_eq!(status(call(&a.context, &wraps)), CmdStatus::BAD_PARAM);
    let outside = CreateMkey { umem_offset: (1 << 20) - 63, ..key(AccessMode::MTT) };
    assert_eq!(status(call(&a.context, &outside)), CmdStatus::BAD_PARAM);
}

#[test]
fn unreachable_paths_are_refused() {
    let nic = loopback_nic();
    let (a, peer) = (Pe::new(&nic, Setup::default()), Pe::new(&nic, Setup::default()));
    a.to_init();
    let good = a.init2rtr(&peer);
    let refused = |change: fn(&mut Init2Rtr)| {
        let mut command = good;
        change(&mut command);
        reason(call(&a.context, &command).expect_err("must be refused").syndrome).unwrap()
    };
    assert!(refused(|c| c.context.primary_address_path.rgid_rip = [0xfe; 16]).contains("IPv4"));
    assert!(refused(|c| c.context.primary_address_path.rgid_rip[15] ^= 1).contains("without a fabric"));
    assert!(refused(|c| c.context.mtu = Mtu(7)).contains("MTU"));
    assert!(refused(|c| c.context.log_msg_max = 31).contains("log_msg_max"));
    call(&a.context, &good).unwrap();
}

#[test]
fn unknown_commands_and_short_mailboxes() {
    let nic = loopback_nic();
    let context = nic.open();
    for (input, expected) in [
        (vec![], CmdStatus::BAD_INP_LEN),
        (vec![4, 0, 0, 0, 0, 0, 0, 0], CmdStatus::BAD_INP_LEN),
        (vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], CmdStatus::BAD_OP),
    ] {
        let mut output = [0xaa; 16];
        context.command(&input, &mut output);
        assert_eq!(output[0], expected.0);
        assert!(output[8..].iter().all(|byte| *byte == 0));
    }
    assert_eq!(CmdOpcode::CREATE_CQ.0, 0x400);
    // A short output mailbox truncates the answer.
    let mut output = [0xaa; 8];
    context.command(&AllocPd::default().encode(), &mut output);
    assert_eq!(output, [0; 8]);
    context.command(&AllocPd::default().encode(), &mut []);
}

#[test]
fn umems_must_lie_in_their_memory() {
    let nic = loopback_nic();
    let context = nic.open();
    let memory = Arc::new(HostBuffer::new(4096));
    let reg = |offset, len| context.umem_reg(Arc::clone(&memory) as _, offset, len);
    assert!(reg(0, 4096).is_ok());
    for (offset, len) in [(1, 4096), (u64::MAX, 2), (0, 0)] {
        assert!(matches!(reg(offset, len), Err(Error::UmemRange { .. })));
    }
}

#[test]
fn rejects_settings_out_of_range() {
    let bad = [
        Config { mtu: 1500, ..Config::default() },
        Config { window: 1, ..Config::default() },
        Config { faults: rushmem_softnic::Faults { drop: 1.5, ..Default::default() }, ..Config::default() },
    ];
    for (config, name) in bad.into_iter().zip(["mtu", "window", "faults.drop"]) {
        let error = rushmem_softnic::Nic::start(config).err().expect("out of range").to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn second_adapter_on_the_same_address_fails() {
    let first = wire_nic(Config::default());
    let config = Config { ip: (*first.address().ip()).into(), ..Config::default() };
    let error = rushmem_softnic::Nic::start(config).err().expect("taken").to_string();
    assert!(error.contains("cannot bind"), "{error}");
}

#[test]
fn numbers_start_at_random_places() {
    let first = |numbers| {
        let nic = wire_nic(Config { numbers, ..Config::default() });
        let end = Pe::new(&nic, Setup::default());
        (end.qpn, end.key)
    };
    assert_eq!(first(Numbers::Lowest), first(Numbers::Lowest));
    let (a, b) = (first(Numbers::Random), first(Numbers::Random));
    assert!(a.0 != b.0 && a.1 >> 8 != b.1 >> 8, "{a:x?} {b:x?}");
}
