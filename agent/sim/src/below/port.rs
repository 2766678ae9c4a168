//! The status port.

use crate::host::port;
use crate::options::Options;
use crate::runtime::reactor::{Async, Source};
use crate::sim_prelude::*;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) flavour: Flavour,
    pub(crate) legacy: Option<PathBuf>,
    pub(crate) doubt: Option<String>,
}

pub(super) const ONE: &str = "another has it open";

pub(crate) fn find(options: &Options) -> Result<Found, String> {
    if !here().qemu.is_there() {
        return Err("there is no port".into());
    }
    Ok(Found {
        path: "/dev/vport1p1".into(),
        flavour: options.flavour.unwrap_or(Flavour::Lxd),
        legacy: Some("/dev/vport1p2".into()),
        doubt: None,
    })
}

pub(crate) fn find_early(options: &Options) -> Result<Found, String> {
    find(options)
}

pub(crate) fn flavour(_: &Options, found: &Result<Found, String>) -> Option<Flavour> {
    found.as_ref().map(|found| found.flavour).ok()
}

pub(crate) fn holder(_: &Path, _: &Path) -> Option<(u64, String)> {
    None
}

pub(crate) fn busy(_: &Path, _: &Path) -> Option<String> {
    None
}

#[derive(Debug)]
pub(crate) struct Port(port::Port);

impl Port {
    pub(crate) fn open(_: &Path) -> io::Result<Self> {
        port::Port::open(&here().qemu).map(Self).ok_or_else(|| Errno::BUSY.into())
    }

    pub(crate) fn write(&self, line: &[u8]) -> io::Result<()> {
        here().serves("the status port");
        self.0.write(line).ok_or_else(|| Errno::AGAIN.into())
    }

    pub(crate) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Source for Port {
    fn seen(&self) -> u64 {
        self.0.seen()
    }

    async fn changed(&self, seen: u64) {
        self.0.changed(seen).await;
    }
}

pub(super) fn watched(port: Port) -> io::Result<Async<Port>> {
    Async::new(port)
}

pub(crate) fn kick(_: &Path) {
    here().qemu.kick();
}
