//! The unique ID of a job: 64 bytes with everything that a process needs to join.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Mutex;

use sha2::{Digest, Sha256};

use crate::auth::Token;
use crate::error::Error;
use crate::interface::{listen_ip, network_ip};
use rushmem_base::{boot_id, lock};
use rushmem_config::{Config, EncodedId, IdFields, Listener};

/// The unique ID of a job: the address of its server, and the job's secret.
///
/// One process creates the ID and passes it to the others by any means: a file, a message, an environment variable. All
/// of them join with `Job::with_id`. The creator listens for the others, so it must be one of the PEs. By contrast, an
/// ID [for an address](UniqueId::at) can be created by any process; PE 0 then listens.
///
/// An ID is for a single job. Any process that has it can join, so keep it secret. The equivalents are
/// `nvshmemx_get_uniqueid` (NVSHMEM) and `ncclGetUniqueId` (NCCL).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueId(EncodedId);

/// Listening sockets of the IDs that this process has created, until their jobs start.
static LISTENERS: Mutex<BTreeMap<UniqueId, TcpListener>> = Mutex::new(BTreeMap::new());

/// Whether a process runs the server of a job or connects to it.
pub(crate) enum Side {
    /// The process runs the job's server, and accepts connections on this socket.
    Serves(TcpListener),
    /// The process connects to the server that another process runs.
    Joins,
}

impl UniqueId {
    /// Size of an ID, in bytes.
    pub const BYTES: usize = EncodedId::BYTES;

    /// Creates an ID, and listens on the address given by the settings `bootstrap_interface`, `bootstrap_family` and
    /// `bootstrap_port`.
    ///
    /// By default, only processes on this machine can connect.
    ///
    /// # Errors
    ///
    /// - [`Error::Config`]: a setting in the file or the environment is invalid.
    /// - [`Error::Interface`], [`Error::Interfaces`]: the network interface does not exist, or cannot be found.
    /// - [`Error::Listen`]: the address or port is in use.
    /// - [`Error::Random`]: the system provides no random bytes.
    pub fn new() -> Result<UniqueId, Error> {
        UniqueId::with_config(&Config::load().map_err(Box::new)?)
    }

    /// Like [`UniqueId::new`], with the given settings.
    ///
    /// # Errors
    ///
    /// - [`Error::Interface`], [`Error::Interfaces`]: the network interface does not exist, or cannot be found.
    /// - [`Error::Listen`]: the address or port is in use.
    /// - [`Error::Random`]: the system provides no random bytes.
    pub fn with_config(config: &Config) -> Result<UniqueId, Error> {
        UniqueId::listening(listen_ip(config)?, config)
    }

    /// Like [`UniqueId::with_config`], for a job that may span several nodes: see [`network_ip`].
    pub(crate) fn for_nodes(config: &Config) -> Result<UniqueId, Error> {
        UniqueId::listening(network_ip(config)?, config)
    }

    fn listening(ip: IpAddr, config: &Config) -> Result<UniqueId, Error> {
        let wanted = SocketAddr::new(ip, config.bootstrap_port);
        let listen = |source| Error::Listen { addr: wanted.to_string(), source };
        let listener = TcpListener::bind(wanted).map_err(listen)?;
        let id = UniqueId::make(listener.local_addr().map_err(listen)?, Listener::Maker, &Token::generate()?);
        lock(&LISTENERS).insert(id, listener);
        Ok(id)
    }

    /// Creates an ID for a job in which PE 0 will listen at `addr`. This process need not be on that machine.
    ///
    /// # Errors
    ///
    /// - [`Error::Random`]: the system provides no random bytes.
    pub fn at(addr: SocketAddr) -> Result<UniqueId, Error> {
        Ok(UniqueId::with_token(addr, &Token::generate()?))
    }

    /// Like [`UniqueId::at`], with a secret that all processes already have.
    pub(crate) fn with_token(addr: SocketAddr, token: &Token) -> UniqueId {
        UniqueId::make(addr, Listener::Pe0, token)
    }

    fn make(addr: SocketAddr, listener: Listener, token: &Token) -> UniqueId {
        let fields = IdFields { addr, listener, machine: this_machine(), token: *token.bytes() };
        UniqueId(EncodedId::new(&fields))
    }

