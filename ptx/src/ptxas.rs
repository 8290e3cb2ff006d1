//! Runs `ptxas`, the PTX assembler, and parses each kernel's registers, stack and spills from its output.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::header::Header;
use crate::target::for_arch;

/// Environment variable with the path of `ptxas`.
pub(crate) const PTXAS: &str = "RUSHMEM_PTXAS";

/// GPU architectures for which committed PTX must assemble: Turing, Ampere, Ada, Hopper and Blackwell.
pub const ARCHES: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"];

/// Resources used by a kernel, as reported by ptxas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Name of the kernel.
    pub entry: String,
    /// Number of registers per thread.
    pub registers: u32,
    /// Number of hardware barriers per block.
    pub barriers: u32,
    /// Bytes of stack per thread, including called functions.
    pub stack: u32,
    /// Bytes that a thread stores to spill registers, including called functions.
    pub spill_stores: u32,
    /// Bytes that a thread loads to restore spilled registers, including called functions.
    pub spill_loads: u32,
    /// Bytes of static shared memory per block.
    pub shared: u32,
}

/// Finds `ptxas`: `RUSHMEM_PTXAS`, `PATH`, a CUDA toolkit, or the Python package `nvidia-cuda-nvcc`.
///
/// # Errors
/// - [`Error::Ptxas`] if there is none, or if `RUSHMEM_PTXAS` does not exist.
pub fn find() -> Result<PathBuf> {
    if let Some(path) = env::var_os(PTXAS).map(PathBuf::from) {
        let absent = || Error::Ptxas(format!("{PTXAS}={}: does not exist", path.display()));
        return if path.is_file() { Ok(path) } else { Err(absent()) };
    }
    let on_path = env::var_os("PATH").map(|p| env::split_paths(&p).collect::<Vec<_>>()).unwrap_or_default();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = toolkits.chain(["/usr/local/cuda".into()]).map(|dir| dir.join("bin"));
    let python = python_packages()
        .into_iter()
        .flat_map(|dir| ["nvidia/cu13/bin", "nvidia/cuda_nvcc/bin"].map(|place| dir.join(place)));
    let mut places = on_path.into_iter().chain(toolkits).chain(python).map(|dir| dir.join("ptxas"));
    places.find(|path| path.is_file()).ok_or_else(|| {
        Error::Ptxas(format!(
            "no ptxas found: set {PTXAS}, install CUDA, or `pip install nvidia-cuda-nvcc==13.0.*`"
        ))
    })
}

/// Returns the folder in which `python3` installs packages.
fn python_packages() -> Option<PathBuf> {
    let print = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let output = Command::new("python3").args(["-c", print]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Assembles `ptx` to machine code for `arch`, in the file at `to`. The PTX is first adapted as for GPUs of
/// `text_arch`. Returns the messages of ptxas.
///
/// # Errors
/// - [`Error::Spawn`] if ptxas does not start.
/// - [`Error::Ptxas`] if it rejects the text.
pub fn assemble(ptxas: &Path, ptx: &str, text_arch: &str, arch: &str, to: &Path) -> Result<String> {
    run(ptxas, &["-v"], ptx, text_arch, arch, to)
}

/// Assembles the functions in `ptx` to relocatable machine code for `arch`, in the file at `to`.
///
/// # Errors
/// - [`Error::Spawn`] if ptxas does not start.
/// - [`Error::Ptxas`] if it rejects the text.
pub fn relocatable(ptxas: &Path, ptx: &str, arch: &str, to: &Path) -> Result<()> {
    run(ptxas, &["-c"], ptx, arch, arch, to).map(drop)
}

fn run(ptxas: &Path, options: &[&str], ptx: &str, text_arch: &str, arch: &str, to: &Path) -> Result<String> {
    let failed = |source| Error::Spawn { program: ptxas.into(), source };
    let mut child = Command::new(ptxas)
        .args(options)
        .args([&format!("-arch={arch}"), "-o"])
        .args([to, Path::new("-")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // If writing fails, ptxas has exited and says why.
        let _ = input.write_all(for_arch(ptx, text_arch).as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    // Which stream it writes to depends on its version.
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).join("\n");
    if !output.status.success() {
        let krate =
            Header::parse(ptx).map_or_else(|| "the PTX".into(), |h| format!("the PTX of {}", h.krate));
        return Err(Error::Ptxas(format!("ptxas refuses {krate} for {arch}:\n{}", text.trim())));
    }
    Ok(text)
}

/// Assembles `ptx` for `arch` to determine the resources of each kernel, sorted by name.
///
/// # Errors
/// - [`Error::Spawn`] if ptxas does not start.
/// - [`Error::Ptxas`] if it rejects the text.
pub fn usage(ptxas: &Path, ptx: &str, arch: &str) -> Result<Vec<Usage>> {
    let mut found = parse(&assemble(ptxas, ptx, arch, arch, Path::new("/dev/null"))?);
    found.sort_by(|a, b| a.entry.cmp(&b.entry));
    Ok(found)
}

fn parse(text: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or("").to_owned();
            found.push(Usage { entry, ..Usage::default() });
        }
        // The lines of called functions follow those of their kernel.
        let Some(usage) = found.last_mut() else { continue };
        for part in line.rsplit_once(" : ").map_or(line, |(_, part)| part).split(',') {
            let mut words =
                part.trim().trim_start_matches("Used ").trim_start_matches("used ").splitn(2, ' ');
            let Some(number) = words.next().and_then(|n| n.parse::<u32>().ok()) else { continue };
            match words.next().unwrap_or("") {
                "registers" => usage.registers = number,
                "barriers" => usage.barriers = number,
                "bytes stack frame" => usage.stack = usage.stack.max(number),
                "bytes cumulative stack size" => usage.stack = usage.stack.max(number),
                "bytes spill stores" => usage.spill_stores += number,
                "bytes spill loads" => usage.spill_loads += number,
                "bytes smem" => usage.shared = number,
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_older_gpus_can_be_assembled_for_newer_ones() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let [ptxas, to] = ["ptxas", "to"].map(|name| folder.path().join(name));
        // This fake writes its architecture and its input instead of machine code.
        std::fs::write(&ptxas, "#!/bin/sh\n{ echo \"$2\"; cat; } >\"$4\"\n").unwrap();
        std::fs::set_permissions(&ptxas, PermissionsExt::from_mode(0o755)).unwrap();
        let ptx = "\tfence.acq_rel.gpu; // sm_90: fence.release.gpu;\n";
        for (text_arch, text) in [("sm_80", ptx), ("sm_90", "fence.release.gpu;\n")] {
            assemble(&ptxas, ptx, text_arch, "sm_90", &to).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), format!("-arch=sm_90\n{text}"));
        }
    }

    #[test]
    fn reads_the_output_of_ptxas() {
        let text = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'ring' for 'sm_90'
ptxas info    : Function properties for ring
    128 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 160 bytes cumulative stack size, 64 bytes smem
ptxas info    : Compile time = 2.904 ms
ptxas info    : Function properties for _RNvhelper
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'put' for 'sm_90'
ptxas info    : Function properties for put
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
";
        let ring = Usage {
            entry: "ring".into(),
            registers: 32,
            barriers: 1,
            stack: 160,
            spill_stores: 12,
            spill_loads: 16,
            shared: 64,
        };
        let put = Usage { entry: "put".into(), registers: 10, ..Usage::default() };
        assert_eq!(parse(text), [ring, put]);
    }
}
