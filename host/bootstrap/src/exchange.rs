//! Creates a job's unique ID in PE 0 and passes it to the other PEs by the application's own means of communication.

use crate::error::Error;
use crate::id::UniqueId;
use rushmem_config::Config;

/// An error of the application's own means of communication.
pub type ExchangeError = Box<dyn std::error::Error + Send + Sync>;

/// The application's own means of communication between its processes: an MPI communicator, shared files, a key-value
/// store.
///
/// `Job::with_exchange` joins these processes into one job, in which PE numbers are those of the exchange. For an MPI
/// communicator, [`Exchange::allgather`] is `MPI_Allgather`, and the PE number is the rank in that communicator.
///
/// The exchange is used only once, when the job starts. Later calls of both libraries may interleave freely. The
/// equivalents in NVSHMEM are `nvshmemx_set_attr_mpi_comm_args` and the plug-in of `NVSHMEM_BOOTSTRAP=plugin`.
pub trait Exchange {
    /// Returns the rank of this process, from 0.
    fn pe(&self) -> u32;

    /// Returns the number of processes that take part in the exchange.
    fn n_pes(&self) -> u32;

    /// Sends `mine` to every process, and returns the contributions of all processes in rank order.
    ///
    /// Collective. All contributions have the same length.
    ///
    /// # Errors
    ///
    /// - Any [`ExchangeError`]: the exchange failed or timed out. An implementation must not block forever.
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError>;
}

/// Agrees on the unique ID of a new job of these processes. Collective: PE 0 creates the ID, and the others receive it.
///
/// # Errors
///
/// - [`Error::Exchange`]: the exchange failed, or returned wrong contributions.
/// - Any error of [`UniqueId::with_config`], in the process of PE 0.
pub fn agree_on_id(exchange: &dyn Exchange, config: &Config) -> Result<UniqueId, Error> {
    let (pe, n_pes) = (exchange.pe(), exchange.n_pes());
    let fail = |why: String| Error::Exchange { by: "the application's exchange".into(), why };
    if pe >= n_pes {
        return Err(fail(format!(
            "its number for this process is {pe}, and must be below its number of processes, {n_pes}"
        )));
    }
    // Even if PE 0 fails to create an ID, it takes part in the exchange with zeros, or the others would wait for it.
    let made = if pe == 0 { Some(UniqueId::with_config(config)) } else { None };
    let mut mine = [pe.to_le_bytes(), n_pes.to_le_bytes()].concat();
    let id =
        made.as_ref().and_then(|made| made.as_ref().ok()).map_or([0; UniqueId::BYTES], UniqueId::to_bytes);
    mine.extend(id);
    let all = exchange.allgather(&mine).map_err(|error| fail(error.to_string()))?;
    if let Some(made) = made {
        made?;
    }
    let right = |(i, part): (u32, &Vec<u8>)| {
        part.len() == mine.len() && part[..4] == i.to_le_bytes() && part[4..8] == mine[4..8]
    };
    if all.len() != n_pes as usize || !(0..).zip(&all).all(right) {
        return Err(fail(format!(
            "allgather did not return the contributions of the {n_pes} processes in the order of their numbers"
        )));
    }
    match &all[0][8..] {
        id if id.iter().all(|byte| *byte == 0) => {
            Err(fail("PE 0 could not create an id; see its error".into()))
        }
        id => UniqueId::from_bytes(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Gathered = Result<Vec<Vec<u8>>, ExchangeError>;

    /// An exchange with a canned result.
    struct FakeExchange {
        pe: u32,
        n_pes: u32,
        gather: fn(&[u8]) -> Gathered,
    }

    impl Exchange for FakeExchange {
        fn pe(&self) -> u32 {
            self.pe
        }

        fn n_pes(&self) -> u32 {
            self.n_pes
        }

        fn allgather(&self, mine: &[u8]) -> Gathered {
            (self.gather)(mine)
        }
    }

    #[test]
    fn names_the_errors_of_an_exchange() {
        let config = Config::default();
        let why = |pe, n_pes, gather| {
            agree_on_id(&FakeExchange { pe, n_pes, gather }, &config).unwrap_err().to_string()
        };
        assert!(why(2, 2, |_| Ok(vec![])).contains("this process is 2, and must be below"));
        assert!(why(0, 2, |_| Err("no MPI today".into())).contains("no MPI today"));
        let order = "did not return the contributions";
        assert!(why(0, 2, |mine| Ok(vec![mine.to_vec()])).contains(order));
        assert!(why(0, 2, |mine| Ok(vec![mine.to_vec(); 2])).contains(order));
        assert!(why(0, 1, |_| Ok(vec![vec![]])).contains(order));
        let without = |mine: &[u8]| Ok(vec![[&[0; 4], &mine[4..]].concat(), mine.to_vec()]);
        assert!(why(1, 2, without).contains("PE 0 could not create an id"));
    }

    #[test]
    fn missing_interface_is_reported_by_pe_0() {
        let mut config = Config::default();
        config.bootstrap_interface = "no0".into();
        let exchange = FakeExchange { pe: 0, n_pes: 1, gather: |mine| Ok(vec![mine.to_vec()]) };
        assert!(matches!(agree_on_id(&exchange, &config), Err(Error::Interface { .. })));
    }
}
