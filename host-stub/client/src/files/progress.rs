//! Progress of a transfer, shown on stderr if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use rustix::termios::tcgetwinsize;

use crate::common::printable;

/// Columns needed for a name, numbers and a bar.
const WIDE: u16 = 72;
/// Columns for the name in front of a bar.
const NAME: usize = 24;

/// Returns the bar of one transfer. Length 0 means unknown, as for files in /proc.
pub(crate) fn bar(name: &str, length: u64) -> ProgressBar {
    // A line that wraps cannot be drawn over.
    let columns = tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
    styled(
        if length == 0 { ProgressBar::no_length() } else { ProgressBar::new(length) },
        name,
        columns,
    )
}

fn styled(bar: ProgressBar, name: &str, columns: u16) -> ProgressBar {
    // A `wide` element gets the remaining columns and is truncated.
    let template = match (bar.length(), columns >= WIDE) {
        (Some(_), true) => "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        (Some(_), false) => "{wide_msg} {percent:>3}%",
        (None, true) => "{msg} {spinner} {bytes} {bytes_per_sec}",
        (None, false) => "{wide_msg} {bytes:>10}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    let name = printable::text(name);
    let name = if columns >= WIDE { name.chars().take(NAME).collect() } else { name };
    bar.set_message(name);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Result;
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};

    /// A terminal that records its input.
    #[derive(Clone, Debug)]
    struct Terminal {
        columns: u16,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            self.columns
        }
        fn move_cursor_up(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.lines.lock().unwrap().push(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> Result<()> {
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_progress_bar_fits_and_contains_no_escapes() {
        for columns in [20, 40, 71, 72, 80, 200] {
            for length in [0, 5_000_000_000] {
                let lines = Arc::new(Mutex::new(Vec::new()));
                let terminal = Terminal { columns, lines: lines.clone() };
                let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal), 255);
                let bar = if length == 0 { None } else { Some(length) };
                let bar = ProgressBar::with_draw_target(bar, target);
                let bar = styled(bar, "a name \x1b[2J that is longer than twenty columns", columns);
                bar.inc(4_999_999_999);
                bar.force_draw();
                let lines = lines.lock().unwrap();
                assert!(lines.iter().any(|line| line.contains("a name")), "{lines:?}");
                for line in lines.iter() {
                    assert!(line.chars().count() <= usize::from(columns), "{columns}: {line:?}");
                    assert!(!line.contains('\x1b'), "{line:?}");
                }
            }
        }
    }
}
