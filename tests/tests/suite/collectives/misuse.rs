//! Tests of mismatched and invalid collective calls: the error names the members, and the next call succeeds.

use rushmem::{Error, Pe, TeamConfig};
use rushmem_device::{Error as Code, Signal, Team};
use rushmem_test_kernels::{Disagreement, disagree, half_barriers, team_twice};
use rushmem_tests::{Setup, grid};

const PATHS: [&str; 2] = ["nic", "p2p"];

/// The record and the text of an error that a launch returned.
struct Told {
    code: Option<Code>,
    peer: u32,
    found: u64,
    text: String,
}

/// Returns the first error record of a launch, which must have failed.
fn record(told: Result<(), Error>) -> Told {
    match told {
        Err(error @ Error::Device { .. }) => {
            let text = error.to_string();
            // The error names the kernel's line, no matter where it is detected.
            assert!(text.contains("collectives/misuse.rs:"), "{text}");
            let Error::Device { first, .. } = error else { unreachable!() };
            Told { code: first.code(), peer: first.record().peer, found: first.record().found, text }
        }
        Ok(()) => panic!("no error"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn mismatch_names_the_member_and_leaves_the_team_usable() {
    use Disagreement::*;
    let cases = [
        (Fcollect, Broadcast),
        (Broadcast, OtherRoot),
        (Sum, Largest),
        (Sum, Fewer),
        (Sum, OtherType),
        (Sync, Fcollect),
        (Collect, Alltoall),
        (Scan, ScatteredSum),
    ];
    for (pes, path) in [2, 3, 5].into_iter().flat_map(|pes| PATHS.map(|path| (pes, path))) {
        for (group_kind, odd) in [(0, pes - 1), (1, 0), (2, pes / 2)] {
            let told = Setup::new(pes).with("peer_path", path).run(|pe| {
                let (n, me) = (pe.n_pes() as usize, pe.my_pe());
                let (dst, src) = (pe.alloc::<u32>(4 * n)?, pe.alloc::<u32>(4)?);
                let (wide, codes) = (pe.alloc::<u32>(4 * n)?, pe.alloc::<u32>(2)?);
                let floats = pe.alloc::<f32>(4)?;
                pe.write(src, &[me + 1; 4])?;
                pe.host_sync()?;
                let mut all = Vec::new();
                for (common, other) in cases {
                    let which = if me == odd { other } else { common };
                    let call = disagree(which as u32, group_kind, Team::WORLD, dst, src, wide, floats, codes);
                    let Told { code, peer, found, text } = record(pe.run(grid(1, 32), call));
                    assert_eq!(code, Some(Code::TeamMismatch), "{text}");
                    assert!(peer != me && peer < pes && found < u64::from(pes), "{text}");
                    // The members disagreed, so nothing was written. The valid call that followed succeeded.
                    assert_eq!(pe.read(wide)?, vec![0; 4 * n], "{which:?}");
                    assert_eq!(pe.read(codes)?, [Code::TeamMismatch as u32, 1000]);
                    let good: Vec<u32> = (0..pes).flat_map(|pe| [pe + 1; 4]).collect();
                    assert_eq!(pe.read(dst)?, good);
                    pe.write(dst, &vec![0; 4 * n])?;
                    pe.host_sync()?;
                    all.push(([peer, found as u32], differ(common, other, me == odd), text));
                }
                Ok(all)
            });
            for (me, told) in (0..).zip(told) {
                for ([one, other], differ, text) in told {
                    // The error names two members that differ, so one of them must be the odd one.
                    assert!([one, other].contains(&odd), "odd {odd}, to {me}: {text}");
                    let wanted = format!("PE {me}: PE {one} and PE {other} {differ}, at ");
                    assert!(text.starts_with(&wanted), "{text}");
                }
            }
        }
    }
}

/// Returns how two collective calls differ, in the words of the error. The odd member made the call `other`; the error
/// names the peer's call first.
fn differ(common: Disagreement, other: Disagreement, at_odd: bool) -> String {
    use Disagreement::*;
    let call = |which| match which {
        Broadcast | OtherRoot => "broadcast",
        Sum | Largest | Fewer | OtherType => "reduce",
        Sync => "a barrier or sync",
        Fcollect => "fcollect",
        Collect => "collect",
        Alltoall => "alltoall",
        Scan => "scan",
        ScatteredSum => "reduce_scatter",
        other => unreachable!("{other:?} is not among the cases"),
    };
    match (call(common), call(other)) {
        (one, same) if one == same => format!("gave different arguments to {one} of the team"),
        (common, other) => {
            let (theirs, mine) = if at_odd { (common, other) } else { (other, common) };
            format!("made different collective calls of the team: {theirs} and {mine}")
        }
    }
}

#[test]
fn wrong_arguments_do_not_hang() {
    use Disagreement::*;
    let cases = [
        (Shorter, Code::LengthMismatch, "a length is "),
        (Overlapping, Code::Overlap, "the source at heap offset"),
        (NoSuchRoot, Code::BadPe, "there is no PE 99: the job has 3"),
        (BitsOfFloats, Code::BadReduction, "there is no reduction `And` of elements of type f32"),
        (Outside, Code::OutOfRange, "the call used elements 0..13 of an object of 12 elements"),
    ];
    for (wrong, code, text) in cases {
        // The wrong arguments come from all members, or from only one.
        for (odd, path) in [None, Some(1)].into_iter().flat_map(|odd| PATHS.map(|path| (odd, path))) {
            Setup::new(3).with("peer_path", path).run(|pe| {
                let (dst, src) = (pe.alloc::<u32>(12)?, pe.alloc::<u32>(4)?);
                let (wide, codes) = (pe.alloc::<u32>(12)?, pe.alloc::<u32>(2)?);
                let floats = pe.alloc::<f32>(4)?;
                pe.write(src, &[pe.my_pe() + 1; 4])?;
                pe.host_sync()?;
                let is_wrong = odd.is_none_or(|odd| odd == pe.my_pe());
                let which = if is_wrong { wrong } else { Fcollect };
                let call = disagree(which as u32, 2, Team::WORLD, dst, src, wide, floats, codes);
                let Told { code: found, peer, text: line, .. } = record(pe.run(grid(1, 32), call));
                if is_wrong {
                    assert_eq!(found, Some(code), "{line}");
                    assert!(line.contains(text), "{line}");
                } else {
                    assert_eq!(found, Some(Code::TeamMismatch), "{line}");
                    assert!(Some(peer) == odd || line.contains("PE 1"), "{line}");
                }
                assert_eq!(pe.read(wide)?, [0; 12]);
                assert_eq!(pe.read(dst)?, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
                Ok(())
            });
        }
    }
}

#[test]
fn failed_team_keeps_failing_while_others_work() {
    for path in PATHS {
        team_that_failed(path);
    }
}

fn team_that_failed(path: &str) {
    let told = Setup::new(2).with("timeout", "300ms").with("peer_path", path).run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(8)?, pe.alloc::<u32>(4)?);
        let (wide, codes) = (pe.alloc::<u32>(8)?, pe.alloc::<u32>(2)?);
        let floats = pe.alloc::<f32>(4)?;
        let team = pe.team_split_strided(Team::WORLD, 0, 1, 2, TeamConfig::new())?;
        let sync = |team| disagree(Disagreement::Sync as u32, 2, team, dst, src, wide, floats, codes);
        let mut told = Vec::new();
        if pe.my_pe() == 0 {
            let Told { code, peer, .. } = record(pe.run(grid(1, 32), sync(team)));
            assert_eq!((code, peer), (Some(Code::WaitTimeout), 1));
            assert_eq!(pe.read(codes)?, [Code::WaitTimeout as u32, Code::TeamFailed as u32]);
            let Told { code, text, .. } = record(pe.run(grid(1, 32), sync(team)));
            assert_eq!(code, Some(Code::TeamFailed));
            told.push(text);
        }
        pe.host_sync()?;
        // The world is a different team, so it still works.
        pe.run(grid(1, 32), sync(Team::WORLD))?;
        // A new team may reuse the slot of the failed one.
        pe.team_destroy(team)?;
        let again = pe.team_split_strided(Team::WORLD, 0, 1, 2, TeamConfig::new())?;
        assert_eq!(again.slot(), team.slot());
        pe.run(grid(1, 32), sync(again))?;
        // Destroyed and invalid teams are rejected.
        for gone in [team, Team::INVALID] {
            let Told { code, text, .. } = record(pe.run(grid(1, 32), sync(gone)));
            assert_eq!(code, Some(Code::BadTeam));
            told.push(text);
        }
        Ok(told)
    });
    assert!(
        told[0][0].contains("an earlier collective call of the team failed half way (code 11)"),
        "{}",
        told[0][0]
    );
    assert!(told[0][1].contains("the handle names no team, or a destroyed one"), "{}", told[0][1]);
}

#[test]
fn team_rejects_a_second_group() {
    for path in PATHS {
        team_of_two_groups(path);
    }
}

fn team_of_two_groups(path: &str) {
    let codes = Setup::new(2).with("peer_path", path).run(|pe| {
        let (signal, codes) = (pe.alloc_one::<Signal>()?, pe.alloc::<u32>(2)?);
        let blocks = if pe.my_pe() == 0 { 2 } else { 1 };
        let told = pe.run(grid(blocks, 32), team_twice(Team::WORLD, signal, codes));
        if pe.my_pe() == 0 {
            let Told { code, text, .. } = record(told);
            assert_eq!(code, Some(Code::TeamBusy));
            assert!(
                text.ends_with(
                    "only one thread, warp or block of each PE may use a team at a time; make a team for each"
                ),
                "{text}"
            );
        } else {
            told?;
        }
        pe.host_sync()?;
        let mut codes = pe.read(codes)?;
        codes.sort_unstable();
        Ok(codes)
    });
    assert_eq!(codes[0], [Code::TeamBusy as u32, 1000]);
}

#[test]
fn sync_arrive_and_sync_wait_alternate() {
    for path in PATHS {
        Setup::new(2).with("peer_path", path).run(|pe: &Pe| {
            let codes = pe.alloc::<u32>(5)?;
            let Told { code, .. } = record(pe.run(grid(1, 32), half_barriers(Team::WORLD, codes)));
            assert_eq!(code, Some(Code::TeamBusy));
            let busy = Code::TeamBusy as u32;
            assert_eq!(pe.read(codes)?, [busy, 1000, busy, 1000, 1000]);
            Ok(())
        });
    }
}
