//! A job whose processes are killed and replaced again and again: a part of `suite_pe` that a test runs with live membership.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rushmem::{Error, Operations, Pe};
use rushmem_device::{Reduce, SymSlice, Team};

/// Whether this process no longer kills itself.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Number of words in a message.
const WORDS: usize = 32;

/// What all PEs agree on between rounds.
#[derive(Clone, Copy, Default)]
struct Progress {
    round: u64,
    /// Number of lost PEs that were replaced.
    replaced: u64,
}

struct Objects {
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    sums: [SymSlice<u64>; 2],
}

/// Exchanges messages and adds up numbers while processes are replaced, as [`while_replaced`] does.
pub(crate) fn replace(pe: &Pe, cycles: u64) -> Result<(), Error> {
    let n = pe.n_pes() as usize;
    let (outbox, sum) = (pe.alloc(WORDS)?, pe.alloc(1)?);
    // One that a replacement does not find.
    let gone = if pe.is_replacement() { None } else { Some(pe.alloc::<u64>(300)?) };
    let objects = Objects { outbox, inbox: pe.alloc_named("inbox", WORDS * n)?, sums: [sum, pe.alloc(1)?] };
    gone.map_or(Ok(()), |gone| pe.free(gone))?;
    while_replaced(pe, cycles, |team, round| exchange(pe, team, &objects, round))
}

/// Repeatedly calls `work` with a team of all living PEs and the index of the round. In each cycle one PE kills itself at a random
/// moment, and so do some replacements. Returns after `cycles` cycles, once all PEs are present again.
pub(crate) fn while_replaced(
    pe: &Pe,
    cycles: u64,
    mut work: impl FnMut(Team, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let random = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.subsec_micros());
    if pe.is_replacement() && random.is_multiple_of(4) {
        // Soon after it was taken in.
        end_within(Duration::from_micros(u64::from(random % 3000)));
    }
    let (mut progress, mut is_new) = (Progress::default(), pe.is_replacement());
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    let mut team = Team::WORLD;
    loop {
        let members = pe.grow()?;
        if members != team {
            pe.team_destroy(std::mem::replace(&mut team, members))?;
        }
        let mut round = || {
            progress = agree(pe, progress, is_new)?;
            is_new = false;
            work(team, progress.round)
        };
        match round() {
            Ok(()) => longest = longest.max(std::mem::replace(&mut last, Instant::now()).elapsed()),
            Err(Error::PeerLost(_)) => continue,
            Err(other) => return Err(other),
        }
        progress.round += 1;
        if pe.team_n_pes(team) == Some(pe.n_pes()) {
            if progress.replaced >= cycles {
                // Nobody kills itself any more, and those that have are found.
                IS_OVER.store(true, Ordering::SeqCst);
                match pe.host_sync() {
                    Err(Error::PeerLost(_)) => continue,
                    outcome => break outcome?,
                }
            }
            end_some_time(pe, progress.replaced);
        }
    }
    println!("PE {} ends after {} replacements; longest round {longest:.0?}", pe.my_pe(), progress.replaced);
    Ok(())
}

/// Kills this process at a random moment if it is the victim of this cycle.
fn end_some_time(pe: &Pe, cycle: u64) {
    let random = (cycle + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if (random >> 32) % u64::from(pe.n_pes()) == u64::from(pe.my_pe()) {
        end_within(Duration::from_micros(random >> 20 & 0x3fff));
    }
}

/// Kills this process after `time`.
fn end_within(time: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        if !IS_OVER.load(Ordering::SeqCst) {
            std::process::abort();
        }
    });
}

fn exchange(pe: &Pe, team: Team, objects: &Objects, round: u64) -> Result<(), Error> {
    let Objects { inbox, outbox, sums } = *objects;
    let members = pe.team_pes(team).unwrap_or_default();
    let words = |from: u32| -> Vec<u64> {
        (0..WORDS as u64).map(|i| round << 32 | u64::from(from) << 16 | i).collect()
    };
    let place = |from: u32| inbox.slice(from as usize * WORDS..(from as usize + 1) * WORDS);
    pe.write(outbox, &words(pe.my_pe()))?;
    let put = members.iter().try_for_each(|&to| pe.put(place(pe.my_pe()), outbox, to));
    pe.host_sync().and(put)?;
    for &from in &members {
        assert_eq!(pe.read(place(from))?, words(from), "round {round} from PE {from}");
    }
    pe.write(sums[0], &[u64::from(pe.my_pe()) + round])?;
    let added = pe.reduce(team, Reduce::Sum, sums[1], sums[0]);
    pe.host_sync().and(added)?;
    let sum: u64 = members.iter().map(|&pe| u64::from(pe) + round).sum();
    assert_eq!(pe.read(sums[1])?, [sum]);
    Ok(())
}

/// Returns the progress of the PE that has come furthest, which a replacement takes over, and counts those that are new.
fn agree(pe: &Pe, mine: Progress, is_new: bool) -> Result<Progress, Error> {
    let bytes = [mine.round, mine.replaced, is_new.into()].map(u64::to_le_bytes).concat();
    let all = pe.allgather(&bytes)?;
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[at]);
    let parts = all.iter().filter(|bytes| !bytes.is_empty());
    let parts: Vec<[u64; 3]> = parts.map(|bytes| [0, 1, 2].map(|at| word(bytes, at))).collect();
    let most = |part: fn(&[u64; 3]) -> u64| parts.iter().map(part).max().unwrap_or(0);
    let joined: u64 = parts.iter().map(|part| part[2]).sum();
    Ok(Progress { round: most(|part| part[0]), replaced: most(|part| part[1]) + joined })
}

/// Kills the last PE, whose replacement fails: the job has a window, or, if `differs`, the replacement allocates another object than
/// the others.
pub(crate) fn refuse(pe: &Pe, differs: bool) -> Result<(), Error> {
    let last = pe.n_pes() - 1;
    if pe.is_replacement() {
        let error = pe.host_sync().expect_err("the others make other calls");
        assert!(error.to_string().contains("must call it before host_sync"), "{error}");
        return pe.alloc::<u64>(17).map(drop);
    }
    let word = pe.alloc::<u64>(16)?;
    let _window = if differs { None } else { Some(pe.register_symmetric(vec![0_u64; 64])?) };
    pe.host_sync()?;
    if pe.my_pe() == last {
        std::process::abort();
    }
    // One that differs is taken in before it fails. The others go on without it.
    let begin = Instant::now();
    let is_over = || {
        let has_joined = pe.together_since(last) > Some(1);
        assert!(differs || !has_joined, "a process has joined a job with a window");
        if differs { has_joined && pe.is_lost(last) } else { begin.elapsed() > Duration::from_millis(500) }
    };
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "no process has joined");
        let outcome = pe.grow().and_then(|team| {
            pe.write(word, &[is_over().into(); 16])?;
            let sum = pe.reduce(team, Reduce::Min, word, word);
            pe.host_sync().and(sum)?;
            Ok(pe.read(word)?[0] != 0)
        });
        match outcome {
            Ok(true) => break,
            Ok(false) | Err(Error::PeerLost(_)) => std::thread::sleep(Duration::from_millis(2)),
            Err(other) => return Err(other),
        }
    }
    println!("PE {} goes on", pe.my_pe());
    Ok(())
}
