//! A verbs program (`verbs.c`) that checks every byte and every completion: scatter-gather lists, immediates, inline
//! data, fences, solicited events, failures and asynchronous events, address handles from completions.

mod common;
mod program;

use common::{Running, output_text, softnic};

fn run(test: &str, options: &[&str], peer: &str) {
    let Some(program) = program::verbs_program(test) else { return };
    let output = Running::start(softnic(options, &[program.to_str().unwrap(), "mlx5_0", peer])).end();
    assert!(output.status.success() && output_text(&output).contains("all good"), "{}", output_text(&output));
}

#[test]
fn within_one_adapter() {
    run("within_one_adapter", &[], "mlx5_0");
}

#[test]
fn between_adapters_over_roce() {
    run("between_adapters_over_roce", &["--devices", "2"], "mlx5_1");
}

#[test]
fn between_adapters_over_infiniband() {
    run("between_adapters_over_infiniband", &["--devices", "2", "--link", "ib"], "mlx5_1");
}

#[test]
fn extended_connections_share_domains_and_targets() {
    let Some(program) = program::xrc_program("extended_connections_share_domains_and_targets") else {
        return;
    };
    let program = program.to_str().unwrap();
    let cases = [
        (&[][..], "mlx5_0"),
        (&["--devices", "2"], "mlx5_1"),
        (&["--devices", "2", "--link", "ib"], "mlx5_1"),
        (&["--devices", "2", "--fault", "drop=0.05,reorder=0.05,seed=9"], "mlx5_1"),
    ];
    for (options, peer) in cases {
        let output = Running::start(softnic(options, &[program, "mlx5_0", peer])).end();
        assert!(
            output.status.success() && output_text(&output).contains("all good"),
            "{}",
            output_text(&output)
        );
    }
}

#[test]
fn forked_children_use_devices_of_their_parent() {
    let Some(program) = program::fork_program("forked_children_use_devices_of_their_parent") else { return };
    let output = Running::start(softnic(&[], &[program.to_str().unwrap(), "mlx5_0"])).end();
    assert!(output.status.success() && output_text(&output).contains("all good"), "{}", output_text(&output));
}

#[test]
fn masked_atomics_reach_targets_made_by_verbs() {
    let Some(program) = program::masked_program("masked_atomics_reach_targets_made_by_verbs") else { return };
    let output = Running::start(softnic(&[], &[program.to_str().unwrap(), "mlx5_0"])).end();
    assert!(output.status.success() && output_text(&output).contains("all good"), "{}", output_text(&output));
}

#[test]
fn the_clock_goes_on_and_never_passes_completions() {
    let Some(program) = program::clock_program("the_clock_goes_on_and_never_passes_completions") else {
        return;
    };
    let output = Running::start(softnic(&[], &[program.to_str().unwrap(), "mlx5_0"])).end();
    assert!(output.status.success() && output_text(&output).contains("all good"), "{}", output_text(&output));
}
