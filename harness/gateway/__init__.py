"""The gateway: the only way from an agent to the policy."""
