//! MAD_IFC: the agents for subnet and performance management of the port.

use super::refuse::Reason;
use super::{CmdResult, require};
use crate::management::mad::{at, class, method, status};
use crate::management::subnet;
use crate::transport::datapath::Datapath;
use crate::transport::subnet::of;
use rushmem_mlx5::prm::Bytes;
use rushmem_mlx5::prm::port::{MadIfc, MadIfcOut};

pub(super) fn execute(path: &mut Datapath, context: u32, command: MadIfc) -> CmdResult<MadIfcOut> {
    require(path.config.infiniband, Reason::PortType)?;
    require(command.port == 1, Reason::Port)?;
    let mad = command.mad.0;
    let answer = subnet::answer_of_adapter(&of(path, context), 0, &mad);
    let answer = answer.unwrap_or_else(|| {
        let mut refused = mad;
        refused[at::METHOD] = method::GET_RESPONSE;
        let direction = if mad[at::CLASS] == class::SUBNET_DIRECTED { status::RESPONSE } else { 0 };
        let code = direction | status::UNSUPPORTED_CLASS;
        refused[at::STATUS..at::STATUS + 2].copy_from_slice(&code.to_be_bytes());
        refused
    });
    Ok(MadIfcOut { mad: Bytes(answer) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::management::mad::{performance_attribute, subnet_attribute};
    use crate::transport::subnet::PKEYS;
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
        let (code, counters) = ask(class::PERFORMANCE, method::GET, performance_attribute::CLASS_PORT_INFO);
        assert_eq!((code, &counters[..2]), (0, &[1, 1][..]));
    }

    #[test]
    fn other_datagrams_are_refused() {
        assert_eq!(ask(0x21, method::GET, subnet_attribute::NODE_INFO).0, status::UNSUPPORTED_CLASS);
        assert_eq!(ask(class::SUBNET, 2, subnet_attribute::NODE_INFO).0, status::UNSUPPORTED_METHOD);
        assert_eq!(ask(class::SUBNET, method::GET, 0x7777), (status::UNSUPPORTED_ATTRIBUTE, [0; 64]));
    }
}
