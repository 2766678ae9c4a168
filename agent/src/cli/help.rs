//! The text of `--help`; the manual page has the details.

pub(crate) const HELP: &str = "\
mote-agent: guest agent for LXD and Incus virtual machines

Usage: mote-agent [OPTIONS]            run the agent
       mote-agent [OPTIONS] COMMAND    ask the running agent

Commands:
  ready         report Ready to the host
  started       withdraw Ready
  get KEY       print a configuration value (mote-agent get user.foo)
  config        print all configuration values
  metadata      print the cloud-init meta-data
  devices       print the devices (JSON)
  events        print events as they arrive, one JSON document per line
  status        print the agent's own view
  freeze [--for 60s] [--status]
                freeze this machine's file systems for a snapshot, for at most this time
  thaw          thaw them; exit 0 if they were frozen until now, 5 if only a hook failed
  trim          discard unused blocks
  sync-time     step the clock to the host's; needs no agent
  grow [--dry-run] [DEVICE]
                grow the last partition and its file system on disks that have become larger,
                or on this disk (mote-agent grow vda); needs no agent
  connect [--timeout 30s] ADDRESS:PORT|unix:PATH
                join standard input and output to a port, for ssh without a network;
                exit 68 unreachable, 69 refused, 75 timed out, 77 denied
  report state|metrics
                print what the host receives; needs no agent
  version
  help

Options:
  --config-dir DIR   directory of agent.crt, agent.key and server.crt (default: working
                     directory, /run/lxd_agent, /run/incus_agent, else the config share)
  -s, --secrets-location DIR
                     directory of only these three
  --remember DIR     keep these three and the host's address in DIR, for a start without the share
  --port PATH        status port (default: found by name)
  --flavour NAME     incus, lxd or lxd-5.0 (default: by the port's name)
  --deny LIST        deny the host features: guestapi (also configures cloud-init), exec,
                     files, mounts, port-forward, metrics, state, templates, network,
                     first-boot, resources, clock, power; separated by commas
                     (also /etc/mote-agent.yml)
  --allow LIST       deny all features but these; a denied one stays denied
  --no-wait          exit with an error if devices or the host's files are missing
  --no-replay-ready  do not repeat Ready after the host restarts
  --initramfs        continue in the root after this initramfs, until that root's own
                     agent takes over
  --interval-connect MS, --interval-started MS, --interval-connected MS
                     period in this state (100, 1000, 30000)
  --root DIR         prefix of every absolute path (for tests)
  --vsock-unix PREFIX
                     unix sockets instead of vsock (for tests)
  --check            report what the agent would do; exit 0 if the host will see it and can
                     use it, 1 if not: lines with 'missing' say why
  --json             --check and status print one JSON document
  -d, --debug        log more
  -V, --version, -h, --help

Exit codes: 0 done, 1 refused by the host or a fatal error, 2 usage, 3 no agent, 4 no host.
";

#[cfg(test)]
mod tests {
    use mote_core::status::Intervals;

    use super::*;

    #[test]
    fn shows_the_cores_intervals() {
        let Intervals { connect, started, connected } = Intervals::default();
        let [connect, started, connected] =
            [connect, started, connected].map(|interval| interval.as_millis());
        assert!(HELP.contains(&format!("({connect}, {started}, {connected})")));
    }
}
