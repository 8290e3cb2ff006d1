//! What living PEs may rely on after a loss: the part of `suite_pe` that a test runs with live membership.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use rushmem::{Checkpoint, Error, Operations, Pe, TeamConfig};
use rushmem_device::{Error as Code, Reduce, Signal, SymSlice, Team};
use rushmem_test_kernels::{AFTER_LOSS, after_loss};

use crate::grid;

/// Ends the last PE, and checks on the others what docs/membership.md promises. Checkpoints go to `folder`.
pub(crate) fn survive(pe: &Pe, folder: &Path) -> Result<(), Error> {
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let (lost, living) = (n - 1, (me + 1) % (n - 1));
    let (cells, signal) = (pe.alloc::<u64>(16)?, pe.alloc_one::<Signal>()?);
    let outcomes = pe.alloc::<u32>(AFTER_LOSS.len())?;
    let sums = [pe.alloc::<u64>(1)?, pe.alloc::<u64>(1)?];
    let team = pe.team_split_strided(Team::WORLD, 0, 1, n, TeamConfig::new())?;
    let saved = Checkpoint::new().with("number", sums[1]);
    pe.write(sums[1], &[me.into()])?;
    pe.save(folder, &saved)?;
    // Connections of the NIC exist before the loss.
    for peer in (0..n).filter(|peer| *peer != me) {
        pe.put(cells, cells, peer)?;
    }
    pe.host_sync()?;
    if me == lost {
        std::process::abort();
    }
    let begin = Instant::now();
    while !pe.is_lost(lost) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no PE was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Until they shrink, collective calls fail on all.
    assert!(is_lost(&pe.alloc::<u64>(1)));
    assert!(is_lost(&pe.host_sync()));
    pe.run(grid(1, 1), after_loss(outcomes, cells, signal, team, lost, living))?;
    check_outcomes(pe, &pe.read(outcomes)?, pe.ptr(cells, lost).is_some());

    let epoch = pe.epoch();
    let small = pe.shrink()?;
    assert_eq!(pe.epoch(), epoch.map(|number| number + 1));
    assert_eq!(pe.shrink()?, small);
    assert_eq!(pe.team_pes(small), Some((0..n - 1).collect()));
    assert_eq!(sum(pe, small, sums)?, u64::from((0..n - 1).sum::<u32>()));
    assert!(is_lost(&sum(pe, team, sums)) && is_lost(&sum(pe, Team::WORLD, sums)));

    // Memory of the living, new and old. Windows need memory of all PEs.
    let more = pe.alloc::<u64>(4)?;
    pe.write(more, &[u64::from(me); 4])?;
    pe.host_sync()?;
    pe.get(cells.slice(0..4), more, living)?;
    assert_eq!(pe.read(cells)?[..4], [u64::from(living); 4]);
    assert!(matches!(pe.register_symmetric(vec![0_u64; 64]), Err(Error::Unavailable { .. })));
    pe.host_sync()?;
    pe.free(more)?;

    // A living PE can take over the part of the lost one, and the living have a checkpoint of their own.
    let error = pe.restore(folder, &saved).expect_err("a part is left over");
    assert!(error.to_string().contains(&format!("saved by {n} PEs, and this job has {}", n - 1)), "{error}");
    for part in [lost, me] {
        pe.restore_part(folder, part, &saved)?;
        assert_eq!(pe.read(sums[1])?, [u64::from(part)]);
    }
    pe.host_sync()?;
    pe.save(folder, &saved)?;
    pe.write(sums[1], &[99])?;
    pe.restore(folder, &saved)?;
    assert_eq!((Checkpoint::parts(folder)?, pe.read(sums[1])?), (n - 1, vec![u64::from(me)]));

    // A team with the lost PE can be discarded, and teams of the living are as usual.
    pe.team_destroy(team)?;
    assert!(pe.team_pes(team).is_none());
    let pair = pe.team_split_strided(small, 0, 1, 2, TeamConfig::new())?;
    assert_eq!(pair.is_valid(), me < 2);
    // A late write of the lost PE reaches no words that are in use.
    assert_ne!(pair.slot(), team.slot());
    pe.team_destroy(pair)?;
    println!("PE {me} goes on");
    Ok(())
}

