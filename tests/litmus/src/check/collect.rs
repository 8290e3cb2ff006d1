//! Checks of the memory model for collective calls of teams.

use rushmem::{Error, LaunchConfig, Pe, TeamConfig};
use rushmem_device::Team;
use rushmem_litmus_kernels::{CHECKS as KINDS, nothing_together, on_its_own, one_after_another, two_teams};

use super::{Check, Verdict, must};

const ROUNDS: u64 = 40;

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["L64", "L65", "L69", "L70"], "consecutive collective calls do not overlap", follow),
    Check::new(&["L67"], "collective calls of two teams are independent", apart),
    Check::new(&["L71"], "empty data and teams of one are legal", nothing),
];

/// Checks the memory model for consecutive collective calls.
///
/// Calls with distinct buffers need no synchronization. The root receives its own broadcast. Reductions in place are
/// correct. Stores before a sync do not overwrite a broadcast after it.
fn follow(pe: &Pe) -> Result<Verdict, Error> {
    let mut found = Vec::new();
    for (len, threads) in [(1, 1), (33, 32)] {
        let (buffers, bad) = (pe.alloc::<u64>(6 * len)?, pe.alloc::<u64>(KINDS)?);
        pe.run(LaunchConfig::new(1, threads), one_after_another(Team::WORLD, buffers, bad, ROUNDS))?;
        pe.host_sync()?;
        found.extend(pe.read(bad)?);
    }
    Ok(must(found.iter().all(|bad| *bad == 0), || format!("wrong elements, by calls: {found:?}")))
}

/// Checks that two blocks may use two teams of the same PEs concurrently.
fn apart(pe: &Pe) -> Result<Verdict, Error> {
    let other = pe.team_split_strided(Team::WORLD, 0, 1, pe.n_pes(), TeamConfig::default())?;
    let (source, sum, bad) = (pe.alloc::<u64>(1)?, pe.alloc::<u64>(1)?, pe.alloc_one::<u64>()?);
    pe.run(LaunchConfig::new(2, 32), two_teams(other, Team::WORLD, source, sum, bad, ROUNDS))?;
    pe.host_sync()?;
    let bad = pe.read_one(bad)?;
    Ok(must(bad == 0, || format!("{bad} wrong sums")))
}

/// Checks calls with zero elements and calls of a team of one.
fn nothing(pe: &Pe) -> Result<Verdict, Error> {
    let alone = pe.team_from_pes(&[pe.my_pe()], TeamConfig::default())?;
    let (buffers, bad) = (pe.alloc::<u64>(6 * 5)?, pe.alloc::<u64>(KINDS)?);
    for team in [Team::WORLD, alone] {
        pe.run(LaunchConfig::new(1, 32), nothing_together(team, buffers))?;
    }
    pe.run(LaunchConfig::new(1, 32), on_its_own(alone, buffers, bad))?;
    pe.host_sync()?;
    let found = pe.read(bad)?;
    Ok(must(found.iter().all(|bad| *bad == 0), || format!("wrong elements: {found:?}")))
}
