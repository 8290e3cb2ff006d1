//! Tests of MPI and OpenSHMEM implementations from Debian, on every transport of UCX. The C programs check every byte.
//!
//! Each rank captures its adapter's packets, to prove that they carry the data.

mod common;
mod program;

use common::{Running, all_there, output_text, softnic};
use std::path::{Path, PathBuf};

/// Transports of UCX, as in its setting. The last one lets UCX choose among those that use a device.
const TRANSPORTS: [&str; 6] = ["rc_v,self", "rc_x,self", "dc_x,self", "ud_v,self", "ud_x,self", "^sm,tcp"];

/// Minimum number of bytes exchanged by each rank. The largest message of `mpi.c` alone has as many.
const MIN_BYTES: u64 = 1 << 20;

/// A launcher of MPI ranks, with its options.
#[derive(Clone, Copy)]
struct Launcher {
    command: &'static [&'static str],
    package: &'static str,
}

/// Launcher of Open MPI. Debian's configuration excludes UCX, so the options name it.
const OPEN_MPI: Launcher = Launcher {
    command: &["mpirun.openmpi", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"],
    package: "openmpi-bin",
};

const MPICH: Launcher = Launcher { command: &["mpiexec.mpich"], package: "mpich" };

const OPENSHMEM: Launcher = Launcher {
    command: &["oshrun", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"],
    package: "libopenmpi-dev",
};

/// Returns the sizes of all files in a directory.
fn sizes(folder: &Path) -> Vec<u64> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect()
}

/// Runs a program on some ranks and returns its output. All ranks must succeed, and exchange their data by packets.
fn run(launcher: Launcher, ranks: usize, program: &Path, transports: &str, options: &[&str]) -> String {
    let captures = tempfile::tempdir().unwrap();
    let capture = captures.path().join("%p");
    let options = [&["--capture", capture.to_str().unwrap()], options].concat();
    let number = ranks.to_string();
    let command = [launcher.command, &["-n", &number, program.to_str().unwrap()]].concat();
    let mut command = softnic(&options, &command);
    command
        .env("UCX_TLS", transports)
        .env("UCX_NET_DEVICES", "mlx5_0:1")
        .env("UCX_WARN_UNUSED_ENV_VARS", "n");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = Running::start(command).end();
    let text = output_text(&output);
    assert!(output.status.success(), "{transports} {options:?}: {}\n{text}", output.status);
    assert_eq!(text.matches("all data is right").count(), ranks, "{transports} {options:?}:\n{text}");
    let sizes = sizes(captures.path());
    let full = sizes.iter().filter(|size| **size > MIN_BYTES).count();
    assert_eq!(full, ranks, "{transports} {options:?}: captures of {sizes:?} bytes");
    text
}

/// Runs a program on all transports, over InfiniBand, and with more ranks over a lossy link.
fn everywhere(launcher: Launcher, program: &Path) {
    for transports in TRANSPORTS {
        run(launcher, 2, program, transports, &[]);
    }
    for transports in ["rc_x,self", "^sm,tcp"] {
        run(launcher, 2, program, transports, &["--link", "ib"]);
    }
    run(launcher, 3, program, "dc_x,self", &["--fault", "drop=0.01,reorder=0.01,duplicate=0.01,seed=7"]);
}

/// Compiles `mpi.c` with an MPI's compiler, if this MPI is installed.
fn mpi_program(test: &str, launcher: Launcher, compiler: &str, package: &str) -> Option<PathBuf> {
    all_there(test, &launcher.command[..1], launcher.package)
        .then(|| program::mpi_program(test, compiler, package))
        .flatten()
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn open_mpi_on_all_transports() {
    if let Some(program) =
        mpi_program("open_mpi_on_all_transports", OPEN_MPI, "mpicc.openmpi", "libopenmpi-dev")
    {
        everywhere(OPEN_MPI, &program);
    }
}

/// Uses Open MPI's own defaults instead of Debian's. They prefer UCX because of the device's driver.
#[test]
fn open_mpi_chooses_ucx() {
    const DEFAULT: Launcher = Launcher {
        command: &[
            "mpirun.openmpi",
            "--oversubscribe",
            "-x",
            "OMPI_MCA_mca_base_param_files=none",
            "--mca",
            "pml_base_verbose",
            "10",
            // By default, windows use a component that crashes in MPI_Compare_and_swap with or without a device.
            "--mca",
            "osc",
            "ucx",
        ],
        package: "openmpi-bin",
    };
    let test = "open_mpi_chooses_ucx";
    if let Some(program) = mpi_program(test, DEFAULT, "mpicc.openmpi", "libopenmpi-dev") {
        let text = run(DEFAULT, 2, &program, "^sm,tcp", &[]);
        assert_eq!(text.matches("selected ucx best priority 51").count(), 2, "{text}");
    }
}

/// Sends messages by libfabric, which connects by rdma_cm.
#[test]
fn open_mpi_by_libfabric() {
    const LIBFABRIC: Launcher = Launcher {
        command: &[
            "mpirun.openmpi",
            "--oversubscribe",
            "--mca",
            "pml",
            "cm",
            "--mca",
            "mtl",
            "ofi",
            "--mca",
            "mtl_ofi_provider_include",
            "verbs;ofi_rxm",
            "--mca",
            "osc",
            "pt2pt",
        ],
        package: "openmpi-bin",
    };
    let test = "open_mpi_by_libfabric";
    if let Some(program) = mpi_program(test, LIBFABRIC, "mpicc.openmpi", "libopenmpi-dev") {
        run(LIBFABRIC, 2, &program, "all", &[]);
    }
}

#[test]
fn mpich() {
    if let Some(program) = mpi_program("mpich", MPICH, "mpicc.mpich", "libmpich-dev") {
        run(MPICH, 2, &program, "^sm,tcp", &[]);
    }
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn mpich_on_all_transports() {
    if let Some(program) = mpi_program("mpich_on_all_transports", MPICH, "mpicc.mpich", "libmpich-dev") {
        everywhere(MPICH, &program);
    }
}

/// Compiles `shmem.c` with Open MPI's compiler, if its launcher is installed.
fn shmem_program(test: &str) -> Option<PathBuf> {
    let there = all_there(test, &["oshrun"], OPENSHMEM.package);
    there.then(|| program::shmem_program(test)).flatten()
}

#[test]
fn openshmem() {
    if let Some(program) = shmem_program("openshmem") {
        run(OPENSHMEM, 2, &program, "^sm,tcp", &[]);
    }
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn openshmem_on_all_transports() {
    if let Some(program) = shmem_program("openshmem_on_all_transports") {
        everywhere(OPENSHMEM, &program);
    }
}
