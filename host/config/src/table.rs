//! The one table of settings: key, type, environment variable, default, unit, meaning.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use crate::id::EncodedId;
use crate::nic::Nic;
use crate::start::{AddressFamily, BootstrapKind};
use crate::value::{
    self, Auto, Bytes, ConnectKind, CqKind, DeviceKind, DoorbellKind, Gpus, HeapKind, HeapMax, Partition,
    PeerPath, Progress, QueueMemory, Retries, Secret, SqDepth, Value,
};
use crate::{Origin, Setting};

/// Makes from one list of rows the struct [`Config`], its defaults, and [`SETTINGS`].
macro_rules! settings {
    (
        user { $($key:ident: $type:ty, $env:literal, $default:literal, $unit:literal, $doc:literal;)* }
        launch { $($lkey:ident: $ltype:ty, $lenv:literal, $lunit:literal, $ldoc:literal;)* }
    ) => {
        /// Every setting of a job, typed.
        ///
        /// Made by [`Config::load`]; a program may then change fields, or use [`Config::set`] with text.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            $(
                #[doc = $doc]
                #[serde(deserialize_with = "value::from_file")]
                pub $key: $type,
            )*
            $(
                #[doc = $ldoc]
                #[doc = "Set by the launcher."]
                #[serde(skip)]
                pub $lkey: Option<$ltype>,
            )*
            /// Which settings were set, and by whom; the others hold their defaults.
            #[serde(skip)]
            pub(crate) origins: BTreeMap<&'static str, Origin>,
        }

        impl Default for Config {
            fn default() -> Self {
                Config {
                    $($key: built_in($default),)*
                    $($lkey: None,)*
                    origins: BTreeMap::new(),
                }
            }
        }

        /// The table of all settings, in the order in which they are best explained.
        pub static SETTINGS: &[Setting] = &[
            $(Setting {
                key: stringify!($key),
                env: $env,
                default: $default,
                unit: $unit,
                doc: $doc,
                launch: false,
                accepts: <$type as Value>::accepts,
                set: |config, text| Value::parse(text).map(|value: $type| config.$key = value),
                show: |config| config.$key.show(),
            },)*
            $(Setting {
                key: stringify!($lkey),
                env: $lenv,
                default: "",
                unit: $lunit,
                doc: $ldoc,
                launch: true,
                accepts: <$ltype as Value>::accepts,
                set: |config, text| Value::parse(text).map(|value: Option<$ltype>| config.$lkey = value),
                show: |config| config.$lkey.show(),
            },)*
        ];
    };
}

