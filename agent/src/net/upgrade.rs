//! Upgrades a connection after its last HTTP request. The request's buffers are freed first, so an
//! idle exec or listener costs little more than its TLS state.

use crate::built::BoxFuture;
use crate::net::stream::Stream;

/// The handler of an upgraded connection.
pub(crate) struct Upgrade(Box<dyn FnOnce(Stream) -> BoxFuture<'static>>);

impl Upgrade {
    pub(crate) fn new<F>(serve: impl FnOnce(Stream) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        Self(Box::new(|stream| Box::pin(serve(stream))))
    }

    pub(crate) fn run(self, stream: Stream) -> BoxFuture<'static> {
        self.0(stream)
    }
}

/// Answers 101 for `protocol`, with the header lines `more`, in a separate TLS record: the host
/// discards what it reads beyond the head (P§4.4). Errors: as [`Stream::write_all`].
pub(crate) async fn switch(stream: &Stream, protocol: &str, more: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).await
}
