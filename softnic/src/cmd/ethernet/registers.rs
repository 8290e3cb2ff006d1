//! Access registers of an Ethernet port.

use super::super::refuse::{Reason, bad_resource, refuse};
use super::super::register::{filled, node_description, port_one};
use super::super::{CmdResult, require};
use super::vport::MAX_MTU;
use crate::transport::datapath::Datapath;
use rushmem_mlx5::prm::port::{AccessReg, Pmtu, Ptys, RegisterId};
use rushmem_mlx5::prm::registers::{
    CounterGroup, Ieee8023Counters, Paos, Pfcc, PortStatus, Ppcnt, Rfc2863Counters,
};
use rushmem_mlx5::prm::{CmdStatus, Value};

/// Smallest MTU that a driver may set: that of IPv4, with an Ethernet header, a VLAN tag and the check sequence.
const MIN_MTU: u16 = 68 + 22;

/// Reads or writes a register of an Ethernet port, whose contents are `data`. Returns the new contents.
pub(in crate::cmd) fn access(path: &mut Datapath, command: &AccessReg, data: &[u8]) -> CmdResult<Vec<u8>> {
    let writes = command.op_mod != AccessReg::READ;
    match command.register_id {
        RegisterId::PMTU => filled(data, |given: Pmtu| {
            port_one(given.local_port)?;
            let mtu = &mut path.objects.ethernet.vport.port_mtu;
            if writes {
                require((MIN_MTU..=MAX_MTU).contains(&given.admin_mtu), Reason::Mtu)?;
                *mtu = Some(given.admin_mtu);
            }
            let admin_mtu = mtu.unwrap_or(MAX_MTU);
            Ok(Pmtu { max_mtu: MAX_MTU, admin_mtu, oper_mtu: admin_mtu, ..given })
        }),
        RegisterId::PAOS => filled(data, |given: Paos| {
            port_one(given.local_port)?;
            let status = &mut path.objects.ethernet.vport.port_status;
            if writes {
                *status = Some(given.admin_status);
            }
            let is_down = path.failures.health.port_is_down;
            let oper_status = if is_down { PortStatus::DOWN } else { PortStatus::UP };
            Ok(Paos { admin_status: status.unwrap_or(PortStatus::UP), oper_status, ..given })
        }),
        _ if writes => Err(refuse(CmdStatus::BAD_PARAM, Reason::RegisterRead)),
        RegisterId::PTYS => filled(data, |given: Ptys| {
            port_one(given.local_port)?;
            require(given.proto_mask == Ptys::ETHERNET, Reason::PortType)?;
            let oper = if path.failures.health.port_is_down { 0 } else { Ptys::CR4_100G };
            Ok(Ptys {
                eth_proto_capability: Ptys::CR4_100G,
                eth_proto_admin: Ptys::CR4_100G,
                eth_proto_oper: oper,
                ..given
            })
        }),
        // The medium has no pause frames.
        RegisterId::PFCC => filled(data, |given: Pfcc| {
            port_one(given.local_port)?;
            Ok(Pfcc { pptx: false, pprx: false, ..given })
        }),
        RegisterId::PPCNT => filled(data, |given: Ppcnt| {
            port_one(given.local_port)?;
            counters(path, given)
        }),
        RegisterId::NODE_DESC => node_description(path, data),
        other => {
            tracing::debug!(register = %other, "no such access register");
            Err(bad_resource(Reason::NoRegister))
        }
    }
}

fn counters(path: &Datapath, given: Ppcnt) -> CmdResult<Ppcnt> {
    require(!given.clr, Reason::RegisterRead)?;
    let counts = &path.objects.ethernet.vport.counters;
    let sum = |counters: [rushmem_mlx5::prm::flow::TrafficCounter; 3]| {
        counters
            .iter()
            .fold((0, 0), |(packets, octets), counter| (packets + counter.packets, octets + counter.octets))
    };
    let (frames_in, octets_in) =
        sum([counts.received_eth_unicast, counts.received_eth_multicast, counts.received_eth_broadcast]);
    let (frames_out, octets_out) = sum([
        counts.transmitted_eth_unicast,
        counts.transmitted_eth_multicast,
        counts.transmitted_eth_broadcast,
    ]);
    let mut answer = given;
    match given.grp {
        CounterGroup::IEEE_802_3 => Ieee8023Counters {
            a_frames_transmitted_ok: frames_out,
            a_frames_received_ok: frames_in,
            a_octets_transmitted_ok: octets_out,
            a_octets_received_ok: octets_in,
            a_multicast_frames_xmitted_ok: counts.transmitted_eth_multicast.packets,
            a_broadcast_frames_xmitted_ok: counts.transmitted_eth_broadcast.packets,
            a_multicast_frames_received_ok: counts.received_eth_multicast.packets,
            a_broadcast_frames_received_ok: counts.received_eth_broadcast.packets,
        }
        .write_at(&mut answer.counters.0, 0, 0),
        CounterGroup::RFC_2863 => Rfc2863Counters {
            if_in_octets: octets_in,
            if_in_ucast_pkts: counts.received_eth_unicast.packets,
            if_out_octets: octets_out,
            if_out_ucast_pkts: counts.transmitted_eth_unicast.packets,
            if_out_errors: counts.transmit_errors.packets,
            if_in_multicast_pkts: counts.received_eth_multicast.packets,
            if_in_broadcast_pkts: counts.received_eth_broadcast.packets,
            if_out_multicast_pkts: counts.transmitted_eth_multicast.packets,
            if_out_broadcast_pkts: counts.transmitted_eth_broadcast.packets,
        }
        .write_at(&mut answer.counters.0, 0, 0),
        // Errors of cables, discards by priority and others never happen on this medium.
        _ => {}
    }
    Ok(answer)
}
