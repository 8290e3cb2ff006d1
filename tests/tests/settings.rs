//! Tests that the pages `docs/settings.md`, `docs/errors.md` and `docs/doctor.md` match the table of settings, the
//! error codes and the doctor's checks.
//!
//! Update them with `UPDATE_DOCS=1 cargo test -p rushmem-tests --test settings`.

use std::fmt::Write;
use std::path::Path;

use rushmem::config::{Group, OTHER_VARIABLES, SETTINGS, Setting};
use rushmem::{Status, meaning_of};
use rushmem_device::Error as Code;
use rushmem_doctor::CHECKS;

const HEAD: &str = "\
# Settings

This page is generated from the table in `host/config/src/table.rs`; a test compares.

Each layer overrides the one before: the default, a TOML file named by `RUSHMEM_CONFIG` (keys as below), the environment,
and a program or its command line. An unknown name in any layer is an error that suggests the nearest name.
`rushmem info` prints values and sources. `rushmem info --all` includes all expert settings. `rushmem explain heap_bytes`
prints one setting. `rushmem run` passes settings on to all PEs. Most users never change expert settings, which stand last in each group.
";

fn entry(setting: &Setting) -> String {
    let unit = if setting.unit.is_empty() { String::new() } else { format!(" ({})", setting.unit) };
    let default = if setting.default.is_empty() { "none".into() } else { format!("`{}`", setting.default) };
    let expert = if setting.expert { " (expert)" } else { "" };
    format!(
        "\n### `{}`{expert}\n\n{}\n\n- Variable: `{}`\n- Value{unit}: {}\n- Default: {default}",
        setting.key,
        setting.doc,
        setting.env,
        setting.accepts()
    )
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut write = |line: String| writeln!(page, "{line}").unwrap();
    for group in Group::ALL.into_iter().filter(|group| *group != Group::PerPe) {
        write(format!("\n## {}", group.title()));
        let in_group = || SETTINGS.iter().filter(|setting| setting.group == group);
        for setting in in_group().filter(|setting| !setting.expert) {
            write(entry(setting));
        }
        for setting in in_group().filter(|setting| setting.expert) {
            write(entry(setting));
        }
    }
    write("\n## Set by the launcher\n".into());
    write(
        "`rushmem run` sets these for each PE. To start PEs by hand, set some of them: see `launching.md`.\n"
            .into(),
    );
    write("| variable | meaning |\n|---|---|".into());
    for setting in SETTINGS.iter().filter(|setting| setting.launch) {
        write(format!("| `{}` | {} |", setting.env, setting.doc));
    }
    write("\n## Other variables\n".into());
    write("| variable | meaning |\n|---|---|".into());
    for (name, meaning) in OTHER_VARIABLES {
        write(format!("| `{name}` | {meaning} |"));
    }
    page
}

const ERRORS: &str = "\
# Errors

This page is made from `host/error/src/status.rs`; a test compares.

Every error of a host call has a text for people and a status for programs. The text names the cause and the remedy, and may
change. The status is stable: `Error::status()` returns it, `Status::code()` its number, `Status::name()` its name. User errors
never abort a process.

| code | name | meaning |
|---|---|---|
";

const KERNELS: &str = "
## Of kernels

A kernel call that fails returns one of these codes to the kernel and leaves a record for the host. `Launch::wait` returns the
record with status `kernel`: `Error::Device` has the code, the source line, the peer, the QP and its syndrome.

| code | name | meaning |
|---|---|---|
";

fn errors() -> String {
    let mut page = ERRORS.to_owned();
    for status in Status::ALL {
        writeln!(page, "| {} | `{}` | {} |", status.code(), status.name(), status.meaning()).unwrap();
    }
    page += KERNELS;
    for code in (1..).map_while(Code::from_code) {
        writeln!(page, "| {} | `{code:?}` | {} |", code as u32, meaning_of(code)).unwrap();
    }
    page
}

const DOCTOR: &str = "\
# Checks of a machine

The table on this page is generated from `tools/doctor`; a test compares.

```sh
rushmem doctor                              # check this machine
rushmem run -n 16 rushmem doctor --job      # check all nodes of a job, under any launcher
rushmem explain 0x15                        # explain a number or name of an error message
```

`rushmem doctor` checks GPUs, NICs, the paths between them and the system. It then probes each PE with the NICs that a job would use,
with `--all-pairs` with every NIC, and runs jobs of two PEs that move and compare a few bytes. It changes nothing, needs no privileges,
and leaves out checks that do not concern the machine. Without a launcher, it probes a PE on each GPU.

| mark | meaning |
|---|---|
| `ok`, `note` | No problem; information only. |
| `?` | The state cannot be read, for example without root. |
| `slow`, `lesser` | It works, but slower than possible, or by a fallback. |
| `risk` | It may fail. |
| `FAIL` | It does not work. The exit code is 3. |

The reason follows each line worse than `?` and, after `->`, the remedy. The last line names the first failure.

With `--job`, PE 0 reports where the PEs are, how nodes differ and what is wrong on each. Each PE puts to each other one, or in jobs
of more than 64 PEs to those at distances of powers of two.

`--json` prints JSON.

## Reports

`rushmem doctor --report FILE` writes JSON for a bug report:

- versions, changed settings, findings, and the files of Linux that the checks read, with GID tables and versions of modules;
- for each pair of a PE and a NIC, the commands of the probe (mailboxes, status, syndrome), its CQEs and the contexts of its QPs, and
  with the first pair of a NIC all its capability pages; commands that libibverbs and libmlx5 send on their own are missing;
- the lines of the kernel log about mlx5, if they can be read;
- the litmus tests and four benchmarks through the NIC, which take some minutes; `--brief` leaves them out.

With `--job`, it has what the PEs of all nodes reported and the QPs between them. A report contains addresses of NICs and network
interfaces, but no token or ID, and replaces the names of hosts by `HOST`.

`rushmem doctor --replay FILE` repeats the checks of a report on any machine and prints the same findings. The tests of `tools/doctor`
replay reports, in the folder `reports`, and check modelled machines, in the folder `machines`, which follow public documentation.

## Checks

| id | check | reason |
|---|---|---|
";

fn doctor() -> String {
    let mut page = DOCTOR.to_owned();
    for check in CHECKS {
        writeln!(page, "| {} | {} | {} |", check.id, check.about, check.why).unwrap();
    }
    page
}

fn compare(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/{name} is out of date; write it again as the head of this file says");
}

#[test]
fn settings_page_matches_the_table() {
    compare("settings.md", &page());
}

#[test]
fn doctor_page_matches_the_checks() {
    compare("doctor.md", &doctor());
}

#[test]
fn errors_page_matches_the_codes() {
    compare("errors.md", &errors());
    // The codes are contiguous, so iterating until the first gap misses none.
    assert!((1..).map_while(Code::from_code).count() == (1..1000).filter_map(Code::from_code).count());
}
