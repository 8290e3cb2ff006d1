//! The table of settings: group, key, type, environment variable, default, unit and description.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use crate::id::EncodedId;
use crate::membership::Membership;
use crate::nic::Nic;
use crate::range::AddressRange;
use crate::record::DoorbellRecord;
use crate::start::{AddressFamily, BootstrapKind};
use crate::storage::StorageKind;
use crate::switch::Switch;
use crate::value::{
    self, Auto, Bytes, ConnectKind, CqKind, Dcis, DeviceKind, DoorbellKind, GpuArch, Gpus, HeapKind, Limit,
    OptionalBytes, Ordering, P2pAtomics, Partition, PeerPath, Progress, QueueMemory, RelaxedOrdering,
    Retries, Secret, SqDepth, Value,
};
use crate::{Group, Origin, Setting};

/// Converts the audience in a row of the table, `common` or `expert`, to the value of [`Setting::expert`].
macro_rules! audience {
    (common) => {
        false
    };
    (expert) => {
        true
    };
}

/// Generates the struct [`Config`], its defaults, and [`SETTINGS`] from a single list of rows.
macro_rules! settings {
    (
        user {
            $(
                $group:ident $audience:ident $key:ident: $type:ty,
                $env:literal, $default:literal, $unit:literal, $doc:literal;
            )*
        }
        launch { $($lkey:ident: $ltype:ty, $lenv:literal, $lunit:literal, $ldoc:literal;)* }
    ) => {
        /// All settings of a job, typed.
        ///
        /// Created by [`Config::load`]. Programs may then assign fields, or call [`Config::set`] with text.
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
            /// Where each setting comes from that a layer has set. All others have their defaults.
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

        /// The table of all settings, sorted by group.
        pub static SETTINGS: &[Setting] = &[
            $(Setting {
                key: stringify!($key),
                env: $env,
                default: $default,
                unit: $unit,
                doc: $doc,
                group: Group::$group,
                expert: audience!($audience),
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
                group: Group::PerPe,
                expert: false,
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
        Job common pes: NonZeroU32, "RUSHMEM_PES", "1", "PEs",
            "Number of PEs that run as threads of this process, if no launcher started it.";
        Job common device: DeviceKind, "RUSHMEM_DEVICE", "auto", "",
            "Processor that runs kernels: gpu, or native for the CPU. Auto uses a GPU if there is one.";
        Job common gpus: Gpus, "RUSHMEM_GPUS", "auto", "ordinals",
            "GPUs that the PEs of a node take in turn. Auto uses all GPUs.";
        Job expert gpu_arch: GpuArch, "RUSHMEM_GPU_ARCH", "auto", "",
            "GPU architecture for which PTX is chosen. Auto is the GPU's own. An older one tests the PTX of older GPUs.";
        Job common teams: NonZeroU32, "RUSHMEM_TEAMS", "32", "teams",
            "Upper limit of the teams of a PE, including the 4 predefined teams.";
        Job common bootstrap: BootstrapKind, "RUSHMEM_BOOTSTRAP", "auto", "",
            "Launcher or method that starts the job.";
        Job common bootstrap_interface: String, "RUSHMEM_BOOTSTRAP_INTERFACE", "", "",
            "Network interface, or its address, on which PE 0 listens under another launcher or with an id, or the launcher \
             with --hosts. If it is empty, PE 0 listens on the default route's address if a launcher for MPI started PEs on \
             several nodes, and otherwise on a loopback address; the launcher listens on all interfaces.";
        Job expert bootstrap_family: AddressFamily, "RUSHMEM_BOOTSTRAP_FAMILY", "auto", "",
            "Kind of address to use on `bootstrap_interface`. Auto uses IPv4 if there is one.";
        Job expert bootstrap_port: u16, "RUSHMEM_BOOTSTRAP_PORT", "0", "TCP port",
            "Port on which PE 0, or the launcher with --hosts, listens. 0 is any free port; under torchrun on several nodes, it is MASTER_PORT + 1.";
        Memory common heap_bytes: Bytes, "RUSHMEM_HEAP_BYTES", "64MiB", "bytes",
            "Size of the symmetric heap of each PE.";
        Memory common heap_max: OptionalBytes, "RUSHMEM_HEAP_MAX", "none", "bytes",
            "Size to which the symmetric heap of each PE can grow; a full heap doubles. None keeps the size fixed.";
        Memory common heap: HeapKind, "RUSHMEM_HEAP", "auto", "",
            "Memory of the symmetric heap. Auto uses GPU memory if kernels run on a GPU.";
        Memory expert storage: StorageKind, "RUSHMEM_STORAGE", "auto", "",
            "Path of `Pe::read_file` and `Pe::write_file` between files and GPU memory: plain (reads and writes of the host), \
             cufile (NVIDIA's libcufile, untried on a GPU) or auto. Auto is cufile if the kernel module nvidia_fs is loaded, \
             and libcufile takes the file.";
        Memory expert team_scratch: Bytes, "RUSHMEM_TEAM_SCRATCH", "128KiB", "bytes",
            "Scratch memory for the collective calls of each team.";
        Memory expert grid_scratch: Auto<Bytes>, "RUSHMEM_GRID_SCRATCH", "auto", "bytes",
            "Memory of each team for collective calls by all blocks of a grid. The blocks share it. Auto is 2624KiB in jobs \
             of up to 16 PEs, and 256KiB in others.";
        Network common nic: Nic, "RUSHMEM_NIC", "auto", "",
            "NICs for all transfers that P2P does not carry. Each PE uses the nearest ones, or those of its DEVICE:PORT:PES.";
        Network common failover: Switch, "RUSHMEM_FAILOVER", "off", "",
            "Replaces connections that fail, over another NIC if `nics_per_pe` allows (docs/failover.md). Kernels for GPUs \
             must be built with RUSHMEM_PTX_FAILOVER=1.";
        Network common nics_per_pe: NonZeroU32, "RUSHMEM_NICS_PER_PE", "1", "NICs",
            "Number of NICs that each PE uses at the same time.";
        Network expert doorbell: DoorbellKind, "RUSHMEM_DOORBELL", "auto", "",
            "Writer of an RDMA device's doorbell register: the kernel (gpu) or a CPU thread on its behalf (cpu).";
        Network expert doorbell_record: DoorbellRecord, "RUSHMEM_DOORBELL_RECORD", "on", "",
            "Whether kernels update a doorbell record before each doorbell of an RDMA device: on, off or auto. Without one, a \
             posting saves a fence; this is untried on a real NIC. Auto is off if the device offers that, kernels write its \
             doorbells, and its probe then succeeds.";
        Network expert data_direct: Switch, "RUSHMEM_DATA_DIRECT", "off", "",
            "Whether peers access GPU memory through the data-direct device of an RDMA device that has one, as a ConnectX-8 \
             beside a B300 does. This is untried on a real NIC, which may then show signals before their data.";
        Network expert queues: QueueMemory, "RUSHMEM_QUEUES", "auto", "",
            "Memory of the queues: host, device (GPU memory), or auto. Auto uses GPU memory if an RDMA device can access it. \
             The software ConnectX accesses GPU memory slowly, so auto uses host memory for it, and for native kernels. \
             `prefer_device` lets native kernels try the emulated GPU's memory.";
        Network expert traffic_class: u8, "RUSHMEM_TRAFFIC_CLASS", "0", "",
            "Traffic class of an RDMA device's packets: on Ethernet the IP header's DSCP times 4, plus ECN bits.";
        Network expert service_level: u8, "RUSHMEM_SERVICE_LEVEL", "0", "",
            "Service level of an RDMA device's packets: on Ethernet the VLAN priority.";
        Network expert gid_index: Auto<u8>, "RUSHMEM_GID_INDEX", "auto", "",
            "Index of an RDMA port's address in its GID table. Auto uses the address with the widest reach that an interface \
             of this network namespace has, and first one in the network of the job's server.";
        Network expert gid_range: Auto<AddressRange>, "RUSHMEM_GID_RANGE", "auto", "",
            "Range of the addresses among which auto chooses for `gid_index`. Auto is all.";
        Network expert partition: Auto<Partition>, "RUSHMEM_PARTITION", "auto", "",
            "Key of the partition (P_Key) of an RDMA device's QPs. Auto uses the first full membership of the port.";
        Network expert ordering: Ordering, "RUSHMEM_ORDERING", "auto", "",
            "Order in which the puts of a QP arrive: ibta (as posted), out_of_order (as with adaptive routing) or auto. \
             Auto leaves the choice to the NIC's firmware. Fences hold with each value.";
        Network expert relaxed_ordering: RelaxedOrdering, "RUSHMEM_RELAXED_ORDERING", "auto", "",
            "Whether the PCIe bus may reorder the data of puts and gets: auto, on or off. Fences and signals hold with each \
             value, but on delays each quiet by one READ. Auto is on for RDMA devices if each PE uses several, since quiet \
             posts that READ there anyway.";
        Network expert retries: Retries, "RUSHMEM_RETRIES", "7", "",
            "Number of times that a NIC sends an unacknowledged packet again before it reports an error.";
        Network expert sq_depth: Auto<SqDepth>, "RUSHMEM_SQ_DEPTH", "auto", "WQEs",
            "Depth of each send queue. Auto is 1024 in small jobs. It is less, but at least 64, if the queues to all peers \
             would exceed 16 MiB or `queue_memory`.";
        Network expert cq: CqKind, "RUSHMEM_CQ", "ring", "",
            "Form of the completion queues: a ring of CQEs, or one CQE that each completion overwrites (collapsed).";
        Network expert connect: ConnectKind, "RUSHMEM_CONNECT", "lazy", "",
            "Time at which QPs are created: lazy (when a kernel first posts to a peer) or eager (all at the start).";
        Network expert queue_memory: Bytes, "RUSHMEM_QUEUE_MEMORY", "256MiB", "bytes",
            "Upper limit of the memory for the queues of a PE. A job with QPs for more than that is an error at its start.";
        Network expert dc_above: Auto<u32>, "RUSHMEM_DC_ABOVE", "auto", "PEs",
            "Largest number of PEs with a QP to each peer. In larger jobs, the DC initiators of a PE serve all its peers, so \
             that the number of QPs does not grow with the job. Auto is no limit. Kernels for GPUs must be built with \
             RUSHMEM_PTX_DC=1.";
        Network expert dcis: Dcis, "RUSHMEM_DCIS", "8", "DCIs",
            "Number of DC initiators in the place of one QP to each peer, in jobs of more PEs than `dc_above`.";
        Network common qps_per_peer: NonZeroU32, "RUSHMEM_QPS_PER_PEER", "1", "QPs",
            "Number of QPs to each peer that all threads of a GPU share.";
        Network expert block_qps: u32, "RUSHMEM_BLOCK_QPS", "0", "QPs",
            "Number of QPs to each peer that the threads of one block share.";
        Network expert exclusive_qps: u32, "RUSHMEM_EXCLUSIVE_QPS", "0", "QPs",
            "Number of QPs to each peer that one thread uses alone.";
        Network expert context_qps: u32, "RUSHMEM_CONTEXT_QPS", "0", "QPs",
            "Number of contexts that can exist at the same time. Each has one QP to each peer.";
        Peers common peer_path: PeerPath, "RUSHMEM_PEER_PATH", "auto", "",
            "Path to peers: p2p (loads and stores within a node), nic or auto. Auto is p2p for GPU kernels and nic for \
             native kernels.";
        Peers expert p2p_group: u32, "RUSHMEM_P2P_GROUP", "0", "PEs",
            "With peer_path = p2p: number of consecutive PEs that map each other's heaps. 0 is all PEs of a node.";
        Peers expert p2p_atomics: P2pAtomics, "RUSHMEM_P2P_ATOMICS", "promised", "",
            "Words of P2P peers that processors update atomically in a job of several nodes: words of kernels that \
             promise it (promised), or all (node). With node, the program promises that atomics on a word come either \
             from PEs of its node or from other nodes, never from both.";
        Deadlines common timeout: Duration, "RUSHMEM_TIMEOUT", "10s", "time",
            "Deadline of every blocking call of a kernel. With native kernels, the default grows with the PEs of a core \
             beyond 8, and tenfold under the sanitizer.";
        Deadlines common bootstrap_timeout: Duration, "RUSHMEM_BOOTSTRAP_TIMEOUT", "60s", "time",
            "Deadline of every collective call of the host, including the start of the job. The default grows with the \
             PEs of a core beyond 8, and tenfold under the sanitizer.";
        Deadlines expert connect_timeout: Duration, "RUSHMEM_CONNECT_TIMEOUT", "60s", "time",
            "Deadline of the first contact of a kernel with a peer: the time until both ends have connected their QPs. The \
             default grows with the PEs of a core beyond 8, and tenfold under the sanitizer.";
        Deadlines expert ack_timeout: Auto<Duration>, "RUSHMEM_ACK_TIMEOUT", "auto", "time",
            "Time that a NIC waits for each acknowledgement, rounded up to 4.096 us times a power of two. Auto lets all \
             retries end within half of `timeout`.";
        Deadlines common kernel_warning: Auto<Limit>, "RUSHMEM_KERNEL_WARNING", "auto", "time",
            "Running time after which a kernel is logged as a warning. Auto is three times `timeout`, at least 30s; none \
             switches the warning off.";
        Deadlines common kernel_limit: Auto<Limit>, "RUSHMEM_KERNEL_LIMIT", "auto", "time",
            "Running time after which a kernel ends the job. Auto is a hundred times `timeout`, at least 1h; use none \
             for kernels that run on.";
        Deadlines expert lane_limit: Auto<Limit>, "RUSHMEM_LANE_LIMIT", "auto", "time",
            "Processor time that a thread of a native kernel may use without a barrier, a warp exchange or a wait. Then its \
             process ends, with the source line. Auto is `timeout`, at least 5s; use none for long computations.";
        Deadlines expert abort_limit: Auto<Duration>, "RUSHMEM_ABORT_LIMIT", "auto", "time",
            "Time that kernels have to end once the job has failed. Then their process ends. Auto is `timeout`, at \
             least 5s, and longer where more than 8 PEs share a core.";
        Launch expert membership: Membership, "RUSHMEM_MEMBERSHIP", "fixed", "",
            "What the loss of a PE means: fixed (the job ends) or live (the others go on without it; docs/membership.md).";
        Launch expert vacant_pes: u32, "RUSHMEM_VACANT_PES", "0", "PEs",
            "With membership = live: number of PEs, the last ones, whose processes exit once the job has started. Other processes can \
             join as these PEs (docs/membership.md).";
        Launch expert heartbeat: Limit, "RUSHMEM_HEARTBEAT", "none", "time",
            "With membership = live: time without a sign of life after which a PE is lost, such as one that is stopped. With none, \
             only a closed connection is a loss.";
        Launch expert native_workers: u32, "RUSHMEM_NATIVE_WORKERS", "0", "threads",
            "Number of CPU threads that run native kernels. 0 is one for each core.";
        Launch expert native_stack: Bytes, "RUSHMEM_NATIVE_STACK", "1MiB", "bytes",
            "Stack size of each lane of a native kernel.";
        Diagnosis common sanitize: Switch, "RUSHMEM_SANITIZE", "off", "",
            "Communication sanitizer: finds accesses that no order separates, and waits that cannot end. It watches \
             native kernels, if all PEs are on one machine.";
        Diagnosis common print_buffer: OptionalBytes, "RUSHMEM_PRINT_BUFFER", "128KiB", "bytes",
            "Host memory of each PE for the lines that its kernels print. A line that finds no room is lost. With none, kernels print nothing.";
        Diagnosis expert weak_memory: Switch, "RUSHMEM_WEAK_MEMORY", "off", "",
            "Adversary of native kernels: holds plain stores back and serves old values to plain loads, within the memory model of \
             GPUs. A kernel that lacks a fence then fails.";
        Diagnosis common sanitize_report: String, "RUSHMEM_SANITIZE_REPORT", "", "",
            "File for the findings of the sanitizer, as JSON. Empty for none.";
        Diagnosis common trace: String, "RUSHMEM_TRACE", "", "",
            "File for the timeline of the job, in Perfetto's format. Empty for none. A PE that is a process adds .pe and \
             its number; `rushmem run` and `rushmem trace` join these files.";
        Diagnosis common stats: Switch, "RUSHMEM_STATS", "off", "",
            "Tables of waits, traffic and late PEs at the end of the job, on standard error. `rushmem top` shows the job while \
             it runs.";
        Diagnosis expert trace_limit: u32, "RUSHMEM_TRACE_LIMIT", "1000000", "spans",
            "Spans that the timeline of a process keeps. Later ones are counted only.";
        Diagnosis expert trace_ring: Bytes, "RUSHMEM_TRACE_RING", "64MiB", "bytes",
            "GPU memory of each PE for the calls of its kernels on the timeline. New calls replace the oldest ones.";
        Diagnosis common log: String, "RUSHMEM_LOG", "warn", "",
            "Log filter, such as info, or rushmem_bootstrap=debug for one crate.";
        Diagnosis common log_file: String, "RUSHMEM_LOG_FILE", "", "",
            "Log file. %h stands for the host and %p for the process ID. Empty for standard error.";
        Diagnosis common progress: Progress, "RUSHMEM_PROGRESS", "auto", "",
            "Condition for progress bars. Auto draws them if standard error is a terminal.";
        SoftNic expert softnic_ip: Ipv4Addr, "RUSHMEM_SOFTNIC_IP", "127.0.0.1", "",
            "IPv4 address of the software ConnectX, if PEs are processes. It has no IPv6.";
        SoftNic expert softnic_port: u16, "RUSHMEM_SOFTNIC_PORT", "0", "UDP port",
            "UDP port of the software ConnectX, if PEs are processes. 0 is any free port.";
        SoftNic expert softnic_shared_memory: Switch, "RUSHMEM_SOFTNIC_SHARED_MEMORY", "on", "",
            "Whether packets between PEs on one machine go through shared memory, if PEs are processes. Off: by UDP.";
        SoftNic expert softnic_fault: String, "RUSHMEM_SOFTNIC_FAULT", "", "",
            "Faults that the software ConnectX injects, such as drop=1; empty for none.";
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
            "Address on which the job's launcher listens.";
        id: EncodedId, "RUSHMEM_ID", "",
            "Unique id of the job, for PEs that are started by hand. `rushmem id` prints it.";
        token: Secret, "RUSHMEM_TOKEN", "",
            "Secret of the job. PEs authenticate each other with it.";
    }
}

/// Variables with the prefix `RUSHMEM_` that are not settings of a job, with descriptions.
pub static OTHER_VARIABLES: &[(&str, &str)] = &[
    ("RUSHMEM_CONFIG", "Path of a TOML file with settings. The environment overrides the file."),
    (
        "RUSHMEM_PTX",
        "Builds of kernels: auto, all (tests and benchmarks too), build (compile even if committed PTX matches), \
         committed (never compile) or none (kernels run natively only).",
    ),
    ("RUSHMEM_PTX_RUSTC", "Builds of kernels: path of the rustc that compiles them."),
    ("RUSHMEM_PTX_CARGO", "Builds of kernels: path of the cargo that runs this rustc."),
    ("RUSHMEM_PTXAS", "Path of the ptxas that checks PTX and makes machine code."),
    (
        "RUSHMEM_PTX_CUBIN",
        "Builds of kernels: a GPU, such as sm_90. Programs then also embed machine code for it. `sm_80:sm_90` embeds the \
         text for sm_80 as machine code for sm_90.",
    ),
    (
        "RUSHMEM_PTX_TRACE",
        "Builds of kernels: 1 for kernels that write their calls to the timeline on GPUs. docs/trace.md describes it.",
    ),
    (
        "RUSHMEM_PTX_DC",
        "Builds of kernels: 1 for kernels that can post to DC initiators, in jobs of more than `dc_above` PEs.",
    ),
    (
        "RUSHMEM_PTX_FAILOVER",
        "Builds of kernels: 1 for kernels whose connections can be replaced (`failover`).",
    ),
    ("RUSHMEM_UVERBS_DEVICES", "Preloaded software ConnectX: number of devices. `rushmem softnic` sets it."),
    ("RUSHMEM_UVERBS_LINK", "Preloaded software ConnectX: ethernet or ib. `rushmem softnic` sets it."),
    (
        "RUSHMEM_UVERBS_MODEL",
        "Preloaded software ConnectX: cx5, cx6, cx6dx, cx7 or cx8. `rushmem softnic` sets it.",
    ),
    (
        "RUSHMEM_UVERBS_IP",
        "Preloaded software ConnectX: an address for each device. `rushmem softnic` sets it.",
    ),
    (
        "RUSHMEM_UVERBS_SHARED_MEMORY",
        "Preloaded software ConnectX: on or off, for packets within a machine. `rushmem softnic` sets it.",
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
    (
        "RUSHMEM_UVERBS_SYSFS",
        "Preloaded software ConnectX: folder with the files that programs see in /sys and /dev. `rushmem softnic` sets it.",
    ),
    ("RUSHMEM_UVERBS_LOG", "Preloaded software ConnectX: log level for standard error, such as debug."),
    (
        "RUSHMEM_UVERBS_LIBRARY",
        "Path of the library that `rushmem softnic` preloads, if it is not next to `rushmem`.",
    ),
    ("RUSHMEM_LITMUS_ROUNDS", "Litmus tests: number of rounds of each test on each path."),
];

/// Parses the default value of a setting. Panics if the table has an invalid one; a test parses all of them.
fn built_in<T: Value>(text: &str) -> T {
    match T::parse(text) {
        Ok(value) => value,
        Err(why) => unreachable!("default `{text}` in the table of settings: {why}"),
    }
}