settings! {
    user {
        pes: NonZeroU32, "RUSHMEM_PES", "1", "PEs",
            "Number of PEs as threads of this process, where no launcher started it.";
        heap_bytes: Bytes, "RUSHMEM_HEAP_BYTES", "64MiB", "bytes",
            "Size of the symmetric heap of each PE.";
        heap_max: HeapMax, "RUSHMEM_HEAP_MAX", "none", "bytes",
            "Size that the symmetric heap of each PE may grow to when it is full; it doubles each time.";
        heap: HeapKind, "RUSHMEM_HEAP", "auto", "",
            "Memory that holds the symmetric heap.";
        device: DeviceKind, "RUSHMEM_DEVICE", "auto", "",
            "The executor of kernels.";
        gpus: Gpus, "RUSHMEM_GPUS", "auto", "ordinals",
            "GPUs that PEs of this node take in turn.";
        nic: Nic, "RUSHMEM_NIC", "auto", "",
            "NICs that carry what does not go directly to a peer; with several, each PE takes the nearest.";
        doorbell: DoorbellKind, "RUSHMEM_DOORBELL", "auto", "",
            "The writer of an RDMA device's doorbell register: the kernel (gpu) or a CPU thread for it (cpu).";
        queues: QueueMemory, "RUSHMEM_QUEUES", "auto", "",
            "Memory that holds the queues of an RDMA device.";
        traffic_class: u8, "RUSHMEM_TRAFFIC_CLASS", "0", "",
            "Traffic class of an RDMA device's packets: on Ethernet the IP header's DSCP times 4, plus ECN bits.";
        service_level: u8, "RUSHMEM_SERVICE_LEVEL", "0", "",
            "Service level of an RDMA device's packets: on Ethernet the VLAN priority.";
        gid_index: Auto<u8>, "RUSHMEM_GID_INDEX", "auto", "",
            "Place of an RDMA port's address in its table of GIDs; auto takes the one that reaches furthest.";
        partition: Auto<Partition>, "RUSHMEM_PARTITION", "auto", "",
            "Key of the partition (P_Key) in which an RDMA device's QPs are; auto takes the port's first one as a full member.";
        retries: Retries, "RUSHMEM_RETRIES", "7", "",
            "How often a NIC sends a packet again that is not acknowledged, before it gives the peer up.";
        ack_timeout: Auto<Duration>, "RUSHMEM_ACK_TIMEOUT", "auto", "time",
            "How long a NIC waits for an acknowledgement each time, rounded up to 4.096 us times a power of two; auto lets \
             all tries end within half of `timeout`.";
        peer_path: PeerPath, "RUSHMEM_PEER_PATH", "auto", "",
            "Path to peers: p2p (loads and stores within a node), nic, or auto. Auto uses p2p between GPUs, and the NIC natively.";
        p2p_group: u32, "RUSHMEM_P2P_GROUP", "0", "PEs",
            "With peer_path = p2p: the number of consecutive PEs that map each other's heaps; 0 means all PEs of a node.";
        sq_depth: SqDepth, "RUSHMEM_SQ_DEPTH", "1024", "WQEs",
            "Depth of each send queue.";
        cq: CqKind, "RUSHMEM_CQ", "ring", "",
            "Form of the completion queues.";
        nics_per_pe: NonZeroU32, "RUSHMEM_NICS_PER_PE", "1", "NICs",
            "NICs that each PE uses at the same time.";
        connect: ConnectKind, "RUSHMEM_CONNECT", "lazy", "",
            "When QPs are made: lazy (when a kernel first posts to a peer) or eager (all at start).";
        queue_memory: Bytes, "RUSHMEM_QUEUE_MEMORY", "256MiB", "bytes",
            "Most memory that the queues of a PE take.";
        qps_per_peer: NonZeroU32, "RUSHMEM_QPS_PER_PEER", "1", "QPs",
            "QPs to each peer that all threads of a GPU share.";
        block_qps: u32, "RUSHMEM_BLOCK_QPS", "0", "QPs",
            "QPs to each peer that the threads of one block share.";
        exclusive_qps: u32, "RUSHMEM_EXCLUSIVE_QPS", "0", "QPs",
            "QPs to each peer that one thread has for itself.";
        context_qps: u32, "RUSHMEM_CONTEXT_QPS", "0", "QPs",
            "Contexts that the host may make at the same time; a QP to each peer for each of them.";
        teams: NonZeroU32, "RUSHMEM_TEAMS", "32", "teams",
            "Teams that a PE can be in at once, the 4 that are always there included.";
        team_scratch: Bytes, "RUSHMEM_TEAM_SCRATCH", "128KiB", "bytes",
            "Memory that the collective calls of each team have for data on their way.";
        timeout: Duration, "RUSHMEM_TIMEOUT", "10s", "time",
            "Deadline of every blocking call of a kernel.";
        bootstrap_timeout: Duration, "RUSHMEM_BOOTSTRAP_TIMEOUT", "60s", "time",
            "Deadline of every collective call among the PEs of a job on the host, joining it included.";
        bootstrap: BootstrapKind, "RUSHMEM_BOOTSTRAP", "auto", "",
            "How the PEs of a job find each other.";
        bootstrap_interface: String, "RUSHMEM_BOOTSTRAP_INTERFACE", "", "",
            "Network interface, or its address, on which PE 0 listens in a job that another launcher or an id \
             brings together; empty for this machine only.";
        bootstrap_family: AddressFamily, "RUSHMEM_BOOTSTRAP_FAMILY", "auto", "",
            "Kind of address that is taken of that interface; auto takes IPv4 if there is one.";
        bootstrap_port: u16, "RUSHMEM_BOOTSTRAP_PORT", "0", "TCP port",
            "Port on which PE 0 listens there; 0 for any free one, and under torchrun on several nodes for that \
             after MASTER_PORT.";
        native_workers: u32, "RUSHMEM_NATIVE_WORKERS", "0", "threads",
            "Threads that run native kernels; 0 for one per core.";
        native_stack: Bytes, "RUSHMEM_NATIVE_STACK", "1MiB", "bytes",
            "Stack of each thread of a native kernel.";
        softnic_ip: IpAddr, "RUSHMEM_SOFTNIC_IP", "127.0.0.1", "",
            "Address of the software ConnectX, where PEs are processes.";
        softnic_port: u16, "RUSHMEM_SOFTNIC_PORT", "0", "UDP port",
            "Port of the software ConnectX, where PEs are processes; 0 for any free one.";
        softnic_fault: String, "RUSHMEM_SOFTNIC_FAULT", "", "",
            "Faults that the software ConnectX injects; empty for none.";
        log: String, "RUSHMEM_LOG", "warn", "",
            "Log filter, such as info, or rushmem_bootstrap=debug for one part.";
        log_file: String, "RUSHMEM_LOG_FILE", "", "",
            "File for the log, with %h for the host and %p for the process; empty for standard error.";
        progress: Progress, "RUSHMEM_PROGRESS", "auto", "",
            "Whether programs draw progress bars.";
    }
    launch {
        pe: u32, "RUSHMEM_PE", "PE",
            "Number of this PE in the job.";
        n_pes: NonZeroU32, "RUSHMEM_N_PES", "PEs",
            "Number of PEs in the job.";
        local_pe: u32, "RUSHMEM_LOCAL_PE", "PE",
            "Number of this PE among the PEs of its node.";
        local_pes: NonZeroU32, "RUSHMEM_LOCAL_PES", "PEs",
            "Number of PEs on this node.";
        node: u32, "RUSHMEM_NODE", "node",
            "Number of this node in the job.";
        nodes: NonZeroU32, "RUSHMEM_NODES", "nodes",
            "Number of nodes in the job.";
        server: String, "RUSHMEM_SERVER", "host:port",
            "Where the job's launcher listens.";
        id: EncodedId, "RUSHMEM_ID", "",
            "The job's unique id, for PEs that are started by hand; made by `rushmem id`.";
        token: Secret, "RUSHMEM_TOKEN", "",
            "The job's secret, which authenticates its PEs to each other.";
    }
}

