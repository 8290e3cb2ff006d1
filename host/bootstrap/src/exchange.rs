//! Bring-up by whatever means of exchange the application has.

use crate::error::Error;
use crate::id::UniqueId;
use rushmem_config::Config;

/// A failure of an [`Exchange`], of any kind.
pub type ExchangeError = Box<dyn std::error::Error + Send + Sync>;

/// What the processes of an application can talk to each other by already: an MPI communicator, files that all see, a
/// key-value store. `Job::with_exchange` makes one job of them, whose PE numbers are those
/// of the exchange; that of a communicator whose ranks were reordered is the rank in that communicator. It is used
/// once, at the start: afterwards both libraries' calls may interleave as the program likes.
///
/// By MPI, for example, [`Exchange::allgather`] is `MPI_Allgather`. NVSHMEM: `nvshmemx_set_attr_mpi_comm_args`,
/// and the plug-in of `NVSHMEM_BOOTSTRAP=plugin`.
pub trait Exchange {
    /// The number of this process, from 0.
    fn pe(&self) -> u32;

    /// How many processes there are.
    fn n_pes(&self) -> u32;

    /// Gives `mine` to every process and returns what each one gave, in the order of their numbers. All give equally
    /// many bytes. Collective.
    ///
    /// # Errors
    /// Whatever went wrong; it must not wait for ever.
    fn allgather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError>;
}

/// The id of a job of these processes. Collective: PE 0 makes it, and all learn it.
///
/// # Errors
///
/// [`Error::Exchange`] if the exchange failed, or if what came back is not what went in.
pub fn agree_on_id(exchange: &dyn Exchange, config: &Config) -> Result<UniqueId, Error> {
    let (pe, n_pes) = (exchange.pe(), exchange.n_pes());
    let fail = |why: String| Error::Exchange { by: "the application's exchange".into(), why };
    if pe >= n_pes {
        return Err(fail(format!("it says that this is process {pe} of {n_pes}, numbered from 0")));
    }
    // If PE 0 cannot make one, the others must not wait for it.
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
            "allgather must return what each of the {n_pes} processes gave, in the order of their numbers, and did not"
        )));
    }
    match &all[0][8..] {
        id if id.iter().all(|byte| *byte == 0) => {
            Err(fail("PE 0 could not make an id; see its error".into()))
        }
        id => UniqueId::from_bytes(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Gathered = Result<Vec<Vec<u8>>, ExchangeError>;

    /// Gathers as told.
    struct Told {
        pe: u32,
        n_pes: u32,
        gather: fn(&[u8]) -> Gathered,
    }

    impl Exchange for Told {
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
    fn what_an_exchange_does_wrong_is_named() {
        let config = Config::default();
        let why =
            |pe, n_pes, gather| agree_on_id(&Told { pe, n_pes, gather }, &config).unwrap_err().to_string();
        assert!(why(2, 2, |_| Ok(vec![])).contains("process 2 of 2"));
        assert!(why(0, 2, |_| Err("no MPI today".into())).contains("no MPI today"));
        let order = "in the order of their numbers, and did not";
        assert!(why(0, 2, |mine| Ok(vec![mine.to_vec()])).contains(order));
        assert!(why(0, 2, |mine| Ok(vec![mine.to_vec(); 2])).contains(order));
        assert!(why(0, 1, |_| Ok(vec![vec![]])).contains(order));
        let without = |mine: &[u8]| Ok(vec![[&[0; 4], &mine[4..]].concat(), mine.to_vec()]);
        assert!(why(1, 2, without).contains("PE 0 could not make an id"));
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error_of_pe_0_and_of_the_others() {
        let mut config = Config::default();
        config.bootstrap_interface = "no0".into();
        let told = Told { pe: 0, n_pes: 1, gather: |mine| Ok(vec![mine.to_vec()]) };
        assert!(matches!(agree_on_id(&told, &config), Err(Error::Interface { .. })));
    }
}
