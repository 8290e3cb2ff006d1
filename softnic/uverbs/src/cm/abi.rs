//! Commands, structures and numbers of `/dev/infiniband/rdma_cm`, as `<rdma/rdma_user_cm.h>` has them.

use crate::abi::{AhAttributes, QpCap, numbers, structs};
use bytemuck::{Pod, Zeroable};

/// Private data of a connection, 256 bytes.
pub(crate) type PrivateData = [[u8; 32]; 8];
/// `sockaddr_storage`.
pub(crate) type Storage = [[u8; 32]; 4];
/// `sockaddr_in6`, or a shorter address.
pub(crate) type Ip6 = [u8; 28];

numbers! {
    command: u32 {
        CREATE_ID = 0,
        DESTROY_ID = 1,
        BIND_IP = 2,
        RESOLVE_IP = 3,
        RESOLVE_ROUTE = 4,
        QUERY_ROUTE = 5,
        CONNECT = 6,
        LISTEN = 7,
        ACCEPT = 8,
        REJECT = 9,
        DISCONNECT = 10,
        INIT_QP_ATTR = 11,
        GET_EVENT = 12,
        GET_OPTION = 13,
        SET_OPTION = 14,
        NOTIFY = 15,
        JOIN_IP_MCAST = 16,
        LEAVE_MCAST = 17,
        MIGRATE_ID = 18,
        QUERY = 19,
        BIND = 20,
        RESOLVE_ADDR = 21,
        JOIN_MCAST = 22,
    }

    event: u32 {
        ADDR_RESOLVED = 0,
        ADDR_ERROR = 1,
        ROUTE_RESOLVED = 2,
        CONNECT_REQUEST = 4,
        CONNECT_RESPONSE = 5,
        UNREACHABLE = 7,
        REJECTED = 8,
        ESTABLISHED = 9,
        DISCONNECTED = 10,
        MULTICAST_JOIN = 12,
        TIMEWAIT_EXIT = 15,
    }

    port_space: u16 {
        IPOIB = 0x0002,
        TCP = 0x0106,
        UDP = 0x0111,
        IB = 0x013f,
    }

    /// Kinds of information that QUERY returns.
    query: u32 {
        ADDRESS = 0,
        PATH = 1,
        GID = 2,
    }

    /// Options, with their level in the upper half.
    option: u32 {
        TOS = 0,
        REUSE_ADDRESS = 1,
        IPV6_ONLY = 2,
        ACK_TIMEOUT = 3,
        PATH = 0x1_0001,
    }
}

structs! {
    /// Header of every command. `len` bytes follow.
    Header[8] {
        command: u32,
        len: u16,
        room: u16,
    }

    CreateId[24] {
        uid: u64,
        response: u64,
        ps: u16,
        qp_type: u8,
        reserved: [u8; 5],
    }

    /// Input of DESTROY_ID and LEAVE_MCAST.
    DestroyId[16] {
        response: u64,
        id: u32,
        reserved: u32,
    }

    BindIp[40] {
        response: u64,
        addr: Ip6,
        id: u32,
    }

    Bind[136] {
        id: u32,
        addr_size: u16,
        reserved: u16,
        addr: Storage,
    }

    ResolveIp[64] {
        src: Ip6,
        dst: Ip6,
        id: u32,
        timeout_ms: u32,
    }

    ResolveAddr[272] {
        id: u32,
        timeout_ms: u32,
        src_size: u16,
        dst_size: u16,
        reserved: u32,
        src: Storage,
        dst: Storage,
    }

    ResolveRoute[8] {
        id: u32,
        timeout_ms: u32,
    }

    /// Input of QUERY and QUERY_ROUTE.
    Query[16] {
        response: u64,
        id: u32,
        option: u32,
    }

    PathRecord[64] {
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: u16,
        slid: u16,
        raw_traffic: u32,
        flow_label: u32,
        reversible: u32,
        mtu: u32,
        pkey: u16,
        hop_limit: u8,
        traffic_class: u8,
        numb_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        life_time_selector: u8,
        life_time: u8,
        preference: u8,
    }

    QueryRouteResponse[208] {
        node_guid: u64,
        routes: [PathRecord; 2],
        src: Ip6,
        dst: Ip6,
        num_paths: u32,
        port_num: u8,
        reserved: [u8; 3],
        device: u32,
        reserved1: u32,
    }

    QueryAddrResponse[280] {
        node_guid: u64,
        port_num: u8,
        reserved: u8,
        pkey: u16,
        src_size: u16,
        dst_size: u16,
        src: Storage,
        dst: Storage,
        device: u32,
        reserved1: u32,
    }

    /// Response to a path query: one path, as the subnet administrator sends it.
    QueryPathResponse[80] {
        num_paths: u32,
        reserved: u32,
        flags: u32,
        reserved1: u32,
        service_id: u64,
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: u16,
        slid: u16,
        flow_label_hop_limit: u32,
        traffic_class: u8,
        reversible_numb_path: u8,
        pkey: u16,
        qos_class_sl: u16,
        mtu: u8,
        rate: u8,
        life_time: u8,
        preference: u8,
        reserved2: [u8; 6],
    }

    /// Address of family AF_IB.
    SockaddrIb[48] {
        family: u16,
        pkey: u16,
        flow_info: u32,
        addr: [u8; 16],
        sid: u64,
        sid_mask: u64,
        scope_id: u64,
    }

    ConnParam[272] {
        qp_num: u32,
        qkey: u32,
        private_data: PrivateData,
        private_data_len: u8,
        srq: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        valid: u8,
    }

    UdParam[304] {
        qp_num: u32,
        qkey: u32,
        ah: AhAttributes,
        private_data: PrivateData,
        private_data_len: u8,
        reserved: [u8; 7],
    }

    Ece[8] {
        vendor_id: u32,
        attr_mod: u32,
    }

    Connect[288] {
        param: ConnParam,
        id: u32,
        reserved: u32,
        ece: Ece,
    }

    Listen[8] {
        id: u32,
        backlog: u32,
    }

    Accept[296] {
        uid: u64,
        param: ConnParam,
        id: u32,
        reserved: u32,
        ece: Ece,
    }

    Reject[264] {
        id: u32,
        private_data_len: u8,
        reason: u8,
        reserved: [u8; 2],
        private_data: PrivateData,
    }

    Disconnect[4] {
        id: u32,
    }

    InitQpAttr[16] {
        response: u64,
        id: u32,
        qp_state: u32,
    }

    QpAttr[144] {
        mask: u32,
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        ah: AhAttributes,
        alt_ah: AhAttributes,
        cap: QpCap,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
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
        reserved: [u8; 5],
    }

    Notify[8] {
        id: u32,
        event: u32,
    }

    JoinIpMcast[48] {
        response: u64,
        uid: u64,
        addr: Ip6,
        id: u32,
    }

    JoinMcast[152] {
        response: u64,
        uid: u64,
        id: u32,
        addr_size: u16,
        join_flags: u16,
        addr: Storage,
    }

    GetEvent[8] {
        response: u64,
    }

    /// An event. `param` holds a [`ConnParam`] or a [`UdParam`].
    Event[336] {
        uid: u64,
        id: u32,
        event: u32,
        status: u32,
        param: [[u8; 16]; 19],
        reserved: u32,
        ece: Ece,
    }

    SetOption[24] {
        optval: u64,
        id: u32,
        level: u32,
        optname: u32,
        optlen: u32,
    }

    MigrateId[16] {
        response: u64,
        id: u32,
        fd: u32,
    }
}
