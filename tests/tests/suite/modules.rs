//! Tests of loading kernels into a running job.

use std::time::{Duration, Instant};

use rushmem::{Error, Job, Operations, Pe, Ptx};
use rushmem_device::{Error as Code, Signal, Sym, SymSlice};
use rushmem_example_kernels::ring;
use rushmem_tests::{Setup, grid, skip};

/// Returns the PTX of kernels that the jobs of this suite do not start with.
fn examples() -> Ptx {
    rushmem::ptx!("rushmem_example_kernels")
}

/// Runs `app` on every PE of a job that starts without kernels.
fn run(setup: &Setup, app: impl Fn(&Pe) -> Result<(), Error> + Send + Sync) {
    let job = Job::with_config(setup.config().clone());
    job.run(app).unwrap_or_else(|error| panic!("{error}"));
}

/// Whether the runtime looks up kernels by name. Without PTX it does not, and native kernels run instead.
fn named(test: &str) -> bool {
    let known = !examples().image.is_empty();
    if !known {
        skip(test, &format!("there is no PTX: {}", examples().omitted));
    }
    known
}

struct Ring {
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    /// One signal per round, for the arrival of the previous PE's data.
    arrived: SymSlice<Signal>,
}

impl Ring {
    fn new(pe: &Pe, rounds: usize) -> Result<Self, Error> {
        let ring = Self { dst: pe.alloc(100)?, src: pe.alloc(100)?, arrived: pe.alloc(rounds)? };
        pe.write(ring.src, &[pe.my_pe() + 7; 100])?;
        pe.host_sync()?;
        Ok(ring)
    }

    fn call(&self, round: usize) -> rushmem_device::kernel::Call {
        let arrived: Sym<Signal> = self.arrived.at(round);
        ring(self.dst, self.src, arrived)
    }

    /// Checks the data of a round that all PEs have completed, then clears the destination.
    fn check(&self, pe: &Pe) -> Result<(), Error> {
        pe.host_sync()?;
        let before = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
        assert_eq!(pe.read(self.dst)?, [before + 7; 100]);
        pe.write(self.dst, &[0; 100])?;
        pe.host_sync()
    }
}

/// Asserts that every way to launch the ring kernel is rejected for the reason `why`.
fn refused(pe: &Pe, ring: &Ring, why: &str) -> Result<(), Error> {
    let stream = pe.stream()?;
    let shape = grid(1, 32);
    let outcomes = [
        pe.launch(shape, ring.call(0)).map(drop),
        pe.launch_collective(shape, ring.call(0)).map(drop),
        pe.max_grid(&ring.call(0), 32, 0).map(drop),
        stream.launch(shape, ring.call(0)),
        stream.capture(|stream| stream.launch(shape, ring.call(0))).map(drop),
    ];
    for outcome in outcomes {
        let error = outcome.expect_err("the kernel is not loaded").to_string();
        assert!(error.starts_with(&format!("kernel ring is not available: {why}")), "{error}");
    }
    stream.wait()
}

#[test]
fn kernels_load_and_unload_during_a_job() {
    let named = named("kernels_load_and_unload_during_a_job");
    run(&Setup::new(2), |pe| {
        let ring = Ring::new(pe, 4)?;
        // Host-initiated operations need no kernels of the application.
        pe.put(ring.dst, ring.src, (pe.my_pe() + 1) % pe.n_pes())?;
        pe.quiet()?;
        ring.check(pe)?;
        if pe.is_gpu() {
            refused(pe, &ring, "the loaded PTX has no kernels;")?;
        }
        for round in 0..4 {
            let loaded = pe.load(examples())?;
            pe.host_sync()?;
            if round % 2 == 0 {
                pe.launch_collective(grid(2, 32), ring.call(round))?.wait()?;
            } else {
                let stream = pe.stream()?;
                stream.launch(grid(2, 32), ring.call(round))?;
                stream.wait()?;
            }
            ring.check(pe)?;
            if round % 2 == 0 {
                loaded.unload()
            } else {
                drop(loaded)
            }
            if named {
                refused(pe, &ring, "its module has been unloaded")?;
            }
        }
        Ok(())
    });
}

