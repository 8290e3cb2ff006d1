//! The test programs, with one module per topic.

mod arrivals;
mod atomics;
mod collectives;
mod conflicts;
mod contexts;
mod deadlocks;
mod flags;
mod gets;
mod hosts;
mod launches;
mod lifetimes;
mod locks;
mod overlaps;
mod patterns;
mod pending;
mod phases;
mod pipelines;
mod publication;
mod queues;
mod ranges;
mod relaxed;
mod signals;
mod sources;
mod teams;
mod threads;

use crate::program::Topic;

/// Returns the programs of all topics, from introductory to advanced ones.
pub fn all() -> Vec<Topic> {
    vec![
        flags::TOPIC,
        sources::TOPIC,
        arrivals::TOPIC,
        gets::TOPIC,
        overlaps::TOPIC,
        signals::TOPIC,
        publication::TOPIC,
        atomics::TOPIC,
        conflicts::TOPIC,
        relaxed::TOPIC,
        threads::TOPIC,
        collectives::TOPIC,
        ranges::TOPIC,
        teams::TOPIC,
        contexts::TOPIC,
        pending::TOPIC,
        locks::TOPIC,
        launches::TOPIC,
        hosts::TOPIC,
        lifetimes::TOPIC,
        deadlocks::TOPIC,
        patterns::TOPIC,
        pipelines::TOPIC,
        queues::TOPIC,
        phases::TOPIC,
    ]
}
