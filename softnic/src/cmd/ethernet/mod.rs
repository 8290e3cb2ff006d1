//! Commands for Ethernet: queues, transport interfaces, flow tables, and the virtual port.

pub(super) mod flow;
pub(super) mod queues;
pub(super) mod registers;
pub(super) mod tir;
pub(super) mod vport;

use super::refuse::{Reason, refuse};
use super::{CmdResult, require};
use crate::limits::LOG_MAX_QP_SIZE;
use crate::objects::ethernet::flow::{
    LEVELS, LOG_MAX_COUNTERS, LOG_MAX_DESTINATIONS, LOG_MAX_ENTRIES, LOG_MAX_SIZE, LOG_MAX_TABLES,
};
use crate::transport::datapath::Datapath;
use crate::transport::ethernet::LOG_MAX_SEGMENTED;
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::caps::{
    EthernetCaps, FlowTableCaps, FlowTableProperties, HcaCap, InlineMode, MatchFields,
};

/// log2 of the maximum number of queues, TIRs and others.
const LOG_MAX_OBJECTS: u8 = 12;
/// log2 of the lengths of an entry of a receive queue, in bytes.
const LOG_STRIDES: std::ops::RangeInclusive<u8> = 4..=11;
/// log2 of the length of a block of a send queue, in bytes.
const LOG_BLOCK: u8 = 6;
/// log2 of the maximum number of queues of a table.
const LOG_MAX_RQT: u8 = 11;
/// log2 of the maximum number of addresses of each kind that the virtual port receives.
const LOG_MAX_ADDRESSES: u8 = 7;
/// log2 of the maximum number of VLANs.
const LOG_MAX_VLANS: u8 = 12;

/// Adds the general capabilities of a function with an Ethernet port.
pub(super) fn general(base: HcaCap) -> HcaCap {
    HcaCap {
        eth_net_offloads: true,
        nic_flow_table: true,
        cq_moderation: true,
        // Drivers need whole blocks, of which the last one may be used in part.
        max_wqe_sz_sq: 1024,
        vport_counters: true,
        log_max_transport_domain: LOG_MAX_OBJECTS,
        log_max_rq: LOG_MAX_OBJECTS,
        log_max_sq: LOG_MAX_OBJECTS,
        log_max_tir: LOG_MAX_OBJECTS,
        log_max_tis: LOG_MAX_OBJECTS,
        log_max_rqt: LOG_MAX_OBJECTS,
        log_max_rqt_size: LOG_MAX_RQT,
        log_max_tis_per_sq: 0,
        log_min_stride_sz_rq: *LOG_STRIDES.start(),
        log_max_stride_sz_rq: *LOG_STRIDES.end(),
        log_min_stride_sz_sq: LOG_BLOCK,
        log_max_stride_sz_sq: LOG_BLOCK,
        log_max_wq_sz: LOG_MAX_QP_SIZE,
        log_max_current_uc_list: LOG_MAX_ADDRESSES,
        log_max_current_mc_list: LOG_MAX_ADDRESSES,
        log_max_vlan_list: LOG_MAX_VLANS,
        ..base
    }
}

pub(super) fn offloads() -> EthernetCaps {
    EthernetCaps {
        csum_cap: true,
        vlan_cap: true,
        wqe_vlan_insert: true,
        self_lb_en_modifiable: true,
        max_lso_cap: LOG_MAX_SEGMENTED,
        wqe_inline_mode: InlineMode::NOT_REQUIRED,
        rss_ind_tbl_cap: LOG_MAX_RQT,
        cqe_checksum_full: true,
        ..EthernetCaps::default()
    }
}

pub(super) fn flow_tables() -> FlowTableCaps {
    let receive = FlowTableProperties {
        ft_support: true,
        flow_counter: true,
        flow_modify_en: true,
        modify_root: true,
        identified_miss_table_mode: true,
        flow_table_modify: true,
        log_max_ft_size: LOG_MAX_SIZE,
        max_ft_level: LEVELS,
        log_max_ft_num: LOG_MAX_TABLES,
        log_max_flow_counter: LOG_MAX_COUNTERS,
        log_max_destination: LOG_MAX_DESTINATIONS,
        log_max_flow: LOG_MAX_ENTRIES,
        ft_field_support: MatchFields::OUTER,
        ft_field_bitmask_support: MatchFields::OUTER,
    };
    FlowTableCaps { receive }
}

/// Checks that a context belongs to a function with an Ethernet port, and that a command names that function.
fn own_function(path: &Datapath, context: u32, other_vport: bool) -> CmdResult<()> {
    if !path.objects.buses.contains_key(&context) {
        return Err(refuse(CmdStatus::BAD_OP, Reason::NoBus));
    }
    require(!path.config.infiniband, Reason::PortType)?;
    require(!other_vport, Reason::OtherFunction)
}

/// Returns the 4-byte numbers that follow a mailbox, of which there must be `count`.
fn numbers(list: &[u8], count: usize) -> CmdResult<Vec<u32>> {
    let numbers = list.as_chunks::<4>().0.get(..count);
    let numbers = numbers.ok_or(refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength))?;
    Ok(numbers.iter().map(|number| u32::from_be_bytes(*number)).collect())
}
