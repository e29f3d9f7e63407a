"""The paper's case studies: models, distances, experiments."""
