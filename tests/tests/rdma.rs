//! Tests of the RDMA path: jobs with `mlx5_0` as their NIC, driven through libibverbs and libmlx5. In these tests the
//! libraries find the software ConnectX (`rushmem softnic`). Needs the feature `rdma`.
//!
//! With `SUITE_KERNEL=old`, the device behaves as on an old kernel, which does not return the status and the syndrome
//! of a refused command. With `SUITE_DEVICE=strict`, it offers and explains as little as a ConnectX may.
#![cfg(feature = "rdma")]
#![allow(unsafe_code, reason = "looks for a function of libmlx5")]

use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rushmem::cuda::{Cuda, Device};
use rushmem_doctor::{Record, replay};
use rushmem_tests::launch::{all, clean, launcher, text};
use rushmem_tests::skip;

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

/// A device that `rushmem softnic` presents with the given options. Only one job runs at a time, because each opened
/// device has a polling thread.
struct SoftnicDevice {
    command: Command,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl SoftnicDevice {
    /// Prepares a software device with `options`. Returns `None` if the launcher is not built.
    fn new(test: &str, options: &[&str]) -> Option<SoftnicDevice> {
        let Some(launcher) = launcher(PE) else {
            skip(test, "the launcher is not built: cargo build -p rushmem-cli");
            return None;
        };
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = clean(&launcher);
        command.env("RUSHMEM_LOG", "info").arg("softnic");
        if kernel_is_old() {
            command.args(["--fault", "old-kernel"]);
        }
        if device_is_strict() {
            command.args(["--fault", STRICT]);
        }
        command.args(options).arg("--").arg(launcher);
        Some(SoftnicDevice { command, _turn })
    }

    fn with(mut self, key: &str, value: &str) -> SoftnicDevice {
        self.command.env(key, value);
        self
    }

    /// Runs `ring` on `pes` PEs. `env` sets the environment of the PEs rather than of the launcher, which may be built
    /// without the feature. The PEs may lock 8 MiB of memory, whatever the limit of this machine.
    fn ring(mut self, pes: &str, env: &[&str]) -> Output {
        let limited = "ulimit -S -l 8192; exec env \"$@\"";
        self.command.args(["run", "-n", pes, "sh", "-c", limited, "sh"]).args(env).args([PE, "ring"]);
        self.command.output().unwrap()
    }
}

/// The faults of a strict device.
const STRICT: &str = "virtual-function,syndromes,no-record,real-time,few-reads,foreign-gids";

fn kernel_is_old() -> bool {
    is_set("SUITE_KERNEL", "old", "new")
}

fn device_is_strict() -> bool {
    is_set("SUITE_DEVICE", "strict", "usual")
}

/// Returns whether a variable is `value`. If it is not set, it is `usual`.
fn is_set(variable: &str, value: &str, usual: &str) -> bool {
    let found = std::env::var(variable).unwrap_or_else(|_| usual.into());
    assert!(found == value || found == usual, "{variable}={found}: use {value} or {usual}");
    found == value
}

/// Asserts that each of `pes` PEs received all data through the software device.
fn passed(output: &Output, pes: usize) {
    passed_quietly(output, pes);
    assert!(text(&output.stderr).contains("traffic goes through mlx5_"), "{}", all(output));
}

/// Asserts that each of `pes` PEs received all data. Unlike [`passed`], does not check for the device.
fn passed_quietly(output: &Output, pes: usize) {
    assert!(output.status.success(), "{}", all(output));
    let out = text(&output.stdout);
    let lines = |what: &str| out.lines().filter(|line| line.contains(what)).count();
    assert_eq!(lines("has all that PE"), pes, "{}", all(output));
    assert_eq!(lines("has all that all sent"), pes, "{}", all(output));
}

/// Asserts that the job failed, and that one line of a PE's error contains all of `words`.
fn failed(output: &Output, words: &[&str]) {
    assert!(!output.status.success(), "{}", all(output));
    let told = text(&output.stderr);
    let said =
        told.lines().any(|line| line.contains("error: ") && words.iter().all(|word| line.contains(word)));
    assert!(said, "no line says {words:?}:\n{}", all(output));
}

#[test]
fn ring_runs_through_libmlx5() {
    for (options, pes, env) in [
        (&[][..], 3, &[][..]),
        (&["--link", "ib"], 2, &[]),
        (&["--link", "ib", "--fault", "few-reads,real-time"], 2, &["RUSHMEM_PEER_PATH=nic"]),
        (&[], 2, &["RUSHMEM_SQ_DEPTH=2", "RUSHMEM_CQ=collapsed", "RUSHMEM_PEER_PATH=nic"]),
        (&["--fault", "drop=0.05,reorder=0.05,seed=3"], 2, &["RUSHMEM_NIC=mlx5_0:1"]),
        (&["--fault", "posted=1,late_us=60000000"], 2, &["RUSHMEM_PEER_PATH=nic"]),
        (&[], 2, &["RUSHMEM_QUEUES=host", "RUSHMEM_TRAFFIC_CLASS=104", "RUSHMEM_SERVICE_LEVEL=3"]),
    ] {
        let Some(device) = SoftnicDevice::new("ring_runs_through_libmlx5", options) else { return };
        passed(&device.ring(&pes.to_string(), env), pes);
    }
}

#[test]
fn port_counters_count_packet_loss() {
    let test = "port_counters_count_packet_loss";
    let lossy = &["--fault", "drop=0.05,seed=3"];
    let Some(device) = SoftnicDevice::new(test, lossy) else { return };
    let output = device.with("RUSHMEM_UVERBS_LOG", "info").ring("2", &["RUSHMEM_PEER_PATH=nic"]);
    passed(&output, 2);
    let told = text(&output.stderr);
    let counts: Vec<&str> = told.lines().filter(|line| line.contains("counters of port 1")).collect();
    assert!(counts.iter().any(|line| line.contains("out_of_sequence")), "{counts:?}");
    assert!(!told.contains("will not count"), "{told}");

    let Some(device) = SoftnicDevice::new(test, &["--fault", "verbs-qp"]) else { return };
    let output = device.ring("2", &["RUSHMEM_PEER_PATH=nic"]);
    passed(&output, 2);
    let told = text(&output.stderr);
    let warned = |line: &&str| line.contains("will not count this job") && line.contains("ibv_create_qp");
    assert_eq!(told.lines().filter(warned).count(), 2, "{told}");
}

#[test]
fn one_line_describes_the_nics_of_a_job() {
    let test = "one_line_describes_the_nics_of_a_job";
    for (link, env, words) in [
        ("ethernet", &[][..], "2 PEs: mlx5_0 (RoCE 400 Gb/s, queues in host memory, doorbells by kernels, "),
        (
            "ib",
            &["RUSHMEM_DOORBELL=cpu"],
            "mlx5_0 (InfiniBand 400 Gb/s, queues in host memory, doorbells by a CPU thread, ",
        ),
    ] {
        let Some(device) = SoftnicDevice::new(test, &["--link", link]) else { return };
        let output = device.with("RUSHMEM_LOG", "warn").ring("2", env);
        assert!(output.status.success(), "{}", all(&output));
        let told = text(&output.stderr);
        assert_eq!(told.lines().filter(|line| line.contains("queues in")).count(), 1, "{told}");
        assert!(told.contains(words) && !told.contains("slower than it could be"), "{told}");
    }
}

#[test]
fn data_keys_are_relaxed_where_quiet_reads_back() {
    let test = "data_keys_are_relaxed_where_quiet_reads_back";
    for (env, relaxed) in [
        (&["RUSHMEM_PEER_PATH=nic"][..], false),
        (&["RUSHMEM_PEER_PATH=nic", "RUSHMEM_RELAXED_ORDERING=on"], true),
        (&["RUSHMEM_PEER_PATH=nic", "RUSHMEM_NICS_PER_PE=2"], true),
        (&["RUSHMEM_PEER_PATH=nic", "RUSHMEM_NICS_PER_PE=2", "RUSHMEM_RELAXED_ORDERING=off"], false),
    ] {
        let Some(device) = SoftnicDevice::new(test, &["--devices", "2"]) else { return };
        let output = device.with("RUSHMEM_LOG", "warn").ring("2", env);
        assert!(output.status.success(), "{}", all(&output));
        let told = text(&output.stderr);
        assert_eq!(
            told.contains("heap in host memory, relaxed ordering of data)"),
            relaxed,
            "{env:?}: {told}"
        );
    }
}

#[test]
fn doctor_shows_relaxed_keys() {
    let Some(device) = SoftnicDevice::new("doctor_shows_relaxed_keys", &[]) else { return };
    let mut device = device.with("RUSHMEM_RELAXED_ORDERING", "on");
    let output = device.command.args(["run", "--threads", "-n", "2", PE, "doctor"]).output().unwrap();
    let line = text(&output.stdout).lines().find(|line| line.contains("Good P5 ")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.ends_with(", relaxed ordering of data")), "{}", all(&output));
}

