//! Bonds of ports (LAG).

use super::layout::{command, response};

command! { QUERY_LAG -> QueryLagOut;
    /// QUERY_LAG: queries the state of the bond.
    pub struct QueryLag[16] {}
}

response! {
    /// Output of [`QueryLag`].
    pub struct QueryLagOut[16] {
        /// 0 if the ports are not bonded.
        lag_state: u8 = 0x5d, 3;
    }
}
