//! The devlxd API, as hosts serve it to guests.

pub(crate) mod answer;
pub(crate) mod api;
pub(crate) mod server;
pub(crate) mod storage;
