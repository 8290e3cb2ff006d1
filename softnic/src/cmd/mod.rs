//! The command interface: PRM mailboxes create, modify and destroy objects.
//!
//! A handler checks a command completely before it changes anything, so a refused command has no effect.

mod agent;
pub(crate) mod caps;
mod counter;
mod cq;
mod dct;
mod ethernet;
mod mcg;
pub(crate) mod memory;
mod modify;
mod place;
mod port;
mod qp;
pub(crate) mod refuse;
mod register;
mod rmp;
mod xrc;

use crate::bus::Attached;
use crate::engine::core::Core;
use crate::objects::Objects;
use crate::transport::datapath::Datapath;
use refuse::{Reason, refuse};
use rushmem_mlx5::prm::cq::{CreateCq, ModifyCq};
use rushmem_mlx5::prm::flow::SetFlowTableEntry;
use rushmem_mlx5::prm::mkey::CreateMkey;
use rushmem_mlx5::prm::qp::CreateQp;
use rushmem_mlx5::prm::rmp::CreateRmp;
use rushmem_mlx5::prm::sq::{CreateRq, CreateSq};
use rushmem_mlx5::prm::tir::{CreateRqt, ModifyRqt};
use rushmem_mlx5::prm::umem::CreateUmem;
use rushmem_mlx5::prm::vport::ModifyNicVportContext;
use rushmem_mlx5::prm::xrc::CreateXrcSrq;
use rushmem_mlx5::prm::{CmdError, CmdOpcode, CmdStatus, Command, DecodeError, Header, Response};

type CmdResult<T> = Result<T, CmdError>;

/// Executes the command in `input` on behalf of a context, and fills `output`.
pub(crate) fn execute(core: &mut Core, context: u32, input: &[u8], output: &mut [u8]) {
    let opcode = Header::decode(input).map(|header| header.opcode);
    let change = opcode.as_ref().map_or(0, |opcode| objects_of(*opcode));
    if let Err(error) = within_quota(core, context, change, |core| dispatch(core, context, input, output)) {
        tracing::debug!(?opcode, %error, reason = refuse::reason(error.syndrome), "command refused");
        error.write(output);
    } else {
        tracing::trace!(?opcode, "command done");
    }
    if let Some(log) = &mut core.path.report.record {
        log.command(input, output);
    }
}

/// Runs a command that changes the number of a context's objects by `change`, unless the context has too many then.
fn within_quota(
    core: &mut Core,
    context: u32,
    change: i32,
    run: impl FnOnce(&mut Core) -> CmdResult<()>,
) -> CmdResult<()> {
    let is_full = core.path.objects.buses.get(&context).is_some_and(Attached::is_full);
    if change > 0 && is_full {
        return Err(refuse(CmdStatus::NO_RES, Reason::Quota));
    }
    run(core)?;
    if let Some(bus) = core.path.objects.buses.get_mut(&context) {
        bus.count_objects(change);
    }
    Ok(())
}

/// Returns by how many objects a context has more after it has executed this command.
fn objects_of(opcode: CmdOpcode) -> i32 {
    match opcode {
        CmdOpcode::ALLOC_Q_COUNTER
        | CmdOpcode::ALLOC_PD
        | CmdOpcode::ALLOC_UAR
        | CmdOpcode::ALLOC_XRCD
        | CmdOpcode::CREATE_UMEM
        | CmdOpcode::CREATE_MKEY
        | CmdOpcode::CREATE_CQ
        | CmdOpcode::CREATE_QP
        | CmdOpcode::CREATE_DCT
        | CmdOpcode::CREATE_RMP
        | CmdOpcode::CREATE_XRC_SRQ
        | CmdOpcode::CREATE_SQ
        | CmdOpcode::CREATE_RQ
        | CmdOpcode::CREATE_TIS
        | CmdOpcode::CREATE_TIR
        | CmdOpcode::CREATE_RQT
        | CmdOpcode::CREATE_FLOW_TABLE
        | CmdOpcode::CREATE_FLOW_GROUP
        | CmdOpcode::ALLOC_FLOW_COUNTER
        | CmdOpcode::ALLOC_TRANSPORT_DOMAIN => 1,
        CmdOpcode::DEALLOC_Q_COUNTER
        | CmdOpcode::DEALLOC_PD
        | CmdOpcode::DEALLOC_UAR
        | CmdOpcode::DEALLOC_XRCD
        | CmdOpcode::DESTROY_UMEM
        | CmdOpcode::DESTROY_MKEY
        | CmdOpcode::DESTROY_CQ
        | CmdOpcode::DESTROY_QP
        | CmdOpcode::DESTROY_DCT
        | CmdOpcode::DESTROY_RMP
        | CmdOpcode::DESTROY_XRC_SRQ
        | CmdOpcode::DESTROY_SQ
        | CmdOpcode::DESTROY_RQ
        | CmdOpcode::DESTROY_TIS
        | CmdOpcode::DESTROY_TIR
        | CmdOpcode::DESTROY_RQT
        | CmdOpcode::DESTROY_FLOW_TABLE
        | CmdOpcode::DESTROY_FLOW_GROUP
        | CmdOpcode::DEALLOC_FLOW_COUNTER
        | CmdOpcode::DEALLOC_TRANSPORT_DOMAIN => -1,
        _ => 0,
    }
}

