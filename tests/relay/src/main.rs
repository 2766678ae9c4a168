//! `mote-relay SOCKET`: standard input to a unix socket, what comes back to standard output, until
//! the other side hangs up. So that the tests can say any bytes to devlxd in the guest; the image's
//! busybox has nothing for that.

use std::fs::File;
use std::io::{ErrorKind, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else { return ExitCode::from(2) };
    let relay = || {
        let mut socket = UnixStream::connect(path)?;
        let mut other = socket.try_clone()?;
        // Not shut down after it: for Go's servers that is a client that has left.
        std::thread::spawn(move || std::io::copy(&mut stdin(), &mut other));
        // Not stdout itself, which waits for the ends of lines.
        let mut output = File::from(stdout().as_fd().try_clone_to_owned()?);
        std::io::copy(&mut socket, &mut output)
    };
    match relay() {
        Ok(_) => ExitCode::SUCCESS,
        // Who reads us has enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mote-relay: {error}");
            ExitCode::FAILURE
        }
    }
}
