//! Objects that a program creates by its own commands.

use super::filter::{self, Kind};
use super::{FIRST_ID, caps};
use crate::attrs::Call;
use crate::device::VECTORS;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::handles::{Handles, Object};
use crate::open_device::OpenDevice;
use crate::registry::Registry;
use crate::subscriptions::Source;
use crate::verbs::cq::Cq;
use crate::verbs::dct::Dct;
use crate::verbs::qp::Qp;
use crate::verbs::srq::Srq;
use rushmem_mlx5::prm::{
    CmdError, CmdOpcode, CmdStatus, DecodeError, Header, counter, cq, dct, mkey, pd, qp, rmp, xrc,
};
use rushmem_softnic::{Event, ip_of_gid};

/// A DevX object and the command that destroys it.
pub(crate) struct Devx {
    kind: Kind,
    number: u32,
    destroy: [u8; 16],
}

impl Object for Devx {
    fn forget(&self, registry: &Registry) {
        if let Some(source) = self.source() {
            registry.unsubscribe(source);
        }
    }
}

impl Devx {
    /// Returns the event source of the object, if it has events.
    pub(crate) fn source(&self) -> Option<Source> {
        match self.kind {
            Kind::Cq => Some(Source::Cq(self.number)),
            Kind::Qp => Some(Source::Qp(self.number)),
            Kind::Rmp | Kind::XrcSrq => Some(Source::Rmp(self.number)),
            Kind::Dct => Some(Source::Dct(self.number)),
            Kind::Pd | Kind::Mkey | Kind::Xrcd | Kind::Counters => None,
        }
    }
}

/// ID of the DevX user context of every program.
const USER: u16 = 1;

/// Maximum length of an output mailbox, in bytes.
const MAX_MAILBOX_LEN: usize = 16 << 10;

const HANDLE: u16 = FIRST_ID;
const INPUT: u16 = FIRST_ID + 1;
const OUTPUT: u16 = FIRST_ID + 2;

/// Executes the command in `input`, and returns its output to the program. Fails as [`answer`] does.
fn execute(opened: &OpenDevice, call: &Call, input: &[u8], output: u16) -> Result<Vec<u8>, Errno> {
    let mailbox = run(opened, input, call.room(output))?;
    if let Err(error) = CmdError::check(&mailbox) {
        tracing::debug!(opcode = ?Header::decode(input).map(|header| header.opcode), %error, "refused");
    }
    answer(opened, call, &mailbox, output)?;
    Ok(mailbox)
}

/// Returns an output mailbox to the program. If it reports a refusal, fails with `EREMOTEIO`. Linux before 5.18 fails with
/// an error code for the status instead, and does not return the mailbox.
fn answer(opened: &OpenDevice, call: &Call, mailbox: &[u8], output: u16) -> Result<(), Errno> {
    let outcome = CmdError::check(mailbox);
    if let Err(error) = outcome
        && opened.device.has(Fault::OldKernel)
    {
        return Err(error.into());
    }
    call.output_bytes(output, mailbox)?;
    outcome.map_err(|_| Errno::EREMOTEIO)
}

/// Executes the command in `input` with an output of `room` bytes.
fn run(opened: &OpenDevice, input: &[u8], room: usize) -> Result<Vec<u8>, Errno> {
    if !(16..=MAX_MAILBOX_LEN).contains(&room) {
        return Err(Errno::EINVAL);
    }
    let mut mailbox = vec![0; room];
    let input = &with_user(input)?;
    match opcode(input)? {
        CmdOpcode::QUERY_ROCE_ADDRESS => caps::roce_address(opened, input, &mut mailbox)?,
        CmdOpcode::QUERY_HCA_CAP => {
            opened.session()?.context.command(input, &mut mailbox);
            caps::correct(opened, input, &mut mailbox);
        }
        _ => opened.session()?.context.command(input, &mut mailbox),
    }
    hide_reason(opened, &mut mailbox);
    Ok(mailbox)
}

