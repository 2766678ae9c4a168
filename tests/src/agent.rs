//! The agent binary without a VM: unix sockets instead of vsock, a directory instead of `/`.

use crate::prelude::*;

pub struct Pair {
    pub agent: Process,
    pub host: Host,
    pub scratch: Scratch,
}

impl Pair {
    pub fn start(flavour: &str, config: &[&str]) -> Self {
        Self::start_by(&[], flavour, config)
    }

    pub fn start_by(by: &[&str], flavour: &str, config: &[&str]) -> Self {
        let scratch = Scratch::new();
        let mut host = Host::on_sockets(&scratch.0, &scratch.0.join("vs"), flavour, config);
        host.start();
        let agent = Process::start(&mut command_by(by, &scratch.0, flavour, &host.share));
        Self { agent, host, scratch }.up()
    }

    /// Waits until guest and host can use the agent. With agent.conf, devlxd works earlier, but the
    /// host calls no agent that has not reported itself.
    fn up(self) -> Self {
        const LIMIT: Duration = Duration::from_secs(30);
        wait("devlxd", LIMIT, || UnixStream::connect(self.socket()).ok());
        until("the agent's first call", LIMIT, || self.log().contains(" CONNECTED"));
        self
    }

    pub fn client(&self) -> Client {
        Client::new(&self.host)
    }

    pub fn socket(&self) -> PathBuf {
        let incus = self.root().join("dev/incus/sock");
        if incus.exists() { incus } else { self.root().join("dev/lxd/sock") }
    }

    fn root(&self) -> PathBuf {
        self.scratch.0.join("root")
    }

    /// Sends bytes on a new connection, shuts down the sending side, and returns the whole reply.
    pub fn talk(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The agent may close a refused connection early.
        let _sent = stream.write_all(bytes);
        let _shut = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _cut = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).expect("the devlxd socket");
        stream.set_read_timeout(Some(patient(Duration::from_secs(20)))).expect("a timeout");
        stream
    }

    /// Sends `GET` and returns the answer's head, and a reader of the rest.
    pub fn get(&self, target: &str) -> (String, BufReader<UnixStream>) {
        let mut stream = self.connect();
        let sent = stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        sent.expect("a request");
        let mut reader = BufReader::new(stream);
        (head(&mut reader), reader)
    }

    /// Listens to events, or returns the head of the refusal.
    pub fn listen(&self) -> Result<UnixStream, String> {
        let (head, reader) = self.get("/1.0/events");
        if head.starts_with("HTTP/1.1 200") { Ok(reader.into_inner()) } else { Err(head) }
    }

    pub fn ask(&self, method: &str, target: &str) -> (u16, String) {
        self.ask_with(method, target, "", "")
    }

    pub fn ask_with(&self, method: &str, target: &str, fields: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let answer = self.talk(
            format!(
                "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n{fields}\r\n{body}"
            )
            .as_bytes(),
        );
        split(&answer)
    }

    /// Limits the agent's descriptors to those that are open, or to 1024.
    pub fn limit_descriptors(&self, to_open: bool) {
        let pid = self.agent.0.id();
        let is_open = |fd: &usize| fs::symlink_metadata(format!("/proc/{pid}/fd/{fd}")).is_ok();
        let most = if to_open { (0..).find(|fd| !is_open(fd)).expect("an end") } else { 1024 };
        let set = [format!("--pid={pid}"), format!("--nofile={most}:")];
        assert!(Command::new("prlimit").args(set).status().expect("prlimit").success());
    }

    pub fn memory(&self, field: &str) -> u64 {
        proc::memory(self.agent.0.id(), "status", field)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.0.join("agent.log")).unwrap_or_default()
    }

    pub fn assert_alive(&mut self) {
        assert!(self.agent.0.try_wait().expect("a child").is_none(), "{}", self.log());
        assert_eq!(self.ask("GET", "/"), (200, "[\"/1.0\"]\n".into()));
    }
}

pub fn launch(scratch: &Path, flavour: &str, share: &Path) -> Process {
    Process::start(&mut command(scratch, flavour, share))
}

pub fn command(scratch: &Path, flavour: &str, share: &Path) -> Command {
    command_by(&[], scratch, flavour, share)
}

pub fn command_by(by: &[&str], scratch: &Path, flavour: &str, share: &Path) -> Command {
    let log = File::options().append(true).create(true).open(scratch.join("agent.log"));
    let agent = agent();
    let words: Vec<&OsStr> = by.iter().map(OsStr::new).chain([agent.as_os_str()]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command.arg("--root").arg(scratch.join("root")).arg("--vsock-unix").arg(scratch.join("vs"));
    command.arg("--config-dir").arg(share).args(["--debug", "--flavour", flavour]);
    command.stdin(Stdio::null()).stderr(log.expect("a log"));
    command
}

pub fn head(reader: &mut BufReader<UnixStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).expect("a line"), 0, "an end after {head:?}");
    }
    head
}

/// Returns status and body of an answer; 0 if there is none.
pub fn split(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}
