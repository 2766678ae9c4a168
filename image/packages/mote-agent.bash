# bash completion for mote-agent. The words are those of its --help.
_mote_agent() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}" help words
    help="$(mote-agent --help 2>/dev/null)"
    COMPREPLY=()
    case "$previous" in
    --config-dir | --secrets-location | -s | --port | --remember | --root)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --flavour) words="incus lxd lxd-5.0" ;;
    --deny | --allow) words="guestapi exec files mounts port-forward metrics state templates network first-boot resources clock power" ;;
    freeze) words="--for --status" ;;
    connect) words="--timeout 127.0.0.1:22" ;;
    grow) words="--dry-run $(cd /sys/block 2>/dev/null && echo *)" ;;
    report) words="state metrics" ;;
    --interval-*) return ;;
    *)
        words="$(sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' <<<"$help")
            $(sed -n '/^Options:/,$s/^  \(--*[A-Za-z].*\)/\1/p' <<<"$help" | grep -o -e '--[a-z][a-z-]*')"
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _mote_agent mote-agent
