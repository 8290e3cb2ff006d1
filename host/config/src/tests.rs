use std::io::Write;
use std::time::Duration;

use super::*;

fn load(variables: &[(&str, &str)]) -> Result<Config, Error> {
    Config::load_from(variables.iter().map(|(name, value)| (name.into(), value.into())))
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Returns a valid value of the setting `key` other than its default.
fn another(key: &str) -> &'static str {
    match key {
        "pes" | "qps_per_peer" | "block_qps" | "exclusive_qps" | "context_qps" | "native_workers"
        | "nics_per_pe" | "p2p_group" | "dc_above" | "vacant_pes" => "3",
        "teams" => "7",
        "heap_bytes" | "heap_max" | "native_stack" | "queue_memory" | "team_scratch" | "grid_scratch" => {
            "2MiB"
        }
        "connect" => "eager",
        "heap" => "host",
        "device" => "gpu",
        "gpus" => "1,0",
        "gpu_arch" => "sm_80",
        "nic" => "soft",
        "doorbell" => "cpu",
        "queues" => "host",
        "storage" => "plain",
        "membership" => "live",
        "failover" => "on",
        "traffic_class" => "104",
        "service_level" | "gid_index" => "3",
        "gid_range" => "10.0.0.0/8",
        "partition" => "0x8001",
        "retries" => "0",
        "ordering" => "ibta",
        "relaxed_ordering" => "on",
        "doorbell_record" => "off",
        "peer_path" => "nic",
        "p2p_atomics" => "node",
        "sq_depth" | "dcis" => "2",
        "cq" => "collapsed",
        "timeout" | "bootstrap_timeout" | "connect_timeout" | "ack_timeout" | "abort_limit" => "250ms",
        "kernel_warning" => "none",
        "kernel_limit" | "lane_limit" | "heartbeat" => "20s",
        "softnic_ip" => "10.0.0.7",
        "softnic_port" => "4791",
        "softnic_shared_memory" => "off",
        "softnic_fault" => "drop=1",
        "sanitize" | "weak_memory" | "data_direct" => "on",
        "print_buffer" => "none",
        "sanitize_report" => "/tmp/races.json",
        "trace" => "/tmp/job.json",
        "stats" => "on",
        "trace_limit" => "10",
        "trace_ring" => "1MiB",
        "log" => "debug",
        "progress" => "always",
        "pe" | "local_pe" | "node" => "1",
        "n_pes" | "local_pes" | "nodes" => "4",
        "bootstrap" => "pmix",
        "bootstrap_interface" => "eth0",
        "bootstrap_family" => "ipv6",
        "bootstrap_port" => "4000",
        "log_file" => "/tmp/%h.%p.log",
        "server" => "127.0.0.1:4000",
        "id" => {
            let addr = "10.0.0.7:4000".parse().unwrap();
            let fields = IdFields { addr, listener: Listener::Pe0, machine: [0; 4], token: [0; 32] };
            EncodedId::new(&fields).to_hex().leak()
        }
        "token" => "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        key => panic!("give `{key}` a value in this test"),
    }
}

#[test]
fn every_setting_is_documented_and_reachable_from_the_environment() {
    for setting in SETTINGS {
        assert_eq!(setting.env, format!("{PREFIX}{}", setting.key.to_uppercase()));
        assert!(setting.doc.ends_with('.') && setting.doc.len() > 15, "{}", setting.key);
        assert!(!setting.accepts().is_empty(), "{}", setting.key);

        let default = Config::default();
        assert_eq!((setting.show)(&default), setting.default, "{}: the default reads back", setting.key);

        let config = load(&[(setting.env, another(setting.key))]).unwrap();
        let row = config.describe().into_iter().find(|row| row.key == setting.key).unwrap();
        let shown = if matches!(setting.key, "token" | "id") { "(set)" } else { another(setting.key) };
        assert_eq!((row.value.as_str(), row.origin), (shown, Origin::Variable), "{}", setting.key);
        assert_ne!(row.value, setting.default, "{}", setting.key);
    }
}

