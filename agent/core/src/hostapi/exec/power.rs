//! `poweroff`, `reboot` and `halt` in an image without these programs: mote asks process 1 instead.
//! LXD stops a micro VM by such a command.

use super::Request;

/// For one of these programs, the request that each init system understands.
#[derive(Debug, PartialEq, Eq)]
pub struct Power {
    pub name: &'static str,
    /// Signal of mote as process 1 (`init/mod.rs`).
    pub mote: u8,
    /// Signal of systemd(1), numbered from glibc's `SIGRTMIN`, 34.
    pub systemd: u8,
    /// Signal of busybox's init.
    pub busybox: u8,
    runlevel: u8,
}

static PROGRAMS: [Power; 3] = [
    Power { name: "poweroff", mote: 12, systemd: 38, busybox: 12, runlevel: b'0' },
    Power { name: "halt", mote: 12, systemd: 37, busybox: 10, runlevel: b'0' },
    Power { name: "reboot", mote: 2, systemd: 39, busybox: 15, runlevel: b'6' },
];

/// Size of a sysvinit request, in bytes (initreq.h, `struct init_request`).
const REQUEST: usize = 384;

impl Power {
    pub fn named(name: &str) -> Option<&'static Self> {
        PROGRAMS.iter().find(|one| one.name == name)
    }

    /// Returns the request for one of these commands, run by root without arguments, else `None`.
    pub fn of(request: &Request) -> Option<&'static Self> {
        Self::named(request.name()).filter(|_| request.user == 0 && request.command.count() == 1)
    }

    /// Returns the request that changes sysvinit's runlevel: magic number, command, runlevel.
    pub fn sysvinit(&self) -> [u8; REQUEST] {
        let mut request = [0; REQUEST];
        let words = [0x0309_1969, 1, i32::from(self.runlevel)].map(i32::to_ne_bytes);
        for (to, from) in request.iter_mut().zip(words.as_flattened()) {
            *to = *from;
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_only_bare_names_of_root() {
        let asked = |members: &str| {
            let body = format!("{{\"wait-for-websocket\":true,\"command\":{members}}}");
            Request::parse(body.as_bytes(), usize::MAX).unwrap()
        };
        let power = |members: &str| Power::of(&asked(members)).map(|power| power.name);
        for name in ["poweroff", "halt", "reboot"] {
            let bare = format!("[\"{name}\"]");
            assert_eq!(power(&bare), Some(name));
            let mut request = asked(&format!("{bare},\"cwd\":\"/hangs\""));
            request.add_defaults(&|_| true);
            request.find_nothing();
            assert_eq!((request.program().directories().count(), request.directory()), (0, "/"));
            for other in [
                "[\"/sbin/N\"]",
                "[\"N\",\"-f\"]",
                "[\"N\",\"\"]",
                "[\"N \"]",
                "[\"N\"],\"user\":1000",
            ] {
                assert_eq!(power(&other.replace('N', name)), None, "{other}");
            }
        }
        assert_eq!(power("[\"shutdown\"]"), None);
    }

    #[test]
    fn sysvinits_request_has_magic_command_and_runlevel() {
        for (name, runlevel) in [("poweroff", b'0'), ("halt", b'0'), ("reboot", b'6')] {
            let request = Power::named(name).unwrap().sysvinit();
            let head = [&[0x69, 0x19, 9, 3, 1, 0, 0, 0, runlevel][..], &[0; 375]].concat();
            assert_eq!(request[..], head, "{name}");
        }
    }
}
