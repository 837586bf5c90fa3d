"""Does memory stay flat over 300,000 calls, on a fixed mesh and on a fresh slice for each call?

Value: bytes of private memory won per call in the second half of the run; the first half may still fill caches.
"""

import sys

from measure import OURS, PEER, AtMost, Figure, answer

SECOND_HALF_CALLS = 150_000
FLAT = AtMost(2**20 / SECOND_HALF_CALLS, "under 1 MiB in the second 150,000 calls")

FIGURES = [
    Figure(f"{workload}.{whose}", "bytes/call", FLAT, limit=0.0)
    for workload in ("growth_fixed", "growth_slices")
    for whose in ("client", "proc")
]

if __name__ == "__main__":
    sys.exit(answer("growth", FIGURES, [OURS, PEER], ["growth_fixed", "growth_slices"]))
