//! TLS against OpenSSL, which shares no code with ring and rustls: every kind of host key, every
//! group and cipher, in both directions. The shipped build computes P-256 and X25519 with different
//! code than a plain build (`scripts/build`), so the test runs the shipped binary.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use mote_tests::agent::launch;
use mote_tests::prelude::*;

const SOON: Duration = Duration::from_secs(20);
const P384: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"];
const P256: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
struct Meeting {
    scratch: Scratch,
    agent: Option<Process>,
}

impl Meeting {
    /// Creates keys of these types, named as for `openssl req -newkey`.
    fn between(agent: &[&str], host: &[&str]) -> Self {
        let meeting = Self { scratch: Scratch::new(), agent: None };
        fs::create_dir(meeting.path("share")).unwrap();
        meeting.make(agent, "share/agent");
        meeting.make(host, "server");
        meeting.tell();
        meeting
    }

    /// Writes `server.crt` into the share: for calls to the agent, and in agent.conf for its calls.
    fn tell(&self) {
        let certificate = fs::read_to_string(self.path("server.crt")).unwrap();
        fs::write(self.path("share/server.crt"), &certificate).unwrap();
        let told = json!({"cid": 2, "port": 9, "certificate": certificate});
        fs::write(self.path("share/agent.conf"), told.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }

    fn make(&self, key: &[&str], name: &str) {
        let [own, public] = ["key", "crt"].map(|kind| format!("{name}.{kind}"));
        let make = ["req", "-x509", "-nodes", "-days", "1", "-subj", "/CN=x", "-newkey"];
        self.run(&[&make[..], key, &["-keyout", &own, "-out", &public]].concat());
    }

    fn run(&self, args: &[&str]) {
        let output = self.openssl().args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn openssl(&self) -> Command {
        let mut command = Command::new("openssl");
        command.current_dir(&self.scratch.0);
        command
    }

    fn start(&mut self) {
        self.agent = Some(launch(&self.scratch.0, "lxd", &self.path("share")));
        let listening = || UnixStream::connect(self.path("vs.listen_8443")).ok();
        wait("the agent", SOON, listening);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    /// Calls the agent. Returns OpenSSL's log and the answer.
    fn call(&self, args: &[&str]) -> String {
        self.request(b"GET /1.0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", args)
    }

    fn request(&self, request: &[u8], args: &[&str]) -> String {
        let mut client = self.openssl();
        client.args(["s_client", "-tls1_3", "-unix", "vs.listen_8443", "-ign_eof"]);
        client.args(["-cert", "server.crt", "-key", "server.key"]).args(args);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = bounded(&mut client).unwrap();
        // The agent may close a refused connection before this is written.
        let _refused = client.stdin.take().unwrap().write_all(request);
        let mut said = String::new();
        client.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        client.wait().unwrap();
        said
    }

    /// Makes the agent call this host until it gets an answer. Returns OpenSSL's log.
    fn be_called(&mut self, args: &[&str]) -> String {
        let body = "{\"metadata\":{}}";
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        fs::write(self.path("1.0"), answer).unwrap();
        let mut server = self.openssl();
        server.args(["s_server", "-tls1_3", "-unix", "vs_9", "-HTTP", "-Verify", "1", "-trace"]);
        server.args(["-cert", "server.crt", "-key", "server.key"]).args(args);
        let log = File::create(self.path("server.log")).unwrap();
        server.stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
        let _server = Process::start(&mut server);
        until("s_server", SOON, || self.path("vs_9").exists());
        self.start();
        until("CONNECTED", SOON, || self.log().contains("CONNECTED 2:9"));
        fs::read_to_string(self.path("server.log")).unwrap()
    }

    /// Replaces `server.crt` with one that has the same key and other dates.
    fn redate(&self, begin: &str, end: &str) {
        let config = "[ca]\ndefault_ca=c\n[c]\ndatabase=index\nrand_serial=yes\n\
                      default_md=sha256\npolicy=p\nnew_certs_dir=.\n[p]\ncommonName=supplied\n";
        fs::write(self.path("ca.cnf"), config).unwrap();
        fs::write(self.path("index"), "").unwrap();
        self.run(&["req", "-new", "-key", "server.key", "-subj", "/CN=x", "-out", "server.csr"]);
        let by = ["ca", "-batch", "-config", "ca.cnf", "-selfsign", "-keyfile", "server.key"];
        let what = ["-in", "server.csr", "-notext", "-out", "server.crt"];
        self.run(&[&by[..], &what, &["-startdate", begin, "-enddate", end]].concat());
        self.tell();
    }

    /// Replaces `server.crt` with one that has an RSA key of 16,384 bits; the private key does not
    /// exist.
    fn lengthen(&self) {
        let number = "f".repeat(16_384 / 4);
        let key = format!(
            "asn1=SEQUENCE:a\n[a]\nkind=SEQUENCE:b\nkey=BITWRAP,SEQUENCE:c\n[b]\nkind=OID:rsaEncryption\n\
             none=NULL\n[c]\nmodulus=INTEGER:0x{number}\nexponent=INTEGER:3\n"
        );
        fs::write(self.path("key.cnf"), key).unwrap();
        for args in [
            "asn1parse -genconf key.cnf -noout -out long.der",
            "req -new -key share/agent.key -subj /CN=x -out long.csr",
            "x509 -req -in long.csr -force_pubkey long.der -CA share/agent.crt -CAkey share/agent.key \
             -CAcreateserial -out server.crt",
        ] {
            self.run(&args.split_whitespace().collect::<Vec<_>>());
        }
    }

    /// Counts the log lines that contain this text, without debug lines.
    fn lines(&self, text: &str) -> usize {
        let log = self.log();
        log.lines().filter(|line| line.contains(text) && !line.contains("debug:")).count()
    }

    fn sec1(&self, key: &str, form: &str, out: &str) {
        self.run(&["ec", "-in", key, "-outform", form, "-out", out]);
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, piece: usize) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut all, mut bytes) = (Vec::new(), vec![0; piece]);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            all.extend(&bytes[..count]);
            let _gone = to.write_all(&bytes[..count]);
        }
        let _closed = to.shutdown(Shutdown::Write);
        all
    })
}

