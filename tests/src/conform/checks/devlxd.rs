//! devlxd: what programs in the guest see (P§5).

use serde_json::{Value, json};

use crate::conform::agent::Agent;
use crate::conform::wire::Answer;
use crate::conform::{Check, Claim, Column, Group, Miss, SOON, hold, same};
use crate::host::NAME;

const GROUP: Group = Group("devlxd", "P§5.3");

pub(super) const ALL: &[Check] = &[
    GROUP.of("P§5.1").is("the socket is root's, mode 600, in a directory of mode 755", socket),
    GROUP.of("P§5.1").is("`/dev/lxd` leads to `/dev/incus`", symlink).incus(),
    GROUP.is("`GET /` is `[\"/1.0\"]` and a newline, as JSON", index),
    GROUP.is("`GET /1.0` tells version, type, location and state", info),
    GROUP.is("for somebody untrusted it tells no `environment`", untrusted).lxd(),
    GROUP.is("`/1.0/config` lists the keys that guests may read", config_keys),
    GROUP.of("P§5.2").is("a value comes as it is, as an octet stream", config_value),
    GROUP.of("P§5.2").is("so does one with newlines, quotes and letters of all kinds", odd_value),
    GROUP.is("a key that is not set is 404 in the host's words", key_miss),
    GROUP.is("a key that guests may not read is 403 in the server's words", key_forbidden),
    GROUP.of("P§5.2").is("an error is text with a newline, and `nosniff`", error_text),
    GROUP.is("meta-data comes as it is, headed as the server does", meta_data),
    GROUP.is("devices come as JSON, by name", devices),
    GROUP.is("PATCH Ready is 200 without a body, and the host knows", ready).alone(),
    GROUP.is("PATCH of another state is 400", bad_state),
    GROUP.is("PATCH of what does not parse is an error", bad_patch),
    GROUP.of("P§5.2").is("an unknown path there is LXD's list, or Incus' 404", unknown_path),
    GROUP.of("P§5.2").is("POST where only GET is known: 501 (LXD), as GET (Incus)", other_method),
    GROUP.of("P§5.1").is("its connections serve one request after the other", keep_alive),
    GROUP.of("P§5.1").is("the reply to HTTP/1.0 ends with the connection", http10),
    GROUP.is("events: the host's change of a key comes as a line", events),
    GROUP.is("events: also by websocket", events_websocket),
    GROUP.of("P§5.4").is("the host's 403 is shown as it is", forbidden).alone(),
    GROUP.of("P§5.4").is("a host that breaks off is 500", broken_host).alone(),
    GROUP.is("an image is exported as a stream", image).lxd(),
    GROUP.is("Ubuntu Pro's state and token come as JSON", ubuntu_pro).lxd(),
    GROUP.of("P§5.4").is("the bearer's token is handed on", bearer).lxd(),
];

fn socket(agent: &Agent) -> Claim {
    let path = agent.socket();
    let directory = path.trim_end_matches("/sock");
    same("it", agent.guest(&format!("stat -c '%F %a %u %g' {path}"))?, "socket 600 0 0")?;
    same("the directory", agent.guest(&format!("stat -c '%F %a' {directory}"))?, "directory 755")
}

fn symlink(agent: &Agent) -> Claim {
    same("it", agent.guest("readlink -f /dev/lxd")?, "/dev/incus")
}

fn get(agent: &Agent, target: &str) -> Result<Answer, String> {
    agent.devlxd("GET", target, "")
}

fn json_of(agent: &Agent, target: &str) -> Result<Value, Miss> {
    let answer = get(agent, target)?;
    same("status", answer.short().split(' ').next().unwrap_or_default().to_owned(), "200")?;
    same("Content-Type", answer.field("content-type"), "application/json")?;
    serde_json::from_slice(&answer.body).map_err(|_| Miss::Differs("it is not JSON".into()))
}

fn index(agent: &Agent) -> Claim {
    let _json = json_of(agent, "/")?;
    same("the body", get(agent, "/")?.text(), "[\"/1.0\"]\n")
}

