"""Agents: what drives a policy, or a fixed script, against a sandbox."""
