"""What a training loop did, and when: a recorder, its timeline, a trace.

`recorder` is what a training script imports and reaches no numerical library; `timeline` turns spans
into seconds per step, `trace` into a file that Perfetto opens.
"""

from steelyard.measure.recorder import Steps

__all__ = ["Steps"]
