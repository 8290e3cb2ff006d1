//! The complete state of the adapter, and the pass over doorbells, packets and QPs that advances it.

use super::clock::ClockRegisters;
use super::contexts::{Contexts, Listener};
use super::doorbells::Doorbells;
use super::failure;
use crate::address::{Gid, ip_of_group};
use crate::config::Config;
use crate::error::Error;
use crate::link::udp::Waiter;
use crate::link::{Fabric, Rest};
use crate::objects::UarPage;
use crate::report::{Event, Rule};
use crate::rng::Rng;
use crate::roce::Service;
use crate::transport::datapath::Datapath;
use crate::transport::{Transports, dc, ethernet};
use rushmem_mlx5::Syndrome;
use std::net::SocketAddrV4;
use std::time::Instant;

/// The state of the adapter. Locked by the engine thread during a pass, and by callers of commands.
pub(crate) struct Core {
    pub(crate) path: Datapath,
    pub(crate) transports: Transports,
    pub(crate) contexts: Contexts,
    pub(crate) clocks: ClockRegisters,
    doorbells: Doorbells,
    /// How the engine thread has slept and will sleep, for the next pass.
    pub(crate) rest: Rest,
    /// UAR pages of closed contexts without a bus. They stay mapped, since kernels may ring doorbells in them for as
    /// long as the adapter lives.
    retired: Vec<UarPage>,
}

/// What interrupts a sleep of the engine thread: readable sockets and the next timer.
pub(crate) struct Wake {
    pub(crate) sockets: [Option<Waiter>; 2],
    pub(crate) timer: Option<Instant>,
    pub(crate) now: Instant,
}

impl Core {
    /// Creates an adapter without objects. `numbers` draws the first QPN, the first key index and the first sequence
    /// number, or is `None` for the lowest ones.
    pub(crate) fn new(
        config: Config,
        address: SocketAddrV4,
        fabric: Option<Fabric>,
        mut numbers: Option<Rng>,
    ) -> Core {
        let path = Datapath::new(config, address, fabric, &mut numbers);
        let sequence = numbers.map_or(0, |mut rng| rng.below(1 << 32) as u32);
        Core {
            path,
            transports: Transports::new(sequence),
            contexts: Contexts::default(),
            clocks: ClockRegisters::default(),
            doorbells: Doorbells::default(),
            rest: Rest::default(),
            retired: Vec::new(),
        }
    }

    /// Runs one round of doorbells, packets, send queues and timers. Returns whether there was any work.
    ///
    /// `wanted` returns whether a command is waiting for the core. If so, the remaining QPs wait for the next pass.
    pub(crate) fn pass(&mut self, wanted: impl Fn() -> bool) -> bool {
        let Core { path, transports, .. } = self;
        let now = Instant::now();
        path.report.now = now;
        self.clocks.store(|| path.report.timestamp());
        failure::fail_due(path);
        // Doorbells first: their WQEs run in this same pass.
        let mut busy = self.doorbells.scan(path);
        busy |= transports.receive(path, std::mem::take(&mut self.rest));
        // Only the QPs that are ready now: one that is added again waits for the next pass.
        for _ in 0..path.schedule.ready() {
            let Some(qpn) = path.schedule.next(&mut path.objects.qps) else { break };
            let shortages = path.shortages();
            if path.report.draw_skip(qpn) || transports.run(path, qpn) {
                path.enqueue(qpn);
            }
            // Waiting for room in shared memory is not work, since the peer wakes the engine.
            busy |= path.shortages() == shortages;
            if wanted() {
                break;
            }
        }
        // The transports cannot borrow the schedule, so they leave their timers in the report.
        path.arm_wakeups();
        let Datapath { objects, report, schedule, .. } = path;
        objects.dma.settle();
        report.lookout.landed();
        objects.dma.land_due(Some(now), |owner| report.note_change(owner));
        schedule.fire(&mut objects.qps, now);
        busy | path.flush(now)
    }

    /// Executes everything posted, and processes and answers everything received, before a command destroys a key or
    /// stops a QP.
    ///
    /// Hardware is faster than commands: by then it has acknowledged every message that a program has received, and
    /// completed every message that the peer has acknowledged.
    pub(crate) fn catch_up(&mut self) {
        /// Maximum number of passes, since a peer may keep the adapter busy indefinitely.
        const MAX_PASSES: usize = 16;

        // A delayed operation may be delayed for longer than any number of passes.
        if self.path.report.injects_faults {
            return;
        }
        for _ in 0..MAX_PASSES {
            // Passes poll the sockets only occasionally, and they may hold packets that arrived before shared memory
            // was used.
            self.rest.has_mail = true;
            if !self.pass(|| false) {
                break;
            }
        }
    }

    /// Returns what must interrupt the engine thread's next sleep.
    pub(crate) fn wake(&self) -> Wake {
        let Datapath { fabric, schedule, objects, failures, report, .. } = &self.path;
        let due = fabric.as_ref().and_then(Fabric::next_due);
        let timers = [schedule.next_timer(), due, objects.dma.next_due(), failures.next_due()];
        Wake {
            sockets: fabric.as_ref().map_or([None; 2], Fabric::waiters),
            timer: timers.into_iter().flatten().min(),
            now: report.now,
        }
    }

