# fish completion for mote-agent. The words and their descriptions are those of its --help.
function __mote_agent_words -a kind
    command -q mote-agent && mote-agent --help | sed -E ':join; N; $!b join; s/\n {10,}/  /g' | awk -F '  +' -v kind=$kind '/^  [a-z-]/ {
        for (i = 4; i <= NF; i++) $3 = $3 " " $i
        sub(/[;:(].*/, "", $3)
        n = split($2, word, /,? /)
        for (i = 1; i <= n; i++) if ((i == 1 || word[i] ~ /^-/) && word[i] ~ kind) print word[i] "\t" $3
        }'
end
set -l features guestapi exec files mounts port-forward metrics state templates network first-boot resources clock power
complete -c mote-agent -f
complete -c mote-agent -n 'not __fish_seen_subcommand_from (__mote_agent_words "^[a-z]" | string split -f1 \t)' \
    -a '(__mote_agent_words "^[a-z]")'
complete -c mote-agent -n '__fish_seen_subcommand_from freeze' -l for -x
complete -c mote-agent -n '__fish_seen_subcommand_from freeze' -l status
complete -c mote-agent -n '__fish_seen_subcommand_from grow' -l dry-run
complete -c mote-agent -n '__fish_seen_subcommand_from connect' -l timeout -x
complete -c mote-agent -n '__fish_seen_subcommand_from report' -a 'state metrics'
complete -c mote-agent -s s -l secrets-location -l config-dir -l remember -l root -r -a '(__fish_complete_directories)'
complete -c mote-agent -l port -l vsock-unix -r -F
complete -c mote-agent -l flavour -x -a 'incus lxd lxd-5.0'
complete -c mote-agent -l deny -l allow -x -a "(__fish_append , $features)"
complete -c mote-agent -l interval-connect -l interval-started -l interval-connected -x
complete -c mote-agent -n 'string match -q -- "-*" (commandline -ct)' -a '(__mote_agent_words "^-")'
