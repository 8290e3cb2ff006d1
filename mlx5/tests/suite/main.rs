//! The suites that look at the formats from outside: any value, any bytes, the C header.

mod fuzz;
mod header;
mod round_trip;
