//! Decides whether the agent enters the sandbox (`sys/sandbox.rs`), which it does if nothing that
//! the host may request needs root. It first does all start-up work that needs root, and gives the
//! sandbox's group access to the files it still uses. They remain root's: the next agent trusts
//! nothing that the group can write.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::{Capability, Policy};
use rustix::net::AddressFamily;

use crate::built;
use crate::devlxd::socket;
use crate::options::Options;
use crate::runtime::{log, notify, run_dir};
use crate::start::listen::HostLink;
use crate::status::port::Found;
use crate::sys::file::{self, OFlags};
use crate::sys::sandbox::{self, Needs, RAW, STREAM, USER};
use crate::system::devices::{self, CONSOLE, Device};

/// Suffix of the policy in log and `status` for an agent in the sandbox.
pub(crate) const WORD: &str = "; in a sandbox";

/// The group's rights: to a file, and to search or change the file's directory.
const FILE: u32 = 0o060;
const SEARCH: u32 = 0o010;
const CHANGE: u32 = 0o030;

/// Returns whether nothing that is allowed and built needs root. False with two threads: the
/// sandbox applies only to the calling one.
pub(crate) fn is_for(policy: &Policy) -> bool {
    let needs = [
        (built::EXEC, Capability::Exec),
        (built::FILES, Capability::Files),
        (built::MOUNTS, Capability::Mounts),
        (built::EXEC, Capability::Power),
    ];
    !built::ASYNC_IO
        && !needs.iter().any(|(built, capability)| *built && policy.allows(*capability))
}

/// Enters the sandbox if the policy permits it and all devices are present; then returns devlxd's
/// socket if it could be created.
pub(crate) fn enter(
    options: &Options,
    policy: &Policy,
    flavour: Flavour,
    link: &HostLink,
    port: Option<&Found>,
) -> Option<Option<OwnedFd>> {
    // A sandboxed agent could not move to the new root.
    if !is_for(policy) || options.is_early() {
        return None;
    }
    let is_late = port.is_none() && devices::find(&options.root, &CONSOLE) != Device::Absent;
    if is_late || matches!(link, HostLink::SerialOnly(_)) {
        log::warn(format_args!("no sandbox: a device may still need a driver"));
        return None;
    }
    let path = socket::path(&options.root, flavour);
    let ports = port.map_or([None; 2], |port| [Some(&*port.path), port.legacy.as_deref()]);
    let forwards = built::PORT_FORWARD && policy.allows(Capability::PortForward);
    let asked = |is: bool, family: AddressFamily| if is { family.as_raw() | STREAM } else { 0 };
    let sockets = [
        options.transport.family().as_raw() | STREAM,
        AddressFamily::NETLINK.as_raw() | RAW,
        asked(forwards, AddressFamily::INET),
        asked(forwards, AddressFamily::INET6),
    ];
    let (guests, needs) =
        (socket::make(&path, flavour).ok(), Needs { ports, guests: path.parent(), sockets });
    if let Err(error) = lend_all(&options.root, &needs) {
        log::warn(format_args!("cannot give the sandbox access to a file: {error}"));
    }
    notify::keep();
    if sandbox::enter(&options.root, &needs) {
        log::info(format_args!("in a sandbox"));
    } else {
        log::warn(format_args!("in a sandbox without Landlock, seccomp or a user of its own"));
    }
    Some(guests)
}

/// Gives the group access to the files still used.
fn lend_all(root: &Path, needs: &Needs<'_>) -> io::Result<()> {
    // The agent trusts this file only while root alone can write it, so it must not exist here.
    let _none = file::unlink(&root.join(run_dir::KNOWN_HOST));
    for name in [run_dir::STATUS, run_dir::READY, run_dir::HANGING] {
        let path = root.join(name);
        drop(file::open(&path, OFlags::WRONLY | OFlags::CREATE)?);
        lend(&path, FILE)?;
    }
    lend(&root.join(run_dir::DIRECTORY), SEARCH)?;
    needs.guests.map_or(Ok(()), |directory| lend(directory, CHANGE))?;
    needs.ports.iter().flatten().try_for_each(|port| lend(port, FILE))
}

/// Adds these rights of the sandbox's group to a file.
fn lend(path: &Path, rights: u32) -> io::Result<()> {
    file::chgrp(path, USER)?;
    Ok(file::chmod(path, file::stat(path)?.st_mode | rights)?)
}
