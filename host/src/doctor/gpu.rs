//! GPUs: their driver, and what kernels and NICs may do with them.

use std::collections::BTreeSet;

use super::check::{Check, Kind, Verdict};
use super::host::{Gpu, Host};
use super::{Needs, mib, pci};

pub(super) static DRIVER: Kind =
    Kind { id: "G1", about: "CUDA driver", why: "Without it, or without a GPU, kernels run natively." };
pub(super) static FIT: Kind = Kind {
    id: "G2",
    about: "GPU and committed kernels",
    why: "The PTX that comes with Rushmem is for Hopper (sm_90) and newer.",
};
pub(super) static SHARED: Kind = Kind {
    id: "G3",
    about: "memory between processes",
    why: "PEs that are processes of a node reach each other's heaps by file descriptors of GPU memory.",
};
pub(super) static DIRECT: Kind = Kind {
    id: "G4",
    about: "GPU memory for NICs",
    why: "A ConnectX reads and writes GPU memory through a dma-buf, which the open kernel modules export, or through \
          nvidia-peermem.",
};
pub(super) static ORDER: Kind = Kind {
    id: "G5",
    about: "order of a NIC's writes",
    why: "A kernel that has seen a signal must see the data that came before it.",
};
pub(super) static BAR: Kind = Kind {
    id: "G6",
    about: "GPU memory on PCIe",
    why: "A NIC reaches as much GPU memory as the GPU shows on PCIe (BAR1).",
};
pub(super) static DOORBELL: Kind = Kind {
    id: "G7",
    about: "doorbells by the GPU",
    why: "A kernel stores to the NIC's doorbell register, if the driver lets the GPU map it.",
};

pub(super) static TURNS: Kind = Kind {
    id: "G8",
    about: "processes on one GPU",
    why: "They take turns of milliseconds, and a kernel that waits for another process waits for its turn; where MPS serves \
          them, they run side by side.",
};

