//! `rushmem info`.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use rushmem::bootstrap::wire::PROTOCOL;
use rushmem::config::{Config, OTHER_VARIABLES, SETTINGS};
use serde_json::json;

use crate::error::Error;

/// Print this build and every setting with its value, its source and its meaning
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(args: &Args, config: &Config) -> Result<ExitCode, Error> {
    let text = if args.json { as_json(config) } else { as_text(config) };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
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
            })
        })
        .collect();
    let all =
        json!({ "version": env!("CARGO_PKG_VERSION"), "bootstrap_protocol": PROTOCOL, "settings": settings });
    format!("{all:#}\n")
}

fn as_text(config: &Config) -> String {
    let mut text = format!("rushmem {} (bootstrap protocol {PROTOCOL})\n", env!("CARGO_PKG_VERSION"));
    for (title, launch) in [("Settings", false), ("Set by the launcher for each PE", true)] {
        text += &format!("\n{title}\n");
        let rows =
            config.describe().into_iter().zip(SETTINGS).filter(|(_, setting)| setting.launch == launch);
        for (row, setting) in rows {
            let value = if row.value.is_empty() { "-" } else { &row.value };
            let source = row.origin.to_string();
            text += &format!("  {:<26} {value:<12} {source:<12} {}\n", setting.env, setting.doc);
        }
    }
    text += "\nOther variables\n";
    for (name, meaning) in OTHER_VARIABLES {
        text += &format!("  {name:<26} {meaning}\n");
    }
    text
}
