//! `boot`: a persistent VM, as an instance of the daemon. Its command lines are saved, so that it
//! can be started again.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::VmArgs;
use super::check;
use super::child::{self, Helper};
use super::machine::{Machine, write_config};
use super::running_vm::{Scratch, last_line, serve, start};
use mote_client::common::whole_file::write_whole;
use mote_client::daemon::{is_running, order, state};
use mote_client::instance::store::{self, create};

/// The saved command lines of a VM.
#[derive(Debug, Serialize, Deserialize)]
struct Commands {
    helpers: Vec<Helper>,
    qemu: (PathBuf, Vec<String>),
}

/// Limit for the start of a daemon.
const DAEMON: Duration = Duration::from_secs(10);
/// Limit for QEMU's monitor to connect.
const MONITOR: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

fn file(root: &Path, name: &str) -> PathBuf {
    store::directory(root, name).join("machine.json")
}

pub fn is_ours(root: &Path, name: &str) -> bool {
    file(root, name).exists()
}

pub fn boot(root: &Path, name: &str, args: VmArgs) -> Result<()> {
    if args.kernel.len() > 1 {
        bail!("boot takes only one --kernel");
    }
    let root = &std::path::absolute(root)?;
    store::make_private(root).with_context(|| root.display().to_string())?;
    let scratch = Scratch::new()?;
    check::vm(&args)?;
    let mut machine = Machine::new(root, name, args, scratch.path())?;
    drop(scratch);
    create(root, &machine.instance)?;
    let made = make(root, &mut machine).and_then(|()| {
        serve_by_daemon(root, name)?;
        power_on(root, name)
    });
    // Remove an instance that does not boot.
    made.inspect_err(|_| {
        let _gone = if is_running(root) {
            order(root, name, "delete", &json!({"force": true})).map(drop)
        } else {
            store::remove(root, name)
        };
    })
}

fn make(root: &Path, machine: &mut Machine) -> Result<()> {
    machine.overlay_disk()?;
    machine.write_files(root)?;
    let console = machine.beside("console");
    let qemu = (machine.qemu.clone(), machine.arguments(root, &console, false)?);
    let commands = Commands { helpers: machine.helpers(), qemu };
    let text = serde_json::to_vec_pretty(&commands)?;
    write_whole(&file(root, &machine.instance.name), &text, 0o600)
}

/// Lets a daemon serve an instance. A running daemon may be about to end with its last instance;
/// then starts another daemon, which finds this instance.
fn serve_by_daemon(root: &Path, name: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        run_daemon(root)?;
        match order(root, name, "adopt", &Value::Null) {
            Err(_) if state(root, name).is_ok() => return Ok(()),
            Err(_) if !is_running(root) && begun.elapsed() < DAEMON => {}
            adopted => return adopted.map(drop),
        }
    }
}

/// Starts a daemon for the directory if there is none. It ends with its last instance.
fn run_daemon(root: &Path) -> Result<()> {
    if is_running(root) {
        return Ok(());
    }
    let path = root.join("daemon.log");
    let log = fs::File::options().append(true).create(true).mode(0o600).open(&path);
    let log = log.with_context(|| path.display().to_string())?;
    let mut command = child::detached(Path::new("/proc/self/exe"), Path::new(""));
    command.arg("--dir").arg(root).args(["daemon", "--until-empty"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut daemon = command.spawn()?;
    let begun = Instant::now();
    while !is_running(root) {
        let has_ended = daemon.try_wait()?.is_some();
        let said = if has_ended { last_line(&path) } else { String::new() };
        if begun.elapsed() > DAEMON || has_ended && !said.contains(store::IS_LOCKED) {
            bail!("the daemon did not start: {}", last_line(&path));
        }
        // The previous daemon has not ended completely.
        if has_ended {
            daemon = command.spawn()?;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

pub fn power_on(root: &Path, name: &str) -> Result<()> {
    let state = state(root, name)?;
    if state["vm"]["monitor"] == "connected" {
        bail!("{name} is already running");
    }
    let text = fs::read(file(root, name))
        .with_context(|| format!("{name} was not created by mote-host boot"))?;
    let commands: Commands = serde_json::from_slice(&text)?;
    // Writes the share again, and the disk made from it.
    order(root, name, "start", &Value::Null)?;
    let started = started(root, name, &commands);
    started.inspect_err(|_| {
        let _off = order(root, name, "stop", &json!({"force": true}));
    })
}

fn started(root: &Path, name: &str, commands: &Commands) -> Result<()> {
    write_config(root, &store::load(root, name)?)?;
    let mut helpers = Vec::new();
    for helper in &commands.helpers {
        let _stale = fs::remove_file(&helper.socket);
        helpers.push(serve(&mut child::detached(&helper.program, &helper.lock), helper)?);
    }
    let directory = store::directory(root, name);
    let log = directory.join("qemu.log");
    let (program, arguments) = &commands.qemu;
    let mut command = child::detached(program, Path::new(""));
    let mut qemu = start(command.args(arguments), &log)?;
    let begun = Instant::now();
    while state(root, name)?["vm"]["monitor"] != "connected" {
        if qemu.ended().is_some() || begun.elapsed() > MONITOR {
            bail!("QEMU did not start: {}", last_line(&log));
        }
        std::thread::sleep(LOOK);
    }
    // From here on, the helper processes belong to the daemon.
    helpers.into_iter().for_each(child::Kept::leave);
    qemu.leave();
    Ok(())
}
