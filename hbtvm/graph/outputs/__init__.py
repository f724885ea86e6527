"""Outputs of models: labels, probabilities and scores from raw scores."""
