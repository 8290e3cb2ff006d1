//! The DC transport: a few initiators (DCIs) of a PE reach the targets (DCTs) of all peers.
//!
//! A rail has one target, shared by the initiators of all peers. Its number and key are exchanged in the allgather at
//! start-up. An initiator therefore needs no handshake: it is usable as soon as it exists, and the address vector in
//! each WQE contains the target's address.

use rushmem_error::{NicError, Result};
use rushmem_machine::Region;
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::be::{Be16, Be32};
use rushmem_mlx5::prm::{cq, dct, qp, rmp};

use super::shape::CQE_BYTES;
use crate::provider::{LinkLayer, Object, PortAddress, Provider, QUEUE_ALIGN, Umem, create, random};

/// log2 of the number of entries in a DC target's CQ and receive queue. Both stay empty, since peers never send
/// messages.
const LOG_ENTRIES: u8 = 2;
/// log2 of the size of a receive queue entry, in bytes.
const LOG_STRIDE: u8 = 4;
/// Offset of the CQ in the memory of a DC target.
const CQ_AT: u64 = 0;
const RECORD_AT: u64 = QUEUE_ALIGN;
const CQ_RECORD_AT: u64 = RECORD_AT + 64;
const BYTES: u64 = 2 * QUEUE_ALIGN;

/// The address of a DC target: its number on its NIC, and the access key that initiators must present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    pub dctn: u32,
    pub key: u64,
}

/// The DC target of a rail, with the queues that the NIC requires for it. Fields drop in order.
pub(super) struct Target {
    _dct: Box<dyn Object>,
    _rmp: Box<dyn Object>,
    _cq: Box<dyn Object>,
    _receives: Box<dyn Umem>,
    _queues: Box<dyn Umem>,
    _memory: [Region; 2],
    pub(super) address: TargetAddress,
}

/// IDs of the NIC objects that a DC target refers to.
pub(super) struct Parents {
    pub(super) pd: u32,
    pub(super) uar_page: u32,
    pub(super) eqn: u8,
}

impl Target {
    /// Creates a DC target that every PE of the job may read, write and update with atomics.
    ///
    /// # Errors
    /// Fails if the NIC refuses a command.
    pub(super) fn new(nic: &dyn Provider, Parents { pd, uar_page, eqn }: Parents) -> Result<Self> {
        // Never polled or posted to, so ordinary memory of the process will do.
        let (memory, receive_memory) = (Region::host(BYTES)?, Region::host(QUEUE_ALIGN)?);
        memory.write(CQ_AT, &[0xff; CQE_BYTES as usize * (1 << LOG_ENTRIES)])?;
        let (queues, receives) = (nic.umem_reg(&memory)?, nic.umem_reg(&receive_memory)?);
        let (cq, cqn) = create_cq(nic, queues.id(), uar_page, eqn)?;
        let (rmp, rmpn) = create_rmp(nic, pd, queues.id(), receives.id())?;
        // Never 0, which stands for "no target" on the wire. Random, to keep other jobs on the fabric from guessing it.
        let key = (u64::from(random()?) << 32 | u64::from(random()?)) | 1;
        let (dct, dctn) = create_dct(nic, pd, cqn, rmpn, key)?;
        Ok(Self {
            _dct: dct,
            _rmp: rmp,
            _cq: cq,
            _receives: receives,
            _queues: queues,
            _memory: [memory, receive_memory],
            address: TargetAddress { dctn, key },
        })
    }
}

/// Creates the CQ of a DC target in the umem `queues`.
fn create_cq(
    nic: &dyn Provider,
    queues: u32,
    uar_page: u32,
    eqn: u8,
) -> Result<(Box<dyn Object>, u32), NicError> {
    let context = cq::CqContext {
        dbr_umem_valid: true,
        dbr_umem_id: queues,
        dbr_addr: CQ_RECORD_AT,
        oi: true,
        c_eqn: eqn,
        log_cq_size: LOG_ENTRIES,
        uar_page,
        ..Default::default()
    };
    let command =
        cq::CreateCq { context, umem_offset: CQ_AT, umem_id: queues, umem_valid: true, ..Default::default() };
    let (object, made) = create(nic, &command)?;
    Ok((object, made.cqn))
}

/// Creates the RMP (the shared receive queue) of a DC target: its entries in the umem `receives`, and its doorbell
/// record in the umem `queues`.
fn create_rmp(
    nic: &dyn Provider,
    pd: u32,
    queues: u32,
    receives: u32,
) -> Result<(Box<dyn Object>, u32), NicError> {
    let wq = rmp::Wq {
        wq_type: rmp::WqType::CYCLIC,
        pd,
        dbr_addr: RECORD_AT,
        log_wq_stride: LOG_STRIDE,
        log_wq_sz: LOG_ENTRIES,
        dbr_umem_valid: true,
        dbr_umem_id: queues,
        wq_umem_valid: true,
        wq_umem_id: receives,
        ..Default::default()
    };
    let context = rmp::RmpContext { state: rmp::RmpState::RDY, basic_cyclic_rcv_wqe: true, wq };
    let (object, made) = create(nic, &rmp::CreateRmp { context, ..Default::default() })?;
    Ok((object, made.rmpn))
}

fn create_dct(
    nic: &dyn Provider,
    pd: u32,
    cqn: u32,
    rmpn: u32,
    key: u64,
) -> Result<(Box<dyn Object>, u32), NicError> {
    let (path, mtu) = nic.path(&nic.port())?;
    let context = dct::DctContext {
        cqn,
        counter_set_id: nic.counter_set(),
        atomic_mode: qp::AtomicMode::UP_TO_8B,
        rre: true,
        rwe: true,
        rae: true,
        min_rnr_nak: 12,
        srqn_xrqn: rmpn,
        pd,
        tclass: path.tclass,
        dc_access_key: key,
        mtu,
        port: path.vhca_port_num,
        pkey_index: path.pkey_index,
        my_addr_index: path.src_addr_index,
        hop_limit: path.hop_limit,
        eth_prio: path.eth_prio,
        ecn: path.ecn,
        dscp: path.dscp,
        ..Default::default()
    };
    let (object, made) = create(nic, &dct::CreateDct { context, ..Default::default() })?;
    Ok((object, made.dctn))
}

/// Returns the address vector of a target at port `peer`, for initiators of `nic`.
///
/// # Errors
/// [`NicError::NoPath`] if there is no path to the peer.
pub(super) fn address_vector(
    nic: &dyn Provider,
    peer: &PortAddress,
    target: TargetAddress,
) -> Result<AvSeg, NicError> {
    let (path, _) = nic.path(peer)?;
    let ethernet = peer.link == LinkLayer::Ethernet;
    // A GRH is mandatory on Ethernet, and optional within an InfiniBand subnet.
    let route = AvSeg::GRH | u32::from(path.src_addr_index) << 20 | path.flow_label;
    let av = AvSeg {
        stat_rate_sl: path.stat_rate << 4 | if ethernet { path.eth_prio << 1 } else { path.sl },
        fl_mlid: path.mlid,
        // On Ethernet, this field has the UDP source port.
        rlid: Be16::new(if ethernet { path.udp_sport } else { path.rlid }),
        rmac: path.rmac,
        tclass: if ethernet { path.dscp << 2 | path.ecn } else { path.tclass },
        hop_limit: path.hop_limit,
        grh_gid_fl: Be32::new(if ethernet || path.grh { route } else { 0 }),
        rgid: path.rgid_rip,
        ..Default::default()
    };
    Ok(av.to_dct(target.dctn, target.key))
}
