//! Why an agent is not CONNECTED: the first cause to remove, and how. `info`, `wait` and the errors
//! of commands use this function.

use serde::Serialize;

use super::Live;
use super::agent_state::{LastError, Word};
use super::fault::Kind;
use super::vm::{End, Monitor, PANIC, SUSPENDED};
use mote_client::common::printable::word;
use mote_client::instance::vsock_device;
use mote_client::{CallFailure, Channel, Flavour};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// A unique identifier of the cause, for programs.
    pub cause: String,
    pub text: String,
}

/// Returns a diagnosis of a cause, with a text as of `format!`.
macro_rules! found {
    ($cause:expr, $($text:tt)+) => {
        Diagnosis { cause: $cause.into(), text: format!($($text)+) }
    };
}

/// Bytes of the config disk below which it was not mounted: Linux 6.1 reads 4 KiB to look for
/// partitions, an agent reads 28 KiB. udev may read more, which then proves nothing.
const NOT_MOUNTED: u64 = 16 * 1024;
const IN_THE_GUEST: &str = "(for details, run mote-agent --check in the guest)";

/// Returns why an instance's agent is not CONNECTED. `failure` is the cause of a call that just
/// failed.
pub fn diagnose(live: &Live, failure: Option<CallFailure>) -> Diagnosis {
    let mut found = of_the_vm(live).unwrap_or_else(|| of_the_agent(live, failure));
    if live.fault.kind != Kind::None {
        found.text += &format!("; the fault {} is active", live.fault);
    }
    found
}

fn of_the_vm(live: &Live) -> Option<Diagnosis> {
    let Channel::Qmp(path) = &live.instance.channel else {
        return (!live.is_running() && live.agent.word == Word::Unknown).then(|| silent(live));
    };
    let (vm, path) = (&live.vm, path.display());
    match (vm.monitor, live.is_running()) {
        (Monitor::Taken, _) => Some(found!(
            "monitor-taken",
            "another program is connected to QEMU's monitor {path}, which accepts only one: \
                 connect that program to {path}.yours instead"
        )),
        (Monitor::Silent, true) => {
            let heard = if live.called { "; the agent still calls over vsock" } else { "" };
            Some(found!(
                "monitor-silent",
                "QEMU's monitor does not answer, so the status port cannot be read: start QEMU with \
                     -qmp unix:{path},server=on,wait=off{heard}"
            ))
        }
        (Monitor::Silent, false) => Some(match &vm.end {
            Some(end) => ended(end),
            None => found!(
                "vm-off",
                "the VM is not running: nothing answers at QEMU's monitor {path} (mote-host qemu {} \
                     prints how to boot it)",
                live.instance.name
            ),
        }),
        (Monitor::Connected, _) if vm.has_panicked() => {
            Some(found!("panicked", "the guest's kernel panicked; its console shows why"))
        }
        (Monitor::Connected, _) if vm.has_no_space() => Some(found!(
            "no-space",
            "the VM is paused: this machine has no space left for the guest's writes to its disk; free \
                 some, then send cont to its other monitor, {path}.yours"
        )),
        (Monitor::Connected, _) if vm.is_paused() => Some(found!(
            "paused",
            "the VM is paused (QEMU: {}), so nothing in it can answer; send {} to its other monitor, \
                 {path}.yours",
            vm.does,
            if vm.does == SUSPENDED { "system_wakeup" } else { "cont" }
        )),
        (Monitor::Connected, _) => None,
    }
}

fn ended(end: &End) -> Diagnosis {
    const CONSOLE: &str = "the last lines of its console show why";
    let before = if end.heard { "" } else { " before its agent reported itself" };
    match (end.reason.as_str(), end.heard) {
        (PANIC, _) => {
            found!("panicked", "the guest's kernel panicked{before}; {CONSOLE}")
        }
        ("guest-reset", false) => found!(
            "reset-early",
            "the guest restarted before its agent reported itself, which ends QEMU with -no-reboot: so \
                 does a kernel panic with panic=-1; {CONSOLE}"
        ),
        ("guest-reset", true) => found!(
            "reset",
            "the VM is off: the guest restarted (reboot, or a kernel panic with panic=-1), which ends \
                 QEMU with -no-reboot; {CONSOLE}"
        ),
        ("guest-shutdown", _) => {
            found!("shut-down", "the guest powered off the VM{before}")
        }
        ("", _) => found!(
            "qemu-gone",
            "QEMU ended without giving a reason{before}: it was killed, or its stderr shows why"
        ),
        (reason, _) => {
            found!("qemu-ended", "QEMU ended on request ({reason}){before}")
        }
    }
}

