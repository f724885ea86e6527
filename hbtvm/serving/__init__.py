"""An HTTP service for compiled models, by the Open Inference Protocol (KServe's version 2)."""