/// Runs doctor for two PEs on two devices, and returns its output and its record.
fn record(device: SoftnicDevice) -> (String, Record) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record");
    let mut device = device;
    let output =
        device.command.args(["run", "--threads", "-n", "2", PE, "doctor"]).arg(&file).output().unwrap();
    let record = std::fs::read(&file).unwrap_or_else(|error| panic!("{error}: {}", all(&output)));
    (text(&output.stdout).to_owned(), serde_json::from_slice(&record).unwrap())
}

#[test]
fn doctor_probes_each_pe_with_its_nic() {
    let options = ["--devices", "3"];
    let Some(device) = SoftnicDevice::new("doctor_probes_each_pe_with_its_nic", &options) else { return };
    let (told, _) = record(device.with("RUSHMEM_NICS_PER_PE", "2"));
    let pairs: Vec<_> = told
        .lines()
        .filter_map(|line| line.split_once("Good P5 ")?.1.split_once(':'))
        .map(|(of, _)| of)
        .collect();
    let wanted = [(0, 0), (0, 2), (1, 0), (1, 1)].map(|(pe, nic)| format!("PE {pe} and mlx5_{nic} port 1"));
    assert_eq!(pairs, wanted, "{told}");
}

#[test]
fn a_record_has_the_refused_command_and_repeats_its_findings() {
    let test = "a_record_has_the_refused_command_and_repeats_its_findings";
    let Some(device) = SoftnicDevice::new(test, &["--fault", "path"]) else { return };
    let (told, record) = record(device);
    let text = serde_json::to_value(&record).unwrap();
    let commands = text["probes"]["pairs"]["Ok"][0]["commands"].as_array().unwrap();
    let status = if kernel_is_old() { "unknown" } else { "BAD_PARAM" };
    let refused = commands.iter().filter(|it| it["command"] == "INIT2RTR_QP" && it["status"] == status);
    assert!(refused.clone().count() > 0, "{commands:#?}");
    assert!(refused.into_iter().all(|it| it["error"].is_string() == kernel_is_old()), "{commands:#?}");
    let lines: Vec<_> = replay(record)
        .unwrap()
        .iter()
        .map(|it| format!("{:?} {} {}: {}", it.verdict, it.check.id, it.of, it.found))
        .collect();
    let told: Vec<_> = told.lines().map(|line| line.trim_start_matches("[0] ")).collect();
    assert_eq!(lines.join("\n"), told.join("\n"));
}

