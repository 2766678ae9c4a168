//! Tickets are numbers.

pub(crate) type Ticket = u64;
pub(crate) type Group = ();
