use super::*;
use crate::http::head;

const DONE: &str = r#"{"type":"sync","status_code":200,"metadata":{}}"#;

fn reply(status: u16, body: &str) -> Event {
    let is_whole = body != LONG;
    let reply = Reply { status, etag: None, body: body.as_bytes().to_vec(), is_whole };
    Event::Reply { reply, may_be_long: false }
}

/// The body of an answer that is too long.
const LONG: &str = "long";

fn shown(next: &Next<'_>) -> String {
    let call = |call: &Call<'_>| {
        let body = call.body.map(|body| format!(" {}", String::from_utf8_lossy(body)));
        format!("{} {}{}", call.method, call.target, body.unwrap_or_default())
    };
    match next {
        Next::Answer(Answer { status, body, .. }) => {
            format!("{status} {}", String::from_utf8_lossy(body)).trim_end().into()
        }
        Next::Listen => "listen".into(),
        Next::Obtain(quota) => format!("{quota:?}"),
        Next::Wait => "wait".into(),
        Next::Store { state, is_accepted: false } => format!("store {state:?}"),
        Next::Store { state, is_accepted: true } => format!("store accepted {state:?}"),
        Next::Call { call: it, ends_with_client: false } => call(it),
        Next::Call { call: it, ends_with_client: true } => format!("wait for {}", call(it)),
        Next::Stream(it) => format!("stream {}", call(it)),
    }
}

/// The exchange of one request, all of whose permits but `refused` are granted.
struct Scene<'r> {
    exchange: Exchange<'r>,
    refused: Option<Quota>,
    steps: Vec<String>,
}

impl<'r> Scene<'r> {
    fn new(ready: &'r Ready, request: &'r Request<'r>, body: &'r str) -> Self {
        let exchange = Exchange::new(Flavour::Lxd, ready, request, body.as_bytes());
        Self { exchange, refused: None, steps: Vec::new() }
    }

    /// Passes an event, and runs the exchange up to a call, a wait or the answer.
    fn on(&mut self, mut event: Event) -> &str {
        loop {
            let next = self.exchange.next(event);
            self.steps.push(shown(&next));
            event = match next {
                Next::Obtain(quota) if self.refused == Some(quota) => Event::Refused(quota),
                Next::Obtain(quota) => Event::Granted(quota),
                Next::Store { .. } => Event::Stored,
                _ => return self.steps.last().unwrap(),
            };
        }
    }

    fn start(&mut self) -> &str {
        self.on(Event::Request { is_enabled: true })
    }
}

/// Runs one exchange, whose calls have these results. Returns its steps.
fn steps(request: &str, body: &str, refused: Option<Quota>, results: Vec<Event>) -> Vec<String> {
    let text = format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n");
    let (request, _) = head::request(text.as_bytes()).unwrap().unwrap();
    let ready = Ready::default();
    let mut scene = Scene { refused, ..Scene::new(&ready, &request, body) };
    scene.start();
    for result in results {
        scene.on(result);
    }
    scene.steps
}

fn patch(text: &mut String) -> Request<'_> {
    text.push_str("PATCH /1.0 HTTP/1.1\r\nHost: x\r\n\r\n");
    head::request(text.as_bytes()).unwrap().unwrap().0
}

const READY: &str = r#"{"state":"Ready"}"#;
const STARTED: &str = r#"{"state":"Started"}"#;

#[test]
fn a_call_needs_two_permits() {
    let done = |results| steps("GET /1.0/devices", "", None, results);
    assert_eq!(done(vec![reply(200, DONE)]), ["Queued", "Call", "GET /1.0/devices", "200 {}"]);
    let failed = Event::Failed("it is down".into());
    let down = "500 Failed connecting to devLXD over vsock: it is down";
    assert_eq!(done(vec![failed]).last().unwrap(), down);
    let wait = "GET /1.0/operations/x/wait?timeout=3";
    let long = ["Queued".into(), "LongPoll".into(), format!("wait for {wait}")];
    assert_eq!(steps(wait, "", None, vec![]), long);
}

