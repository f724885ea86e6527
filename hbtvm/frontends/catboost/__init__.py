"""CatBoost: models, files (``.cbm`` and JSON) and estimators."""