    /// Drains the undelivered events, and stores the failures among them for their contexts.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let events = std::mem::take(&mut self.path.report.events);
        self.contexts.keep(&events, &self.path.objects);
        events
    }

    /// Returns the listeners of the contexts whose memory has changed since the last call.
    pub(crate) fn changed_listeners(&mut self) -> Vec<Listener> {
        self.path.report.drain_changed().filter_map(|context| self.contexts.listener(context)).collect()
    }

    /// Whether the next pass has work even without any doorbell, packet or timer.
    pub(crate) fn has_work(&self) -> bool {
        let Datapath { schedule, report, .. } = &self.path;
        schedule.ready() != 0 || !report.wakeups.is_empty() || !report.events.is_empty()
    }

    /// Moves every QP to the Error state after the engine has panicked, so peers see a failure instead of waiting.
    pub(crate) fn end_all_connections(&mut self, why: &str) {
        let Datapath { objects, report, schedule, .. } = &mut self.path;
        report.violations.record(Rule::Engine, 0, why.to_owned());
        self.transports.abandon();
        self.doorbells.abandon();
        let numbers: Vec<u32> = objects.qps.iter().map(|(qpn, _)| qpn).collect();
        for qpn in numbers {
            let Some(qp) = objects.qps.get_mut(qpn) else { continue };
            qp.enter_error(report, Syndrome::LOCAL_QP_OP_ERR);
            // The panic may have interrupted a pass after it took the QP from the run queue.
            qp.queued = false;
            schedule.enqueue(qp);
        }
    }

    pub(crate) fn remove_qp(&mut self, qpn: u32) {
        dc::disconnect(&mut self.path, qpn);
        self.path.objects.remove_qp(qpn);
    }

    /// Adds a datagram QP of a context to a multicast group.
    ///
    /// # Errors
    ///
    /// - [`Error::Unknown`]: no such QP in this context.
    /// - [`Error::Exhausted`]: too many groups or members.
    /// - [`Error::Group`]: the GID is not that of a group, or the adapter cannot join it.
    pub(crate) fn join_group(&mut self, context: u32, qpn: u32, group: Gid) -> Result<(), Error> {
        let Datapath { objects, fabric, .. } = &mut self.path;
        let qp = objects.qps.get(qpn).filter(|qp| qp.owner == context && qp.service == Service::Ud);
        qp.ok_or(Error::Unknown { kind: "datagram QP", id: qpn })?;
        if !objects.groups.has_room(&group) {
            return Err(Error::Exhausted("multicast group"));
        }
        // Frames for all groups of an Ethernet function come by the group of the network.
        let joined = match (objects.ethernet.vport.owner, ip_of_group(group), fabric) {
            (Some(_), ..) => Ok(()),
            (None, Some(ip), Some(fabric)) => fabric.join(ip),
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        };
        joined.map_err(|source| Error::Group { group: group.into(), source })?;
        objects.groups.add(group, qpn);
        Ok(())
    }

    /// Removes a datagram QP of a context from a multicast group.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: no such QP in this context is in the group.
    pub(crate) fn leave_group(&mut self, context: u32, qpn: u32, group: Gid) -> Result<(), Error> {
        let objects = &mut self.path.objects;
        let is_own = objects.qps.get(qpn).is_some_and(|qp| qp.owner == context);
        if is_own && objects.groups.remove(&group, qpn) {
            return Ok(());
        }
        Err(Error::Unknown { kind: "member of a multicast group", id: qpn })
    }

    /// Sends the datagrams posted to a QP before a command destroys it, since hardware would have sent them by then.
    pub(crate) fn finish_datagrams(&mut self, qpn: u32) {
        self.doorbells.scan(&mut self.path);
        self.transports.datagrams.finish(&mut self.path, qpn);
        ethernet::send_datagrams(&mut self.path);
    }

    /// Destroys all objects of a context, except its UAR pages.
    pub(crate) fn close_context(&mut self, context: u32) {
        self.contexts.close(context);
        self.clocks.remove(context);
        self.path.objects.detach_queues(context);
        self.path.objects.remove_dcts(context);
        for qpn in self.path.objects.qps_of(context) {
            self.remove_qp(qpn);
        }
        let Datapath { objects, report, .. } = &mut self.path;
        let has_bus = objects.buses.contains_key(&context);
        let pages = objects.remove_all(context, report);
        if !has_bus {
            self.retired.extend(pages);
        }
        report.counters.remove_all(context);
        ethernet::leave_if_unused(&mut self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Attached, Bus};
    use crate::memory::{HostBuffer, Memory, PAGE};
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    #[test]
    fn only_pages_without_a_bus_stay() {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let mut core = Core::new(Config::default(), address, None, None);
        let memory: Arc<dyn Memory> = Arc::new(HostBuffer::new(PAGE));
        for has_bus in [false, true] {
            let context = core.contexts.open();
            if has_bus {
                let bus = Bus { memory: Arc::clone(&memory), doorbells: Arc::clone(&memory) };
                core.path.objects.buses.insert(context, Attached::new(bus, context));
            }
            let Ok(page) = UarPage::new(context, &memory, 0) else { panic!("a page is a page") };
            core.path.objects.uars.insert(page);
            core.close_context(context);
            assert_eq!((core.path.objects.uars.iter().count(), core.retired.len()), (0, 1));
        }
    }
}