/// Whether the libmlx5 of this machine has data direct, which came with rdma-core 54.
fn has_data_direct() -> bool {
    // SAFETY: the initializers of the library have no requirements, and the function is not called.
    unsafe {
        libloading::Library::new("libmlx5.so.1").is_ok_and(|library| {
            library.get::<unsafe extern "C" fn()>("mlx5dv_get_data_direct_sysfs_path").is_ok()
        })
    }
}

#[test]
fn doctor_names_the_data_direct_device() {
    let test = "doctor_names_the_data_direct_device";
    let unknown = (", no data direct: libmlx5 lacks it", true);
    for (options, setting, known, unknown) in [
        (&["--fault", "data-direct"][..], "on", (", data direct 7000:01:00.1", true), unknown),
        (
            &["--fault", "data-direct"],
            "off",
            (", data direct 7000:01:00.1 unused", true),
            ("data direct", false),
        ),
        (&[], "on", ("data direct", false), unknown),
    ] {
        let Some(device) = SoftnicDevice::new(test, options) else { return };
        let mut device = device.with("RUSHMEM_DATA_DIRECT", setting);
        let output = device.command.args(["run", "--threads", "-n", "2", PE, "doctor"]).output().unwrap();
        let told = text(&output.stdout);
        let line = told.lines().find(|line| line.contains(" P1 ")).unwrap_or_default();
        let (word, is_said) = if has_data_direct() { known } else { unknown };
        assert_eq!(line.contains(word), is_said, "{options:?}, {setting}, {word}: {}", all(&output));
    }
}

#[test]
fn refused_queues_fall_back_to_host_memory_with_one_warning() {
    let test = "refused_queues_fall_back_to_host_memory_with_one_warning";
    for (fault, word) in [
        ("", ""),
        ("umem-once", "mlx5dv_devx_umem_reg_ex"),
        ("cq-once", " CREATE_CQ"),
        ("qp-once", " CREATE_QP"),
    ] {
        let options = if fault.is_empty() { vec![] } else { vec!["--fault", fault] };
        let Some(device) = SoftnicDevice::new(test, &options) else { return };
        let device = device.with("RUSHMEM_LOG", "warn");
        let wanted = ["RUSHMEM_NIC=mlx5_0", "RUSHMEM_QUEUES=prefer_device", "RUSHMEM_PEER_PATH=nic"];
        let output = device.ring("2", &wanted);
        passed_quietly(&output, 2);
        let told = text(&output.stderr);
        let location = if fault.is_empty() { "GPU" } else { "host" };
        let summary = format!("2 PEs: mlx5_0 (RoCE 400 Gb/s, queues in {location} memory, ");
        assert!(told.contains(&summary), "{told}");
        let warnings: Vec<&str> = told.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), usize::from(!fault.is_empty()), "{told}");
        let step = "slower than it could be: on 2 PEs, first PE 0, queues are in host memory, because mlx5_0";
        assert!(warnings.iter().all(|line| line.contains(step) && line.contains(word)), "{told}");
    }
}

#[test]
fn refused_qps_without_records_get_records() {
    let test = "refused_qps_without_records_get_records";
    for (fault, setting, steps) in [("no-record", "auto", 2), ("no-record", "on", 0), ("qp-once", "auto", 0)]
    {
        let Some(device) = SoftnicDevice::new(test, &["--fault", fault]) else { return };
        let record = format!("RUSHMEM_DOORBELL_RECORD={setting}");
        let output = device.ring("2", &["RUSHMEM_NIC=mlx5_0", "RUSHMEM_PEER_PATH=nic", &record]);
        let told = text(&output.stderr);
        // A strict device has the first fault in any case.
        let offers = fault == "no-record" || device_is_strict();
        assert_eq!(output.status.success(), offers, "{}", all(&output));
        let steps = if device_is_strict() && setting == "auto" { 2 } else { steps };
        let step = "doorbells without records failed: mlx5_0";
        assert_eq!(told.matches(step).count(), steps, "{fault}, {setting}: {told}");
    }
}

