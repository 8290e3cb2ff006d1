//! Shadowed signals: a signal that only grows, with the value this PE expects of it.
//!
//! A signal that is reset between rounds must not be signalled during the reset. A growing signal needs no reset, but
//! its PE must remember the value to expect in the next round. That is the shadow: a word next to the signal that only
//! this PE uses. GIN: signal shadows. Comparisons are circular ([`Cmp::Reached`]), so both words may wrap.
#![allow(unsafe_code, reason = "names the words of a shadowed signal by their offsets")]

use bytemuck::{Pod, Zeroable};

use super::Cmp;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::group::{Group, agree};
use crate::heap::{Signal, Sym};
use crate::sharing::Sharing;
use crate::wait::Needs;

/// A signal word and its shadow: the value that this PE expects of the signal. An element of symmetric memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Shadowed {
    /// Signal word that peers update.
    pub signal: Signal,
    /// Value of the signal that this PE expects.
    pub shadow: u64,
}

impl Sym<Shadowed> {
    /// Returns a handle of the word that peers signal.
    #[inline(always)]
    pub const fn signal(self) -> Sym<Signal> {
        // SAFETY: the first field of an object of this type.
        unsafe { self.field(0) }
    }

    #[inline(always)]
    const fn shadow(self) -> Sym<u64> {
        // SAFETY: the second field of an object of this type.
        unsafe { self.field(size_of::<Signal>() as u64) }
    }
}

/// # Shadowed signals
///
/// Waits for signals that only grow. A second word on the same PE, the shadow, holds the expected value.
impl<S: Sharing> Ctx<'_, S> {
    /// Increases the shadow, the expected value of a signal, by `by`. Only one thread of the PE at a time may use a
    /// shadow.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`](crate::Error::OutOfRange).
    #[inline(always)]
    #[track_caller]
    pub fn shadow_increase(&self, word: Sym<Shadowed>, by: u64) -> Result {
        self.check(word)?;
        let shadow = self.local_one(word.shadow());
        shadow.store(0, shadow.load(0).wrapping_add(by));
        Ok(())
    }

    /// Waits until the signal has reached its shadow. Returns the shadow.
    ///
    /// # Errors
    /// - The errors of [`Ctx::signal_wait_until`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_meet_shadow<G: Group>(&self, group: G, word: Sym<Shadowed>) -> Result<u64> {
        group.sync();
        let mut met = 0;
        let mine = if group.leader() {
            self.await_shadow("wait_meet_shadow", word, 0).map(|(shadow, _)| met = shadow)
        } else {
            Ok(())
        };
        agree(group, mine)?;
        Ok(group.broadcast(met))
    }

    /// Waits until the signal is at least `least` past its shadow, then moves the shadow to the signal. Returns by how
    /// much the shadow moved.
    ///
    /// # Errors
    /// - The errors of [`Ctx::signal_wait_until`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_follow_shadow<G: Group>(&self, group: G, word: Sym<Shadowed>, least: u64) -> Result<u64> {
        group.sync();
        let mut moved = 0;
        let mine = if group.leader() {
            self.await_shadow("wait_follow_shadow", word, least).map(|(shadow, seen)| {
                // Only this PE uses the shadow, so a plain store suffices.
                self.local_one(word.shadow()).store(0, seen);
                moved = seen.wrapping_sub(shadow);
            })
        } else {
            Ok(())
        };
        agree(group, mine)?;
        Ok(group.broadcast(moved))
    }

    /// Waits for a signal to be at least `least` past its shadow, in one thread. Returns the shadow, and the value of
    /// the signal.
    #[inline(always)]
    #[track_caller]
    fn await_shadow(&self, name: &'static str, word: Sym<Shadowed>, least: u64) -> Result<(u64, u64)> {
        self.check(word)?;
        let shadow = self.local_one(word.shadow()).load(0);
        let seen =
            self.await_word((name, Needs::NOBODY), word.signal(), Cmp::Reached, shadow.wrapping_add(least))?;
        Ok((shadow, seen))
    }
}
