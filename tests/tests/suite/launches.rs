//! Tests of kernel launches: on one PE, on all PEs together, and in sequence.

use rushmem::{Error, LaunchConfig, Operations, Pe};
use rushmem_device::{Signal, SymSlice};
use rushmem_test_kernels::{
    chain, few_threads, fill_with, meet_with_all_blocks, put_cells, put_nowhere, store_coordinates,
    store_extents,
};
use rushmem_tests::{Setup, grid};

use super::setups;

#[test]
fn blocks_of_a_collective_launch_wait_for_each_other() {
    for setup in setups::all() {
        setup.run(|pe| {
            let signals = pe.alloc::<Signal>(8)?;
            pe.launch_collective(grid(8, 33), chain(signals))?.wait()?;
            pe.host_sync()?;
            assert_eq!(pe.read(signals)?, [1; 8], "{setup}");
            pe.host_sync()
        });
    }
}

#[test]
fn rejects_a_grid_larger_than_the_maximum() {
    // The largest grid needs many stacks, so make them small. Large blocks leave stacks for tests that run
    // concurrently.
    let setup = Setup::new(2).with("native_stack", "64KiB");
    let largest = setup.run(|pe| {
        let shape = |blocks| LaunchConfig::new(blocks, 1024).with_shared_bytes(256);
        let none = pe.alloc::<Signal>(1)?;
        let largest = pe.max_grid(&chain(none), 1024, 256)?;
        assert!(largest.blocks() > 0 && largest == shape(largest.blocks()));
        let signals = pe.alloc::<Signal>(largest.blocks() as usize)?;
        pe.launch_collective(largest, chain(signals))?.wait()?;
        pe.host_sync()?;
        assert_eq!(pe.read(signals)?, vec![1; signals.len()]);

        // Too large on one PE only, yet both PEs must reject it.
        let mine = shape(if pe.my_pe() == 1 { largest.blocks() + 1 } else { 1 });
        let error = pe.launch_collective(mine, chain(none)).err().expect("it does not fit");
        let Error::GridTooLarge { kernel: "chain", pe: 1, blocks, room } = error else { panic!("{error}") };
        assert_eq!((blocks, room), (largest.blocks() + 1, largest.blocks()));
        pe.host_sync()?;
        assert_eq!(pe.read(none)?, [0], "a kernel that was refused has run");
        Ok(largest.blocks())
    });
    assert_eq!(largest[0], largest[1]);
}

#[test]
fn rejects_blocks_above_the_thread_limit_of_the_kernel() {
    Setup::new(2).run(|pe| {
        let count = pe.alloc_one::<u32>()?;
        let call = || few_threads(count);
        pe.run(grid(1, 96), call())?;
        assert_eq!(pe.read_one(count)?, 96);
        let refused = |error: Option<Error>| {
            let said = error.expect("too many threads").to_string();
            assert!(
                said.contains("few_threads with 97 threads") && said.contains("max_threads = 96"),
                "{said}"
            );
        };
        refused(pe.run(grid(1, 97), call()).err());
        refused(pe.launch_collective(grid(1, 97), call()).err());
        refused(pe.max_grid(&call(), 97, 0).err());
        let stream = pe.stream()?;
        refused(stream.launch(grid(1, 97), call()).err());
        refused(stream.capture(|stream| stream.launch(grid(1, 97), call())).err());
        pe.host_sync()?;
        assert_eq!(pe.read_one(count)?, 96, "a kernel that was refused has run");
        Ok(())
    });
}

#[test]
fn collective_launch_rejects_different_kernels() {
    let error = Setup::new(2)
        .try_run(|pe| {
            let words = pe.alloc::<u64>(1)?;
            let call = if pe.my_pe() == 0 { chain(words) } else { fill_with(words, 1) };
            pe.launch_collective(grid(1, 1), call)?.wait()
        })
        .expect_err("two kernels");
    assert!(error.to_string().contains("launch_collective(chain)"), "{error}");
}

#[test]
fn kernel_without_waits_may_be_launched_on_one_pe() {
    for setup in setups::all() {
        setup.run(|pe| {
            let cells = pe.alloc::<u64>(300)?;
            pe.host_sync()?;
            // More blocks than can run concurrently. No other PE launches anything.
            if pe.my_pe() == 0 {
                pe.run(grid(300, 32), put_cells(cells, 5))?;
                pe.quiet()?;
            }
            pe.host_sync()?;
            let wanted = if pe.my_pe() == 1 % pe.n_pes() { 5 } else { 0 };
            assert_eq!(pe.read(cells)?, vec![wanted; 300], "{setup}");
            pe.host_sync()
        });
    }
}

