//! Reads the state of a host: files, folders, links and the CUDA driver.
//!
//! Every answer is recorded, so a record can be checked on another machine.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rushmem::config::Config;
use rushmem::cuda::{self, Cuda, Device};
use rushmem::inspect;

use super::facts::job::JobFacts;
use super::facts::probes::Probes;
use super::facts::{self, Answers, Driver, Gpu, Record};

/// The state of a machine for the checks: read from this machine, or from a record.
pub struct Host {
    source: Source,
    /// Files, folders and other state that were read so far, with their contents.
    seen: RefCell<Answers>,
    /// Version and GPUs of the CUDA driver, or why there is no driver.
    pub(super) cuda: Result<Driver, String>,
    /// Whether the build that reads the state can drive ConnectX NICs.
    pub(super) drives_rdma: bool,
    pub(super) probes: OnceCell<Probes>,
    pub(super) job: OnceCell<JobFacts>,
}

enum Source {
    /// Files are read below `root`, and those of RDMA devices below `sysfs`.
    Live {
        root: PathBuf,
        sysfs: PathBuf,
    },
    Recorded(Answers),
}

/// The `errno` of a failed read from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) i32);

impl Refused {
    /// Returns whether the read failed because the file or device does not exist.
    pub(super) fn is_absent(self) -> bool {
        matches!(self.0, libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::ENODATA => write!(f, "not in the record"),
            errno => write!(f, "{}", io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Host {
    /// Returns this machine. Reading its state changes nothing.
    pub fn here() -> Host {
        let source = Source::Live { root: "/".into(), sysfs: inspect::sysfs_root() };
        Host::new(source, driver().map_err(|error| error.to_string()))
    }

    /// Returns a machine for tests whose root folder is `root`.
    #[cfg(test)]
    pub(super) fn below(root: &Path, cuda: Result<Driver, String>) -> Host {
        Host::new(Source::Live { root: root.into(), sysfs: root.join("sys") }, cuda)
    }

    /// Returns the machine that a record describes.
    pub fn of(record: Record) -> Host {
        Host {
            drives_rdma: record.drives_rdma,
            probes: record.probes.map(OnceCell::from).unwrap_or_default(),
            job: record.job.map(OnceCell::from).unwrap_or_default(),
            ..Host::new(Source::Recorded(record.answers), record.cuda)
        }
    }

    fn new(source: Source, cuda: Result<Driver, String>) -> Host {
        Host {
            source,
            seen: RefCell::default(),
            cuda,
            drives_rdma: inspect::DRIVES_RDMA,
            probes: OnceCell::new(),
            job: OnceCell::new(),
        }
    }

    /// Returns a record of everything that was read and probed so far, for jobs with these settings.
    pub fn record(&self, config: &Config) -> Record {
        Record {
            version: env!("CARGO_PKG_VERSION").into(),
            settings: facts::settings(config),
            drives_rdma: self.drives_rdma,
            cuda: self.cuda.clone(),
            answers: self.seen.borrow().clone(),
            probes: self.probes.get().cloned(),
            job: self.job.get().cloned(),
        }
    }

    /// Returns whether this is the machine itself, as opposed to a record.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.source, Source::Live { .. })
    }

    /// Returns the number of GPUs that the driver reports.
    pub(super) fn gpus(&self) -> usize {
        self.cuda.as_ref().map_or(0, |driver| driver.gpus.len())
    }

    /// Returns the contents of a file, without surrounding white space.
    pub(super) fn text(&self, path: &str) -> Result<String, Refused> {
        let lines =
            self.ask("read", path, |path| Ok(vec![std::fs::read_to_string(path)?.trim().to_owned()]))?;
        Ok(lines.into_iter().next().unwrap_or_default())
    }

    /// Parses the number in a file, which is hexadecimal if it starts with `0x`.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path).ok()?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Returns the bytes of a binary file.
    pub(super) fn bytes(&self, path: &str) -> Result<Vec<u8>, Refused> {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let lines = self.ask("bytes", path, |path| Ok(vec![hex(std::fs::read(path)?)]))?;
        let digits = lines.first().map_or(&[][..], |line| line.as_bytes());
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(byte).collect::<Option<_>>().ok_or(Refused(libc::EILSEQ))
    }

    /// Returns the names in a folder, sorted.
    pub(super) fn names(&self, path: &str) -> Result<Vec<String>, Refused> {
        self.ask("list", path, |path| {
            let name =
                |entry: io::Result<std::fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
            let mut names = std::fs::read_dir(path)?.map(name).collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names)
        })
    }

    /// Returns a path with all links followed.
    pub(super) fn follow(&self, path: &str) -> Result<PathBuf, Refused> {
        let lines =
            self.ask("follow", path, |path| Ok(vec![path.canonicalize()?.to_string_lossy().into_owned()]))?;
        Ok(lines.into_iter().next().unwrap_or_default().into())
    }

    /// Checks that this process can open a device node for reading and writing.
    pub(super) fn opens(&self, path: &str) -> Result<(), Refused> {
        let open = |path: &Path| std::fs::OpenOptions::new().read(true).write(true).open(path);
        self.ask("open", path, |path| open(path).map(|_| Vec::new())).map(drop)
    }

    fn ask(
        &self,
        operation: &str,
        path: &str,
        look: impl FnOnce(&Path) -> io::Result<Vec<String>>,
    ) -> Result<Vec<String>, Refused> {
        let question = format!("{operation} {path}");
        if let Some(answer) = self.seen.borrow().get(&question) {
            return answer.clone().map_err(Refused);
        }
        let answer = match &self.source {
            Source::Recorded(answers) => answers.get(&question).cloned().unwrap_or(Err(libc::ENODATA)),
            Source::Live { root, sysfs } => {
                // Like libibverbs, take the RDMA devices from `SYSFS_PATH` if that is set.
                let moved = path.strip_prefix("/sys/").filter(|rest| rest.starts_with("class/infiniband"));
                let real =
                    moved.map_or_else(|| root.join(path.trim_start_matches('/')), |rest| sysfs.join(rest));
                look(&real).map_err(|error| error.raw_os_error().unwrap_or(libc::EILSEQ))
            }
        };
        self.seen.borrow_mut().insert(question, answer.clone());
        answer.map_err(Refused)
    }
}

fn driver() -> Result<Driver, cuda::Error> {
    let cuda = Cuda::load()?;
    let gpu = |ordinal| {
        let attributes = Device::open(cuda, ordinal)?.attributes().clone();
        Ok(Gpu { ordinal, address: cuda.pci_address(ordinal)?, attributes })
    };
    Ok(Driver {
        version: cuda.version(),
        gpus: (0..cuda.device_count()?).map(gpu).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_host_gives_the_same_answers() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap().to_owned();
        let path = |name: &str| format!("{root}/{name}");
        std::fs::write(path("number"), "0x15b3\n").unwrap();
        std::fs::write(path("bytes"), [0, 255, 0x80]).unwrap();
        std::os::unix::fs::symlink("number", path("link")).unwrap();
        let look = |host: &Host| {
            assert_eq!(host.text(&path("number")).unwrap(), "0x15b3");
            assert_eq!(host.number(&path("number")), Some(0x15b3));
            assert_eq!(host.text(&path("bytes")), Err(Refused(libc::EILSEQ)));
            assert_eq!(host.bytes(&path("bytes")).unwrap(), [0, 255, 0x80]);
            assert_eq!(host.names(&root).unwrap(), ["bytes", "link", "number"]);
            assert!(host.follow(&path("link")).unwrap().ends_with("number"));
            assert_eq!(host.opens(&path("number")), Ok(()));
            assert!(host.text(&path("absent")).unwrap_err().is_absent());
        };
        let live = Host::here();
        look(&live);
        let text = serde_json::to_string(&live.record(&Config::default())).unwrap();
        drop(folder);
        let recorded = Host::of(serde_json::from_str(&text).unwrap());
        look(&recorded);
        assert!(live.is_live() && !recorded.is_live());
        assert_eq!(recorded.text(&path("other")), Err(Refused(libc::ENODATA)));
        assert!(!Refused(libc::ENODATA).is_absent(), "a file missing in the record may have existed");
        assert_eq!(recorded.cuda.is_ok(), live.cuda.is_ok());
    }
}
