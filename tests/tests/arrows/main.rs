//! Tests of the repository's structure: dependencies between crates and modules, file lengths, commands in the README.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use rushmem_tests::repository::{self, root};
use serde_json::Value;

use modules::Graph;

/// The workspace crates that each crate may have as normal dependencies.
const ARROWS: &[(&str, &[&str])] = &[
    ("rushmem-mlx5", &[]),
    ("rushmem-macros", &[]),
    ("rushmem-device", &["rushmem-mlx5", "rushmem-macros"]),
    ("rushmem-softnic", &["rushmem-mlx5"]),
    ("rushmem-softnic-pci", &["rushmem-mlx5", "rushmem-softnic"]),
    ("rushmem-uverbs", &["rushmem-mlx5", "rushmem-softnic"]),
    ("rushmem-uverbs-preload", &["rushmem-uverbs"]),
    ("rushmem-runtime-kernels", &["rushmem-device"]),
    ("rushmem-base", &[]),
    ("rushmem-config", &["rushmem-device"]),
    ("rushmem-native", &["rushmem-base", "rushmem-device"]),
    ("rushmem-sanitizer", &[]),
    ("rushmem-trace", &["rushmem-base"]),
    ("rushmem-bootstrap", &["rushmem-base", "rushmem-config"]),
    ("rushmem-service", &["rushmem-device", "rushmem-mlx5"]),
    ("rushmem-cuda", &["rushmem-base", "rushmem-service", "rushmem-softnic"]),
    (
        "rushmem-error",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-cuda",
            "rushmem-device",
            "rushmem-mlx5",
            "rushmem-native",
            "rushmem-sanitizer",
            "rushmem-softnic",
            "rushmem-trace",
        ],
    ),
    (
        "rushmem-observe",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-device",
            "rushmem-error",
            "rushmem-native",
            "rushmem-sanitizer",
            "rushmem-softnic",
            "rushmem-trace",
        ],
    ),
    (
        "rushmem-machine",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-cuda",
            "rushmem-device",
            "rushmem-error",
            "rushmem-native",
            "rushmem-observe",
            "rushmem-softnic",
            "rushmem-trace",
        ],
    ),
    (
        "rushmem-fabric",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-cuda",
            "rushmem-device",
            "rushmem-error",
            "rushmem-machine",
            "rushmem-mlx5",
            "rushmem-native",
            "rushmem-observe",
            "rushmem-runtime-kernels",
            "rushmem-softnic",
        ],
    ),
    (
        "rushmem-memory",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-device",
            "rushmem-error",
            "rushmem-fabric",
            "rushmem-machine",
            "rushmem-native",
            "rushmem-observe",
        ],
    ),
    ("rushmem-storage", &["rushmem-config", "rushmem-cuda", "rushmem-error", "rushmem-machine"]),
    (
        "rushmem",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-cuda",
            "rushmem-device",
            "rushmem-error",
            "rushmem-fabric",
            "rushmem-machine",
            "rushmem-memory",
            "rushmem-native",
            "rushmem-observe",
            "rushmem-runtime-kernels",
            "rushmem-sanitizer",
            "rushmem-softnic",
            "rushmem-storage",
            "rushmem-trace",
        ],
    ),
    ("rushmem-doctor", &["rushmem", "rushmem-device", "rushmem-mlx5"]),
    (
        "rushmem-cli",
        &[
            "rushmem",
            "rushmem-base",
            "rushmem-device",
            "rushmem-doctor",
            "rushmem-mlx5",
            "rushmem-softnic",
            "rushmem-softnic-pci",
            "rushmem-trace",
            "rushmem-uverbs",
            "rushmem-uverbs-preload",
            "rushmem-bench-kernels",
        ],
    ),
    ("rushmem-ptx", &[]),
    ("rushmem-corpus", &[]),
    ("rushmem-example-kernels", &["rushmem-device"]),
    ("rushmem-examples", &["rushmem", "rushmem-device", "rushmem-example-kernels"]),
    ("rushmem-test-kernels", &["rushmem-device"]),
    ("rushmem-litmus-kernels", &["rushmem-device"]),
    ("rushmem-bench-kernels", &["rushmem-device"]),
    ("rushmem-ep-kernels", &["rushmem-device"]),
    ("rushmem-ep", &["rushmem", "rushmem-device", "rushmem-ep-kernels"]),
    ("rushmem-c", &["rushmem", "rushmem-base", "rushmem-device", "rushmem-error"]),
    ("rushmem-device-c", &["rushmem-device", "rushmem-macros"]),
    ("rushmem-python", &["rushmem", "rushmem-base", "rushmem-device", "rushmem-error"]),
];

