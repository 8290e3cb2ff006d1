//! Group I of the litmus tests: which stores and puts an announcement publishes, and what its reader may access.

use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    vec![
        store_and_atomic(true),
        store_and_atomic(false),
        store_and_put_signal(),
        last_block(true),
        cumulative(true),
        cumulative(false),
        block_after_wait(),
        block_told_by_relaxed_store(),
        get_after_wait(),
        atomic_of_another_block(),
        lock_and_get(true),
        set_and_add(),
        store_buffering(true),
        store_buffering(false),
        relaxed_hand_over(),
    ]
}

/// Tests that an atomic announces a store to the PE's own memory.
pub(super) fn store_and_atomic(fenced: bool) -> Test {
    let mut send = vec![fill(D, 8, 1), add(Y, 1).at(1)];
    if fenced {
        send.insert(1, fence());
    }
    let how = if fenced { "fence" } else { "no fence" };
    let test = Test::new("L98", format!("stores to the calling PE, {how}, atomic_add, get"))
        .on(0, send)
        .on(1, [wait(Y, EQ, 1), get(T, D, 8).at(0), expect(T, 8, 1, 0)]);
    if fenced {
        test.never(|o| o.r(1, 0) != 0)
    } else {
        test.maybe("store missing", |o| o.r(1, 0) != 0).races()
    }
}

/// Tests that a put with signal also publishes stores that it does not carry.
fn store_and_put_signal() -> Test {
    Test::new("L98", "stores to the calling PE, put_signal of other words, get")
        .with(Who::Block)
        .on(0, [fill(D, 32, 1), fill(S, 4, 1), put_signal_nbi(T, S, 4, Y, 1).at(1)])
        .on(1, [signal_wait_all(Y, EQ, 1, 1), get(S, D, 32).at(0), expect(S, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .needs(Needs::Apart)
}

/// Test in which each actor of the first PE stores a part and counts. The last one to count sends all parts.
pub(super) fn last_block(fenced: bool) -> Test {
    let part = |at: u64| {
        let mut ops = vec![expect(S, 9, 0, 1), fill(S + at, 3, 1)];
        if fenced {
            ops.push(release_gpu());
        }
        ops.push(last_put(D, S, 9, Y, 3, fenced as u64).at(1));
        ops
    };
    let test = Test::new(
        "L99",
        format!("the last of three blocks sends, {}", if fenced { "fenced" } else { "WRONG" }),
    )
    .on(0, part(0))
    .on(0, part(3))
    .on(0, part(6))
    .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, 9, 1, 0)])
    .never(|o| o.r(3, 0) != 0)
    .needs(Needs::Apart);
    // The first loads bring stale values into a cache. They race with the stores of other blocks.
    test.races()
}

/// Test in which a third PE learns of a store through a second one.
fn cumulative(fenced: bool) -> Test {
    let mut relay = vec![wait(Y, EQ, 1), add(Z, 1).at(2)];
    if fenced {
        relay.insert(1, fence());
    }
    let how = if fenced { "fence" } else { "no fence" };
    let test = Test::new("L100", format!("store, fence, atomic; the reader relays it, {how}"))
        .on(0, [fill(D, 4, 1), fence(), add(Y, 1).at(1)])
        .on(1, relay)
        .on(2, [wait(Z, EQ, 1), get(T, D, 4).at(0), expect(T, 4, 1, 0)])
        .needs(Needs::Apart);
    if fenced {
        test.never(|o| o.r(2, 0) != 0)
    } else {
        test.maybe("store missing", |o| o.r(2, 0) != 0).races()
    }
}

/// Test in which one thread waits. After a barrier, other threads read what may be in their multiprocessor's cache.
fn block_after_wait() -> Test {
    Test::new("L101", "one thread waits, then a barrier, and all read words they have read before")
        .with(Who::Block)
        .on(0, [fill(S, 32, 1), wait(Z, EQ, 1), put_signal_nbi(D, S, 32, Y, 1).at(1)])
        .on(
            1,
            [
                expect(D, 32, 0, 1),
                fence(),
                p(Z, 1).at(0),
                signal_wait(Y, EQ, 1, 2),
                group_sync(),
                expect(D, 32, 1, 0),
            ],
        )
        .never(|o| o.r(1, 0) != 0 || o.r(1, 1) != 0)
        .needs(Needs::Apart)
}

