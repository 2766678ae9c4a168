include $(BR2_EXTERNAL_MOTE_PATH)/mote-agent/mote-agent.mk
