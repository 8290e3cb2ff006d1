//! Group C of the litmus tests: signals.

use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    let mut all = Vec::new();
    for (who, n) in [(Who::Thread, 1), (Who::Thread, 32), (Who::Warp, 7), (Who::Block, 32)] {
        for nbi in [false, true] {
            all.push(own_payload(who, n, nbi));
        }
    }
    all.extend([
        earlier_put(false),
        earlier_put(true),
        counted(),
        counted_from_two_blocks(),
        earlier_signal(),
        strong(false),
        strong(true),
        strong_over_blocks(),
        nothing(),
        to_self(),
        from_everybody(),
        no_tearing(),
        returned_value(),
        toggled(),
        polled(false),
        polled(true),
        reset_between(),
    ]);
    all
}

/// Test in which all rounds share one array and one signal, so a stale value would be that of the previous round.
fn own_payload(who: Who, n: u64, nbi: bool) -> Test {
    let how = if nbi { put_signal_nbi } else { put_signal };
    let go = how(K, S, n, K + 40, 1).at(1).each_round();
    Test::new("L26", format!("put_signal{} of {n}, {who:?}", if nbi { "_nbi" } else { "" }))
        .with(who)
        .on(0, [fill(S, n, 1).each_round(), go, signal_wait_all(K + 48, GE, 1, 1).each_round(), quiet_all()])
        .on(
            1,
            [
                signal_wait_all(K + 40, GE, 1, 1).each_round(),
                expect(K, n, 1, 0).each_round(),
                fence(),
                signal_set(K + 48, 1).at(0).each_round(),
            ],
        )
        .never(|o| o.r(1, 0) != 0 || o.r(1, 1) != o.round + 1)
}

fn earlier_put(fenced: bool) -> Test {
    let send = [fill(S, 1, 1), put_signal(Y, S, 1, Z, 1).at(1)];
    let mut ops = vec![fill(T, 1, 1), put_nbi(X, T, 1).at(1)];
    if fenced {
        ops.push(fence());
    }
    ops.extend(send);
    let read = [signal_wait(Z, EQ, 1, 2), load(X, 0), load(Y, 1)];
    let test = Test::new("L27", format!("put, {}put_signal", if fenced { "fence, " } else { "" }))
        .on(0, ops)
        .on(1, read);
    if fenced {
        test.never(|o| o.r(1, 0) != 1 || o.r(1, 1) != 1)
    } else {
        test.never(|o| o.r(1, 0) > 1 || o.r(1, 1) != 1).maybe("old put missing", |o| o.r(1, 0) == 0).races()
    }
}

fn read_counted() -> [Op; 5] {
    [signal_wait(Z, GE, 1, 3), load(X, 0), signal_wait(Z, GE, 2, 3), load(X, 1), load(Y, 2)]
}

fn counted() -> Test {
    Test::new("L28", "two counted put_signal_nbi")
        .on(0, [fill(S, 1, 1), put_signal_add(X, S, 1, Z, 1).at(1), put_signal_add(Y, S, 1, Z, 1).at(1)])
        .on(1, read_counted())
        .never(|o| o.r(1, 1) != 1 || o.r(1, 2) != 1)
        .maybe("second first", |o| o.r(1, 0) == 0)
        .races_if(Race::NotMapped(
            "The first signal announces its data, and a thread's stores arrive in order.",
        ))
}

fn counted_from_two_blocks() -> Test {
    Test::new("L28", "two counted put_signal_nbi, one of each block")
        .on(0, [fill(S, 1, 1), hand(W), put_signal_add(X, S, 1, Z, 1).at(1)])
        .on(0, [fill(T, 1, 1), take(W, 1), put_signal_add(Y, T, 1, Z, 1).at(1)])
        .on(1, read_counted())
        .never(|o| o.r(2, 1) != 1 || o.r(2, 2) != 1)
        .maybe("second first", |o| o.r(2, 0) == 0)
        .races_if(Race::ByWinner("If the first signal arrives first, it announces its data."))
}

fn earlier_signal() -> Test {
    Test::new("L29", "two put_signal with a signal each, one of each block")
        .on(0, [fill(S, 1, 1), put_signal_nbi(X, S, 1, Z, 1).at(1), hand(W)])
        .on(0, [fill(T, 1, 1), take(W, 1), put_signal_nbi(Y, T, 1, Z + 1, 1).at(1)])
        .on(1, [signal_wait(Z + 1, EQ, 1, 2), load(X, 0), load(Y, 1)])
        .never(|o| o.r(2, 0) > 1 || o.r(2, 1) != 1)
        .maybe("first missing", |o| o.r(2, 0) == 0)
        .races()
}

