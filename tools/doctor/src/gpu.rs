//! Checks of GPUs: the driver, and how kernels and NICs access GPU memory.

use std::collections::BTreeSet;

use super::check::{Check, Finding, Verdict};
use super::facts::Gpu;
use super::host::Host;
use super::{Needs, mib, pci};

pub(super) static DRIVER: Check =
    Check { id: "G1", about: "CUDA driver", why: "Without the driver or a GPU, kernels run natively." };
pub(super) static FIT: Check = Check {
    id: "G2",
    about: "GPU and committed kernels",
    why: "The committed PTX of Rushmem is for Turing (sm_75) and newer. It has run on Hopper.",
};
pub(super) static SHARED: Check = Check {
    id: "G3",
    about: "memory between processes",
    why: "PEs that are processes of one node map each other's heaps through file descriptors of GPU memory.",
};
pub(super) static GPUDIRECT: Check = Check {
    id: "G4",
    about: "GPU memory for NICs",
    why: "A ConnectX accesses GPU memory through a dma-buf (open kernel modules) or through nvidia-peermem.",
};
pub(super) static ORDER: Check = Check {
    id: "G5",
    about: "order of a NIC's writes",
    why: "A kernel that has seen a signal must also see the data before the signal.",
};
pub(super) static BAR: Check = Check {
    id: "G6",
    about: "GPU memory on PCIe",
    why: "A NIC can access only the GPU memory that the GPU exposes on PCIe (BAR1), unless NVLink-C2C connects GPU and processor.",
};
pub(super) static DOORBELL: Check = Check {
    id: "G7",
    about: "doorbells by the GPU",
    why: "A kernel rings the NIC's doorbell register itself if the driver lets the GPU map the register.",
};

pub(super) static TURNS: Check = Check {
    id: "G8",
    about: "processes on one GPU",
    why: "Without MPS, the processes share the GPU in time slices of milliseconds, and kernels that wait for another process \
          lose that time.",
};

pub(super) static SHARE: Check = Check {
    id: "G9",
    about: "part of a GPU",
    why: "A part of a GPU, by MIG or as a vGPU of a virtual machine, cannot do all that a whole one can.",
};

/// Lowest compute capability that the committed PTX supports.
const COMMITTED: (u32, u32) = (7, 5);

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Finding> {
    let mut checks = vec![driver(host, needs)];
    let gpus = host.cuda.as_ref().map_or(&[][..], |driver| &driver.gpus);
    for gpu in gpus {
        checks.extend([fit(gpu), shared(gpu)]);
        checks.extend(share(gpu));
        if needs.rdma {
            checks.extend([direct(host, gpu), order(gpu)]);
            checks.extend(bar(host, gpu, needs));
        }
    }
    if needs.rdma && !gpus.is_empty() {
        checks.push(doorbell(host));
    }
    checks.extend(processes(gpus, &needs.gpus_of_processes));
    checks
}

/// Checks whether processes share a GPU, and if so, whether they run under MPS. Process `i` uses GPU `of_processes[i]`.
fn processes(gpus: &[Gpu], of_processes: &[u32]) -> Option<Finding> {
    if gpus.first()?.attributes.mps {
        return Some(TURNS.good("", "MPS serves them, so they run concurrently"));
    }
    let used = of_processes.iter().collect::<BTreeSet<_>>().len();
    if of_processes.len() == used {
        return None;
    }
    let found = format!("{} processes on {used} GPUs, without MPS", of_processes.len());
    let remedy = "start MPS (nvidia-cuda-mps-control -d), or run PEs as threads of one process (rushmem run --threads)";
    Some(TURNS.bad("", Verdict::Slow, found, remedy))
}

fn driver(host: &Host, needs: &Needs) -> Finding {
    let why = match &host.cuda {
        Ok(driver) if !driver.gpus.is_empty() => {
            let modules = match modules(host) {
                Some(modules) => format!(", {modules}"),
                None => String::new(),
            };
            let (major, minor) = driver.version;
            return DRIVER
                .good("", format!("for CUDA {major}.{minor}{modules}; GPUs: {}", driver.gpus.len()));
        }
        Ok(_) => "the driver reports no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi".to_owned(),
        Err(why) => why.clone(),
    };
    let on_bus = pci::gpus(host);
    if on_bus.is_empty() && !needs.gpu {
        return DRIVER.note("", "no NVIDIA GPU on PCIe; kernels run natively");
    }
    let addresses: Vec<_> = on_bus.iter().map(|gpu| gpu.address.as_str()).collect();
    let found = match addresses.is_empty() {
        true => why,
        false => format!("there are GPUs on PCIe ({}), but {why}", addresses.join(", ")),
    };
    let remedy = "install the driver (open kernel modules, 535 or newer); in a container, pass the GPUs in (--gpus all)";
    DRIVER.bad("", Verdict::Blocks, found, remedy)
}

/// Returns version and flavour of the kernel modules.
pub(super) fn modules(host: &Host) -> Option<String> {
    let text = host.text("/proc/driver/nvidia/version").ok()?;
    let line = text.lines().next()?;
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let version = line.split_whitespace().find(is_version)?;
    let flavour = if is_open(host) { "open" } else { "proprietary" };
    Some(format!("{flavour} kernel modules {version}"))
}

fn is_open(host: &Host) -> bool {
    host.text("/proc/driver/nvidia/version").is_ok_and(|text| text.contains("Open Kernel Module"))
}

