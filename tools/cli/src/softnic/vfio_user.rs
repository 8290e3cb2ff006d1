//! Serves the software ConnectX to virtual machines, as a PCI device.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rushmem_softnic::{Config, FunctionType, Idle, Ip, Nic};
use rushmem_softnic_pci::vfio_user::{self, Server};
use rushmem_softnic_pci::{Count, Identity};
use rushmem_uverbs::Settings;
use rushmem_uverbs::settings::LinkLayer;

use crate::error::Error;

/// Serves one virtual machine after the other at `socket`. Returns only if that fails.
pub(super) fn serve(socket: &Path, settings: &Settings, function: FunctionType) -> Result<Infallible, Error> {
    let nic = Nic::start(config(settings)?).map_err(|error| Error::Environment(error.to_string()))?;
    if settings.link == LinkLayer::InfiniBand && nic.lid().is_none() {
        let address = *nic.address().ip();
        return Err(Error::Usage(format!(
            "{address}: an InfiniBand port's address must be 127.64.x.y, of which x.y is its LID"
        )));
    }
    let nic = Arc::new(nic);
    let failed = |error: vfio_user::Error| Error::Environment(error.to_string());
    let server = Server::bind(socket).map_err(failed)?;
    eprintln!("waiting for a virtual machine at {}", socket.display());
    let infiniband = settings.link == LinkLayer::InfiniBand;
    let identity = Identity { model: settings.model, function, infiniband };
    loop {
        match server.serve(&nic, identity) {
            Ok(counts) => eprint!("the virtual machine has disconnected; its commands:\n{}", table(&counts)),
            Err(error @ vfio_user::Error::Accept(_)) => return Err(failed(error)),
            // The next virtual machine is none the wiser.
            Err(error) => eprintln!("the virtual machine is gone: {error}"),
        }
    }
}

/// Returns the settings of the adapter, or an error if `settings` asks for what a PCI device does not have.
fn config(settings: &Settings) -> Result<Config, Error> {
    let usage = |why: &str| Err(Error::Usage(format!("--vfio-user {why}")));
    if settings.devices != 1 {
        return usage("serves one device: start one command for each");
    }
    if let Some(fault) = settings.faults.first() {
        return usage(&format!("cannot inject `{}`, a fault of the kernel's interface", fault.name()));
    }
    Ok(Config {
        name: "rushmem".into(),
        model: settings.model,
        ip: settings.addresses.first().map_or(Ip::AnyLoopback, |ip| Ip::Addr(*ip)),
        shared_memory: settings.shared_memory,
        faults: settings.engine_faults.clone(),
        capture: settings.capture_of(0),
        record: settings.record_of(0),
        infiniband: settings.link == LinkLayer::InfiniBand,
        // Doorbells are messages on the socket, which wake the adapter.
        idle: Idle::Notified { max_sleep: Duration::from_millis(100) },
        ..Config::default()
    })
}

/// Returns one line for each command: its name, and how often it was executed and refused.
fn table(counts: &BTreeMap<rushmem_mlx5::prm::CmdOpcode, Count>) -> String {
    let mut lines = String::new();
    for (opcode, Count { done, refused }) in counts {
        writeln!(lines, "  {opcode}: {done} executed, {refused} refused").expect("a string has no end");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_lacks_is_an_error() {
        let good = Settings { link: LinkLayer::InfiniBand, ..Settings::default() };
        assert!(config(&good).is_ok_and(|config| config.infiniband));
        let ethernet = Settings { link: LinkLayer::Ethernet, ..good.clone() };
        assert!(config(&ethernet).is_ok_and(|config| !config.infiniband));
        let capture = Some("/tmp/%d.pcap".into());
        let numbered = config(&Settings { capture, ..good.clone() });
        assert!(numbered.is_ok_and(|config| config.capture == Some("/tmp/0.pcap".into())));
        let two = Settings { devices: 2, ..good };
        assert!(matches!(config(&two), Err(Error::Usage(_))));
    }
}
