//! Compiles and links programs in CUDA C++ with nvcc. They need a GPU to run: here they only start.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rushmem_tests::launch::{all, clean};
use rushmem_tests::skip;

use crate::built;

/// Programs with NVSHMEM's names, and their source files.
const NVSHMEM: [(&str, &[&str]); 4] = [
    ("ring", &["ring.cu"]),
    ("reduce", &["reduce.cu"]),
    ("atomics", &["atomics.cu"]),
    ("pipeline", &["pipeline.cu", "pipeline_kernel.cu"]),
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns nvcc's command with the flags for relocatable code for `arch`, or `None` if there is no nvcc.
fn nvcc(test: &str, arch: &str) -> Option<Command> {
    if Command::new("nvcc").arg("--version").output().is_err() {
        skip(test, "there is no nvcc: install a CUDA toolkit");
        return None;
    }
    let mut command = Command::new("nvcc");
    command.args([
        &format!("-arch={arch}"),
        "-rdc=true",
        "-Xcompiler=-Wall,-Wextra,-Werror",
        "-Werror=all-warnings",
    ]);
    Some(command)
}

/// Returns the folder with the static library of device functions.
fn device_functions() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("device");
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "-q", "-p", "rushmem-ptx", "--", "library"]).arg(&to).args(["sm_80", "sm_90"]);
        let output = command.current_dir(folder()).output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
        assert!(to.join("librushmem_device.a").exists(), "{}", all(&output));
        to
    })
}

/// Links a program for `arch` from `sources` with the libraries of device and host, and starts it natively: it exits
/// with an error after it has registered its kernels, because they need a GPU.
fn link(test: &str, arch: &str, name: &str, include: &str, sources: &[PathBuf]) {
    let Some(mut command) = nvcc(test, arch) else { return };
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{arch}"));
    command.arg("-I").arg(folder().join(include)).args(sources).arg("-o").arg(&program);
    command.arg("-L").arg(device_functions()).arg("-lrushmem_device");
    command.arg("-L").arg(built()).arg("-lrushmem");
    command.arg("-Xlinker").arg(format!("-rpath={}", built().display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name} for {arch}: {}", all(&output));

    let output = clean(&program).output().unwrap();
    let text = all(&output);
    assert!(output.status.code() == Some(1) && text.contains(" GPU"), "{name} for {arch}: {text}");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn nvcc_links_the_stencil() {
    let source = folder().join("../../examples/cuda/stencil.cu");
    // With machine code of the library, that of an older GPU, and the library's PTX.
    for arch in ["sm_90", "sm_86", "sm_120"] {
        link("nvcc_links_the_stencil", arch, "stencil", "include", std::slice::from_ref(&source));
    }
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn nvcc_links_programs_with_the_names_of_nvshmem() {
    for (name, sources) in NVSHMEM {
        let sources: Vec<_> = sources.iter().map(|file| folder().join("tests/nvshmem").join(file)).collect();
        let test = "nvcc_links_programs_with_the_names_of_nvshmem";
        link(test, "sm_90", &format!("nvshmem-{name}"), "include/nvshmem", &sources);
    }
}

/// Compiles a program that uses `host` in a function of the host and `kernel` in a kernel. Returns nvcc's messages if
/// it is refused.
fn refusal(nvcc: Command, kernel: &str, host: &str) -> Option<String> {
    let source = tempfile::Builder::new().suffix(".cu").tempfile().unwrap();
    let program = format!(
        "#include <nvshmem.h>\n#include <nvshmemx.h>\n\
         __global__ void kernel(float *f, int *i) {{\n(void)f, (void)i;\n{kernel};\n}}\n\
         void host(float *f, int *i) {{\n(void)f, (void)i;\n{host};\n}}\n"
    );
    std::fs::write(source.path(), program).unwrap();
    let mut command = nvcc;
    command
        .arg("-I")
        .arg(folder().join("include/nvshmem"))
        .args(["-c", "-o", "/dev/null"])
        .arg(source.path());
    let output = command.output().unwrap();
    (!output.status.success()).then(|| all(&output))
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn names_of_nvshmem_with_other_semantics_do_not_compile() {
    const TEST: &str = "names_of_nvshmem_with_other_semantics_do_not_compile";
    let cases = [
        ("nvshmem_float_sum_reduce(NVSHMEM_TEAM_WORLD, f, f, 1)", "", "nvshmem_float_sum_reduce"),
        ("nvshmem_float_iput(f, f, 1, 1, 1, 0)", "", "nvshmem_float_iput"),
        ("nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, f)", "", "nvshmemx_mc_ptr"),
        ("", "nvshmem_int_p(i, 1, 0)", "nvshmem_int_p"),
        ("", "nvshmem_int_atomic_inc(i, 0)", "nvshmem_int_atomic_inc"),
        ("", "nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, nullptr)", "NVSHMEMX_INIT_WITH_MPI_COMM"),
    ];
    for (kernel, host, name) in cases {
        let Some(nvcc) = nvcc(TEST, "sm_90") else { return };
        let messages = refusal(nvcc, kernel, host).unwrap_or_else(|| panic!("{name} compiles"));
        assert!(messages.contains(name), "{name}: {messages}");
    }
    let Some(mut whole_program) = nvcc(TEST, "sm_90") else { return };
    whole_program.arg("-rdc=false");
    assert!(refusal(whole_program, "", "").is_some_and(|messages| messages.contains("-rdc=true")));
    let Some(nvcc) = nvcc(TEST, "sm_90") else { return };
    assert_eq!(refusal(nvcc, "nvshmem_int_p(i, 1, 0)", "nvshmem_barrier_all()"), None);
}
