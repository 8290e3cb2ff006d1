//! Sends the number of each PE to the next PE.

mod kernels;

use rushmem::prelude::*;
use rushmem::{Error, Ptx};

/// The kernels for GPUs.
const KERNELS: Ptx = rushmem::ptx!("kernels");

fn main() -> Result<(), Error> {
    Job::new()?.kernels(KERNELS).run(|pe| {
        let received = pass_on(pe)?;
        println!("PE {} of {} received {received}", pe.my_pe(), pe.n_pes());
        Ok::<_, Error>(())
    })?;
    Ok(())
}

/// Sends the number of this PE to the next PE. Returns the number that arrived.
fn pass_on(pe: &Pe) -> Result<u32, Error> {
    let (inbox, message) = (pe.alloc::<u32>(1)?, pe.alloc::<u32>(1)?);
    let arrived = pe.alloc_one::<Signal>()?;
    pe.write(message, &[pe.my_pe()])?;

    let one_block = LaunchConfig::new(1, 32);
    pe.run(one_block, kernels::pass_on(inbox, message, arrived))?;
    Ok(pe.read(inbox)?[0])
}

#[cfg(test)]
mod tests {
    use rushmem::config::Config;

    use super::*;

    #[test]
    fn each_pe_receives_the_number_of_the_previous_pe() -> Result<(), Error> {
        let mut config = Config::load()?;
        config.set("pes", "4")?;
        let received = Job::with_config(config).kernels(KERNELS).run(pass_on)?;
        assert_eq!(received, [3, 0, 1, 2]);
        Ok(())
    }
}
