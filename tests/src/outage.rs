//! Calls an agent again and again while a new one replaces it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::prelude::*;

pub struct Outage {
    over: Arc<AtomicBool>,
    calls: JoinHandle<Vec<String>>,
}

impl Outage {
    /// Makes each call on a new connection: an existing one would stay with the old agent.
    pub fn watch(client: Client) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let calls = thread::spawn(move || {
            let mut failed = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let answer = client.connect().and_then(|mut wire| wire.ask("GET", "/1.0", "", b""));
                match answer.map(|answer| answer.status) {
                    Ok(200) => {}
                    Ok(other) => failed.push(format!("status {other}")),
                    Err(why) => failed.push(why),
                }
                thread::sleep(Duration::from_millis(10));
            }
            failed
        });
        Self { over, calls }
    }

    pub fn failures(self) -> Vec<String> {
        self.over.store(true, Ordering::Relaxed);
        self.calls.join().expect("the calls")
    }
}
