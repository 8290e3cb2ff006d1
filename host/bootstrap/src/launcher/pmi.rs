//! PMI-1 and PMI-2, the protocols of MPICH's `mpiexec` (Hydra) and of Slurm's `srun --mpi=pmi2`.
//!
//! The launcher opens a socket for each process and passes it as descriptor `PMI_FD`. A session starts with a line in
//! which both sides agree on the version. In version 1, each later message is also a line, of `key=value` pairs. In
//! version 2, it is a six-character length, followed by pairs of the form `key=value;`.
//!
//! PE 0 puts the ID into the launcher's key-value space, and the others get it after a barrier. Then the session is
//! finalized. A process can have only one.
#![allow(unsafe_code, reason = "borrows a file descriptor of the launcher")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{ID_KEY, PePosition};
use crate::error::Error;
use crate::id::UniqueId;

/// Longest accepted message, in bytes.
const MESSAGE_LIMIT: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Position of this process and connection to its launcher, from the environment variables that PMI defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pmi {
    pub(crate) version: Version,
    pub(crate) fd: RawFd,
    pub(crate) pe: u32,
    pub(crate) n_pes: u32,
    /// The launcher's name of the job. Some launchers require it in PMI-2.
    pub(crate) job: Option<String>,
}

impl Pmi {
    /// Returns the position of this process, and the ID that PE 0 creates with `make`. Collective.
    pub(crate) fn exchange_id(
        &self,
        within: Duration,
        make: impl FnOnce() -> Result<UniqueId, Error>,
    ) -> Result<(PePosition, UniqueId), Error> {
        let stream = self.stream().and_then(|stream| {
            stream.set_read_timeout(Some(within))?;
            stream.set_write_timeout(Some(within))?;
            Ok(stream)
        });
        let broken = |error: std::io::Error| fail(format!("PMI_FD={}: {error}", self.fd));
        let conversation = Conversation { stream: stream.map_err(broken)?, version: self.version, within };
        self.converse(conversation, make)
    }

    fn stream(&self) -> std::io::Result<UnixStream> {
        // SAFETY: the launcher opened this descriptor for this process. It is borrowed only to duplicate it; if it is
        // closed, `try_clone_to_owned` fails.
        let theirs = unsafe { BorrowedFd::borrow_raw(self.fd) };
        Ok(theirs.try_clone_to_owned()?.into())
    }

    fn converse(
        &self,
        mut conversation: Conversation<impl Read + Write>,
        make: impl FnOnce() -> Result<UniqueId, Error>,
    ) -> Result<(PePosition, UniqueId), Error> {
        let space = conversation.begin(self)?;
        let id = if self.pe == 0 {
            let id = make()?;
            conversation.put(&space, &id.to_hex())?;
            conversation.barrier()?;
            id
        } else {
            conversation.barrier()?;
            UniqueId::from_hex(&conversation.get(&space)?)?
        };
        conversation.end()?;
        Ok((PePosition { pe: self.pe, n_pes: self.n_pes, local: None }, id))
    }
}

fn fail(why: String) -> Error {
    Error::Exchange { by: "the launcher's process-management interface (PMI)".into(), why }
}

/// The exchange of PMI messages between this process and its launcher.
struct Conversation<S> {
    stream: S,
    version: Version,
    within: Duration,
}

