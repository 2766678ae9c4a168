//! Forwards a local socket to a port of a VM's vsock or to a unix socket. Each connection has two
//! threads until both sides have closed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use crate::conform::client::Way;

/// Listens on a unix socket at `path` and forwards its connections to `port` by this transport,
/// until the process ends.
pub fn unix(path: &Path, port: u32, way: Way) {
    let listener = UnixListener::bind(path).expect("a socket");
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let way = way.clone();
            thread::spawn(move || {
                if let Ok(far) = way.dial(port) {
                    // A connection may be silent for any time.
                    far.set_read_timeout(None).expect("a socket");
                    carry(near, far);
                }
            });
        }
    });
}

/// Listens on a TCP port and forwards its connections to a unix socket, until the process ends;
/// returns the port's address.
pub fn tcp(to: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let _faster = near.set_nodelay(true);
            let to = to.clone();
            thread::spawn(move || {
                if let Ok(far) = UnixStream::connect(to) {
                    carry(near, far);
                }
            });
        }
    });
    address
}

/// One side of a connection.
trait Side: Sized + Send + 'static {
    fn twin(&self) -> std::io::Result<Self>;
    fn end(&self);
}

impl Side for UnixStream {
    fn twin(&self) -> std::io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) {
        let _gone = self.shutdown(Shutdown::Write);
    }
}

impl Side for TcpStream {
    fn twin(&self) -> std::io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) {
        let _gone = self.shutdown(Shutdown::Write);
    }
}

/// Copies in both directions. The end of one is passed on; the other continues.
fn carry<A, B>(near: A, far: B)
where
    A: Side + Read + Write,
    B: Side + Read + Write,
{
    let (Ok(near_too), Ok(far_too)) = (near.twin(), far.twin()) else { return };
    thread::spawn(move || one_way(near_too, far_too));
    one_way(far, near);
}

fn one_way(mut from: impl Read, mut to: impl Write + Side) {
    let _cut = std::io::copy(&mut from, &mut to);
    to.end();
}
