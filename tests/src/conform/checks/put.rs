//! `PUT /1.0`: the host's connection information (P§3.3).

use serde_json::{Value, json};

use crate::NAME;
use crate::conform::agent::Agent;
use crate::conform::exec::with;
use crate::conform::wire::Answer;
use crate::conform::{Check, Claim, Group, Miss, SOON, hold, same};

const GROUP: Group = Group::new("PUT /1.0", "P§3.3");

pub(super) const ALL: &[Check] = &[
    GROUP.alone().is("asks the host `GET /1.0` once it is told, then says 200 `{}`", |agent| {
        let before = agent.seen_by_host()["connections"].as_u64();
        let answer = put(agent, &agent.host_info()?)?;
        same("status", answer.short(), "200")?;
        same("metadata", answer.metadata(), json!({}))?;
        let after = agent.seen_by_host()["connections"].as_u64();
        hold("the host saw no connection", after > before)?;
        same("the host's last request", &agent.seen_by_host()["last_request"], &json!("GET /1.0"))
    }),
    GROUP.alone().is("a host that cannot be reached is 500, with LXD's words", |agent| {
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
    GROUP.alone().is("a host that shows another certificate is 500", |agent| {
        let _set = agent.host(&["fault", NAME, "wrong-cert"])?;
        let answer = put(agent, &agent.host_info()?)?;
        restored(agent, answer.is(500))
    }),
    GROUP.alone().is("403 counts as reachable on LXD, as an error on Incus", |agent| {
        let _set = agent.host(&["fault", NAME, "forbidden"])?;
        let answer = put(agent, &agent.host_info()?)?;
        let wanted = agent.column.pick(200, 500);
        restored(agent, answer.is(wanted))
    }),
    GROUP.alone().is("what does not parse is 500", |agent| {
        for body in ["", "{", "[]", "{\"cid\":\"two\"}"] {
            let answer = agent.ask("PUT", "/1.0", body)?;
            if answer.status != 500 {
                let seen = format!("`{body}` is {}", answer.status);
                return restored(agent, Err(Miss::Differs(seen)));
            }
        }
        restored(agent, Ok(()))
    }),
    GROUP.alone().is("devlxd false removes the socket, true brings it back", |agent| {
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

fn put(agent: &Agent, document: &Value) -> Result<Answer, String> {
    agent.ask("PUT", "/1.0", &document.to_string())
}

/// Sends the host's real information again after a check; returns the claim.
fn restored(agent: &Agent, claim: Claim) -> Claim {
    let _calm = agent.host(&["fault", NAME, "none"]);
    let answer = put(agent, &agent.host_info()?)?;
    claim.and(same("the next PUT", answer.short(), "200"))
}
