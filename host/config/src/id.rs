//! The encoding of a job's unique ID in 64 bytes.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use sha2::{Digest, Sha256};

use crate::value::Value;

/// First bytes of every ID: the version of the encoding.
const MAGIC: [u8; 4] = *b"RSH1";

/// A job's unique ID as 64 bytes: an address, who listens there, a fingerprint of a machine, and the job's token.
///
/// [`UniqueId::to_hex`](../rushmem_bootstrap/struct.UniqueId.html) and the setting `id` pass it from process to
/// process. It contains the job's secret, which neither `Debug` nor a list of settings shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EncodedId([u8; EncodedId::BYTES]);

/// The process that listens at the address of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The process that created the ID.
    Maker,
    /// PE 0 of the job.
    Pe0,
}

/// The decoded contents of an [`EncodedId`].
#[derive(Clone, Copy)]
pub struct IdFields {
    /// Address at which the job's server listens.
    pub addr: SocketAddr,
    /// The process that listens at `addr`.
    pub listener: Listener,
    /// Fingerprint of the machine on which the ID was created. It detects loopback addresses of another machine.
    pub machine: [u8; 4],
    /// The job's token.
    pub token: [u8; 32],
}

impl EncodedId {
    /// Size of an ID, in bytes.
    pub const BYTES: usize = 64;

    /// Encodes `fields`, with the version of the encoding and a checksum.
    pub fn new(fields: &IdFields) -> Self {
        let ip = match fields.addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut id = [0; Self::BYTES];
        id[..4].copy_from_slice(&MAGIC);
        id[8] = fields.listener.code();
        id[10..12].copy_from_slice(&fields.addr.port().to_be_bytes());
        id[12..28].copy_from_slice(&ip.octets());
        id[28..32].copy_from_slice(&fields.machine);
        id[32..].copy_from_slice(&fields.token);
        let sum = checksum(&id);
        id[4..8].copy_from_slice(&sum);
        Self(id)
    }

    /// Decodes the address, the listener, the machine and the token from the ID.
    pub fn fields(&self) -> IdFields {
        let mut ip = [0; 16];
        ip.copy_from_slice(&self.0[12..28]);
        let ip = Ipv6Addr::from(ip);
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        let mut token = [0; 32];
        token.copy_from_slice(&self.0[32..]);
        IdFields {
            addr: SocketAddr::new(ip, u16::from_be_bytes([self.0[10], self.0[11]])),
            listener: if self.0[8] == Listener::Pe0.code() { Listener::Pe0 } else { Listener::Maker },
            machine: [self.0[28], self.0[29], self.0[30], self.0[31]],
            token,
        }
    }

    /// Returns the ID as bytes, for a message or a file.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Validates bytes that were returned by [`EncodedId::to_bytes`].
    ///
    /// # Errors
    ///
    /// - A text that says what is wrong: the length, the version, the checksum or the listener.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let id: [u8; Self::BYTES] =
            bytes.try_into().map_err(|_| format!("it has {} bytes instead of 64 bytes", bytes.len()))?;
        let listeners = [Listener::Maker.code(), Listener::Pe0.code()];
        match id {
            _ if id[..4] != MAGIC => Err("it does not start with the marker of this version".into()),
            _ if id[4..8] != checksum(&id) => Err("its checksum is wrong, so it was damaged".into()),
            _ if !listeners.contains(&id[8]) => Err("it does not say which process listens".into()),
            _ => Ok(Self(id)),
        }
    }

    /// Returns the ID as 128 hexadecimal digits. They contain the secret, so never log them.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses digits that were returned by [`EncodedId::to_hex`]. Surrounding white space is ignored.
    ///
    /// # Errors
    ///
    /// - A text, if these are not 128 hexadecimal digits.
    /// - The errors of [`EncodedId::from_bytes`].
    pub fn from_hex(text: &str) -> Result<Self, String> {
        let digit = |d: &u8| char::from(*d).to_digit(16).map(|d| d as u8);
        let digits: Option<Vec<u8>> = text.trim().as_bytes().iter().map(digit).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * Self::BYTES);
        let digits = digits.ok_or("it is not 128 hexadecimal digits")?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        Self::from_bytes(&bytes)
    }
}

impl Listener {
    fn code(self) -> u8 {
        match self {
            Listener::Maker => 1,
            Listener::Pe0 => 2,
        }
    }
}

impl fmt::Debug for EncodedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedId({}, ..)", self.fields().addr)
    }
}

impl Value for EncodedId {
    fn accepts() -> String {
        "the output of `rushmem id`".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Self::from_hex(text).map_err(|why| format!("this is not the unique id of a job: {why}"))
    }

    fn show(&self) -> String {
        "(set)".into()
    }
}

fn checksum(id: &[u8; EncodedId::BYTES]) -> [u8; 4] {
    let digest = Sha256::digest(&id[8..]);
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(addr: &str) -> EncodedId {
        let (listener, machine, token) = (Listener::Pe0, [1, 2, 3, 4], [7; 32]);
        EncodedId::new(&IdFields { addr: addr.parse().unwrap(), listener, machine, token })
    }

    #[test]
    fn reads_its_own_bytes_and_text() {
        for addr in ["10.0.0.7:4000", "[fd00::7]:65535", "127.0.0.1:1"] {
            let id = id(addr);
            assert_eq!(EncodedId::from_bytes(&id.to_bytes()).unwrap(), id);
            assert_eq!(EncodedId::from_hex(&format!(" {}\n", id.to_hex())).unwrap(), id);
            let fields = id.fields();
            assert_eq!((fields.addr.to_string().as_str(), fields.listener), (addr, Listener::Pe0));
            assert_eq!((fields.machine, fields.token), ([1, 2, 3, 4], [7; 32]));
            assert_eq!(format!("{id:?}"), format!("EncodedId({addr}, ..)"));
        }
    }

    #[test]
    fn rejects_damaged_ids() {
        let id = id("10.0.0.7:4000");
        let why = |bytes: &[u8]| EncodedId::from_bytes(bytes).unwrap_err();
        assert!(why(&id.to_bytes()[..63]).contains("64 bytes"));
        assert!(why(&[0; 64]).contains("does not start"));
        for at in 4..64 {
            let mut changed = id.to_bytes();
            changed[at] ^= 1;
            assert!(why(&changed).contains("damaged"), "byte {at}");
        }
        for text in ["", "ab", &"x".repeat(128), &"é".repeat(64)] {
            assert!(EncodedId::from_hex(text).unwrap_err().contains("128 hexadecimal"), "{text}");
        }
    }
}
