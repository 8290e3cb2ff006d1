//! A PE that does nothing but meet the others, well or badly: what the launcher's tests run.
//!
//! `pe WHAT [PE]`: the given PE (1 if none is) does WHAT, the others wait for it.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use rushmem::bootstrap::{self, Bootstrap, Job};
use rushmem::config::Config;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "meet".into());
    let who = args.next().and_then(|pe| pe.parse().ok()).unwrap_or(1);
    match start(&what, who) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(5)
        }
    }
}

fn start(what: &str, who: u32) -> Result<ExitCode, Box<dyn Error>> {
    let config = Config::load()?;
    let special = config.pe == Some(who);
    if special && what == "absent" {
        std::thread::sleep(Duration::from_secs(60));
    }
    if special && what == "early" {
        return Ok(ExitCode::from(7));
    }
    let build = if special && what == "build" { "new" } else { "old" };
    let found = bootstrap::from_env(&config, build.into())?;
    if let Some(warning) = found.warning {
        eprintln!("{warning}");
    }
    match found.job {
        Job::Process(pe) => act(&pe, what, special),
        Job::Threads(pes) => {
            let threads = pes.into_iter().map(|pe| {
                let what = what.to_string();
                std::thread::spawn(move || act(&pe, &what, pe.pe() == who).map_err(|error| error.to_string()))
            });
            let mut code = ExitCode::SUCCESS;
            for thread in threads.collect::<Vec<_>>() {
                code = thread.join().map_err(|_| "a PE panicked")??;
            }
            Ok(code)
        }
    }
}

fn act(pe: &dyn Bootstrap, what: &str, special: bool) -> Result<ExitCode, Box<dyn Error>> {
    let (tell, heard) = std::sync::mpsc::channel();
    pe.on_peer_lost(Box::new(move |lost| {
        println!("heard: {lost}");
        // Once this PE is done, it needs no news.
        let _ = tell.send(());
    }))?;
    let all = pe.allgather("numbers", format!("{}", pe.pe()).as_bytes())?;
    let all: Vec<_> = all.iter().map(|number| String::from_utf8_lossy(number)).collect();
    println!("PE {} of {}, with {}", pe.pe(), pe.n_pes(), all.join(" "));
    println!("ready {}", std::process::id());
    if special {
        match what {
            "exit" => {
                eprintln!("something went wrong");
                return Ok(ExitCode::from(3));
            }
            "kill" => std::process::abort(),
            "abort" => {
                pe.abort("out of cheese");
                return Ok(ExitCode::from(6));
            }
            "leave" => return Ok(ExitCode::SUCCESS),
            "hang" => std::thread::sleep(Duration::from_secs(60)),
            _ => {}
        }
    }
    if let Err(error) = pe.barrier("end") {
        heard.recv_timeout(Duration::from_secs(5))?;
        return Err(error.into());
    }
    pe.finish()?;
    println!("done");
    Ok(ExitCode::SUCCESS)
}
