//! Programs about the exact bytes that a call accesses. Adjacent memory may be used by others.

use rushmem::Pe;
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "ranges",
    title: "The exact bytes of a call",
    file: file!(),
    text: include_str!("ranges.rs"),
    programs: &[
        device("source_of_another_member_stored", source_of_another_member_stored).grid(2, 1),
        device("source_of_the_root_stored", source_of_the_root_stored).races().grid(2, 1),
        device("broadcast_in_place", broadcast_in_place),
        device("word_beside_a_reduction_stored", word_beside_a_reduction_stored).grid(2, 1),
        device("last_word_of_a_reduction_stored", last_word_of_a_reduction_stored).races().grid(2, 1),
        device("rest_of_a_collected_result_stored", rest_of_a_collected_result_stored).grid(2, 1),
        device("end_of_a_collected_result_stored", end_of_a_collected_result_stored).races().grid(2, 1),
        device("gap_of_a_strided_exchange_stored", gap_of_a_strided_exchange_stored).grid(2, 1),
        device("element_of_a_strided_exchange_stored", element_of_a_strided_exchange_stored)
            .races()
            .grid(2, 1),
        device("part_of_an_exchange_stored", part_of_an_exchange_stored).races().grid(2, 1),
        device("gap_between_parts_of_an_exchange_stored", gap_between_parts_of_an_exchange_stored).grid(2, 1),
        device("alltoallv_with_overlapping_parts", alltoallv_with_overlapping_parts).races(),
        device("empty_put_beside_store", empty_put_beside_store),
        device("empty_put_with_signal", empty_put_with_signal),
        host("transfers_of_unequal_lengths", transfers_of_unequal_lengths),
        device("signal_beside_its_data", signal_beside_its_data),
        device("values_of_one_byte", values_of_one_byte),
        device("value_of_one_byte_stored_and_put", value_of_one_byte_stored_and_put).races(),
        device("scan_beside_get", scan_beside_get).races(),
        device("get_of_a_scan_after_barrier", get_of_a_scan_after_barrier),
    ],
};

/// Broadcasts from PE 0, while another block of PE 1 stores to its own unused source.
#[kernel]
fn source_of_another_member_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
    } else if ctx.my_pe() == 1 {
        ctx.local(m.outbox).store(0, 1);
    }
    Ok(())
}

/// Broadcasts from PE 0, while another block of PE 0 stores to the source.
#[kernel]
fn source_of_the_root_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        return ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0); // first
    }
    if ctx.my_pe() == 0 {
        ctx.local(m.outbox).store(0, 1); // second
    }
    Ok(())
}

/// Broadcasts from and to the same object.
#[kernel]
fn broadcast_in_place(ctx: &Ctx, m: Memory) -> Result {
    ctx.broadcast(Thread, Team::WORLD, m.outbox, m.outbox, 1)?;
    assert_eq!(ctx.local(m.outbox).load(0), 20);
    Ok(())
}

/// Reduces four words, while another block stores to the word after the result.
#[kernel]
fn word_beside_a_reduction_stored(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = (m.inbox.slice(0..4), m.outbox.slice(0..4));
    if Block::current().id() == 0 {
        return ctx.reduce(Thread, Team::WORLD, Reduce::Sum, to, from);
    }
    ctx.local(m.inbox).store(4, 1);
    Ok(())
}

/// Reduces four words, while another block stores to the last word of the result.
#[kernel]
fn last_word_of_a_reduction_stored(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = (m.inbox.slice(0..4), m.outbox.slice(0..4));
    if Block::current().id() == 0 {
        return ctx.reduce(Thread, Team::WORLD, Reduce::Sum, to, from); // first
    }
    ctx.local(m.inbox).store(3, 1); // second
    Ok(())
}

/// Collects three words in total, while another block stores to the rest of the destination.
#[kernel]
fn rest_of_a_collected_result_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        let mine = m.outbox.slice(0..1 + ctx.my_pe() as usize);
        ctx.collect(Thread, Team::WORLD, m.inbox, mine)?;
        assert_eq!(ctx.local(m.inbox).load(2), 21);
    } else {
        ctx.local(m.inbox).store(3, 1);
    }
    Ok(())
}

/// Collects three words in total, while another block stores to the last of them.
#[kernel]
fn end_of_a_collected_result_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        let mine = m.outbox.slice(0..1 + ctx.my_pe() as usize);
        return ctx.collect(Thread, Team::WORLD, m.inbox, mine); // first
    }
    ctx.local(m.inbox).store(2, 1); // second
    Ok(())
}

/// Exchanges every second word, while another block stores to a word between them.
#[kernel]
fn gap_of_a_strided_exchange_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        return ctx.alltoalls(Thread, Team::WORLD, m.inbox, m.outbox, 2, 1, 2);
    }
    ctx.local(m.inbox).store(1, 1);
    Ok(())
}

/// Exchanges every second word, while another block stores to one of these words.
#[kernel]
fn element_of_a_strided_exchange_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        return ctx.alltoalls(Thread, Team::WORLD, m.inbox, m.outbox, 2, 1, 2); // first
    }
    ctx.local(m.inbox).store(2, 1); // second
    Ok(())
}

