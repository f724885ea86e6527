"""Results of pipelines that end in a transformer: columns, dense or sparse."""
