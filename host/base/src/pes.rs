use std::fmt;

/// A list of PEs, displayed as `PE 3` or `PEs 0-2, 5`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pes(pub Vec<u32>);

impl fmt::Display for Pes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &pe in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(pe) => *last = pe,
                _ => ranges.push((pe, pe)),
            }
        }
        f.write_str(if self.0.len() == 1 { "PE " } else { "PEs " })?;
        for (i, (first, last)) in ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_lists_of_pes_as_ranges() {
        assert_eq!(Pes(vec![3]).to_string(), "PE 3");
        assert_eq!(Pes(vec![0, 1, 2, 5, 7, 8]).to_string(), "PEs 0-2, 5, 7-8");
        assert_eq!(Pes(vec![u32::MAX, 0]).to_string(), "PEs 4294967295, 0");
    }
}
