"""Scenarios: a YAML file becomes checked values, and a sweep becomes cells."""