/// Returns the command with the ID of a DevX user context, which Linux fills in.
fn with_user(input: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut input = input.to_vec();
    let header = input.first_chunk_mut().ok_or(Errno::EINVAL)?;
    Header { uid: USER, ..Header::read(header) }.write(header);
    Ok(input)
}

/// Replaces the syndrome of a refusal if a fault wants that. The syndromes of this adapter can be looked up.
fn hide_reason(opened: &OpenDevice, mailbox: &mut [u8]) {
    if let Err(DecodeError::Refused(error)) = CmdError::check(mailbox)
        && opened.device.has(Fault::Syndromes)
    {
        let syndrome = error.syndrome.wrapping_mul(0x9e37_79b1) | 1;
        CmdError { syndrome, ..error }.write(mailbox);
    }
}

fn opcode(input: &[u8]) -> Result<CmdOpcode, Errno> {
    Ok(Header::decode(input).map_err(|_| Errno::EINVAL)?.opcode)
}

/// Handles DEVX_OTHER: executes a firmware command that refers to no object.
pub(super) fn general(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let input = call.bytes(FIRST_ID)?;
    let opcode = opcode(&input)?;
    if !filter::is_general(opcode) {
        tracing::debug!(?opcode, "no general command");
        return Err(Errno::EINVAL);
    }
    execute(opened, call, &input, FIRST_ID + 1).map(drop)
}

/// Whether an event queue exists that takes completions: one for each vector, from 1 on.
fn is_completion_queue(eqn: u8) -> bool {
    (1..=VECTORS).contains(&eqn.into())
}

/// Handles DEVX_QUERY_EQN: returns the EQN of a completion vector.
pub(super) fn query_eqn(call: &Call) -> Result<(), Errno> {
    let vector: u32 = call.input(FIRST_ID)?;
    if vector >= VECTORS {
        return Err(Errno::EINVAL);
    }
    call.output(FIRST_ID + 1, &(vector + 1))
}

/// Handles DEVX_OBJ create.
pub(super) fn create(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let mut input = call.bytes(INPUT)?;
    let opcode = opcode(&input)?;
    if !filter::may_create(opcode) {
        tracing::debug!(?opcode, "no command that makes an object");
        return Err(Errno::EINVAL);
    }
    let first_call = match opcode {
        CmdOpcode::CREATE_CQ => opened.refuses_first(Fault::CqOnce),
        CmdOpcode::CREATE_QP => opened.refuses_first(Fault::QpOnce),
        _ => false,
    };
    if first_call || exceeds_function(opened, &input) {
        return refuse(opened, call);
    }
    if mkey::CreateMkey::decode(&input).is_ok_and(|command| command.context.umr_en) {
        tracing::debug!("keys that work-queue entries change are not supported");
        return Err(Errno::EOPNOTSUPP);
    }
    if cq::CreateCq::decode(&input).is_ok_and(|command| !is_completion_queue(command.context.c_eqn)) {
        return Err(Errno::ENOENT);
    }
    filter::set_umems_valid(opcode, &mut input);
    let output = execute(opened, call, &input, OUTPUT)?;
    let object = created(&input, &output).ok_or(Errno::EIO)?;
    let handle = opened.handles.insert(object)?;
    call.return_handle(HANDLE, handle)
}

