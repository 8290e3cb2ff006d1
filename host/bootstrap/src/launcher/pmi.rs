//! PMI-1 and PMI-2: what MPICH's `mpiexec` (Hydra) and Slurm's `srun --mpi=pmi2` speak.
//!
//! The launcher leaves a socket at the descriptor `PMI_FD`. A conversation begins with the version, as a line; from
//! then on a message is a line of `key=value` words in version 1, and in version 2 six characters of length with so
//! many bytes of `key=value;`. Each process learns its place, PE 0 puts the id into the launcher's key-value space,
//! and after a barrier the others get it. Then the conversation ends: PMI has room for one in the life of a process.
#![allow(unsafe_code, reason = "borrows a file descriptor of the launcher")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{KEY, PePosition};
use crate::error::Error;
use crate::id::UniqueId;

/// The longest message that is read.
const LIMIT: usize = 64 << 10;

/// Which protocol the launcher speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Where the launcher is, and what it said in variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pmi {
    pub(crate) version: Version,
    pub(crate) fd: RawFd,
    pub(crate) pe: u32,
    pub(crate) n_pes: u32,
    /// The launcher's name for the job, which some launchers of PMI-2 want to hear again.
    pub(crate) job: Option<String>,
}

impl Pmi {
    /// This process's place, and the id that PE 0 has made by `make`.
    pub(crate) fn meet(
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
        let talk = Talk { stream: stream.map_err(broken)?, version: self.version, within };
        self.talk(talk, make)
    }

    fn stream(&self) -> std::io::Result<UnixStream> {
        // SAFETY: the launcher has opened this descriptor for this process; one that is not open is an error of the
        // copy, which alone is kept.
        let theirs = unsafe { BorrowedFd::borrow_raw(self.fd) };
        Ok(theirs.try_clone_to_owned()?.into())
    }

    fn talk(
        &self,
        mut talk: Talk<impl Read + Write>,
        make: impl FnOnce() -> Result<UniqueId, Error>,
    ) -> Result<(PePosition, UniqueId), Error> {
        let space = talk.begin(self)?;
        let id = if self.pe == 0 {
            let id = make()?;
            talk.put(&space, &id.to_hex())?;
            talk.barrier()?;
            id
        } else {
            talk.barrier()?;
            UniqueId::from_hex(&talk.get(&space)?)?
        };
        talk.end()?;
        Ok((PePosition { pe: self.pe, n_pes: self.n_pes, local: None }, id))
    }
}

fn fail(why: String) -> Error {
    Error::Exchange { by: "the launcher's process-management interface (PMI)".into(), why }
}

/// A conversation.
struct Talk<S> {
    stream: S,
    version: Version,
    within: Duration,
}

impl<S: Read + Write> Talk<S> {
    /// Agrees on the version and checks the place. Returns the name of the key-value space, which PMI-2 has not.
    fn begin(&mut self, pmi: &Pmi) -> Result<String, Error> {
        let (version, subversion) = match self.version {
            Version::One => (1, 1),
            Version::Two => (2, 0),
        };
        // This much is a line in both versions.
        self.write(format!("cmd=init pmi_version={version} pmi_subversion={subversion}\n").as_bytes())?;
        let answer = Answer::of_line(self.line()?);
        answer.expect("response_to_init")?;
        if answer.number("pmi_version")? != version {
            let why = format!("the launcher does not speak version {version}: {}", answer.text);
            return Err(fail(why));
        }
        match self.version {
            Version::One => {
                let answer = self.ask("cmd=get_my_kvsname\n")?;
                answer.expect("my_kvsname")?;
                answer.value("kvsname").map(str::to_owned)
            }
            Version::Two => {
                let job = pmi.job.as_ref().map(|job| format!("pmijobid={job};")).unwrap_or_default();
                let answer = self.ask(&format!("cmd=fullinit;{job}pmirank={};threaded=FALSE;", pmi.pe))?;
                answer.expect("fullinit-response")?;
                let told = (answer.number("rank")?, answer.number("size")?);
                if told != (pmi.pe, pmi.n_pes) {
                    let why = format!(
                        "PMI_RANK={} and PMI_SIZE={}, but the launcher says {} and {}",
                        pmi.pe, pmi.n_pes, told.0, told.1
                    );
                    return Err(fail(why));
                }
                Ok(String::new())
            }
        }
    }

    fn put(&mut self, space: &str, value: &str) -> Result<(), Error> {
        match self.version {
            Version::One => {
                self.ask(&format!("cmd=put kvsname={space} key={KEY} value={value}\n"))?.expect("put_result")
            }
            Version::Two => {
                self.ask(&format!("cmd=kvs-put;key={KEY};value={value};"))?.expect("kvs-put-response")
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
                let answer = self.ask(&format!("cmd=get kvsname={space} key={KEY}\n"))?;
                answer.expect("get_result")?;
                answer
            }
            Version::Two => {
                let answer = self.ask(&format!("cmd=kvs-get;jobid=;srcid=-1;key={KEY};"))?;
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
                self.line().map(Answer::of_line)
            }
            Version::Two => {
                self.write(format!("{:<6}{question}", question.len()).as_bytes())?;
                self.framed().map(Answer::of_frame)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(|error| self.lost(&error))
    }

    /// Byte by byte: nothing may be read that belongs to the next message. There are few.
    fn line(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        loop {
            match self.exactly(1)?[0] {
                b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
                _ if line.len() >= LIMIT => return Err(fail("the launcher's line has no end".into())),
                byte => line.push(byte),
            }
        }
    }

    fn framed(&mut self) -> Result<String, Error> {
        let length = self.exactly(6)?;
        let length = String::from_utf8_lossy(&length).trim().parse::<usize>().ok().filter(|n| *n <= LIMIT);
        let length = length.ok_or_else(|| fail("the launcher's message has no valid length".into()))?;
        self.exactly(length).map(|body| String::from_utf8_lossy(&body).into_owned())
    }

    fn exactly(&mut self, n: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes).map_err(|error| self.lost(&error))?;
        Ok(bytes)
    }

    fn lost(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => fail(format!(
                "the launcher gave no answer within {:?}: see whether all processes have come so far, or raise \
                 bootstrap_timeout",
                self.within
            )),
            ErrorKind::UnexpectedEof => fail("the launcher closed the connection".into()),
            _ => fail(error.to_string()),
        }
    }
}

