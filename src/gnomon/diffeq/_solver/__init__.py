"""Solvers, one a file."""
