//! Actions on a running VM: hot-plug, buttons and keys.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{kill, patient, qmp, wait};

use super::{Late, Vm, machine};

impl Vm {
    /// Hot-plugs a device, given as for `-device`, whose backend exists.
    pub fn attach(&self, device: &str) {
        self.add(&machine::plugged(device, self.slot()));
    }

    fn add(&self, device: &str) {
        let (driver, properties) = device.split_once(',').expect("a device has properties");
        let mut arguments = json!({"driver": driver});
        for property in properties.split(',') {
            let (name, value) = property.split_once('=').expect("a name and a value");
            arguments[name] = value.into();
        }
        self.order("device_add", &arguments);
    }

    /// Returns the next free slot for hot-plug.
    fn slot(&self) -> usize {
        self.plugged.replace(self.plugged.get() + 1)
    }

    pub fn plug_late(&mut self, what: Late) {
        // A port needs its device's bus.
        let slot = self.slot();
        let late = self.late.iter().filter(|(late, _)| *late == what);
        let devices: Vec<_> = late.flat_map(|(_, devices)| devices).collect();
        assert!(!devices.is_empty(), "{what:?} is there already");
        devices.into_iter().for_each(|device| self.add(&machine::plugged(device, slot)));
    }

    /// Hot-plugs the CPU with this number, for which `-smp` leaves room, as `limits.cpu` does.
    ///
    /// # Panics
    /// If QEMU refuses it.
    pub fn add_cpu(&self, number: u32) {
        let model = std::env::var("MOTE_CPU").unwrap_or_else(|_| "qemu64".into());
        let place = json!({"driver": format!("{model}-x86_64-cpu"), "id": format!("cpu{number}"),
            "socket-id": 0, "core-id": number, "thread-id": 0});
        self.order("device_add", &place);
    }

    /// Hot-plugs memory, for which `-m` leaves room, as `limits.memory` does.
    ///
    /// # Panics
    /// If QEMU refuses it.
    pub fn add_memory(&self, mib: u64) {
        let backend = json!({"qom-type": "memory-backend-memfd", "id": "more", "size": mib << 20,
            "share": true});
        self.order("object-add", &backend);
        self.add("pc-dimm,id=dimm,memdev=more");
    }

    /// Calls `work` while QEMU is stopped. The disks' files then contain all writes that the guest
    /// knows to be complete.
    pub fn standing<T>(&self, work: impl FnOnce() -> T) -> T {
        // Not by QMP: at some `cont`, vhost-device-vsock 0.3.0 silently ends the thread that serves
        // the guest.
        let qemu = self.qemu.0.id();
        kill(Signal::STOP, qemu);
        wait("a standstill", patient(Duration::from_secs(5)), || {
            let stat = std::fs::read_to_string(format!("/proc/{qemu}/stat")).ok()?;
            stat.rsplit(')').next()?.starts_with(" T").then_some(())
        });
        let done = work();
        kill(Signal::CONT, qemu);
        done
    }

    /// Resizes this drive's disk, as a new volume size does.
    ///
    /// # Panics
    /// If QEMU refuses it.
    pub fn resize(&self, drive: &str, bytes: u64) {
        self.order("block_resize", &json!({"device": drive, "size": bytes}));
    }

    pub fn pause(&self) {
        self.order("stop", &json!({}));
    }

    pub fn go_on(&self) {
        self.order("cont", &json!({}));
    }

    /// Requests a hot-unplug, which the guest must confirm.
    pub fn unplug(&self, device: &str) {
        self.order("device_del", &json!({"id": device}));
        let there = json!({"path": format!("/machine/peripheral/{device}")});
        wait("its end", patient(Duration::from_secs(20)), || {
            self.ask("qom-list", &there).get("error").map(|_| ())
        });
    }

    /// Stops the VM and writes its state to a file for `-incoming`, as a stateful stop does. QEMU
    /// cannot do this with a vhost-user-vsock device.
    pub fn save(&self, file: &Path) {
        self.order("migrate", &json!({"uri": format!("exec:cat >{}", file.display())}));
        wait("its state", patient(Duration::from_secs(60)), || {
            let told = self.ask("query-migrate", &json!({}));
            assert_ne!(told["return"]["status"], "failed", "{told}");
            (told["return"]["status"] == "completed").then_some(())
        });
    }

    pub fn power_button(&self) {
        self.order("system_powerdown", &json!({}));
    }

    pub fn ctrl_alt_del(&self) {
        let keys = ["ctrl", "alt", "delete"].map(|key| json!({"type": "qcode", "data": key}));
        self.order("send-key", &json!({"keys": keys}));
    }

    /// Sends a monitor command, which must succeed.
    pub(super) fn order(&self, command: &str, arguments: &Value) {
        let answer = self.ask(command, arguments);
        assert!(answer.get("return").is_some(), "{command} {arguments}: {answer}");
        if command == "device_add" {
            machine::tell(&self.directory);
        }
    }

    fn ask(&self, command: &str, arguments: &Value) -> Value {
        let hot = self.directory.join("hot");
        // QEMU may have just started.
        let (hot, _) = wait("the second monitor", patient(Duration::from_secs(10)), || {
            UnixStream::connect(&hot).ok()
        });
        hot.set_read_timeout(Some(patient(Duration::from_secs(20)))).expect("a timeout");
        qmp(&hot, command, arguments).expect("the second monitor")
    }
}
