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
        name: "UCX",
        how: "1.13 of Debian 12, `rc_mlx5` and `dc_mlx5`",
        recording: "ucx-roce",
        ours: "rushmem-roce",
    },
    Program {
        name: "ibgda",
        how: "NVSHMEM 3.8.0, queues in host and in GPU memory",
        recording: "nvshmem-ibgda",
        ours: "rushmem-roce",
    },
    Program {
        name: "gpunetio",
        how: "NVSHMEM 3.8.0, `NVSHMEM_GPUNETIO_ENABLE_GDAKI=1`",
        recording: "nvshmem-gpunetio",
        ours: "rushmem-roce",
    },
    Program {
        name: "GIN",
        how: "NCCL 2.32.3, GDAKI, which is DOCA GPUNetIO",
        recording: "nccl-gin",
        ours: "rushmem-roce",
    },
];

/// The reason why fields differ.
pub(crate) struct Known {
    pub(crate) fields: &'static [&'static str],
    pub(crate) programs: &'static [&'static str],
    pub(crate) why: &'static str,
}

impl Known {
    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        self.fields.contains(&&*difference.field) && self.programs.contains(&difference.program)
    }
}

pub(crate) const KNOWN: &[Known] = &[
    Known {
        fields: &["uid"],
        programs: &["UCX"],
        why: "UCX creates its CQs by verbs, so Linux writes the mailbox (here its stand-in); ours by DevX",
    },
    Known {
        fields: &["cqc.cqe_sz", "qpc.cs_req", "qpc.cs_res"],
        programs: &["UCX"],
        why: "UCX lets the NIC put data into CQEs, of 128 bytes for more than 32 bytes of it; ours takes \
              no data from a CQE",
    },
    Known {
        fields: &["cqc.oi"],
        programs: &["UCX"],
        why: "UCX counts what it has consumed; kernels do not, so overruns are ignored, and a CQ has an \
              entry for each block of its send queue",
    },
    Known {
        fields: &["cqc.cc"],
        programs: &["ibgda", "gpunetio"],
        why: "a collapsed CQ, which is the setting `cq` of ours",
    },
    Known { fields: &["cqc.log_page_size"], programs: &["ibgda"], why: "ignored, since the CQ is in a umem" },
    Known {
        fields: &["cqc.log_cq_size", "qpc.log_sq_size"],
        programs: &["UCX", "GIN"],
        why: "the size is a setting of each",
    },
    Known {
        fields: &["ece"],
        programs: &["UCX", "ibgda", "gpunetio", "GIN"],
        why: "ours asks for ECE options in CREATE_QP, and uses those that both QPs offer; 0 leaves the QP \
              without options such as selective repeat",
    },
    Known {
        fields: &["qpc.pm_state"],
        programs: &["gpunetio", "GIN"],
        why: "GPUNetIO leaves path migration armed, without an alternate path; ours has it off (3), as \
              Linux, UCX and ibgda have",
    },
    Known {
        fields: &["qpc.ts_format"],
        programs: &["UCX", "ibgda", "gpunetio", "GIN"],
        why: "0 is a free-running clock, which a NIC with real time refuses; every NIC has the default, 1",
    },
    Known {
        fields: &["qpc.cqn_rcv", "qpc.rq_type", "qpc.srqn_rmpn_xrqn"],
        programs: &["UCX", "ibgda"],
        why: "theirs has a shared receive queue; nobody sends to our QPs, so they have no receive queue",
    },
    Known {
        fields: &["qpc.counter_set_id"],
        programs: &["UCX", "ibgda", "gpunetio", "GIN"],
        why: "our QPs count errors and retries in a set of their job, which its log shows; theirs count in \
              that of the port",
    },
    Known {
        fields: &["qpc.rre", "qpc.rwe", "qpc.rae"],
        programs: &["UCX", "gpunetio", "GIN"],
        why: "theirs grants in INIT2RTR by `opt_param_mask` what ours grants in RST2INIT. In RTR2RTS, GPUNetIO repeats a \
              right without the mask, which has no effect",
    },
    Known {
        fields: &["qpc.atomic_mode"],
        programs: &["UCX", "gpunetio", "GIN"],
        why: "as the right to atomics; 1 are those of InfiniBand, 3 those of up to 8 bytes",
    },
    Known {
        fields: &["opt_param_mask", "qpc.lag_tx_port_affinity"],
        programs: &["UCX"],
        why: "UCX selects the rights (0xe), and a port of a bond (0x8000) even on a NIC with one port; \
              ours selects a port of a bond only",
    },
    Known {
        fields: &["opt_param_mask"],
        programs: &["gpunetio", "GIN"],
        why: "selects the right to atomics, which ours grants in RST2INIT",
    },
    Known {
        fields: &["path.vhca_port_num"],
        programs: &["ibgda", "gpunetio", "GIN"],
        why: "ours repeats the port of RST2INIT, as Linux and UCX do",
    },
    Known {
        fields: &["path.hop_limit"],
        programs: &["UCX", "ibgda", "gpunetio", "GIN"],
        why: "either is more than a network's diameter: ours is the usual one of IP",
    },
    Known {
        fields: &["path.ack_timeout"],
        programs: &["UCX", "ibgda", "gpunetio", "GIN"],
        why: "a setting of each: ours lets all retries end within half of `timeout`, 5 s in the recorded probe",
    },
    Known {
        fields: &["path.dscp"],
        programs: &["UCX"],
        why: "UCX's default is traffic class 106; ours is the setting `traffic_class`",
    },
    Known {
        fields: &["qpc.min_rnr_nak"],
        programs: &["UCX"],
        why: "how long a sender waits for a receive entry; nobody sends to our QPs, so it is never used",
    },
];

/// Steps that other programs have and ours has not, with the reason.
pub(crate) const NOT_OURS: &[(&[&str], &str)] = &[
    (
        &["CREATE_QP of UD", "RST2INIT_QP of UD", "INIT2RTR_QP of UD", "RTR2RTS_QP of UD"],
        "UCX exchanges addresses by datagrams; ours by its launcher",
    ),
    (
        &["CREATE_QP of DCI", "RST2INIT_QP of DCI", "INIT2RTR_QP of DCI", "RTR2RTS_QP of DCI", "CREATE_DCT"],
        "ours has DC in jobs of more PEs than `dc_above`, which are not recorded",
    ),
    (
        &["CREATE_MKEY"],
        "the recorded probe of ours registers no memory; its keys are of verbs, so Linux writes the mailbox",
    ),
];

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
";

pub(crate) const TAIL: &str = "
[wqe-compat.md](wqe-compat.md) compares the WQEs.
";
