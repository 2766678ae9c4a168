#!/bin/bash
# dracut: copy to /usr/lib/dracut/modules.d/90mote-agent/module-setup.sh, dracut.service beside it. Takes the agent into
# the initramfs where the image wants that: in /etc/dracut.conf.d/mote-agent.conf the line
#   add_dracutmodules+=" mote-agent "

# Only when asked for.
check() { return 255; }

installkernel() {
    hostonly='' instmods virtio_pci virtio_blk virtio_scsi sd_mod sr_mod isofs virtiofs 9p 9pnet_virtio virtio_console \
        vmw_vsock_virtio_transport
}

install() {
    # shellcheck disable=SC2154 # dracut has set them
    local unit="$systemdsystemunitdir/mote-agent-initramfs.service"
    inst_multiple /usr/sbin/mote-agent /usr/lib/mote-agent/in-initramfs sh cat
    # What the guest denies its host, it denies there too.
    inst_multiple -o /etc/mote-agent.yml /etc/incus-agent.yml
    mkdir -p "$initdir/etc"
    /usr/lib/mote-agent/options "${dracutsysrootdir:-}" >"$initdir/etc/mote-agent.options"
    # Where commands of the host start.
    mkdir -p "$initdir/root"
    if dracut_module_included systemd; then
        inst_simple "$moddir/mote-agent-initramfs.service" "$unit"
        mkdir -p "$initdir/$systemdsystemunitdir/sysinit.target.wants"
        ln -sf ../mote-agent-initramfs.service "$initdir/$systemdsystemunitdir/sysinit.target.wants/"
    else
        inst_hook pre-udev 01 /usr/lib/mote-agent/in-initramfs
    fi
}
