//! Logs the summary of a job: one line about its NICs, and a warning about PEs whose rails are not at the highest
//! level.

use std::collections::BTreeMap;

use rushmem_fabric::provider::NicKind;
use rushmem_fabric::queues::{PeNics, RailLevel};

use crate::log::SUMMARY;

/// Logs the summary of a job. `all_p2p` means that no kernel of this PE posts to a NIC.
///
/// In a job without RDMA devices, the line appears only at log level `info`.
pub(super) fn log<'a>(nics: &'a [PeNics], all_p2p: bool) {
    let of_pe = |(pe, nics): (usize, &'a PeNics)| nics.rails.iter().map(move |rail| (pe, &rail.level));
    let levels: Vec<Level<'a>> = nics.iter().enumerate().flat_map(of_pe).collect();
    let line = describe(&levels, all_p2p);
    if levels.iter().any(|(_, level)| level.kind == NicKind::Hardware) {
        tracing::info!(target: SUMMARY, "{line}");
    } else {
        tracing::info!("{line}");
    }
    if let Some(warning) = steps(&levels) {
        tracing::warn!("{warning}");
    }
}

/// The rank of a PE, and the level of one of its rails.
type Level<'a> = (usize, &'a RailLevel);

/// Formats the summary line: groups of PEs with equal levels, and their NICs.
fn describe(levels: &[Level], all_p2p: bool) -> String {
    let mut groups = BTreeMap::<String, (Vec<usize>, Vec<&str>)>::new();
    for &(pe, level) in levels {
        let (pes, names) = groups.entry(level.to_string()).or_default();
        if pes.last() != Some(&pe) {
            pes.push(pe);
        }
        let name = if level.kind == NicKind::Software { "the software ConnectX" } else { short(&level.nic) };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let group = |(manner, (pes, names)): (String, (Vec<usize>, Vec<&str>))| {
        let who = if pes.len() == 1 { format!("PE {}", pes[0]) } else { format!("{} PEs", pes.len()) };
        format!("{who}: {} ({manner})", names.join(", "))
    };
    let text = groups.into_iter().map(group).collect::<Vec<_>>().join("; ");
    if all_p2p { format!("{text}; PE 0 reaches all PEs over P2P, without its NIC") } else { text }
}

/// Shortens the name of a NIC: `mlx5_0 (0000:3b:00.0) port 1` to `mlx5_0`.
fn short(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(device, _)| device)
}

/// Formats the warning about rails below the highest level: each distinct fallback, with the first PE it occurred on.
/// Returns `None` if there is no fallback.
fn steps(levels: &[Level]) -> Option<String> {
    let mut found = Vec::<(&str, usize, Vec<usize>)>::new();
    for &(pe, level) in levels {
        for step in &level.steps {
            // The cause may contain the NIC's name. Fallbacks on different NICs are the same if the text before the
            // cause is.
            let kind = step.split(", because").next().unwrap_or(step);
            match found.iter_mut().find(|(text, _, _)| text.starts_with(kind)) {
                Some((_, _, pes)) if pes.last() == Some(&pe) => {}
                Some((_, _, pes)) => pes.push(pe),
                None => found.push((step, pe, vec![pe])),
            }
        }
    }
    let text = |(step, first, pes): &(&str, usize, Vec<usize>)| match pes.len() {
        1 => format!("on PE {first}, {step}"),
        n => format!("on {n} PEs, first PE {first}, {step}"),
    };
    let all: Vec<_> = found.iter().map(text).collect();
    (!all.is_empty()).then(|| format!("the NIC path is slower than it could be: {}", all.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_fabric::provider::LinkLayer;

    fn level(nic: &str) -> RailLevel {
        RailLevel {
            nic: nic.into(),
            kind: NicKind::Hardware,
            link: LinkLayer::InfiniBand,
            gbps: Some(400),
            queues_on_gpu: true,
            heap_on_gpu: true,
            cpu_rings: false,
            no_record: false,
            relaxed_keys: false,
            steps: Vec::new(),
        }
    }

    /// Returns the levels of a job whose PEs have one NIC each.
    fn job(levels: &[RailLevel]) -> Vec<Level<'_>> {
        levels.iter().enumerate().collect()
    }

    #[test]
    fn equal_pes_share_one_description() {
        let nics = [level("mlx5_0 (0000:3b:00.0) port 1"), level("mlx5_1 port 1"), level("mlx5_0 port 1")];
        let nics = job(&nics);
        let wanted = "3 PEs: mlx5_0, mlx5_1 (InfiniBand 400 Gb/s, queues in GPU memory, doorbells by kernels, heap in GPU memory)";
        assert_eq!(describe(&nics, false), wanted);
        assert_eq!(
            describe(&nics, true),
            format!("{wanted}; PE 0 reaches all PEs over P2P, without its NIC")
        );
        assert_eq!(steps(&nics), None);
    }

    #[test]
    fn relaxed_keys_are_named() {
        let nics = [RailLevel { relaxed_keys: true, ..level("mlx5_0") }];
        let nics = job(&nics);
        assert!(describe(&nics, false).ends_with("heap in GPU memory, relaxed ordering of data)"));
        assert_eq!(steps(&nics), None);
    }

    #[test]
    fn lower_level_is_described_once() {
        let lower = |nic: &str| RailLevel {
            cpu_rings: true,
            steps: vec![format!("a CPU thread writes the doorbells, because {nic} cannot")],
            ..level(nic)
        };
        let nics = [level("mlx5_0"), lower("mlx5_1"), lower("mlx5_2")];
        let nics = job(&nics);
        let text = describe(&nics, false);
        assert!(text.contains("PE 0: mlx5_0 (") && text.contains("2 PEs: mlx5_1, mlx5_2 ("), "{text}");
        let warning = steps(&nics).unwrap();
        assert!(
            warning
                .ends_with("on 2 PEs, first PE 1, a CPU thread writes the doorbells, because mlx5_1 cannot")
        );
    }
}
