//! What the layout promises: who may depend on whom, how long a file may be, what the README's commands are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Normal dependencies inside of the workspace, all of them; and whether others are restricted to those listed.
const ARROWS: &[(&str, &[&str])] = &[
    ("rushmem-mlx5", &[]),
    ("rushmem-macros", &[]),
    ("rushmem-device", &["rushmem-mlx5", "rushmem-macros"]),
    ("rushmem-softnic", &["rushmem-mlx5"]),
    ("rushmem-uverbs", &["rushmem-mlx5", "rushmem-softnic"]),
    ("rushmem-uverbs-preload", &["rushmem-uverbs"]),
    ("rushmem-runtime-kernels", &["rushmem-device"]),
    ("rushmem-base", &[]),
    ("rushmem-config", &["rushmem-device"]),
    ("rushmem-native", &["rushmem-base", "rushmem-device"]),
    ("rushmem-bootstrap", &["rushmem-base", "rushmem-config"]),
    ("rushmem-cuda", &["rushmem-base", "rushmem-softnic"]),
    (
        "rushmem",
        &[
            "rushmem-base",
            "rushmem-bootstrap",
            "rushmem-config",
            "rushmem-cuda",
            "rushmem-device",
            "rushmem-mlx5",
            "rushmem-native",
            "rushmem-runtime-kernels",
            "rushmem-softnic",
        ],
    ),
    ("rushmem-cli", &["rushmem", "rushmem-device", "rushmem-uverbs", "rushmem-bench-kernels"]),
    ("rushmem-ptx", &[]),
    ("rushmem-example-kernels", &["rushmem-device"]),
    ("rushmem-examples", &["rushmem", "rushmem-device", "rushmem-example-kernels"]),
    ("rushmem-test-kernels", &["rushmem-device"]),
    ("rushmem-litmus-kernels", &["rushmem-device"]),
    ("rushmem-bench-kernels", &["rushmem-device"]),
];

/// The rooms at the end of all arrows: they may use everything, and nothing uses them.
const ENDS: &[&str] = &["rushmem-tests", "rushmem-litmus", "rushmem-gpunetio"];

/// Crates that may use only these from outside of the workspace.
const FRUGAL: &[(&str, &[&str])] = &[
    ("rushmem-mlx5", &["bytemuck"]),
    ("rushmem-device", &["bytemuck"]),
    ("rushmem-macros", &["proc-macro2", "quote", "syn"]),
    ("rushmem-base", &[]),
    ("rushmem-config", &["serde", "sha2", "thiserror", "toml"]),
    ("rushmem-native", &["corosensei", "thiserror", "tracing"]),
    ("rushmem-cuda", &["cudarc", "libc", "serde", "thiserror", "tracing"]),
    ("rushmem-runtime-kernels", &[]),
    ("rushmem-example-kernels", &[]),
    ("rushmem-test-kernels", &[]),
    ("rushmem-litmus-kernels", &[]),
    ("rushmem-bench-kernels", &[]),
];

/// No file of source has more lines.
const LONGEST: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// One arrow: from a crate to one that it depends on.
#[derive(Debug)]
struct Arrow {
    from: String,
    to: String,
    /// `normal`, `dev` or `build`.
    kind: String,
    inside: bool,
}

fn arrows() -> (BTreeSet<String>, Vec<Arrow>) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
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
fn arrows_point_downwards() {
    let (members, arrows) = arrows();
    let known: BTreeSet<String> =
        ARROWS.iter().map(|(name, _)| *name).chain(ENDS.iter().copied()).map(Into::into).collect();
    assert_eq!(members, known, "a room is missing here, or has gone");

    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|a| a.inside && a.kind == "normal") {
        assert!(!ENDS.contains(&arrow.to.as_str()), "{arrow:?}");
        found.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    for (name, allowed) in ARROWS {
        let used = found.remove(name).unwrap_or_default();
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{name} uses {used:?}, of which only {allowed:?} are allowed");
    }
}

#[test]
fn the_builder_is_used_at_build_time_only() {
    let (_, arrows) = arrows();
    let inside_builds = arrows.iter().filter(|a| a.inside && a.kind == "build");
    for arrow in inside_builds.clone() {
        assert_eq!(arrow.to, "rushmem-ptx", "{arrow:?}");
    }
    assert!(inside_builds.count() > 0, "the examples have PTX");
    assert!(!arrows.iter().any(|a| a.to == "rushmem-ptx" && a.kind != "build"));
}

/// Not even in tests: one builds the bytes, the other takes them apart, and neither can hide the other's mistake.
#[test]
fn device_and_softnic_never_meet() {
    let (_, arrows) = arrows();
    for (from, to) in [("rushmem-device", "rushmem-softnic"), ("rushmem-softnic", "rushmem-device")] {
        assert!(!arrows.iter().any(|a| a.from == from && a.to == to), "{from} uses {to}");
    }
    for low in ["rushmem-mlx5", "rushmem-macros", "rushmem-device", "rushmem-softnic", "rushmem-uverbs"] {
        assert!(!arrows.iter().any(|a| a.from == low && a.to == "rushmem"), "{low} uses the runtime");
    }
}

#[test]
fn frugal_rooms_use_little() {
    let (_, arrows) = arrows();
    for (name, allowed) in FRUGAL {
        for arrow in arrows.iter().filter(|a| a.from == *name && !a.inside && a.kind == "normal") {
            assert!(allowed.contains(&arrow.to.as_str()), "{arrow:?}");
        }
    }
}

/// Every file of source in the project.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") || name.ends_with(".c") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_long() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(files.len() > 50, "the project has more files than {}", files.len());
    for file in files {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines", file.display());
    }
}

#[test]
fn the_quick_start_is_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
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

/// Lines of code, without comments.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).collect()
}

#[test]
fn the_kernel_in_the_readme_is_the_ring() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ring = fs::read_to_string(root().join("examples/kernels/src/ring.rs")).unwrap();
    let (_, rest) = readme.split_once("\n```rust\n").expect("README.md shows a kernel");
    let (shown, _) = rest.split_once("\n```").unwrap();
    assert_eq!(code(shown), code(&ring));
}
