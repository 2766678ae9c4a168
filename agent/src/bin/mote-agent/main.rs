//! mote-agent: the guest agent of LXD and Incus virtual machines. The start-up order, top to bottom.

mod agent;
mod boot;
mod built;
mod check;
mod children;
mod client;
mod clock;
mod events;
mod exchange;
mod exec;
mod fair;
mod files;
mod filesystems;
mod forward;
mod guest;
mod hanging;
mod host;
mod host_call;
mod iso;
mod lines;
mod lock;
mod log;
mod metrics;
mod modules;
mod mount_worker;
mod mounts;
mod netlink;
mod nics;
mod notify;
mod operations;
mod options;
mod policy;
mod port;
mod print;
mod processes;
mod reactor;
mod relay;
mod report;
mod reporter;
mod serial;
mod serial_only;
mod sftp;
mod share;
mod signal;
mod socket;
mod state;
mod stream;
mod sys;
mod templates;
mod tickets;
mod tls;
mod upgrade;
mod websocket;
mod worker;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use futures_lite::future::{pending, ready};
use mote_agent::flavour::Flavour;
use mote_agent::peer::Told;
use mote_agent::policy::Policy;
use mote_agent::ready::Ready;
use mote_agent::status::{Intervals, Status};

use crate::agent::Agent;
use crate::built::Later;
use crate::clock::now;
use crate::options::{Command, Options};
use crate::reactor::Async;
use crate::share::ConfigFiles;
use crate::signal::Signal;
use crate::socket::{Socket, Transport};
use crate::templates::Applied;
use crate::tls::Identity;

/// How long STOPPED may take to be written.
const GOODBYE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os()) {
        Ok(options) => options,
        Err(error) => {
            print::complain(format_args!("{error}\nTry 'mote-agent --help'."));
            return ExitCode::from(2);
        }
    };
    log::set_debug(options.debug);
    match &options.command {
        Command::Run => match run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                log::error(format_args!("{why}"));
                ExitCode::FAILURE
            }
        },
        Command::Check => check::run(&options),
        Command::Report(report) => reporter::run(&options, *report),
        Command::SftpServer(directory) if built::FILES => sftp::run(directory.as_deref()),
        Command::MountWorker(limit) if built::MOUNTS => mount_worker::run(&options, *limit),
        Command::SftpServer(_) | Command::MountWorker(_) => built::absent(),
        Command::Version => printed(concat!(env!("CARGO_PKG_VERSION"), "\n")),
        Command::Help => printed(options::HELP),
        Command::Ready
        | Command::Started
        | Command::Get(_)
        | Command::Config
        | Command::Metadata
        | Command::Devices
        | Command::Events
        | Command::Status => client::run(&options),
    }
}

