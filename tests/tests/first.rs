use rushmem::config::Config;
use rushmem::{Grid, Job};

#[test]
fn ring() {
    let mut config = Config::default();
    config.set("pes", "4").unwrap();
    config.set("timeout", "3s").unwrap();
    let r = Job::with_config(config).run(|pe| {
        let dst = pe.alloc::<u32>(1000)?;
        let src = pe.alloc::<u32>(1000)?;
        let arrived = pe.alloc_one::<u64>()?;
        let data: Vec<u32> = (0..1000).map(|i| pe.my_pe() * 10000 + i).collect();
        pe.write(src, &data)?;
        pe.barrier()?;
        pe.run(
            Grid { blocks: 3, threads: 33, shared_bytes: 0 },
            rushmem_example_kernels::ring(dst, src, arrived),
        )?;
        let left = (pe.my_pe() + pe.n_pes() - 1) % pe.n_pes();
        let want: Vec<u32> = (0..1000).map(|i| left * 10000 + i).collect();
        assert_eq!(pe.read(dst)?, want);
        Ok::<_, rushmem::Error>(())
    });
    if let Err(e) = &r {
        println!("{e}");
    }
    r.unwrap();
}
