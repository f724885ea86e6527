"""Front ends: trained models of each library in, one `hbtvm.graph.Graph` out."""

from hbtvm.frontends.files import from_object, load_model

__all__ = ["from_object", "load_model"]
