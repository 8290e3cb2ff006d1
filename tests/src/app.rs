//! The program that PEs run in multi-process tests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rushmem::config::Config;
use rushmem::{Checkpoint, Error, Job, Launch, Operations, Pe, RunningPe};
use rushmem_base::status_bytes;
use rushmem_device::{Cmp, Signal, Sym};
use rushmem_doctor::{Host, ProbedPairs, examine, probe};
use rushmem_test_kernels::{
    add_everywhere, end_the_job, endless, ping_pong, recurse, send_to_all, small_puts, store_everywhere,
    store_marks, wait_for_ever,
};

use crate::files::Files;
use crate::fork::fork_and_meet;
use crate::{cuts, experts, grid, kernels, losses, replacements};

/// Number of threads that send messages, over all blocks.
const THREADS: usize = 128;

/// Runs the action that the arguments `ACTION [PE|N]` select.
///
/// - `ring`, `qps`, `p2p`: each PE communicates with the others and prints the result.
/// - `signal`: each PE sends to the next one, waits for its own message, and synchronises with all PEs.
/// - `apart`: PE 0 synchronises through the host, the other PEs through a kernel.
/// - `up`, `full`: start the job, or also send to all PEs; then PE 0 prints the resources of its process.
/// - `pause`: like `ring`, twice, with a pause of two seconds. `ring_wait`: like `ring`, then like `wait`.
/// - `wait`: all PEs wait for a signal in a kernel. `store`: afterwards, they store to each other's memory.
/// - `exit PE`: like `wait`, but the given PE exits with code 3.
/// - `endless BODY`: PE 0 runs a kernel that never returns, and each other PE fails. `recurse DEPTH`: a kernel
///   recurses.
/// - `panics [BODY]`: PE 0 panics while its kernel waits for a signal, or runs an infinite loop.
/// - `global_exit PE`, `kernel_exit PE`: like `wait`, but the given PE calls `global_exit` with code 7, on its host or
///   in a kernel.
/// - `again N`: runs N consecutive jobs.
/// - `ping_pong`: PE 0 and PE 1 send an array back and forth, announced by a signal.
/// - `racy`: PE 0 puts to PE 1, which reads concurrently.
/// - `forks`: each PE forks a child, which returns, and then synchronises with the other PEs.
/// - `window`: registers a window of host memory.
/// - `stalled`: PE 0 puts to a stopped PE and to a running one.
/// - `files FOLDER PE N`: exchanges start-up data through files, then does `ring`.
/// - `checkpoint FOLDER [end]`: loads the checkpoint in the folder, if there is one, and prints which. With `end`, then
///   exits; otherwise saves new ones until it is killed.
/// - `cuts SECONDS`: uses every kind of operation, for a job in which ports of NICs go down.
/// - `replace CYCLES`, `experts CYCLES`: exchange messages, or dispatch tokens, while PEs are lost and replaced. `refuse [1]`: a
///   PE is lost whose replacement does not fit.
/// - `survive FOLDER`, `allocate`, `save FOLDER`: jobs with live membership, in which PEs are lost.
/// - `owned`: like `ring`, on a PE that the program starts and finishes itself. `dropped PE`: all PEs wait for each
///   other, except the given one, which drops its PE without finishing it. `failed PE`: likewise, but that one waits in
///   a thread, and fails in another.
/// - `doctor [FILE]`: checks the machine without running a job of its own, and writes a record to the file.
pub fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let number = args.next().and_then(|number| number.parse().ok());
    let run = || {
        let job = Job::new()?;
        match what.as_str() {
            "again" => again(job, number.unwrap_or(1)),
            "doctor" => {
                doctor(job.config(), std::env::args().nth(2).as_deref());
                Ok(())
            }
            "files" => {
                let files = Files::from_args(std::env::args().skip(2))?;
                job.with_exchange(&files)?.kernels(kernels()).run(ring).map(drop)
            }
            "owned" => {
                let pe = job.kernels(kernels()).start()?;
                ring(&pe)?;
                pe.finish()
            }
            "dropped" => {
                let pe = job.start()?;
                if Some(pe.my_pe()) == number { Ok(()) } else { pe.host_sync().and_then(|()| pe.finish()) }
            }
            "failed" => {
                let pe = job.start()?;
                let unset = pe.alloc_one::<Signal>()?;
                if Some(pe.my_pe()) == number {
                    return fail(pe, unset);
                }
                let met = pe.barrier_all();
                pe.finish_with(met.map_err(Into::into))
            }
            "experts" => {
                let job = job.kernels(kernels()).kernels(rushmem_ep::KERNELS);
                job.run(|pe| experts::dispatch(pe, number.unwrap_or(1).into())).map(drop)
            }
            what => job.kernels(kernels()).run(|pe| act(pe, what, number)).map(drop),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

/// Aborts the job while another thread waits for a signal that nobody sends, and finishes with the same error.
fn fail(pe: RunningPe, unset: Sym<Signal>) -> Result<(), Error> {
    let error = || Error::App("no more bananas".into());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pe.signal_wait_until(unset, Cmp::Eq, 1));
        std::thread::sleep(Duration::from_millis(200));
        pe.abort(&error());
        let interrupted = waiting.join().expect("the wait does not panic");
        assert!(interrupted.is_err(), "nobody has sent the signal");
    });
    pe.finish_with(Err(error().into()))
}

