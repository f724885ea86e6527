"""Search for schedules of the paper's tensor programs, against PyTorch and MetaSchedule."""
