//! Creates and destroys the adapter's objects, and counts the references between them.

use super::cq::Cq;
use super::dct::Dct;
use super::qp::{OfDct, Qp};
use super::srq::{SharedSrq, Srq};
use super::uar::UarPage;
use super::{Objects, Pd, Xrcd};
use crate::dma::{Mkey, Umem};
use crate::report::Report;
use crate::table::Table;

/// An object that counts the references of other objects to it.
trait Used {
    fn users(&mut self) -> &mut u32;
}

macro_rules! used {
    ($($object:ident)*) => {
        $(impl Used for $object {
            fn users(&mut self) -> &mut u32 {
                &mut self.users
            }
        })*
    };
}

used!(Pd Umem UarPage Cq Xrcd Srq);

/// Adds `change` to the reference count of object `number`, if it exists.
fn count<T: Used>(objects: &mut Table<T>, number: u32, change: i32) {
    if let Some(object) = objects.get_mut(number) {
        count_on(object, change);
    }
}

fn count_on(object: &mut impl Used, change: i32) {
    let users = object.users();
    *users = users.saturating_add_signed(change);
}

impl Objects {
    /// Adds the QP that `make` builds for its new QPN. Returns `None` if no QPN is left.
    pub(crate) fn add_qp(&mut self, make: impl FnOnce(u32) -> Box<Qp>) -> Option<u32> {
        let qpn = self.qps.insert_with(make)?;
        self.count_qp(qpn, 1);
        if let Some(number) = self.qps.get(qpn).and_then(|qp| qp.special()) {
            self.special[number as usize] = Some(qpn);
        }
        if let Some(qp) = self.qps.get(qpn)
            && let Some(uar) = self.uars.get_mut(qp.uar)
        {
            uar.qps.push(qpn);
        }
        Some(qpn)
    }

    /// Returns the QPN of the QP to which a datagram to `qpn` goes: QP 0 and 1 are those of the driver, if it has any.
    pub(crate) fn destination(&self, qpn: u32) -> u32 {
        self.special.get(qpn as usize).copied().flatten().unwrap_or(qpn)
    }

    /// Destroys a QP whose dynamic connection, if it had one, is closed.
    pub(crate) fn remove_qp(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        qp.drop_partial_message();
        qp.leave_xrc_queue();
        self.groups.remove_from_all(qpn);
        self.special.iter_mut().for_each(|special| *special = special.filter(|other| *other != qpn));
        self.count_qp(qpn, -1);
        let Some(page) = self.qps.remove(qpn).map(|qp| qp.uar) else { return };
        if let Some(uar) = self.uars.get_mut(page) {
            uar.qps.retain(|other| *other != qpn);
        }
        self.remove_unused_uar(page);
    }

    /// Adds `change` to the reference count of each object that a QP uses.
    fn count_qp(&mut self, qpn: u32, change: i32) {
        let Some(qp) = self.qps.get(qpn) else { return };
        count(&mut self.pds, qp.pd, change);
        count(&mut self.uars, qp.uar, change);
        qp.umems.iter().for_each(|umem| count(&mut self.umems, *umem, change));
        for cqn in [qp.cq_send, qp.cq_recv].into_iter().flatten() {
            count(&mut self.cqs, cqn, change);
        }
        if qp.is_xrc_target() {
            count(&mut self.xrcds, qp.context.xrcd, change);
        }
        if let Some(srq) = &qp.srq {
            count_on(&mut *srq.get(), change);
        }
    }

    pub(crate) fn add_cq(&mut self, cq: Cq) -> Option<u32> {
        let (umems, page) = (cq.umems, cq.uar);
        let cqn = self.cqs.insert(cq)?;
        umems.iter().for_each(|umem| count(&mut self.umems, *umem, 1));
        if let Some(uar) = self.uars.get_mut(page) {
            count_on(uar, 1);
            uar.cqs.push(cqn);
        }
        Some(cqn)
    }

    /// Moves the reference of a CQ's ring to another umem.
    pub(crate) fn move_cq(&mut self, cqn: u32, umem: u32) {
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        let old = std::mem::replace(&mut cq.umems[0], umem);
        count(&mut self.umems, umem, 1);
        count(&mut self.umems, old, -1);
    }

