//! Group F of the litmus tests: calls that all PEs make together.

use crate::program::*;

pub(super) fn all() -> Vec<Test> {
    let mut all = Vec::new();
    for who in [Who::Thread, Who::Warp, Who::Block] {
        all.extend([published(who), synced(who), own_stores(who)]);
    }
    all.extend([not_completed(), rounds()]);
    all
}

fn published(who: Who) -> Test {
    Test::new("L58", format!("put_nbi, barrier_all, {who:?}"))
        .with(who)
        .on(0, [fill(S, 32, 1), put_nbi(D, S, 32).at(1), barrier()])
        .on(1, [barrier(), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .needs(Needs::Apart)
}

fn not_completed() -> Test {
    Test::new("L59", "put_nbi, sync_all")
        .on(0, [fill(S, 8, 1), put_nbi(D, S, 8).at(1), sync()])
        .on(1, [sync(), load(D, 0)])
        .never(|o| o.r(1, 0) > 1)
        .maybe("put missing", |o| o.r(1, 0) == 0)
        .races()
        .needs(Needs::Apart)
}

fn synced(who: Who) -> Test {
    Test::new("L59", format!("put_nbi, quiet, sync_all, {who:?}"))
        .with(who)
        .on(0, [fill(S, 32, 1), put_nbi(D, S, 32).at(1), quiet_all(), sync()])
        .on(1, [sync(), expect(D, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .needs(Needs::Apart)
}

fn own_stores(who: Who) -> Test {
    Test::new("L60", format!("plain stores, sync_all, get, {who:?}"))
        .with(who)
        .on(1, [fill(S, 32, 1), sync()])
        .on(0, [sync(), get(T, S, 32).at(1), expect(T, 32, 1, 0)])
        .never(|o| o.r(1, 0) != 0)
        .needs(Needs::Apart)
}

fn rounds() -> Test {
    let look = |a, b| [store(K, 1).each_round(), barrier(), g(K, 0).at(a), g(K, 1).at(b), barrier()];
    Test::new("L61", "no PE is two barriers ahead")
        .on(0, look(1, 2))
        .on(1, look(2, 0))
        .on(2, look(0, 1))
        .never(|o| (0..3).any(|pe| [o.r(pe, 0), o.r(pe, 1)] != [o.round + 1; 2]))
        .needs(Needs::Apart)
}
