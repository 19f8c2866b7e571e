"""Joint placement and scheduling as a constraint program for OR-Tools' CP-SAT (extra `exact`)."""