fn dispatch(core: &mut Core, context: u32, input: &[u8], output: &mut [u8]) -> CmdResult<()> {
    let Ok(header) = Header::decode(input) else {
        return Err(refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength));
    };
    let mut call = Call { core, context, input, output };
    match header.opcode {
        CmdOpcode::QUERY_HCA_CAP => call.on_path(caps::query),
        CmdOpcode::QUERY_LAG => call.on_path(caps::lag),
        CmdOpcode::QUERY_ROCE_ADDRESS => call.on_path(caps::roce_address),
        CmdOpcode::SET_HCA_CAP => call.on_path(caps::set),
        CmdOpcode::ACCESS_REG => {
            let is_infiniband = call.core.path.config.infiniband;
            let of_port = if is_infiniband { port::register } else { ethernet::registers::access };
            register::access(&mut call.core.path, of_port, input, call.output)
        }
        CmdOpcode::MAD_IFC => call.on_path(agent::execute),
        CmdOpcode::QUERY_HCA_VPORT_CONTEXT => call.on_path(port::context),
        CmdOpcode::MODIFY_HCA_VPORT_CONTEXT => call.on_path(port::modify_context),
        CmdOpcode::QUERY_HCA_VPORT_GID => call.on_path(port::gid),
        CmdOpcode::QUERY_HCA_VPORT_PKEY => call.on_path(port::pkey),
        CmdOpcode::ALLOC_Q_COUNTER => call.on_path(counter::alloc),
        CmdOpcode::QUERY_Q_COUNTER => call.on_path(counter::query),
        CmdOpcode::DEALLOC_Q_COUNTER => call.on_path(counter::dealloc),
        CmdOpcode::ALLOC_PD => call.on_objects(memory::alloc_pd),
        CmdOpcode::DEALLOC_PD => call.on_objects(memory::dealloc_pd),
        CmdOpcode::ALLOC_UAR => call.on_objects(memory::alloc_uar),
        CmdOpcode::DEALLOC_UAR => call.on_objects(memory::dealloc_uar),
        CmdOpcode::CREATE_UMEM => call.with_list(CreateUmem::LEN, memory::create_umem),
        CmdOpcode::DESTROY_UMEM => call.on_objects(memory::destroy_umem),
        CmdOpcode::CREATE_MKEY => {
            let list = call.list(CreateMkey::LEN);
            call.run_with(|core, context, command| {
                memory::create_mkey(&mut core.path, context, command, list)
            })
        }
        CmdOpcode::DESTROY_MKEY => call.run(memory::destroy_mkey),
        CmdOpcode::CREATE_CQ => call.with_list(CreateCq::LEN, cq::create),
        CmdOpcode::MODIFY_CQ => call.with_list(ModifyCq::LEN, cq::modify),
        CmdOpcode::QUERY_CQ => call.on_objects(cq::query),
        CmdOpcode::DESTROY_CQ => call.on_objects(cq::destroy),
        CmdOpcode::CREATE_QP => {
            let list = call.list(CreateQp::LEN);
            call.run_with(|core, context, command| qp::create(&mut core.path, context, command, list))
        }
        CmdOpcode::QUERY_QP => call.on_objects(qp::query),
        CmdOpcode::DESTROY_QP => call.run(qp::destroy),
        CmdOpcode::CREATE_DCT => call.on_path(dct::create),
        CmdOpcode::DRAIN_DCT => call.run(dct::drain),
        CmdOpcode::QUERY_DCT => call.on_objects(dct::query),
        CmdOpcode::DESTROY_DCT => call.on_objects(dct::destroy),
        CmdOpcode::CREATE_RMP => call.with_list(CreateRmp::LEN, rmp::create),
        CmdOpcode::MODIFY_RMP => call.on_objects(rmp::modify),
        CmdOpcode::QUERY_RMP => call.on_objects(rmp::query),
        CmdOpcode::DESTROY_RMP => call.on_objects(rmp::destroy),
        CmdOpcode::ATTACH_TO_MCG => call.run(mcg::attach),
        CmdOpcode::DETACH_FROM_MCG => call.run(mcg::detach),
        CmdOpcode::ALLOC_XRCD => call.on_objects(xrc::alloc),
        CmdOpcode::DEALLOC_XRCD => call.on_objects(xrc::dealloc),
        CmdOpcode::CREATE_XRC_SRQ => call.with_list(CreateXrcSrq::LEN, xrc::create_srq),
        CmdOpcode::ARM_XRC_SRQ => call.on_objects(xrc::arm_srq),
        CmdOpcode::QUERY_XRC_SRQ => call.on_objects(xrc::query_srq),
        CmdOpcode::DESTROY_XRC_SRQ => call.on_objects(xrc::destroy_srq),
        CmdOpcode::RST2INIT_QP => call.on_path(modify::rst2init),
        CmdOpcode::INIT2INIT_QP => call.on_objects(modify::init2init),
        CmdOpcode::INIT2RTR_QP => call.on_path(modify::init2rtr),
        CmdOpcode::RTR2RTS_QP => call.on_path(modify::rtr2rts),
        CmdOpcode::RTS2RTS_QP => call.on_objects(modify::rts2rts),
        CmdOpcode::MODIFY_2ERR_QP => call.run(modify::to_error),
        CmdOpcode::MODIFY_2RST_QP => call.run(modify::to_reset),
        _ => dispatch_ethernet(call, header.opcode),
    }
}

