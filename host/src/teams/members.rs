//! Selects the members of new teams from a parent team.

/// Returns the members `start`, `start + stride`, ... of `parent`, `size` in all. The error describes an invalid
/// argument.
pub(crate) fn strided(parent: &[u32], start: u32, stride: i32, size: u32) -> Result<Vec<u32>, String> {
    if size == 0 {
        return Err("a team has at least one member".into());
    }
    if stride == 0 && size > 1 {
        return Err(format!("a stride of 0 names one member, not {size}"));
    }
    let number = |k: u32| i64::from(start) + i64::from(k) * i64::from(stride);
    let member = |k| usize::try_from(number(k)).ok().and_then(|at| parent.get(at).copied());
    let inside = member(0).is_some() && member(size - 1).is_some();
    if !inside {
        let (last, n) = (number(size - 1), parent.len());
        return Err(format!("members {start} to {last} of a team of {n}"));
    }
    Ok((0..size).filter_map(member).collect())
}

/// Returns the PEs in the row or column of member `me` when `parent` is arranged in rows of `width` PEs.
pub(crate) fn in_axis(parent: &[u32], me: usize, width: usize, rows: bool) -> Vec<u32> {
    let same = |at: usize| if rows { at / width == me / width } else { at % width == me % width };
    parent.iter().enumerate().filter(|(at, _)| same(*at)).map(|(_, &pe)| pe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_may_be_positive_negative_or_zero() {
        let parent = [10, 11, 12, 13, 14];
        assert_eq!(strided(&parent, 0, 2, 3), Ok(vec![10, 12, 14]));
        assert_eq!(strided(&parent, 4, -2, 3), Ok(vec![14, 12, 10]));
        assert_eq!(strided(&parent, 3, 0, 1), Ok(vec![13]));
        assert_eq!(strided(&parent, 3, i32::MIN, 1), Ok(vec![13]));
        for (start, stride, size) in
            [(0, 2, 4), (1, -1, 3), (5, 1, 1), (0, 0, 2), (0, 1, 0), (0, i32::MAX, 3)]
        {
            assert!(strided(&parent, start, stride, size).is_err(), "{start} {stride} {size}");
        }
    }
}
