//! Records the device calls of one GPU thread (a lane) on the timeline.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;

use rushmem_device::watch::{
    Access, Blocks, Collective, Event, Operation, Order, Ordering, PeRange, Posting, Watcher,
};
use rushmem_trace::{Category, Detail, Site, Span, SpanId, Track, Word, now_ns};

use super::LaunchTrace;

/// Observes one GPU thread of a launch and records its device calls.
pub(super) struct LaneTrace {
    launch: Arc<LaunchTrace>,
    block: u32,
    thread: u32,
    /// Timeline spans of the device calls in progress, innermost last. `None` for a call without a span.
    open: RefCell<Vec<Option<(SpanId, Category)>>>,
}

impl LaneTrace {
    /// Starts recording a GPU thread. For thread 0 of each block, this also starts a span for the kernel.
    pub(super) fn new(launch: Arc<LaunchTrace>, block: u32, thread: u32) -> Self {
        let lane = Self { launch, block, thread, open: RefCell::default() };
        if thread == 0 {
            let span = lane.begin_span(lane.launch.name, Category::Kernel, None, Detail::default());
            lane.open.borrow_mut().push(Some((span, Category::Kernel)));
        }
        lane
    }

    fn begin_span(
        &self,
        name: &'static str,
        category: Category,
        site: Option<Site>,
        detail: Detail,
    ) -> SpanId {
        let traced = &self.launch.traced;
        let track = Track::Lane { block: self.block, thread: self.thread };
        let (pe, name, begin) = (traced.pe, name.into(), now_ns());
        traced.job.recorder.begin(Span { pe, track, name, category, site, begin, end: None, detail })
    }
}

impl Watcher for LaneTrace {
    fn begin(&self, name: &'static str, event: Event, site: &'static Location<'static>) {
        // Operations inside an operation are not calls of the program, and neither are waits inside a wait, such as the
        // `team_sync` of a `barrier`.
        let mut open = self.open.borrow_mut();
        let is_in =
            |wanted: fn(Category) -> bool| open.iter().flatten().any(|(_, category)| wanted(*category));
        let described = describe(&event).filter(|(category, _)| match category {
            Category::Call => !is_in(|outer| outer == Category::Call),
            Category::Wait | Category::Collective => {
                !is_in(|outer| matches!(outer, Category::Wait | Category::Collective))
            }
            _ => true,
        });
        open.push(described.map(|(category, detail)| {
            let site = self.launch.site.clone().or_else(|| Some(site.into()));
            (self.begin_span(name, category, site, detail), category)
        }));
    }

    fn end(&self) {
        if let Some((span, _)) = self.open.borrow_mut().pop().flatten() {
            self.launch.traced.job.recorder.end(span);
        }
    }

    fn access(&self, _: &'static str, _: Access, _: &'static Location<'static>) -> bool {
        false
    }

    fn waits(&self) {}

    fn sees(&self, _: u64) {}

    fn ticket(&self) -> u64 {
        0
    }

    fn ticket_of(&self, _: u32, _: u32) -> u64 {
        0
    }
}

impl Drop for LaneTrace {
    fn drop(&mut self) {
        for (span, _) in self.open.take().into_iter().rev().flatten() {
            self.launch.traced.job.recorder.end(span);
        }
    }
}

/// Returns the timeline category and the details of a device call, or `None` if it is not shown.
fn describe(event: &Event) -> Option<(Category, Detail)> {
    Some(match event {
        Event::Post(Posting { operation, .. }) => (Category::Call, of_operation(operation)),
        Event::Order(Order { ordering, pe, .. }) => {
            let category = if *ordering == Ordering::Fence { Category::Call } else { Category::Wait };
            (category, Detail { peer: *pe, ..Detail::default() })
        }
        Event::Collective(Collective { team, writes, .. }) => {
            let bytes = Some(writes.1).filter(|&bytes| bytes > 0);
            (Category::Collective, Detail { team: Some(*team), bytes, ..Detail::default() })
        }
        Event::Grid => (Category::Wait, Detail { note: Some("all blocks".into()), ..Detail::default() }),
        Event::Wait { word, cmp, value } => {
            let note = Some(format!("{cmp} {value}").into());
            (Category::Wait, Detail { awaits: Some(word_of(word)), note, ..Detail::default() })
        }
        Event::StrongLoad { .. }
        | Event::StrongStore { .. }
        | Event::MemoryFence { .. }
        | Event::OwnStores
        | Event::OwnOrder { .. }
        | Event::Lock { .. }
        | Event::Look { .. }
        | Event::Complete(_)
        | Event::Member(_)
        | Event::Part(_)
        | Event::Silent => return None,
    })
}

fn word_of(range: &PeRange) -> Word {
    Word { pe: range.pe, offset: range.offset }
}

fn of_operation(operation: &Operation) -> Detail {
    let put = |to: &PeRange, bytes, changes| Detail {
        peer: Some(to.pe),
        bytes: Some(bytes),
        remote: Some(to.offset),
        changes,
        ..Detail::default()
    };
    let get = |from: &PeRange, bytes| Detail { peer: Some(from.pe), bytes: Some(bytes), ..Detail::default() };
    match operation {
        // A value may be a flag.
        Operation::Put { src: None, dst, .. } => put(dst, dst.bytes, Some(word_of(dst))),
        Operation::Put { dst, signal, .. } => {
            put(dst, dst.bytes, signal.as_ref().map(|(word, _)| word_of(word)))
        }
        Operation::PutBlocks { dst: Blocks { first, .. }, count, .. } => {
            put(first, first.bytes * count, None)
        }
        Operation::Get { src, .. } => get(src, src.bytes),
        Operation::GetBlocks { src: Blocks { first, .. }, count, .. } => get(first, first.bytes * count),
        Operation::Change { word, .. } | Operation::Fetch { word, is_read: false, .. } => {
            put(word, word.bytes, Some(word_of(word)))
        }
        Operation::Fetch { word, is_read: true, .. } => get(word, word.bytes),
    }
}
