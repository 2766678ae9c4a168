//! Events: streams, and what is posted to them (P§4.3).

use super::operations::is_rfc3339;
use crate::conform::prelude::*;

const GROUP: Group = Group::new("Events", "P§4.3");

/// Time limit for an event. Shorter than the interval of pings, each of which would renew it.
const HEARD: Duration = Duration::from_secs(8);

pub(super) const ALL: &[Check] = &[
    GROUP.is("a websocket is pinged at once", |agent| {
        let mut events = Ws::open(agent, "/1.0/events?type=none")?;
        let first = events.within(Duration::from_secs(3)).any()?;
        hold("something else comes first", first.is_ping())
    }),
    GROUP.slow().is("and again within 10 s", |agent| {
        let mut events = Ws::open(agent, "/1.0/events?type=none")?;
        let begun = Instant::now();
        let mut pings = Vec::new();
        while pings.len() < 2 {
            hold("something else comes", events.within(Duration::from_secs(13)).any()?.is_ping())?;
            pings.push(begun.elapsed());
        }
        let gap = pings[1] - pings[0];
        hold(
            "it took longer",
            in_time(gap.saturating_sub(Duration::from_secs(10)), Duration::from_secs(2)),
        )?;
        hold("it comes within 5 s", gap > Duration::from_secs(5))
    }),
    GROUP.is("without an upgrade it is a stream of lines", |agent| {
        let (mut wire, head) = lines(agent, "?type=config")?;
        hold("it does not begin with 200", head.starts_with("HTTP/1.1 200 OK"))?;
        hold("it is not JSON", head.contains("Content-Type: application/json"))?;
        // Go's agents send the head before they listen.
        thread::sleep(Duration::from_millis(200));
        post_event(agent, &config("user.stream"))?;
        loop {
            let line = wire.until(b"\n")?;
            let event: Value = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
            if event["metadata"]["key"] == json!("user.stream") {
                return Ok(());
            }
        }
    }),
    GROUP.is(
        "in this order: Running, Running with `return`, Success, five times of five",
        |agent| {
            let mut events = listen(agent, "?type=operation")?;
            for _ in 0..5 {
                let running = Running::start(agent, &script("exit 3"))?;
                let id = running.exec.made["id"].clone();
                let _done = running.finish(agent)?;
                let story = story(&mut events, &id)?;
                let ends =
                    story.iter().map(|op| format!("{} {}", op["status"], op["metadata"]["return"]));
                let ends: Vec<_> = ends.filter(|end| !end.starts_with("\"Pending")).collect();
                let tail = ends[ends.len().saturating_sub(3)..].join(", ");
                same("the end", tail, "\"Running\" null, \"Running\" 3, \"Success\" 3")?;
            }
            Ok(())
        },
    ),
    GROUP.is("an exec ends as Success with `return`, whatever that is", |agent| {
        let mut events = listen(agent, "?type=operation")?;
        let running = Running::start(agent, &script("exit 3"))?;
        let id = running.exec.made["id"].clone();
        let _done = running.finish(agent)?;
        let story = story(&mut events, &id)?;
        let last = story.last().cloned().unwrap_or_default();
        has(&last, json!({"status": "Success", "status_code": 200, "metadata": {"return": 3}}))
    }),
    GROUP.is("a failed exec ends as Failure, with its text", |agent| {
        let mut events = listen(agent, "?type=operation")?;
        let running = Running::start(agent, &plain(&["/no/such"]))?;
        let story = story(&mut events, &running.exec.made["id"])?;
        let last = story.last().cloned().unwrap_or_default();
        same("status_code", &last["status_code"], &json!(400))?;
        hold("err is empty", last["err"].as_str().is_some_and(|text| !text.is_empty()))?;
        same("metadata", &last["metadata"], &json!({"return": 127}))
    }),
    GROUP.is("operation events are the operation, and have RFC 3339 times", |agent| {
        let mut events = listen(agent, "?type=operation")?;
        let exec = Exec::ask(agent, &script("true"))?;
        loop {
            let event = events.json()?;
            if event["metadata"]["id"] != exec.made["id"] {
                continue;
            }
            let stamp = event["timestamp"].as_str().unwrap_or_default();
            hold("the timestamp is none", is_rfc3339(stamp))?;
            same("type", &event["type"], &json!("operation"))?;
            return same("class", &event["metadata"]["class"], &json!("websocket"));
        }
    }),
    GROUP.is("`type` lets only those through", |agent| {
        let mut events = listen(agent, "?type=config,nothing")?;
        let mut others = listen(agent, "?type=lifecycle")?;
        let _operation = Exec::ask(agent, &script("true"))?;
        post_event(agent, &config("user.filter"))?;
        loop {
            let event = events.json()?;
            same("type", &event["type"], &json!("config"))?;
            if event["metadata"]["key"] == json!("user.filter") {
                break;
            }
        }
        let silent = others.within(Duration::from_millis(300)).message();
        hold("something comes for lifecycle", silent.is_err())
    }),
    GROUP.is("without `type`, config and device are among them", |agent| {
        let mut events = listen(agent, "")?;
        post_event(agent, &config("user.default"))?;
        let _event = about(&mut events, "user.default")?;
        let device = json!({"type": "device", "timestamp": "2001-02-03T04:05:06Z", "metadata":
            {"key": "user.device", "action": "updated", "name": "x", "config": {"type": "none"}}});
        post_event(agent, &device)?;
        let _event =
            about(&mut events, "user.device").map_err(|error| format!("device: {error}"))?;
        Ok(())
    }),
    GROUP.is("what is posted goes to all, with a new time, otherwise as it was", |agent| {
        let mut all = [listen(agent, "?type=config")?, listen(agent, "")?];
        let sent = config("user.post");
        post_event(agent, &sent)?;
        for events in &mut all {
            let event = about(events, "user.post")?;
            same("metadata", &event["metadata"], &sent["metadata"])?;
            let stamp = event["timestamp"].as_str().unwrap_or_default();
            hold("the time is none", is_rfc3339(stamp))?;
            hold("the time is the old one", !stamp.starts_with("2001-"))?;
        }
        Ok(())
    }),
    GROUP.is("posting is answered 200 with null", |agent| {
        let answer = agent.ask("POST", "/1.0/events", &config("user.answer").to_string())?;
        answer.is(200)?;
        same("type", &answer.json()["type"], &json!("sync"))?;
        hold("metadata is something", answer.metadata().is_null() || answer.metadata() == json!({}))
    }),
    GROUP.is("what does not parse is 500 when posted, `{}` is not", |agent| {
        let answer = agent.ask("POST", "/1.0/events", "{\"type\":")?;
        answer.is(500)?;
        same("type", &answer.json()["type"], &json!("error"))?;
        same("`{}`", agent.ask("POST", "/1.0/events", "{}")?.short(), "200")
    }),
    GROUP.slow().is(
        "a disk that cannot be mounted is 500 with the reason (LXD) or 200 (Incus) within 3 s",
        |agent| {
            let event = json!({"type": "device", "timestamp": "2001-02-03T04:05:06Z", "metadata":
            {"action": "added", "name": "nothing", "config":
            {"type": "disk", "path": "/tmp/nothing", "pool": "p", "source": "s"}}});
            let begun = Instant::now();
            let answer = agent.ask("POST", "/1.0/events", &event.to_string())?.short();
            hold("it took longer", in_time(begun.elapsed(), Duration::from_secs(3)))?;
            if agent.column.is_incus() {
                return same("the answer to POST", answer, "200");
            }
            let reason = answer.strip_prefix("500 Failed hotpluging device \"lxd_nothing\": ");
            hold(format!("it is {answer}"), reason.is_some_and(|reason| !reason.is_empty()))?;
            let climbs = event.to_string().replace("/tmp/nothing", "/tmp/../nothing");
            let said = "500 Invalid path \"/tmp/../nothing\": Path must not contain '..'";
            same("a path with ..", agent.ask("POST", "/1.0/events", &climbs)?.short(), said)?;
            let removed = climbs.replace("added", "removed");
            same("what is removed", agent.ask("POST", "/1.0/events", &removed)?.short(), "200")
        },
    ),
    GROUP.is("`project` and `all-projects` are ignored", |agent| {
        let mut events = listen(agent, "?project=p&all-projects=true&type=config")?;
        post_event(agent, &config("user.project"))?;
        let _event = about(&mut events, "user.project")?;
        Ok(())
    }),
    GROUP.is("a listener that reads nothing keeps nobody waiting", |agent| {
        const COUNT: usize = 40;
        let _stalled = listen(agent, "?type=config")?;
        let mut reader = listen(agent, "?type=config")?;
        let value = "x".repeat(30_000);
        for number in 0..COUNT {
            let event = json!({"type": "config", "timestamp": "2001-02-03T04:05:06Z",
                "metadata": {"key": format!("user.stalled{number}"), "value": value}});
            let begun = Instant::now();
            post_event(agent, &event)?;
            hold("a POST takes longer than 3 s", in_time(begun.elapsed(), Duration::from_secs(3)))?;
            let _event = about(&mut reader, &format!("user.stalled{number}"))?;
        }
        Ok(())
    }),
];

