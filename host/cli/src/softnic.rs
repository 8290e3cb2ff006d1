//! `rushmem softnic`.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem_uverbs::settings::{MAX_DEVICES, variable};
use rushmem_uverbs::{Fault, Settings, sysfs};

use crate::error::Error;

/// Run a program with the software ConnectX as its RDMA device
///
/// The program, unmodified, finds `mlx5_0` through its own libibverbs and libmlx5. Each process that opens it has an
/// adapter of its own; they meet in UDP on this machine, or on others with --ip. No privileges are needed, and all
/// that the program starts inherits the device.
#[derive(clap::Args)]
#[command(after_help = faults())]
pub(crate) struct Args {
    /// How many devices there are: mlx5_0, mlx5_1, ...
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEVICES)))]
    devices: u32,

    /// What the ports speak: ethernet (RoCEv2, peers by GID) or ib (InfiniBand, peers by LID)
    #[arg(long, value_name = "LINK", default_value = "ethernet", value_parser = ["ethernet", "ib"])]
    link: String,

    /// Address of each device; without it, each process takes a free one of 127/8
    #[arg(long, value_name = "IPV4", value_delimiter = ',')]
    ip: Vec<Ipv4Addr>,

    /// Faults to inject, from the list below or as `name=value` of the adapter (drop=0.01, black_hole=127.64.1.2, ...)
    #[arg(long, value_name = "FAULT", value_delimiter = ',')]
    fault: Vec<String>,

    /// Write all packets to this file, for Wireshark; %p stands for the process, %d for the device
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,

    /// Add the send work-queue entries that are executed to this file as text, one of each shape; %p and %d as above
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The list of faults, for the help.
fn faults() -> String {
    let lines: Vec<_> =
        Fault::ALL.iter().map(|fault| format!("  {:13} {}", fault.name(), fault.meaning())).collect();
    format!("Faults:\n{}", lines.join("\n"))
}

impl Args {
    /// The variables that the library reads.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let ips: Vec<_> = self.ip.iter().map(ToString::to_string).collect();
        vec![
            (variable::DEVICES, self.devices.to_string().into()),
            (variable::LINK, self.link.clone().into()),
            (variable::IP, ips.join(",").into()),
            (variable::FAULT, self.fault.join(",").into()),
            (variable::CAPTURE, self.capture.clone().unwrap_or_default().into()),
            (variable::RECORD, self.record.clone().unwrap_or_default().into()),
        ]
    }
}

/// Becomes the program; returns only where that fails.
pub(crate) fn execute(args: Args) -> Result<std::convert::Infallible, Error> {
    let variables = args.variables();
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    // The same reader as in the library, so that what is wrong is said here.
    let settings = Settings::from_variables(get).map_err(|error| Error::Usage(error.why))?;
    let library = library()?;
    let tree = tree(&settings)?;
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let (program, arguments) = args.command.split_first().ok_or(Error::Usage("which program?".into()))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(variables).env(PRELOAD, preload).env("SYSFS_PATH", tree);
    let error = command.exec();
    Err(Error::Usage(format!("cannot run `{}`: {error}", program.display())))
}

/// The variable of the dynamic linker.
const PRELOAD: &str = "LD_PRELOAD";

/// The library's file name.
const LIBRARY: &str = "librushmem_uverbs_preload.so";

/// Where the library is: where its variable says, or beside this command, or in `deps` there.
fn library() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os(variable::LIBRARY).filter(|path| !path.is_empty()) {
        return match PathBuf::from(&path).canonicalize() {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(Error::Environment(format!("{} = {}: no such file", variable::LIBRARY, path.display()))),
        };
    }
    let own = std::env::current_exe().map_err(|error| Error::Environment(format!("where am I? {error}")))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let candidates = [beside.join(LIBRARY), beside.join("deps").join(LIBRARY)];
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        Error::Environment(format!(
            "the library to preload is not there: looked for {}; build it with `cargo build --release -p \
             rushmem-uverbs-preload`, or set {}",
            places.join(" and "),
            variable::LIBRARY
        ))
    })
}

/// Writes the files that libibverbs looks for devices in; gives their root. It depends only on what is in it, and stays:
/// the program's children may look at any time.
fn tree(settings: &Settings) -> Result<PathBuf, Error> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = private(&base)?;
    sysfs::install(&folder, settings.devices, settings.link)
        .map_err(|error| Error::Environment(format!("cannot write to {}: {error}", folder.display())))
}

/// A folder that only this user can write to.
fn private(base: &Path) -> Result<PathBuf, Error> {
    let own = std::fs::metadata("/proc/self").map(|meta: Metadata| meta.uid());
    let user = own.map_err(|error| Error::Environment(format!("who am I? /proc/self: {error}")))?;
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
    Err(failed(&"it is not this user's own folder; remove it, or set XDG_RUNTIME_DIR"))
}
