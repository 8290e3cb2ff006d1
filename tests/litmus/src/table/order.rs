//! Group A of the litmus tests: order of delivery, as established by fences.

use super::{Form, ops};
use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    let mut all = Vec::new();
    for form in Form::ALL {
        for who in [Who::Thread, Who::Block] {
            all.push(fenced(form, who, Form::P));
        }
    }
    all.extend([
        fenced(Form::Nbi(5), Who::Block, Form::Nbi(1)),
        overwritten(),
        fenced_by_another_block(),
        unfenced(),
        unfenced_blocks(),
        two_targets(),
        chain(),
        fenced_by_another_thread(),
        nic_atomic_behind_stores(),
        p_behind_large_put(),
        stores_before_fence(),
        peer_stores_before_fence(),
        get_and_fence(),
        get_and_quiet(),
        put_then_get(false),
        put_then_get(true),
        atomic_before_put(),
        contexts(false),
        contexts(true),
    ]);
    all
}

/// Returns a program that waits for `y` and checks `x`.
fn reader(words: u64) -> Vec<Op> {
    vec![wait(Y, EQ, 1), expect(X, words.min(8), 1, 0), load(X + words.min(8) - 1, 1)]
}

/// Test that puts data, fences, and puts a flag in the form `flag`.
fn fenced(form: Form, who: Who, flag: Form) -> Test {
    // Forms of more than 8 words write to an array.
    let (to, n) = if form.words() > 8 { (D, form.words()) } else { (X, form.words()) };
    let by = if flag == Form::P { String::new() } else { format!(", a {}", flag.name()) };
    Test::new("L01", format!("a fence between {} and its flag{by}, {who:?}", form.name()))
        .with(who)
        .on(0, ops([form.write(to, S, 1, 1), vec![fence()], flag.write(Y, T, 1, 1)]))
        .on(1, [wait(Y, EQ, 1), expect(to, n, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

/// Test that puts twice to the same words with a fence in between. The second data must survive.
fn overwritten() -> Test {
    let ops = [
        fill(S, 4, 1),
        put_nbi(D, S, 4).at(1),
        fence(),
        fill(T, 4, 2),
        put_nbi(D, T, 4).at(1),
        quiet(),
        signal_set(Y, 1).at(1),
    ];
    Test::new("L01", "a fence between two puts to the same words")
        .with(Who::Block)
        .on(0, ops)
        .on(1, [signal_wait(Y, EQ, 1, 1), expect(D, 4, 2, 0)])
        .never(|o| o.r(1, 0) != 0)
}

/// Test in which the flag comes from another block, which has different queues if there are several.
fn fenced_by_another_block() -> Test {
    Test::new("L01", "a fence of another block of the PE")
        .on(0, [p(X, 1).at(1), hand(W)])
        .on(0, [take(W, 1), fence(), p(Y, 1).at(1)])
        .on(1, reader(1))
        .never(|o| o.r(2, 0) != 0)
}

fn unfenced() -> Test {
    Test::new("L02", "without a fence")
        .on(0, [p(X, 1).at(1), p(Y, 1).at(1)])
        .on(1, reader(1))
        .never(|o| o.r(1, 1) > 1)
        .maybe("flag first", |o| o.r(1, 1) == 0)
        .races()
}

/// [`fenced_by_another_block`] without its fence. The suite must see the outcome that the fence forbids.
pub(super) fn unfenced_blocks() -> Test {
    Test::new("L02", "without a fence, from two blocks")
        .on(0, [p(X, 1).at(1), hand(W)])
        .on(0, [take(W, 1), p(Y, 1).at(1)])
        .on(1, reader(1))
        .never(|o| o.r(2, 1) > 1)
        .maybe("flag first", |o| o.r(2, 1) == 0)
        .races()
}

fn two_targets() -> Test {
    Test::new("L03", "a fence orders nothing between two targets")
        .on(0, [p(X, 1).at(1), fence(), p(Y, 1).at(2)])
        .on(2, [wait(Y, EQ, 1), g(X, 0).at(1)])
        .never(|o| o.r(1, 0) > 1)
        .maybe("flag first", |o| o.r(1, 0) == 0)
        .races()
        .needs(Needs::Apart)
}

fn chain() -> Test {
    Test::new("L04", "a fence is not cumulative")
        .on(0, [p(X, 1).at(2), fence(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), p(Z, 1).at(2)])
        .on(2, [wait(Z, EQ, 1), load(X, 0)])
        .never(|o| o.r(2, 0) > 1)
        .maybe("flag first", |o| o.r(2, 0) == 0)
        .races()
        .needs(Needs::Apart)
}

fn fenced_by_another_thread() -> Test {
    Test::new("L05", "thread 5 puts, thread 40 fences and puts the flag")
        .with(Who::Block)
        .on(0, [p(X, 1).at(1).by(5), group_sync(), fence().by(40), p(Y, 1).at(1).by(40)])
        .on(1, reader(1))
        .never(|o| o.r(1, 0) != 0)
}

fn nic_atomic_behind_stores() -> Test {
    Test::new("L06", "put (stores, where memory is mapped), fence, atomic_set")
        .on(0, [fill(S, 32, 1), put(D, S, 32).at(1), fence(), set(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn p_behind_large_put() -> Test {
    Test::new("L07", "large put_nbi, fence, p (a store, where memory is mapped)")
        .with(Who::Warp)
        .on(0, [fill(S, 32, 1), put_nbi(D, S, 32).at(1), fence(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn stores_before_fence() -> Test {
    Test::new("L08", "plain stores to the calling PE, fence, p")
        .on(0, [fill(D, 32, 1), fence(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .needs(Needs::OnePe)
}

fn peer_stores_before_fence() -> Test {
    Test::new("L08", "stores through ptr, fence, p")
        .on(0, [ptr_store(X, 1, 0).at(1), ptr_store(X + 1, 1, 0).at(1), fence(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), expect(X, 2, 1, 0)])
        .never(|o| o.r(0, 0) == 0 && o.r(1, 0) != 0)
        .maybe("not mapped", |o| o.r(0, 0) == 1)
}

fn get_and_fence() -> Test {
    Test::new("L09", "get_nbi, fence, put of the same word")
        .on(0, [get_nbi(T, X, 1).at(1), fence(), p(X, 1).at(1), quiet(), load(T, 0)])
        .never(|o| o.r(0, 0) > 1)
        .maybe("get sees the put", |o| o.r(0, 0) == 1)
        .races()
}

fn get_and_quiet() -> Test {
    Test::new("L09", "get_nbi, quiet, put of the same word")
        .on(0, [get_nbi(T, X, 1).at(1), quiet(), p(X, 1).at(1), quiet(), load(T, 0)])
        .never(|o| o.r(0, 0) != 0)
}

fn put_then_get(complete: bool) -> Test {
    let mut ops = vec![fill(S, 1, 1), put_nbi(X, S, 1).at(1)];
    if complete {
        ops.push(quiet());
    }
    ops.push(g(X, 0).at(1));
    if complete {
        Test::new("L10", "put, quiet, get of the same word").on(0, ops).never(|o| o.r(0, 0) != 1)
    } else {
        Test::new("L10", "put, get of the same word")
            .on(0, ops)
            .never(|o| o.r(0, 0) > 1)
            .maybe("old value", |o| o.r(0, 0) == 0)
            .races()
    }
}

fn atomic_before_put() -> Test {
    Test::new("L11", "atomic_add, fence, put")
        .on(0, [add(X, 1).at(1), fence(), p(Y, 1).at(1)])
        .on(1, [wait(Y, EQ, 1), fetch(X, 0).at(1)])
        .never(|o| o.r(1, 0) != 1)
}

fn contexts(complete: bool) -> Test {
    let order = if complete { private_quiet(0) } else { private_fence(0) };
    let test =
        Test::new("L12", format!("two contexts, {} of the first", if complete { "quiet" } else { "fence" }))
            .on(0, [private_p(0, X, 1).at(1), order, private_p(1, Y, 1).at(1)])
            .on(1, reader(1));
    if complete {
        test.never(|o| o.r(1, 0) != 0)
    } else {
        test.never(|o| o.r(1, 1) > 1).maybe("flag first", |o| o.r(1, 1) == 0).races()
    }
}
