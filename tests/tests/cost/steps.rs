//! Counts at which costs are measured.

pub(crate) fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Returns the page's steps up to `most`, or fewer in a short run.
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
