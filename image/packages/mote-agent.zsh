#compdef mote-agent
# zsh completion for mote-agent. The words and their descriptions are those of its --help.
local option=$words[CURRENT-1]
local -a offered options commands
if [[ $PREFIX == --*=* ]]; then
    option=${PREFIX%%=*}
    compset -P '*='
fi
case $option in
-s | --secrets-location | --config-dir | --remember | --root) _files -/ ;;
--port | --vsock-unix) _files ;;
--flavour) compadd incus lxd lxd-5.0 ;;
--deny | --allow)
    _values -s , feature guestapi exec files mounts port-forward metrics state templates network first-boot resources clock power
    ;;
freeze) compadd -- --for --status ;;
connect) compadd -- --timeout ;;
grow) compadd -- --dry-run /sys/block/*(N:t) ;;
report) compadd state metrics ;;
get | --interval-*) _message value ;;
*)
    offered=(${(f)"$(mote-agent --help 2>/dev/null | sed -E ':join; N; $!b join; s/\n {10,}/  /g' | awk -F '  +' '/^  [a-z-]/ {
        for (i = 4; i <= NF; i++) $3 = $3 " " $i
        sub(/[;:(].*/, "", $3)
        n = split($2, word, /,? /)
        for (i = 1; i <= n; i++) if (i == 1 || word[i] ~ /^-/) print word[i] ":" $3
        }')"})
    options=(${(M)offered:#-*}) commands=(${offered:#-*})
    _describe -t commands command commands
    _describe -o option options
    ;;
esac
