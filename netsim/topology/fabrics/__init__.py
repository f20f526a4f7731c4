"""Fabrics: what joins the NICs of many hosts, each a function of a few numbers."""
