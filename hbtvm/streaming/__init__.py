"""Prediction of more rows than memory holds, in batches of Arrow."""
