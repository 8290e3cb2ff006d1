//! The compared programs, and the reasons for all differences.

use crate::compare::Difference;

/// A program whose commands were recorded.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// How it was recorded.
    pub(crate) how: &'static str,
    /// Name of its recording.
    pub(crate) recording: &'static str,
    /// Name of our recording on the same kind of link.
    pub(crate) ours: &'static str,
}

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: UCX,
        how: "1.13 of Debian 12, `rc_mlx5` and `dc_mlx5`",
        recording: "ucx-roce",
        ours: "rushmem-roce",
    },
    Program { name: UCX_IB, how: "the same", recording: "ucx-ib", ours: "rushmem-ib" },
    Program {
        name: IBGDA,
        how: "NVSHMEM 3.8.0, queues in host and in GPU memory",
        recording: "nvshmem-ibgda",
        ours: "rushmem-roce",
    },
    Program {
        name: GPUNETIO,
        how: "NVSHMEM 3.8.0, `NVSHMEM_GPUNETIO_ENABLE_GDAKI=1`",
        recording: "nvshmem-gpunetio",
        ours: "rushmem-roce",
    },
    Program {
        name: GIN,
        how: "NCCL 2.32.3, GDAKI, which is DOCA GPUNetIO",
        recording: "nccl-gin",
        ours: "rushmem-roce",
    },
];

/// The reason why fields differ.
pub(crate) struct Known {
    /// The steps in which it holds; all if this is empty.
    pub(crate) steps: &'static [&'static str],
    pub(crate) fields: &'static [&'static str],
    pub(crate) programs: &'static [&'static str],
    pub(crate) why: &'static str,
}

impl Known {
    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        (self.steps.is_empty() || self.steps.contains(&&*difference.step.to_string()))
            && self.fields.contains(&&*difference.field)
            && self.programs.contains(&difference.program)
    }
}

const UCX: &str = "UCX";
const UCX_IB: &str = "UCX on InfiniBand";
const IBGDA: &str = "ibgda";
const GPUNETIO: &str = "gpunetio";
const GIN: &str = "GIN";
const ALL: &[&str] = &[UCX, UCX_IB, IBGDA, GPUNETIO, GIN];

