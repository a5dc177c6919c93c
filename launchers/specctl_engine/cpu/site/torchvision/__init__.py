"""Stand-in for torchvision: SGLang imports it for multimodal models, which this engine does not serve."""

from specctl_engine.cpu import standin

__version__ = "0.0.0"

__getattr__ = standin.adopt(__name__, standin.refuse)
