"""The demo: GRPO in an unmodified verl on the CPU, with RLVR and with RLCR, in a world where the right confidence is known."""
