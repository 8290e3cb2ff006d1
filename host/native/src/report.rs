use std::fmt;
use std::panic::Location;

/// Maximum number of blocks that a report lists in full. Further blocks are only counted.
const MAX_LISTED_BLOCKS: usize = 16;

/// The positions of lanes when an error terminated their launch.
///
/// The text has one line per block, deadlocked blocks first:
/// `block 3: lanes 0-31 at kernels/ring.rs:40 (block barrier), lanes 32-63 exited`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Blocks that had not returned: first the deadlocked ones, then the others, both in order of their indices.
    pub blocks: Vec<BlockReport>,
}

/// The lanes of one block in a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// Index of the block in the grid.
    pub block: u32,
    /// Whether some lane of the block can never continue.
    pub deadlocked: bool,
    /// Groups of lanes with the same activity: the inclusive ranges of their indices in the block, and a description of
    /// the activity.
    pub groups: Vec<(Vec<(u32, u32)>, String)>,
}

/// The state of a lane: running, exited, or suspended at a source location.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    Running,
    Exited,
    Spinning(&'static Location<'static>),
    Barrier(&'static Location<'static>),
    Exchange(&'static Location<'static>, u32),
    Converging(&'static Location<'static>),
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Running => write!(f, "running"),
            Activity::Exited => write!(f, "exited"),
            Activity::Spinning(site) => write!(f, "at {} (spin)", location(site)),
            Activity::Barrier(site) => write!(f, "at {} (block barrier)", location(site)),
            Activity::Exchange(site, mask) => {
                write!(f, "at {} (warp exchange of mask {mask:#010x})", location(site))
            }
            Activity::Converging(site) => write!(f, "at {} (warp convergence)", location(site)),
        }
    }
}

impl BlockReport {
    pub(crate) fn new(block: u32, deadlocked: bool, lanes: impl Iterator<Item = Activity>) -> Self {
        let mut groups: Vec<(Activity, Vec<(u32, u32)>)> = Vec::new();
        for (thread, doing) in (0..).zip(lanes) {
            let group = match groups.iter().position(|(other, _)| *other == doing) {
                Some(known) => known,
                None => {
                    groups.push((doing, Vec::new()));
                    groups.len() - 1
                }
            };
            match groups[group].1.last_mut() {
                Some((_, last)) if *last + 1 == thread => *last = thread,
                _ => groups[group].1.push((thread, thread)),
            }
        }
        let groups = groups.into_iter().map(|(doing, ranges)| (ranges, doing.to_string())).collect();
        Self { block, deadlocked, groups }
    }
}

impl Report {
    pub(crate) fn sort(&mut self) {
        self.blocks.sort_by_key(|block| (!block.deadlocked, block.block));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, block) in self.blocks.iter().take(MAX_LISTED_BLOCKS).enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}  {block}")?;
        }
        match self.blocks.len().saturating_sub(MAX_LISTED_BLOCKS) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more blocks"),
        }
    }
}

impl fmt::Display for BlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}:", self.block)?;
        for (i, (ranges, doing)) in self.groups.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma} {} {doing}", lanes(ranges))?;
        }
        Ok(())
    }
}

fn lanes(ranges: &[(u32, u32)]) -> String {
    let one = matches!(ranges, [(first, last)] if first == last);
    let range = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let ranges: Vec<String> = ranges.iter().map(range).collect();
    format!("{} {}", if one { "lane" } else { "lanes" }, ranges.join(","))
}

pub(crate) fn location(site: &Location<'_>) -> String {
    format!("{}:{}", site.file(), site.line())
}