/// Executes a command of Ethernet.
fn dispatch_ethernet(mut call: Call<'_>, opcode: CmdOpcode) -> CmdResult<()> {
    use ethernet::{flow, queues, tir, vport};

    match opcode {
        CmdOpcode::QUERY_VPORT_STATE => call.on_path(vport::state),
        CmdOpcode::QUERY_NIC_VPORT_CONTEXT => {
            vport::query(&mut call.core.path, call.context, call.input, call.output)
        }
        CmdOpcode::MODIFY_NIC_VPORT_CONTEXT => {
            call.on_path_with_list(ModifyNicVportContext::LEN, vport::modify)
        }
        CmdOpcode::QUERY_VPORT_COUNTER => call.on_path(vport::counters),
        CmdOpcode::SET_ROCE_ADDRESS => call.on_path(vport::set_address),
        CmdOpcode::ALLOC_TRANSPORT_DOMAIN => call.on_path(tir::alloc_domain),
        CmdOpcode::DEALLOC_TRANSPORT_DOMAIN => call.on_path(tir::dealloc_domain),
        CmdOpcode::CREATE_SQ => call.on_path_with_list(CreateSq::LEN, queues::create_sq),
        CmdOpcode::MODIFY_SQ => call.run(queues::modify_sq),
        CmdOpcode::QUERY_SQ => call.on_objects(queues::query_sq),
        CmdOpcode::DESTROY_SQ => call.run(queues::destroy_sq),
        CmdOpcode::CREATE_RQ => call.on_path_with_list(CreateRq::LEN, queues::create_rq),
        CmdOpcode::MODIFY_RQ => call.run(queues::modify_rq),
        CmdOpcode::QUERY_RQ => call.on_objects(queues::query_rq),
        CmdOpcode::DESTROY_RQ => call.run(queues::destroy_rq),
        CmdOpcode::CREATE_TIS => call.on_path(tir::create_tis),
        CmdOpcode::MODIFY_TIS => call.on_path(tir::modify_tis),
        CmdOpcode::DESTROY_TIS => call.on_path(tir::destroy_tis),
        CmdOpcode::CREATE_TIR => call.on_path(tir::create_tir),
        CmdOpcode::MODIFY_TIR => call.on_path(tir::modify_tir),
        CmdOpcode::DESTROY_TIR => call.on_path(tir::destroy_tir),
        CmdOpcode::CREATE_RQT => call.on_path_with_list(CreateRqt::LEN, tir::create_rqt),
        CmdOpcode::MODIFY_RQT => call.on_path_with_list(ModifyRqt::LEN, tir::modify_rqt),
        CmdOpcode::DESTROY_RQT => call.on_path(tir::destroy_rqt),
        CmdOpcode::SET_FLOW_TABLE_ROOT => call.on_path(flow::set_root),
        CmdOpcode::CREATE_FLOW_TABLE => call.on_path(flow::create_table),
        CmdOpcode::MODIFY_FLOW_TABLE => call.on_path(flow::modify_table),
        CmdOpcode::DESTROY_FLOW_TABLE => call.on_path(flow::destroy_table),
        CmdOpcode::CREATE_FLOW_GROUP => call.on_path(flow::create_group),
        CmdOpcode::DESTROY_FLOW_GROUP => call.on_path(flow::destroy_group),
        CmdOpcode::SET_FLOW_TABLE_ENTRY => call.on_path_with_list(SetFlowTableEntry::LEN, flow::set_entry),
        CmdOpcode::DELETE_FLOW_TABLE_ENTRY => call.on_path(flow::delete_entry),
        CmdOpcode::ALLOC_FLOW_COUNTER => call.on_path(flow::alloc_counter),
        CmdOpcode::QUERY_FLOW_COUNTER => call.on_path(flow::query_counter),
        CmdOpcode::DEALLOC_FLOW_COUNTER => call.on_path(flow::dealloc_counter),
        _ => Err(refuse(CmdStatus::BAD_OP, Reason::Command)),
    }
}