#[test]
fn some_requests_are_answered_without_a_call() {
    let wait = "GET /1.0/operations/x/wait";
    for (request, refused, expected) in [
        ("GET /", None, "200 [\"/1.0\"]"),
        ("GET /1.0/events", None, "listen"),
        ("GET /1.0/events", Some(Quota::Listener), "503 Too many event listeners"),
        ("GET /1.0", Some(Quota::Queued), "429 Too many requests are waiting for the host"),
        (wait, Some(Quota::LongPoll), "503 Too many long requests"),
        ("BREW /1.0", None, "404 Method \"BREW\" not found"),
        ("DELETE /1.0", None, "501 Not Implemented"),
    ] {
        let steps = steps(request, "", refused, vec![]);
        assert_eq!(steps.last().unwrap(), expected, "{request}");
    }
    let (ready, mut text) = (Ready::default(), String::new());
    let request = patch(&mut text);
    let mut scene = Scene::new(&ready, &request, READY);
    assert_eq!(scene.on(Event::Request { is_enabled: false }), "403 Forbidden");
}

#[test]
fn a_started_is_stored_before_the_call_and_a_ready_after_it() {
    let call = |body| format!("PATCH /1.0 {body}");
    let run = |body, result| steps("PATCH /1.0", body, None, vec![result]).split_off(2);
    let [ready, started] = [call(READY), call(STARTED)];
    assert_eq!(run(READY, reply(200, DONE)), [&*ready, "store accepted Ready", "200"]);
    let accepted = ["store Started", &started, "store accepted Started", "200"];
    assert_eq!(run(STARTED, reply(200, DONE)), accepted);
    assert_eq!(run(READY, reply(403, "no")), [&*ready, "403 no"]);
    let failed = run(STARTED, Event::Failed("it is down".into()));
    assert_eq!(failed[..2], ["store Started", &*started]);
    assert!(failed.len() == 3 && failed[2].starts_with("500 "), "{failed:?}");
    for unknown in ["{}", r#"{"state":"Stopped"}"#, "Ready"] {
        assert_eq!(run(unknown, reply(200, DONE)), [&*call(unknown), "200"]);
    }
}

#[test]
fn a_report_of_the_agent_excludes_those_of_applications() {
    let (ready, mut text) = (Ready::default(), String::new());
    let request = patch(&mut text);
    let [mut one, mut other] = [READY, STARTED].map(|body| Scene::new(&ready, &request, body));
    let own = ready.exclusive().unwrap();
    assert!(ready.is_held() && ready.exclusive().is_none());
    assert_eq!((one.start(), other.start()), ("wait", "wait"));
    assert_eq!((one.on(Event::Released), ready.get()), ("wait", None));
    drop(own);
    assert!(one.on(Event::Released).starts_with("PATCH"));
    assert_eq!(ready.get(), None, "not before it is accepted");
    assert!(other.on(Event::Released).starts_with("PATCH"));
    assert_eq!(ready.get(), Some(ReadyState::Started), "before it is accepted");
    assert_eq!(one.on(reply(200, DONE)), "200");
    assert_eq!(ready.get(), Some(ReadyState::Ready));
    // However the exchange ends, it releases its share of the lock.
    drop(one);
    assert!(ready.is_held() && ready.exclusive().is_none());
    drop(other);
    assert!(!ready.is_held() && ready.exclusive().is_some());
}

#[test]
fn a_long_answer_is_requested_again_with_a_permit() {
    let get = "GET /1.0/devices";
    let run = |request, refused, results| steps(request, "{}", refused, results).split_off(2);
    let cut = || reply(200, LONG);
    assert_eq!(run(get, None, vec![cut(), reply(200, DONE)]), [get, "LongReply", get, "200 {}"]);
    let failed = |why| format!("500 Failed connecting to devLXD over vsock: {why}");
    let too_long = failed("the host's answer is too long");
    let gone = failed("the guest client is gone");
    assert_eq!(run(get, Some(Quota::LongReply), vec![cut()]), [get, "LongReply", &gone]);
    let Event::Reply { reply, .. } = cut() else { unreachable!() };
    let cut_twice = vec![cut(), Event::Reply { reply, may_be_long: true }];
    assert_eq!(run(get, None, cut_twice), [get, "LongReply", get, &too_long]);
    let post = "POST /1.0/storage-pools/p/volumes";
    assert_eq!(run(post, None, vec![cut()]), [format!("{post} {{}}"), too_long]);
}

