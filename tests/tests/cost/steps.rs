//! How many of each thing are made.

/// Whether an environment variable is set.
pub(crate) fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// As many as there may be, in the steps of the page; fewer if it must not take long.
pub(crate) fn steps(most: usize, short: usize) -> Vec<usize> {
    let long = set("MOTE_LONG") || set("MOTE_WRITE_DOCS");
    let most = if long { most } else { most.min(short) };
    let mut steps: Vec<_> =
        mote_tests::cost::STEPS.into_iter().filter(|step| *step <= most).collect();
    if !steps.contains(&most) {
        steps.push(most);
    }
    steps
}
