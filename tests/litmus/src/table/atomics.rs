//! Group E of the litmus tests: atomics.

use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    vec![
        tickets(),
        counter(),
        neighbours(),
        byte_order(),
        completed_by_quiet(),
        two_fetches(false),
        two_fetches(true),
        locked(),
        locked_in_turn(),
        to_self(),
        waited_for(),
        floats(),
    ]
}

fn tickets() -> Test {
    let draw = [fetch_add(X, 1, 0), fetch_add(X, 1, 1)];
    Test::new("L46", "tickets drawn by all PEs")
        .on(0, draw)
        .on(1, draw)
        .on(2, draw)
        .on(0, draw)
        .on(1, draw)
        .never(|o| {
            let mut drawn = [o.sorted(0), o.sorted(1)].concat();
            drawn.sort_unstable();
            !drawn.into_iter().eq(0..10) || (0..5).any(|actor| o.r(actor, 0) > o.r(actor, 1))
        })
}

fn counter() -> Test {
    let mut count: Vec<Op> =
        (0..8).map(|i| if i & 1 == 0 { fetch_add(X, 1, 0) } else { add(X, 1) }).collect();
    count.extend([quiet(), add(Y, 1)]);
    Test::new("L47", "one counter, updated over all paths")
        .on(0, count.clone())
        .on(1, count.clone())
        .on(2, count)
        .on(0, [wait(Y, EQ, 3), fetch(X, 0)])
        .never(|o| o.r(3, 0) != 24)
}

fn neighbours() -> Test {
    let mut many: Vec<Op> = (0..8).map(|_| add_half(1, 1).at(1)).collect();
    many.insert(0, signal_wait(X, EQ, 1, 1));
    many.extend([quiet(), signal_add(Y, 1).at(1)]);
    Test::new("L48", "atomics on the two halves of a word")
        .on(1, [store_half(0, 0xffff_ffff), fence(), signal_set(X, 1).at(0), signal_set(X + 1, 1).at(2)])
        .on(0, many)
        .on(2, [signal_wait(X + 1, EQ, 1, 1), add_half(0, 1).at(1), quiet(), signal_add(Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 2, 2), load_half(0, 0), load_half(1, 1)])
        .never(|o| o.r(3, 0) != 0 || o.r(3, 1) != 8)
}

const VALUE: u64 = 0x0102_0304_0506_0708;

fn byte_order() -> Test {
    Test::new("L49", "values that fetching atomics return")
        .on(1, [store(X, VALUE), fence(), signal_set(Y, 1).at(0)])
        .on(
            0,
            [
                signal_wait(Y, EQ, 1, 7),
                fetch_add(X, 1, 0).at(1),
                fetch(X, 1).at(1),
                compare_swap(X, VALUE + 1, 9, 2).at(1),
                swap(X, 3, 3).at(1),
                compare_swap(X, 9, 4, 4).at(1),
                g(X, 5).at(1),
            ],
        )
        .never(|o| [0, 1, 2, 3, 4, 5].map(|r| o.r(1, r)) != [VALUE, VALUE + 1, VALUE + 1, 9, 3, 3])
}

fn completed_by_quiet() -> Test {
    Test::new("L50", "atomic_add, quiet, flag to a third PE")
        .on(0, [add(X, 1).at(1), quiet(), p(Y, 1).at(2)])
        .on(2, [wait(Y, EQ, 1), fetch(X, 0).at(1)])
        .never(|o| o.r(1, 0) != 1)
}

fn two_fetches(fenced: bool) -> Test {
    let mut ops = vec![fetch_add(X, 1, 0).at(1)];
    if fenced {
        ops.push(fence());
    }
    ops.push(fetch_add(Y, 1, 1).at(1));
    let test =
        Test::new("L51", format!("two fetching atomics, {}", if fenced { "fenced" } else { "unfenced" }))
            .on(0, ops)
            .on(1, [delay(60), fetch(Y, 0).at(1), fence(), fetch(X, 1).at(1)]);
    if fenced {
        test.never(|o| o.r(1, 0) == 1 && o.r(1, 1) == 0)
    } else {
        test.never(|o| o.r(1, 0) > 1 || o.r(1, 1) > 1)
            .maybe("second first", |o| o.r(1, 0) == 1 && o.r(1, 1) == 0)
    }
}

fn locked() -> Test {
    let enter =
        [lock(X, 1), fence(), g(W, 0), p(W, 1).plus_register(0), quiet(), set(X, 0), quiet(), add(Y, 1)];
    Test::new("L52", "a lock by compare and swap")
        .on(0, enter)
        .on(1, enter)
        .on(2, enter)
        .on(0, [wait(Y, EQ, 3), g(W, 1)])
        .never(|o| o.r(3, 1) != 3 || o.sorted(0) != [0, 0, 1, 2])
}

fn to_self() -> Test {
    Test::new("L53", "atomics on the calling PE")
        .on(0, [fetch_add(X, 5, 0), fetch(X, 1)])
        .never(|o| o.r(0, 0) != 0 || o.r(0, 1) != 5)
}

fn waited_for() -> Test {
    Test::new("L55", "a wait for a word that atomics change")
        .on(0, [add(X, 1).at(1)])
        .on(2, [add(X, 1).at(1)])
        .on(1, [wait(X, EQ, 2), load(X, 0)])
        .never(|o| o.r(2, 0) != 2)
}

fn locked_in_turn() -> Test {
    let enter = [set_lock(), g(W, 0), p(W, 1).plus_register(0), clear_lock(), signal_add(Y, 1)];
    Test::new("L52", "set_lock and clear_lock")
        .on(0, enter)
        .on(1, enter)
        .on(2, enter)
        .on(0, [signal_wait(Y, EQ, 3, 7), g(W, 1)])
        .never(|o| o.r(3, 1) != 3 || o.sorted(0) != [0, 0, 1, 2])
        .needs(Needs::Apart)
}

fn floats() -> Test {
    let mut count: Vec<Op> = (0..4).map(|_| add_float(1)).collect();
    count.extend([quiet(), add(Y, 1)]);
    Test::new("L57", "sums of floats")
        .on(0, count.clone())
        .on(1, count.clone())
        .on(2, count)
        .on(0, [wait(Y, EQ, 3), fetch_float(1, 0)])
        .never(|o| o.r(3, 0) != 12)
}
