use rushmem::{Error, Pe};

fn borrowed(pe: &Pe) -> Result<(), Error> {
    let mut words = [0u64; 8];
    let _mine = pe.register(&mut words)?;
    Ok(())
}

fn main() {}
