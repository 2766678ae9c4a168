//! Writes the answer to the host's `GET /1.0`, and the envelope of every reply to the host. Source:
//! P§3.4 (fields that the host uses), P§4 (envelope).

use crate::flavour::Flavour;
use crate::json::{Value, Writer};

/// The release of the package or, in a build without a package, of the sources.
pub const RELEASE: &str = match option_env!("MOTE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
/// Distinguishes this agent from the Go agents, whose name it must use (P§3.4).
const AGENT: &str = "mote-agent";

/// Facts about the machine and the process, from the shell.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// `uname -m`.
    pub architecture: &'a str,
    /// `uname -n`.
    pub hostname: &'a str,
    /// `uname -r`.
    pub release: &'a str,
    pub pid: u32,
}

/// The API extensions that the agent supports and a client may check: a command's user, group and
/// directory, signals on its control socket, metrics. Recorded output is included: LXD since 5.0
/// does the recording, but forwards the request's flag to the agent. The Go agents list all
/// extensions of their servers, most of which they do not support. With the short list, a client
/// that needs a missing one, such as `resources`, refuses by itself.
const EXTENSIONS: [&str; 4] = [
    "container_exec_recording",
    "container_exec_signal_handling",
    "container_exec_user_group_cwd",
    "metrics",
];

/// Writes the list of API versions, the answer to `GET /` on both sides.
pub fn write_index(json: &mut Writer<'_>) {
    list(json, &["/1.0"]);
}

fn list(json: &mut Writer<'_>, texts: &[&str]) {
    json.begin_array();
    texts.iter().for_each(|text| json.string(text));
    json.end_array();
}

/// Writes the metadata of `GET /1.0`. The host's client recognizes an agent by `environment.server`
/// (P§3.4).
pub fn write_info(json: &mut Writer<'_>, flavour: Flavour, machine: &Machine<'_>) {
    json.begin_object();
    json.key("api_extensions");
    list(json, &EXTENSIONS);
    json.pair("api_status", "stable");
    json.pair("api_version", "1.0");
    json.pair("auth", "trusted");
    json.flag("public", false);
    json.key("auth_methods");
    list(json, &["tls"]);
    json.flag("client_certificate", false);
    json.maybe("config", None);
    json.pair("auth_user_name", "");
    json.pair("auth_user_method", "");
    json.begin_member("environment");
    json.pair("kernel", "Linux");
    json.pair("kernel_architecture", machine.architecture);
    json.pair("kernel_version", machine.release);
    json.pair("server", flavour.server_name());
    json.count("server_pid", machine.pid.into());
    json.pair("server_version", RELEASE);
    json.pair("agent", AGENT);
    json.pair("server_name", machine.hostname);
    json.end_object();
    json.end_object();
}

/// Returns the text that precedes the cause in the answer to a `PUT /1.0` that could not be
/// verified; only current LXD's agent has such a text (P§3.3).
pub fn unverified(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Lxd => "Failed verifying connection to LXD server: ",
        Flavour::LxdOld | Flavour::Incus => "",
    }
}

pub fn write_sync(json: &mut Writer<'_>, metadata: Value<'_>) {
    write_sync_of(json, |json| json.value(metadata));
}

pub fn write_sync_of(json: &mut Writer<'_>, metadata: impl FnOnce(&mut Writer<'_>)) {
    begin_envelope(json, "sync", ("Success", 200), "", (0, ""));
    metadata(json);
    json.end_object();
}

pub fn write_error(json: &mut Writer<'_>, code: u16, text: &str) {
    begin_envelope(json, "error", ("", 0), "", (code, text));
    json.value(Value::NULL);
    json.end_object();
}

/// Writes an envelope (P§4) up to the key of its metadata: kind, status, operation and error. The
/// caller writes the value and ends the object.
pub(super) fn begin_envelope(
    json: &mut Writer<'_>,
    kind: &str,
    (status, status_code): (&str, u16),
    operation: &str,
    (error_code, error): (u16, &str),
) {
    json.begin_object();
    json.pair("type", kind);
    json.pair("status", status);
    json.count("status_code", status_code.into());
    json.pair("operation", operation);
    json.count("error_code", error_code.into());
    json.pair("error", error);
    json.key("metadata");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_has_the_expected_name_and_extensions() {
        let machine = Machine { architecture: "x86_64", hostname: "a\"b", release: "6.1", pid: 7 };
        for (flavour, name, before_cause) in [
            (Flavour::Incus, "incus-agent", ""),
            (Flavour::Lxd, "lxd-agent", "Failed verifying connection to LXD server: "),
            (Flavour::LxdOld, "lxd-agent", ""),
        ] {
            assert_eq!(unverified(flavour), before_cause);
            let mut out = String::new();
            write_info(&mut Writer::new(&mut out), flavour, &machine);
            let info = Value::parse(out.as_bytes()).unwrap();
            let all = info.member("api_extensions").unwrap();
            let has = |name: &str| all.elements().any(|one| one.is(name));
            assert!(has("metrics") && has("container_exec_user_group_cwd"), "{out}");
            assert!(has("container_exec_recording") && !has("resources"), "{out}");
            let environment = info.member("environment").unwrap();
            let is = |key: &str, text: &str| environment.member(key).unwrap().is(text);
            assert!(is("server", name) && is("server_version", RELEASE), "{out}");
            assert!(is("agent", "mote-agent"), "{out}");
        }
    }
    #[test]
    fn writes_envelopes_that_servers_read() {
        let mut out = String::new();
        write_sync(&mut Writer::new(&mut out), Value::EMPTY);
        let sync = r#"{"type":"sync","status":"Success","status_code":200,"operation":"","error_code":0,"error":"","metadata":{}}"#;
        assert_eq!(out, sync);
        out.clear();
        write_error(&mut Writer::new(&mut out), 404, "no \"x\"");
        let error = r#"{"type":"error","status":"","status_code":0,"operation":"","error_code":404,"error":"no \"x\"","metadata":null}"#;
        assert_eq!(out, error);
    }
}
