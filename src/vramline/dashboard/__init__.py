"""Pages for people: every GPU, every pod and why it is where it is, live. They change nothing."""
