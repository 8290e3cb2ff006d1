//! Responses of RDMA netlink about devices, ports and their counters.

use super::abi::{attribute, command};
use super::message::{Request, Writer};
use super::resources;
use crate::abi::{self, gid_type};
use crate::device::Device;
use crate::errno::Errno;
use crate::settings::LinkLayer;
use crate::{cm, live, node, sys};
use std::sync::Arc;

/// Node type of a channel adapter, as opposed to a switch.
const NODE_CA: u8 = 1;
/// The kernel's driver ID of mlx5, by which libibverbs selects libmlx5.
const DRIVER_MLX5: u32 = 1;
/// Port number of a device's only port.
const PORT: u32 = 1;
/// ABI version of the device nodes.
const UVERBS_ABI: u64 = 1;
const UMAD_ABI: u64 = 5;

/// Returns the bodies of the responses to a command: a single one, or a list of any length.
pub(super) fn answer(
    devices: &[Arc<Device>],
    request: &Request,
    command: u16,
    lists: bool,
) -> Result<Vec<Writer>, Errno> {
    let one = || -> Result<&Arc<Device>, Errno> {
        let index = request.number(attribute::DEV_INDEX)?.ok_or(Errno::EINVAL)?;
        devices.get(index as usize).ok_or(Errno::EINVAL)
    };
    let port = || match request.number(attribute::PORT_INDEX)? {
        Some(PORT) => Ok(()),
        _ => Err(Errno::EINVAL),
    };
    let answer = match command {
        command::GET if lists => return Ok(devices.iter().map(described).collect()),
        command::GET => described(one()?),
        command::PORT_GET if lists => port_of(one()?)?,
        command::PORT_GET => {
            port()?;
            port_of(one()?)?
        }
        command::SYS_GET if !lists => system(),
        command::GET_CHARDEV if !lists => node(devices, request)?,
        command::RES_GET if lists => return Ok(devices.iter().map(|one| resources::summary(one)).collect()),
        command::RES_GET => resources::summary(one()?),
        command::RES_QP_GET
        | command::RES_CQ_GET
        | command::RES_MR_GET
        | command::RES_PD_GET
        | command::RES_CTX_GET
        | command::RES_SRQ_GET
            if lists =>
        {
            return Ok(resources::list(one()?, command));
        }
        command::STAT_GET if lists => counters_of_queues(one()?, request)?,
        command::STAT_GET | command::STAT_GET_STATUS if !lists => {
            port()?;
            match request.number(attribute::STAT_RES)? {
                None => counters(one()?, command == command::STAT_GET),
                Some(_) => mode(one()?),
            }
        }
        command::SET | command::NEWLINK | command::DELLINK | command::SYS_SET | command::STAT_SET => {
            return Err(Errno::EOPNOTSUPP);
        }
        command::STAT_DEL | command::STAT_GET_STATUS | command::RES_CM_ID_GET => {
            return Err(Errno::EOPNOTSUPP);
        }
        command::RES_QP_GET_RAW | command::RES_CQ_GET_RAW | command::RES_MR_GET_RAW => {
            return Err(Errno::EOPNOTSUPP);
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(vec![answer])
}

fn about_port(device: &Device) -> Writer {
    let mut writer = Writer::about(device);
    writer.u32(attribute::PORT_INDEX, PORT);
    writer
}

fn described(device: &Arc<Device>) -> Writer {
    let [major, minor, sub] = device.settings.model.firmware();
    let guid = u64::from_be_bytes(device.guid());
    // In this response, `PORT_INDEX` holds the number of ports.
    let mut writer = about_port(device);
    writer.u64(attribute::CAP_FLAGS, device.attributes().device_cap_flags.into());
    writer.text(attribute::FW_VERSION, &format!("{major}.{minor}.{sub:04}"));
    writer.u64(attribute::NODE_GUID, guid);
    writer.u64(attribute::SYS_IMAGE_GUID, guid);
    writer.u8(attribute::DEV_NODE_TYPE, NODE_CA);
    writer.u8(attribute::DEV_DIM, 0);
    let protocol = if device.settings.link == LinkLayer::Ethernet { "roce" } else { "ib" };
    writer.text(attribute::DEV_PROTOCOL, protocol);
    writer
}

fn port_of(device: &Arc<Device>) -> Result<Writer, Errno> {
    let place = device.place()?;
    let port = device.port(place);
    let mut writer = about_port(device);
    writer.u64(attribute::CAP_FLAGS, port.port_cap_flags.into());
    if device.settings.link == LinkLayer::InfiniBand {
        writer.u64(attribute::SUBNET_PREFIX, u64::from_be_bytes(rushmem_softnic::subnet::SUBNET_PREFIX));
        writer.u32(attribute::LID, port.lid.into());
        writer.u32(attribute::SM_LID, port.sm_lid.into());
        writer.u8(attribute::LMC, port.lmc);
    }
    writer.u8(attribute::PORT_STATE, port.state);
    writer.u8(attribute::PORT_PHYS_STATE, port.phys_state);
    let is_roce = |entry: &abi::GidEntry| entry.gid_type != gid_type::IB || entry.netdev_ifindex != 0;
    if device.gids(place).iter().any(is_roce)
        && let Ok(name) = live::network_device(place.ip)
    {
        writer.u32(attribute::NDEV_INDEX, sys::interface_index(&name));
        writer.text(attribute::NDEV_NAME, &name);
    }
    Ok(writer)
}

/// Returns the response to SYS_GET: settings of the RDMA subsystem as a whole.
fn system() -> Writer {
    let mut writer = Writer::default();
    // All network namespaces share the devices.
    writer.u8(attribute::NETNS_MODE, 1);
    // Fork is safe without copying registered memory: the adapter accesses it by its address in the process.
    writer.u8(attribute::COPY_ON_FORK, 1);
    writer
}

/// Returns number, ABI version and name of a device node, given by its type. A node of type `rdma_cm` serves all
/// devices.
fn node(devices: &[Arc<Device>], request: &Request) -> Result<Writer, Errno> {
    let kind = request.text(attribute::CHARDEV_TYPE).ok_or(Errno::EINVAL)?;
    let index = request.number(attribute::DEV_INDEX)?;
    if index.is_some_and(|index| index as usize >= devices.len()) {
        return Err(Errno::EINVAL);
    }
    let mut writer = Writer::default();
    let (number, version, name) = match (kind, index) {
        ("uverbs", Some(index)) => (node::device_number(index), UVERBS_ABI, format!("uverbs{index}")),
        ("umad", Some(index)) => (node::umad_number(index), UMAD_ABI, format!("umad{index}")),
        ("rdma_cm", _) if !devices.is_empty() => {
            let version = abi::RDMA_CM_VERSION.parse().unwrap_or_default();
            (cm::device_number(), version, "rdma_cm".to_owned())
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    writer.u64(attribute::CHARDEV, number);
    writer.u64(attribute::CHARDEV_ABI, version);
    writer.text(attribute::CHARDEV_NAME, &name);
    if kind == "uverbs" {
        writer.u32(attribute::UVERBS_DRIVER_ID, DRIVER_MLX5);
    }
    Ok(writer)
}

/// Returns the hardware counters of a device's port by name, with their values or, to query which are enabled, their
/// indices.
fn counters(device: &Device, values: bool) -> Writer {
    let counts = device.counts();
    let table = [
        ("out_of_sequence", counts.out_of_sequence),
        ("duplicate_request", counts.duplicate_request),
        ("packet_seq_err", counts.packet_seq_err),
        ("local_ack_timeout_err", counts.local_ack_timeout_err),
    ];
    let mut writer = about_port(device);
    writer.nest(attribute::STAT_HWCOUNTERS, |list| {
        for (number, (name, value)) in table.into_iter().enumerate() {
            list.nest(attribute::STAT_HWCOUNTER_ENTRY, |entry| {
                entry.text(attribute::STAT_HWCOUNTER_ENTRY_NAME, name);
                match values {
                    true => entry.u64(attribute::STAT_HWCOUNTER_ENTRY_VALUE, value.into()),
                    false => entry.u32(attribute::STAT_HWCOUNTER_INDEX, number as u32),
                }
            });
        }
    });
    writer
}

/// Returns the mode of per-QP counters: none.
fn mode(device: &Device) -> Writer {
    let mut writer = about_port(device);
    writer.u32(attribute::STAT_MODE, 0);
    writer
}

/// Returns the list of per-QP counters, which is empty.
fn counters_of_queues(device: &Device, request: &Request) -> Result<Writer, Errno> {
    request.number(attribute::STAT_RES)?.ok_or(Errno::EINVAL)?;
    let mut writer = Writer::about(device);
    writer.nest(attribute::STAT_COUNTER, |_| {});
    Ok(writer)
}
