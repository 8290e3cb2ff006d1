//! Tests of the formats from outside: arbitrary values, arbitrary bytes, the C header.

mod corpus;
mod entries;
mod fuzz;
mod header;
mod round_trip;
