"""Rows of the store that can't be read: named, whatever else a command has to say."""

from __future__ import annotations

import click

from harness.store.sql import SqlStore


def named_damage(store: SqlStore) -> bool:
    """Name on standard error what could not be read so far; whether there was any."""
    for damage in store.damage:
        click.echo(f"error: {damage}", err=True)
    return bool(store.damage)
