//! MODIFY_QP: converts QP attributes of verbs to firmware commands for state transitions.

use super::address::resolve;
use super::attributes::{answer, atomic_mode, merge};
use super::core_in;
use super::dct::{self, Dct};
use super::qp::{Qp, state};
use crate::abi::{self, access, qp_attr, qp_state};
use crate::attrs::Call;
use crate::device::PKEYS;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::open_device::OpenDevice;
use crate::settings::LinkLayer;
use rushmem_mlx5::prm::qp::{
    AddressPath, Init2Init, Init2Rtr, Mtu, QpContext, Rst2Init, Rtr2Rts, Rts2Rts, ServiceType, ToErr, ToRst,
    opt_param,
};

/// log2 of the maximum message length.
const LOG_MSG_MAX: u8 = 30;

/// Handles MODIFY_QP, plain and extended.
pub(super) fn modify(opened: &mut OpenDevice, number: u64, call: &Call) -> Result<(), Errno> {
    let request: abi::ModifyQp = core_in(call)?;
    if opened.handles.get::<Dct>(request.qp_handle).is_ok() {
        return dct::modify(opened, number, &request, call);
    }
    let qp = opened.handles.get::<Qp>(request.qp_handle)?;
    let before = qp.attributes();
    let mask = request.attr_mask;
    if mask & qp_attr::PORT != 0 && request.port_num != 1
        || mask & qp_attr::PKEY_INDEX != 0 && usize::from(request.pkey_index) >= PKEYS.len()
    {
        return Err(Errno::EINVAL);
    }
    let from = state(opened, qp)?;
    if mask & qp_attr::CUR_STATE != 0 && request.cur_qp_state != from {
        return Err(Errno::EINVAL);
    }
    let to = if mask & qp_attr::STATE != 0 { request.qp_state } else { from };
    if required(qp, from, to)? & !mask != 0 {
        return Err(Errno::EINVAL);
    }

    let merged = merge(&before, &request);
    let step = Step { opened: &*opened, qp, mask, attributes: &merged };
    match (from, to) {
        (_, qp_state::RESET) => step.reset()?,
        (_, qp_state::ERR) => step.error()?,
        (qp_state::RESET, _) => step.init()?,
        (qp_state::INIT, qp_state::INIT) => step.change_init()?,
        (qp_state::INIT, _) => step.ready_to_receive()?,
        (qp_state::RTR, _) => step.ready_to_send()?,
        _ => step.change_ready()?,
    }
    let qp = opened.handles.get_mut::<Qp>(request.qp_handle)?;
    let attributes = if to == qp_state::RESET { abi::ModifyQp::default() } else { merged };
    qp.set_attributes(abi::ModifyQp { qp_state: to, ..attributes });
    answer(number, call)
}

/// Returns the mask of attributes that a state transition requires, or `EINVAL` if there is no such transition.
fn required(qp: &Qp, from: u8, to: u8) -> Result<u32, Errno> {
    let service = qp.service;
    // The initiator and the target of XRC each use a part of the attributes.
    let initiates = service == ServiceType::XRC && !qp.is_target();
    let connected = service != ServiceType::UD;
    let dynamic = service == ServiceType::DCI;
    let reliable = matches!(service, ServiceType::RC | ServiceType::XRC) || dynamic;
    Ok(match (from, to) {
        (_, qp_state::RESET | qp_state::ERR) => 0,
        (qp_state::RESET, qp_state::INIT) if dynamic => qp_attr::PKEY_INDEX | qp_attr::PORT,
        (qp_state::INIT, qp_state::RTR) if dynamic => qp_attr::PATH_MTU,
        (qp_state::RESET, qp_state::INIT) => {
            let last = if connected { qp_attr::ACCESS_FLAGS } else { qp_attr::QKEY };
            qp_attr::PKEY_INDEX | qp_attr::PORT | last
        }
        (qp_state::INIT, qp_state::RTR) if reliable && !initiates => {
            qp_attr::AV
                | qp_attr::PATH_MTU
                | qp_attr::DEST_QPN
                | qp_attr::RQ_PSN
                | qp_attr::MAX_DEST_RD_ATOMIC
                | qp_attr::MIN_RNR_TIMER
        }
        (qp_state::INIT, qp_state::RTR) if connected => {
            qp_attr::AV | qp_attr::PATH_MTU | qp_attr::DEST_QPN | qp_attr::RQ_PSN
        }
        (qp_state::RTR, qp_state::RTS) if qp.is_target() => qp_attr::TIMEOUT | qp_attr::SQ_PSN,
        (qp_state::RTR, qp_state::RTS) if reliable => {
            qp_attr::TIMEOUT
                | qp_attr::RETRY_CNT
                | qp_attr::RNR_RETRY
                | qp_attr::SQ_PSN
                | qp_attr::MAX_QP_RD_ATOMIC
        }
        (qp_state::RTR, qp_state::RTS) => qp_attr::SQ_PSN,
        (qp_state::INIT, qp_state::INIT | qp_state::RTR) | (qp_state::RTS, qp_state::RTS) => 0,
        _ => return Err(Errno::EINVAL),
    })
}

/// State transition of a QP, with the attributes that it sets.
struct Step<'a> {
    opened: &'a OpenDevice,
    qp: &'a Qp,
    mask: u32,
    attributes: &'a abi::ModifyQp,
}

