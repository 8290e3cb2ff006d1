//! The messages of the vfio-user protocol, as structs of the bytes on the socket.

use bytemuck::{Pod, Zeroable};

/// What a message requests.
pub(super) mod command {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const DEVICE_GET_INFO: u16 = 4;
    pub(crate) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(crate) const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub(crate) const DEVICE_SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const DEVICE_RESET: u16 = 13;
}

/// Bits of [`Header::flags`].
pub(super) mod flag {
    /// The type of the message, of which 0 is a command.
    pub(crate) const TYPE: u32 = 0xf;
    pub(crate) const REPLY: u32 = 1;
    /// The sender expects no reply.
    pub(crate) const NO_REPLY: u32 = 1 << 4;
    /// The reply consists of an error number.
    pub(crate) const ERROR: u32 = 1 << 5;
}

/// The header of each message.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) command: u16,
    /// Length of the message with this header, in bytes.
    pub(super) len: u32,
    pub(super) flags: u32,
    pub(super) error: u32,
}

/// VERSION, which a JSON text follows.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    /// Bit 0: readable, bit 1: writable.
    pub(super) flags: u32,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Bus address.
    pub(super) address: u64,
    pub(super) size: u64,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    /// Bit 1: everything is unmapped, and address and size are 0.
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) size: u64,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    /// Bit 0: can be reset, bit 1: a PCI device.
    pub(super) flags: u32,
    pub(super) num_regions: u32,
    pub(super) num_irqs: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    /// Bit 0: readable, bit 1: writable.
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) cap_offset: u32,
    pub(super) size: u64,
    pub(super) offset: u64,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct IrqInfo {
    pub(super) argsz: u32,
    /// Bit 0: signalled by eventfd, bit 3: the number of interrupts is fixed.
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}

/// SET_IRQS. One byte for each interrupt may follow, and event files may accompany it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SetIrqs {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) start: u32,
    pub(super) count: u32,
}

/// Bits of [`SetIrqs::flags`].
pub(super) mod irq {
    pub(crate) const DATA_NONE: u32 = 1;
    pub(crate) const DATA_BOOL: u32 = 1 << 1;
    pub(crate) const DATA_EVENTFD: u32 = 1 << 2;
    pub(crate) const ACTION_TRIGGER: u32 = 1 << 5;
}

/// REGION_READ and REGION_WRITE. The data follows.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RegionAccess {
    pub(super) offset: u64,
    pub(super) region: u32,
    pub(super) count: u32,
}

/// Reads a struct from the start of a message's payload, and returns the rest.
pub(super) fn split<T: Pod>(payload: &[u8]) -> Option<(T, &[u8])> {
    let (head, rest) = payload.split_at_checked(size_of::<T>())?;
    Some((bytemuck::pod_read_unaligned(head), rest))
}
