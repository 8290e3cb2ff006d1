//! Transport interfaces, which connect queues to the port: transport domains, TIS for sending, TIR and RQT for
//! receiving.

use super::Bytes;
use super::layout::{command, layout, numbers, response};

command! { ALLOC_TRANSPORT_DOMAIN -> AllocTransportDomainOut;
    /// ALLOC_TRANSPORT_DOMAIN: allocates a transport domain.
    pub struct AllocTransportDomain[16] {}
}

response! {
    /// The NIC's reply to [`AllocTransportDomain`].
    pub struct AllocTransportDomainOut[16] {
        /// Number of the new domain.
        transport_domain: u32 = 0x48, 24;
    }
}

command! { DEALLOC_TRANSPORT_DOMAIN -> DeallocTransportDomainOut;
    /// DEALLOC_TRANSPORT_DOMAIN: deallocates a transport domain.
    pub struct DeallocTransportDomain[16] {
        /// Number of the domain.
        transport_domain: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DeallocTransportDomain`].
    pub struct DeallocTransportDomainOut[16] {}
}

layout! {
    /// The context of a transport interface for sending (TIS).
    pub struct TisContext[160] {
        /// Frames are encrypted by TLS.
        tls_en: bool = 0x001, 1;
        /// Port of a bond through which frames are sent.
        lag_tx_port_affinity: u8 = 0x004, 4;
        /// Priority of frames.
        prio: u8 = 0x00c, 4;
        /// Transport domain.
        transport_domain: u32 = 0x128, 24;
        /// QP over which frames are sent on InfiniBand.
        underlay_qpn: u32 = 0x148, 24;
    }
}

command! { CREATE_TIS -> CreateTisOut;
    /// CREATE_TIS: creates a transport interface for sending.
    pub struct CreateTis[192] {
        /// Settings.
        context: TisContext = 0x100, 1280;
    }
}

response! {
    /// The NIC's reply to [`CreateTis`].
    pub struct CreateTisOut[16] {
        /// Number of the new TIS.
        tisn: u32 = 0x48, 24;
    }
}

command! { MODIFY_TIS -> ModifyTisOut;
    /// MODIFY_TIS: changes the settings of a TIS.
    pub struct ModifyTis[192] {
        /// Number of the TIS.
        tisn: u32 = 0x48, 24;
        /// Whether to set the port of a bond.
        sets_affinity: bool = 0xbd, 1;
        /// Whether to set the priority.
        sets_prio: bool = 0xbf, 1;
        /// New settings.
        context: TisContext = 0x100, 1280;
    }
}

response! {
    /// The NIC's reply to [`ModifyTis`].
    pub struct ModifyTisOut[16] {}
}

command! { DESTROY_TIS -> DestroyTisOut;
    /// DESTROY_TIS: destroys a TIS.
    pub struct DestroyTis[16] {
        /// Number of the TIS.
        tisn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyTis`].
    pub struct DestroyTisOut[16] {}
}

numbers! {
    /// To where a TIR passes frames.
    pub struct Dispatch(u8) {
        /// To one receive queue.
        DIRECT = 0;
        /// To a queue of a table, chosen by a hash.
        INDIRECT = 1;
    }
}

numbers! {
    /// How a TIR hashes frames.
    pub struct HashFunction(u8) {
        /// No hash.
        NONE = 0;
        /// The XOR of all bytes, inverted.
        INVERTED_XOR8 = 1;
        /// Toeplitz hash.
        TOEPLITZ = 2;
    }
}

layout! {
    /// Which fields of a frame a TIR hashes.
    pub struct HashFields[4] {
        /// Frames have IPv6 headers, rather than IPv4.
        is_ipv6: bool = 0x00, 1;
        /// Frames have UDP headers, rather than TCP.
        is_udp: bool = 0x01, 1;
        /// The fields, as a union of [`HashFields::SOURCE_IP`] and the other constants.
        selected: u32 = 0x02, 30;
    }
}

impl HashFields {
    /// Bit of `selected`: source IP address.
    pub const SOURCE_IP: u32 = 1;
    /// Bit of `selected`: destination IP address.
    pub const DESTINATION_IP: u32 = 1 << 1;
    /// Bit of `selected`: source port.
    pub const SOURCE_PORT: u32 = 1 << 2;
    /// Bit of `selected`: destination port.
    pub const DESTINATION_PORT: u32 = 1 << 3;
    /// Bit of `selected`: security parameter index of IPsec.
    pub const IPSEC_SPI: u32 = 1 << 4;
}

