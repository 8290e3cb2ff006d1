//! A test program for the launcher: its PEs join the job, make a collective call and leave. One PE can misbehave.
//!
//! `pe ACTION [PE]`: the given PE (default 1) performs ACTION, and the others wait for it.
//!
//! `pe epochs ACTION [PE [LEFT]]`: the same in a job that survives losses, until LEFT PEs (default 1) are left. The
//! others form the next epoch at once if ACTION is `form`.

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rushmem::bootstrap::{self, Bootstrap, Epoch, LocalPes, PeerLost};
use rushmem::config::Config;

/// Time limit for steps that other PEs must take, too.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let epochs = args.next_if(|arg| arg == "epochs").is_some();
    let action = args.next().unwrap_or_else(|| "join".into());
    let mut number = || args.next().and_then(|number| number.parse().ok()).unwrap_or(1);
    let actor = number();
    let left = epochs.then(|| number() as usize);
    match start(&action, actor, left) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(5)
        }
    }
}

fn start(action: &str, actor: u32, left: Option<usize>) -> Result<ExitCode, Box<dyn Error>> {
    let config = Config::load()?;
    let special = config.pe == Some(actor);
    if special && action == "absent" {
        std::thread::sleep(Duration::from_secs(60));
    }
    if special && action == "early" {
        return Ok(ExitCode::from(7));
    }
    let build = if special && action == "build" { "new" } else { "old" };
    let found = bootstrap::from_env(&config, build.into())?;
    match found.pes {
        LocalPes::Process(pe) => act(&pe, action, special, left),
        LocalPes::Threads(pes) => {
            let threads = pes.into_iter().map(|pe| {
                let action = action.to_string();
                std::thread::spawn(move || {
                    act(&pe, &action, pe.pe() == actor, left).map_err(|error| error.to_string())
                })
            });
            let mut code = ExitCode::SUCCESS;
            for thread in threads.collect::<Vec<_>>() {
                code = thread.join().map_err(|_| "a PE panicked")??;
            }
            Ok(code)
        }
    }
}

fn act(
    pe: &dyn Bootstrap,
    action: &str,
    special: bool,
    left: Option<usize>,
) -> Result<ExitCode, Box<dyn Error>> {
    let (sender, lost_peers) = std::sync::mpsc::channel();
    pe.on_peer_lost(Box::new(move |lost| {
        println!("notified: {lost}");
        // Sending fails only once this PE is done.
        let _ = sender.send(lost);
    }))?;
    let all = pe.allgather("numbers", format!("{}", pe.pe()).as_bytes())?;
    let all: Vec<_> = all.iter().map(|number| String::from_utf8_lossy(number)).collect();
    println!("PE {} of {}, with {}", pe.pe(), pe.n_pes(), all.join(" "));
    let epoch = left.map(|_| pe.form_epoch_within(PATIENCE)).transpose()?;
    println!("ready {}", std::process::id());
    if special {
        match action {
            "exit" => {
                eprintln!("something went wrong");
                return Ok(ExitCode::from(3));
            }
            "kill" => std::process::abort(),
            "abort" => {
                pe.abort("out of cheese");
                return Ok(ExitCode::from(6));
            }
            "report" => {
                pe.abort("out of cheese");
                eprintln!("error: out of cheese");
                return Ok(ExitCode::from(6));
            }
            "linger" => {
                pe.abort("out of cheese");
                std::thread::sleep(Duration::from_secs(60));
            }
            "leave" => return Ok(ExitCode::SUCCESS),
            "hang" | "form" => std::thread::sleep(Duration::from_secs(60)),
            _ => {}
        }
    }
    if let (Some(epoch), Some(left)) = (epoch, left) {
        go_on(pe, epoch, left, &lost_peers, action == "form")?;
    }
    if let Err(error) = pe.barrier("end") {
        lost_peers.recv_timeout(Duration::from_secs(5))?;
        return Err(error.into());
    }
    pe.finish()?;
    println!("done");
    Ok(ExitCode::SUCCESS)
}

/// Forms an epoch after each loss, or at once, until `left` PEs are left.
fn go_on(
    pe: &dyn Bootstrap,
    mut epoch: Epoch,
    left: usize,
    lost_peers: &Receiver<PeerLost>,
    at_once: bool,
) -> Result<(), Box<dyn Error>> {
    while epoch.pes.len() > left {
        if !at_once {
            let lost = lost_peers.recv_timeout(PATIENCE)?;
            // The epoch may have been formed after several losses.
            if !lost.pe.is_some_and(|pe| epoch.pes.contains(&pe)) {
                continue;
            }
        }
        epoch = pe.form_epoch_within(PATIENCE)?;
        match pe.allgather("members", &[1]) {
            Ok(all) => {
                let members: Vec<_> =
                    (0..).zip(&*all).filter(|(_, part)| !part.is_empty()).map(|(pe, _)| pe).collect();
                println!("members {members:?}");
                assert_eq!(members, epoch.pes);
            }
            Err(bootstrap::Error::Failed(failure)) if failure.is_survivable() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