fn of_the_agent(live: &Live, failure: Option<CallFailure>) -> Diagnosis {
    let is_ready = live.instance.is_ready();
    if by_port_alone(live).is_some() && live.agent.word != Word::Connected {
        return found!(
            "port-alone",
            "the agent reports itself only through the status port: no vsock in the guest, so the \
                 host cannot call it {IN_THE_GUEST}"
        );
    }
    match (live.agent.word, failure) {
        // So far, the agent has only written to its port.
        (Word::Started, Some(CallFailure::Refused)) if !live.called => found!(
            "no-vsock",
            "the agent is STARTED, but nothing listens in the guest (vsock port 8443): does the VM have a vsock \
                 device, and the guest a driver for it (vmw_vsock_virtio_transport)? {IN_THE_GUEST}"
        ),
        (Word::Connected | Word::Started, Some(CallFailure::Refused)) => found!(
            "agent-gone",
            "the agent no longer listens (vsock port 8443): it ended without reporting STOPPED, \
             for example because it was killed or its package removed; start it in the guest"
        ),
        // The agent calls, so its port is the first problem.
        (Word::Unknown, _) if live.agent.connections > 0 => silent(live),
        (_, Some(failure)) => found!(word(failure), "{}", failure.to_string()),
        (Word::Connected, None) if is_ready => {
            found!("ready", "the agent is CONNECTED and the instance Ready")
        }
        (Word::Connected, None) if live.instance.flavour == Flavour::LxdOld => {
            found!("connected", "the agent is CONNECTED; LXD before 5.20 has no Ready")
        }
        (Word::Connected, None) => found!(
            "connected",
            "the agent is CONNECTED, but no program in the guest has reported Ready (in the guest: \
             mote-agent ready)"
        ),
        (Word::Started, None) => started(live),
        (Word::Stopped, None) => stopped(live, is_ready),
        (Word::Unknown, None) => silent(live),
    }
}

/// Diagnoses an agent that has reported itself.
fn started(live: &Live) -> Diagnosis {
    match &live.agent.last_put {
        None => found!("started", "the agent is STARTED, and has not been called yet"),
        Some(put) => match (put.failure, &put.error) {
            (
                Some(failure @ (CallFailure::AgentsCertificate | CallFailure::HostsCertificate)),
                _,
            ) => found!(word(failure), "{}", failure.to_string()),
            (Some(CallFailure::Slow), _) => found!(
                word(CallFailure::Slow),
                "the agent is STARTED, but did not answer the host's call within 3 s: the machine is busy, or \
                 the agent hangs; the host calls again when the agent reports itself again"
            ),
            (Some(failure), Some(error)) => found!(
                word(failure),
                "the agent is STARTED, but the host's call to it failed: {error} {IN_THE_GUEST}"
            ),
            (None, Some(error)) => found!(
                "call-failed",
                "the agent is STARTED, but the host's call to it failed: {error}"
            ),
            (_, None) => {
                found!("no-way-back", "the agent is STARTED, and cannot reach the host")
            }
        },
    }
}

/// Diagnoses an agent that has reported its end.
fn stopped(live: &Live, is_ready: bool) -> Diagnosis {
    let Channel::Qmp(_) = live.instance.channel else {
        return found!("stopped", "the agent has stopped, or its VM was switched off");
    };
    let ready = if is_ready {
        "; a program had reported Ready, and the instance stays Ready until the VM is off"
    } else {
        ""
    };
    let text = "the agent has stopped, but the VM still runs: its service was stopped, or its \
                package removed; start it in the guest";
    found!("stopped", "{text}{ready}")
}

/// Diagnoses an agent that has not written to its port.
fn silent(live: &Live) -> Diagnosis {
    const NOTHING: &str = "the VM is running, but its agent has not reported itself";
    if let Some(why) = vsock_device::why_stopped(&live.instance) {
        return found!("vsock-stopped", "the agent has not reported itself: {why}");
    }
    if live.instance.flavour == Flavour::LxdMicro {
        return found!(
            "silent",
            "the VM is running, but its agent has not answered the host, which calls every 5 s for 3 minutes"
        );
    }
    let name = live.instance.flavour.server().port;
    let port = format!(
        "check that the VM has a status port named {name}, with the chardev qemu_serial-chardev"
    );
    let error = live.agent.last_error.as_ref();
    let (vm, read) = (&live.vm, live.vm.share_read);
    match (&live.instance.channel, error) {
        (Channel::Serial { path, .. }, _) => found!("silent", "the agent has not reported itself; the status port is expected at {}",
                path.display()),
        (_, Some(LastError { failure: Some(failure), .. })) => {
            found!(word(*failure), "{}", failure.to_string())
        }
        (_, Some(error)) if error.text.starts_with("QMP") => {
            let calls = if live.agent.connections > 0 {
                "the agent answers over vsock, but nothing arrived on the status port".to_owned()
            } else {
                NOTHING.to_owned()
            };
            found!("no-port", "{calls}: {}; {port}", error.text)
        }
        _ if live.agent.connections > 0 => found!("no-port", "the agent answers over vsock, but nothing arrived on the status port; {port}"),
        _ if vm.port_opened => found!("nothing-said", "{NOTHING}, although the guest has opened the status port: check what opened it"),
        _ => unread(read).unwrap_or_else(|| {
            found!("silent", "{NOTHING}: is the agent started in the guest, and does the guest have virtio_console? \
                     Also, {port} {IN_THE_GUEST}")
        }),
    }
}

