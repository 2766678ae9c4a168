//! Attacks on devlxd's socket: many connections of one kind by one user, which reconnect whenever
//! they are closed.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, getuid, setrlimit};
use rustix::thread::set_thread_uid;

use crate::prelude::*;

macro_rules! kinds {
    ($($(#[$about:meta])? $kind:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$about])? $kind),* }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind),*];
        }
    };
}

kinds! {
    Silent,
    HalfHead,
    SlowBody,
    ByteByByte,
    SlowReader,
    /// Reconnects as fast as possible.
    ConnectStorm,
    /// Requests, reads the answer and reconnects as fast as possible.
    GetStorm,
    Events,
    Waits,
    /// Calls the host with four requests in flight, as fast as possible.
    Calls,
    /// Like `Calls`, with a request that changes something.
    Patch,
}

impl Kind {
    /// Returns what to send first on a new connection, in two variants that alternate.
    fn first(self) -> [Vec<u8>; 2] {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let patch = |field: &str| format!("PATCH /1.0 HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n");
        let first = match self {
            Self::Silent | Self::ConnectStorm => String::new(),
            Self::HalfHead => format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(8_000)),
            Self::SlowBody => {
                let body = "x".repeat(64_000);
                let chunked = format!("{}fde8\r\n{body}", patch("Transfer-Encoding: chunked"));
                return [patch("Content-Length: 65000") + &body, chunked].map(String::into_bytes);
            }
            Self::ByteByByte => "GET / HTTP/1.1\r\nHost: x\r\nX: ".into(),
            Self::SlowReader => get("/").repeat(500),
            Self::GetStorm => get("/"),
            Self::Events => get("/1.0/events"),
            Self::Waits => get("/1.0/operations/x/wait"),
            Self::Calls => get("/1.0/config/user.foo").repeat(4),
            Self::Patch => (patch("Content-Length: 19") + "{\"state\":\"Started\"}").repeat(4),
        };
        [first.clone(), first].map(String::into_bytes)
    }

    const fn reads(self) -> bool {
        matches!(self, Self::GetStorm | Self::Waits | Self::Calls | Self::Patch)
    }
}

pub struct Attack {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    is_over: AtomicBool,
    opened: AtomicUsize,
}

impl Attack {
    /// Starts an attack by this user; only root can choose the user.
    pub fn start(socket: &Path, kind: Kind, connections: usize, user: u32) -> Self {
        Self::sending(kind.first(), socket, kind, connections, user)
    }

    /// Like [`Self::start`], but sends these bytes first on each connection.
    pub fn sending(
        first: [Vec<u8>; 2],
        socket: &Path,
        kind: Kind,
        connections: usize,
        user: u32,
    ) -> Self {
        more_descriptors();
        let counts = Arc::new(Counts::default());
        let (theirs, socket) = (counts.clone(), socket.to_owned());
        let thread = thread::spawn(move || {
            become_user(user);
            Attacker::new(first, &socket, kind, theirs).run(connections);
        });
        Self { counts, thread: Some(thread) }
    }

    pub fn opened(&self) -> usize {
        self.counts.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

pub fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _kept = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Changes this thread's user if we are root, because the kernel reports that user to the agent.
/// The thread must end afterwards.
pub fn become_user(user: u32) {
    if getuid().is_root() && user != 0 {
        set_thread_uid(Uid::from_raw(user)).expect("another user");
    }
}

struct Attacker {
    kind: Kind,
    first: [Vec<u8>; 2],
    socket: PathBuf,
    epoll: OwnedFd,
    counts: Arc<Counts>,
    all: Vec<Option<UnixStream>>,
    /// Connections that could not be opened because the listener's queue was full.
    missing: Vec<usize>,
}

impl Attacker {
    fn new(first: [Vec<u8>; 2], socket: &Path, kind: Kind, counts: Arc<Counts>) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        let socket = socket.to_owned();
        Self { kind, first, socket, epoll, counts, all: Vec::new(), missing: Vec::new() }
    }

    fn run(mut self, connections: usize) {
        self.all.resize_with(connections, || None);
        self.missing.extend(0..connections);
        let mut ready = Vec::with_capacity(1024);
        while !self.counts.is_over.load(Ordering::Relaxed) {
            for one in std::mem::take(&mut self.missing) {
                self.open(one);
            }
            let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            ready.clear();
            let spare = rustix::buffer::spare_capacity(&mut ready);
            let _some = epoll::wait(&self.epoll, spare, Some(&millisecond));
            for event in &ready {
                self.look(usize::try_from(event.data.u64()).expect("an index"), event.flags);
            }
            if self.kind == Kind::ConnectStorm {
                self.missing.clear();
                (0..connections).for_each(|one| self.open(one));
            } else if self.kind == Kind::ByteByByte {
                self.all.iter_mut().flatten().for_each(|stream| {
                    let _sent = stream.write(b"x");
                });
            }
        }
    }

    fn open(&mut self, one: usize) {
        // Close the old connection first.
        self.all[one] = None;
        match self.connected(one) {
            Ok(stream) => {
                self.counts.opened.fetch_add(1, Ordering::Relaxed);
                self.all[one] = Some(stream);
            }
            Err(_) => self.missing.push(one),
        }
    }

    fn connected(&self, one: usize) -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&fd, &SocketAddrUnix::new(&self.socket)?)?;
        let reads =
            if self.kind.reads() { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(one as u64);
        epoll::add(&self.epoll, &fd, data, epoll::EventFlags::RDHUP | reads)?;
        let mut stream = UnixStream::from(fd);
        let _sent = stream.write(&self.first[one % 2]);
        Ok(stream)
    }

