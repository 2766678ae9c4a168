# Process 1 of an initramfs with an agent: starts the agent, then executes $init, which mote-host sets before this line.
PATH=/bin:/sbin:/usr/bin:/usr/sbin
export PATH
[ -d /proc/self ] || { mkdir -p /proc; mount -t proc proc /proc; }
[ -d /sys/class ] || { mkdir -p /sys; mount -t sysfs sysfs /sys; }
[ -c /dev/null ] || { mkdir -p /dev; mount -t devtmpfs devtmpfs /dev; }
mkdir -p /run /tmp
for module in virtio_pci virtio_console virtio_blk; do modprobe $module 2>/dev/null; done
/.mote/mote-agent --initramfs </dev/null >/dev/console 2>&1 &
exec "$init" "$@"
