//! The suites that look at the formats from outside: any value, any bytes, the C header.

mod corpus;
mod entries;
mod fuzz;
mod header;
mod round_trip;
