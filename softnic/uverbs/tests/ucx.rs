//! Unmodified UCX between two processes, on each of its transports: RC, DC and UD, through verbs and DevX.

mod common;
mod program;

use common::{Running, all_there, good_pair, output_text, softnic};

/// Launcher options that select the link layer: Ethernet by default, then InfiniBand.
const LINKS: [&[&str]; 2] = [&[], &["--link", "ib"]];

/// Operations of UCP: a line's name and the options of `ucx_perftest`. UCP maps them to those of its transports.
const UCP: &str = "\
tag -t tag_lat
tag_large -t tag_bw -s 100000
tag_sync -t tag_sync_lat -s 3000
am -t ucp_am_lat
am_large -t ucp_am_bw -s 100000
put -t ucp_put_lat
put_large -t ucp_put_bw -s 100000
get -t ucp_get -s 100000
add -t ucp_add
fadd -t ucp_fadd
fadd_of_4_bytes -t ucp_fadd -s 4
swap -t ucp_swap
cswap -t ucp_cswap
stream -t stream_lat -s 5000
";

/// Operations of UCT on every transport.
const UCT_MESSAGES: &str = "\
am_short -t am_lat
am_bcopy -t am_bw -D bcopy -s 4000
am_zcopy -t am_bw -D zcopy -s 2000
";

/// Operations of UCT on reliable transports. (rc_verbs has no swap, because verbs have none.)
const UCT_MEMORY: &str = "\
put_short -t put_lat
put_bcopy -t put_bw -D bcopy -s 4000
put_zcopy -t put_bw -D zcopy -s 100000
get_bcopy -t get -D bcopy -s 4000
get_zcopy -t get -D zcopy -s 100000
add -t add_mr
fadd -t fadd
cswap -t cswap
";

/// Runs the operations of a batch with `ucx_perftest`, one after another in a single pair of processes.
fn perftest(options: &[&str], transports: &str, arguments: &[&str], batch: &str) {
    if !all_there(transports, &["ucx_perftest"], "ucx-utils") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("batch");
    std::fs::write(&file, batch).unwrap();
    let file = file.to_str().unwrap();
    let setting = format!("UCX_TLS={transports}");
    let tool = ["env", &setting, "UCX_WARN_UNUSED_ENV_VARS=n", "ucx_perftest", "-b", file, "-v"];
    let tool = [&tool[..], &["-n", "20", "-w", "2"], arguments].concat();
    let reports = good_pair(options, &tool).map(|output| output_text(&output));
    for report in &reports {
        assert!(!report.contains("ERROR") && !report.contains("WARN"), "{transports}:\n{report}");
    }
    let [_, client] = reports;
    for line in batch.lines() {
        let (name, _) = line.split_once(' ').unwrap();
        let found = client.lines().any(|line| line.starts_with(&format!("{name},  20,")));
        assert!(found, "{transports} {options:?}: no {name} in\n{client}");
    }
}

/// Runs all operations of a UCX transport over both link layers, and those of UCP on it.
fn transport(name: &str, alias: &str, batch: &str) {
    for options in LINKS {
        perftest(options, "all", &["-x", name, "-d", "mlx5_0:1"], batch);
        perftest(options, &format!("{alias},self"), &[], UCP);
    }
}

/// Runs a reliable transport. UCP's aliases include datagrams for connecting.
fn reliable(name: &str, alias: &str) {
    transport(name, alias, &format!("{UCT_MESSAGES}{UCT_MEMORY}"));
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn rc_verbs() {
    reliable("rc_verbs", "rc_v");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn rc_mlx5() {
    reliable("rc_mlx5", "rc_x");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn dc_mlx5() {
    reliable("dc_mlx5", "dc_x");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn ud_verbs() {
    transport("ud_verbs", "ud_v", UCT_MESSAGES);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn ud_mlx5() {
    transport("ud_mlx5", "ud_x", UCT_MESSAGES);
}

/// Allows all transports of UCX but shared memory and TCP, which are faster within a machine.
#[test]
fn the_transports_that_ucx_prefers() {
    for options in LINKS {
        perftest(options, "^sm,tcp", &[], UCP);
    }
}

/// Runs `ucx.c`, which checks every byte, on three workers: two at one device, one at another.
fn checks_data(test: &str, options: &[&str], transport: &str) {
    let Some(program) = program::ucx_program(test) else { return };
    let options = [&["--devices", "2"], options].concat();
    let arguments = [program.to_str().unwrap(), transport, "mlx5_0", "mlx5_1", "mlx5_0"];
    let output = Running::start(softnic(&options, &arguments)).end();
    let text = output_text(&output);
    assert!(output.status.success() && text.contains("all data is right"), "{text}");
}

#[test]
fn data_over_dynamic_connections() {
    checks_data("data_dc", &[], "dc_x");
    checks_data("data_dc_ib", &["--link", "ib"], "dc_x");
    checks_data("data_dc_loss", &["--fault", "drop=0.01,reorder=0.01,duplicate=0.01,seed=5"], "dc_x");
}

#[test]
fn data_over_reliable_connections() {
    checks_data("data_rc", &[], "rc_x");
}

#[test]
fn transports_are_listed() {
    if !all_there("transports_are_listed", &["ucx_info"], "ucx-utils") {
        return;
    }
    let output = softnic(&[], &["ucx_info", "-d"]).output().unwrap();
    let text = output_text(&output);
    for transport in ["rc_verbs", "rc_mlx5", "dc_mlx5", "ud_verbs", "ud_mlx5"] {
        let found = text.split("Transport: ").find(|part| part.starts_with(&format!("{transport}\n")));
        let found = found.unwrap_or_else(|| panic!("no {transport} in\n{text}"));
        assert!(found.contains("mlx5_0:1") && !found.contains("failed to open interface"), "{found}");
    }
    assert!(!text.contains("ERROR"), "{text}");
}
