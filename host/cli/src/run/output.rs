//! What PEs write, line by line, labelled, never mixed within a line.
//!
//! A line that is redrawn with carriage returns (a progress bar) is shown live if it comes from PE 0 and goes to a
//! terminal, below everything else; elsewhere only its last state remains.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A line longer than this is broken into several, so that no PE can fill the launcher's memory.
const LONGEST: usize = 64 << 10;

/// Clears the current line of a terminal.
const CLEAR: &[u8] = b"\r\x1b[K";

/// Which of a PE's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// A piece of a PE's output.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The present state of a line that is being redrawn.
    Live(Vec<u8>),
}

/// Cuts a stream of bytes into pieces.
#[derive(Default)]
struct Splitter {
    /// The line that has not ended.
    rest: Vec<u8>,
    /// Whether that line is being redrawn.
    live: bool,
}

impl Splitter {
    fn feed(&mut self, bytes: &[u8], mut emit: impl FnMut(Piece)) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            self.rest.extend_from_slice(part);
            emit(Piece::Line(present(&self.rest).to_vec()));
            self.rest.clear();
            self.live = false;
        }
        if last.is_empty() {
            return;
        }
        self.rest.extend_from_slice(last);
        self.live |= self.rest.contains(&b'\r');
        if self.live {
            // Only the present state counts; an open carriage return must stay open.
            let open = self.rest.ends_with(b"\r");
            self.rest = present(&self.rest).to_vec();
            emit(Piece::Live(self.rest.clone()));
            if open {
                self.rest.push(b'\r');
            }
        }
        if self.rest.len() > LONGEST {
            emit(Piece::Line(std::mem::take(&mut self.rest)));
        }
    }

    /// The stream is over; what is left is a line.
    fn end(&mut self, mut emit: impl FnMut(Piece)) {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            emit(Piece::Line(present(&rest).to_vec()));
        }
    }
}

/// What a terminal would show of a line with carriage returns: the last part that is not empty.
fn present(line: &[u8]) -> &[u8] {
    line.rsplit(|byte| *byte == b'\r').find(|part| !part.is_empty()).unwrap_or_default()
}

/// Where all output goes.
pub(super) struct Printer {
    label: bool,
    /// Whether live lines are shown.
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// The live line on the terminal, with its stream.
    live: Option<(Stream, Vec<u8>)>,
    /// Whether a reader of our output has gone.
    closed: bool,
}

impl Printer {
    /// Prints on this process's standard output and error.
    pub(super) fn new(label: bool) -> Printer {
        let terminal = io::stderr().is_terminal();
        Printer::to(Box::new(io::stdout()), Box::new(io::stderr()), label, terminal)
    }

    fn to(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, label: bool, terminal: bool) -> Printer {
        Printer { label, terminal, state: Mutex::new(State { out, err, live: None, closed: false }) }
    }

    /// Whether PE 0's progress bars are shown.
    pub(super) fn shows_progress(&self) -> bool {
        self.terminal
    }

    /// Prints a message of the launcher itself, on standard error.
    pub(super) fn note(&self, text: &str) {
        let line = format!("rushmem: {text}\n");
        // There is no other place to say that nobody reads standard error.
        let _ = self.lock().line(Stream::Err, line.as_bytes());
    }

    /// Copies what a PE writes, until it closes the stream. `on_line` sees each line.
    ///
    /// `on_closed` is called if this is the one who notices that nobody reads our output any more; what PEs write is
    /// then read and dropped, so that they can end.
    pub(super) fn copy(
        &self,
        pe: u32,
        stream: Stream,
        mut from: impl Read,
        mut on_line: impl FnMut(&[u8]),
        mut on_closed: impl FnMut(),
    ) -> io::Result<()> {
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; 16 << 10];
        let mut print = |piece: Piece| {
            if let Piece::Line(line) = &piece {
                on_line(line);
            }
            if self.print(pe, stream, piece).is_err() {
                on_closed();
            }
        };
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => splitter.feed(&buffer[..n], &mut print),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        splitter.end(&mut print);
        Ok(())
    }

    fn print(&self, pe: u32, stream: Stream, piece: Piece) -> io::Result<()> {
        match piece {
            Piece::Line(line) => {
                let mut whole = self.labelled(pe, &line);
                whole.push(b'\n');
                let mut state = self.lock();
                if pe == 0 {
                    state.drop_live(stream);
                }
                state.line(stream, &whole)
            }
            Piece::Live(line) if self.terminal && pe == 0 => {
                let whole = self.labelled(pe, &line);
                self.lock().show_live(stream, whole)
            }
            Piece::Live(_) => Ok(()),
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
    /// Prints a line, in one write, above the live line.
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

    /// The live line of this stream has become an ordinary one, or is replaced by one.
    fn drop_live(&mut self, stream: Stream) {
        if self.live.as_ref().is_some_and(|(live, _)| *live == stream) {
            self.live = None;
            // A terminal that is gone is noticed by the write that follows.
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
        };
        for chunk in chunks {
            splitter.feed(chunk.as_bytes(), &mut keep);
        }
        splitter.end(&mut keep);
        pieces
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        assert_eq!(pieces(&["one\ntwo\n"]), ["one$", "two$"]);
        assert_eq!(pieces(&["o", "ne\nt", "wo"]), ["one$", "two$"]);
        assert_eq!(pieces(&["\n\n"]), ["$", "$"]);
        assert_eq!(pieces(&["dos\r\n", "dos\r", "\n"]), ["dos$", "dos~", "dos$"]);
        assert!(pieces(&[]).is_empty());
    }

    #[test]
    fn redrawn_lines_show_their_present_state() {
        assert_eq!(pieces(&["\r10%", "\r20%", "\r30%\n"]), ["10%~", "20%~", "30%$"]);
        assert_eq!(pieces(&["10%\r", "20%\r", "30%\r\n"]), ["10%~", "20%~", "30%$"]);
        assert_eq!(pieces(&["\r1", "0%", "\r2"]), ["1~", "10%~", "2~", "2$"]);
        assert_eq!(pieces(&["\r10%\r20%\r30%\nnext\n"]), ["30%$", "next$"]);
    }

    #[test]
    fn endless_lines_are_broken() {
        let long = "x".repeat(LONGEST);
        assert_eq!(pieces(&[&long, "y", "z\n"]), [format!("{long}y$"), "z$".into()]);
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
    fn a_live_line_stays_below_the_others() {
        let act = |printer: &Printer| {
            let copy =
                |pe, text: &str| printer.copy(pe, Stream::Out, text.as_bytes(), |_| (), || ()).unwrap();
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
    fn others_bars_show_only_their_end() {
        let act = |printer: &Printer| printer.copy(1, Stream::Err, &b"\r1\r2\r3"[..], |_| (), || ()).unwrap();
        assert_eq!(printed(true, act), "[1] 3\n");
    }

    #[test]
    fn a_reader_that_goes_is_reported_once() {
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
        printer.copy(0, Stream::Out, &b"a\nb\n"[..], |_| lines += 1, || closed += 1).unwrap();
        printer.copy(0, Stream::Out, &b"a\n"[..], |_| lines += 1, || closed += 1).unwrap();
        assert_eq!((lines, closed), (3, 1));
    }
}
