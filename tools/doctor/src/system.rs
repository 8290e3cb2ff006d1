//! Checks of the system: kernel, memory and limits.

use super::check::{Check, Finding, Verdict};
use super::host::Host;
use super::{Needs, mib};
use rushmem::inspect::available_memory;

pub(super) static KERNEL: Check = Check {
    id: "H1",
    about: "Linux",
    why: "A ConnectX accesses a heap in GPU memory by dma-buf from Linux 5.12 on, and queues in GPU memory from 6.0 on.",
};
pub(super) static MEMORY: Check = Check {
    id: "H2",
    about: "host memory",
    why: "A job allocates heaps in host memory, and the queues of native kernels, when it starts.",
};
pub(super) static LOCKED: Check = Check {
    id: "H3",
    about: "lockable memory",
    why: "Host memory that a ConnectX accesses is locked, and each user has a limit.",
};
pub(super) static FILES: Check = Check {
    id: "H4",
    about: "open files",
    why: "A process opens a file for each PE of its node, and for each connection of the job.",
};
pub(super) static CGROUP: Check = Check {
    id: "H5",
    about: "RDMA objects of a container",
    why: "Queue pairs, memory keys and doorbell pages count against the limit of the control group rdma.",
};

/// Number of the Linux capability to lock memory beyond the limit.
const CAP_IPC_LOCK: u32 = 14;
/// Limits of open files below this are reported, since they allow only a few dozen PEs.
const MIN_OPEN_FILES: u64 = 1024;

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Finding> {
    let mut checks = vec![kernel(host, needs), memory(host, needs)];
    if needs.rdma {
        checks.push(locked(host, needs));
    }
    checks.push(files(host));
    checks.extend(cgroup(host).filter(|_| needs.rdma));
    checks
}

fn kernel(host: &Host, needs: &Needs) -> Finding {
    let release = match host.text("/proc/sys/kernel/osrelease") {
        Ok(release) => release,
        Err(why) => return KERNEL.unknown("", why.to_string()),
    };
    match version(&release) {
        Some(old) if needs.rdma && old < (5, 12) => {
            let remedy = "update to 5.12 or newer, or load nvidia-peermem (modprobe nvidia-peermem)";
            KERNEL.bad("", Verdict::Risk, release, remedy)
        }
        // Both answer for what this kernel lacks.
        Some(old) if old < (6, 0) && has_newer_driver(host, old) => {
            KERNEL.good("", format!("{release}, with MLNX_OFED or nvidia-peermem"))
        }
        Some(old) if needs.rdma && host.gpus() > 0 && old < (6, 0) => {
            let remedy = "update to 6.0 or newer, install MLNX_OFED 23.07 or newer, or load nvidia-peermem; without \
                          these, queues are in host memory, and P5 shows that";
            KERNEL.bad("", Verdict::Slow, release, remedy)
        }
        _ => KERNEL.good("", release),
    }
}

/// Returns whether a driver beside the own of this `kernel` maps GPU memory for NICs: MLNX_OFED 23.07 or newer, which
/// needs the kernel's dma-buf, or nvidia-peermem.
fn has_newer_driver(host: &Host, kernel: (u32, u32)) -> bool {
    // Only MLNX_OFED's module has a version, such as `24.10-0.7.0`.
    let ofed = host.text("/sys/module/mlx5_core/version").ok().and_then(|text| version(&text));
    kernel >= (5, 12) && ofed.is_some_and(|ofed| ofed >= (23, 7))
        || host.names("/sys/module/nvidia_peermem").is_ok()
}

/// Parses a kernel release: `6.1.0-18-amd64` gives (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn memory(host: &Host, needs: &Needs) -> Finding {
    let text = match host.text("/proc/meminfo") {
        Ok(text) => text,
        Err(why) => return MEMORY.unknown("", why.to_string()),
    };
    let Some(available) = available_memory(&text) else {
        return MEMORY.unknown("", "/proc/meminfo does not report the available memory");
    };
    let wanted = needs.host_memory;
    let found = format!("{} available, the job needs {} on this node", mib(available), mib(wanted));
    if wanted > available {
        let remedy =
            "set a smaller RUSHMEM_HEAP_BYTES or RUSHMEM_QUEUE_MEMORY, or start fewer PEs on this node";
        return MEMORY.bad("", Verdict::Blocks, found, remedy);
    }
    MEMORY.good("", found)
}

fn locked(host: &Host, needs: &Needs) -> Finding {
    let (soft, hard) = match limit(host, "Max locked memory") {
        Ok(limits) => limits,
        Err(why) => return LOCKED.unknown("", why),
    };
    let wanted = needs.locked_memory;
    let found = match soft {
        None => return LOCKED.good("", "unlimited"),
        Some(bytes) => format!("limit {}, the job needs {} on this node", mib(bytes), mib(wanted)),
    };
    if soft.is_some_and(|most| most >= wanted) {
        return LOCKED.good("", found);
    }
    if may(host, CAP_IPC_LOCK) {
        return LOCKED.good("", format!("{found}; this process may lock more (CAP_IPC_LOCK)"));
    }
    let remedy = match hard {
        None => "run ulimit -l unlimited",
        Some(_) => {
            "raise the hard limit: memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity of a service, or --ulimit memlock=-1 \
             of a container"
        }
    };
    LOCKED.bad("", Verdict::Blocks, found, remedy)
}

fn files(host: &Host) -> Finding {
    match limit(host, "Max open files") {
        Ok((Some(few), _)) if few < MIN_OPEN_FILES => {
            FILES.bad("", Verdict::Risk, format!("limit {few}"), "run ulimit -n 65536")
        }
        Ok((Some(most), _)) => FILES.good("", format!("limit {most}")),
        Ok((None, _)) => FILES.good("", "unlimited"),
        Err(why) => FILES.unknown("", why),
    }
}

/// Returns the soft and the hard limit of this process. `None` means unlimited.
fn limit(host: &Host, name: &str) -> Result<(Option<u64>, Option<u64>), String> {
    let text = host.text("/proc/self/limits").map_err(|why| why.to_string())?;
    let numbers = text.lines().find_map(|line| line.strip_prefix(name));
    let mut words = numbers.unwrap_or_default().split_whitespace();
    let mut number = || match words.next() {
        Some("unlimited") => Ok(None),
        word => word
            .and_then(|word| word.parse().ok())
            .map(Some)
            .ok_or_else(|| format!("/proc/self/limits does not report {name}")),
    };
    Ok((number()?, number()?))
}

/// Returns whether this process has a capability.
fn may(host: &Host, capability: u32) -> bool {
    let text = host.text("/proc/self/status").unwrap_or_default();
    let digits = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    set.is_some_and(|set| set >> capability & 1 != 0)
}

/// Checks the limits of the cgroup controller `rdma`, if it is in use.
fn cgroup(host: &Host) -> Option<Finding> {
    let groups = host.text("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/');
    let text = host.text(&format!("/sys/fs/cgroup{group}/rdma.max")).ok()?;
    let limited: Vec<_> = text
        .lines()
        .filter(|line| !line.split_whitespace().skip(1).all(|word| word.ends_with("=max")))
        .collect();
    if limited.is_empty() {
        return Some(CGROUP.good("", "unlimited"));
    }
    let remedy = format!("raise hca_handle and hca_object in /sys/fs/cgroup{group}/rdma.max");
    Some(CGROUP.bad("", Verdict::Risk, limited.join("; "), remedy))
}
