//! The state that all transports share: objects, fabric, schedule and reports.

use super::schedule::Schedule;
use crate::config::Config;
use crate::health::Failures;
use crate::link::Fabric;
use crate::link::udp::TooLong;
use crate::management::introduction::{Introductions, Meaning};
use crate::management::{self, Inbox, MAD};
use crate::neighbors::Neighbors;
use crate::objects::Objects;
use crate::objects::qp::Qp;
use crate::queues::MAX_SEGMENTS;
use crate::report::Report;
use crate::rng::Rng;
use crate::roce;
use crate::route::Route;
use rushmem_mlx5::Segment;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

pub(crate) struct Datapath {
    pub(crate) config: Config,
    /// UDP address of the adapter, which identifies it.
    pub(crate) address: SocketAddrV4,
    pub(crate) fabric: Option<Fabric>,
    pub(crate) objects: Objects,
    pub(crate) report: Report,
    pub(crate) schedule: Schedule,
    /// Copy of the send WQE that is being executed.
    pub(crate) scratch: Box<[Segment; MAX_SEGMENTS]>,
    /// Received management datagrams that wait for the driver.
    pub(crate) mads: Inbox,
    introductions: Introductions,
    /// Adapters by the MAC addresses of their functions.
    pub(crate) neighbors: Neighbors,
    /// Frames of datagrams that have not been sent yet.
    pub(crate) frames: Vec<Vec<u8>>,
    /// Scheduled failures of the port and the adapter, whose clock starts with the first connection to another adapter.
    pub(crate) failures: Failures,
}

impl Datapath {
    pub(crate) fn new(
        config: Config,
        address: SocketAddrV4,
        fabric: Option<Fabric>,
        numbers: &mut Option<Rng>,
    ) -> Datapath {
        let faults = config.faults.clone();
        // Adapters of one job often have the same seed, but should not flap together.
        let flaps =
            Rng::new(faults.seed ^ u64::from(address.ip().to_bits()) << 16 ^ u64::from(address.port()));
        Datapath {
            config,
            address,
            fabric,
            objects: Objects::new(&faults, numbers),
            schedule: Schedule::default(),
            scratch: Box::new([Segment::ZERO; MAX_SEGMENTS]),
            mads: Inbox::default(),
            introductions: Introductions::default(),
            neighbors: Neighbors::default(),
            frames: Vec::new(),
            failures: Failures::new(faults.planned_failures(), faults.port_flaps, flaps),
            report: Report::new(faults),
        }
    }

    /// Adds a QP to the run queue.
    pub(crate) fn enqueue(&mut self, qpn: u32) {
        if let Some(qp) = self.objects.qps.get_mut(qpn) {
            self.schedule.enqueue(qp);
        }
    }

    /// Arms the timers that the transports have requested in the report.
    pub(crate) fn arm_wakeups(&mut self) {
        for (at, qpn) in std::mem::take(&mut self.report.wakeups) {
            if let Some(qp) = self.objects.qps.get_mut(qpn) {
                self.schedule.arm(qp, at);
            }
        }
    }

    /// Returns the number of times that a QP has found no room for a packet.
    pub(crate) fn shortages(&self) -> u64 {
        self.fabric.as_ref().map_or(0, |fabric| fabric.shortages)
    }

    /// Sends the queued packets by shared memory or UDP. Returns whether some are still queued.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        let Some(fabric) = &mut self.fabric else { return false };
        fabric.flush(now, &mut self.report.stats, &mut self.report.lookout);
        let blocked = fabric.blocked();
        for too_long in fabric.take_too_long() {
            self.note_too_long(too_long);
        }
        blocked
    }

    /// Records that a packet of a QP exceeded the MTU of its link, which explains the QP's failure if it fails.
    fn note_too_long(&mut self, TooLong { to, dest_qpn }: TooLong) {
        let qps = &mut self.objects.qps;
        let sent_it = |qp: &Qp| qp.route == Route::Peer(to) && qp.attrs.remote_qpn == dest_qpn;
        let sender = qps.iter().find(|(_, qp)| sent_it(qp)).map(|(qpn, _)| qpn);
        if let Some(qp) = sender.and_then(|qpn| qps.get_mut(qpn)) {
            qp.req.too_long = true;
        }
    }

    /// Sends a management datagram immediately. Counts it as lost if there is no room.
    pub(crate) fn send_mad(&mut self, to: Ipv4Addr, bytes: &[u8; MAD]) {
        let (bth, ext) = self.mads.headers();
        let delivered = match &mut self.fabric {
            _ if to == *self.address.ip() => self.mads.add(to, bytes),
            Some(fabric) if fabric.room() != 0 => {
                let way = (management::QPN, SocketAddrV4::new(to, roce::PORT));
                fabric.send_bytes(way, &bth, &ext, bytes);
                fabric.flush(Instant::now(), &mut self.report.stats, &mut self.report.lookout);
                true
            }
            _ => false,
        };
        self.report.stats.lost += u64::from(!delivered);
    }

    /// Processes introductions among the management datagrams that have arrived, and leaves the others for the driver.
    pub(crate) fn introduce(&mut self) {
        for mad in self.mads.take() {
            match self.introductions.receive(mad.from, &mad.bytes) {
                Meaning::Question(answer) => self.send_mad(mad.from, &answer),
                Meaning::Answer => {
                    if let Some(fabric) = &mut self.fabric {
                        fabric.note_software(SocketAddrV4::new(mad.from, roce::PORT));
                    }
                }
                Meaning::Stray => self.report.stats.dropped += 1,
                Meaning::Other => self.mads.put_back(mad),
            }
        }
    }

    /// Records that a QP connects to the adapter at `peer`. Unless its address shows whether it is a software adapter,
    /// an introduction asks: if so, several packets may be sent to it as one message.
    pub(crate) fn meet(&mut self, peer: SocketAddrV4, is_software: bool, now: Instant) {
        self.failures.connected(now);
        let Some(fabric) = &mut self.fabric else { return };
        if is_software {
            fabric.note_software(peer);
        } else if fabric.segments()
            && peer.port() == roce::PORT
            && let Some(question) = self.introductions.ask(*peer.ip())
        {
            self.send_mad(*peer.ip(), &question);
        }
    }
}
