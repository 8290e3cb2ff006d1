//! The context of a queue pair: its state, queues, peer and optional features.

use super::AddressPath;
use crate::prm::layout::{layout, numbers};

numbers! {
    /// State of a queue pair, as defined by the InfiniBand specification.
    pub struct QpState(u8) {
        /// Reset: the initial state, in which nothing is sent or received.
        RST = 0;
        /// Initialised: receives may be posted.
        INIT = 1;
        /// Ready to receive, but not to send.
        RTR = 2;
        /// Ready to send, and to receive.
        RTS = 3;
        /// The send queue failed; receives still work.
        SQER = 4;
        /// The send queue is drained: no new entries are started.
        SQD = 5;
        /// Failed: all work requests are flushed.
        ERR = 6;
    }
}

numbers! {
    /// Transport service of a queue pair.
    pub struct ServiceType(u8) {
        /// Reliable connection.
        RC = 0;
        /// Unreliable connection.
        UC = 1;
        /// Unreliable datagram.
        UD = 2;
        /// Extended reliable connection.
        XRC = 3;
        /// Dynamically connected initiator.
        DCI = 5;
        /// Dynamically connected target.
        DCT = 6;
        /// QP 0, for subnet management.
        QP0 = 7;
        /// QP 1, for general services.
        QP1 = 8;
        /// Changes memory keys by work-queue entries (UMR).
        REG_UMR = 12;
    }
}

numbers! {
    /// Path migration state of a queue pair.
    pub struct PmState(u8) {
        /// Armed: the NIC may switch to the alternate path.
        ARMED = 0;
        /// Rearm: the NIC is asked to return to the armed state.
        REARM = 1;
        /// Migrated: the primary path is the one in use.
        MIGRATED = 3;
    }
}

numbers! {
    /// Largest payload of a packet, encoded as in the InfiniBand specification.
    pub struct Mtu(u8) {
        /// Payloads of up to 256 bytes.
        B256 = 1;
        /// Payloads of up to 512 bytes.
        B512 = 2;
        /// Payloads of up to 1024 bytes.
        B1024 = 3;
        /// Payloads of up to 2048 bytes.
        B2048 = 4;
        /// Payloads of up to 4096 bytes.
        B4096 = 5;
    }
}

impl Mtu {
    /// Returns the MTU in bytes, or `None` for an undefined value.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }

    /// Returns the largest MTU that does not exceed `bytes`, but at least 256 bytes.
    pub const fn within(bytes: u32) -> Self {
        match bytes {
            0..512 => Self::B256,
            512..1024 => Self::B512,
            1024..2048 => Self::B1024,
            2048..4096 => Self::B2048,
            _ => Self::B4096,
        }
    }
}

numbers! {
    /// Which remote atomics a queue pair or DC target executes.
    pub struct AtomicMode(u8) {
        /// Remote atomics are rejected.
        NONE = 0;
        /// The atomics of the InfiniBand specification, whose operands have 8 bytes.
        IB_SPEC = 1;
        /// Atomics with 8-byte operands only.
        ONLY_8B = 2;
        /// Atomics with operands of up to 8 bytes.
        UP_TO_8B = 3;
        /// Atomics with operands of up to 16 bytes.
        UP_TO_16B = 4;
        /// Atomics with operands of up to 32 bytes.
        UP_TO_32B = 5;
        /// Atomics with operands of up to 64 bytes.
        UP_TO_64B = 6;
        /// Atomics with operands of up to 128 bytes.
        UP_TO_128B = 7;
        /// Atomics with operands of up to 256 bytes.
        UP_TO_256B = 8;
    }
}

numbers! {
    /// Where a queue pair takes its receive entries from.
    pub struct RqType(u8) {
        /// The QP has its own receive queue.
        REGULAR = 0;
        /// The QP takes entries from a shared receive queue.
        SRQ = 1;
        /// No receives: the QP serves only remote reads, writes and atomics.
        ZERO_SIZE = 3;
    }
}

