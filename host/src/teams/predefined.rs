//! Determines the members of the predefined teams from the locations of all PEs.

use crate::bootstrap::Bootstrap;
use crate::{Error, Result};

/// The node of a PE, and its P2P peers.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct PeLocation {
    /// Index of the PE's node in the job.
    pub(crate) node: u32,
    /// Index of the PE among those of its node.
    pub(crate) local: u32,
    /// Ranks of the PEs whose heaps the PE has mapped, in ascending order. Includes the PE itself.
    pub(crate) p2p: Vec<u32>,
}

/// Exchanges the locations of all PEs. Returns the members of this PE's predefined teams, in the order of their slots.
/// Collective.
///
/// # Errors
/// - [`Error::Bootstrap`] if a PE never takes part.
pub(crate) fn predefined(bootstrap: &dyn Bootstrap, mine: &PeLocation) -> Result<[Vec<u32>; 4]> {
    let malformed = |pe: u32| Error::misuse("start", format!("PE {pe} sent a malformed location"));
    let bytes = serde_json::to_vec(mine).map_err(|_| malformed(bootstrap.pe()))?;
    let all = bootstrap.allgather("the exchange of locations", &bytes)?;
    let parse = |(pe, bytes): (u32, &Vec<u8>)| serde_json::from_slice(bytes).map_err(|_| malformed(pe));
    let all: Vec<PeLocation> = (0..).zip(all.iter()).map(parse).collect::<Result<_>>()?;
    Ok(members(bootstrap.pe(), &all))
}

fn members(me: u32, all: &[PeLocation]) -> [Vec<u32>; 4] {
    let mine = &all[me as usize];
    let those = |test: &dyn Fn(u32, &PeLocation) -> bool| {
        (0..).zip(all).filter(|(pe, place)| test(*pe, place)).map(|(pe, _)| pe).collect::<Vec<u32>>()
    };
    // Only PEs with exactly the same P2P peers, including each other: all members compute the same team.
    let together = |pe: u32, place: &PeLocation| mine.p2p.contains(&pe) && place.p2p == mine.p2p;
    [
        those(&|_, _| true),
        those(&|pe, place| pe == me || together(pe, place)),
        those(&|_, place| place.node == mine.node),
        those(&|_, place| place.local == mine.local),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_and_rail_teams_partition_the_world() {
        // Nodes of 3 and 2 PEs. PEs 0 and 1 are P2P peers. PE 2 has mapped PE 0, but not vice versa.
        let p2p = [vec![0, 1], vec![0, 1], vec![0, 2], vec![3], vec![]];
        let places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)];
        let place = |((node, local), p2p)| PeLocation { node, local, p2p };
        let all: Vec<PeLocation> = places.into_iter().zip(p2p).map(place).collect();
        let teams: Vec<_> = (0..5).map(|me| members(me, &all)).collect();
        let of = |kind: usize| teams.iter().map(|team| team[kind].clone()).collect::<Vec<_>>();
        assert_eq!(of(0), vec![vec![0, 1, 2, 3, 4]; 5]);
        assert_eq!(of(1), [vec![0, 1], vec![0, 1], vec![2], vec![3], vec![4]]);
        assert_eq!(of(2), [vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2], vec![3, 4], vec![3, 4]]);
        assert_eq!(of(3), [vec![0, 3], vec![1, 4], vec![2], vec![0, 3], vec![1, 4]]);
    }
}
