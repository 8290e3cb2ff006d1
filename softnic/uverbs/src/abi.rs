//! Structures and numbers of the kernel ABI, as `<rdma/ib_user_verbs.h>` and `<rdma/mlx5-abi.h>` have them.

use bytemuck::{Pod, Zeroable};

/// Defines C structures of plain integers, and checks their sizes at compile time.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident[$size:literal] { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

/// Defines constants in a module.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $type:ty { $($value:ident = $number:expr,)* })*) => {$(
        $(#[$doc])*
        pub(crate) mod $name {
            $(pub(crate) const $value: $type = $number;)*
        }
    )*};
}

pub(crate) use {numbers, structs};

/// Device major of uverbs nodes.
pub(crate) const MAJOR: u32 = 231;

/// ABI version of the RDMA connection manager.
pub(crate) const RDMA_CM_VERSION: &str = "4";
/// Device major and minor of the connection manager, a miscellaneous device.
pub(crate) const RDMA_CM_DEVICE: (u32, u32) = (10, 58);

/// Bit that marks objects, methods and attributes defined by the mlx5 driver rather than the uverbs core.
const DRIVER: u16 = 1 << 12;

/// Method of the mlx5 driver that returns the path in sysfs of the data-direct device.
pub(crate) const DATA_DIRECT_PATH: u16 = DRIVER + 1;

/// Method of the mlx5 driver that returns the PDN of a protection domain.
pub(crate) const PD_QUERY: u16 = DRIVER;

