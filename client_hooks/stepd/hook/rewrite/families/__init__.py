"""Rules by family of ops: each takes an op's facts and yields the ways to split it. They must not know graphs or devices."""
