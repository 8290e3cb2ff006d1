//! Records the work of a software ConnectX on the timeline: doorbells, WQEs, arrivals and packets.
//!
//! The PEs of a process share the NIC. Each QP that connects two PEs belongs to one of them, and its peer is known.
//! Other QPs, by which the runtime tests and flushes the NIC, are left out.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rushmem_base::lock;
use rushmem_softnic::{Observation, Observer, RemoteAddress};
use rushmem_trace::{Category, Detail, Recorder, Span, SpanId, Track, ns_at};

use super::offsets::WireOffsets;

/// Records the events of a software ConnectX as timeline spans.
#[derive(Debug)]
pub struct NicTrace {
    recorder: Arc<Recorder>,
    offsets: Arc<WireOffsets>,
    qps: Mutex<HashMap<u32, Qp>>,
}

/// A QP that connects two PEs, with its pending doorbells and WQEs.
#[derive(Debug)]
struct Qp {
    qpn: u32,
    pe: u32,
    peer: u32,
    /// Doorbells with WQE basic blocks that have not been executed yet, oldest first.
    doorbells: VecDeque<Doorbell>,
    /// Open timeline spans of the WQEs being executed, by WQE index.
    open: HashMap<u16, SpanId>,
}

/// The range of WQE basic blocks announced by one doorbell.
#[derive(Clone, Copy, Debug)]
struct Doorbell {
    index: u16,
    blocks: u16,
    /// When the doorbell was rung, in nanoseconds.
    ns: u64,
}

impl NicTrace {
    pub(super) fn new(recorder: Arc<Recorder>, offsets: Arc<WireOffsets>) -> Self {
        Self { recorder, offsets, qps: Mutex::default() }
    }

    /// Records that QP `qpn` connects `pe` with `peer`.
    pub fn connect(&self, qpn: u32, pe: u32, peer: u32) {
        let qp = Qp { qpn, pe, peer, doorbells: VecDeque::new(), open: HashMap::new() };
        lock(&self.qps).insert(qpn, qp);
    }

    fn offset(&self, pe: u32, remote: Option<RemoteAddress>) -> Option<u64> {
        remote.map(|RemoteAddress { addr, rkey }| self.offsets.offset(pe, addr, rkey))
    }
}

impl Qp {
    /// Returns the time, in nanoseconds, of the doorbell that announced WQE block `index`, and drops earlier doorbells.
    fn posted(&mut self, index: u16) -> Option<u64> {
        while let Some(doorbell) = self.doorbells.front() {
            if index.wrapping_sub(doorbell.index) < doorbell.blocks {
                return Some(doorbell.ns);
            }
            self.doorbells.pop_front();
        }
        None
    }

    /// Returns an instantaneous timeline span on this QP's track.
    fn span(&self, name: impl Into<Cow<'static, str>>, ns: u64) -> Span {
        let detail = Detail { peer: Some(self.peer), qpn: Some(self.qpn), ..Detail::default() };
        let (track, category) = (Track::Queue { qpn: self.qpn }, Category::Nic);
        Span { pe: self.pe, track, name: name.into(), category, site: None, begin: ns, end: Some(ns), detail }
    }

    /// Returns an instantaneous timeline span for a packet with this PSN.
    fn packet(&self, name: &'static str, psn: u32, note: impl Into<Cow<'static, str>>, ns: u64) -> Span {
        let span = self.span(name, ns);
        let detail = Detail { index: Some(psn.into()), note: Some(note.into()), ..span.detail };
        Span { track: Track::Packets, category: Category::Packet, detail, ..span }
    }
}

/// Returns the QPN that an observation concerns, if any.
fn qp_of(observation: &Observation) -> Option<u32> {
    match *observation {
        Observation::Doorbell { qpn, .. }
        | Observation::WqeBegins { qpn, .. }
        | Observation::WqeEnds { qpn, .. }
        | Observation::Arrival { qpn, .. }
        | Observation::PacketSent { qpn, .. }
        | Observation::PacketReceived { qpn, .. }
        | Observation::Nak { qpn, .. } => Some(qpn),
        Observation::Fault { qpn, .. } => qpn,
        _ => None,
    }
}

