"""How long does a call take, and how many fit into a second? Beside the peer, and beside a bare program."""

import sys

from measure import LIMIT, OURS, PEER, AtMostOfPeer, Figure, answer

FIGURES = [
    Figure("calls.round_trip", "us", AtMostOfPeer(0.30)),
    Figure("calls.pipelined", "calls/s"),
    Figure("calls.mesh_1", "us"),
    Figure("calls.mesh_4", "us", AtMostOfPeer(0.35)),
    Figure("calls.mesh_16", "us", AtMostOfPeer(0.35)),
    Figure("calls.mesh_32", "us"),
    Figure("calls.actor_to_actor", "us"),
    Figure("calls.in_process", "us"),
]

if __name__ == "__main__":
    sys.exit(answer("calls", FIGURES, [OURS, PEER, LIMIT], ["calls"]))
