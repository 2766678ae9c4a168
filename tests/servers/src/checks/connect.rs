//! ssh into the instance through the server's exec and `mote-agent connect`, without its network.

use crate::prelude::*;

group! { "connect": ssh }

/// Prepares sshd of the outer VM for the instance, with its libraries and keys, and a `config` for
/// ssh whose ProxyCommand is `$1`.
const PREPARE: &str = r#"set -e
rm -rf /run/ssh && mkdir -p /run/ssh/server && cd /run/ssh
for key in client server/key; do ssh-keygen -q -t ed25519 -N '' -f $key; done
cp client.pub server/
printf '%s\n' 'ListenAddress 127.0.0.1' 'HostKey /server/key' 'AuthorizedKeysFile /server/client.pub' \
    'PidFile /server/pid' 'StrictModes no' 'UsePAM no' >server/config
printf '%s\n' 'Host *' 'User root' 'IdentityFile /run/ssh/client' 'StrictHostKeyChecking no' \
    'UserKnownHostsFile /run/ssh/known' 'LogLevel ERROR' "ProxyCommand $1" >config
programs=$(find /usr/sbin/sshd /usr/lib/openssh -name 'sshd*')
tar -chf server.tar server -C / $programs $(ldd $programs | grep -o '/[^ :]*lib[^ :]* ' | sort -u)
"#;

const BEGIN: &str = "tar -x -C / && mkdir -p /run/sshd && cp /etc/passwd /server/passwd &&
echo sshd:x:101:65534::/run/sshd:/bin/false >>/etc/passwd && /usr/sbin/sshd -f /server/config";
const END: &str = "kill $(cat /server/pid); cp /server/passwd /etc/passwd; rm -r /server";

const LOGINS: i32 = 5;

fn ssh(world: &World) -> Seen {
    let proxy = format!("{} exec {VM} -T -- mote-agent connect 127.0.0.1:22", world.server.cli());
    world.run(&["bash", "-c", PREPARE, "prepare", &proxy]).code(0)?;
    let begin = world.exec(&["sh", "-c", BEGIN]).input(read("/run/ssh/server.tar")?);
    begin.within(world.limit(300)).code(0)?;
    let seen = logins(world);
    world.sh(END)?;
    seen
}

fn logins(world: &World) -> Seen {
    let ssh = |script: &str| world.run(&["ssh", "-F", "/run/ssh/config", VM, script]);
    let begun = Instant::now();
    for number in 0..LOGINS {
        ssh(&format!("exit {number}")).input(*b"unread").code(number)?;
    }
    let took = round(begun.elapsed());
    let data = noise(1 << 20);
    let back = ssh("cat").input(data.clone()).within(world.limit(200)).code(0)?;
    same("what came back is what was sent", back.out == data, true)?;
    Ok(format!("{LOGINS} logins in {took} s, 1 MiB through cat"))
}
