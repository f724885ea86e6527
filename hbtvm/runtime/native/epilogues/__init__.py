"""Outputs as epilogues of the native executor (`hbtvm/native/epilogue`)."""
