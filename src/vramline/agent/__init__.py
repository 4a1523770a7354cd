"""The node agent: what runs on every node with GPUs, and speaks with its kubelet."""
