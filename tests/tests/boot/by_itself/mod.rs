//! What an agent does without being told: it says Ready, and starts with what it remembers.

mod ready;
mod remember;
