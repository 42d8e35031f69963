"""Torture: a process that works on state is killed again and again, without warning."""
