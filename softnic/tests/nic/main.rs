//! The adapter as its drivers see it: mailboxes, queues, doorbells, completions.

mod capture;
mod commands;
mod errors;
mod events;
mod faults;
mod links;
mod operations;
mod queues;
mod script;
mod sharing;
mod stress;
