//! In words: what an agent or instance is, and why it is not what somebody waits for.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use crate::common::units;
use crate::instance::Flavour;

/// For an agent that may be without vsock.
const NO_VSOCK: &str = "has the VM a vsock device, and the guest its driver (vmw_vsock_virtio_transport)? In \
                        the guest, mote-agent --check tells";

/// The last PUT.
pub(crate) fn last_put(state: &Value) -> String {
    let put = &state["last_put"];
    let at = put["at"].as_str().unwrap_or("");
    match (put.is_null(), put["error"].as_str()) {
        (true, _) => "-".to_owned(),
        (false, None) => format!("ok in {} ms, {at}", put["ms"]),
        (false, Some(why)) => format!("failed after {} ms, {at}: {why}", put["ms"]),
    }
}

/// The last error.
pub(crate) fn last_error(state: &Value) -> String {
    let error = &state["last_error"];
    match (error["text"].as_str(), error["at"].as_str()) {
        (Some(text), Some(at)) => format!("{text} ({at})"),
        _ => "-".to_owned(),
    }
}

/// For how long it has been what it is.
pub(crate) fn lasted(state: &Value) -> String {
    units::duration(Duration::from_millis(state["since_ms"].as_u64().unwrap_or(0)))
}

/// How an agent without vsock tells its state, and how much of it arrives (P§2.4).
pub(crate) fn by_port_alone(state: &Value) -> Option<&'static str> {
    let line = state["last_line"].as_str().unwrap_or("");
    if !state["serial_state"].is_null() {
        return Some("its state, as JSON");
    }
    // Only Incus' agents do that.
    let is_cut = state["flavour"] == "incus" && line.ends_with('}');
    is_cut.then_some("the end of its state: the ring buffer of Incus before 7.0.1 has 16 bytes")
}

/// Why an agent is no further than it is.
pub(crate) fn why(state: &Value) -> String {
    let word = |key: &str| state[key].as_str().unwrap_or("");
    let fault = match word("fault") {
        "" | "none" => String::new(),
        fault => format!("; the fault {fault} is in force"),
    };
    let channel = &state["channel"];
    let reason = match (word("state"), word("status")) {
        ("CONNECTED", "Ready") => "the agent is CONNECTED and the instance Ready".to_owned(),
        ("CONNECTED", _) if word("flavour") == "lxd-5.0" => {
            "the agent is CONNECTED; LXD before 5.20 has no Ready".to_owned()
        }
        ("CONNECTED", _) => {
            "the agent is CONNECTED, but no program in the guest has said Ready (in the guest: \
             mote-agent ready)"
                .to_owned()
        }
        ("STARTED" | "UNKNOWN", _) if by_port_alone(state).is_some() => {
            "the agent reports itself by the port alone: no vsock in the guest, so it can be asked \
             nothing; mote-agent --check in the guest tells why"
                .to_owned()
        }
        ("STARTED", _) => {
            match (state["last_put"].is_null(), state["last_put"]["error"].as_str()) {
                (_, Some(error)) => {
                    let hint = if error.contains("vsock") { NO_VSOCK } else { "" };
                    let between = if hint.is_empty() { "" } else { "; " };
                    format!(
                        "the agent is STARTED, but the host's call to it failed: {error}{between}{hint}"
                    )
                }
                (true, None) => "the agent is STARTED, and has not been called yet".to_owned(),
                (false, None) => "the agent is STARTED, and cannot reach the host".to_owned(),
            }
        }
        ("STOPPED", _) => "the agent has stopped, or its VM was switched off".to_owned(),
        (_, "Stopped") => match (channel["qmp"].as_str(), channel["serial"].as_str()) {
            (Some(path), _) => {
                format!("the VM does not run: nothing answers at QEMU's monitor {path}")
            }
            (None, Some(path)) => {
                format!("nothing was heard of the agent; the status port is expected at {path}")
            }
            (None, None) => "nothing was heard of the agent".to_owned(),
        },
        _ if state["connections"].as_u64() > Some(0) => unheard(state),
        _ => match state["last_error"]["text"].as_str() {
            Some(error) => format!("the VM runs, but nothing was heard of the agent: {error}"),
            None => format!(
                "the VM runs, but nothing was heard of the agent: is it started in the guest, has the VM \
                 a status port with the chardev qemu_serial-chardev, and the guest virtio_console? Under \
                 LXD an agent says nothing before it has vsock: {NO_VSOCK}"
            ),
        },
    };
    reason + &fault
}

