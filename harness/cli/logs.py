"""The project's own log: structured events on standard error, so that standard output stays what was asked for."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: int = logging.WARNING) -> None:
    """Events of this level and above, a line each."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