#[test]
fn grid_barriers_and_pe_barriers_combine() {
    for setup in setups::all() {
        let bad = setup.run(|pe| {
            let cells = pe.alloc::<u64>(4 * pe.n_pes() as usize)?;
            let bad = pe.alloc_one::<u64>()?;
            pe.launch_collective(grid(4, 40), meet_with_all_blocks(cells, bad, 5))?.wait()?;
            pe.quiet()?;
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn error_is_returned_by_the_launch_that_recorded_it() {
    Setup::new(2).run(|pe| {
        let data = pe.alloc::<u64>(100)?;
        for _ in 0..60 {
            let before = pe.launch(grid(2, 32), fill_with(data, 3))?;
            let failed = pe.launch(grid(1, 32), put_nowhere(data.at(0)))?;
            before.wait()?;
            let error = failed.wait().expect_err("there is no such PE");
            assert!(matches!(error, Error::Device { .. }), "{error}");
            assert!(error.to_string().contains("(kernel put_nowhere, block 0, thread 0)"), "{error}");
        }
        pe.host_sync()
    });
}

#[test]
fn launches_of_a_pe_run_in_order() {
    Setup::new(2).run(|pe| {
        let data = pe.alloc::<u64>(100)?;
        let first = pe.launch(grid(2, 32), fill_with(data, 1))?;
        let second = pe.launch(grid(2, 32), fill_with(data, 2))?;
        second.wait()?;
        assert_eq!(pe.read(data)?, [2; 100]);
        first.wait()?;

        let before = pe.launch(grid(2, 32), fill_with(data, 3))?;
        let failed = pe.launch(grid(1, 32), put_nowhere(data.at(0)))?;
        let behind = pe.launch(grid(2, 32), fill_with(data, 4))?;
        before.wait()?;
        let error = behind.wait().expect_err("the one before it failed");
        let text = "fill_with did not run, because put_nowhere, launched before it, failed";
        assert_eq!(error.to_string(), text);
        let error = failed.wait().expect_err("there is no such PE");
        assert!(matches!(error, Error::Device { .. }), "{error}");
        assert_eq!(pe.read(data)?, [3; 100]);
        pe.run(grid(2, 32), fill_with(data, 5))?;
        assert_eq!(pe.read(data)?, [5; 100]);
        pe.host_sync()
    });
}

#[test]
fn dropped_failed_launch_fails_the_job() {
    let run = |end: fn(&Pe, SymSlice<u64>) -> Result<(), Error>| {
        Setup::new(1).try_run(|pe| end(pe, pe.alloc::<u64>(1)?)).map(drop)
    };
    let error = run(|pe, data| {
        let _ = pe.launch(grid(1, 32), put_nowhere(data.at(0)))?;
        pe.run(grid(1, 32), fill_with(data, 1))
    });
    assert!(matches!(error, Err(Error::Device { .. })), "{error:?}");
    let error = run(|pe, data| pe.stream()?.launch(grid(1, 32), put_nowhere(data.at(0))));
    assert!(matches!(error, Err(Error::Operation { what: "put_nowhere", .. })), "{error:?}");
    // The wait has already reported the cause, so the dropped later launch adds nothing.
    run(|pe, data| {
        let failed = pe.launch(grid(1, 32), put_nowhere(data.at(0)))?;
        let _behind = pe.launch(grid(1, 32), fill_with(data, 1))?;
        assert!(matches!(failed.wait(), Err(Error::Device { .. })));
        Ok(())
    })
    .unwrap();
}

/// Asserts that the threads of a launch have distinct coordinates within the extents of `config`.
fn assert_places(pe: &Pe, config: LaunchConfig) -> Result<(), Error> {
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (config.grid_dim(), config.block_dim());
    let [width, height, depth] = [grid_x * block_x, grid_y * block_y, grid_z * block_z];
    let places = pe.alloc::<u32>((width * height * depth) as usize)?;
    pe.run(config, store_coordinates(places, width, height))?;
    let coordinates = |at: u32| (at / (width * height)) << 16 | (at / width % height) << 8 | (at % width);
    assert_eq!(pe.read(places)?, (0..width * height * depth).map(coordinates).collect::<Vec<_>>());

    let extents = pe.alloc::<u32>(6)?;
    pe.run(config, store_extents(extents))?;
    assert_eq!(pe.read(extents)?, [config.grid_dim(), config.block_dim()].concat());
    Ok(())
}

#[test]
fn launch_supports_up_to_three_dimensions() {
    Setup::new(1).run(|pe| {
        assert_places(pe, LaunchConfig::new(3, 40))?;
        assert_places(pe, LaunchConfig::new_2d([3, 2], [8, 5]))?;
        assert_places(pe, LaunchConfig::new_3d([2, 3, 2], [4, 2, 5]))?;
        let stream = pe.stream()?;
        let extents = pe.alloc::<u32>(6)?;
        stream.launch(LaunchConfig::new_2d([5, 7], [4, 8]), store_extents(extents))?;
        stream.wait()?;
        assert_eq!(pe.read(extents)?, [5, 7, 1, 4, 8, 1]);
        Ok(())
    });
}

#[test]
fn rejects_a_launch_with_too_many_threads_or_blocks() {
    Setup::new(1).run(|pe| {
        let extents = pe.alloc::<u32>(6)?;
        let too_many = [
            (LaunchConfig::new_2d([1, 1], [64, 64]), "4096 threads"),
            (LaunchConfig::new_3d([1 << 16, 1 << 16, 2], [1, 1, 1]), "4294967295 blocks"),
        ];
        for (config, number) in too_many {
            let error = pe.run(config, store_extents(extents)).unwrap_err().to_string();
            assert!(error.contains(number), "{error}");
        }
        Ok(())
    });
}
