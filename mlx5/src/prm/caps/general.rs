//! General capabilities.

use crate::prm::layout::{layout, numbers};

numbers! {
    /// Link layer of the NIC's ports.
    pub struct PortType(u8) {
        /// InfiniBand.
        IB = 0;
        /// Ethernet: RoCE.
        ETHERNET = 1;
    }
}

layout! {
    /// General capabilities.
    pub struct HcaCap[256] {
        /// The page [`GeneralCap2`] exists.
        hca_cap_2: bool = 0x020, 1;
        /// ID of the virtual HCA.
        vhca_id: u16 = 0x030, 16;
        /// QPs can deliver data in order.
        qp_data_in_order: bool = 0x062, 1;
        /// log2 of the maximum number of WQEBBs in a send queue.
        log_max_qp_sz: u8 = 0x088, 8;
        /// log2 of the maximum number of queue pairs.
        log_max_qp: u8 = 0x09b, 5;
        /// log2 of the maximum number of entries in a completion queue.
        log_max_cq_sz: u8 = 0x0c8, 8;
        /// log2 of the maximum number of completion queues.
        log_max_cq: u8 = 0x0db, 5;
        /// Keys may relax the ordering of writes.
        relaxed_ordering_write: bool = 0x0e8, 1;
        /// log2 of the maximum number of memory keys.
        log_max_mkey: u8 = 0x0ea, 6;
        /// There is a key for DUMP and fill.
        dump_fill_mkey: bool = 0x0f8, 1;
        /// Maximum nesting of KLM and KSM keys.
        max_indirection: u8 = 0x100, 8;
        /// KSM keys are supported.
        fixed_buffer_size: bool = 0x108, 1;
        /// log2 of the maximum length of a memory region, in bytes.
        log_max_mrw_sz: u8 = 0x109, 7;
        /// The QP context has an extension.
        qpc_extension: bool = 0x122, 1;
        /// log2 of the maximum number of outstanding reads and atomics of a DC initiator.
        log_max_ra_req_dc: u8 = 0x12a, 6;
        /// log2 of the maximum number of outstanding reads and atomics at a DC target.
        log_max_ra_res_dc: u8 = 0x13a, 6;
        /// log2 of the maximum number of outstanding reads and atomics as initiator.
        log_max_ra_req_qp: u8 = 0x14a, 6;
        /// RTS2RTS may change the UDP source port.
        rts2rts_qp_udp_sport: bool = 0x151, 1;
        /// log2 of the maximum number of outstanding reads and atomics as target.
        log_max_ra_res_qp: u8 = 0x15a, 6;
        /// RTS2RTS may change the DSCP.
        rts2rts_qp_dscp: bool = 0x16a, 1;
        /// Size of the GID table, encoded; see [`HcaCap::gid_entries`].
        gid_table_size: u16 = 0x170, 16;
        /// Size of the partition-key table, encoded as 128 * 2^value.
        pkey_table_size: u16 = 0x190, 16;
        /// Delay before an acknowledgement: 4.096 us * 2^value.
        local_ca_ack_delay: u8 = 0x1ab, 5;
        /// Link layer: InfiniBand or Ethernet.
        port_type: PortType = 0x1b6, 2;
        /// Number of ports.
        num_ports: u8 = 0x1b8, 8;
        /// log2 of the maximum message length, in bytes.
        log_max_msg: u8 = 0x1c3, 5;
        /// Connections may place the data of READs and WRITEs out of order.
        dp_ordering_ooo_rw_rc: bool = 0x1ca, 1;
        /// INIT2RTR can select which port of a bond sends.
        init2_lag_tx_port_affinity: bool = 0x1f8, 1;
        /// 1: completions carry the user index.
        cqe_version: u8 = 0x1fc, 4;
        /// A 16-byte address vector suffices for DC.
        compact_address_vector: bool = 0x200, 1;
        /// Responses may be scattered into completions.
        sctr_data_cqe: bool = 0x215, 1;
        /// Dynamically connected transport.
        dct: bool = 0x21a, 1;
        /// RoCE. The page [`RoceCap`](super::RoceCap) exists.
        roce: bool = 0x21d, 1;
        /// Atomics. The page [`AtomicCaps`](super::AtomicCaps) exists.
        atomic: bool = 0x21e, 1;
        /// Retry counts above 7.
        extended_retry_count: bool = 0x21f, 1;
        /// CQs may ignore overrun.
        cq_oi: bool = 0x220, 1;
        /// Cross-channel operations: WAIT entries.
        cd: bool = 0x22c, 1;
        /// Second version of DC.
        dc_v2: bool = 0x23b, 1;
        /// Extended reliable connections.
        xrc: bool = 0x23c, 1;
        /// Unreliable datagrams.
        ud: bool = 0x23d, 1;
        /// Unreliable connections.
        uc: bool = 0x23e, 1;
        /// Reliable connections.
        rc: bool = 0x23f, 1;
        /// Doorbell pages of 4 KiB.
        uar_4k: bool = 0x240, 1;
        /// Connections may force loopback while RoCE is off.
        fl_rc_qp_when_roce_disabled: bool = 0x248, 1;
        /// Size of the doorbell area, encoded.
        uar_sz: u8 = 0x24a, 6;
        /// Umems of the kernel may be shared.
        umem_uid_0: bool = 0x252, 1;
        /// log2 of the minimum page size.
        log_pg_sz: u8 = 0x258, 8;
        /// BlueFlame is supported.
        bf: bool = 0x260, 1;
        /// log2 of the size of a BlueFlame register, both halves together.
        log_bf_reg_size: u8 = 0x26b, 5;
        /// Maximum number of ports in a bond.
        num_lag_ports: u8 = 0x27c, 4;
        /// Maximum length of a send entry, in bytes.
        max_wqe_sz_sq: u16 = 0x290, 16;
        /// Maximum length of a receive entry, in bytes.
        max_wqe_sz_rq: u16 = 0x2b0, 16;
        /// Maximum length of a send entry of a DC initiator, in bytes.
        max_wqe_sz_sq_dc: u16 = 0x2d0, 16;
        /// log2 of the maximum number of XRC domains.
        log_max_xrcd: u8 = 0x33b, 5;
        /// Connections may place data out of order.
        dp_ordering_ooo_all_rc: bool = 0x334, 1;
        /// Types of general objects.
        general_obj_types: u64 = 0x400, 64;
        /// log2 of the size of a doorbell page, minus 12.
        log_uar_page_sz: u16 = 0x490, 16;
        /// Entries of cyclic receive queues may lack the segment that names a successor.
        basic_cyclic_rcv_wqe: bool = 0x380, 1;
        /// log2 of the maximum number of receive memory pools.
        log_max_rmp: u8 = 0x383, 5;
        /// Frequency of the free-running clock, in kHz.
        device_frequency_khz: u32 = 0x4e0, 32;
        /// Number of doorbell pages per system page.
        num_of_uars_per_page: u32 = 0x520, 32;
        /// log2 of the maximum operand size of an atomic, in bytes.
        log_max_atomic_size_qp: u8 = 0x580, 8;
        /// The same, over dynamic connections.
        log_max_atomic_size_dc: u8 = 0x598, 8;
        /// Completions may be compressed.
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
    /// General capabilities, second page.
    pub struct GeneralCap2[256] {
        /// A QP context may force the ordering of its data.
        dp_ordering_force: bool = 0x088, 1;
        /// Send queues work without doorbell record.
        send_dbr_mode_no_dbr_ext: bool = 0x2e1, 1;
    }
}