layout! {
    /// The context of a queue pair. Each command reads only the fields that concern it; the others stay zero.
    pub struct QpContext[232] {
        /// State of the queue pair. Only set in query results.
        state: QpState = 0x000, 4;
        /// Physical port of a bond that sends, starting at 1.
        lag_tx_port_affinity: u8 = 0x004, 4;
        /// Transport service of the queue pair.
        st: ServiceType = 0x008, 8;
        /// One virtual lane for one traffic class.
        isolate_vl_tc: bool = 0x012, 1;
        /// Path migration state.
        pm_state: PmState = 0x013, 2;
        /// Encoded padding after scattered data.
        end_padding_mode: u8 = 0x01c, 2;
        /// Work-queue entries carry an XOR signature that the NIC checks.
        wq_signature: bool = 0x020, 1;
        /// Multicast is not looped back.
        block_lb_mc: bool = 0x021, 1;
        /// Optimises the QP for latency rather than throughput.
        latency_sensitive: bool = 0x023, 1;
        /// Packets of READs and WRITEs may take any path, so WRITEs may be delivered out of order.
        dp_ordering_0: bool = 0x026, 1;
        /// Firmware obeys the two ordering bits instead of choosing the packet ordering itself.
        dp_ordering_force: bool = 0x027, 1;
        /// Protection domain of the queue pair.
        pd: u32 = 0x028, 24;
        /// Largest payload of a packet.
        mtu: Mtu = 0x040, 3;
        /// log2 of the maximum message length, in bytes; 30 is 1 GiB.
        log_msg_max: u8 = 0x043, 5;
        /// log2 of the number of entries of the receive queue.
        log_rq_size: u8 = 0x049, 4;
        /// log2 of the size of a receive entry in bytes, minus 4.
        log_rq_stride: u8 = 0x04d, 3;
        /// The QP has no send queue.
        no_sq: bool = 0x050, 1;
        /// log2 of the number of 64-byte blocks (WQEBBs) of the send queue.
        log_sq_size: u8 = 0x051, 4;
        /// Format of timestamps in completions, such as [`TS_DEFAULT`](super::TS_DEFAULT).
        ts_format: u8 = 0x058, 2;
        /// Data arrives in memory in the order it was sent.
        data_in_order: bool = 0x05a, 1;
        /// Work-queue entries may use the reserved lkey.
        rlky: bool = 0x05b, 1;
        /// ID of the set of queue counters to update.
        counter_set_id: u8 = 0x060, 8;
        /// UAR page of the QP. Doorbells on other pages are ignored.
        uar_page: u32 = 0x068, 24;
        /// Whether the send queue has a doorbell record: [`SEND_DBR`](super::SEND_DBR) or
        /// [`SEND_NO_DBR`](super::SEND_NO_DBR).
        send_dbr_mode: u8 = 0x080, 2;
        /// ID chosen by software, carried in the QP's completions.
        user_index: u32 = 0x088, 24;
        /// log2 of the page size, minus 12; ignored with a umem.
        log_page_size: u8 = 0x0a3, 5;
        /// QPN of the peer.
        remote_qpn: u32 = 0x0a8, 24;
        /// Network path to the peer.
        primary_address_path: AddressPath = 0x0c0, 352;
        /// Alternate network path, for path migration.
        secondary_address_path: AddressPath = 0x220, 352;
        /// log2 of the number of packets between acknowledgement requests.
        log_ack_req_freq: u8 = 0x380, 4;
        /// log2 of the maximum number of outstanding reads and atomics that the QP sends.
        log_sra_max: u8 = 0x388, 3;
        /// Number of retries after a missing acknowledgement, 0 to 7.
        retry_count: u8 = 0x38d, 3;
        /// Number of retries while the receiver is not ready (RNR); 7 is unlimited.
        rnr_retry: u8 = 0x390, 3;
        /// Enables fast registration of memory keys through the send queue.
        fre: bool = 0x394, 1;
        /// Number of receiver-not-ready retries left. Only set in query results.
        cur_rnr_retry: u8 = 0x395, 3;
        /// Number of retries left after missing acknowledgements. Only set in query results.
        cur_retry_count: u8 = 0x398, 3;
        /// PSN that the next packet to send will have.
        next_send_psn: u32 = 0x3c8, 24;
        /// CQN of the queue for send completions.
        cqn_snd: u32 = 0x3e8, 24;
        /// Source QPN that the headers of datagrams carry.
        deth_sqpn: u32 = 0x408, 24;
        /// Packet sequence number that was last acknowledged. Only set in query results.
        last_acked_psn: u32 = 0x448, 24;
        /// Send sequence number, which counts messages. Only set in query results.
        ssn: u32 = 0x468, 24;
        /// log2 of the maximum number of outstanding reads and atomics that the QP serves.
        log_rra_max: u8 = 0x488, 3;
        /// Which remote atomics the QP executes for its peer.
        atomic_mode: AtomicMode = 0x48c, 4;
        /// Allows the peer to read memory.
        rre: bool = 0x490, 1;
        /// Allows the peer to write memory.
        rwe: bool = 0x491, 1;
        /// Allows the peer to execute atomics on memory.
        rae: bool = 0x492, 1;
        /// Offset of the queues within their first page, in units of 1/64 page; zero with a umem.
        page_offset: u8 = 0x494, 6;
        /// Packets of all messages may take any path.
        dp_ordering_1: bool = 0x49c, 1;
        /// Receives are only executed when another queue enables them (cross-channel).
        cd_slave_receive: bool = 0x49d, 1;
        /// Sends are only executed when another queue enables them (cross-channel).
        cd_slave_send: bool = 0x49e, 1;
        /// The send queue may contain WAIT entries (cross-channel).
        cd_master: bool = 0x49f, 1;
        /// Time that the peer must wait after a receiver-not-ready NAK, encoded.
        min_rnr_nak: u8 = 0x4a3, 5;
        /// PSN expected next.
        next_rcv_psn: u32 = 0x4a8, 24;
        /// ID of the XRC domain.
        xrcd: u32 = 0x4c8, 24;
        /// CQN of the queue for receive completions.
        cqn_rcv: u32 = 0x4e8, 24;
        /// Offset of the doorbell record in its umem, in bytes. Without a umem, its bus address.
        dbr_addr: u64 = 0x500, 64;
        /// Queue key that received datagrams must carry.
        q_key: u32 = 0x540, 32;
        /// Where the QP takes its receive entries from.
        rq_type: RqType = 0x565, 3;
        /// Shared receive queue number (SRQN).
        srqn_rmpn_xrqn: u32 = 0x568, 24;
        /// Receive message sequence number. Only set in query results.
        rmsn: u32 = 0x588, 24;
        /// Number of send WQEBBs that the NIC has fetched, modulo 2^16. Only set in query results.
        hw_sq_wqebb_counter: u16 = 0x5a0, 16;
        /// Number of send WQEBBs that the doorbell has announced, modulo 2^16. Only set in query results.
        sw_sq_wqebb_counter: u16 = 0x5b0, 16;
        /// Number of receive entries that the NIC has fetched. Only set in query results.
        hw_rq_counter: u32 = 0x5c0, 32;
        /// Number of receive entries that the doorbell record has announced. Only set in query results.
        sw_rq_counter: u32 = 0x5e0, 32;
        /// How much of a response is scattered into its completion: 0x11 for up to 32 bytes, 0x22 for up to 64, 0 for
        /// none.
        cs_req: u8 = 0x630, 8;
        /// How much of a received message is scattered into its completion, encoded like `cs_req`.
        cs_res: u8 = 0x638, 8;
        /// Access key of dynamically connected transport (DC).
        dc_access_key: u64 = 0x640, 64;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x683, 1;
        /// ID of the umem that holds the doorbell record.
        dbr_umem_id: u32 = 0x720, 32;
    }
}