/// Sends a message to the next PE, waits for the previous PE's message, and synchronises with all PEs.
fn signal(pe: &Pe) -> Result<(), Error> {
    let (inbox, message) = (pe.alloc::<u32>(64)?, pe.alloc::<u32>(64)?);
    let arrived = pe.alloc_named("arrived", 1)?.at(0);
    let next = (pe.my_pe() + 1) % pe.n_pes();
    pe.put_signal(inbox, message, arrived.set(1), next)?;
    pe.signal_wait_until(arrived, Cmp::Eq, 1)?;
    pe.barrier_all()
}

/// Puts from PE 0 to PE 1, which reads the same memory concurrently.
fn racy(pe: &Pe) -> Result<(), Error> {
    let (dst, src) = (pe.alloc::<u32>(4)?, pe.alloc::<u32>(4)?);
    if pe.my_pe() == 0 { pe.put(dst, src, 1) } else { pe.read(dst).map(drop) }
}

/// Returns the folder that the first argument after the mode names.
fn folder() -> PathBuf {
    std::env::args().nth(2).unwrap_or_default().into()
}

fn act(pe: &Pe, what: &str, who: Option<u32>) -> Result<(), Error> {
    match what {
        "ring" => ring(pe),
        "pause" => {
            round(pe)?;
            std::thread::sleep(Duration::from_secs(2));
            ring(pe)
        }
        "ring_wait" => round(pe).and_then(|_| act(pe, "wait", None)),
        "up" => up(pe),
        "full" => round(pe).and_then(|_| up(pe)),
        "qps" => qps(pe),
        "p2p" => p2p(pe),
        "signal" => signal(pe),
        "apart" if pe.my_pe() == 0 => pe.host_sync(),
        "apart" => pe.barrier_all(),
        "store" => store(pe),
        "ping_pong" => {
            let (inbox, outbox) = (pe.alloc::<u64>(1000)?, pe.alloc::<u64>(1000)?);
            let (signal, bad) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u64>()?);
            pe.run(grid(1, 1), ping_pong(inbox, outbox, signal, bad, 20, 1, 0))
        }
        "racy" => racy(pe),
        "forks" => fork_and_meet(pe),
        "window" => pe.register_symmetric(vec![0_u64; 64]).map(drop),
        "stalled" => stalled(pe),
        "survive" => losses::survive(pe, &folder()),
        "allocate" => losses::allocate(pe),
        "save" => losses::save(pe, &folder()),
        "cuts" => cuts::cross(pe, Duration::from_secs(who.unwrap_or(1).into())),
        "replace" => replacements::replace(pe, who.unwrap_or(1).into()),
        "refuse" => replacements::refuse(pe, who.is_some()),
        "checkpoint" => checkpoint(pe, &folder(), std::env::args().nth(3).is_some()),
        "endless" => run_endless(pe, who.unwrap_or(0)),
        "panics" | "fails" => fail_beside_a_kernel(pe, what == "panics", who),
        "recurse" => {
            let sum = pe.alloc_one::<u64>()?;
            pe.run(grid(1, 1), recurse(who.unwrap_or(0), sum))
        }
        "wait" | "exit" | "global_exit" | "kernel_exit" => {
            let (signal, seen) = (pe.alloc_named("arrived", 1)?.at(0), pe.alloc_one::<u32>()?);
            pe.host_sync()?;
            println!("ready {} {}", pe.my_pe(), std::process::id());
            match what {
                "exit" if who == Some(pe.my_pe()) => std::process::exit(3),
                "global_exit" if who == Some(pe.my_pe()) => pe.global_exit(7),
                // Other blocks of this kernel wait, like the other PEs do.
                "kernel_exit" if who == Some(pe.my_pe()) => {
                    pe.run(grid(2, 32), end_the_job(signal, 7))?;
                    Err(Error::misuse("suite_pe", "the job did not end"))
                }
                "global_exit" => pe.host_sync(),
                _ => pe.run(grid(2, 32), wait_for_ever(signal, 1, seen)),
            }
        }
        other => Err(Error::misuse("suite_pe", format!("no such thing to do: {other:?}"))),
    }
}

