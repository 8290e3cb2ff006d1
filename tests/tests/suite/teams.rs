//! Tests of creation, queries and destruction of teams.

use std::sync::Mutex;
use std::time::Duration;

use rushmem::{Error, Pe, TeamConfig};
use rushmem_device::Team;
use rushmem_test_kernels::team_numbers;
use rushmem_tests::{Setup, grid, without_line};

const PLAIN: TeamConfig = TeamConfig::new();

/// Returns this PE's rank in `from`, its size, and its members' ranks in `to`, as a kernel sees them. Asserts that the
/// host sees the same.
fn numbers(pe: &Pe, from: Team, to: Team) -> Result<Vec<i32>, Error> {
    let out = pe.alloc::<i32>(3 + pe.n_pes() as usize)?;
    pe.run(grid(1, 32), team_numbers(from, to, out))?;
    let seen = pe.read(out)?;
    pe.free(out)?;
    let number = |n: Option<u32>| n.map_or(-1, |n| n as i32);
    let of_host = |at: usize| match at {
        0 => number(pe.team_my_pe(from)),
        1 => number(pe.team_n_pes(from)),
        _ => number(pe.team_translate_pe(from, at as u32 - 2, to)),
    };
    assert_eq!(seen, (0..seen.len()).map(of_host).collect::<Vec<_>>());
    Ok(seen)
}

#[test]
fn world_team_is_the_job() {
    for pes in [1, 3] {
        let seen = Setup::new(pes).run(|pe| {
            pe.team_destroy(Team::WORLD)?;
            numbers(pe, Team::WORLD, Team::WORLD)
        });
        for (pe, seen) in seen.iter().enumerate() {
            let members: Vec<i32> = (0..pes as i32).chain([-1]).collect();
            assert_eq!(seen[..2], [pe as i32, pes as i32]);
            assert_eq!(seen[2..], members);
        }
    }
}

#[test]
fn node_and_rail_teams_cover_a_job_of_threads() {
    let seen = Setup::new(3).run(|pe| {
        let teams = [Team::SHARED, Team::NODE, Team::RAIL];
        for team in teams {
            numbers(pe, team, Team::WORLD)?;
        }
        Ok(teams.map(|team| pe.team_pes(team).unwrap()))
    });
    for (me, [shared, node, rail]) in (0..).zip(seen) {
        assert!(shared.contains(&me));
        assert_eq!((node, rail), (vec![0, 1, 2], vec![me]));
    }
}

#[test]
fn invalid_teams_have_no_pe_numbers() {
    let seen = Setup::new(2).run(|pe| {
        let team = pe.team_split_strided(Team::WORLD, 0, 1, 2, PLAIN)?;
        pe.team_destroy(team)?;
        assert!(team.is_valid() && !Team::INVALID.is_valid());
        pe.team_destroy(Team::INVALID)?;
        let twice = pe.team_destroy(team).unwrap_err().to_string();
        assert!(
            twice.starts_with("team_destroy: Team") && twice.contains("or has been destroyed"),
            "{twice}"
        );
        Ok([numbers(pe, Team::INVALID, Team::WORLD)?, numbers(pe, team, Team::WORLD)?])
    });
    assert_eq!(seen, vec![[vec![-1; 5], vec![-1; 5]]; 2]);
}

#[test]
fn strided_teams_with_positive_zero_and_negative_strides() {
    for pes in [1, 2, 5, 6] {
        let n = pes as i32;
        for (start, stride, size) in
            [(0, 1, n), (n - 1, -1, n), (n / 2, 0, 1), (0, 2, (n + 1) / 2), (n - 1, -3, 1)]
        {
            let members: Vec<i32> = (0..size).map(|k| start + k * stride).collect();
            let seen = Setup::new(pes).run(|pe| {
                let team = pe.team_split_strided(Team::WORLD, start as u32, stride, size as u32, PLAIN)?;
                let seen = numbers(pe, team, Team::WORLD)?;
                // Split this team again: some of its members, in descending order.
                let half = match team {
                    Team::INVALID => Team::INVALID,
                    team => {
                        pe.team_split_strided(team, size as u32 - 1, -1, (size as u32).div_ceil(2), PLAIN)?
                    }
                };
                Ok((team.is_valid(), seen, numbers(pe, half, Team::WORLD)?))
            });
            for (me, (valid, seen, half)) in (0..).zip(seen) {
                let Some(mine) = members.iter().position(|&pe| pe == me) else {
                    assert!(!valid);
                    assert_eq!(seen, vec![-1; pes as usize + 3]);
                    continue;
                };
                assert_eq!(seen[..2], [mine as i32, size]);
                assert_eq!(seen[2..][..size as usize], members);
                assert!(seen[2 + size as usize..].iter().all(|&n| n == -1));
                let wanted: Vec<i32> =
                    members.iter().rev().take(members.len().div_ceil(2)).copied().collect();
                if wanted.contains(&me) {
                    assert_eq!(half[2..][..wanted.len()], wanted);
                } else {
                    assert_eq!(half[0], -1);
                }
            }
        }
    }
}

