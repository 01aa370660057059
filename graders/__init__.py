"""Graders: what turns a finished sandbox into a grade."""