fn printed(text: &str) -> ExitCode {
    match print::out(format_args!("{text}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Starts everything in order, then waits for a signal or a fatal error.
fn run(options: Options) -> Result<(), String> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Before any thread: they inherit the mask.
    let signals = sys::signals().map_err(|error| format!("signals: {error}"))?;
    sys::raise_file_limit();
    let _lock = lock::acquire(&options.root).map_err(|error| error.to_string())?;
    let found = port::discover(&options.root);
    if let Some(found) = &found {
        log::info(format_args!("port {} ({})", found.path.display(), found.flavour.name()));
    }
    let by_port = found.map(|found| found.flavour);
    let mut applied = Applied::default();
    let files = share::find(&options, |place, files| {
        let flavour = flavour(&options, by_port, files);
        if built::FIRST_BOOT {
            applied = templates::apply(place, &options.root, flavour);
        }
    });
    let mut files = files.map_err(|error| error.to_string())?;
    log::info(format_args!("files from {}", files.from));
    let flavour = flavour(&options, by_port, &files);
    // Before anybody can believe that we are there to stay (field notes 13).
    if built::FIRST_BOOT
        && boot::run(&options.root, &applied, &files, &signals) == boot::Next::Leave
    {
        return Ok(());
    }
    let identity = Identity::load(&files)?;
    let transport = match &options.vsock_unix {
        Some(prefix) => Transport::Unix(prefix.clone()),
        None => Transport::Vsock,
    };
    // Listening before the first STARTED: the host calls as soon as it has read it, and a
    // refusal is final for it (P§3.2).
    let listener = match listen(&options, flavour, &transport) {
        Ok(listener) => Some(listener),
        Err(why) if flavour == Flavour::Incus && built::STATE => {
            log::warn(format_args!("{why}: the host is told of us by the status port alone"));
            None
        }
        Err(why) => return Err(why),
    };
    let agent = Rc::new(new_agent(options, flavour, identity, transport));
    if agent.policy != Policy::ALL {
        log::info(format_args!("policy: {}", agent.policy));
    }
    if let Some(conf) = files.agent_conf.as_ref().filter(|_| listener.is_some()) {
        read_conf(&agent, conf);
    }
    if let Some(trouble) = applied.troubles.pop() {
        *agent.last_error.borrow_mut() = Some(trouble);
    }
    let shares = files.mounts.take();
    drop((files, applied));
    reactor::block_on(&agent.executor, serve(&agent, listener, signals, shares))
}

/// Listens where the host will call, with kernel modules loaded if need be.
fn listen(options: &Options, flavour: Flavour, transport: &Transport) -> Result<Socket, String> {
    if matches!(transport, Transport::Vsock) {
        modules::load_vsock(&options.root)?;
        if flavour == Flavour::Incus {
            // Without a device behind it there is nobody to listen to, but another way (P§2.4).
            socket::probe_vsock(&options.root)?;
        }
    }
    transport.listen().map_err(|error| format!("cannot listen: {error}"))
}

/// By what is asked for, then by the port, then by what the files say (P§7).
fn flavour(options: &Options, port: Option<Flavour>, files: &ConfigFiles) -> Flavour {
    let by_conf = || {
        let conf = files.agent_conf.as_deref()?;
        matches!(mote_agent::json::member(conf, "dev_incus"), Ok(Some(_))).then_some(Flavour::Incus)
    };
    options.flavour.or(port).or_else(by_conf).unwrap_or(Flavour::Lxd)
}

fn new_agent(
    options: Options,
    flavour: Flavour,
    identity: Identity,
    transport: Transport,
) -> Agent {
    let (connect, started, connected) = options.intervals;
    let default = Intervals::default();
    let intervals = Intervals {
        connect: connect.unwrap_or(default.connect),
        started: started.unwrap_or(default.started),
        connected: connected.unwrap_or(default.connected),
    };
    let (policy, troubles) = policy::find(&options, flavour);
    troubles.iter().for_each(|trouble| log::error(format_args!("{trouble}")));
    let mut ready = Ready::default();
    if let Ok(bytes) = std::fs::read(options.root.join(guest::READY)) {
        ready = Ready::restore(&bytes);
    }
    Agent {
        policy,
        options,
        flavour,
        identity,
        transport,
        status: RefCell::new(Status::new(now(), intervals)),
        status_changed: Signal::default(),
        link: RefCell::default(),
        devlxd: Cell::new(false),
        devlxd_changed: Signal::default(),
        plugging: Rc::new(host::Places::new(1)),
        events: events::Events::default(),
        ready: RefCell::new(ready),
        last_error: RefCell::new(troubles.into_iter().next_back()),
        operations: operations::Operations::default(),
        sessions: Rc::new(host::Places::new(files::SESSIONS)),
        children: children::Children::default(),
        executor: async_executor::LocalExecutor::new(),
    }
}

/// `agent.conf` opens devlxd before the host has called (P§1.3); nothing waits for it to be true.
fn read_conf(agent: &Agent, conf: &[u8]) {
    let taken = Told::parse(conf)
        .map_err(|why| why.to_string())
        .and_then(|told| agent.take(&told).map(|link| (link.address, told.guest_api)));
    match taken {
        Ok((address, guest_api)) => {
            log::info(format_args!("told {}:{} by agent.conf", address.cid, address.port));
            agent.status(|status| status.know(now(), address));
            agent.allow_devlxd(guest_api);
        }
        Err(why) => agent.trouble(&format!("agent.conf is unusable: {why}")),
    }
}

/// Runs all tasks until a signal (success) or the end of one that must not end, then says STOPPED.
async fn serve(
    agent: &Rc<Agent>,
    listener: Option<Socket>,
    signals: OwnedFd,
    shares: Option<Vec<u8>>,
) -> Result<(), String> {
    agent.spawn(never(guest::run(agent.clone())));
    let mounted: Later<'static> = match shares {
        Some(list) if built::MOUNTS => Box::pin(mounts::at_start(agent.clone(), list)),
        Some(_) | None => Box::pin(ready(())),
    };
    let announced: Later<'static> = if listener.is_none() && built::STATE {
        Box::pin(serial_only::run(agent.clone()))
    } else {
        Box::pin(serial::run(agent.clone()))
    };
    let task = agent.clone();
    let serial = agent.executor.spawn(async move {
        // Who waits for us counts on the shares (P§1.3).
        mounted.await;
        task.spawn(notify_loop());
        drop(task);
        announced.await;
    });
    let host = async {
        let Some(listener) = listener else { return pending().await };
        match host::listen(agent.clone(), listener).await {
            Ok(never) => match never {},
            Err(error) => Err(format!("the host listener is broken: {error}")),
        }
    };
    let result = host.or(wait_for_signal(agent, signals)).await;
    // No name without a listener: cloud-init believes in a host that has one (P§5.1).
    agent.allow_devlxd(false);
    agent.status(|status| status.stop(now()));
    if clock::within(GOODBYE, serial).await.is_none() {
        log::warn(format_args!("the status port does not take STOPPED"));
    }
    result
}

async fn never(task: impl Future<Output = Infallible>) {
    match task.await {}
}

/// Reaps children until another signal comes.
async fn wait_for_signal(agent: &Agent, signals: OwnedFd) -> Result<(), String> {
    let broken = |error| format!("signals: {error}");
    let signals = Async::new_nonblocking(signals);
    while signals.read_with(sys::next_signal).await.map_err(broken)? {
        agent.children.reap();
    }
    notify::stopping();
    Ok(())
}

/// READY to systemd, then its watchdog, if it has one for us.
async fn notify_loop() {
    notify::ready();
    let Some(interval) = notify::watchdog_interval() else { return };
    loop {
        // Half the time allowed, as sd_watchdog_enabled(3) asks for.
        clock::sleep(interval / 2).await;
        notify::watchdog();
    }
}
