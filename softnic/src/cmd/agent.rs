//! MAD_IFC: the agent for subnet management of the port.

use super::port::{GIDS, HAS_CM, PKEYS, SM_LID, SUBNET_PREFIX, state};
use super::refuse::Reason;
use super::{CmdResult, require};
use crate::address::{lid_of, port_guid};
use crate::management::mad::{
    HAS_EXTENDED_SPEEDS, PKEYS_PER_BLOCK, at, class, method, status, subnet_attribute,
};
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::Bytes;
use rushmem_mlx5::prm::port::{MadIfc, MadIfcOut};

pub(super) fn execute(path: &mut Datapath, _: u32, command: MadIfc) -> CmdResult<MadIfcOut> {
    require(path.config.infiniband, Reason::PortType)?;
    require(command.port == 1, Reason::Port)?;
    let asked = command.mad.0;
    let word = |at: usize| u16::from_be_bytes([asked[at], asked[at + 1]]);
    let mut answer = asked;
    let filled = match (asked[at::CLASS], asked[at::METHOD]) {
        (class::SUBNET | class::SUBNET_DIRECTED, method::GET) => {
            let found = subnet(path, word(at::ATTRIBUTE), word(at::MODIFIER + 2));
            found.ok_or(status::UNSUPPORTED_ATTRIBUTE)
        }
        (class::SUBNET | class::SUBNET_DIRECTED, _) => Err(status::UNSUPPORTED_METHOD),
        _ => Err(status::UNSUPPORTED_CLASS),
    };
    let direction = if asked[at::CLASS] == class::SUBNET_DIRECTED { status::RESPONSE } else { 0 };
    let code = direction | filled.err().unwrap_or(0);
    answer[at::METHOD] = method::GET_RESPONSE;
    answer[at::STATUS..at::STATUS + 2].copy_from_slice(&code.to_be_bytes());
    answer[at::DATA..at::DATA + 64].copy_from_slice(&filled.unwrap_or([0; 64]));
    Ok(MadIfcOut { mad: Bytes(answer) })
}

/// Returns an attribute of subnet management, or `None` for an unknown one.
fn subnet(path: &Datapath, attribute: u16, modifier: u16) -> Option<[u8; 64]> {
    let mut data = [0; 64];
    let mut put = |at: usize, bytes: &[u8]| data[at..at + bytes.len()].copy_from_slice(bytes);
    let guid = port_guid(*path.address.ip()).to_be_bytes();
    match attribute {
        subnet_attribute::NODE_DESCRIPTION => {
            let name = path.config.name.as_bytes();
            put(0, &name[..name.len().min(63)]);
        }
        subnet_attribute::NODE_INFO => {
            // Versions, a channel adapter, one port.
            put(0, &[1, 1, 1, 1]);
            [4, 12, 20].into_iter().for_each(|at| put(at, &guid));
            put(28, &PKEYS.to_be_bytes());
            // The port at which the datagram arrived, and the vendor: the Mellanox OUI.
            put(36, &[1, 0x00, 0x02, 0xc9]);
        }
        subnet_attribute::GUID_INFO if modifier == 0 => put(0, &guid),
        subnet_attribute::PORT_INFO if modifier <= 1 => port_info(path, &mut put),
        subnet_attribute::PKEY_TABLE => {
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
    put(0x32, &[GIDS as u8]);
    // Extended speeds active, supported and enabled.
    let speed = path.config.model.speed().extended;
    put(0x3e, &[speed << 4 | speed, speed]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::net::{Ipv4Addr, SocketAddrV4};

    /// Asks for an attribute. Returns the status and the data of the answer.
    fn ask(class: u8, method: u8, attribute: u16) -> (u16, [u8; 64]) {
        let config = Config { infiniband: true, ..Config::default() };
        let address = SocketAddrV4::new(Ipv4Addr::new(127, 64, 1, 2), 0);
        let mut path = Datapath::new(config, address, None, &mut None);
        let mut mad = [0; 256];
        (mad[at::CLASS], mad[at::METHOD]) = (class, method);
        mad[at::ATTRIBUTE..at::ATTRIBUTE + 2].copy_from_slice(&attribute.to_be_bytes());
        let command = MadIfc { port: 1, mad: Bytes(mad), ..MadIfc::default() };
        let answer = execute(&mut path, 0, command).expect("the port is InfiniBand").mad.0;
        assert_eq!((answer[at::CLASS], answer[at::METHOD]), (class, method::GET_RESPONSE));
        let code = u16::from_be_bytes([answer[at::STATUS], answer[at::STATUS + 1]]);
        (code, *answer[at::DATA..].first_chunk().expect("64 bytes"))
    }

    #[test]
    fn the_port_is_described() {
        let (code, info) = ask(class::SUBNET, method::GET, subnet_attribute::PORT_INFO);
        assert_eq!((code, &info[8..10], &info[0x10..0x12]), (0, &[0xfe, 0x80][..], &[1, 2][..]));
        // The state is active, GUIDCap is 8, and SubnetTimeOut follows it.
        assert_eq!((info[0x20] & 0xf, info[0x32], info[0x33]), (4, 8, 0));
        let (code, node) = ask(class::SUBNET_DIRECTED, method::GET, subnet_attribute::NODE_INFO);
        // PartitionCap is that of the capabilities.
        assert_eq!((code, node[3], &node[28..30]), (status::RESPONSE, 1, &PKEYS.to_be_bytes()[..]));
        let (_, keys) = ask(class::SUBNET, method::GET, subnet_attribute::PKEY_TABLE);
        assert_eq!(keys[..4], [0xff, 0xff, 0, 0]);
    }

    #[test]
    fn other_datagrams_are_refused() {
        assert_eq!(
            ask(class::PERFORMANCE, method::GET, subnet_attribute::NODE_INFO),
            (status::UNSUPPORTED_CLASS, [0; 64])
        );
        assert_eq!(ask(class::SUBNET, 2, subnet_attribute::NODE_INFO), (status::UNSUPPORTED_METHOD, [0; 64]));
        assert_eq!(ask(class::SUBNET, method::GET, 0x7777), (status::UNSUPPORTED_ATTRIBUTE, [0; 64]));
    }
}