impl Observer for NicTrace {
    fn observe(&self, at: Instant, observation: Observation) {
        let mut qps = lock(&self.qps);
        let Some(qp) = qp_of(&observation).and_then(|qpn| qps.get_mut(&qpn)) else { return };
        let ns = ns_at(at);
        let recorder = &self.recorder;
        match observation {
            Observation::Doorbell { index, blocks, .. } => {
                qp.doorbells.push_back(Doorbell { index, blocks, ns });
                let mut span = qp.span("doorbell", ns);
                span.detail.note = Some(format!("basic blocks: {blocks}").into());
                recorder.add(span);
            }
            Observation::WqeBegins { index, opcode, remote, bytes, .. } => {
                let waited = qp.posted(index).map(|posted| ns.saturating_sub(posted));
                let mut span = Span { end: None, ..qp.span(opcode.to_string(), ns) };
                span.detail.index = Some(index.into());
                span.detail.remote = self.offset(qp.peer, remote);
                span.detail.bytes = Some(bytes).filter(|&bytes| bytes > 0);
                span.detail.note = waited.map(|ns| format!("{ns} ns after its doorbell").into());
                qp.open.insert(index, recorder.begin(span));
            }
            Observation::WqeEnds { index, opcode, syndrome, .. } => {
                let error = syndrome.map(|syndrome| format!("{syndrome:?}").into());
                match qp.open.remove(&index) {
                    Some(span) => recorder.end_at(span, ns, error),
                    None => {
                        let begin = qp.posted(index).unwrap_or(ns);
                        let mut span = Span { begin, ..qp.span(opcode.to_string(), ns) };
                        (span.detail.index, span.detail.note) = (Some(index.into()), error);
                        recorder.add(span);
                    }
                }
            }
            Observation::Arrival { opcode, remote, bytes, since, .. } => {
                let span = qp.span(opcode.to_string(), ns);
                let remote = self.offset(qp.pe, remote);
                let detail = Detail { remote, bytes: Some(bytes), ..span.detail };
                recorder.add(Span { track: Track::Arrivals, begin: ns_at(since), detail, ..span });
            }
            Observation::PacketSent { psn, opcode, bytes, is_retransmission, .. } => {
                let (name, note) =
                    if is_retransmission { ("retransmission", opcode) } else { (opcode, "sent") };
                let mut span = qp.packet(name, psn, note, ns);
                span.detail.bytes = Some(bytes);
                recorder.add(span);
            }
            Observation::PacketReceived { psn, opcode, bytes, .. } => {
                let mut span = qp.packet(opcode, psn, "received", ns);
                span.detail.bytes = Some(bytes);
                recorder.add(span);
            }
            Observation::Nak { psn, reason, .. } => recorder.add(qp.packet("NAK", psn, reason, ns)),
            Observation::Fault { kind, .. } => {
                let mut span = qp.span("fault", ns);
                span.detail.note = Some(kind.into());
                recorder.add(span);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rushmem_mlx5::{Opcode, Syndrome};
    use rushmem_trace::Trace;

    use super::super::offsets::WireRange;
    use super::*;

    const QPN: u32 = 7;

    fn spans(observations: &[Observation]) -> Vec<Span> {
        let (recorder, offsets) = (Arc::new(Recorder::new(100)), Arc::new(WireOffsets::default()));
        offsets.add([
            WireRange { pe: 3, key: 9, base: 0x10, offset: 0x5000 },
            WireRange { pe: 2, key: 9, base: 0, offset: 0x6000 },
        ]);
        let nic = NicTrace::new(Arc::clone(&recorder), offsets);
        nic.connect(QPN, 2, 3);
        let start = Instant::now();
        for (i, &observation) in (0..).zip(observations) {
            nic.observe(start + Duration::from_micros(i), observation);
        }
        let Trace { mut spans, .. } = recorder.trace();
        spans.iter_mut().for_each(|span| {
            span.begin = span.begin.saturating_sub(ns_at(start));
            span.end = span.end.map(|end| end - ns_at(start));
        });
        spans
    }

    fn begins(index: u16, rkey: u32) -> Observation {
        let remote = Some(RemoteAddress { addr: 0x18, rkey });
        Observation::WqeBegins { qpn: QPN, index, opcode: Opcode::RDMA_WRITE, peer: None, remote, bytes: 40 }
    }

    fn ends(index: u16, syndrome: Option<Syndrome>) -> Observation {
        Observation::WqeEnds { qpn: QPN, index, opcode: Opcode::RDMA_WRITE, syndrome }
    }

    #[test]
    fn wqes_know_their_doorbell_offset_and_error() {
        let doorbell = |index, blocks| Observation::Doorbell { qpn: QPN, index, blocks };
        let spans = spans(&[
            // The index wraps around.
            doorbell(65_534, 3),
            begins(65_534, 0),
            doorbell(1, 1),
            ends(65_534, None),
            begins(0, 9),
            ends(0, Some(Syndrome::REMOTE_ACCESS_ERR)),
            ends(1, Some(Syndrome::WR_FLUSH_ERR)),
        ]);
        let of = |span: &Span| (span.begin, span.end, span.detail.index, span.detail.remote);
        let note = |span: &Span| span.detail.note.clone().unwrap_or_default();
        let [first, second, wqe, failed, flushed] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((of(first), &*note(first)), ((0, Some(0), None, None), "basic blocks: 3"));
        assert_eq!((of(second), &*note(second)), ((2000, Some(2000), None, None), "basic blocks: 1"));
        assert_eq!(of(wqe), (1000, Some(3000), Some(65_534), Some(0x18)));
        assert_eq!(note(wqe), "1000 ns after its doorbell");
        assert_eq!(of(failed), (4000, Some(5000), Some(0), Some(0x5008)));
        assert_eq!(note(failed), "REMOTE_ACCESS_ERR");
        // It was never started, so its span starts with its doorbell.
        assert_eq!(of(flushed), (2000, Some(6000), Some(1), None));
        assert_eq!(note(flushed), "WR_FLUSH_ERR");
        for span in spans {
            assert_eq!((span.pe, span.detail.peer, span.detail.qpn), (2, Some(3), Some(QPN)));
        }
    }

    #[test]
    fn arrivals_have_offsets_of_their_own_pe() {
        let remote = Some(RemoteAddress { addr: 8, rkey: 9 });
        let since = Instant::now();
        let arrival =
            |qpn| Observation::Arrival { qpn, opcode: Opcode::RDMA_WRITE, remote, bytes: 40, since };
        // QPs that do not connect two PEs are left out.
        let spans = spans(&[arrival(QPN), arrival(QPN + 1)]);
        let [arrival] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((arrival.pe, &arrival.track, arrival.detail.remote), (2, &Track::Arrivals, Some(0x6008)));
    }

    #[test]
    fn packets_and_faults_have_no_index_of_a_wqe() {
        let sent = |is_retransmission| Observation::PacketSent {
            qpn: QPN,
            psn: 5,
            opcode: "RDMA_WRITE_ONLY",
            bytes: 40,
            is_retransmission,
        };
        let nak = Observation::Nak { qpn: QPN, psn: 5, reason: "receiver not ready" };
        let fault = Observation::Fault { qpn: Some(QPN), kind: "drop" };
        let spans = spans(&[sent(false), fault, sent(true), nak]);
        let of = |span: &Span| (span.name.to_string(), span.detail.note.clone(), span.track.clone());
        let expected = [
            ("RDMA_WRITE_ONLY", "sent", Track::Packets),
            ("fault", "drop", Track::Queue { qpn: QPN }),
            ("retransmission", "RDMA_WRITE_ONLY", Track::Packets),
            ("NAK", "receiver not ready", Track::Packets),
        ];
        let expected = expected.map(|(name, note, track)| (name.to_string(), Some(note.into()), track));
        assert_eq!(spans.iter().map(of).collect::<Vec<_>>(), expected);
        assert!(spans.iter().all(|span| span.detail.index.is_some() == (span.category == Category::Packet)));
    }
}
