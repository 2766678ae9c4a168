//! The core's files and their targets. Each file has a target, except those that read no input.

const SUBJECTS: &[(&str, &[&str])] = &[
    (
        "json",
        &[
            "json/document.rs",
            "json/envelope.rs",
            "json/scan.rs",
            "json/string.rs",
            "json/value.rs",
            "json/write.rs",
            "status/view.rs",
        ],
    ),
    (
        "sftp",
        &[
            "sftp/attrs.rs",
            "sftp/frame.rs",
            "sftp/longname.rs",
            "sftp/reply.rs",
            "sftp/request.rs",
            "sftp/wire.rs",
        ],
    ),
    ("ws", &["ws.rs"]),
    (
        "yaml",
        &[
            "first_boot/template.rs",
            "yaml/cursor.rs",
            "yaml/flow.rs",
            "yaml/mod.rs",
            "yaml/read_scalar.rs",
            "yaml/scalar.rs",
        ],
    ),
    ("admission", &["devlxd/quota.rs", "http/admission.rs"]),
    ("answer", &["devlxd/answer.rs"]),
    ("devlxd", &["devlxd/forward.rs", "devlxd/ready.rs", "devlxd/route.rs"]),
    ("event", &["hostapi/event.rs", "hostapi/port_forward.rs"]),
    (
        "exec",
        &[
            "hostapi/exec/control.rs",
            "hostapi/exec/mod.rs",
            "hostapi/exec/program.rs",
            "hostapi/exec/strings.rs",
        ],
    ),
    ("mount", &["hostapi/mount/mod.rs", "hostapi/mount/table.rs", "hostapi/mount/tag.rs"]),
    ("operation", &["hostapi/operation.rs", "timestamp.rs"]),
    ("peer", &["hostapi/host_info.rs", "tls/pem.rs"]),
    (
        "policy",
        &[
            "hostapi/policy/fault.rs",
            "hostapi/policy/file.rs",
            "hostapi/policy/loopholes.rs",
            "hostapi/policy/mod.rs",
            "hostapi/policy/shown.rs",
            "hostapi/policy/whole.rs",
            "ready_when.rs",
        ],
    ),
    ("serial", &["status/connect.rs", "status/line.rs"]),
    (
        "status_ops",
        &[
            "status/flood.rs",
            "status/host.rs",
            "status/link.rs",
            "status/mod.rs",
            "status/phase.rs",
            "status/poll.rs",
            "status/timers.rs",
        ],
    ),
    ("body", &["http/body.rs"]),
    ("connection_ops", &["http/connection.rs"]),
    ("head", &["http/head.rs"]),
    ("path", &["hostapi/route.rs", "http/path.rs", "http/query.rs"]),
    ("reply", &["http/reply.rs"]),
    ("certificate", &["tls/certificate.rs"]),
    ("counters", &["dial.rs", "log_limit.rs", "sftp/handles.rs", "tls/tickets.rs"]),
    (
        "names",
        &[
            "flavour.rs",
            "guest_path.rs",
            "host_address.rs",
            "init/button.rs",
            "init/plan.rs",
            "report/proc/release.rs",
        ],
    ),
    (
        "disk",
        &[
            "hotplug/disk/bytes.rs",
            "hotplug/disk/geometry.rs",
            "hotplug/disk/gpt.rs",
            "hotplug/disk/mbr.rs",
            "hotplug/disk/mod.rs",
        ],
    ),
    ("netlink", &["netlink.rs"]),
    (
        "proc",
        &[
            "first_boot/credentials.rs",
            "first_boot/nic.rs",
            "resume/clock.rs",
            "hotplug/event.rs",
            "hotplug/nics.rs",
            "hotplug/resources.rs",
            "freeze/filesystems.rs",
            "freeze/mod.rs",
            "resume/mod.rs",
            "report/metrics.rs",
            "report/proc/memory.rs",
            "report/proc/mod.rs",
            "report/proc/mountinfo.rs",
            "report/proc/mounts.rs",
            "report/proc/stat.rs",
            "report/state.rs",
        ],
    ),
    (
        "scenario",
        &[
            "http/admission.rs",
            "http/connection.rs",
            "status/host.rs",
            "status/link.rs",
            "status/mod.rs",
            "status/poll.rs",
            "status/timers.rs",
            "tls/tickets.rs",
        ],
    ),
];

/// Files that read no untrusted input, each with the reason.
pub const OTHERS: &[(&str, &str)] = &[
    ("hostapi/exec/exit.rs", "an exit status as a number"),
    ("hostapi/exec/refusal.rs", "words for a refusal"),
    ("hostapi/host_peer.rs", "one comparison"),
    ("hostapi/info.rs", "writes what the agent says of itself"),
    ("init/restarts.rs", "one pause after the other"),
    ("init/shutdown.rs", "time and one bit come in"),
    ("json/error.rs", "words for an error"),
    ("leave.rs", "time and one bit come in"),
    ("limits.rs", "constants"),
    ("sftp/mod.rs", "constants"),
    ("status/pace.rs", "constants"),
    ("time.rs", "two sums"),
    ("token_bucket.rs", "time comes in"),
    ("yaml/error.rs", "words for an error"),
];

pub fn of(target: &str) -> impl Iterator<Item = &'static str> {
    let files = SUBJECTS.iter().filter(move |(name, _)| *name == target);
    files.flat_map(|(_, files)| files.iter().copied())
}
