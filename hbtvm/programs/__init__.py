"""Search for schedules of tensor programs; `hbtvm.tuning` has the public names."""
