//! A test program for the launcher: its PEs join the job, make a collective call and leave. One PE can misbehave.
//!
//! `pe ACTION [PE]`: the given PE (default 1) performs ACTION, and the others wait for it.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rushmem::bootstrap::{self, Bootstrap, LocalPes};
use rushmem::config::Config;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let action = args.next().unwrap_or_else(|| "join".into());
    let actor = args.next().and_then(|pe| pe.parse().ok()).unwrap_or(1);
    match start(&action, actor) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(5)
        }
    }
}

fn start(action: &str, actor: u32) -> Result<ExitCode, Box<dyn Error>> {
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
        LocalPes::Process(pe) => act(&pe, action, special),
        LocalPes::Threads(pes) => {
            let threads = pes.into_iter().map(|pe| {
                let action = action.to_string();
                std::thread::spawn(move || {
                    act(&pe, &action, pe.pe() == actor).map_err(|error| error.to_string())
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

fn act(pe: &dyn Bootstrap, action: &str, special: bool) -> Result<ExitCode, Box<dyn Error>> {
    let (sender, lost_peers) = std::sync::mpsc::channel();
    pe.on_peer_lost(Box::new(move |lost| {
        println!("notified: {lost}");
        // Sending fails only once this PE is done.
        let _ = sender.send(());
    }))?;
    let all = pe.allgather("numbers", format!("{}", pe.pe()).as_bytes())?;
    let all: Vec<_> = all.iter().map(|number| String::from_utf8_lossy(number)).collect();
    println!("PE {} of {}, with {}", pe.pe(), pe.n_pes(), all.join(" "));
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
            "leave" => return Ok(ExitCode::SUCCESS),
            "hang" => std::thread::sleep(Duration::from_secs(60)),
            _ => {}
        }
    }
    if let Err(error) = pe.barrier("end") {
        lost_peers.recv_timeout(Duration::from_secs(5))?;
        return Err(error.into());
    }
    pe.finish()?;
    println!("done");
    Ok(ExitCode::SUCCESS)
}
