//! The PCI configuration space of the function.

use crate::BAR_BYTES;
use crate::eq::VECTORS;

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

/// Offsets in BAR 0 of the table of MSI-X interrupts, and of their pending bits.
const MSI_X_TABLE: u32 = 0x2000;
const MSI_X_PENDING: u32 = 0x3000;

/// As what a function presents itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PCI device ID.
    pub device: u16,
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
        space.put(0x02, &identity.device.to_le_bytes());
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
        space.add_express();
        space.add_msi_x();
        space
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Adds the PCI Express capability of an endpoint with 16 lanes of 32 GT/s, as a ConnectX-7.
    fn add_express(&mut self) {
        const LINK: u16 = 16 << 4 | 5;
        self.put(EXPRESS, &[0x10, MSI_X as u8]);
        // Version 2, endpoint.
        self.put(EXPRESS + 2, &0x0002u16.to_le_bytes());
        // Payloads of up to 512 bytes, and function-level reset.
        self.put(EXPRESS + 4, &0x1000_8002u32.to_le_bytes());
        // Everything in device control, except the request for a reset, which is a command of the bus.
        self.writable[EXPRESS + 8..EXPRESS + 10].copy_from_slice(&0x7fffu16.to_le_bytes());
        self.put(EXPRESS + 0x0c, &u32::from(LINK).to_le_bytes());
        self.put(EXPRESS + 0x12, &LINK.to_le_bytes());
        self.put(EXPRESS + 0x2c, &0x3eu32.to_le_bytes());
        self.put(EXPRESS + 0x30, &0x0005u16.to_le_bytes());
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
        let mut resets = false;
        for (i, byte) in data.iter().enumerate() {
            let at = usize::try_from(offset).unwrap_or(BYTES).saturating_add(i);
            let Some(mask) = self.writable.get(at).copied() else { break };
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
            resets |= at == RESET.0 && byte & RESET.1 != 0;
        }
        resets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(Identity { device: 0x101e, infiniband: true })
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
