"""Front ends of estimators that predict: functions from a table to operators over it."""
