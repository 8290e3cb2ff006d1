//! What this PE waits for, derived from its timeline, its watchdog and the error records of its kernels.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use rushmem_base::lock;
use rushmem_device::Team;
use rushmem_device::abi::ControlPage;
use rushmem_error::{DeviceError, ObjectNames, recorded};
use rushmem_observe::trace::PeTrace;
use rushmem_trace::{PeWaits, Recorder, Site, Span, Totals, Until, Waiting, now_ns};

use super::protocol::Cause;
use crate::machine::Region;
use crate::watchdog::Watchdog;

/// How many recently changed words of other PEs a report lists.
const MAX_CHANGED_WORDS: usize = 64;

/// How long reports include the wait of a kernel that has terminated because its deadline passed.
const RECORD_LIFETIME: Duration = Duration::from_secs(2);

/// The collective host call that this PE is blocked in.
struct HostCall {
    name: String,
    site: Option<Site>,
    begin: Instant,
}

/// All that a PE knows about what its host and its kernels wait for.
pub struct Known {
    pe: u32,
    trace: PeTrace,
    watchdog: Arc<Watchdog>,
    control: Region,
    names: ObjectNames,
    host: Mutex<Option<HostCall>>,
    teams: Mutex<BTreeMap<(u32, u32), Vec<u32>>>,
    /// Waits that exceeded their deadlines, and when the host learned of them.
    ended: Mutex<Option<(Instant, Vec<Waiting>)>>,
    /// Waits at the time when a kernel exceeded its running-time limit. They are saved because the kernels are aborted
    /// before PE 0 requests the report.
    at_limit: Mutex<Option<PeWaits>>,
}

/// Marks this PE as blocked in a collective host call until the guard is dropped.
pub struct InHostCall<'a>(&'a Known);

impl Drop for InHostCall<'_> {
    fn drop(&mut self) {
        *lock(&self.0.host) = None;
    }
}

impl Known {
    /// Creates the state of PE `pe`. `control` is its control page, where kernels record failed waits.
    pub fn new(
        pe: u32,
        trace: PeTrace,
        watchdog: Arc<Watchdog>,
        control: Region,
        names: ObjectNames,
    ) -> Self {
        Self {
            pe,
            trace,
            watchdog,
            control,
            names,
            host: Mutex::default(),
            teams: Mutex::default(),
            ended: Mutex::default(),
            at_limit: Mutex::default(),
        }
    }

    pub(super) fn pe(&self) -> u32 {
        self.pe
    }

