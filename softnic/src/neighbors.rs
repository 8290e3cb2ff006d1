//! Which adapter has which MAC address, learned from the frames that arrive.

use crate::address::{Mac, is_group};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

/// Maximum number of addresses. Frames to others go to all adapters.
const MAX_ADDRESSES: usize = 4096;

#[derive(Default)]
pub(crate) struct Neighbors(BTreeMap<Mac, SocketAddrV4>);

impl Neighbors {
    /// Records that a frame from this address has come from an adapter.
    pub(crate) fn learn(&mut self, mac: Mac, from: SocketAddrV4) {
        if !is_group(mac) && (self.0.len() < MAX_ADDRESSES || self.0.contains_key(&mac)) {
            self.0.insert(mac, from);
        }
    }

    pub(crate) fn find(&self, mac: Mac) -> Option<SocketAddrV4> {
        self.0.get(&mac).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_last_frame_counts() {
        let at = |host| SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), 4791);
        let mut neighbors = Neighbors::default();
        neighbors.learn([2; 6], at(1));
        neighbors.learn([2; 6], at(2));
        neighbors.learn([3; 6], at(3));
        assert_eq!((neighbors.find([2; 6]), neighbors.find([3; 6])), (Some(at(2)), None));
    }
}
