//! Prints the output of the PEs as whole lines, labelled with the PE number.
//!
//! A progress bar redraws its line with carriage returns. On a terminal, the bar of PE 0 is shown live below the other
//! lines. In all other cases, only the final state of such a line is printed.
//!
//! Without labels, the bytes of the PEs go to standard output unchanged, unless it is a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::folded::FoldedErrors;

/// Longest line, in bytes. Longer ones are split, so no PE can exhaust the launcher's memory.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Sequence that clears the current line of a terminal.
const CLEAR: &[u8] = b"\r\x1b[K";

/// One of the two output streams of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stream {
    Out,
    Err,
}

/// A piece of a PE's output.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// A line, without its line break.
    Line(Vec<u8>),
    /// The current state of a line that is being redrawn.
    Live(Vec<u8>),
    /// Bytes to copy unchanged: complete lines with their line breaks, part of a long line, or the rest of the stream.
    Raw(Vec<u8>),
}

/// Splits the bytes of a PE's output stream into lines and other [`Piece`]s.
#[derive(Default)]
struct Splitter {
    /// Bytes since the last line break: the incomplete last line.
    rest: Vec<u8>,
    /// Whether the last line is being redrawn, such as a progress bar.
    live: bool,
    /// Whether the [`Piece`]s must contain every byte of the stream.
    is_raw: bool,
}

impl Splitter {
    fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(Piece)) {
        if self.is_raw {
            return self.feed_raw(bytes, emit);
        }
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            self.rest.extend_from_slice(part);
            emit(Piece::Line(visible(&self.rest).to_vec()));
            self.rest.clear();
            self.live = false;
        }
        if last.is_empty() {
            return;
        }
        self.rest.extend_from_slice(last);
        self.live |= self.rest.contains(&b'\r');
        if self.live {
            // Keep only the current state, and a trailing carriage return.
            let open = self.rest.ends_with(b"\r");
            self.rest = visible(&self.rest).to_vec();
            emit(Piece::Live(self.rest.clone()));
            if open {
                self.rest.push(b'\r');
            }
        }
        if self.rest.len() > MAX_LINE_BYTES {
            emit(Piece::Line(std::mem::take(&mut self.rest)));
        }
    }

    /// Emits whole lines, so lines of different PEs do not mix. Very long lines are emitted in parts.
    fn feed_raw(&mut self, bytes: &[u8], mut emit: impl FnMut(Piece)) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (whole, rest) = bytes.split_at(whole);
        self.rest.extend_from_slice(whole);
        if !whole.is_empty() {
            emit(Piece::Raw(std::mem::take(&mut self.rest)));
        }
        self.rest.extend_from_slice(rest);
        if self.rest.len() > MAX_LINE_BYTES {
            emit(Piece::Raw(std::mem::take(&mut self.rest)));
        }
    }

    /// Emits the remaining bytes as a line, once the stream is closed.
    fn end(&mut self, mut emit: impl FnMut(Piece)) {
        let rest = std::mem::take(&mut self.rest);
        match () {
            () if rest.is_empty() => {}
            () if self.is_raw => emit(Piece::Raw(rest)),
            () => emit(Piece::Line(visible(&rest).to_vec())),
        }
    }
}

/// Returns what a terminal would show of a line with carriage returns: the last part that is not empty.
fn visible(line: &[u8]) -> &[u8] {
    line.rsplit(|byte| *byte == b'\r').find(|part| !part.is_empty()).unwrap_or_default()
}

/// An output stream of a PE, and what it has sent since the last piece.
pub(super) struct Source {
    pe: u32,
    stream: Stream,
    splitter: Splitter,
}

/// Prints the output of all PEs, and messages of the launcher.
pub(super) struct Printer {
    label: bool,
    /// Whether the bytes of the PEs go to standard output unchanged.
    is_raw: bool,
    /// Whether lines that are being redrawn are shown live, because standard error is a terminal.
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// The line on the terminal that is being redrawn, with the stream it came from.
    live: Option<(Stream, Vec<u8>)>,
    /// Whether the reader of the launcher's own output is gone.
    closed: bool,
    folded: FoldedErrors,
}

impl Printer {
    /// Creates a printer to this process's standard output and error.
    pub(super) fn new(label: bool) -> Printer {
        let terminal = io::stderr().is_terminal();
        let is_raw = !label && !io::stdout().is_terminal();
        Printer { is_raw, ..Printer::to(Box::new(io::stdout()), Box::new(io::stderr()), label, terminal) }
    }

    fn to(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, label: bool, terminal: bool) -> Printer {
        Printer {
            label,
            is_raw: false,
            terminal,
            state: Mutex::new(State { out, err, live: None, closed: false, folded: FoldedErrors::default() }),
        }
    }

    /// Returns whether progress bars of PE 0 are shown.
    pub(super) fn shows_progress(&self) -> bool {
        self.terminal
    }