/// Variables with our prefix that are not settings of a job, and what they mean.
pub static OTHER_VARIABLES: &[(&str, &str)] = &[
    ("RUSHMEM_CONFIG", "Path of a TOML file with settings; the environment overrides what it says."),
    (
        "RUSHMEM_PTX",
        "When kernels are built: auto, all (tests and benchmarks too), build (compile even if committed PTX matches), committed (never compile) or none (kernels run natively only).",
    ),
    ("RUSHMEM_PTX_RUSTC", "When kernels are built: path of the rustc that compiles them."),
    ("RUSHMEM_PTX_CARGO", "When kernels are built: path of the cargo that drives the rustc."),
    ("RUSHMEM_PTXAS", "Path of the ptxas that checks PTX and makes machine code."),
    (
        "RUSHMEM_PTX_CUBIN",
        "When kernels are built: a GPU, such as sm_90. Programs then also embed machine code for it.",
    ),
    (
        "RUSHMEM_UVERBS_DEVICES",
        "Preloaded software ConnectX: how many devices there are. `rushmem softnic` sets it.",
    ),
    ("RUSHMEM_UVERBS_LINK", "Preloaded software ConnectX: ethernet or ib. `rushmem softnic` sets it."),
    (
        "RUSHMEM_UVERBS_IP",
        "Preloaded software ConnectX: an address for each device. `rushmem softnic` sets it.",
    ),
    ("RUSHMEM_UVERBS_FAULT", "Preloaded software ConnectX: faults to inject. `rushmem softnic` sets it."),
    (
        "RUSHMEM_UVERBS_CAPTURE",
        "Preloaded software ConnectX: file for all packets. `rushmem softnic` sets it.",
    ),
    (
        "RUSHMEM_UVERBS_RECORD",
        "Preloaded software ConnectX: file for send work-queue entries. `rushmem softnic` sets it.",
    ),
    ("RUSHMEM_UVERBS_LOG", "Preloaded software ConnectX: what it logs to standard error, such as debug."),
    ("RUSHMEM_UVERBS_LIBRARY", "Where `rushmem softnic` finds the library to preload, if not beside itself."),
    ("RUSHMEM_LITMUS_ROUNDS", "Litmus tests: how many rounds of each test on each path."),
];

/// Returns a default from the table. A test checks that each one parses.
fn built_in<T: Value>(text: &str) -> T {
    match T::parse(text) {
        Ok(value) => value,
        Err(why) => unreachable!("default `{text}` in the table of settings: {why}"),
    }
}