impl Step<'_> {
    fn reset(&self) -> Result<(), Errno> {
        self.qp.execute(self.opened, &ToRst { qpn: self.qp.qpn, ..ToRst::default() }).map(drop)
    }

    fn error(&self) -> Result<(), Errno> {
        self.qp.execute(self.opened, &ToErr { qpn: self.qp.qpn, ..ToErr::default() }).map(drop)
    }

    fn init(&self) -> Result<(), Errno> {
        let mut context = self.access();
        context.primary_address_path.vhca_port_num = self.attributes.port_num;
        context.primary_address_path.pkey_index = self.attributes.pkey_index;
        context.q_key = self.attributes.qkey;
        context.counter_set_id = self.opened.session()?.adapter.counter_set;
        self.qp.execute(self.opened, &Rst2Init { qpn: self.qp.qpn, context, ..Rst2Init::default() }).map(drop)
    }

    fn change_init(&self) -> Result<(), Errno> {
        let (opt_param_mask, context) = self.optional();
        let command = Init2Init { qpn: self.qp.qpn, opt_param_mask, context, ..Init2Init::default() };
        self.qp.execute(self.opened, &command).map(drop)
    }

    fn ready_to_receive(&self) -> Result<(), Errno> {
        let (opt_param_mask, context) = self.optional();
        let set = self.attributes;
        let service = self.qp.service;
        let connected = service != ServiceType::UD;
        let has_path = connected && service != ServiceType::DCI;
        let context = QpContext {
            // Datagrams are limited by the port's MTU.
            mtu: if connected { Mtu(set.path_mtu) } else { Mtu::B4096 },
            log_msg_max: if connected { LOG_MSG_MAX } else { 12 },
            remote_qpn: set.dest_qp_num & 0xff_ffff,
            next_rcv_psn: set.rq_psn & 0xff_ffff,
            log_rra_max: log_reads(set.max_dest_rd_atomic),
            min_rnr_nak: set.min_rnr_timer & 0x1f,
            primary_address_path: if has_path { self.path()? } else { AddressPath::default() },
            ..context
        };
        let command = Init2Rtr { qpn: self.qp.qpn, opt_param_mask, context, ..Init2Rtr::default() };
        self.qp.execute(self.opened, &command).map(drop)
    }

    fn ready_to_send(&self) -> Result<(), Errno> {
        let (opt_param_mask, mut context) = self.optional();
        let set = self.attributes;
        context.next_send_psn = set.sq_psn & 0xff_ffff;
        context.log_sra_max = log_reads(set.max_rd_atomic);
        context.retry_count = set.retry_cnt & 7;
        context.rnr_retry = set.rnr_retry & 7;
        context.primary_address_path.ack_timeout = set.timeout & 0x1f;
        let command = Rtr2Rts { qpn: self.qp.qpn, opt_param_mask, context, ..Rtr2Rts::default() };
        self.qp.execute(self.opened, &command).map(drop)
    }

    fn change_ready(&self) -> Result<(), Errno> {
        let (opt_param_mask, context) = self.optional();
        let command = Rts2Rts { qpn: self.qp.qpn, opt_param_mask, context, ..Rts2Rts::default() };
        self.qp.execute(self.opened, &command).map(drop)
    }

    /// Returns a QP context with the rights that the QP grants to its peer.
    fn access(&self) -> QpContext {
        let set = self.attributes;
        let has = |flag| set.qp_access_flags & flag != 0;
        let atomics = has(access::REMOTE_ATOMIC) && !self.opened.device.has(Fault::NoAtomics);
        QpContext {
            rre: has(access::REMOTE_READ),
            rwe: has(access::REMOTE_WRITE),
            rae: atomics,
            atomic_mode: atomic_mode(atomics),
            ..QpContext::default()
        }
    }

    /// Returns the attributes that most transitions may change, limited to the program's mask.
    fn optional(&self) -> (u32, QpContext) {
        let mut selected = 0;
        let mut context = self.access();
        if self.mask & qp_attr::ACCESS_FLAGS != 0 {
            selected |= opt_param::RRE | opt_param::RWE | opt_param::RAE;
        }
        if self.mask & qp_attr::MIN_RNR_TIMER != 0 {
            selected |= opt_param::RNR_TIMEOUT;
            context.min_rnr_nak = self.attributes.min_rnr_timer & 0x1f;
        }
        if self.mask & qp_attr::QKEY != 0 {
            selected |= opt_param::Q_KEY;
            context.q_key = self.attributes.qkey;
        }
        (selected, context)
    }

    /// Returns the address path to the peer, for the QP context.
    fn path(&self) -> Result<AddressPath, Errno> {
        let dest = &self.attributes.dest;
        let common = AddressPath {
            vhca_port_num: self.attributes.port_num,
            tclass: dest.traffic_class,
            flow_label: dest.flow_label & 0xf_ffff,
            hop_limit: dest.hop_limit,
            ..AddressPath::default()
        };
        match self.opened.device.settings.link {
            LinkLayer::InfiniBand if dest.dlid == 0 => Err(Errno::EINVAL),
            LinkLayer::InfiniBand => Ok(AddressPath { rlid: dest.dlid, sl: dest.sl & 0xf, ..common }),
            LinkLayer::Ethernet if dest.is_global == 0 => Err(Errno::EINVAL),
            LinkLayer::Ethernet => {
                let peer = resolve(self.opened, dest.sgid_index, dest.dgid)?;
                Ok(AddressPath {
                    src_addr_index: dest.sgid_index,
                    rgid_rip: peer.ip.to_ipv6_mapped().octets(),
                    rmac: peer.mac,
                    ..common
                })
            }
        }
    }
}

/// Returns log2 of a number of outstanding reads, rounded up.
fn log_reads(reads: u8) -> u8 {
    u32::from(reads.max(1)).next_power_of_two().ilog2() as u8
}