#[test]
fn port_without_loopback_is_distinguished_from_a_dead_port() {
    let test = "port_without_loopback_is_distinguished_from_a_dead_port";
    let Some(device) = SoftnicDevice::new(test, &["--fault", "no-self-loop"]) else { return };
    let output = device.ring("2", &["RUSHMEM_PEER_PATH=nic"]);
    // Each PE also posts to itself, which this port does not loop back. The probe falls back to two QPs of the shared
    // device.
    let told = text(&output.stderr);
    assert!(
        told.contains("probing with two QPs") && told.contains("loopback from doorbell"),
        "{}",
        all(&output)
    );
    assert!(!told.contains("refuses loopback"), "{told}");

    let Some(device) = SoftnicDevice::new(test, &["--fault", "no-loopback"]) else { return };
    let output = device.ring("2", &["RUSHMEM_PEER_PATH=auto"]);
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("it refuses loopback (mlx5_0"), "{told}");
    assert!(told.contains("it accepts a path to another port"), "{told}");
    assert!(told.contains("`quiet` reads back from the NICs of peers, because mlx5_0"), "{told}");
    assert_eq!(told.matches("slower than it could be").count(), 1, "{told}");
}

#[test]
fn a_nic_without_loopback_is_tried_with_each_peer() {
    let test = "a_nic_without_loopback_is_tried_with_each_peer";
    let env = ["RUSHMEM_NIC=mlx5_0", "RUSHMEM_PEER_PATH=p2p", "RUSHMEM_P2P_GROUP=1"];
    let Some(device) = SoftnicDevice::new(test, &["--fault", "no-loopback"]) else { return };
    let output = device.ring("2", &env);
    passed(&output, 2);
    let told = text(&output.stderr);
    assert_eq!(told.matches("the first exchange with PE 1 took").count(), 1, "{told}");

    let Some(device) = SoftnicDevice::new(test, &["--fault", "no-loopback,peer-gone"]) else { return };
    let words = [
        "PE 0 cannot be connected to PE 1",
        "the first READ failed",
        "TRANSPORT_RETRY_EXC_ERR",
        "refuses loopback",
    ];
    failed(&device.ring("2", &env), &words);
}

#[test]
fn a_refused_field_of_the_path_is_not_taken_for_loopback() {
    let test = "a_refused_field_of_the_path_is_not_taken_for_loopback";
    for link in ["ethernet", "ib"] {
        let Some(device) = SoftnicDevice::new(test, &["--link", link, "--fault", "path"]) else { return };
        let output = device.ring("2", &["RUSHMEM_NIC=mlx5_0", "RUSHMEM_PEER_PATH=auto"]);
        let reading = if kernel_is_old() { "EINVAL" } else { "status BAD_PARAM" };
        failed(
            &output,
            &["mlx5_0", "INIT2RTR_QP", reading, "path to another port as well", "RUSHMEM_GID_INDEX"],
        );
    }
}

#[test]
fn qps_use_the_fabric_settings() {
    let Some(mut device) = SoftnicDevice::new("qps_use_the_fabric_settings", &[]) else { return };
    device.command.args(["run", "-n", "2", "env", "RUSHMEM_TRAFFIC_CLASS=104", "RUSHMEM_SERVICE_LEVEL=3"]);
    let output = device
        .command
        .args(["RUSHMEM_SQ_DEPTH=64", "RUSHMEM_NIC=mlx5_0", "RUSHMEM_PEER_PATH=nic", PE, "qps"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stdout);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("mlx5_0")).collect();
    let of_the_path = |line: &str| line.ends_with("RTS depth 64 class 104 level 3");
    let of_the_port = |line: &str| line.ends_with("GID 3, key 0, 7 retries after 536.870912ms each");
    assert!(lines.iter().any(|line| of_the_path(line)), "{}", all(&output));
    let of_no_bond = |line: &str| line.ends_with("sends from port 0 of a bond");
    let is_known = |line: &&str| of_the_path(line) || of_the_port(line) || of_no_bond(line);
    assert!(lines.iter().all(is_known), "{}", all(&output));
}

#[test]
fn qps_alternate_between_ports_of_a_bond() {
    let test = "qps_alternate_between_ports_of_a_bond";
    let Some(mut device) = SoftnicDevice::new(test, &["--fault", "bond"]) else { return };
    device.command.args(["run", "-n", "2", "env", "RUSHMEM_QPS_PER_PEER=4", "RUSHMEM_CONNECT=eager"]);
    let output =
        device.command.args(["RUSHMEM_NIC=mlx5_0", "RUSHMEM_PEER_PATH=nic", PE, "qps"]).output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stdout);
    for pe in 0..2 {
        let uses = |port: u32| {
            let of_pe = |line: &&str| line.starts_with(&format!("[{pe}]"));
            let uses_port = format!("sends from port {port} of a bond");
            told.lines().filter(of_pe).filter(|line| line.contains(&uses_port)).count()
        };
        // Four QPs to each of the two PEs.
        let expected = if device_is_strict() { [8, 0, 0] } else { [0, 4, 4] };
        assert_eq!([0, 1, 2].map(uses), expected, "{}", all(&output));
    }
}

#[test]
fn settings_select_gid_partition_and_retries() {
    let test = "settings_select_gid_partition_and_retries";
    let chosen = ["RUSHMEM_PARTITION=0x8001", "RUSHMEM_RETRIES=3", "RUSHMEM_ACK_TIMEOUT=50ms"];
    // The first GIDs of a strict device are those of another network namespace.
    let ethernet = if device_is_strict() { "3" } else { "1" };
    for (link, gid) in [("ethernet", ethernet), ("ib", "0")] {
        let Some(mut device) = SoftnicDevice::new(test, &["--link", link]) else { return };
        device.command.args(["run", "-n", "2", "env", "RUSHMEM_NIC=mlx5_0", "RUSHMEM_PEER_PATH=nic"]);
        device.command.arg(format!("RUSHMEM_GID_INDEX={gid}")).args(chosen);
        let output = device.command.args([PE, "qps"]).output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
        let wanted = format!("GID {gid}, key 1, 3 retries after 67.108864ms each");
        let told = text(&output.stdout);
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("retries")).collect();
        assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with(&wanted)), "{}", all(&output));
    }
}