/// Crates that may depend on all other crates, and that no crate depends on.
const TOP_CRATES: &[&str] =
    &["rushmem-tests", "rushmem-litmus", "rushmem-sanitizer-suite", "rushmem-gpunetio"];

/// Crates whose external dependencies are restricted, with the ones that they may have.
const RESTRICTED: &[(&str, &[&str])] = &[
    ("rushmem-mlx5", &["bytemuck"]),
    ("rushmem-device", &["bytemuck"]),
    ("rushmem-macros", &["proc-macro2", "quote", "syn"]),
    ("rushmem-base", &[]),
    ("rushmem-config", &["serde", "sha2", "strsim", "thiserror", "toml"]),
    ("rushmem-native", &["corosensei", "libc", "thiserror", "tracing"]),
    ("rushmem-sanitizer", &["postcard", "serde"]),
    ("rushmem-trace", &["serde", "serde_json"]),
    ("rushmem-cuda", &["cudarc", "libc", "libloading", "serde", "thiserror", "tracing"]),
    ("rushmem-runtime-kernels", &[]),
    ("rushmem-service", &[]),
    ("rushmem-example-kernels", &[]),
    ("rushmem-test-kernels", &[]),
    ("rushmem-litmus-kernels", &[]),
    ("rushmem-bench-kernels", &[]),
    ("rushmem-ep-kernels", &[]),
    ("rushmem-ep", &["clap", "thiserror"]),
    ("rushmem-c", &[]),
    ("rushmem-device-c", &[]),
    ("rushmem-python", &["pyo3"]),
];

/// Maximum number of code lines, without comments, in a source file.
const MAX_LINES: usize = 800;

#[derive(Debug)]
struct Arrow {
    from: String,
    to: String,
    /// Kind of the dependency: `normal`, `dev` or `build`.
    kind: String,
    inside: bool,
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the crates of the workspace and the dependencies between them.
fn arrows() -> (BTreeSet<String>, Vec<Arrow>) {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let members: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let mut arrows = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = text(&dependency["name"]);
            arrows.push(Arrow {
                from: text(&package["name"]),
                inside: members.contains(&to),
                to,
                kind: dependency["kind"].as_str().unwrap_or("normal").into(),
            });
        }
    }
    (members, arrows)
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let (members, arrows) = arrows();
    let known: BTreeSet<String> =
        ARROWS.iter().map(|(name, _)| *name).chain(TOP_CRATES.iter().copied()).map(Into::into).collect();
    assert_eq!(members, known, "the lists of crates in this file are not those of the workspace");

    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|a| a.inside && a.kind == "normal") {
        assert!(!TOP_CRATES.contains(&arrow.to.as_str()), "{arrow:?}");
        found.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    for (name, allowed) in ARROWS {
        let used = found.remove(name).unwrap_or_default();
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{name} uses {used:?} and may use only {allowed:?}");
    }
}

#[test]
fn ptx_builder_is_a_build_dependency_only() {
    let (_, arrows) = arrows();
    let inside_builds = arrows.iter().filter(|a| a.inside && a.kind == "build");
    for arrow in inside_builds.clone() {
        assert_eq!(arrow.to, "rushmem-ptx", "{arrow:?}");
    }
    assert!(inside_builds.count() > 0, "the examples must build PTX");
    assert!(!arrows.iter().any(|a| a.to == "rushmem-ptx" && a.kind != "build"));
}

/// Includes dependencies of tests: one crate encodes and the other decodes, so neither may hide the other's mistakes.
#[test]
fn device_and_softnic_are_independent() {
    let (_, arrows) = arrows();
    for (from, to) in [("rushmem-device", "rushmem-softnic"), ("rushmem-softnic", "rushmem-device")] {
        assert!(!arrows.iter().any(|a| a.from == from && a.to == to), "{from} uses {to}");
    }
    for low in ["rushmem-mlx5", "rushmem-macros", "rushmem-device", "rushmem-softnic", "rushmem-uverbs"] {
        assert!(!arrows.iter().any(|a| a.from == low && a.to == "rushmem"), "{low} uses the runtime");
    }
}

