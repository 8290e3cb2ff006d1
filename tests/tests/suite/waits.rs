//! Tests of waits for sets of words, of tests of sets, and of waits with an explicit timeout.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rushmem::{Error, Pe, WaitSet};
use rushmem_device::{Cmp, Error as Code, Lock, Signal};
use rushmem_test_kernels::{
    VainTest, WaitKind, any_in_turn, collect, flicker, take_lock, test_in_vain, test_sets, wait_in_vain,
    wrap_around,
};
use rushmem_tests::{Setup, grid};

use super::setups;

/// A set of words, and the arguments of a test.
#[derive(Clone, Debug)]
struct Set {
    words: Vec<i32>,
    values: Vec<i32>,
    status: Vec<i32>,
    cmp: u32,
    value: i32,
    vector: bool,
    masked: bool,
}

impl Set {
    /// Returns the indices of the tested words, and of those that satisfy the condition.
    fn model(&self) -> (Vec<usize>, Vec<usize>) {
        let holds = |i: usize| {
            let (found, wanted) = (self.words[i], if self.vector { self.values[i] } else { self.value });
            match self.cmp {
                0 => found == wanted,
                1 => found != wanted,
                2 => found > wanted,
                3 => found >= wanted,
                4 => found < wanted,
                5 => found <= wanted,
                _ => found.wrapping_sub(wanted) >= 0,
            }
        };
        let looked: Vec<usize> =
            (0..self.words.len()).filter(|&i| !self.masked || self.status[i] == 0).collect();
        let found = looked.iter().copied().filter(|&i| holds(i)).collect();
        (looked, found)
    }

    fn check(&self, pe: &Pe) {
        let n = self.words.len();
        let alloc = |data: &[i32]| {
            let object = pe.alloc::<i32>(n).unwrap();
            pe.write(object, data).unwrap();
            object
        };
        let (words, values, status) = (alloc(&self.words), alloc(&self.values), alloc(&self.status));
        let out = pe.alloc::<u64>(3 + n.max(1)).unwrap();
        let untouched = u64::MAX - 1;
        pe.write(out, &vec![untouched; out.len()]).unwrap();
        let call = test_sets(
            words,
            values,
            status,
            self.cmp,
            self.value,
            self.vector.into(),
            self.masked.into(),
            out,
        );
        pe.run(grid(1, 40), call).unwrap();
        let out_now = pe.read(out).unwrap();
        let (looked, found) = self.model();
        assert_eq!(out_now[0] == 1, looked.len() == found.len(), "all: {self:?}");
        match found.first() {
            None => assert_eq!(out_now[1], u64::MAX, "any: {self:?}"),
            Some(_) => assert!(found.contains(&(out_now[1] as usize)), "any: {self:?}"),
        }
        assert_eq!(out_now[2], found.len() as u64, "some: {self:?}");
        let mut indices: Vec<usize> = out_now[3..3 + found.len()].iter().map(|&i| i as usize).collect();
        indices.sort_unstable();
        assert_eq!(indices, found, "some: {self:?}");
        assert!(out_now[3 + found.len()..].iter().all(|&i| i == untouched), "{self:?}");
        for object in [words, values, status] {
            pe.free(object).unwrap();
        }
        pe.free(out).unwrap();
    }
}

fn set() -> impl Strategy<Value = Set> {
    let word = || prop_oneof![-2i32..3, Just(i32::MIN), Just(i32::MAX)];
    (0usize..20)
        .prop_flat_map(move |n| {
            let many = prop::collection::vec(word(), n);
            (many, prop::collection::vec(word(), n), prop::collection::vec(0i32..2, n))
        })
        .prop_flat_map(move |(words, values, status)| {
            (Just((words, values, status)), 0u32..7, word(), any::<bool>(), any::<bool>())
        })
        .prop_map(|((words, values, status), cmp, value, vector, masked)| Set {
            words,
            values,
            status,
            cmp,
            value,
            vector,
            masked,
        })
}

#[test]
fn tests_of_word_sets_match_the_model() {
    Setup::new(1).run(|pe| {
        let config = Config { cases: 150, failure_persistence: None, ..Config::default() };
        let ran = TestRunner::new(config).run(&set(), |set| {
            set.check(pe);
            Ok(())
        });
        assert!(ran.is_ok(), "{ran:?}");
        Ok(())
    });
}