#[test]
fn missing_gid_or_partition_is_reported() {
    let test = "missing_gid_or_partition_is_reported";
    for (setting, words) in [
        // The GID at index 2 is of RoCE v1, and there is no other GID.
        ("RUSHMEM_GID_INDEX=2", &["mlx5_0", "no usable GID at index 2", "RoCE v1", "RUSHMEM_GID_INDEX"][..]),
        ("RUSHMEM_GID_INDEX=9", &["mlx5_0", "no usable GID at index 9", "RoCE v2", "RUSHMEM_GID_INDEX"]),
        (
            "RUSHMEM_PARTITION=0x8005",
            &["not in partition 0x8005", "its keys: 0xffff, 0x8001", "RUSHMEM_PARTITION"],
        ),
    ] {
        let Some(device) = SoftnicDevice::new(test, &[]) else { return };
        failed(&device.ring("1", &["RUSHMEM_NIC=mlx5_0", setting]), words);
    }

    let Some(mut device) = SoftnicDevice::new(test, &[]) else { return };
    let script = "if [ $RUSHMEM_PE = 0 ]; then export RUSHMEM_PARTITION=0x8001; fi; exec env $1 \"$0\" ring";
    device.command.env("RUSHMEM_PEER_PATH", "nic").args(["run", "-n", "2", "sh", "-c", script, PE]);
    let output = device.command.arg("RUSHMEM_NIC=mlx5_0").output().unwrap();
    failed(&output, &["its partition key is 0x", "this port's is 0x", "RUSHMEM_PARTITION"]);
}

#[test]
fn gids_of_other_network_namespaces_are_not_used() {
    let test = "gids_of_other_network_namespaces_are_not_used";
    let foreign = || SoftnicDevice::new(test, &["--fault", "foreign-gids"]);
    let Some(device) = foreign() else { return };
    passed(&device.ring("2", &["RUSHMEM_PEER_PATH=nic"]), 2);
    let Some(device) = foreign() else { return };
    let output = device.ring("1", &["RUSHMEM_NIC=mlx5_0", "RUSHMEM_GID_RANGE=203.0.113.0/24"]);
    failed(&output, &["203.0.113.7 RoCE v2 (not of this network namespace)", "(outside RUSHMEM_GID_RANGE)"]);
}

#[test]
fn idle_ports_are_left_out() {
    let test = "idle_ports_are_left_out";
    let idle = ["--devices", "3", "--fault", "idle-ports"];
    let Some(device) = SoftnicDevice::new(test, &idle) else { return };
    let output = device.ring("2", &["RUSHMEM_PEER_PATH=nic"]);
    passed(&output, 2);
    let told = text(&output.stderr);
    assert!(!told.contains("NIC mlx5_1 ") && !told.contains("NIC mlx5_2 "), "{told}");

    let Some(mut device) = SoftnicDevice::new(test, &idle) else { return };
    let output = device.command.args(["run", "--threads", "-n", "2", PE, "doctor"]).output().unwrap();
    let told = text(&output.stdout);
    assert!(told.contains("Good P1 : mlx5_0") && !told.contains("Blocks"), "{}", all(&output));
}

#[test]
fn virtual_functions_carry_jobs() {
    let test = "virtual_functions_carry_jobs";
    let Some(device) = SoftnicDevice::new(test, &["--fault", "virtual-function,bond"]) else { return };
    passed(&device.ring("2", &["RUSHMEM_PEER_PATH=nic"]), 2);
    let Some(device) = SoftnicDevice::new(test, &["--fault", "virtual-function"]) else { return };
    failed(
        &device.ring("1", &["RUSHMEM_NIC=mlx5_0", "RUSHMEM_ORDERING=out_of_order"]),
        &["out-of-order placement by mlx5_0", "the NIC lacks it", "RUSHMEM_ORDERING=auto"],
    );
    let Some(mut device) = SoftnicDevice::new(test, &["--fault", "virtual-function"]) else { return };
    let output = device.command.args(["run", "--threads", "-n", "2", PE, "doctor"]).output().unwrap();
    let told = text(&output.stdout);
    assert!(told.contains("virtual function") && !told.contains("Blocks"), "{}", all(&output));
}

