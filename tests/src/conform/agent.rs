//! An agent under test in a VM, with its host and its guest.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::wire::Answer;
use super::{Column, Miss};
use crate::{Guest, Host, Vm, found};

#[derive(Debug)]
pub struct Agent {
    pub column: Column,
    pub host: Mutex<Host>,
    client: Client,
    guest: Mutex<Guest>,
    vm: Mutex<Vm>,
}

impl Deref for Agent {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Agent {
    /// Wraps a VM whose agent is connected.
    pub fn new(column: Column, host: Host, mut vm: Vm) -> Self {
        let client = Client::new(&host);
        let guest = Mutex::new(vm.guest());
        Self { column, client, host: Mutex::new(host), guest, vm: Mutex::new(vm) }
    }

    /// Runs a command in the guest without the agent; returns exit code and output.
    pub fn sh(&self, command: &str) -> (i32, String) {
        locked(&self.guest).sh(command)
    }

    /// The output of a command in the guest that must succeed, without its last newline.
    pub fn guest(&self, command: &str) -> Result<String, String> {
        let (code, output) = self.sh(command);
        if code == 0 {
            Ok(output.trim_end().to_owned())
        } else {
            Err(format!("{command}: {output}"))
        }
    }

    pub fn socket(&self) -> &'static str {
        self.column.socket()
    }

    /// Sends bytes to devlxd in the guest and returns all that it sends until it closes. The bytes
    /// must not include `%` or `'`.
    pub fn devlxd_raw(&self, bytes: &str) -> Result<String, String> {
        let bytes = bytes.replace('\\', "\\\\").replace('\r', "\\r").replace('\n', "\\n");
        let (code, output) =
            self.sh(&format!("printf '{bytes}' | timeout 12 /opt/relay {}", self.socket()));
        match code {
            0 => Ok(output),
            124 | 143 => Err(format!("devlxd does not hang up after {output:?}")),
            _ => Err(output.trim().to_owned()),
        }
    }

    pub fn devlxd(&self, method: &str, target: &str, body: &str) -> Result<Answer, String> {
        let length = match (method, body) {
            ("GET", "") => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let text = self.devlxd_raw(&format!(
            "{method} {target} HTTP/1.1\r\nHost: any\r\nConnection: close\r\n{length}\r\n{body}"
        ))?;
        Answer::parse(&text)
    }

    pub fn host(&self, args: &[&str]) -> Result<String, String> {
        locked(&self.host).try_run(args)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        locked(&self.host).command(args)
    }

    pub fn directory(&self) -> PathBuf {
        locked(&self.host).directory.clone()
    }

    pub fn cut(&self) {
        locked(&self.vm).cut();
    }

    pub fn host_log(&self) -> PathBuf {
        locked(&self.host).log_path()
    }

    /// The host's record of the agent.
    pub fn seen_by_host(&self) -> Value {
        locked(&self.host).state()
    }

    pub fn wait(
        &self,
        what: &str,
        limit: Duration,
        look: impl Fn(&Self) -> bool,
    ) -> Result<(), Miss> {
        let seen = found(limit, || look(self).then_some(()));
        seen.ok_or_else(|| Miss::No(format!("{what}: not within {} s", limit.as_secs())))
    }
}

/// A check that panics leaves these as they are.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
