//! Commands that ask an agent something: `state`, `metrics`, `operations`, `events --agent` (P§4.2-4.6).

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent_client::{self, Known, metadata};
use crate::args::{Args, flag, next, none_left, number};
use crate::instance::Instance;
use crate::stream::Limit;
use crate::websocket::{self, Piece};
use crate::{metrics, state};

/// For state and metrics, greeting included (P§3.2).
const QUICK: Duration = Duration::from_secs(3);
/// For anything else.
const REQUEST: Duration = Duration::from_secs(20);

/// `state NAME` and `metrics NAME`.
pub(crate) fn report(root: &Path, what: &str, mut args: Args) -> Result<()> {
    let is_json = flag(&mut args, "--json");
    let name = next(&mut args)?;
    none_left(&args)?;
    let (instance, known) = agent_client::known(root, &name)?;
    if instance.is_false("security.agent.metrics") {
        bail!("security.agent.metrics is false: the agent is not asked");
    }
    let said = match known {
        Known::State(state) if what == "state" => state,
        Known::Absent | Known::State(_) => bail!(instance.flavour.absent()),
        Known::Reachable => ask(root, &instance, what)?,
    };
    let text = match what {
        "state" => state::readable(&instance, &said)?,
        _ => metrics::openmetrics(&instance, &said)?,
    };
    let text = if is_json { format!("{said}\n") } else { text };
    Ok(stdout().write_all(text.as_bytes())?)
}

fn ask(root: &Path, instance: &Instance, what: &str) -> Result<Value> {
    let limit = Limit::within(QUICK);
    if what == "state" || instance.flavour.greets() {
        agent_client::greet(root, instance, limit)?;
    }
    metadata(root, instance, "GET", &format!("/1.0/{what}"), limit)
}

/// `operations NAME [list | show ID | wait ID [--timeout N] | delete ID]`.
pub(crate) fn operations(root: &Path, mut args: Args) -> Result<()> {
    let timeout: Option<i64> = number(&mut args, "--timeout")?;
    let name = next(&mut args)?;
    let command = args.pop_front().unwrap_or_else(|| "list".into());
    let id = if command == "list" { String::new() } else { next(&mut args)? };
    none_left(&args)?;
    let instance = agent_client::reach(root, &name)?;
    let one = format!("/1.0/operations/{id}");
    let (method, target, limit) = match (command.as_str(), timeout) {
        ("list", _) => ("GET", "/1.0/operations?recursion=1".to_owned(), Some(REQUEST)),
        ("show", _) => ("GET", one, Some(REQUEST)),
        ("delete", _) => ("DELETE", one, None),
        ("wait", None) => ("GET", format!("{one}/wait"), None),
        ("wait", Some(seconds)) => ("GET", format!("{one}/wait?timeout={seconds}"), None),
        (other, _) => bail!("unknown command operations {other}; see --help"),
    };
    // Who waits for an operation waits for as long as it takes.
    let limit = limit.map_or(Limit::Each(Duration::from_secs(3600)), Limit::within);
    let said = metadata(root, &instance, method, &target, limit)?;
    if command != "list" {
        return Ok(writeln!(stdout(), "{said:#}")?);
    }
    let groups = said.as_object().context("operations are no object")?;
    for operation in groups.values().filter_map(Value::as_array).flatten() {
        let word = |key: &str| operation[key].as_str().unwrap_or("-");
        writeln!(stdout(), "{} {} {}", word("id"), word("status"), word("description"))?;
    }
    Ok(())
}

/// `events NAME --agent`: the agent's own, one line each, until it ends.
pub(crate) fn events(root: &Path, name: &str, types: Option<&str>) -> Result<()> {
    let instance: Instance = agent_client::reach(root, name)?;
    let target = types.map_or("/1.0/events".into(), |types| format!("/1.0/events?type={types}"));
    let mut socket = websocket::connect(root, &instance, &target).context("events")?;
    loop {
        match socket.incoming.next()? {
            Piece::Text(text) => {
                let event: Value = serde_json::from_str(&text).context("an event is not JSON")?;
                writeln!(stdout(), "{event}")?;
            }
            Piece::Bytes(_) => bail!("an event came as bytes"),
            Piece::Closed => return Ok(()),
        }
    }
}
