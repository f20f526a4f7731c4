"""YAML with exact positions: reading, validating against models, overriding single values.

Scenarios and topology files both come through here. Knows YAML and pydantic, but no scenario,
machine or network.
"""
