//! Groups G and H of the litmus tests: lengths, alignment, a PE's own memory, and properties of GPUs.

use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    vec![
        no_elements(),
        guards(),
        bytes(),
        own_view(),
        flooded(),
        fresh_source(),
        fresh_source_of_leader(),
        divergent(),
        batched(),
        wrapped(),
    ]
}

fn no_elements() -> Test {
    Test::new("L79", "put and get of nothing")
        .on(1, [store(X, 3), fence(), signal_set(Y, 1).at(0)])
        .on(
            0,
            [
                signal_wait(Y, EQ, 1, 7),
                store(T, 4),
                put(X, S, 0).at(1),
                put_nbi(X, S, 0).at(1),
                get(T, X, 0).at(1),
                get_nbi(T, X, 0).at(1),
                quiet(),
                g(X, 0).at(1),
                load(T, 1),
            ],
        )
        .never(|o| o.r(1, 0) != 3 || o.r(1, 1) != 4)
}

fn guards() -> Test {
    Test::new("L80", "unaligned puts leave neighbouring bytes unchanged")
        .on(0, [put_piece().at(1), quiet(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect_piece(0)])
        .never(|o| o.r(1, 0) != 0)
}

fn bytes() -> Test {
    let writer = |first: u64| {
        let mut ops: Vec<Op> = (0..3).map(|i| p_byte(first + 3 * i, 0x80 + first + 3 * i).at(1)).collect();
        ops.extend([quiet(), add(Y, 1).at(1)]);
        ops
    };
    let mut look: Vec<Op> = (0..7).map(|i| load_byte(i, i)).collect();
    look.insert(0, wait(Y, EQ, 3));
    Test::new("L81", "bytes of one word, written by several PEs")
        .on(0, writer(0))
        .on(1, writer(1))
        .on(2, writer(2))
        .on(1, look)
        .never(|o| (0..7).any(|i| o.r(3, i) != 0x80 + i as u64))
}

fn own_view() -> Test {
    Test::new("L82", "put to the calling PE, read through its own view")
        .on(0, [fill(S, 1, 1), put_nbi(X, S, 1), load(X, 0), quiet(), load(X, 1)])
        .never(|o| o.r(0, 0) > 1 || o.r(0, 1) != 1)
        .maybe("not yet", |o| o.r(0, 0) == 0)
        .races()
}

fn flooded() -> Test {
    Test::new("L86", "more single puts than the queue holds")
        .on(0, [flood(D, 32, 1).at(1), quiet(), add(Y, 1).at(1)])
        .on(0, [flood(S, 32, 1).at(1), quiet(), add(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 2), expect(D, 64, 1, 0)])
        .never(|o| o.r(2, 0) != 0)
}

/// Tests that a group call publishes the earlier stores of all its threads.
fn fresh_source() -> Test {
    Test::new("L87", "all threads write the source, the block puts")
        .with(Who::Block)
        .on(0, [fill(S, 32, 9), put_signal_nbi(D, S, 32, Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, 32, 9, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn fresh_source_of_leader() -> Test {
    Test::new("L87", "all threads write the source, one puts it word by word")
        .with(Who::Block)
        .on(0, [fill(S, 32, 9), group_sync(), put_nbi(D, S, 32).at(1), fence().by(3), p(Y, 1).at(1).by(3)])
        .on(1, [wait(Y, EQ, 1), expect(D, 32, 9, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn divergent() -> Test {
    Test::new("L94", "half a warp to one PE, half to another, then all")
        .with(Who::Warp)
        .on(
            0,
            [
                fill(T, 32, 5),
                diverge(D, 2, 1).at(1),
                put_nbi(S, T, 32).at(1),
                quiet_all(),
                p(Y, 1).at(1),
                p(Z, 1).at(2),
            ],
        )
        .on(1, [wait(Y, EQ, 1), load(D + 1, 0), load(D + 31, 1), load(D, 2), expect(S, 32, 5, 3)])
        .on(2, [wait(Z, EQ, 1), load(D, 0), load(D + 30, 1), load(D + 1, 2)])
        .never(|o| {
            [0, 1, 2, 3].map(|r| o.r(1, r)) != [2, 32, 0, 0] || [0, 1, 2].map(|r| o.r(2, r)) != [1, 31, 0]
        })
        .needs(Needs::Apart)
}

fn batched() -> Test {
    Test::new("L93", "p, quiet, p in a batch")
        .on(0, [batch(X, Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), load(X, 0)])
        .never(|o| o.r(1, 0) != 1)
}

fn wrapped() -> Test {
    Test::new("L95", "a counter that wraps")
        .on(
            1,
            [
                signal_set(X, u64::MAX - 1).at(1),
                quiet(),
                signal_set(Y, 1).at(0),
                signal_wait(X, REACHED, 2, 0),
            ],
        )
        .on(
            0,
            [
                signal_wait(Y, EQ, 1, 7),
                signal_add(X, 1).at(1),
                signal_add(X, 1).at(1),
                signal_add(X, 2).at(1),
            ],
        )
        .never(|o| o.r(0, 0) != 2)
}
