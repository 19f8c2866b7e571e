"""The native executor: C++ source, its build on first use, its trial in a process of its own, and the library once it is loaded.

Nothing of it is loaded before it was built against exactly this TensorFlow, by this user, and passed its trial.
"""
