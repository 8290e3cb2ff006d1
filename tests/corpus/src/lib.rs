//! Runs fuzz targets on stable Rust: with the inputs of a committed corpus, and with seeded mutations of these inputs.
//!
//! A corpus is the folder `fuzz/corpus/TARGET` of a crate, the same that cargo-fuzz uses. Its files are real messages,
//! which the target's test creates, and inputs that once failed. `UPDATE_CORPUS=1` writes the files of the messages.
//! `FUZZ_SEED` (a hexadecimal number) selects different mutations.
#![forbid(unsafe_code)]

mod random;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use random::Random;

const MAX_INPUT_BYTES: usize = 4096;

/// A fuzz target and its corpus of inputs.
pub struct FuzzTarget {
    name: String,
    folder: PathBuf,
    messages: Vec<(String, Vec<u8>)>,
}

/// Returns the fuzz target with this name. Its corpus is in the folder of the calling crate, or in the folder `$crates`
/// relative to it.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::target!(".", $name)
    };
    ($crates:literal, $name:literal) => {
        $crate::FuzzTarget::new(concat!(env!("CARGO_MANIFEST_DIR"), "/", $crates), $name)
    };
}

impl FuzzTarget {
    /// Creates the target `name` of the crate in `folder`. See [`target!`].
    #[must_use]
    pub fn new(folder: &str, name: &str) -> FuzzTarget {
        let folder = Path::new(folder).join("fuzz/corpus").join(name);
        FuzzTarget { name: name.into(), folder, messages: Vec::new() }
    }

    /// Adds a real message to the corpus, as the file `name`.
    #[must_use]
    pub fn message(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> FuzzTarget {
        self.messages.push((name.into(), bytes.into()));
        self
    }

    /// Adds real messages to the corpus, as the files `00`, `01` and so on.
    #[must_use]
    pub fn messages<B: Into<Vec<u8>>>(self, all: impl IntoIterator<Item = B>) -> FuzzTarget {
        all.into_iter().enumerate().fold(self, |target, (i, bytes)| target.message(format!("{i:02}"), bytes))
    }

    /// Runs `target` on every file of the corpus, then on `mutations` mutated inputs.
    ///
    /// # Panics
    /// If `target` panics, or if the corpus lacks a message or differs from it.
    pub fn run(self, mutations: u64, target: impl Fn(&[u8])) {
        let corpus = self.corpus();
        for (file, input) in &corpus {
            self.check(&target, input, &format!("file {}", file.display()));
        }
        let seed = seed();
        let mut random = Random::new(seed);
        for nth in 0..mutations {
            let input = mutate(&mut random, &corpus);
            self.check(&target, &input, &format!("mutation {nth} with FUZZ_SEED={seed:x}"));
        }
    }

    fn check(&self, target: impl Fn(&[u8]), input: &[u8], origin: &str) {
        if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!(
                "fuzz target {}: {origin} fails; add these bytes to {}: {hex}",
                self.name,
                self.folder.display()
            );
        }
    }

    /// Returns the path and content of all corpus files in alphabetical order. Checks that the messages are among them.
    fn corpus(&self) -> Vec<(PathBuf, Vec<u8>)> {
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            self.update();
        }
        for (name, bytes) in &self.messages {
            let path = self.folder.join(name);
            let kept = fs::read(&path).unwrap_or_default();
            assert!(kept == *bytes, "{} differs from the message; run with UPDATE_CORPUS=1", path.display());
        }
        let files = fs::read_dir(&self.folder).expect("the corpus has a folder");
        let mut files: Vec<PathBuf> =
            files.map(|entry| entry.expect("the folder is readable").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus {} is empty", self.folder.display());
        files
            .into_iter()
            .map(|path| (path.clone(), fs::read(path).expect("a corpus file is readable")))
            .collect()
    }

    fn update(&self) {
        fs::create_dir_all(&self.folder).expect("the corpus has a folder");
        for (name, bytes) in &self.messages {
            fs::write(self.folder.join(name), bytes).expect("the corpus is writable");
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var("FUZZ_SEED").ok();
    given.map_or(0x5eed, |text| u64::from_str_radix(&text, 16).expect("FUZZ_SEED is a hexadecimal number"))
}

/// Returns a mutated copy of a random input of the corpus.
fn mutate(random: &mut Random, corpus: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
    let pick = |random: &mut Random| &corpus[random.below(corpus.len())].1;
    let mut input = pick(random).clone();
    for _ in 0..=random.below(6) {
        let len = input.len();
        let at = random.position(len);
        match random.below(10) {
            0 => input.truncate(at),
            1 => input.extend(vec![random.byte(); 1 + random.below(16)]),
            2 => drop(input.drain(at..(at + 1 + random.below(8)).min(len))),
            3 => {
                let again = input[at..(at + 1 + random.below(32)).min(len)].to_vec();
                drop(input.splice(at..at, again));
            }
            4 => {
                let other = pick(random);
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
            5 if len > 0 => input[at.min(len - 1)] ^= 1 << random.below(8),
            6 if len > 0 => input[at.min(len - 1)] = [0, 0x7f, 0x80, 0xff][random.below(4)],
            7 => input[at..(at + 4).min(len)].fill([0, 0xff][random.below(2)]),
            _ if len > 0 => input[at.min(len - 1)] = random.byte(),
            _ => input.push(random.byte()),
        }
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(folder: &Path) -> FuzzTarget {
        FuzzTarget::new(folder.to_str().unwrap(), "words").messages([b"one", b"two"])
    }

    #[test]
    fn reports_the_origin_of_a_failing_input() {
        let folder = tempfile::tempdir().unwrap();
        target(folder.path()).update();
        target(folder.path()).run(100, |_| ());
        for (bad, origin) in [(&b"two"[..], "file "), (&b""[..], "mutation ")] {
            let run = || target(folder.path()).run(10_000, |input| assert_ne!(input, bad));
            let panic = catch_unwind(run).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(text.contains("fuzz target words: ") && text.contains(origin), "{text}");
        }
    }

    #[test]
    fn rejects_a_corpus_that_lacks_a_message() {
        let folder = tempfile::tempdir().unwrap();
        target(folder.path()).update();
        let run = || target(folder.path()).message("three", b"3").run(0, |_| ());
        assert!(catch_unwind(run).is_err());
    }
}
