//! The command `rushmem new`, which creates a project from a template.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::Error;
use crate::print;

/// Create a project with an application, a kernel and a test
///
/// The project is a new folder with this name. It builds and runs as it is, even on a machine without a GPU.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the project: letters, digits, `-` and `_`
    name: String,
    /// Folder of the Rushmem repository that the project uses [default: the one that this command was built from]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

/// Paths and contents of the project template. It describes a project `my-app` next to a repository `rushmem`.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../project/app.toml")),
    ("build.rs", include_str!("../project/build.rs")),
    ("src/main.rs", include_str!("../project/main.rs")),
    ("src/kernels.rs", include_str!("../project/kernels.rs")),
    ("README.md", include_str!("../project/README.md")),
];

/// Names that have a special meaning to Cargo or Rust.
const RESERVED: [&str; 62] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "union",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "main",
];

pub(crate) fn execute(args: &Args) -> Result<ExitCode, Error> {
    let name = &args.name;
    check_name(name).map_err(|why| {
        Error::Usage(format!("cannot name a project `{name}`: {why}; take a name such as my-app"))
    })?;
    let repository = repository(args.path.as_deref())?;
    let folder = Path::new(name);
    claim(folder)?;
    for (path, template) in FILES {
        write(&folder.join(path), &fill_in(template, name, &repository))?;
    }
    write(&folder.join(".gitignore"), "/target\n")?;
    // Use the same versions of dependencies as the repository: they have probably been downloaded already.
    if let Ok(lock) = fs::read_to_string(Path::new(&repository).join("Cargo.lock")) {
        write(&folder.join("Cargo.lock"), &lock)?;
    }
    print(&format!(
        "created the project {name}, which uses the Rushmem repository {repository}\n\n\
         cd {name}\n\
         cargo test\n\
         RUSHMEM_PES=4 cargo run    # PEs as threads\n\
         {} run -n 4 target/debug/{name}    # PEs as processes\n",
        this_command()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of this command, which may not be in `PATH`.
fn this_command() -> String {
    env::current_exe().map_or_else(|_| "rushmem".into(), |path| path.display().to_string())
}

/// Checks that `name` can name a project. Otherwise returns why not.
fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.contains(['/', '\\']) {
        return Err("the project is a folder in the current one, so it needs a name without path".into());
    }
    if let Some(other) = name.chars().find(|&c| !allowed(c)) {
        return Err(format!("{other:?} is not a letter, digit, `-` or `_`"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("it does not begin with a letter".into());
    }
    if name.len() > 64 {
        return Err(format!("it has {} characters, and cargo accepts at most 64", name.len()));
    }
    let crate_name = name.replace('-', "_");
    if crate_name == "rushmem" || crate_name.starts_with("rushmem_") {
        return Err("it would hide a crate of Rushmem".into());
    }
    if RESERVED.contains(&&*crate_name) {
        return Err("the word has another meaning in Rust or cargo".into());
    }
    Ok(())
}

/// Returns the absolute path of the Rushmem repository.
fn repository(chosen: Option<&Path>) -> Result<String, Error> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = chosen.unwrap_or(&built_from);
    let is_repository = |path: &Path| {
        let manifest = fs::read_to_string(path.join("host/Cargo.toml")).unwrap_or_default();
        manifest.contains("name = \"rushmem\"") && path.join("ptx/Cargo.toml").is_file()
    };
    let absolute = path.canonicalize().ok().filter(|path| is_repository(path));
    let Some(absolute) = absolute else {
        return Err(match chosen {
            Some(_) => Error::Usage(format!(
                "--path {}: no Rushmem repository is there; name the folder that has host/Cargo.toml",
                path.display()
            )),
            None => Error::Environment(format!(
                "the Rushmem repository that this command was built from is not at {} any more; clone it and name it \
                 with --path DIR",
                path.display()
            )),
        });
    };
    let path = absolute.into_os_string().into_string();
    path.map_err(|path| Error::Usage(format!("{}: the path is not UTF-8, as cargo needs it", path.display())))
}

/// Creates the folder of the project. An existing folder must be empty.
fn claim(folder: &Path) -> Result<(), Error> {
    let name = folder.display();
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::Usage(format!(
                "the folder {name} exists and is not empty; take another name, or remove the folder"
            ))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => create(folder),
        Err(error) => Err(Error::Usage(format!(
            "{name} exists and is not a readable folder ({error}); take another name"
        ))),
    }
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| {
        Error::Environment(format!("cannot create the folder {}: {error}", folder.display()))
    })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    path.parent().map_or(Ok(()), create)?;
    fs::write(path, text)
        .map_err(|error| Error::Environment(format!("cannot write {}: {error}", path.display())))
}

/// Replaces the name `my-app` and the path `../rushmem` in a template.
fn fill_in(template: &str, name: &str, repository: &str) -> String {
    let quoted = format!("{repository:?}");
    let repository = &quoted[1..quoted.len() - 1];
    template.replace("my-app", name).replace("../rushmem/", &format!("{repository}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_of_packages() {
        for name in ["my-app", "a", "x1_y", "Mixed", "panics"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn rejects_other_names_with_the_reason() {
        for (name, why) in [
            ("", "does not begin with a letter"),
            ("1st", "does not begin with a letter"),
            ("-x", "does not begin with a letter"),
            ("a b", "' ' is not a letter"),
            ("caf\u{e9}", "'\u{e9}' is not a letter"),
            ("a/b", "name without path"),
            ("..", "'.' is not a letter"),
            ("fn", "another meaning"),
            ("proc-macro", "another meaning"),
            ("rushmem-device", "a crate of Rushmem"),
            (&"x".repeat(65), "65 characters"),
        ] {
            let error = check_name(name).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn fills_in_names_and_paths() {
        let filled = fill_in("my-app \"../rushmem/host\"", "two-words", "/a \"b\"");
        assert_eq!(filled, r#"two-words "/a \"b\"/host""#);
    }
}
