"""What host and fork server say to each other over the control socket (`SOCK_SEQPACKET`).

To the server: kind, guest, CPU seconds of the backstop, and which descriptors come along. From it: kind,
guest, wait status (or errno), user and system seconds, peak bytes.
"""

import struct

ASK = struct.Struct("<BIIB")
TELL = struct.Struct("<BIiddq")
START, KILL, PROBE, SPIN = 1, 2, 3, 4
READY, ENDED, NOT_STARTED, SPUN = 1, 2, 3, 4
PAYLOAD, CHANNEL, OUTPUT, ERRORS, INPUT, RPC, PHASE = KINDS = tuple(1 << bit for bit in range(7))
"""Which descriptors a start message carries, in this order; the first three always."""

SETUP_FAILED = 120
"""The exit status of a guest that could not confine itself."""
