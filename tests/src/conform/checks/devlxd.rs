//! devlxd: what programs in the guest see (P§5).

use crate::conform::prelude::*;

const GROUP: Group = Group::new("devlxd", "P§5.3");

pub(super) const ALL: &[Check] = &[
    GROUP.of("P§5.1").is("the socket is root's, mode 600, in a directory of mode 755", |agent| {
        let path = agent.socket();
        let directory = path.trim_end_matches("/sock");
        same("it", agent.guest(&format!("stat -c '%F %a %u %g' {path}"))?, "socket 600 0 0")?;
        same("the directory", agent.guest(&format!("stat -c '%F %a' {directory}"))?, "directory 755")
    }),
    GROUP.of("P§5.1").incus().is("`/dev/lxd` leads to `/dev/incus`", |agent| {
        same("it", agent.guest("readlink -f /dev/lxd")?, "/dev/incus")
    }),
    GROUP.is("`GET /` is `[\"/1.0\"]` and a newline, as JSON", |agent| {
        let _json = json_of(agent, "/")?;
        same("the body", get(agent, "/")?.text(), "[\"/1.0\"]\n")
    }),
    GROUP.is("`GET /1.0` tells version, type, location and state", |agent| {
        let info = json_of(agent, "/1.0")?;
        same("api_version", &info["api_version"], &json!("1.0"))?;
        hold("there is no location", info["location"].is_string())?;
        same("instance_type", &info["instance_type"], &json!("virtual-machine"))?;
        hold("state is another", info["state"] == json!("Started") || info["state"] == json!("Ready"))
    }),
    GROUP.lxd().is("for somebody untrusted it tells no `environment`", |agent| {
        let info = json_of(agent, "/1.0")?;
        same("auth", &info["auth"], &json!("untrusted"))?;
        hold("it does", info.get("environment").is_none_or(Value::is_null))
    }),
    GROUP.is("`/1.0/config` lists the keys that guests may read", |agent| {
        let all = json_of(agent, "/1.0/config")?;
        let all = all.as_array().cloned().unwrap_or_default();
        hold("user.foo is not there", all.contains(&json!("/1.0/config/user.foo")))?;
        hold(
            "cloud-init.user-data is not there",
            all.contains(&json!("/1.0/config/cloud-init.user-data")),
        )?;
        let others = all.iter().filter_map(Value::as_str).any(|url| {
            !url.starts_with("/1.0/config/user.") && !url.starts_with("/1.0/config/cloud-init.")
        });
        hold("others are there too", !others)
    }),
    GROUP.of("P§5.2").is("a value comes as it is, as an octet stream", |agent| {
        let answer = get(agent, "/1.0/config/user.foo")?;
        same("it", answer.short(), "200 bar")?;
        same("the length", answer.body.len(), 3)?;
        same("Content-Type", answer.field("content-type"), "application/octet-stream")
    }),
    GROUP.of("P§5.2").is("so does one with newlines, quotes and letters of all kinds", |agent| {
        same("it", get(agent, "/1.0/config/user.odd")?.text(), ODD)
    }),
    GROUP.is("a key that is not set is 404 in the host's words", |agent| {
        // The hosts of these agents have different texts.
        let words = if agent.column.is_current_lxd() { "404 Not Found" } else { "404 not found" };
        same("it", get(agent, "/1.0/config/user.nothing")?.short(), words)
    }),
    GROUP.is("a key that guests may not read is 403 in the server's words", |agent| {
        let is_lxd = agent.column.is_current_lxd();
        let words = if is_lxd { "403 Forbidden" } else { "403 not authorized" };
        same("it", get(agent, "/1.0/config/volatile.uuid")?.short(), words)
    }),
    GROUP.of("P§5.2").is("an error is text with a newline, and `nosniff`", |agent| {
        let answer = get(agent, "/1.0/config/user.nothing")?;
        same("Content-Type", answer.field("content-type"), "text/plain; charset=utf-8")?;
        same("X-Content-Type-Options", answer.field("x-content-type-options"), "nosniff")?;
        hold("no newline ends it", answer.body.ends_with(b"\n"))
    }),
    GROUP.is("meta-data comes as it is, headed as the server does", |agent| {
        let answer = get(agent, "/1.0/meta-data")?;
        answer.is(200)?;
        let head = if agent.column.is_current_lxd() { "" } else { "#cloud-config\n" };
        hold("it begins otherwise", answer.text().starts_with(&format!("{head}instance-id: ")))?;
        hold(
            "no local-hostname is in it",
            answer.text().contains(&format!("\nlocal-hostname: {NAME}\n")),
        )
    }),
    GROUP.is("devices come as JSON, by name", |agent| {
        let all = json_of(agent, "/1.0/devices")?;
        hold("it is not an object", all.is_object())?;
        let all = all.as_object().cloned().unwrap_or_default();
        hold("one has no type", all.values().all(|device| device["type"].is_string()))
    }),
    GROUP.alone().is("PATCH Ready is 200 without a body, and the host knows", |agent| {
        let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":\"Ready\"}")?;
        same("it", answer.short(), "200")?;
        same("the body's length", answer.body.len(), 0)?;
        same("the host's view", &agent.seen_by_host()["status"], &json!("Ready"))?;
        let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":\"Started\"}")?;
        same("it", answer.short(), "200")?;
        same("the host's view", &agent.seen_by_host()["status"], &json!("Running"))
    }),
    GROUP.is("PATCH of another state is 400", |agent| {
        let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":\"Asleep\"}")?;
        answer.is(400)
    }),
    GROUP.is("PATCH of what does not parse is an error", |agent| {
        let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":")?;
        hold(format!("it is {}", answer.status), answer.status == 400 || answer.status == 500)
    }),
    GROUP.of("P§5.2").is("an unknown path there is LXD's list, or Incus' 404", |agent| {
        let answer = get(agent, "/1.0/nothing")?;
        if agent.column.is_incus() {
            return same("it", answer.short(), "404 404 page not found");
        }
        same("it", answer.short(), "200 [\"/1.0\"]")
    }),
    GROUP.of("P§5.2").is("POST where only GET is known: 501 (LXD), as GET (Incus)", |agent| {
        let answer = agent.devlxd("POST", "/1.0/config/user.foo", "x")?;
        if agent.column.is_incus() {
            return same("it", answer.short(), "200 bar");
        }
        answer.is(501)
    }),
    GROUP.of("P§5.1").is("its connections serve one request after the other", |agent| {
        let one = |close: &str| format!("GET /1.0/config/user.foo HTTP/1.1\r\nHost: x\r\n{close}\r\n");
        let text = agent.devlxd_raw(&format!("{}{}", one(""), one("Connection: close\r\n")))?;
        same("the number of answers", text.matches("HTTP/1.1 200").count(), 2)?;
        same("the number of values", text.matches("\r\n\r\nbar").count(), 2)
    }),
    GROUP.of("P§5.1").is("the reply to HTTP/1.0 ends with the connection", |agent| {
        let text = agent.devlxd_raw("GET /1.0/config/user.foo HTTP/1.0\r\n\r\n")?;
        same("it", Answer::parse(&text)?.short(), "200 bar")
    }),
    GROUP.is("events: the host's change of a key comes as a line", |agent| {
        listen(agent, "", "user.stream", "200")
    }),
    GROUP.is("events: also by websocket", |agent| {
        let fields = "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n";
        listen(agent, fields, "user.websocket", "101")
    }),
    GROUP.of("P§5.4").alone().is("the host's 403 is shown as it is", |agent| {
        while_host(agent, "forbidden", || {
            let answer = get(agent, "/1.0/devices")?;
            answer.is(403)?;
            hold("its text is another", answer.text().ends_with("Forbidden\n"))
        })
    }),
    GROUP.of("P§5.4").alone().is("a host that breaks off is 500", |agent| {
        while_host(agent, "reset", || get(agent, "/1.0/config/user.foo")?.is(500))
    }),
    GROUP.lxd().is("an image is exported as a stream", |agent| {
        let request =
            "GET /1.0/images/abc/export HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n";
        let command = format!("printf '{request}' | timeout 12 /opt/relay {}", agent.socket());
        same(
            "the head",
            agent.guest(&format!("{command} | head -1 | tr -d '\\r'"))?,
            "HTTP/1.1 200 OK",
        )?;
        let size: u64 = agent.guest(&format!("{command} | wc -c"))?.trim().parse().unwrap_or(0);
        hold("it is shorter than 300000 bytes", size > 300_000)
    }),
    GROUP.lxd().is("Ubuntu Pro's state and token come as JSON", |agent| {
        let seen = json_of(agent, "/1.0/ubuntu-pro")?;
        hold("no guest_attach is in it", seen["guest_attach"].is_string())?;
        let answer = agent.devlxd("POST", "/1.0/ubuntu-pro/token", "")?;
        hold(format!("the token is {}", answer.status), answer.status == 200 || answer.status == 403)
    }),
    GROUP.of("P§5.4").lxd().is("the bearer's token is handed on", |agent| {
        let text = agent.devlxd_raw(
            "GET /1.0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret\r\n\r\n",
        )?;
        same("auth", &Answer::parse(&text)?.json()["auth"], &json!("trusted"))
    }),
];

