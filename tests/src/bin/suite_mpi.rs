//! Test program that uses MPI and Rushmem: each half of `MPI_COMM_WORLD` forms a job, with PEs in reverse rank order.

use std::process::ExitCode;

use rushmem::Job;
use rushmem::bootstrap::{Exchange, ExchangeError};
use rushmem_test_kernels::small_puts;
use rushmem_tests::mpi::Mpi;
use rushmem_tests::{grid, kernels};

/// Number of times that calls of MPI and Rushmem alternate.
const TURNS: u64 = 1000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

fn run() -> Result<(), ExchangeError> {
    let mpi = Mpi::begin()?;
    let world = mpi.world()?;
    let (rank, size) = (world.pe(), world.n_pes());
    let half = world.split((rank % 2) as i32, -(rank as i32))?;
    let job = Job::new()?.with_exchange(&half)?.kernels(kernels());
    let lines = job.run(|pe| -> Result<String, ExchangeError> {
        let (me, n) = (u64::from(pe.my_pe()), u64::from(pe.n_pes()));
        assert_eq!((pe.my_pe(), pe.n_pes()), (half.pe(), half.n_pes()));
        for turn in 0..TURNS {
            assert_eq!(half.sum(me + turn)?, n * turn + n * (n - 1) / 2);
            pe.host_sync()?;
        }
        let (dst, src) = (pe.alloc::<u32>(64)?, pe.alloc::<u32>(64)?);
        pe.write(src, &[pe.my_pe() + 100; 64])?;
        pe.host_sync()?;
        pe.run(grid(1, 64), small_puts(dst, src, 1, 1))?;
        pe.host_sync()?;
        let before = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
        assert_eq!(pe.read(dst)?, [before + 100; 64]);
        // MPI rank of each PE.
        let ranks = pe.allgather(&rank.to_le_bytes())?;
        let ranks: Vec<u8> = ranks.iter().map(|bytes| bytes[0]).collect();
        Ok(format!("rank {rank} of {size} is PE {me} of {n}; ranks {ranks:?}"))
    })?;
    println!("{}", lines[0]);
    mpi.end()
}
