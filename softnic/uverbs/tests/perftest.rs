//! Two processes of unmodified ping-pong and perftest programs on each service, with all that they can do with a queue:
//! all message sizes, events, inline data, several queue pairs, both directions.
//!
//! The tests check that both sides complete and report every size, but not how fast.

mod common;

use common::{all_there, good_pair, output_text};

/// Sizes of `-a` as log2: 2 bytes to 8 MiB.
const ALL_SIZES: std::ops::RangeInclusive<u32> = 1..=23;

/// Runs a tool of perftest. The first word of `command` is the tool. Returns the client's report, a line for each size.
fn perftest(options: &[&str], command: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if !all_there(command, &words[..1], "perftest") {
        return None;
    }
    // Ignore CPU frequency scaling.
    let tool = [&words[..], &["-F"]].concat();
    let [_, client] = good_pair(options, &tool);
    let report = output_text(&client);
    // The rows of a report are the lines with a number as the first word.
    let number = |line: &&str| line.split_whitespace().next().is_some_and(|word| word.parse::<u64>().is_ok());
    let lines: Vec<String> = report.lines().filter(number).map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{command} reports nothing:\n{report}");
    Some(lines)
}

/// Runs a tool over all sizes and checks that it reports each. This takes seconds, because perftest measures the CPU's
/// frequency for each size. `-C` (cycles) halves it.
fn all_sizes(options: &[&str], command: &str, sizes: std::ops::RangeInclusive<u32>) {
    let Some(lines) = perftest(options, &format!("{command} -a")) else { return };
    let reported: Vec<u64> =
        lines.iter().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    assert_eq!(reported, sizes.map(|log| 1 << log).collect::<Vec<u64>>(), "{command}");
}

/// Runs a ping-pong tool that checks every received byte.
fn ping_pong(options: &[&str], command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    if !all_there(command, &words[..1], "ibverbs-utils") {
        return;
    }
    for output in good_pair(options, &words) {
        let report = output_text(&output);
        assert!(report.contains("iters in") && !report.contains("invalid data"), "{command}:\n{report}");
    }
}

/// Runs the XRC ping-pong tool, which reports only success.
fn extended_ping_pong(options: &[&str], command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    if !all_there(command, &words[..1], "ibverbs-utils") {
        return;
    }
    for output in good_pair(options, &words) {
        let report = output_text(&output);
        assert!(report.contains("SRQN") && report.contains("success"), "{command}:\n{report}");
    }
}

#[test]
fn shared_receive_queues() {
    ping_pong(&[], "ibv_srq_pingpong -g 3 -n 50 -q 4");
    ping_pong(&[], "ibv_srq_pingpong -g 0 -n 50 -e");
    ping_pong(&["--link", "ib"], "ibv_srq_pingpong -n 50 -e");
    perftest(&[], "ib_send_bw --use-srq -n 20 -q 2");
    perftest(&[], "ib_send_lat --use-srq -n 20 -e");
    perftest(&[], "ib_send_lat --use-srq -c UD -n 20");
}

#[test]
fn unreliable_ping_pong() {
    ping_pong(&[], "ibv_uc_pingpong -g 3 -c -n 50");
    ping_pong(&[], "ibv_uc_pingpong -g 3 -c -n 50 -e -s 20000");
    ping_pong(&["--link", "ib"], "ibv_uc_pingpong -c -n 50");
}

#[test]
fn datagram_ping_pong() {
    ping_pong(&[], "ibv_ud_pingpong -g 3 -c -n 50");
    ping_pong(&[], "ibv_ud_pingpong -g 1 -c -n 50 -e");
    ping_pong(&["--link", "ib"], "ibv_ud_pingpong -c -n 50 -e");
}

#[test]
fn writes() {
    perftest(&[], "ib_write_bw -n 20 -q 2 -b");
    perftest(&["--link", "ib"], "ib_write_bw -n 20");
}

#[test]
fn inline_data() {
    perftest(&[], "ib_write_lat -n 20 -I 64 -s 64");
    perftest(&[], "ib_write_bw -n 20 -I 200 -s 199 -l 4");
    perftest(&[], "ib_send_lat -n 20 -I 28 -s 28");
    perftest(&[], "ib_send_lat -c UD -n 20 -I 64 -s 64");
}

#[test]
fn reads() {
    perftest(&[], "ib_read_lat -n 20 -s 1000");
    perftest(&[], "ib_read_lat -n 5 -s 1000000");
    perftest(&[], "ib_read_bw -n 20 -q 2 -o 4");
    perftest(&[], "ib_read_lat -n 20 -e");
    perftest(&["--link", "ib"], "ib_read_lat -n 20");
}

