//! Tests through the public API: arbitrary values, arbitrary bytes, and comparison with a C header.

mod corpus;
mod entries;
mod fuzz;
mod header;
mod round_trip;
