//! The agent from start to exit: lock, waiting, listener, then all tasks until a signal.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use smol::future::{FutureExt, ready};

use crate::agent::{About, Agent};
use crate::built::{self, BoxFuture, VERSION};
use crate::config::policy::{self, InForce};
use crate::handover::reexec::{self, Mode, OldRoot};
use crate::handover::{lock, others};
use crate::hostapi::{self, mounts};
use crate::leave::{self, ExitReason, Signals};
use crate::options::Options;
use crate::runtime::reactor::jumps;
use crate::runtime::{Signal, clock, log, notify, now};
use crate::start::listen::{self, HostLink};
use crate::start::prepare::{Prepared, or_default, prepare, what};
use crate::start::sandbox;
use crate::start::wait::{Wait, Waited};
use crate::status::{port, pump, search, without_vsock};
use crate::sys::{self, SignalSource, file};
use crate::system::devices;
use crate::system::modules::NodeWait;
use crate::transport::Listener;
use crate::{devlxd, first_boot, hotplug, ready_when, resume};

/// Maximum wait for STOPPED to be written.
const GOODBYE: Duration = Duration::from_secs(2);

pub(crate) type Served = BoxFuture<'static, Result<(), String>>;

fn log_startup_state(options: &Options) {
    log::info(format_args!("mote-agent {VERSION}"));
    if !built::INIT && sys::process_id() == 1 {
        log::warn(format_args!("running as process 1, but built without init; see image/one-file"));
    }
    if built::ASYNC_IO {
        log::warn(format_args!("built with async-io: two threads, and therefore no sandbox"));
    }
    if let Some(why) = others::left(&options.root) {
        log::warn(format_args!("{why}"));
    }
}

/// Starts everything in order, then lets `go` run the agent. Returns early if a signal asks the
/// agent to end. Errors: what prevents the start; any error of `go`.
pub(crate) fn run(
    options: Options,
    signals: SignalSource,
    go: impl FnOnce(Rc<Agent>, Served) -> Result<(), String>,
) -> Result<(), String> {
    let old_root = prepare_for_switch_root(&options);
    log_startup_state(&options);
    // Read the policy before the agent uses anything from the host.
    let policies = policy::read(&options);
    let mut known = None;
    let mut prepared = None;
    let mut attempt = || {
        if prepared.is_none() {
            prepared = Some(prepare(&options, &policies.policy, &mut known)?);
        }
        Ok(())
    };
    let takes_over = (!options.makes_room()).then_some(&options.transport);
    // An initramfs' agent serves the host until `Wait` has found what this one needs.
    let mut lock = lock::acquire(&options.root, takes_over, &mut || drop(attempt()))
        .map_err(|why| why.to_string())?;
    let mut wait = Wait::new(&options, &signals, &mut lock, old_root);
    if wait.until(&what(&options), &mut attempt)? == Waited::Leave {
        return Ok(());
    }
    let prepared = prepared.ok_or("nothing was prepared")?;
    let Prepared { identity, files, mut applied, flavour } = prepared;
    log::info(format_args!("files from {}", files.from));
    let policy = InForce::new();
    policy.take(policies);
    let flavour = or_default(flavour);
    // Do this before the agent is visible, because first boot may reboot the system (lxd#8148).
    if built::FIRST_BOOT
        && !options.is_early()
        && first_boot::run(&options.root, policy.get().features, &applied, &files, &signals)
            == first_boot::Next::Leave
    {
        return Ok(());
    }
    if built::CREDENTIALS && !options.is_early() {
        first_boot::credentials::apply(&options.root, policy.get().features);
    }
    let Some(way) = listen::begin(&mut wait, &options, flavour)? else {
        return Ok(());
    };
    search::log_change(port::find(&options).ok(), &mut known);
    let entered = sandbox::enter(&options, &policy.get(), flavour, &way, known.as_ref());
    if entered.is_some() {
        policy.text.borrow_mut().push_str(sandbox::WORD);
    }
    devices::without_proc(&options.root).iter().for_each(|why| log::warn(format_args!("{why}")));
    let mut agent = Agent::new(options, flavour, policy, identity, files.from, lock);
    agent.guests = entered.flatten();
    let agent = Rc::new(agent);
    if let Some(trouble) = applied.troubles.pop() {
        agent.note(About::Else, trouble);
    }
    let (listeners, deaf) = match way {
        HostLink::Vsock(listeners, deaf) => (Some(listeners), deaf),
        HostLink::SerialOnly(why) => (None, Some(why)),
    };
    *agent.errors.borrow_mut().about(About::Caller) = deaf;
    // The identity has the key; its text must not stay in memory.
    drop((files.agent_key, files.nics, applied));
    let signals = Signals::new(signals, old_root)?;
    let served = serve(agent.clone(), listeners, signals, files.mounts, files.agent_conf);
    go(agent, Box::pin(served))
}

/// Lets an agent of an initramfs survive the switch of the root.
fn prepare_for_switch_root(options: &Options) -> OldRoot {
    if options.is_early() && !reexec::is_spared() {
        reexec::start(Mode::Spared);
    }
    if options.makes_room() {
        sys::take_name();
    }
    OldRoot::now()
}