#[test]
fn restricted_crates_have_no_other_dependencies() {
    let (_, arrows) = arrows();
    for (name, allowed) in RESTRICTED {
        for arrow in arrows.iter().filter(|a| a.from == *name && !a.inside && a.kind == "normal") {
            assert!(allowed.contains(&arrow.to.as_str()), "{arrow:?}");
        }
    }
}

/// Returns the source folders of all libraries and programs that may have modules, relative to the root.
fn source_folders() -> BTreeSet<String> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
    let is_program = |target: &&Value| {
        ["lib", "bin", "proc-macro", "cdylib"].iter().any(|kind| target["kind"][0] == *kind)
    };
    let folder = |target: &Value| {
        let file = Path::new(target["src_path"].as_str().unwrap()).canonicalize().unwrap();
        let has_modules = file.ends_with("lib.rs") || file.ends_with("main.rs");
        has_modules
            .then(|| file.parent().unwrap().strip_prefix(root()).unwrap().to_string_lossy().into_owned())
    };
    targets.filter(is_program).filter_map(folder).collect()
}

#[test]
fn modules_have_no_dependency_cycles() {
    let (mut report, files) = (String::new(), repository::files(&["rs"]));
    for folder in source_folders() {
        let graph = Graph::read(&folder, &files);
        for circle in graph.circles() {
            report += &format!("in {folder}:\n{}", graph.explain(&circle));
        }
    }
    assert!(report.is_empty(), "modules use each other\n{report}");
}

/// Source folders whose module layers are shown in docs/architecture.md.
const SHOWN: [&str; 3] = ["device/src", "softnic/src", "host/src"];

const LAYERS: &str = "docs/architecture.md";

/// The page can be updated with `UPDATE_DOCS=1 cargo test -p rushmem-tests --test arrows`.
#[test]
fn architecture_page_shows_the_layers() {
    let (mut shown, files) = (String::new(), repository::files(&["rs"]));
    for folder in SHOWN {
        shown += &format!("`{folder}`, from the lowest layer:\n\n");
        for (i, layer) in Graph::read(folder, &files).layers().iter().enumerate() {
            let names: Vec<String> = layer.iter().map(|name| format!("`{name}`")).collect();
            shown += &format!("{}. {}\n", i + 1, names.join(", "));
        }
        shown += "\n";
    }
    let page = repository::read(LAYERS);
    let (before, rest) = page.split_once("<!-- layers -->\n\n").expect("the page has a place for the layers");
    let (_, after) = rest.split_once("<!-- end of layers -->").expect("the place has an end");
    let wanted = format!("{before}<!-- layers -->\n\n{shown}<!-- end of layers -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(LAYERS), &wanted).unwrap();
    }
    assert!(wanted == page, "{LAYERS} is out of date; update it as the comment above this test says");
}

#[test]
fn source_files_are_short() {
    let files = repository::files(&["rs", "c"]);
    assert!(files.len() > 50, "found {} files only", files.len());
    for file in files {
        let lines = repository::read(&file).lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", file.display());
    }
}

#[test]
fn quick_start_is_two_commands() {
    let readme = repository::read("README.md");
    let (_, section) =
        readme.split_once("\n## Quick start\n").expect("README.md has a section `Quick start`");
    let block = section.trim_start().strip_prefix("```sh\n").expect("it begins with a block of `sh`");
    let (block, _) = block.split_once("\n```").unwrap();
    let commands: Vec<&str> = block.lines().collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert!(commands[0].contains("stencil") && commands[0].contains("-n 4"), "{}", commands[0]);
    assert!(commands[1].starts_with("cargo test"), "{}", commands[1]);
    for word in commands[0].split_whitespace().filter(|word| word.ends_with(".png") && word.contains('/')) {
        assert!(root().join(word).is_file(), "{word} is not there");
    }
}

/// Returns the lines of a source file that contain code rather than comments only.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).collect()
}

#[test]
fn readme_shows_the_hello_example() {
    let readme = repository::read("README.md");
    let mut blocks = readme.split("\n```rust\n").skip(1);
    for file in ["examples/kernels/src/hello.rs", "examples/src/bin/hello.rs"] {
        let block = blocks.next().expect("README.md shows a kernel and its host side");
        let (shown, _) = block.split_once("\n```").expect("the block ends");
        assert_eq!(code(shown), code(&repository::read(file)), "{file}");
    }
}
