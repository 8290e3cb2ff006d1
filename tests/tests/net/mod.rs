//! Tests of jobs on two hosts, simulated by two network namespaces joined by a veth pair.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rushmem::bootstrap::UniqueId;
use rushmem_tests::hosts::{Hosts, tool};
use rushmem_tests::skip;

use super::{PE, all, launcher, ring_lines, sorted, text};

/// A packet capture of host 0's interface.
struct Capture {
    tshark: Child,
}

impl Capture {
    /// Starts the packet capture and waits until it records packets.
    fn start(hosts: &Hosts, file: &Path) -> Result<Capture, String> {
        let mut command = hosts.command(0, Path::new("tshark"));
        command.args(["-q", "-i", "cable", "-w"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tshark = command.spawn().map_err(|error| format!("tshark: {error}"))?;
        let begin = Instant::now();
        // The file grows with the first packet, which a ping provides.
        while std::fs::metadata(file).map_or(0, |meta| meta.len()) < 500 {
            if let Ok(Some(status)) = tshark.try_wait() {
                return Err(format!("tshark: {status}"));
            }
            if begin.elapsed() > Duration::from_secs(20) {
                return Err("tshark captures nothing".into());
            }
            let _ =
                hosts.command(1, Path::new("bash")).args(["-c", "echo > /dev/udp/10.83.0.1/40404"]).output();
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Capture { tshark })
    }

    /// Stops the packet capture after all packets have been written.
    fn stop(mut self) {
        // The capture tool flushes its buffers with a delay.
        std::thread::sleep(Duration::from_millis(500));
        let _ = tool("kill", &["-INT", &self.tshark.id().to_string()]);
        let _ = self.tshark.wait();
    }
}

/// Returns a line for each captured packet that the filter selects.
fn packets(file: &Path, filter: &str) -> Vec<String> {
    let file = file.to_str().unwrap_or_default();
    // The second PE of a host uses the next UDP port, which Wireshark does not recognise by itself.
    let ports = ["-d", "udp.port==4791,infiniband", "-d", "udp.port==4792,infiniband"];
    let lines = tool("tshark", &[&["-r", file, "-Y", filter], &ports[..]].concat());
    lines.unwrap_or_else(|error| panic!("{error}")).lines().map(str::to_owned).collect()
}

fn run(hosts: &Hosts, launcher: &Path, args: &[&str]) -> [Output; 2] {
    let start = |node: usize| {
        let mut command = hosts.command(node, launcher);
        command.args(["run", "-n", "4", "--nodes", "2", "--node", &node.to_string()]);
        command.args(["--rendezvous", "10.83.0.1:7000"]).args(args);
        command.env("RUSHMEM_TOKEN", "5a".repeat(32)).spawn().unwrap()
    };
    let launchers = [start(0), start(1)];
    launchers.map(|launcher| launcher.wait_with_output().unwrap())
}

#[test]
fn two_hosts_exchange_rocev2_packets() {
    const TEST: &str = "two_hosts_exchange_rocev2_packets";
    let Some(launcher) = launcher(super::PE) else {
        return skip(TEST, "the launcher is not built: cargo build -p rushmem-cli");
    };
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => return skip(TEST, &format!("network namespaces need root and iproute2: {reason}")),
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.pcapng");
    let capture = match Capture::start(&hosts, &file) {
        Ok(capture) => capture,
        Err(reason) => return skip(TEST, &format!("packets are captured by tshark: {reason}")),
    };
    let outputs = run(&hosts, &launcher, &[PE, "ring"]);
    capture.stop();
    let mut lines = Vec::new();
    for output in &outputs {
        assert!(output.status.success(), "{}", all(output));
        lines.extend(sorted(&output.stdout));
    }
    lines.sort();
    assert_eq!(lines, ring_lines(4));
    let told: String = outputs.iter().map(all).collect();
    assert_eq!(told.matches("traffic between nodes goes through the software ConnectX").count(), 1, "{told}");

    let count = |filter| packets(&file, filter).len();
    let rdma = count("infiniband && udp.dstport == 4791");
    let (writes, acks) = (count("infiniband.bth.opcode == 10"), count("infiniband.bth.opcode == 17"));
    assert!(
        rdma > 0 && writes > 0 && acks > 0,
        "{rdma} RDMA packets, {writes} writes, {acks} acknowledgements"
    );
    for bad in [
        "udp.port in {4791, 4792} && !infiniband",
        // Count malformed RDMA packets only: because of the port, tshark may mistake the pings of `Capture` for another
        // protocol.
        "infiniband && _ws.malformed",
        "infiniband && _ws.expert.severity == error",
    ] {
        let found = packets(&file, bad);
        assert!(found.is_empty(), "{bad}: {} packets, such as\n{}", found.len(), found[0]);
    }
}

/// Starts two processes on each host, after `command` has set up PE `i` of 4, and returns their outputs.
fn by_hand(hosts: &Hosts, command: impl Fn(&mut Command, u32)) -> Vec<Output> {
    let start = |i: u32| {
        let mut pe = hosts.command(i as usize / 2, Path::new(PE));
        command(&mut pe, i);
        pe.spawn().unwrap()
    };
    let started: Vec<Child> = (0..4).map(start).collect();
    started.into_iter().map(|pe| pe.wait_with_output().unwrap()).collect()
}

#[test]
fn two_hosts_start_a_job_without_a_launcher() {
    const TEST: &str = "two_hosts_start_a_job_without_a_launcher";
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => return skip(TEST, &format!("network namespaces need root and iproute2: {reason}")),
    };
    let did_the_ring = |outputs: &[Output]| {
        let told: String = outputs.iter().map(all).collect();
        assert!(outputs.iter().all(|output| output.status.success()), "{told}");
        let all: Vec<u8> = outputs.iter().flat_map(|output| output.stdout.clone()).collect();
        let labelled =
            |line: String| line.split_once("] ").map(|(_, line)| line.to_owned()).unwrap_or_default();
        let mut wanted: Vec<String> = ring_lines(4).into_iter().map(labelled).collect();
        wanted.sort();
        assert_eq!(sorted(&all), wanted, "{told}");
    };

    // With an ID in an environment variable.
    let id = UniqueId::at("10.83.0.1:4711".parse().unwrap()).unwrap().to_hex();
    did_the_ring(&by_hand(&hosts, |pe, i| {
        pe.arg("ring").env("RUSHMEM_ID", &id).env("RUSHMEM_PE", i.to_string()).env("RUSHMEM_N_PES", "4");
    }));

    // Through files, with an interface of PE 0's host that the other host can reach.
    let files = |interface: &str| {
        let folder = tempfile::tempdir().unwrap();
        by_hand(&hosts, |pe, i| {
            pe.args(["files", folder.path().to_str().unwrap(), &i.to_string(), "4"]);
            pe.env("RUSHMEM_BOOTSTRAP_INTERFACE", interface).env("RUSHMEM_BOOTSTRAP_TIMEOUT", "3s");
            pe.env("RUSHMEM_LOG", "rushmem_bootstrap=info");
        })
    };
    let outputs = files("cable");
    did_the_ring(&outputs);
    assert!(text(&outputs[0].stderr).contains("PE 0 listens at 10.83.0.1:"), "{}", all(&outputs[0]));

    // By default no PE listens to other machines, and PEs on another machine get an error that says so.
    let outputs = files("");
    for far in &outputs[2..] {
        assert!(!far.status.success());
        assert!(
            text(&far.stderr).contains("an interface on a network that all machines share"),
            "{}",
            all(far)
        );
    }
    assert!(text(&outputs[0].stderr).contains("PEs 2-3 of 4 did not arrive"), "{}", all(&outputs[0]));
}

#[test]
fn two_hosts_connect_through_rdma_cm() {
    const TEST: &str = "two_hosts_connect_through_rdma_cm";
    let library = launcher(super::PE).filter(|launcher| launcher.with_file_name("rushmem-preload").is_file());
    let Some(launcher) = library else {
        return skip(TEST, "the launcher and its library are not built: cargo build -p rushmem-cli");
    };
    if tool("rping", &["-h"]).is_err_and(|error| error.contains("No such file")) {
        return skip(TEST, "rping is missing: install rdmacm-utils");
    }
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => return skip(TEST, &format!("network namespaces need root and iproute2: {reason}")),
    };
    let start = |node: usize, side: &[&str]| {
        let mut command = hosts.command(node, &launcher);
        command.args(["softnic", "--ip", &format!("10.83.0.{}", node + 1), "--", "rping"]).args(side);
        command.args(["-V", "-v", "-C", "5"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let server = start(0, &["-s", "-a", "10.83.0.1"]);
    let begin = Instant::now();
    let client = loop {
        let client = start(1, &["-c", "-a", "10.83.0.1"]).wait_with_output().unwrap();
        // Retry: the server may not be listening yet.
        if client.status.success() || begin.elapsed() > Duration::from_secs(60) {
            break client;
        }
    };
    assert!(all(&client).contains("rdma-ping-4"), "{}", all(&client));
    let server = server.wait_with_output().unwrap();
    assert!(all(&server).contains("rdma-ping-4"), "{}", all(&server));
}
