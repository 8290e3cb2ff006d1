//! The command `rushmem info`, which prints the devices of this machine and the settings.

use std::process::ExitCode;

use rushmem::Inventory;
use rushmem::bootstrap::wire::PROTOCOL;
use rushmem::config::{Config, Group, OTHER_VARIABLES, Origin, Row, SETTINGS, Setting};
use serde_json::json;

use crate::error::Error;
use crate::print;
use crate::terminal::Layout;

/// Print the devices of this machine, the choices that a job would make and why, and the settings by group
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print all expert settings too; by default, only those that are set
    #[arg(long)]
    all: bool,
}

pub(crate) fn execute(args: &Args, config: &Config) -> Result<ExitCode, Error> {
    let text = if args.json { as_json(config) } else { as_text(config, args.all, Layout::of_stdout()) };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(config: &Config) -> String {
    let rows = config.describe().into_iter().zip(SETTINGS);
    let settings: Vec<_> = rows
        .map(|(row, setting)| {
            json!({
                "key": row.key,
                "variable": setting.env,
                "value": row.value,
                "source": row.origin.to_string(),
                "default": setting.default,
                "unit": setting.unit,
                "meaning": setting.doc,
                "group": setting.group.title(),
                "expert": setting.expert,
            })
        })
        .collect();
    let all = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "bootstrap_protocol": PROTOCOL,
        "machine": rushmem::inventory(config),
        "settings": settings,
    });
    format!("{all:#}\n")
}

fn as_text(config: &Config, all: bool, layout: Layout) -> String {
    let mut text = format!("rushmem {} (bootstrap protocol {PROTOCOL})\n", env!("CARGO_PKG_VERSION"));
    text += &machine(&rushmem::inventory(config), layout);
    text += &settings(config, all, layout);
    text += "\n";
    text += &layout.heading("Other variables");
    for (name, meaning) in OTHER_VARIABLES {
        text += &layout.row(&format!("  {name:<26} "), meaning);
    }
    text
}

/// Lists the settings by group: all of them, or without the expert settings that have their defaults.
fn settings(config: &Config, all: bool, layout: Layout) -> String {
    let is_listed = |row: &Row, setting: &Setting| all || !setting.expert || row.origin != Origin::Default;
    let rows: Vec<_> = config.describe().into_iter().zip(SETTINGS).collect();
    let listed = || rows.iter().filter(|(row, setting)| is_listed(row, setting));
    let mut text = String::new();
    for group in Group::ALL {
        let in_group: Vec<_> = listed().filter(|(_, setting)| setting.group == group).collect();
        if !in_group.is_empty() {
            text.push('\n');
            text += &layout.heading(group.title());
        }
        for (row, setting) in in_group {
            let value = if row.value.is_empty() { "-" } else { &row.value };
            let source = row.origin.to_string();
            text += &layout.row(&format!("  {:<26} {value:<12} {source:<12} ", setting.env), setting.doc);
        }
    }
    match rows.len() - listed().count() {
        0 => text,
        hidden => {
            let note =
                format!("{hidden} expert settings have their defaults; `rushmem info --all` lists them");
            text + "\n" + &layout.row("", &note)
        }
    }
}

fn machine(found: &Inventory, layout: Layout) -> String {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let memory = found.memory_available.map_or("unknown".into(), mib);
    let row = |name: &str, text: &str| layout.row(&format!("  {name:<8} "), text);
    let mut text = format!("\n{}", layout.heading("Found"));
    text += &row("CPU", &format!("{} cores, {memory} available", found.cores));
    text += &match &found.cuda {
        Ok(version) => row("CUDA", &format!("driver for {version}, {} GPUs", found.gpus.len())),
        Err(why) => row("CUDA", &format!("none: {why}")),
    };
    for gpu in &found.gpus {
        let (major, minor) = gpu.compute_capability;
        let (all, free) = gpu.memory;
        let free = format!("{} of {} free", mib(free), mib(all));
        let about = format!("{}, sm_{major}{minor}, {} SMs, {free}", gpu.name, gpu.multiprocessors);
        text += &row(&format!("GPU {}", gpu.ordinal), &about);
    }
    let rdma = if found.rdma_devices.is_empty() { "none".into() } else { found.rdma_devices.join(", ") };
    text += &row("RDMA", &rdma);
    text += &format!("\n{}", layout.heading("Chosen"));
    for (name, choice) in [("PEs", &found.pes), ("kernels", &found.kernels), ("NIC", &found.nic)] {
        text += &row(name, &format!("{} ({})", choice.selected, choice.reason));
    }
    for detail in &found.nic_details {
        text += &row("", detail);
    }
    for path in &found.routes {
        let route = format!("0 -> {}", path.pe);
        text += &layout.row(&format!("  PE {route:<8} "), &format!("{} ({})", path.via, path.why));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_expert_settings_that_are_set() {
        let mut config = Config::default();
        let text = settings(&config, false, Layout::PLAIN);
        assert!(text.contains("\nMemory\n  RUSHMEM_HEAP_BYTES ") && text.contains("--all"), "{text}");
        assert!(!text.contains("RUSHMEM_SQ_DEPTH") && !text.contains("Software ConnectX"), "{text}");

        config.set("sq_depth", "64").unwrap();
        assert!(settings(&config, false, Layout::PLAIN).contains("  RUSHMEM_SQ_DEPTH "));
    }

    #[test]
    fn lists_every_setting_on_demand() {
        let text = settings(&Config::default(), true, Layout::PLAIN);
        assert!(SETTINGS.iter().all(|setting| text.contains(&format!("  {} ", setting.env))), "{text}");
        assert!(!text.contains("--all"), "{text}");
    }
}