    fn look(&mut self, one: usize, flags: epoll::EventFlags) {
        let Some(stream) = &mut self.all[one] else { return };
        let mut answer = [0; 4096];
        let is_over = match stream.read(&mut answer) {
            Ok(0) => true,
            Ok(count) if self.kind.reads() => {
                let text = String::from_utf8_lossy(&answer[..count]);
                let answers = text.matches("HTTP/1.1 ").count();
                let first = &self.first[0];
                let each = first.len() / if self.kind == Kind::Waits { 1 } else { 4 };
                self.kind == Kind::GetStorm
                    || stream.write(&first[..(answers * each).min(first.len())]).is_err()
            }
            Ok(_) => false,
            Err(error) => Errno::from_io_error(&error) != Some(Errno::AGAIN),
        };
        if is_over || flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP) {
            self.open(one);
        }
    }
}

const LIMIT: u64 = 8 * 1024 * 1024;
/// Limit for the kernel to remove a cgroup's last process.
const EMPTY: Duration = Duration::from_secs(60);

pub struct Cgroup(Option<PathBuf>);

impl Cgroup {
    /// Starts an agent in a new cgroup, with as many descriptors as this process may have.
    pub fn with_agent() -> (Pair, Self) {
        more_descriptors();
        let cgroup = Self::new();
        let enter = cgroup.0.as_ref().map_or_else(String::new, |path| {
            format!("echo $$ > {}/cgroup.procs; ", path.display())
        });
        let by = format!("{enter}exec \"$0\" \"$@\"");
        (Pair::start_by(&["sh", "-c", &by], "lxd", &["user.foo=bar"]), cgroup)
    }

    /// Creates a cgroup with a limit; none without the privilege or with `MOTE_CGROUP=none`.
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unwanted = std::env::var_os("MOTE_CGROUP").is_some();
        let name = format!("mote-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        for (root, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let path = Path::new(root).join(&name);
            if unwanted || fs::create_dir(&path).is_err() {
                continue;
            }
            if fs::write(path.join(limit), LIMIT.to_string()).is_ok() {
                return Self(Some(path));
            }
            let _gone = fs::remove_dir(&path);
        }
        Self(None)
    }

    /// Checks that the agent lives and has never used more than `most` kB.
    pub fn survived(&self, pair: &mut Pair, attack: &str, most: u64) {
        if let Ok(Some(end)) = pair.agent.0.try_wait() {
            panic!("{attack}: the agent died: {end}; {}", pair.log());
        }
        pair.assert_alive();
        // Check this last, because the agent may read data after the attack has ended.
        let (peak, charged) = (pair.memory("VmHWM"), self.peak());
        println!("{attack}: {peak} kB at its peak; charged: {charged}");
        assert!(peak < most, "{attack}: {peak} kB");
    }

    fn peak(&self) -> String {
        let Some(path) = &self.0 else { return "no cgroup".into() };
        let files = ["memory.max_usage_in_bytes", "memory.peak"];
        let text = files.iter().find_map(|file| fs::read_to_string(path.join(file)).ok());
        let bytes = text.and_then(|text| text.trim().parse::<u64>().ok());
        bytes.map_or("unknown".into(), |bytes| format!("{} kB", bytes / 1024))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        let _gone = found(EMPTY, || fs::remove_dir(path).ok());
    }
}
