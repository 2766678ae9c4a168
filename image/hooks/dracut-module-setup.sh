#!/bin/bash
# dracut: copy to /usr/lib/dracut/modules.d/90mote-agent/module-setup.sh, and dracut.service next to it. Adds the
# agent to the initramfs if /etc/dracut.conf.d/mote-agent.conf contains
#   add_dracutmodules+=" mote-agent "

# Only on request.
check() { return 255; }

installkernel() {
    hostonly='' instmods virtio_pci virtio_mmio virtio_blk virtio_scsi sd_mod sr_mod isofs virtiofs 9p 9pnet_virtio virtio_console \
        vmw_vsock_virtio_transport
}

install() {
    # shellcheck disable=SC2154 # dracut has set them
    local unit="$systemdsystemunitdir/mote-agent-initramfs.service"
    inst_multiple /usr/sbin/mote-agent /usr/lib/mote-agent/in-initramfs sh cat
    # The guest's policy applies in the initramfs too.
    inst_multiple -o /etc/mote-agent.yml /etc/incus-agent.yml
    # /root is the working directory of the host's commands.
    mkdir -p "$initdir/etc" "$initdir/root"
    /usr/lib/mote-agent/options "${dracutsysrootdir:-}" >"$initdir/etc/mote-agent.options"
    if dracut_module_included systemd; then
        inst_simple "$moddir/mote-agent-initramfs.service" "$unit"
        mkdir -p "$initdir/$systemdsystemunitdir/sysinit.target.wants"
        ln -sf ../mote-agent-initramfs.service "$initdir/$systemdsystemunitdir/sysinit.target.wants/"
    else
        inst_hook pre-udev 01 /usr/lib/mote-agent/in-initramfs
    fi
}