#[test]
fn an_image_is_streamed_and_its_refusal_answered() {
    let get = "GET /1.0/images/ab/export?secret=1";
    let stream = "stream GET /1.0/images/ab/export";
    let run = |request, results| steps(request, "", None, results).split_off(1);
    assert_eq!(run(get, vec![reply(404, "none")]), ["LongPoll", stream, "404 none"]);
    let head = run("HEAD /1.0/images/ab/export", vec![]);
    assert_eq!(head, ["LongPoll", "GET /1.0/images/ab/export"]);
}

#[test]
fn a_call_has_the_guests_headers_and_limits() {
    let ready = Ready::default();
    for (path, fields, body, expected) in [
        (
            "/1.0/storage-pools/p/volumes/custom",
            "Cookie: c\r\nAuthorization: Bearer t\r\nIf-Match: e\r\n",
            "{}",
            r#"[("Authorization", "Bearer t"), ("If-Match", "e"), ("Content-Type", "application/json")] 30s Dial"#,
        ),
        ("/1.0/devices", "Connection: If-Match\r\nIf-Match: e\r\n", "", "[] 30s Dial"),
        ("/1.0/meta-data", "", "", "[] 30s Patient"),
        ("/1.0/operations/x/wait", "", "", "[] 3600s Dial"),
    ] {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let text = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let (request, _) = head::request(text.as_bytes()).unwrap().unwrap();
        let mut scene = Scene::new(&ready, &request, body);
        scene.start();
        let Next::Call { call, .. } = scene.exchange.call() else { panic!("{path}") };
        let call = format!("{:?} {:?} {:?}", call.extra, call.timeout, call.retry);
        assert_eq!(call, expected, "{path}");
    }
    let bytes = b"GET /1.0 HTTP/1.1\r\nHost: x\r\nIf-Match: \xff\r\n\r\n";
    let (request, _) = head::request(bytes).unwrap().unwrap();
    assert_eq!(Scene::new(&ready, &request, "").start(), "400 Header If-Match is not UTF-8");
}

#[test]
fn the_head_of_an_image_has_the_hosts_headers() {
    let known = [("content-length", "5"), ("X-A", "1"), ("Connection", "X-B"), ("X-B", "2")];
    let plain = "Content-Type: application/octet-stream\r\n";
    for (version, headers, length, expected) in [
        ("1.1", &known[..], Length::Known(5), "Content-Length: 5\r\nX-A: 1\r\n"),
        ("1.1", &[], Length::Chunked, "Transfer-Encoding: chunked\r\n"),
        ("1.0", &[], Length::UntilClose, "Connection: close\r\n"),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: x\r\n\r\n");
        let (request, _) = head::request(text.as_bytes()).unwrap().unwrap();
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let headers: Vec<_> = headers.iter().map(own).collect();
        let mut out = String::new();
        assert_eq!(write_image_head(&mut out, &request, &headers), Ok(length));
        assert_eq!(out, format!("HTTP/1.1 200 OK\r\n{plain}{expected}\r\n"));
    }
}

#[test]
fn a_volume_without_a_type_gets_the_one_of_its_path() {
    let path = "/1.0/storage-pools/p/volumes/custom";
    for (path, body, expected) in [
        (path, r#"{"name" : "v"}"#, Some(r#"{"type":"custom","name":"v"}"#)),
        (path, r#"{"type":"","a":[1, 2]}"#, Some(r#"{"type":"custom","a":[1, 2]}"#)),
        (path, "{}", Some(r#"{"type":"custom"}"#)),
        (path, r#"{"type":"block"}"#, None),
        (path, r#"{"type":null}"#, None),
        (path, "[]", None),
        ("/1.0/storage-pools/p/volumes", "{}", None),
    ] {
        let document = typed(path, body.as_bytes());
        assert_eq!(document.as_ref().map(|typed| typed.value().raw()), expected, "{body}");
    }
}
