//! Delivers events to listeners. A listener that falls behind is dropped.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use mote_client::common::clock::now;

/// Events queued for one listener.
const BACKLOG: usize = 1024;

#[derive(Default)]
pub struct Events(Mutex<Vec<Listener>>);

/// The only instance of interest, if any, and where its events go.
type Listener = (Option<String>, SyncSender<Value>);

impl Events {
    /// Follows all instances, or one.
    pub fn subscribe(&self, only: Option<String>) -> Receiver<Value> {
        let (sender, receiver) = sync_channel(BACKLOG);
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push((only, sender));
        receiver
    }

    /// Sends an event to all listeners for the instance.
    pub fn tell(&self, name: &str, kind: &str, metadata: &Value) {
        let event = json!({"type": kind, "timestamp": now(), "instance": name,
            "metadata": metadata});
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|(only, sender)| {
            only.as_deref().is_some_and(|only| only != name)
                || sender.try_send(event.clone()).is_ok()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_receive_only_their_instance_and_slow_ones_are_dropped() {
        let events = Events::default();
        let (one, all) = (events.subscribe(Some("a".into())), events.subscribe(None));
        events.tell("b", "lifecycle", &json!({}));
        events.tell("a", "lifecycle", &json!({}));
        assert_eq!(one.try_recv().unwrap()["instance"], "a");
        assert!(one.try_recv().is_err());
        assert_eq!(all.try_iter().count(), 2);
        for _ in 0..=BACKLOG {
            events.tell("b", "lifecycle", &json!({}));
        }
        assert_eq!(all.try_iter().count(), BACKLOG);
        assert!(all.recv().is_err(), "dropped");
    }
}
