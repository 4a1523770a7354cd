"""The embedded cluster: manifests in, placements out; stories; a virtual clock. No Kubernetes, no GPU."""