#[test]
fn atomics() {
    for operation in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
        perftest(&[], &format!("ib_atomic_bw -n 20 -A {operation}"));
        perftest(&[], &format!("ib_atomic_lat -n 20 -A {operation}"));
        perftest(&["--link", "ib"], &format!("ib_atomic_lat -n 20 -A {operation}"));
    }
}

#[test]
fn sends() {
    perftest(&[], "ib_send_lat -n 20 -s 1000");
    perftest(&[], "ib_send_lat -n 5 -s 1000000");
    perftest(&[], "ib_send_bw -n 20 -q 2 -b");
    perftest(&[], "ib_send_bw -n 20 -e");
    perftest(&[], "ib_send_lat -n 20 -e");
    perftest(&["--link", "ib"], "ib_send_lat -n 20");
}

#[test]
fn writes_and_sends_of_unreliable_connections() {
    perftest(&[], "ib_write_lat -c UC -n 20");
    perftest(&[], "ib_send_bw -c UC -n 20 -s 4096");
    perftest(&[], "ib_send_lat -c UC -n 20 -s 10000");
    perftest(&["--link", "ib"], "ib_write_bw -c UC -n 20");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn dynamic_connections() {
    for tool in ["ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat"] {
        perftest(&[], &format!("{tool} -c DC -n 20"));
    }
    for operation in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
        perftest(&[], &format!("ib_atomic_bw -c DC -n 20 -A {operation}"));
        perftest(&[], &format!("ib_atomic_lat -c DC -n 20 -A {operation}"));
    }
    perftest(&[], "ib_send_bw -c DC -n 20 -q 3 -b");
    // With `-e`, perftest never destroys one of its CQs, and so fails to destroy its channel.
    perftest(&[], "ib_write_lat -c DC -n 20 -I 64 -s 64");
    perftest(&["--link", "ib"], "ib_write_bw -c DC -n 20");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn extended_connections() {
    for tool in ["ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_lat"] {
        perftest(&[], &format!("{tool} -c XRC -n 20"));
    }
    for operation in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
        perftest(&[], &format!("ib_atomic_bw -c XRC -n 20 -A {operation}"));
        perftest(&[], &format!("ib_atomic_lat -c XRC -n 20 -A {operation}"));
    }
    perftest(&[], "ib_send_bw -c XRC --use-srq -n 20 -q 3 -b");
    perftest(&[], "ib_send_lat -c XRC -n 20 -e");
    perftest(&[], "ib_write_lat -c XRC -n 20 -I 64 -s 64");
    perftest(&["--fault", "drop=0.02,reorder=0.02,seed=5"], "ib_send_bw -c XRC -n 20 -s 20000");
    perftest(&["--fault", "drop=0.02,reorder=0.02,seed=5"], "ib_read_bw -c XRC -n 20 -s 20000");
    perftest(&["--link", "ib"], "ib_write_bw -c XRC -n 20");
}

#[test]
fn ping_pong_of_extended_connections() {
    for command in ["ibv_xsrq_pingpong -g 3 -n 50", "ibv_xsrq_pingpong -g 0 -n 50 -e -s 20000"] {
        extended_ping_pong(&[], command);
    }
    extended_ping_pong(&["--link", "ib"], "ibv_xsrq_pingpong -n 50");
}

#[test]
fn datagrams() {
    // 2 bytes to the port's MTU.
    all_sizes(&[], "ib_send_bw -c UD -n 20", 1..=12);
    perftest(&[], "ib_send_lat -c UD -n 20 -s 4096");
    perftest(&["--link", "ib"], "ib_send_lat -c UD -n 20");
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn writes_of_all_sizes() {
    all_sizes(&[], "ib_write_bw -n 5", ALL_SIZES);
    all_sizes(&[], "ib_write_lat -n 5 -C", ALL_SIZES);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn reads_of_all_sizes() {
    all_sizes(&[], "ib_read_bw -n 5", ALL_SIZES);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn sends_of_all_sizes() {
    all_sizes(&[], "ib_send_bw -n 5", ALL_SIZES);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn writes_of_unreliable_connections_of_all_sizes() {
    all_sizes(&[], "ib_write_bw -c UC -n 5", ALL_SIZES);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn writes_of_dynamic_connections_of_all_sizes() {
    all_sizes(&[], "ib_write_bw -c DC -n 5", ALL_SIZES);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn sends_of_extended_connections_of_all_sizes() {
    all_sizes(&[], "ib_send_bw -c XRC -n 5", ALL_SIZES);
}
