//! What PEs exchange when a process that replaces a lost PE joins the job.

use std::collections::BTreeSet;

use rushmem_device::Handle;
use rushmem_fabric::queues::PeNics;

use super::{Pe, first_failure};
use crate::bootstrap::Epoch;
use crate::bootstrap::wire::part_limit;
use crate::{Error, Result};

/// A PE's contribution to the exchange.
#[derive(serde::Serialize, serde::Deserialize)]
struct Greeting {
    /// The PE's NICs, as [`PeNics::encode`] describes them.
    nics: Vec<u8>,
    /// What others need to join. `None` from a PE that joins itself.
    facts: Option<Facts>,
}

/// What a PE needs to join the job.
#[derive(serde::Serialize, serde::Deserialize)]
struct Facts {
    /// Offset, length and stamp of each object of the symmetric heap, in the order of their allocation. Only from the first PE
    /// of the epoch that does not join.
    objects: Vec<(u64, u64, u64)>,
    /// Number of resets of the queues so far.
    resets: u64,
}

impl Pe {
    /// Takes in the PEs that have joined, or is taken in. Collective over the PEs of the epoch. Does nothing if none has joined.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] on the PEs that join if they cannot be taken in. The others learn of their loss soon.
    /// - [`Error::PeerLost`] if a PE is lost.
    /// - The errors of the bootstrap.
    pub(super) fn greet(&self, epoch: &Epoch) -> Result<()> {
        let joining = self.membership.joining();
        if joining.is_empty() {
            return Ok(());
        }
        let joins = joining.contains(&self.my_pe());
        let is_first = epoch.pes.iter().find(|pe| !joining.contains(pe)) == Some(&self.my_pe());
        let greetings = self.exchange_greetings(&self.greeting(joins, is_first))?;
        let problem = self.prepare(joins, &greetings).err().unwrap_or_default();
        let problems = self
            .bootstrap
            .allgather("the exchange with PEs that join", problem.as_bytes())
            .map_err(|error| self.failed(error))?;
        let Some((pe, why)) = first_failure(&problems) else {
            self.membership.admit_joining();
            return if joins { Ok(()) } else { self.meet(joining) };
        };
        let why = format!("PE {pe} reports: {why}");
        if joins {
            let what = format!("the place of lost PE {}", self.my_pe());
            return Err(Error::Unavailable { what, why });
        }
        tracing::warn!("no process takes the place of a lost PE: {why}");
        Ok(())
    }

    /// Connects the queues that all threads share to PEs that have joined while kernels were running. Others connect on demand.
    fn meet(&self, joined: BTreeSet<u32>) -> Result<()> {
        if !self.service.has_stale() {
            return Ok(());
        }
        joined.into_iter().try_for_each(|pe| match self.initiate(self.op_meet(pe)) {
            // The calls after this one report it.
            Err(Error::PeerLost(_)) => Ok(()),
            outcome => outcome,
        })
    }

    fn greeting(&self, joins: bool, is_first: bool) -> Greeting {
        let objects = if is_first { self.memory.objects().unwrap_or_default() } else { Vec::new() };
        let objects = objects.into_iter().map(|it| (it.offset, it.bytes, it.stamp)).collect();
        let facts = Facts { objects, resets: self.service.epoch() };
        Greeting { nics: self.service.nics().encode(), facts: (!joins).then_some(facts) }
    }

    /// Exchanges the greetings of all PEs. Those of PEs outside the epoch, and too long ones, are `None`.
    fn exchange_greetings(&self, mine: &Greeting) -> Result<Vec<Option<Greeting>>> {
        let malformed = |_| Error::misuse("grow", "a PE sent a malformed greeting");
        let mut bytes = serde_json::to_vec(mine).map_err(malformed)?;
        if bytes.len() > part_limit(self.n_pes()) {
            bytes.clear();
        }
        let all = self.bootstrap.allgather("the greeting of PEs that join", &bytes);
        let all = all.map_err(|error| self.failed(error))?;
        let parse = |bytes: &Vec<u8>| match &**bytes {
            [] => Ok(None),
            bytes => serde_json::from_slice(bytes).map(Some).map_err(malformed),
        };
        all.iter().map(parse).collect()
    }

    /// Prepares this PE for those that join, or for the others if it joins itself. Returns why that is impossible.
    fn prepare(&self, joins: bool, all: &[Option<Greeting>]) -> Result<(), String> {
        let greetings = (0..).zip(all).filter_map(|(pe, greeting)| Some((pe, greeting.as_ref()?)));
        let mut facts: Option<&Facts> = None;
        for (pe, Greeting { nics, facts: theirs }) in greetings {
            // Only the first of the others has sent the objects.
            facts = facts.or(theirs.as_ref());
            // A PE that joins knows only which NICs all PEs had at the start.
            if pe != self.my_pe() && (joins || theirs.is_none()) {
                let nics = PeNics::decode(nics).ok_or("the description of its NICs is malformed")?;
                let since = self.together_since(pe).unwrap_or_default();
                self.service.renew(pe, &nics, since.into()).map_err(|error| error.to_string())?;
            }
        }
        let Some(Facts { objects, resets }) = facts else {
            return Err("the list of objects of the heap is too long, or no other PE was in the job".into());
        };
        if !joins {
            return Ok(());
        }
        self.service.enter(*resets);
        // Others may have written to the memory of the lost PE until now.
        self.machine.clear(&self.heap, self.memory.reserved()).map_err(|error| error.to_string())?;
        let handle = |&(offset, bytes, stamp): &(u64, u64, u64)| Handle { offset, bytes, stamp };
        let objects: Vec<Handle> = objects.iter().map(handle).collect();
        self.memory.inherit(&objects).map_err(|object| format!("{object:?} does not fit its heap"))
    }
}
