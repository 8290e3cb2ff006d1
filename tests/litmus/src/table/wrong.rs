//! Incorrect litmus programs, each of which lacks a fence, a quiet or similar. The suite must see their forbidden
//! outcomes.

use super::publication;
use crate::program::*;

/// Returns each incorrect program with the path that exposes its mistake, as an index into
/// [`PATHS`](crate::path::PATHS).
pub fn wrong() -> Vec<(Test, usize)> {
    vec![
        (no_fence(), 3),
        (no_quiet_of_others(), 3),
        (last_word_as_flag(), 2),
        (source_reused(), 1),
        (unlocked_early(), 3),
        (get_not_completed(), 2),
    ]
}

/// Litmus test L01 without its fence.
fn no_fence() -> Test {
    Test::new("L01", "WRONG: no fence")
        .on(0, [p(X, 1).at(1), hand(W)])
        .on(0, [take(W, 1), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), load(X, 0)])
        .never(|o| o.r(2, 0) != 1)
        .races()
}

/// Litmus test L22 without its quiet.
fn no_quiet_of_others() -> Test {
    Test::new("L22", "WRONG: no quiet")
        .on(0, [fill(S, 4, 1), put_nbi(D, S, 4).at(1), hand(W)])
        .on(0, [fill(S + 4, 4, 1), put_nbi(D + 4, S + 4, 4).at(1), hand(W)])
        .on(0, [take(W, 2), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 8, 1, 0)])
        .never(|o| o.r(3, 0) != 0)
        .races()
}

/// Litmus test L39, read as if the last word of the put announced the others.
fn last_word_as_flag() -> Test {
    Test::new("L39", "WRONG: the last word as flag")
        .on(0, [fill(S, 8, 1), put_nbi(D, S, 8).at(1)])
        .on(1, [wait(D + 7, EQ, 1), expect(D, 8, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .races()
}

/// Litmus test L17 without its quiet.
fn source_reused() -> Test {
    Test::new("L17", "WRONG: the source is written again before quiet")
        .on(0, [fill(S, 32, 1), put_nbi(D, S, 32).at(1), fill(S, 32, 2), quiet(), signal_set(Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .races()
}

/// Litmus test L52, unlocked by an atomic on another queue without completing the protected puts.
fn unlocked_early() -> Test {
    let enter = [lock(X, 1).at(1), fence(), g(Z, 0).at(1), p(Z, 1).plus_register(0).at(1), hand(W)];
    let leave = [take(W, 1), set(X, 0).at(1)];
    let other =
        [lock(X, 1).at(1), fence(), g(Z, 0).at(1), p(Z, 1).plus_register(0).at(1), quiet(), set(X, 0).at(1)];
    Test::new("L52", "WRONG: unlocked before quiet")
        .on(0, enter)
        .on(0, leave)
        .on(2, other)
        .never(|o| o.r(0, 0) == o.r(2, 0))
        .races_if(Race::ByWinner("The put of the first PE races with accesses of a later holder."))
}

/// Litmus test L21 without its quiet.
fn get_not_completed() -> Test {
    Test::new("L21", "WRONG: no quiet after get_nbi")
        .on(1, [fill(S, 8, 7), fence(), signal_set(Y, 1).at(0)])
        .on(0, [signal_wait(Y, EQ, 1, 1), get_nbi(T, S, 8).at(1), delay(100), expect(T, 8, 7, 0)])
        .never(|o| o.r(1, 0) != 0)
        .races()
}

/// Returns programs that lack a memory fence of a GPU, each with the path on which weak memory exposes that.
pub fn weak_memory() -> Vec<(Test, usize)> {
    vec![
        (store_without_fence(), 5),
        (publication::last_block(false), 5),
        (peer_store_without_fence(), 5),
        (publication::lock_and_get(false), 5),
        (plain_polling(), 5),
        (plain_polling(), 2),
    ]
}

/// Litmus test L98 without its fence.
fn store_without_fence() -> Test {
    Test::new("L98", "WRONG: a store, and an atomic that announces it")
        .on(0, [fill(D, 8, 1), add(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), get(T, D, 8).at(0), expect(T, 8, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .races()
}

/// Litmus test L08 without its fence.
fn peer_store_without_fence() -> Test {
    Test::new("L08", "WRONG: stores by way of ptr, and a signal that announces them")
        .on(0, [ptr_store(D, 1, 0).at(1), signal_set(Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), load(D, 0)])
        .never(|o| o.r(0, 0) == 0 && o.r(1, 0) == 0)
        .races()
        .needs(Needs::Apart)
}

/// Litmus test that polls a flag with plain loads instead of waiting for it.
fn plain_polling() -> Test {
    Test::new("L36", "WRONG: plain loads until the flag is there")
        .on(0, [fill(S, 8, 1), put_signal_nbi(D, S, 8, Y, 1).at(1)])
        .on(1, [expect(D, 8, 0, 2), spin_until(Y, 1, 0), expect(D, 8, 1, 1)])
        .never(|o| o.r(1, 0) == 0 && o.r(1, 1) != 0)
        .races()
}

/// Litmus test that replaces the quiet by a flush, which only waits for the ACK. The atomic of the signal uses the
/// first NIC, and the second block's put the second NIC.
pub fn acknowledged_only() -> Test {
    Test::new("L22", "WRONG: flush before the signal of another NIC")
        .on(0, [delay(1)])
        .on(0, [p(X, 1).at(1), flush_all(), signal_set(Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), load(X, 0)])
        .never(|o| o.r(2, 0) != 1)
        .races()
}
