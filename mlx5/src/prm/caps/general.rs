//! General NIC capabilities, as QUERY_HCA_CAP reports them: object limits, transports and optional features.

use crate::prm::layout::{layout, numbers};

numbers! {
    /// Link layer of the NIC's ports: InfiniBand or Ethernet.
    pub struct PortType(u8) {
        /// Native InfiniBand, where nodes are addressed by LIDs.
        IB = 0;
        /// Ethernet, where RDMA runs as RoCE.
        ETHERNET = 1;
    }
}

layout! {
    /// General capabilities of the NIC: object limits, transports and optional features.
    pub struct HcaCap[256] {
        /// The second page of general capabilities, [`GeneralCap2`], can be queried.
        hca_cap_2: bool = 0x020, 1;
        /// ID of the virtual HCA (PCIe function) that is queried.
        vhca_id: u16 = 0x030, 16;
        /// QPs can be created so that data arrives in memory in the order it was sent.
        qp_data_in_order: bool = 0x062, 1;
        /// log2 of the maximum number of entries in a shared receive queue.
        log_max_srq_sz: u8 = 0x080, 8;
        /// log2 of the maximum number of WQEBBs in a send queue.
        log_max_qp_sz: u8 = 0x088, 8;
        /// log2 of the maximum number of queue pairs.
        log_max_qp: u8 = 0x09b, 5;
        /// CREATE_QP and the transitions of a QP negotiate options of enhanced connection establishment (ECE).
        ece_support: bool = 0x0a3, 1;
        /// log2 of the maximum number of entries in a completion queue.
        log_max_cq_sz: u8 = 0x0c8, 8;
        /// Work-queue entries (UMR) can change whether writes through a key may pass each other on the bus.
        relaxed_ordering_write_umr: bool = 0x0d0, 1;
        /// log2 of the maximum number of completion queues.
        log_max_cq: u8 = 0x0db, 5;
        /// log2 of the maximum number of entries in an event queue.
        log_max_eq_sz: u8 = 0x0e0, 8;
        /// Memory keys may let the NIC's writes pass each other on the bus.
        relaxed_ordering_write: bool = 0x0e8, 1;
        /// log2 of the maximum number of memory keys.
        log_max_mkey: u8 = 0x0ea, 6;
        /// The NIC provides a special memory key for DUMP and fill operations.
        dump_fill_mkey: bool = 0x0f8, 1;
        /// log2 of the maximum number of event queues.
        log_max_eq: u8 = 0x0fc, 4;
        /// Maximum nesting of indirect memory keys (KLM and KSM).
        max_indirection: u8 = 0x100, 8;
        /// Indirect keys with entries of equal length (KSM) are supported.
        fixed_buffer_size: bool = 0x108, 1;
        /// log2 of the maximum length of a memory region, in bytes.
        log_max_mrw_sz: u8 = 0x109, 7;
        /// Work-queue entries (UMR) can place translations anywhere in a key, not only below 2^16 units.
        umr_extended_translation_offset: bool = 0x118, 1;
        /// log2 of the maximum number of entries of a KLM key.
        log_max_klm_list_size: u8 = 0x11a, 6;
        /// CREATE_QP accepts an extended QP context.
        qpc_extension: bool = 0x122, 1;
        /// log2 of the maximum number of outstanding reads and atomics of a DC initiator.
        log_max_ra_req_dc: u8 = 0x12a, 6;
        /// log2 of the maximum number of outstanding reads and atomics at a DC target.
        log_max_ra_res_dc: u8 = 0x13a, 6;
        /// log2 of the maximum number of outstanding reads and atomics that a QP may have as initiator.
        log_max_ra_req_qp: u8 = 0x14a, 6;
        /// The RTS2RTS command may change the UDP source port.
        rts2rts_qp_udp_sport: bool = 0x151, 1;
        /// log2 of the maximum number of outstanding reads and atomics that a QP may serve as target.
        log_max_ra_res_qp: u8 = 0x15a, 6;
        /// The RTS2RTS command may change the DSCP of a QP's packets.
        rts2rts_qp_dscp: bool = 0x16a, 1;
        /// Size of the GID table, encoded; see [`HcaCap::gid_entries`].
        gid_table_size: u16 = 0x170, 16;
        /// Virtual ports have counters.
        vport_counters: bool = 0x181, 1;
        /// Size of the partition-key table, encoded as 128 * 2^value.
        pkey_table_size: u16 = 0x190, 16;
        /// InfiniBand ports are virtual: their state and tables are queried by commands, rather than by datagrams.
        ib_virt: bool = 0x1a2, 1;
        /// Received frames are steered by flow tables.
        nic_flow_table: bool = 0x1a6, 1;
        /// Upper bound on the NIC's delay before it acknowledges a packet: 4.096 us * 2^value.
        local_ca_ack_delay: u8 = 0x1ab, 5;
        /// Link layer: InfiniBand or Ethernet.
        port_type: PortType = 0x1b6, 2;
        /// Number of physical ports of the NIC.
        num_ports: u8 = 0x1b8, 8;
        /// log2 of the maximum message length, in bytes.
        log_max_msg: u8 = 0x1c3, 5;
        /// Connections may place the data of READs and WRITEs out of order.
        dp_ordering_ooo_rw_rc: bool = 0x1ca, 1;
        /// The INIT2RTR command can select which port of a bond sends.
        init2_lag_tx_port_affinity: bool = 0x1f8, 1;
        /// Format of completions; in version 1 they carry the QP's user index.
        cqe_version: u8 = 0x1fc, 4;
        /// A 16-byte address vector suffices for DC.
        compact_address_vector: bool = 0x200, 1;
        /// Work-queue entries (UMR) cannot change the page size of a key.
        umr_modify_entity_size_disabled: bool = 0x207, 1;
        /// Work-queue entries (UMR) cannot change whether a key allows atomics.
        umr_modify_atomic_disabled: bool = 0x208, 1;
        /// Work-queue entries (UMR) cannot change indirect keys.
        umr_indirect_mkey_disabled: bool = 0x209, 1;
        /// Responses may be scattered into completions.
        sctr_data_cqe: bool = 0x215, 1;
        /// The NIC supports dynamically connected transport (DC).
        dct: bool = 0x21a, 1;
        /// Ethernet queues are supported, and their page [`EthernetCaps`](super::EthernetCaps) can be queried.
        eth_net_offloads: bool = 0x21c, 1;
        /// The NIC supports RoCE, and its page [`RoceCap`](super::RoceCap) can be queried.
        roce: bool = 0x21d, 1;
        /// The NIC supports remote atomics, and its page [`AtomicCaps`](super::AtomicCaps) can be queried.
        atomic: bool = 0x21e, 1;
        /// Retry counts above 7 are supported.
        extended_retry_count: bool = 0x21f, 1;
        /// CQs can be created that ignore overruns.
        cq_oi: bool = 0x220, 1;
        /// CQs can be moved to memory of another size.
        cq_resize: bool = 0x221, 1;
        /// The events of a CQ can be moderated.
        cq_moderation: bool = 0x222, 1;
        /// Page faults, which a driver handles. The page ODP has the operations that raise them.
        pg: bool = 0x227, 1;
        /// Cross-channel operations are supported: a send queue can WAIT for another queue's completions.
        cd: bool = 0x22c, 1;
        /// The second version of dynamically connected transport is supported.
        dc_v2: bool = 0x23b, 1;
        /// Extended reliable connections (XRC) are supported.
        xrc: bool = 0x23c, 1;
        /// Unreliable datagrams (UD) are supported.
        ud: bool = 0x23d, 1;
        /// Unreliable connections (UC) are supported.
        uc: bool = 0x23e, 1;
        /// Reliable connections (RC) are supported.
        rc: bool = 0x23f, 1;
        /// Doorbell (UAR) pages of 4 KiB are supported, whatever the system's page size.
        uar_4k: bool = 0x240, 1;
        /// Connections may force loopback while RoCE is off.
        fl_rc_qp_when_roce_disabled: bool = 0x248, 1;
        /// Size of the BAR region that holds the doorbell (UAR) pages, encoded.
        uar_sz: u8 = 0x24a, 6;
        /// User memory that the kernel registered (with uid 0) may be shared with other users.
        umem_uid_0: bool = 0x252, 1;
        /// log2 of the minimum page size.
        log_pg_sz: u8 = 0x258, 8;
        /// BlueFlame is supported: software may write small work-queue entries directly to the doorbell page.
        bf: bool = 0x260, 1;
        /// SET_DRIVER_VERSION is supported.
        driver_version: bool = 0x261, 1;
        /// log2 of the size of a BlueFlame register, both halves together.
        log_bf_reg_size: u8 = 0x26b, 5;
        /// Maximum number of physical ports in a bond.
        num_lag_ports: u8 = 0x27c, 4;
        /// Maximum length of a send entry, in bytes.
        max_wqe_sz_sq: u16 = 0x290, 16;
        /// Maximum length of a receive entry, in bytes.
        max_wqe_sz_rq: u16 = 0x2b0, 16;
        /// Maximum length of a DC initiator's send entry, in bytes.
        max_wqe_sz_sq_dc: u16 = 0x2d0, 16;
        /// Maximum number of queue pairs of a multicast group.
        max_qp_mcg: u32 = 0x2e7, 25;
        /// log2 of the maximum number of multicast groups.
        log_max_mcg: u8 = 0x318, 8;
        /// log2 of the maximum number of protection domains.
        log_max_pd: u8 = 0x32b, 5;
        /// log2 of the maximum number of XRC domains.
        log_max_xrcd: u8 = 0x33b, 5;
        /// Connections may place the data of all operations out of order.
        dp_ordering_ooo_all_rc: bool = 0x334, 1;
        /// log2 of the maximum number of transport domains.
        log_max_transport_domain: u8 = 0x323, 5;
        /// log2 of the maximum number of receive queues.
        log_max_rq: u8 = 0x363, 5;
        /// log2 of the maximum number of send queues.
        log_max_sq: u8 = 0x36b, 5;
        /// log2 of the maximum number of TIRs.
        log_max_tir: u8 = 0x373, 5;
        /// log2 of the maximum number of TISs.
        log_max_tis: u8 = 0x37b, 5;
        /// log2 of the maximum number of tables of receive queues.
        log_max_rqt: u8 = 0x38b, 5;
        /// log2 of the maximum number of queues of a table.
        log_max_rqt_size: u8 = 0x393, 5;
        /// log2 of the maximum number of TISs of a send queue.
        log_max_tis_per_sq: u8 = 0x39b, 5;
        /// log2 of the maximum length of an entry of a receive queue, in bytes.
        log_max_stride_sz_rq: u8 = 0x3a3, 5;
        /// log2 of the minimum length of an entry of a receive queue, in bytes.
        log_min_stride_sz_rq: u8 = 0x3ab, 5;
        /// log2 of the maximum length of a block of a send queue, in bytes.
        log_max_stride_sz_sq: u8 = 0x3b3, 5;
        /// log2 of the minimum length of a block of a send queue, in bytes.
        log_min_stride_sz_sq: u8 = 0x3bb, 5;
        /// log2 of the maximum number of entries of a send or receive queue.
        log_max_wq_sz: u8 = 0x3db, 5;
        /// log2 of the maximum number of VLANs that a virtual port receives.
        log_max_vlan_list: u8 = 0x3eb, 5;
        /// log2 of the maximum number of multicast addresses that a virtual port receives.
        log_max_current_mc_list: u8 = 0x3f3, 5;
        /// log2 of the maximum number of unicast addresses that a virtual port receives.
        log_max_current_uc_list: u8 = 0x3fb, 5;
        /// Bit mask of the types that CREATE_GENERAL_OBJECT accepts.
        general_obj_types: u64 = 0x400, 64;
        /// log2 of the maximum number of user contexts, or 0 without DevX.
        log_max_uctx: u8 = 0x463, 5;
        /// log2 of the maximum number of umems.
        log_max_umem: u8 = 0x46b, 5;
        /// Maximum number of event queues, or 0 for 2^`log_max_eq`.
        max_num_eqs: u16 = 0x470, 16;
        /// log2 of the size of a doorbell (UAR) page, minus 12.
        log_uar_page_sz: u16 = 0x490, 16;
        /// Cyclic receive queues accept entries without the leading segment that links to the next entry.
        basic_cyclic_rcv_wqe: bool = 0x380, 1;
        /// log2 of the maximum number of receive memory pools.
        log_max_rmp: u8 = 0x383, 5;
        /// Frequency of the NIC's free-running clock, in kHz.
        device_frequency_khz: u32 = 0x4e0, 32;
        /// Number of doorbell (UAR) pages per system page.
        num_of_uars_per_page: u32 = 0x520, 32;
        /// log2 of the maximum operand size of an atomic over QPs, in bytes.
        log_max_atomic_size_qp: u8 = 0x580, 8;
        /// log2 of the maximum operand size of an atomic over dynamic connections, in bytes.
        log_max_atomic_size_dc: u8 = 0x598, 8;
        /// The NIC can write several completions as one compressed entry.
        cqe_compression: bool = 0x5bf, 1;
    }
}

impl HcaCap {
    /// Returns the number of entries of the GID table, or `None` for an unknown encoding.
    pub const fn gid_entries(&self) -> Option<u32> {
        match self.gid_table_size {
            0..=4 => Some(8 << self.gid_table_size),
            _ => None,
        }
    }
}

layout! {
    /// The second page of general capabilities, [`CapType::GENERAL_2`](super::CapType::GENERAL_2).
    pub struct GeneralCap2[256] {
        /// A QP context may force an ordering of the QP's data on the firmware.
        dp_ordering_force: bool = 0x088, 1;
        /// Send queues can be created without a doorbell record.
        send_dbr_mode_no_dbr_ext: bool = 0x2e1, 1;
    }
}
