"""The speculative operators that SGLang imports by this module's name."""

from specctl_engine.cpu.tree import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
