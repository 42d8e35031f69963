"""Planted bugs: each known mistake, made on purpose, and who catches it.

The production code has no switch for any of them. A mutant replaces a function for as long as
its context lasts; nothing of it is installed.
"""
