# Yocto: a layer with the static program, from the tarball of scripts/package for the target.
#   bitbake-layers add-layer .../image/recipes/yocto
#   echo 'IMAGE_INSTALL:append = " mote-agent"' >>conf/local.conf
# Tested: BitBake 2.19 with OpenEmbedded-Core of August 2026 ran the tasks up to do_install, for systemd and sysvinit. No
# package or image was built.
SUMMARY = "Guest agent for LXD and Incus virtual machines"
LICENSE = "MIT OR Apache-2.0"
LIC_FILES_CHKSUM = "file://${COMMON_LICENSE_DIR}/MIT;md5=0835ade698e0bcf8506ecda2f7b4f302"
COMPATIBLE_HOST = "(x86_64|aarch64|riscv64).*-linux"

NAME = "mote-agent-${PV}-${TARGET_ARCH}"
SRC_URI = "file://${THISDIR}/../../../../target/package/${NAME}.tar.gz"
S = "${UNPACKDIR}/${NAME}"

inherit bin_package systemd update-rc.d
SYSTEMD_SERVICE:${PN} = "mote-agent.service"
INITSCRIPT_NAME = "mote-agent"
INITSCRIPT_PARAMS = "start 01 S ."
INSANE_SKIP:${PN} = "already-stripped"

# The class systemd removes the script where systemd starts the unit.
do_install() {
    install -D -m 755 ${S}/mote-agent ${D}${sbindir}/mote-agent
    install -D -m 755 ${S}/services/sysvinit ${D}${INIT_D_DIR}/mote-agent
    install -D -m 644 ${S}/services/mote-agent.service ${D}${systemd_system_unitdir}/mote-agent.service
}
