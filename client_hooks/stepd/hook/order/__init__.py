"""Enforces the execution order of a strategy: among the ops of a device that are ready, the lowest priority runs first.

Two ways. `control`: control edges in the copy that a strategy runs on, only between ops whose order matters. `native`: an executor
of our own whose ready queue is sorted. The room must not know sessions, observers or why a strategy was chosen; everything but
the native executor's build is pure.
"""
