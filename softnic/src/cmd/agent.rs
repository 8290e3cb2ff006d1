//! MAD_IFC: the agent for subnet management of the port.

use super::port::{HAS_CM, HAS_EXTENDED_SPEEDS, SM_LID, SUBNET_PREFIX, state};
use super::refuse::Reason;
use super::{CmdResult, require};
use crate::address::{lid_of, port_guid};
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::Bytes;
use rushmem_mlx5::prm::port::{MadIfc, MadIfcOut};

/// Offsets of fields of a datagram.
mod at {
    pub(super) const CLASS: usize = 1;
    pub(super) const METHOD: usize = 3;
    pub(super) const STATUS: usize = 4;
    pub(super) const ATTRIBUTE: usize = 16;
    pub(super) const MODIFIER: usize = 20;
    pub(super) const DATA: usize = 64;
}

/// Management class of subnet management, routed by LID and directed.
const SUBNET: u8 = 0x01;
const SUBNET_DIRECTED: u8 = 0x81;

const GET: u8 = 0x01;
const GET_RESPONSE: u8 = 0x81;

/// Status of a response: not the class, the method or the attribute of a datagram that the agent answers.
const BAD_CLASS: u16 = 1 << 2;
const BAD_METHOD: u16 = 2 << 2;
const BAD_ATTRIBUTE: u16 = 3 << 2;

/// Status bit of a directed datagram on its way back.
const RETURNING: u16 = 1 << 15;

/// Attributes of subnet management.
mod attribute {
    pub(super) const NODE_DESCRIPTION: u16 = 0x10;
    pub(super) const NODE_INFO: u16 = 0x11;
    pub(super) const GUID_INFO: u16 = 0x14;
    pub(super) const PORT_INFO: u16 = 0x15;
    pub(super) const PKEY_TABLE: u16 = 0x16;
}

/// Number of P_Keys in a block of the table.
const PKEYS_PER_BLOCK: usize = 32;

pub(super) fn execute(path: &mut Datapath, _: u32, command: MadIfc) -> CmdResult<MadIfcOut> {
    require(path.config.infiniband, Reason::PortType)?;
    require(command.port == 1, Reason::Port)?;
    let asked = command.mad.0;
    let word = |at: usize| u16::from_be_bytes([asked[at], asked[at + 1]]);
    let mut answer = asked;
    let filled = match (asked[at::CLASS], asked[at::METHOD]) {
        (SUBNET | SUBNET_DIRECTED, GET) => {
            subnet(path, word(at::ATTRIBUTE), word(at::MODIFIER + 2)).ok_or(BAD_ATTRIBUTE)
        }
        (SUBNET | SUBNET_DIRECTED, _) => Err(BAD_METHOD),
        _ => Err(BAD_CLASS),
    };
    let direction = if asked[at::CLASS] == SUBNET_DIRECTED { RETURNING } else { 0 };
    let status = direction | filled.err().unwrap_or(0);
    answer[at::METHOD] = GET_RESPONSE;
    answer[at::STATUS..at::STATUS + 2].copy_from_slice(&status.to_be_bytes());
    answer[at::DATA..at::DATA + 64].copy_from_slice(&filled.unwrap_or([0; 64]));
    Ok(MadIfcOut { mad: Bytes(answer) })
}

/// Returns an attribute of subnet management, or `None` for an unknown one.
fn subnet(path: &Datapath, attribute: u16, modifier: u16) -> Option<[u8; 64]> {
    let mut data = [0; 64];
    let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
    let guid = port_guid(*path.address.ip()).to_be_bytes();
    match attribute {
        attribute::NODE_DESCRIPTION => {
            let name = path.config.name.as_bytes();
            put(0, &name[..name.len().min(63)]);
        }
        attribute::NODE_INFO => {
            // Versions, a channel adapter, one port.
            put(0, &[1, 1, 1, 1]);
            [4, 12, 20].into_iter().for_each(|at| put(at, &guid));
            put(28, &(path.config.pkeys.len() as u16).to_be_bytes());
            // The port at which the datagram arrived, and the vendor: the Mellanox OUI.
            put(36, &[1, 0x00, 0x02, 0xc9]);
        }
        attribute::GUID_INFO if modifier == 0 => put(0, &guid),
        attribute::PORT_INFO if modifier <= 1 => port_info(path, &mut put),
        attribute::PKEY_TABLE => {
            let keys = path.config.pkeys.iter().skip(usize::from(modifier) * PKEYS_PER_BLOCK);
            keys.take(PKEYS_PER_BLOCK).enumerate().for_each(|(i, key)| put(2 * i, &key.to_be_bytes()));
        }
        _ => return None,
    }
    Some(data)
}

fn port_info(path: &Datapath, put: &mut impl FnMut(usize, &[u8])) {
    let (port, physical) = state(path);
    put(0x08, &SUBNET_PREFIX);
    put(0x10, &lid_of(*path.address.ip()).unwrap_or(0).to_be_bytes());
    put(0x12, &SM_LID.to_be_bytes());
    put(0x14, &(HAS_CM | HAS_EXTENDED_SPEEDS).to_be_bytes());
    // The port number, and link widths enabled, supported and active: 4 lanes.
    put(0x1c, &[1, 2, 2, 2]);
    // Link speed SDR, which extended speeds override.
    put(0x20, &[0x10 | port.0, physical.0 << 4 | 2]);
    put(0x23, &[0x11]);
    // Neighbor MTU: 4096 bytes; one virtual lane; MTU supported: 4096 bytes.
    put(0x24, &[0x50, 0x10]);
    put(0x29, &[0x05]);
    put(0x2b, &[0x10]);
    // One GUID.
    put(0x33, &[1]);
    // Extended speeds active, supported and enabled: NDR.
    put(0x3e, &[0x88, 0x08]);
}