numbers! {
    /// Object types of uverbs ioctls.
    object: u16 {
        DEVICE = 0,
        PD = 1,
        CQ = 3,
        QP = 4,
        AH = 6,
        MR = 7,
        XRCD = 10,
        DM = 14,
        ASYNC_EVENT = 16,
        DEVX = super::DRIVER,
        DEVX_OBJ = super::DRIVER + 1,
        DEVX_UMEM = super::DRIVER + 2,
        DEVX_ASYNC_CMD_FD = super::DRIVER + 4,
        DEVX_ASYNC_EVENT_FD = super::DRIVER + 5,
        UAR = super::DRIVER + 8,
    }

    /// Driver-specific input and output of any core method.
    driver_data: u16 {
        IN = super::DRIVER,
        OUT = super::DRIVER + 1,
    }

    /// Commands of the write interface, which INVOKE_WRITE carries.
    command: u64 {
        QUERY_DEVICE = 1,
        ALLOC_PD = 3,
        CREATE_AH = 5,
        REG_MR = 9,
        REREG_MR = 11,
        CREATE_COMP_CHANNEL = 17,
        RESIZE_CQ = 19,
        QUERY_QP = 25,
        MODIFY_QP = 26,
        ATTACH_MCAST = 30,
        DETACH_MCAST = 31,
        CREATE_SRQ = 32,
        MODIFY_SRQ = 33,
        QUERY_SRQ = 34,
        DESTROY_SRQ = 35,
        OPEN_XRCD = 37,
        CREATE_XSRQ = 39,
        OPEN_QP = 40,
        EX_QUERY_DEVICE = 0x8000_0001,
        EX_MODIFY_QP = 0x8000_001a,
    }

    /// Flags of the mlx5 driver for the registration of a dma-buf.
    dma_buf: u32 {
        DATA_DIRECT = 1,
    }

    /// Access rights of memory and queue pairs.
    access: u32 {
        LOCAL_WRITE = 1,
        REMOTE_WRITE = 1 << 1,
        REMOTE_READ = 1 << 2,
        REMOTE_ATOMIC = 1 << 3,
        ZERO_BASED = 1 << 5,
        ON_DEMAND = 1 << 6,
        HUGETLB = 1 << 7,
        RELAXED_ORDERING = 1 << 20,
        OPTIONAL = 0x3ff0_0000,
    }

    /// Flags of REREG_MR for the properties to change.
    rereg: u32 {
        TRANSLATION = 1,
        PD = 1 << 1,
        ACCESS = 1 << 2,
    }

    /// Operations that a device supports on memory that is paged on demand (ODP).
    odp: u32 {
        SUPPORT = 1,
        SEND = 1,
        RECV = 1 << 1,
        WRITE = 1 << 2,
        READ = 1 << 3,
        ATOMIC = 1 << 4,
        SRQ_RECV = 1 << 5,
    }

    qp_type: u64 {
        RC = 2,
        UC = 3,
        UD = 4,
        XRC_INITIATOR = 9,
        XRC_TARGET = 10,
        DRIVER = 0xff,
    }

    qp_state: u8 {
        RESET = 0,
        INIT = 1,
        RTR = 2,
        RTS = 3,
        SQD = 4,
        SQE = 5,
        ERR = 6,
    }

    /// Attribute mask of MODIFY_QP, as in `ibv_qp_attr_mask`.
    qp_attr: u32 {
        STATE = 1,
        CUR_STATE = 1 << 1,
        ACCESS_FLAGS = 1 << 3,
        PKEY_INDEX = 1 << 4,
        PORT = 1 << 5,
        QKEY = 1 << 6,
        AV = 1 << 7,
        PATH_MTU = 1 << 8,
        TIMEOUT = 1 << 9,
        RETRY_CNT = 1 << 10,
        RNR_RETRY = 1 << 11,
        RQ_PSN = 1 << 12,
        MAX_QP_RD_ATOMIC = 1 << 13,
        MIN_RNR_TIMER = 1 << 15,
        SQ_PSN = 1 << 16,
        MAX_DEST_RD_ATOMIC = 1 << 17,
        DEST_QPN = 1 << 20,
    }

    srq_type: u32 {
        BASIC = 0,
        XRC = 1,
    }

    /// Features of a device.
    device_cap: u32 {
        XRC = 1 << 20,
    }

    /// Attribute mask of MODIFY_SRQ, as in `ibv_srq_attr_mask`.
    srq_attr: u32 {
        LIMIT = 1 << 1,
    }

    /// Flags for the creation of a queue pair.
    qp_flag: u32 {
        SIGNATURE = 1,
        TYPE_DCT = 1 << 4,
        TYPE_DCI = 1 << 5,
        UAR_PAGE_INDEX = 1 << 10,
    }

    /// Flags for the creation of a completion queue. Those of the mlx5 driver start with `DRIVER`.
    cq_flag: u32 {
        TIMESTAMP = 1,
        IGNORE_OVERRUN = 1 << 1,
        DRIVER_UAR_PAGE_INDEX = 1 << 1,
    }

    /// Logical and physical states of a port.
    port_state: u8 {
        DOWN = 1,
        ACTIVE = 4,
        PHYS_DISABLED = 3,
        PHYS_LINK_UP = 5,
    }

    /// Link layers of a port in QUERY_PORT.
    link_layer: u8 {
        INFINIBAND = 1,
        ETHERNET = 2,
    }

    /// Asynchronous events.
    event_type: u32 {
        CQ_ERR = 0,
        QP_FATAL = 1,
        QP_REQ_ERR = 2,
        QP_ACCESS_ERR = 3,
        DEVICE_FATAL = 8,
        PORT_ACTIVE = 9,
        PORT_ERR = 10,
        LID_CHANGE = 11,
        SRQ_LIMIT_REACHED = 15,
        QP_LAST_WQE_REACHED = 16,
        GID_CHANGE = 18,
    }

    gid_type: u32 {
        IB = 0,
        ROCE_V1 = 1,
        ROCE_V2 = 2,
    }
}

