//! UDP sockets that receive the datagrams of multicast groups.

use crate::roce::{MAX_PACKET, PORT};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

/// Maximum number of datagrams received per group and call.
const BURST: usize = 64;

/// One socket for each group that the adapter has joined, which receives only the datagrams for that group.
#[derive(Default)]
pub(crate) struct Groups(BTreeMap<Ipv4Addr, UdpSocket>);

impl Groups {
    /// Joins a group on the network interface with this address.
    pub(crate) fn join(&mut self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        if self.0.contains_key(&group) {
            return Ok(());
        }
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // Several adapters of the machine may have a socket for the same group.
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddrV4::new(group, PORT).into())?;
        socket.join_multicast_v4(&group, &interface)?;
        socket.set_nonblocking(true)?;
        self.0.insert(group, socket.into());
        Ok(())
    }

    pub(crate) fn leave(&mut self, group: Ipv4Addr) {
        self.0.remove(&group);
    }

    /// Receives a burst of datagrams from each group, and hands over each with its sender and its group.
    pub(crate) fn receive(&self, mut each: impl FnMut(SocketAddrV4, Ipv4Addr, &[u8])) {
        if self.0.is_empty() {
            return;
        }
        // One byte more than the longest packet, to detect datagrams that are too long.
        let mut buffer = [0; MAX_PACKET + 1];
        for (group, socket) in &self.0 {
            for _ in 0..BURST {
                let Ok((len, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { break };
                if len <= MAX_PACKET {
                    each(from, *group, &buffer[..len]);
                }
            }
        }
    }
}
