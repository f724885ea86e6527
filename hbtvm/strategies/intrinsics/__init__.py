"""Pure intrinsics of this project, and how to register them."""