#[test]
fn nics_are_chosen_by_beginnings_exclusion_and_shares() {
    let test = "nics_are_chosen_by_beginnings_exclusion_and_shares";
    for (nic, used) in [
        ("mlx5", "traffic goes through mlx5_0:1, mlx5_1:1, mlx5_2:1"),
        ("^mlx5_1", "traffic goes through mlx5_0:1, mlx5_2:1"),
        ("=mlx5_2", "traffic goes through mlx5_2:1"),
        ("mlx5_2:1:1,mlx5_0:1:1", "traffic goes through mlx5_2:1, mlx5_0:1"),
    ] {
        let Some(device) = SoftnicDevice::new(test, &["--devices", "3"]) else { return };
        let output = device.ring("2", &["RUSHMEM_PEER_PATH=nic", &format!("RUSHMEM_NIC={nic}")]);
        passed(&output, 2);
        assert!(text(&output.stderr).contains(&format!("{used}: ")), "{nic}: {}", all(&output));
    }
    for (nic, words) in [
        ("mlx5_7", &["mlx5_7", "mlx5_0:1 (ACTIVE), mlx5_1:1 (ACTIVE)"][..]),
        ("=mlx5", &["mlx5_0:1 (ACTIVE)"]),
        ("^mlx5_7", &["mlx5_7", "mlx5_0:1 (ACTIVE)"]),
        ("mlx5_0:1:1", &["a NIC for each of the 2 PEs", "ports for 1 PEs"]),
    ] {
        let Some(device) = SoftnicDevice::new(test, &["--devices", "2"]) else { return };
        failed(&device.ring("2", &["RUSHMEM_PEER_PATH=nic", &format!("RUSHMEM_NIC={nic}")]), words);
    }
}

#[test]
fn ports_of_different_infiniband_subnets_are_reported() {
    let test = "ports_of_different_infiniband_subnets_are_reported";
    let Some(mut device) = SoftnicDevice::new(test, &["--link", "ib"]) else { return };
    let script = "if [ $RUSHMEM_PE = 0 ]; then export RUSHMEM_UVERBS_FAULT=$RUSHMEM_UVERBS_FAULT,other-subnet; fi; exec env $1 \"$0\" ring";
    device.command.env("RUSHMEM_PEER_PATH", "nic").args(["run", "-n", "2", "sh", "-c", script, PE]);
    let output = device.command.arg("RUSHMEM_NIC=mlx5_0").output().unwrap();
    failed(&output, &["its subnet prefix is fe", "this port's is fe", "one subnet in RUSHMEM_NIC"]);
}

/// Runs `action` on two PEs in two processes. Injects `fault` into the device of PE 0. No wait may time out.
fn with_fault_of_pe_0(test: &str, options: &[&str], fault: &str, action: &str) -> Option<Output> {
    let mut device = SoftnicDevice::new(test, options)?;
    let script = "if [ $RUSHMEM_PE = 0 ]; then export RUSHMEM_UVERBS_FAULT=$RUSHMEM_UVERBS_FAULT,$1; fi; RUSHMEM_NIC=mlx5_0 exec \"$0\" $2";
    device.command.env("RUSHMEM_PEER_PATH", "nic").env("RUSHMEM_TIMEOUT", "60s").env("RUSHMEM_LOG", "warn");
    device.command.args(["run", "-n", "2", "sh", "-c", script, PE, fault, action]);
    Some(device.command.output().unwrap())
}

#[test]
fn nic_failure_aborts_waits_and_names_the_cause() {
    let test = "nic_failure_aborts_waits_and_names_the_cause";
    for (link, fault, words) in [
        ("ethernet", "port_falls_us=100000", &["its port has been down for 1s"][..]),
        ("ethernet", "device_fails_us=100000", &["the device reports a fatal error"]),
        ("ethernet", "address_leaves_us=100000", &["its GID 3 was", "and is gone"]),
        ("ib", "address_leaves_us=100000", &["its LID was", "and is 0x0"]),
        ("ethernet", "cqs_fail_us=100000", &["the CQ of QP", "towards PE 1 takes no completions"]),
    ] {
        let Some(output) = with_fault_of_pe_0(test, &["--link", link], fault, "ring_wait") else { return };
        let cause = [&["PE 0: mlx5_0", "port 1 failed: "][..], words].concat();
        failed(&output, &cause);
        let told = text(&output.stderr);
        let reports = told.lines().filter(|line| line.contains("ERROR") && line.contains("failed: ")).count();
        assert_eq!(reports, 1, "{fault}: {told}");
    }
}

#[test]
fn brief_port_outage_is_only_logged() {
    let test = "brief_port_outage_is_only_logged";
    let fault = "port_falls_us=100000,port_returns_us=400000";
    let Some(output) = with_fault_of_pe_0(test, &[], fault, "pause") else { return };
    passed_quietly(&output, 2);
    let told = text(&output.stderr);
    let reports: Vec<&str> =
        told.lines().filter(|line| line.contains("mlx5_0") && line.contains("WARN")).collect();
    assert!(reports.len() == 1 && reports[0].contains("port 1 was down for a moment"), "{told}");
}

#[test]
fn each_thread_opens_the_device() {
    let Some(mut device) = SoftnicDevice::new("each_thread_opens_the_device", &[]) else {
        return;
    };
    device.command.args(["run", "--threads", "-n", "3", PE, "ring"]);
    passed(&device.command.output().unwrap(), 3);
}

#[test]
fn cpu_thread_rings_doorbells_for_kernels() {
    let Some(device) = SoftnicDevice::new("cpu_thread_rings_doorbells_for_kernels", &[]) else { return };
    let output = device.ring("2", &["RUSHMEM_DOORBELL=cpu"]);
    passed(&output, 2);
    let told = text(&output.stderr);
    assert!(told.contains("a CPU thread writes them for kernels"), "{told}");
    assert!(told.contains("(RUSHMEM_DOORBELL=cpu)"), "{told}");
}