/// Test in which a second block learns of the data from the block that waited, without fences.
fn block_told_by_relaxed_store() -> Test {
    Test::new("L101", "one block waits and tells another by store_relaxed, without fences")
        .on(0, [fill(S, 8, 1), wait(Z, EQ, 1), put_signal_nbi(D, S, 8, Y, 1).at(1)])
        .on(1, [take(W, 1), signal_wait(Y, EQ, 1, 2), store_relaxed(X, 1)])
        .on(
            1,
            [expect(D, 8, 0, 1), hand(W), fence(), p(Z, 1).at(0), spin_relaxed(X, 1, 2), expect(D, 8, 1, 0)],
        )
        .never(|o| o.r(2, 1) != 0 || o.r(2, 2) != 0)
        .maybe("old data", |o| o.r(2, 0) != 0)
        .races()
        .needs(Needs::Apart)
}

/// Tests that a get before the wait does not spoil the get after it.
fn get_after_wait() -> Test {
    Test::new("L102", "get, wait, get of the same words")
        .on(0, [fill(D, 4, 1), fence(), p(Y, 1).at(1)])
        .on(1, [g(D, 0).at(0), wait(Y, EQ, 1), get(T, D, 4).at(0), expect(T, 4, 1, 1)])
        .never(|o| o.r(1, 0) > 1 || o.r(1, 1) != 0)
        .races()
}

fn atomic_of_another_block() -> Test {
    Test::new("L103", "put_nbi of one block, fence and atomic of another")
        .on(0, [fill(S, 9, 1), put_nbi(D, S, 9).at(1), hand(W)])
        .on(0, [take(W, 1), fence(), add(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 9, 1, 0)])
        .never(|o| o.r(2, 0) != 0)
}

/// Tests that a lock by compare-and-swap needs a fence before the protected data is read.
pub(super) fn lock_and_get(fenced: bool) -> Test {
    let mut enter = vec![
        get(T, D, 4).at(0),
        lock(X, 1).at(0),
        get(T, D, 4).at(0),
        load(T + 3, 0),
        fill(S, 4, 1).plus_register(0),
        put_nbi(D, S, 4).at(0),
        quiet(),
        set(X, 0).at(0),
    ];
    if fenced {
        enter.insert(2, fence());
    }
    Test::new(
        "L108",
        format!("a lock by compare and swap around get and put, {}", if fenced { "fenced" } else { "WRONG" }),
    )
    .on(1, enter.clone())
    .on(2, enter)
    .never(|o| o.sorted(0) != [0, 1])
    .races()
    .needs(Needs::Apart)
}

/// Tests that signals are atomic only with signals of the same operator.
fn set_and_add() -> Test {
    Test::new("L104", "a set and an add of one signal")
        .on(0, [signal_set(W, 10).at(2), quiet(), add(Y, 1).at(2)])
        .on(1, [signal_add(W, 1).at(2), quiet(), add(Y, 1).at(2)])
        .on(2, [wait(Y, EQ, 2), signal_fetch(W, 0)])
        .never(|o| ![1, 10, 11].contains(&o.r(2, 0)))
        .races()
        .needs(Needs::Apart)
}

/// Tests that at least one of two PEs sees the other's value, if each sets a word, completes it and fetches the other's
/// word.
fn store_buffering(complete: bool) -> Test {
    let side = |mine, theirs, there: u32, here: u32| {
        let mut ops = vec![set(mine, 1).at(there), fetch(theirs, 0).at(here)];
        if complete {
            ops.insert(1, quiet());
        }
        ops
    };
    let how = if complete { "quiet" } else { "nothing" };
    let test = Test::new("L107", format!("two PEs set a word each and fetch the other, {how} in between"))
        .on(0, side(X, Y, 1, 0))
        .on(1, side(Y, X, 0, 1));
    if complete {
        test.never(|o| o.r(0, 0) == 0 && o.r(1, 0) == 0)
    } else {
        test.never(|o| o.r(0, 0) > 1 || o.r(1, 0) > 1).maybe("neither", |o| o.r(0, 0) == 0 && o.r(1, 0) == 0)
    }
}

/// Test in which blocks hand over a source by relaxed accesses between fences at GPU scope.
fn relaxed_hand_over() -> Test {
    Test::new("L109", "a block writes the source, another one sends it")
        .on(0, [fill(S, 8, 1), release_gpu(), store_relaxed(X, 1)])
        .on(0, [spin_relaxed(X, 1, 1), acquire_gpu(), put_signal_nbi(D, S, 8, Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, 8, 1, 0)])
        .never(|o| o.r(1, 1) != 0 || o.r(2, 0) != 0)
}
