//! The command `rushmem softnic`, which runs a program with the software ConnectX as its RDMA device, or serves it to a
//! virtual machine.

mod vfio_user;

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem_softnic::{FunctionType, Model};
use rushmem_uverbs::settings::{MAX_DEVICES, variable};
use rushmem_uverbs::{Fault, Settings, sysfs};

use crate::error::Error;

/// Run a program with the software ConnectX as its RDMA device
///
/// The unmodified program finds `mlx5_0` through its own libibverbs and libmlx5. Each process that opens the device
/// gets its own adapter. Adapters exchange packets through shared memory on this machine and, with --ip, by UDP between
/// machines. No privileges are needed. Child processes inherit the device.
///
/// With --vfio-user, there is no program. The adapter waits at a socket for a virtual machine, whose own drivers bind to
/// it.
#[derive(clap::Args)]
#[command(after_help = faults())]
pub(crate) struct Args {
    /// Number of devices: mlx5_0, mlx5_1, ...
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEVICES)))]
    devices: u32,

    /// Link layer of the ports: ethernet (RoCEv2, peers by GID) or ib (InfiniBand, peers by LID)
    #[arg(long, value_name = "LINK", default_value = "ethernet", value_parser = ["ethernet", "ib"])]
    link: String,

    /// Model of ConnectX that the devices present themselves as
    #[arg(long, value_name = "MODEL", default_value = Model::default().name(),
          value_parser = Model::ALL.map(Model::name))]
    model: String,

    /// Address of each device [default: a free address of 127/8 for each process]
    #[arg(long, value_name = "IPV4", value_delimiter = ',')]
    ip: Vec<Ipv4Addr>,

    /// Whether packets between adapters of this machine go through shared memory; off: by UDP
    #[arg(long, value_name = "SWITCH", default_value = "on", value_parser = ["on", "off"])]
    shared_memory: String,

    /// Faults to inject: names from the list below, or `name=value` of the adapter (drop=0.01, black_hole=127.64.1.2,
    /// ...)
    #[arg(long, value_name = "FAULT", value_delimiter = ',')]
    fault: Vec<String>,

    /// Write all packets to this file, for Wireshark; %p is replaced by the process id, %d by the device number
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// Append executed commands, and send WQEs, one of each shape, to this file as text; %p and %d as in --capture
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Serve the device to a virtual machine (QEMU 10.1 or newer: -device vfio-user-pci) at this socket
    #[arg(long, value_name = "SOCKET", conflicts_with = "command")]
    vfio_user: Option<PathBuf>,

    /// Function of the NIC that the virtual machine gets: pf (physical) or vf (virtual)
    #[arg(long, value_name = "FUNCTION", default_value = "vf", value_parser = ["pf", "vf"], conflicts_with = "command")]
    function: String,

    /// The program and its arguments
    #[arg(required_unless_present = "vfio_user", trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Returns the list of faults for the help text.
fn faults() -> String {
    let lines: Vec<_> =
        Fault::ALL.iter().map(|fault| format!("  {:13} {}", fault.name(), fault.meaning())).collect();
    format!("Faults:\n{}", lines.join("\n"))
}

impl Args {
    /// Returns the environment variables that configure the preloaded library.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let ips: Vec<_> = self.ip.iter().map(ToString::to_string).collect();
        vec![
            (variable::DEVICES, self.devices.to_string().into()),
            (variable::LINK, self.link.clone().into()),
            (variable::MODEL, self.model.clone().into()),
            (variable::IP, ips.join(",").into()),
            (variable::SHARED_MEMORY, self.shared_memory.clone().into()),
            (variable::FAULT, self.fault.join(",").into()),
            (variable::CAPTURE, self.capture.clone().unwrap_or_default().into()),
            (variable::RECORD, self.record.clone().unwrap_or_default().into()),
        ]
    }
}

/// Replaces this process by the program, with the software ConnectX preloaded, or serves virtual machines. Returns only
/// if that fails.
pub(crate) fn execute(args: Args) -> Result<std::convert::Infallible, Error> {
    let variables = args.variables();
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    // The library parses the variables the same way. Parsing them here reports errors early.
    let settings = Settings::from_variables(get).map_err(|error| Error::Usage(error.why))?;
    if let Some(socket) = &args.vfio_user {
        let function = match args.function.as_str() {
            "pf" => FunctionType::Physical,
            _ => FunctionType::Virtual,
        };
        return vfio_user::serve(socket, &settings, function);
    }
    let library = library()?;
    let tree = tree(&settings)?;
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let (program, arguments) =
        args.command.split_first().ok_or(Error::Usage("no program is given".into()))?;
    let mut command = Command::new(program);
    // The tree replaces `/sys`.
    command
        .env_remove("SYSFS_PATH")
        .args(arguments)
        .envs(variables)
        .env(PRELOAD, preload)
        .env(variable::SYSFS, tree);
    let error = command.exec();
    Err(Error::Usage(format!("cannot run `{}`: {error}", program.display())))
}

/// Name of the environment variable that lists the libraries to preload.
const PRELOAD: &str = "LD_PRELOAD";

/// File name of the library that implements the software ConnectX for programs.
const LIBRARY: &str = "rushmem-preload";

/// Finds the library to preload: at the path in its environment variable, or else in the folder of this command.
fn library() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os(variable::LIBRARY).filter(|path| !path.is_empty()) {
        return match PathBuf::from(&path).canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(Error::Environment(format!("{} = {}: no such file", variable::LIBRARY, path.display()))),
        };
    }
    let own = std::env::current_exe()
        .map_err(|error| Error::Environment(format!("cannot find the path of this command: {error}")))?;
    let beside = own.with_file_name(LIBRARY);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Error::Environment(format!(
        "cannot find {}, the library to preload; `cargo build -p rushmem-cli` and `cargo install rushmem-cli` make it \
         with this command; {} names it elsewhere",
        beside.display(),
        variable::LIBRARY
    )))
}

/// Writes the sysfs files through which libibverbs finds devices. Returns their root.
///
/// The files are never removed, because children of the program may enumerate devices at any time.
fn tree(settings: &Settings) -> Result<PathBuf, Error> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = private(&base)?;
    sysfs::install(&folder, settings)
        .map_err(|error| Error::Environment(format!("cannot write to {}: {error}", folder.display())))
}

/// Creates a folder that only this user can write to, or checks that an existing one is like that.
fn private(base: &Path) -> Result<PathBuf, Error> {
    let own = std::fs::metadata("/proc/self").map(|meta: Metadata| meta.uid());
    let user =
        own.map_err(|error| Error::Environment(format!("cannot find the user id in /proc/self: {error}")))?;
    let folder = base.join(format!("rushmem-softnic-{user}"));
    let failed = |why: &dyn std::fmt::Display| Error::Environment(format!("{}: {why}", folder.display()));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(&error)),
        _ => {}
    }
    let meta = std::fs::symlink_metadata(&folder).map_err(|error| failed(&error))?;
    if meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0 {
        return Ok(folder);
    }
    Err(failed(&"another user owns this folder or can write to it; remove it, or set XDG_RUNTIME_DIR"))
}
