//! The end of the kernel: for each request, both sides agree whether the kernel executes it.
//!
//! The host stores the number of posted requests and then looks at the state. The kernel stores the state and then looks
//! at the number. Each side makes a sequentially consistent fence in between, so at least one of them sees the other.

/// The state of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// No kernel serves the ring, and none will until the host launches one.
    Gone = 0,
    /// A launched kernel has not begun. The host posts nothing.
    Starting = 1,
    /// The kernel executes what is posted.
    Alive = 2,
    /// The kernel looks for a last request, and becomes alive again or gone.
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

/// The words of the handshake.
pub trait Handshake {
    /// Loads the number of posted requests.
    fn posted(&self) -> u64;
    /// Stores the number of posted requests, after the requests.
    fn set_posted(&self, number: u64);
    /// Loads the state, before what was stored ahead of it.
    fn state(&self) -> State;
    /// Stores the state, after everything before.
    fn set_state(&self, state: State);
    /// Makes a sequentially consistent fence.
    fn fence(&self);
}

/// Ends the kernel, which has executed `seen` requests. Returns `false` if more were posted: the kernel then continues.
///
/// With `now`, the kernel ends in any case.
pub fn leave(words: &impl Handshake, seen: u64, now: bool) -> bool {
    words.set_state(State::Leaving);
    words.fence();
    let ends = now || words.posted() == seen;
    words.set_state(if ends { State::Gone } else { State::Alive });
    ends
}

/// Announces that `number` requests are posted, to a kernel that has begun. Returns whether the kernel executes them.
///
/// If not, the kernel is gone, and the host owns all requests that it has not executed.
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
