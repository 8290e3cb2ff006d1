//! Example: every PE sends a number to the next PE, with one put and one signal.
//!
//! ```sh
//! RUSHMEM_PES=4 cargo run --release -p rushmem-examples --bin hello    # PEs as threads
//! target/release/rushmem run -n 4 hello                                # PEs as processes
//! ```

use rushmem::{Error, Job, LaunchConfig};
use rushmem_device::Signal;

fn main() -> Result<(), Error> {
    Job::new()?.kernels(rushmem::ptx!("rushmem_example_kernels")).run(|pe| {
        let (inbox, message) = (pe.alloc::<u32>(1)?, pe.alloc::<u32>(1)?);
        let arrived = pe.alloc_one::<Signal>()?;
        pe.write(message, &[pe.my_pe()])?;

        let one_block = LaunchConfig::new(1, 32);
        pe.run(one_block, rushmem_example_kernels::hello(inbox, message, arrived))?;

        let (me, n, received) = (pe.my_pe(), pe.n_pes(), pe.read(inbox)?[0]);
        assert_eq!(received, (me + n - 1) % n, "PE {me} received the number of another PE");
        println!("PASS hello: PE {me} of {n} received {received}");
        Ok::<_, Error>(())
    })?;
    Ok(())
}