#[test]
fn launches_and_graphs_outlive_their_module() {
    let named = named("launches_and_graphs_outlive_their_module");
    run(&Setup::new(2), |pe| {
        let ring = Ring::new(pe, 3)?;
        let loaded = pe.load(examples())?;
        let stream = pe.stream()?;
        let graph = stream.capture(|stream| stream.launch(grid(1, 32), ring.call(1)))?;
        pe.host_sync()?;
        if pe.my_pe() == 0 {
            // The kernel waits for PE 1, which has not launched it yet.
            let waits = pe.launch(grid(1, 32), ring.call(0))?;
            loaded.unload();
            if named {
                refused(pe, &ring, "its module has been unloaded")?;
            }
            pe.host_sync()?;
            waits.wait()?;
        } else {
            pe.host_sync()?;
            pe.run(grid(1, 32), ring.call(0))?;
            loaded.unload();
        }
        ring.check(pe)?;

        graph.launch(&stream)?;
        stream.wait()?;
        ring.check(pe)?;
        drop(graph);

        let _again = pe.load(examples())?;
        pe.host_sync()?;
        pe.run(grid(1, 32), ring.call(2))?;
        ring.check(pe)
    });
}

#[test]
fn rejects_loading_two_kernels_of_the_same_name() {
    if !named("rejects_loading_two_kernels_of_the_same_name") {
        return;
    }
    run(&Setup::new(1), |pe| {
        let line = line!() + 1;
        let clash = |ptx: Ptx| pe.load(ptx).err().expect("the names are taken").to_string();
        let loaded = pe.load(examples())?;
        let text = "Pe::load: mine has a kernel collect, and so has rushmem_example_kernels, which is loaded; their \
                    names must differ";
        let image = ".visible .entry collect(\n)\n{}";
        assert_eq!(
            clash(Ptx { name: "mine", image, omitted: "", code: &[] }),
            format!("{text}, at {}:{line}", file!())
        );
        let copy = Ptx { name: "copy", ..examples() };
        assert!(clash(copy).starts_with("Pe::load: copy has a kernel "));
        loaded.unload();
        pe.load(copy)?.unload();

        // The names of the runtime's own kernels are reserved too.
        let image = ".visible .entry rushmem_order(\n)\n{}";
        let taken = clash(Ptx { name: "mine", image, omitted: "", code: &[] });
        assert!(taken.contains("rushmem_runtime_kernels"), "{taken}");
        Ok(())
    });
    let job = Job::with_config(Setup::new(1).config().clone());
    let twice = job.kernels(examples()).kernels(examples()).run(|_| Ok::<_, Error>(()));
    assert!(matches!(twice, Err(Error::Misuse { call: "Job::kernels", .. })), "{twice:?}");
}

#[test]
fn rejected_ptx_is_a_recoverable_error() {
    const BROKEN: Ptx = Ptx {
        name: "broken",
        image: ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry broken()\n{\n\tnonsense;\n}\n",
        omitted: "",
        code: &[],
    };
    run(&Setup::new(1), |pe| {
        // Natively, kernels are functions of the program, so the PTX is not compiled.
        match pe.load(BROKEN) {
            Ok(_) => assert!(!pe.is_gpu()),
            Err(error) => {
                assert!(pe.is_gpu(), "{error}");
                assert!(matches!(error, Error::Cuda(_)) && error.to_string().contains("broken"), "{error}");
            }
        }
        let (ring, _loaded) = (Ring::new(pe, 1)?, pe.load(examples())?);
        pe.run(grid(1, 32), ring.call(0))?;
        ring.check(pe)
    });
}

/// Loading must terminate. On a GPU it waits for running kernels, whose waits have a deadline.
#[test]
fn waiting_kernel_delays_loading_until_its_deadline() {
    const PROMPT_LIMIT: Duration = Duration::from_secs(40);
    run(&Setup::new(2).with("timeout", "2s"), |pe| {
        let (ring, other) = (Ring::new(pe, 1)?, Ring::new(pe, 1)?);
        if pe.my_pe() == 0 {
            let _loaded = pe.load(examples())?;
            let waits = pe.launch(grid(1, 32), ring.call(0))?;
            pe.host_sync()?;
            let error = waits.wait().expect_err("PE 1 does not launch it");
            let Error::Device { first, .. } = &error else { panic!("{error}") };
            assert_eq!(first.code(), Some(Code::WaitTimeout));
            pe.host_sync()?;
            pe.run(grid(1, 32), other.call(0))?;
        } else {
            pe.host_sync()?;
            let begin = Instant::now();
            let _loaded = pe.load(examples())?;
            assert!(begin.elapsed() < PROMPT_LIMIT, "{:?}", begin.elapsed());
            pe.host_sync()?;
            pe.run(grid(1, 32), other.call(0))?;
        }
        other.check(pe)
    });
}
