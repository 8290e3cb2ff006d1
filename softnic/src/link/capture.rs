//! A capture file with all packets of the fabric, in pcap format with nanosecond timestamps.
//!
//! Needs no privileges. The IPv4 and UDP headers are those that the kernel generates (see [`crate::roce::icrc`]).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const IPV4: usize = 20;
const UDP: usize = 8;
/// Link type of raw IPv4 packets.
const LINKTYPE_IPV4: u32 = 228;

/// An open capture file. A write error stops the capture, but not the traffic.
pub(crate) struct Capture {
    out: Option<BufWriter<File>>,
}

impl Capture {
    pub(crate) fn create(path: &Path) -> io::Result<Capture> {
        let mut out = BufWriter::new(File::create(path)?);
        let header: [u32; 6] = [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, 65_535, LINKTYPE_IPV4];
        for word in header {
            out.write_all(&word.to_le_bytes())?;
        }
        out.flush()?;
        Ok(Capture { out: Some(out) })
    }

    pub(crate) fn packet(&mut self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        let Some(out) = &mut self.out else { return };
        if let Err(error) = write(out, from, to, payload) {
            tracing::debug!(%error, "capture file failed");
            self.out = None;
        }
    }
}

fn write(out: &mut impl Write, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
    let total = IPV4 + UDP + payload.len();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for word in [now.as_secs() as u32, now.subsec_nanos(), total as u32, total as u32] {
        out.write_all(&word.to_le_bytes())?;
    }
    let mut ip = [0; IPV4];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..20].copy_from_slice(&to.ip().octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    out.write_all(&ip)?;
    // A UDP checksum of 0 means "no checksum".
    for half in [from.port(), to.port(), (UDP + payload.len()) as u16, 0] {
        out.write_all(&half.to_be_bytes())?;
    }
    out.write_all(payload)?;
    // Flushing after each packet allows a reader to follow a running adapter.
    out.flush()
}

fn checksum(header: &[u8; IPV4]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(folded + (folded >> 16)) as u16
}