fn info(agent: &Agent) -> Claim {
    let info = json_of(agent, "/1.0")?;
    same("api_version", &info["api_version"], &json!("1.0"))?;
    hold("there is no location", info["location"].is_string())?;
    same("instance_type", &info["instance_type"], &json!("virtual-machine"))?;
    hold("state is another", info["state"] == json!("Started") || info["state"] == json!("Ready"))
}

fn untrusted(agent: &Agent) -> Claim {
    let info = json_of(agent, "/1.0")?;
    same("auth", &info["auth"], &json!("untrusted"))?;
    hold("it does", info.get("environment").is_none_or(Value::is_null))
}

fn config_keys(agent: &Agent) -> Claim {
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
}

fn config_value(agent: &Agent) -> Claim {
    let answer = get(agent, "/1.0/config/user.foo")?;
    same("it", answer.short(), "200 bar")?;
    same("the length", answer.body.len(), 3)?;
    same("Content-Type", answer.field("content-type"), "application/octet-stream")
}

fn odd_value(agent: &Agent) -> Claim {
    same("it", get(agent, "/1.0/config/user.odd")?.text(), ODD)
}

/// Value of `user.odd`.
pub(in crate::conform) const ODD: &str = "line one\nline \"two\" \\ <b>&ü\u{1f980}\n";

fn key_miss(agent: &Agent) -> Claim {
    let words = match agent.column {
        Column::MoteLxd | Column::Before => "404 Not Found",
        // The wording of these agents' hosts.
        Column::LxdAgent | Column::MoteIncus | Column::IncusAgent | Column::IncusAgent7 => {
            "404 not found"
        }
    };
    same("it", get(agent, "/1.0/config/user.nothing")?.short(), words)
}

fn key_forbidden(agent: &Agent) -> Claim {
    let words = match agent.column {
        Column::MoteLxd | Column::Before => "403 Forbidden",
        Column::LxdAgent | Column::MoteIncus | Column::IncusAgent | Column::IncusAgent7 => {
            "403 not authorized"
        }
    };
    same("it", get(agent, "/1.0/config/volatile.uuid")?.short(), words)
}

fn error_text(agent: &Agent) -> Claim {
    let answer = get(agent, "/1.0/config/user.nothing")?;
    same("Content-Type", answer.field("content-type"), "text/plain; charset=utf-8")?;
    same("X-Content-Type-Options", answer.field("x-content-type-options"), "nosniff")?;
    hold("no newline ends it", answer.body.ends_with(b"\n"))
}

fn meta_data(agent: &Agent) -> Claim {
    let answer = get(agent, "/1.0/meta-data")?;
    same("status", answer.status, 200)?;
    let head = match agent.column {
        Column::MoteLxd | Column::Before => "",
        Column::LxdAgent | Column::MoteIncus | Column::IncusAgent | Column::IncusAgent7 => {
            "#cloud-config\n"
        }
    };
    let wanted = format!("{head}instance-id: ");
    hold("it begins otherwise", answer.text().starts_with(&wanted))?;
    hold(
        "no local-hostname is in it",
        answer.text().contains(&format!("\nlocal-hostname: {NAME}\n")),
    )
}

fn devices(agent: &Agent) -> Claim {
    let all = json_of(agent, "/1.0/devices")?;
    hold("it is not an object", all.is_object())?;
    let all = all.as_object().cloned().unwrap_or_default();
    hold("one has no type", all.values().all(|device| device["type"].is_string()))
}

fn ready(agent: &Agent) -> Claim {
    let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":\"Ready\"}")?;
    same("it", answer.short(), "200")?;
    same("the body's length", answer.body.len(), 0)?;
    same("the host's view", &agent.seen_by_host()["status"], &json!("Ready"))?;
    let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":\"Started\"}")?;
    same("it", answer.short(), "200")?;
    same("the host's view", &agent.seen_by_host()["status"], &json!("Running"))
}

fn bad_state(agent: &Agent) -> Claim {
    let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":\"Asleep\"}")?;
    same("status", answer.status, 400)
}

fn bad_patch(agent: &Agent) -> Claim {
    let answer = agent.devlxd("PATCH", "/1.0", "{\"state\":")?;
    hold(format!("it is {}", answer.status), answer.status == 400 || answer.status == 500)
}