    /// Returns the ID as bytes, for a message or a file.
    pub fn to_bytes(&self) -> [u8; UniqueId::BYTES] {
        self.0.to_bytes()
    }

    /// Decodes the bytes returned by [`UniqueId::to_bytes`].
    ///
    /// # Errors
    ///
    /// - [`Error::Id`]: the bytes are not an ID, or were corrupted.
    pub fn from_bytes(bytes: &[u8]) -> Result<UniqueId, Error> {
        EncodedId::from_bytes(bytes).map(UniqueId).map_err(|why| Error::Id { why })
    }

    /// Returns the ID as 128 hexadecimal digits, for an environment variable or a file.
    ///
    /// The text contains the job's secret, so do not log it.
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }

    /// Decodes the text returned by [`UniqueId::to_hex`]. Surrounding white space is ignored.
    ///
    /// # Errors
    ///
    /// - [`Error::Id`]: the text is not an ID, or was corrupted.
    pub fn from_hex(text: &str) -> Result<UniqueId, Error> {
        EncodedId::from_hex(text).map(UniqueId).map_err(|why| Error::Id { why })
    }

    /// Returns the address of the job's server.
    pub fn addr(&self) -> SocketAddr {
        self.0.fields().addr
    }

    pub(crate) fn token(&self) -> Token {
        Token::from_bytes(self.0.fields().token)
    }

    /// Returns whether PE 0 is the process that listens. The other PEs may then try to connect before it does.
    pub(crate) fn may_listen_later(&self) -> bool {
        self.0.fields().listener == Listener::Pe0
    }

    /// Returns whether this process, as PE `pe`, runs the job's server or connects to it. Only the first call for an ID
    /// returns the socket on which its creator listens.
    pub(crate) fn side(&self, pe: u32) -> Result<Side, Error> {
        let addr = self.addr();
        if let Some(listener) = lock(&LISTENERS).remove(self) {
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

/// Returns a hash of the boot ID and the network namespace. Processes with equal hashes share their loopback interface.
fn this_machine() -> [u8; 4] {
    let boot = boot_id().unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let digest =
        Sha256::new().chain_update(boot).chain_update(network.as_os_str().as_encoded_bytes()).finalize();
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_its_own_bytes_and_text_and_hides_the_token() {
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
    fn fuzz_corpus() {
        let token = Token::from_bytes([7; 32]);
        let ids = ["10.0.0.7:4000", "[fe80::1]:80"].map(|addr| {
            let fields = IdFields {
                addr: addr.parse().unwrap(),
                listener: Listener::Pe0,
                machine: [1, 2, 3, 4],
                token: *token.bytes(),
            };
            UniqueId(EncodedId::new(&fields))
        });
        let messages = ids.iter().flat_map(|id| [id.to_bytes().to_vec(), id.to_hex().into_bytes()]);
        rushmem_corpus::target!("..", "id").messages(messages).run(50_000, |bytes| {
            if let Ok(id) = UniqueId::from_bytes(bytes) {
                assert_eq!(id.to_bytes(), bytes);
            }
            if let Ok(id) = UniqueId::from_hex(&String::from_utf8_lossy(bytes)) {
                assert_eq!(UniqueId::from_bytes(&id.to_bytes()).unwrap(), id);
            }
        });
    }

    #[test]
    fn id_is_served_once_and_by_the_right_process() {
        let config = Config::default();
        let id = UniqueId::with_config(&config).unwrap();
        assert!(id.addr().ip().is_loopback());
        assert!(matches!(id.side(1).unwrap(), Side::Serves(_)));
        assert!(matches!(id.side(1).unwrap(), Side::Joins) && !id.may_listen_later());
        let id = UniqueId::at("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(matches!(id.side(0).unwrap(), Side::Serves(_)));
        assert!(matches!(id.side(1).unwrap(), Side::Joins) && id.may_listen_later());
    }

    #[test]
    fn rejects_loopback_address_of_another_machine() {
        let UniqueId(id) = UniqueId::at("127.0.0.1:4000".parse().unwrap()).unwrap();
        let mut fields = id.fields();
        fields.machine[0] ^= 1;
        let error = UniqueId(EncodedId::new(&fields)).side(1).err().unwrap().to_string();
        assert!(error.contains("RUSHMEM_BOOTSTRAP_INTERFACE"), "{error}");
    }
}
