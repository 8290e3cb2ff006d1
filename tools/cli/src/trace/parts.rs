//! Finds, reads and joins the parts of a timeline: one file for each PE that is a process.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rushmem::bootstrap::Pes;
use rushmem_trace::{PART, Trace, part_of};

use crate::error::Error;

/// Parses the name of a part, and returns the path of the whole timeline and the PE. `None` for other names.
fn whole_of(part: &Path) -> Option<(PathBuf, u32)> {
    let (name, pe) = part.file_name()?.to_str()?.rsplit_once(PART)?;
    let is_number = !pe.is_empty() && pe.bytes().all(|digit| digit.is_ascii_digit());
    let pe = pe.parse().ok().filter(|_| is_number)?;
    (!name.is_empty()).then(|| (part.with_file_name(name), pe))
}

/// Finds the existing parts of the timeline `file`, sorted by PE.
///
/// # Errors
/// - [`Error::Environment`]: the folder cannot be read.
pub(crate) fn all_parts(file: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unreadable =
        |error| Error::Environment(format!("cannot read the folder {}: {error}", folder.display()));
    let mut parts = Vec::new();
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(parts),
        entries => {
            for entry in entries.map_err(unreadable)? {
                let path = file.with_file_name(entry.map_err(unreadable)?.file_name());
                if let Some((_, pe)) = whole_of(&path).filter(|(whole, _)| whole == file) {
                    parts.push((pe, path));
                }
            }
        }
    }
    parts.sort();
    Ok(parts)
}

/// Reads a timeline, or a part of one, from a file.
///
/// # Errors
/// - [`Error::Environment`]: the file cannot be read.
/// - [`Error::Usage`]: it is not a timeline.
pub(super) fn read(file: &Path) -> Result<Trace, Error> {
    let name = file.display();
    let unreadable = |error: std::io::Error| Error::Environment(format!("cannot read {name}: {error}"));
    match Trace::read(File::open(file).map_err(unreadable)?) {
        Ok(trace) => Ok(trace),
        Err(rushmem_trace::Error::Io(error)) => Err(unreadable(error)),
        Err(error) => Err(Error::Usage(format!(
            "{name}: {error}; name a file that a job with RUSHMEM_TRACE has written to its end"
        ))),
    }
}

/// Writes a timeline to a file.
///
/// # Errors
/// - [`Error::Environment`]: the file cannot be written.
pub(super) fn write(trace: &Trace, file: &Path) -> Result<(), Error> {
    let unwritten = |error: rushmem_trace::Error| {
        let remedy = "choose a folder with room that you may write to";
        Error::Environment(format!("cannot write {}: {error}; {remedy}", file.display()))
    };
    let to = File::create(file).map_err(|error| unwritten(rushmem_trace::Error::Io(error)))?;
    trace.write(to).map_err(unwritten)
}

/// Returns the PEs that occur in a timeline.
pub(super) fn pes_of(trace: &Trace) -> Pes {
    Pes(trace.spans.iter().map(|span| span.pe).collect::<BTreeSet<_>>().into_iter().collect())
}

/// Returns which files to read for `files`, and which file to write, if any.
///
/// # Errors
/// - [`Error::Usage`]: a file is missing, or it is unclear which file to write.
pub(super) fn resolve(
    files: &[PathBuf],
    out: Option<&Path>,
) -> Result<(Vec<PathBuf>, Option<PathBuf>), Error> {
    let mut sources = Vec::new();
    let mut wholes = BTreeSet::new();
    for file in files {
        let parts = newer_parts(file)?;
        if !parts.is_empty() {
            wholes.insert(Some(file.clone()));
            sources.extend(parts);
        } else if modified(file).is_some() {
            wholes.insert(whole_of(file).map(|(whole, _)| whole));
            sources.push(file.clone());
        } else {
            let (name, part) = (file.display(), part_of(file, 0));
            return Err(Error::Usage(format!(
                "there is no file {name}, and no part such as {}; a job with RUSHMEM_TRACE={name} writes it",
                part.display()
            )));
        }
    }
    sources.dedup();
    if let Some(out) = out {
        return Ok((sources, Some(out.to_owned())));
    }
    let mut wholes = wholes.into_iter();
    match (wholes.next().flatten(), wholes.next()) {
        (Some(whole), None) => Ok((sources, Some(whole))),
        (None, None) if files.len() == 1 => Ok((sources, None)),
        _ => {
            Err(Error::Usage("these files belong to several timelines; name the joined file with -o".into()))
        }
    }
}