/// Returns what a guest has not read of its config share, if known.
fn unread(read: Option<u64>) -> Option<Diagnosis> {
    const SHARE: &str = "the guest has not read its config share";
    match read? {
        0 => Some(found!(
            "share-unread",
            "{SHARE}, not even a byte of the disk: its kernel has no driver for it (virtio_blk), or has \
                 not booted that far"
        )),
        read if read < NOT_MOUNTED => Some(found!(
            "share-unread",
            "{SHARE}: its kernel has seen the disk, but nothing has mounted it. Is an agent started in \
                 the guest, and does its kernel have isofs? {IN_THE_GUEST}"
        )),
        _ => None,
    }
}

/// Returns how an agent without vsock reports its state, and how much of it arrives (P§2.4).
pub fn by_port_alone(live: &Live) -> Option<&'static str> {
    if live.agent.serial_state.is_some() {
        return Some("its state, as JSON");
    }
    // Only agents of Incus report their state this way.
    let is_cut = live.instance.flavour == Flavour::Incus && live.agent.last_line().ends_with('}');
    is_cut.then_some("the end of its state: the ring buffer of Incus before 7.0.1 has 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mote_client::Instance;
    use mote_client::instance::POWER;

    fn running() -> Live {
        let mut live = Live::new(Instance::sample(Flavour::Lxd, &[(POWER, "RUNNING")]));
        live.vm.monitor = Monitor::Connected;
        live
    }

    #[test]
    fn each_obstacle_has_its_cause_and_remedy() {
        type Change = fn(&mut Live);
        let rows: [(Change, &str, &str); 9] = [
            (|live| live.vm.monitor = Monitor::Taken, "monitor-taken", "to /nowhere.yours"),
            (|live| live.vm.monitor = Monitor::Silent, "monitor-silent", "-qmp unix:/nowhere,"),
            (|live| live.vm.does = SUSPENDED.into(), "paused", "send system_wakeup to its other"),
            (|live| live.vm.share_read = Some(0), "share-unread", "(virtio_blk)"),
            (|live| live.vm.share_read = Some(8192), "share-unread", "isofs"),
            (|live| live.vm.share_read = Some(400_000), "silent", "virtio_console"),
            (|live| live.vm.port_opened = true, "nothing-said", "what opened it"),
            (|live| live.agent.connections = 1, "no-port", "port named com.canonical.lxd"),
            (|live| live.agent.note("STARTED"), "started", "not been called yet"),
        ];
        for (change, cause, remedy) in rows {
            let mut live = running();
            change(&mut live);
            let found = diagnose(&live, None);
            assert_eq!(found.cause, cause, "{}", found.text);
            assert!(found.text.contains(remedy), "{remedy} in {}", found.text);
        }
        let mut live = running();
        live.agent.note("STARTED");
        // A call has just failed.
        assert_eq!(diagnose(&live, Some(CallFailure::Refused)).cause, "no-vsock");
    }

    #[test]
    fn an_end_has_its_reason_and_whether_the_agent_had_started() {
        for (reason, heard, cause, told) in [
            ("guest-reset", false, "reset-early", "so does a kernel panic with panic=-1"),
            ("guest-reset", true, "reset", "the guest restarted"),
            ("guest-shutdown", false, "shut-down", "the guest powered off the VM"),
            ("guest-shutdown", true, "shut-down", "the guest powered off the VM"),
            (PANIC, false, "panicked", "panicked"),
            ("host-qmp-quit", true, "qemu-ended", "(host-qmp-quit)"),
            ("", true, "qemu-gone", "ended without giving a reason"),
        ] {
            let found = ended(&End { reason: reason.to_owned(), heard });
            assert_eq!(found.cause, cause);
            assert!(found.text.contains(told), "{}", found.text);
            assert_eq!(found.text.contains("before its agent reported itself"), !heard, "{reason}");
        }
    }
}