fn unknown_path(agent: &Agent) -> Claim {
    let answer = get(agent, "/1.0/nothing")?;
    if agent.column.is_incus() {
        return same("it", answer.short(), "404 404 page not found");
    }
    same("it", answer.short(), "200 [\"/1.0\"]")
}

fn other_method(agent: &Agent) -> Claim {
    let answer = agent.devlxd("POST", "/1.0/config/user.foo", "x")?;
    if agent.column.is_incus() {
        return same("it", answer.short(), "200 bar");
    }
    same("status", answer.status, 501)
}

fn keep_alive(agent: &Agent) -> Claim {
    let one = |close: &str| format!("GET /1.0/config/user.foo HTTP/1.1\r\nHost: x\r\n{close}\r\n");
    let text = agent.devlxd_raw(&format!("{}{}", one(""), one("Connection: close\r\n")))?;
    same("the number of answers", text.matches("HTTP/1.1 200").count(), 2)?;
    same("the number of values", text.matches("\r\n\r\nbar").count(), 2)
}

fn http10(agent: &Agent) -> Claim {
    let text = agent.devlxd_raw("GET /1.0/config/user.foo HTTP/1.0\r\n\r\n")?;
    same("it", Answer::parse(&text)?.short(), "200 bar")
}

/// Requests events, changes a key, and checks that its event comes.
fn listen(agent: &Agent, fields: &str, key: &str, mark: &str) -> Claim {
    let file = format!("/tmp/events-{key}");
    let request = format!("GET /1.0/events?type=config HTTP/1.1\\r\\nHost: x\\r\\n{fields}\\r\\n");
    let command = format!("(printf '{request}'; sleep 8) | /opt/relay {} >{file}", agent.socket());
    let _started = agent.guest(&format!("({command}) >/dev/null 2>&1 &"))?;
    let has = |what: &str| agent.sh(&format!("grep -q '{what}' {file}")).0 == 0;
    agent.wait("the head", SOON, |_| has("HTTP/1.1"))?;
    same("the head's status", agent.guest(&format!("head -1 {file} | cut -d' ' -f2"))?, mark)?;
    // Go's agents send the head before they listen.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let _set = agent.host(&["set", NAME, &format!("{key}=1")])?;
    agent.wait("the event", SOON, |_| has(key))
}

fn events(agent: &Agent) -> Claim {
    listen(agent, "", "user.stream", "200")
}

fn events_websocket(agent: &Agent) -> Claim {
    let fields = "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n";
    listen(agent, fields, "user.websocket", "101")
}

/// Checks `look` while the host has this fault.
fn while_host(agent: &Agent, fault: &str, look: impl Fn() -> Claim) -> Claim {
    let _set = agent.host(&["fault", NAME, fault])?;
    let claim = look();
    let _calm = agent.host(&["fault", NAME, "none"])?;
    claim
}

fn forbidden(agent: &Agent) -> Claim {
    while_host(agent, "forbidden", || {
        let answer = get(agent, "/1.0/devices")?;
        same("status", answer.status, 403)?;
        hold("its text is another", answer.text().ends_with("Forbidden\n"))
    })
}

fn broken_host(agent: &Agent) -> Claim {
    while_host(agent, "reset", || same("status", get(agent, "/1.0/config/user.foo")?.status, 500))
}

fn image(agent: &Agent) -> Claim {
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
}

fn ubuntu_pro(agent: &Agent) -> Claim {
    let seen = json_of(agent, "/1.0/ubuntu-pro")?;
    hold("no guest_attach is in it", seen["guest_attach"].is_string())?;
    let answer = agent.devlxd("POST", "/1.0/ubuntu-pro/token", "")?;
    hold(format!("the token is {}", answer.status), answer.status == 200 || answer.status == 403)
}

fn bearer(agent: &Agent) -> Claim {
    let text = agent.devlxd_raw(
        "GET /1.0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret\r\n\r\n",
    )?;
    same("auth", &Answer::parse(&text)?.json()["auth"], &json!("trusted"))
}
