//! TLS and HTTP: authentication of callers, and the form of answers (P§3.1, P§3.4, P§4).

use crate::conform::prelude::*;

const TLS: Group = Group::new("TLS", "P§3.1");
const HTTP: Group = Group::new("HTTP", "P§3.4");

pub(super) const ALL: &[Check] = &[
    TLS.is("a client that knows no TLS 1.3 is turned away", |agent| {
        let mut socket = agent.dial()?;
        let text = |error: io::Error| error.to_string();
        socket.write_all(&hello12()).map_err(text)?;
        let mut answer = Vec::new();
        let _cut = socket.read_to_end(&mut answer);
        // An alert or the end of the connection; a ServerHello would be of type 22.
        hold("TLS 1.2 is spoken", answer.first() != Some(&22))
    }),
    TLS.is("shows `agent.crt`, whatever the name asked for", |agent| {
        // Connecting is enough: this suite's verifier accepts no other certificate.
        agent.connect().map(drop).map_err(Into::into)
    }),
    TLS.is("a caller with another certificate gets nothing", |agent| {
        refused(agent, Caller::Untrusted)
    }),
    TLS.is("a caller without a certificate gets nothing", |agent| refused(agent, Caller::Nobody)),
    TLS.is("refused callers are told 500 `Not authorized`", |agent| {
        for caller in [Caller::Untrusted, Caller::Nobody] {
            let answer = as_caller(agent, caller, "/1.0");
            let answer = answer.map_err(|_| Miss::Differs("the handshake fails".into()))?;
            same("the answer", answer.short(), "500 Not authorized")?;
        }
        Ok(())
    }),
    TLS.is("`GET /` is answered without a certificate", |agent| {
        let answer = as_caller(agent, Caller::Nobody, "/");
        let answer = answer.map_err(|_| Miss::Differs("the handshake fails".into()))?;
        same("the answer", answer.metadata(), json!(["/1.0"]))
    }),
    TLS.slow().is("a connection without a head is closed after 3 s", |agent| {
        let mut wire = agent.connect()?;
        wire.send(b"GET /1.0 HTTP/1.1\r\n")?;
        let ended = wire.within(Duration::from_secs(8)).rest();
        ended.map(drop).map_err(|_| Miss::No("it is still open after 8 s".into()))
    }),
    HTTP.of("P§4")
        .is("`GET /` is `[\"/1.0\"]`", |agent| same("metadata", agent.get("/")?, json!(["/1.0"]))),
    HTTP.of("P§3.1").is("an unknown path is LXD's list, or Incus' 404", |agent| {
        for path in ["/1.0/files", "/1.0/", "/foo"] {
            let answer = agent.ask("GET", path, "")?;
            if agent.column.is_incus() {
                same(&format!("`{path}`"), answer.short(), "404 404 page not found")?;
            } else {
                same(&format!("`{path}`"), answer.status, 200)?;
                same(&format!("`{path}`"), answer.metadata(), json!(["/1.0"]))?;
            }
        }
        Ok(())
    }),
    HTTP.of("P§3.1").is("a method without a handler is 501 “not implemented”", |agent| {
        for (method, path) in [
            ("DELETE", "/1.0"),
            ("PUT", "/1.0/exec"),
            ("POST", "/1.0/operations"),
            ("PUT", "/1.0/events"),
        ] {
            let answer = agent.ask(method, path, "")?;
            let seen = answer.short().to_lowercase();
            same(&format!("`{method} {path}`"), seen, "501 not implemented")?;
        }
        Ok(())
    }),
    HTTP.of("P§3.1").is("an unknown verb is 404 `Method \"…\" not found`", |agent| {
        let answer = agent.ask("OPTIONS", "/1.0", "")?;
        same("the answer", answer.short(), "404 Method \"OPTIONS\" not found")
    }),
    HTTP.of("P§4").is("success comes in the envelope with its seven members", |agent| {
        let answer = agent.ask("GET", "/1.0", "")?;
        let json = answer.json();
        same("the list of members", members(&json), ENVELOPE)?;
        same("Content-Type", answer.field("content-type"), "application/json")?;
        has(&json, json!({"type": "sync", "status": "Success", "status_code": 200}))?;
        has(&json, json!({"operation": "", "error_code": 0, "error": ""}))?;
        hold("no newline ends it", answer.body.ends_with(b"}\n"))
    }),
    HTTP.of("P§4").is("an error comes in the envelope, its code the status", |agent| {
        let answer = agent.ask("DELETE", "/1.0", "")?;
        let json = answer.json();
        same("the list of members", members(&json), ENVELOPE)?;
        same("Content-Type", answer.field("content-type"), "application/json")?;
        same("X-Content-Type-Options", answer.field("x-content-type-options"), "nosniff")?;
        has(&json, json!({"type": "error", "metadata": null, "error_code": answer.status}))
    }),
    HTTP.is("`GET /1.0` has an `ETag` of 64 hex digits", |agent| {
        let answer = agent.ask("GET", "/1.0", "")?;
        let tag = answer.field("etag").trim_matches('"');
        hold("there is none", !tag.is_empty())?;
        hold(
            format!("it has {} characters", tag.len()),
            tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit()),
        )
    }),
    HTTP.of("P§3.2").is("a connection serves one request after the other", |agent| {
        let mut wire = agent.connect()?;
        for path in ["/1.0", "/1.0/operations", "/"] {
            same(path, wire.ask("GET", path, "", b"")?.status, 200)?;
        }
        Ok(())
    }),
    HTTP.of("P§3.2").is("`Connection: close` is obeyed", |agent| {
        let mut wire = agent.connect()?;
        let answer = wire.ask("GET", "/1.0", "Connection: close\r\n", b"")?;
        answer.is(200)?;
        same("more", wire.rest()?.len(), 0)
    }),
    HTTP.of("P§3.2").is("a head that comes byte by byte is a head", |agent| {
        let mut wire = agent.connect()?;
        for byte in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" {
            wire.send(&[*byte])?;
        }
        wire.answer()?.is(200)
    }),
    HTTP.of("P§4").is("a chunked request body is read", |agent| {
        let mut wire = agent.connect()?;
        wire.send(
            b"POST /1.0/events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
              1a\r\n{\"type\":\"config\",\"metadata\r\n4\r\n\":{}\r\n1\r\n}\r\n0\r\n\r\n",
        )?;
        wire.answer()?.is(200)
    }),
    HTTP.of("P§3.2").is("thirty idle connections keep nobody out", |agent| {
        let idle: Result<Vec<_>, _> = (0..30).map(|_| agent.dial()).collect();
        let idle = idle?;
        let mut wire = agent.connect()?;
        let answer = wire.within(TIMEOUT).ask("GET", "/1.0", "", b"")?;
        drop(idle);
        answer.is(200)
    }),
    HTTP.is("`environment.server` is what makes it an agent", |agent| {
        let info = agent.get("/1.0")?;
        let wanted = agent.column.pick("lxd-agent", "incus-agent");
        same("it", &info["environment"]["server"], &json!(wanted))
    }),
    HTTP.is("`environment` tells kernel, host name and pid of the guest", |agent| {
        let environment = agent.get("/1.0")?["environment"].clone();
        let text = |name: &str| environment[name].as_str().unwrap_or_default().to_owned();
        same("kernel", text("kernel"), agent.guest("uname -s")?)?;
        same("kernel_version", text("kernel_version"), agent.guest("uname -r")?)?;
        same("kernel_architecture", text("kernel_architecture"), agent.guest("uname -m")?)?;
        same("server_name", text("server_name"), agent.guest("uname -n")?)?;
        hold("server_version is empty", !text("server_version").is_empty())?;
        let pid = agent.guest("cat /run/agent.pid")?;
        hold(
            "server_pid is not the agent's",
            environment["server_pid"].as_u64() == pid.parse().ok(),
        )
    }),
    HTTP.is("`api_extensions` has `container_exec_user_group_cwd`", |agent| {
        has_extension(agent, "container_exec_user_group_cwd")
    }),
    HTTP.is("`api_extensions` has `metrics`", |agent| has_extension(agent, "metrics")),
    HTTP.of("P§3.2").is("HTTP/1.1 without a `Host` is 400", |agent| {
        let mut wire = agent.connect()?;
        wire.send(b"GET /1.0 HTTP/1.1\r\n\r\n")?;
        wire.answer()?.is(400)
    }),
    HTTP.is("the caller is `trusted`, by `tls`, API `1.0`, `stable`", |agent| {
        let info = agent.get("/1.0")?;
        let caller = json!({"auth": "trusted", "auth_methods": ["tls"], "public": false});
        has(&info, caller)?;
        has(&info, json!({"api_version": "1.0", "api_status": "stable"}))
    }),
    PUT.alone().is("asks the host `GET /1.0` once it is told, then says 200 `{}`", |agent| {
        let before = agent.seen_by_host()["connections"].as_u64();
        let answer = put(agent, &agent.host_info()?)?;
        same("status", answer.short(), "200")?;
        same("metadata", answer.metadata(), json!({}))?;
        hold("the host saw no connection", agent.seen_by_host()["connections"].as_u64() > before)?;
        same("the host's last request", &agent.seen_by_host()["last_request"], &json!("GET /1.0"))
    }),
    PUT.alone().is("a host that cannot be reached is 500, with LXD's words", |agent| {
        let answer = put(agent, &with(agent.host_info()?, json!({"port": 1})))?;
        let claim = answer.is(500).and_then(|()| {
            let words = "Failed verifying connection to LXD server: ";
            let text = answer.short();
            hold(
                format!("the text does not begin with `{words}`"),
                agent.column.is_incus() || text.contains(words),
            )
        });
        restored(agent, claim)
    }),
    PUT.alone().is("a host that shows another certificate is 500", |agent| {
        let _set = agent.host(&["fault", NAME, "wrong-cert"])?;
        let answer = put(agent, &agent.host_info()?)?;
        restored(agent, answer.is(500))
    }),
    PUT.alone().is("403 counts as reachable on LXD, as an error on Incus", |agent| {
        let _set = agent.host(&["fault", NAME, "forbidden"])?;
        let answer = put(agent, &agent.host_info()?)?;
        let wanted = agent.column.pick(200, 500);
        restored(agent, answer.is(wanted))
    }),
    PUT.alone().is("what does not parse is 500", |agent| {
        for body in ["", "{", "[]", "{\"cid\":\"two\"}"] {
            let answer = agent.ask("PUT", "/1.0", body)?;
            if answer.status != 500 {
                let seen = format!("`{body}` is {}", answer.status);
                return restored(agent, Err(Miss::Differs(seen)));
            }
        }
        restored(agent, Ok(()))
    }),
    PUT.alone().is("devlxd false removes the socket, true brings it back", |agent| {
        let flag = agent.column.pick("devlxd", "dev_incus");
        let socket = agent.column.pick("/dev/lxd/sock", "/dev/incus/sock");
        let there = |agent: &Agent| agent.sh(&format!("test -S {socket}")).0 == 0;
        let off = put(agent, &with(agent.host_info()?, json!({flag: false})))?;
        let claim = same("status", off.short(), "200")
            .and_then(|()| agent.wait("the socket is gone", SOON, |agent| !there(agent)));
        restored(agent, claim)?;
        agent.wait("the socket is back", SOON, there)
    }),
];

