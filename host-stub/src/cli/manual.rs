//! Manual pages, and the parts of them and of `--help` that are not options: examples, exit codes,
//! files. A test parses each example.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The release: the package's if it sets one, else the sources'.
pub(super) const VERSION: &str = match option_env!("MOTE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// The examples of all commands with their effects. Each command has at least one.
const EXAMPLES: &str = r#"
run --kernel vmlinuz --initrd initrd -- uname -sr    # an initramfs with mote in it
run --disk debian.qcow2 --share .:/src --timeout 60 -- make -C /src check    # an image; its file is not changed
run --disk image.raw -t -- sh    # a terminal
run --kernel vmlinuz-6.1 --kernel vmlinuz-6.12 --initrd initrd --jobs 2 -- ./test    # one result line for each
run --disk image.raw --dry-run    # QEMU's command
boot vm1 --disk debian.qcow2    # then exec, shell and file; stop, start, delete
boot vm2 --kernel vmlinuz --initrd initrd --memory 512
init vm1 --config user.greeting=hello    # an LXD instance with a configuration key
init vm2 --flavour incus --config cloud-init.user-data="$(cat user-data)"    # an Incus instance with user-data for cloud-init
init vm3 --vsock-cid 7    # with the kernel's vsock (/dev/vhost-vsock)
qemu vm1 >boot && bash boot    # boots vmlinuz and initrd of this directory
qemu vm1 --disk debian.qcow2 --memory 512    # for a disk image
qemu vm1 --args    # for a script that runs QEMU itself
daemon 2>daemon.log &    # in the background, with a log
list    # a table
list -q    # names only
list --json    # for a script
info vm1    # row "In words": why it is not connected, and what to do
info vm1 --json | jq -r .why.cause    # the reason as one word
wait vm1 --for CONNECTED --timeout 60    # in a script, after the boot
wait vm1 --for Ready    # as long as it takes
delete vm1    # and its files
delete --force vm1    # even while it runs
show vm1
agent-state vm1
get vm1 user.greeting
set vm1 user.greeting=hi    # the guest gets an event for user.*
unset vm1 user.greeting
device-add vm1 data type=disk path=/mnt    # the agent mounts it, if the VM has this share
device-remove vm1 data
events vm1    # the host's events
events vm1 --agent    # the agent's events
query vm1 GET /1.0
exec vm1 -- uname -sr
exec vm1 --user 1000 --group 1000 --cwd /tmp -e A=b -- env
exec -T vm1 -- cat <file    # reads this shell's input
shell vm1
file push notes vm1/tmp/    # keeps the name: vm1/tmp/notes
file push --mode 0640 --uid 1000 - vm1/tmp/notes <notes    # from standard input
file push -r tree vm1/srv/    # to /srv/tree
file pull vm1/etc/hostname -    # to stdout
file pull -r vm1/etc .    # to ./etc; writes nothing outside of it
file ls vm1/etc
file ls --json vm1/etc    # one line for each entry
file rm -r vm1/tmp/tree
file mkdir -p --mode 0700 vm1/srv/a/b
file stat vm1/etc/passwd
file ln -s ../usr/bin vm1/opt/bin
file mv vm1/tmp/a vm1/tmp/b
file chmod 0755 vm1/tmp/a
file df vm1/
sftp vm1    # used by sftp -D "mote-host sftp vm1"
state vm1
state vm1 --json    # the agent's own answer
metrics vm1    # in the format that a server publishes
operations vm1 --json    # all, in the agent's own format
operations vm1 wait ID --timeout 60
port-forward vm1 127.0.0.1:8080 80    # forwards local port 8080 to port 80 of the guest
start vm1
stop vm1    # presses the power button
stop --force vm1    # ends QEMU
fault vm1 slow 500
fault vm1 none
completions bash >~/.local/share/bash-completion/completions/mote-host
man man1    # writes all pages; man -l man1/mote-host-exec.1 shows one
"#;

fn examples(path: &str) -> Vec<(String, &'static str)> {
    let is_its = |rest: &str| rest.is_empty() || rest.starts_with(' ');
    let its = |line: &&str| !path.is_empty() && line.strip_prefix(path).is_some_and(is_its);
    let all =
        EXAMPLES.lines().filter(its).map(|line| line.split_once("    # ").unwrap_or((line, "")));
    all.map(|(line, what)| (format!("mote-host {line}"), what)).collect()
}

/// Exit codes: those of all commands, then additional ones of some.
const CODES: &str = "
0    # done
1    # failed; stderr shows why
2    # the command line is invalid
run 124    # --timeout: the command has exceeded its time limit
run 125    # other failures that are not the command's: it did not start, or exited 0 and --pull failed
run 126    # the command cannot be run
run 127    # there is no such command in the guest, or no such directory
run 129    # the guest was lost while the command ran: it panicked or powered off; or SIGHUP ended this command
run 130, 131, 143    # SIGINT, SIGQUIT, SIGTERM ended this command: 128 and their numbers
run other    # the command's own; --result FILE distinguishes them from these
boot 124    # timed out waiting for the agent; the VM stays
wait 124    # timed out; stderr shows why
exec 126    # the command cannot be run
exec 127    # there is no such command in the guest, or no such directory
exec 129    # the guest was lost while the command ran
exec other    # the command's own; 128 and the number of the signal that ended it
shell other    # as for exec
";

fn codes(path: &str) -> Vec<(&'static str, &'static str)> {
    let all = CODES.lines().filter_map(|line| line.split_once("    # "));
    let own = |(code, what): (&'static str, &'static str)| {
        let is_common = code.parse::<u8>().is_ok();
        let code = if is_common { code } else { code.strip_prefix(path)?.strip_prefix(' ')? };
        Some((code, what))
    };
    all.filter_map(own).collect()
}

const FILES: &[(&str, &str)] = &[
    (
        "DIR",
        "from --dir or MOTE_HOST_DIR, or else $XDG_STATE_HOME/mote-host, ~/.local/state/mote-host",
    ),
    ("DIR/control.sock", "the daemon's socket: HTTP and JSON"),
    ("DIR/server.crt, server.key", "the host's certificate, which agents receive"),
    ("DIR/instances/NAME/instance.json", "the instance: configuration and devices"),
    ("DIR/instances/NAME/config/", "the config share, which the guest reads"),
    ("DIR/instances/NAME/console, qemu.log", "of a VM that boot created"),
    ("DIR/instances/NAME/qmp, qmp.yours", "QEMU's monitors: mote-host's, and one for others"),
];

/// Adds the examples to the help of each command.
pub(super) fn with_examples(command: Command) -> Command {
    with_examples_below(command, "")
}

fn with_examples_below(command: Command, path: &str) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_examples_below(below, path.trim_start())
        });
    }
    // Existing text is kept.
    let before = command.get_after_help().map_or(String::new(), |help| format!("{help}\n\n"));
    let line = |(line, what): (String, &str)| {
        let what = if what.is_empty() { String::new() } else { format!("    # {what}") };
        format!("\n  {line}{what}")
    };
    let lines: String = examples(path).into_iter().map(line).collect();
    command.after_long_help(format!("{before}Examples:{lines}"))
}

