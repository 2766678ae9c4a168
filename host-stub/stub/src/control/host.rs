//! The daemon with the listeners for its guests: starts and ends the service of instances.

use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::channel::{ring, serial};
use crate::daemon::{Daemon, Live};
use crate::devlxd::server::Doors;
use mote_client::instance::{Channel, Instance, READY, store, vsock_device};

pub struct Host {
    pub daemon: Arc<Daemon>,
    doors: Arc<Doors>,
}

impl Host {
    /// Starts to serve all instances of the directory.
    pub fn new(daemon: Arc<Daemon>) -> Result<Arc<Self>> {
        let host = Self { daemon, doors: Arc::default() };
        for instance in store::load_all(&host.daemon.root)? {
            host.take_up(instance)?;
        }
        Ok(Arc::new(host))
    }

    pub fn take_up(&self, mut instance: Instance) -> Result<()> {
        let name = instance.name.clone();
        if self.daemon.instances().contains_key(&name) {
            bail!("{name} is already served");
        }
        if instance.config.remove(READY).is_some() {
            store::save(&self.daemon.root, &instance)?;
        }
        // A real host writes it when a VM starts; that of a running VM stays.
        if matches!(instance.channel, Channel::Qmp(_)) && !instance.is_running() {
            store::write_conf(
                &self.daemon.root,
                &instance,
                self.daemon.port,
                &self.daemon.pair.pem,
            )?;
        }
        let live = Live::new(instance.clone());
        let life = live.life.clone();
        self.daemon.instances().insert(name, live);
        self.doors.open(&self.daemon, &instance, &life)?;
        match instance.channel.clone() {
            Channel::Qmp(path) => ring::watch(&self.daemon, &instance, path, life),
            Channel::Serial { path, shared } => {
                serial::watch(&self.daemon, &instance.name, path, shared, life);
            }
        }
        Ok(())
    }

    /// Stops serving an instance and removes its files.
    pub fn delete(&self, name: &str, whose: Whose) -> Result<()> {
        let mut all = self.daemon.instances();
        let live = all.get(name).with_context(|| format!("no instance is named {name}"))?;
        if whose == Whose::Stopped && (live.instance.is_running() || live.called) {
            bail!("{name} is running; stop its VM first, or delete it with --force");
        }
        // As with lxc. A VM whose monitor another client has is not ended.
        let ended = live.vm.order("quit");
        if let Err(error) = ended.and_then(|_| vsock_device::end(&self.daemon.root, &live.instance))
        {
            self.daemon.log(&format!("{name}: {error:#}"));
        }
        store::remove(&self.daemon.root, name)?;
        live.life.end();
        let vsock = live.instance.vsock.clone();
        all.remove(name);
        drop(all);
        self.doors.close(&self.daemon, &vsock);
        self.daemon.event(name, "instance-deleted");
        Ok(())
    }
}

/// Which instances may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Any,
    Stopped,
}
