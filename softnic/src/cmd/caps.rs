//! Commands by which a driver queries the adapter's capabilities and RoCE addresses.

use super::refuse::{Reason, refuse};
use super::{CmdResult, ethernet, require};
use crate::address::{gid_of, mac_of};
use crate::config::Config;
use crate::limits::{
    LOG_MAX_CQ, LOG_MAX_CQ_SIZE, LOG_MAX_EQ, LOG_MAX_EQ_SIZE, LOG_MAX_MSG, LOG_MAX_QP, LOG_MAX_QP_SIZE,
    LOG_MAX_UCTX, LOG_MAX_XRCD,
};
use crate::objects::groups::{LOG_MAX_GROUPS, MAX_MEMBERS};
use crate::roce;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::caps::{
    AtomicCaps, CapPage, CapType, GeneralCap2, HcaCap, PortType, QueryHcaCap, QueryHcaCapOut,
    QueryRoceAddress, QueryRoceAddressOut, RoceAddr, RoceCap, RoceVersion,
};
use rushmem_mlx5::prm::hca::{SetHcaCap, SetHcaCapOut};
use rushmem_mlx5::prm::lag::{QueryLag, QueryLagOut};
use rushmem_mlx5::prm::qp::ECE_VERSION_1;

/// Options of enhanced connection establishment (ECE): version 1, and two that do not affect packets.
const ECE: u32 = ECE_VERSION_1 | 3;

/// Returns the ECE options that CREATE_QP answers. As firmware, offers none unless the command names a version.
pub(super) fn offered_ece(asked: u32) -> u32 {
    if asked < ECE_VERSION_1 { 0 } else { ECE }
}

/// Frequency of the clock that timestamps CQEs, in kHz. It counts nanoseconds.
pub const CLOCK_KHZ: u32 = 1_000_000;

pub(super) fn query(path: &mut Datapath, context: u32, command: QueryHcaCap) -> CmdResult<QueryHcaCapOut> {
    let is_ethernet = path.objects.buses.contains_key(&context) && !path.config.infiniband;
    // Current and maximum capabilities are the same, because none can be switched.
    let page = match command.cap_type {
        CapType::GENERAL => CapPage::new(general(path, context)),
        CapType::GENERAL_2 => CapPage::new(GeneralCap2 {
            dp_ordering_force: true,
            send_dbr_mode_no_dbr_ext: path.config.no_record,
        }),
        CapType::ATOMIC => CapPage::new(atomic()),
        CapType::ROCE => CapPage::new(roce_cap(&path.config, is_ethernet)),
        CapType::ETHERNET_OFFLOADS if is_ethernet => CapPage::new(ethernet::offloads()),
        CapType::NIC_FLOW_TABLE if is_ethernet => CapPage::new(ethernet::flow_tables()),
        // Features that this adapter lacks, so every bit is zero.
        CapType::ODP
        | CapType::NIC_FLOW_TABLE
        | CapType::ESWITCH_FLOW_TABLE
        | CapType::ESWITCH
        | CapType::QOS
        | CapType::DEVICE_MEMORY => CapPage([0; 4096]),
        _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::CapPage)),
    };
    Ok(QueryHcaCapOut { page })
}

/// Executes QUERY_LAG, which reports whether the port is a bond.
pub(super) fn lag(path: &mut Datapath, _: u32, _: QueryLag) -> CmdResult<QueryLagOut> {
    Ok(QueryLagOut { lag_state: u8::from(path.config.bond > 1) })
}

/// Executes SET_HCA_CAP. A driver may lower limits, which does not change what the adapter accepts.
pub(super) fn set(path: &mut Datapath, context: u32, command: SetHcaCap) -> CmdResult<SetHcaCapOut> {
    let own = general(path, context);
    match command.cap_type {
        CapType::GENERAL => {
            let asked: HcaCap = command.page.get();
            // The other fields repeat what QUERY_HCA_CAP has reported.
            require(asked.log_max_qp <= own.log_max_qp, Reason::CapSet)?;
            let set = HcaCap { log_max_qp: asked.log_max_qp, ..own };
            require(asked == set, Reason::CapSet)?;
        }
        CapType::ATOMIC => {
            // The driver sets only the byte order.
            let asked: AtomicCaps = command.page.get();
            require(asked.atomic_req_8b_endianness_mode == 1, Reason::CapSet)?;
        }
        _ => return Err(refuse(CmdStatus::BAD_PARAM, Reason::CapSet)),
    }
    Ok(SetHcaCapOut {})
}

