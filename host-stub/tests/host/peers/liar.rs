//! An agent that passes each connection to a test's function.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use rustls::{ServerConnection, StreamOwned};

use super::agent::tls;
use super::guest::Guest;
use super::host::Host;
use super::wire::{Message, read_request};

pub(crate) type Stream = StreamOwned<ServerConnection, UnixStream>;

/// Serves requests until the test ends.
pub(crate) fn start(
    socket: &Path,
    share: &Path,
    act: impl Fn(&Message, Stream) -> std::io::Result<()> + Send + Sync + 'static,
) {
    let (config, listener) = (tls(share), UnixListener::bind(socket).unwrap());
    let act = Arc::new(act);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, act) = (config.clone(), act.clone());
            std::thread::spawn(move || {
                let tls = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(tls, stream);
                if let Ok(request) = read_request(&mut stream) {
                    let _cut = act(&request, stream);
                }
            });
        }
    });
}

/// Returns a host whose `vm1` has such an agent, which has announced itself.
pub(crate) fn host(
    act: impl Fn(&Message, Stream) -> std::io::Result<()> + Send + Sync + 'static,
) -> Host {
    let mut host = Host::with_instance("lxd", &[]);
    start(&host.path("vm1.p.listen_8443"), &host.share("vm1"), act);
    host.start();
    assert_eq!(Guest::of(&host).get("/1.0").0, 200);
    host
}