impl<S: Read + Write> Conversation<S> {
    /// Agrees with the launcher on the PMI version and, in PMI-2, on rank and size. Returns the name of the key-value
    /// space, which only PMI-1 needs.
    fn begin(&mut self, pmi: &Pmi) -> Result<String, Error> {
        let (version, subversion) = match self.version {
            Version::One => (1, 1),
            Version::Two => (2, 0),
        };
        // This first message is a line in both versions.
        self.write(format!("cmd=init pmi_version={version} pmi_subversion={subversion}\n").as_bytes())?;
        let answer = Answer::of_line(self.read_line()?);
        answer.expect("response_to_init")?;
        if answer.number("pmi_version")? != version {
            let why = format!("the launcher does not speak version {version}: {}", answer.text);
            return Err(fail(why));
        }
        match self.version {
            // In PMI-1, the name of the key-value space is needed for put and get.
            Version::One => {
                let answer = self.ask("cmd=get_my_kvsname\n")?;
                answer.expect("my_kvsname")?;
                answer.value("kvsname").map(str::to_owned)
            }
            Version::Two => {
                // The reply tells rank and size again. A mismatch means that the variables belong to another launcher.
                let job = pmi.job.as_ref().map(|job| format!("pmijobid={job};")).unwrap_or_default();
                let answer = self.ask(&format!("cmd=fullinit;{job}pmirank={};threaded=FALSE;", pmi.pe))?;
                answer.expect("fullinit-response")?;
                let reported = (answer.number("rank")?, answer.number("size")?);
                if reported != (pmi.pe, pmi.n_pes) {
                    let why = format!(
                        "PMI_RANK={} and PMI_SIZE={}, but the launcher replies {} and {}",
                        pmi.pe, pmi.n_pes, reported.0, reported.1
                    );
                    return Err(fail(why));
                }
                Ok(String::new())
            }
        }
    }

    fn put(&mut self, space: &str, value: &str) -> Result<(), Error> {
        match self.version {
            Version::One => self
                .ask(&format!("cmd=put kvsname={space} key={ID_KEY} value={value}\n"))?
                .expect("put_result"),
            Version::Two => {
                self.ask(&format!("cmd=kvs-put;key={ID_KEY};value={value};"))?.expect("kvs-put-response")
            }
        }
    }

    fn barrier(&mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.ask("cmd=barrier_in\n")?.expect("barrier_out"),
            Version::Two => self.ask("cmd=kvs-fence;")?.expect("kvs-fence-response"),
        }
    }

    fn get(&mut self, space: &str) -> Result<String, Error> {
        let answer = match self.version {
            Version::One => {
                let answer = self.ask(&format!("cmd=get kvsname={space} key={ID_KEY}\n"))?;
                answer.expect("get_result")?;
                answer
            }
            Version::Two => {
                let answer = self.ask(&format!("cmd=kvs-get;jobid=;srcid=-1;key={ID_KEY};"))?;
                answer.expect("kvs-get-response")?;
                answer
            }
        };
        answer.value("value").map(str::to_owned)
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.ask("cmd=finalize\n")?.expect("finalize_ack"),
            Version::Two => self.ask("cmd=finalize;")?.expect("finalize-response"),
        }
    }

    fn ask(&mut self, question: &str) -> Result<Answer, Error> {
        match self.version {
            Version::One => {
                self.write(question.as_bytes())?;
                self.read_line().map(Answer::of_line)
            }
            Version::Two => {
                // The length is padded with spaces to six characters.
                self.write(format!("{:<6}{question}", question.len()).as_bytes())?;
                self.read_frame().map(Answer::of_frame)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(|error| self.broken(&error))
    }

    /// Reads a line byte by byte, since a buffered read could consume bytes of the next message. Lines are short and
    /// few.
    fn read_line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        loop {
            match self.read_exact(1)?[0] {
                b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
                _ if line.len() >= MESSAGE_LIMIT => {
                    return Err(fail("the launcher's line is too long".into()));
                }
                byte => line.push(byte),
            }
        }
    }

    fn read_frame(&mut self) -> Result<String, Error> {
        let length = self.read_exact(6)?;
        let length =
            String::from_utf8_lossy(&length).trim().parse::<usize>().ok().filter(|n| *n <= MESSAGE_LIMIT);
        let length = length.ok_or_else(|| fail("the launcher's message has no valid length".into()))?;
        self.read_exact(length).map(|body| String::from_utf8_lossy(&body).into_owned())
    }

    fn read_exact(&mut self, n: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes).map_err(|error| self.broken(&error))?;
        Ok(bytes)
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => fail(format!(
                "the launcher gave no answer within {:?}: check that all processes have started, or raise \
                 bootstrap_timeout",
                self.within
            )),
            ErrorKind::UnexpectedEof => fail("the launcher closed the connection".into()),
            _ => fail(error.to_string()),
        }
    }
}

