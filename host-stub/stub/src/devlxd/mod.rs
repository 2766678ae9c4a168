//! The devlxd API as hosts serve it to guests.

pub mod api;
pub mod server;
