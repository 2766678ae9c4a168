//! A QEMU that consists of a monitor and a ring buffer (P§2.3).

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use mote_qemu::Ring;
use serde_json::{Value, json};

use super::host::{Host, SOON, wait};

#[derive(Default)]
pub(crate) struct Inner {
    ring: Ring,
    reads: u32,
    monitor: Option<UnixStream>,
    pub(crate) does: &'static str,
    pub(crate) share_read: Option<u64>,
    orders: Vec<String>,
}

/// A QEMU that ends, as if killed, when dropped.
pub(crate) struct Qemu {
    inner: Arc<Mutex<Inner>>,
    path: std::path::PathBuf,
}

impl Qemu {
    pub(crate) fn of(host: &Host) -> Self {
        Self::start(&host.path("vm1.qmp"))
    }

    pub(crate) fn start(path: &Path) -> Self {
        let _stale = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let inner = Inner { does: "running", ..Inner::default() };
        let inner = Arc::new(Mutex::new(inner));
        let ours = inner.clone();
        std::thread::spawn(move || {
            // Like QEMU, serves one client of the monitor at a time.
            for stream in listener.incoming().flatten() {
                ours.lock().unwrap().monitor = Some(stream.try_clone().unwrap());
                serve(&ours, stream);
                // This scripted QEMU was dropped, so no client may connect again.
                if Arc::strong_count(&ours) == 1 {
                    return;
                }
            }
        });
        Self { inner, path: path.to_owned() }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Opens the port, writes and closes it, so that QEMU sends an event.
    pub(crate) fn say(&self, text: &str) {
        self.mutter(text);
        self.event("VSERPORT_CHANGE");
    }

    /// Writes without opening or closing the port, so that QEMU sends no event.
    pub(crate) fn mutter(&self, text: &str) {
        self.inner().ring.write(text.as_bytes());
    }

    pub(crate) fn event(&self, name: &str) {
        self.event_with(name, &json!({}));
    }

    pub(crate) fn event_with(&self, name: &str, data: &Value) {
        let event = json!({"event": name, "data": data, "timestamp": {}});
        if let Some(monitor) = &mut self.inner().monitor {
            let _gone = monitor.write_all(format!("{event}\r\n").as_bytes());
        }
    }

    pub(crate) fn is_ordered(&self, order: &str) -> bool {
        self.inner().orders.iter().any(|given| given == order)
    }

    pub(crate) fn is_read(&self) {
        wait("the first read", SOON, || (self.reads() > 0).then_some(()));
    }

    pub(crate) fn reads(&self) -> u32 {
        self.inner().reads
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
        if let Some(monitor) = &self.inner().monitor {
            let _gone = monitor.shutdown(Shutdown::Both);
        }
    }
}

fn serve(inner: &Arc<Mutex<Inner>>, mut stream: UnixStream) {
    let greeting = json!({"QMP": {"version": {}, "capabilities": ["oob"]}});
    if stream.write_all(format!("{greeting}\r\n").as_bytes()).is_err() {
        return;
    }
    let mut negotiated = false;
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let Ok(line) = line else { return };
        let command: Value = serde_json::from_str(&line).unwrap();
        let mut answer = match (command["execute"].as_str().unwrap(), negotiated) {
            ("qmp_capabilities", _) => {
                negotiated = true;
                json!({"return": {}})
            }
            ("ringbuf-read", true) => {
                assert_eq!(command["arguments"]["device"], "qemu_serial-chardev");
                let mut inner = inner.lock().unwrap();
                inner.reads += 1;
                json!({"return": String::from_utf8(inner.ring.take()).unwrap()})
            }
            ("query-status", true) => json!({"return": {"status": inner.lock().unwrap().does}}),
            ("query-blockstats", true) => {
                let read = inner.lock().unwrap().share_read;
                let disk =
                    read.map(|count| json!({"device": "config", "stats": {"rd_bytes": count}}));
                json!({"return": [{"device": "root", "stats": {"rd_bytes": 1}}, disk]})
            }
            (order @ ("system_powerdown" | "quit"), true) => {
                inner.lock().unwrap().orders.push(order.to_owned());
                json!({"return": {}})
            }
            (other, _) => json!({"error": {"class": "CommandNotFound", "desc": other}}),
        };
        answer["id"] = command["id"].clone();
        if stream.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
            return;
        }
    }
}
