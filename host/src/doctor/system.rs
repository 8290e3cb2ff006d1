//! The system around a job: kernel, memory, limits.

use super::check::{Check, Kind, Verdict};
use super::host::Host;
use super::{Needs, mib};
use crate::job::available_of;

pub(super) static KERNEL: Kind =
    Kind { id: "H1", about: "Linux", why: "A ConnectX reaches GPU memory by dma-buf from Linux 5.12 on." };
pub(super) static MEMORY: Kind = Kind {
    id: "H2",
    about: "host memory",
    why: "Heaps and queues of native kernels, and heaps in host memory, are allocated when a job starts.",
};
pub(super) static LOCKED: Kind = Kind {
    id: "H3",
    about: "lockable memory",
    why: "What a ConnectX reaches in host memory is locked; a user may lock up to a limit.",
};
pub(super) static FILES: Kind = Kind {
    id: "H4",
    about: "open files",
    why: "A process has a file open for each PE beside it, and for each connection of the job.",
};
pub(super) static CGROUP: Kind = Kind {
    id: "H5",
    about: "RDMA objects of a container",
    why: "Queue pairs, memory keys and doorbell pages count against the limit of the control group rdma.",
};

/// What a process needs to lock memory beyond its limit: `CAP_IPC_LOCK`.
const CAP_IPC_LOCK: u32 = 14;
/// Fewer open files than this are a few dozen PEs at most.
const FEW_FILES: u64 = 1024;

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Check> {
    let mut checks = vec![kernel(host, needs), memory(host, needs)];
    if needs.rdma {
        checks.push(locked(host, needs));
    }
    checks.push(files(host));
    checks.extend(cgroup(host).filter(|_| needs.rdma));
    checks
}

fn kernel(host: &Host, needs: &Needs) -> Check {
    let release = match host.text("/proc/sys/kernel/osrelease") {
        Ok(release) => release,
        Err(why) => return KERNEL.unknown("", why.to_string()),
    };
    match version(&release) {
        Some(old) if needs.rdma && old < (5, 12) => {
            let advice = "update to 5.12 or newer, or load nvidia-peermem (modprobe nvidia-peermem)";
            KERNEL.bad("", Verdict::Risk, release, advice)
        }
        _ => KERNEL.good("", release),
    }
}

/// `6.1.0-18-amd64` is (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn memory(host: &Host, needs: &Needs) -> Check {
    let text = match host.text("/proc/meminfo") {
        Ok(text) => text,
        Err(why) => return MEMORY.unknown("", why.to_string()),
    };
    let Some(available) = available_of(&text) else {
        return MEMORY.unknown("", "/proc/meminfo does not tell what is available");
    };
    let wanted = needs.host_memory;
    let found = format!("{} available, the job wants {} here", mib(available), mib(wanted));
    if wanted > available {
        let advice = "set a smaller RUSHMEM_HEAP_BYTES or RUSHMEM_QUEUE_MEMORY, or start fewer PEs here";
        return MEMORY.bad("", Verdict::Blocks, found, advice);
    }
    MEMORY.good("", found)
}

fn locked(host: &Host, needs: &Needs) -> Check {
    let (soft, hard) = match limit(host, "Max locked memory") {
        Ok(limits) => limits,
        Err(why) => return LOCKED.unknown("", why),
    };
    let wanted = needs.host_memory;
    let found = match soft {
        None => return LOCKED.good("", "unlimited"),
        Some(bytes) => format!("{} at most, the job wants {} here", mib(bytes), mib(wanted)),
    };
    if soft.is_some_and(|most| most >= wanted) {
        return LOCKED.good("", found);
    }
    if may(host, CAP_IPC_LOCK) {
        return LOCKED.good("", format!("{found}; this process may lock more (CAP_IPC_LOCK)"));
    }
    let advice = match hard {
        None => "ulimit -l unlimited",
        Some(_) => {
            "raise the hard limit: memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity of a service, --ulimit memlock=-1 of \
             a container"
        }
    };
    LOCKED.bad("", Verdict::Blocks, found, advice)
}

fn files(host: &Host) -> Check {
    match limit(host, "Max open files") {
        Ok((Some(few), _)) if few < FEW_FILES => {
            FILES.bad("", Verdict::Risk, format!("{few} at most"), "ulimit -n 65536")
        }
        Ok((Some(most), _)) => FILES.good("", format!("{most} at most")),
        Ok((None, _)) => FILES.good("", "unlimited"),
        Err(why) => FILES.unknown("", why),
    }
}

/// Soft and hard limit of this process; none for unlimited.
fn limit(host: &Host, name: &str) -> Result<(Option<u64>, Option<u64>), String> {
    let text = host.text("/proc/self/limits").map_err(|why| why.to_string())?;
    let numbers = text.lines().find_map(|line| line.strip_prefix(name));
    let mut words = numbers.unwrap_or_default().split_whitespace();
    let mut number = || match words.next() {
        Some("unlimited") => Ok(None),
        word => word
            .and_then(|word| word.parse().ok())
            .map(Some)
            .ok_or_else(|| format!("/proc/self/limits does not tell {name}")),
    };
    Ok((number()?, number()?))
}

/// Whether this process has a capability.
fn may(host: &Host, capability: u32) -> bool {
    let text = host.text("/proc/self/status").unwrap_or_default();
    let digits = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    set.is_some_and(|set| set >> capability & 1 != 0)
}

/// The limits of the control group rdma, where there is one.
fn cgroup(host: &Host) -> Option<Check> {
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
    let advice = format!("raise hca_handle and hca_object in /sys/fs/cgroup{group}/rdma.max");
    Some(CGROUP.bad("", Verdict::Risk, limited.join("; "), advice))
}