    pub(crate) fn remove_cq(&mut self, cqn: u32) {
        let Some(cq) = self.cqs.remove(cqn) else { return };
        cq.umems.iter().for_each(|umem| count(&mut self.umems, *umem, -1));
        if let Some(uar) = self.uars.get_mut(cq.uar) {
            count_on(uar, -1);
            uar.cqs.retain(|other| *other != cqn);
        }
        self.remove_unused_uar(cq.uar);
    }

    /// Removes a UAR page, as soon as no QP and no CQ uses it.
    pub(crate) fn release_uar(&mut self, page: u32) {
        if let Some(uar) = self.uars.get_mut(page) {
            uar.is_released = true;
        }
        self.remove_unused_uar(page);
    }

    fn remove_unused_uar(&mut self, page: u32) {
        if self.uars.get(page).is_some_and(|uar| uar.is_released && uar.users == 0) {
            self.uars.remove(page);
        }
    }

    pub(crate) fn add_srq(&mut self, make: impl FnOnce(u32) -> Srq) -> Option<u32> {
        let srqn = self.srqs.insert_with(|srqn| SharedSrq::new(make(srqn)))?;
        self.count_srq(srqn, 1);
        Some(srqn)
    }

    pub(crate) fn remove_srq(&mut self, srqn: u32) {
        self.count_srq(srqn, -1);
        self.srqs.remove(srqn);
    }

    /// Adds `change` to the reference count of each object that an SRQ uses.
    fn count_srq(&mut self, srqn: u32, change: i32) {
        let Some(srq) = self.srqs.get(srqn) else { return };
        let srq = srq.get();
        count(&mut self.pds, srq.pd, change);
        srq.umems.iter().for_each(|umem| count(&mut self.umems, *umem, change));
        if let Some(of) = srq.of_xrcd {
            count(&mut self.xrcds, of.xrcd, change);
            count(&mut self.cqs, of.cqn, change);
        }
    }

    pub(crate) fn add_mkey(&mut self, make: impl FnOnce(u32) -> Mkey) -> Option<u32> {
        let index = self.mkeys.insert_with(make)?;
        let mkey = self.mkeys.get(index)?;
        self.dma.has_far |= mkey.host.is_none();
        count(&mut self.pds, mkey.pd, 1);
        count(&mut self.umems, mkey.umem, 1);
        Some(index)
    }

    pub(crate) fn remove_mkey(&mut self, index: u32, report: &mut Report) {
        self.settle(report);
        let Some(mkey) = self.mkeys.remove(index) else { return };
        count(&mut self.pds, mkey.pd, -1);
        count(&mut self.umems, mkey.umem, -1);
    }

    /// Completes all accesses to memory: nothing may land after its key is destroyed or changed.
    pub(crate) fn settle(&mut self, report: &mut Report) {
        self.dma.land_due(None, |owner| report.note_change(owner));
        self.dma.finish();
    }

    /// Moves a key to another protection domain.
    pub(crate) fn move_mkey(&mut self, index: u32, pd: u32) {
        let Some(mkey) = self.mkeys.get_mut(index) else { return };
        let old = std::mem::replace(&mut mkey.pd, pd);
        count(&mut self.pds, old, -1);
        count(&mut self.pds, pd, 1);
    }

    /// Swaps the memory, ranges and rights of two keys of a context. Returns `false` if the context does not own both.
    pub(crate) fn swap_mkeys(&mut self, context: u32, (a, b): (u32, u32), report: &mut Report) -> bool {
        let key = |index| self.mkeys.get(index).filter(|key| key.owner == context).map(|key| key.key);
        let (Some(key_a), Some(key_b)) = (key(a), key(b)) else { return false };
        // Posted writes land where their keys pointed when they were posted.
        self.dma.land_due(None, |owner| report.note_change(owner));
        self.mkeys.swap(a, b);
        for (index, value) in [(a, key_a), (b, key_b)] {
            if let Some(key) = self.mkeys.get_mut(index) {
                key.key = value;
            }
        }
        true
    }

