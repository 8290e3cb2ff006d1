//! Properties of the devices that are visible before programs use them.

mod common;
mod program;

use common::{Running, all_there, output_text, softnic};

const TOOLS: [&str; 2] = ["ibv_devices", "ibv_devinfo"];

fn run(options: &[&str], program: &[&str]) -> String {
    let output = softnic(options, program).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    output_text(&output)
}

#[test]
fn devices_are_listed() {
    if !all_there("devices_are_listed", &TOOLS, "ibverbs-utils") {
        return;
    }
    let list = run(&[], &["ibv_devices"]);
    assert!(list.contains("mlx5_0") && list.contains("524d00fffe000000"), "{list}");
    assert!(!list.contains("mlx5_1"), "{list}");
    let list = run(&["--devices", "3"], &["ibv_devices"]);
    assert!(list.contains("mlx5_2") && list.contains("524d00fffe000002"), "{list}");
}

#[test]
fn a_roce_port_is_described() {
    if !all_there("a_roce_port_is_described", &TOOLS, "ibverbs-utils") {
        return;
    }
    let text = run(&["--devices", "2", "--ip", "127.77.0.1,127.77.0.2"], &["ibv_devinfo", "-v"]);
    for wanted in [
        "hca_id:\tmlx5_0",
        "hca_id:\tmlx5_1",
        "vendor_part_id:\t\t\t4129",
        "PORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "ATOMIC_HCA (1)",
        "GID[  0]:\t\tfe80:0000:0000:0000:0000:5efe:7f4d:0001, RoCE v1",
        "GID[  3]:\t\t::ffff:127.77.0.1, RoCE v2",
        "GID[  3]:\t\t::ffff:127.77.0.2, RoCE v2",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn an_infiniband_port_is_described() {
    if !all_there("an_infiniband_port_is_described", &TOOLS, "ibverbs-utils") {
        return;
    }
    let text = run(&["--link", "ib", "--ip", "127.64.1.2"], &["ibv_devinfo", "-v"]);
    for wanted in ["port_lid:\t\t258", "link_layer:\t\tInfiniBand", "fe80:0000:0000:0000:524d:00ff:fe00:0000"]
    {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

/// Reads sysfs by programs that open, list, resolve and check files in different ways.
#[test]
fn sysfs_is_laid_out_as_by_the_kernel() {
    let script = "set -e
        ls /sys/class/infiniband /sys/class/infiniband_verbs
        ls -l /dev/infiniband /sys/class/infiniband/
        realpath /sys/class/infiniband/mlx5_1/device
        readlink /sys/class/infiniband_verbs/uverbs0
        stat -L -c %F /sys/class/infiniband/mlx5_0/device
        [ -r /sys/class/infiniband/mlx5_0/ports/1/gids/0 ]
        cd /sys/class/infiniband/mlx5_1/ports/1
        pwd -P
        cat gids/3 gid_attrs/types/2 gid_attrs/types/3 gid_attrs/ndevs/3 state
        cat /sys/class/infiniband/mlx5_0/ports/1/gids/3
        cat /sys/class/infiniband/mlx5_0/fw_ver /sys/bus/pci/devices/7000:01:00.0/vendor";
    let text =
        run(&["--devices", "2", "--ip", "127.77.0.1,127.77.0.2"], &["env", "LC_ALL=C", "sh", "-c", script]);
    for wanted in [
        "/sys/class/infiniband:\nmlx5_0\nmlx5_1\n",
        "/sys/class/infiniband_verbs:\nabi_version\nuverbs0\nuverbs1\n",
        "231, 192",
        "mlx5_0 -> ../../devices/pci7000:00/7000:00:01.0/7000:01:00.0/infiniband/mlx5_0\n",
        "/sys/devices/pci7000:00/7000:00:02.0/7000:02:00.0\n",
        "\ndirectory\n",
        "/7000:02:00.0/infiniband/mlx5_1/ports/1\n\
         0000:0000:0000:0000:0000:ffff:7f4d:0002\nIB/RoCE v1\nRoCE v2\nlo\n4: ACTIVE\n\
         0000:0000:0000:0000:0000:ffff:7f4d:0001\n28.43.1014\n0x15b3\n",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(!text.contains("No such"), "{text}");
    let text = run(&["--fault", "port-down"], &["cat", "/sys/class/infiniband/mlx5_0/ports/1/state"]);
    assert_eq!(text, "1: DOWN\n");
}

/// Runs a program that checks its results itself, and asserts that it succeeds.
fn runs_well(program: Option<std::path::PathBuf>, arguments: &[&str]) {
    let Some(program) = program else { return };
    let text = run(&[], &[&[program.to_str().unwrap()], arguments].concat());
    assert_eq!(text, "all good\n");
}

#[test]
fn listings_have_all_files_of_the_devices() {
    runs_well(program::listing_program("listings_have_all_files_of_the_devices"), &[]);
}

#[test]
fn hwloc_finds_the_pci_device() {
    runs_well(program::hwloc_program("hwloc_finds_the_pci_device"), &[]);
}

#[test]
fn gids_name_the_network_device_of_sysfs() {
    runs_well(program::gid_table_program("gids_name_the_network_device_of_sysfs"), &["mlx5_0"]);
}

#[test]
fn the_tools_of_infiniband_describe_the_port() {
    if !all_there("the_tools_of_infiniband_describe_the_port", &["ibstat", "ibstatus"], "infiniband-diags") {
        return;
    }
    let text = run(&["--link", "ib", "--ip", "127.64.1.2"], &["ibstat"]);
    for wanted in
        ["CA 'mlx5_0'", "Firmware version: 28.43.1014", "State: Active", "Base lid: 258", "Rate: 400"]
    {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    let text = run(&["--ip", "127.77.0.1"], &["ibstatus"]);
    for wanted in ["fe80:0000:0000:0000:0000:5efe:7f4d:0001", "4: ACTIVE", "400 Gb/sec", "Ethernet"] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn the_subnet_has_a_switch_with_all_devices() {
    let tools = ["sminfo", "ibhosts", "iblinkinfo", "perfquery"];
    if !all_there("the_subnet_has_a_switch_with_all_devices", &tools, "infiniband-diags") {
        return;
    }
    let options = ["--link", "ib", "--devices", "2", "--ip", "127.64.1.2,127.64.1.3"];
    for (tool, wanted) in [
        ("sminfo", &["sm lid 1 sm guid 0x524d00fffe010000", "SMINFO_MASTER"][..]),
        ("ibhosts", &["0x524d00fffe000000 ports 1 \"rushmem mlx5_0\"", "\"rushmem mlx5_1\""]),
        ("iblinkinfo", &["( 4X        106.25 Gbps Active/  LinkUp)", "258    1[  ] \"rushmem mlx5_0\""]),
        ("perfquery", &["Lid 258 port 1", "PortXmitPkts:....................0"]),
    ] {
        let text = run(&options, &[tool]);
        for wanted in wanted {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }
    // Ethernet ports have no QP0.
    let output = softnic(&[], &["sminfo"]).output().unwrap();
    let text = output_text(&output);
    assert!(!output.status.success() && text.contains("client_register for mgmt 1 failed"), "{text}");
}

#[test]
fn subnet_administration_answers_queries() {
    if !all_there("subnet_administration_answers_queries", &["saquery"], "infiniband-diags") {
        return;
    }
    let options = ["--link", "ib", "--devices", "3", "--ip", "127.64.1.2,127.64.1.3,127.64.1.4"];
    let query = |words: &[&str]| run(&options, &[&["saquery"], words].concat());
    // Longer than a MAD.
    let nodes = query(&[]);
    assert_eq!(nodes.matches("NodeRecord dump").count(), 4, "{nodes}");
    for wanted in ["rushmem switch", "rushmem mlx5_2", "lid.....................260"] {
        assert!(nodes.contains(wanted), "{wanted} is not in\n{nodes}");
    }
    let links = query(&["LR"]);
    assert_eq!(links.matches("LinkRecord dump").count(), 6, "{links}");
    let path = query(&["PR", "--slid", "258", "--dlid", "260"]);
    let dgid = "dgid....................fe80::524d:ff:fe00:2";
    assert!(path.contains(dgid) && path.matches("PathRecord dump").count() == 1, "{path}");
    let port = query(&["PIR", "1/2"]);
    assert!(port.contains("LinkState:.......................Active"), "{port}");
    let manager = query(&["-s"]);
    assert!(manager.contains("EndPortLid..............1\n") && !manager.contains("258"), "{manager}");
    // There are no group members.
    assert_eq!(query(&["-m"]), "");
    let output = softnic(&options, &["saquery", "SL2VL"]).output().unwrap();
    let text = output_text(&output);
    assert!(!output.status.success() && text.contains("combination is not supported"), "{text}");
    // The subnet of an Ethernet port has no subnet manager.
    let output = softnic(&[], &["saquery"]).output().unwrap();
    let text = output_text(&output);
    assert!(!output.status.success() && text.contains("No SM/SA found"), "{text}");
}

#[test]
fn the_tool_rdma_shows_devices_and_ports() {
    if !all_there("the_tool_rdma_shows_devices_and_ports", &["rdma"], "iproute2") {
        return;
    }
    let text = run(&["--devices", "2"], &["rdma", "dev"]);
    let first = "0: mlx5_0: node_type ca fw 28.43.1014 node_guid 524d:00ff:fe00:0000";
    assert!(text.starts_with(first) && text.contains("\n1: mlx5_1: "), "{text}");
    let text = run(&["--ip", "127.77.0.1"], &["rdma", "link"]);
    assert!(text.contains("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev lo"), "{text}");
    let text = run(&["--fault", "port-down"], &["rdma", "link"]);
    assert!(text.contains("state DOWN physical_state DISABLED"), "{text}");
    let text = run(&["--link", "ib", "--ip", "127.64.1.2"], &["rdma", "link", "show", "mlx5_0/1"]);
    assert!(text.contains("subnet_prefix fe80:0000:0000:0000 lid 258 sm_lid 1 lmc 0"), "{text}");
    let text = run(&[], &["rdma", "statistic"]);
    assert!(text.contains("link mlx5_0/1 out_of_sequence 0 duplicate_request 0"), "{text}");
    let output = softnic(&[], &["rdma", "dev", "set", "mlx5_0", "name", "other"]).output().unwrap();
    let text = output_text(&output);
    assert!(!output.status.success() && text.contains("Operation not supported"), "{text}");
}

#[test]
fn the_tool_rdma_lists_the_objects_of_other_processes() {
    let test = "the_tool_rdma_lists_the_objects_of_other_processes";
    if !all_there(test, &["rdma", "ibv_rc_pingpong"], "iproute2 and ibverbs-utils") {
        return;
    }
    let port = common::free_port();
    let program = ["ibv_rc_pingpong", "-d", "mlx5_15", "-g", "3", "-p", &port.to_string()];
    let running = Running::start(softnic(&["--devices", "16"], &program));
    let running = running.wait_until(|| common::is_listening(port));
    let owner = format!("pid {} comm ibv_rc_pingpong", running.id());
    let rdma = |words: &[&str]| run(&["--devices", "16"], &[&["rdma", "resource", "show"], words].concat());
    for (kind, wanted) in [
        ("qp", "link mlx5_15/1 lqpn "),
        ("qp", "type RC state INIT "),
        ("cq", "dev mlx5_15 cqn "),
        ("mr", "mrlen 4096 "),
        ("pd", "users 2 "),
        ("ctx", "ctxn "),
    ] {
        let text = rdma(&[kind]);
        let line = text.lines().find(|line| line.contains(&owner));
        assert!(line.is_some_and(|line| line.contains(wanted)), "{kind}: {wanted} is not in\n{text}");
    }
    let summary = rdma(&["mlx5_15"]);
    assert!(summary.contains("mlx5_15: pd 1 cq 1 qp 1 mr 1 ctx 1 srq 0"), "{summary}");
    drop(running);
    assert!(!rdma(&["qp"]).contains(&owner));
}

#[test]
fn wrong_options_are_explained() {
    for (options, why) in [
        (&["--devices", "0"][..], "1..=16"),
        (&["--link", "token-ring"], "ethernet, ib"),
        (&["--fault", "dorp=1"], "uar-mmap"),
        (&["--devices", "2", "--ip", "127.0.0.9"], "one for each"),
    ] {
        let output = softnic(options, &["true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(why), "{options:?}: {}", output_text(&output));
    }
    let output = softnic(&[], &["/no/such/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("/no/such/program"), "{}", output_text(&output));
}

#[test]
fn a_missing_library_is_explained() {
    let mut command = softnic(&[], &["true"]);
    let output = command.env("RUSHMEM_UVERBS_LIBRARY", "/no/such/library.so").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output_text(&output).contains("/no/such/library.so"), "{}", output_text(&output));
}

#[test]
fn the_library_explains_itself_as_a_program() {
    let output = std::process::Command::new(common::built().join("rushmem-preload")).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert!(output_text(&output).contains("rushmem softnic -- PROGRAM"), "{}", output_text(&output));
}

#[test]
fn ordinary_programs_are_unaffected() {
    let output =
        softnic(&[], &["sh", "-c", "cat /proc/version && ls / && echo $((6 * 7))"]).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("Linux version") && output_text(&output).contains("\n42\n"),
        "{}",
        output_text(&output)
    );
}
