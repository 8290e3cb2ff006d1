//! The state of a bond of ports (link aggregation, LAG).

use super::layout::{command, response};

command! { QUERY_LAG -> QueryLagOut;
    /// QUERY_LAG: queries whether the NIC's ports are bonded.
    pub struct QueryLag[16] {}
}

response! {
    /// The NIC's reply to [`QueryLag`], with the state of the bond.
    pub struct QueryLagOut[16] {
        /// State of the bond; 0 if the ports are not bonded.
        lag_state: u8 = 0x5d, 3;
    }
}
