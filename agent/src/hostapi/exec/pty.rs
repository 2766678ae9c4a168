//! Opens and resizes the pseudoterminal of a command.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mote_core::hostapi::exec::Size;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::runtime::make_directory;
use crate::sys::{self, fd::give};

/// Opens a pseudoterminal; returns its master, and the command's side, owned by `user` and `group`.
/// Errors: any error of opening `/dev/ptmx`, mount(2), fchown(2) or tcsetattr(3).
pub(super) fn open(size: Size, user: u32, group: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = match openpt(flags) {
        // An initramfs has /dev, but seldom /dev/pts.
        Err(Errno::NODEV | Errno::NOENT) => {
            mount_devpts()?;
            openpt(flags)?
        }
        other => other?,
    };
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    give(&slave, user, group)?;
    resize(&master, size);
    // The Go agents try to set this, but fail (P§9.5).
    sys::erase_whole_characters(&slave)?;
    Ok((master, slave))
}

/// Sets the terminal's size; its foreground processes get SIGWINCH.
pub(super) fn resize(master: &impl AsFd, size: Size) {
    let (ws_col, ws_row) = (size.width, size.height);
    let size = Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 };
    // Fails only if the terminal is gone.
    let _gone = tcsetwinsize(master, size);
}

fn mount_devpts() -> io::Result<()> {
    make_directory("/dev/pts".as_ref())?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount(c"devpts", c"/dev/pts", c"devpts", flags, Some(c"mode=620,ptmxmode=666"))?;
    crate::runtime::log::info(format_args!("mounted devpts on /dev/pts"));
    Ok(())
}
