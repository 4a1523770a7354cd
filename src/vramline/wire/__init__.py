"""Pure translation of foreign JSON into the model and back, one module per format and version.

The only room in which an annotation key is spelled.
"""