impl Meeting {
    /// Sends a key update and a request through a relay that forwards single bytes, then `last` in
    /// plain text. Returns what the agent sends after its answer.
    fn end_with(&self, last: &[u8]) -> Vec<u8> {
        let _absent = fs::remove_file(self.path("relay"));
        let relay = UnixListener::bind(self.path("relay")).unwrap();
        let mut client = self.openssl();
        client.args(["s_client", "-tls1_3", "-unix", "relay"]);
        client.args(["-cert", "server.crt", "-key", "server.key"]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = bounded(&mut client).unwrap();
        let (caller, _) = relay.accept().unwrap();
        let mut agent = UnixStream::connect(self.path("vs.listen_8443")).unwrap();
        let clone = |stream: &UnixStream| stream.try_clone().unwrap();
        let _up = pass(clone(&caller), clone(&agent), 1);
        let down = pass(clone(&agent), caller, 1 << 16);
        let mut input = client.stdin.take().unwrap();
        let (output, errors) = (client.stdout.take().unwrap(), client.stderr.take().unwrap());
        let shows = |output: &mut dyn BufRead, text: &str| {
            let line = output.lines().map_while(Result::ok).find(|line| line.contains(text));
            assert!(line.is_some(), "no {text}: {}", self.log());
        };
        let (mut output, mut errors) = (BufReader::new(output), BufReader::new(errors));
        shows(&mut output, "Verify return code");
        // s_client's command for a key update in both directions.
        input.write_all(b"K\n").unwrap();
        shows(&mut errors, "KEYUPDATE");
        input.write_all(b"GET /1.0 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        shows(&mut output, "HTTP/1.1 200 OK");
        let answered = Instant::now();
        agent.write_all(last).unwrap();
        let all = down.join().unwrap();
        assert!(answered.elapsed() < IDLE, "it ignored {last:?}");
        client.wait().unwrap();
        let end = all.len().checked_sub(ALERT.len() + 19).expect("an alert");
        all[end..].to_vec()
    }
}

/// The agent's time-out for idle connections.
const IDLE: Duration = Duration::from_secs(30);
/// Header of an encrypted alert's record: 19 bytes for the alert (2), its type (1) and a tag (16).
const ALERT: &[u8] = &[23, 3, 3, 0, 19];

#[test]
fn reads_split_records_and_answers_invalid_ones_with_an_alert() {
    let mut meeting = Meeting::between(P384, P384);
    meeting.start();
    let too_long = [23, 3, 3, 0xff, 0xff];
    let forged = [&[23, 3, 3, 0, 40][..], &[1; 40]].concat();
    let no_tls = b"GET / HTTP/1.1\r\n\r\n";
    for bad in [&too_long[..], &forged, no_tls] {
        assert!(meeting.end_with(bad).starts_with(ALERT), "{bad:?}: {}", meeting.log());
    }
    assert!(meeting.call(&[]).contains("HTTP/1.1 200 OK"), "{}", meeting.log());
}

/// The agent and its host call each other. Returns OpenSSL's log of the agent's call.
fn calls_both_ways(meeting: &mut Meeting, chosen: &[&str]) -> String {
    let called = meeting.be_called(chosen);
    let said = meeting.call(chosen);
    assert!(said.contains("HTTP/1.1 200 OK"), "{chosen:?}: {said}\n{}", meeting.log());
    called
}

#[test]
fn supports_hosts_with_any_usual_key() {
    for host in [P384, P256, &["rsa:2048"], &["rsa:4096"]] {
        calls_both_ways(&mut Meeting::between(P384, host), &[]);
    }
}

#[test]
fn names_a_host_key_that_it_cannot_verify() {
    const WHY: &str = "its key is not P-256, P-384 or (server) RSA of 2048 to 8192 bits";
    let mut meeting = Meeting::between(P384, P384);
    meeting.start();
    let curve = |name| ["ec", "-pkeyopt", name];
    let [p521, koblitz] = ["P-521", "secp256k1"].map(|name| format!("ec_paramgen_curve:{name}"));
    let kinds: [&[&str]; 5] =
        [&curve(&p521), &curve(&koblitz), &["ed25519"], &["rsa:1024"], &["rsa:16384"]];
    for kind in kinds {
        let other = Meeting::between(P384, P384);
        match kind {
            ["rsa:16384"] => other.lengthen(),
            _ => other.make(kind, "server"),
        }
        other.tell();
        let mut check = Command::new(agent());
        check.args(["--check", "--config-dir"]).arg(other.path("share"));
        let said = output(check.arg("--root").arg(other.path("root"))).unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let row = format!("missing  certificates: server.crt: {WHY}\n");
        assert!(said.contains(&row), "{kind:?}: {said}");
        // The host gets a new certificate.
        let told = fs::read_to_string(other.path("share/agent.conf")).unwrap();
        let length = told.len();
        let head = "PUT /1.0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length:";
        let said = meeting.request(format!("{head} {length}\r\n\r\n{told}").as_bytes(), &[]);
        assert!(said.contains(&format!("certificate: {WHY}")), "{kind:?}: {said}");
        if kind == kinds[0] {
            let _agent = launch(&other.scratch.0, "lxd", &other.path("share"));
            let line = format!("share: server.crt: {WHY}: ");
            until("the reason", SOON, || other.log().contains(&line));
        }
    }
}

#[test]
fn every_group_and_cipher_works_in_both_directions() {
    for (group, cipher, named) in [
        ("X25519", "TLS_AES_128_GCM_SHA256", "NamedGroup: ecdh_x25519"),
        ("P-256", "TLS_AES_256_GCM_SHA384", "NamedGroup: secp256r1"),
        ("P-384", "TLS_AES_256_GCM_SHA384", "NamedGroup: secp384r1"),
    ] {
        let chosen = ["-groups", group, "-ciphersuites", cipher];
        let said = calls_both_ways(&mut Meeting::between(P384, P384), &chosen);
        let (_, hello) = said.split_once("ServerHello").expect("a handshake");
        assert!(hello.contains(named) && hello.contains(cipher), "{said}");
    }
}

/// On x86_64 with SSE4.1, ring's own ChaCha20 is not linked.
#[test]
#[cfg(target_arch = "x86_64")]
fn chacha20_is_used_only_where_the_cpu_needs_it() {
    let is_needed = !std::arch::is_x86_feature_detected!("sse4.1");
    let mut meeting = Meeting::between(P384, P384);
    meeting.start();
    let alone = ["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"];
    assert_eq!(meeting.call(&alone).contains("HTTP/1.1 200 OK"), is_needed, "{}", meeting.log());
    let both = ["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"];
    let said = meeting.call(&both);
    let chosen = if is_needed { "TLS_CHACHA20" } else { "TLS_AES_256" };
    assert!(said.contains("HTTP/1.1 200 OK") && said.contains(chosen), "{said}");
}

#[test]
fn accepts_its_own_key_as_sec1_or_pkcs8_of_either_curve() {
    for own in [P384, P256] {
        for sec1 in [false, true] {
            let mut meeting = Meeting::between(own, P384);
            let file = meeting.path("share/agent.key");
            if sec1 {
                meeting.sec1("share/agent.key", "PEM", "sec1.key");
                fs::rename(meeting.path("sec1.key"), &file).unwrap();
            }
            assert_eq!(fs::read_to_string(&file).unwrap().contains("EC PRIVATE KEY"), sec1);
            calls_both_ways(&mut meeting, &[]);
        }
    }
}

#[test]
fn refuses_server_crt_without_its_key() {
    // Position of the private number in SEC1. OpenSSL does not compare it with the public key.
    for (kind, number) in [(P384, 8..56), (P256, 7..39)] {
        let mut meeting = Meeting::between(P384, kind);
        meeting.start();
        meeting.sec1("server.key", "DER", "server.der");
        let with = ["-key", "server.der", "-keyform", "DER"];
        assert!(meeting.call(&with).contains("HTTP/1.1 200 OK"), "{}", meeting.log());
        meeting.make(kind, "other");
        meeting.sec1("other.key", "DER", "other.der");
        let mut forged = fs::read(meeting.path("server.der")).unwrap();
        let other = fs::read(meeting.path("other.der")).unwrap();
        forged[number.clone()].copy_from_slice(&other[number]);
        fs::write(meeting.path("server.der"), forged).unwrap();
        let said = meeting.call(&with);
        assert!(said.contains("CONNECTED") && !said.contains("HTTP/1.1"), "{said}");
        let with = ["-cert", "other.crt", "-key", "other.key"];
        assert!(!meeting.call(&with).contains("HTTP/1.1"), "{}", meeting.log());
    }
}

#[test]
fn logs_a_caller_with_another_certificate_once() {
    const LINE: &str = "refused a caller whose certificate is not server.crt";
    let mut meeting = Meeting::between(P384, P384);
    meeting.start();
    meeting.make(P384, "other");
    assert!(meeting.call(&[]).contains("HTTP/1.1 200 OK"), "{}", meeting.log());
    // The host itself, whose handshake fails for a different reason; a peer without a certificate;
    // a peer that disconnects during the handshake.
    meeting.call(&["-groups", "P-521"]);
    let mut bare = meeting.openssl();
    bare.args(["s_client", "-tls1_3", "-unix", "vs.listen_8443"]).stdin(Stdio::null());
    bare.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let mut half = UnixStream::connect(meeting.path("vs.listen_8443")).unwrap();
    half.write_all(&[22, 3, 1, 2]).unwrap();
    drop(half);
    assert_eq!(meeting.lines("refused a caller"), 0, "{}", meeting.log());
    let other = ["-cert", "other.crt", "-key", "other.key"];
    assert!(!meeting.call(&other).contains("HTTP/1.1"), "{}", meeting.log());
    until("the line", SOON, || meeting.lines(LINE) == 1);
    assert!(meeting.log().contains("is this another host's share?\n"), "{}", meeting.log());
}

#[test]
fn ignores_the_dates_of_the_pinned_certificate() {
    // A VM may have no correct clock before it has a network; the Go agents refuse such a host.
    for (begin, end) in
        [("20000101000000Z", "20000102000000Z"), ("20980101000000Z", "20980102000000Z")]
    {
        let mut meeting = Meeting::between(P384, P384);
        meeting.redate(begin, end);
        calls_both_ways(&mut meeting, &[]);
        // A different certificate of the same owner is not accepted, even if its dates are valid.
        let sign = ["req", "-x509", "-key", "server.key", "-subj", "/CN=x", "-out", "new.crt"];
        meeting.run(&sign);
        assert!(!meeting.call(&["-cert", "new.crt"]).contains("HTTP/1.1"));
    }
}
