//! The adapter as its drivers see it: mailboxes, queues, doorbells, completions.

mod commands;
mod errors;
mod operations;
mod queues;
mod script;
