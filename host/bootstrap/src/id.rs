//! A job's unique id: all that a process must know to join a job, in 64 bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use crate::auth::Token;
use crate::error::Error;
use crate::interface::listen_ip;
use rushmem_base::lock;
use rushmem_config::{Config, EncodedId, IdFields, Listener};

/// A job's unique id: where its PEs meet, and the secret by which they know each other.
///
/// One process makes it, and gives it to the others by any means: a file, a message, a variable. All join with
/// `Job::with_id`. The process that made it must be one of them, as it has the socket on which
/// the others are awaited; an id [for an address](UniqueId::at) can be made by anybody, and there PE 0 listens. An id
/// is for one job. Whoever has it can join: keep it as a password. NVSHMEM: `nvshmemx_get_uniqueid`; NCCL:
/// `ncclGetUniqueId`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueId(EncodedId);

/// The sockets of ids that this process has made, until the job begins.
static MADE: Mutex<BTreeMap<UniqueId, TcpListener>> = Mutex::new(BTreeMap::new());

/// What a process does with an id.
pub(crate) enum Side {
    /// It has the job's server, at this socket.
    Serves(TcpListener),
    /// It connects.
    Joins,
}

impl UniqueId {
    /// Bytes of an id.
    pub const BYTES: usize = EncodedId::BYTES;

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
        let id = UniqueId::make(listener.local_addr().map_err(listen)?, Listener::Maker, &Token::generate()?);
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
    pub(crate) fn with_token(addr: SocketAddr, token: &Token) -> UniqueId {
        UniqueId::make(addr, Listener::Pe0, token)
    }

    fn make(addr: SocketAddr, listener: Listener, token: &Token) -> UniqueId {
        let fields = IdFields { addr, listener, machine: this_machine(), token: *token.bytes() };
        UniqueId(EncodedId::new(&fields))
    }

    /// The id as bytes, for a message or a file.
    pub fn to_bytes(&self) -> [u8; UniqueId::BYTES] {
        self.0.to_bytes()
    }

    /// Reads what [`UniqueId::to_bytes`] gave.
    ///
    /// # Errors
    ///
    /// [`Error::Id`] if that is no id, or one that was changed on its way.
    pub fn from_bytes(bytes: &[u8]) -> Result<UniqueId, Error> {
        EncodedId::from_bytes(bytes).map(UniqueId).map_err(|why| Error::Id { why })
    }

    /// The id as 128 hexadecimal digits, for a variable or a file. It holds the secret: write it to no log.
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }

    /// Reads what [`UniqueId::to_hex`] gave; white space around it is left out.
    ///
    /// # Errors
    ///
    /// As [`UniqueId::from_bytes`].
    pub fn from_hex(text: &str) -> Result<UniqueId, Error> {
        EncodedId::from_hex(text).map(UniqueId).map_err(|why| Error::Id { why })
    }

    /// Where the PEs meet.
    pub fn addr(&self) -> SocketAddr {
        self.0.fields().addr
    }

    pub(crate) fn token(&self) -> Token {
        Token::from_bytes(self.0.fields().token)
    }

    /// Whether its server may begin to listen later than others come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.fields().listener == Listener::Pe0
    }

    /// What this process does as PE `pe` with the id. One that serves does so once.
    pub(crate) fn side(&self, pe: u32) -> Result<Side, Error> {
        let addr = self.addr();
        if let Some(listener) = lock(&MADE).remove(self) {
            return Ok(Side::Serves(listener));
        }
        if self.0.fields().listener == Listener::Pe0 && pe == 0 {
            let listen = |source| Error::Listen { addr: addr.to_string(), source };
            return TcpListener::bind(addr).map(Side::Serves).map_err(listen);
        }
        if addr.ip().is_loopback() && self.0.fields().machine != this_machine() {
            return Err(Error::Loopback { addr: addr.to_string() });
        }
        Ok(Side::Joins)
    }
}

impl From<UniqueId> for EncodedId {
    fn from(id: UniqueId) -> EncodedId {
        id.0
    }
}

impl From<EncodedId> for UniqueId {
    fn from(id: EncodedId) -> UniqueId {
        UniqueId(id)
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({}, ..)", self.addr())
    }
}

/// The network that loopback addresses belong to: that of this machine since its start, or of this container.
fn this_machine() -> [u8; 4] {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let digest =
        Sha256::new().chain_update(boot).chain_update(network.as_os_str().as_encoded_bytes()).finalize();
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_bytes_and_text_and_hides_the_token() {
        let (addr, text) = ("10.0.0.7:4000".parse().unwrap(), "10.0.0.7:4000");
        let id = UniqueId::at(addr).unwrap();
        assert_eq!(id.addr(), addr);
        assert_eq!(UniqueId::from_bytes(&id.to_bytes()).unwrap(), id);
        assert_eq!(UniqueId::from_hex(&id.to_hex()).unwrap(), id);
        assert_ne!(UniqueId::at(addr).unwrap(), id);
        assert_eq!(format!("{id:?}"), format!("UniqueId({text}, ..)"));
        assert!(matches!(UniqueId::from_hex("ab"), Err(Error::Id { .. })));
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
        let UniqueId(id) = UniqueId::at("127.0.0.1:4000".parse().unwrap()).unwrap();
        let mut fields = id.fields();
        fields.machine[0] ^= 1;
        let error = UniqueId(EncodedId::new(&fields)).side(1).err().unwrap().to_string();
        assert!(error.contains("RUSHMEM_BOOTSTRAP_INTERFACE"), "{error}");
    }
}
