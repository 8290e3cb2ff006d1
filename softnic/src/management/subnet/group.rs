//! Membership of multicast groups: MCMemberRecord (InfiniBand Architecture Specification, volume 1, section 15.2.5.17).
//!
//! Subnet administration of this model keeps no list of groups, since no adapter knows the others. Every group exists,
//! and its LID follows from its GID. A group has the properties that its members ask for, which must therefore ask for
//! the same ones, and otherwise those of the groups that OpenSM creates.

use crate::address::{Gid, lid_of_group};
use crate::management::MAD;
use crate::management::mad::{at, component_mask, status};
use crate::roce::DEFAULT_PKEY;

const RECORD: usize = 56;

/// A component of the record: its bits in the mask, all of which must be set, its offset and its length.
type Component = (u64, usize, usize);

const QKEY: Component = (1 << 2, 32, 4);
const TCLASS: Component = (1 << 6, 39, 1);
const PKEY: Component = (1 << 7, 40, 2);
/// Service level, flow label and hop limit.
const ROUTE: Component = (1 << 12 | 1 << 13 | 1 << 14, 44, 4);

/// Bits of the mask for the GIDs of the group and of the port.
const GIDS: u64 = 1 << 0 | 1 << 1;
const MLID: usize = 36;
/// Scope and state of the membership.
const STATE: usize = 48;

/// MTU, rate and lifetime of packets, each with the selector of an exact value: 2048 bytes, 10 Gb/s, and 4.096 us times
/// 2^18.
const LIMITS: [(usize, u8); 3] = [(38, 2 << 6 | 4), (42, 2 << 6 | 3), (43, 2 << 6 | 18)];
/// Q_Key of the groups of IP.
const DEFAULT_QKEY: u32 = 0x0b1b;

/// Returns the record with which subnet administration answers a request to join or to leave a group, or a status.
pub(super) fn record(mad: &[u8; MAD]) -> Result<Vec<u8>, u16> {
    let asked = &mad[at::ADMIN_DATA..][..RECORD];
    let mask = component_mask(mad);
    let group: Gid = std::array::from_fn(|i| asked[i]);
    if mask & GIDS != GIDS || group[0] != 0xff {
        return Err(status::INVALID_REQUEST);
    }
    let mut record = vec![0; RECORD];
    record[..32].copy_from_slice(&asked[..32]);
    record[MLID..][..2].copy_from_slice(&lid_of_group(group).to_be_bytes());
    record[STATE] = asked[STATE];
    let mut set = |(bits, at, len): Component, default: &[u8]| {
        let value = if mask & bits == bits { &asked[at..][..len] } else { default };
        record[at..][..len].copy_from_slice(value);
    };
    set(QKEY, &DEFAULT_QKEY.to_be_bytes());
    set(TCLASS, &[0]);
    set(PKEY, &DEFAULT_PKEY.to_be_bytes());
    set(ROUTE, &[0; 4]);
    LIMITS.iter().for_each(|(at, limit)| record[*at] = *limit);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a request to join the group whose GID ends with `last`.
    fn request(last: u8, mask: u64) -> [u8; MAD] {
        let mut mad = [0; MAD];
        mad[at::ADMIN_MASK..][..8].copy_from_slice(&mask.to_be_bytes());
        (mad[at::ADMIN_DATA], mad[at::ADMIN_DATA + 15], mad[at::ADMIN_DATA + STATE]) = (0xff, last, 0x21);
        mad[at::ADMIN_DATA + 32..][..4].copy_from_slice(&[0, 1, 2, 3]);
        mad
    }

    #[test]
    fn members_agree_on_the_properties_of_a_group() {
        let record = |last, mask| record(&request(last, mask)).unwrap();
        let (one, other) = (record(1, GIDS), record(1, GIDS | 1 << 2));
        assert_eq!(one[MLID..MLID + 2], other[MLID..MLID + 2]);
        assert!(u16::from_be_bytes([one[MLID], one[MLID + 1]]) >= 0xc000);
        assert_ne!(one[MLID..MLID + 2], record(2, GIDS)[MLID..MLID + 2]);
        assert_eq!([&one[32..36], &other[32..36]], [&[0, 0, 0x0b, 0x1b], &[0, 1, 2, 3]]);
        assert_eq!((one[38], one[STATE], one.len()), (0x84, 0x21, RECORD));
    }

    #[test]
    fn only_groups_have_members() {
        assert_eq!(record(&request(1, GIDS & !1)), Err(status::INVALID_REQUEST));
        let mut unicast = request(1, GIDS);
        unicast[at::ADMIN_DATA] = 0xfe;
        assert_eq!(record(&unicast), Err(status::INVALID_REQUEST));
    }
}
