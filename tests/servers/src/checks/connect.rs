//! What docs/how-to/connect.md says: ssh, rsync, scp, git and sockets through the server's exec and
//! `mote-agent connect`, without the instance's network.

use crate::prelude::*;

group! { "connect": ssh, rsync, scp, git, unix_socket, ipv6 }

const PAGE: &str = include_str!("../../../../docs/how-to/connect.md");

/// Configures ssh with the page's lines, which are `$1`, and packs what the instance lacks: sshd
/// with keys, rsync and git, with their libraries.
const PREPARE: &str = r#"set -e
rm -rf /run/ssh && mkdir -p /run/ssh/server && cd /run/ssh
for key in ~root/.ssh/id_ed25519 server/key; do rm -f $key; ssh-keygen -q -t ed25519 -N '' -f $key; done
cp ~root/.ssh/id_ed25519.pub server/
printf '%s\n' "$1" 'Host *' 'StrictHostKeyChecking no' 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' >~root/.ssh/config
printf '%s\n' 'ListenAddress 127.0.0.1' 'ListenAddress ::1' 'HostKey /server/key' 'StrictModes no' 'UsePAM no' \
    'AuthorizedKeysFile /server/id_ed25519.pub' 'Subsystem sftp /usr/lib/openssh/sftp-server' >server/config
programs="/usr/sbin/sshd /usr/bin/rsync /usr/bin/git $(find /usr/lib/openssh -name 'sshd-*' -o -name sftp-server)"
tar -chf server.tar server -C / $programs $(ldd $programs | grep -o '/[^ :]*lib[^ :]* ' | sort -u)
"#;

const BEGIN: &str =
    "tar -x -C / && mkdir -p /run/sshd /srv && ln -s git /usr/bin/git-upload-pack &&
echo sshd:x:101:65534::/run/sshd:/bin/false >>/etc/passwd && /usr/sbin/sshd -f /server/config";

const LOGINS: i32 = 10;

/// Starts sshd in the instance if it does not run there yet. It stays until the instance restarts.
fn sshd(world: &World) -> Try {
    if world.exec(&["test", "-e", "/server"]).run()?.code == 0 {
        return Ok(());
    }
    let (_, lines) = PAGE.split_once("```\nHost web1\n").ok_or("the page has no configuration")?;
    let (lines, _) = lines.split_once("```").unwrap_or_default();
    let lines =
        format!("Host {VM}\n{}", lines.replace("lxc ", &format!("{} ", world.server.cli())));
    world.run(&["bash", "-c", PREPARE, "prepare", &lines]).code(0)?;
    let begin = world.exec(&["sh", "-c", BEGIN]).input(read("/run/ssh/server.tar")?);
    begin.within(world.limit(300)).code(0).map(drop)
}

fn ssh(world: &World) -> Seen {
    sshd(world)?;
    let ssh = |script: &str| world.run(&["ssh", VM, script]);
    let begun = Instant::now();
    for number in 0..LOGINS {
        ssh(&format!("exit {number}")).input(*b"unread").code(number)?;
    }
    Ok(format!("{LOGINS} logins in {} s", round(begun.elapsed())))
}

/// Copies a directory of `BIG` MiB, `site`, to the instance and back as `back`.
fn copied(world: &World, script: &str) -> Seen {
    sshd(world)?;
    world.run(&["sh", "-c", "rm -rf /tmp/copied && mkdir -p /tmp/copied/site"]).code(0)?;
    put("/tmp/copied/site/big", &noise(BIG << 20))?;
    let script = format!("cd /tmp/copied && {script} && cmp site/big back/big");
    let begun = Instant::now();
    world.run(&["sh", "-c", &script]).within(world.limit(300)).code(0)?;
    Ok(format!("{BIG} MiB, there and back in {} s", round(begun.elapsed())))
}

fn rsync(world: &World) -> Seen {
    copied(world, "rsync -a site/ vm1:/srv/site/ && rsync -a vm1:/srv/site/ back/")
}

fn scp(world: &World) -> Seen {
    copied(world, "scp -q -r site vm1:/srv/scp && scp -q -r vm1:/srv/scp back")
}

fn git(world: &World) -> Seen {
    let commit = "cd site && git init -q && git add big &&
        git -c user.name=x -c user.email=x commit -q -m x && cd ..";
    let script = "rsync -a site/ vm1:/srv/repository && git clone -q vm1:/srv/repository back";
    copied(world, &format!("{commit} && {script}"))
}

fn unix_socket(world: &World) -> Seen {
    let socket = format!("unix:{}", world.server.guest_socket());
    let request = b"GET /1.0/meta-data HTTP/1.0\r\nHost: guest\r\n\r\n";
    let answer = world.exec(&["mote-agent", "connect", &socket]).input(*request).text()?;
    has(&answer, "200 OK")?;
    line_with(&answer, "instance-id")
}

fn ipv6(world: &World) -> Seen {
    sshd(world)?;
    let connect = |address| world.exec(&["mote-agent", "connect", "--timeout", "5s", address]);
    let banner = connect("[::1]:22").text()?;
    has(&banner, "SSH-2.0-")?;
    let refused = connect("[::1]:5432").code(69)?;
    Ok(format!("{}; {}", banner.trim(), refused.said()))
}
