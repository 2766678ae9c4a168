//! Actions on a running VM: hot-plug, buttons and keys.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::{kill, patient, wait};

use super::{Late, Vm, device_add, machine};

impl Vm {
    /// Hot-plugs a device, given as for `-device`, whose backend exists.
    pub fn attach(&self, device: &str) {
        self.order(&[device_add(&machine::plugged(device, self.slot()))]);
    }

    /// Returns the next free slot for hot-plug.
    pub(super) fn slot(&self) -> usize {
        self.plugged.replace(self.plugged.get() + 1)
    }

    pub fn plug_late(&mut self, what: Late) {
        let late = self.late.iter().filter(|(late, _)| *late == what);
        // A port needs its device's bus.
        let slot = self.slot();
        let orders: Vec<_> = late
            .flat_map(|(_, devices)| devices)
            .map(|it| device_add(&machine::plugged(it, slot)))
            .collect();
        assert!(!orders.is_empty(), "{what:?} is there already");
        self.order(&orders);
    }

    /// Hot-plugs the CPU with this number, for which `-smp` leaves room, as `limits.cpu` does.
    ///
    /// # Panics
    /// If QEMU refuses it.
    pub fn add_cpu(&self, number: u32) {
        let model = std::env::var("MOTE_CPU").unwrap_or_else(|_| "qemu64".into());
        self.order(&[format!(
            "{{\"execute\":\"device_add\",\"arguments\":{{\"driver\":\"{model}-x86_64-cpu\",\
             \"id\":\"cpu{number}\",\"socket-id\":0,\"core-id\":{number},\"thread-id\":0}}}}"
        )]);
    }

    /// Hot-plugs memory, for which `-m` leaves room, as `limits.memory` does.
    ///
    /// # Panics
    /// If QEMU refuses it.
    pub fn add_memory(&self, mib: u64) {
        self.order(&[
            format!(
                "{{\"execute\":\"object-add\",\"arguments\":{{\"qom-type\":\"memory-backend-memfd\",\
                 \"id\":\"more\",\"size\":{},\"share\":true}}}}",
                mib << 20
            ),
            device_add("pc-dimm,id=dimm,memdev=more"),
        ]);
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
        self.order(&[format!(
            "{{\"execute\":\"block_resize\",\"arguments\":{{\"device\":\"{drive}\",\"size\":{bytes}}}}}"
        )]);
    }

    /// Pauses the VM, as a server does.
    pub fn pause(&self) {
        self.order(&["{\"execute\":\"stop\"}".to_owned()]);
    }

    pub fn go_on(&self) {
        self.order(&["{\"execute\":\"cont\"}".to_owned()]);
    }

    /// Requests a hot-unplug, which the guest must confirm.
    pub fn unplug(&self, device: &str) {
        let id = format!("{{\"id\":\"{device}\"}}");
        self.order(&[format!("{{\"execute\":\"device_del\",\"arguments\":{id}}}")]);
        let path = format!("{{\"path\":\"/machine/peripheral/{device}\"}}");
        let there = format!("{{\"execute\":\"qom-list\",\"arguments\":{path}}}");
        wait("its end", patient(Duration::from_secs(20)), || {
            self.ask(&there).contains("\"error\"").then_some(())
        });
    }

    /// Stops the VM and writes its state to a file for `-incoming`, as a stateful stop does. QEMU
    /// cannot do this with a vhost-user-vsock device.
    pub fn save(&self, file: &Path) {
        let uri = format!("{{\"uri\":\"exec:cat >{}\"}}", file.display());
        self.order(&[format!("{{\"execute\":\"migrate\",\"arguments\":{uri}}}")]);
        wait("its state", patient(Duration::from_secs(60)), || {
            let told = self.ask("{\"execute\":\"query-migrate\"}");
            assert!(!told.contains("failed"), "{told}");
            told.contains("\"completed\"").then_some(())
        });
    }

    /// Presses the power button, as a server's stop does.
    pub fn power_button(&self) {
        self.order(&["{\"execute\":\"system_powerdown\"}".to_owned()]);
    }

    pub fn ctrl_alt_del(&self) {
        let key = |name: &str| format!("{{\"type\":\"qcode\",\"data\":\"{name}\"}}");
        let keys = ["ctrl", "alt", "delete"].map(key).join(",");
        self.order(&[format!("{{\"execute\":\"send-key\",\"arguments\":{{\"keys\":[{keys}]}}}}")]);
    }

    /// Sends monitor commands.
    pub(super) fn order(&self, orders: &[String]) {
        for order in orders {
            let answer = self.ask(order);
            assert!(answer.contains("\"return\""), "{order}: {answer}");
        }
        if orders.iter().any(|order| order.contains("device_add")) {
            machine::tell(&self.directory);
        }
    }

    /// Sends a monitor command. Returns its answer.
    fn ask(&self, order: &str) -> String {
        let hot = self.directory.join("hot");
        // QEMU may have just started.
        let (hot, _) = wait("the second monitor", patient(Duration::from_secs(10)), || {
            UnixStream::connect(&hot).ok()
        });
        hot.set_read_timeout(Some(patient(Duration::from_secs(20)))).expect("a timeout");
        let mut answers = BufReader::new(&hot).lines();
        let mut answer = String::new();
        for order in ["{\"execute\":\"qmp_capabilities\"}", order] {
            (&hot).write_all(order.as_bytes()).expect("the second monitor");
            let told = answers.by_ref().map_while(Result::ok);
            answer = told
                .into_iter()
                .find(|line| !line.contains("\"event\"") && !line.contains("\"QMP\""))
                .unwrap_or_default();
        }
        answer
    }
}
