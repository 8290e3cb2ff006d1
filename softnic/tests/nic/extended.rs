//! Tests of commands for extended connections (XRC): domains, their SRQs, targets.

use crate::script::{Pe, Setup, call, loopback_nic};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::cq::DestroyCq;
use rushmem_mlx5::prm::qp::{CreateQp, DestroyQp, QpContext, QpState, QueryQp, RqType, ServiceType};
use rushmem_mlx5::prm::rmp::QueryRmp;
use rushmem_mlx5::prm::xrc::{
    AllocXrcd, ArmXrcSrq, CreateXrcSrq, DeallocXrcd, DestroyXrcSrq, QueryXrcSrq, XrcSrqContext,
};

#[test]
fn a_queue_has_a_limit_an_owner_and_a_domain() {
    let nic = loopback_nic();
    let (a, b) = (Pe::new(&nic, Setup::default()), Pe::new(&nic, Setup::default()));
    // Contexts share XRC domains.
    let xrcd = call(&b.context, &AllocXrcd::default()).unwrap().xrcd;
    let good = XrcSrqContext {
        log_xrc_srq_size: 4,
        log_rq_stride: 2,
        xrcd,
        dbr_umem_valid: true,
        cqn: a.recv_cqn,
        dbr_umem_id: a.heap_umem,
        user_index: 0x77,
        pd: a.pd,
        lwm: 3,
        dbr_addr: 4096,
        ..XrcSrqContext::default()
    };
    let create = |context| {
        let command =
            CreateXrcSrq { context, umem_id: a.heap_umem, umem_valid: true, ..CreateXrcSrq::default() };
        call(&a.context, &command).map(|out| out.xrc_srqn)
    };
    let xrc_srqn = create(good).unwrap();
    let query = || call(&a.context, &QueryXrcSrq { xrc_srqn, ..QueryXrcSrq::default() }).unwrap().context;
    assert_eq!(query(), XrcSrqContext { dbr_addr: 0, ..good });
    let arm = ArmXrcSrq { op_mod: ArmXrcSrq::XRC_SRQ, xrc_srqn, lwm: 7, ..ArmXrcSrq::default() };
    call(&a.context, &arm).unwrap();
    assert_eq!(query().lwm, 7);

    let status = |context| create(context).unwrap_err().status;
    assert_eq!(status(XrcSrqContext { pd: b.pd, ..good }), CmdStatus::BAD_RES);
    assert_eq!(status(XrcSrqContext { cqn: b.recv_cqn, ..good }), CmdStatus::BAD_RES);
    assert_eq!(status(XrcSrqContext { xrcd: xrcd + 77, ..good }), CmdStatus::BAD_RES);
    assert_eq!(status(XrcSrqContext { log_rq_stride: 0, ..good }), CmdStatus::BAD_PARAM);
    assert_eq!(status(XrcSrqContext { wq_signature: true, ..good }), CmdStatus::BAD_PARAM);
    assert_eq!(status(XrcSrqContext { dbr_addr: 1 << 20, ..good }), CmdStatus::BAD_PARAM);
    // It cannot be used as a receive memory pool.
    let as_pool = QueryRmp { rmpn: xrc_srqn, ..QueryRmp::default() };
    assert_eq!(call(&a.context, &as_pool).unwrap_err().status, CmdStatus::BAD_RES);

    let dealloc = DeallocXrcd { xrcd, ..DeallocXrcd::default() };
    let destroy_cq = DestroyCq { cqn: a.recv_cqn, ..DestroyCq::default() };
    assert_eq!(call(&b.context, &dealloc).unwrap_err().status, CmdStatus::RES_BUSY);
    assert_eq!(call(&a.context, &destroy_cq).unwrap_err().status, CmdStatus::RES_BUSY);
    let destroy = DestroyXrcSrq { xrc_srqn, ..DestroyXrcSrq::default() };
    assert_eq!(call(&b.context, &destroy).unwrap_err().status, CmdStatus::BAD_RES);
    call(&a.context, &destroy).unwrap();
    assert_eq!(call(&a.context, &dealloc).unwrap_err().status, CmdStatus::BAD_RES, "it is of the other");
    call(&b.context, &dealloc).unwrap();
    assert_eq!(call(&b.context, &dealloc).unwrap_err().status, CmdStatus::BAD_RES);
}

#[test]
fn a_target_needs_a_domain_and_nothing_else() {
    let nic = loopback_nic();
    let pe = Pe::new(&nic, Setup::default());
    let xrcd = call(&pe.context, &AllocXrcd::default()).unwrap().xrcd;
    let (st, rq_type) = (ServiceType::XRC, RqType::SRQ);
    let good = QpContext { st, no_sq: true, rq_type, pd: pe.pd, xrcd, ..QpContext::default() };
    let create = |context| call(&pe.context, &CreateQp { context, ..CreateQp::default() }).map(|out| out.qpn);
    let qpn = create(good).unwrap();
    let context = call(&pe.context, &QueryQp { qpn, ..QueryQp::default() }).unwrap().context;
    assert_eq!((context.st, context.xrcd, context.state), (ServiceType::XRC, xrcd, QpState::RST));

    let status = |context| create(context).unwrap_err().status;
    assert_eq!(status(QpContext { xrcd: xrcd + 77, ..good }), CmdStatus::BAD_RES);
    assert_eq!(status(QpContext { pd: pe.pd + 77, ..good }), CmdStatus::BAD_RES);
    assert_eq!(status(QpContext { rq_type: RqType::REGULAR, ..good }), CmdStatus::BAD_PARAM);
    let dealloc = DeallocXrcd { xrcd, ..DeallocXrcd::default() };
    assert_eq!(call(&pe.context, &dealloc).unwrap_err().status, CmdStatus::RES_BUSY);
    call(&pe.context, &DestroyQp { qpn, ..DestroyQp::default() }).unwrap();
    call(&pe.context, &dealloc).unwrap();
}
