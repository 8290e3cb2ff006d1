//! Timelines of jobs: records what PEs, kernels and NICs do and when, and writes it in Perfetto's format.
//!
//! A [`Recorder`] collects [`Span`]s: calls of kernels and hosts, waits, launches, and the work of NICs. A [`Trace`]
//! holds the spans of some PEs. It is written in Perfetto's JSON format and can be read back, which allows merging the
//! files of several processes.
//!
//! Times are in nanoseconds since 1970, by the clock of the machine. The host converts the times of a GPU before it
//! records them. In a file, all times are by the clock of PE 0.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | `clock` | the clock of all spans |
//! | `span` | spans, and the tracks on which they are drawn |
//! | `offset` | the offset between the clocks of two machines |
//! | `recorder` | collects spans while a job runs |
//! | `time` | formatting of times |
//! | `totals` | running totals of a PE |
//! | `live` | the files of running PEs, for `rushmem top` |
//! | `trace` | the spans of a file |
//! | `arrows` | arrows from an operation to the wait that it satisfied |
//! | `perfetto` | the file format |
//! | `summary` | tables of waits, traffic and late PEs |
//! | `waits` | which PE waits for which |
#![forbid(unsafe_code)]

mod arrows;
mod clock;
mod live;
mod offset;
mod perfetto;
mod recorder;
mod span;
mod summary;
mod time;
mod totals;
mod trace;
mod waits;

pub use arrows::{Arrow, arrows};
pub use clock::{now_ns, ns_at};
pub use live::{Live, LiveFile, all_live, live_folder};
pub use offset::{ClockMeetings, ClockOffset};
pub use perfetto::Error;
pub use recorder::{OpenSpan, Recorder, SpanId};
pub use span::{Category, Detail, Site, Span, Track, Word};
pub use summary::{Last, Summary, Traffic};
pub use time::Time;
pub use totals::{TeamCalls, Totals};
pub use trace::{PART, Trace, part_of};
pub use waits::{JobWaits, PeWaits, Until, Waiting};
