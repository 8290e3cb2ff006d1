//! The PCI configuration space of the function.

use crate::BAR_BYTES;
use crate::eq::VECTORS;
use rushmem_softnic::{FunctionType, Model};

/// Length of the configuration space of a PCI Express function, in bytes.
pub(crate) const BYTES: usize = 4096;

/// PCI vendor ID of a ConnectX.
const VENDOR: u16 = 0x15b3;

/// Class of the function: a network controller of subclass InfiniBand or Ethernet.
const INFINIBAND: [u8; 3] = [0, 0x07, 0x02];
const ETHERNET: [u8; 3] = [0, 0x00, 0x02];

/// Offsets of the capabilities.
const EXPRESS: usize = 0x60;
const MSI_X: usize = 0x9c;
const VENDOR_SPECIFIC: usize = 0xa8;

/// Offsets of the counter and the semaphore in the vendor-specific capability.
const COUNTER: usize = VENDOR_SPECIFIC + 8;
const SEMAPHORE: usize = VENDOR_SPECIFIC + 12;

/// Offsets in BAR 0 of the table of MSI-X interrupts, and of their pending bits.
const MSI_X_TABLE: u32 = 0x2000;
const MSI_X_PENDING: u32 = 0x3000;

/// As what a function presents itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Model of the NIC.
    pub model: Model,
    /// Whether it is a physical or a virtual function.
    pub function: FunctionType,
    /// Whether the port is InfiniBand, rather than Ethernet.
    pub infiniband: bool,
}

/// The configuration space: its bytes, and which bits a driver can write.
pub(crate) struct ConfigSpace {
    bytes: Box<[u8; BYTES]>,
    writable: Box<[u8; BYTES]>,
}

impl ConfigSpace {
    pub(crate) fn new(identity: Identity) -> ConfigSpace {
        let mut space = ConfigSpace { bytes: Box::new([0; BYTES]), writable: Box::new([0; BYTES]) };
        space.put(0x00, &VENDOR.to_le_bytes());
        space.put(0x02, &identity.model.device_id(identity.function).to_le_bytes());
        // Memory space, bus master and INTx disable.
        space.writable[0x04..0x06].copy_from_slice(&0x0406u16.to_le_bytes());
        // There is a list of capabilities.
        space.put(0x06, &0x0010u16.to_le_bytes());
        space.put(0x09, if identity.infiniband { &INFINIBAND } else { &ETHERNET });
        space.writable[0x0c] = 0xff;
        // BAR 0: memory, 64 bits, prefetchable.
        space.put(0x10, &0x0cu32.to_le_bytes());
        let address_bits = !(BAR_BYTES - 1);
        space.writable[0x10..0x18].copy_from_slice(&address_bits.to_le_bytes());
        space.put(0x2c, &VENDOR.to_le_bytes());
        space.put(0x2e, &0x0052u16.to_le_bytes());
        space.put(0x34, &[EXPRESS as u8]);
        space.writable[0x3c] = 0xff;
        space.add_express(identity.model.pcie_generation());
        space.add_msi_x();
        if identity.function == FunctionType::Physical {
            space.add_vendor_specific();
        }
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Adds the PCI Express capability of an endpoint with 16 lanes of this generation's speed.
    fn add_express(&mut self, generation: u8) {
        let link = 16 << 4 | u16::from(generation);
        self.put(EXPRESS, &[0x10, MSI_X as u8]);
        // Version 2, endpoint.
        self.put(EXPRESS + 2, &0x0002u16.to_le_bytes());
        // Payloads of up to 512 bytes, and function-level reset.
        self.put(EXPRESS + 4, &0x1000_8002u32.to_le_bytes());
        // Everything in device control, except the request for a reset, which is a command of the bus.
        self.writable[EXPRESS + 8..EXPRESS + 10].copy_from_slice(&0x7fffu16.to_le_bytes());
        self.put(EXPRESS + 0x0c, &u32::from(link).to_le_bytes());
        self.put(EXPRESS + 0x12, &link.to_le_bytes());
        // The link can have all speeds up to its own, which is the target.
        self.put(EXPRESS + 0x2c, &((1u32 << (generation + 1)) - 2).to_le_bytes());
        self.put(EXPRESS + 0x30, &u16::from(generation).to_le_bytes());
        self.writable[EXPRESS + 0x28..EXPRESS + 0x2a].copy_from_slice(&0x001fu16.to_le_bytes());
    }

    fn add_msi_x(&mut self) {
        self.put(MSI_X, &[0x11, 0]);
        self.put(MSI_X + 2, &(VECTORS - 1).to_le_bytes());
        // Enable and mask all.
        self.writable[MSI_X + 2..MSI_X + 4].copy_from_slice(&0xc000u16.to_le_bytes());
        self.put(MSI_X + 4, &MSI_X_TABLE.to_le_bytes());
        self.put(MSI_X + 8, &MSI_X_PENDING.to_le_bytes());
    }

    /// Adds the capability by which tools reach the NIC's address spaces, of which this adapter has none. A tool takes the
    /// semaphore by writing the counter to it, and selects a space; the status of the space stays 0, unsupported.
    fn add_vendor_specific(&mut self) {
        const BYTES: u8 = 0x18;
        self.put(MSI_X + 1, &[VENDOR_SPECIFIC as u8]);
        self.put(VENDOR_SPECIFIC, &[0x09, 0, BYTES]);
        self.writable[VENDOR_SPECIFIC + 4..VENDOR_SPECIFIC + 6].fill(0xff);
        self.put(COUNTER, &1u32.to_le_bytes());
        self.writable[SEMAPHORE..SEMAPHORE + 4].fill(0xff);
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
    }

    /// Keeps the semaphore with its owner until that writes 0, and counts owners.
    fn arbitrate(&mut self, before: u32) {
        match (before, self.word(SEMAPHORE)) {
            (_, 0) => {}
            (0, _) => self.put(COUNTER, &self.word(COUNTER).wrapping_add(1).max(1).to_le_bytes()),
            (owner, _) => self.put(SEMAPHORE, &owner.to_le_bytes()),
        }
    }

    /// Reads bytes. Those past the end read as all ones, as they do where there is no device.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        for (i, byte) in buf.iter_mut().enumerate() {
            let at = usize::try_from(offset).unwrap_or(BYTES).saturating_add(i);
            *byte = self.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    /// Writes the bits that can be written. Returns whether a reset of the function is requested.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        const RESET: (usize, u8) = (EXPRESS + 9, 0x80);
        let (mut resets, owner) = (false, self.word(SEMAPHORE));
        for (i, byte) in data.iter().enumerate() {
            let at = usize::try_from(offset).unwrap_or(BYTES).saturating_add(i);
            let Some(mask) = self.writable.get(at).copied() else { break };
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            resets |= at == RESET.0 && byte & RESET.1 != 0;
        }
        self.arbitrate(owner);
        resets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(Identity { infiniband: true, ..Identity::default() })
    }

