//! `mote-relay SOCKET`: copies stdin to a unix socket and its answer to stdout, until the other
//! side hangs up. With it tests can send any bytes to devlxd in the guest, for which the image's
//! busybox has no program.

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
        // Do not shut down the socket afterwards: Go's servers would consider the client gone.
        std::thread::spawn(move || std::io::copy(&mut stdin(), &mut other));
        // Use a copy of the descriptor, because std's stdout buffers lines.
        let mut output = File::from(stdout().as_fd().try_clone_to_owned()?);
        std::io::copy(&mut socket, &mut output)
    };
    match relay() {
        Ok(_) => ExitCode::SUCCESS,
        // The reader has hung up.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mote-relay: {error}");
            ExitCode::FAILURE
        }
    }
}
