//! No service manager.

use std::time::Duration;

pub(crate) fn ready() {}

pub(crate) fn waiting(_: &str) {}

pub(crate) fn running() {}

pub(crate) fn stopping() {}

pub(crate) fn watchdog() {}

pub(crate) fn watchdog_interval() -> Option<Duration> {
    None
}