fn general(path: &Datapath, context: u32) -> HcaCap {
    let config = &path.config;
    let is_function = path.objects.buses.contains_key(&context);
    let caps = HcaCap {
        hca_cap_2: true,
        vhca_id: 1,
        qp_data_in_order: true,
        log_max_qp_sz: LOG_MAX_QP_SIZE,
        log_max_srq_sz: 15,
        log_max_qp: LOG_MAX_QP,
        ece_support: true,
        log_max_cq_sz: LOG_MAX_CQ_SIZE,
        log_max_cq: LOG_MAX_CQ,
        relaxed_ordering_write: true,
        log_max_eq_sz: LOG_MAX_EQ_SIZE,
        log_max_eq: LOG_MAX_EQ,
        log_max_mkey: 20,
        fixed_buffer_size: true,
        max_indirection: 1,
        log_max_mrw_sz: 63,
        log_max_ra_req_qp: config.log_max_reads,
        log_max_ra_res_qp: config.log_max_reads,
        log_max_ra_req_dc: config.log_max_reads,
        log_max_ra_res_dc: config.log_max_reads,
        gid_table_size: 0,
        pkey_table_size: 0,
        port_type: if config.infiniband { PortType::IB } else { PortType::ETHERNET },
        ib_virt: config.infiniband,
        num_ports: 1,
        log_max_msg: LOG_MAX_MSG,
        dp_ordering_ooo_rw_rc: true,
        init2_lag_tx_port_affinity: true,
        num_lag_ports: config.bond,
        cqe_version: 1,
        // A kernel driver changes keys over pages by WQEs (UMR), but not indirect keys. UCX reads these bits too, and works
        // without them.
        umr_indirect_mkey_disabled: is_function,
        umr_extended_translation_offset: is_function,
        relaxed_ordering_write_umr: is_function,
        // Linux 6.12, unlike 6.1, registers a dma-buf only where page faults exist. Here, no operation raises them.
        pg: is_function,
        dct: true,
        log_max_rmp: 16,
        log_max_xrcd: LOG_MAX_XRCD,
        device_frequency_khz: CLOCK_KHZ,
        basic_cyclic_rcv_wqe: true,
        roce: !config.infiniband,
        atomic: true,
        cq_oi: true,
        cq_resize: true,
        driver_version: true,
        log_max_pd: 16,
        // A program of this process has no other users beside it.
        log_max_uctx: if is_function { LOG_MAX_UCTX } else { 0 },
        log_max_umem: 20,
        max_num_eqs: 1 << LOG_MAX_EQ,
        cd: true,
        xrc: true,
        ud: true,
        uc: true,
        rc: true,
        uar_4k: true,
        log_pg_sz: 12,
        bf: false,
        log_bf_reg_size: 9,
        // 63 segments, the most that the control segment can express.
        max_wqe_sz_sq: 1008,
        max_wqe_sz_rq: 2048,
        max_wqe_sz_sq_dc: 1008,
        max_qp_mcg: MAX_MEMBERS as u32,
        log_max_mcg: LOG_MAX_GROUPS,
        num_of_uars_per_page: 1,
        log_max_atomic_size_qp: 3,
        log_max_atomic_size_dc: 3,
        ..HcaCap::default()
    };
    if is_function && !config.infiniband { ethernet::general(caps) } else { caps }
}

fn atomic() -> AtomicCaps {
    AtomicCaps {
        atomic_req_8b_endianness_mode: 1,
        supported_atomic_req_8b_endianness_mode_1: true,
        atomic_operations: AtomicCaps::CMP_SWAP
            | AtomicCaps::FETCH_ADD
            | AtomicCaps::MASKED_CMP_SWAP
            | AtomicCaps::MASKED_FETCH_ADD,
        // Each bit is a size: 4 and 8 bytes.
        atomic_size_qp: 4 | 8,
        atomic_size_dc: 4 | 8,
        ..AtomicCaps::default()
    }
}

fn roce_cap(config: &Config, is_of_function: bool) -> RoceCap {
    RoceCap {
        qp_ts_format: u8::from(config.real_time),
        // IPv4 and IPv6; version 2.
        l3_type: if is_of_function { 6 } else { 0 },
        roce_version: if is_of_function { 4 } else { 0 },
        fl_rc_qp_when_roce_enabled: true,
        r_roce_dest_udp_port: roce::PORT,
        roce_address_table_size: if is_of_function { ethernet::vport::ROCE_ADDRESSES } else { 1 },
        ..RoceCap::default()
    }
}

pub(super) fn roce_address(
    path: &mut Datapath,
    context: u32,
    command: QueryRoceAddress,
) -> CmdResult<QueryRoceAddressOut> {
    if path.objects.buses.contains_key(&context) {
        require(!path.config.infiniband, Reason::PortType)?;
        let address = ethernet::vport::address(path, command.roce_address_index)?;
        return Ok(QueryRoceAddressOut { address });
    }
    require(command.roce_address_index == 0, Reason::Index)?;
    let address = RoceAddr {
        source_l3_address: gid_of(*path.address.ip()),
        source_mac: mac_of(path.address.port()),
        roce_version: RoceVersion::V2,
        ..RoceAddr::default()
    };
    Ok(QueryRoceAddressOut { address })
}
