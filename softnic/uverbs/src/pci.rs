//! PCI functions as sysfs shows them: the adapter, and the bridge above it.

use rushmem_softnic::{FunctionType, Model};

/// PCI vendor ID of the adapter and the bridge: Mellanox.
const VENDOR: u16 = 0x15b3;
/// Offset of the PCI Express capability in configuration space.
const EXPRESS: usize = 0x60;
/// Capability ID of PCI Express.
const EXPRESS_ID: u8 = 0x10;
/// Link width, in lanes.
const WIDTH: u8 = 16;
/// Length of the world-readable configuration space, in bytes.
const CONFIG: usize = 256;
/// Number of resources in sysfs: six BARs, the ROM and the windows of a bridge.
const RESOURCES: usize = 13;

pub(crate) struct Function {
    device: u16,
    subsystem: u16,
    /// Class, subclass and programming interface.
    class: [u8; 3],
    /// Generation of PCI Express, which is also the code of the link speed.
    generation: u8,
    /// Bus number below a bridge. `None` for an adapter.
    secondary_bus: Option<u8>,
}

impl Function {
    /// Returns the PCI function of a ConnectX.
    pub(crate) fn adapter(model: Model, function: FunctionType) -> Function {
        Function {
            device: model.device_id(function),
            subsystem: 0x0041,
            class: [2, 7, 0],
            generation: model.pcie_generation(),
            secondary_bus: None,
        }
    }

    /// Returns the PCI function of a bridge to bus `secondary_bus`.
    pub(crate) fn bridge(secondary_bus: u8) -> Function {
        let secondary_bus = Some(secondary_bus);
        Function { device: 0x197b, subsystem: 0, class: [6, 4, 0], generation: 5, secondary_bus }
    }

    /// Returns the data-direct function of a ConnectX-8, a system peripheral.
    pub(crate) fn data_direct() -> Function {
        Function { device: 0x2100, subsystem: 0, class: [8, 0x80, 0], generation: 6, secondary_bus: None }
    }

    /// Returns the function's text files in sysfs, by name. `slot` is its PCI address.
    pub(crate) fn attributes(&self, slot: &str) -> Vec<(&'static str, String)> {
        let [class, subclass, interface] = self.class;
        let Function { device, subsystem, .. } = self;
        // Kept as it was before `class` said InfiniBand, for programs that match on it.
        let alias_subclass = if self.secondary_bus.is_some() { subclass } else { 0 };
        let modalias = format!(
            "pci:v{VENDOR:08X}d{device:08X}sv{VENDOR:08X}sd{subsystem:08X}bc{class:02X}sc{alias_subclass:02X}i{interface:02X}"
        );
        let driver = if self.secondary_bus.is_some() { "pcieport" } else { "mlx5_core" };
        let uevent = format!(
            "DRIVER={driver}\nPCI_CLASS={class:X}{subclass:02X}{interface:02X}\nPCI_ID={VENDOR:04X}:{device:04X}\n\
             PCI_SUBSYS_ID={VENDOR:04X}:{subsystem:04X}\nPCI_SLOT_NAME={slot}\nMODALIAS={modalias}"
        );
        let resource = [["0x0000000000000000"; 3].join(" ").as_str(); RESOURCES].join("\n");
        let speed = match self.generation {
            3 => "8.0 GT/s PCIe",
            4 => "16.0 GT/s PCIe",
            5 => "32.0 GT/s PCIe",
            _ => "64.0 GT/s PCIe",
        };
        let fixed = [
            ("revision", "0x00"),
            ("irq", "0"),
            ("enable", "1"),
            ("max_link_speed", speed),
            ("max_link_width", "16"),
            ("current_link_speed", speed),
            ("current_link_width", "16"),
        ];
        let mut attributes: Vec<_> = fixed.into_iter().map(|(name, text)| (name, text.to_owned())).collect();
        attributes.extend([
            ("vendor", format!("{VENDOR:#06x}")),
            ("device", format!("{device:#06x}")),
            ("subsystem_vendor", format!("{VENDOR:#06x}")),
            ("subsystem_device", format!("{subsystem:#06x}")),
            ("class", format!("0x{class:02x}{subclass:02x}{interface:02x}")),
            ("modalias", modalias),
            ("uevent", uevent),
            ("resource", resource),
        ]);
        attributes
    }

    /// Returns the configuration space. It has no BARs, because the device has no registers to map.
    pub(crate) fn config(&self) -> Vec<u8> {
        let mut config = vec![0; CONFIG];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0x00, &VENDOR.to_le_bytes());
        put(0x02, &self.device.to_le_bytes());
        // Command: memory space and bus mastering. Status: capability list.
        put(0x04, &[0x06, 0x04, 0x10, 0x00]);
        let [class, subclass, interface] = self.class;
        put(0x09, &[interface, subclass, class]);
        put(0x34, &[EXPRESS as u8]);
        // Version 2 of the capability, for an endpoint or a root port.
        let kind = match self.secondary_bus {
            None => {
                put(0x2c, &VENDOR.to_le_bytes());
                put(0x2e, &self.subsystem.to_le_bytes());
                0x02
            }
            Some(bus) => {
                put(0x0e, &[1]);
                put(0x19, &[bus, bus]);
                0x42
            }
        };
        put(EXPRESS, &[EXPRESS_ID, 0, kind, 0]);
        // Link capabilities and status: speed and width.
        let link = (u16::from(self.generation) | u16::from(WIDTH) << 4).to_le_bytes();
        put(EXPRESS + 0x0c, &link);
        put(EXPRESS + 0x12, &link);
        // All lower link speeds are supported, too.
        put(EXPRESS + 0x2c, &[(1 << (self.generation + 1)) - 2]);
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(function: &Function, name: &str) -> String {
        let attributes = function.attributes("7000:01:00.0");
        attributes.into_iter().find(|(other, _)| *other == name).unwrap().1
    }

    #[test]
    fn text_and_configuration_space_agree() {
        let [bridge, adapter] = [Function::bridge(3), Function::adapter(Model::Cx7, FunctionType::Physical)];
        for function in [&bridge, &adapter] {
            let config = function.config();
            let word = |at: usize| format!("0x{:02x}{:02x}", config[at + 1], config[at]);
            assert_eq!(attribute(function, "vendor"), word(0));
            assert_eq!(attribute(function, "device"), word(2));
            let class = format!("0x{:02x}{:02x}{:02x}", config[11], config[10], config[9]);
            assert_eq!(attribute(function, "class"), class);
            assert_eq!(config[EXPRESS + 0x12..][..2], [0x05, 0x01], "x16 at 32 GT/s");
        }
        assert_eq!(bridge.config()[0x18..0x1b], [0, 3, 3]);
        assert_eq!(attribute(&adapter, "modalias"), "pci:v000015B3d00001021sv000015B3sd00000041bc02sc00i00");
        assert_eq!(attribute(&adapter, "resource").lines().count(), RESOURCES);
    }
}