/// A ClientHello of TLS 1.2 with P-256, P-384 and ECDSA, as OpenSSL 1.0 would send it.
fn hello12() -> Vec<u8> {
    let extensions: &[u8] = &[
        0, 10, 0, 6, 0, 4, 0, 23, 0, 24, // supported groups
        0, 11, 0, 2, 1, 0, // point formats
        0, 13, 0, 8, 0, 6, 4, 3, 5, 3, 4, 1, // signature algorithms
    ];
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 6, 0xc0, 0x2c, 0xc0, 0x2b, 0xc0, 0x30, 1, 0]);
    let length = |length: usize| u16::try_from(length).expect("short").to_be_bytes();
    body.extend(length(extensions.len()));
    body.extend(extensions);
    let mut record = vec![22, 3, 1];
    record.extend(length(body.len() + 4));
    record.extend([1, 0]);
    record.extend(length(body.len()));
    record.extend(body);
    record
}

/// Returns the answer to this caller's `GET path`. A refusal in the handshake is an error.
fn as_caller(agent: &Agent, caller: Caller, path: &str) -> Try<Answer> {
    let mut wire = agent.connect_as(caller)?;
    wire.ask("GET", path, "Connection: close\r\n", b"")
}

fn refused(agent: &Agent, caller: Caller) -> Claim {
    match as_caller(agent, caller, "/1.0") {
        Err(_) => Ok(()),
        Ok(answer) => hold(
            format!("it is answered {}", answer.short()),
            answer.status >= 400 && answer.metadata().is_null(),
        ),
    }
}

fn members(value: &Value) -> String {
    let mut names: Vec<_> =
        value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.join(" ")
}

const ENVELOPE: &str = "error error_code metadata operation status status_code type";

fn has_extension(agent: &Agent, name: &str) -> Claim {
    let info = agent.get("/1.0")?;
    let all = info["api_extensions"].as_array().ok_or("no api_extensions")?.clone();
    hold("it is not there", all.contains(&json!(name)))
}

const PUT: Group = Group::new("PUT /1.0", "P§3.3");

fn put(agent: &Agent, document: &Value) -> Try<Answer> {
    agent.ask("PUT", "/1.0", &document.to_string())
}

/// Sends the host's real information again after a check; returns the claim.
fn restored(agent: &Agent, claim: Claim) -> Claim {
    let _calm = agent.host(&["fault", NAME, "none"]);
    let answer = put(agent, &agent.host_info()?)?;
    claim.and(same("the next PUT", answer.short(), "200"))
}
