//! Tests the commands of the section "Two nodes" of docs/rdma.md verbatim, between two network namespaces.

use std::process::{Command, Output};

use rushmem_tests::launch::{self, all, text};
use rushmem_tests::nodes::Nodes;
use rushmem_tests::slurm::{GPUS, Slurm, SlurmNode};
use rushmem_tests::{repository, skip};

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

/// Returns the commands under a heading such as `**Slurm.**`, in the section "Two nodes" of docs/rdma.md.
fn commands(heading: &str) -> String {
    let page = repository::read("docs/rdma.md");
    let section = page.split("## Two nodes").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let below = section.split(heading).nth(1).unwrap_or_else(|| panic!("docs/rdma.md lacks {heading}"));
    let block = below.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // The interface of the namespaces.
    block.replace("eth0", "cable")
}

/// Returns the script of node `i`: all lines except those whose comment names the other node.
fn of_node(i: usize, commands: &str) -> String {
    let others = ["# on the other node", "# on the node with 10.83.0.1"][i];
    let lines = commands.lines().filter(|line| !line.contains(others));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Asserts that `n` PEs received all data, whatever the labels of the output lines.
fn passed(n: u32, outputs: &[Output]) {
    let told: String = outputs.iter().map(all).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{told}");
    let unlabelled = |line: &str| line.split_once("] ").map_or(line, |(_, rest)| rest).to_owned();
    let mut lines: Vec<String> = outputs
        .iter()
        .flat_map(|output| text(&output.stdout).lines().map(unlabelled).collect::<Vec<_>>())
        .collect();
    lines.sort();
    assert_eq!(lines, launch::ring_lines(n, |_| String::new()), "{told}");
}

#[test]
fn documented_manual_commands_start_a_job_on_two_nodes() {
    let Some(nodes) = Nodes::new("documented_manual_commands_start_a_job_on_two_nodes", PE) else { return };
    let token = "5a".repeat(32);
    let by_hand = commands("**By hand.**").replace("5a5a...", &token);
    assert!(by_hand.contains(&token), "{by_hand}");
    passed(4, &nodes.run([&of_node(0, &by_hand), &of_node(1, &by_hand)]));

    // The ID is created once and is the same on both nodes.
    let with_id = commands("**With an id**");
    let command = with_id.split("$(").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    let id = nodes.script(0, command).output().unwrap();
    assert!(id.status.success(), "{}", all(&id));
    let with_id = with_id.replace(&format!("$({command})"), text(&id.stdout).trim());
    passed(4, &nodes.run([&of_node(0, &with_id), &of_node(1, &with_id)]));
}

#[test]
fn documented_open_mpi_command_starts_a_job_on_two_nodes() {
    let test = "documented_open_mpi_command_starts_a_job_on_two_nodes";
    let Some(nodes) = Nodes::new(test, PE) else { return };
    if Command::new("mpirun.openmpi").arg("--version").output().is_err() {
        return skip(test, "mpirun.openmpi is not installed (Debian: openmpi-bin)");
    }
    // `mpirun` may be that of MPICH.
    let command = commands("**Open MPI.**").replace("mpirun ", "mpirun.openmpi ");
    passed(4, &[nodes.script(0, &command).output().unwrap()]);
}

/// Starts Slurm on both nodes. Returns `None` if this machine cannot.
fn slurm(test: &str, nodes: &Nodes) -> Option<Slurm> {
    let node = |i: usize| SlurmNode {
        name: format!("node{i}"),
        address: format!("10.83.0.{}", i + 1),
        prefix: nodes.hosts.node(i, &nodes.names()),
    };
    let ports = std::cell::Cell::new(6816);
    let next_port = || {
        ports.set(ports.get() + 1);
        ports.get()
    };
    let started = Slurm::on(vec![node(0), node(1)], next_port);
    started.map_err(|why| skip(test, &format!("Slurm (Debian: slurmctld, slurmd, slurm-client): {why}"))).ok()
}

#[test]
fn documented_slurm_command_starts_a_job_on_two_nodes() {
    let test = "documented_slurm_command_starts_a_job_on_two_nodes";
    let Some(nodes) = Nodes::new(test, PE) else { return };
    let Some(slurm) = slurm(test, &nodes) else { return };
    let mut command = nodes.script(0, &commands("**Slurm.**"));
    passed(4, &[command.env("SLURM_CONF", slurm.settings()).output().unwrap()]);
}

#[test]
fn deployed_slurm_script_starts_a_job_on_two_nodes() {
    let test = "deployed_slurm_script_starts_a_job_on_two_nodes";
    let Some(nodes) = Nodes::new(test, PE) else { return };
    let Some(slurm) = slurm(test, &nodes) else { return };
    let script = repository::root().join("deploy/slurm/job.sbatch");
    let log = nodes.folder.path().join("log");
    let (script, shown) = (script.display(), log.display());
    let mut command =
        nodes.script(0, &format!("sbatch --wait --output={shown} {script} ring >&2 && cat {shown}"));
    passed(2 * GPUS, &[command.env("SLURM_CONF", slurm.settings()).output().unwrap()]);
}

#[cfg(feature = "rdma")]
#[test]
fn rdma_devices_connect_across_two_nodes() {
    let Some(nodes) = Nodes::new("rdma_devices_connect_across_two_nodes", PE) else { return };
    let by_hand = commands("**By hand.**").replace("5a5a...", &"5a".repeat(32));
    let on_device = |i: usize| {
        let device = format!("rushmem softnic --ip 10.83.0.{} -- rushmem run -n 2", i + 1);
        of_node(i, &by_hand).replace("rushmem run -n 4", &device)
    };
    let outputs = nodes.run([&on_device(0), &on_device(1)]);
    let told: String = outputs.iter().map(all).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{told}");
    assert_eq!(told.matches("has all that all sent").count(), 2, "{told}");
    assert!(told.contains("2 PEs: mlx5_0 (RoCE 400 Gb/s, queues in host memory"), "{told}");
}