/// Spawns the tasks that follow the host and the clock.
fn watch_changes(agent: &Rc<Agent>) {
    if built::RESOURCES {
        agent.spawn(hotplug::run(agent.clone()));
    }
    // Ready is about the real system, which an initramfs has not started yet.
    if built::READY_WHEN && !agent.options.is_early() {
        agent.spawn(ready_when::run(agent.clone()));
    }
    if built::RESTORE {
        agent.spawn(resume::run(agent.clone()));
    }
    let task = agent.clone();
    agent.spawn(async move {
        // Without this, the status line would be late after a suspend.
        jumps(|| {
            task.clock_set.set(true);
            task.status_changed.raise();
        })
        .await;
    });
}

/// Runs all tasks until a signal or a broken host listener, then sends STOPPED, unless another
/// agent has taken over.
async fn serve(
    agent: Rc<Agent>,
    listeners: Option<Vec<Listener>>,
    signals: Signals,
    shares: Option<Vec<u8>>,
    conf: Option<Vec<u8>>,
) -> Result<(), String> {
    let guests = agent.task(never(devlxd::server::run(agent.clone())));
    watch_changes(&agent);
    let (late, arrived) = (Rc::new(RefCell::new(None)), Rc::new(Signal::default()));
    let announced: BoxFuture<'static> = if listeners.is_none() && built::STATE {
        Box::pin(announce_alone(agent.clone(), late.clone(), arrived.clone()))
    } else {
        Box::pin(pump::run(agent.clone()))
    };
    let mounted: BoxFuture<'static> = match shares {
        // A mount that is made in an initramfs would stay in the initramfs.
        Some(list) if built::MOUNTS && !agent.options.is_early() => {
            Box::pin(mounts::at_start(agent.clone(), list))
        }
        Some(_) | None => Box::pin(ready(())),
    };
    let task = agent.clone();
    let serial = agent.task(async move {
        // Services that wait for the agent rely on the shares (P§1.3).
        mounted.await;
        task.spawn(notify_loop());
        drop(task);
        announced.await;
    });
    let host = async {
        let listeners = match listeners {
            Some(listeners) => listeners,
            None => arrived.until(|| late.take()).await,
        };
        agent.find_host(conf.as_deref());
        match hostapi::server::listen(agent.clone(), listeners).await {
            Ok(never) => match never {},
            Err(error) => Err(format!("the host listener is broken: {error}")),
        }
    };
    let mut host = Box::pin(host);
    let result = host.as_mut().or(signals.obeyed(&agent)).await;
    if built::INITRAMFS && matches!(result, Ok(ExitReason::Replaced)) {
        // The next agent listens, too: an open listener here would take some of its connections.
        drop(host);
        let over: BoxFuture<'_> = Box::pin(leave::replaced(&agent, &signals, [guests, serial]));
        over.await;
        return Ok(());
    }
    // Remove the socket file: if it exists, cloud-init expects an answer (P§5.1).
    agent.allow_devlxd(false);
    agent.status(|status| status.stop(now()));
    if built::EXEC && result.is_ok() {
        // A host that has just started a command may not have connected to it yet.
        leave::hang_up(&agent).or(async { drop(host.await) }).await;
    }
    if clock::within(GOODBYE, serial).await.is_none() {
        log::warn(format_args!("cannot write STOPPED: the status port is blocked"));
    }
    result.map(|_| ())
}

/// Uses only the status port until vsock is available, then announces as usual.
async fn announce_alone(
    agent: Rc<Agent>,
    late: Rc<RefCell<Option<Vec<Listener>>>>,
    arrived: Rc<Signal>,
) {
    let mut looked = None;
    let listens = || {
        // Retry only after a device or driver has appeared.
        let root = &agent.options.root;
        let seen = devices::entries(&root.join("sys/bus/virtio/devices")).len()
            + usize::from(file::exists(&root.join("dev/vsock")));
        if looked.replace(seen) == Some(seen) {
            return false;
        }
        let listeners = listen::listen(&agent.options, agent.flavour, NodeWait::None);
        *late.borrow_mut() = listeners.ok().map(|(listeners, _)| listeners);
        late.borrow().is_some()
    };
    match without_vsock::run(agent.clone(), listens).await {
        without_vsock::Outcome::Stopped => {}
        without_vsock::Outcome::Listening => {
            log::info(format_args!("vsock is available; the host can connect"));
            agent.clear_error(About::Caller);
            arrived.raise();
            pump::run(agent).await;
        }
    }
}

async fn never(task: impl Future<Output = Infallible>) {
    match task.await {}
}

/// Reports READY to systemd, then feeds its watchdog, if it has one.
async fn notify_loop() {
    notify::send("READY=1");
    let Some(interval) = notify::watchdog_interval() else { return };
    loop {
        // sd_watchdog_enabled(3) recommends half the time allowed.
        clock::sleep(interval / 2).await;
        notify::watchdog();
    }
}
