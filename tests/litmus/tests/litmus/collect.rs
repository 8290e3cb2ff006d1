//! Collective calls of teams, on several PEs with a NIC that does its worst.

use rushmem::{Error, Grid, Job, Pe, TeamConfig};
use rushmem_device::Team;
use rushmem_litmus::path::{PATHS, Path};
use rushmem_litmus_kernels::{CHECKS, nothing_together, on_its_own, one_after_another, two_teams};

/// What these tests show.
pub(crate) const IDS: &[&str] = &["L64", "L65", "L67", "L69", "L70", "L71"];

/// Rounds of each test.
const ROUNDS: u64 = 40;

fn paths() -> impl Iterator<Item = Path> {
    let adverse = PATHS.iter().filter(|path| path.pes > 1).map(|path| path.with_adversary());
    PATHS.iter().copied().filter(|path| path.pes > 1).step_by(2).chain(adverse.step_by(2))
}

fn on<R: Send>(path: &Path, app: impl Fn(&Pe) -> Result<R, Error> + Send + Sync) -> Vec<R> {
    let job = Job::with_config(path.config(9)).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    job.run(app).unwrap_or_else(|error| panic!("{}: {error}", path.title()))
}

const fn grid(blocks: u32, threads: u32) -> Grid {
    Grid { blocks, threads, shared_bytes: 0 }
}

/// L64, L65, L69, L70: distinct buffers need no synchronisation, the root gets its own broadcast, sums in place are sums,
/// and a broadcast behind a sync is not overwritten by what was stored before it.
#[test]
fn collective_calls_follow_each_other() {
    for path in paths() {
        for (len, threads) in [(1, 1), (33, 32)] {
            let bad = on(&path, |pe| {
                let (buffers, bad) = (pe.alloc::<u64>(6 * len)?, pe.alloc::<u64>(CHECKS)?);
                pe.run(grid(1, threads), one_after_another(Team::WORLD, buffers, bad, ROUNDS))?;
                pe.barrier()?;
                pe.read(bad)
            });
            assert_eq!(bad, [[0; CHECKS]; 3], "{}, {len} words", path.title());
        }
    }
}

/// L67: two blocks use two teams of the same PEs at the same time.
#[test]
fn two_teams_do_not_meet() {
    for path in paths() {
        let bad = on(&path, |pe| {
            let other = pe.team_split_strided(Team::WORLD, 0, 1, 3, TeamConfig::default())?;
            let (source, sum, bad) = (pe.alloc::<u64>(1)?, pe.alloc::<u64>(1)?, pe.alloc_one::<u64>()?);
            pe.run(grid(2, 32), two_teams(other, Team::WORLD, source, sum, bad, ROUNDS))?;
            pe.barrier()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, [0; 3], "{}", path.title());
    }
}

/// L71: calls with nothing to move, and of a team of one.
#[test]
fn nothing_and_nobody_else_are_legal() {
    for path in paths() {
        let bad = on(&path, |pe| {
            let me = pe.my_pe();
            let alone = pe.team_from_pes(&[me], TeamConfig::default())?;
            let (buffers, bad) = (pe.alloc::<u64>(6 * 5)?, pe.alloc::<u64>(CHECKS)?);
            for team in [Team::WORLD, alone] {
                pe.run(grid(1, 32), nothing_together(team, buffers))?;
            }
            pe.run(grid(1, 32), on_its_own(alone, buffers, bad))?;
            pe.barrier()?;
            pe.read(bad)
        });
        assert_eq!(bad, [[0; CHECKS]; 3], "{}", path.title());
    }
}
