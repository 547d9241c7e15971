"""steelyard: rewards for GRPO / RLVR training."""

__version__ = "0.1.0"
