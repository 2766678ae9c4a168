//! A VM as QEMU's monitor shows it: whether it runs, what it has done, how it ended.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use mote_client::common::clock;

/// Whether the monitor is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Monitor {
    /// It answers us.
    Connected,
    /// Nobody listens there.
    #[default]
    Silent,
    /// Somebody listens and does not greet: another client has it.
    Taken,
}

/// What QEMU tells by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// What the guest writes to a disk has no room on this machine, and QEMU has stopped it.
    NoSpace,
    /// The guest's kernel panicked (QEMU has a pvpanic device).
    Panicked,
    /// The VM was paused.
    Paused,
    /// The guest has opened the status port.
    PortOpened,
    /// It was resumed.
    Resumed,
    /// QEMU ends, or would: its reason.
    ShutDown(String),
    /// The guest has suspended itself to memory.
    Suspended,
}

impl News {
    /// The news in an event; `None` if there is none.
    pub fn of(event: &Value) -> Option<Self> {
        let data = &event["data"];
        Some(match event["event"].as_str()? {
            "BLOCK_IO_ERROR" if data["nospace"] == true && data["action"] == "stop" => {
                Self::NoSpace
            }
            "GUEST_PANICKED" => Self::Panicked,
            "RESUME" | "WAKEUP" => Self::Resumed,
            "SHUTDOWN" => Self::ShutDown(data["reason"].as_str().unwrap_or_default().to_owned()),
            "STOP" => Self::Paused,
            "SUSPEND" => Self::Suspended,
            "VSERPORT_CHANGE" if data["open"] == true && data["id"] == "qemu_serial" => {
                Self::PortOpened
            }
            _ => return None,
        })
    }
}

/// How a VM ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// QEMU's word; empty if it said none.
    pub reason: String,
    /// Whether its agent was heard of while it ran.
    pub heard: bool,
}

/// A line to the monitor on which orders are given.
#[derive(Debug)]
pub struct Orders(Mutex<UnixStream>);

impl Orders {
    /// On that line.
    pub fn new(line: UnixStream) -> Self {
        Self(Mutex::new(line))
    }

    /// Writes a document, whole.
    pub fn write(&self, document: &Value) -> Result<()> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(line.write_all(format!("{document}\n").as_bytes())?)
    }

    /// Gives an order.
    pub fn give(&self, order: &str) -> Result<()> {
        self.write(&json!({ "execute": order, "id": "order" }))
    }
}

/// QEMU's words for a guest whose kernel panicked: while it runs, and as the reason of its end.
const PANICKED: &str = "guest-panicked";
/// QEMU's reason for a VM that it stopped then.
pub const PANIC: &str = "guest-panic";

/// Our word for one that QEMU has stopped as this machine has no room for what it writes; QEMU's is that of any such error.
pub const NO_SPACE: &str = "nospace";

/// QEMU's word for a guest that has suspended itself to memory.
pub const SUSPENDED: &str = "suspended";

/// What is known.
#[derive(Debug, Default)]
pub struct Vm {
    /// The monitor's own.
    pub monitor: Monitor,
    /// QEMU's word for what it does: running, paused, ...; empty while it is not known.
    pub does: String,
    /// Bytes that the guest has read of the config disk; `None` where there is no such disk.
    pub share_read: Option<u64>,
    /// Whether the guest has opened the status port.
    pub port_opened: bool,
    /// How the last one ended.
    pub end: Option<End>,
    /// When it did.
    ended: Option<Instant>,
    /// While the monitor is connected.
    orders: Option<Arc<Orders>>,
}

impl Vm {
    /// One whose monitor has just answered.
    pub fn found(orders: Arc<Orders>) -> Self {
        Self { monitor: Monitor::Connected, orders: Some(orders), ..Self::default() }
    }

    /// Whether it stands still.
    pub fn is_paused(&self) -> bool {
        self.monitor == Monitor::Connected && !matches!(self.does.as_str(), "" | "running")
    }

    /// Whether QEMU has stopped it because this machine has no room for what it writes.
    pub fn has_no_space(&self) -> bool {
        self.does == NO_SPACE
    }