fn listen(agent: &Agent, query: &str) -> Try<Ws> {
    let mut events = Ws::open(agent, &format!("/1.0/events{query}"))?;
    let _ping = events.within(SOON).any()?;
    events.within(HEARD);
    Ok(events)
}

fn about(events: &mut Ws, key: &str) -> Try<Value> {
    loop {
        let event = events.json()?;
        if event["metadata"]["key"] == json!(key) {
            return Ok(event);
        }
    }
}

fn config(key: &str) -> Value {
    json!({"type": "config", "timestamp": "2001-02-03T04:05:06Z",
        "metadata": {"key": key, "old_value": "a", "value": "<b>ü"}})
}

fn post_event(agent: &Agent, event: &Value) -> Claim {
    let answer = agent.ask("POST", "/1.0/events", &event.to_string())?;
    same("the answer to POST", answer.short(), "200")
}

fn lines(agent: &Agent, query: &str) -> Try<(Wire, String)> {
    let mut wire = agent.connect()?;
    wire.send(format!("GET /1.0/events{query} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\n\n") && !head.ends_with(b"\r\n\r\n") {
        head.extend(wire.exactly(1)?);
    }
    Ok((wire, String::from_utf8_lossy(&head).into_owned()))
}

/// Status and metadata in each event about an operation, up to its end.
fn story(events: &mut Ws, id: &Value) -> Try<Vec<Value>> {
    let mut story = Vec::new();
    loop {
        let event = events.json()?;
        if event["metadata"]["id"] == *id {
            let operation = event["metadata"].clone();
            let is_over = operation["status_code"].as_u64() >= Some(200);
            story.push(operation);
            if is_over {
                return Ok(story);
            }
        }
    }
}
