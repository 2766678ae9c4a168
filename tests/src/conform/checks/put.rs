//! `PUT /1.0`: the host's connection information (P§3.3).

use serde_json::{Value, json};

use crate::conform::agent::Agent;
use crate::conform::exec::with;
use crate::conform::wire::Answer;
use crate::conform::{Check, Claim, Group, Miss, SOON, hold, same};
use crate::host::NAME;

const GROUP: Group = Group("PUT /1.0", "P§3.3");

pub(super) const ALL: &[Check] = &[
    GROUP.is("asks the host `GET /1.0` once it is told, then says 200 `{}`", verify).alone(),
    GROUP.is("a host that cannot be reached is 500, with LXD's words", unreachable).alone(),
    GROUP.is("a host that shows another certificate is 500", other_cert).alone(),
    GROUP.is("403 counts as reachable on LXD, as an error on Incus", forbidden).alone(),
    GROUP.is("what does not parse is 500", garbage).alone(),
    GROUP.is("devlxd false removes the socket, true brings it back", switch).alone(),
];

fn put(agent: &Agent, document: &Value) -> Result<Answer, String> {
    agent.ask("PUT", "/1.0", &document.to_string())
}

/// Sends the host's real information again after a check; returns the claim.
fn restored(agent: &Agent, claim: Claim) -> Claim {
    let _calm = agent.host(&["fault", NAME, "none"]);
    let answer = put(agent, &agent.host_info()?)?;
    claim.and(same("the next PUT", answer.short(), "200"))
}

fn verify(agent: &Agent) -> Claim {
    let before = agent.seen_by_host()["connections"].as_u64();
    let answer = put(agent, &agent.host_info()?)?;
    same("status", answer.short(), "200")?;
    same("metadata", answer.metadata(), json!({}))?;
    let after = agent.seen_by_host()["connections"].as_u64();
    hold("the host saw no connection", after > before)?;
    same("the host's last request", &agent.seen_by_host()["last_request"], &json!("GET /1.0"))
}

fn unreachable(agent: &Agent) -> Claim {
    let answer = put(agent, &with(agent.host_info()?, json!({"port": 1})))?;
    let claim = same("status", answer.status, 500).and_then(|()| {
        let words = "Failed verifying connection to LXD server: ";
        let text = answer.short();
        hold(
            format!("the text does not begin with `{words}`"),
            agent.column.is_incus() || text.contains(words),
        )
    });
    restored(agent, claim)
}

fn other_cert(agent: &Agent) -> Claim {
    let _set = agent.host(&["fault", NAME, "wrong-cert"])?;
    let answer = put(agent, &agent.host_info()?)?;
    restored(agent, same("status", answer.status, 500))
}

fn forbidden(agent: &Agent) -> Claim {
    let _set = agent.host(&["fault", NAME, "forbidden"])?;
    let answer = put(agent, &agent.host_info()?)?;
    let wanted = agent.column.pick(200, 500);
    restored(agent, same("status", answer.status, wanted))
}

fn garbage(agent: &Agent) -> Claim {
    for body in ["", "{", "[]", "{\"cid\":\"two\"}"] {
        let answer = agent.ask("PUT", "/1.0", body)?;
        if answer.status != 500 {
            let seen = format!("`{body}` is {}", answer.status);
            return restored(agent, Err(Miss::Differs(seen)));
        }
    }
    restored(agent, Ok(()))
}

fn switch(agent: &Agent) -> Claim {
    let flag = agent.column.pick("devlxd", "dev_incus");
    let socket = agent.column.pick("/dev/lxd/sock", "/dev/incus/sock");
    let there = |agent: &Agent| agent.sh(&format!("test -S {socket}")).0 == 0;
    let off = put(agent, &with(agent.host_info()?, json!({flag: false})))?;
    let claim = same("status", off.short(), "200")
        .and_then(|()| agent.wait("the socket is gone", SOON, |agent| !there(agent)));
    restored(agent, claim)?;
    agent.wait("the socket is back", SOON, there)
}
