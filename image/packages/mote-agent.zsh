#compdef mote-agent
# zsh completion for mote-agent. The words are those of its --help.
local -a commands features
commands=(
    'ready:report Ready to the host'
    'started:withdraw Ready'
    'get:print a configuration value'
    'config:print all configuration values'
    'metadata:print the cloud-init meta-data'
    'devices:print the devices'
    'events:print events as they arrive'
    "status:print the agent's own view"
    'freeze:freeze file systems for a snapshot'
    'thaw:thaw them'
    'trim:discard unused blocks'
    "sync-time:step the clock to the host's"
    'grow:grow disks that have become larger'
    'connect:join standard input and output to a port'
    'report:print what the host receives'
    'version:print the version'
    'help:print a summary'
)
features=(guestapi exec files mounts port-forward metrics state templates network first-boot resources clock)

_mote_agent_words() {
    case "$words[1]" in
    freeze) _arguments '--for=[for at most this time]:time' '--status[print what is frozen]' ;;
    grow) _arguments '--dry-run[only print what would be done]' '1:disk:_files -W /dev' ;;
    connect) _arguments '--timeout=[time to accept]:time' ;;
    report) _values report state metrics ;;
    get) _message key ;;
    esac
}

_arguments -S \
    '--config-dir=[directory of the certificate files]:directory:_files -/' \
    {-s,--secrets-location=}'[directory of only these files]:directory:_files -/' \
    "--remember=[keep the host's files here]:directory:_files -/" \
    '--port=[status port]:port:_files' \
    '--flavour=[kind of server]:flavour:(incus lxd lxd-5.0)' \
    '--deny=[deny the host features]:features:_values -s , feature $features' \
    '--allow=[deny the host all but these features]:features:_values -s , feature $features' \
    '--no-wait[exit with an error if something is missing at start]' \
    '--no-replay-ready[do not repeat Ready after the host restarts]' \
    '--initramfs[started by an initramfs]' \
    '--interval-connect=[period in state CONNECT]:milliseconds: ' \
    '--interval-started=[period in state STARTED]:milliseconds: ' \
    '--interval-connected=[period in state CONNECTED]:milliseconds: ' \
    '--root=[prefix of every absolute path]:directory:_files -/' \
    '--vsock-unix=[unix sockets instead of vsock]:prefix:_files' \
    '--check[report what the agent would do]' \
    '--json[print one JSON document]' \
    {-d,--debug}'[log more]' \
    '(- *)'{-V,--version}'[print the version]' \
    '(- *)'{-h,--help}'[print a summary]' \
    '1:command:{_describe command commands}' \
    '*::argument:_mote_agent_words'