/// Least compute capability of the committed PTX.
const COMMITTED: (u32, u32) = (9, 0);

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Check> {
    let mut checks = vec![driver(host, needs)];
    let gpus = host.cuda.as_ref().map_or(&[][..], |driver| &driver.gpus);
    for gpu in gpus {
        checks.extend([fit(gpu), shared(gpu)]);
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

/// Whether processes share a GPU, and how: each has the one at its place in the list.
fn processes(gpus: &[Gpu], of_processes: &[u32]) -> Option<Check> {
    if gpus.first()?.attributes.mps {
        return Some(TURNS.good("", "MPS serves them: they run side by side"));
    }
    let used = of_processes.iter().collect::<BTreeSet<_>>().len();
    if of_processes.len() == used {
        return None;
    }
    let found = format!("{} processes, and GPUs: {used}", of_processes.len());
    let advice =
        "start MPS: nvidia-cuda-mps-control -d; or run PEs as threads of one process (rushmem run --threads)";
    Some(TURNS.bad("", Verdict::Slow, found, advice))
}

fn driver(host: &Host, needs: &Needs) -> Check {
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
        Ok(_) => "the driver shows no GPU: see CUDA_VISIBLE_DEVICES, and nvidia-smi".to_owned(),
        Err(why) => why.clone(),
    };
    let on_bus = pci::gpus(host);
    if on_bus.is_empty() && !needs.gpu {
        return DRIVER.note("", "there is no NVIDIA GPU on PCIe: kernels run natively");
    }
    let addresses: Vec<_> = on_bus.iter().map(|gpu| gpu.address.as_str()).collect();
    let found = match addresses.is_empty() {
        true => why,
        false => format!("there are GPUs on PCIe ({}), but {why}", addresses.join(", ")),
    };
    let advice = "install the driver (open kernel modules, 535 or newer); in a container, pass the GPUs in (--gpus all)";
    DRIVER.bad("", Verdict::Blocks, found, advice)
}

/// Version and flavour of the kernel modules.
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

/// `GPU 0`
fn title(gpu: &Gpu) -> String {
    format!("GPU {}", gpu.ordinal)
}

fn fit(gpu: &Gpu) -> Check {
    let a = &gpu.attributes;
    let (major, minor) = a.compute_capability;
    let found = format!("{} ({}), sm_{major}{minor}, {}", a.name, gpu.address, mib(a.memory));
    if a.compute_capability >= COMMITTED {
        return FIT.good(title(gpu), found);
    }
    FIT.bad(title(gpu), Verdict::Blocks, found, "use a Hopper GPU or newer, or RUSHMEM_DEVICE=native")
}

fn shared(gpu: &Gpu) -> Check {
    if gpu.attributes.virtual_memory_fds {
        return SHARED.good(title(gpu), "GPU memory can be passed on as file descriptors");
    }
    let found = "the driver passes no GPU memory on as file descriptors";
    SHARED.bad(
        title(gpu),
        Verdict::Lesser,
        found,
        "run PEs as threads of one process (RUSHMEM_PES), or through the NIC",
    )
}

fn direct(host: &Host, gpu: &Gpu) -> Check {
    let a = &gpu.attributes;
    let peermem = host.names("/sys/module/nvidia_peermem").is_ok();
    match (a.gpu_direct_rdma, a.dma_buf, peermem) {
        (false, ..) => {
            let advice = "RUSHMEM_HEAP=host; data-centre and professional GPUs have it";
            DIRECT.bad(title(gpu), Verdict::Lesser, "the GPU has no GPUDirect RDMA", advice)
        }
        (true, true, _) => DIRECT.good(title(gpu), "by dma-buf"),
        (true, false, true) => DIRECT.good(title(gpu), "by nvidia-peermem"),
        (true, false, false) => {
            let advice = match is_open(host) {
                true => "update Linux to 5.12 or newer; or modprobe nvidia-peermem; or RUSHMEM_HEAP=host",
                false => "install the open kernel modules; or modprobe nvidia-peermem; or RUSHMEM_HEAP=host",
            };
            DIRECT.bad(title(gpu), Verdict::Blocks, "neither dma-buf nor nvidia-peermem", advice)
        }
    }
}

fn order(gpu: &Gpu) -> Check {
    if gpu.attributes.orders_rdma_writes() {
        return ORDER.good(title(gpu), "kernels see a NIC's writes in their order");
    }
    let found = "kernels of this GPU may see a NIC's writes out of order: heaps are in host memory";
    ORDER.bad(title(gpu), Verdict::Lesser, found, "use a newer GPU or driver for heaps in GPU memory")
}

fn bar(host: &Host, gpu: &Gpu, needs: &Needs) -> Option<Check> {
    let bytes = pci::region(host, &gpu.address, 1)?;
    let found = format!("{} of {}", mib(bytes), mib(gpu.attributes.memory));
    if bytes >= needs.heap {
        return Some(BAR.good(title(gpu), found));
    }
    let advice =
        "turn on Above 4G Decoding and Resizable BAR in the firmware, or set a smaller RUSHMEM_HEAP_BYTES";
    Some(BAR.bad(title(gpu), Verdict::Risk, format!("{found}, the heap has {}", mib(needs.heap)), advice))
}

fn doorbell(host: &Host) -> Check {
    let text = match host.text("/proc/driver/nvidia/params") {
        Ok(text) => text,
        Err(why) => return DOORBELL.unknown("", format!("/proc/driver/nvidia/params: {why}")),
    };
    if text.contains("PeerMappingOverride=1") {
        return DOORBELL.good("", "PeerMappingOverride is set");
    }
    let found = "PeerMappingOverride is not set: where the driver then refuses, a thread of the CPU rings, 2 us more for each doorbell";
    let advice = "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1\" in /etc/modprobe.d/nvidia.conf, rebuild the initramfs, \
                  reboot";
    DOORBELL.bad("", Verdict::Lesser, found, advice)
}
