//! Methods of the device object: contexts, device attributes, ports and GIDs.

use super::{ah, core_out, cq, dm, mcast, modify, mr, pd, qp, srq, write, xrc};
use crate::abi::{self, command, driver_data, odp};
use crate::attrs::Call;
use crate::device::VECTORS;
use crate::errno::Errno;
use crate::events::Kind;
use crate::fault::Fault;
use crate::inventory::Inventory;
use crate::open_device::{OpenDevice, Session};
use crate::sysfs;
use std::sync::Arc;

mod method {
    pub(super) const INVOKE_WRITE: u16 = 0;
    pub(super) const QUERY_PORT: u16 = 2;
    pub(super) const GET_CONTEXT: u16 = 3;
    pub(super) const QUERY_CONTEXT: u16 = 4;
    pub(super) const QUERY_GID_TABLE: u16 = 5;
    pub(super) const QUERY_GID_ENTRY: u16 = 6;
}

/// Flag that requests DevX for the context.
const FLAG_DEVX: u32 = 1;

pub(crate) fn call(opened: &mut OpenDevice, method: u16, call: &Call) -> Result<(), Errno> {
    match method {
        method::INVOKE_WRITE => invoke_write(opened, call),
        method::QUERY_PORT => query_port(opened, call),
        method::GET_CONTEXT => get_context(opened, call),
        method::QUERY_CONTEXT => {
            opened.session()?;
            // The driver has no input here, so the output has the first ID.
            describe_context(call, driver_data::IN)
        }
        method::QUERY_GID_TABLE => query_gid_table(opened, call),
        method::QUERY_GID_ENTRY => query_gid_entry(opened, call),
        abi::DATA_DIRECT_PATH => data_direct_path(opened, call),
        _ => Err(Errno::EPROTONOSUPPORT),
    }
}

/// Executes a command of the older `write` interface. Fails for an unknown one, but not with EPROTONOSUPPORT:
/// libibverbs would then retry by `write`, which succeeds on a memory file.
fn invoke_write(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let command: u64 = call.input(write::COMMAND)?;
    if !call.has(write::CORE_IN) && !call.has(write::CORE_OUT) {
        // The library probes for the method.
        return Err(Errno::ENOSPC);
    }
    match command {
        command::QUERY_DEVICE => core_out(call, &opened.device.attributes()),
        command::EX_QUERY_DEVICE => extended_query_device(opened, call),
        command::ALLOC_PD => pd::alloc(opened, call),
        command::REG_MR => mr::register(opened, call),
        command::REREG_MR => mr::reregister(opened, call),
        command::CREATE_COMP_CHANNEL => cq::create_channel(opened, call),
        command::RESIZE_CQ => cq::resize(opened, call),
        command::CREATE_SRQ => srq::create(opened, call),
        command::CREATE_XSRQ => srq::create_of_xrcd(opened, call),
        command::OPEN_XRCD => xrc::open(opened, call),
        command::OPEN_QP => qp::open(opened, call),
        command::MODIFY_SRQ => srq::modify(opened, call),
        command::QUERY_SRQ => srq::query(opened, call),
        command::DESTROY_SRQ => srq::destroy(opened, call),
        command::CREATE_AH => ah::create(opened, call),
        command::ATTACH_MCAST => mcast::attach(opened, call),
        command::DETACH_MCAST => mcast::detach(opened, call),
        command::QUERY_QP => qp::query(opened, call),
        command::MODIFY_QP | command::EX_MODIFY_QP => modify::modify(opened, command, call),
        other => {
            tracing::debug!(command = other, "command that this device does not have");
            Err(Errno::EOPNOTSUPP)
        }
    }
}

fn extended_query_device(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let base = opened.device.attributes();
    let connected = odp::SEND | odp::RECV | odp::WRITE;
    let reliable = connected | odp::SRQ_RECV | odp::ATOMIC | odp::READ;
    let attributes = abi::ExQueryDevice {
        base,
        response_length: call.room(write::CORE_OUT).min(size_of::<abi::ExQueryDevice>()) as u32,
        odp: [odp::SUPPORT, 0, reliable, connected, odp::SEND, 0],
        xrc_odp_caps: reliable,
        // Completion timestamps are nanoseconds since the adapter's start.
        timestamp_mask: u64::MAX,
        hca_core_clock: rushmem_softnic::CLOCK_KHZ.into(),
        max_dm_size: dm::MAX_BYTES,
        device_cap_flags_ex: base.device_cap_flags.into(),
        ..abi::ExQueryDevice::default()
    };
    call.output(write::CORE_OUT, &attributes)?;
    let driver = abi::DriverQueryDevice {
        response_length: call.room(driver_data::OUT).min(size_of::<abi::DriverQueryDevice>()) as u32,
        ..abi::DriverQueryDevice::default()
    };
    call.output(driver_data::OUT, &driver)
}