/// Returns parts of one word each, at words 0 and 4, after storing their layout in `words`.
#[inline(always)]
fn two_parts(ctx: &Ctx, m: Memory) -> Parts {
    let words = ctx.local(m.words);
    words.store(0, 1);
    words.store(1, 1);
    words.store(3, 4);
    Parts { counts: m.words.slice(0..2), offsets: m.words.slice(2..4) }
}

/// Exchanges words 0 and 4, while another block stores to word 4.
#[kernel]
fn part_of_an_exchange_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        let parts = two_parts(ctx, m);
        return ctx.alltoallv(Thread, Team::WORLD, m.inbox, parts, m.outbox, parts); // first
    }
    ctx.local(m.inbox).store(4, 1); // second
    Ok(())
}

/// Exchanges words 0 and 4, while another block stores to word 3.
#[kernel]
fn gap_between_parts_of_an_exchange_stored(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        let parts = two_parts(ctx, m);
        ctx.alltoallv(Thread, Team::WORLD, m.inbox, parts, m.outbox, parts)?;
        assert_eq!(ctx.local(m.inbox).load(4), if ctx.my_pe() == 0 { 20 } else { 24 });
    } else {
        ctx.local(m.inbox).store(3, 1);
    }
    Ok(())
}

/// Exchanges two words with each member, and places the second part of the result one word after the first.
#[kernel]
fn alltoallv_with_overlapping_parts(ctx: &Ctx, m: Memory) -> Result {
    let words = ctx.local(m.words);
    words.store(0, 2);
    words.store(1, 2);
    words.store(3, 1);
    words.store(5, 2);
    let parts = |offsets: std::ops::Range<usize>| Parts {
        counts: m.words.slice(0..2),
        offsets: m.words.slice(offsets),
    };
    ctx.alltoallv(Thread, Team::WORLD, m.inbox, parts(2..4), m.outbox, parts(4..6)) // first and second
}

/// Puts zero elements to memory that the owner stores to.
#[kernel]
fn empty_put_beside_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put(Thread, m.inbox.slice(2..2), m.outbox.slice(2..2), 1);
    }
    ctx.local(m.inbox).store(2, 1);
    Ok(())
}

/// Puts zero elements with a signal. Only the signal is sent.
#[kernel]
fn empty_put_with_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        let (to, from) = (m.inbox.slice(0..0), m.outbox.slice(0..0));
        return ctx.put_signal(Thread, to, from, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    ctx.local(m.inbox).store(0, 1);
    Ok(())
}

/// Transfers between arrays of different lengths. The calls fail and access nothing.
fn transfers_of_unequal_lengths(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let failed = pe.run(ONE, unequal_lengths(m));
    assert!(matches!(failed, Err(rushmem::Error::Device { .. })), "{failed:?}");
    Ok(())
}

#[kernel]
fn unequal_lengths(ctx: &Ctx, m: Memory) -> Result {
    let (half, pe) = (m.inbox.slice(0..4), ctx.pe_after(1));
    let put = ctx.put(Thread, m.inbox, half, pe);
    let get = ctx.get(Thread, half, m.inbox, pe);
    let signalled = ctx.put_signal(Thread, m.inbox, half, m.flag.set(1), pe);
    assert_eq!([put, get, signalled], [Err(Error::LengthMismatch); 3]);
    put
}

/// Puts seven words, with a signal in the eighth word of the same array.
#[kernel]
fn signal_beside_its_data(ctx: &Ctx, m: Memory) -> Result {
    let signal = m.inbox.at(7);
    if ctx.my_pe() == 0 {
        let (to, from) = (m.inbox.slice(0..7), m.outbox.slice(0..7));
        return ctx.put_signal(Thread, to, from, signal.set(1), 1);
    }
    ctx.signal_wait_until(Thread, signal, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(6), 16);
    Ok(())
}

/// Puts a byte, while the owner stores to the next byte of the same word.
#[kernel]
fn values_of_one_byte(ctx: &Ctx, m: Memory) -> Result {
    let bytes = m.words.cast::<u8>();
    if ctx.my_pe() == 0 {
        ctx.p(bytes.at(0), 1, 1)?;
    } else {
        ctx.local(bytes).store(1, 2);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.words).load(0) == 0x201);
    Ok(())
}

/// Puts a byte, while the owner stores to the word around it.
#[kernel]
fn value_of_one_byte_stored_and_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.words.cast::<u8>().at(3), 1, 1)?; // first
    } else {
        ctx.local(m.words).store(0, 2); // second
    }
    Ok(())
}

/// Computes prefix sums, while the other PE gets the result.
#[kernel]
fn scan_beside_get(ctx: &Ctx, m: Memory) -> Result {
    ctx.sum_scan(Thread, Team::WORLD, Scan::Exclusive, m.inbox, m.outbox)?; // first
    let _ = ctx.g(m.inbox.at(0), ctx.pe_after(1))?; // second
    Ok(())
}

/// Computes prefix sums. The other PE gets the result after a barrier.
#[kernel]
fn get_of_a_scan_after_barrier(ctx: &Ctx, m: Memory) -> Result {
    ctx.sum_scan(Thread, Team::WORLD, Scan::Exclusive, m.inbox, m.outbox)?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(m.inbox.at(0), 1)?, 10);
    Ok(())
}
