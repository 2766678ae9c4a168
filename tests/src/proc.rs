//! Figures from `/proc/PID`.

use std::time::{Duration, Instant};

/// Prints the pid of a guest's agent.
pub const PID: &str = r#"sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' /run/mote/status"#;

/// Returns the kilobytes of a field in `text` (`status`, `smaps_rollup`); `None` without the field.
pub fn kilobytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

pub fn memory(pid: u32, file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a living process");
    kilobytes(&text, field).unwrap_or_else(|| panic!("no {field} in {text}"))
}

/// Returns the CPU time of a local process, in hundredths of a second.
pub fn ticks(pid: u32) -> u64 {
    ticks_of(pid, 2)
}

/// Like [`ticks`], with its reaped children.
pub fn ticks_with_children(pid: u32) -> u64 {
    ticks_of(pid, 4)
}

/// Sums the first fields of utime, stime, cutime and cstime (proc_pid_stat(5)).
fn ticks_of(pid: u32, fields: usize) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    after_name(&text).skip(11).take(fields).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the fraction of `time` that a local process ran, from 0 to 1. Time that it waits
/// for a busy CPU is excluded, so a loop is always 1.
pub fn busy(pid: u32, time: Duration) -> f64 {
    let times = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"));
        let text = text.expect("a living process");
        let mut times =
            text.split_whitespace().map(|field| field.parse::<f64>().expect("a number"));
        [times.next(), times.next()].map(|time| time.expect("a time") / 1e9)
    };
    let (begun, [ran, waited]) = (Instant::now(), times());
    std::thread::sleep(time);
    let [ran, waited] = [times()[0] - ran, times()[1] - waited];
    let free = begun.elapsed().as_secs_f64() - waited;
    println!("{pid}: {ran:.3} s on a CPU, {waited:.3} s of waiting for one, {free:.3} s free");
    ran / free.max(ran)
}

pub fn page_faults(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a living process");
    let faults = after_name(&text).nth(7).and_then(|field| field.parse().ok());
    faults.unwrap_or_else(|| panic!("no page faults in {text}"))
}

pub fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|one| one.parse().ok()).collect()
}

/// Lists local processes with their command lines, whose words end with NUL.
pub fn processes() -> impl Iterator<Item = (u32, String)> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).into_owned()))
    })
}

/// Returns the start time of a process since boot, from its `/proc/PID/stat`.
pub fn started(stat: &str) -> Duration {
    let ticks = after_name(stat).nth(19).and_then(|field| field.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.unwrap_or_else(|| panic!("no start in {stat}")))
}

/// Returns the fields of a `stat` line after the name, which is in brackets and may contain spaces.
/// Times are in hundredths of a second (`getconf CLK_TCK`).
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit(')').next().unwrap_or_default().split_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_field_by_its_exact_name() {
        let text =
            "5555-7fff ---p 0 00:00 0 [rollup]\nPss:  956 kB\nPss_Dirty:  12 kB\nState:\tS (x)\n";
        assert_eq!(kilobytes(text, "Pss:"), Some(956));
        assert_eq!(kilobytes(text, "Pss_Dirty:"), Some(12));
        assert_eq!(kilobytes(text, "Rss:"), None);
        assert_eq!(kilobytes(text, "State:"), None);
        assert!(memory(std::process::id(), "status", "VmRSS:") > 0);
    }
}
