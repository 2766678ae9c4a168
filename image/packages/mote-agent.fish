# fish completion for mote-agent. The words are those of its --help.
set -l commands ready started get config metadata devices events status freeze thaw trim sync-time report version help
set -l features guestapi exec files mounts port-forward metrics state templates network first-boot resources clock
set -l first "not __fish_seen_subcommand_from $commands"
complete -c mote-agent -f
complete -c mote-agent -n $first -a ready -d 'tell the host that this instance is Ready'
complete -c mote-agent -n $first -a started -d 'withdraw Ready'
complete -c mote-agent -n $first -a get -d 'print a configuration value'
complete -c mote-agent -n $first -a config -d 'print all configuration values'
complete -c mote-agent -n $first -a metadata -d 'print the cloud-init meta-data'
complete -c mote-agent -n $first -a devices -d 'print the devices'
complete -c mote-agent -n $first -a events -d 'print events as they come'
complete -c mote-agent -n $first -a status -d "print the agent's own view"
complete -c mote-agent -n $first -a freeze -d 'freeze file systems for a snapshot'
complete -c mote-agent -n $first -a thaw -d 'thaw them'
complete -c mote-agent -n $first -a trim -d 'tell the disks which blocks are not used'
complete -c mote-agent -n $first -a sync-time -d "set the clock by the host's"
complete -c mote-agent -n $first -a report -d 'print what the host gets of this instance'
complete -c mote-agent -n $first -a version -d 'print the version'
complete -c mote-agent -n $first -a help -d 'print a summary'
complete -c mote-agent -n '__fish_seen_subcommand_from freeze' -l for -x -d 'for so long at most'
complete -c mote-agent -n '__fish_seen_subcommand_from freeze' -l status -d 'say what is frozen'
complete -c mote-agent -n '__fish_seen_subcommand_from report' -a 'state metrics'
complete -c mote-agent -l config-dir -r -a '(__fish_complete_directories)' -d 'directory of the certificate files'
complete -c mote-agent -s s -l secrets-location -r -a '(__fish_complete_directories)' -d 'directory of these files alone'
complete -c mote-agent -l remember -r -a '(__fish_complete_directories)' -d "keep the host's files here"
complete -c mote-agent -l port -r -F -d 'status port'
complete -c mote-agent -l flavour -x -a 'incus lxd lxd-5.0' -d 'kind of server'
complete -c mote-agent -l deny -x -a "(__fish_append , $features)" -d 'deny the host features'
complete -c mote-agent -l allow -x -a "(__fish_append , $features)" -d 'deny the host all but these features'
complete -c mote-agent -l no-wait -d 'end with an error if something is missing at start'
complete -c mote-agent -l no-replay-ready -d 'do not repeat Ready to a host that was restarted'
complete -c mote-agent -l initramfs -d 'this is an initramfs'
complete -c mote-agent -l interval-connect -x -d 'period in state CONNECT, milliseconds'
complete -c mote-agent -l interval-started -x -d 'period in state STARTED, milliseconds'
complete -c mote-agent -l interval-connected -x -d 'period in state CONNECTED, milliseconds'
complete -c mote-agent -l root -r -a '(__fish_complete_directories)' -d 'prefix of every absolute path'
complete -c mote-agent -l vsock-unix -r -F -d 'unix sockets in place of vsock'
complete -c mote-agent -l check -d 'report what the agent would do'
complete -c mote-agent -l json -d 'print one JSON document'
complete -c mote-agent -s d -l debug -d 'log more'
complete -c mote-agent -s V -l version -d 'print the version'
complete -c mote-agent -s h -l help -d 'print a summary'
