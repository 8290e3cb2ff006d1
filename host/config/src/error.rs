//! What can be wrong with a configuration.

use std::path::PathBuf;

/// A configuration that cannot be used. Every message names the place, the value and what is accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable with our prefix that nothing reads: most often a misspelt name.
    #[error(
        "unknown environment variable {name}; the nearest known name is {nearest} (`rushmem info` lists all)"
    )]
    UnknownVariable {
        /// The variable as found.
        name: String,
        /// The known name with the smallest edit distance to it.
        nearest: &'static str,
    },
    /// A key that is no setting, in a file or given by the program.
    #[error(
        "{place}: unknown setting `{key}`; the nearest known name is `{nearest}` (`rushmem info` lists all)"
    )]
    UnknownKey {
        /// Where the key was found: a file's path, an option, the program.
        place: String,
        /// The key as found.
        key: String,
        /// The known key with the smallest edit distance to it.
        nearest: &'static str,
    },
    /// A setting that the launcher makes, found where only a user's settings may be.
    #[error("{place}: `{key}` is set by the launcher for each PE and cannot be set here; remove it")]
    LaunchOnly {
        /// Where the key was found.
        place: String,
        /// The key as found.
        key: String,
    },
    /// A value that its setting does not accept.
    #[error("{place}: `{value}` is not valid: {why}; accepted: {accepts}")]
    Invalid {
        /// The variable, option or key that holds the value.
        place: String,
        /// The value as found.
        value: String,
        /// What is wrong with it.
        why: String,
        /// What would be right.
        accepts: String,
    },
    /// An environment variable of ours whose value is not UTF-8.
    #[error("environment variable {name} is not valid UTF-8 (found {value:?}); set it to plain text")]
    NotUnicode {
        /// The variable.
        name: String,
        /// Its value, escaped.
        value: String,
    },
    /// The configuration file could not be read.
    #[error("cannot read the configuration file {path} named by RUSHMEM_CONFIG: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The configuration file is not TOML, or holds a value that its setting does not accept.
    #[error("configuration file {path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// Line, column and cause.
        message: String,
    },
    /// Two settings that cannot both hold.
    #[error("{first} and {second} contradict each other: {why}")]
    Conflict {
        /// A setting with its value and source.
        first: String,
        /// The other one.
        second: String,
        /// Why they cannot both hold, and what to do.
        why: String,
    },
    /// A second log.
    #[error(
        "the log of this process is set up already; `init_log` is for programs that set up none of their own"
    )]
    LogTaken,
    /// A value that names something this build cannot do.
    #[error("{setting} asks for what this build lacks: {needs}")]
    NotInThisBuild {
        /// The setting with its value and source.
        setting: String,
        /// What would be needed, and what to use instead.
        needs: String,
    },
}
