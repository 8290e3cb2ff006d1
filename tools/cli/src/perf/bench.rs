//! The benchmarks, with name, unit, description and kind of job.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bench {
    PutBandwidth,
    GetBandwidth,
    PutQuiet,
    PQuiet,
    G,
    FetchAdd,
    CompareSwap,
    PRate,
    GRate,
    AddRate,
    FetchAddRate,
    Signal,
    PutSignal,
    Barrier,
    Sync,
    NodeBarrier,
    NodeSync,
    Broadcast,
    Fcollect,
    Alltoall,
    Reduce,
    StreamBroadcast,
    StreamFcollect,
    StreamAlltoall,
    StreamReduce,
    StreamReduceScatter,
    PostExclusive,
    PostPerBlock,
    PostShared,
    PostWarp,
    PostWarpPerBlock,
    Init,
    InitMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Unit {
    #[serde(rename = "GB/s")]
    Bandwidth,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "M/s")]
    Rate,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MiB")]
    Memory,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::Bandwidth => "GB/s",
            Unit::Microseconds => "us",
            Unit::Rate => "M/s",
            Unit::Milliseconds => "ms",
            Unit::Memory => "MiB",
        }
    }

    pub(super) fn more_is_better(self) -> bool {
        matches!(self, Unit::Bandwidth | Unit::Rate)
    }

    /// Returns the larger or the smaller of two results, whichever is better in this unit.
    pub(super) fn better(self, a: f64, b: f64) -> f64 {
        if self.more_is_better() { a.max(b) } else { a.min(b) }
    }

    /// Returns by which factor `ours` is better than `theirs`.
    pub(super) fn gain(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { ours / theirs } else { theirs / ours }
    }
}

impl Bench {
    pub(super) const ALL: [Self; 33] = [
        Self::PutBandwidth,
        Self::GetBandwidth,
        Self::PutQuiet,
        Self::PQuiet,
        Self::G,
        Self::FetchAdd,
        Self::CompareSwap,
        Self::PRate,
        Self::GRate,
        Self::AddRate,
        Self::FetchAddRate,
        Self::Signal,
        Self::PutSignal,
        Self::Barrier,
        Self::Sync,
        Self::NodeBarrier,
        Self::NodeSync,
        Self::Broadcast,
        Self::Fcollect,
        Self::Alltoall,
        Self::Reduce,
        Self::StreamBroadcast,
        Self::StreamFcollect,
        Self::StreamAlltoall,
        Self::StreamReduce,
        Self::StreamReduceScatter,
        Self::PostExclusive,
        Self::PostPerBlock,
        Self::PostShared,
        Self::PostWarp,
        Self::PostWarpPerBlock,
        Self::Init,
        Self::InitMemory,
    ];