#[test]
fn devices_are_distributed_among_pes() {
    let Some(device) = SoftnicDevice::new("devices_are_distributed_among_pes", &["--devices", "2"]) else {
        return;
    };
    let output = device.ring("2", &[]);
    passed(&output, 2);
    let told = text(&output.stderr);
    for pe in 0..2 {
        let line =
            |line: &&str| line.starts_with(&format!("[{pe}]")) && line.contains(&format!("NIC mlx5_{pe} "));
        assert!(told.lines().any(|l| line(&l)), "{told}");
    }

    let Some(device) = SoftnicDevice::new("devices_are_distributed_among_pes", &["--devices", "4"]) else {
        return;
    };
    let output = device.ring("2", &["RUSHMEM_QPS_PER_PEER=2", "RUSHMEM_PEER_PATH=nic"]);
    passed(&output, 2);
    let told = text(&output.stderr);
    for nic in 0..4 {
        assert!(told.contains(&format!("NIC mlx5_{nic} ")), "{told}");
    }

    let Some(device) = SoftnicDevice::new("devices_are_distributed_among_pes", &["--devices", "3"]) else {
        return;
    };
    let output = device.ring("2", &["RUSHMEM_NIC=mlx5_2"]);
    passed(&output, 2);
    assert!(!text(&output.stderr).contains("NIC mlx5_0 "), "{}", all(&output));
}

#[test]
fn missing_device_error_lists_present_devices() {
    let test = "missing_device_error_lists_present_devices";
    let Some(device) = SoftnicDevice::new(test, &["--devices", "2"]) else { return };
    let output = device.ring("1", &["RUSHMEM_NIC=mlx5_7"]);
    failed(
        &output,
        &["no RDMA device mlx5_7", "there is mlx5_0:1 (ACTIVE), mlx5_1:1 (ACTIVE)", "RUSHMEM_NIC"],
    );
    let Some(device) = SoftnicDevice::new(test, &[]) else { return };
    failed(&device.ring("1", &["RUSHMEM_NIC=mlx5_0:2"]), &["mlx5_0", "no port 2", "ports are 1 to 1"]);
}

#[test]
fn programs_run_without_the_libraries() {
    const TEST: &str = "programs_run_without_the_libraries";
    // The loader finds this file first, which is no library.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libibverbs.so.1"), "").unwrap();
    let path = format!("LD_LIBRARY_PATH={}", folder.path().display());
    let Some(device) = SoftnicDevice::new(TEST, &[]) else { return };
    failed(&device.ring("2", &[&path, "RUSHMEM_NIC=mlx5_0"]), &["libibverbs.so.1", "install rdma-core"]);
    let Some(device) = SoftnicDevice::new(TEST, &[]) else { return };
    let output = device.ring("2", &[&path, "RUSHMEM_NIC=auto"]);
    passed_quietly(&output, 2);
    let told = text(&output.stderr);
    assert!(
        told.lines().any(|line| line.contains("mlx5_0") && line.contains("libibverbs.so.1")),
        "{}",
        all(&output)
    );
}

#[test]
fn device_failure_is_reported_in_one_line() {
    for (fault, words) in [
        ("open=EACCES", &["mlx5_0", "opening /dev/infiniband/uverbs0", "EACCES", "chmod"][..]),
        ("memlock", &["mlx5_0", "ENOMEM", "lock memory up to a limit, which is 8192 KiB", "ulimit -l"]),
        ("devx", &["mlx5_0", "for DevX", "EPERM", "UCTX_EN=1"]),
        ("devx-umem", &["mlx5_0", "mlx5dv_devx_umem_reg", "EOPNOTSUPP", "RUSHMEM_NIC=soft"]),
        ("uar", &["mlx5_0", "UAR page failed with every method", "type NC:", "type BF: ENOMEM"]),
        ("uar-mmap", &["mlx5_0", "UAR page failed with every method", "type NC:", "type BF:"]),
        ("port-down", &["mlx5_0", "port 1 is down", "ip link set"]),
        ("no-gid", &["mlx5_0", "no usable GID", "none at all", "ip addr add"]),
        ("gid-v1-only", &["mlx5_0", "no usable GID", "RoCE v1", "RoCE v2 address is needed"]),
        ("atomics=none", &["mlx5_0", "no atomics", "fetch and add", "RUSHMEM_NIC=soft"]),
        ("peer-gone", &["RDMA_WRITE towards PE ", "TRANSPORT_RETRY_EXC_ERR", "did not acknowledge"]),
    ] {
        let Some(device) = SoftnicDevice::new("device_failure_is_reported_in_one_line", &["--fault", fault])
        else {
            return;
        };
        failed(&device.ring("2", &["RUSHMEM_NIC=mlx5_0", "RUSHMEM_TIMEOUT=3s"]), words);
    }
}

#[test]
fn job_without_private_doorbell_page_uses_the_shared_one() {
    let test = "job_without_private_doorbell_page_uses_the_shared_one";
    let Some(device) = SoftnicDevice::new(test, &["--fault", "uar-bf"]) else { return };
    let output = device.ring("2", &["RUSHMEM_QPS_PER_PEER=2"]);
    passed(&output, 2);
    assert!(text(&output.stderr).contains("register of type NC,"), "{}", all(&output));
}