/// Returns the parts of `file`, unless `file` itself is newer.
fn newer_parts(file: &Path) -> Result<Vec<PathBuf>, Error> {
    let parts: Vec<_> = all_parts(file)?.into_iter().map(|(_, part)| part).collect();
    let newest = parts.iter().filter_map(|part| modified(part)).max();
    Ok(if newest > modified(file) { parts } else { Vec::new() })
}

/// Returns when a file was last modified, or `None` if it does not exist.
fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|about| about.modified()).ok()
}

/// Which PEs a joined timeline contains, and which it lacks.
pub(crate) struct Joined {
    /// PEs whose parts were joined.
    pub(crate) pes: Pes,
    /// PEs that have left no part.
    pub(crate) missing: Pes,
}

/// Joins the parts of `pes` into the timeline `file`, and removes them. Writes nothing if no part exists.
///
/// # Errors
/// - [`Error::Environment`]: a part cannot be read or removed, or the file cannot be written.
/// - [`Error::Usage`]: a part is not a timeline.
pub(crate) fn join(file: &Path, pes: impl Iterator<Item = u32>) -> Result<Joined, Error> {
    let (mut trace, mut parts) = (Trace::default(), Vec::new());
    let mut joined = Joined { pes: Pes(Vec::new()), missing: Pes(Vec::new()) };
    for pe in pes {
        let part = part_of(file, pe);
        if modified(&part).is_none() {
            joined.missing.0.push(pe);
            continue;
        }
        trace.merge(read(&part)?);
        joined.pes.0.push(pe);
        parts.push(part);
    }
    if !parts.is_empty() {
        write(&trace, file)?;
    }
    for part in parts {
        std::fs::remove_file(&part)
            .map_err(|error| Error::Environment(format!("cannot remove {}: {error}", part.display())))?;
    }
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use rushmem_trace::{Category, Detail, Span, Track};

    use super::*;

    fn trace(pe: u32) -> Trace {
        let (track, name, category) = (Track::Host, "call".into(), Category::Host);
        let span =
            Span { pe, track, name, category, site: None, begin: 5, end: Some(9), detail: Detail::default() };
        Trace { spans: vec![span], ..Trace::default() }
    }

    #[test]
    fn parts_have_the_name_of_the_whole() {
        assert_eq!(part_of(Path::new("a/t.json"), 12), Path::new("a/t.json.pe12"));
        assert_eq!(whole_of(Path::new("a/t.json.pe12")), Some(("a/t.json".into(), 12)));
        for other in ["t.json", "t.pe", "t.pe+1", ".pe1", "t.pe99999999999", "t.pe1.bak"] {
            assert_eq!(whole_of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn resolves_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let resolved = |names: &[&str], out: Option<&str>| {
            let files: Vec<_> = names.iter().map(|name| at(name)).collect();
            resolve(&files, out.map(Path::new)).map_err(|error| error.to_string())
        };
        for pe in [10, 0, 2] {
            write(&trace(pe), &part_of(&at("t"), pe)).unwrap();
        }
        let parts = vec![at("t.pe0"), at("t.pe2"), at("t.pe10")];
        assert_eq!(resolved(&["t"], None), Ok((parts.clone(), Some(at("t")))));
        assert_eq!(resolved(&["t.pe0", "t.pe2", "t.pe10"], None), Ok((parts, Some(at("t")))));
        assert_eq!(resolved(&["t.pe2"], Some("o")), Ok((vec![at("t.pe2")], Some("o".into()))));
        assert!(resolved(&["absent"], None).unwrap_err().contains("RUSHMEM_TRACE="));
        // A joined file that is newer than its parts is read instead of them.
        std::thread::sleep(std::time::Duration::from_millis(20));
        write(&trace(0), &at("t")).unwrap();
        assert_eq!(resolved(&["t"], None), Ok((vec![at("t")], None)));
        write(&trace(0), &at("u")).unwrap();
        assert!(resolved(&["t", "u"], None).unwrap_err().contains("-o"));
    }

    #[test]
    fn parts_are_joined_into_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t");
        write(&trace(1), &part_of(&file, 1)).unwrap();
        write(&trace(3), &part_of(&file, 3)).unwrap();
        let Joined { pes, missing } = join(&file, 0..3).unwrap();
        assert_eq!((pes, missing), (Pes(vec![1]), Pes(vec![0, 2])));
        assert_eq!(pes_of(&read(&file).unwrap()), Pes(vec![1]));
        assert_eq!(all_parts(&file).unwrap(), [(3, part_of(&file, 3))]);
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t");
        std::fs::write(&file, "{").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("/t: it is not a trace") && error.contains("RUSHMEM_TRACE"), "{error}");
        let error = write(&trace(0), &file.join("x")).unwrap_err().to_string();
        assert!(error.contains("/t/x: ") && error.contains("folder"), "{error}");
    }
}
