//! Distributes QPs over the ports of a RoCE bond (LAG).
//!
//! Firmware sends all packets of a QP through one port of a bond, and may pick the same port for many QPs. So QPs name
//! their port, in rotation.

use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::caps::HcaCap;
use rushmem_mlx5::prm::lag::{QueryLag, QueryLagOut};
use rushmem_mlx5::prm::qp::{Init2Rtr, opt_param};

use crate::provider::{LinkLayer, Provider, capabilities};

/// The bonded ports of a NIC over which its QPs are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bond {
    /// Number of ports to rotate through, or 0 if QPs do not name their port.
    ports: u8,
}

impl Bond {
    /// Queries the bond of a NIC (`QUERY_LAG`).
    pub(super) fn of(nic: &dyn Provider) -> Self {
        let ports = if nic.port().link == LinkLayer::Ethernet { bonded_ports(nic) } else { 0 };
        if ports > 1 {
            tracing::info!("{}: QPs use the {ports} ports of its bond in turn", nic.name());
        }
        Self { ports }
    }

    /// Sets in `command` the bond port for the QP in slot `slot`.
    pub(super) fn apply(self, slot: u64, command: &mut Init2Rtr) {
        if self.ports > 1 {
            command.opt_param_mask |= opt_param::LAG_TX_AFF;
            command.context.lag_tx_port_affinity = 1 + (slot % u64::from(self.ports)) as u8;
        }
    }
}

/// Returns the number of ports of an active bond, or 0 if there is none or if QPs cannot name a port.
fn bonded_ports(nic: &dyn Provider) -> u8 {
    let general: HcaCap = match capabilities(nic) {
        Ok(general) => general,
        Err(error) => {
            tracing::info!("the ports of a bond are not used in turn: {error}");
            return 0;
        }
    };
    if !general.init2_lag_tx_port_affinity || general.num_lag_ports < 2 {
        return 0;
    }
    let mut answer = <QueryLagOut as Response>::EMPTY;
    if let Err(error) = nic.execute(QueryLag::default().encode().as_ref(), answer.as_mut()) {
        tracing::info!("the ports of a bond are not used in turn: {error}");
        return 0;
    }
    match QueryLagOut::decode(&answer) {
        Ok(lag) if lag.lag_state != 0 => general.num_lag_ports,
        Ok(_) => 0,
        Err(error) => {
            tracing::info!("{}: the ports of a bond are not used in turn: QUERY_LAG: {error}", nic.name());
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rushmem_softnic::{Config, Nic};

    use super::*;
    use crate::provider::Soft;

    #[test]
    fn qps_rotate_through_the_ports_of_a_bond() {
        for (bond, expected) in [(1, [0; 5]), (2, [1, 2, 1, 2, 1]), (3, [1, 2, 3, 1, 2])] {
            let nic = Nic::start(Config { bond, ..Config::default() }).unwrap();
            let bond = Bond::of(&Soft::new(Arc::new(nic)));
            let port = |slot| {
                let mut command = Init2Rtr::default();
                bond.apply(slot, &mut command);
                assert_eq!(command.opt_param_mask != 0, command.context.lag_tx_port_affinity != 0);
                command.context.lag_tx_port_affinity
            };
            assert_eq!([0, 1, 2, 3, 4].map(port), expected);
        }
    }
}
