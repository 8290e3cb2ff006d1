//! Executes the entries of Ethernet send queues.

use super::{CHECK_SEQUENCE, MAX_FRAME, MIN_FRAME};
use crate::dma::{Rights, User, resolve};
use crate::frame::offload;
use crate::objects::Objects;
use crate::objects::qp::State;
use crate::queues::{complete, fail, load, malformed, unparsed};
use crate::transport::datapath::Datapath;
use crate::wqe::{Done, LocalError};
use rushmem_mlx5::wqe::{Frame, FrameView};

/// Maximum number of entries executed before other queues run.
const BURST: usize = 32;

/// log2 of the maximum length of data that is sent as several segments.
pub(crate) const LOG_MAX_SEGMENTED: u8 = 16;

/// Maximum length of the inline headers and the data of an entry.
const MAX_BYTES: u64 = (1 << LOG_MAX_SEGMENTED) + 512;

/// Maximum number of segments of an entry.
const MAX_SEGMENTS: u64 = 2048;

/// Minimum room for packets to execute an entry: that of the longest data in segments of Ethernet's usual length.
const ROOM: usize = 48;

enum Step {
    Done,
    Idle,
    /// The fabric has no room.
    Full,
    /// The queue is in the error state.
    Failed,
}

/// Sends the frames posted to a queue. Returns whether it can send more immediately.
pub(in super::super) fn run(path: &mut Datapath, sqn: u32) -> bool {
    let mut buffer = Vec::new();
    for _ in 0..BURST {
        match step(path, sqn, &mut buffer) {
            Step::Done => {}
            Step::Idle => return false,
            Step::Full | Step::Failed => return true,
        }
    }
    true
}

fn step(path: &mut Datapath, sqn: u32, buffer: &mut Vec<u8>) -> Step {
    let Datapath { objects, scratch, report, fabric, .. } = path;
    let Objects { qps, cqs, mkeys, dma, .. } = objects;
    let Some(qp) = qps.get_mut(sqn).filter(|qp| qp.state == State::Rts) else { return Step::Idle };
    let Some(sq) = qp.sq.as_mut().filter(|sq| sq.pending() != 0) else { return Step::Idle };
    if fabric.as_ref().is_some_and(|fabric| fabric.room() < ROOM) {
        return Step::Full;
    }
    let index = sq.consumer;
    let loaded = load(sq, sqn, index, scratch).and_then(|(ctrl, segments)| {
        FrameView::parse(segments).map_err(|error| unparsed(ctrl, index, &error))
    });
    let view = match loaded {
        Ok(view) => view,
        Err(bad) => {
            malformed(qp, cqs, report, index, bad);
            return Step::Failed;
        }
    };
    sq.consumer = index.wrapping_add(view.n_blocks().into());
    report.stats.wqes += 1;
    let done = Done { index, opcode: view.ctrl().opcode(), byte_cnt: 0 };
    buffer.clear();
    let user = User { pd: qp.pd, qpn: sqn };
    let gathered = view.frame().map_or(Ok(()), |frame| {
        gather(&frame, buffer, |data, to| {
            let (key, address) = (data.lkey.get(), data.addr.get());
            let span = resolve(mkeys, user, key, address, to.len() as u64, Rights::LOCAL_READ);
            dma.read(&span.map_err(LocalError::Key)?, to).map_err(|_| LocalError::Memory)
        })
    });
    if let Err(refused) = gathered {
        let (syndrome, vendor) = refused.syndrome();
        fail(qp, cqs, report, done, syndrome, vendor);
        return Step::Failed;
    }
    if view.ctrl().flags().is_signaled() {
        complete(qp, cqs, report, done);
    }
    if let Some(frame) = view.frame() {
        let offloads = Offloads::of(&frame);
        report.stats.bytes += buffer.len() as u64;
        emit(path, std::mem::take(buffer), offloads);
    }
    Step::Done
}

/// What the adapter does to the frames of an entry.
struct Offloads {
    ip_checksum: bool,
    l4_checksum: bool,
    /// Length of the headers, and maximum length of the data, of each segment.
    segments: Option<(usize, usize)>,
    tag: Option<(u16, u16)>,
}

impl Offloads {
    fn of(frame: &Frame<'_>) -> Offloads {
        let segments = frame.segment_size.map(|size| (frame.headers.len(), size.into()));
        Offloads { ip_checksum: frame.ip_checksum, l4_checksum: frame.l4_checksum, segments, tag: frame.vlan }
    }
}

/// Sends the bytes of an entry, as one frame or as several segments.
fn emit(path: &mut Datapath, bytes: Vec<u8>, offloads: Offloads) {
    let limit = path.frame_limit();
    let mut send = |mut frame: Vec<u8>| {
        offload::fill_checksums(&mut frame, offloads.ip_checksum, offloads.l4_checksum);
        if let Some(tag) = offloads.tag {
            offload::insert_tag(&mut frame, tag);
        }
        if frame.len() > limit {
            path.objects.ethernet.vport.counters.transmit_errors.packets += 1;
            return;
        }
        frame.resize(frame.len().max(MIN_FRAME), 0);
        path.transmit(&frame);
    };
    let Some((headers, size)) = offloads.segments else { return send(bytes) };
    if !offload::segment(&bytes, headers, size, &mut send) {
        path.objects.ethernet.vport.counters.transmit_errors.packets += 1;
    }
}

/// Collects the headers and the data of an entry.
fn gather(
    frame: &Frame<'_>,
    buffer: &mut Vec<u8>,
    mut read: impl FnMut(rushmem_mlx5::seg::DataSeg, &mut [u8]) -> Result<(), LocalError>,
) -> Result<(), LocalError> {
    let is_divisible = frame.segment_size.is_none_or(|size| frame.len() <= MAX_SEGMENTS * u64::from(size));
    if frame.len() > MAX_BYTES || !is_divisible {
        return Err(LocalError::Length);
    }
    buffer.extend_from_slice(frame.headers);
    for data in frame.data() {
        let at = buffer.len();
        buffer.resize(at + data.len.get() as usize, 0);
        read(data, &mut buffer[at..])?;
    }
    Ok(())
}

impl Datapath {
    /// Returns the maximum length of a frame, without its check sequence.
    fn frame_limit(&self) -> usize {
        let mtu = self.objects.ethernet.vport.port_mtu.map_or(MAX_FRAME, usize::from);
        mtu.saturating_sub(CHECK_SEQUENCE).min(MAX_FRAME)
    }
}
