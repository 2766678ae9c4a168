//! What a connection may become after its last HTTP request. The request's buffers are gone by then:
//! an idle exec or listener costs its TLS state and little more.

use crate::built::Later;
use crate::stream::Stream;

/// What it becomes, and all that is needed for that.
pub(crate) struct Upgrade(Box<dyn FnOnce(Stream) -> Later<'static>>);

impl Upgrade {
    /// What `serve` makes of it.
    pub(crate) fn new<F>(serve: impl FnOnce(Stream) -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        Self(Box::new(|stream| Box::pin(serve(stream))))
    }

    /// Serves it to its end.
    pub(crate) fn run(self, stream: Stream) -> Later<'static> {
        self.0(stream)
    }
}

/// Says yes to an upgrade to `protocol`, in a record of its own: the host reads the head with a
/// buffer it throws away (P§4.4).
///
/// # Errors
/// The stream's.
pub(crate) async fn switch(stream: &Stream, protocol: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await
}
