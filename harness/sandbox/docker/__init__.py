"""Sandboxes and images on a Docker engine."""
