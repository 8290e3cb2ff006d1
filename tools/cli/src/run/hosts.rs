//! The hosts of a job, from `--hosts` or `--hostfile`, and how many PEs each has.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use crate::error::Error;

/// A host, as ssh knows it, and the largest number of PEs that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    slots: u32,
}

/// Syntax of a host entry, for error messages.
const FORM: &str = "write it as HOST or HOST:PES, such as node1:8 or [fd00::1]:8";

/// Parses the value of `--hosts`.
pub(super) fn from_list(list: &str) -> Result<Vec<Host>, Error> {
    let entries = list.split(',').map(|entry| {
        parse(entry.trim()).map_err(|why| Error::Usage(format!("--hosts: `{}` {why}", entry.trim())))
    });
    check(entries.collect::<Result<_, _>>()?, "--hosts")
}

/// Reads the file named by `--hostfile`. Each line is an entry as in `--hosts`, or `HOST slots=PES`; `#` starts a
/// comment.
pub(super) fn from_file(path: &Path) -> Result<Vec<Host>, Error> {
    let place = format!("--hostfile {}", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::Environment(format!("cannot read {place}: {error}")))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let entries = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
        parse_line(line).map_err(|why| Error::Usage(format!("{place}, line {number}: `{line}` {why}")))
    });
    check(entries.collect::<Result<_, _>>()?, &place)
}

fn parse_line(line: &str) -> Result<Host, String> {
    let mut words = line.split_whitespace();
    let mut host = parse(words.next().unwrap_or_default())?;
    for word in words {
        host.slots = match word.strip_prefix("slots=") {
            Some(slots) => parse_slots(slots)?,
            None => return Err(format!("has the unknown word `{word}`; write HOST slots=PES")),
        };
    }
    Ok(host)
}

fn parse(entry: &str) -> Result<Host, String> {
    let (name, slots) = match entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, rest)) => (name, Some(rest.strip_prefix(':').ok_or(format!("is not a host; {FORM}"))?)),
        None => match entry.split_once(':') {
            Some((_, slots)) if slots.contains(':') => {
                return Err(format!("has several colons; write an IPv6 address in brackets, or {FORM}"));
            }
            Some((name, slots)) => (name, Some(slots)),
            None => (entry, None),
        },
    };
    let is_word = |c: char| c.is_ascii_graphic() && !matches!(c, '\'' | '"' | '\\' | '[' | ']' | ',');
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_word) {
        return Err(format!("has no valid host name; {FORM}"));
    }
    Ok(Host { name: name.into(), slots: slots.map_or(Ok(1), parse_slots)? })
}

fn parse_slots(slots: &str) -> Result<u32, String> {
    let parsed = slots.parse().ok().filter(|&slots| slots > 0);
    parsed.ok_or_else(|| format!("has `{slots}` as its number of PEs, which must be at least 1"))
}

/// Rejects a list without hosts, or with a host that is listed twice.
fn check(hosts: Vec<Host>, place: &str) -> Result<Vec<Host>, Error> {
    if hosts.is_empty() {
        return Err(Error::Usage(format!("{place} has no hosts")));
    }
    for (i, host) in hosts.iter().enumerate() {
        if let Some(other) = hosts[..i].iter().find(|other| other.name == host.name) {
            let Host { name, slots } = host;
            let sum = slots.saturating_add(other.slots);
            return Err(Error::Usage(format!("{place}: `{name}` is listed twice; write {name}:{sum} once")));
        }
    }
    Ok(hosts)
}

/// Distributes `n_pes` PEs over the hosts in order. Returns the hosts that get any, with their number of PEs.
pub(super) fn distribute(hosts: Vec<Host>, n_pes: u32) -> Result<Vec<(String, u32)>, Error> {
    let mut left = n_pes;
    let mut shares = Vec::new();
    let n_hosts = hosts.len();
    for Host { name, slots } in hosts {
        let count = slots.min(left);
        left -= count;
        if count > 0 {
            shares.push((name, count));
        }
    }
    match left {
        0 => Ok(shares),
        _ => Err(Error::Usage(format!(
            "{n_pes} PEs do not fit: the {n_hosts} hosts take {} (HOST alone takes one, HOST:8 takes eight)",
            n_pes - left
        ))),
    }
}

