"""PyOD: detectors of outliers, whose scores are higher for rows that are further out."""
