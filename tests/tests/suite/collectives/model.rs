//! A sequential model of collective calls, which applies them to the memory of all PEs, one call at a time.

use rushmem::{Error, Pe};
use rushmem_device::{Bf16, F16, Signal, SymSlice, Team, ValueIndex};
use rushmem_test_kernels::{GroupKind, STEP_WORDS, Step, collectives, grid_collectives};
use rushmem_tests::grid;

/// One collective step of a block, with the arguments of all members of its team.
#[derive(Clone, Debug)]
pub(super) struct TeamStep {
    pub(super) code: Step,
    /// Index of the team; 3 is the world team.
    pub(super) team: usize,
    pub(super) dst: u64,
    pub(super) src: u64,
    /// Length for each member, in bytes. It varies between members for `Collect` and `Delay` only.
    pub(super) n: Vec<u64>,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
}

impl TeamStep {
    pub(super) fn new(code: Step, team: usize, dst: u64, src: u64, n: u64, a: u64, b: u64) -> Self {
        Self { code, team, dst, src, n: vec![n], a, b, c: 0 }
    }

    pub(super) fn n_of(&self, member: usize) -> u64 {
        self.n[member % self.n.len()]
    }

    fn words(&self, member: usize) -> [u64; STEP_WORDS] {
        [self.code as u64, self.team as u64, self.dst, self.src, self.n_of(member), self.a, self.b, self.c]
    }

    /// Applies the step to the memory of the team's members, in team order.
    pub(super) fn model(&self, memory: &mut [Vec<u8>], members: &[usize]) {
        let (dst, src, n) = (self.dst as usize, self.src as usize, self.n_of(0) as usize);
        let (all, a) = (members.len(), self.a as usize);
        let sources = |len: usize| -> Vec<Vec<u8>> {
            members.iter().map(|&pe| memory[pe][src..src + len].to_vec()).collect()
        };
        // The bytes that each member receives.
        let got: Vec<Vec<u8>> = match self.code {
            Step::Broadcast => vec![sources(n)[a].clone(); all],
            Step::Fcollect => vec![sources(n).concat(); all],
            Step::Collect => {
                let part = |(i, &pe): (usize, &usize)| memory[pe][src..src + self.n_of(i) as usize].to_vec();
                vec![members.iter().enumerate().map(part).collect::<Vec<_>>().concat(); all]
            }
            Step::Alltoall => {
                let sources = sources(n * all);
                let block =
                    |j: usize| sources.iter().map(|s| s[j * n..(j + 1) * n].to_vec()).collect::<Vec<_>>();
                (0..all).map(|j| block(j).concat()).collect()
            }
            Step::Reduce => vec![folded(self.a, self.b, &sources(n)); all],
            Step::ReduceScatter => {
                let whole = folded(self.a, self.b, &sources(n * all));
                (0..all).map(|i| whole[i * n..(i + 1) * n].to_vec()).collect()
            }
            Step::Scan => {
                let sources = sources(n);
                let until = |i: usize| i + 1 - a;
                let sum = |i: usize| match until(i) {
                    0 => vec![0; n],
                    until => folded(0, self.b, &sources[..until]),
                };
                (0..all).map(sum).collect()
            }
            Step::PutSignal | Step::PutFence => {
                let data = sources(n)[a].clone();
                let to = members[self.b as usize];
                memory[to][dst..dst + n].copy_from_slice(&data);
                return;
            }
            Step::Sync | Step::Barrier | Step::Arrive | Step::Wait | Step::Delay | Step::End => return,
        };
        for (&pe, got) in members.iter().zip(got) {
            memory[pe][dst..dst + got.len()].copy_from_slice(&got);
        }
    }
}

/// Returns the smaller value, the first one if they are equal, and NaN only if both are NaN. `f32::min` leaves the sign
/// of a zero result undefined.
fn least<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[allow(clippy::eq_op)] // true for NaN
    if b < a || a != a { b } else { a }
}

