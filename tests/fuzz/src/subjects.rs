//! The core's files and their targets (`subjects.txt`). Each file has a target, except those that read no input.

/// The files of a target; of `none`, those that need no target.
pub fn of(target: &str) -> impl Iterator<Item = &'static str> {
    let lines = include_str!("subjects.txt").lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| line.split_once(": ").expect("TARGET: FILES"));
    rows.filter(move |(name, _)| *name == target)
        .flat_map(|(_, files)| files.split(" (").next().unwrap_or_default().split(' '))
}
