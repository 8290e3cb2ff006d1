//! Writes and reads traces as JSON with trace events, the format of Perfetto and Chromium.
//!
//! A PE is a process of the format, and a track is a thread. Spans are complete events (`X`), and arrows are flow
//! events. The properties of a span are stored as arguments, so a file can be read back. Times in the file are
//! microseconds since `base_ns`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::arrows::{Arrow, arrows};
use crate::span::{Category, Detail, Site, Span, Track};
use crate::trace::Trace;

/// Version of the event arguments in which spans are stored.
const VERSION: u32 = 1;

/// Why a trace file could not be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read or written.
    Io(io::Error),
    /// The file was not written by this version of Rushmem. Contains the reason.
    Format(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Format(why) => write!(f, "it is not a trace of Rushmem: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => Self::Io(kind.into()),
            None => Self::Format(error.to_string()),
        }
    }
}

/// Properties of the whole trace, stored next to the events.
#[derive(Serialize, Deserialize)]
struct About {
    version: u32,
    base_ns: u64,
    dropped: u64,
    /// Upper bound on the difference between the clocks of machines, in nanoseconds.
    #[serde(default)]
    clock_error_ns: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    display_time_unit: Cow<'a, str>,
    rushmem: About,
    trace_events: Vec<Event<'a>>,
}

