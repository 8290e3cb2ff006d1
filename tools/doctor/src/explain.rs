//! Explains codes and names that occur in error messages, for `rushmem explain`.

use rushmem_device::Error as Code;
use rushmem_mlx5::Syndrome;

use super::CHECKS;
use rushmem::config::{SETTINGS, Setting, nearest};
use rushmem::{Status, meaning_of};

/// Syndromes of mlx5, with value and name in `enum ibv_wc_status` of libibverbs.
const SYNDROMES: [(Syndrome, u32, &str); 13] = [
    (Syndrome::LOCAL_LENGTH_ERR, 1, "LOC_LEN_ERR"),
    (Syndrome::LOCAL_QP_OP_ERR, 2, "LOC_QP_OP_ERR"),
    (Syndrome::LOCAL_PROT_ERR, 4, "LOC_PROT_ERR"),
    (Syndrome::WR_FLUSH_ERR, 5, "WR_FLUSH_ERR"),
    (Syndrome::MW_BIND_ERR, 6, "MW_BIND_ERR"),
    (Syndrome::BAD_RESP_ERR, 7, "BAD_RESP_ERR"),
    (Syndrome::LOCAL_ACCESS_ERR, 8, "LOC_ACCESS_ERR"),
    (Syndrome::REMOTE_INVAL_REQ_ERR, 9, "REM_INV_REQ_ERR"),
    (Syndrome::REMOTE_ACCESS_ERR, 10, "REM_ACCESS_ERR"),
    (Syndrome::REMOTE_OP_ERR, 11, "REM_OP_ERR"),
    (Syndrome::TRANSPORT_RETRY_EXC_ERR, 12, "RETRY_EXC_ERR"),
    (Syndrome::RNR_RETRY_EXC_ERR, 13, "RNR_RETRY_EXC_ERR"),
    (Syndrome::REMOTE_ABORTED_ERR, 16, "REM_ABORT_ERR"),
];

/// Explains a code or name from an error message. Returns one line per meaning.
///
/// Accepts a syndrome in hexadecimal, such as `0x15`, or a status code: of libibverbs, of this library, or of a
/// kernel's call. Also accepts their names, checks of `rushmem doctor`, and settings with or without the prefix
/// `RUSHMEM_`.
///
/// ```
/// let lines = rushmem_doctor::explain("0x15");
/// assert!(lines[0].starts_with("syndrome 0x15 (TRANSPORT_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR = 12): "));
/// ```
pub fn explain(word: &str) -> Vec<String> {
    let hex = word.strip_prefix("0x").and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let number: Option<u32> = word.parse().ok();
    let is = |name: &str| name.eq_ignore_ascii_case(word);
    let mut lines = Vec::new();
    for (syndrome, status, name) in SYNDROMES {
        let ours = syndrome.name().unwrap_or_default();
        let verbs = format!("IBV_WC_{name}");
        if hex == Some(syndrome.0) || number == Some(status) || is(ours) || is(&verbs) || is(name) {
            lines.push(format!(
                "syndrome {:#04x} ({ours}, {verbs} = {status}): {}",
                syndrome.0,
                syndrome.meaning()
            ));
        }
    }
    for status in Status::ALL {
        if number == u32::try_from(status.code()).ok() || is(status.name()) {
            lines.push(format!("status {} ({}): {}", status.code(), status.name(), status.meaning()));
        }
    }
    for code in (1..).map_while(Code::from_code) {
        let name = format!("{code:?}");
        if number == Some(code as u32) || is(&name) {
            lines.push(format!("error {} of a kernel's call ({name}): {}", code as u32, meaning_of(code)));
        }
    }
    for check in CHECKS.iter().filter(|check| is(check.id)) {
        lines.push(format!("check {} ({}): {}", check.id, check.about, check.why));
    }
    lines.extend(Setting::find_by_name(word).map(explain_setting));
    lines
}

/// Suggests a name that [`explain`] knows and that `word` was most likely meant to be.
pub fn suggest(word: &str) -> Option<String> {
    let codes: Vec<String> = (1..).map_while(Code::from_code).map(|code| format!("{code:?}")).collect();
    let syndromes = SYNDROMES.iter().flat_map(|(syndrome, _, name)| [syndrome.name().unwrap_or(name), name]);
    let settings = SETTINGS.iter().flat_map(|setting| [setting.key, setting.env]);
    let names = codes.iter().map(String::as_str).chain(Status::ALL.iter().map(|status| status.name()));
    nearest(word, names.chain(settings).chain(syndromes)).map(str::to_owned)
}

/// Returns group, description, type and default of a setting.
fn explain_setting(setting: &Setting) -> String {
    let unit = if setting.unit.is_empty() { String::new() } else { format!(" ({})", setting.unit) };
    let default = if setting.default.is_empty() { "none" } else { setting.default };
    let expert = if setting.expert { ", expert" } else { "" };
    format!(
        "setting {} ({}; group {}{expert}): {} Value{unit}: {}. Default: {default}.",
        setting.key,
        setting.env,
        setting.group.title(),
        setting.doc,
        setting.accepts()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_have_the_same_meaning() {
        let by_syndrome = explain("0x15");
        assert_eq!(by_syndrome.len(), 1);
        for name in ["TRANSPORT_RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR", "retry_exc_err"] {
            assert_eq!(explain(name), by_syndrome, "{name}");
        }
        let by_number = explain("12");
        assert_eq!(by_number[0], by_syndrome[0]);
        assert!(by_number[1].starts_with("status 12 (bootstrap): "), "{by_number:?}");
        assert!(by_number[2].starts_with("error 12 of a kernel's call (InGroup): "), "{by_number:?}");
        assert!(explain("Poisoned")[0].contains("already in the error state"));
        assert!(explain("peer_lost")[0].starts_with("status 11 "));
        assert_eq!(explain("n4"), ["check N4 (port): Only an active port carries traffic."]);
    }

    #[test]
    fn explains_settings_with_and_without_prefix() {
        let lines = explain("heap_bytes");
        assert_eq!(lines.len(), 1);
        let start = "setting heap_bytes (RUSHMEM_HEAP_BYTES; group Memory): Size of the symmetric heap of each PE. Value (bytes): a";
        assert!(lines[0].starts_with(start) && lines[0].ends_with(" Default: 64MiB."), "{lines:?}");
        assert_eq!(explain("RUSHMEM_HEAP_BYTES"), lines);
        assert!(explain("cq")[0].contains("group Network, expert"));
    }

    #[test]
    fn unknown_words_have_no_explanation() {
        for word in ["0x77", "4000000000", "99999999999", "-1", "", "0x", "IBV_WC_"] {
            assert!(explain(word).is_empty(), "{word:?}");
        }
    }
}
