//! A VM as QEMU's monitor shows it: whether it runs, its events, its end.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use mote_client::clock;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Monitor {
    /// The monitor answers this daemon.
    Connected,
    /// No process listens.
    #[default]
    Silent,
    /// A process listens but sends no greeting: another client is connected.
    Taken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// QEMU's reason; empty if unknown.
    pub reason: String,
    /// Whether its agent had reported itself.
    pub heard: bool,
}

#[derive(Debug)]
pub struct Orders(Mutex<UnixStream>);

impl Orders {
    pub fn new(line: UnixStream) -> Self {
        Self(Mutex::new(line))
    }

    pub fn write(&self, document: &Value) -> Result<()> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(line.write_all(format!("{document}\n").as_bytes())?)
    }

    pub fn give(&self, order: &str) -> Result<()> {
        self.write(&json!({ "execute": order, "id": "order" }))
    }
}

/// QEMU's name for a kernel panic, as a state and as the reason of a shutdown.
const PANICKED: &str = "guest-panicked";
/// QEMU's reason for the end of a VM that it stopped after a panic.
pub const PANIC: &str = "guest-panic";

/// The state of a VM that QEMU stopped for lack of space. QEMU itself has one state for all disk
/// errors.
pub const NO_SPACE: &str = "nospace";

/// QEMU's state of a guest that is suspended to memory.
pub const SUSPENDED: &str = "suspended";

#[derive(Debug, Default)]
pub struct Vm {
    pub monitor: Monitor,
    /// QEMU's state: running, paused, ...; empty if unknown.
    pub does: String,
    /// Bytes that the guest has read of the config disk; `None` without such a disk.
    pub share_read: Option<u64>,
    pub port_opened: bool,
    pub end: Option<End>,
    ended: Option<Instant>,
    /// Connection for orders, while the monitor is connected.
    orders: Option<Arc<Orders>>,
}

impl Vm {
    pub fn found(orders: Arc<Orders>) -> Self {
        Self { monitor: Monitor::Connected, orders: Some(orders), ..Self::default() }
    }

    pub fn is_paused(&self) -> bool {
        self.monitor == Monitor::Connected && !matches!(self.does.as_str(), "" | "running")
    }

    pub fn has_no_space(&self) -> bool {
        self.does == NO_SPACE
    }

    pub fn has_panicked(&self) -> bool {
        self.does == PANICKED
    }

    pub fn note(&mut self, event: &Value) {
        let data = &event["data"];
        match event["event"].as_str().unwrap_or_default() {
            "BLOCK_IO_ERROR" if data["nospace"] == true && data["action"] == "stop" => {
                self.does = NO_SPACE.into();
            }
            "GUEST_PANICKED" => self.does = PANICKED.into(),
            "RESUME" | "WAKEUP" => self.does = "running".into(),
            "SHUTDOWN" => {
                let reason = data["reason"].as_str().unwrap_or_default().to_owned();
                self.end.get_or_insert(End { reason, heard: false });
            }
            // STOP follows BLOCK_IO_ERROR and is less specific.
            "STOP" if !self.has_no_space() => self.does = "paused".into(),
            "SUSPEND" => self.does = SUSPENDED.into(),
            "VSERPORT_CHANGE" if data["open"] == true && data["id"] == "qemu_serial" => {
                self.port_opened = true;
            }
            _ => {}
        }
    }

    /// Ends a VM whose kernel has halted.
    pub fn halted(&mut self) -> Result<bool> {
        self.note(&json!({"event": "SHUTDOWN", "data": {"reason": "guest-shutdown"}}));
        self.order("quit")
    }

    /// Records the end of the monitor and therefore of the VM.
    pub fn gone(&mut self, heard: bool) {
        let reason = match self.end.take() {
            _ if self.has_panicked() => PANIC.to_owned(),
            end => end.map(|end| end.reason).unwrap_or_default(),
        };
        let ended = Some(Instant::now());
        *self = Self { end: Some(End { reason, heard }), ended, ..Self::default() };
    }

    pub fn order(&self, order: &str) -> Result<bool> {
        self.orders.as_ref().map_or(Ok(false), |orders| orders.give(order).map(|()| true))
    }

    pub fn to_json(&self) -> Value {
        let end = self.end.as_ref();
        let ago = self.ended.map(|ended| clock::millis(ended.elapsed()));
        json!({"monitor": self.monitor, "does": self.does, "share_read": self.share_read,
            "port_opened": self.port_opened,
            "end": end.map(|end| json!({"reason": end.reason, "heard": end.heard, "ago_ms": ago}))})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_vms_end_until_the_next_vm() {
        let (line, _qemu) = UnixStream::pair().unwrap();
        let orders = Arc::new(Orders::new(line));
        let mut vm = Vm::found(orders.clone());
        let note = |vm: &mut Vm, event: &str, data: Value| {
            vm.note(&json!({"event": event, "data": data}));
        };
        assert!(vm.order("stop").unwrap());
        note(&mut vm, "STOP", Value::Null);
        for (nospace, action) in [(true, "report"), (false, "stop"), (true, "stop")] {
            assert!(vm.is_paused() && !vm.has_no_space(), "before {nospace} {action}");
            note(&mut vm, "BLOCK_IO_ERROR", json!({"action": action, "nospace": nospace}));
        }
        note(&mut vm, "STOP", Value::Null);
        assert!(vm.is_paused() && vm.has_no_space());
        note(&mut vm, "RESUME", Value::Null);
        for (id, open) in [("legacy", true), ("qemu_serial", false), ("qemu_serial", true)] {
            assert!(!vm.is_paused() && !vm.port_opened, "before {id} {open}");
            note(&mut vm, "VSERPORT_CHANGE", json!({"id": id, "open": open}));
        }
        assert!(vm.port_opened);
        note(&mut vm, "SHUTDOWN", json!({"guest": true, "reason": "guest-reset"}));
        vm.gone(true);
        assert_eq!(vm.end, Some(End { reason: "guest-reset".into(), heard: true }));
        assert_eq!((vm.monitor, vm.order("stop").unwrap()), (Monitor::Silent, false));
        // The next VM is killed, which sends no event.
        vm = Vm::found(orders);
        vm.gone(false);
        assert_eq!(vm.end, Some(End { reason: String::new(), heard: false }));
    }
}
