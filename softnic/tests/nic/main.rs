//! Tests of the adapter through its driver interface: mailboxes, queues, doorbells, completions.

mod capture;
mod clock;
mod commands;
mod dynamic;
mod errors;
mod events;
mod extended;
mod far;
mod fault_injection;
mod faults;
mod links;
mod management;
mod observe;
mod operations;
mod ordering;
mod pools;
mod queues;
mod record;
mod resize;
mod ring;
mod script;
mod services;
mod shared;
mod sharing;
mod sleep;
mod stress;
