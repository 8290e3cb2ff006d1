//! Tests of commands for receive memory pools, and of memory keys that map other keys.

use crate::script::{Pe, Setup, call, loopback_nic, pattern};
use rushmem_mlx5::Wqe;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::mkey::{AccessMode, CreateMkey, CreateMkeyOut, Klm, MkeyContext, key};
use rushmem_mlx5::prm::rmp::{CreateRmp, DestroyRmp, ModifyRmp, QueryRmp, RmpContext, RmpState, Wq, WqType};

#[test]
fn a_pool_has_a_limit_and_an_owner() {
    let nic = loopback_nic();
    let (a, b) = (Pe::new(&nic, Setup::default()), Pe::new(&nic, Setup::default()));
    let wq = Wq {
        wq_type: WqType::LINKED_LIST,
        lwm: 3,
        pd: a.pd,
        log_wq_stride: 6,
        log_wq_sz: 4,
        dbr_umem_valid: true,
        wq_umem_valid: true,
        dbr_umem_id: a.heap_umem,
        dbr_addr: 4096,
        wq_umem_id: a.heap_umem,
        ..Wq::default()
    };
    let create = |wq| {
        let context = RmpContext { state: RmpState::RDY, wq, ..RmpContext::default() };
        call(&a.context, &CreateRmp { context, ..CreateRmp::default() }).map(|out| out.rmpn)
    };
    let rmpn = create(wq).unwrap();
    let context = || call(&a.context, &QueryRmp { rmpn, ..QueryRmp::default() }).unwrap().context;
    assert_eq!(context().wq, Wq { dbr_addr: 0, ..wq });
    let lwm = RmpContext { wq: Wq { lwm: 7, ..wq }, ..context() };
    let modify = ModifyRmp { rmpn, lwm: true, context: lwm, ..ModifyRmp::default() };
    call(&a.context, &modify).unwrap();
    assert_eq!(context().wq.lwm, 7);

    let status = |wq| create(wq).unwrap_err().status;
    assert_eq!(status(Wq { pd: b.pd, ..wq }), CmdStatus::BAD_RES);
    assert_eq!(status(Wq { wq_type: WqType(2), ..wq }), CmdStatus::BAD_PARAM);
    assert_eq!(status(Wq { log_wq_sz: 16, ..wq }), CmdStatus::BAD_PARAM);
    assert_eq!(status(Wq { log_wq_stride: 4, ..wq }), CmdStatus::BAD_PARAM);
    assert_eq!(status(Wq { dbr_addr: 1 << 20, ..wq }), CmdStatus::BAD_PARAM);
    let destroy = DestroyRmp { rmpn, ..DestroyRmp::default() };
    assert_eq!(call(&b.context, &destroy).unwrap_err().status, CmdStatus::BAD_RES);
    call(&a.context, &destroy).unwrap();
    assert_eq!(call(&a.context, &destroy).unwrap_err().status, CmdStatus::BAD_RES);
}

/// Creates an indirect memory key from these entries, with addresses from `start` on.
fn indirect(pe: &Pe, mode: AccessMode, start: u64, len: u64, entries: &[Klm]) -> Result<u32, CmdStatus> {
    let context = MkeyContext {
        rw: true,
        rr: true,
        lw: true,
        lr: true,
        qpn: MkeyContext::ANY_QP,
        mkey_7_0: 9,
        pd: pe.pd,
        start_addr: start,
        len,
        log_page_size: 16,
        ..MkeyContext::default()
    };
    let command = CreateMkey {
        context: context.with_access_mode(mode),
        translations_octword_actual_size: entries.len() as u32,
        ..CreateMkey::default()
    };
    let mut input = command.encode().to_vec();
    for entry in entries {
        let mut bytes = [0; Klm::LEN];
        entry.write(&mut bytes);
        input.extend(bytes);
    }
    let mut output = [0; CreateMkeyOut::LEN];
    pe.context.command(&input, &mut output);
    match CreateMkeyOut::decode(&output) {
        Ok(out) => Ok(key(out.mkey_index, 9)),
        Err(rushmem_mlx5::prm::DecodeError::Refused(error)) => Err(error.status),
        Err(other) => panic!("{other}"),
    }
}

/// Writes through memory keys that map another key, as UCX creates them to shift addresses by a constant.
#[test]
fn a_key_over_a_key_shifts_addresses() {
    let nic = loopback_nic();
    let mut pe = Pe::new(&nic, Setup { start: 0x7000_1000, ..Setup::default() });
    pe.connect_to_itself();
    let size = 1 << 16;
    // The entries start before the memory, at a multiple of their size.
    let mkey = pe.key;
    let entry = |address| Klm { byte_count: size, mkey, address };
    let entries = [entry(0x7000_0000), entry(0x7001_0000)];
    let shifted = indirect(&pe, AccessMode::KSM, 0x7000_0608, 2 * u64::from(size), &entries).unwrap();
    let by_length = indirect(&pe, AccessMode::KLM, 0, 4096, &[entry(0x7000_1000)]).unwrap();

    let data = pattern(64, 3);
    pe.fill(0, &data);
    let (laddr, lkey, len) = (0x7000_1000, pe.key, 64);
    pe.run(&Wqe::Write { raddr: 0x7000_1608 + 1000, rkey: shifted, laddr, lkey, len });
    pe.run(&Wqe::Write { raddr: 2000, rkey: by_length, laddr, lkey, len });
    assert_eq!((pe.bytes(1000, 64), pe.bytes(2000, 64)), (data.clone(), data));

    let apart = [entry(0x7000_0000), entry(0x7002_0000)];
    let status = indirect(&pe, AccessMode::KSM, 0, 2 * u64::from(size), &apart);
    assert_eq!(status, Err(CmdStatus::BAD_PARAM));
    assert_eq!(indirect(&pe, AccessMode::KSM, 0, 3 << 16, &entries), Err(CmdStatus::BAD_PARAM));
    assert_eq!(indirect(&pe, AccessMode::KLM, 0, 16, &[]), Err(CmdStatus::BAD_PARAM));
    let unknown = Klm { mkey: pe.key ^ 1, ..entries[0] };
    assert_eq!(indirect(&pe, AccessMode::KLM, 0, 16, &[unknown]), Err(CmdStatus::BAD_RES));
}