    /// Records that this PE's host is blocked in the collective call `name`, which all PEs must enter. `site` is the
    /// source line of the call, if known.
    pub fn host_call(&self, name: &str, site: Option<&'static Location<'static>>) -> InHostCall<'_> {
        let (name, site) = (name.to_owned(), site.map(Into::into));
        *lock(&self.host) = Some(HostCall { name, site, begin: Instant::now() });
        InHostCall(self)
    }

    /// Records the members of a team, so reports can name the PEs that a team operation waits for.
    pub fn add_team(&self, team: Team, members: &[u32]) {
        lock(&self.teams).insert((team.slot(), team.generation()), members.to_vec());
    }

    /// Saves the waits found in the error records of kernels whose deadlines have passed.
    pub fn keep_ended(&self, errors: &[DeviceError]) {
        let waits: Vec<_> = errors.iter().filter_map(DeviceError::waiting).collect();
        if !waits.is_empty() {
            *lock(&self.ended) = Some((Instant::now(), waits));
        }
    }

    /// Returns whether a deadline of a kernel has passed recently.
    pub fn has_ended(&self) -> bool {
        lock(&self.ended).as_ref().is_some_and(|(at, _)| at.elapsed() < RECORD_LIFETIME)
    }

    /// Saves the current waits for later reports, since the caller is about to abort the kernels. Only the first call
    /// has an effect.
    pub fn keep_waits(&self, in_flight: Vec<String>) {
        let waits = self.waits(Cause::Signal, in_flight);
        lock(&self.at_limit).get_or_insert(waits);
    }

    pub(super) fn totals(&self) -> Totals {
        let totals = |recorder: &Recorder| recorder.totals(self.pe);
        self.trace.recorder().map(totals).unwrap_or_default()
    }

    /// Returns the waits of this PE. `in_flight` describes the QPs with outstanding operations.
    pub(super) fn waits(&self, cause: Cause, in_flight: Vec<String>) -> PeWaits {
        if let Some(waits) = lock(&self.at_limit).clone() {
            return waits;
        }
        let open = self.trace.open();
        let has_timeline = open.is_some();
        let mut all = PeWaits { pe: self.pe, has_timeline, ..PeWaits::default() };
        if cause == Cause::Deadline {
            self.add_ended(&mut all);
        }
        if let Some(HostCall { name, site, begin }) = &*lock(&self.host) {
            all.add(Waiting {
                place: "host".into(),
                others: 0,
                call: name.clone(),
                site: site.clone(),
                ns: Some(begin.elapsed().as_nanos() as u64),
                until: Until::Hosts,
                has_ended: false,
            });
        }
        if let Some(open) = open {
            all.add_open(&open, now_ns(), |team| self.members(team));
        }
        if let Some(recorder) = self.trace.recorder() {
            all.changed = recorder.changed(self.pe, MAX_CHANGED_WORDS);
        }
        if !has_timeline {
            all.runs.extend(self.watchdog.running());
        }
        all.runs.extend(in_flight);
        for wait in &mut all.waits {
            if let Until::Word { offset, object, .. } = &mut wait.until {
                *object = self.names.at(*offset).map(|place| place.to_string());
            }
        }
        all
    }

    /// Adds the waits that exceeded their deadlines.
    fn add_ended(&self, all: &mut PeWaits) {
        // The host saves the records with `keep_ended` before it clears the page, so reading the page first cannot miss
        // both.
        let mut page = Box::new(ControlPage::zeroed());
        let read = self.control.read(0, bytemuck::bytes_of_mut(&mut *page));
        let mut ended: Vec<_> = recorded(&page).iter().filter_map(DeviceError::waiting).collect();
        if let Err(error) = read {
            tracing::debug!("the records of the kernels cannot be read: {error}");
        }
        if let Some((at, waits)) = &*lock(&self.ended)
            && at.elapsed() < RECORD_LIFETIME
        {
            ended.clone_from(waits);
        }
        for wait in ended {
            all.add(self.named(wait));
        }
    }

    /// Completes a wait that is known only from a kernel's error record: adds the name of the call and the duration
    /// from the matching span of the timeline.
    fn named(&self, wait: Waiting) -> Waiting {
        let Some(recorder) = self.trace.recorder() else { return wait };
        let is_it = |at: &Site| {
            // A record holds only the tail of the file name.
            wait.site.as_ref().is_some_and(|site| at.line == site.line && at.file.ends_with(&*site.file))
        };
        let is_wait =
            |span: &Span| span.pe == self.pe && span.is_wait() && span.track.to_string() == wait.place;
        // For an operation of the host, the record has a line of the runtime's kernel, but the span has the line of the
        // operation. Fall back to the last wait of the thread.
        let at_line = recorder.last(|span| is_wait(span) && span.site.as_ref().is_some_and(is_it));
        let found = at_line.or_else(|| recorder.last(is_wait));
        match found {
            Some(span) => Waiting {
                call: span.name.to_string(),
                ns: Some(span.ns(span.begin)),
                site: span.site,
                ..wait
            },
            None => wait,
        }
    }

    /// Returns the members of a team, or `None` for the world team.
    fn members(&self, team: (u32, u32)) -> Option<Vec<u32>> {
        if team == (Team::WORLD.slot(), Team::WORLD.generation()) {
            return None;
        }
        let members = lock(&self.teams).get(&team).cloned().unwrap_or_default();
        // A longer list would exceed the size of a message. An empty list stands for unknown members.
        Some(members).filter(|members| members.len() <= 1024).or(Some(Vec::new()))
    }
}
