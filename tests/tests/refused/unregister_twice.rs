use rushmem::{Error, Pe};

fn twice(pe: &Pe) -> Result<(), Error> {
    let mine = pe.register(vec![0u64; 8])?;
    pe.unregister(mine)?;
    pe.unregister(mine)?;
    Ok(())
}

fn main() {}
