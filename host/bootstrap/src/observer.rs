//! The launcher of a node: hears of lost PEs, and reports how its own ended.

use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::auth::Token;
use crate::dial::Dial;
use crate::error::{Error, PeerLost};
use crate::wire::{Message, client_limit, frame, read_frame};
use rushmem_base::lock;

/// What an observer hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A PE of any node, or the server, is gone.
    Lost(PeerLost),
    /// The server has heard that the process of this PE has ended; losses that came before it were told before.
    Noted(u32),
    /// The server will not have this observer.
    Refused(String),
}

/// A launcher's connection to the server of its job.
pub struct Observer {
    server: String,
    stream: Mutex<TcpStream>,
    left: Mutex<Receiver<()>>,
}

impl Observer {
    /// Connects as the launcher of `node`, of a job of `n_pes`. Events come to `on_event`, from a thread of its own.
    ///
    /// # Errors
    ///
    /// As [`super::Tcp::join`]. `retry` waits for a server that does not listen yet.
    pub fn connect(
        server: &str,
        token: &Token,
        node: u32,
        n_pes: u32,
        within: Duration,
        retry: bool,
        mut on_event: impl FnMut(Event) + Send + 'static,
    ) -> Result<Observer, Error> {
        let stream = Dial { server, token, within, retry }.open()?;
        let unreachable = |source| Error::Connect { server: server.into(), waited: within, source };
        let reader = stream.try_clone().map_err(unreachable)?;
        let (tell_left, left) = channel();
        let listen = move || {
            let mut from = BufReader::new(reader);
            let reason = loop {
                match read_frame(&mut from, client_limit(n_pes)) {
                    Ok(Some(Message::Lost(lost))) => on_event(Event::Lost(lost)),
                    Ok(Some(Message::Noted { pe })) => on_event(Event::Noted(pe)),
                    Ok(Some(Message::Refused { reason })) => return on_event(Event::Refused(reason)),
                    Ok(Some(Message::Left)) => {
                        // Nobody waits for it once the observer is dropped.
                        let _ = tell_left.send(());
                        return;
                    }
                    Ok(Some(_)) => break "it does not follow the protocol".into(),
                    Ok(None) => break "it closed the connection".into(),
                    Err(error) => break error.to_string(),
                }
            };
            on_event(Event::Lost(PeerLost { pe: None, reason, exit: None }));
        };
        let name = "rushmem-observer";
        let thread = std::thread::Builder::new().name(name.into()).spawn(listen);
        thread.map_err(|source| Error::Thread { name, source })?;
        let observer = Observer { server: server.into(), stream: Mutex::new(stream), left: Mutex::new(left) };
        observer.send(&Message::Observe { node }).map_err(unreachable)?;
        Ok(observer)
    }

    /// Reports that the process of `pe` has ended, and `how`, as part of a sentence. [`Event::Noted`] follows.
    ///
    /// Whether that is a loss the server decides: it is none after the PE's finish. A server that is gone was an
    /// event already.
    pub fn exited(&self, pe: u32, how: &str) {
        if let Err(error) = self.send(&Message::Exited { pe, how: how.into() }) {
            tracing::debug!(%error, pe, "exit was not reported");
        }
    }

    /// Leaves. When it returns, each event that the server had for this observer has been handed over.
    ///
    /// # Errors
    ///
    /// [`Error::Silent`] if the server does not answer `within` the deadline.
    pub fn finish(&self, within: Duration) -> Result<(), Error> {
        let silent = |_| Error::Silent { server: self.server.clone(), call: "finish".into(), waited: within };
        if let Err(error) = self.send(&Message::Finish) {
            tracing::debug!(%error, "finish was not sent");
        }
        match lock(&self.left).recv_timeout(within) {
            // The thread has ended: all it had to say is said.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                self.close();
                Ok(())
            }
            Err(error) => Err(silent(error)),
        }
    }

    fn close(&self) {
        // One that the server has closed needs no more.
        let _ = lock(&self.stream).shutdown(Shutdown::Both);
    }

    fn send(&self, message: &Message) -> std::io::Result<()> {
        lock(&self.stream).write_all(&frame(message))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // Ends the listening thread.
        self.close();
    }
}
