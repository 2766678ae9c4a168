//! Commands to QEMU's monitor.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

/// Sends a command on a new connection to this monitor. Returns its answer, which has the member
/// `return` or `error`.
pub fn qmp(monitor: &UnixStream, command: &str, arguments: &Value) -> io::Result<Value> {
    let mut lines = BufReader::new(monitor).lines();
    let mut answer = Value::Null;
    for order in [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": command, "arguments": arguments}),
    ] {
        let mut monitor = monitor;
        write!(monitor, "{order}")?;
        answer = loop {
            let line = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
            let told: Value = serde_json::from_str(&line)?;
            // Neither its greeting nor an event.
            if told.get("return").or(told.get("error")).is_some() {
                break told;
            }
        };
    }
    Ok(answer)
}
