//! `mote-snapshot` with a script instead of the server's command, which records its calls and fails
//! on demand.

use mote_tests::prelude::*;

use crate::Machine;

/// A client that fails with `code` on the words in `fail`.
const CLIENT: &str = "#!/bin/bash\necho \"${0##*/} $*\" >>\"$HOME/asked\"\ncode=$(cat \"$HOME/code\" 2>/dev/null || echo 1)\n[ ! -e \"$HOME/fail\" ] || while read -r words; do case \"$*\" in *\"$words\"*) exit \"$code\" ;; esac; done <\"$HOME/fail\"\n";
const BOTH: [(&str, &str); 2] = [("incus", CLIENT), ("lxc", CLIENT)];

fn asked(machine: &Machine, arguments: &str) -> (Option<i32>, String) {
    let (code, said) =
        machine.sh(&format!("sh=/bin/sh; $sh image/packages/mote-snapshot {arguments}"));
    println!("{said}");
    let asked = machine.asked();
    let _none = fs::remove_file(machine.0.0.join("asked"));
    (code, asked)
}

#[test]
fn calls_each_servers_commands_in_order() {
    let machine = Machine::new(&BOTH);
    let order = "incus exec vm1 -- mote-agent freeze --for 60s\nincus snapshot create vm1\nincus exec vm1 -- mote-agent thaw\n";
    assert_eq!(asked(&machine, "vm1"), (Some(0), order.to_owned()));
    let all = "--lxc --for=5m --volume default/a --volume=default/b far:vm1 s1 -- --reuse";
    let order = "lxc exec far:vm1 -- mote-agent freeze --for 5m\nlxc snapshot far:vm1 s1 --reuse\n\
                 lxc storage volume snapshot default a s1\nlxc storage volume snapshot default b s1\n\
                 lxc exec far:vm1 -- mote-agent thaw\n";
    assert_eq!(asked(&machine, all), (Some(0), order.to_owned()));
    let (_, text) = asked(&machine, "--volume 'image/*' vm1 s1");
    assert!(text.contains("incus storage volume snapshot create image * s1\n"), "{text}");
    assert!(asked(&Machine::new(&BOTH[1..]), "vm1").1.contains("lxc snapshot vm1\n"));
}

#[test]
fn each_failure_has_its_exit_code_and_leaves_nothing_frozen() {
    let machine = Machine::new(&BOTH);
    for (fails, wanted, is_thawed) in [
        ("freeze", 1, false),
        ("thaw", 3, true),
        ("snapshot create vm1", 4, true),
        ("volume", 4, true),
    ] {
        put(machine.0.0.join("fail"), format!("{fails}\n"));
        let (code, text) = asked(&machine, "--volume default/a vm1 s1");
        assert_eq!(code, Some(wanted), "{fails}");
        assert_eq!(text.contains(" thaw\n"), is_thawed, "{fails}: {text}");
        assert_eq!(text.contains("snapshot"), fails != "freeze", "{fails}: {text}");
    }
    // The snapshot is consistent, but a hook failed after it.
    put(machine.0.0.join("fail"), "thaw\n");
    put(machine.0.0.join("code"), "5\n");
    assert_eq!(asked(&machine, "vm1").0, Some(5));
    for wrong in ["", "--for", "--volume a vm1", "--what vm1", "vm1 s1 more"] {
        assert_eq!(asked(&machine, wrong), (Some(2), String::new()), "{wrong}");
    }
    // A killed script still thaws.
    let slow = CLIENT.replace("\n[ !", "\n[ \"$1\" != snapshot ] || sleep 1\n[ !");
    let machine = Machine::new(&[("incus", slow.as_str())]);
    let (code, _) =
        machine.sh("/bin/sh image/packages/mote-snapshot vm1 & sleep 0.5; kill $!; wait $!");
    assert_eq!(code, Some(143));
    assert!(machine.asked().ends_with("mote-agent thaw\n"), "{}", machine.asked());
}

/// A client that behaves like the servers' commands: it reads stdin unless that is a terminal,
/// passes on the guest's output, and fails if it cannot write it.
const SPEAKS: &str = "#!/bin/bash\necho \"${0##*/} $*\" >>\"$HOME/asked\"\nread -r word && echo \"read $word\" >>\"$HOME/asked\"\n[ \"$1\" != exec ] || echo said || exit 1\n[[ ! -e $HOME/lost || $* != *freeze* ]] || exit 1\n";

