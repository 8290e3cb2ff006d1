//! Contexts, and the use counts of objects.

use crate::core::Core;
use crate::uar::UarPage;

impl Core {
    /// Returns the number of a new context.
    pub(crate) fn new_context(&mut self) -> u32 {
        self.contexts += 1;
        self.kept_failures.insert(self.contexts, Vec::new());
        self.contexts
    }

    /// Destroys all objects of a context.
    pub(crate) fn close_context(&mut self, context: u32) {
        self.listeners.remove(&context);
        self.clocks.remove(context);
        self.kept_failures.remove(&context);
        let numbers: Vec<u32> =
            self.dcts.iter().filter(|(_, dct)| dct.owner == context).map(|(n, _)| n).collect();
        numbers.into_iter().for_each(|dctn| self.remove_dct(dctn));
        let numbers: Vec<u32> =
            self.qps.iter().filter(|(_, qp)| qp.owner == context).map(|(n, _)| n).collect();
        numbers.into_iter().for_each(|qpn| self.remove_qp(qpn));
        let numbers: Vec<u32> =
            self.srqs.iter().filter(|(_, srq)| srq.get().owner == context).map(|(n, _)| n).collect();
        numbers.into_iter().for_each(|srqn| self.remove_srq(srqn));
        let numbers: Vec<u32> =
            self.xrcds.iter().filter(|(_, xrcd)| xrcd.owner == context).map(|(n, _)| n).collect();
        for xrcd in numbers {
            self.xrcds.remove(xrcd);
        }
        let numbers: Vec<u32> =
            self.mkeys.iter().filter(|(_, key)| key.owner == context).map(|(n, _)| n).collect();
        numbers.into_iter().for_each(|index| self.remove_mkey(index));
        let numbers: Vec<u32> =
            self.cqs.iter().filter(|(_, cq)| cq.owner == context).map(|(n, _)| n).collect();
        numbers.into_iter().for_each(|cqn| self.remove_cq(cqn));
        let sets = &mut self.report.counters.0;
        let numbers: Vec<u32> = sets.iter().filter(|(_, set)| set.owner == context).map(|(n, _)| n).collect();
        for number in numbers {
            sets.remove(number);
        }
        let numbers: Vec<u32> =
            self.pds.iter().filter(|(_, pd)| pd.owner == context).map(|(n, _)| n).collect();
        for pd in numbers {
            self.pds.remove(pd);
        }
        let numbers: Vec<u32> =
            self.umems.iter().filter(|(_, umem)| umem.owner == context).map(|(n, _)| n).collect();
        for umem in numbers {
            self.umems.remove(umem);
        }
        let numbers: Vec<u32> =
            self.uars.iter().filter(|(_, uar)| uar.owner == context).map(|(n, _)| n).collect();
        for uar in numbers {
            self.retired.extend(self.uars.remove(uar));
        }
    }

    /// Returns a UAR page of this context.
    pub(crate) fn own_uar(&self, context: u32, page: u32) -> Option<&UarPage> {
        self.uars.get(page).filter(|uar| uar.owner == context)
    }

    pub(crate) fn remove_qp(&mut self, qpn: u32) {
        self.disconnect(qpn);
        let Some(mut qp) = self.qps.remove(qpn) else { return };
        qp.drop_partial_message();
        if qp.is_xrc_target() {
            qp.leave_xrc_queue();
            self.count_xrcd(qp.context.xrcd, -1);
        }
        self.members.remove_from_all(qpn);
        if let Some(srq) = &qp.srq {
            let mut srq = srq.get();
            srq.users = srq.users.saturating_sub(1);
        }
        self.count_pd(qp.pd, -1);
        qp.umems.iter().for_each(|umem| self.count_umem(*umem, -1));
        self.count_uar(qp.uar, -1);
        for cqn in [qp.cq_send, qp.cq_recv].into_iter().flatten() {
            self.count_cq(cqn, -1);
        }
        if let Some(uar) = self.uars.get_mut(qp.uar) {
            uar.qps.retain(|other| *other != qpn);
        }
    }

    pub(crate) fn remove_cq(&mut self, cqn: u32) {
        let Some(cq) = self.cqs.remove(cqn) else { return };
        cq.umems.iter().for_each(|umem| self.count_umem(*umem, -1));
        self.count_uar(cq.uar, -1);
        if let Some(uar) = self.uars.get_mut(cq.uar) {
            uar.cqs.retain(|other| *other != cqn);
        }
    }

    pub(crate) fn remove_srq(&mut self, srqn: u32) {
        let Some(srq) = self.srqs.remove(srqn) else { return };
        let srq = srq.get();
        self.count_pd(srq.pd, -1);
        srq.umems.iter().for_each(|umem| self.count_umem(*umem, -1));
        if let Some(of) = srq.of_xrcd {
            self.count_xrcd(of.xrcd, -1);
            self.count_cq(of.cqn, -1);
        }
    }

    pub(crate) fn remove_mkey(&mut self, index: u32) {
        // Nothing lands in memory without a key.
        // Nothing lands in memory without a key.
        self.dma.land_due(None, |owner| self.report.note_change(owner));
        self.dma.finish();
        let Some(mkey) = self.mkeys.remove(index) else { return };
        self.count_pd(mkey.pd, -1);
        self.count_umem(mkey.umem, -1);
    }

    /// Exchanges what two keys of a context stand for. Returns whether the context has both.
    pub(crate) fn swap_mkeys(&mut self, context: u32, a: u32, b: u32) -> bool {
        let key = |index| self.mkeys.get(index).filter(|key| key.owner == context).map(|key| key.key);
        let (Some(key_a), Some(key_b)) = (key(a), key(b)) else { return false };
        // Posted writes land where their keys pointed.
        self.dma.land_due(None, |owner| self.report.note_change(owner));
        self.mkeys.swap(a, b);
        for (index, value) in [(a, key_a), (b, key_b)] {
            if let Some(key) = self.mkeys.get_mut(index) {
                key.key = value;
            }
        }
        true
    }

    pub(crate) fn count_pd(&mut self, pd: u32, change: i32) {
        if let Some(pd) = self.pds.get_mut(pd) {
            pd.users = pd.users.saturating_add_signed(change);
        }
    }

    pub(crate) fn count_xrcd(&mut self, xrcd: u32, change: i32) {
        if let Some(xrcd) = self.xrcds.get_mut(xrcd) {
            xrcd.users = xrcd.users.saturating_add_signed(change);
        }
    }

    pub(crate) fn count_umem(&mut self, umem: u32, change: i32) {
        if let Some(umem) = self.umems.get_mut(umem) {
            umem.users = umem.users.saturating_add_signed(change);
        }
    }

    pub(crate) fn count_uar(&mut self, page: u32, change: i32) {
        if let Some(uar) = self.uars.get_mut(page) {
            uar.users = uar.users.saturating_add_signed(change);
        }
    }

    pub(crate) fn count_cq(&mut self, cqn: u32, change: i32) {
        if let Some(cq) = self.cqs.get_mut(cqn) {
            cq.users = cq.users.saturating_add_signed(change);
        }
    }
}