#[test]
fn unusable_device_is_skipped_and_reported() {
    let test = "unusable_device_is_skipped_and_reported";
    let Some(device) = SoftnicDevice::new(test, &["--fault", "open=EACCES"]) else { return };
    let output = device.with("RUSHMEM_LOG", "warn").ring("2", &[]);
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    let said = |line: &str| line.contains("software ConnectX: mlx5_0") && line.contains("EACCES");
    assert!(told.lines().any(said), "{told}");
}

#[test]
fn rejects_a_mix_of_software_and_hardware_nics() {
    let Some(mut device) = SoftnicDevice::new("rejects_a_mix_of_software_and_hardware_nics", &[]) else {
        return;
    };
    let script = "if [ $RUSHMEM_PE = 0 ]; then export RUSHMEM_NIC=soft; fi; exec \"$0\" ring";
    device.command.args(["run", "-n", "2", "sh", "-c", script, PE]);
    let output = device.command.output().unwrap();
    failed(&output, &["PE 1 has an RDMA device, and this PE has the software ConnectX", "RUSHMEM_NIC"]);
}

#[test]
fn gpu_memory_is_registered_by_dma_buf_and_by_address() {
    let test = "gpu_memory_is_registered_by_dma_buf_and_by_address";
    let missing = match Cuda::load().and_then(|cuda| Device::open(cuda, 0)) {
        Ok(gpu) if gpu.attributes().gpu_direct_rdma => None,
        Ok(_) => Some("this GPU has no GPUDirect RDMA".to_string()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(missing) = missing {
        eprintln!("SKIPPED {test}: {missing}");
        return;
    }
    let direct = ["RUSHMEM_HEAP=device", "RUSHMEM_DATA_DIRECT=on", "RUSHMEM_PEER_PATH=nic"];
    let (by_data_direct, refused) = match has_data_direct() {
        true => {
            ("registering GPU memory for peers: by data direct", "peers access GPU memory through the NIC")
        }
        false => ("registering GPU memory: by ", "registering GPU memory: by "),
    };
    for (options, env, words) in [
        (&[][..], &["RUSHMEM_HEAP=device"][..], "registering GPU memory: by dma-buf"),
        (&["--fault", "dmabuf"], &["RUSHMEM_HEAP=device"], "registering GPU memory: by address, since "),
        (&[], &["RUSHMEM_HEAP=host"], "traffic goes through mlx5_0"),
        (&[], &["RUSHMEM_HEAP=host", "RUSHMEM_DOORBELL=cpu"], "a CPU thread writes them"),
        (&[], &["RUSHMEM_QUEUES=device"], "putting queues into GPU memory: by dma-buf"),
        (
            &["--fault", "dmabuf"],
            &["RUSHMEM_QUEUES=device"],
            "putting queues into GPU memory: by address, since ",
        ),
        (&["--fault", "data-direct"], &direct[..], by_data_direct),
        (&["--fault", "data-direct,data-direct-memory"], &direct[..], refused),
    ] {
        let Some(device) = SoftnicDevice::new(test, options) else { return };
        let mut env = env.to_vec();
        env.extend(["RUSHMEM_DEVICE=gpu", "RUSHMEM_PES=2"]);
        let mut device = device;
        device.command.arg("run").args(["--threads", "-n", "2", "env"]).args(&env).args([PE, "ring"]);
        let output = device.command.output().unwrap();
        passed(&output, 2);
        assert!(text(&output.stderr).contains(words), "{}", all(&output));
    }
}

#[test]
fn doctor_reports_device_failures() {
    for (fault, words) in [
        (
            "",
            &[
                if device_is_strict() {
                    "Note N7 mlx5_0: a virtual function"
                } else {
                    "Good N1 mlx5_0: ConnectX-7"
                },
                "Good P1 : mlx5_0",
                "Good P2 PE 0 and mlx5_0 port 1: native kernels write",
                "Good P5 PE 1 and mlx5_0 port 1: RoCE 400 Gb/s, queues in host memory, doorbells by kernels, heap in host memory",
                "by mlx5_0",
            ][..],
        ),
        (
            "port-down",
            &["Blocks P1 : the software ConnectX only: mlx5_0", "port 1 is down; connect its cable"],
        ),
        ("gid-v1-only", &["Blocks P1 ", "a RoCE v2 address is needed"]),
        ("devx", &["Blocks P1 ", "UCTX_EN=1"]),
        ("atomics=none", &["Blocks P1 ", "no atomics of the kinds that kernels use"]),
        (
            "uar",
            &[
                "Good P1 : mlx5_0",
                "Blocks P2 PE 0 and mlx5_0 port 1: mlx5_0",
                "allocating a UAR page failed",
                "Blocks P3 ",
            ],
        ),
        ("memlock", &["Good P2 ", "Blocks P3 : mlx5_0", "ulimit -l unlimited"]),
    ] {
        let options = if fault.is_empty() { vec![] } else { vec!["--fault", fault] };
        let Some(mut device) = SoftnicDevice::new("doctor_reports_device_failures", &options) else {
            return;
        };
        let output = device.command.args(["run", "--threads", "-n", "2", PE, "doctor"]).output().unwrap();
        let told = text(&output.stdout);
        for word in words {
            assert!(told.contains(word), "{fault}: {word:?} is missing: {}", all(&output));
        }
    }
}
