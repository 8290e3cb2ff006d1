//! Group D of the litmus tests: waits, and the stores that they make visible.

use super::Form;
use crate::program::*;

const PATTERN: u64 = 0xaaaa_aaaa_5555_5555;

pub(super) fn all() -> Vec<Test> {
    let mut all: Vec<Test> = [Form::P, Form::Put(1), Form::Nbi(5)].map(whole).into();
    all.extend([words_of_one_put(), block_reads(), test_loop(), unsigned(), nothing_to_wait_for(), fair()]);
    all
}

fn whole(form: Form) -> Test {
    Test::new("L38", format!("a wait sees whole values, {}", form.name()))
        .on(0, form.write(D, S, PATTERN, 1))
        .on(1, [wait(D, NE, 0), load(D, 0)])
        .never(|o| o.r(1, 0) != PATTERN)
}

fn words_of_one_put() -> Test {
    Test::new("L39", "the last word of a put as its flag")
        .on(0, [fill(S, 8, 1), put_nbi(D, S, 8).at(1)])
        .on(1, [wait(D + 7, EQ, 1), load(D, 0)])
        .never(|o| o.r(1, 0) > 1)
        .maybe("last word first", |o| o.r(1, 0) == 0)
        .races()
}

fn block_reads() -> Test {
    Test::new("L40", "one thread waits, and its block reads")
        .with(Who::Block)
        .on(0, [fill(S, 32, 1).each_round(), wait(Z, EQ, 1), put_signal_nbi(K, S, 32, Y, 1).at(1)])
        .on(
            1,
            [
                // Bring the old values into a cache before the put.
                expect(K, 32, 0, 1).each_round(),
                fence(),
                p(Z, 1).at(0),
                signal_wait(Y, EQ, 1, 2),
                group_sync(),
                expect(K, 32, 1, 0).each_round(),
            ],
        )
        .never(|o| o.r(1, 0) != 0 || o.r(1, 1) != 0)
}

fn test_loop() -> Test {
    Test::new("L41", "test in a loop")
        .on(0, [delay(200), p(X, 1).at(1)])
        .on(1, [test_until(X, EQ, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
}

fn unsigned() -> Test {
    Test::new("L42", "comparisons follow the type").on(
        0,
        [
            store_half(0, 0x8000_0000),
            store(X, 1 << 63),
            wait_half(0, GT, 0x7fff_ffff),
            wait(X, GT, u64::MAX / 2),
        ],
    )
}

fn nothing_to_wait_for() -> Test {
    Test::new("L43", "waits and tests of no words").on(0, [no_words(X, Y, 0)]).never(|o| o.r(0, 0) != 0)
}

fn fair() -> Test {
    Test::new("L44", "wait_until_any finds every word")
        .on(0, [fill(S, 4, 1), put_signal_nbi(X, S, 4, Y, 1).at(1)])
        .on(1, [signal_wait(Y, EQ, 1, 1), any_each(X, 0)])
        .never(|o| o.r(1, 0) != 0)
}