/// Returns whether a host of the list is this machine: by its name, or by its address.
pub(super) fn is_this_machine(host: &str) -> bool {
    let own = rushmem_base::host_name();
    let is_short = |full: &str, short: &str| full.split('.').next() == Some(short);
    if host == "localhost" || host == own || is_short(&own, host) || is_short(host, &own) {
        return true;
    }
    // Another user's programs are started by ssh, on this machine too.
    !host.contains('@') && addresses(host).iter().any(|&ip| is_own(ip))
}

/// Returns the addresses of a host, or none if only ssh can resolve its name.
pub(super) fn addresses(host: &str) -> Vec<IpAddr> {
    let name = host.rsplit('@').next().unwrap_or(host);
    (name, 0).to_socket_addrs().map(|all| all.map(|addr| addr.ip()).collect()).unwrap_or_default()
}

/// Returns whether an interface of this machine has the address: only those can be bound.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Vec<String>, String> {
        let hosts = from_list(text).map_err(|error| error.to_string())?;
        Ok(hosts.iter().map(Host::to_string).collect())
    }

    fn file(text: &str) -> Result<Vec<String>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let hosts = from_file(file.path()).map_err(|error| error.to_string())?;
        Ok(hosts.iter().map(Host::to_string).collect())
    }

    #[test]
    fn reads_lists_and_files() {
        assert_eq!(list("a:8, b").unwrap(), ["a:8", "b:1"]);
        assert_eq!(list("me@10.0.0.7:2,[fd00::1]:3,[::1]").unwrap(), ["me@10.0.0.7:2", "fd00::1:3", "::1:1"]);
        let text = "# two nodes\na slots=8  # the first\n\nb:4\nc\n";
        assert_eq!(file(text).unwrap(), ["a:8", "b:4", "c:1"]);
    }

    #[test]
    fn errors_name_the_entry() {
        for (text, words) in [
            ("a:8,,b", "`` has no valid host name"),
            ("a:8,b:x", "`b:x` has `x` as its number of PEs"),
            ("a:0", "`a:0` has `0`"),
            ("fd00::1:8", "`fd00::1:8` has several colons"),
            ("[fd00::1]8", "`[fd00::1]8` is not a host"),
            ("-oProxyCommand=x", "`-oProxyCommand=x` has no valid host name"),
            ("a b", "`a b` has no valid host name"),
            ("a:8,b,a:2", "`a` is listed twice; write a:10 once"),
        ] {
            let message = list(text).unwrap_err();
            assert!(message.contains(words), "{text}: {message}");
        }
        assert!(
            file("a\nb max=3\n")
                .unwrap_err()
                .ends_with("line 2: `b max=3` has the unknown word `max=3`; write HOST slots=PES")
        );
        assert!(file("# none\n").unwrap_err().ends_with("has no hosts"));
        assert!(from_file(Path::new("/no/such")).unwrap_err().to_string().contains("/no/such"));
    }

    #[test]
    fn fills_the_hosts_in_order() {
        let shares = |n| distribute(from_list("a:2,b:3,c").unwrap(), n);
        assert_eq!(shares(4).unwrap(), [("a".into(), 2), ("b".into(), 2)]);
        assert_eq!(shares(6).unwrap(), [("a".into(), 2), ("b".into(), 3), ("c".into(), 1)]);
        let message = shares(7).unwrap_err().to_string();
        assert!(message.starts_with("7 PEs do not fit: the 3 hosts take 6 "), "{message}");
    }

    #[test]
    fn recognizes_this_machine() {
        assert!(is_this_machine("localhost") && is_this_machine("127.0.0.1"));
        assert!(is_this_machine(&rushmem_base::host_name()));
        // Addresses for documentation belong to no machine.
        assert!(!is_this_machine("192.0.2.1") && !is_this_machine("me@localhost"));
        assert_eq!(addresses("me@192.0.2.1"), [IpAddr::from([192, 0, 2, 1])]);
    }
}
