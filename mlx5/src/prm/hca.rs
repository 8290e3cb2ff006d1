//! Commands that start and stop a PCIe function, supply its firmware with memory, and negotiate its interface. On
//! Linux, only the kernel issues them.

use super::Bytes;
use super::caps::CapPage;
use super::layout::{command, layout, numbers, response};

command! { ENABLE_HCA -> EnableHcaOut;
    /// ENABLE_HCA: enables a function, before any other command.
    pub struct EnableHca[16] {
        /// The function to enable; 0 is the one that sends the command.
        function_id: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`EnableHca`]. It carries no data beyond its status.
    pub struct EnableHcaOut[16] {}
}

command! { DISABLE_HCA -> DisableHcaOut;
    /// DISABLE_HCA: disables a function.
    pub struct DisableHca[16] {
        /// The function to disable; 0 is the one that sends the command.
        function_id: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`DisableHca`]. It carries no data beyond its status.
    pub struct DisableHcaOut[16] {}
}

command! { INIT_HCA -> InitHcaOut;
    /// INIT_HCA: initializes a function, which has enough pages. Objects can be created from now on.
    pub struct InitHca[32] {}
}

response! {
    /// The NIC's reply to [`InitHca`]. It carries no data beyond its status.
    pub struct InitHcaOut[16] {}
}

command! { TEARDOWN_HCA -> TeardownHcaOut;
    /// TEARDOWN_HCA: destroys all objects of a function.
    pub struct TeardownHca[16] {
        /// How to close the function: 0 is graceful.
        profile: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`TeardownHca`].
    pub struct TeardownHcaOut[16] {
        /// Whether a requested forced or fast teardown failed.
        state: bool = 0x7f, 1;
    }
}

numbers! {
    /// Which pages QUERY_PAGES asks for.
    pub struct PagesFor(u16) {
        /// Those that the function needs to answer further commands.
        BOOT = 1;
        /// Those that it needs for INIT_HCA.
        INIT = 2;
        /// Those that it does not need any more.
        REGULAR = 3;
    }
}

command! { QUERY_PAGES -> QueryPagesOut;
    /// QUERY_PAGES: asks how many pages of 4096 bytes the firmware needs.
    pub struct QueryPages[16] {
        /// What the pages are for.
        op_mod: PagesFor = 0x30, 16;
        /// The function that needs the pages; 0 is the one that sends the command.
        function_id: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`QueryPages`].
    pub struct QueryPagesOut[16] {
        /// The function that needs the pages.
        function_id: u16 = 0x50, 16;
        /// Number of pages, as a signed number: negative if the firmware returns pages.
        num_pages: u32 = 0x60, 32;
    }
}

numbers! {
    /// The direction of MANAGE_PAGES.
    pub struct PagesMode(u16) {
        /// The driver could not allocate the pages.
        CANNOT_GIVE = 0;
        /// The driver gives the listed pages to the firmware.
        GIVE = 1;
        /// The driver takes pages back.
        TAKE = 2;
    }
}

command! { MANAGE_PAGES -> ManagePagesOut;
    /// MANAGE_PAGES: gives pages to the firmware, or takes them back. The addresses of given pages follow the mailbox.
    pub struct ManagePages[16] {
        /// Whether pages are given or taken.
        op_mod: PagesMode = 0x30, 16;
        /// The function that the pages belong to; 0 is the one that sends the command.
        function_id: u16 = 0x50, 16;
        /// Number of pages given, or the largest number to take.
        input_num_entries: u32 = 0x60, 32;
    }
}

response! {
    /// The NIC's reply to [`ManagePages`]. The addresses of returned pages follow it.
    pub struct ManagePagesOut[16] {
        /// Number of pages that the firmware returns.
        output_num_entries: u32 = 0x40, 32;
    }
}

command! { QUERY_ISSI -> QueryIssiOut;
    /// QUERY_ISSI: asks for the supported versions of the interface between software and silicon (ISSI).
    pub struct QueryIssi[16] {}
}

response! {
    /// The NIC's reply to [`QueryIssi`].
    pub struct QueryIssiOut[112] {
        /// The version in use.
        current_issi: u16 = 0x50, 16;
        /// Bit mask of the supported versions below 32.
        supported_issi_dw0: u32 = 0x360, 32;
    }
}

command! { SET_ISSI -> SetIssiOut;
    /// SET_ISSI: chooses the version of the interface between software and silicon.
    pub struct SetIssi[16] {
        /// The version to use.
        current_issi: u16 = 0x50, 16;
    }
}

response! {
    /// The NIC's reply to [`SetIssi`]. It carries no data beyond its status.
    pub struct SetIssiOut[16] {}
}

command! { SET_DRIVER_VERSION -> SetDriverVersionOut;
    /// SET_DRIVER_VERSION: reports the driver's name and version to the firmware.
    pub struct SetDriverVersion[80] {
        /// Name and version of the driver, padded with zeros.
        driver_version: Bytes<64> = 0x80, 512;
    }
}

response! {
    /// The NIC's reply to [`SetDriverVersion`]. It carries no data beyond its status.
    pub struct SetDriverVersionOut[16] {}
}

command! { SET_HCA_CAP -> SetHcaCapOut;
    /// SET_HCA_CAP: sets one page of capabilities, before INIT_HCA.
    pub struct SetHcaCap[4112] {
        /// Which page to set.
        cap_type: super::caps::CapType = 0x30, 15;
        /// The page.
        page: CapPage = 0x80, 32768;
    }
}

response! {
    /// The NIC's reply to [`SetHcaCap`]. It carries no data beyond its status.
    pub struct SetHcaCapOut[16] {}
}

layout! {
    /// The identity of a NIC.
    pub struct AdapterParams[256] {
        /// IEEE vendor ID (OUI).
        ieee_vendor_id: u32 = 0x0c8, 24;
        /// PCI vendor ID of the vendor-specific data.
        vsd_vendor_id: u16 = 0x0f0, 16;
        /// Parameter set ID (PSID), which identifies the board.
        psid: Bytes<16> = 0x780, 128;
    }
}

command! { QUERY_ADAPTER -> QueryAdapterOut;
    /// QUERY_ADAPTER: asks for the identity of the NIC.
    pub struct QueryAdapter[16] {}
}

response! {
    /// The NIC's reply to [`QueryAdapter`].
    pub struct QueryAdapterOut[272] {
        /// The identity.
        params: AdapterParams = 0x80, 2048;
    }
}
