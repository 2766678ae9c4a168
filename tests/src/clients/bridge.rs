//! Forwards a local socket to a port of a VM's vsock or to a unix socket. Each connection has two
//! threads until both sides have closed.

use mote_client::agent::client::dial;
use mote_client::instance::Instance;
use mote_client::net::stream::Limit;

use crate::prelude::*;

/// Listens at a unix socket until the process ends, and forwards each connection to a port of the
/// guest.
pub fn unix(path: &Path, port: u32, instance: Instance) {
    let listener = UnixListener::bind(path).expect("a socket");
    let dial = move || {
        let far = dial(&instance, port, Limit::Never).ok()?.socket;
        // A connection may be silent for any time.
        far.set_read_timeout(None).expect("a socket");
        Some(far)
    };
    thread::spawn(move || forward(listener.incoming(), dial));
}

/// Forwards connections from a TCP port, whose address it returns, to a unix socket.
pub fn tcp(to: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let faster = |near: io::Result<TcpStream>| near.inspect(|near| drop(near.set_nodelay(true)));
    thread::spawn(move || {
        forward(listener.incoming().map(faster), move || UnixStream::connect(&to).ok());
    });
    address
}

fn forward<N: Into<OwnedFd> + Send, F: Into<OwnedFd>>(
    callers: impl Iterator<Item = io::Result<N>>,
    dial: impl Fn() -> Option<F> + Sync,
) {
    thread::scope(|scope| {
        for near in callers.map_while(Result::ok) {
            scope.spawn(|| dial().map(|far| carry(near, far)));
        }
    });
}

/// Copies in both directions, until `far` has ended. The end of one side is passed on.
pub fn carry(near: impl Into<OwnedFd>, far: impl Into<OwnedFd>) {
    let (near, far) = (UnixStream::from(near.into()), UnixStream::from(far.into()));
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
    thread::spawn(move || one_way(near_too, far_too));
    one_way(far, near);
}

fn one_way(mut from: UnixStream, mut to: UnixStream) {
    let _cut = io::copy(&mut from, &mut to);
    let _gone = to.shutdown(Shutdown::Write);
}
