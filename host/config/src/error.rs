//! Errors of reading and checking the settings.

use std::path::PathBuf;

/// Formats a suggestion for a misspelt name, as part of a sentence. Empty without one.
fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// Why the settings were rejected. Messages name the place, the value and what is accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable with the prefix `RUSHMEM_` that nothing reads, most likely misspelt.
    #[error("unknown environment variable {name}{} (`rushmem info --all` lists all)", meant(*.nearest))]
    UnknownVariable {
        /// Name of the unknown variable.
        name: String,
        /// The known name that was most likely meant.
        nearest: Option<&'static str>,
    },
    /// An unknown key in a file, an option or the program.
    #[error("{place}: unknown setting `{key}`{} (`rushmem info --all` lists all)", meant(*.nearest))]
    UnknownKey {
        /// Where the key was found: a file's path, an option, the program.
        place: String,
        /// The unknown key, as the user wrote it.
        key: String,
        /// The known key that was most likely meant.
        nearest: Option<&'static str>,
    },
    /// A setting that only the launcher may set, found in a file, an option or the program.
    #[error("{place}: `{key}` is set by the launcher for each PE and cannot be set here; remove it")]
    LaunchOnly {
        /// Where the key was found: a file's path, an option, the program.
        place: String,
        /// Key of the setting that only the launcher may set.
        key: String,
    },
    /// A value that its setting does not accept.
    #[error("{place}: `{value}` is not valid: {why}; accepted: {accepts}")]
    Invalid {
        /// The variable, option or key that holds the value.
        place: String,
        /// The rejected value.
        value: String,
        /// Why the setting does not accept the value.
        why: String,
        /// Description of the values that the setting accepts.
        accepts: String,
    },
    /// A variable with the prefix `RUSHMEM_` whose value is not UTF-8.
    #[error("environment variable {name} is not valid UTF-8 (found {value:?}); set it to plain text")]
    NotUnicode {
        /// Name of the variable.
        name: String,
        /// Value of the variable as a quoted string, with invalid bytes escaped.
        value: String,
    },
    /// The configuration file could not be read.
    #[error("cannot read the configuration file {path} named by RUSHMEM_CONFIG: {source}")]
    Read {
        /// Path of the configuration file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The configuration file is not TOML, or contains a value that its setting does not accept.
    #[error("configuration file {path}: {message}")]
    File {
        /// Path of the configuration file.
        path: PathBuf,
        /// Line and column of the error in the file, and its cause.
        message: String,
    },
    /// Two settings contradict each other.
    #[error("{first} and {second} contradict each other: {why}")]
    Conflict {
        /// The first setting, with its value and source.
        first: String,
        /// The second setting, with its value and source.
        second: String,
        /// Why they contradict, and the remedy.
        why: String,
    },
    /// A log was already set up in this process.
    #[error("this process has a log already; call `init_log` only in programs that set up no other log")]
    LogTaken,
    /// A value that requires a feature that this build lacks.
    #[error("{setting} is not possible in this build: {needs}")]
    NotInThisBuild {
        /// The setting, with its value and source.
        setting: String,
        /// The missing feature, and the alternatives.
        needs: String,
    },
}