    /// Returns the name in files and on the command line.
    pub(super) fn name(self) -> &'static str {
        self.about().0
    }

    /// Returns the description for tables and plots.
    pub(super) fn description(self) -> &'static str {
        self.about().2
    }

    pub(super) fn unit(self) -> Unit {
        self.about().1
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bench| bench.name() == name)
    }

    fn about(self) -> (&'static str, Unit, &'static str) {
        use Unit::{Bandwidth, Memory, Microseconds, Milliseconds, Rate};
        match self {
            Self::PutBandwidth => ("put_bw", Bandwidth, "put by blocks"),
            Self::GetBandwidth => ("get_bw", Bandwidth, "get by blocks"),
            Self::PutQuiet => ("put_quiet", Microseconds, "put by a block, and quiet"),
            Self::PQuiet => ("p_quiet", Microseconds, "p, and quiet"),
            Self::G => ("g", Microseconds, "g"),
            Self::FetchAdd => ("fetch_add", Microseconds, "atomic fetch_add"),
            Self::CompareSwap => ("compare_swap", Microseconds, "atomic compare_swap"),
            Self::PRate => ("p_rate", Rate, "p by every thread"),
            Self::GRate => ("g_rate", Rate, "g by every thread"),
            Self::AddRate => ("add_rate", Rate, "atomic add by every thread"),
            Self::FetchAddRate => ("fetch_add_rate", Rate, "atomic fetch_add by every thread"),
            Self::Signal => ("signal", Microseconds, "signal, to and fro"),
            Self::PutSignal => ("put_signal", Microseconds, "put_signal, to and fro"),
            Self::Barrier => ("barrier_all", Microseconds, "barrier_all by a block"),
            Self::Sync => ("sync_all", Microseconds, "sync_all by a block"),
            Self::NodeBarrier => ("barrier_node", Microseconds, "barrier of P2P peers by a block"),
            Self::NodeSync => ("sync_node", Microseconds, "team_sync of P2P peers by a block"),
            Self::Broadcast => ("broadcast", Microseconds, "broadcast by a block"),
            Self::Fcollect => ("fcollect", Microseconds, "fcollect by a block, bytes of each PE"),
            Self::Alltoall => ("alltoall", Microseconds, "alltoall by a block, bytes to each PE"),
            Self::Reduce => ("reduce", Microseconds, "sum of f32 by a block"),
            Self::StreamBroadcast => ("stream_broadcast", Microseconds, "broadcast on a stream"),
            Self::StreamFcollect => {
                ("stream_fcollect", Microseconds, "fcollect on a stream, bytes of each PE")
            }
            Self::StreamAlltoall => {
                ("stream_alltoall", Microseconds, "alltoall on a stream, bytes to each PE")
            }
            Self::StreamReduce => ("stream_reduce", Microseconds, "sum of f32 on a stream"),
            Self::StreamReduceScatter => {
                ("stream_reduce_scatter", Microseconds, "reduce_scatter of f32 on a stream, bytes of each PE")
            }
            Self::PostExclusive => ("post_exclusive", Rate, "posting: one thread, own queue"),
            Self::PostPerBlock => ("post_per_block", Rate, "posting: each thread, queue of the block"),
            Self::PostShared => ("post_shared", Rate, "posting: each thread, queue of the GPU"),
            Self::PostWarp => ("post_warp", Rate, "posting: warps together, queue of the GPU"),
            Self::PostWarpPerBlock => {
                ("post_warp_per_block", Rate, "posting: warps together, queue of the block")
            }
            Self::Init => ("init", Milliseconds, "start of a job"),
            Self::InitMemory => ("init_memory", Memory, "host memory of a PE, with its heap"),
        }
    }

    /// Returns whether the benchmark accesses single words, whose location affects the time.
    pub(super) fn is_on_words(self) -> bool {
        matches!(
            self,
            Self::PQuiet
                | Self::PRate
                | Self::G
                | Self::GRate
                | Self::AddRate
                | Self::FetchAdd
                | Self::FetchAddRate
                | Self::CompareSwap
                | Self::Signal
        )
    }

    /// Returns the kind of job that runs the benchmark.
    pub(super) fn job_kind(self) -> JobKind {
        match self {
            Self::PostExclusive | Self::PostShared | Self::PostWarp => JobKind::Shared,
            Self::PostPerBlock | Self::PostWarpPerBlock => JobKind::PerBlock,
            Self::Init | Self::InitMemory => JobKind::Init,
            _ => JobKind::Main,
        }
    }
}

/// The kind of job that runs a benchmark, which determines the job's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// A job with the user's settings, for all benchmarks that need no others.
    Main,
    /// A job that measures posting to a deep queue, which all threads share or one thread owns.
    Shared,
    /// A job that measures posting to a separate queue per block.
    PerBlock,
    /// A job that does nothing, to measure its start.
    Init,
}

impl JobKind {
    pub(super) const ALL: [Self; 4] = [Self::Main, Self::Shared, Self::PerBlock, Self::Init];
}