/// Runs a kernel that never returns on PE 0. Each other PE fails once that kernel has started.
fn run_endless(pe: &Pe, body: u32) -> Result<(), Error> {
    let word = pe.alloc_one::<Signal>()?;
    eprintln!("this is process {}", std::process::id());
    pe.host_sync()?;
    if pe.my_pe() == 0 {
        return pe.run(grid(1, 1), endless(body, word));
    }
    std::thread::sleep(Duration::from_millis(300));
    Err(Error::misuse("suite_pe", "on purpose"))
}

/// Panics or returns an error on PE 0 while a kernel is running: a wait, or an endless kernel in a stream if `body` is
/// given. The other PEs wait in a kernel.
fn fail_beside_a_kernel(pe: &Pe, panics: bool, body: Option<u32>) -> Result<(), Error> {
    let (signal, seen) = (pe.alloc_one::<Signal>()?, pe.alloc_one::<u32>()?);
    let stream = pe.stream()?;
    let launch = match body.filter(|_| pe.my_pe() == 0) {
        Some(body) => stream.launch(grid(1, 1), endless(body, signal)).map(|()| None)?,
        None => Some(pe.launch(grid(1, 1), wait_for_ever(signal, 1, seen))?),
    };
    if pe.my_pe() == 0 {
        std::thread::sleep(Duration::from_millis(300));
        assert!(!panics, "on purpose");
        return Err(Error::misuse("suite_pe", "on purpose"));
    }
    launch.map_or(Ok(()), Launch::wait)?;
    pe.host_sync()
}

fn doctor(config: &Config, file: Option<&str>) {
    let host = Host::here();
    for finding in [examine(&host, config), probe(&host, config, ProbedPairs::Used)].concat() {
        println!("{:?} {} {}: {}", finding.verdict, finding.check.id, finding.of, finding.found);
    }
    if let Some(file) = file {
        let record = serde_json::to_vec(&host.record(config)).expect("a record is JSON");
        std::fs::write(file, record).expect("the test's folder is writable");
    }
}

/// Sends to all PEs and prints the attributes of the QPs in use.
fn qps(pe: &Pe) -> Result<(), Error> {
    round(pe)?;
    for qp in pe.qps()? {
        let (state, depth) = (qp.state, qp.depth);
        let (class, level) = (qp.traffic_class, qp.service_level);
        println!("{} to PE {}: {state} depth {depth} class {class} level {level}", qp.nic, qp.peer);
        let (gid, key, retries) = (qp.gid_index, qp.pkey_index, qp.retries);
        println!("{} sends from port {} of a bond", qp.nic, qp.bond_port);
        println!("{}: GID {gid}, key {key}, {retries} retries after {:?} each", qp.nic, qp.ack_timeout);
    }
    Ok(())
}