fn strong(native: bool) -> Test {
    let mut ops = vec![fill(S, 32, 1)];
    ops.extend((0..8).map(|i| put_nbi(D + 4 * i, S + 4 * i, 4).at(1)));
    if native {
        ops.push(strong_signal(Y, 1).at(1));
    } else {
        ops.extend([fence(), signal_add(Y, 1).at(1)]);
    }
    Test::new("L30", format!("8 puts, {}", if native { "signal_strong" } else { "fence, signal" }))
        .on(0, ops)
        .on(1, [signal_wait(Y, GE, 1, 1), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn strong_over_blocks() -> Test {
    Test::new("L30", "puts of two blocks, signal_strong of a third")
        .on(0, [fill(S, 9, 1), put_nbi(D, S, 9).at(1), hand(W)])
        .on(0, [fill(T, 9, 1), put_nbi(D + 9, T, 9).at(1), hand(W)])
        .on(0, [take(W, 2), strong_signal(Y, 1).at(1)])
        .on(1, [signal_wait(Y, GE, 1, 1), expect(D, 18, 1, 0)])
        .never(|o| o.r(3, 0) != 0)
}

fn nothing() -> Test {
    Test::new("L31", "put_signal of nothing")
        .on(0, [put_signal(X, S, 0, Y, 1).at(1), fence(), put_signal_add(X, S, 0, Y, 1).at(1)])
        .on(1, [signal_wait(Y, GE, 2, 0), load(X, 1)])
        .never(|o| o.r(1, 0) != 2 || o.r(1, 1) != 0)
}

fn to_self() -> Test {
    Test::new("L32", "put_signal to the calling PE")
        .on(0, [fill(S, 9, 5), put_signal(D, S, 9, Y, 1), signal_wait(Y, EQ, 1, 1), expect(D, 9, 5, 0)])
        .never(|o| o.r(0, 0) != 0)
}

fn from_everybody() -> Test {
    let adder = [
        signal_add(X, 1),
        signal_add(X, 1 << 20),
        signal_add(X, 1),
        signal_add(X, 1 << 40),
        quiet(),
        signal_add(Y, 1),
    ];
    Test::new("L33", "signals from all PEs add up")
        .on(0, adder)
        .on(1, adder)
        .on(2, adder)
        .on(0, adder)
        .on(0, [signal_wait(Y, GE, 4, 1), signal_fetch(X, 0)])
        .never(|o| o.r(4, 0) != 4 * (2 + (1 << 20) + (1 << 40)))
}

const FIRST: u64 = 0x1111_1111_2222_2222;
const SECOND: u64 = 0x3333_3333_4444_4444;

fn no_tearing() -> Test {
    let fetches: Vec<Op> = (0..6).flat_map(|r| [delay(30), signal_fetch(X, r)]).collect();
    Test::new("L34", "two PEs set one signal")
        .on(0, [signal_set(X, FIRST).at(1)])
        .on(2, [signal_set(X, SECOND).at(1)])
        .on(1, fetches)
        .never(|o| (0..6).any(|r| ![0, FIRST, SECOND].contains(&o.r(2, r))))
}

fn returned_value() -> Test {
    Test::new("L35", "value returned by a signal wait, of a constant signal")
        .on(0, [signal_set(X, 1).at(1), quiet(), wait(Y, EQ, 1), signal_set(X, 0).at(1)])
        .on(1, [signal_wait(X, EQ, 1, 0), p(Y, 1).at(0)])
        .never(|o| o.r(1, 0) != 1)
}

fn toggled() -> Test {
    let toggle: Vec<Op> =
        (0..20).map(|i| signal_set(X, 1 + (i & 1)).at(1)).chain([signal_set(X, 1).at(1)]).collect();
    Test::new("L35", "value returned by a signal wait, of a changing signal")
        .on(0, toggle)
        .on(1, [signal_wait(X, EQ, 1, 0), signal_wait(X, EQ, 1, 1), signal_wait(X, EQ, 1, 2)])
        .never(|o| (0..3).any(|r| o.r(1, r) != 1))
}

fn polled(with_test: bool) -> Test {
    let send = [fill(S, 32, 1), put_signal_nbi(D, S, 32, Y, 1).at(1)];
    if with_test {
        Test::new("L36", "test until the signal has arrived")
            .on(0, send)
            .on(1, [test_until(Y, EQ, 1, 0), expect(D, 32, 1, 1)])
            .never(|o| o.r(1, 0) != 0 || o.r(1, 1) != 0)
    } else {
        Test::new("L36", "plain polling")
            .on(0, send)
            .on(1, [spin_until(Y, 1, 0), expect(D, 32, 1, 1)])
            .maybe("signal not seen", |o| o.r(1, 0) != 0)
            .maybe("data missing", |o| o.r(1, 1) != 0)
            .races()
    }
}

/// Test that resets the word on the target between two acknowledged signals.
fn reset_between() -> Test {
    let send = |ack| [put_signal_add(X, S, 0, Y, 1).at(1), wait(Z, EQ, ack)];
    let take = |ack: u64, r| [signal_wait(Y, GE, 1, r), store(Y, 0), fence(), p(Z, ack).at(0)];
    Test::new("L37", "a signal that is reset before it is acknowledged")
        .on(0, [send(1), send(2), send(3)].concat())
        .on(1, [take(1, 0), take(2, 1), take(3, 2)].concat())
        .never(|o| (0..3).any(|r| o.r(1, r) != 1))
}
