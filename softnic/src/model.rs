//! The models of ConnectX that an adapter can present itself as.

/// A model of ConnectX: what a driver identifies it by, and the speeds of its links. All models have the capabilities of
/// the software adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// ConnectX-5.
    Cx5,
    /// ConnectX-6.
    Cx6,
    /// ConnectX-6 Dx, which has Ethernet ports only.
    Cx6Dx,
    /// ConnectX-7.
    #[default]
    Cx7,
    /// ConnectX-8.
    Cx8,
}

/// The kind of a PCI function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FunctionType {
    /// A physical function.
    Physical,
    /// A virtual function, as SR-IOV creates.
    #[default]
    Virtual,
}

/// The speed of a port of four lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Name of the InfiniBand data rate.
    pub name: &'static str,
    /// Data rate of the port, in Gb/s.
    pub gbps: u32,
    /// Bit of the data rate in the register PTYS, which verbs report as `active_speed`.
    pub code: u16,
    /// Bit of the data rate in the extended link speeds of PortInfo.
    pub extended: u8,
}

impl Model {
    /// All models.
    pub const ALL: [Model; 5] = [Model::Cx5, Model::Cx6, Model::Cx6Dx, Model::Cx7, Model::Cx8];

    /// Returns the name by which a user chooses the model.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Model::Cx5 => "cx5",
            Model::Cx6 => "cx6",
            Model::Cx6Dx => "cx6dx",
            Model::Cx7 => "cx7",
            Model::Cx8 => "cx8",
        }
    }

    /// Returns the PCI device ID of a function.
    #[must_use]
    pub const fn device_id(self, function: FunctionType) -> u16 {
        match (self, function) {
            (Model::Cx5, FunctionType::Physical) => 0x1017,
            (Model::Cx5, FunctionType::Virtual) => 0x1018,
            (Model::Cx6, FunctionType::Physical) => 0x101b,
            (Model::Cx6, FunctionType::Virtual) => 0x101c,
            (Model::Cx6Dx, FunctionType::Physical) => 0x101d,
            (Model::Cx7, FunctionType::Physical) => 0x1021,
            (Model::Cx8, FunctionType::Physical) => 0x1023,
            (Model::Cx6Dx | Model::Cx7 | Model::Cx8, FunctionType::Virtual) => 0x101e,
        }
    }

    /// Returns the firmware version: major, minor, subminor. The major version identifies the model.
    #[must_use]
    pub const fn firmware(self) -> [u16; 3] {
        match self {
            Model::Cx5 => [16, 35, 4030],
            Model::Cx6 => [20, 43, 1014],
            Model::Cx6Dx => [22, 43, 1014],
            Model::Cx7 => [28, 43, 1014],
            Model::Cx8 => [40, 43, 1014],
        }
    }

    /// Returns the speed of the port. A ConnectX-8 runs at that of the medium, which is NDR.
    #[must_use]
    pub const fn speed(self) -> LinkSpeed {
        match self {
            Model::Cx5 => LinkSpeed { name: "EDR", gbps: 100, code: 1 << 5, extended: 2 },
            Model::Cx6 | Model::Cx6Dx => LinkSpeed { name: "HDR", gbps: 200, code: 1 << 6, extended: 4 },
            Model::Cx7 | Model::Cx8 => LinkSpeed { name: "NDR", gbps: 400, code: 1 << 7, extended: 8 },
        }
    }

    /// Returns the generation of PCI Express, which is also the code of its link speed.
    #[must_use]
    pub const fn pcie_generation(self) -> u8 {
        match self {
            Model::Cx5 => 3,
            Model::Cx6 | Model::Cx6Dx => 4,
            Model::Cx7 => 5,
            Model::Cx8 => 6,
        }
    }

    /// Whether the ports can be InfiniBand.
    #[must_use]
    pub const fn has_infiniband(self) -> bool {
        !matches!(self, Model::Cx6Dx)
    }
}
