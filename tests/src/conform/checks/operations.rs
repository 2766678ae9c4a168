//! Operations, which `POST /1.0/exec` creates, and requests about them (P§4.2).

use chrono::DateTime;

use crate::conform::prelude::*;

const GROUP: Group = Group::new("Operations", "P§4.2");

pub(super) const ALL: &[Check] = &[
    GROUP.of("P§4").is("exec answers 202, `Location`, and the operation's envelope", |agent| {
        let answer = agent.ask("POST", "/1.0/exec", &plain(&["true"]).to_string())?;
        answer.is(202)?;
        let json = answer.json();
        let target =
            format!("/1.0/operations/{}", json["metadata"]["id"].as_str().unwrap_or_default());
        has(&json, json!({"type": "async", "status": "Operation created", "status_code": 100}))?;
        hold("`operation` is not the target", json["operation"] == json!(target))?;
        hold("`Location` is not the target", answer.field("location") == target)
    }),
    GROUP.is("an operation has class, description, status and an id", |agent| {
        let made = Exec::ask(agent, &plain(&["true"]))?.made;
        has(&made, json!({"class": "websocket", "description": "Executing command", "err": ""}))?;
        let id = made["id"].as_str().unwrap_or_default();
        let uuid = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        hold("the id is not a UUID", id.len() == 36 && id.bytes().enumerate().all(uuid))?;
        let pair = (made["status"].as_str().unwrap_or_default(), made["status_code"].as_u64());
        let is_known = [("Running", Some(103)), ("Pending", Some(105))].contains(&pair);
        hold(format!("its status is {} {}", pair.0, made["status_code"]), is_known)
    }),
    GROUP.is("`created_at` and `updated_at` are RFC 3339", |agent| {
        let made = Exec::ask(agent, &plain(&["true"]))?.made;
        for member in ["created_at", "updated_at"] {
            let text = made[member].as_str().unwrap_or_default();
            hold(format!("{member} is not"), is_rfc3339(text))?;
        }
        Ok(())
    }),
    GROUP.is("`may_cancel` and `resources` are as this server has them", |agent| {
        let made = Exec::ask(agent, &plain(&["true"]))?.made;
        let (may_cancel, resources) =
            agent.column.pick((json!(true), json!(null)), (json!(false), json!({})));
        same("may_cancel", &made["may_cancel"], &may_cancel)?;
        same("resources", &made["resources"], &resources)?;
        for member in ["err_code", "child_count"] {
            same(member, &made[member], &agent.column.pick(json!(0), json!(null)))?;
        }
        Ok(())
    }),
    GROUP.is("a running operation is listed under `running`", |agent| {
        let cat = cat(agent)?;
        let list = agent.get("/1.0/operations")?;
        let has =
            list["running"].as_array().is_some_and(|all| all.contains(&json!(cat.exec.operation)));
        over(agent, cat, hold("it is not there", has))
    }),
    GROUP.is("`recursion=1` lists objects", |agent| {
        let cat = cat(agent)?;
        let list = agent.get("/1.0/operations?recursion=1")?;
        let is_it = |value: &Value| value["id"] == cat.exec.made["id"];
        let has = list["running"].as_array().is_some_and(|all| all.iter().any(is_it));
        over(agent, cat, hold("it is not there", has))
    }),
    GROUP.is("an unknown one is 500, in the server's words", |agent| {
        let answer = agent.ask("GET", NOBODY, "")?;
        let id = NOBODY.rsplit('/').next().unwrap_or_default();
        let lxd = format!("500 Operation \"{id}\" does not exist");
        let incus = format!("500 Operation '{id}' doesn't exist");
        same("it", answer.short().replace(id, "…"), agent.column.pick(lxd, incus).replace(id, "…"))
    }),
    GROUP.is("waiting for an unknown one is 404", |agent| {
        agent.ask("GET", &format!("{NOBODY}/wait?timeout=1"), "")?.is(404)
    }),
    GROUP.is("waiting too long is 500 `context deadline exceeded`", |agent| {
        let cat = cat(agent)?;
        let begun = Instant::now();
        let answer = wait(agent, &cat.exec.operation, 1)?;
        let took = begun.elapsed();
        let claim = same("it", answer.short(), "500 context deadline exceeded");
        let claim = claim.and(hold("it did not wait for 1 s", took > Duration::from_millis(800)));
        over(agent, cat, claim)
    }),
    GROUP.is("waiting gives the operation when it has ended", |agent| {
        let mut sleep = Running::start(agent, &script("sleep 0.5; exit 4"))?;
        let answer = wait(agent, &sleep.exec.operation, -1)?;
        answer.is(200)?;
        let operation = answer.metadata();
        let wanted = json!({"status": "Success", "status_code": 200, "metadata": {"return": 4}});
        has(&operation, wanted)?;
        sleep.output().map(drop).map_err(Into::into)
    }),
    GROUP.is(
        "waiting for a failed one gives the operation (LXD), or is an error reply (Incus)",
        |agent| {
            let running = Running::start(agent, &plain(&["/nothing/here"]))?;
            let operation = running.exec.ended(agent, TIMEOUT)?;
            same("status", &operation["status"], &json!("Failure"))?;
            let answer = wait(agent, &running.exec.operation, 5)?;
            if !agent.column.is_incus() {
                same("the answer", answer.short(), "200")?;
                let (waited, err) = (answer.metadata(), &operation["err"]);
                has(&waited, json!({"status_code": 400, "err_code": 500}))?;
                return same("err", &waited["err"], err);
            }
            hold(format!("it is {}", answer.status), answer.status >= 400)?;
            same("type", &answer.json()["type"], &json!("error"))
        },
    ),
    GROUP.slow().is("an ended one can be asked for during some 5 s", |agent| {
        let exec = Exec::ask(agent, &plain(&["true"]))?;
        let operation = exec.operation.clone();
        let _done = exec.connect(agent)?.finish(agent)?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(9) {
            if agent.ask("GET", &operation, "")?.status != 200 {
                // The agent may notice the end late, but never early.
                return hold("it is gone before 3 s", begun.elapsed() > Duration::from_secs(3));
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err(Miss::Differs("it is still there after 9 s".into()))
    }),
    GROUP.is("DELETE waits for the end (LXD), or is 400 (Incus)", |agent| {
        if agent.column.is_incus() {
            let cat = cat(agent)?;
            let answer = agent.ask("DELETE", &cat.exec.operation, "")?;
            let claim = same("it", answer.short(), "400 This operation can't be cancelled");
            return over(agent, cat, claim);
        }
        let sleep = Running::start(agent, &script("sleep 1"))?;
        let begun = Instant::now();
        let answer = agent.ask("DELETE", &sleep.exec.operation, "")?;
        let took = begun.elapsed();
        let claim = same("it", answer.short(), "200");
        let claim =
            claim.and(hold("it did not wait for the end", took > Duration::from_millis(600)));
        over(agent, sleep, claim)
    }),
    GROUP.is("DELETE of an ended one is 400", |agent| {
        let exec = Exec::ask(agent, &plain(&["true"]))?;
        let operation = exec.operation.clone();
        let _done = exec.connect(agent)?.finish(agent)?;
        agent.ask("DELETE", &operation, "")?.is(400)
    }),
    GROUP.of("P§4.1").is("a socket with a wrong secret is 500 `permission denied`", |agent| {
        let exec = Exec::ask(agent, &plain(&["true"]))?;
        let target = format!("{}/websocket?secret={}", exec.operation, "0".repeat(64));
        same("it", refusal(agent, &target)?, "500 permission denied")
    }),
    GROUP.of("P§4.1").is("a socket without a secret is 500 `missing secret`", |agent| {
        let exec = Exec::ask(agent, &plain(&["true"]))?;
        same("it", refusal(agent, &format!("{}/websocket", exec.operation))?, "500 missing secret")
    }),
    GROUP.of("P§4.1").is("a secret opens one socket, not two", |agent| {
        let exec = Exec::ask(agent, &plain(&["true"]))?;
        let _first = exec.socket(agent, "1")?;
        if let Ok(mut second) = Ws::try_open(agent, &exec.target("1"))? {
            // The upgrade may have been accepted, but the socket must be closed then.
            let end = second.within(Duration::from_secs(2)).any();
            hold(
                "a second socket is let in",
                !matches!(end, Err(text) if text.contains("in time")),
            )?;
        }
        // Other commands still work.
        let done = run(agent, &plain(&["true"]), b"")?;
        same("exit code", done.code, 0)
    }),
    GROUP.of("P§4.1").is("the socket of an unknown one is 500", |agent| {
        let answer = agent.ask("GET", &format!("{NOBODY}/websocket?secret=x"), "")?;
        answer.is(500)
    }),
];

fn cat(agent: &Agent) -> Try<Running> {
    Running::start(agent, &plain(&["cat"]))
}

fn over(agent: &Agent, cat: Running, claim: Claim) -> Claim {
    let _done = cat.finish(agent)?;
    claim
}

pub(super) fn is_rfc3339(text: &str) -> bool {
    // chrono also accepts a blank, lowercase letters and another minus sign.
    let usual = |letter: char| letter.is_ascii_digit() || "-:.+TZ".contains(letter);
    text.chars().all(usual) && DateTime::parse_from_rfc3339(text).is_ok()
}

const NOBODY: &str = "/1.0/operations/12345678-1234-4234-8234-123456789abc";

fn wait(agent: &Agent, operation: &str, timeout: i32) -> Try<Answer> {
    agent.ask("GET", &format!("{operation}/wait?timeout={timeout}"), "")
}

fn refusal(agent: &Agent, target: &str) -> Result<String, Miss> {
    match Ws::try_open(agent, target)? {
        Ok(_) => Err(Miss::Differs("it is let in".into())),
        Err(answer) => Ok(answer.short()),
    }
}
