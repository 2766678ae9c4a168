//! Replaces the first boot, which is not simulated.

use std::path::Path;

use mote_core::hostapi::policy::Features;

use crate::config::files::ConfigFiles;
use crate::sys::SignalSource;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Run,
    Leave,
}

pub(crate) fn run(
    _: &Path,
    _: Features,
    _: &templates::Applied,
    _: &ConfigFiles,
    _: &SignalSource,
) -> Next {
    Next::Run
}

pub(crate) mod credentials {
    use std::path::Path;

    use mote_core::hostapi::policy::Features;

    pub(crate) fn apply(_: &Path, _: Features) {}
}

pub(crate) mod templates {
    use std::path::Path;

    use mote_core::flavour::Flavour;
    use mote_core::hostapi::policy::Features;

    #[derive(Default)]
    pub(crate) struct Applied {
        pub(crate) troubles: Vec<String>,
    }

    pub(crate) fn apply(_: &Path, _: &Path, _: Flavour, _: Features) -> Applied {
        Applied::default()
    }
}
