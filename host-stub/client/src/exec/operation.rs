//! Starts a command: sends the request and checks the answer as a real client does (P§4.1).

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::agent::client;
use crate::instance::Instance;
use crate::net::stream::Limit;

pub struct Operation {
    pub id: String,
    /// Secrets by the names of the sockets.
    pub fds: Value,
}

pub fn start(root: &Path, instance: &Instance, body: &Value, limit: Limit) -> Result<Operation> {
    let body = body.to_string();
    let answer = client::request(root, instance, "POST", "/1.0/exec", body.as_bytes(), limit)?;
    let envelope = answer.json().with_context(|| client::complaint(&answer.body))?;
    if envelope["type"] == "error" || answer.status != 202 {
        bail!("{}", client::complaint(&answer.body));
    }
    let id = envelope["metadata"]["id"].as_str().context("an operation without an id")?;
    let path = format!("/1.0/operations/{id}");
    if envelope["type"] != "async" || envelope["operation"] != path.as_str() {
        bail!("not an operation's envelope: {envelope}");
    }
    if answer.header("location") != Some(path.as_str()) {
        bail!("Location is {:?}, not {path}", answer.header("location"));
    }
    Ok(Operation { id: id.to_owned(), fds: envelope["metadata"]["metadata"]["fds"].clone() })
}
