//! The connection of a node's launcher to the job's server, which receives losses and reports how the node's own
//! processes exit.

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

/// What an observer receives from the job's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A PE on any node, or the server itself, was lost. The job continues without it if this is survivable.
    Lost(PeerLost),
    /// The server confirms [`Observer::exited`] for this PE. All earlier losses have been delivered before this.
    Noted(u32),
    /// The server refuses this observer, for this reason.
    Refused(String),
}

/// The connection of a launcher to the server of its job.
pub struct Observer {
    server: String,
    stream: Mutex<TcpStream>,
    left: Mutex<Receiver<()>>,
}

impl Observer {
    /// Connects as the launcher of node `node` in a job of `n_pes` PEs. Waits at most `within` for the connection.
    ///
    /// With `retry`, waits for a server that is not listening yet. A thread of the observer calls `on_event` for each
    /// event.
    ///
    /// # Errors
    ///
    /// - [`Error::Refused`]: the token is wrong.
    /// - [`Error::Connect`], [`Error::NoAnswer`]: the server cannot be reached, or does not answer.
    /// - [`Error::NotLauncher`], [`Error::Closed`]: the server does not follow the protocol, or closes the connection.
    /// - [`Error::Random`], [`Error::Thread`]: the system lacks random bytes or threads.
    pub fn connect(
        server: &str,
        token: &Token,
        node: u32,
        n_pes: u32,
        within: Duration,
        retry: bool,
        mut on_event: impl FnMut(ServerEvent) + Send + 'static,
    ) -> Result<Observer, Error> {
        let stream = Dial { server, token, n_pes, within, retry }.open()?;
        let unreachable = |source| Error::Connect { server: server.into(), waited: within, source };
        let reader = stream.try_clone().map_err(unreachable)?;
        let (tell_left, left) = channel();
        let listen = move || {
            let mut from = BufReader::new(reader);
            let reason = loop {
                match read_frame(&mut from, client_limit(n_pes)) {
                    Ok(Some(Message::Lost(lost))) => on_event(ServerEvent::Lost(lost)),
                    Ok(Some(Message::Noted { pe })) => on_event(ServerEvent::Noted(pe)),
                    Ok(Some(Message::Refused { reason })) => return on_event(ServerEvent::Refused(reason)),
                    Ok(Some(Message::Left)) => {
                        // This fails if the observer has been dropped in the meantime.
                        let _ = tell_left.send(());
                        return;
                    }
                    Ok(Some(_)) => break "it does not follow the protocol".into(),
                    Ok(None) => break "it closed the connection".into(),
                    Err(error) => break error.to_string(),
                }
            };
            on_event(ServerEvent::Lost(PeerLost { pe: None, reason, exit: None, survivable: false }));
        };
        let name = "rushmem-observer";
        let thread = std::thread::Builder::new().name(name.into()).spawn(listen);
        thread.map_err(|source| Error::Thread { name, source })?;
        let observer = Observer { server: server.into(), stream: Mutex::new(stream), left: Mutex::new(left) };
        observer.send(&Message::Observe { node }).map_err(unreachable)?;
        Ok(observer)
    }

    /// Reports that the process of `pe` has exited. `how` is part of a sentence: `exited with code 3`.
    ///
    /// The server confirms with [`ServerEvent::Noted`]. It treats the exit as a loss unless the PE has finished. A
    /// failed report is not an error, since the loss of the server is a separate event.
    pub fn exited(&self, pe: u32, how: &str) {
        if let Err(error) = self.send(&Message::Exited { pe, how: how.into() }) {
            tracing::debug!(%error, pe, "the exit of a PE could not be reported");
        }
    }

    /// Disconnects, after all events that the server has sent to this observer are handled.
    ///
    /// # Errors
    ///
    /// - [`Error::NoAnswer`]: the server did not answer `within` the deadline.
    pub fn finish(&self, within: Duration) -> Result<(), Error> {
        let silent =
            |_| Error::NoAnswer { server: self.server.clone(), call: "finish".into(), waited: within };
        if let Err(error) = self.send(&Message::Finish) {
            tracing::debug!(%error, "finish could not be sent");
        }
        match lock(&self.left).recv_timeout(within) {
            // The listening thread has returned, so all events are handled.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                self.close();
                Ok(())
            }
            Err(error) => Err(silent(error)),
        }
    }

    fn close(&self) {
        // This fails if the server has already closed the connection.
        let _ = lock(&self.stream).shutdown(Shutdown::Both);
    }

    fn send(&self, message: &Message) -> std::io::Result<()> {
        lock(&self.stream).write_all(&frame(message))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // This makes the listening thread return.
        self.close();
    }
}
