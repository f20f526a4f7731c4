"""Topologies that a user already has, read into machines and graphs; and written back."""
