//! How far a transfer has come, for people: drawn on stderr if that is a terminal, silent otherwise.

use indicatif::{ProgressBar, ProgressStyle};

/// One transfer; of unknown length if that is 0, as files in /proc have it.
pub(crate) fn bar(name: &str, length: u64) -> ProgressBar {
    let (bar, template) = match length {
        0 => (ProgressBar::no_length(), "{msg} {spinner} {bytes} {bytes_per_sec}"),
        _ => {
            let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            (ProgressBar::new(length), template)
        }
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(name.to_owned());
    bar
}
