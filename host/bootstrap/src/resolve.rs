//! Names of servers.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Returns the first address of a server, such as `HOST:PORT`.
///
/// On clusters, the name of a node may appear after its programs have started, so this tries again until it has waited
/// for `within`. `waits` is called once, with the first error, before it does.
///
/// # Errors
///
/// The last error of the name service.
pub fn resolve(
    server: impl ToSocketAddrs,
    within: Duration,
    waits: impl FnOnce(&io::Error),
) -> io::Result<SocketAddr> {
    resolve_by(|| server.to_socket_addrs()?.next().ok_or_else(no_address), within, waits)
}

fn no_address() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "the name has no address")
}

fn resolve_by(
    mut look: impl FnMut() -> io::Result<SocketAddr>,
    within: Duration,
    waits: impl FnOnce(&io::Error),
) -> io::Result<SocketAddr> {
    let end = Instant::now() + within;
    let mut waits = Some(waits);
    loop {
        let error = match look() {
            Ok(address) => return Ok(address),
            // What was written is not a server, which no waiting changes.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(error),
            Err(error) => error,
        };
        if Instant::now() + RETRY_PAUSE >= end {
            return Err(error);
        }
        if let Some(waits) = waits.take() {
            waits(&error);
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_appear_later() {
        let address = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut answers = [Err(no_address()), Err(no_address()), Ok(address)].into_iter();
        let mut told = 0;
        let found = resolve_by(|| answers.next().unwrap(), Duration::from_secs(60), |_| told += 1);
        assert_eq!((found.unwrap(), told), (address, 1));
    }

    #[test]
    fn waiting_ends() {
        let mut asked = 0;
        let look = || {
            asked += 1;
            Err(no_address())
        };
        assert!(resolve_by(look, RETRY_PAUSE * 2, |_| ()).is_err());
        assert!(asked >= 2);
    }

    #[test]
    fn a_mistake_is_an_error_at_once() {
        let never = |_: &io::Error| panic!("it waits");
        for server in ["host", "host:port", ""] {
            assert!(resolve(server, Duration::from_secs(60), never).is_err(), "{server}");
        }
        assert!(resolve("127.0.0.1:7", Duration::ZERO, never).is_ok());
    }
}
