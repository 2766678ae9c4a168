//! What a host does when a VM starts or ends (P§6).

use std::sync::Arc;
use std::time::Instant;

use super::agent_state::Word;
use super::state::Daemon;
use super::vm::{Orders, Vm};
use mote_client::instance::{AGENT, Channel, Flavour, POWER, READY, store, vsock_device};

impl Daemon {
    /// Records that a VM's monitor answers.
    pub fn vm_found(&self, name: &str, orders: Arc<Orders>) {
        let _gone = self.with(name, |live| {
            live.vm = Vm::found(orders);
            live.agent.power_on();
        });
        self.power_on(name);
    }

    /// Records that its monitor, and therefore the VM, has ended. Ends the vsock process that the
    /// recipe started.
    pub fn vm_gone(&self, name: &str) {
        let _deleted = self.with(name, |live| {
            let heard = live.called || live.agent.word() != Word::Unknown;
            live.vm.gone(heard);
        });
        self.vm_off(name);
    }

    /// Records the end of a VM that was not observed.
    pub fn vm_off(&self, name: &str) {
        self.power_off(name);
        let Ok(instance) = self.instance(name) else { return };
        match vsock_device::end(&self.root, &instance) {
            Ok(true) => self.log(&format!("{name}: stopped vhost-device-vsock")),
            Ok(false) => {}
            Err(error) => self.log(&format!("{name}: {error:#}")),
        }
    }

    /// Records that the VM runs.
    pub fn power_on(&self, name: &str) {
        let set = self.change(name, |instance| {
            instance
                .config
                .insert(POWER.into(), "RUNNING".into())
                .is_none_or(|was| was != "RUNNING")
        });
        // A daemon that finds it running has not seen its start, so the time counts from here.
        let _gone = self.with(name, |live| {
            live.running.get_or_insert_with(Instant::now);
        });
        match set {
            Ok(true) => self.event(name, "instance-started"),
            Ok(false) => {}
            Err(error) => self.log(&format!("{name}: {error:#}")),
        }
    }

    /// Records that the VM is off, and clears Ready (P§6). Also prepares the share for the next
    /// start, which may not be announced in time.
    pub fn power_off(&self, name: &str) {
        let set = self.change(name, |instance| {
            instance.config.insert(READY.into(), "false".into());
            instance
                .config
                .insert(POWER.into(), "STOPPED".into())
                .is_none_or(|was| was != "STOPPED")
        });
        let instance = self.with(name, |live| {
            live.agent.power_off();
            live.called = false;
            live.running = None;
            live.instance.clone()
        });
        let result = match (set, instance) {
            (Ok(true), Ok(instance)) => {
                self.event(name, "instance-stopped");
                if instance.flavour == Flavour::Incus && instance.config.contains_key(AGENT) {
                    self.agent_noted(name, "STOPPED", "instance-agent-stopped");
                }
                match instance.channel {
                    Channel::Serial { .. } => Ok(()),
                    Channel::Qmp(_) => {
                        store::write_conf(&self.root, &instance, self.port, &self.pair.pem)
                    }
                }
            }
            (Ok(false), Ok(_)) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        if let Err(error) = result {
            self.log(&format!("{name}: {error:#}"));
        }
    }
}
