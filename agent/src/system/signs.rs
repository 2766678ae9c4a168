//! Signs of a resume: a virtio NIC's gratuitous announcements, the kernel's log, and the RTC. They
//! concern the whole machine, so `--root` does not apply.

use std::os::fd::OwnedFd;
use std::path::Path;

use mote_core::report::proc::number;
use mote_core::resume::is_fork;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use crate::runtime::read_text;
use crate::sys::file::{self, OFlags};
use crate::sys::restored::only_announcements;

/// Multicast group `RTMGRP_LINK`.
const LINKS: u32 = 1;
/// Maximum size of a kernel log record that is read, in bytes. The kernel skips a longer one.
const RECORD: usize = 256;

/// Returns a non-blocking socket that receives a message for each NIC that announces itself; `None`
/// if the kernel lacks netlink.
pub(crate) fn announcements() -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // NETLINK_ROUTE is 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).ok()?;
    let is_told =
        only_announcements(&socket) && bind(&socket, &SocketAddrNetlink::new(0, LINKS)).is_ok();
    is_told.then_some(socket)
}

/// Returns whether there is a driver for virtio NICs, which announce themselves after a restore.
pub(crate) fn has_nic() -> bool {
    file::exists("/sys/bus/virtio/drivers/virtio_net".as_ref())
}

/// Returns whether the kernel notices a new generation: whether QEMU's device has a driver. It is a
/// platform device since Linux 6.10.
pub(crate) fn has_generation() -> bool {
    file::exists("/sys/bus/platform/devices/QEMUVGID:00/driver".as_ref())
        || file::exists("/sys/bus/acpi/devices/QEMUVGID:00/driver".as_ref())
}

/// Opens the kernel's log at its end, non-blocking.
pub(crate) fn kernel_log() -> Option<OwnedFd> {
    let log = file::open("/dev/kmsg".as_ref(), OFlags::NONBLOCK).ok()?;
    seek(&log, SeekFrom::End(0)).ok()?;
    Some(log.into())
}

/// Reads all pending records; returns whether one reports a new generation.
pub(crate) fn is_forked(log: &OwnedFd) -> bool {
    let mut is_forked = false;
    loop {
        let mut record = [0; RECORD];
        match rustix::io::read(log, &mut record) {
            Ok(length) => is_forked |= is_fork(record.get(..length).unwrap_or_default()),
            // The record was too long, or overwritten before it was read: read a later one.
            Err(Errno::INVAL | Errno::PIPE) => {}
            Err(_) => return is_forked,
        }
    }
}

/// Returns the RTC's time in seconds since 1970, if there is one.
pub(crate) fn hardware_clock() -> Option<i64> {
    let text = read_text(Path::new("/sys/class/rtc/rtc0/since_epoch")).ok()?;
    i64::try_from(number(text.trim_ascii_end().as_bytes())?).ok()
}