/// Stores a mark on each P2P peer, adds to words that all PEs share, and prints the result.
fn p2p(pe: &Pe) -> Result<(), Error> {
    const ROUNDS: u32 = 3;
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let (object, before) = (pe.alloc::<u64>(n as usize)?, pe.alloc::<u64>(n as usize)?);
    let reached = pe.alloc::<u32>(n as usize)?;
    pe.run(grid(1, 32), store_marks(object, reached, before))?;
    let numbers = |them: Vec<bool>| {
        let pes = (0..n).zip(them).filter(|(_, is)| *is).map(|(pe, _)| pe.to_string());
        pes.collect::<Vec<_>>().join(" ")
    };
    let mapped = numbers(pe.read(reached)?.iter().map(|&reached| reached == 2).collect());
    let marks = pe.read(object)?.into_iter().zip(0..n);
    let marked = numbers(marks.map(|(mark, by)| mark == u64::from(by + 1) << 32 | u64::from(me)).collect());

    let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
    let (signal, src) = (pe.alloc_one::<Signal>()?, pe.alloc::<u32>(64)?);
    let dst = pe.alloc::<u32>((64 * ROUNDS * n) as usize)?;
    pe.run(grid(2, 32), add_everywhere(wide, narrow, signal, dst, src, ROUNDS))?;
    pe.host_sync()?;
    let all = u64::from(64 * ROUNDS * n);
    let exact = [pe.read_one(wide)?, pe.read_one(narrow)?.into(), pe.read_one(signal)?] == [all; 3];
    let sums = if exact { "right" } else { "wrong" };
    println!("PE {me} reaches {mapped}, has marks of {marked}, sums are {sums}, {} QPs", pe.connected_qps());
    for path in pe.peer_routes() {
        println!("PE {me} -> {}: {}, {}", path.pe, path.via, path.why);
    }
    Ok(())
}

/// Runs `n` jobs that put and signal. Prints the resources of this process after the first ten jobs and after all.
fn again(job: Job, n: u32) -> Result<(), Error> {
    assert!(!rushmem::is_initialized());
    for i in 1..=n {
        job.clone().kernels(kernels()).run(|pe| {
            assert!(rushmem::is_initialized());
            round(pe)
        })?;
        assert!(!rushmem::is_initialized());
        if i == n.min(10) || i == n {
            let (threads, files, kib) = held();
            println!("after {i}: {threads} threads, {files} files, {kib} KiB");
        }
    }
    Ok(())
}

/// Synchronises with the other PEs and prints the resources of this process.
fn up(pe: &Pe) -> Result<(), Error> {
    pe.host_sync()?;
    if pe.my_pe() == 0 {
        let (threads, files, kib) = held();
        println!("up: {threads} threads, {files} files, {kib} KiB");
    }
    pe.host_sync()
}

/// Waits in a kernel until the job fails, then stores to all PEs, including those that have exited.
fn store(pe: &Pe) -> Result<(), Error> {
    // Larger than a process caches, and untouched so far.
    let cells = pe.alloc::<u32>(1 << 18)?;
    let outcome = act(pe, "wait", None);
    // The job has already failed, so this kernel may fail as well.
    let _ = pe.run(grid(1, 32), store_everywhere(cells, 1));
    println!("PE {} has stored", pe.my_pe());
    outcome
}

/// Puts from PE 0 to PE 1, which has been stopped, and to PE 2. Waits for PE 2, then for both.
fn stalled(pe: &Pe) -> Result<(), Error> {
    let (dst, src) = (pe.alloc::<u32>(64)?, pe.alloc::<u32>(64)?);
    let pids = pe.allgather(std::process::id().to_string().as_bytes())?;
    // The state of a process in `/proc`: `T` means stopped.
    let state = |pe: usize| {
        let pid = String::from_utf8_lossy(&pids[pe]);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?')
    };
    if pe.my_pe() == 0 {
        pe.write(src, &[7; 64])?;
        // Connect to both PEs before one of them stops.
        [1, 2].into_iter().try_for_each(|peer| pe.put(dst, src, peer))?;
        pe.quiet()?;
    }
    pe.host_sync()?;
    println!("ready {} {}", pe.my_pe(), std::process::id());
    if pe.my_pe() == 0 {
        while state(1) != 'T' {
            std::thread::sleep(Duration::from_millis(5));
        }
        pe.put_nbi(dst, src, 1)?;
        pe.put_nbi(dst, src, 2)?;
        pe.quiet_pes(&[2])?;
        println!("PE 2 is quiet: PE 1 is {}", state(1));
        pe.quiet()?;
        println!("all are quiet: PE 1 is {}", state(1));
    }
    pe.host_sync()
}

