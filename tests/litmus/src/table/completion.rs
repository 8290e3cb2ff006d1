//! Group B of the litmus tests: completion by quiet, blocking and nonblocking calls.

use super::{Form, ops};
use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    let mut all = Vec::new();
    for form in Form::ALL {
        all.extend([third_party(form), fenced_before(form), overwritten(form), chain(form)]);
    }
    for (who, n) in [(Who::Thread, 1), (Who::Thread, 32), (Who::Block, 32)] {
        all.extend([reused(who, n), reused_after_quiet(who, n), fresh(who, n)]);
    }
    all.extend([
        flag_outside_of_the_queues(),
        flushed(),
        one_of_two(),
        many_gets(),
        of_other_threads(),
        of_other_blocks(),
        after_kernel_with_quiet(),
        nobody_there(),
    ]);
    all
}

fn third_party(form: Form) -> Test {
    Test::new("L13", format!("{}, quiet, flag to a third PE, which gets", form.name()))
        .on(0, ops([form.write(D, S, 1, 1), vec![quiet(), p(W, 1).at(2)]]))
        .on(2, [wait(W, EQ, 1), g(D, 0).at(1)])
        .never(|o| o.r(1, 0) != 1)
}

/// Test in which a third PE puts. If the other two are P2P peers, one of them reads the other's memory by loads.
fn fenced_before(form: Form) -> Test {
    let n = form.words();
    Test::new("L13", format!("{}, fence, quiet, flag to a peer of the target, which gets", form.name()))
        .on(2, ops([form.write(D, S, 1, 1), vec![fence(), quiet(), p(W, 1).at(0)]]))
        .on(0, [wait(W, EQ, 1), get(T, D, n).at(1), expect(T, n, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

/// Test in which a third PE puts to the same words after the quiet. Its data must survive.
fn overwritten(form: Form) -> Test {
    let n = form.words();
    let second = vec![wait(W, EQ, 1), fill(T, n, 2), put_nbi(D, T, n).at(1), quiet(), signal_set(Y, 1).at(1)];
    Test::new("L13", format!("{}, quiet, flag to a third PE, which puts to the same words", form.name()))
        .on(0, ops([form.write(D, S, 1, 1), vec![quiet(), p(W, 1).at(2)]]))
        .on(2, second)
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, n, 2, 0)])
        .never(|o| o.r(2, 0) != 0)
}

fn chain(form: Form) -> Test {
    Test::new("L14", format!("{}, quiet, a chain of flags", form.name()))
        .on(0, ops([form.write(D, S, 1, 2), vec![quiet(), p(Y, 1).at(1)]]))
        .on(1, [wait(Y, EQ, 1), fence(), p(Z, 1).at(2)])
        .on(2, [wait(Z, EQ, 1), expect(D, form.words(), 1, 0)])
        .never(|o| o.r(2, 0) != 0)
}

fn reused(who: Who, n: u64) -> Test {
    Test::new("L15", format!("the source of a put of {n} is written again, {who:?}"))
        .with(who)
        .on(0, [fill(S, n, 1), put(D, S, n).at(1), fill(S, n, 2), quiet_all(), signal_set(Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, n, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn flag_outside_of_the_queues() -> Test {
    Test::new("L16", "put, and a message from outside the context")
        .on(0, [fill(S, 1, 1), put(X, S, 1).at(1), private_p(0, Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), load(X, 0)])
        .never(|o| o.r(1, 0) > 1)
        .maybe("message first", |o| o.r(1, 0) == 0)
        .races()
}

fn reused_after_quiet(who: Who, n: u64) -> Test {
    Test::new("L17", format!("the source of a put_nbi of {n} is written after quiet, {who:?}"))
        .with(who)
        .on(0, [fill(S, n, 1), put_nbi(D, S, n).at(1), quiet_all(), fill(S, n, 2), signal_set(Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, n, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn flushed() -> Test {
    Test::new("L19", "the source of a put_nbi is written after flush")
        .with(Who::Warp)
        .on(
            0,
            [fill(S, 32, 1), put_nbi(D, S, 32).at(1), flush_all(), fill(S, 32, 2), private_p(0, Y, 1).at(1)],
        )
        .on(1, [wait(Y, EQ, 1), load(D, 0), load(D + 31, 1)])
        .never(|o| o.r(1, 0) > 1 || o.r(1, 1) > 1)
        .maybe("not delivered", |o| o.r(1, 0) == 0)
        .races()
}

fn one_of_two() -> Test {
    Test::new("L24", "two put_nbi, quiet_pe of one of the targets")
        .on(
            0,
            [
                fill(S, 8, 1),
                put_nbi(D, S, 8).at(2),
                put_nbi(D, S, 8).at(1),
                quiet_pe().at(1),
                private_p(0, Y, 1).at(1),
                private_p(0, Y, 1).at(2),
            ],
        )
        .on(1, [wait(Y, EQ, 1), expect(D, 8, 1, 0)])
        .on(2, [wait(Y, EQ, 1), load(D, 0)])
        .never(|o| o.r(1, 0) != 0 || o.r(2, 0) > 1)
        .maybe("the other pending", |o| o.r(2, 0) == 0)
        .races()
        .needs(Needs::Apart)
}

fn fresh(who: Who, n: u64) -> Test {
    Test::new("L20", format!("get of {n} into memory that has been read before, {who:?}"))
        .with(who)
        .on(1, [fill(S, n, 7), group_sync(), fence(), signal_set(Y, 1).at(0)])
        .on(0, [expect(T, n, 0, 1), signal_wait_all(Y, EQ, 1, 2), get(T, S, n).at(1), expect(T, n, 7, 0)])
        .never(|o| o.r(1, 0) != 0 || o.r(1, 1) != 0)
}

fn many_gets() -> Test {
    let mut ops = vec![signal_wait(Y, EQ, 1, 1)];
    ops.extend((0..12).map(|i| get_nbi(T + 2 * i, S + 2 * i, 2).at(1)));
    ops.extend([quiet(), expect(T, 24, 7, 0)]);
    Test::new("L21", "12 get_nbi, quiet")
        .on(1, [fill(S, 24, 7), fence(), signal_set(Y, 1).at(0)])
        .on(0, ops)
        .never(|o| o.r(1, 0) != 0)
}

fn of_other_threads() -> Test {
    Test::new("L22", "each thread of a warp puts, thread 0 completes all")
        .with(Who::Warp)
        .on(0, [each_put(D, S, 1).at(1), group_sync(), quiet(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), each_expect(D, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn of_other_blocks() -> Test {
    Test::new("L22", "three blocks put, a fourth completes all")
        .on(0, [fill(S, 4, 1), put_nbi(D, S, 4).at(1), hand(W)])
        .on(0, [fill(S + 4, 4, 1), put_nbi(D + 4, S + 4, 4).at(1), hand(W)])
        .on(0, [add(D + 8, 1).at(1), hand(W)])
        .on(0, [take(W, 3), quiet(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 9, 1, 0)])
        .never(|o| o.r(4, 0) != 0)
}

/// Test in which the flag goes through queues that the quiet does not cover, so only completion orders it.
fn after_kernel_with_quiet() -> Test {
    Test::new("L23", "put_nbi, quiet, and a message from outside the context")
        .on(0, [fill(S, 32, 1), put_nbi(D, S, 32).at(1), quiet(), private_p(1, Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn nobody_there() -> Test {
    Test::new("L25", "put, quiet, get, while the target does nothing")
        .on(0, [p(X, 1).at(1), quiet(), g(X, 0).at(1)])
        .never(|o| o.r(0, 0) != 1)
}