    /// Whether the guest's kernel has panicked.
    pub fn has_panicked(&self) -> bool {
        self.does == PANICKED
    }

    /// Takes note of news.
    pub fn note(&mut self, news: News) {
        match news {
            News::NoSpace => self.does = NO_SPACE.into(),
            News::Panicked => self.does = PANICKED.into(),
            // It follows, and says less.
            News::Paused if self.has_no_space() => {}
            News::Paused => self.does = "paused".into(),
            News::PortOpened => self.port_opened = true,
            News::Resumed => self.does = "running".into(),
            News::Suspended => self.does = SUSPENDED.into(),
            News::ShutDown(reason) => self.end = Some(End { reason, heard: false }),
        }
    }

    /// The monitor is gone, and the VM with it.
    pub fn gone(&mut self, heard: bool) {
        let reason = match self.end.take() {
            _ if self.has_panicked() => PANIC.to_owned(),
            end => end.map(|end| end.reason).unwrap_or_default(),
        };
        let ended = Some(Instant::now());
        *self = Self { end: Some(End { reason, heard }), ended, ..Self::default() };
    }

    /// Orders it, if its monitor is ours; whether it is.
    pub fn order(&self, order: &str) -> Result<bool> {
        self.orders.as_ref().map_or(Ok(false), |orders| orders.give(order).map(|()| true))
    }

    /// For people and programs.
    pub fn to_json(&self) -> Value {
        let monitor = match self.monitor {
            Monitor::Connected => "connected",
            Monitor::Silent => "silent",
            Monitor::Taken => "taken",
        };
        let end = self.end.as_ref();
        let ago = self.ended.map(|ended| clock::millis(ended.elapsed()));
        json!({"monitor": monitor, "does": self.does, "share_read": self.share_read,
            "port_opened": self.port_opened,
            "end": end.map(|end| json!({"reason": end.reason, "heard": end.heard, "ago_ms": ago}))})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_news_if_they_say_something_of_the_vm() {
        let of = |event: Value| News::of(&event);
        let port = |id: &str, open: bool| {
            of(json!({"event": "VSERPORT_CHANGE", "data": {"id": id, "open": open}}))
        };
        assert_eq!(port("qemu_serial", true), Some(News::PortOpened));
        assert_eq!((port("legacy", true), port("qemu_serial", false)), (None, None));
        let end = json!({"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}});
        assert_eq!(of(end), Some(News::ShutDown("guest-reset".into())));
        assert_eq!(of(json!({"event": "SHUTDOWN"})), Some(News::ShutDown(String::new())));
        let stopped = |nospace: bool, action: &str| {
            let data = json!({"operation": "write", "action": action, "nospace": nospace});
            of(json!({"event": "BLOCK_IO_ERROR", "data": data}))
        };
        assert_eq!(stopped(true, "stop"), Some(News::NoSpace));
        assert_eq!((stopped(true, "report"), stopped(false, "stop")), (None, None));
        assert_eq!(of(json!({"event": "RTC_CHANGE"})), None);
        assert_eq!(of(json!({"return": {}})), None);
    }

    #[test]
    fn what_a_vm_ended_with_stays_until_the_next_one_is_found() {
        let (line, _qemu) = UnixStream::pair().unwrap();
        let orders = Arc::new(Orders::new(line));
        let mut vm = Vm::found(orders.clone());
        assert!(vm.order("stop").unwrap());
        vm.note(News::Paused);
        assert!(vm.is_paused() && !vm.has_no_space());
        vm.note(News::NoSpace);
        vm.note(News::Paused);
        assert!(vm.is_paused() && vm.has_no_space());
        vm.note(News::Resumed);
        assert!(!vm.is_paused());
        vm.note(News::ShutDown("guest-reset".into()));
        vm.gone(true);
        assert_eq!(vm.end, Some(End { reason: "guest-reset".into(), heard: true }));
        assert_eq!((vm.monitor, vm.order("stop").unwrap()), (Monitor::Silent, false));
        // The next one is killed: without a word.
        vm = Vm::found(orders);
        vm.gone(false);
        assert_eq!(vm.end, Some(End { reason: String::new(), heard: false }));
    }
}