pub(crate) const KNOWN: &[Known] = &[
    Known {
        steps: &["CREATE_CQ"],
        fields: &["uid"],
        programs: &[UCX, UCX_IB],
        why: "UCX creates its CQs by verbs, so Linux writes the mailbox (here its stand-in); ours by DevX",
    },
    Known {
        steps: &["CREATE_MKEY"],
        fields: &["uid"],
        programs: &[UCX, UCX_IB],
        why: "our keys are of verbs, so Linux writes the mailbox",
    },
    Known {
        steps: &["CREATE_DCT"],
        fields: &["uid"],
        programs: &[IBGDA],
        why: "ibgda creates its DC targets by verbs, so Linux writes the mailbox; ours by DevX",
    },
    Known {
        steps: &[],
        fields: &["cqc.cqe_sz", "qpc.cs_req", "qpc.cs_res", "dctc.cs_res"],
        programs: &[UCX, UCX_IB],
        why: "UCX lets the NIC put data into CQEs, of 128 bytes for more than 32 bytes of it; ours takes \
              no data from a CQE",
    },
    Known {
        steps: &[],
        fields: &["cqc.oi"],
        programs: &[UCX, UCX_IB],
        why: "UCX counts what it has consumed; kernels do not, so overruns are ignored, and a CQ has an \
              entry for each block of its send queue",
    },
    Known {
        steps: &[],
        fields: &["cqc.cc"],
        programs: &[IBGDA, GPUNETIO],
        why: "a collapsed CQ, which is the setting `cq` of ours",
    },
    Known {
        steps: &["CREATE_CQ"],
        fields: &["cqc.log_page_size"],
        programs: &[IBGDA],
        why: "ignored, since the CQ is in a umem",
    },
    Known {
        steps: &[],
        fields: &["cqc.log_cq_size", "qpc.log_sq_size"],
        programs: ALL,
        why: "the size is a setting of each; ours has short queues for its probe",
    },
    Known {
        steps: &[],
        fields: &["ece"],
        programs: ALL,
        why: "ours asks for ECE options in CREATE_QP, and uses those that both QPs offer; 0 leaves the QP \
              without options such as selective repeat",
    },
    Known {
        steps: &["CREATE_QP of RC"],
        fields: &["qpc.pm_state"],
        programs: &[GPUNETIO, GIN],
        why: "GPUNetIO leaves path migration armed, without an alternate path; ours has it off (3), as \
              Linux, UCX and ibgda have",
    },
    Known {
        steps: &["INIT2RTR_QP of DCI", "RTR2RTS_QP of DCI"],
        fields: &["qpc.pm_state"],
        programs: &[UCX, UCX_IB],
        why: "UCX repeats the state without its bit in `opt_param_mask`, which has no effect",
    },
    Known {
        steps: &[],
        fields: &["qpc.ts_format"],
        programs: ALL,
        why: "0 is a free-running clock, which a NIC with real time refuses; every NIC has the default, 1",
    },
    Known {
        steps: &[],
        fields: &["qpc.cqn_rcv", "qpc.rq_type", "qpc.srqn_rmpn_xrqn"],
        programs: &[UCX, UCX_IB, IBGDA],
        why: "theirs has a shared receive queue; nobody sends to our QPs, so they have no receive queue",
    },
    Known {
        steps: &[],
        fields: &["qpc.counter_set_id", "dctc.counter_set_id"],
        programs: ALL,
        why: "our QPs count errors and retries in a set of their job, which its log shows; theirs count in \
              that of the port",
    },
    Known {
        steps: &["RST2INIT_QP of DCI"],
        fields: &["qpc.rre", "qpc.rwe", "qpc.rae", "qpc.atomic_mode"],
        programs: &[IBGDA],
        why: "an initiator serves no requests, so its rights have no effect",
    },
    Known {
        steps: &["RST2INIT_QP of DCI"],
        fields: &["qpc.dc_access_key"],
        programs: &[IBGDA],
        why: "each WQE has the key of its target",
    },
    Known {
        steps: &[],
        fields: &["qpc.rre", "qpc.rwe", "qpc.rae"],
        programs: &[UCX, UCX_IB, GPUNETIO, GIN],
        why: "theirs grants in INIT2RTR by `opt_param_mask` what ours grants in RST2INIT. In RTR2RTS, GPUNetIO repeats a \
              right without the mask, which has no effect",
    },
    Known {
        steps: &[],
        fields: &["qpc.atomic_mode"],
        programs: &[UCX, UCX_IB, GPUNETIO, GIN],
        why: "as the right to atomics; 1 are those of InfiniBand, 3 those of up to 8 bytes",
    },
    Known {
        steps: &[],
        fields: &["opt_param_mask", "qpc.lag_tx_port_affinity"],
        programs: &[UCX],
        why: "UCX selects the rights (0xe), and a port of a bond (0x8000) even on a NIC with one port; \
              ours selects a port of a bond only",
    },
    Known {
        steps: &[],
        fields: &["opt_param_mask"],
        programs: &[UCX_IB, GPUNETIO, GIN],
        why: "selects rights, which ours grants in RST2INIT",
    },
    Known {
        steps: &[],
        fields: &["path.vhca_port_num"],
        programs: ALL,
        why: "ours repeats the port of RST2INIT, as Linux does, and UCX for RC",
    },
    Known {
        steps: &[],
        fields: &["path.hop_limit", "dctc.hop_limit"],
        programs: &[UCX, IBGDA, GPUNETIO, GIN],
        why: "either is more than a network's diameter: ours is the usual one of IP",
    },
    Known {
        steps: &[],
        fields: &["dctc.hop_limit"],
        programs: &[UCX_IB],
        why: "a packet without a global route has no hop limit",
    },
    Known {
        steps: &[],
        fields: &["path.ack_timeout"],
        programs: ALL,
        why: "a setting of each: ours lets all retries end within half of `timeout`",
    },
    Known {
        steps: &[],
        fields: &["path.dscp", "dctc.dscp", "dctc.tclass"],
        programs: &[UCX],
        why: "UCX's default is traffic class 106; ours is the setting `traffic_class`",
    },
    Known {
        steps: &[],
        fields: &["qpc.min_rnr_nak", "dctc.min_rnr_nak"],
        programs: &[UCX, UCX_IB],
        why: "how long a sender waits for a receive entry; nobody sends to our QPs, so it is never used",
    },
    Known {
        steps: &["RTR2RTS_QP of DCI"],
        fields: &["qpc.log_ack_req_freq"],
        programs: &[UCX, UCX_IB],
        why: "how many packets of a message may pass until the NIC asks for an ACK: a matter of speed; all have 0 for RC",
    },
    Known {
        steps: &["CREATE_MKEY"],
        fields: &[
            "umem_valid",
            "umem_id",
            "mkc.access_mode_1_0",
            "mkc.log_page_size",
            "mkc.translations_octword_size",
            "translations_octword_actual_size",
        ],
        programs: &[UCX, UCX_IB],
        why: "UCX's key of DevX is an indirect one, of other keys (mode 3); ours has pages (mode 1)",
    },
    Known {
        steps: &["CREATE_MKEY"],
        fields: &["mkc.relaxed_ordering_write"],
        programs: &[IBGDA, GPUNETIO, GIN],
        why: "theirs has keys with and without relaxed order; ours has both by the setting `relaxed_ordering`",
    },
    Known {
        steps: &["CREATE_MKEY"],
        fields: &["mkc.a", "mkc.rr", "mkc.rw"],
        programs: &[IBGDA, GIN],
        why: "theirs also has keys with fewer remote rights, for memory that gets no such requests",
    },
];

/// Steps that other programs have and ours has not, with the reason.
pub(crate) const NOT_OURS: &[(&[&str], &str)] = &[(
    &["CREATE_QP of UD", "RST2INIT_QP of UD", "INIT2RTR_QP of UD", "RTR2RTS_QP of UD"],
    "UCX exchanges addresses by datagrams; ours by its launcher",
)];

pub(crate) const HEAD: &str = "\
# Compatibility of queue setup

How other programs set up CQs, QPs, DC targets and memory keys on a ConnectX, next to ours. The programs ran unmodified
on the [software ConnectX](softnic.md), which recorded their commands. The fields of each mailbox are compared with ours
at the same step. This page is generated from the recordings:

```sh
rushmem softnic --record DIR/NAME.commands -- PROGRAM                          # records a program
RECORDINGS=DIR UPDATE_DOCS=1 cargo test -p rushmem-mlx5 --test commands        # takes the recordings, writes this page
bash tests/foreign_gpu.sh run DIR --only 'ibgda|gpunetio|GIN'                  # records programs that need a GPU
```

Every `cargo test` repeats the comparison. Numbers of objects, addresses and lengths are compared only as zero or not;
PSNs and offsets are not compared. Where a program calls verbs, Linux writes the mailbox, and here its stand-in does:
such rows show what the stand-in makes of the call.

Ours are the commands of `RUSHMEM_PEER_PATH=nic ring --pes 2`, without and with `RUSHMEM_DC_ABOVE=1`, on both kinds of
link (`--link`): of its probe, its RC QPs, its DC initiators and targets, and its keys.
";

pub(crate) const TAIL: &str = "
[wqe-compat.md](wqe-compat.md) compares the WQEs.
";
