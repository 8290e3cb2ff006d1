//! Ping-pong of two processes through unmodified libibverbs and libmlx5.

mod common;
mod program;

use common::{Running, all_there, free_port, good_pair, is_listening, output_text, softnic};

const TOOL: &str = "ibv_rc_pingpong";

fn play(test: &str, options: &[&str], arguments: &[&str]) {
    if !all_there(test, &[TOOL], "ibverbs-utils") {
        return;
    }
    // Few rounds, because four polling threads may share two cores.
    let tool = [&[TOOL, "-n", "100"], arguments].concat();
    for output in good_pair(options, &tool) {
        assert!(output_text(&output).contains("100 iters in"), "{}", output_text(&output));
        assert!(!output_text(&output).contains("invalid data"), "{}", output_text(&output));
    }
}

#[test]
fn over_roce_with_checked_payload() {
    play("over_roce_with_checked_payload", &[], &["-g", "3", "-c"]);
}

#[test]
fn over_roce_by_link_local_addresses() {
    play("over_roce_by_link_local_addresses", &[], &["-g", "1", "-c", "-e"]);
}

/// The first GID table entries are RoCEv1, and many programs use them by default.
#[test]
fn over_the_first_gid() {
    play("over_the_first_gid", &[], &["-g", "0", "-c"]);
    play("over_the_first_gid", &[], &["-g", "2", "-c", "-e"]);
}

#[test]
fn over_roce_with_events() {
    play("over_roce_with_events", &[], &["-g", "3", "-c", "-e"]);
}

#[test]
fn over_infiniband() {
    play("over_infiniband", &["--link", "ib"], &["-c"]);
}

#[test]
fn over_infiniband_with_events() {
    play("over_infiniband_with_events", &["--link", "ib"], &["-c", "-e"]);
}

#[test]
fn with_large_messages_on_a_lossy_link() {
    let options = ["--fault", "drop=0.01,reorder=0.01,seed=3"];
    play("with_large_messages_on_a_lossy_link", &options, &["-g", "3", "-c", "-e", "-s", "100000"]);
}

/// Checks that the adapter's threads never call a function hooked by a program.
#[test]
fn threads_of_the_adapter_avoid_hooked_functions() {
    let test = "threads_of_the_adapter_avoid_hooked_functions";
    let Some(hooks) = program::hooks_library(test).filter(|_| all_there(test, &[TOOL], "ibverbs-utils"))
    else {
        return;
    };
    let port = free_port();
    let start = |server: &[&str]| {
        let tool = [TOOL, "-n", "100", "-g", "3", "-p", &port.to_string()].map(str::to_owned);
        let tool: Vec<&str> = tool.iter().map(String::as_str).chain(server.iter().copied()).collect();
        let mut command = softnic(&[], &tool);
        command.env("LD_PRELOAD", &hooks);
        Running::start(command)
    };
    let server = start(&[]).wait_until(|| is_listening(port));
    for output in [start(&["127.0.0.1"]).end(), server.end()] {
        assert!(output.status.success(), "{}", output_text(&output));
    }
}