    pub(crate) fn add_dct(&mut self, dct: Dct) -> Option<u32> {
        let dctn = self.dcts.insert(dct)?;
        self.count_dct(dctn, 1);
        Some(dctn)
    }

    /// Destroys a DCT and its connections.
    pub(crate) fn remove_dct(&mut self, dctn: u32) {
        self.remove_connections(dctn);
        self.count_dct(dctn, -1);
        self.dcts.remove(dctn);
    }

    fn count_dct(&mut self, dctn: u32, change: i32) {
        let Some(dct) = self.dcts.get(dctn) else { return };
        count_on(&mut *dct.srq.get(), change);
        count(&mut self.pds, dct.context.pd, change);
        count(&mut self.cqs, dct.context.cqn, change);
    }

    pub(crate) fn remove_connection(&mut self, number: u32) {
        let of = self.qps.get(number).and_then(|qp| qp.of_dct.as_deref()).copied();
        let Some(OfDct { dctn, source, .. }) = of else { return };
        let Some(mut qp) = self.qps.remove(number) else { return };
        qp.drop_partial_message();
        if let Some(dct) = self.dcts.get_mut(dctn) {
            dct.connections.remove(&(source, qp.attrs.remote_qpn));
        }
    }

    pub(crate) fn remove_connections(&mut self, dctn: u32) {
        let connections = self.dcts.get(dctn).map(|dct| dct.connections.values().copied().collect());
        let numbers: Vec<u32> = connections.unwrap_or_default();
        numbers.into_iter().for_each(|number| self.remove_connection(number));
    }

    /// Returns the QPs of a context, excluding connections of DCTs.
    pub(crate) fn qps_of(&self, context: u32) -> Vec<u32> {
        self.qps.numbers(|qp| qp.owner == context && qp.of_dct.is_none())
    }

    /// Empties the lists of queues of a context's UAR pages before its queues are destroyed, which would search them.
    pub(crate) fn detach_queues(&mut self, context: u32) {
        for page in self.uars.numbers(|uar| uar.owner == context) {
            let Some(uar) = self.uars.get_mut(page) else { continue };
            uar.qps.clear();
            uar.cqs.clear();
        }
    }

    /// Destroys the DCTs of a context and their connections.
    pub(crate) fn remove_dcts(&mut self, context: u32) {
        for dctn in self.dcts.numbers(|dct| dct.owner == context) {
            self.remove_dct(dctn);
        }
    }

