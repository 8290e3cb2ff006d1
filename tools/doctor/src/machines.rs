//! Tests with modelled machines: files that describe what machines of data centres report, with the expected findings.
//!
//! The folder `machines` holds them. They follow public documentation and listings; none was recorded. A machine that
//! the checks misjudge becomes a test by adding a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rushmem::config::Config;
use rushmem::cuda::Attributes;
use serde::Deserialize;

use super::check::Verdict;
use super::facts::{Driver, Gpu};
use super::host::Host;
use super::{blocked, examine};

/// A modelled machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    /// What it is.
    about: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    /// The CUDA driver, or why there is none.
    driver: Result<Gpus, String>,
    /// Files by folder and name.
    folders: BTreeMap<String, BTreeMap<String, String>>,
    /// Symbolic links and their targets.
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// The findings worse than good: id, subject and verdict.
    findings: Vec<(String, String, Verdict)>,
}

/// Equal GPUs and their driver.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gpus {
    version: (u32, u32),
    attributes: Attributes,
    addresses: Vec<String>,
}

impl Machine {
    fn load(file: &Path) -> Machine {
        let text = std::fs::read_to_string(file).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// Lays out the machine's files below `root`.
    fn host(&self, root: &Path) -> Host {
        let place = |path: &str| root.join(path.trim_start_matches('/'));
        for (folder, files) in &self.folders {
            std::fs::create_dir_all(place(folder)).unwrap();
            for (name, content) in files {
                let file = place(folder).join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, content).unwrap();
            }
        }
        for (link, target) in &self.links {
            std::fs::create_dir_all(place(link).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(place(target), place(link)).unwrap();
        }
        let gpu = |(ordinal, address): (u32, &String), attributes: &Attributes| Gpu {
            ordinal,
            address: address.clone(),
            attributes: attributes.clone(),
        };
        let driver = self.driver.as_ref().map_err(String::clone).map(|gpus| Driver {
            version: gpus.version,
            gpus: (0..).zip(&gpus.addresses).map(|of| gpu(of, &gpus.attributes)).collect(),
        });
        Host::below(root, driver)
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    files
}

#[test]
fn modelled_machines_have_exactly_the_expected_findings() {
    for file in files() {
        let machine = Machine::load(&file);
        let mut config = Config::default();
        machine.settings.iter().for_each(|(key, value)| config.set(key, value).unwrap());
        let root = tempfile::tempdir().unwrap();
        let checks = examine(&machine.host(root.path()), &config);
        // N2 depends on the features of this build.
        let worse = checks.iter().filter(|check| check.verdict > Verdict::Good && check.check.id != "N2");
        let found: Vec<_> =
            worse.map(|check| (check.check.id.to_owned(), check.of.clone(), check.verdict)).collect();
        let about = &machine.about;
        assert_eq!(found, machine.findings, "{}: {about}: {checks:#?}", file.display());
    }
}

/// A machine is healthy unless the name of its file starts with `sick-`.
#[test]
fn only_sick_machines_are_blocked() {
    let all = files();
    assert!(all.len() > 10, "{all:?}");
    for file in all {
        let machine = Machine::load(&file);
        let root = tempfile::tempdir().unwrap();
        let checks = examine(&machine.host(root.path()), &Config::default());
        let checks: Vec<_> = checks.into_iter().filter(|check| check.check.id != "N2").collect();
        let is_sick = file.file_name().unwrap().to_string_lossy().starts_with("sick-");
        assert_eq!(blocked(&checks).is_some(), is_sick, "{}: {checks:#?}", file.display());
    }
}