#[test]
fn every_word_of_a_set_is_returned_once() {
    let rounds = 4;
    for setup in setups::all() {
        for (how, vector) in [
            (WaitKind::All, 0),
            (WaitKind::All, 1),
            (WaitKind::Any, 0),
            (WaitKind::Any, 1),
            (WaitKind::Some, 0),
            (WaitKind::Some, 1),
        ] {
            let told = setup.run(|pe| {
                let n = 3 * pe.n_pes() as usize;
                let (words, payload) = (pe.alloc::<u64>(n)?, pe.alloc::<u64>(n)?);
                let (values, status) = (pe.alloc::<u64>(n)?, pe.alloc::<i32>(n)?);
                // The buffer holds fewer indices than there may be.
                let (indices, told) = (pe.alloc::<u64>(2)?, pe.alloc::<u32>(n)?);
                let bad = pe.alloc_one::<u64>()?;
                let call =
                    collect(how as u32, vector, words, payload, values, status, indices, told, bad, rounds);
                pe.run(grid(1, 40), call)?;
                pe.host_sync()?;
                Ok((pe.read(told)?, pe.read_one(bad)?))
            });
            for (told, bad) in told {
                assert_eq!((told.iter().all(|&n| n == rounds), bad), (true, 0), "{setup}, {how:?}: {told:?}");
            }
        }
    }
}

#[test]
fn waits_for_an_empty_set_return_immediately() {
    Setup::new(1).run(|pe| {
        let (words, told) = (pe.alloc::<u32>(0)?, pe.alloc::<u32>(1)?);
        pe.run(grid(1, 33), any_in_turn(words, told, 5))?;
        assert_eq!(pe.read(told)?, [0]);
        Ok(())
    });
}

#[test]
fn wait_until_any_returns_every_word_in_turn() {
    Setup::new(1).run(|pe| {
        let (words, told) = (pe.alloc::<u32>(7)?, pe.alloc::<u32>(7)?);
        pe.run(grid(1, 33), any_in_turn(words, told, 21))?;
        assert_eq!(pe.read(told)?, [3; 7]);
        Ok(())
    });
}

#[test]
fn wait_with_timeout_reports_its_own_deadline() {
    for timeout in [0, 30_000_000] {
        let begin = Instant::now();
        Setup::new(2).run(|pe| {
            let (word, out) = (pe.alloc_one::<u64>()?, pe.alloc::<u64>(3 * 40)?);
            pe.write(word.as_slice(), &[5])?;
            // There must be no error, neither returned nor recorded.
            pe.run(grid(1, 40), wait_in_vain(word, timeout, out))?;
            assert_eq!(pe.read(out)?, [0, 1, 5].repeat(40));
            Ok(())
        });
        assert!(begin.elapsed() >= Duration::from_nanos(timeout));
    }
}

#[test]
fn wait_returns_the_value_that_satisfied_it() {
    for setup in setups::even() {
        let bad = setup.run(|pe| {
            let (signal, stop, bad) =
                (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
            pe.run(grid(1, 40), flicker(signal, stop, bad, 30))?;
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn waits_handle_counter_wraparound() {
    for setup in [Setup::new(1), Setup::new(2), Setup::new(3).with("sq_depth", 2)] {
        let bad = setup.run(|pe| {
            let (counter, bad) = (pe.alloc_one::<u32>()?, pe.alloc_one::<u64>()?);
            pe.run(grid(1, 1), wrap_around(counter, bad, 9))?;
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn endless_test_loop_meets_the_deadline() {
    for (kind, threads) in [
        (VainTest::One, 33),
        (VainTest::All, 40),
        (VainTest::Any, 40),
        (VainTest::Some, 40),
        (VainTest::Lock, 1),
    ] {
        Setup::new(2).with("timeout", "300ms").run(|pe| {
            let (words, lock) = (pe.alloc::<u64>(8)?, pe.alloc_one::<Lock>()?);
            if pe.my_pe() == 1 {
                pe.run(grid(1, 1), take_lock(lock))?;
            }
            pe.host_sync()?;
            if pe.my_pe() == 0 {
                let grid = grid(1, threads).with_shared_bytes(64);
                let error = pe.run(grid, test_in_vain(kind as u32, words, lock)).unwrap_err();
                let Error::Device { first, .. } = &error else { panic!("{kind:?}: {error}") };
                assert_eq!(first.code(), Some(Code::WaitTimeout), "{kind:?}: {error}");
            }
            pe.host_sync()
        });
    }
}

#[test]
fn endless_host_test_loop_meets_the_deadline() {
    Setup::new(1).with("timeout", "300ms").run(|pe| {
        let words = pe.alloc::<u64>(8)?;
        let mut set = WaitSet::new(words, Cmp::Eq, 7);
        let error = loop {
            if let Err(error) = pe.test_any(&mut set) {
                break error;
            }
        };
        assert!(matches!(error, Error::TestLoop { call: "test_any", .. }), "{error}");
        Ok(())
    });
}
