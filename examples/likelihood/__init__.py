"""RLPR and DARL in verl on the CPU: a demo."""