#[test]
fn invalid_strides_are_rejected_on_all_members() {
    let told = Setup::new(3).run(|pe| {
        let bad = [(0, 1, 4), (2, -1, 4), (3, 1, 1), (0, 0, 2), (0, 1, 0), (0, 2, 3)];
        let errors = bad.map(|(start, stride, size)| {
            without_line(&pe.team_split_strided(Team::WORLD, start, stride, size, PLAIN).unwrap_err())
        });
        // The errors do not affect the next call.
        assert_eq!(numbers(pe, pe.team_split_strided(Team::WORLD, 0, 1, 3, PLAIN)?, Team::WORLD)?[1], 3);
        Ok(errors)
    });
    assert_eq!(told[0][0], "team_split_strided: members 0 to 3 of a team of 3");
    assert_eq!(told[0][3], "team_split_strided: a stride of 0 names one member, not 2");
    assert_eq!(told, vec![told[0].clone(); 3]);
}

#[test]
fn two_dimensional_splits_of_ragged_teams() {
    for pes in [1, 5, 6] {
        let seen = Setup::new(pes).run(|pe| {
            let mut seen = Vec::new();
            for width in 1..=pes + 1 {
                let (row, column) = pe.team_split_2d(Team::WORLD, width, PLAIN, PLAIN)?;
                numbers(pe, row, column)?;
                seen.push((pe.team_pes(row).unwrap(), pe.team_pes(column).unwrap()));
                pe.team_destroy(row)?;
                pe.team_destroy(column)?;
            }
            let error = pe.team_split_2d(Team::WORLD, 0, PLAIN, PLAIN).unwrap_err();
            assert_eq!(without_line(&error), "team_split_2d: a row has at least one member");
            Ok(seen)
        });
        for (me, seen) in (0..).zip(seen) {
            for (width, (row, column)) in (1..).zip(seen) {
                let at = |test: &dyn Fn(u32) -> bool| (0..pes).filter(|&pe| test(pe)).collect::<Vec<u32>>();
                assert_eq!(row, at(&|pe| pe / width == me / width), "{pes} PEs in rows of {width}");
                assert_eq!(column, at(&|pe| pe % width == me % width), "{pes} PEs in rows of {width}");
            }
        }
    }
}

#[test]
fn team_from_a_list_is_created_by_its_members_only() {
    let seen = Setup::new(7).run(|pe| {
        let mut seen = Vec::new();
        // Twice, because the second call must create another team.
        for _ in 0..2 {
            if [5, 1, 6].contains(&pe.my_pe()) {
                let team = pe.team_from_pes(&[5, 1, 6], PLAIN)?;
                seen.push(numbers_of(pe, team)?);
            }
        }
        pe.host_sync()?;
        Ok(seen)
    });
    for (me, seen) in seen.into_iter().enumerate() {
        match [5, 1, 6].iter().position(|&pe| pe == me) {
            Some(mine) => assert_eq!(seen, vec![vec![mine as u32, 3, 5, 1, 6]; 2]),
            None => assert!(seen.is_empty()),
        }
    }
}

/// Returns a team's size and ranks as the host sees them. A kernel would need symmetric memory, which only all PEs
/// together can allocate.
fn numbers_of(pe: &Pe, team: Team) -> Result<Vec<u32>, Error> {
    let mut numbers = vec![pe.team_my_pe(team).unwrap(), pe.team_n_pes(team).unwrap()];
    numbers.extend(pe.team_pes(team).unwrap());
    Ok(numbers)
}

