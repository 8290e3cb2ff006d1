//! The adapter as its drivers see it: mailboxes, queues, doorbells, completions.

mod operations;
mod script;
