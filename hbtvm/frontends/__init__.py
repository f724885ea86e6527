"""Front ends: from each library's trained models to `hbtvm.graph.graph.Graph`."""

from hbtvm.frontends.files import from_object, load_model

__all__ = ["from_object", "load_model"]