/// Allocates and frees memory while a test kills PEs.
pub(crate) fn allocate(pe: &Pe) -> Result<(), Error> {
    repeat(pe, |number, outcomes| {
        let object = pe.alloc::<u64>(1 + number % 7)?;
        object.offset().hash(outcomes);
        pe.free(object)
    })
}

/// Saves checkpoints to `folder` while a test kills PEs, and restores the last one.
pub(crate) fn save(pe: &Pe, folder: &Path) -> Result<(), Error> {
    let (cells, round) = (pe.alloc::<u32>(50_000)?, pe.alloc_one::<u64>()?);
    let content = |round: u64| vec![round as u32 * 1000 + pe.my_pe(); cells.len()];
    let state = Checkpoint::new().with("cells", cells).with("round", round.as_slice());
    let mut saved = 0;
    repeat(pe, |number, _| {
        pe.write(cells, &content(number as u64))?;
        pe.write(round.as_slice(), &[number as u64])?;
        pe.save(folder, &state)?;
        saved = number as u64;
        Ok(())
    })?;
    pe.write(cells, &content(0))?;
    pe.restore(folder, &state)?;
    // A save that a loss has interrupted may have replaced the checkpoint.
    let found = pe.read_one(round)?;
    assert!(found >= saved, "{found} in place of {saved}");
    assert_eq!(pe.read(cells)?, content(found));
    Ok(())
}

/// Makes collective calls until a test has killed a PE, and some more. Checks that each had the same outcome on all living
/// PEs. Calls get a number, and may add to the outcome.
fn repeat(
    pe: &Pe,
    mut call: impl FnMut(usize, &mut DefaultHasher) -> Result<(), Error>,
) -> Result<(), Error> {
    const CALLS_AFTER_LOSS: usize = 20;
    let mut left = None;
    println!("ready {} {}", pe.my_pe(), std::process::id());
    let mut outcomes = DefaultHasher::new();
    for number in 1.. {
        match call(number, &mut outcomes) {
            Err(Error::PeerLost(_)) => {
                number.hash(&mut outcomes);
                pe.shrink()?;
                left = Some(CALLS_AFTER_LOSS);
            }
            outcome => outcome?,
        }
        left = left.map(|left: usize| left - 1);
        if left == Some(0) {
            break;
        }
    }
    let mine = outcomes.finish().to_le_bytes();
    let all = pe.allgather(&mine)?;
    assert!(all.iter().all(|theirs| theirs.is_empty() || *theirs == mine), "outcomes differ");
    println!("PE {} goes on", pe.my_pe());
    Ok(())
}

fn is_lost<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::PeerLost(lost)) if lost.survivable)
}

/// Checks what the calls of [`after_loss`] have returned. By P2P, the memory of a lost PE is still accessible.
fn check_outcomes(pe: &Pe, outcomes: &[u32], is_mapped: bool) {
    let lost = Code::PeerLost as u32;
    let direct = if is_mapped { 0 } else { lost };
    let wanted = [1, 0, direct, 0, 0, lost, direct, lost, lost];
    for ((name, found), wanted) in AFTER_LOSS.iter().zip(outcomes).zip(wanted) {
        assert_eq!(*found, wanted, "{name} of PE {}", pe.my_pe());
    }
}

/// Adds up the numbers of the members.
fn sum(pe: &Pe, team: Team, [all, mine]: [SymSlice<u64>; 2]) -> Result<u64, Error> {
    pe.write(mine, &[pe.my_pe().into()])?;
    pe.reduce(team, Reduce::Sum, all, mine)?;
    Ok(pe.read(all)?[0])
}