/// Loads the checkpoint in `folder`, if there is one, checks and prints it. If `ends`, then exits; otherwise saves new ones
/// until it is killed.
fn checkpoint(pe: &Pe, folder: &Path, ends: bool) -> Result<(), Error> {
    const CELLS: usize = 100_000;
    let (cells, round) = (pe.alloc::<u32>(CELLS)?, pe.alloc_one::<u64>()?);
    let state = Checkpoint::new().with("cells", cells).with("round", round.as_slice());
    let content = |round: u64| vec![round as u32 * 1000 + pe.my_pe(); CELLS];
    // PEs may see a manifest appear at different times, so one of them looks.
    if pe.allgather(&[folder.join("rushmem.manifest").exists().into()])?[0] == [1] {
        pe.restore(folder, &state)?;
        let round = pe.read_one(round)?;
        let right = if pe.read(cells)? == content(round) { "right" } else { "wrong" };
        println!("PE {} has the {right} cells of round {round}", pe.my_pe());
    }
    let mut last = pe.read_one(round)?;
    let mut is_ready = false;
    loop {
        // There is a checkpoint from now on.
        if last > 0 && !is_ready {
            println!("ready {} {}", pe.my_pe(), std::process::id());
            is_ready = true;
        }
        if ends {
            return Ok(());
        }
        last += 1;
        pe.write(cells, &content(last))?;
        pe.write(round.as_slice(), &[last])?;
        pe.save(folder, &state)?;
    }
}

/// Returns the number of threads, the number of open files, and the memory in KiB of this process.
///
/// Samples for a second and takes the minimum, because exited threads and closed connections disappear with a delay.
fn held() -> (usize, usize, u64) {
    let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let (mut threads, mut files) = (usize::MAX, usize::MAX);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        threads = threads.min(count("/proc/self/task"));
        files = files.min(count("/proc/self/fd"));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    (threads, files, status_bytes(&status, "VmRSS").unwrap_or(0) / 1024)
}

/// Sends messages to the next PE, then to all PEs, and prints whether the data arrived.
fn ring(pe: &Pe) -> Result<(), Error> {
    let (n, me) = (pe.n_pes(), pe.my_pe());
    let before = (me + n - 1) % n;
    let [one, all] = round(pe)?.map(|right| if right { "all" } else { "not" });
    println!("PE {me} of {n} has {one} that PE {before} sent");
    println!("PE {me} has {all} that all sent");
    Ok(())
}

/// Sends messages to the next PE, then to all PEs, and returns for each step whether the data arrived.
fn round(pe: &Pe) -> Result<[bool; 2], Error> {
    const TIMES: usize = 20;
    let (n, me) = (pe.n_pes(), pe.my_pe());
    let (one, src) = (pe.alloc::<u32>(TIMES * THREADS)?, pe.alloc::<u32>(THREADS)?);
    let all = pe.alloc::<u32>(n as usize * THREADS)?;
    // Wireshark guesses the type of a payload. A word with a zero half would look like Ethernet over InfiniBand.
    let array = |pe: u32| (0..THREADS as u32).map(|i| 0x5a5a_0101 + i * 1009 + pe).collect::<Vec<_>>();
    pe.write(src, &array(me))?;
    pe.host_sync()?;
    pe.run(grid(2, THREADS as u32 / 2), small_puts(one, src, TIMES as u32, 1))?;
    pe.host_sync()?;
    let before = (me + n - 1) % n;
    let from_one = pe.read(one)? == array(before).repeat(TIMES);
    pe.write(src, &array(7))?;
    pe.host_sync()?;
    pe.run(grid(2, THREADS as u32 / 2), send_to_all(all, src))?;
    pe.host_sync()?;
    Ok([from_one, pe.read(all)? == array(7).repeat(n as usize)])
}