/// A reply of the launcher, split into `key=value` pairs.
struct Answer {
    text: String,
    pairs: Vec<(String, String)>,
}

impl Answer {
    fn of_line(text: String) -> Answer {
        Answer::split(text, ' ')
    }

    fn of_frame(text: String) -> Answer {
        Answer::split(text, ';')
    }

    fn split(text: String, at: char) -> Answer {
        let pair = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Answer { pairs: text.split(at).filter_map(pair).collect(), text }
    }

    fn find(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    fn value(&self, key: &str) -> Result<&str, Error> {
        self.find(key).ok_or_else(|| fail(format!("the launcher's answer has no `{key}`: {}", self.text)))
    }

    fn number(&self, key: &str) -> Result<u32, Error> {
        let value = self.value(key)?;
        value.parse().map_err(|_| fail(format!("`{key}` is not a number: {}", self.text)))
    }

    /// Checks that this is the reply to `command`, and that it reports success.
    fn expect(&self, command: &str) -> Result<(), Error> {
        let right = self.find("cmd") == Some(command);
        // PMI-1 reports failures by `rc`. PMI-2 also answers a get of an unknown key by `flag=FALSE`.
        match right && self.find("rc").is_none_or(|rc| rc == "0") && self.find("flag") != Some("FALSE") {
            true => Ok(()),
            false => {
                Err(fail(format!("the launcher did not answer `{command}` with success: {}", self.text)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::thread;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(20);

    fn id() -> UniqueId {
        UniqueId::at("10.0.0.7:4000".parse().unwrap()).unwrap()
    }

    /// Runs PE `pe` of two against a launcher that gives these replies. Returns the outcome, and what the PE asked.
    fn converse_with(
        version: Version,
        pe: u32,
        answers: &[&str],
    ) -> (Result<(PePosition, UniqueId), Error>, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).into()).collect();
        let launcher = thread::spawn(move || {
            let mut from = BufReader::new(theirs.try_clone().unwrap());
            let mut asked = Vec::new();
            for answer in answers {
                let mut question = String::new();
                if version == Version::One || asked.is_empty() {
                    from.read_line(&mut question).unwrap();
                    writeln!(&theirs, "{answer}").unwrap();
                } else {
                    let mut length = [0; 6];
                    from.read_exact(&mut length).unwrap();
                    let n = String::from_utf8_lossy(&length).trim().parse::<u64>().unwrap();
                    from.by_ref().take(n).read_to_string(&mut question).unwrap();
                    write!(&theirs, "{:6}{answer}", answer.len()).unwrap();
                }
                asked.push(question.trim().to_owned());
            }
            // Keep the socket open until the other side has read everything.
            let mut rest = String::new();
            let _ = from.read_to_string(&mut rest);
            asked
        });
        let conversation = Conversation { stream: ours, version, within: Duration::from_millis(300) };
        let job = Some("7.0".to_owned());
        let outcome = Pmi { version, fd: -1, pe, n_pes: 2, job }.converse(conversation, || Ok(id()));
        (outcome, launcher.join().unwrap())
    }

    /// Makes a launcher send `bytes` to either PE of a job, in both versions of the protocol.
    fn converse_with_bytes(bytes: &[u8]) {
        for (version, pe) in [(Version::One, 0), (Version::One, 1), (Version::Two, 0), (Version::Two, 1)] {
            let (ours, mut launcher) = UnixStream::pair().unwrap();
            launcher.write_all(bytes).unwrap();
            launcher.shutdown(std::net::Shutdown::Write).unwrap();
            let conversation = Conversation { stream: ours, version, within: TEST_TIMEOUT };
            // Any outcome is fine, as long as it does not panic.
            let _ = Pmi { version, fd: -1, pe, n_pes: 2, job: Some("7.0".into()) }
                .converse(conversation, || Ok(id()));
        }
    }

    #[test]
    fn fuzz_corpus() {
        let value = "ab".repeat(UniqueId::BYTES);
        let one = format!(
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname kvsname=kvs_7_0\n\
             cmd=barrier_out\ncmd=get_result rc=0 msg=success value={value}\ncmd=finalize_ack\n"
        );
        let framed = |text: &str| format!("{:6}{text}", text.len());
        let two = [
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n".to_owned(),
            framed("cmd=fullinit-response;pmi-version=2;rank=1;size=2;appnum=0;rc=0;"),
            framed("cmd=kvs-fence-response;rc=0;"),
            framed(&format!("cmd=kvs-get-response;found=TRUE;value={value};rc=0;")),
            framed("cmd=finalize-response;rc=0;"),
        ];
        rushmem_corpus::target!("..", "pmi").messages([one, two.concat()]).run(2000, converse_with_bytes);
    }

    #[test]
    fn pe_0_publishes_the_id_with_pmi_1() {
        let ok = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
        let name = "cmd=my_kvsname kvsname=kvs_7_0";
        let answers = [ok, name, "cmd=put_result rc=0 msg=success", "cmd=barrier_out", "cmd=finalize_ack"];
        let (outcome, asked) = converse_with(Version::One, 0, &answers);
        let (position, made) = outcome.unwrap();
        assert_eq!(position, PePosition { pe: 0, n_pes: 2, local: None });
        let put = format!("cmd=put kvsname=kvs_7_0 key=rushmem-id value={}", made.to_hex());
        let wanted = [
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_my_kvsname",
            &put,
            "cmd=barrier_in",
            "cmd=finalize",
        ];
        assert_eq!(asked, wanted);

        let got = format!("cmd=get_result rc=0 msg=success value={}", made.to_hex());
        let (outcome, _) =
            converse_with(Version::One, 1, &[ok, name, "cmd=barrier_out", &got, "cmd=finalize_ack"]);
        assert_eq!(outcome.unwrap().1, made);
    }

    #[test]
    fn pe_0_publishes_the_id_with_pmi_2() {
        let ok = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0";
        let full =
            |rank: u32| format!("cmd=fullinit-response;rc=0;pmi-version=2;rank={rank};size=2;appnum=0;");
        let end = "cmd=finalize-response;rc=0;";
        let fence = "cmd=kvs-fence-response;rc=0;";
        let (outcome, asked) =
            converse_with(Version::Two, 0, &[ok, &full(0), "cmd=kvs-put-response;rc=0;", fence, end]);
        let made = outcome.unwrap().1;
        let put = format!("cmd=kvs-put;key=rushmem-id;value={};", made.to_hex());
        assert_eq!(
            asked[1..],
            ["cmd=fullinit;pmijobid=7.0;pmirank=0;threaded=FALSE;", &put, "cmd=kvs-fence;", "cmd=finalize;"]
        );

        let got = format!("cmd=kvs-get-response;flag=TRUE;value={};rc=0;", made.to_hex());
        let (outcome, _) = converse_with(Version::Two, 1, &[ok, &full(1), fence, &got, end]);
        assert_eq!(outcome.unwrap().1, made);

        let (outcome, _) = converse_with(Version::Two, 1, &[ok, &full(0)]);
        let reported = outcome.unwrap_err().to_string();
        assert!(
            reported.contains("PMI_RANK=1 and PMI_SIZE=2, but the launcher replies 0 and 2"),
            "{reported}"
        );
    }

    #[test]
    fn rejects_wrong_and_missing_answers_of_the_launcher() {
        let why = |version, answers: &[&str]| converse_with(version, 1, answers).0.unwrap_err().to_string();
        let old = why(Version::Two, &["cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"]);
        assert!(old.contains("does not speak version 2"), "{old}");
        let no = why(Version::One, &["cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"]);
        assert!(no.contains("did not answer `response_to_init`"), "{no}");
        assert!(why(Version::One, &["what?"]).contains("what?"));
        assert!(why(Version::One, &[]).contains("no answer within"));
        let fd = Pmi { version: Version::One, fd: 12345, pe: 0, n_pes: 1, job: None };
        let closed = fd.exchange_id(TEST_TIMEOUT, || Ok(id())).unwrap_err().to_string();
        assert!(closed.contains("PMI_FD=12345: Bad file descriptor"), "{closed}");
    }
}
