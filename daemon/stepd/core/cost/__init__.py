"""Online cost models (FastT, section 4): what each op and each transfer costs, learned from profiled steps."""