/// A trace event of the JSON format. Reading ignores fields that only other kinds of events have.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Event<'a> {
    ph: Cow<'a, str>,
    name: Cow<'a, str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Arguments<'a> {
    /// Properties of a span for which the format has no field.
    Span(Box<SpanArguments>),
    /// Name of a PE or of a row.
    Name { name: Cow<'a, str> },
    /// Position of a PE or row in the display order.
    Position { sort_index: u32 },
}

#[derive(Serialize, Deserialize)]
struct SpanArguments {
    kind: Category,
    track: Track,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<Site>,
    /// Whether the span was still open when the file was written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_not_ended: bool,
    #[serde(flatten)]
    detail: Detail,
}

impl Trace {
    /// Writes the trace in Perfetto's JSON format.
    ///
    /// # Errors
    /// - [`Error::Io`]
    pub fn write(&self, to: impl Write) -> Result<(), Error> {
        let rows = Rows::new(self);
        let (base_ns, last_ns) = (self.first_ns(), self.last_ns());
        let us = |ns: u64| Some(ns.saturating_sub(base_ns) as f64 / 1e3);
        let mut trace_events = rows.names();
        trace_events.extend(self.spans.iter().enumerate().map(|(i, span)| Event {
            ph: "X".into(),
            name: Cow::Borrowed(&span.name),
            cat: Some(span.category.name().into()),
            ts: us(span.begin),
            dur: us(base_ns + length(span, last_ns)),
            args: Some(Arguments::Span(Box::new(SpanArguments {
                kind: span.category,
                track: span.track.clone(),
                line: span.site.clone(),
                has_not_ended: span.end.is_none(),
                detail: span.detail.clone(),
            }))),
            ..rows.at(i, span.pe)
        }));
        for (id, Arrow { name, points }) in arrows(self).into_iter().enumerate() {
            let last = points.len().saturating_sub(1);
            for (number, (i, ns)) in points.into_iter().enumerate() {
                let span = &self.spans[i];
                let ph = if number == 0 {
                    "s"
                } else if number == last {
                    "f"
                } else {
                    "t"
                };
                let mut ts = us(ns);
                if number == last {
                    // Perfetto draws an arrow to the start of a span, but this one should point to the end of the wait.
                    // So mark the end by a short span.
                    let seen = (length(span, last_ns) / 4).clamp(1, MAX_SEEN_NS);
                    ts = us(ns.saturating_sub(seen));
                    let (ph, name) = ("X".into(), format!("{name} is seen").into());
                    let (cat, dur) = (Some("flow".into()), us(base_ns + seen));
                    trace_events.push(Event { ph, name, cat, ts, dur, ..rows.at(i, span.pe) });
                }
                trace_events.push(Event {
                    ph: ph.into(),
                    name: name.into(),
                    cat: Some("flow".into()),
                    ts,
                    id: Some(id),
                    bp: Some("e".into()),
                    ..rows.at(i, span.pe)
                });
            }
        }
        let Self { dropped, clock_error_ns, .. } = *self;
        let rushmem = About { version: VERSION, base_ns, dropped, clock_error_ns };
        let file = File { display_time_unit: "ns".into(), rushmem, trace_events };
        let mut to = io::BufWriter::new(to);
        serde_json::to_writer(&mut to, &file)?;
        to.flush().map_err(Error::Io)
    }

    /// Reads a file written by [`Trace::write`].
    ///
    /// # Errors
    /// - [`Error::Io`]
    /// - [`Error::Format`] if it was not written by this version of Rushmem
    pub fn read(mut from: impl Read) -> Result<Self, Error> {
        let mut text = String::new();
        from.read_to_string(&mut text).map_err(Error::Io)?;
        let File { rushmem, trace_events, .. } = serde_json::from_str(&text)?;
        let About { version, base_ns, dropped, clock_error_ns } = rushmem;
        if version != VERSION {
            return Err(Error::Format(format!("it has version {version} instead of {VERSION}")));
        }
        let spans = trace_events.into_iter().filter_map(|event| span_of(event, base_ns)).collect();
        Ok(Self { spans, dropped, clock_error_ns })
    }
}

/// Converts an event back to a span. Returns `None` for other kinds of events.
fn span_of(event: Event<'_>, base_ns: u64) -> Option<Span> {
    let Arguments::Span(arguments) = event.args? else { return None };
    let SpanArguments { kind, track, line, has_not_ended, detail } = *arguments;
    let ns = |us: f64| (us * 1e3).round() as u64;
    let begin = base_ns.saturating_add(ns(event.ts?));
    let end = begin.saturating_add(ns(event.dur?));
    Some(Span {
        pe: event.pid,
        track,
        name: Cow::Owned(event.name.into_owned()),
        category: kind,
        site: line,
        begin,
        end: (!has_not_ended).then_some(end),
        detail,
    })
}

/// Maximum length, in nanoseconds, of the short span that receives the arrow of a satisfied wait.
const MAX_SEEN_NS: u64 = 500;

/// Returns the length of a span in nanoseconds, at least 1, because Perfetto attaches no arrow to an empty span.
fn length(span: &Span, last_ns: u64) -> u64 {
    span.ns(last_ns).max(1)
}

/// The rows in which spans are displayed. Spans in a row must nest, so a track whose spans overlap gets several rows.
struct Rows<'a> {
    /// For each row, the PE, the track, and the index of the row within the track.
    rows: Vec<(u32, &'a Track, usize)>,
    /// For each span of the trace, the index of its row.
    of_span: Vec<usize>,
    /// Thread ID of the first row. It is above all PEs, because Perfetto takes a thread whose ID equals that of its
    /// process for the main thread.
    first: u32,
}

impl<'a> Rows<'a> {
    fn new(trace: &'a Trace) -> Self {
        let mut of_track: BTreeMap<(u32, &Track), Vec<usize>> = BTreeMap::new();
        for (i, span) in trace.spans.iter().enumerate() {
            of_track.entry((span.pe, &span.track)).or_default().push(i);
        }
        let last_ns = trace.last_ns();
        let last_pe = trace.spans.iter().map(|span| span.pe).max().unwrap_or(0);
        let (rows, of_span) = (Vec::new(), vec![0; trace.spans.len()]);
        let mut all = Self { rows, of_span, first: last_pe.saturating_add(1000) };
        for ((pe, track), spans) in of_track {
            all.add(trace, (pe, track), spans, last_ns);
        }
        all
    }

    /// Distributes the spans of one track over as many rows as needed.
    fn add(&mut self, trace: &Trace, (pe, track): (u32, &'a Track), mut spans: Vec<usize>, last_ns: u64) {
        let end = |i: usize| trace.spans[i].begin + length(&trace.spans[i], last_ns);
        spans.sort_by_key(|&i| (trace.spans[i].begin, std::cmp::Reverse(end(i))));
        let first = self.rows.len();
        // For each row, the ends of the spans that are open at the start of the current one, outermost first.
        let mut open: Vec<Vec<u64>> = Vec::new();
        for i in spans {
            let begin = trace.spans[i].begin;
            let has_room = |row: &mut Vec<u64>| {
                while row.last().is_some_and(|&end| end <= begin) {
                    row.pop();
                }
                row.last().is_none_or(|&outer| outer >= end(i))
            };
            let row = open.iter_mut().position(has_room).unwrap_or(open.len());
            if row == open.len() {
                open.push(Vec::new());
                self.rows.push((pe, track, row));
            }
            open[row].push(end(i));
            self.of_span[i] = first + row;
        }
    }

    /// Creates an event in the row of span `i`, which belongs to PE `pe`.
    fn at<'e>(&self, i: usize, pe: u32) -> Event<'e> {
        Event { pid: pe, tid: self.first.saturating_add(self.of_span[i] as u32), ..Event::default() }
    }

    /// Creates the events that name PEs and rows.
    fn names<'e>(&self) -> Vec<Event<'e>> {
        let about = |name: &'static str, pid, tid, args| Event {
            ph: "M".into(),
            name: name.into(),
            pid,
            tid,
            args: Some(args),
            ..Event::default()
        };
        let mut events = Vec::new();
        let mut last = None;
        for (&(pe, track, number), tid) in self.rows.iter().zip(self.first..) {
            if last.replace(pe) != Some(pe) {
                // Perfetto appends the process ID, which is the PE.
                events.push(about("process_name", pe, 0, Arguments::Name { name: "PE".into() }));
                events.push(about("process_sort_index", pe, 0, Arguments::Position { sort_index: pe }));
            }
            let name = if number == 0 { track.to_string() } else { format!("{track} ({})", number + 1) };
            events.push(about("thread_name", pe, tid, Arguments::Name { name: name.into() }));
            events.push(about("thread_sort_index", pe, tid, Arguments::Position { sort_index: tid }));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Word;

    fn trace() -> Trace {
        let lane = Track::Lane { block: 2, thread: 32 };
        let word = Word { pe: 1, offset: 1 << 40 };
        let put = Detail {
            peer: Some(1),
            bytes: Some(4096),
            remote: Some(0),
            changes: Some(word),
            ..Detail::default()
        };
        let wait = Detail { awaits: Some(word), note: Some("eq 3".into()), ..Detail::default() };
        let site = Some(Site { file: "src/main.rs".into(), line: 7 });
        let base = 1_700_000_000_123_456_789;
        let span = |pe, name: &'static str, category, begin, end, detail| Span {
            pe,
            track: lane.clone(),
            name: name.into(),
            category,
            site: site.clone(),
            begin: base + begin,
            end,
            detail,
        };
        let spans = vec![
            span(0, "put_signal_nbi", Category::Call, 1, Some(base + 1000), put),
            span(1, "wait_until", Category::Wait, 0, Some(base + 2001), wait.clone()),
            span(1, "wait \"until\"", Category::Wait, 10, None, wait),
        ];
        Trace { spans, dropped: 5, clock_error_ns: 40 }
    }

    #[test]
    fn file_round_trips() {
        let trace = trace();
        let mut file = Vec::new();
        trace.write(&mut file).unwrap();
        assert_eq!(Trace::read(&*file).unwrap(), trace);
    }

    #[test]
    fn file_has_names_spans_and_arrows() {
        let mut file = Vec::new();
        trace().write(&mut file).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        assert_eq!((of("M").len(), of("X").len(), of("s").len(), of("f").len()), (8, 4, 1, 1));
        assert_eq!(of("X")[0]["args"]["line"]["line"], 7);
        assert_eq!(of("X")[0]["ts"], 0.001);
        assert_eq!(of("s")[0]["id"], of("f")[0]["id"]);
        assert_eq!((&of("s")[0]["pid"], &of("f")[0]["pid"]), (&0.into(), &1.into()));
    }

    #[test]
    fn overlapping_spans_get_separate_rows() {
        let mut trace = trace();
        trace.spans.truncate(1);
        let first = trace.spans[0].clone();
        let at = |begin: u64, end: u64| Span {
            begin: first.begin + begin,
            end: Some(first.begin + end),
            ..first.clone()
        };
        // The second span is inside the first. The third overlaps both, and the fourth fits into the first again.
        trace.spans.extend([at(10, 20), at(15, 5000), at(1000, 2000)]);
        assert_eq!(Rows::new(&trace).of_span, [0, 0, 1, 0]);
        let names: Vec<_> = Rows::new(&trace).rows.iter().map(|row| (row.0, row.2)).collect();
        assert_eq!(names, [(0, 0), (0, 1)]);
    }

    #[test]
    fn rejects_other_files() {
        let refused = |text: &str| Trace::read(text.as_bytes()).unwrap_err().to_string();
        assert!(refused("{}").contains("missing field"));
        let other =
            r#"{"displayTimeUnit":"ns","rushmem":{"version":9,"base_ns":0,"dropped":0},"traceEvents":[]}"#;
        assert_eq!(refused(other), "it is not a trace of Rushmem: it has version 9 instead of 1");
    }
}