#[test]
fn finds_settings_by_key_and_variable() {
    for name in ["heap_bytes", "RUSHMEM_HEAP_BYTES", "Heap_Bytes", "rushmem_heap_bytes"] {
        assert_eq!(Setting::find_by_name(name).map(|setting| setting.key), Some("heap_bytes"), "{name}");
    }
    assert!(Setting::find_by_name("RUSHMEM_").is_none());
}

#[test]
fn table_is_sorted_by_group() {
    let mut groups: Vec<Group> = SETTINGS.iter().map(|setting| setting.group).collect();
    groups.dedup();
    assert_eq!(groups, Group::ALL);
    for group in Group::ALL {
        let normal = |setting: &&Setting| setting.group == group && !setting.expert;
        let has_common = SETTINGS.iter().any(|setting| normal(&setting));
        assert!(has_common || matches!(group, Group::Launch | Group::SoftNic), "{group:?}");
        assert!(SETTINGS.iter().all(|setting| setting.launch == (setting.group == Group::PerPe)));
    }
}

#[test]
fn names_are_unique() {
    let others = OTHER_VARIABLES.iter().map(|(name, _)| *name);
    let mut names: Vec<_> = SETTINGS.iter().map(|setting| setting.env).chain(others).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn variables_of_other_tools_are_known() {
    for (name, meaning) in OTHER_VARIABLES {
        assert!(name.starts_with(PREFIX) && meaning.ends_with('.'), "{name}");
        if *name != "RUSHMEM_CONFIG" {
            load(&[(name, "anything")]).unwrap();
        }
    }
}

#[test]
fn later_layers_override_earlier_ones() {
    let file = file("sq_depth = 64\nheap_bytes = \"1g\"\ngpus = [0, 1]\ntimeout = \"2s\"\n");
    let path = file.path().to_str().unwrap();
    let mut config = load(&[("RUSHMEM_CONFIG", path), ("RUSHMEM_TIMEOUT", "3s"), ("HOME", "/root")]).unwrap();
    config.set("cq", "collapsed").unwrap();
    config.qps_per_peer = 7.try_into().unwrap();

    assert_eq!(config.sq_depth.0.map(SqDepth::get), Some(64));
    assert_eq!(config.heap_bytes, Bytes(1 << 30));
    assert_eq!(config.gpus, Gpus::List(vec![0, 1]));
    assert_eq!(config.timeout, Duration::from_secs(3));
    assert_eq!(config.pes.get(), 1);

    let origin = |key| config.describe().into_iter().find(|row| row.key == key).unwrap().origin;
    assert_eq!(origin("sq_depth"), Origin::File(path.into()));
    assert_eq!(origin("timeout"), Origin::Variable);
    assert_eq!(origin("cq"), Origin::Program);
    assert_eq!(origin("qps_per_peer"), Origin::Program);
    assert_eq!(origin("pes"), Origin::Default);
}

#[test]
fn unknown_variable_gets_a_suggestion() {
    let message = load(&[("RUSHMEM_HEAPBYTES", "1")]).unwrap_err().to_string();
    assert!(message.contains("RUSHMEM_HEAPBYTES") && message.contains("RUSHMEM_HEAP_BYTES"), "{message}");
}

#[test]
fn invalid_value_error_names_variable_value_and_choices() {
    for (name, value, accepts) in [
        ("RUSHMEM_SQ_DEPTH", "100", "power of two from 2 to 16384"),
        ("RUSHMEM_CQ", "square", "ring, collapsed"),
        ("RUSHMEM_TIMEOUT", "5", "5s"),
        ("RUSHMEM_PES", "0", "from 1"),
        ("RUSHMEM_HEAP_BYTES", "", "64MiB"),
    ] {
        let message = load(&[(name, value)]).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
        assert!(message.contains(&format!("`{value}`")), "{message}");
        assert!(message.contains(accepts), "{message}");
    }
}

#[test]
fn errors_hide_tokens() {
    let message = load(&[("RUSHMEM_TOKEN", "hunter2")]).unwrap_err().to_string();
    assert!(message.contains("RUSHMEM_TOKEN") && !message.contains("hunter2"), "{message}");
}

#[test]
fn errors_hide_ids() {
    let text = "ab".repeat(64);
    let message = load(&[("RUSHMEM_ID", &text)]).unwrap_err().to_string();
    assert!(message.contains("RUSHMEM_ID") && !message.contains("abab"), "{message}");
}

#[test]
fn file_errors_have_a_line_number() {
    let unknown = file("sq_dept = 64\n");
    let message = load(&[("RUSHMEM_CONFIG", unknown.path().to_str().unwrap())]).unwrap_err().to_string();
    assert!(message.contains("`sq_dept`") && message.contains("`sq_depth`"), "{message}");

    let invalid = file("pes = 1\nsq_depth = 100\n");
    let message = load(&[("RUSHMEM_CONFIG", invalid.path().to_str().unwrap())]).unwrap_err().to_string();
    assert!(message.contains("line 2") && message.contains("power of two"), "{message}");

    let launch = file("pe = 1\n");
    let message = load(&[("RUSHMEM_CONFIG", launch.path().to_str().unwrap())]).unwrap_err().to_string();
    assert!(message.contains("set by the launcher"), "{message}");

    let message = load(&[("RUSHMEM_CONFIG", "/dev/zero")]).unwrap_err().to_string();
    assert!(message.ends_with("/dev/zero named by RUSHMEM_CONFIG: it is not a regular file"), "{message}");
    let large = file(&"# nothing\n".repeat(200_000));
    let message = load(&[("RUSHMEM_CONFIG", large.path().to_str().unwrap())]).unwrap_err().to_string();
    assert!(message.ends_with("it is larger than 1 MiB"), "{message}");

    let message = load(&[("RUSHMEM_CONFIG", "/does/not/exist.toml")]).unwrap_err().to_string();
    assert!(message.contains("/does/not/exist.toml"), "{message}");
}

#[test]
fn rejects_contradictions() {
    let named = load(&[("RUSHMEM_NIC", "mlx5_0")]);
    if cfg!(feature = "rdma") {
        assert!(named.is_ok());
    } else {
        let message = named.unwrap_err().to_string();
        assert!(message.contains("RUSHMEM_NIC=mlx5_0") && message.contains("--features rdma"), "{message}");
    }

    let message = load(&[("RUSHMEM_DEVICE", "native"), ("RUSHMEM_HEAP", "device")]).unwrap_err().to_string();
    assert!(
        message.contains("RUSHMEM_DEVICE=native") && message.contains("RUSHMEM_HEAP=device"),
        "{message}"
    );

    assert!(load(&[("RUSHMEM_DEVICE", "native"), ("RUSHMEM_GPUS", "0")]).is_err());
    assert!(load(&[("RUSHMEM_PE", "4"), ("RUSHMEM_N_PES", "4")]).is_err());
}

#[test]
fn checks_settings_for_other_processes() {
    assert_eq!(variable_for("heap_bytes", "1g", "--set").unwrap(), "RUSHMEM_HEAP_BYTES");
    assert!(variable_for("heap_bytes", "lots", "--set").is_err());
    assert!(variable_for("heapbytes", "1g", "--set").unwrap_err().to_string().contains("--set"));
    assert!(matches!(variable_for("token", "x", "--set"), Err(Error::LaunchOnly { .. })));
}

/// Parses `bytes` as a line `key=value` of a setting, and as a configuration file. Accepted values must round-trip.
fn check_any_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut config = Config::default();
    if let Some((key, value)) = text.split_once('=')
        && config.set(key.trim(), value.trim()).is_ok()
    {
        let shown = config.describe().into_iter().find(|row| row.key == key.trim()).unwrap().value;
        let mut again = Config::default();
        again.set(key.trim(), &shown).unwrap();
        assert_eq!(again.describe().iter().find(|row| row.key == key.trim()).unwrap().value, shown, "{text}");
        let _ = config.check();
    }
    if let Ok(config) = parse_file(Path::new("rushmem.toml"), text) {
        let _ = config.check();
    }
}

#[test]
fn fuzz_corpus() {
    let users = SETTINGS.iter().filter(|setting| !setting.launch);
    let lines = users.map(|setting| format!("{}={}", setting.key, another(setting.key)));
    let file = "sq_depth = 64\nheap_bytes = \"1g\"\ngpus = [0, 1]\ntimeout = \"2s\"\n".to_owned();
    rushmem_corpus::target!("..", "settings").messages(lines.chain([file])).run(5000, check_any_text);
}