struct Call<'c> {
    core: &'c mut Core,
    context: u32,
    input: &'c [u8],
    output: &'c mut [u8],
}

impl<'c> Call<'c> {
    /// Returns the list that follows a mailbox of `fixed` bytes.
    fn list(&self, fixed: usize) -> &'c [u8] {
        self.input.get(fixed..).unwrap_or_default()
    }

    fn on_objects<C: Command>(
        &mut self,
        handler: fn(&mut Objects, u32, C) -> CmdResult<C::Output>,
    ) -> CmdResult<()> {
        self.run_with(|core, context, command| handler(&mut core.path.objects, context, command))
    }

    /// Executes a command whose mailbox of `fixed` bytes is followed by a list.
    fn with_list<C: Command>(
        &mut self,
        fixed: usize,
        handler: impl FnOnce(&mut Objects, u32, C, &[u8]) -> CmdResult<C::Output>,
    ) -> CmdResult<()> {
        let list = self.list(fixed);
        self.run_with(|core, context, command| handler(&mut core.path.objects, context, command, list))
    }

    /// Executes a command on the data path, whose mailbox of `fixed` bytes is followed by a list.
    fn on_path_with_list<C: Command>(
        &mut self,
        fixed: usize,
        handler: impl FnOnce(&mut Datapath, u32, C, &[u8]) -> CmdResult<C::Output>,
    ) -> CmdResult<()> {
        let list = self.list(fixed);
        self.run_with(|core, context, command| handler(&mut core.path, context, command, list))
    }

    fn on_path<C: Command>(
        &mut self,
        handler: fn(&mut Datapath, u32, C) -> CmdResult<C::Output>,
    ) -> CmdResult<()> {
        self.run_with(|core, context, command| handler(&mut core.path, context, command))
    }

    fn run<C: Command>(&mut self, handler: fn(&mut Core, u32, C) -> CmdResult<C::Output>) -> CmdResult<()> {
        self.run_with(handler)
    }

    fn run_with<C: Command>(
        &mut self,
        handler: impl FnOnce(&mut Core, u32, C) -> CmdResult<C::Output>,
    ) -> CmdResult<()> {
        let command = C::decode(self.input).map_err(|error| match error {
            DecodeError::Length { .. } => refuse(CmdStatus::BAD_INP_LEN, Reason::InputLength),
            _ => refuse(CmdStatus::BAD_PARAM, Reason::Command),
        })?;
        let answer = handler(self.core, self.context, command)?.encode();
        self.output.fill(0);
        for (to, from) in self.output.iter_mut().zip(answer.as_ref()) {
            *to = *from;
        }
        Ok(())
    }
}

fn require(condition: bool, why: Reason) -> CmdResult<()> {
    if condition { Ok(()) } else { Err(refuse(CmdStatus::BAD_PARAM, why)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Bus;
    use crate::config::Config;
    use crate::memory::{HostBuffer, Memory, PAGE};
    use rushmem_mlx5::prm::pd::{AllocPd, AllocPdOut, DeallocPd};
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::sync::Arc;

    #[test]
    fn a_function_has_a_quota_of_objects() {
        let mut core = Core::new(Config::default(), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), None, None);
        let context = core.contexts.open();
        let memory: Arc<dyn Memory> = Arc::new(HostBuffer::new(PAGE));
        let mut bus = Attached::new(Bus { memory: Arc::clone(&memory), doorbells: memory }, context);
        bus.count_objects((1 << 16) - 1);
        core.path.objects.buses.insert(context, bus);
        let mut run = |input: &[u8]| {
            let mut output = [0; AllocPdOut::LEN];
            execute(&mut core, context, input, &mut output);
            AllocPdOut::decode(&output)
        };
        let alloc = AllocPd::default().encode();
        let pd = run(&alloc).unwrap().pd;
        let refused = DecodeError::Refused(refuse(CmdStatus::NO_RES, Reason::Quota));
        assert_eq!(run(&alloc), Err(refused));
        // A refused command does not count.
        let foreign = DeallocPd { pd: pd + 1, ..DeallocPd::default() };
        assert!(run(&foreign.encode()).is_err() && run(&alloc).is_err());
        run(&DeallocPd { pd, ..DeallocPd::default() }.encode()).unwrap();
        run(&alloc).unwrap();
    }
}