/// Returns the larger value, by the same rules as [`least`].
fn most<T: PartialOrd + Copy>(a: T, b: T) -> T {
    #[allow(clippy::eq_op)] // true for NaN
    if b > a || a != a { b } else { a }
}

/// Reduces the sources by operation `op` on elements of type `kind`, in team order.
fn folded(op: u64, kind: u64, sources: &[Vec<u8>]) -> Vec<u8> {
    macro_rules! by {
        ($t:ty, $f:expr) => {{
            let f: &dyn Fn($t, $t) -> $t = &$f;
            let elements = |bytes: &Vec<u8>| -> Vec<$t> {
                bytes.chunks(size_of::<$t>()).map(bytemuck::pod_read_unaligned).collect()
            };
            let sum = sources
                .iter()
                .map(elements)
                .reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect());
            bytemuck::cast_slice(&sum.unwrap()).to_vec()
        }};
    }
    macro_rules! integer {
        ($t:ty) => {
            match op {
                0 => by!($t, |a: $t, b: $t| a.wrapping_add(b)),
                1 => by!($t, |a: $t, b: $t| a.wrapping_mul(b)),
                2 => by!($t, |a: $t, b: $t| a.min(b)),
                3 => by!($t, |a: $t, b: $t| a.max(b)),
                4 => by!($t, |a: $t, b: $t| a & b),
                5 => by!($t, |a: $t, b: $t| a | b),
                _ => by!($t, |a: $t, b: $t| a ^ b),
            }
        };
    }
    macro_rules! float {
        ($t:ty, $up:expr, $down:expr) => {
            match op {
                0 => by!($t, |a, b| $down($up(a) + $up(b))),
                1 => by!($t, |a, b| $down($up(a) * $up(b))),
                2 => by!($t, |a, b| $down(least($up(a), $up(b)))),
                _ => by!($t, |a, b| $down(most($up(a), $up(b)))),
            }
        };
    }
    match kind {
        0 => integer!(u8),
        1 => integer!(i8),
        2 => integer!(u16),
        3 => integer!(i16),
        4 => integer!(u32),
        5 => integer!(i32),
        6 => integer!(u64),
        7 => integer!(i64),
        8 => float!(F16, F16::to_f32, F16::from_f32),
        9 => float!(Bf16, Bf16::to_f32, Bf16::from_f32),
        10 => float!(f32, |x: f32| x, |x: f32| x),
        11 => float!(f64, |x: f64| x, |x: f64| x),
        _ => by!(ValueIndex, |a: ValueIndex, b: ValueIndex| {
            let better = if op == 2 { b.value < a.value } else { b.value > a.value };
            if better || b.value == a.value && b.index < a.index { b } else { a }
        }),
    }
}

/// A job's program: the steps of each block, and the teams that they use.
pub(super) struct Plan {
    pub(super) group_kind: GroupKind,
    pub(super) threads: u32,
    pub(super) blocks: Vec<Vec<TeamStep>>,
    /// Up to 3 teams, as lists of their PEs.
    pub(super) teams: Vec<Vec<u32>>,
    pub(super) bytes: usize,
    pub(super) signals: usize,
}

impl Plan {
    /// Returns the initial memory of a PE. The second-highest bit of each byte is 0, so no float is NaN or infinite.
    pub(super) fn memory(&self, pe: u32) -> Vec<u8> {
        let word = |i: u64| (i * 7 + u64::from(pe) * 13 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..self.bytes as u64).map(|i| (word(i) >> 43) as u8 & 0xbf).collect()
    }

    fn members(&self, step: &TeamStep, pes: u32) -> Vec<usize> {
        match self.teams.get(step.team) {
            Some(team) => team.iter().map(|&pe| pe as usize).collect(),
            None => (0..pes as usize).collect(),
        }
    }