/// Returns the object created by a successful command.
fn created(input: &[u8], output: &[u8]) -> Option<Devx> {
    let kind = filter::created(opcode(input).ok()?)?;
    let (number, destroy) = match kind {
        Kind::Pd => {
            let pd = pd::AllocPdOut::decode(output).ok()?.pd;
            (pd, pd::DeallocPd { pd, ..Default::default() }.encode())
        }
        Kind::Mkey => {
            let mkey_index = mkey::CreateMkeyOut::decode(output).ok()?.mkey_index;
            (mkey_index, mkey::DestroyMkey { mkey_index, ..Default::default() }.encode())
        }
        Kind::Cq => {
            let cqn = cq::CreateCqOut::decode(output).ok()?.cqn;
            (cqn, cq::DestroyCq { cqn, ..Default::default() }.encode())
        }
        Kind::Qp => {
            let qpn = qp::CreateQpOut::decode(output).ok()?.qpn;
            (qpn, qp::DestroyQp { qpn, ..Default::default() }.encode())
        }
        Kind::Rmp => {
            let rmpn = rmp::CreateRmpOut::decode(output).ok()?.rmpn;
            (rmpn, rmp::DestroyRmp { rmpn, ..Default::default() }.encode())
        }
        Kind::Dct => {
            let dctn = dct::CreateDctOut::decode(output).ok()?.dctn;
            (dctn, dct::DestroyDct { dctn, ..Default::default() }.encode())
        }
        Kind::Xrcd => {
            let xrcd = xrc::AllocXrcdOut::decode(output).ok()?.xrcd;
            (xrcd, xrc::DeallocXrcd { xrcd, ..Default::default() }.encode())
        }
        Kind::Counters => {
            let counter_set_id = counter::AllocQCounterOut::decode(output).ok()?.counter_set_id;
            let destroy = counter::DeallocQCounter { counter_set_id, ..Default::default() };
            (counter_set_id.into(), destroy.encode())
        }
        Kind::XrcSrq => {
            let xrc_srqn = xrc::CreateXrcSrqOut::decode(output).ok()?.xrc_srqn;
            (xrc_srqn, xrc::DestroyXrcSrq { xrc_srqn, ..Default::default() }.encode())
        }
    };
    Some(Devx { kind, number, destroy })
}

/// Returns the event source of the object with this handle.
pub(super) fn source(opened: &OpenDevice, handle: u32) -> Result<Source, Errno> {
    let devx = opened.handles.get::<Devx>(handle)?;
    devx.source().ok_or(Errno::EOPNOTSUPP)
}

/// Handles DEVX_OBJ destroy.
pub(super) fn destroy(opened: &mut OpenDevice, call: &Call) -> Result<(), Errno> {
    let handle = call.handle(HANDLE)?;
    let &Devx { kind, number, destroy } = opened.handles.get::<Devx>(handle)?;
    if kind == Kind::Dct {
        drain(opened, number)?;
    }
    let answer = run(opened, &destroy, 16)?;
    CmdError::check(&answer)?;
    let devx = opened.handles.remove::<Devx>(handle)?;
    if let Some(source) = devx.source() {
        opened.session()?.adapter.registry.unsubscribe(source);
    }
    Ok(())
}

/// Drains a DCT before it is destroyed, as Linux does. Its subscribers are told before this returns, since they are
/// forgotten with the DCT.
fn drain(opened: &OpenDevice, dctn: u32) -> Result<(), Errno> {
    let registry = &opened.session()?.adapter.registry;
    registry.event(Event::DctDrained { dctn });
    registry.unsubscribe(Source::Dct(dctn));
    let drain = dct::DrainDct { dctn, ..Default::default() }.encode();
    CmdError::check(&run(opened, &drain, 16)?).map_err(Errno::from)
}

/// Handles DEVX_OBJ modify.
pub(super) fn modify(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let mut input = call.bytes(INPUT)?;
    let opcode = opcode(&input)?;
    let kind = filter::modified(opcode).ok_or(Errno::EINVAL)?;
    filter::set_umems_valid(opcode, &mut input);
    about(opened, call, kind, &input)?;
    if refuses_path(opened, &input)? || exceeds_function(opened, &input) {
        return refuse(opened, call);
    }
    execute(opened, call, &input, OUTPUT).map(drop)
}

/// Refuses a command of an object as firmware does.
fn refuse(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let mut mailbox = [0; 16];
    CmdError { status: CmdStatus::BAD_PARAM, syndrome: 0 }.write(&mut mailbox);
    hide_reason(opened, &mut mailbox);
    answer(opened, call, &mailbox, OUTPUT)
}