    /// Prints a message of the launcher itself, on standard error.
    pub(super) fn note(&self, text: &str) {
        let line = format!("rushmem: {text}\n");
        // If standard error is closed, there is nowhere to report that.
        let _ = self.lock().line(Stream::Err, line.as_bytes());
    }

    /// Prints a summary of the suppressed errors. The launcher has reported the failure of PE `told`.
    pub(super) fn note_folded(&self, told: Option<u32>) {
        let folded = std::mem::take(&mut self.lock().folded);
        for sentence in folded.sentences(told) {
            self.note(&sentence);
        }
    }

    /// Returns the start of a PE's output stream, for [`Printer::take`].
    pub(super) fn source(&self, pe: u32, stream: Stream) -> Source {
        let is_raw = self.is_raw && stream == Stream::Out;
        Source { pe, stream, splitter: Splitter { is_raw, ..Splitter::default() } }
    }

    /// Prints the next bytes of a PE's output stream. Calls `on_line` with each line.
    ///
    /// # Errors
    /// If the launcher's own output is closed, the first call that finds that. From then on, output of PEs is
    /// discarded: a PE that blocks on a full pipe could not exit.
    pub(super) fn take(
        &self,
        source: &mut Source,
        bytes: &[u8],
        mut on_line: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let Source { pe, stream, splitter } = source;
        let mut printed = Ok(());
        splitter.feed(bytes, |piece| self.pass(*pe, *stream, piece, &mut on_line, &mut printed));
        printed
    }

    /// Prints the rest of a PE's output stream once it is closed, like [`Printer::take`].
    ///
    /// # Errors
    /// The error of [`Printer::take`].
    pub(super) fn end(&self, source: Source, mut on_line: impl FnMut(&[u8])) -> io::Result<()> {
        let Source { pe, stream, mut splitter } = source;
        let mut printed = Ok(());
        splitter.end(|piece| self.pass(pe, stream, piece, &mut on_line, &mut printed));
        printed
    }

    fn pass(
        &self,
        pe: u32,
        stream: Stream,
        piece: Piece,
        on_line: &mut impl FnMut(&[u8]),
        printed: &mut io::Result<()>,
    ) {
        if let Piece::Line(line) = &piece {
            on_line(line);
        }
        if let Err(error) = self.print(pe, stream, piece) {
            *printed = Err(error);
        }
    }

