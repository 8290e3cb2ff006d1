//! A job's unique id: all that a process must know to join a job, in 64 bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use super::auth::Token;
use super::error::Error;
use super::interface::listen_ip;
use super::watch::lock;
use crate::config::Config;

/// First bytes of every id, with the version of its form.
const MAGIC: [u8; 4] = *b"RSH1";

/// Who listens at the address: the process that made the id, or PE 0.
const BY_MAKER: u8 = 1;
const BY_PE_0: u8 = 2;

/// A job's unique id: where its PEs meet, and the secret by which they know each other.
///
/// One process makes it, and gives it to the others by any means: a file, a message, a variable. All join with
/// [`Job::with_id`](crate::Job::with_id). The process that made it must be one of them, as it has the socket on which
/// the others are awaited; an id [for an address](UniqueId::at) can be made by anybody, and there PE 0 listens. An id
/// is for one job. Whoever has it can join: keep it as a password. NVSHMEM: `nvshmemx_get_uniqueid`; NCCL:
/// `ncclGetUniqueId`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueId([u8; UniqueId::BYTES]);

/// The sockets of ids that this process has made, until the job begins.
static MADE: Mutex<BTreeMap<UniqueId, TcpListener>> = Mutex::new(BTreeMap::new());

/// What a process does with an id.
pub(super) enum Side {
    /// It has the job's server, at this socket.
    Serves(TcpListener),
    /// It connects.
    Joins,
}

impl UniqueId {
    /// Bytes of an id.
    pub const BYTES: usize = 64;

    /// Makes an id, and listens as the settings `bootstrap_interface`, `bootstrap_family` and `bootstrap_port` say: by
    /// default for processes of this machine only.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for wrong settings in file or environment; else as [`UniqueId::with_config`].
    pub fn new() -> Result<UniqueId, Error> {
        UniqueId::with_config(&Config::load().map_err(Box::new)?)
    }

    /// As [`UniqueId::new`], with these settings.
    ///
    /// # Errors
    ///
    /// [`Error::Interface`] for an interface that is not there, [`Error::Listen`] if the port cannot be had.
    pub fn with_config(config: &Config) -> Result<UniqueId, Error> {
        let wanted = SocketAddr::new(listen_ip(config)?, config.bootstrap_port);
        let listen = |source| Error::Listen { addr: wanted.to_string(), source };
        let listener = TcpListener::bind(wanted).map_err(listen)?;
        let id = UniqueId::make(listener.local_addr().map_err(listen)?, BY_MAKER, &Token::generate()?);
        lock(&MADE).insert(id, listener);
        Ok(id)
    }

    /// An id for a job whose PE 0 will listen at this address, wherever that is.
    ///
    /// # Errors
    ///
    /// [`Error::Random`] if the system has no random bytes.
    pub fn at(addr: SocketAddr) -> Result<UniqueId, Error> {
        Ok(UniqueId::with_token(addr, &Token::generate()?))
    }

    /// As [`UniqueId::at`], with a secret that all have already.
    pub(super) fn with_token(addr: SocketAddr, token: &Token) -> UniqueId {
        UniqueId::make(addr, BY_PE_0, token)
    }

    fn make(addr: SocketAddr, server: u8, token: &Token) -> UniqueId {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut id = [0; UniqueId::BYTES];
        id[..4].copy_from_slice(&MAGIC);
        id[8] = server;
        id[10..12].copy_from_slice(&addr.port().to_be_bytes());
        id[12..28].copy_from_slice(&ip.octets());
        id[28..32].copy_from_slice(&this_machine());
        id[32..].copy_from_slice(token.bytes());
        let sum = checksum(&id);
        id[4..8].copy_from_slice(&sum);
        UniqueId(id)
    }

    /// The id as bytes, for a message or a file.
    pub fn to_bytes(&self) -> [u8; UniqueId::BYTES] {
        self.0
    }

    /// Reads what [`UniqueId::to_bytes`] gave.
    ///
    /// # Errors
    ///
    /// [`Error::Id`] if that is no id, or one that was changed on its way.
    pub fn from_bytes(bytes: &[u8]) -> Result<UniqueId, Error> {
        let wrong = |why: &str| Error::Id { why: why.into() };
        let id: [u8; UniqueId::BYTES] = bytes.try_into().map_err(|_| wrong("it has not 64 bytes"))?;
        match id {
            _ if id[..4] != MAGIC => Err(wrong("it does not begin as one of this version")),
            _ if id[4..8] != checksum(&id) => Err(wrong("its checksum is wrong: it was changed on its way")),
            _ if !matches!(id[8], BY_MAKER | BY_PE_0) => Err(wrong("nobody listens for it")),
            _ => Ok(UniqueId(id)),
        }
    }

