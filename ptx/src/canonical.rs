//! Canonical spelling of TOML values, for hashing: the hash of a manifest then does not depend on its layout.

use toml::{Table, Value};

/// Formats `table` with sorted keys and without any optional layout.
pub(crate) fn canonical_table(table: &Table) -> String {
    let mut out = String::new();
    write_table(table, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::String(s) => out.push_str(&format!("{s:?}")),
        Value::Integer(i) => out.push_str(&i.to_string()),
        Value::Float(f) => out.push_str(&format!("{f:?}")),
        Value::Boolean(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Datetime(d) => out.push_str(&d.to_string()),
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Table(table) => write_table(table, out),
    }
}

fn write_table(table: &Table, out: &mut String) {
    let mut keys: Vec<_> = table.keys().collect();
    keys.sort();
    out.push('{');
    for key in keys {
        out.push_str(&format!("{key:?}="));
        write(&table[key], out);
        out.push(',');
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        canonical_table(&text.parse().unwrap())
    }

    #[test]
    fn layout_order_and_comments_do_not_matter() {
        let inline = of("b = 1\na = { y = [true, 2.5], x = 'q' }");
        let long = of("b = 1 # c\n[a]\nx = \"q\"\ny = [\n true,\n 2.5 ]\n");
        assert_eq!(inline, long);
        assert_eq!(of("b = 1\na = 'x'"), r#"{"a"="x","b"=1,}"#);
    }

    #[test]
    fn values_matter() {
        let all = ["a = 1", "a = 2", "a = '1'", "a = [1]", "a = true", "a.b = 1", "a = 1.0", "b = 1"].map(of);
        for (i, x) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|y| x != y), "{x}");
        }
    }
}
