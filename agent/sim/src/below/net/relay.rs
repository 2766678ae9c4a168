//! Nothing is relayed: there is no SFTP and no port-forward.

use std::io;

use crate::net::stream::Stream;
use crate::transport::Socket;

pub(crate) async fn relay(_: &Stream, _: Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
