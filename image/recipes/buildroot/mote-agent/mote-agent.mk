# Buildroot: an external tree with the static program, from the tarball of scripts/package.
#   make BR2_EXTERNAL=.../image/recipes/buildroot menuconfig    # External options: mote-agent
# With busybox' init, a line in inittab starts the agent.
# Tested: Buildroot of August 2026 made the package ("make mote-agent"). No image was built.
MOTE_AGENT_VERSION = 0.1.0
MOTE_AGENT_SITE = $(BR2_EXTERNAL_MOTE_PATH)/../../../target/package
MOTE_AGENT_SITE_METHOD = file
MOTE_AGENT_SOURCE = mote-agent-$(MOTE_AGENT_VERSION)-$(ARCH).tar.gz
MOTE_AGENT_LICENSE = MIT or Apache-2.0
MOTE_AGENT_LICENSE_FILES = copyright
MOTE_AGENT_ADD_TOOLCHAIN_DEPENDENCY = NO

define MOTE_AGENT_INSTALL_TARGET_CMDS
	$(INSTALL) -D -m 755 $(@D)/mote-agent $(TARGET_DIR)/usr/sbin/mote-agent
endef
define MOTE_AGENT_INSTALL_INIT_SYSTEMD
	$(INSTALL) -D -m 644 $(@D)/services/mote-agent.service $(TARGET_DIR)/usr/lib/systemd/system/mote-agent.service
endef
define MOTE_AGENT_INITTAB
	grep -q mote-agent $(TARGET_DIR)/etc/inittab || tail -n 1 $(MOTE_AGENT_DIR)/services/inittab >>$(TARGET_DIR)/etc/inittab
endef
ifeq ($(BR2_INIT_BUSYBOX),y)
MOTE_AGENT_TARGET_FINALIZE_HOOKS += MOTE_AGENT_INITTAB
endif

$(eval $(generic-package))
