//! Responses of RDMA netlink about the objects of all processes of this user.

use super::abi::{attribute, command};
use super::message::Writer;
use crate::abi::{qp_state, qp_type};
use crate::device::Device;
use crate::inventory::{self, Kind, Opened, Record};

/// Maximum number of entries of a message, which leaves room in a datagram.
const ENTRIES: usize = 20;

/// Returns the number of objects of each kind, except rdma_cm identifiers, which are not recorded.
pub(super) fn summary(device: &Device) -> Writer {
    const KINDS: [(&str, Kind); 6] = [
        ("pd", Kind::Pd),
        ("cq", Kind::Cq),
        ("qp", Kind::Qp),
        ("mr", Kind::Mr),
        ("ctx", Kind::Context),
        ("srq", Kind::Srq),
    ];
    let all = inventory::of_device(device.index);
    let mut writer = Writer::about(device);
    writer.nest(attribute::RES_SUMMARY, |list| {
        for (name, kind) in KINDS {
            let count: usize = all.iter().map(|opened| opened.all(kind).count()).sum();
            list.nest(attribute::RES_SUMMARY_ENTRY, |entry| {
                entry.text(attribute::RES_SUMMARY_ENTRY_NAME, name);
                entry.u64(attribute::RES_SUMMARY_ENTRY_CURR, count as u64);
            });
        }
    });
    writer
}

/// Function that appends the attributes of an object's record to a response.
type Fill = fn(&mut Writer, &Record, &Opened);

/// Returns the bodies of the responses to a command that lists objects.
pub(super) fn list(device: &Device, command: u16) -> Vec<Writer> {
    let (kind, table, entry, fill): (Kind, u16, u16, Fill) = match command {
        command::RES_PD_GET => (Kind::Pd, attribute::RES_PD, attribute::RES_PD_ENTRY, pd),
        command::RES_CQ_GET => (Kind::Cq, attribute::RES_CQ, attribute::RES_CQ_ENTRY, cq),
        command::RES_QP_GET => (Kind::Qp, attribute::RES_QP, attribute::RES_QP_ENTRY, qp),
        command::RES_MR_GET => (Kind::Mr, attribute::RES_MR, attribute::RES_MR_ENTRY, mr),
        command::RES_SRQ_GET => (Kind::Srq, attribute::RES_SRQ, attribute::RES_SRQ_ENTRY, srq),
        _ => (Kind::Context, attribute::RES_CTX, attribute::RES_CTX_ENTRY, |_, _, _| {}),
    };
    let all = inventory::of_device(device.index);
    let objects: Vec<_> = (0u32..)
        .zip(&all)
        .flat_map(|(context, opened)| opened.all(kind).map(move |record| (context, opened, record)))
        .collect();
    let message = |objects: &[(u32, &Opened, &Record)]| {
        let mut writer = Writer::about(device);
        writer.nest(table, |list| {
            for (context, opened, record) in objects {
                list.nest(entry, |entry| {
                    fill(entry, record, opened);
                    if kind != Kind::Qp {
                        entry.u32(attribute::RES_CTXN, *context);
                    }
                    entry.u32(attribute::RES_PID, opened.pid);
                });
            }
        });
        writer
    };
    objects.chunks(ENTRIES).map(message).collect()
}

fn pd(entry: &mut Writer, record: &Record, opened: &Opened) {
    let users = opened.records.iter().filter(|other| !other.is(Kind::Pd) && other.pd == record.number);
    entry.u32(attribute::RES_PDN, record.number);
    entry.u64(attribute::RES_USECNT, users.count() as u64);
}

fn cq(entry: &mut Writer, record: &Record, opened: &Opened) {
    let users = opened.all(Kind::Qp).flat_map(|qp| qp.cqns).filter(|cqn| *cqn == record.number);
    entry.u32(attribute::RES_CQE, record.len as u32);
    entry.u64(attribute::RES_USECNT, users.count() as u64);
    entry.u32(attribute::RES_CQN, record.number);
}

fn qp(entry: &mut Writer, record: &Record, _opened: &Opened) {
    let kind = u64::from(record.subtype);
    if record.state != qp_state::RESET {
        entry.u32(attribute::PORT_INDEX, 1);
    }
    entry.u32(attribute::RES_LQPN, record.number);
    entry.u32(attribute::RES_PDN, record.pd);
    if matches!(kind, qp_type::RC | qp_type::UC) {
        entry.u32(attribute::RES_RQPN, record.peer);
        entry.u32(attribute::RES_RQ_PSN, record.receive_psn);
    }
    entry.u32(attribute::RES_SQ_PSN, record.send_psn);
    if matches!(kind, qp_type::RC | qp_type::UC | qp_type::XRC_INITIATOR | qp_type::XRC_TARGET) {
        // There is only one path, which counts as migrated.
        entry.u8(attribute::RES_PATH_MIG_STATE, 0);
    }
    entry.u8(attribute::RES_TYPE, record.subtype);
    entry.u8(attribute::RES_STATE, record.state);
}

fn mr(entry: &mut Writer, record: &Record, _opened: &Opened) {
    entry.u32(attribute::RES_RKEY, record.number);
    entry.u32(attribute::RES_LKEY, record.number);
    entry.u64(attribute::RES_MRLEN, record.len);
    // The MKey index.
    entry.u32(attribute::RES_MRN, record.number >> 8);
    entry.u32(attribute::RES_PDN, record.pd);
}

fn srq(entry: &mut Writer, record: &Record, _opened: &Opened) {
    entry.u32(attribute::RES_SRQN, record.number);
    entry.u8(attribute::RES_TYPE, record.subtype);
    entry.u32(attribute::RES_PDN, record.pd);
}
