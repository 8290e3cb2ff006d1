//! Capabilities of a NIC (QUERY_HCA_CAP) and its RoCE addresses.

mod ethernet;
mod general;
mod roce;

pub use ethernet::{EthernetCaps, FlowTableCaps, FlowTableProperties, InlineMode, MatchFields};
pub use general::{GeneralCap2, HcaCap, PortType};
pub use roce::{
    QueryRoceAddress, QueryRoceAddressOut, RoceAddr, RoceCap, RoceVersion, SetRoceAddress, SetRoceAddressOut,
};

use super::{
    Layout, Value,
    field::Bits,
    layout::{command, layout, numbers, response},
};
use core::fmt;

numbers! {
    /// Selects a capability page of QUERY_HCA_CAP.
    pub struct CapType(u16) {
        /// General capabilities: [`HcaCap`].
        GENERAL = 0x00;
        /// Offloads for Ethernet frames: [`EthernetCaps`].
        ETHERNET_OFFLOADS = 0x01;
        /// On-demand paging.
        ODP = 0x02;
        /// Remote atomics: [`AtomicCaps`].
        ATOMIC = 0x03;
        /// RoCE: [`RoceCap`].
        ROCE = 0x04;
        /// Flow tables of the NIC: [`FlowTableCaps`].
        NIC_FLOW_TABLE = 0x07;
        /// Flow tables of the embedded switch.
        ESWITCH_FLOW_TABLE = 0x08;
        /// The embedded switch.
        ESWITCH = 0x09;
        /// Quality of service.
        QOS = 0x0c;
        /// Memory on the NIC itself.
        DEVICE_MEMORY = 0x0f;
        /// Second page of general capabilities: [`GeneralCap2`].
        GENERAL_2 = 0x20;
    }
}

command! { QUERY_HCA_CAP -> QueryHcaCapOut;
    /// QUERY_HCA_CAP: queries one page of NIC capabilities.
    pub struct QueryHcaCap[16] {
        /// Which page to return.
        cap_type: CapType = 0x30, 15;
        /// True for the values in effect, false for the maximum ones that can be set.
        current: bool = 0x3f, 1;
    }
}

impl QueryHcaCap {
    /// Creates a query for the capability page `C`, with the values in effect.
    pub fn current<C: Capability>() -> Self {
        Self { uid: 0, cap_type: C::TYPE, current: true }
    }
}

response! {
    /// The NIC's reply to [`QueryHcaCap`], with the capability page.
    pub struct QueryHcaCapOut[4112] {
        /// The 4096-byte capability page, to be parsed by [`CapPage::get`].
        page: CapPage = 0x80, 32768;
    }
}

/// The raw bytes of a capability page. They do not say which type of page they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CapPage(pub [u8; 4096]);

/// Prints a placeholder, because the bytes do not reveal the page's type; see [`CapPage::get`].
impl fmt::Debug for CapPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CapPage(..)")
    }
}

impl Default for CapPage {
    fn default() -> Self {
        Self([0; 4096])
    }
}

impl CapPage {
    /// Encodes `capabilities` as a page; the remaining bytes are zero.
    pub fn new(capabilities: impl Capability) -> Self {
        let mut page = Self::default();
        capabilities.write_at(&mut page.0, 0, 0);
        page
    }

    /// Parses the page as `C`, which must be the type that was queried.
    pub fn get<C: Capability>(&self) -> C {
        C::read_at(&self.0, 0, 0)
    }
}

impl Value for CapPage {
    const BITS: Bits = Bits::Exactly(4096 * 8);

    fn read_at<const LEN: usize>(bytes: &[u8; LEN], offset: usize, width: u32) -> Self {
        Self(Value::read_at(bytes, offset, width))
    }

    fn write_at<const LEN: usize>(self, bytes: &mut [u8; LEN], offset: usize, width: u32) {
        self.0.write_at(bytes, offset, width);
    }
}

/// A typed capability page, such as [`HcaCap`] or [`RoceCap`].
pub trait Capability: Layout + Value {
    /// The page type that selects this page in QUERY_HCA_CAP.
    const TYPE: CapType;
}

impl Capability for HcaCap {
    const TYPE: CapType = CapType::GENERAL;
}

impl Capability for GeneralCap2 {
    const TYPE: CapType = CapType::GENERAL_2;
}

impl Capability for AtomicCaps {
    const TYPE: CapType = CapType::ATOMIC;
}

impl Capability for RoceCap {
    const TYPE: CapType = CapType::ROCE;
}

impl Capability for EthernetCaps {
    const TYPE: CapType = CapType::ETHERNET_OFFLOADS;
}

impl Capability for FlowTableCaps {
    const TYPE: CapType = CapType::NIC_FLOW_TABLE;
}

layout! {
    /// Support for remote atomics, [`CapType::ATOMIC`].
    pub struct AtomicCaps[256] {
        /// Byte order of 8-byte results: 1 for host order, 0 for big-endian.
        atomic_req_8b_endianness_mode: u8 = 0x040, 2;
        /// `atomic_req_8b_endianness_mode` can be set to 1.
        supported_atomic_req_8b_endianness_mode_1: bool = 0x046, 1;
        /// Supported operations, as a union of [`AtomicCaps::CMP_SWAP`] and the other constants.
        atomic_operations: u16 = 0x090, 16;
        /// Supported operand sizes over connections: a set bit is the size in bytes (4 and 8 are `0x0c`).
        atomic_size_qp: u16 = 0x0b0, 16;
        /// Supported operand sizes over dynamic connections: a set bit is the size in bytes.
        atomic_size_dc: u16 = 0x0d0, 16;
        /// Operand sizes for FetchAdd requests on PCIe: 1 is 4 bytes, 2 is 8, 4 is 16.
        fetch_add_pci_atomic: u16 = 0x280, 16;
        /// Operand sizes for Swap requests on PCIe, encoded like `fetch_add_pci_atomic`.
        swap_pci_atomic: u16 = 0x290, 16;
        /// Operand sizes for CAS requests on PCIe, encoded like `fetch_add_pci_atomic`.
        compare_swap_pci_atomic: u16 = 0x2a0, 16;
    }
}

impl AtomicCaps {
    /// Bit of `atomic_operations`: compare and swap.
    pub const CMP_SWAP: u16 = 1;
    /// Bit of `atomic_operations`: fetch and add.
    pub const FETCH_ADD: u16 = 2;
    /// Bit of `atomic_operations`: masked compare and swap.
    pub const MASKED_CMP_SWAP: u16 = 4;
    /// Bit of `atomic_operations`: fetch and add on independent bit fields.
    pub const MASKED_FETCH_ADD: u16 = 8;
}
