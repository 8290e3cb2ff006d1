//! Tests of the command `rushmem info`.

use std::process::Command;

fn info(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushmem"));
    let output = command.arg("info").args(args).envs(variables.iter().copied()).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn prints_settings_with_their_sources() {
    let (code, text) = info(&[], &[("RUSHMEM_SQ_DEPTH", "64")]);
    assert_eq!(code, Some(0));
    let row = text.lines().find(|line| line.contains("RUSHMEM_SQ_DEPTH")).unwrap();
    assert!(row.contains("64") && row.contains("environment") && row.contains("send queue"), "{row}");
    let row = text.lines().find(|line| line.contains("RUSHMEM_TIMEOUT")).unwrap();
    assert!(row.contains("10s") && row.contains("default"), "{row}");
}

#[test]
fn prints_expert_settings_that_are_set() {
    let (_, text) = info(&[], &[("RUSHMEM_CQ", "collapsed")]);
    assert!(text.contains("\nNetwork\n") && text.contains("  RUSHMEM_CQ "), "{text}");
    assert!(
        !text.contains("  RUSHMEM_SQ_DEPTH ") && text.contains("`rushmem info --all` lists them"),
        "{text}"
    );
    let (_, text) = info(&["--all"], &[]);
    assert!(text.contains("  RUSHMEM_CQ ") && text.contains("  RUSHMEM_SQ_DEPTH "), "{text}");
}

#[test]
fn prints_json() {
    let token = "5a".repeat(32);
    let (code, text) = info(&["--json"], &[("RUSHMEM_TOKEN", &token)]);
    assert_eq!(code, Some(0));
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = all["settings"].as_array().unwrap();
    assert_eq!(rows.len(), rushmem::config::SETTINGS.len());
    let row = rows.iter().find(|row| row["key"] == "token").unwrap();
    assert_eq!((row["value"].as_str(), row["source"].as_str()), (Some("(set)"), Some("environment")));
    assert!(!text.contains(&token));
}

#[test]
fn invalid_setting_is_a_usage_error() {
    let (code, text) = info(&[], &[("RUSHMEM_CQ", "square")]);
    assert_eq!(code, Some(2));
    assert!(text.contains("RUSHMEM_CQ") && text.contains("ring, collapsed"), "{text}");
    let (code, text) = info(&[], &[("RUSHMEM_LOG", "=,=")]);
    assert_eq!(code, Some(2));
    assert!(text.contains("RUSHMEM_LOG"), "{text}");
}

#[test]
fn prints_the_path_to_each_pe_with_the_reason() {
    let path = |variables: &[(&str, &str)]| {
        let variables = [&[("RUSHMEM_PES", "3"), ("RUSHMEM_DEVICE", "native")], variables].concat();
        let (code, text) = info(&[], &variables);
        assert_eq!(code, Some(0));
        text.lines().find(|line| line.contains("0 -> 2")).unwrap().to_string()
    };
    let auto = path(&[]);
    assert!(auto.contains("software ConnectX") && auto.contains("RUSHMEM_PEER_PATH=p2p maps"), "{auto}");
    let direct = path(&[("RUSHMEM_PEER_PATH", "p2p")]);
    assert!(direct.contains(" p2p (RUSHMEM_PEER_PATH=p2p, if it is on this node)"), "{direct}");
    let group = path(&[("RUSHMEM_PEER_PATH", "p2p"), ("RUSHMEM_P2P_GROUP", "2")]);
    assert!(group.contains("software ConnectX (it belongs to another group"), "{group}");
}

#[test]
fn prints_the_kind_of_pes_with_the_reason() {
    let row = |variables: &[(&str, &str)]| {
        let (code, text) = info(&[], variables);
        assert_eq!(code, Some(0), "{text}");
        text.lines().find(|line| line.starts_with("  PEs ")).unwrap().trim().to_owned()
    };
    assert_eq!(row(&[]), "PEs      threads of this process (no launcher has set variables)");
    let pmix = [("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "job")];
    assert_eq!(
        row(&pmix),
        "PEs      processes of a launcher for MPI (PMIX_RANK is set: a launcher speaks PMIx)"
    );
    let half = row(&[("RANK", "0")]);
    assert!(half.starts_with("PEs      nothing (") && half.contains("WORLD_SIZE"), "{half}");
}

#[test]
fn rows_wrap_at_the_width_of_the_terminal() {
    let (_, whole) = info(&["--all"], &[]);
    assert!(whole.lines().any(|line| line.len() > 110), "a pipe gets whole rows: {whole}");
    let (code, text) = info(&["--all"], &[("COLUMNS", "80")]);
    assert_eq!(code, Some(0));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(&text.replace(char::is_numeric, "")),
        words(&whole.replace(char::is_numeric, "")),
        "no word is lost"
    );
    assert!(!text.contains('\x1b'), "a pipe gets no colour: {text}");
}