    pub(super) fn model(&self, pes: u32) -> Vec<Vec<u8>> {
        let mut memory: Vec<Vec<u8>> = (0..pes).map(|pe| self.memory(pe)).collect();
        for step in self.blocks.iter().flatten() {
            step.model(&mut memory, &self.members(step, pes));
        }
        memory
    }

    /// Runs the program on a PE and returns the PE's memory afterwards.
    pub(super) fn run(&self, pe: &Pe) -> Result<Vec<u8>, Error> {
        self.launch(pe, |pe, [one, two, three], steps, bytes, signals| {
            let call = collectives(self.group_kind as u32, one, two, three, steps, bytes, signals);
            pe.run(grid(self.blocks.len() as u32, self.threads), call)
        })
    }

    /// Runs the steps of the only block with grids of `blocks` blocks, and returns this PE's final memory. With
    /// `ready`, the calls are made without barriers.
    fn run_by_grid(&self, pe: &Pe, blocks: u32, ready: bool) -> Result<Vec<u8>, Error> {
        self.launch(pe, |pe, [one, two, three], steps, bytes, _| {
            let call = grid_collectives(ready.into(), one, two, three, steps, bytes);
            pe.launch_collective(grid(blocks, self.threads), call)?.wait()
        })
    }

    fn launch(
        &self,
        pe: &Pe,
        launch: impl Fn(&Pe, [Team; 3], SymSlice<u64>, SymSlice<u8>, SymSlice<Signal>) -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        let (me, pes) = (pe.my_pe(), pe.n_pes());
        let mut teams = [Team::INVALID; 3];
        for (team, members) in teams.iter_mut().zip(&self.teams) {
            if members.contains(&me) {
                *team = pe.team_from_pes(members, rushmem::TeamConfig::new())?;
            }
        }
        let most = self.blocks.iter().map(Vec::len).max().unwrap_or(0);
        let share = (most + 1) * STEP_WORDS;
        let mut text = vec![0; share * self.blocks.len()];
        for (list, steps) in text.chunks_mut(share).zip(&self.blocks) {
            let mine = steps.iter().filter_map(|step| {
                let member = self.members(step, pes).iter().position(|&pe| pe == me as usize)?;
                Some(step.words(member))
            });
            for (to, words) in list.chunks_mut(STEP_WORDS).zip(mine) {
                to.copy_from_slice(&words);
            }
        }
        let (steps, bytes) = (pe.alloc::<u64>(text.len())?, pe.alloc::<u8>(self.bytes)?);
        let signals = pe.alloc::<Signal>(self.signals.max(1))?;
        pe.write(steps, &text)?;
        pe.write(bytes, &self.memory(me))?;
        pe.host_sync()?;
        launch(pe, teams, steps, bytes, signals)?;
        pe.host_sync()?;
        let found = pe.read(bytes)?;
        for team in teams {
            pe.team_destroy(team)?;
        }
        pe.free(steps)?;
        pe.free(bytes)?;
        pe.free(signals)?;
        Ok(found)
    }

    /// Runs the program and panics at the first byte that differs from the model.
    pub(super) fn check(&self, what: &str, pe: &Pe) -> Result<(), Error> {
        self.compare(what, pe, self.run(pe)?);
        Ok(())
    }

    /// Runs the program by grids and panics at the first byte that differs from the model.
    pub(super) fn check_by_grid(&self, what: &str, pe: &Pe, blocks: u32, ready: bool) -> Result<(), Error> {
        self.compare(what, pe, self.run_by_grid(pe, blocks, ready)?);
        Ok(())
    }

    fn compare(&self, what: &str, pe: &Pe, found: Vec<u8>) {
        let wanted = &self.model(pe.n_pes())[pe.my_pe() as usize];
        if let Some(at) = found.iter().zip(wanted).position(|(a, b)| a != b) {
            let range = at..(at + 16).min(found.len());
            panic!(
                "{what}: PE {} has {:?} at {at}, not {:?}: {:?}",
                pe.my_pe(),
                &found[range.clone()],
                &wanted[range],
                self.blocks
            );
        }
    }
}