    fn print(&self, pe: u32, stream: Stream, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Line(line) => {
                let mut state = self.lock();
                let lines = if stream == Stream::Err { state.folded.take(pe, &line) } else { vec![line] };
                if pe == 0 && !lines.is_empty() {
                    state.drop_live(stream);
                }
                lines.iter().try_for_each(|line| {
                    let mut whole = self.labelled(pe, line);
                    whole.push(b'\n');
                    state.line(stream, &whole)
                })
            }
            Piece::Live(line) if self.terminal && pe == 0 => {
                let whole = self.labelled(pe, &line);
                self.lock().show_live(stream, whole)
            }
            Piece::Live(_) => Ok(()),
            Piece::Raw(bytes) => self.lock().line(stream, &bytes),
        }
    }

    fn labelled(&self, pe: u32, line: &[u8]) -> Vec<u8> {
        let mut whole = if self.label { format!("[{pe}] ").into_bytes() } else { Vec::new() };
        whole.extend_from_slice(line);
        whole
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Prints a line above the line that is being redrawn.
    fn line(&mut self, stream: Stream, line: &[u8]) -> io::Result<()> {
        let live = self.live.take();
        if let Some((stream, _)) = &live {
            self.write(*stream, CLEAR)?;
        }
        self.write(stream, line)?;
        match live {
            Some((stream, text)) => self.show_live(stream, text),
            None => Ok(()),
        }
    }

    fn show_live(&mut self, stream: Stream, text: Vec<u8>) -> io::Result<()> {
        self.write(stream, &[CLEAR, &text].concat())?;
        self.live = Some((stream, text));
        Ok(())
    }

    /// Removes the line of `stream` that is being redrawn. The caller replaces it by an ordinary line.
    fn drop_live(&mut self, stream: Stream) {
        if self.live.as_ref().is_some_and(|(live, _)| *live == stream) {
            self.live = None;
            // If the terminal is gone, the next write reports that.
            let _ = self.write(stream, CLEAR);
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let to = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let written = to.write_all(bytes).and_then(|()| to.flush());
        self.closed = written.is_err();
        written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pieces(chunks: &[&str]) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut pieces = Vec::new();
        let mut keep = |piece| match piece {
            Piece::Line(line) => pieces.push(String::from_utf8(line).unwrap() + "$"),
            Piece::Live(line) => pieces.push(String::from_utf8(line).unwrap() + "~"),
            Piece::Raw(_) => unreachable!("the splitter is not raw"),
        };
        for chunk in chunks {
            splitter.feed(chunk.as_bytes(), &mut keep);
        }
        splitter.end(&mut keep);
        pieces
    }

    #[test]
    fn joins_chunks_into_whole_lines() {
        assert_eq!(pieces(&["one\ntwo\n"]), ["one$", "two$"]);
        assert_eq!(pieces(&["o", "ne\nt", "wo"]), ["one$", "two$"]);
        assert_eq!(pieces(&["\n\n"]), ["$", "$"]);
        assert_eq!(pieces(&["dos\r\n", "dos\r", "\n"]), ["dos$", "dos~", "dos$"]);
        assert!(pieces(&[]).is_empty());
    }

    #[test]
    fn redrawn_lines_show_their_current_state() {
        assert_eq!(pieces(&["\r10%", "\r20%", "\r30%\n"]), ["10%~", "20%~", "30%$"]);
        assert_eq!(pieces(&["10%\r", "20%\r", "30%\r\n"]), ["10%~", "20%~", "30%$"]);
        assert_eq!(pieces(&["\r1", "0%", "\r2"]), ["1~", "10%~", "2~", "2$"]);
        assert_eq!(pieces(&["\r10%\r20%\r30%\nnext\n"]), ["30%$", "next$"]);
    }

    #[test]
    fn fuzz_corpus() {
        let outputs = ["one\ntwo\n", "10 %\r20 %\r\ndone", "\x1b[1mbold\x1b[0m\r\n"];
        rushmem_corpus::target!("../../host", "output").messages(outputs).run(20_000, |bytes| {
            let lines = |chunk: usize| {
                let (mut splitter, mut lines) = (Splitter::default(), Vec::new());
                let mut keep = |piece| match piece {
                    Piece::Line(line) => lines.push(line),
                    Piece::Live(_) | Piece::Raw(_) => {}
                };
                bytes.chunks(chunk).for_each(|chunk| splitter.feed(chunk, &mut keep));
                splitter.end(&mut keep);
                lines
            };
            assert_eq!(lines(1), lines(4096), "the reader's chunks do not change the lines");
        });
    }

    #[test]
    fn splits_long_lines() {
        let long = "x".repeat(MAX_LINE_BYTES);
        assert_eq!(pieces(&[&long, "y", "z\n"]), [format!("{long}y$"), "z$".into()]);
    }

    #[test]
    fn raw_output_keeps_every_byte() {
        let long = [b'x'; MAX_LINE_BYTES + 3];
        let outputs: [&[u8]; 5] = [b"", b"a\r\nb\rc\n\n", b"no end", b"\0\xff\r\n\x80", &long];
        for bytes in outputs {
            for chunk in [1, 5, 1 << 20] {
                let mut splitter = Splitter { is_raw: true, ..Splitter::default() };
                let (mut copied, mut pieces) = (Vec::new(), 0);
                let mut keep = |piece| {
                    let Piece::Raw(raw) = piece else { panic!("{piece:?}") };
                    copied.extend(raw);
                    pieces += 1;
                };
                bytes.chunks(chunk).for_each(|chunk| splitter.feed(chunk, &mut keep));
                splitter.end(&mut keep);
                assert_eq!(copied, bytes);
                assert!(pieces <= 3, "a line is one piece");
            }
        }
    }

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(terminal: bool, act: impl FnOnce(&Printer)) -> String {
        let sink = Sink::default();
        act(&Printer::to(Box::new(sink.clone()), Box::new(sink.clone()), true, terminal));
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap().replace("\x1b[K", "<")
    }

    #[test]
    fn live_line_stays_below_other_lines() {
        let act = |printer: &Printer| {
            let copy = |pe, text: &str| {
                printer.take(&mut printer.source(pe, Stream::Out), text.as_bytes(), |_| ()).unwrap();
            };
            let mut splitter = Splitter::default();
            splitter.feed(b"\r10%", |piece| printer.print(0, Stream::Err, piece).unwrap());
            copy(1, "hello\n");
            splitter.feed(b"\r20%\n", |piece| printer.print(0, Stream::Err, piece).unwrap());
            copy(1, "bye\n");
        };
        assert_eq!(printed(true, act), "\r<[0] 10%\r<[1] hello\n\r<[0] 10%\r<[0] 20%\n[1] bye\n");
        assert_eq!(printed(false, act), "[1] hello\n[0] 20%\n[1] bye\n");
    }

    #[test]
    fn progress_bars_of_other_pes_show_only_their_last_state() {
        let act = |printer: &Printer| {
            let mut source = printer.source(1, Stream::Err);
            printer.take(&mut source, b"\r1\r2\r3", |_| ()).unwrap();
            printer.end(source, |_| ()).unwrap();
        };
        assert_eq!(printed(true, act), "[1] 3\n");
    }

    #[test]
    fn closed_output_is_reported_once() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let printer = Printer::to(Box::new(Gone), Box::new(Gone), false, false);
        let (mut lines, mut closed) = (0, 0);
        let mut source = printer.source(0, Stream::Out);
        for text in ["a\nb\n", "a\n"] {
            closed += u32::from(printer.take(&mut source, text.as_bytes(), |_| lines += 1).is_err());
        }
        assert_eq!((lines, closed), (3, 1));
    }
}
