//! Actions of an agent on its own: it reports Ready, and starts with what it remembers.

mod ready;
mod remember;