/// Whether a command asks for what a virtual function does not offer, and the device is one.
fn exceeds_function(opened: &OpenDevice, input: &[u8]) -> bool {
    let asks = if let Ok(command) = qp::CreateQp::decode(input) {
        command.ece != 0
    } else if let Ok(command) = qp::Init2Rtr::decode(input) {
        command.opt_param_mask & qp::opt_param::LAG_TX_AFF != 0 || command.context.dp_ordering_0
    } else {
        false
    };
    asks && opened.device.has(Fault::VirtualFunction)
}

/// Whether a fault refuses this command for the path that it names: any path, or one to the own device.
fn refuses_path(opened: &OpenDevice, input: &[u8]) -> Result<bool, Errno> {
    let Ok(command) = qp::Init2Rtr::decode(input) else { return Ok(false) };
    if opened.device.has(Fault::Path) {
        return Ok(true);
    }
    let path = command.context.primary_address_path;
    let nic = &opened.session()?.adapter.nic;
    let is_own =
        path.fl || ip_of_gid(path.rgid_rip) == Some(*nic.address().ip()) || nic.lid() == Some(path.rlid);
    let is_self = command.context.remote_qpn == command.qpn;
    Ok(is_own && (opened.device.has(Fault::NoLoopback) || is_self && opened.device.has(Fault::NoSelfLoop)))
}

/// Handles DEVX_OBJ query.
pub(super) fn query(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    let input = question(opened, call)?;
    execute(opened, call, &input, OUTPUT).map(drop)
}

/// Handles asynchronous DEVX_OBJ query: the answer arrives in a file.
pub(super) fn query_async(opened: &OpenDevice, call: &Call) -> Result<(), Errno> {
    const FILE: u16 = FIRST_ID + 2;
    const REQUEST: u16 = FIRST_ID + 3;
    const ROOM: u16 = FIRST_ID + 4;
    let input = question(opened, call)?;
    let fd = call.optional_fd(FILE)?.ok_or(Errno::EINVAL)?;
    let channel = opened.channel(fd)?;
    let request: u64 = call.input(REQUEST)?;
    let room: u16 = call.input(ROOM)?;
    let answer = run(opened, &input, room.into())?;
    let event = [&request.to_ne_bytes()[..], &answer].concat();
    if channel.send(&event) { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Returns the query command in the call's input, after checking that it refers to the object.
fn question(opened: &OpenDevice, call: &Call) -> Result<Vec<u8>, Errno> {
    let input = call.bytes(INPUT)?;
    let kind = filter::queried(opcode(&input)?).ok_or(Errno::EINVAL)?;
    about(opened, call, kind, &input)?;
    Ok(input)
}

/// Checks that the command refers to the handle's object, whether made by DevX or verbs.
fn about(opened: &OpenDevice, call: &Call, kind: Kind, input: &[u8]) -> Result<(), Errno> {
    let number = filter::number_in(kind, input).ok_or(Errno::EINVAL)?;
    let found = about_handle(&opened.handles, call.handle(HANDLE)?)?;
    if found == (kind, number) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Returns the kind and the ID of an object, whether made by DevX or verbs.
fn about_handle(handles: &Handles, handle: u32) -> Result<(Kind, u32), Errno> {
    Ok(if let Ok(devx) = handles.get::<Devx>(handle) {
        (devx.kind, devx.number)
    } else if let Ok(qp) = handles.get::<Qp>(handle) {
        (Kind::Qp, qp.qpn)
    } else if let Ok(cq) = handles.get::<Cq>(handle) {
        (Kind::Cq, cq.cqn)
    } else if let Ok(srq) = handles.get::<Srq>(handle) {
        (if srq.is_xrc() { Kind::XrcSrq } else { Kind::Rmp }, srq.srqn)
    } else {
        (Kind::Dct, handles.get::<Dct>(handle)?.dctn.ok_or(Errno::EINVAL)?)
    })
}