/// Writes a page for each command into a directory. `command` has no examples in its help, because
/// pages have a section for them.
pub(super) fn write(command: Command, directory: &Path) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(directory)
        .and_then(|()| write_all(&command, &[], directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}

fn write_all(command: &Command, path: &[&str], directory: &Path) -> std::io::Result<()> {
    let version = format!("mote-host {VERSION}");
    let man = Man::new(command.clone()).source(version).manual("mote-host");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    sections(command, path).to_writer(&mut page)?;
    fs::write(directory.join(man.get_filename()), page)?;
    command
        .get_subcommands()
        .try_for_each(|below| write_all(below, &[path, &[below.get_name()]].concat(), directory))
}

fn sections(command: &Command, path: &[&str]) -> Roff {
    let mut roff = Roff::new();
    let name = path.join(" ");
    if !command.has_subcommands() {
        listed(&mut roff, "EXAMPLES", &examples(&name));
    }
    listed(&mut roff, "EXIT STATUS", &codes(&name));
    listed(&mut roff, "FILES", FILES);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("mote-host(1), mote-agent(8), qemu-system-x86_64(1)")]);
    roff
}

fn listed(roff: &mut Roff, heading: &str, items: &[(impl AsRef<str>, &str)]) {
    roff.control("SH", [heading]);
    for (item, what) in items {
        roff.control("TP", []);
        roff.text([bold(item.as_ref())]);
        roff.text([roman(*what)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name()).trim().to_owned();
            if below.get_subcommands().count() == 0 {
                found.push(path.clone());
            }
            leaves(below, &path, found);
        }
    }

    /// The words of an example, up to what is the shell's.
    fn words(line: &str) -> Vec<&str> {
        let is_shells =
            |word: &&str| ["|", ">", "<", "2>", "&"].iter().any(|mark| word.starts_with(mark));
        line.split(' ').take_while(|word| !is_shells(word)).collect()
    }

    #[test]
    fn every_command_has_valid_examples() {
        let mut all = Vec::new();
        leaves(&command(), "", &mut all);
        let mut known = 0;
        for path in &all {
            let examples = examples(path);
            assert!(!examples.is_empty(), "{path}");
            known += examples.len();
            for (line, _) in examples {
                // A quoted word is one.
                let line = line.replace("\"$(cat user-data)\"", "x");
                let taken = command().try_get_matches_from(words(&line));
                assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
            }
        }
        assert_eq!(known, EXAMPLES.lines().skip(1).count(), "examples of no command");
        let is_known =
            |line: &str| all.iter().any(|path| codes(path).len() > 3 && line.starts_with(path));
        assert!(CODES.lines().skip(4).all(is_known));
    }
}