/// That an agent calls, though its status port is silent.
fn unheard(state: &Value) -> String {
    let flavour = Flavour::from_str(state["flavour"].as_str().unwrap_or(""), false);
    let name = flavour.map_or("of this server", Flavour::port_name);
    let error = state["last_error"]["text"].as_str().filter(|error| error.starts_with("QMP"));
    let error = error.map_or_else(String::new, |error| format!(" ({error})"));
    format!(
        "the agent answers over vsock, but nothing came by the status port; is there one with the name \
         {name}, and the chardev qemu_serial-chardev?{error}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_state_has_its_reason() {
        let of = |state: Value| why(&state);
        let off = json!({"state": "UNKNOWN", "status": "Stopped", "channel": {"qmp": "/q"}});
        assert_eq!(of(off), "the VM does not run: nothing answers at QEMU's monitor /q");
        let failed = json!({"state": "STARTED", "status": "Running", "fault": "deny-put",
            "last_put": {"error": "refused"}});
        assert_eq!(
            of(failed),
            "the agent is STARTED, but the host's call to it failed: refused; the fault deny-put is \
             in force"
        );
        let silent = json!({"state": "UNKNOWN", "status": "Running"});
        assert!(of(silent).contains("nothing was heard"));
        let other = json!({"state": "UNKNOWN", "status": "Running",
            "last_error": {"text": "QMP: no chardev", "at": "t"}});
        assert!(of(other).ends_with("QMP: no chardev"));
        assert!(
            of(json!({"state": "UNKNOWN", "status": "Running"}))
                .contains("has the VM a vsock device")
        );
        let deaf = json!({"state": "STARTED", "status": "Running",
            "last_put": {"error": "vsock: connection refused"}});
        assert!(
            of(deaf.clone()).starts_with(
                "the agent is STARTED, but the host's call to it failed: vsock: connection refused; has \
                 the VM a vsock device"
            ),
            "{}",
            of(deaf)
        );
        let connected = json!({"state": "CONNECTED", "status": "Running", "fault": "none"});
        assert!(of(connected).contains("mote-agent ready"));
    }

    #[test]
    fn an_agent_that_calls_is_heard_of_though_its_port_is_silent() {
        let state = |error: Value| {
            json!({"state": "UNKNOWN", "status": "Ready", "flavour": "lxd-5.0", "connections": 3,
                "last_error": error})
        };
        let shown = why(&state(Value::Null));
        assert_eq!(
            shown,
            "the agent answers over vsock, but nothing came by the status port; is there one with the \
             name org.linuxcontainers.lxd, and the chardev qemu_serial-chardev?"
        );
        let shown = why(&state(json!({"text": "QMP: no chardev", "at": "t"})));
        assert!(shown.ends_with("chardev? (QMP: no chardev)"), "{shown}");
    }

    #[test]
    fn an_agent_without_vsock_reports_itself_by_the_port_whole_or_cut() {
        let whole = json!({"state": "STARTED", "status": "Running", "flavour": "incus",
            "serial_state": {"pid": 1}, "last_line": "{\"pid\":1}",
            "last_put": {"error": "vsock: connection refused"}});
        let cut = json!({"state": "UNKNOWN", "status": "Running", "flavour": "incus",
            "last_line": "e\":\"Running\"}"});
        for state in [&whole, &cut] {
            let shown = why(state);
            let expected = "the agent reports itself by the port alone: no vsock in the guest";
            assert!(shown.starts_with(expected), "{shown}");
        }
        assert_eq!(by_port_alone(&whole), Some("its state, as JSON"));
        assert!(by_port_alone(&cut).unwrap().starts_with("the end of its state"));
        let lxd = json!({"state": "UNKNOWN", "flavour": "lxd", "last_line": "x}"});
        assert_eq!(by_port_alone(&lxd), None);
    }
}
