//! Reasons why the adapter refuses commands, each with its own syndrome.

use rushmem_mlx5::prm::{CmdError, CmdStatus};

macro_rules! reasons {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// Reason why a command was refused. Its value is the syndrome in the output mailbox.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($name = $number,)*
        }

        /// Returns the meaning of a syndrome that the software ConnectX has left in an output mailbox.
        ///
        /// ```
        /// assert_eq!(rushmem_softnic::reason(0x5f_0022), Some("no more objects of this kind"));
        /// ```
        #[must_use]
        pub fn reason(syndrome: u32) -> Option<&'static str> {
            match syndrome {
                $($number => Some($text),)*
                _ => None,
            }
        }
    };
}

reasons! {
    InputLength = 0x5f_0001, "the input mailbox is too short for its command";
    Command = 0x5f_0002, "the software ConnectX does not have this command";
    CapPage = 0x5f_0003, "no such capability page";
    TableIndex = 0x5f_0005, "the table of the port has no such entry";
    Port = 0x5f_0006, "the only port is 1";
    PortType = 0x5f_0007, "the port has another link layer";
    RegisterRead = 0x5f_0008, "access registers can only be read";
    NoRegister = 0x5f_0009, "no such access register";
    PortField = 0x5f_000f, "a driver cannot change this property of the port";
    CapSet = 0x5f_000a, "the capability is larger than this adapter's, or cannot be set";
    Index = 0x5f_0004, "the address table has one entry, 0";
    NoPd = 0x5f_0010, "no such protection domain in this context";
    NoUar = 0x5f_0011, "no such UAR page in this context";
    NoUmem = 0x5f_0012, "no such umem in this context";
    NoMkey = 0x5f_0013, "no such memory key in this context";
    NoCq = 0x5f_0014, "no such completion queue in this context";
    NoQp = 0x5f_0015, "no such queue pair in this context";
    NoCounters = 0x5f_0016, "no such counter set";
    NoSrq = 0x5f_0017, "no such shared receive queue in this context";
    NoDct = 0x5f_0018, "no such target of dynamic connections in this context";
    NoXrcd = 0x5f_0019, "no such XRC domain";
    NoBus = 0x5f_001a, "this context is not that of a PCI function";
    NoMember = 0x5f_001b, "no such queue pair in this multicast group";
    NoQueue = 0x5f_0090, "no such send or receive queue in this context";
    NoTis = 0x5f_0091, "no such transport interface for sending (TIS) in this context";
    NoTir = 0x5f_0092, "no such transport interface for receiving (TIR) in this context";
    NoRqt = 0x5f_0093, "no such table of receive queues in this context";
    NoDomain = 0x5f_0094, "no such transport domain in this context";
    NoTable = 0x5f_0095, "no such flow table in this context";
    NoGroupOfTable = 0x5f_0096, "the flow table has no such group";
    NoFlowCounter = 0x5f_0097, "no such flow counter in this context";
    DomainUsed = 0x5f_0098, "the transport domain still has TISs or TIRs";
    TisUsed = 0x5f_0099, "the TIS still has send queues";
    TirUsed = 0x5f_009a, "flow tables still lead to the TIR";
    RqUsed = 0x5f_009b, "TIRs or tables of receive queues still name the queue";
    RqtUsed = 0x5f_009c, "TIRs still use the table of receive queues";
    TableUsed = 0x5f_009d, "the flow table or group still has contents, or is the destination of others";
    QueueType = 0x5f_00a0, "only plain send and receive queues are supported";
    Interface = 0x5f_00a1, "TLS, merging of segments, tunnels, unknown hashes and InfiniBand are not supported";
    RqtSize = 0x5f_00a2, "the number of receive queues is 0 or too large";
    TableType = 0x5f_00a3, "only flow tables for received frames are supported, which drop or forward";
    TableLevel = 0x5f_00a4, "the level or the size of the flow table is too large, or the next table has no higher level";
    Criteria = 0x5f_00a5, "only outer headers can be matched";
    FlowIndex = 0x5f_00a6, "the entries are outside of the flow table or group, or in use, or do not exist";
    FlowAction = 0x5f_00a7, "entries can only drop, count, or forward to flow tables and TIRs";
    FlowBulk = 0x5f_00a8, "flow counters are allocated and queried one by one";
    NoGroup = 0x5f_00a9, "the adapter cannot receive frames for several stations";
    AddressList = 0x5f_00aa, "the list of addresses is too long, or of an unknown type";
    VportField = 0x5f_00ab, "the virtual port has no such setting";
    OtherFunction = 0x5f_00ac, "a function can only name its own virtual port";
    Group = 0x5f_00ad, "the GID is not that of a multicast group, or the adapter cannot join it";
    PdUsed = 0x5f_0020, "the protection domain still has memory keys, queue pairs, targets of dynamic connections or shared receive queues";
    CqUsed = 0x5f_0021, "the completion queue still has queue pairs or targets of dynamic connections";
    CountersUsed = 0x5f_0023, "the counter set still has queue pairs";
    SrqUsed = 0x5f_0024, "the shared receive queue still has queue pairs or targets of dynamic connections";
    XrcdUsed = 0x5f_0025, "the XRC domain still has queue pairs or shared receive queues";
    UmemUsed = 0x5f_0027, "the umem still has queues or memory keys";
    Full = 0x5f_0022, "no more objects of this kind";
    Quota = 0x5f_0028, "the function has as many objects as it may have";
    NeedsUmem = 0x5f_0030, "queues, doorbell records and memory keys must lie in umems";
    UmemRange = 0x5f_0031, "the object leaves its umem or its pages";
    UmemAlignment = 0x5f_0032, "queues must be aligned to 64 bytes, doorbell records to 8";
    PageSize = 0x5f_0033, "pages must have 2^12 to 2^31 bytes";
    PageList = 0x5f_0034, "the list of pages is too short, or a page ends past the last address";
    AccessMode = 0x5f_0040, "only keys over memory or over other keys (access modes PA, MTT, KLM, KSM) are supported";
    KeyFree = 0x5f_0041, "keys that are free, sign or encrypt are not supported";
    KeyRange = 0x5f_0042, "the key's addresses wrap around, or none of them has memory";
    KeyList = 0x5f_0043, "the entries of an indirect key must be one range of one key, as long as the key";
    CqeSize = 0x5f_0050, "only uncompressed CQEs of 64 or 128 bytes are supported";
    CqSize = 0x5f_0051, "the completion queue is too large";
    Resize = 0x5f_0052, "only the size of a completion queue can change, and not that of a collapsed one";
    CqFull = 0x5f_0053, "the old or the new completion queue has no room for the entries that are not polled yet";
    KernelQp = 0x5f_0068, "only a PCI function has queue pairs that change keys or belong to the port";
    Service = 0x5f_0060, "only reliable, unreliable and extended connections, initiators of dynamic connections, and datagrams are supported";
    SqSize = 0x5f_0061, "the queue is too large";
    RqType = 0x5f_0062, "only queue pairs with a receive queue of their own, a shared one or none are supported";
    DbrMode = 0x5f_0063, "this adapter was started without support of queue pairs without doorbell record";
    DbrShared = 0x5f_0067, "another queue pair without doorbell record uses this doorbell page";
    WqType = 0x5f_0064, "only linked and cyclic receive queues are supported";
    Signature = 0x5f_0065, "WQE signatures are not supported";
    PageOffset = 0x5f_0066, "page_offset must be 0 with a umem";
    TimeStamps = 0x5f_0069, "the clock of this adapter is set to real time, so no QP has free-running timestamps";
    Mtu = 0x5f_0070, "the path MTU is invalid, or larger than this adapter's";
    NoPath = 0x5f_0072, "there is no route to the peer's address, or its link does not carry packets of 256 bytes";
    Gid = 0x5f_0073, "the peer's GID is not an IPv4 address, neither mapped nor link-local";
    NoFabric = 0x5f_0074, "the peer is another adapter, and this one was started without a fabric";
    MsgMax = 0x5f_0075, "log_msg_max is larger than 30";
    Retries = 0x5f_0076, "the number of outstanding reads is too large";
    Extension = 0x5f_0077, "the QP context's extension is not supported";
    Lid = 0x5f_0078, "the peer's LID is not unicast: use 0x0001 to 0xbfff";
    Ece = 0x5f_007b, "CREATE_QP offered no ECE options";
    Partition = 0x5f_0079, "the table of partition keys has no such entry";
    Ordering = 0x5f_007a, "only READs and WRITEs may be out of order";
    BondPort = 0x5f_007c, "the bond has no such port";
    State = 0x5f_0080, "the queue pair is not in the state from which the transition starts";
}

pub(crate) fn refuse(status: CmdStatus, why: Reason) -> CmdError {
    CmdError { status, syndrome: why as u32 }
}

/// Builds the error of a command that names an object which does not exist or belongs to another context.
pub(crate) fn bad_resource(why: Reason) -> CmdError {
    refuse(CmdStatus::BAD_RES, why)
}