    /// The id as 128 hexadecimal digits, for a variable or a file. It holds the secret: write it to no log.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`UniqueId::to_hex`] gave; white space around it is left out.
    ///
    /// # Errors
    ///
    /// As [`UniqueId::from_bytes`].
    pub fn from_hex(text: &str) -> Result<UniqueId, Error> {
        let digit = |d: &u8| char::from(*d).to_digit(16).map(|d| d as u8);
        let digits: Option<Vec<u8>> = text.trim().as_bytes().iter().map(digit).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * UniqueId::BYTES);
        let digits = digits.ok_or_else(|| Error::Id { why: "it is not 128 hexadecimal digits".into() })?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        UniqueId::from_bytes(&bytes)
    }

    /// Where the PEs meet.
    pub fn addr(&self) -> SocketAddr {
        let mut ip = [0; 16];
        ip.copy_from_slice(&self.0[12..28]);
        let ip = Ipv6Addr::from(ip);
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        SocketAddr::new(ip, u16::from_be_bytes([self.0[10], self.0[11]]))
    }

    pub(super) fn token(&self) -> Token {
        let mut token = [0; 32];
        token.copy_from_slice(&self.0[32..]);
        Token::from_bytes(token)
    }

    /// Whether its server may begin to listen later than others come.
    pub(super) fn is_awaited(&self) -> bool {
        self.0[8] == BY_PE_0
    }

    /// What this process does as PE `pe` with the id. One that serves does so once.
    pub(super) fn side(&self, pe: u32) -> Result<Side, Error> {
        let addr = self.addr();
        if let Some(listener) = lock(&MADE).remove(self) {
            return Ok(Side::Serves(listener));
        }
        if self.0[8] == BY_PE_0 && pe == 0 {
            let listen = |source| Error::Listen { addr: addr.to_string(), source };
            return TcpListener::bind(addr).map(Side::Serves).map_err(listen);
        }
        if addr.ip().is_loopback() && self.0[28..32] != this_machine() {
            return Err(Error::Loopback { addr: addr.to_string() });
        }
        Ok(Side::Joins)
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({}, ..)", self.addr())
    }
}

fn checksum(id: &[u8; UniqueId::BYTES]) -> [u8; 4] {
    first_of(&Sha256::digest(&id[8..]))
}

/// The network that loopback addresses belong to: that of this machine since its start, or of this container.
fn this_machine() -> [u8; 4] {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    first_of(
        &Sha256::new().chain_update(boot).chain_update(network.as_os_str().as_encoded_bytes()).finalize(),
    )
}

fn first_of(digest: &[u8]) -> [u8; 4] {
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_from_bytes_and_text_and_hides_its_secret() {
        for addr in ["10.0.0.7:4000", "[fd00::7]:65535", "127.0.0.1:1"] {
            let id = UniqueId::at(addr.parse().unwrap()).unwrap();
            assert_eq!(id.addr().to_string(), addr);
            assert_eq!(UniqueId::from_bytes(&id.to_bytes()).unwrap(), id);
            assert_eq!(UniqueId::from_hex(&format!(" {}\n", id.to_hex())).unwrap(), id);
            assert_ne!(UniqueId::at(addr.parse().unwrap()).unwrap(), id);
            assert_eq!(format!("{id:?}"), format!("UniqueId({addr}, ..)"));
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let id = UniqueId::at("10.0.0.7:4000".parse().unwrap()).unwrap();
        let why = |bytes: &[u8]| UniqueId::from_bytes(bytes).unwrap_err().to_string();
        assert!(why(&id.to_bytes()[..63]).contains("64 bytes"));
        assert!(why(&[0; 64]).contains("does not begin"));
        for at in 4..64 {
            let mut changed = id.to_bytes();
            changed[at] ^= 1;
            assert!(why(&changed).contains("changed on its way"), "byte {at}");
        }
        for text in ["", "ab", &"x".repeat(128), &"é".repeat(64)] {
            assert!(UniqueId::from_hex(text).unwrap_err().to_string().contains("128 hexadecimal"), "{text}");
        }
    }

    #[test]
    fn an_id_is_served_once_and_by_the_right_process() {
        let config = Config::default();
        let id = UniqueId::with_config(&config).unwrap();
        assert!(id.addr().ip().is_loopback());
        assert!(matches!(id.side(1).unwrap(), Side::Serves(_)));
        assert!(matches!(id.side(1).unwrap(), Side::Joins) && !id.is_awaited());
        let id = UniqueId::at("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(matches!(id.side(0).unwrap(), Side::Serves(_)));
        assert!(matches!(id.side(1).unwrap(), Side::Joins) && id.is_awaited());
    }

    #[test]
    fn a_loopback_address_of_another_machine_is_a_clear_error() {
        let UniqueId(mut id) = UniqueId::at("127.0.0.1:4000".parse().unwrap()).unwrap();
        id[28] ^= 1;
        let error = UniqueId(id).side(1).err().unwrap().to_string();
        assert!(error.contains("RUSHMEM_BOOTSTRAP_INTERFACE"), "{error}");
    }
}
