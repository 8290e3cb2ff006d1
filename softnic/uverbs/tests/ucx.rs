//! Unmodified UCX between two processes, by each of its transports: RC, DC and UD, by verbs and by DevX.

mod common;
mod program;

use common::{Running, all_there, good_pair, output_text, softnic};

/// Runs `ucx_perftest` with these transports.
fn perftest(options: &[&str], transports: &str, test: &str) {
    if !all_there(test, &["ucx_perftest"], "ucx-utils") {
        return;
    }
    let transports = format!("UCX_TLS={transports},self");
    let tool =
        ["env", &transports, "UCX_WARN_UNUSED_ENV_VARS=n", "ucx_perftest", "-t", test, "-n", "50", "-w", "5"];
    let [_, client] = good_pair(options, &tool);
    let report = output_text(&client);
    assert!(report.contains("Final:"), "{transports} {test}:\n{report}");
    assert!(!report.contains("ERROR") && !report.contains("WARN"), "{transports} {test}:\n{report}");
}

/// Uses the aliases `rc_v` and `rc_x`, which bring datagrams along to connect.
#[test]
fn reliable_connections() {
    for transports in ["rc_v", "rc_x"] {
        for test in ["tag_lat", "ucp_am_bw", "ucp_put_lat", "ucp_get", "ucp_fadd", "ucp_cswap"] {
            perftest(&[], transports, test);
        }
    }
}

#[test]
fn reliable_connections_over_infiniband() {
    perftest(&["--link", "ib"], "rc_x", "tag_bw");
}

#[test]
fn dynamic_connections() {
    for test in ["tag_lat", "tag_bw", "ucp_am_bw", "ucp_put_lat", "ucp_get", "ucp_fadd", "ucp_cswap"] {
        perftest(&[], "dc_x", test);
    }
    perftest(&["--link", "ib"], "dc_x", "tag_bw");
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
fn datagrams() {
    for transports in ["ud_v", "ud_x"] {
        for test in ["tag_lat", "ucp_put_lat"] {
            perftest(&[], transports, test);
        }
    }
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
