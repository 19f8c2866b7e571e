"""Rewriting of a copy's nodes so that ops run in parts: split rules as data, single ops, regions, data parallelism.

Pure functions from NodeDefs to NodeDefs. It knows TensorFlow's op types and nothing of sessions, strategies' worth or daemons.
"""
