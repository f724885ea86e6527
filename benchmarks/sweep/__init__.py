"""Every estimator of scikit-learn, against its library on rows of many types; see ``__main__``."""
