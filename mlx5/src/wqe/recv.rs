//! Receive work-queue entries, which are just lists of data segments.

use crate::seg::{DataSeg, Segment};
use core::slice;

/// Returns the scatter list of a receive entry. `segments` is the whole stride, without the link segment of a shared
/// receive queue. A segment of length 0 with lkey [`DataSeg::LIST_END_LKEY`] terminates the list early.
pub fn scatter(segments: &[Segment]) -> Scatter<'_> {
    Scatter { rest: segments.iter() }
}

/// Iterator over the data segments of a receive entry; see [`scatter`].
#[derive(Clone, Debug)]
pub struct Scatter<'a> {
    rest: slice::Iter<'a, Segment>,
}

impl Iterator for Scatter<'_> {
    type Item = DataSeg;

    fn next(&mut self) -> Option<DataSeg> {
        let segment = DataSeg::from_segment(*self.rest.next()?);
        if segment.lkey.get() == DataSeg::LIST_END_LKEY {
            self.rest = [].iter();
            return None;
        }
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_list_stops_at_the_marker() {
        let first = DataSeg::new(0x1000, 7, 64);
        let end = DataSeg::new(0, DataSeg::LIST_END_LKEY, 0);
        let stride = [first, end, first, first].map(DataSeg::to_segment);
        let mut list = scatter(&stride);
        assert_eq!(list.next(), Some(first));
        assert_eq!(list.next(), None);
        assert_eq!(list.next(), None);
        assert_eq!(scatter(&stride[2..]).count(), 2, "a full stride has no marker");
    }
}