layout! {
    /// The context of a transport interface for receiving (TIR).
    pub struct TirContext[240] {
        /// To where frames go.
        disp_type: Dispatch = 0x020, 4;
        /// Frames are decrypted by TLS.
        tls_en: bool = 0x024, 1;
        /// Which frames are merged.
        packet_merge_mask: u8 = 0x094, 4;
        /// The queue, if the TIR is direct.
        inline_rqn: u32 = 0x0e8, 24;
        /// The hash ignores the direction of a flow.
        rx_hash_symmetric: bool = 0x100, 1;
        /// Checksums of encapsulated frames are checked, too.
        tunneled_offload_en: bool = 0x102, 1;
        /// The table of queues, if the TIR is indirect.
        indirect_table: u32 = 0x108, 24;
        /// How frames are hashed.
        rx_hash_fn: HashFunction = 0x120, 4;
        /// Which frames of the same transport domain are blocked, as a union of [`TirContext::BLOCK_UNICAST`] and
        /// [`TirContext::BLOCK_MULTICAST`].
        self_lb_block: u8 = 0x126, 2;
        /// Transport domain.
        transport_domain: u32 = 0x128, 24;
        /// Key of the Toeplitz hash.
        rx_hash_toeplitz_key: Bytes<40> = 0x140, 320;
        /// Fields of the outer headers that are hashed.
        outer: HashFields = 0x280, 32;
    }
}

impl TirContext {
    /// Bit of `self_lb_block`: unicast frames.
    pub const BLOCK_UNICAST: u8 = 1;
    /// Bit of `self_lb_block`: multicast frames.
    pub const BLOCK_MULTICAST: u8 = 2;
}

command! { CREATE_TIR -> CreateTirOut;
    /// CREATE_TIR: creates a transport interface for receiving.
    pub struct CreateTir[272] {
        /// Settings.
        context: TirContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`CreateTir`].
    pub struct CreateTirOut[16] {
        /// Number of the new TIR.
        tirn: u32 = 0x48, 24;
    }
}

command! { MODIFY_TIR -> ModifyTirOut;
    /// MODIFY_TIR: changes the settings of a TIR.
    pub struct ModifyTir[272] {
        /// Number of the TIR.
        tirn: u32 = 0x48, 24;
        /// Whether to set `self_lb_block`.
        sets_loopback: bool = 0xbb, 1;
        /// Whether to set the hash.
        sets_hash: bool = 0xbd, 1;
        /// Whether to set which frames are merged.
        sets_merge: bool = 0xbf, 1;
        /// New settings.
        context: TirContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`ModifyTir`].
    pub struct ModifyTirOut[16] {}
}

command! { DESTROY_TIR -> DestroyTirOut;
    /// DESTROY_TIR: destroys a TIR.
    pub struct DestroyTir[16] {
        /// Number of the TIR.
        tirn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyTir`].
    pub struct DestroyTirOut[16] {}
}

layout! {
    /// The context of a table of receive queues (RQT). The queue numbers follow it, 4 bytes each.
    pub struct RqtContext[240] {
        /// Type of the queues: 0 for receive queues.
        list_q_type: u8 = 0x0a5, 3;
        /// Maximum number of queues.
        rqt_max_size: u16 = 0x0b0, 16;
        /// Number of queues in the list, a power of two.
        rqt_actual_size: u16 = 0x0d0, 16;
    }
}

command! { CREATE_RQT -> CreateRqtOut;
    /// CREATE_RQT: creates a table of receive queues, whose numbers follow the mailbox.
    pub struct CreateRqt[272] {
        /// Settings.
        context: RqtContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`CreateRqt`].
    pub struct CreateRqtOut[16] {
        /// Number of the new table (RQTN).
        rqtn: u32 = 0x48, 24;
    }
}

command! { MODIFY_RQT -> ModifyRqtOut;
    /// MODIFY_RQT: replaces the queues of a table by those that follow the mailbox.
    pub struct ModifyRqt[272] {
        /// Number of the table (RQTN).
        rqtn: u32 = 0x48, 24;
        /// Whether to replace the list.
        sets_list: bool = 0xbf, 1;
        /// Length of the new list.
        context: RqtContext = 0x100, 1920;
    }
}

response! {
    /// The NIC's reply to [`ModifyRqt`].
    pub struct ModifyRqtOut[16] {}
}

command! { DESTROY_RQT -> DestroyRqtOut;
    /// DESTROY_RQT: destroys a table of receive queues.
    pub struct DestroyRqt[16] {
        /// Number of the table (RQTN).
        rqtn: u32 = 0x48, 24;
    }
}

response! {
    /// The NIC's reply to [`DestroyRqt`].
    pub struct DestroyRqtOut[16] {}
}