/// An answer: words of `key=value`.
struct Answer {
    text: String,
    words: Vec<(String, String)>,
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
        Answer { words: text.split(at).filter_map(pair).collect(), text }
    }

    fn find(&self, key: &str) -> Option<&str> {
        self.words.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    fn value(&self, key: &str) -> Result<&str, Error> {
        self.find(key).ok_or_else(|| fail(format!("the launcher says no `{key}`: {}", self.text)))
    }

    fn number(&self, key: &str) -> Result<u32, Error> {
        let value = self.value(key)?;
        value.parse().map_err(|_| fail(format!("`{key}` is no number: {}", self.text)))
    }

    /// Whether it answers the question, and well.
    fn expect(&self, command: &str) -> Result<(), Error> {
        let right = self.find("cmd") == Some(command);
        match right && self.find("rc").is_none_or(|rc| rc == "0") && self.find("flag") != Some("FALSE") {
            true => Ok(()),
            false => Err(fail(format!("the launcher should have answered `{command}`: {}", self.text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn id() -> UniqueId {
        UniqueId::at("10.0.0.7:4000".parse().unwrap()).unwrap()
    }

    /// What a process of a job of two gets that talks to a launcher which answers so, and what it asked.
    fn against(
        version: Version,
        pe: u32,
        answers: &[&str],
    ) -> (Result<(PePosition, UniqueId), Error>, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(SOON)).unwrap();
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
            // Open until the other side has seen all.
            let mut rest = String::new();
            let _ = from.read_to_string(&mut rest);
            asked
        });
        let talk = Talk { stream: ours, version, within: Duration::from_millis(300) };
        let job = Some("7.0".to_owned());
        let outcome = Pmi { version, fd: -1, pe, n_pes: 2, job }.talk(talk, || Ok(id()));
        (outcome, launcher.join().unwrap())
    }

    #[test]
    fn pe_0_publishes_the_id_and_another_gets_it_by_pmi_1() {
        let ok = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
        let name = "cmd=my_kvsname kvsname=kvs_7_0";
        let answers = [ok, name, "cmd=put_result rc=0 msg=success", "cmd=barrier_out", "cmd=finalize_ack"];
        let (outcome, asked) = against(Version::One, 0, &answers);
        let (place, made) = outcome.unwrap();
        assert_eq!(place, PePosition { pe: 0, n_pes: 2, local: None });
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
        let (outcome, _) = against(Version::One, 1, &[ok, name, "cmd=barrier_out", &got, "cmd=finalize_ack"]);
        assert_eq!(outcome.unwrap().1, made);
    }

    #[test]
    fn pe_0_publishes_the_id_and_another_gets_it_by_pmi_2() {
        let ok = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0";
        let full =
            |rank: u32| format!("cmd=fullinit-response;rc=0;pmi-version=2;rank={rank};size=2;appnum=0;");
        let end = "cmd=finalize-response;rc=0;";
        let fence = "cmd=kvs-fence-response;rc=0;";
        let (outcome, asked) =
            against(Version::Two, 0, &[ok, &full(0), "cmd=kvs-put-response;rc=0;", fence, end]);
        let made = outcome.unwrap().1;
        let put = format!("cmd=kvs-put;key=rushmem-id;value={};", made.to_hex());
        assert_eq!(
            asked[1..],
            ["cmd=fullinit;pmijobid=7.0;pmirank=0;threaded=FALSE;", &put, "cmd=kvs-fence;", "cmd=finalize;"]
        );

        let got = format!("cmd=kvs-get-response;flag=TRUE;value={};rc=0;", made.to_hex());
        let (outcome, _) = against(Version::Two, 1, &[ok, &full(1), fence, &got, end]);
        assert_eq!(outcome.unwrap().1, made);

        let (outcome, _) = against(Version::Two, 1, &[ok, &full(0)]);
        let told = outcome.unwrap_err().to_string();
        assert!(told.contains("PMI_RANK=1 and PMI_SIZE=2, but the launcher says 0 and 2"), "{told}");
    }

    #[test]
    fn a_launcher_that_refuses_is_silent_or_talks_nonsense_is_an_error() {
        let why = |version, answers: &[&str]| against(version, 1, answers).0.unwrap_err().to_string();
        let old = why(Version::Two, &["cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"]);
        assert!(old.contains("does not speak version 2"), "{old}");
        let no = why(Version::One, &["cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"]);
        assert!(no.contains("should have answered `response_to_init`"), "{no}");
        assert!(why(Version::One, &["what?"]).contains("what?"));
        assert!(why(Version::One, &[]).contains("no answer within"));
        let fd = Pmi { version: Version::One, fd: 12345, pe: 0, n_pes: 1, job: None };
        let closed = fd.meet(SOON, || Ok(id())).unwrap_err().to_string();
        assert!(closed.contains("PMI_FD=12345: Bad file descriptor"), "{closed}");
    }
}
