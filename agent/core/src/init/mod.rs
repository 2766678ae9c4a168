//! What the agent decides as process 1 of a VM whose image has nothing but it: [`plan`] is what is asked of it,
//! [`restarts`] when what has ended is started again, [`button`] what a power button says, [`shutdown`] the order in
//! which a system ends.

pub mod button;
pub mod plan;
pub mod restarts;
pub mod shutdown;
