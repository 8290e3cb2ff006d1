//! Entry point for fuzzers of the connection manager's parsers.

use super::header::Header;
use super::mad::Mad;
use super::names::Entry;
use rushmem_softnic::MAD;

/// Parses `data` as a management datagram, as addresses, and as a line of the system's socket list. Checks that
/// whatever parses is encoded to the same message.
pub(crate) fn messages(data: &[u8]) {
    let mut bytes = [0; MAD];
    let len = data.len().min(MAD);
    bytes[..len].copy_from_slice(&data[..len]);
    if let Some(mad) = Mad::parse(&bytes) {
        assert_eq!(Mad::parse(&mad.encode()).as_ref(), Some(&mad));
    }
    if let Some(header) = Header::parse(data) {
        assert_eq!(Header::parse(&header.encode()), Some(header));
    }
    let _ = Entry::parse(&String::from_utf8_lossy(data));
}

/// Returns valid inputs of the parsers: a message of each kind, addresses, a line of the socket list.
#[cfg(test)]
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let mads =
        super::mad::tests::messages().into_iter().map(|message| Mad { tid: 7, message }.encode().to_vec());
    let header = Header { from: "10.0.0.7:7174".parse().unwrap(), to: "10.0.0.8".parse().unwrap() };
    let line = b"0: 2 0 10000 1 1 9 @rushmem-rdmacm/listen/0106/7174/::/127.64.3.9".to_vec();
    mads.chain([header.encode().to_vec(), line]).collect()
}