structs! {
    QueryDevice[176] {
        fw_ver: u64,
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }

    ExQueryDevice[304] {
        base: QueryDevice,
        comp_mask: u32,
        response_length: u32,
        odp: [u32; 6],
        timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        rss: [u32; 4],
        max_wq_type_rq: u32,
        raw_packet_caps: u32,
        tag_matching: [u32; 6],
        max_cq_moderation_count: u16,
        max_cq_moderation_period: u16,
        reserved: u32,
        max_dm_size: u64,
        xrc_odp_caps: u32,
        reserved2: u32,
    }

    /// Driver-specific part of the extended QUERY_DEVICE. There are no offloads.
    DriverQueryDevice[104] {
        comp_mask: u32,
        response_length: u32,
        offloads: [u32; 24],
    }

    QueryPort[48] {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
        port_cap_flags2: u16,
        reserved2: [u8; 6],
    }

    GidEntry[32] {
        gid: [u8; 16],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        netdev_ifindex: u32,
    }

    ContextRequest[32] {
        total_num_bfregs: u32,
        num_low_latency_bfregs: u32,
        flags: u32,
        comp_mask: u32,
        max_cqe_version: u8,
        reserved0: u8,
        reserved1: u16,
        reserved2: u32,
        lib_caps: u64,
    }

    ContextResponse[72] {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }

    /// Page by which programs convert completion timestamps to the time of day.
    ClockInfo[56] {
        sign: u32,
        reserved: u32,
        nsec: u64,
        cycles: u64,
        frac: u64,
        mult: u32,
        shift: u32,
        mask: u64,
        overflow_period: u64,
    }

    RegMr[40] {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    RegMrResponse[12] {
        mr_handle: u32,
        lkey: u32,
        rkey: u32,
    }

    ReregMr[48] {
        response: u64,
        mr_handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    ReregMrResponse[8] {
        lkey: u32,
        rkey: u32,
    }

    DriverCreateCq[32] {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }

    DriverCreateCqResponse[8] {
        cqn: u32,
        reserved: u32,
    }

    DestroyCqResponse[8] {
        comp_events_reported: u32,
        async_events_reported: u32,
    }

    AhAttributes[32] {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved2: u8,
    }

    CreateAh[56] {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        reserved: u32,
        attributes: AhAttributes,
    }

    Mcast[24] {
        gid: [u8; 16],
        qp_handle: u32,
        mlid: u16,
        reserved: u16,
    }

    DriverCreateAhResponse[16] {
        response_length: u32,
        dmac: [u8; 6],
        reserved: [u8; 6],
    }

    /// Event that programs read from the file of asynchronous events. `element` is the user handle that the program
    /// gave to the affected object.
    AsyncEvent[16] {
        element: u64,
        event_type: u32,
        reserved: u32,
    }

    ResizeCq[16] {
        response: u64,
        cq_handle: u32,
        cqe: u32,
    }

    ResizeCqResponse[8] {
        cqe: u32,
        reserved: u32,
    }

    DriverResizeCq[16] {
        buf_addr: u64,
        cqe_size: u16,
        reserved0: u16,
        reserved1: u32,
    }

    CreateSrq[32] {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// CREATE_XSRQ: creates a shared receive queue of any type but the basic one.
    CreateXsrq[48] {
        response: u64,
        user_handle: u64,
        srq_type: u32,
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        max_num_tags: u32,
        xrcd_handle: u32,
        cq_handle: u32,
    }

    OpenXrcd[16] {
        response: u64,
        fd: u32,
        oflags: u32,
    }

    OpenQp[32] {
        response: u64,
        user_handle: u64,
        xrcd_handle: u32,
        qpn: u32,
        qp_type: u8,
        reserved: [u8; 7],
    }

    OpenQpResponse[32] {
        qp_handle: u32,
        qpn: u32,
        cap: QpCap,
        reserved: u32,
    }

    CreateSrqResponse[16] {
        srq_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srqn: u32,
    }

    DriverCreateSrq[32] {
        buf_addr: u64,
        db_addr: u64,
        flags: u32,
        reserved0: u32,
        uidx: u32,
        reserved1: u32,
    }

    DriverCreateSrqResponse[8] {
        srqn: u32,
        reserved: u32,
    }

    ModifySrq[16] {
        srq_handle: u32,
        attr_mask: u32,
        max_wr: u32,
        srq_limit: u32,
    }

    QuerySrq[16] {
        response: u64,
        srq_handle: u32,
        reserved: u32,
    }

    QuerySrqResponse[16] {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        reserved: u32,
    }

    DestroySrq[16] {
        response: u64,
        srq_handle: u32,
        reserved: u32,
    }

    QpCap[20] {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    DriverCreateQp[56] {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
        // For a DCT, its access key.
        sq_buf_addr: u64,
        ece_options: u32,
        dci_streams: [u8; 2],
        reserved: u16,
    }

    DriverCreateQpResponse[40] {
        bfreg_index: u32,
        ece_options: u32,
        comp_mask: u32,
        raw_packet: [u32; 4],
        reserved: u32,
        tir_icm_addr: u64,
    }

    QpDest[32] {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    ModifyQp[112] {
        dest: QpDest,
        alt_dest: QpDest,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }

    ExModifyQpResponse[8] {
        comp_mask: u32,
        response_length: u32,
    }

    DriverModifyQpResponse[16] {
        response_length: u32,
        dctn: u32,
        ece_options: u32,
        reserved: u32,
    }

    QueryQp[16] {
        response: u64,
        qp_handle: u32,
        attr_mask: u32,
    }

    QueryQpResponse[128] {
        dest: QpDest,
        alt_dest: QpDest,
        cap: QpCap,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        sq_sig_all: u8,
        reserved: [u8; 5],
    }
}