#[test]
fn invalid_lists_are_rejected() {
    let told = Setup::new(2).run(|pe| {
        let other = 1 - pe.my_pe();
        Ok([&[][..], &[0, 1, 0], &[0, 1, 2], &[other]]
            .map(|pes| without_line(&pe.team_from_pes(pes, PLAIN).unwrap_err())))
    });
    let wanted = [
        "team_from_pes: PE 0 is not one of []",
        "team_from_pes: PE 0 is named twice",
        "team_from_pes: there is no PE 2: the job has 2",
        "team_from_pes: PE 0 is not one of [1]",
    ];
    assert_eq!(told[0], wanted);
}

#[test]
fn error_names_the_missing_member() {
    let told = Setup::new(3).with("bootstrap_timeout", "2s").run(|pe| {
        if pe.my_pe() == 1 {
            // Longer than the deadline of the others' call, and shorter than that of their next one.
            std::thread::sleep(Duration::from_secs(3));
            return Ok(String::new());
        }
        Ok(without_line(&pe.team_from_pes(&[0, 1, 2], PLAIN).unwrap_err()))
    });
    let wanted = "PEs [1] did not call team_from_pes([0, 1, 2], 0 contexts) within 2s";
    assert_eq!([&told[0], &told[2]], [wanted; 2]);
}

#[test]
fn error_names_a_pe_with_other_arguments() {
    let told = Mutex::new(vec![String::new(); 3]);
    let result = Setup::new(3).try_run(|pe| {
        let size = if pe.my_pe() == 2 { 3 } else { 2 };
        let error = pe.team_split_strided(Team::WORLD, 0, 1, size, PLAIN).unwrap_err();
        told.lock().unwrap()[pe.my_pe() as usize] = error.to_string();
        pe.host_sync()?;
        // The next call has the same arguments on all PEs and succeeds.
        numbers(pe, pe.team_split_strided(Team::WORLD, 0, 1, 3, PLAIN)?, Team::WORLD)
    });
    assert!(result.is_ok(), "{result:?}");
    let told = told.into_inner().unwrap();
    assert!(
        told[0].starts_with("PE 2 called team_split_strided with team_split_strided(0, 1, 3,"),
        "{}",
        told[0]
    );
    assert_eq!(told[1], told[0]);
    assert!(
        told[2].starts_with("PE 0 called team_split_strided with team_split_strided(0, 1, 2,"),
        "{}",
        told[2]
    );
}

#[test]
fn team_configuration_is_read_back() {
    Setup::new(2).run(|pe| {
        let team = pe.team_split_strided(Team::WORLD, 0, 1, 2, PLAIN.contexts(3))?;
        assert_eq!(pe.team_config(team), Some(PLAIN.contexts(3)));
        assert_eq!(pe.team_config(Team::WORLD), Some(PLAIN));
        assert_eq!(pe.team_config(Team::INVALID), None);
        Ok(())
    });
}

#[test]
fn teams_are_created_and_destroyed_a_thousand_times() {
    Setup::new(2).with("teams", 6).run(|pe| {
        let mut before = Team::INVALID;
        for _ in 0..1000 {
            let team = pe.team_split_strided(Team::WORLD, 0, 1, 2, PLAIN)?;
            assert_eq!((team.slot(), team == before), (Team::PREDEFINED, false));
            pe.team_destroy(team)?;
            before = team;
        }
        Ok(())
    });
}

#[test]
fn team_beyond_the_limit_is_rejected_on_all_members() {
    let told = Setup::new(3).with("teams", 6).run(|pe| {
        // PE 0 is in two teams, the others in one.
        let few = pe.team_split_strided(Team::WORLD, 0, 1, 1, PLAIN)?;
        let all = pe.team_split_strided(Team::WORLD, 0, 1, 3, PLAIN)?;
        let (line, error) = (line!(), pe.team_split_strided(Team::WORLD, 0, 1, 3, PLAIN).unwrap_err());
        // A team without PE 0 still fits. A team with PE 0 fits once there is space.
        let rest = pe.team_split_strided(Team::WORLD, 1, 1, 2, PLAIN)?;
        assert_eq!(rest.is_valid(), pe.my_pe() != 0);
        for team in [few, rest] {
            pe.team_destroy(team)?;
        }
        let again = pe.team_split_strided(Team::WORLD, 0, 1, 3, PLAIN)?;
        numbers(pe, again, all)?;
        Ok((line, error.to_string()))
    });
    let wanted = "team_split_strided: a member is in 6 teams already, including 4 predefined ones: destroy a team, or \
                  raise RUSHMEM_TEAMS";
    for (line, text) in told {
        assert_eq!(text, format!("{wanted}, at {}:{line}", file!()));
    }
}