    /// Destroys all other objects of a context, after its QPs and DCTs. Returns its UAR pages.
    pub(crate) fn remove_all(&mut self, context: u32, report: &mut Report) -> Vec<UarPage> {
        // In order of reference: SRQs name domains, PDs and CQs, keys name PDs and umems, and CQs name umems.
        for srqn in self.srqs.numbers(|srq| srq.get().owner == context) {
            self.remove_srq(srqn);
        }
        for xrcd in self.xrcds.numbers(|xrcd| xrcd.owner == context) {
            self.xrcds.remove(xrcd);
        }
        for index in self.mkeys.numbers(|key| key.owner == context) {
            self.remove_mkey(index, report);
        }
        for cqn in self.cqs.numbers(|cq| cq.owner == context) {
            self.remove_cq(cqn);
        }
        for pd in self.pds.numbers(|pd| pd.owner == context) {
            self.pds.remove(pd);
        }
        for umem in self.umems.numbers(|umem| umem.owner == context) {
            self.umems.remove(umem);
        }
        self.ethernet.remove_all(context);
        self.buses.remove(&context);
        let pages = self.uars.numbers(|uar| uar.owner == context);
        pages.into_iter().filter_map(|page| self.uars.remove(page)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Faults;
    use crate::memory::{HostBuffer, Memory, PAGE};
    use crate::objects::qp::State;
    use crate::queue_memory::QueueMemory;
    use crate::roce::Service;
    use rushmem_mlx5::prm::cq::CqContext;
    use rushmem_mlx5::prm::qp::QpContext;
    use std::sync::Arc;

    const CONTEXT: u32 = 1;

    /// Creates the objects of one context: a PD, a umem, a UAR page and a CQ.
    fn objects() -> (Objects, QpContext) {
        let mut objects = Objects::new(&Faults::default(), &mut None);
        let memory: Arc<dyn Memory> = Arc::new(HostBuffer::new(PAGE));
        let part = |offset| QueueMemory::new(&memory, offset, 64, 8).unwrap();
        let pd = objects.pds.insert(Pd { owner: CONTEXT, users: 0 }).unwrap();
        let umem = Umem { owner: CONTEXT, memory: Arc::clone(&memory), offset: 0, len: 64, users: 0 };
        let umem = objects.umems.insert(umem).unwrap();
        let Ok(page) = UarPage::new(CONTEXT, &memory, 0) else { panic!("a page is a page") };
        let uar_page = objects.uars.insert(page).unwrap();
        let context = CqContext { uar_page, ..CqContext::default() };
        let cq = Cq { umems: [umem; 2], ..Cq::new(CONTEXT, &context, part(0), part(64)) };
        let cqn_snd = objects.add_cq(cq).unwrap();
        (objects, QpContext { pd, uar_page, cqn_snd, ..QpContext::default() })
    }

    fn add_qp(objects: &mut Objects, context: QpContext) -> u32 {
        let make = |qpn| {
            let mut qp = Box::new(Qp::new(CONTEXT, qpn, Service::Rc, context));
            (qp.cq_send, qp.cq_recv) = (Some(context.cqn_snd), Some(context.cqn_snd));
            qp
        };
        objects.add_qp(make).unwrap()
    }

    /// Returns the reference counts of the PD, the umem, the UAR page and the CQ.
    fn users(objects: &Objects, context: &QpContext) -> [u32; 4] {
        let cq = objects.cqs.get(context.cqn_snd).unwrap();
        [
            objects.pds.get(context.pd).unwrap().users,
            objects.umems.get(cq.umems[0]).unwrap().users,
            objects.uars.get(context.uar_page).unwrap().users,
            cq.users,
        ]
    }

    #[test]
    fn users_are_counted_until_they_are_destroyed() {
        let (mut objects, context) = objects();
        assert_eq!(users(&objects, &context), [0, 2, 1, 0]);
        let qpn = add_qp(&mut objects, context);
        assert_eq!(users(&objects, &context), [1, 2, 2, 2]);
        assert_eq!(objects.uars.get(context.uar_page).unwrap().qps, [qpn]);
        objects.remove_qp(qpn);
        objects.remove_qp(qpn);
        assert_eq!(users(&objects, &context), [0, 2, 1, 0]);
        objects.remove_cq(context.cqn_snd);
        let uar = objects.uars.get(context.uar_page).unwrap();
        assert!((uar.users, &uar.qps[..], &uar.cqs[..]) == (0, &[], &[]));
    }

    #[test]
    fn a_closed_context_leaves_its_pages_only() {
        let (mut objects, context) = objects();
        let qpn = add_qp(&mut objects, context);
        let other = objects.pds.insert(Pd { owner: 2, users: 0 }).unwrap();
        assert_eq!((objects.qps_of(CONTEXT), objects.qps_of(2)), (vec![qpn], vec![]));
        objects.remove_qp(qpn);
        let pages = objects.remove_all(CONTEXT, &mut Report::new(Faults::default()));
        assert_eq!(pages.len(), 1);
        assert!(objects.pds.get(context.pd).is_none() && objects.pds.get(other).is_some());
        assert!(objects.cqs.iter().next().is_none() && objects.umems.iter().next().is_none());
    }

    #[test]
    fn an_error_is_reported_once() {
        let (mut objects, context) = objects();
        let mut report = Report::new(Faults::default());
        let qpn = add_qp(&mut objects, context);
        let qp = objects.qps.get_mut(qpn).unwrap();
        for _ in 0..2 {
            qp.enter_error(&mut report, rushmem_mlx5::Syndrome::LOCAL_QP_OP_ERR);
        }
        assert_eq!((qp.state, report.events.len(), report.wakeups.len()), (State::Error, 1, 1));
    }
}