    fn word(space: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_size_of_the_bar_can_be_probed() {
        let mut space = space();
        assert_eq!(word(&space, 0), 0x101e_15b3);
        space.write(0x10, &[0xff; 8]);
        assert_eq!(
            u64::from(word(&space, 0x14)) << 32 | u64::from(word(&space, 0x10)),
            !(BAR_BYTES - 1) | 0xc
        );
        space.write(0, &[0; 4]);
        assert_eq!(word(&space, 0), 0x101e_15b3);
    }

    #[test]
    fn capabilities_form_a_list() {
        let space = space();
        let next = |at: u64| u64::from(word(&space, at) >> 8 & 0xff);
        let first = u64::from(word(&space, 0x34) & 0xff);
        assert_eq!((word(&space, first) & 0xff, word(&space, next(first)) & 0xff), (0x10, 0x11));
        assert_eq!(next(next(first)), 0);
    }

    #[test]
    fn a_tool_owns_the_semaphore_until_it_releases_it() {
        let identity = Identity { function: FunctionType::Physical, ..Identity::default() };
        let mut space = ConfigSpace::new(identity);
        let at = u64::from(word(&space, MSI_X as u64) >> 8 & 0xff);
        assert_eq!(word(&space, at) & 0xff_ffff, 0x18_0009);
        let take = |space: &mut ConfigSpace, number: u32| {
            space.write(at + 12, &number.to_le_bytes());
            word(space, at + 12) == number
        };
        let first = word(&space, at + 8);
        assert!(first != 0 && take(&mut space, first));
        let second = word(&space, at + 8);
        assert!(second != first && !take(&mut space, second));
        space.write(at + 4, &7u32.to_le_bytes());
        assert_eq!(word(&space, at + 4), 7, "selected, with status 0");
        assert!(take(&mut space, 0) && take(&mut space, second));
    }

    #[test]
    fn only_one_bit_requests_a_reset() {
        let mut space = space();
        assert!(!space.write(EXPRESS as u64 + 8, &[0xff, 0x7f]));
        assert!(space.write(EXPRESS as u64 + 8, &[0, 0x80]));
        assert!(!space.write(u64::MAX, &[0xff; 8]));
        let mut end = [0; 8];
        space.read(BYTES as u64 - 4, &mut end);
        assert_eq!(end, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }
}
