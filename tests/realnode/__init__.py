"""A real node beside the test control plane: kubelet on containerd, in namespaces of its own.

Containers are real, images come from no registry, and nothing stays on the machine, however a test ends.
"""