/// Returns the name of a GPU, such as `GPU 0`.
fn title(gpu: &Gpu) -> String {
    format!("GPU {}", gpu.ordinal)
}

fn fit(gpu: &Gpu) -> Finding {
    let a = &gpu.attributes;
    let (major, minor) = a.compute_capability;
    let found = format!("{} ({}), sm_{major}{minor}, {}", a.name, gpu.address, mib(a.memory));
    if a.compute_capability >= COMMITTED {
        return FIT.good(title(gpu), found);
    }
    FIT.bad(title(gpu), Verdict::Blocks, found, "use a Turing GPU or newer, or RUSHMEM_DEVICE=native")
}

fn shared(gpu: &Gpu) -> Finding {
    if gpu.attributes.virtual_memory_fds {
        return SHARED.good(title(gpu), "GPU memory can be exported as file descriptors");
    }
    let found = "the driver cannot export GPU memory as file descriptors";
    SHARED.bad(
        title(gpu),
        Verdict::Lesser,
        found,
        "run PEs as threads of one process (RUSHMEM_PES), or through the NIC",
    )
}

/// Checks by the name of a GPU whether it is a MIG instance or a vGPU: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`, `NVIDIA
/// A40-48C`.
fn share(gpu: &Gpu) -> Option<Finding> {
    let name = &gpu.attributes.name;
    let is_vgpu = |name: &str| {
        let profile =
            name.rsplit_once('-').and_then(|(_, profile)| profile.strip_suffix(['A', 'B', 'C', 'Q']));
        profile.is_some_and(|size| !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (found, remedy) = if name.contains(" MIG ") {
        (
            "a MIG instance: kernels run, and NICs reach its memory; no P2P to other GPUs or instances, so PEs exchange data \
             through host memory or a NIC",
            "turn MIG off for P2P (nvidia-smi -mig 0)",
        )
    } else if is_vgpu(name) {
        (
            "a vGPU: kernels run; NICs do not reach its memory, and kernels ring no doorbells, so heaps and queues are in host \
             memory and a CPU thread rings",
            "pass a whole GPU into the virtual machine for GPUDirect",
        )
    } else {
        return None;
    };
    Some(SHARE.bad(title(gpu), Verdict::Lesser, found, remedy))
}

fn direct(host: &Host, gpu: &Gpu) -> Finding {
    let a = &gpu.attributes;
    let peermem = host.names("/sys/module/nvidia_peermem").is_ok();
    match (a.gpu_direct_rdma, a.dma_buf, peermem) {
        (false, ..) => {
            let remedy = "set RUSHMEM_HEAP=host: kernels and P2P work, and NICs copy by host memory; or use a data-centre or professional GPU";
            GPUDIRECT.bad(title(gpu), Verdict::Lesser, "the GPU has no GPUDirect RDMA", remedy)
        }
        (true, true, _) => GPUDIRECT.good(title(gpu), "by dma-buf"),
        (true, false, true) => GPUDIRECT.good(title(gpu), "by nvidia-peermem"),
        (true, false, false) => {
            let remedy = match is_open(host) {
                true => "update Linux to 5.12 or newer, or modprobe nvidia-peermem, or set RUSHMEM_HEAP=host",
                false => {
                    "install the open kernel modules, or modprobe nvidia-peermem, or set RUSHMEM_HEAP=host"
                }
            };
            GPUDIRECT.bad(title(gpu), Verdict::Blocks, "neither dma-buf nor nvidia-peermem", remedy)
        }
    }
}

fn order(gpu: &Gpu) -> Finding {
    if gpu.attributes.orders_rdma_writes() {
        return ORDER.good(title(gpu), "kernels see a NIC's writes in their order");
    }
    let found = "kernels of this GPU may see a NIC's writes out of order; heaps use host memory";
    ORDER.bad(title(gpu), Verdict::Lesser, found, "use a newer GPU or driver for heaps in GPU memory")
}

fn bar(host: &Host, gpu: &Gpu, needs: &Needs) -> Option<Finding> {
    // Only GPUs on NVLink-C2C execute atomics on host memory. Their memory is part of the processor's address space.
    if gpu.attributes.host_native_atomics {
        return Some(BAR.good(title(gpu), "all, through the processor"));
    }
    let bytes = pci::largest_region(host, &gpu.address)?;
    let found = format!("{} of {}", mib(bytes), mib(gpu.attributes.memory));
    if bytes >= needs.heap {
        return Some(BAR.good(title(gpu), found));
    }
    let remedy =
        "turn on Above 4G Decoding and Resizable BAR in the firmware, or set a smaller RUSHMEM_HEAP_BYTES";
    Some(BAR.bad(title(gpu), Verdict::Risk, format!("{found}, the heap has {}", mib(needs.heap)), remedy))
}

fn doorbell(host: &Host) -> Finding {
    let text = match host.text("/proc/driver/nvidia/params") {
        Ok(text) => text,
        Err(why) => return DOORBELL.unknown("", format!("/proc/driver/nvidia/params: {why}")),
    };
    if text.contains("PeerMappingOverride=1") {
        return DOORBELL.good("", "PeerMappingOverride is set");
    }
    let found = "PeerMappingOverride is not set; if the driver refuses the mapping, a CPU thread rings, and each doorbell takes 2 us \
                 more";
    let remedy = "put options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1\" into /etc/modprobe.d/nvidia.conf, rebuild the \
                  initramfs, and reboot";
    DOORBELL.bad("", Verdict::Lesser, found, remedy)
}
