//! The daemon together with the listeners for its guests: where serving an instance begins and ends.

use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::channel::{ring, serial};
use crate::daemon::{Daemon, Live};
use crate::devlxd::server::Doors;
use mote_client::instance::{Channel, Instance, READY, store, vsock_device};

/// A daemon that serves.
pub struct Host {
    /// Its instances.
    pub daemon: Arc<Daemon>,
    /// Where guests come in.
    doors: Arc<Doors>,
}

impl Host {
    /// Takes all instances of the directory up.
    pub fn new(daemon: Arc<Daemon>) -> Result<Arc<Self>> {
        let host = Self { daemon, doors: Arc::default() };
        for instance in store::load_all(&host.daemon.root)? {
            host.take_up(instance)?;
        }
        Ok(Arc::new(host))
    }

    /// Begins to serve an instance.
    pub fn take_up(&self, mut instance: Instance) -> Result<()> {
        let name = instance.name.clone();
        if self.daemon.instances().contains_key(&name) {
            bail!("{name} is served already");
        }
        if instance.config.remove(READY).is_some() {
            store::save(&self.daemon.root, &instance)?;
        }
        // A real host writes it when a VM starts; a running one keeps what it has.
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

    /// Forgets an instance and removes its files.
    pub fn delete(&self, name: &str, whose: Whose) -> Result<()> {
        let mut all = self.daemon.instances();
        let live = all.get(name).with_context(|| format!("no instance is called {name}"))?;
        if whose == Whose::Stopped && (live.instance.is_running() || live.called) {
            bail!("{name} is running; stop its VM first, or delete it with --force");
        }
        // As lxc's does. A VM whose monitor is not ours is left to its owner.
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
    /// Those that run too.
    Any,
    /// Those that do not run.
    Stopped,
}
