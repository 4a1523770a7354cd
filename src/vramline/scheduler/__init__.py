"""The scheduler's live state and its HTTP faces: extender, JSON API, snapshot."""
