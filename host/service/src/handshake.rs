//! The exit protocol of the kernel: for each request, both sides agree on whether the kernel executes it.
//!
//! The host stores the number of posted requests and then checks the state. The kernel stores the state and then checks
//! the number. Each side issues a sequentially consistent fence in between (Dekker's algorithm), so at least one of
//! them sees the other's store.

/// State of the service kernel that serves a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// No kernel serves the ring until the host launches one.
    Gone = 0,
    /// A kernel was launched but has not started. The host posts nothing in this state.
    Starting = 1,
    /// The kernel executes whatever is posted.
    Alive = 2,
    /// The kernel checks for a last request, and then becomes alive again or gone.
    Leaving = 3,
}

impl State {
    pub(crate) fn from_word(word: u64) -> Self {
        match word {
            1 => State::Starting,
            2 => State::Alive,
            3 => State::Leaving,
            _ => State::Gone,
        }
    }
}

/// Words of a ring that the host and the service kernel share for the exit protocol. Tests implement it with loom.
pub trait Handshake {
    /// Loads the number of posted requests.
    fn posted(&self) -> u64;
    /// Publishes the number of posted requests. Has release semantics: the requests become visible first.
    fn set_posted(&self, number: u64);
    /// Loads the state with acquire semantics.
    fn state(&self) -> State;
    /// Stores the state with release semantics.
    fn set_state(&self, state: State);
    /// Issues a sequentially consistent fence.
    fn fence(&self);
}

/// Tries to stop the kernel, which has executed `seen` requests. Returns `false` if more were posted, in which case the
/// kernel must continue.
///
/// With `now`, the kernel stops even if requests are left. The host then takes them back.
pub fn leave(words: &impl Handshake, seen: u64, now: bool) -> bool {
    words.set_state(State::Leaving);
    words.fence();
    let ends = now || words.posted() == seen;
    words.set_state(if ends { State::Gone } else { State::Alive });
    ends
}

/// Announces that `number` requests are posted, to a kernel that has started. Returns whether the kernel executes them.
///
/// If not, the kernel is gone, and the host owns all requests that were not executed.
///
/// # Errors
/// - the error of `wait`, which is called while the kernel is leaving
pub fn announce<E>(
    words: &impl Handshake,
    number: u64,
    mut wait: impl FnMut() -> Result<(), E>,
) -> Result<bool, E> {
    words.set_posted(number);
    words.fence();
    loop {
        match words.state() {
            State::Alive => return Ok(true),
            State::Gone | State::Starting => return Ok(false),
            State::Leaving => wait()?,
        }
    }
}