fn get(agent: &Agent, target: &str) -> Try<Answer> {
    agent.devlxd("GET", target, "")
}

fn json_of(agent: &Agent, target: &str) -> Result<Value, Miss> {
    let answer = get(agent, target)?;
    same("status", answer.short().split(' ').next().unwrap_or_default().to_owned(), "200")?;
    same("Content-Type", answer.field("content-type"), "application/json")?;
    serde_json::from_slice(&answer.body).map_err(|_| Miss::Differs("it is not JSON".into()))
}

pub(in crate::conform) const ODD: &str = "line one\nline \"two\" \\ <b>&ü\u{1f980}\n";

/// Requests events, changes a key, and checks that its event arrives.
fn listen(agent: &Agent, fields: &str, key: &str, mark: &str) -> Claim {
    let file = format!("/tmp/events-{key}");
    let request = format!("GET /1.0/events?type=config HTTP/1.1\\r\\nHost: x\\r\\n{fields}\\r\\n");
    let command = format!("(printf '{request}'; sleep 8) | /opt/relay {} >{file}", agent.socket());
    let _started = agent.guest(&format!("({command}) >/dev/null 2>&1 &"))?;
    let has = |what: &str| agent.sh(&format!("grep -q '{what}' {file}")).0 == 0;
    agent.wait("the head", SOON, |_| has("HTTP/1.1"))?;
    same("the head's status", agent.guest(&format!("head -1 {file} | cut -d' ' -f2"))?, mark)?;
    // Go's agents send the head before they listen.
    thread::sleep(Duration::from_millis(200));
    let _set = agent.host(&["set", NAME, &format!("{key}=1")])?;
    agent.wait("the event", SOON, |_| has(key))
}

fn while_host(agent: &Agent, fault: &str, look: impl Fn() -> Claim) -> Claim {
    let _set = agent.host(&["fault", NAME, fault])?;
    let claim = look();
    let _calm = agent.host(&["fault", NAME, "none"])?;
    claim
}
