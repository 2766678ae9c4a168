//! Limits on one message of a peer (the host, a client in the guest, the status port): its size,
//! counts and depth, and the time until it is complete. Each limit states its unit, its reason, and
//! what happens past it.
//!
//! Every other size, period and deadline is a named constant with its reason, at the top of the
//! file that applies it: the status channel's in `status/pace.rs`, those of exec in `hostapi/exec`,
//! and so on. The tests below check these rules for this file, and for every duration in core and
//! shell.

use core::time::Duration;

/// Longest request or response head, bytes. Go's default is 1 MiB; no known client sends
/// 2 KiB. Over it: 431 to a client; a call to the host fails.
pub const HEAD: usize = 8 * 1024;
/// Maximum number of header fields: they are kept on the stack. Over it: 431; a call to the host
/// fails.
pub const HEADERS: usize = 48;
/// Longest request body of a client in the guest, bytes; a storage volume's config is the largest
/// real one. Longer ones of the host need admission. Over it: 413 and the connection is closed.
pub const BODY: usize = 64 * 1024;
/// Longest body of a request from the host, bytes; only exec requests may be longer. Over it: 413.
pub const HOST_BODY: usize = 1024 * 1024;
/// Longest body of a request from the host that needs no share of [`HOST_MEMORY`], bytes: nearly
/// all. Over it: the request waits for its share.
pub const HOST_SHORT: usize = 8 * 1024;
/// Longest body of an exec request, bytes: Linux takes 2 MiB of arguments and environment by
/// default; the rest is for JSON's quotes and some escapes. Over it: 413.
pub const EXEC_BODY: usize = 3 * 1024 * 1024;
/// Memory that requests of the host may occupy for long, bytes: their long bodies while they are
/// received, commands until they are started, the metadata of operations and lists of them. Large
/// enough for one command of the 2 MiB that Linux accepts, both as JSON and parsed. Over it: a
/// request waits for 3 s; then 503.
pub const HOST_MEMORY: usize = 4 * 1024 * 1024 + 96 * 1024;
/// Total size of the events that some listener has not read yet, bytes; one of [`HOST_BODY`] fits.
/// Over it: a new event waits for 1 s; then the listeners with the oldest event are dropped.
pub const EVENTS: usize = HOST_BODY + 256 * 1024;
/// Longest JSON answer of the host that is kept in memory, bytes: one config value may be a whole
/// cloud-init user-data. Over it: the call fails. Streams (image export) are forwarded piece by
/// piece.
pub const HOST_REPLY: usize = 2 * 1024 * 1024;
/// Longest answer of the host that can be held next to others, bytes: nearly all are shorter. Over
/// it: while another one is held, a guest's `GET` waits and is then repeated; other requests fail.
pub const SHORT_REPLY: usize = 16 * 1024;
/// Deepest JSON nesting, levels: the open brackets are kept as bits of one number. Over it: 400; a
/// call to the host fails.
pub const JSON_DEPTH: usize = 32;
/// Longest line accepted from the serial port, bytes: `CONNECT 4294967295:65535 <64 hex>` is 89.
/// A longer one is dropped as a whole.
pub const LINE: usize = 128;
/// From accept(2) to the end of the TLS handshake and of the first head (the Go agents: 3 s,
/// P§3.1). TLS records without HTTP, such as key updates, do not prolong it. After it the
/// connection is closed.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// From the end of a head to the end of its body, whether or not bytes still arrive. Over it: 408.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle keep-alive connection is closed after this (P§3.1).
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::fs::{read_dir, read_to_string};
    use std::path::{Path, PathBuf};

    /// The comment above each constant of this file.
    fn comments() -> Vec<(String, String)> {
        let (mut comment, mut found) = (String::new(), Vec::new());
        for line in include_str!("limits.rs").lines().take_while(|line| !line.starts_with("#[cfg"))
        {
            match (line.strip_prefix("///"), line.strip_prefix("pub const ")) {
                (Some(text), _) => comment.push_str(text),
                (_, Some(constant)) => found.push((constant.into(), core::mem::take(&mut comment))),
                _ => {}
            }
        }
        found
    }

    #[test]
    fn each_limit_has_a_unit_and_a_consequence() {
        let comments = comments();
        assert!(comments.len() >= 10, "{comments:?}");
        for (constant, comment) in comments {
            let outcome = ["Over it", "dropped", "closed"];
            assert!(outcome.iter().any(|word| comment.contains(word)), "{constant}");
            let unit = ["bytes", "levels", "number of"];
            let has_unit = unit.iter().any(|word| comment.contains(word));
            assert!(has_unit || constant.contains("Duration"), "{constant}");
        }
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                sources(&path, found);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }

    /// The lines of a source that break the rule: a literal duration outside of a constant, or a
    /// constant without a comment.
    fn nameless_times(text: &str) -> Vec<String> {
        let is_constant = |line: &str| line.starts_with("const ") || line.contains(" const ");
        let lines: Vec<_> =
            text.lines().take_while(|line| *line != "#[cfg(test)]").map(str::trim).collect();
        let mut wrong = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            let literal = line.split("Duration::from_").skip(1).any(|rest| {
                rest.split_once('(')
                    .is_some_and(|(_, it)| it.starts_with(|c: char| c.is_ascii_digit()))
            });
            let above = lines[..number].iter().rfind(|line| !is_constant(line));
            let has_reason = above.is_some_and(|line| line.starts_with("///"));
            if literal && !(is_constant(line) && has_reason) {
                wrong.push(format!("{}: {line}", number + 1));
            }
        }
        wrong
    }

    #[test]
    fn every_other_duration_has_a_name_and_a_reason() {
        let (here, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
        sources(&here.join("src"), &mut files);
        sources(&here.join("../src"), &mut files);
        assert!(files.len() > 100, "{}", files.len());
        // No duration in the runtime limits a wait for a peer.
        for file in files.iter().filter(|file| !file.to_str().unwrap().contains("/runtime/")) {
            let wrong = nameless_times(&read_to_string(file).unwrap());
            assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
        }
    }

    #[test]
    fn finds_inline_durations_and_missing_reasons() {
        for (source, count) in [
            ("/// Why.\nconst A: u32 = 1;\nconst B: Duration = Duration::from_secs(1);", 0),
            ("sleep(Duration::from_millis(millis));", 0),
            ("const B: Duration = Duration::from_secs(1);", 1),
            ("/// Why.\nfn f() {\n    sleep(Duration::from_secs(1));", 1),
        ] {
            assert_eq!(nameless_times(source).len(), count, "{source}");
        }
    }
}