#[test]
fn lost_output_or_connections_leave_no_guest_frozen() {
    let machine = Machine::new(&[("incus", SPEAKS)]);
    let whole = "incus exec vm1 -- mote-agent freeze --for 60s\nincus snapshot create vm1\nincus exec vm1 -- mote-agent thaw\n";
    let snapshot = "/bin/sh image/packages/mote-snapshot vm1";
    for line in [format!("echo x | {snapshot}"), format!("{snapshot} >/dev/full")] {
        let (code, said) = machine.sh(&line);
        assert_eq!((code, machine.asked().as_str()), (Some(0), whole), "{line}: {said}");
        fs::remove_file(machine.0.0.join("asked")).expect("what was asked");
    }
    put(machine.0.0.join("lost"), "");
    assert_eq!(machine.sh(snapshot).0, Some(1));
    assert!(machine.asked().ends_with("mote-agent thaw\n"), "{}", machine.asked());
}

#[test]
fn freezes_in_the_same_project() {
    let machine = Machine::new(&BOTH);
    let words = "--project p --volume default/a vm1 s1 -- --no-expiry";
    let order = "incus --project=p exec vm1 -- mote-agent freeze --for 60s\n\
                 incus --project=p snapshot create vm1 s1 --no-expiry\n\
                 incus --project=p storage volume snapshot create default a s1\n\
                 incus --project=p exec vm1 -- mote-agent thaw\n";
    assert_eq!(asked(&machine, words), (Some(0), order.to_owned()));
    // If it accepted these, it would freeze the instance of that name in another project.
    for wrong in ["vm1 s1 -- --project p", "vm1 s1 -- --no-expiry --project=p", "--project"] {
        assert_eq!(asked(&machine, wrong), (Some(2), String::new()), "{wrong}");
    }
}

/// A client of a hostile guest: terminal control sequences and unlimited text in both outputs.
const HOSTILE: &str = "#!/bin/bash\necho \"${0##*/} $*\" >>\"$HOME/asked\"\n[ \"$1\" = exec ] || exit 0\nsaid='a\\033]0;x\\007\\302\\233b\\r'\nprintf \"$said\"\nprintf \"$said\" >&2\n[ -e \"$HOME/floods\" ] || exit 0\nwhile :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy >&2; echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done\n";

#[test]
fn guest_output_is_bounded_and_cannot_control_a_terminal() {
    let machine = Machine::new(&[("incus", HOSTILE)]);
    for floods in [false, true] {
        if floods {
            put(machine.0.0.join("floods"), "");
        }
        let (code, said) = machine.sh("/bin/sh image/packages/mote-snapshot vm1");
        let is_plain = |byte: u8| byte == b'\n' || (b' '..=b'~').contains(&byte);
        assert!(said.bytes().all(is_plain) && said.contains("a?]0;x???b?"), "{code:?}");
        assert!(said.len() < 5 << 16, "{}", said.len());
        assert_eq!(code, Some(i32::from(floods)));
    }
}

#[test]
fn gives_up_a_guest_that_does_not_answer() {
    let hangs =
        "#!/bin/bash\necho \"${0##*/} $*\" >>\"$HOME/asked\"\n[[ $* != *thaw* ]] || sleep 1000\n";
    // The script records the limit, but the test waits only 1 s.
    let timeout = "#!/bin/bash\necho \"limit $*\" >>\"$HOME/asked\"\n[[ $1 != --* ]] || shift\n[ \"$1\" != -k ] || shift 2\nshift\nexec /usr/bin/timeout 1 \"$@\"\n";
    let machine = Machine::new(&[("incus", hangs), ("timeout", timeout)]);
    exits(machine.sh("/bin/sh image/packages/mote-snapshot --for 5m vm1"), Some(3), &[]);
    let asked = machine.asked();
    contains(
        &asked,
        &["660 incus exec vm1 -- mote-agent freeze", "600 incus exec vm1 -- mote-agent thaw"],
    );
}