fn get_context(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    if opened.context.is_some() {
        return Err(Errno::EINVAL);
    }
    let request: abi::ContextRequest = call.input(driver_data::IN)?;
    let devx = request.flags & FLAG_DEVX != 0;
    if devx && opened.device.has(Fault::Devx) {
        return Err(Errno::EPERM);
    }
    let adapter = opened.device.adapter()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // A tick is a nanosecond, which reduces the conversion to an addition.
    let info = abi::ClockInfo {
        nsec: now.as_nanos() as u64,
        cycles: adapter.nic.clock(),
        mult: 1,
        mask: u64::MAX,
        overflow_period: u64::MAX / 2,
        ..abi::ClockInfo::default()
    };
    opened.pages.set_clock_info(&info)?;
    let context = adapter.nic.open();
    context.show_clock(Arc::new(opened.pages.clock()?), 0)?;
    let inventory = Inventory::new(opened.pages.file()?, opened.device.index);
    opened.context = Some(Session { context, adapter, devx, inventory });
    describe_context(call, driver_data::OUT)
}

/// Returns the properties of a context to the program that creates or imports it. `driver_out` is the attribute ID of
/// the mlx5 driver's output.
fn describe_context(call: &Call, driver_out: u16) -> Result<(), Errno> {
    const VECTORS_OUT: u16 = 0;
    const SUPPORT_OUT: u16 = 1;
    /// Flag of the context: optional access rights of MRs are accepted.
    const OPTIONAL_RIGHTS: u64 = 1;
    /// Flag of the context: the program can map the adapter's clock, which is at the start of its page.
    const CLOCK: u32 = 1;

    let response = abi::ContextResponse {
        qp_tab_size: 1 << 17,
        bf_reg_size: 512,
        // None in advance: the library requests each doorbell page.
        tot_bfregs: 0,
        cache_line_size: 64,
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: 1 << 15,
        max_recv_wr: 1 << 15,
        max_srq_recv_wr: (1 << 15) - 1,
        num_ports: 1,
        comp_mask: CLOCK,
        response_length: size_of::<abi::ContextResponse>() as u32,
        cqe_version: 1,
        // QUERY_DEVICE and CREATE_AH have driver-specific responses.
        cmds_supp_uhw: 3,
        eth_min_inline: 1,
        clock_info_versions: 1,
        log_uar_size: 12,
        num_uars_per_page: 1,
        ..abi::ContextResponse::default()
    };
    call.output(driver_out, &response)?;
    call.output(VECTORS_OUT, &VECTORS)?;
    call.output(SUPPORT_OUT, &OPTIONAL_RIGHTS)
}

/// Checks a port number. The only port is 1.
fn port(number: u64) -> Result<(), Errno> {
    if number == 1 { Ok(()) } else { Err(Errno::EINVAL) }
}

fn query_port(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    port(call.input(0)?)?;
    let session = opened.session()?;
    call.output(1, &opened.device.port(&session.adapter.nic))
}

fn query_gid_table(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let entry_size = usize::try_from(call.input::<u64>(0)?).map_err(|_| Errno::EINVAL)?;
    if call.input::<u32>(1)? != 0 || entry_size < size_of::<abi::GidEntry>() || entry_size > 4096 {
        return Err(Errno::EINVAL);
    }
    let table = opened.device.gids(&opened.session()?.adapter.nic);
    if call.room(2) / entry_size < table.len() {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; entry_size * table.len()];
    for (to, entry) in bytes.chunks_exact_mut(entry_size).zip(&table) {
        to[..size_of::<abi::GidEntry>()].copy_from_slice(bytemuck::bytes_of(entry));
    }
    call.output_bytes(2, &bytes)?;
    call.output(3, &(table.len() as u64))
}

fn query_gid_entry(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    port(call.input(0)?)?;
    let index: u64 = call.input(1)?;
    if call.input::<u32>(2)? != 0 || index >= crate::live::GID_SLOTS.into() {
        return Err(Errno::EINVAL);
    }
    let table = opened.device.gids(&opened.session()?.adapter.nic);
    let entry = table.iter().find(|entry| u64::from(entry.gid_index) == index);
    call.output(3, entry.ok_or(Errno::ENODATA)?)
}

/// Returns the path of the data-direct device, relative to the root of sysfs.
fn data_direct_path(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    const PATH_OUT: u16 = driver_data::IN;
    opened.session()?;
    if !opened.device.has(Fault::DataDirect) {
        return Err(Errno::ENODEV);
    }
    let mut path = sysfs::data_direct(opened.device.index).ok_or(Errno::ENODEV)?.into_bytes();
    path.push(0);
    if path.len() > call.room(PATH_OUT) {
        return Err(Errno::ENOSPC);
    }
    call.output_bytes(PATH_OUT, &path)
}

/// Handles ASYNC_EVENT: creates the event file of the device.
pub(crate) fn async_event_file(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    opened.session()?;
    let fd = opened.new_channel(Kind::Fixed)?;
    let channel = opened.channel(fd)?;
    opened.session()?.adapter.registry.listen_to_port(&channel);
    opened.asynchronous = Some(channel);
    call.return_file(0, fd)
}
